//! Servers that were reset, rolled back, replaced or renamed, archived one after the other under one
//! source name: where a new incarnation begins, and that nothing is ever overwritten.

mod made_up;

use std::collections::BTreeMap;

use serde_json::json;

use crate::common::fixture;
use crate::site::Site;

const UUID_A: &str = "c5bb26ed-ecfd-11f1-bf16-02fc00000001";
const UUID_B: &str = "c801e86a-ecfd-11f1-aea1-02fc00000001";

/// Whether the state directory survived between two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Lost,
}

/// Runs `then` and checks that every object that was there still is, byte for byte.
fn keeping_all(site: &Site, then: impl FnOnce(&Site)) {
    let before = site.kept();
    then(site);
    let after = site.kept();
    let changed: Vec<&String> = before
        .iter()
        .filter(|(key, bytes)| after.get(*key) != Some(bytes))
        .map(|(k, _)| k)
        .collect();
    assert!(changed.is_empty(), "overwritten or removed: {changed:?}");
}

fn reset(site: Site, state: State) {
    site.show(&fixture("mysql97-reset/before"));
    site.once().expect_code(0);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000003"]);
    if state == State::Lost {
        site.forget_state();
    }
    keeping_all(&site, |site| {
        site.show(&fixture("mysql97-reset"));
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history(),
        [
            "1 first-start from binlog.000001",
            "2 numbering-restarted from binlog.000001 after 0001/binlog.000003",
        ]
    );
    assert_eq!(
        site.committed(),
        [
            "0001/binlog.000001",
            "0001/binlog.000002",
            "0001/binlog.000003",
            "0002/binlog.000001",
            "0002/binlog.000002",
        ]
    );
    let cursors = ["0001: binlog.000001..binlog.000003", "0002: binlog.000001..binlog.000002"];
    assert_eq!(site.cursor_lines(), cursors);
    let status = site.status();
    assert!(status["incarnation"].as_str().unwrap().starts_with("0002-"));
    assert_eq!(status["cursor"]["segment"].as_str(), Some("binlog.000002"));
    assert_eq!(
        status["cursor"]["gtids"].as_str(),
        Some("4ceb3ad2-ecfd-11f1-b8e9-02fc00000001:1-50")
    );
    assert_eq!(status["archived"].as_u64(), Some(5));
    assert_eq!(status["holes"], json!([]));
    site.verify(&["--deep"]).expect_code(0);

    // Once more, and from another host: nothing is new.
    keeping_all(&site, |site| {
        site.once().expect_code(0);
        site.forget_state();
        site.once().expect_code(0);
    });
    assert_eq!(site.history().len(), 2);
    assert_eq!(site.cursor_lines(), cursors);
}

#[test]
fn a_reset_opens_an_incarnation_in_a_folder() {
    reset(Site::folder(), State::Kept);
    reset(Site::folder(), State::Lost);
}

#[test]
fn a_reset_opens_an_incarnation_in_s3() {
    reset(Site::s3("reset"), State::Kept);
    reset(Site::s3("reset-lost").upload("compression = \"none\""), State::Lost);
}

fn failover(site: Site, state: State, reason: &str) {
    let with_uuid = reason == "server-changed";
    site.show(&fixture("mysql97-failover/a"));
    if with_uuid {
        site.server_uuid(UUID_A);
    }
    site.once().expect_code(0);
    if state == State::Lost {
        site.forget_state();
    }
    keeping_all(&site, |site| {
        site.show(&fixture("mysql97-failover/b"));
        if with_uuid {
            site.server_uuid(UUID_B);
        }
        site.once().expect_code(0);
    });
    let second = format!("2 {reason} from binlog.000001 after 0001/binlog.000003");
    assert_eq!(site.history(), ["1 first-start from binlog.000001", second.as_str()]);
    let records = site.incarnations();
    let uuids: Vec<Option<&str>> = records.iter().map(|r| r["server_uuid"].as_str()).collect();
    assert_eq!(uuids, if with_uuid { [Some(UUID_A), Some(UUID_B)] } else { [None, None] });
    assert_eq!(
        site.cursor_lines(),
        ["0001: binlog.000001..binlog.000003", "0002: binlog.000001..binlog.000004"]
    );
    assert_eq!(site.committed().len(), 7);
    let of_b = site.manifests().into_iter().filter(|m| m.text("incarnation").starts_with("0002"));
    for manifest in of_b {
        assert_eq!(manifest.value["server_uuid"].as_str(), with_uuid.then_some(UUID_B));
    }
    let gtids = format!("{UUID_A}:1-93,{UUID_B}:1-89");
    assert_eq!(site.status()["cursor"]["gtids"].as_str(), Some(gtids.as_str()));
    site.verify(&["--deep"]).expect_code(0);
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(site.history().len(), 2);
}

#[test]
fn a_failover_opens_an_incarnation_in_a_folder() {
    failover(Site::folder(), State::Kept, "server-changed");
    failover(Site::folder(), State::Lost, "server-changed");
    // Without auto.cnf only the segments tell.
    failover(Site::folder(), State::Kept, "numbering-restarted");
}

#[test]
fn a_failover_opens_an_incarnation_in_s3() {
    failover(Site::s3("failover"), State::Kept, "server-changed");
    failover(Site::s3("failover-lost"), State::Lost, "numbering-restarted");
}

#[test]
fn a_mariadb_failover_opens_an_incarnation() {
    let site = Site::folder();
    site.show(&fixture("mariadb1011-failover/a"));
    site.once().expect_code(0);
    keeping_all(&site, |site| {
        site.show(&fixture("mariadb1011-failover/b"));
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history(),
        [
            "1 first-start from binlog.000001",
            "2 numbering-restarted from binlog.000001 after 0001/binlog.000002",
        ]
    );
    assert_eq!(
        site.cursor_lines(),
        ["0001: binlog.000001..binlog.000002", "0002: binlog.000001..binlog.000003"]
    );
    assert_eq!(site.status()["cursor"]["gtids"].as_str(), Some("0-131-51,0-132-101"));
}

#[test]
fn segments_that_differ_in_the_in_use_bit_alone_are_the_same() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let highest = site.binlog("binlog.000006");
    let mut bytes = std::fs::read(&highest).unwrap();
    bytes[21] ^= 1;
    std::fs::write(&highest, &bytes).unwrap();
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    // One more bit, and it is another.
    bytes[9_000] ^= 1;
    std::fs::write(&highest, &bytes).unwrap();
    keeping_all(&site, |site| {
        site.once();
    });
    assert_eq!(site.history()[1..], ["2 fork from binlog.000006 after 0001/binlog.000005"]);
}

#[test]
fn a_file_that_rots_below_what_is_archived_is_no_other_history() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    // The first one: its head is known from the incarnation's own name.
    let first = site.binlog("binlog.000001");
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    keeping_all(&site, |site| {
        let said = site.once().expect_code(0).stderr;
        assert!(said.contains("binlog.000001") && said.contains("damaged on this host"), "{said}");
    });
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
}

