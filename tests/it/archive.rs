//! Segments of real servers through `run --once`, into a folder and into S3; and what `verify`
//! says of an archive that was damaged afterwards.

mod dead_server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use binlog_archiver::gtid::{Added, Flavor};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::{fixture, repository};
use crate::site::{SOURCE, Site};

/// Folders of `fixtures/binlogs` with an index, and how many of the listed segments are closed.
const SETS: [(&str, usize); 23] = [
    ("mariadb1011-basic", 6),
    ("mariadb1011-crash", 4),
    ("mariadb1011-crash-truncated", 3),
    ("mariadb1011-failover/a", 2),
    ("mariadb1011-failover/b", 3),
    ("mariadb1011-multidomain", 4),
    ("mariadb1011-restart", 5),
    ("mysql97-basic", 6),
    ("mysql97-bigtrx", 2),
    ("mysql97-compressed", 5),
    ("mysql97-crash", 4),
    ("mysql97-crash-truncated", 3),
    ("mysql97-empty", 5),
    ("mysql97-encrypted", 5),
    ("mysql97-failover/a", 3),
    ("mysql97-failover/b", 4),
    ("mysql97-gtidoff", 3),
    ("mysql97-nochecksum", 4),
    ("mysql97-purged", 3),
    ("mysql97-reset", 2),
    ("mysql97-reset/before", 3),
    ("mysql97-restart", 5),
    ("mysql97-tagged-gtid", 4),
];

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[test]
fn no_fixture_set_is_left_out() {
    let mut found = Vec::new();
    let mut folders = vec![repository("fixtures/binlogs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // A crash's last file is tried by itself.
                if !path.ends_with("at-crash") {
                    folders.push(path);
                }
            } else if path.ends_with("binlog.index") {
                let set = folder.strip_prefix(repository("fixtures/binlogs")).unwrap();
                found.push(set.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert_eq!(found, SETS.map(|(set, _)| set.to_owned()));
}

#[test]
fn every_fixture_set_is_archived_into_a_folder_and_proven() {
    for (set, closed) in SETS {
        archived_and_proven(set, closed, Site::folder());
    }
}

#[test]
fn every_fixture_set_is_archived_into_s3_and_proven() {
    for (at, (set, closed)) in SETS.into_iter().enumerate() {
        let site = Site::s3(&set.replace('/', "-"));
        let site = if at % 2 == 0 { site.upload("compression = \"none\"") } else { site };
        archived_and_proven(set, closed, site);
    }
}

fn archived_and_proven(set: &str, closed: usize, site: Site) {
    let encrypted = set.contains("encrypted");
    let site = if encrypted { site.source("encrypted_segments = \"opaque\"") } else { site };
    site.show(&fixture(set));
    let ran = site.once();
    assert_eq!(ran.code, 0, "{set}: {}{}", ran.stdout, ran.stderr);

    let manifests = site.manifests();
    assert_eq!(manifests.len(), closed, "{set}");
    let listed = site.listed();
    let names: Vec<&str> = manifests.iter().map(|manifest| manifest.text("segment")).collect();
    assert_eq!(names, listed[..closed], "{set}");
    let objects = site.objects();
    let known = known_gtids(set);
    for manifest in &manifests {
        let name = manifest.text("segment");
        let bytes = std::fs::read(site.binlog(name)).unwrap();
        assert_eq!(manifest.text("digest"), sha256(&bytes), "{set} {name}");
        assert_eq!(manifest.value["size"].as_u64(), Some(bytes.len() as u64), "{set} {name}");
        let stored = &objects[manifest.payload()];
        let payload = &manifest.value["payload"];
        assert_eq!(payload["digest"].as_str(), Some(sha256(stored).as_str()), "{set} {name}");
        assert_eq!(payload["size"].as_u64(), Some(stored.len() as u64), "{set} {name}");
        let decoded = match payload["encoding"].as_str().unwrap() {
            "zstd" => zstd::decode_all(stored.as_slice()).unwrap(),
            _ => stored.clone(),
        };
        assert!(decoded == bytes, "{set} {name}: other bytes are stored");
        assert_eq!(manifest.value["readable"].as_bool(), Some(!encrypted), "{set} {name}");
        if let Some(known) = known.get(name).filter(|_| !encrypted) {
            let added = Added::parse(Flavor::Mysql, manifest.text("added")).unwrap();
            assert_eq!(added, *known, "{set} {name}");
        }
    }
    let payloads = objects.keys().filter(|key| key.starts_with("payloads/")).count();
    assert_eq!(payloads, closed, "{set}: a payload for each manifest and no other");

    let status = site.status();
    assert_eq!(status["cursor"]["segment"].as_str(), Some(names[closed - 1]), "{set}");
    assert_eq!(status["cursor"]["from"].as_str(), Some(names[0]), "{set}");
    assert_eq!(status["archived"].as_u64(), Some(closed as u64), "{set}");
    assert_eq!(status["pending_total"].as_u64(), Some(0), "{set}");
    assert_eq!(status["holes"], Value::Array(Vec::new()), "{set}");
    assert_eq!(site.history(), [format!("1 first-start from {}", names[0])], "{set}");
    let unverified = if encrypted || set.contains("gtidoff") { closed as u64 - 1 } else { 0 };
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(0).json();
    let again = site.objects();
    assert_eq!(report["archived"].as_u64(), Some(closed as u64), "{set}");
    assert_eq!(without_mutable(again), without_mutable(objects), "{set}: a second run changed it");

    // From the bucket alone, every link is judged anew.
    site.forget_state();
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(0).json();
    assert_eq!(report["unverified_links"].as_u64(), Some(unverified), "{set}");
    assert_eq!(report["cursor"]["segment"].as_str(), Some(names[closed - 1]), "{set}");

    for ran in [site.verify(&["--json"]), site.verify_elsewhere(&["--deep", "--json"])] {
        assert_eq!(ran.code, 0, "{set}: {}{}", ran.stdout, ran.stderr);
        let report = ran.json();
        assert_eq!(report["checked"].as_u64(), Some(closed as u64), "{set}");
        assert_eq!(report["problems"], Value::Array(Vec::new()), "{set}");
    }
}

fn without_mutable(mut objects: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    objects.retain(|key, _| !key.starts_with("mutable/"));
    objects
}

/// The GTIDs of each file of a MySQL set, as its server told them.
fn known_gtids(set: &str) -> BTreeMap<String, Added> {
    let mut known = BTreeMap::new();
    let Ok(bytes) = std::fs::read(fixture(set).join("manifest.json")) else { return known };
    let described: Value = serde_json::from_slice(&bytes).unwrap();
    for file in described["files"].as_array().into_iter().flatten() {
        if let (Some(name), Some(gtids)) = (file["name"].as_str(), file["gtid_set"].as_str()) {
            known.insert(name.to_owned(), Added::parse(Flavor::Mysql, gtids).unwrap());
        }
    }
    known
}

#[test]
fn encrypted_segments_are_refused_unless_the_operator_wants_them() {
    let site = Site::folder();
    site.show(&fixture("mysql97-encrypted"));
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(3).json();
    assert_eq!(site.committed(), Vec::<String>::new());
    assert_eq!(report["pending_total"].as_u64(), Some(5));
    let error = report["pending"][0]["error"].as_str().unwrap();
    assert!(error.contains("encrypted_segments = \"opaque\""), "{error}");
    assert_eq!(report["pending"][0]["state"].as_str(), Some("held"));

    let site = site.source("encrypted_segments = \"opaque\"");
    site.once().expect_code(0);
    let manifests = site.manifests();
    assert_eq!(manifests.len(), 5);
    for manifest in &manifests {
        assert!(manifest.text("key_id").starts_with("MySQLReplicationKey_"));
        assert_eq!(manifest.value["added"], Value::Null);
        let bytes = std::fs::read(site.binlog(manifest.text("segment"))).unwrap();
        assert_eq!(manifest.text("digest_body"), sha256(&bytes[512..]));
    }
}

/// What `verify` names, as `kind segment`.
fn problems(report: &Value) -> Vec<String> {
    let line = |problem: &Value| {
        let text = |field: &str| problem[field].as_str().unwrap().to_owned();
        assert_eq!(text("source"), SOURCE);
        assert!(!text("detail").is_empty());
        assert_eq!(text("incarnation").len(), 13);
        format!("{} {}", text("kind"), text("segment"))
    };
    report["problems"].as_array().unwrap().iter().map(line).collect()
}

#[track_caller]
fn finds(site: &Site, options: &[&str], expected: &[&str]) {
    let ran = site.verify(&[options, &["--json"]].concat());
    assert_eq!(problems(&ran.json()), expected, "{}", ran.stdout);
    assert_eq!(ran.code, if expected.is_empty() { 0 } else { 3 });
}

#[test]
fn damage_to_an_archive_in_a_folder_is_found_and_named() {
    damage_is_found(Site::folder());
    damage_is_found(Site::folder().upload("compression = \"none\""));
}

#[test]
fn damage_to_an_archive_in_s3_is_found_and_named() {
    damage_is_found(Site::s3("damage"));
    damage_is_found(Site::s3("damage-plain").upload("compression = \"none\""));
}

fn damage_is_found(site: Site) {
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let manifests = site.manifests();
    let objects = site.objects();

    let payload = manifests[2].payload();
    let mut flipped = objects[payload].clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    site.put(payload, &flipped);
    finds(&site, &[], &["suspect binlog.000003"]);
    finds(&site, &["--deep"], &["damaged binlog.000003"]);
    let ran = site.verify_elsewhere(&["--deep"]).expect_code(3);
    assert!(ran.stdout.starts_with("damaged: db1 0001-"), "{}", ran.stdout);
    assert!(ran.stdout.contains(payload), "{}", ran.stdout);
    site.put(payload, &objects[payload]);
    finds(&site, &["--deep"], &[]);

    // A payload cut short.
    site.put(payload, &objects[payload][..objects[payload].len() - 7]);
    finds(&site, &[], &["suspect binlog.000003"]);
    finds(&site, &["--deep"], &["damaged binlog.000003"]);
    site.put(payload, &[]);
    finds(&site, &["--deep"], &["damaged binlog.000003"]);

    // Removed.
    site.delete(payload);
    finds(&site, &[], &["payload-missing binlog.000003"]);
    finds(&site, &["--deep"], &["payload-missing binlog.000003"]);
    site.put(payload, &objects[payload]);

    // A manifest removed, also the last one: its payload tells of it.
    for gone in [&manifests[4], &manifests[5]] {
        site.delete(&gone.key);
        let number = format!("manifest-missing {:010}", gone.value["number"].as_u64().unwrap());
        finds(&site, &["--deep"], &[&number]);
        site.put(&gone.key, &objects[&gone.key]);
    }

    // Manifest and payload both removed: nothing tells of it but what lies around it.
    let remove = |at: usize| {
        site.delete(&manifests[at].key);
        site.delete(manifests[at].payload());
    };
    let bring_back = |at: usize| {
        site.put(&manifests[at].key, &objects[&manifests[at].key]);
        site.put(manifests[at].payload(), &objects[manifests[at].payload()]);
    };
    remove(2);
    finds(&site, &[], &["manifest-missing 0000000003"]);
    let detail = &site.verify(&["--json"]).json()["problems"][0]["detail"];
    let detail = detail.as_str().unwrap().to_owned();
    assert!(detail.contains("between binlog.000002 and binlog.000004"), "{detail}");
    assert!(detail.contains(manifests[2].text("added")), "{detail}");
    remove(3);
    finds(&site, &["--deep"], &["manifest-missing 0000000003-0000000004"]);
    remove(0);
    bring_back(3);
    let both = ["manifest-missing 0000000001", "manifest-missing 0000000003"];
    finds(&site, &["--deep"], &both);
    // With a payload left, it is told of once.
    site.put(payload, &objects[payload]);
    finds(&site, &["--deep"], &both);
    bring_back(0);
    bring_back(2);
    finds(&site, &["--deep"], &[]);

    // A manifest that is another's, and one that does not decode.
    site.put(&manifests[3].key, &objects[&manifests[1].key]);
    finds(&site, &["--deep"], &["damaged 0000000004"]);
    site.put(&manifests[3].key, &objects[&manifests[3].key][..100]);
    finds(&site, &["--deep"], &["damaged 0000000004"]);
    site.put(&manifests[3].key, &objects[&manifests[3].key]);
    finds(&site, &["--deep"], &[]);

    // All at once, in order.
    site.put(payload, &flipped);
    site.delete(manifests[3].payload());
    site.delete(&manifests[4].key);
    finds(
        &site,
        &["--deep"],
        &["damaged binlog.000003", "payload-missing binlog.000004", "manifest-missing 0000000005"],
    );
}

#[test]
fn bytes_that_rotted_with_no_trace_are_found_by_a_deep_check_alone() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let manifests = site.manifests();
    let path = site.workspace.join("archive").join(manifests[2].payload());
    let mut bytes = std::fs::read(&path).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    bytes[40] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    finds(&site, &[], &[]);
    finds(&site, &["--deep"], &["damaged binlog.000003"]);
}

#[test]
fn payloads_that_the_bucket_expired_are_no_holes_but_one_above_them_is() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let manifests = site.manifests();
    site.delete(manifests[0].payload());
    site.delete(manifests[1].payload());
    let report = site.verify(&["--deep", "--json"]).expect_code(0).json();
    assert_eq!(report["expired"].as_u64(), Some(2));
    assert_eq!(site.status()["floor"].as_u64(), Some(3));
    site.delete(manifests[3].payload());
    finds(&site, &["--deep"], &["payload-missing binlog.000004"]);
    for manifest in [&manifests[2], &manifests[4], &manifests[5]] {
        site.delete(manifest.payload());
    }
    // With nothing left there is no floor to be below.
    assert_eq!(problems(&site.verify(&["--json"]).expect_code(3).json()).len(), 6);
}

#[test]
fn an_incarnation_without_its_record_is_never_passed_over() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let incarnation = site.manifests()[0].text("incarnation").to_owned();
    site.delete("index/db1/incarnations/0001.json");
    let report = site.verify(&["--json"]).expect_code(3).json();
    let problem = &report["problems"][0];
    assert_eq!(problem["incarnation"].as_str(), Some(incarnation.as_str()));
    assert_eq!(problem["kind"].as_str(), Some("manifest-missing"));
    // Nor is a source whose whole index is gone.
    std::fs::remove_dir_all(site.workspace.join("archive/index")).unwrap();
    let report = site.verify(&["--json"]).expect_code(3).json();
    assert_eq!(report["sources"][0].as_str(), Some(SOURCE));
    assert!(!report["problems"].as_array().unwrap().is_empty());
}

