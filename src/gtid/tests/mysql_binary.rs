//! Bodies of PREVIOUS_GTIDS events: of real servers, and broken on purpose.

use super::whole;
use crate::gtid::MysqlSet;

const D: &str = "d09776b3-ecfc-11f1-b947-02fc00000001";

/// The body of a 9.7.4 server with two servers' GTIDs, each with and without a tag.
fn real() -> Vec<u8> {
    let number = |n: u64| hex::encode(n.to_le_bytes());
    let c = "cc".repeat(16);
    let d = D.replace('-', "");
    let body = [
        "01040000".to_owned(),
        "00000001".to_owned(),
        format!("{c}00{}{}{}", number(1), number(7), number(8)),
        format!("{c}047a7a{}{}{}", number(1), number(100), number(101)),
        format!("{d}00{}{}{}", number(1), number(1), number(4)),
        format!("{d}0c63695f746167{}{}{}", number(1), number(1), number(3)),
    ];
    hex::decode(body.concat()).unwrap()
}

#[test]
fn a_real_tagged_body() {
    let set = MysqlSet::from_binary(&real()).unwrap();
    let want = format!("cccccccc-cccc-cccc-cccc-cccccccccccc:7:zz:100,{D}:1-3:ci_tag:1-2");
    assert_eq!(set.to_string(), want);
    assert_eq!(set.to_binary(), real());
}

#[test]
fn a_real_body_with_the_longest_tag() {
    let d = "f53c7a6decfc11f1a75902fc00000001";
    let body = [
        "0106000000000001",
        "0a1b2c3d000011112222333344445555066170700200000000000000",
        "05000000000000000600000000000000ed03000000000000ee03000000000000",
        d,
        "00010000000000000001000000000000001400000000000000",
        d,
        "065f7839010000000000000001000000000000000c00000000000000",
        d,
        "406161616161616161616161616161616161616161616161616161616161616161",
        "010000000000000001000000000000001500000000000000",
        d,
        "06617070010000000000000001000000000000001400000000000000",
        d,
        "1462617463685f6c6f6164010000000000000001000000000000000d00000000000000",
    ];
    let body = hex::decode(body.concat()).unwrap();
    let set = MysqlSet::from_binary(&body).unwrap();
    // As the server itself prints it, but for its line breaks.
    let want = "0a1b2c3d-0000-1111-2222-333344445555:app:5:1005,\
        f53c7a6d-ecfc-11f1-a759-02fc00000001:1-19:_x9:1-11:\
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1-20:app:1-19:batch_load:1-12";
    assert_eq!(set.to_string(), want);
    assert_eq!(set.to_binary(), body);
}

#[test]
fn the_empty_set_is_eight_zero_bytes() {
    assert_eq!(MysqlSet::from_binary(&[0; 8]).unwrap(), MysqlSet::new());
    assert_eq!(MysqlSet::new().to_binary(), [0; 8]);
    // Format 1 without entries is the empty set too.
    assert!(MysqlSet::from_binary(&[1, 0, 0, 0, 0, 0, 0, 1]).unwrap().is_empty());
}

#[test]
fn an_untagged_set_may_come_in_either_format() {
    let set: MysqlSet = whole("u:1-3:7,v:2").parse().unwrap();
    let plain = set.to_binary();
    assert_eq!(plain[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(MysqlSet::from_binary(&plain).unwrap(), set);
    let mut tagged = vec![1, 2, 0, 0, 0, 0, 0, 1];
    // The first entry has two intervals: 16 + 8 + 32 bytes.
    tagged.extend_from_slice(&plain[8..24]);
    tagged.push(0);
    tagged.extend_from_slice(&plain[24..64]);
    tagged.extend_from_slice(&plain[64..80]);
    tagged.push(0);
    tagged.extend_from_slice(&plain[80..]);
    assert_eq!(MysqlSet::from_binary(&tagged).unwrap(), set);
}

/// An untagged body of one entry with these intervals.
fn untagged(intervals: &[(u64, u64)]) -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&[0xaa; 16]);
    body.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
    for (start, end) in intervals {
        body.extend_from_slice(&start.to_le_bytes());
        body.extend_from_slice(&end.to_le_bytes());
    }
    body
}

