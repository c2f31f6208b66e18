//! Numbers between the committed ones that have neither a manifest nor a payload.
//!
//! **Invariants.** A number is passed over in silence only where the link of its two neighbours
//! proves, or at least says, that nothing lies between. Pure.

use std::collections::BTreeSet;

use super::super::manifest::{IncarnationRecord, Manifest};
use crate::segment::{Link, SegmentNumber, link};

/// Numbers in a row of which nothing is archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) first: SegmentNumber,
    pub(super) last: SegmentNumber,
    /// Between which segments, and what is known to lie there.
    pub(super) detail: String,
}

impl Gap {
    /// How many numbers.
    pub(super) const fn len(&self) -> u64 {
        self.last.0.saturating_sub(self.first.0).saturating_add(1)
    }

    /// `<first10>` or `<first10>-<last10>`.
    pub(super) fn segment(&self) -> String {
        if self.first == self.last {
            self.first.padded()
        } else {
            format!("{}-{}", self.first.padded(), self.last.padded())
        }
    }

    /// The gap without the numbers that were told of otherwise.
    pub(super) fn without(&self, told: &BTreeSet<SegmentNumber>) -> Vec<Self> {
        let mut left = Vec::new();
        let mut from = self.first.0;
        let run = |first: u64, last: u64| Self {
            first: SegmentNumber(first),
            last: SegmentNumber(last),
            detail: self.detail.clone(),
        };
        for number in told.range(self.first..=self.last) {
            if number.0 > from {
                left.push(run(from, number.0 - 1));
            }
            from = number.0.saturating_add(1);
        }
        if from <= self.last.0 {
            left.push(run(from, self.last.0));
        }
        left
    }
}

/// Looks at manifests in order of their numbers, and at those that do not decode by number alone.
#[derive(Debug, Default)]
pub(super) struct Walk {
    gaps: Vec<Gap>,
    last: Option<(SegmentNumber, Option<Box<Manifest>>)>,
}

impl Walk {
    /// The next one; `None` for one that does not decode.
    pub(super) fn next(&mut self, number: SegmentNumber, manifest: Option<Box<Manifest>>) {
        if let Some((before, known)) = &self.last
            && let Some((first, last)) = between(*before, number)
        {
            let found = match (known, &manifest) {
                (Some(a), Some(b)) => Some((a, b, link(&a.side(), &b.side()))),
                (Some(_) | None, Some(_) | None) => None,
            };
            let detail = match found {
                Some((_, _, link)) if link.passes() => None,
                Some((a, b, link)) => {
                    Some(format!("{}{}", nothing(&a.segment, &b.segment), lies(&link)))
                }
                None => Some(format!(
                    "{}, and what their manifests say of each other cannot be read",
                    nothing(&before.padded(), &number.padded())
                )),
            };
            self.gaps.extend(detail.map(|detail| Gap { first, last, detail }));
        }
        self.last = Some((number, manifest));
    }

    /// All of them, in order. `lowest` is the lowest committed number.
    pub(super) fn done(
        self,
        record: Option<&IncarnationRecord>,
        lowest: Option<SegmentNumber>,
    ) -> Vec<Gap> {
        let start = record.zip(lowest).and_then(|(record, lowest)| {
            let first = record.first.number;
            let last = SegmentNumber(lowest.0.checked_sub(1).filter(|last| *last >= first.0)?);
            let detail = format!(
                "neither a manifest nor a payload: the incarnation begins with {}, and the first \
                 one archived is {}",
                record.first.segment,
                lowest.padded()
            );
            Some(Gap { first, last, detail })
        });
        start.into_iter().chain(self.gaps).collect()
    }
}

fn between(before: SegmentNumber, next: SegmentNumber) -> Option<(SegmentNumber, SegmentNumber)> {
    let (first, last) = (before.0.checked_add(1)?, next.0.checked_sub(1)?);
    (first <= last).then_some((SegmentNumber(first), SegmentNumber(last)))
}

fn nothing(a: &impl std::fmt::Display, b: &impl std::fmt::Display) -> String {
    format!("neither a manifest nor a payload: nothing is archived between {a} and {b}")
}

fn lies(link: &Link) -> String {
    match link {
        Link::Follows | Link::FollowsUnverified => String::new(),
        Link::Hole(Some(gtids)) => format!("; missing are {gtids}"),
        Link::Hole(None) => "; what lies there is not known".to_owned(),
        Link::Fork => "; the later one does not know all GTIDs of the earlier one".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_told_of_otherwise_split_a_gap() {
        let number = SegmentNumber;
        let gap = Gap { first: number(3), last: number(9), detail: String::new() };
        let segments = |told: &[u64]| -> Vec<String> {
            let told = told.iter().copied().map(SegmentNumber).collect();
            gap.without(&told).iter().map(Gap::segment).collect()
        };
        assert_eq!(segments(&[]), ["0000000003-0000000009"]);
        assert_eq!(segments(&[1, 3, 5, 9, 12]), ["0000000004", "0000000006-0000000008"]);
        assert_eq!(segments(&[3, 4, 5, 6, 7, 8, 9]), Vec::<String>::new());
        assert_eq!(gap.len(), 7);
    }

    #[test]
    fn a_neighbour_that_does_not_decode_proves_nothing() {
        let mut walk = Walk::default();
        for number in [2, 3, 6, 7] {
            walk.next(SegmentNumber(number), None);
        }
        let gaps = walk.done(None, Some(SegmentNumber(2)));
        assert_eq!(gaps.iter().map(Gap::segment).collect::<Vec<_>>(), ["0000000004-0000000005"]);
    }
}
