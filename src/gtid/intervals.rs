//! Sets of numbers as intervals that neither touch nor overlap.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Numbers of one `(uuid, tag)`. A map from first to last (inclusive) and not a sorted list,
/// because numbers arrive in any order and a list would move its tail at each insert.
///
/// Ends stay below `u64::MAX`: the callers allow at most `MAX_GNO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Takes intervals that rise and do not touch.
    fn from_sorted(sorted: Vec<(u64, u64)>) -> Self {
        Self(sorted.into_iter().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// First and last of each interval, rising.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// How many numbers, saturating.
    pub(super) fn count(&self) -> u64 {
        self.iter().fold(0, |sum, (first, last)| sum.saturating_add(last - first + 1))
    }

    /// Adds `first..=last`; the caller has `first <= last`.
    pub(super) fn insert(&mut self, first: u64, last: u64) {
        // Servers commit and print in order: nearly all comes at or behind the end.
        if let Some(mut tail) = self.0.last_entry() {
            let next = tail.get().saturating_add(1);
            if first == next {
                *tail.get_mut() = last;
                return;
            }
            if first > next {
                self.0.insert(first, last);
                return;
            }
        }
        let (mut start, mut end) = (first, last);
        if let Some((before, its_end)) = self.0.range(..=first).next_back()
            && its_end.saturating_add(1) >= first
        {
            if *its_end >= last {
                return;
            }
            start = *before;
        }
        // All that begins inside, or right after the end, becomes one with this.
        let swallowed = |end: u64| (Bound::Excluded(start), Bound::Included(end.saturating_add(1)));
        while let Some((next, its_end)) = self.0.range(swallowed(end)).next() {
            let (next, its_end) = (*next, *its_end);
            self.0.remove(&next);
            end = end.max(its_end);
        }
        self.0.insert(start, end);
    }

    /// Adds all of `other`: the one with fewer intervals goes into the other.
    pub(super) fn absorb(&mut self, other: &Self) {
        if other.len() <= self.len() {
            other.iter().for_each(|(first, last)| self.insert(first, last));
        } else {
            let fewer = std::mem::replace(self, other.clone());
            fewer.iter().for_each(|(first, last)| self.insert(first, last));
        }
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut kept = Vec::new();
        let mut cuts = other.iter().peekable();
        for (mut first, last) in self.iter() {
            while cuts.next_if(|(_, cut_last)| *cut_last < first).is_some() {}
            while let Some((cut_first, cut_last)) = cuts.peek().copied()
                && cut_first <= last
            {
                if cut_first > first {
                    kept.push((first, cut_first - 1));
                }
                first = cut_last + 1;
                if cut_last > last {
                    // It may reach into our next interval.
                    break;
                }
                cuts.next();
            }
            if first <= last {
                kept.push((first, last));
            }
        }
        Self::from_sorted(kept)
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self::from_sorted(self.overlaps(other).collect())
    }

    pub(super) fn is_disjoint(&self, other: &Self) -> bool {
        self.overlaps(other).next().is_none()
    }

    /// Where both have numbers, rising.
    fn overlaps(&self, other: &Self) -> impl Iterator<Item = (u64, u64)> {
        let mut ours = self.iter().peekable();
        let mut theirs = other.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let (our_first, our_last) = *ours.peek()?;
                let (their_first, their_last) = *theirs.peek()?;
                if our_last <= their_last {
                    ours.next();
                }
                if their_last <= our_last {
                    theirs.next();
                }
                let (first, last) = (our_first.max(their_first), our_last.min(their_last));
                if first <= last {
                    return Some((first, last));
                }
            }
        })
    }

    /// Whether all of `other` is in this. Since touching intervals are one, each of `other`'s
    /// must lie in a single one of ours.
    pub(super) fn contains(&self, other: &Self) -> bool {
        other.iter().all(|(first, last)| {
            self.0.range(..=first).next_back().is_some_and(|(_, our_last)| *our_last >= last)
        })
    }
}