#[test]
fn broken_bodies_are_refused_where_they_break() {
    let with = |change: fn(&mut Vec<u8>)| {
        let mut body = untagged(&[(1, 4)]);
        change(&mut body);
        body
    };
    let top: u64 = 1 << 63;
    let table: Vec<(&str, Vec<u8>, usize)> = vec![
        ("no body", vec![], 0),
        ("short header", vec![0; 7], 0),
        ("unknown format", with(|b| b[7] = 2), 7),
        ("format not repeated", with(|b| (b[0], b[7]) = (3, 1)), 0),
        ("too many entries", with(|b| b[0] = 2), 0),
        ("huge count of entries", with(|b| b[..7].fill(0xff)), 0),
        ("huge count of intervals", with(|b| b[24..32].fill(0xff)), 24),
        ("one interval too many", with(|b| b[24] = 2), 24),
        ("cut", with(|b| b.truncate(47)), 24),
        ("a byte at the end", with(|b| b.push(0)), 48),
        ("start 0", untagged(&[(0, 4)]), 32),
        ("empty interval", untagged(&[(4, 4)]), 32),
        ("falling interval", untagged(&[(4, 2)]), 32),
        ("touching", untagged(&[(1, 4), (4, 5)]), 48),
        ("overlapping", untagged(&[(1, 4), (3, 5)]), 48),
        ("falling intervals", untagged(&[(5, 6), (1, 2)]), 48),
        ("above the highest", untagged(&[(1, top)]), 32),
    ];
    for (what, body, offset) in table {
        let error = MysqlSet::from_binary(&body).expect_err(what);
        assert_eq!(error.offset, offset, "{what}: {error}");
    }
    let highest = MysqlSet::from_binary(&untagged(&[(top - 2, top - 1)])).unwrap();
    assert!(highest.to_string().ends_with(":9223372036854775806"));
}

#[test]
fn one_uuid_twice_is_refused_without_a_second_tag() {
    let one = untagged(&[(1, 4)]);
    let mut twice = one.clone();
    twice[0] = 2;
    twice.extend_from_slice(&one[8..]);
    let error = MysqlSet::from_binary(&twice).unwrap_err();
    assert_eq!(error.offset, one.len(), "{error}");
}

#[test]
fn broken_tags_are_refused() {
    let body = |tag: &[u8]| {
        let mut body = vec![1, 1, 0, 0, 0, 0, 0, 1];
        body.extend_from_slice(&[0xaa; 16]);
        body.extend_from_slice(tag);
        for number in [1_u64, 1, 4] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body
    };
    assert!(MysqlSet::from_binary(&body(b"\x04zz")).is_ok());
    // A length that could be shorter is still a length.
    assert!(MysqlSet::from_binary(&body(b"\x09\x00zz")).is_ok());
    let mut long = vec![33 << 1];
    long.extend_from_slice(&[b'a'; 33]);
    for bad in [&b"\x04zZ"[..], b"\x04z-", b"\x041z", b"\x04\xc3\xa9", &long, b"\xff", b"\xfe"] {
        let error = MysqlSet::from_binary(&body(bad)).expect_err("a bad tag");
        assert!(error.offset >= 24, "{bad:02x?}: {error}");
    }
}

#[test]
fn varints_of_all_lengths() {
    use crate::gtid::bytes::Bytes;
    let table: [(&[u8], u64); 6] = [
        (&[0x78], 60),
        (&[0x41, 0x03], 0xd0),
        (&[0x83, 0x12, 0x0b], 90704),
        (&[0x7f, 0x1b, 0xf1, 0xa2, 0x48, 0x84, 0x61, 0x06], 1_796_070_642_479_387),
        (&[0xff, 1, 2, 3, 4, 5, 6, 7, 8], 0x0807_0605_0403_0201),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], u64::MAX),
    ];
    for (bytes, want) in table {
        let mut reader = Bytes::new(bytes);
        assert_eq!(reader.varint(), Ok(want), "{bytes:02x?}");
        assert_eq!(reader.left(), 0);
        assert!(Bytes::new(&bytes[..bytes.len() - 1]).varint().is_err());
    }
}
