//! The link table, row by row.

use super::*;
use crate::gtid::Flavor;

const U: &str = "11111111-1111-1111-1111-111111111111";

/// A segment that owns what a [`Side`] borrows.
#[derive(Debug, Clone)]
struct Segment {
    name: SegmentName,
    listed_after: Option<SegmentName>,
    next_segment: Option<String>,
    ending: Option<Ending>,
    crash_tail: bool,
    created_at_startup: Option<bool>,
    previous: Option<Previous>,
    added: Option<Added>,
    anonymous_transactions: Option<u64>,
}

impl Segment {
    fn side(&self) -> Side<'_> {
        Side {
            name: &self.name,
            listed_after: self.listed_after.as_ref(),
            next_segment: self.next_segment.as_deref(),
            ending: self.ending,
            crash_tail: self.crash_tail,
            created_at_startup: self.created_at_startup,
            previous: self.previous.as_ref(),
            added: self.added.as_ref(),
            anonymous_transactions: self.anonymous_transactions,
        }
    }
}

/// Two neighbours in the best of health: A's ROTATE names B, B begins where A ends.
fn neighbours() -> (Segment, Segment) {
    let a = Segment {
        name: "binlog.000041".parse().unwrap(),
        listed_after: Some("binlog.000040".parse().unwrap()),
        next_segment: Some("binlog.000042".to_owned()),
        ending: Some(Ending::Rotate),
        crash_tail: false,
        created_at_startup: Some(false),
        previous: previous("1-3"),
        added: added("4-6"),
        anonymous_transactions: Some(0),
    };
    let b = Segment {
        name: "binlog.000042".parse().unwrap(),
        listed_after: Some(a.name.clone()),
        next_segment: Some("binlog.000043".to_owned()),
        previous: previous("1-6"),
        added: added("7"),
        ..a.clone()
    };
    (a, b)
}

fn previous(numbers: &str) -> Option<Previous> {
    Some(Previous::parse(Flavor::Mysql, &set(numbers)).unwrap())
}

fn added(numbers: &str) -> Option<Added> {
    Some(Added::parse(Flavor::Mysql, &set(numbers)).unwrap())
}

fn set(numbers: &str) -> String {
    if numbers.is_empty() { String::new() } else { format!("{U}:{numbers}") }
}

type Change = fn(&mut Segment, &mut Segment);

fn changed(change: Change) -> (Segment, Segment) {
    let (mut a, mut b) = neighbours();
    change(&mut a, &mut b);
    (a, b)
}

const STOPPED: Change = |a, b| {
    (a.ending, a.next_segment) = (Some(Ending::Stop), None);
    b.created_at_startup = Some(true);
};
const CRASHED: Change = |a, b| {
    (a.ending, a.next_segment, a.crash_tail) = (Some(Ending::None), None, true);
    b.created_at_startup = Some(true);
};
const HIDDEN: Change = |a, b| {
    (a.ending, a.next_segment) = (None, None);
    b.created_at_startup = None;
};

