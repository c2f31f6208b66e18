//! GTID sets of MySQL, with tags.

use std::collections::BTreeMap;
use std::fmt;

use super::intervals::Intervals;
use super::{Tag, Uuid};

/// The highest number a MySQL GTID can have: 2^63 − 2.
pub const MAX_GNO: u64 = (1 << 63) - 2;

/// A set of MySQL GTIDs: intervals for each `(uuid, tag)`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MysqlSet {
    /// Neither a map nor intervals in here are ever empty.
    uuids: BTreeMap<Uuid, BTreeMap<Tag, Intervals>>,
}

impl MysqlSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.uuids.is_empty()
    }

    /// How many intervals it is made of.
    #[must_use]
    pub fn interval_count(&self) -> usize {
        self.entries().map(|(_, _, intervals)| intervals.len()).sum()
    }

    /// How many GTIDs are in it, saturating.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries().fold(0, |sum, (_, _, intervals)| sum.saturating_add(intervals.count()))
    }

    /// The servers of which it has GTIDs, rising.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.uuids.keys().copied()
    }

    /// Uuid, tag, first and last of each interval, in the order of the text.
    pub fn intervals(&self) -> impl Iterator<Item = (Uuid, &Tag, u64, u64)> {
        self.entries().flat_map(|(uuid, tag, intervals)| {
            intervals.iter().map(move |(first, last)| (uuid, tag, first, last))
        })
    }

    /// Adds one GTID. Numbers that no GTID can have (0, above [`MAX_GNO`]) add nothing.
    pub fn insert(&mut self, uuid: Uuid, tag: &Tag, gno: u64) {
        self.insert_range(uuid, tag, gno, gno);
    }

    /// Adds all from `first` to `last`, inclusive. What lies outside 1..=[`MAX_GNO`] adds nothing.
    pub fn insert_range(&mut self, uuid: Uuid, tag: &Tag, first: u64, last: u64) {
        let (first, last) = (first.max(1), last.min(MAX_GNO));
        if first > last {
            return;
        }
        let tags = self.uuids.entry(uuid).or_default();
        // Not by `entry`, which would need a copy of the tag for each GTID.
        match tags.get_mut(tag) {
            Some(intervals) => intervals.insert(first, last),
            None => tags.entry(tag.clone()).or_default().insert(first, last),
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (uuid, tag, intervals) in other.entries() {
            sum.uuids.entry(uuid).or_default().entry(tag.clone()).or_default().absorb(intervals);
        }
        sum
    }

    /// What is in this and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        for (uuid, tag, intervals) in self.entries() {
            match other.get(uuid, tag) {
                Some(cut) => rest.put(uuid, tag, intervals.difference(cut)),
                None => rest.put(uuid, tag, intervals.clone()),
            }
        }
        rest
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        for (uuid, tag, intervals) in self.entries() {
            if let Some(theirs) = other.get(uuid, tag) {
                both.put(uuid, tag, intervals.intersection(theirs));
            }
        }
        both
    }

    /// What is in this and of a server that `wanted` accepts.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(Uuid) -> bool) -> Self {
        let uuids = self.uuids.iter().filter(|(uuid, _)| wanted(**uuid));
        Self { uuids: uuids.map(|(uuid, tags)| (*uuid, tags.clone())).collect() }
    }

    /// Whether all of `other` is in this.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.entries().all(|(uuid, tag, theirs)| {
            self.get(uuid, tag).is_some_and(|ours| ours.contains(theirs))
        })
    }

    /// Whether nothing is in both.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.entries().all(|(uuid, tag, ours)| {
            other.get(uuid, tag).is_none_or(|theirs| ours.is_disjoint(theirs))
        })
    }

    pub(super) fn get(&self, uuid: Uuid, tag: &Tag) -> Option<&Intervals> {
        self.uuids.get(&uuid).and_then(|tags| tags.get(tag))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Uuid, &Tag, &Intervals)> {
        self.uuids.iter().flat_map(|(uuid, tags)| {
            tags.iter().map(move |(tag, intervals)| (*uuid, tag, intervals))
        })
    }

    fn put(&mut self, uuid: Uuid, tag: &Tag, intervals: Intervals) {
        if !intervals.is_empty() {
            self.uuids.entry(uuid).or_default().insert(tag.clone(), intervals);
        }
    }
}

impl fmt::Debug for MysqlSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlSet({self})")
    }
}
