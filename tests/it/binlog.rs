//! The walk over segments that real servers wrote, against what the servers and their own tools
//! said of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use binlog_archiver::binlog::{
    DamageCode, Inspection, Inspector, Kind, Peek, Verdict, inspect, peek,
};
use binlog_archiver::gtid::{Added, Flavor, Previous};
use binlog_archiver::segment::{Checksum, Ending};
use serde_json::Value;

use crate::common::{Generated, fixture, repository};

fn read(path: &Path) -> Inspection {
    inspect(File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn look(path: &Path) -> Peek {
    peek(File::open(path).unwrap()).unwrap()
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap()
}

/// Every folder below `fixtures/binlogs` that has a manifest of files.
fn sets() -> Vec<PathBuf> {
    let mut folders = vec![repository("fixtures/binlogs")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("manifest.json") {
                found.push(folder.clone());
            }
        }
    }
    found.sort();
    found
}

/// The files of a set that its manifest describes, with their descriptions.
fn described(folder: &Path) -> Vec<(PathBuf, Value)> {
    let manifest = manifest(folder);
    let mut files = Vec::new();
    for (list, below) in [("files", ""), ("at_crash_files", ""), ("purged_files", "purged")] {
        for file in manifest[list].as_array().into_iter().flatten() {
            let name = file["name"].as_str().unwrap();
            files.push((folder.join(below).join(name), file.clone()));
        }
    }
    files
}

/// Every file of every set, damaged and encrypted ones too.
fn every_segment() -> Vec<PathBuf> {
    let mut segments = Vec::new();
    for folder in sets() {
        segments.extend(described(&folder).into_iter().map(|(path, _)| path));
        for file in manifest(&folder)["encrypted_files"].as_array().into_iter().flatten() {
            segments.push(folder.join(file["name"].as_str().unwrap()));
        }
    }
    assert!(segments.len() > 120, "{}", segments.len());
    segments
}

#[test]
fn segments_of_real_servers_are_read_as_their_own_tools_read_them() {
    let mut checked = 0;
    for folder in sets() {
        if folder.ends_with("mysql97-corrupt") {
            continue;
        }
        let flavor = manifest(&folder)["flavor"].as_str().unwrap_or_default().to_owned();
        for (path, expected) in described(&folder) {
            compare(&path, &flavor, &expected);
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

fn compare(path: &Path, flavor: &str, expected: &Value) {
    let seen = read(path);
    let here = path.display();
    assert_eq!(Some(seen.size), expected["size"].as_u64(), "{here}");
    assert_eq!(Some(seen.digest.to_string().as_str()), expected["sha256"].as_str(), "{here}");
    assert_eq!(seen.kind, Kind::Plain, "{here}");
    assert_eq!(seen.flavor.map(|f| f.to_string()).as_deref(), Some(flavor), "{here}");
    assert_eq!(seen.server_version.as_deref(), expected["server_version"].as_str(), "{here}");
    assert_eq!(seen.checksum.map(|c| c == Checksum::Crc32), expected["crc32"].as_bool(), "{here}");
    assert_eq!(seen.created_at_startup, expected["created_at_startup"].as_bool(), "{here}");
    assert_eq!(seen.in_use, expected["in_use_flag"].as_bool(), "{here}");
    assert_eq!(seen.next_segment.as_deref(), expected["next_file"].as_str(), "{here}");
    let ending = match expected["ends_with"].as_str().unwrap() {
        "ROTATE" => Ending::Rotate,
        "STOP" => Ending::Stop,
        _ => Ending::None,
    };
    assert_eq!(seen.ending, Some(ending), "{here}");
    assert_eq!(Some(seen.events), expected["event_count"].as_u64(), "{here}");
    assert_eq!(
        seen.first_event_at.map(u64::from),
        expected["first_event_timestamp"].as_u64(),
        "{here}"
    );
    assert_eq!(
        seen.last_event_at.map(u64::from),
        expected["last_event_timestamp"].as_u64(),
        "{here}"
    );
    assert_eq!(seen.warnings, Vec::<String>::new(), "{here}");
    assert_eq!(seen.incidents, 0, "{here}");

    // Their tools count the GTID of a transaction that was cut off.
    let cut_off = seen.unfinished_transactions;
    assert_eq!(seen.transactions.map(|n| n + cut_off), expected["transactions"].as_u64(), "{here}");
    let torn = matches!(
        seen.error.as_ref().map(|damage| damage.code),
        Some(DamageCode::TornEvent | DamageCode::TornHeader)
    );
    assert_eq!(cut_off, u64::from(torn), "{here}");
    compare_gtids(&seen, flavor, expected, &here.to_string(), cut_off);

    let verdict = if ending == Ending::None || seen.in_use == Some(true) {
        Verdict::Unclosed
    } else {
        Verdict::Sound
    };
    assert_eq!(seen.verdict, verdict, "{here}: {:?}", seen.error);
    if verdict == Verdict::Sound {
        assert_eq!((seen.valid_up_to, seen.error.clone()), (seen.size, None), "{here}");
        assert_eq!(seen.valid_up_to_transaction, seen.size, "{here}");
    }
}

fn compare_gtids(seen: &Inspection, flavor: &str, expected: &Value, here: &str, cut_off: u64) {
    assert!(seen.coverage.readable, "{here}");
    let previous = seen.coverage.previous.as_ref().unwrap();
    let added = seen.coverage.added.as_ref().unwrap();
    if flavor == "mysql" {
        let anonymous = expected["anonymous_transactions"].as_u64();
        assert_eq!(Some(seen.coverage.anonymous_transactions), anonymous, "{here}");
        let text = |name: &str| expected[name].as_str().unwrap_or_default().to_owned();
        let wanted = Previous::parse(Flavor::Mysql, &text("previous_gtids")).unwrap();
        assert_eq!(*previous, wanted, "{here}");
        let wanted = Added::parse(Flavor::Mysql, &text("gtid_set")).unwrap();
        assert_eq!(wanted.count(), added.count() + cut_off, "{here}");
        if cut_off == 0 {
            assert_eq!(*added, wanted, "{here}");
        } else {
            assert!(added.difference(&wanted).unwrap().is_empty(), "{here}");
        }
        if added.count() > 0 {
            assert!(seen.last_commit_at.is_some(), "{here}");
        }
        return;
    }
    assert_eq!(seen.coverage.anonymous_transactions, 0, "{here}");
    let list: Vec<&str> =
        expected["gtid_list"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let wanted = Previous::parse(Flavor::Mariadb, &list.join(",")).unwrap();
    assert_eq!(previous.canonical(), wanted.canonical(), "{here}");
    let wanted: BTreeMap<String, (u64, u64)> = expected["gtids_by_domain_server"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(pair, range)| {
            let number = |name: &str| range[name].as_u64().unwrap();
            (pair.clone(), (number("first"), number("last")))
        })
        .collect();
    let Added::Mariadb(ranges) = added else { panic!("{here}: {added}") };
    let found: BTreeMap<String, (u64, u64)> = ranges
        .ranges()
        .map(|(domain, server, low, high)| (format!("{domain}-{server}"), (low, high)))
        .collect();
    if cut_off == 0 {
        assert_eq!(found, wanted, "{here}");
    } else {
        let numbers = |map: &BTreeMap<String, (u64, u64)>| -> u64 {
            map.values().map(|(low, high)| high - low + 1).sum()
        };
        assert_eq!(numbers(&found) + cut_off, numbers(&wanted), "{here}: {found:?} {wanted:?}");
    }
}

#[test]
fn each_kind_of_damage_has_its_code_and_offset() {
    use DamageCode::*;
    use Verdict::{Damaged, NotABinlog, Sound, Unclosed};
    let folder = fixture("mysql97-corrupt");
    type Row = (&'static str, Verdict, Option<(DamageCode, u64)>);
    let table: &[Row] = &[
        ("sound", Sound, None),
        ("bitflip-body", Damaged, Some((CrcMismatch, 29104))),
        ("bitflip-crc", Damaged, Some((CrcMismatch, 29104))),
        ("bitflip-length", Damaged, Some((LengthMismatch, 29104))),
        ("bitflip-timestamp", Damaged, Some((CrcMismatch, 29104))),
        ("bitflip-gtid", Damaged, Some((CrcMismatch, 29386))),
        ("bitflip-format-description", Damaged, Some((CrcMismatch, 4))),
        ("bitflip-rotate", Damaged, Some((CrcMismatch, 56481))),
        ("truncated-mid-event", Damaged, Some((TornEvent, 29104))),
        ("truncated-mid-header", Damaged, Some((TornHeader, 29104))),
        ("truncated-at-transaction-boundary", Unclosed, Some((NoRotateOrStop, 29386))),
        ("truncated-at-event-boundary", Unclosed, Some((OpenTransaction, 27893))),
        ("no-rotate", Unclosed, Some((NoRotateOrStop, 56481))),
        ("zero-tail-appended", Damaged, Some((TrailingZeros, 56525))),
        ("zero-filled-tail", Damaged, Some((ZeroTail, 29104))),
        ("zero-hole", Damaged, Some((ZeroHole, 29104))),
        ("event-removed", Damaged, Some((PositionMismatch, 29386))),
        ("wrong-magic", NotABinlog, Some((BadMagic, 0))),
        ("garbage-tail", Damaged, Some((TrailingData, 56525))),
        ("magic-only", Unclosed, Some((MagicOnly, 4))),
        ("empty", Unclosed, Some((Empty, 0))),
        ("three-bytes", Unclosed, Some((TornMagic, 0))),
        ("format-description-only", Unclosed, Some((FormatDescriptionOnly, 127))),
        ("format-description-cut", Unclosed, Some((TornFormatDescription, 4))),
        ("in-use-flag-set", Unclosed, Some((InUse, 21))),
    ];
    let described = described(&folder);
    assert_eq!(described.len(), table.len());
    for (name, verdict, error) in table {
        let (path, expected) = described
            .iter()
            .find(|(path, _)| path.ends_with(name))
            .unwrap_or_else(|| panic!("{name}"));
        let seen = read(path);
        assert_eq!(Some(seen.digest.to_string().as_str()), expected["sha256"].as_str(), "{name}");
        let found = seen.error.as_ref().map(|damage| (damage.code, damage.offset));
        assert_eq!((seen.verdict, found), (*verdict, *error), "{name}: {:?}", seen.error);
        if let Some(end) = expected["last_whole_event_end"].as_u64() {
            assert_eq!(seen.valid_up_to, end, "{name}");
        }
        if *verdict == Damaged {
            assert_eq!((seen.ending, seen.coverage.added.is_none()), (None, true), "{name}");
        }
    }
}

#[test]
fn files_that_mysql_encrypted_are_named_by_key_and_hashed_past_their_header() {
    let folder = fixture("mysql97-encrypted");
    let manifest = manifest(&folder);
    let files = manifest["encrypted_files"].as_array().unwrap();
    assert_eq!(files.len(), 6);
    for file in files {
        let path = folder.join(file["name"].as_str().unwrap());
        let seen = read(&path);
        assert_eq!(Some(seen.digest.to_string().as_str()), file["sha256"].as_str());
        assert_eq!(seen.verdict, Verdict::Encrypted);
        assert_eq!(seen.error.unwrap().code, DamageCode::MysqlEncrypted);
        let key_id = seen.key_id.unwrap();
        let uuid = key_id.strip_prefix("MySQLReplicationKey_").unwrap().rsplit_once('_').unwrap().0;
        let wanted = Kind::MysqlEncrypted {
            key_id: Some(key_id.clone()),
            server_uuid: Some(uuid.to_owned()),
        };
        assert_eq!((&seen.kind, &look(&path).kind), (&wanted, &wanted));
        assert!(!seen.coverage.readable && seen.coverage.added.is_none());
        assert_eq!((seen.ending, seen.in_use, seen.transactions), (None, None, None));

        let bytes = std::fs::read(&path).unwrap();
        let body = inspect(&bytes[512..]).unwrap();
        assert_eq!(seen.digest_body, Some(body.digest));
        let head = inspect(&bytes[512..bytes.len().min(4096)]).unwrap();
        assert_eq!(seen.head.as_bytes(), head.digest.as_bytes());
        if let Some(twin) = file["plain_twin"].as_str() {
            // What is inside, for whoever has the key.
            let plain = read(&folder.join(twin));
            assert_eq!((plain.verdict, plain.size + 512), (Verdict::Sound, seen.size));
            assert!(
                plain.coverage.added.unwrap().to_string().starts_with(uuid) || plain.size < 300
            );
        }

        // A master key rotation rewrites the header alone.
        let mut rotated = bytes;
        rotated[200] ^= 1;
        let rotated = inspect(rotated.as_slice()).unwrap();
        assert_eq!((rotated.digest_body, rotated.head), (seen.digest_body, seen.head));
        assert_ne!(rotated.digest, seen.digest);
    }
}

#[test]
fn a_peek_and_an_inspection_see_the_same_head_in_chunks_of_any_size() {
    for path in every_segment() {
        let here = path.display();
        let bytes = std::fs::read(&path).unwrap();
        let whole = inspect(bytes.as_slice()).unwrap();
        for size in [1, 3, 4, 19, 100, 512, 4096] {
            // One byte at a time is slow on the largest.
            if size < 19 && bytes.len() > 100_000 {
                continue;
            }
            let mut parts = Inspector::new();
            bytes.chunks(size).for_each(|chunk| parts.feed(chunk));
            assert_eq!(parts.finish(), whole, "{here} in chunks of {size}");
            let trickle = Trickle { bytes: &bytes, size };
            let seen = peek(trickle).unwrap();
            assert_eq!(seen.head, whole.head, "{here} in chunks of {size}");
        }
        let seen = look(&path);
        assert_eq!(seen.head, whole.head, "{here}");
        if whole.error.as_ref().is_none_or(|damage| damage.offset > 200) {
            assert_eq!(seen.kind, whole.kind, "{here}");
            assert_eq!(seen.previous, whole.coverage.previous, "{here}");
            assert_eq!(seen.flavor, whole.flavor, "{here}");
            assert_eq!(seen.server_version, whole.server_version, "{here}");
            assert_eq!(seen.created_at_startup, whole.created_at_startup, "{here}");
            assert_eq!(seen.in_use, whole.in_use, "{here}");
            assert!(seen.size_seen <= 4096, "{here}");
        }
    }
}

struct Trickle<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.size.min(self.bytes.len()).min(into.len());
        let (taken, rest) = self.bytes.split_at(count);
        into[..count].copy_from_slice(taken);
        self.bytes = rest;
        Ok(count)
    }
}

#[test]
fn heads_name_segments_and_stay_when_the_server_closes_one() {
    let mut heads = BTreeMap::new();
    for path in every_segment() {
        if path.to_string_lossy().contains("corrupt") {
            continue;
        }
        let name = path.file_name().unwrap().to_owned();
        if path.parent().unwrap().ends_with("at-crash") {
            // The same segment before its server came back.
            let after = path.parent().unwrap().parent().unwrap().join(&name);
            assert_eq!(read(&path).head, read(&after).head, "{}", path.display());
        } else if let Some(other) = heads.insert(read(&path).head, path.clone()) {
            // Two that were opened in one second, with nothing between: their numbers differ.
            let empty = read(&other).transactions == Some(0);
            assert!(empty && other.file_name() != path.file_name(), "{}", path.display());
        }
    }
}

#[test]
fn what_a_restart_leaves_is_told_from_other_files_without_an_end() {
    let left = |set: &str, name: &str| read(&fixture(set).join(name)).is_left_by_restart;
    assert!(left("mysql97-crash", "binlog.000003"));
    assert!(left("mysql97-crash-truncated", "binlog.000002"));
    assert!(left("mariadb1011-crash", "binlog.000003"));
    assert!(left("mariadb1011-crash-truncated", "binlog.000002"));
    assert!(!left("mysql97-crash", "at-crash/binlog.000003"));
    assert!(!left("mysql97-crash-truncated", "at-crash/binlog.000002"));
    assert!(!left("mysql97-basic", "binlog.000003"));
    for (name, expected) in [
        ("truncated-at-transaction-boundary", true),
        ("truncated-at-event-boundary", false),
        ("truncated-mid-event", false),
        ("zero-filled-tail", false),
        ("empty", true),
        ("three-bytes", true),
        ("magic-only", true),
        ("format-description-cut", true),
        ("wrong-magic", false),
    ] {
        assert_eq!(left("mysql97-corrupt", name), expected, "{name}");
    }
}

#[test]
fn a_torn_crash_file_holds_its_whole_transactions_and_no_more() {
    let at_crash = read(&fixture("mysql97-crash-truncated").join("at-crash/binlog.000002"));
    let after = read(&fixture("mysql97-crash-truncated").join("binlog.000002"));
    assert_eq!(at_crash.error.unwrap().code, DamageCode::TornEvent);
    assert_eq!(at_crash.coverage.added, after.coverage.added);
    assert_eq!(at_crash.valid_up_to_transaction, after.size);
    assert!(at_crash.valid_up_to > after.size);
}

#[test]
fn generated_segments_are_sound_and_as_ordered() {
    let order = Generated { first_gno: 101, size_min: 3 << 20, ..Generated::default() };
    let bytes = order.bytes();
    let seen = inspect(bytes.as_slice()).unwrap();
    assert_eq!((seen.verdict, seen.error), (Verdict::Sound, None));
    assert!(seen.size >= 3 << 20);
    let uuid = order.uuid;
    assert_eq!(seen.coverage.previous.unwrap().to_string(), format!("{uuid}:1-100"));
    let last = 100 + seen.transactions.unwrap();
    assert_eq!(seen.coverage.added.unwrap().to_string(), format!("{uuid}:101-{last}"));
    assert_eq!(seen.next_segment.as_deref(), Some("binlog.000002"));
    let written = order.write(&mut std::io::sink()).unwrap();
    assert_eq!(written.size, seen.size);
    assert_eq!((Some(written.transactions), written.events), (seen.transactions, seen.events));

    let active = Generated { next: None, created_at_startup: true, ..order };
    let seen = inspect(active.bytes().as_slice()).unwrap();
    assert_eq!((seen.in_use, seen.created_at_startup), (Some(true), Some(true)));
    assert_eq!(seen.error.unwrap().code, DamageCode::NoRotateOrStop);
}