#[test]
fn what_the_files_say() {
    let table: Vec<(&str, Change, Physical)> = vec![
        ("rotated", |_, _| (), Physical::Named),
        ("rotated, the index not known", |_, b| b.listed_after = None, Physical::Named),
        ("ROTATE, then a start", |_, b| b.created_at_startup = Some(true), Physical::Restart),
        (
            "ROTATE, then a start, listed after another",
            |_, b| {
                b.created_at_startup = Some(true);
                b.listed_after = Some("binlog.000040".parse().unwrap());
            },
            Physical::Unknown,
        ),
        (
            "ROTATE, then a start, the index not known",
            |_, b| (b.created_at_startup, b.listed_after) = (Some(true), None),
            Physical::Unknown,
        ),
        (
            "ROTATE names another",
            |a, _| a.next_segment = Some("binlog.000050".to_owned()),
            Physical::Contradicted,
        ),
        (
            "ROTATE names another, then a start",
            |a, b| {
                a.next_segment = Some("binlog.000050".to_owned());
                b.created_at_startup = Some(true);
            },
            Physical::Contradicted,
        ),
        ("clean stop", STOPPED, Physical::Restart),
        (
            "clean stop, listed after another",
            |a, b| {
                STOPPED(a, b);
                b.listed_after = Some("binlog.000040".parse().unwrap());
            },
            Physical::Unknown,
        ),
        (
            "clean stop, but no start",
            |a, b| {
                STOPPED(a, b);
                b.created_at_startup = Some(false);
            },
            Physical::Unknown,
        ),
        ("crash", CRASHED, Physical::Restart),
        (
            "crash, the index not known",
            |a, b| {
                CRASHED(a, b);
                b.listed_after = None;
            },
            Physical::Unknown,
        ),
        (
            "no clean end, then a start, but no crash tail",
            |a, b| {
                CRASHED(a, b);
                a.crash_tail = false;
            },
            Physical::Unknown,
        ),
        (
            "no clean end and no start",
            |a, b| {
                CRASHED(a, b);
                b.created_at_startup = Some(false);
            },
            Physical::Contradicted,
        ),
        ("both hidden", HIDDEN, Physical::Listed),
        ("A's end hidden", |a, _| (a.ending, a.next_segment) = (None, None), Physical::Listed),
        ("B's header hidden", |_, b| b.created_at_startup = None, Physical::Listed),
        (
            "hidden, numbers apart",
            |a, b| {
                HIDDEN(a, b);
                b.name = "binlog.000043".parse().unwrap();
            },
            Physical::Unknown,
        ),
        (
            "hidden, listed after another",
            |a, b| {
                HIDDEN(a, b);
                b.listed_after = Some("binlog.000040".parse().unwrap());
            },
            Physical::Unknown,
        ),
    ];
    for (what, change, want) in table {
        let (a, b) = changed(change);
        assert_eq!(physical(&a.side(), &b.side()), want, "{what}");
    }
}

#[test]
fn what_the_sets_say() {
    let missing = |numbers| Logical::Missing(added(numbers).unwrap());
    let table: Vec<(&str, Change, Logical)> = vec![
        ("equal", |_, _| (), Logical::Equal),
        ("more between", |_, b| b.previous = previous("1-9"), missing("7-9")),
        (
            "holes are legal",
            |a, b| (a.added, b.previous) = (added("5"), previous("1-3:5")),
            Logical::Equal,
        ),
        ("B lacks some of A's own", |_, b| b.previous = previous("1-5"), Logical::Fork),
        ("B lacks some from before A", |_, b| b.previous = previous("2-9"), Logical::Fork),
        ("B begins anew", |_, b| b.previous = previous(""), Logical::Fork),
        ("A's own hidden", |a, _| a.added = None, Logical::Unknown),
        (
            "A's own hidden, B lacks some from before A",
            |a, b| (a.added, b.previous) = (None, previous("1-2")),
            Logical::Fork,
        ),
        ("A's previous unknown", |a, _| a.previous = None, Logical::Unknown),
        ("B's previous unknown", |_, b| b.previous = None, Logical::Unknown),
        (
            "GTIDs off",
            |a, b| {
                (a.previous, a.added, b.previous) = (previous(""), added(""), previous(""));
                a.anonymous_transactions = Some(3);
            },
            Logical::Unknown,
        ),
        (
            "GTIDs off, in B",
            |a, b| {
                (a.previous, a.added, b.previous) = (previous(""), added(""), previous(""));
                b.anonymous_transactions = Some(3);
            },
            Logical::Unknown,
        ),
        (
            "nothing written yet",
            |a, b| {
                (a.previous, a.added, b.previous) = (previous(""), added(""), previous(""));
            },
            Logical::Equal,
        ),
        (
            "another flavor",
            |_, b| {
                b.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-1").unwrap());
            },
            Logical::Fork,
        ),
        (
            "MariaDB, equal",
            |a, b| {
                a.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-5,0-2-3").unwrap());
                a.added = Some(Added::parse(Flavor::Mariadb, "0-1-6:9").unwrap());
                b.previous = Some(Previous::parse(Flavor::Mariadb, "0-2-3,0-1-9").unwrap());
            },
            Logical::Equal,
        ),
        (
            "MariaDB, more between",
            |a, b| {
                a.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-5").unwrap());
                a.added = Some(Added::parse(Flavor::Mariadb, "0-1-6:9").unwrap());
                b.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-11").unwrap());
            },
            Logical::Missing(Added::parse(Flavor::Mariadb, "0-1-10:11").unwrap()),
        ),
        (
            "MariaDB, B lacks some",
            |a, b| {
                a.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-5").unwrap());
                a.added = Some(Added::parse(Flavor::Mariadb, "0-1-6:9").unwrap());
                b.previous = Some(Previous::parse(Flavor::Mariadb, "0-1-8").unwrap());
            },
            Logical::Fork,
        ),
    ];
    for (what, change, want) in table {
        let (a, b) = changed(change);
        assert_eq!(logical(&a.side(), &b.side()), want, "{what}");
    }
}

