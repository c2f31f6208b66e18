//! The chain of one incarnation: which committed segments follow each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::CursorEntry;
use crate::archive::Manifest;
use crate::gtid::Added;
use crate::segment::{Incarnation, Link, SegmentName, SegmentNumber, link};

/// The end of the longest run of *follows*. Made by a [`Chain`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontier {
    incarnation: Incarnation,
    from: SegmentName,
    segment: SegmentName,
    unverified: u64,
}

impl Frontier {
    /// The incarnation it belongs to.
    #[must_use]
    pub const fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// The cursor that stands at it.
    #[must_use]
    pub fn entry(&self) -> CursorEntry {
        CursorEntry {
            unverified: self.unverified,
            from: self.from.clone(),
            segment: self.segment.clone(),
            number: self.segment.number(),
        }
    }
}

/// A run of committed segments beyond the frontier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// Its first segment's number.
    pub first: SegmentNumber,
    /// Its last segment's number.
    pub last: SegmentNumber,
    /// How many segments it has.
    pub segments: u64,
}

/// What lies between two committed neighbours that do not follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The committed number before it; `None` when the chain's own first segment is missing.
    pub after: Option<SegmentNumber>,
    /// The committed number after it.
    pub before: SegmentNumber,
    /// The GTIDs that are missing, when the sets tell.
    pub gtids: Option<Added>,
}

/// The committed segments of one incarnation, from its frontier on.
#[derive(Debug)]
pub struct Chain {
    incarnation: Incarnation,
    first: SegmentNumber,
    from: Option<SegmentName>,
    frontier: Option<SegmentNumber>,
    /// Links passed that no GTID set confirms.
    unverified: u64,
    /// The frontier's segment and all committed beyond it.
    entries: BTreeMap<SegmentNumber, Arc<Manifest>>,
}

impl Chain {
    /// A chain that begins with number `first`, not committed yet.
    #[must_use]
    pub const fn new(incarnation: Incarnation, first: SegmentNumber) -> Self {
        let entries = BTreeMap::new();
        Self { incarnation, first, from: None, frontier: None, unverified: 0, entries }
    }

    /// Resumes from a durable cursor, whose own manifest is `at`.
    #[must_use]
    pub fn resume(incarnation: Incarnation, cursor: &CursorEntry, at: Arc<Manifest>) -> Self {
        let number = at.number;
        Self {
            incarnation,
            first: cursor.from.number(),
            from: Some(cursor.from.clone()),
            frontier: Some(number),
            unverified: cursor.unverified,
            entries: BTreeMap::from([(number, at)]),
        }
    }

    /// The incarnation it belongs to.
    #[must_use]
    pub const fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Takes a committed segment in, in any order, and moves the frontier as far as it goes.
    pub fn insert(&mut self, manifest: Arc<Manifest>) {
        if self.frontier.is_some_and(|frontier| manifest.number <= frontier) {
            return;
        }
        self.entries.insert(manifest.number, manifest);
        self.advance();
    }

    fn advance(&mut self) {
        let mut at = match self.frontier {
            Some(frontier) => frontier,
            None => match self.entries.get(&self.first) {
                Some(first) => {
                    self.from = Some(first.segment.clone());
                    self.frontier = Some(self.first);
                    self.first
                }
                None => return,
            },
        };
        while let Some((next, link)) = self.link_after(at) {
            match link {
                Link::Follows => {}
                Link::FollowsUnverified => self.unverified += 1,
                Link::Hole(_) | Link::Fork => break,
            }
            at = next;
            self.frontier = Some(at);
        }
        // Only the frontier's own segment and what lies beyond it can still be linked.
        self.entries = self.entries.split_off(&at);
    }

    fn link_after(&self, at: SegmentNumber) -> Option<(SegmentNumber, Link)> {
        let mut from_here = self.entries.range(at..);
        let (_, a) = from_here.next().filter(|(number, _)| **number == at)?;
        let (number, b) = from_here.next()?;
        Some((*number, link(&a.side(), &b.side())))
    }

    /// The frontier, once the chain's first segment is committed.
    #[must_use]
    pub fn frontier(&self) -> Option<Frontier> {
        let at = self.entries.get(&self.frontier?)?;
        let from = self.from.clone()?;
        Some(Frontier {
            incarnation: self.incarnation.clone(),
            from,
            segment: at.segment.clone(),
            unverified: self.unverified,
        })
    }

    /// The committed segment with the highest number.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Manifest>> {
        self.entries.values().next_back()
    }

    /// The manifest of the frontier's segment.
    #[must_use]
    pub fn frontier_manifest(&self) -> Option<&Arc<Manifest>> {
        self.entries.get(&self.frontier?)
    }

    /// The number that the chain begins with.
    #[must_use]
    pub const fn first(&self) -> SegmentNumber {
        self.first
    }

    /// Links passed that no GTID set confirms.
    #[must_use]
    pub const fn unverified(&self) -> u64 {
        self.unverified
    }

    /// What lies beyond the frontier: runs of segments that follow each other, and the gaps before
    /// them. Whether a gap is a hole or only not archived yet is for the caller, who knows what is
    /// waiting.
    #[must_use]
    pub fn beyond(&self) -> (Vec<Ahead>, Vec<Gap>) {
        let (mut runs, mut gaps): (Vec<Ahead>, Vec<Gap>) = (Vec::new(), Vec::new());
        let mut before: Option<&Arc<Manifest>> = None;
        for (number, manifest) in &self.entries {
            if self.frontier == Some(*number) {
                before = Some(manifest);
                continue;
            }
            let link = before.map(|before| link(&before.side(), &manifest.side()));
            match (link, runs.last_mut()) {
                (Some(link), Some(run)) if link.passes() => {
                    run.last = *number;
                    run.segments += 1;
                }
                (link, _) => {
                    let gtids = match link {
                        Some(Link::Hole(gtids)) => gtids,
                        Some(Link::Follows | Link::FollowsUnverified | Link::Fork) | None => None,
                    };
                    let after = before.map(|before| before.number);
                    gaps.push(Gap { after, before: *number, gtids });
                    runs.push(Ahead { first: *number, last: *number, segments: 1 });
                }
            }
            before = Some(manifest);
        }
        (runs, gaps)
    }
}

#[cfg(test)]
mod tests;
