//! Shapes of segments that no fixture has.

use std::io::{self, Read};

use super::build::Builder;
use crate::binlog::{DamageCode, Inspection, Kind, Verdict, inspect, peek};
use crate::segment::{Checksum, Ending};

const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

fn code(seen: &Inspection) -> Option<DamageCode> {
    seen.error.as_ref().map(|damage| damage.code)
}

#[test]
fn a_mysql_gtid_counts_when_its_transaction_is_whole() {
    let mut whole = Builder::mysql();
    whole.gtid(1).query("CREATE TABLE t (id INT)");
    whole.gtid(2).query("BEGIN").event(30, &[0; 40]).xid();
    whole.gtid(3).query("BEGIN").query("INSERT INTO t VALUES (1)").query("COMMIT");
    whole.gtid(4).query("BEGIN").query("SAVEPOINT a").query("ROLLBACK TO a").query("ROLLBACK");
    whole.gtid(5).query("XA START X'78',X'',1").event(30, &[0; 40]);
    whole.query("XA END X'78',X'',1").event(38, &[0; 10]);
    whole.gtid(6).query("XA COMMIT X'78',X'',1");
    whole.gtid(7).event(40, &[0; 90]);
    whole.gtid(8).event(26, b"\x01\x00\x04lost");
    whole.rotate();
    let seen = whole.inspect();
    assert_eq!(whole.added(), format!("{UUID}:1-8"));
    assert_eq!((seen.verdict, seen.transactions, seen.incidents), (Verdict::Sound, Some(8), 1));
    assert!(seen.warnings[0].contains("lost"), "{:?}", seen.warnings);

    for cut in ["BEGIN", "XA START X'78',X'',1"] {
        let mut open = Builder::mysql();
        open.gtid(1).query("DROP TABLE t");
        let end = open.bytes.len() as u64;
        open.gtid(2).query(cut).event(30, &[0; 40]);
        let seen = open.inspect();
        assert_eq!(open.added(), format!("{UUID}:1"));
        assert_eq!(
            (code(&seen), seen.verdict),
            (Some(DamageCode::OpenTransaction), Verdict::Unclosed)
        );
        assert_eq!((seen.valid_up_to_transaction, seen.unfinished_transactions), (end, 1));
    }

    let mut skipped = Builder::mysql();
    skipped.gtid(1).query("BEGIN").gtid(2).query("DROP TABLE t").rotate();
    assert_eq!(skipped.added(), format!("{UUID}:2"));
    assert_eq!(skipped.inspect().unfinished_transactions, 1);
}

#[test]
fn a_mariadb_gtid_counts_when_its_group_is_whole() {
    let mut segment = Builder::mariadb();
    segment.event(161, b"\x03\0\0\0b.1");
    segment.mariadb_gtid(1, 1).query("CREATE TABLE t (id INT)");
    segment.mariadb_gtid(2, 0).event(160, b"INSERT").event(23, &[0; 40]).xid();
    segment.mariadb_gtid(3, 0).query("INSERT INTO t VALUES (1)").query("COMMIT");
    segment.mariadb_gtid(4, 0x40).event(23, &[0; 40]).event(38, &[0; 10]);
    segment.mariadb_gtid(5, 0x80).query("XA COMMIT X'78',X'',1");
    segment.mariadb_gtid(6, 1).event(165, &[0; 60]);
    segment.mariadb_gtid(7, 0).event(165, &[0; 60]);
    let seen = segment.inspect();
    assert_eq!(segment.added(), "3-7-1:6");
    assert_eq!((code(&seen), seen.transactions), (Some(DamageCode::OpenTransaction), Some(6)));
}

#[test]
fn positions_that_mariadb_leaves_out_are_no_damage_and_those_mysql_leaves_out_are() {
    let mut mariadb = Builder::mariadb();
    mariadb.mariadb_gtid(1, 0).event_with(23, 0, &[0; 40], |_| 0).xid().rotate();
    assert_eq!(mariadb.inspect().verdict, Verdict::Sound);

    let mut mysql = Builder::mysql();
    let at = mysql.bytes.len() as u64;
    mysql.event_with(2, 0, &[0; 40], |_| 0).rotate();
    let damage = mysql.inspect().error.unwrap();
    assert_eq!((damage.code, damage.offset), (DamageCode::PositionMismatch, at));
}