/// How each physical is made here, from neighbours whose sets are left alone.
const PHYSICALS: [(Physical, Change); 5] = [
    (Physical::Named, |_, _| ()),
    (Physical::Restart, STOPPED),
    (Physical::Listed, HIDDEN),
    (Physical::Contradicted, |a, _| a.next_segment = Some("binlog.000050".to_owned())),
    (Physical::Unknown, |a, b| {
        STOPPED(a, b);
        b.listed_after = None;
    }),
];

/// The whole table: every physical with every logical, without anonymous transactions, with
/// some, and where they could not be counted.
#[test]
fn every_physical_with_every_logical() {
    let hole = || Link::Hole(None);
    let between = || Link::Hole(Some(added("7-9").unwrap()));
    for (want_physical, make) in PHYSICALS {
        for anonymous in [Some(0), Some(2), None] {
            let judged = |change: Change| {
                let (mut a, mut b) = changed(make);
                change(&mut a, &mut b);
                a.anonymous_transactions = anonymous;
                assert_eq!(physical(&a.side(), &b.side()), want_physical);
                link(&a.side(), &b.side())
            };
            let what = format!("{want_physical:?}, anonymous {anonymous:?}");
            let none = anonymous == Some(0);
            let (equal, unknown) = match want_physical {
                Physical::Named | Physical::Restart => (Link::Follows, Link::FollowsUnverified),
                Physical::Listed if none => (Link::Follows, Link::FollowsUnverified),
                Physical::Listed => (Link::Hole(None), Link::FollowsUnverified),
                Physical::Contradicted => (hole(), hole()),
                Physical::Unknown if none => (Link::Follows, hole()),
                Physical::Unknown => (hole(), hole()),
            };
            assert_eq!(judged(|_, _| ()), equal, "{what}, equal");
            assert_eq!(judged(|a, _| a.added = None), unknown, "{what}, unknown");
            assert_eq!(judged(|_, b| b.previous = None), unknown, "{what}, unknown");
            let more: Change = |_, b| b.previous = previous("1-9");
            assert_eq!(judged(more), between(), "{what}, missing");
            let less: Change = |_, b| b.previous = previous("1-5");
            assert_eq!(judged(less), Link::Fork, "{what}, fork");
        }
    }
}

/// A server that dies between writing ROTATE and opening the next file opens it at its start.
#[test]
fn a_rotation_mended_by_a_restart_follows() {
    let (a, mut b) = changed(|_, b| b.created_at_startup = Some(true));
    assert_eq!(physical(&a.side(), &b.side()), Physical::Restart);
    assert_eq!(link(&a.side(), &b.side()), Link::Follows);
    // Without the index's word it is a guess; the sets may still prove it.
    b.listed_after = None;
    assert_eq!(link(&a.side(), &b.side()), Link::Follows);
    b.anonymous_transactions = Some(1);
    assert_eq!(link(&a.side(), &b.side()), Link::Hole(None));
}

#[test]
fn a_server_without_gtids_goes_on_unverified() {
    let (a, b) = changed(|a, b| {
        (a.previous, a.added, b.previous) = (previous(""), added(""), previous(""));
        a.anonymous_transactions = Some(3);
    });
    assert_eq!(link(&a.side(), &b.side()), Link::FollowsUnverified);
}

#[test]
fn a_cursor_passes_only_what_follows() {
    assert!(Link::Follows.passes() && Link::FollowsUnverified.passes());
    assert!(!Link::Hole(None).passes() && !Link::Fork.passes());
}
