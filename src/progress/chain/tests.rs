//! Chains of made-up manifests: whatever the order of commits, the frontier is the same and never
//! passes a hole.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::archive::sample::{self, UUID};

fn incarnation() -> Incarnation {
    "0001-0a1b2c3d".parse().unwrap()
}

fn plain(number: u64) -> Arc<Manifest> {
    Arc::new(sample::with(number, &json!({})))
}

fn at(chain: &Chain) -> Option<u64> {
    let frontier = chain.frontier()?;
    let entry = frontier.entry();
    assert_eq!(entry.segment.number(), entry.number);
    assert_eq!(chain.frontier_manifest().map(|m| m.number), Some(entry.number));
    assert_eq!(entry.from.number(), chain.first());
    Some(entry.number.0)
}

#[test]
fn the_frontier_waits_for_the_chains_first_segment() {
    let mut chain = Chain::new(incarnation(), SegmentNumber(1));
    for number in [3, 2] {
        chain.insert(plain(number));
        assert_eq!(at(&chain), None);
    }
    let (ahead, gaps) = chain.beyond();
    assert_eq!(ahead, [Ahead { first: SegmentNumber(2), last: SegmentNumber(3), segments: 2 }]);
    assert_eq!(gaps, [Gap { after: None, before: SegmentNumber(2), gtids: None }]);
    chain.insert(plain(1));
    assert_eq!(at(&chain), Some(3));
    assert_eq!(chain.beyond(), (Vec::new(), Vec::new()));
}

#[test]
fn a_missing_number_is_a_gap_with_its_gtids() {
    let mut chain = Chain::new(incarnation(), SegmentNumber(1));
    for number in [1, 2, 5, 6, 9] {
        chain.insert(plain(number));
    }
    assert_eq!(at(&chain), Some(2));
    let (ahead, gaps) = chain.beyond();
    let run = |first, last, segments| Ahead {
        first: SegmentNumber(first),
        last: SegmentNumber(last),
        segments,
    };
    assert_eq!(ahead, [run(5, 6, 2), run(9, 9, 1)]);
    let missing: Vec<(Option<u64>, u64, String)> = gaps
        .into_iter()
        .map(|gap| (gap.after.map(|n| n.0), gap.before.0, gap.gtids.unwrap().to_string()))
        .collect();
    assert_eq!(missing, [(Some(2), 5, format!("{UUID}:3-4")), (Some(6), 9, format!("{UUID}:7-8"))]);
}

#[test]
fn neighbours_that_contradict_each_other_stop_the_frontier() {
    let other = json!({"next_segment": "binlog.000009"});
    let missing = json!({"previous": format!("{UUID}:1-7"), "added": format!("{UUID}:8")});
    let forked = json!({"previous": format!("{UUID}:1"), "added": format!("{UUID}:3")});
    for (number, fields) in [(2, &other), (3, &missing), (3, &forked)] {
        let mut chain = Chain::new(incarnation(), SegmentNumber(1));
        for n in 1..=4 {
            let fields = if n == number { fields } else { &Value::Null };
            chain.insert(Arc::new(sample::with(n, fields)));
        }
        assert_eq!(at(&chain), Some(2), "{fields}");
        assert!(!chain.beyond().1.is_empty(), "{fields}");
    }
}

#[test]
fn links_that_no_set_confirms_are_passed_and_counted() {
    let opaque = json!({
        "previous": null, "added": null, "readable": false, "ending": null, "next_segment": null,
        "created_at_startup": null, "in_use": null, "anonymous_transactions": null,
    });
    let mut chain = Chain::new(incarnation(), SegmentNumber(1));
    for number in [4, 2, 3, 1] {
        chain.insert(Arc::new(sample::with(number, &opaque)));
    }
    assert_eq!((at(&chain), chain.unverified()), (Some(4), 3));
}

#[test]
fn numbers_beyond_six_digits_are_in_order() {
    let mut chain = Chain::new(incarnation(), SegmentNumber(999_998));
    for number in [1_000_001, 999_999, 1_000_000, 999_998] {
        chain.insert(plain(number));
    }
    assert_eq!(at(&chain), Some(1_000_001));
}

#[test]
fn a_chain_resumed_at_its_cursor_goes_on_as_if_it_had_never_stopped() {
    let cursor = CursorEntry {
        unverified: 0,
        from: "binlog.000001".parse().unwrap(),
        segment: "binlog.000003".parse().unwrap(),
        number: SegmentNumber(3),
    };
    let mut chain = Chain::resume(incarnation(), &cursor, plain(3));
    assert_eq!(at(&chain), Some(3));
    // What lies below is old news.
    chain.insert(plain(2));
    assert_eq!(at(&chain), Some(3));
    chain.insert(plain(5));
    assert_eq!(at(&chain), Some(3));
    chain.insert(plain(4));
    assert_eq!(at(&chain), Some(5));
    assert_eq!(chain.first(), SegmentNumber(1));
}

