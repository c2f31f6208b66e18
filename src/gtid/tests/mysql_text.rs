//! The accept and reject table measured on a 9.7.4 server, row by row.

use super::{U, V, whole};
use crate::gtid::{MAX_GNO, MysqlSet, Tag, Uuid};

fn parse(text: &str) -> String {
    whole(text).parse::<MysqlSet>().unwrap_or_else(|e| panic!("{text:?}: {e}")).to_string()
}

#[test]
fn what_the_server_accepts() {
    let table = [
        ("u:1-3:2-8", "u:1-8"),
        ("u:1-3,u:4-8", "u:1-8"),
        ("u:3-1", ""),
        ("u:1-0", ""),
        ("u", ""),
        ("u:tag", ""),
        ("u:010", "u:10"),
        ("u:1:tag:5:tag2:7:tag:6", "u:1:tag:5-6:tag2:7"),
        ("V:1,u:zz:1,u:aa:1,u:7", "u:7:aa:1:zz:1,v:1"),
        ("", ""),
        (" ", ""),
        (",", ""),
        (",,u:1,,", "u:1"),
        (" u : 1 - 3 : 5 ,\n v :\ttag : 7 ", "u:1-3:5,v:tag:7"),
        ("u:TAG:1:_x9:2", "u:_x9:2:tag:1"),
        ("u:9223372036854775806", "u:9223372036854775806"),
        ("u:1-9223372036854775806", "u:1-9223372036854775806"),
        ("u:5:3:4:1", "u:1:3-5"),
    ];
    for (text, want) in table {
        assert_eq!(parse(text), whole(want), "{text:?}");
    }
    let tag = "a".repeat(32);
    assert_eq!(parse(&format!("u:{tag}:1")), format!("{U}:{tag}:1"));
}

#[test]
fn what_the_server_refuses() {
    // Offsets count from the end of the UUID, where the text begins with one.
    let table = [
        ("u:0", 1),
        ("u:0-3", 1),
        ("u:9223372036854775807", 1),
        ("u:1-9223372036854775807", 3),
        ("u:99999999999999999999999999", 1),
        ("u:", 1),
        ("u:tag:", 5),
        ("u:1-", 3),
        ("u:-5", 1),
        ("u:+5", 1),
        ("u:1--3", 3),
        ("u:1-3;", 4),
        ("u:1-3 x", 5),
        ("u:9x:1", 2),
        ("u:0x10", 1),
        ("u:1:,u:2", 3),
        ("u:é", 1),
        ("u 1", 1),
    ];
    for (text, offset) in table {
        let error = whole(text).parse::<MysqlSet>().expect_err(text);
        assert_eq!(error.offset, U.len() + offset, "{text:?}: {error}");
    }
    for (text, offset) in [("+u:1", 0), ("x", 0), ("11111111-1111:1", 0), (",é", 1)] {
        let error = whole(text).parse::<MysqlSet>().expect_err(text);
        assert_eq!(error.offset, offset, "{text:?}: {error}");
    }
    let long = format!("{U}:{}:1", "a".repeat(33));
    assert_eq!(long.parse::<MysqlSet>().unwrap_err().offset, U.len() + 1);
}

#[test]
fn an_error_says_what_was_wanted_and_where() {
    let error = whole("u:1-x").parse::<MysqlSet>().unwrap_err();
    assert_eq!(error.to_string(), "expected a number, found 'x' at byte 39");
    let error = whole("u:").parse::<MysqlSet>().unwrap_err();
    assert_eq!(error.to_string(), "expected a number or a tag, found the end at byte 37");
}