#[test]
fn an_encrypted_header_that_was_rewritten_is_the_same_segment() {
    let site = Site::folder().source("encrypted_segments = \"opaque\"");
    site.show(&fixture("mysql97-encrypted"));
    site.once().expect_code(0);
    for name in site.listed() {
        let mut bytes = std::fs::read(site.binlog(&name)).unwrap();
        bytes[200] ^= 1;
        std::fs::write(site.binlog(&name), bytes).unwrap();
    }
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    let mut bytes = std::fs::read(site.binlog("binlog.000005")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(site.binlog("binlog.000005"), bytes).unwrap();
    site.once().expect_code(0);
    assert_eq!(site.history()[1..], ["2 fork from binlog.000005 after 0001/binlog.000004"]);
}

#[test]
fn another_server_uuid_takes_over_from_the_first_segment_not_committed() {
    let site = Site::folder();
    let set = fixture("mysql97-basic");
    site.show(&set);
    site.server_uuid(UUID_A);
    site.list(&[1, 2, 3, 4].map(|number| format!("binlog.{number:06}")));
    site.once().expect_code(0);
    site.server_uuid(UUID_B);
    // Nothing new yet: number 4 is what the other server writes.
    site.once().expect_code(0);
    site.list(&[1, 2, 3, 4, 5, 6, 7].map(|number| format!("binlog.{number:06}")));
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history(),
        [
            "1 first-start from binlog.000001",
            "2 server-changed from binlog.000004 after 0001/binlog.000003",
        ]
    );
    assert_eq!(
        site.cursor_lines(),
        ["0001: binlog.000001..binlog.000003", "0002: binlog.000004..binlog.000006"]
    );
    // Back again: the same server continues where that one left.
    site.server_uuid(UUID_A);
    site.once().expect_code(0);
    assert_eq!(
        site.history()[2..],
        ["3 server-changed from binlog.000007 after 0002/binlog.000006"]
    );
}