/// What follows a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The server rotates.
    Rotates,
    /// It is shut down and started.
    Restarts,
    /// Transactions are missing in between.
    LosesSome,
    /// It names another file.
    NamesAnother,
    /// Its history is another one.
    Forks,
}

impl Next {
    const fn passes(self) -> bool {
        matches!(self, Self::Rotates | Self::Restarts)
    }
}

/// A history: for each segment its number of GTIDs, what follows it, and whether it is committed.
#[derive(Debug, Clone)]
struct History {
    segments: Vec<(u64, Next, bool)>,
}

impl History {
    const FIRST: u64 = 7;

    fn manifests(&self) -> Vec<Arc<Manifest>> {
        let (mut made, mut next_gno) = (Vec::new(), 1_u64);
        let (mut before, mut startup) = (None::<String>, true);
        for (at, (gtids, next, committed)) in self.segments.iter().enumerate() {
            let number = Self::FIRST + at as u64;
            let name = format!("binlog.{number:06}");
            let set = |first: u64, last: u64| {
                if last < first { String::new() } else { format!("{UUID}:{first}-{last}") }
            };
            let (ending, next_segment) = match next {
                Next::Restarts => ("stop", None),
                Next::NamesAnother => ("rotate", Some("other.000001".to_owned())),
                Next::Rotates | Next::LosesSome | Next::Forks => {
                    ("rotate", Some(format!("binlog.{:06}", number + 1)))
                }
            };
            let fields = json!({
                "previous": set(1, next_gno - 1), "added": set(next_gno, next_gno + gtids - 1),
                "ending": ending, "next_segment": next_segment,
                "listed_after": before, "created_at_startup": startup,
            });
            if *committed {
                made.push(Arc::new(sample::with(number, &fields)));
            }
            before = Some(name);
            startup = *next == Next::Restarts;
            next_gno += gtids;
            match next {
                Next::LosesSome => next_gno += 3,
                Next::Forks => next_gno -= 1,
                Next::Rotates | Next::Restarts | Next::NamesAnother => {}
            }
        }
        made
    }

    /// The frontier once exactly these numbers are known, by what was made and not by sets.
    fn frontier(&self, known: &BTreeSet<u64>) -> Option<u64> {
        let mut at = None;
        for (index, (_, next, _)) in self.segments.iter().enumerate() {
            let number = Self::FIRST + index as u64;
            if !known.contains(&number) {
                return at;
            }
            at = Some(number);
            if !next.passes() {
                return at;
            }
        }
        at
    }
}

fn history() -> impl Strategy<Value = History> {
    let next = prop_oneof![
        6 => Just(Next::Rotates),
        2 => Just(Next::Restarts),
        1 => Just(Next::LosesSome),
        1 => Just(Next::NamesAnother),
        1 => Just(Next::Forks),
    ];
    // At least two GTIDs each, so that a missing segment is always seen by the sets, a fork from it too.
    let segment = (2..5_u64, next, prop::bool::weighted(0.9));
    prop::collection::vec(segment, 1..14).prop_map(|segments| History { segments })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_commits_gives_the_same_frontier(
        (history, order) in history().prop_flat_map(|history| {
            let manifests = history.manifests();
            (Just(history), Just(manifests).prop_shuffle())
        }),
        resumed_after in 0..14_usize,
    ) {
        let first = SegmentNumber(History::FIRST);
        let mut chain = Chain::new(incarnation(), first);
        let (mut known, mut before) = (BTreeSet::new(), None);
        for (step, manifest) in order.iter().enumerate() {
            chain.insert(Arc::clone(manifest));
            known.insert(manifest.number.0);
            let now = at(&chain);
            prop_assert!(now >= before, "it went back");
            prop_assert_eq!(now, history.frontier(&known));
            before = now;

            // Stopped here and started again from the cursor and the bucket.
            if step == resumed_after {
                let mut resumed = match chain.frontier() {
                    Some(frontier) => {
                        let at = Arc::clone(chain.frontier_manifest().unwrap());
                        Chain::resume(incarnation(), &frontier.entry(), at)
                    }
                    None => Chain::new(incarnation(), first),
                };
                for number in known.iter().rev() {
                    let manifest = order.iter().find(|m| m.number.0 == *number).unwrap();
                    resumed.insert(Arc::clone(manifest));
                }
                prop_assert_eq!(resumed.beyond(), chain.beyond());
                chain = resumed;
                prop_assert_eq!(at(&chain), now);
            }
        }
        // Every committed segment is below the frontier, or in a run beyond it.
        let beyond: u64 = chain.beyond().0.iter().map(|run| run.segments).sum();
        let below = before.map_or(0, |at| known.iter().filter(|number| **number <= at).count());
        prop_assert_eq!(beyond + below as u64, known.len() as u64);
    }
}
