//! States, positions and ranges of MariaDB.

use crate::gtid::{MariadbRanges, MariadbState};

fn state(text: &str) -> MariadbState {
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

fn ranges(text: &str) -> MariadbRanges {
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

fn hexed(body: &str) -> Vec<u8> {
    hex::decode(body.replace(' ', "")).unwrap()
}

#[test]
fn a_real_list() {
    let body = hexed(
        "03000000 05000000 07000000 0100000000000000 \
         05000000 63000000 0200000000000000 00000000 07000000 0600000000000000",
    );
    let list = MariadbState::from_binary(&body).unwrap();
    assert_eq!(list.to_string(), "0-7-6,5-7-1,5-99-2");
    assert_eq!(list.position().to_string(), "0-7-6,5-99-2");
    assert_eq!(list.newest(5).unwrap().to_string(), "5-99-2");
    assert_eq!(list.newest(1), None);
    assert_eq!(MariadbState::from_binary(&list.to_binary()).unwrap(), list);
}

#[test]
fn the_server_pads_an_empty_list() {
    for body in [&[0; 6][..], &[0; 4]] {
        assert!(MariadbState::from_binary(body).unwrap().is_empty());
    }
    assert_eq!(MariadbState::new().to_binary(), [0; 6]);
    assert_eq!(MariadbState::from_binary(&[0; 5]).unwrap_err().offset, 4);
    assert_eq!(MariadbState::from_binary(&[0; 7]).unwrap_err().offset, 4);
}

#[test]
fn flags_of_a_list_are_passed_over() {
    let body = hexed("010000f0 00000000 07000000 0600000000000000");
    assert_eq!(MariadbState::from_binary(&body).unwrap(), state("0-7-6"));
}

#[test]
fn broken_lists_are_refused_where_they_break() {
    let pair = "00000000 07000000 0600000000000000";
    let table = [
        ("", 0),
        ("010000", 0),
        ("ffffff0f", 0),
        ("ffffffff", 0),
        (&format!("02000000 {pair}"), 0),
        (&format!("00000000 {pair}"), 4),
        (&format!("01000000 {pair} 00"), 20),
        (&format!("02000000 {pair} {pair}"), 20),
    ];
    for (body, offset) in table {
        let error = MariadbState::from_binary(&hexed(body)).expect_err(body);
        assert_eq!(error.offset, offset, "{body}: {error}");
    }
}

#[test]
fn states_as_text() {
    let table = [
        ("", ""),
        ("0-1-5", "0-1-5"),
        ("000-01-0005", "0-1-5"),
        ("5-1-2,0-3-4", "0-3-4,5-1-2"),
        // One domain, several servers: the last in the text is the newest.
        ("0-3-4,0-1-9,0-2-7", "0-1-9,0-3-4,0-2-7"),
        (
            "4294967295-4294967295-18446744073709551615",
            "4294967295-4294967295-18446744073709551615",
        ),
    ];
    for (text, want) in table {
        assert_eq!(state(text).to_string(), want, "{text:?}");
        assert_eq!(state(want), state(text), "{text:?}");
    }
}

#[test]
fn what_is_no_state() {
    let table = [
        (" ", 0),
        ("0-1-5,", 6),
        (",0-1-5", 0),
        ("0-1-5, 0-2-6", 6),
        ("0-1-5 ", 5),
        ("0-1", 3),
        ("0-1-", 4),
        ("-1-5", 0),
        ("0-1-5-6", 5),
        ("0-1-5:6", 5),
        ("4294967296-1-1", 0),
        ("0-4294967296-1", 2),
        ("0-1-18446744073709551616", 4),
        ("0-1-5,0-1-6", 6),
        ("a", 0),
    ];
    for (text, offset) in table {
        let error = text.parse::<MariadbState>().expect_err(text);
        assert_eq!(error.offset, offset, "{text:?}: {error}");
    }
}

#[test]
fn a_push_raises_and_makes_newest() {
    let mut list = state("0-1-5,0-2-9");
    list.push(0, 1, 12);
    assert_eq!(list.to_string(), "0-2-9,0-1-12");
    // A number out of order does not lower what was reached.
    list.push(0, 2, 3);
    assert_eq!(list.to_string(), "0-1-12,0-2-9");
    assert_eq!((list.seq(0, 1), list.seq(0, 3), list.seq(1, 1)), (Some(12), None, None));
    assert_eq!(list.domains().collect::<Vec<_>>(), [0]);
}

#[test]
fn ranges_as_text() {
    for text in ["", "0-1-5", "0-1-5:9", "0-1-5:9,0-2-1,3-1-7:18446744073709551615"] {
        assert_eq!(ranges(text).to_string(), text);
    }
    assert_eq!(ranges("3-1-7:7,0-2-1,0-1-05:9").to_string(), "0-1-5:9,0-2-1,3-1-7");
    for (text, offset) in
        [("0-1-5:", 6), ("0-1-5:4", 0), ("0-1-5:6:7", 7), ("0-1-5,0-1-9", 6), ("0-1-1 ", 5)]
    {
        let error = text.parse::<MariadbRanges>().expect_err(text);
        assert_eq!(error.offset, offset, "{text:?}: {error}");
    }
}

#[test]
fn ranges_as_sets() {
    let a = ranges("0-1-5:9,2-1-3");
    assert!(a.contains(&ranges("0-1-6:8")) && a.contains(&ranges("")));
    assert!(!a.contains(&ranges("0-1-6:10")) && !a.contains(&ranges("0-2-6")));
    assert_eq!(a.intersection(&ranges("0-1-1:6,2-1-4")).to_string(), "0-1-5:6");
    assert!(a.is_disjoint(&ranges("0-1-10:12,0-2-5,2-1-2")));
    assert!(!a.is_disjoint(&ranges("0-1-9:12")));
    let differences = [
        ("", "0-1-5:9,2-1-3"),
        ("0-1-1:6", "0-1-7:9,2-1-3"),
        ("0-1-8:12", "0-1-5:7,2-1-3"),
        ("0-1-5", "0-1-6:9,2-1-3"),
        ("0-1-9", "0-1-5:8,2-1-3"),
        ("0-1-5:9,2-1-3", ""),
        ("0-1-1:18446744073709551615", "2-1-3"),
        ("0-1-10:20", "0-1-5:9,2-1-3"),
        ("0-1-1:4", "0-1-5:9,2-1-3"),
        // From the middle: one range cannot say it, so nothing is taken.
        ("0-1-6:8", "0-1-5:9,2-1-3"),
    ];
    for (cut, want) in differences {
        assert_eq!(a.difference(&ranges(cut)).to_string(), want, "minus {cut:?}");
    }
    assert_eq!(a.count(), 6);
    assert_eq!(ranges("0-1-0:18446744073709551615,0-2-1").count(), u64::MAX);
    assert_eq!(a.domains().collect::<Vec<_>>(), [0, 2]);
    let mut seen = MariadbRanges::new();
    for seq in [7, 3, 5] {
        seen.insert(0, 1, seq);
    }
    assert_eq!(seen.to_string(), "0-1-3:7");
}

#[test]
fn a_position_of_a_user_covers_its_whole_domain() {
    let all = ranges("0-1-5:9,0-2-10:12,3-1-1:4");
    assert_eq!(all.above(&state("0-2-10")).to_string(), "0-2-11:12,3-1-1:4");
    assert_eq!(all.above(&state("0-9-7,3-1-4")).to_string(), "0-1-8:9,0-2-10:12");
    assert_eq!(all.above(&state("")), all);
    assert!(all.above(&state("0-1-18446744073709551615,3-1-4")).is_empty());
}

#[test]
fn a_state_and_its_ranges() {
    let (before, after) = (state("0-1-5"), state("0-1-5,0-2-1,1-1-18446744073709551615"));
    assert_eq!(after.beyond(&before).to_string(), "0-2-1,1-1-1:18446744073709551615");
    assert!(before.raised(&after.beyond(&before)).covers(&after));
    assert!(after.holds(&ranges("0-1-1:5")) && !after.holds(&ranges("0-1-5:6")));
    assert_eq!(before.raised(&ranges("0-2-9,0-1-7:8")).to_string(), "0-1-8,0-2-9");
    assert_eq!(before.raised(&ranges("0-2-9,0-1-7:10")).to_string(), "0-2-9,0-1-10");
}