#[test]
fn a_purged_server_is_archived_from_what_it_still_has() {
    let site = Site::folder();
    site.show(&fixture("mysql97-purged"));
    site.once().expect_code(0);
    assert_eq!(site.history(), ["1 first-start from binlog.000004"]);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000004..binlog.000006"]);
    let status = site.status();
    assert_eq!(status["holes"], json!([]));
    assert_eq!(status["cursor"]["from"].as_str(), Some("binlog.000004"));

    // What it purges later stays archived, and the chain goes on.
    let before = site.kept();
    site.list(&["binlog.000006", "binlog.000007"]);
    site.once().expect_code(0);
    assert_eq!(site.kept(), before);
}

#[test]
fn a_server_that_purged_what_was_never_archived_has_a_hole() {
    let site = Site::folder();
    let set = fixture("mysql97-basic");
    site.show(&set);
    site.list(&["binlog.000001", "binlog.000002", "binlog.000003"]);
    site.once().expect_code(0);
    site.list(&["binlog.000005", "binlog.000006", "binlog.000007"]);
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(3).json();
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    let holes = report["holes"].as_array().unwrap();
    assert_eq!(holes.len(), 1);
    assert_eq!((holes[0]["first"].as_u64(), holes[0]["last"].as_u64()), (Some(3), Some(4)));
    assert_eq!(holes[0]["gtids"].as_str(), Some("eb72e049-ecfc-11f1-a991-02fc00000001:92-181"));
    assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000002"]);
    site.show(&set);
    site.once().expect_code(0);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000006"]);
}

#[test]
fn a_source_may_begin_now_or_at_a_segment() {
    let site = Site::folder().source("start = \"now\"");
    site.show(&fixture("mysql97-basic"));
    site.list(&[1, 2, 3, 4].map(|number| format!("binlog.{number:06}")));
    site.once().expect_code(0);
    assert_eq!(site.history(), ["1 first-start from binlog.000004"]);
    assert_eq!(site.committed(), Vec::<String>::new());
    site.list(&[1, 2, 3, 4, 5, 6].map(|number| format!("binlog.{number:06}")));
    site.once().expect_code(0);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000004..binlog.000005"]);
    assert_eq!(site.committed().len(), 2);
    assert_eq!(site.status()["holes"], json!([]));
    assert_eq!(site.status()["pending_total"].as_u64(), Some(0));

    let site = Site::folder().source("start = \"binlog.000003\"");
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    assert_eq!(site.history(), ["1 first-start from binlog.000003"]);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000003..binlog.000006"]);
    site.once().expect_code(0);
    assert_eq!(site.committed().len(), 4);
}

/// The record of an incarnation that another writer opened.
fn record(first: &str, head: &str, server_uuid: Option<&str>) -> Vec<u8> {
    let number: u64 = first.rsplit_once('.').unwrap().1.parse().unwrap();
    let record = json!({
        "format": 1, "source": "db1", "incarnation": format!("0001-{}", &head[..8]), "ordinal": 1,
        "reason": "first-start", "server_uuid": server_uuid, "flavor": "mysql",
        "first": {"segment": first, "number": number, "head": head}, "predecessor": null,
        "writer_id": "00112233445566778899aabbccddeeff", "host": "elsewhere",
        "created_at": "2026-01-02T03:04:05Z"
    });
    serde_json::to_vec(&record).unwrap()
}