#[test]
fn servers_without_gtids_count_as_anonymous() {
    let mut old = Builder::new("5.5.62-log", 0, 0);
    // Not checksum-aware: its format description ends with the table of lengths.
    let crc = old.bytes.split_off(old.bytes.len() - 5);
    assert_eq!(crc.len(), 5);
    let length = (old.bytes.len() - 4) as u32;
    old.bytes[13..17].copy_from_slice(&length.to_le_bytes());
    old.bytes[17..21].copy_from_slice(&(length + 4).to_le_bytes());
    old.query("BEGIN").event(5, &[0; 9]).query("INSERT INTO t VALUES (1)").xid();
    old.query("CREATE TABLE u (id INT)");
    old.event(3, &[]);
    let seen = old.inspect();
    assert_eq!((seen.verdict, seen.checksum), (Verdict::Sound, Some(Checksum::None)));
    assert_eq!((seen.coverage.anonymous_transactions, seen.transactions), (2, Some(2)));
    assert_eq!((seen.coverage.previous, seen.ending), (None, Some(Ending::Stop)));

    let mut off = Builder::mysql();
    off.anonymous().query("BEGIN").xid().anonymous().query("DROP TABLE t").rotate();
    assert_eq!(off.inspect().coverage.anonymous_transactions, 2);
}

#[test]
fn an_unchecked_format_description_only_warns() {
    let mut segment = Builder::new("9.7.4", 0, 0);
    let end = segment.bytes.len();
    segment.bytes[end - 1] ^= 1;
    segment.event(35, &[0; 8]).event(4, b"\x04\0\0\0\0\0\0\0binlog.000002");
    let seen = segment.inspect();
    assert_eq!((seen.verdict, seen.checksum), (Verdict::Sound, Some(Checksum::None)));
    assert_eq!(seen.warnings.len(), 1);
}

#[test]
fn mariadb_encryption_is_walked_by_lengths_alone() {
    let encrypted = |flags: u16| {
        let mut segment = Builder::new("10.11.19-MariaDB", 1, flags);
        segment.event(
            164,
            &[1, 1, 0, 0, 0, 0x22, 0x41, 0xa5, 0x15, 0x47, 0xa4, 0x90, 0xf4, 1, 2, 3, 4],
        );
        let start = segment.bytes.len();
        // One of them shows a type by chance that would mean something in clear.
        segment.event(163, &[0xc3; 30]).event(15, &[0x3c; 50]).event(4, &[0x55; 21]);
        for at in start..segment.bytes.len() {
            if ![9, 10, 11, 12].contains(&((at - start) % 53)) && at - start < 53 {
                segment.bytes[at] ^= 0x5a;
            }
        }
        segment
    };
    let seen = encrypted(0).inspect();
    assert_eq!((seen.verdict, &seen.kind), (Verdict::Encrypted, &Kind::MariadbEncrypted));
    assert_eq!((code(&seen), seen.events), (Some(DamageCode::MariadbEncrypted), 5));
    assert_eq!((seen.ending, seen.transactions, seen.in_use), (None, None, Some(false)));
    assert!(!seen.coverage.readable && !seen.is_left_by_restart);
    let looked = peek(encrypted(0).bytes.as_slice()).unwrap();
    assert_eq!((looked.kind, looked.head), (Kind::MariadbEncrypted, seen.head));

    let mut torn = encrypted(0);
    torn.bytes.pop();
    assert_eq!(code(&torn.inspect()), Some(DamageCode::TornEvent));
    let mut crashed = encrypted(1);
    crashed.bytes.pop();
    let seen = crashed.inspect();
    assert_eq!((seen.verdict, seen.is_left_by_restart), (Verdict::Encrypted, true));
}