#[test]
fn an_archive_without_a_single_manifest_is_not_called_fine() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    for manifest in site.manifests() {
        site.delete(&manifest.key);
    }
    let ran = site.verify(&[]).expect_code(3);
    assert!(ran.stdout.contains("NOTHING IS COMMITTED: no manifest was found"), "{}", ran.stdout);
    assert_eq!(problems(&site.verify(&["--json"]).json()).len(), 6);
    std::fs::remove_dir_all(site.workspace.join("archive/payloads")).unwrap();
    let ran = site.verify(&[]).expect_code(0);
    assert!(ran.stdout.contains("NOTHING IS COMMITTED"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("no problem"), "{}", ran.stdout);
}

/// `mysql97-basic` with its third segment in another shape.
fn with_third(site: &Site, variant: &Path) {
    site.show(&fixture("mysql97-basic"));
    std::fs::copy(variant, site.binlog("binlog.000003")).unwrap();
}

fn variants() -> Vec<(String, PathBuf)> {
    let folder = fixture("mysql97-corrupt");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    let mut variants: Vec<_> = named.filter(|(name, _)| name != "manifest.json").collect();
    variants.sort();
    assert_eq!(variants.len(), 25);
    variants
}

#[test]
fn a_damaged_segment_stops_the_cursor_and_nothing_else() {
    for (name, variant) in variants() {
        // The first is not damaged, the second only waited for.
        if name == "sound" || name == "in-use-flag-set" {
            continue;
        }
        let site = Site::folder();
        with_third(&site, &variant);
        let ran = site.workspace.run(&["run", "--once", "--json"]);
        assert_eq!(ran.code, 3, "{name}: {}{}", ran.stdout, ran.stderr);
        let report = ran.json();
        assert_eq!(site.history(), ["1 first-start from binlog.000001"], "{name}");
        let healthy = [1, 2, 4, 5, 6].map(|number| format!("0001/binlog.{number:06}"));
        assert_eq!(site.committed(), healthy, "{name}");
        assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000002"], "{name}");
        assert_eq!(report["pending"][0]["segment"].as_str(), Some("binlog.000003"), "{name}");
        assert_eq!(report["pending"][0]["state"].as_str(), Some("held"), "{name}");
        assert!(report["pending"][0]["error"].is_string(), "{name}");
        assert_eq!(report["ahead"][0]["first"].as_u64(), Some(4), "{name}");
        assert_eq!(report["ahead"][0]["segments"].as_u64(), Some(3), "{name}");
        let status = site.status();
        assert_eq!(status["cursor"]["segment"].as_str(), Some("binlog.000002"), "{name}");
        assert_eq!(status["pending"][0]["segment"].as_str(), Some("binlog.000003"), "{name}");
        finds(&site, &["--deep"], &["manifest-missing 0000000003"]);

        // The server purges it: now nothing here will ever bring it.
        site.list(&["binlog.000005", "binlog.000006", "binlog.000007"]);
        let hole = &site.workspace.run(&["run", "--once", "--json"]).expect_code(3).json()["holes"];
        assert_eq!(hole.as_array().unwrap().len(), 1, "{name}: {hole}");
        let hole = &hole[0];
        assert_eq!((hole["first"].as_u64(), hole["last"].as_u64()), (Some(3), Some(3)), "{name}");
        let missing = "eb72e049-ecfc-11f1-a991-02fc00000001:92-136";
        assert_eq!(hole["gtids"].as_str(), Some(missing), "{name}");
        assert_eq!(site.status()["holes"][0], *hole, "{name}");

        // Sound bytes turn up after all.
        with_third(&site, &fixture("mysql97-corrupt").join("sound"));
        site.once().expect_code(0);
        assert_eq!(site.history(), ["1 first-start from binlog.000001"], "{name}");
        assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000006"], "{name}");
        assert_eq!(site.status()["holes"], Value::Array(Vec::new()), "{name}");
    }
}