#[test]
fn a_uuid_has_three_forms() {
    let uuid: Uuid = "D09776B3-ECFC-11F1-B947-02FC00000001".parse().unwrap();
    assert_eq!(uuid.to_string(), "d09776b3-ecfc-11f1-b947-02fc00000001");
    assert_eq!(uuid.as_bytes()[..4], [0xd0, 0x97, 0x76, 0xb3]);
    assert_eq!("d09776b3ecfc11f1b94702fc00000001".parse(), Ok(uuid));
    assert_eq!("{d09776b3-ecfc-11f1-b947-02fc00000001}".parse(), Ok(uuid));
    assert_eq!(serde_json::from_str::<Uuid>(&format!("\"{uuid}\"")).unwrap(), uuid);
    for bad in [
        "",
        "d09776b3",
        "d09776b3-ecfc-11f1-b947-02fc0000000",
        "d09776b3-ecfc-11f1-b947-02fc000000011",
        "d09776b3-ecfc-11f1-b94-702fc00000001",
        "d09776b3--cfc-11f1-b947-02fc00000001",
        "{d09776b3-ecfc-11f1-b947-02fc00000001",
        "d09776b3-ecfc-11f1-b947-02fc00000001}",
        "{d09776b3ecfc11f1b94702fc00000001}",
        "d09776b3-ecfc-11f1-b947-02fc00000001 ",
        "g09776b3-ecfc-11f1-b947-02fc00000001",
        "d09776b3-ecfc-11f1-b947-02fc0000000é",
    ] {
        assert!(bad.parse::<Uuid>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_tag_is_checked_and_lowered() {
    assert_eq!("App_1".parse::<Tag>().unwrap().as_str(), "app_1");
    assert_eq!("".parse(), Ok(Tag::untagged()));
    assert_eq!(("_".repeat(32)).parse::<Tag>().unwrap().as_str().len(), 32);
    for bad in ["1a", "a-b", "a b", " ", "é", "a:b", &"_".repeat(33)] {
        assert!(bad.parse::<Tag>().is_err(), "{bad:?}");
    }
}

#[test]
fn numbers_that_no_gtid_has_are_not_added() {
    let (uuid, tag) = (V.parse().unwrap(), Tag::untagged());
    let mut set = MysqlSet::new();
    set.insert(uuid, &tag, 0);
    set.insert(uuid, &tag, MAX_GNO + 1);
    set.insert(uuid, &tag, u64::MAX);
    set.insert_range(uuid, &tag, 9, 8);
    assert!(set.is_empty());
    set.insert_range(uuid, &tag, 0, u64::MAX);
    assert_eq!(set.to_string(), format!("{V}:1-{MAX_GNO}"));
    assert_eq!(set.count(), MAX_GNO);
}

#[test]
fn a_hundred_thousand_intervals_in_any_order() {
    const COUNT: u64 = 100_000;
    let (uuid, tag) = (U.parse().unwrap(), Tag::untagged());
    let mut set = MysqlSet::new();
    let mut evens = MysqlSet::new();
    for i in 0..COUNT {
        // 7919 and COUNT have no factor in common: each residue once, far from order.
        let gno = (i * 7919 % COUNT) * 3 + 1;
        set.insert(uuid, &tag, gno);
        if gno.is_multiple_of(2) {
            evens.insert(uuid, &tag, gno);
        }
    }
    assert_eq!(set.interval_count() as u64, COUNT);
    assert_eq!(set.to_string().parse::<MysqlSet>().unwrap(), set);
    assert_eq!(MysqlSet::from_binary(&set.to_binary()).unwrap(), set);
    let odds = set.difference(&evens);
    assert_eq!(odds.count(), COUNT / 2);
    assert!(set.contains(&odds) && !odds.contains(&set) && odds.is_disjoint(&evens));
    assert_eq!(odds.union(&evens), set);
    assert_eq!(set.intersection(&evens), evens);
    // The text in falling order.
    let falling: Vec<String> = (1..=COUNT).rev().map(|i| (i * 3 - 2).to_string()).collect();
    assert_eq!(format!("{U}:{}", falling.join(":")).parse::<MysqlSet>().unwrap(), set);
    // Filling all holes, from the middle outwards, leaves one interval.
    for i in 0..COUNT {
        let hole = (i * 7919 % COUNT) * 3 + 2;
        set.insert_range(uuid, &tag, hole, hole + 1);
    }
    assert_eq!(set.to_string(), format!("{U}:1-{}", COUNT * 3));
}