#[test]
fn relay_logs_and_other_formats_are_refused_by_name() {
    let mut relay = Builder::new("9.7.4", 1, 0x40);
    relay.event(35, &[0; 8]).event_with(4, 0x20, b"\x04\0\0\0\0\0\0\0binlog.000009", |_| 0);
    relay.gtid(1).event_with(2, 0, &[0; 40], |end| end + 1000);
    let seen = relay.inspect();
    assert_eq!((seen.verdict, &seen.kind), (Verdict::NotABinlog, &Kind::RelayLog));
    assert_eq!((code(&seen), seen.warnings.len()), (Some(DamageCode::RelayLog), 1));
    assert_eq!(peek(relay.bytes.as_slice()).unwrap().kind, Kind::RelayLog);

    let mut v3 = Builder::new("4.1.22", 0, 0);
    v3.bytes[8] = 1;
    let mut wide = Builder::new("9.7.4", 1, 0);
    wide.bytes[4 + 19 + 56] = 27;
    let crc = crc32fast::hash(&wide.bytes[4..wide.bytes.len() - 4]);
    let end = wide.bytes.len();
    wide.bytes[end - 4..].copy_from_slice(&crc.to_le_bytes());
    for (bytes, kind, expected) in [
        (v3.bytes, Kind::NotABinlog, DamageCode::OldFormat),
        (wide.bytes, Kind::NotABinlog, DamageCode::UnsupportedHeaderLength),
        (vec![0xfe, 0xfe, 0x0d, 0x01, 14, 0, 0, 0], Kind::InnodbPages, DamageCode::InnodbPages),
        (b"\xef\xbf\xbdbin\0".to_vec(), Kind::NotABinlog, DamageCode::TextConverted),
        (b"PK\x03\x04".to_vec(), Kind::NotABinlog, DamageCode::BadMagic),
    ] {
        let seen = inspect(bytes.as_slice()).unwrap();
        assert_eq!((seen.verdict, code(&seen)), (Verdict::NotABinlog, Some(expected)));
        let looked = peek(bytes.as_slice()).unwrap();
        assert_eq!((looked.kind, looked.head), (kind, seen.head));
    }
    let text = vec![(b"GI".as_slice(), Verdict::NotABinlog), (&b"\xfd"[..], Verdict::Unclosed)];
    for (bytes, verdict) in text {
        assert_eq!(inspect(bytes).unwrap().verdict, verdict);
    }
}

#[test]
fn sets_and_gtids_of_later_formats_are_unknown_and_damaged_ones_are_damage() {
    let mut newer = Builder::new("12.1.0", 1, 0);
    newer.event(35, &[0, 0, 0, 0, 0, 0, 0, 2]).event(42, &[0x04, 0x78]).query("DROP TABLE t");
    newer.event(99, &[0; 40]).rotate();
    let seen = newer.inspect();
    assert_eq!((seen.verdict, seen.coverage.previous), (Verdict::Sound, None));
    assert_eq!((seen.coverage.added, seen.transactions), (None, Some(1)));

    let mut bad = Builder::new("9.7.4", 1, 0);
    bad.event(35, &[9, 0, 0, 0, 0, 0, 0, 0]).rotate();
    assert_eq!(code(&bad.inspect()), Some(DamageCode::BadPreviousGtids));
    let mut bad = Builder::mysql();
    bad.gtid(0).query("DROP TABLE t").rotate();
    assert_eq!(code(&bad.inspect()), Some(DamageCode::BadGtid));
}