#[test]
fn damage_to_what_came_before_a_segment_opens_no_incarnation() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let path = site.binlog("binlog.000003");
    let mut bytes = std::fs::read(&path).unwrap();
    // In the interval of the Previous_gtids event, past magic and format description.
    let event = 4 + u32::from_le_bytes(bytes[13..17].try_into().unwrap()) as usize;
    assert_eq!(bytes[event + 4], 35);
    bytes[event + 19 + 8 + 16 + 8 + 8] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    site.once().expect_code(3);
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    assert_eq!(site.committed().len(), 5);
    with_third(&site, &fixture("mysql97-corrupt").join("sound"));
    site.once().expect_code(0);
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
}

#[test]
fn a_segment_that_stays_marked_in_use_is_archived_after_a_while_as_it_stands() {
    let site = Site::folder();
    with_third(&site, &fixture("mysql97-corrupt").join("in-use-flag-set"));
    let begun = std::time::Instant::now();
    site.once().expect_code(0);
    assert!(begun.elapsed().as_secs() >= 25);
    let manifests = site.manifests();
    assert_eq!(manifests.len(), 6);
    assert_eq!(manifests[2].value["in_use"].as_bool(), Some(true));

    // Cleared later, it is still the same segment.
    with_third(&site, &fixture("mysql97-corrupt").join("sound"));
    site.list(&["binlog.000001", "binlog.000002", "binlog.000003"]);
    site.once().expect_code(0);
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
}