#[test]
fn an_incarnation_that_another_writer_opened_for_another_history_is_left_alone() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.put("index/db1/incarnations/0001.json", &record("binlog.000001", &"ab".repeat(32), None));
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history()[1..],
        ["2 numbering-restarted from binlog.000001 after 0001/binlog.000001"]
    );
    assert_eq!(site.committed().len(), 6);
    assert!(site.committed().iter().all(|segment| segment.starts_with("0002/")));
}

#[test]
fn an_incarnation_of_our_server_without_a_manifest_is_used() {
    let head = {
        let site = Site::folder();
        site.show(&fixture("mysql97-basic"));
        site.once().expect_code(0);
        site.incarnations()[0]["first"]["head"].as_str().unwrap().to_owned()
    };
    let opened = record("binlog.000001", &head, Some(UUID_A));
    // Stopped between opening it and the first commit.
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.server_uuid(UUID_A);
    site.put("index/db1/incarnations/0001.json", &opened);
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000006"]);

    // Another server's is not.
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.server_uuid(UUID_B);
    site.put("index/db1/incarnations/0001.json", &opened);
    site.once().expect_code(0);
    assert_eq!(site.history().len(), 2);
    assert!(site.history()[1].starts_with("2 server-changed"), "{:?}", site.history());
    assert!(site.committed().iter().all(|segment| segment.starts_with("0002/")));
    assert_eq!(site.committed().len(), 6);
}

#[test]
fn a_daemon_notices_a_reset_while_it_runs() {
    let site = Site::folder();
    site.show(&fixture("mysql97-reset/before"));
    let daemon = site.workspace.daemon(&["run"]);
    let limit = std::time::Duration::from_secs(30);
    crate::common::wait_until(limit, "three segments", || site.committed().len() == 3);
    let before = site.kept();
    // As RESET does it: the files go, the index with them, and both come back.
    for name in site.listed() {
        std::fs::remove_file(site.binlog(&name)).unwrap();
    }
    std::fs::remove_file(site.binlog("binlog.index")).unwrap();
    let set = fixture("mysql97-reset");
    for name in ["binlog.000001", "binlog.000002", "binlog.000003", "binlog.index"] {
        std::fs::write(site.binlog(name), std::fs::read(set.join(name)).unwrap()).unwrap();
    }
    crate::common::wait_until(limit, "two more", || site.committed().len() == 5);
    assert_eq!(daemon.terminate(limit), 0);
    assert_eq!(
        site.history()[1..],
        ["2 numbering-restarted from binlog.000001 after 0001/binlog.000003"]
    );
    let after: BTreeMap<String, Vec<u8>> = site.kept();
    assert!(before.iter().all(|(key, bytes)| after.get(key) == Some(bytes)));
}

#[test]
fn a_daemon_that_sees_a_damaged_head_mended_goes_on_in_the_same_incarnation() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let damaged = fixture("mysql97-corrupt").join("bitflip-format-description");
    std::fs::copy(damaged, site.binlog("binlog.000003")).unwrap();
    let daemon = site.workspace.daemon(&["run"]);
    let limit = std::time::Duration::from_secs(30);
    crate::common::wait_until(limit, "five segments", || site.committed().len() == 5);
    let sound = std::fs::read(fixture("mysql97-basic").join("binlog.000003")).unwrap();
    std::fs::write(site.workspace.join("mended"), sound).unwrap();
    std::fs::rename(site.workspace.join("mended"), site.binlog("binlog.000003")).unwrap();
    crate::common::wait_until(limit, "the sixth", || site.committed().len() == 6);
    assert_eq!(daemon.terminate(limit), 0);
    assert_eq!(site.history(), ["1 first-start from binlog.000001"]);
    assert_eq!(site.cursor_lines(), ["0001: binlog.000001..binlog.000006"]);
}