#[test]
fn tails_under_the_in_use_flag_are_what_a_crash_leaves() {
    let mut base = Builder::new("10.11.19-MariaDB", 1, 1);
    base.event(163, &[0; 4]).mariadb_gtid(1, 1).query("DROP TABLE t");
    let end = base.bytes.len() as u64;
    for (tail, expected, verdict) in [
        (vec![0; 10], DamageCode::ZeroTail, Verdict::Unclosed),
        (vec![0; 3000], DamageCode::ZeroTail, Verdict::Unclosed),
        (vec![7; 10], DamageCode::TornHeader, Verdict::Unclosed),
        ([vec![0; 30], vec![1]].concat(), DamageCode::ZeroHole, Verdict::Damaged),
        (vec![7; 30], DamageCode::LengthMismatch, Verdict::Damaged),
        ([vec![0; 9], vec![5], vec![0; 30]].concat(), DamageCode::BadLength, Verdict::Damaged),
    ] {
        let bytes = [base.bytes.clone(), tail].concat();
        let seen = inspect(bytes.as_slice()).unwrap();
        let damage = seen.error.unwrap();
        assert_eq!((damage.code, damage.offset, seen.verdict), (expected, end, verdict));
        assert_eq!(seen.is_left_by_restart, verdict == Verdict::Unclosed);
    }
}

/// A segment with one transaction of more than 4 GiB, never held as a whole.
struct Huge {
    start: Vec<u8>,
    big: Vec<u8>,
    repeats: u32,
    at: usize,
}

impl Huge {
    const EVENT: usize = 512 << 20;

    /// The header of big event number `number`, whose body is all zeros.
    fn header(&self, number: u32) -> [u8; 19] {
        let mut header = [0; 19];
        header[4] = 30;
        header[9..13].copy_from_slice(&(Self::EVENT as u32).to_le_bytes());
        let end = (self.start.len() + Self::EVENT * (number as usize + 1)) as u64;
        header[13..17].copy_from_slice(&(end as u32).to_le_bytes());
        header
    }
}

impl Read for Huge {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bodies = self.start.len() + Self::EVENT * self.repeats as usize;
        let (piece, zeros) = if self.at < self.start.len() {
            (self.start[self.at..].to_vec(), 0)
        } else if self.at < bodies {
            let number = (self.at - self.start.len()) / Self::EVENT;
            let inside = (self.at - self.start.len()) % Self::EVENT;
            let header = self.header(number as u32);
            (header.get(inside..).unwrap_or_default().to_vec(), Self::EVENT - inside.max(19))
        } else {
            (self.big.get(self.at - bodies..).unwrap_or_default().to_vec(), 0)
        };
        let copied = piece.len().min(into.len());
        into[..copied].copy_from_slice(&piece[..copied]);
        let zeros = zeros.min(into.len() - copied);
        into[copied..copied + zeros].fill(0);
        self.at += copied + zeros;
        Ok(copied + zeros)
    }
}

#[test]
fn offsets_pass_four_gib_and_positions_wrap() {
    let mut start = Builder::new("9.7.4", 0, 0);
    start.event(35, &[0; 8]).gtid(1).query("BEGIN");
    let repeats = 9;
    let from = start.bytes.len() as u64 + (Huge::EVENT as u64) * u64::from(repeats);
    assert!(from > 1 << 32);
    let mut end = Vec::new();
    for (kind, body) in [(16, &[0; 8][..]), (4, b"\x04\0\0\0\0\0\0\0binlog.000002")] {
        let at = from + end.len() as u64;
        end.extend([0; 4]);
        end.push(kind);
        end.extend(1_u32.to_le_bytes());
        let length = 19 + body.len() as u64;
        end.extend((length as u32).to_le_bytes());
        end.extend(((at + length) as u32).to_le_bytes());
        end.extend([0; 2]);
        end.extend(body);
    }
    let size = from + end.len() as u64;
    let mut huge = Huge { start: start.bytes, big: end, repeats, at: 0 };
    // The walk alone: hashing 4 GiB is not what this is about.
    let mut walk = crate::binlog::Walker::new(crate::binlog::WalkOptions::default());
    let mut chunk = vec![0; 1 << 20];
    loop {
        match huge.read(&mut chunk).unwrap() {
            0 => break,
            count => walk.feed(&chunk[..count]),
        }
    }
    assert!(walk.held.capacity() <= 128 << 10);
    let facts = walk.finish();
    assert_eq!((facts.verdict, facts.error), (Verdict::Sound, None));
    assert_eq!((facts.size, facts.valid_up_to_transaction), (size, size));
    assert_eq!(facts.coverage.added.unwrap().to_string(), format!("{UUID}:1"));
}
