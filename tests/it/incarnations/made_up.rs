//! The same with made-up segments, where real servers left none of the shape.

use serde_json::{Value, json};

use super::{State, keeping_all};
use crate::common::Generated;
use crate::site::Site;

/// A server of made-up segments, each of which is closed by the next.
struct Server {
    base: &'static str,
    /// Transactions of one segment, all of one size.
    each: u64,
}

impl Server {
    fn new() -> Self {
        let each = Generated { size_min: 20 << 10, ..Generated::default() };
        let each = each.write(&mut std::io::sink()).unwrap().transactions;
        Self { base: "binlog", each }
    }

    fn name(&self, number: u64) -> String {
        format!("{}.{number:06}", self.base)
    }

    /// Writes segment `number`, the `nth` of this history, with contents told apart by `seed`.
    fn write(&self, site: &Site, number: u64, nth: u64, seed: u8) {
        self.put(site, number, nth, |generated| Generated {
            seed,
            next: Some(self.name(number + 1)),
            ..generated
        });
    }

    /// Writes the segment that the server has open.
    fn open(&self, site: &Site, number: u64, nth: u64) {
        self.put(site, number, nth, |generated| Generated { next: None, size_min: 0, ..generated });
    }

    fn put(&self, site: &Site, number: u64, nth: u64, shape: impl Fn(Generated) -> Generated) {
        let plain = Generated {
            first_gno: 1 + nth * self.each,
            size_min: 20 << 10,
            time: 1_796_070_642 + u32::try_from(nth).unwrap(),
            created_at_startup: nth == 0,
            ..Generated::default()
        };
        std::fs::write(site.binlog(&self.name(number)), shape(plain).bytes()).unwrap();
    }

    /// Segments `first..last` closed, and `last` open.
    fn run(&self, site: &Site, first: u64, last: u64) {
        for number in first..last {
            self.write(site, number, number - first, 0);
        }
        self.open(site, last, last - first);
        site.list(&(first..=last).map(|number| self.name(number)).collect::<Vec<_>>());
    }
}

#[test]
fn a_rolled_back_machine_forks_at_its_first_other_segment() {
    for state in [State::Kept, State::Lost] {
        let site = Site::folder();
        let server = Server::new();
        server.run(&site, 1, 6);
        site.once().expect_code(0);
        assert_eq!(site.committed().len(), 5);
        if state == State::Lost {
            site.forget_state();
        }

        // Back in the middle of number 3, and on from there with other writes. The first events
        // of 3 and 4 are the same as before.
        server.write(&site, 3, 2, 7);
        server.write(&site, 4, 3, 7);
        server.open(&site, 5, 4);
        site.list(&[1, 2, 3, 4, 5].map(|number| server.name(number)));
        keeping_all(&site, |site| {
            site.once().expect_code(0);
        });
        assert_eq!(
            site.history(),
            [
                "1 first-start from binlog.000001",
                "2 fork from binlog.000003 after 0001/binlog.000002",
            ]
        );
        let records = site.incarnations();
        let old: Vec<Value> = site.manifests().into_iter().map(|m| m.value).collect();
        let head = records[1]["first"]["head"].as_str().unwrap();
        assert_eq!(old[2]["head"].as_str(), Some(head), "only the tail differs");
        assert_eq!(
            site.cursor_lines(),
            ["0001: binlog.000001..binlog.000005", "0002: binlog.000003..binlog.000004"]
        );
        site.verify(&["--deep"]).expect_code(0);

        // The new history goes on.
        server.write(&site, 5, 4, 7);
        server.open(&site, 6, 5);
        site.list(&[1, 2, 3, 4, 5, 6].map(|number| server.name(number)));
        keeping_all(&site, |site| {
            site.once().expect_code(0);
        });
        assert_eq!(site.history().len(), 2);
        assert_eq!(site.cursor_lines()[1], "0002: binlog.000003..binlog.000005");
    }
}

#[test]
fn a_rollback_of_the_highest_segment_alone_is_noticed() {
    let site = Site::folder();
    let server = Server::new();
    server.run(&site, 1, 4);
    site.once().expect_code(0);
    // Number 3 is the open one again, as it was before it was closed.
    server.put(&site, 3, 2, |generated| Generated { next: None, size_min: 9 << 10, ..generated });
    site.list(&[1, 2, 3].map(|number| server.name(number)));
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history(),
        ["1 first-start from binlog.000001", "2 fork from binlog.000003 after 0001/binlog.000002"]
    );
    assert_eq!(site.committed().len(), 3);
    // The server closes it with other contents.
    server.write(&site, 3, 2, 9);
    server.open(&site, 4, 3);
    site.list(&[1, 2, 3, 4].map(|number| server.name(number)));
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(site.history().len(), 2);
    assert_eq!(site.committed().last().unwrap(), "0002/binlog.000003");
}

#[test]
fn a_segment_whose_earlier_gtids_lack_what_is_archived_forks() {
    let site = Site::folder();
    let server = Server::new();
    server.run(&site, 1, 4);
    site.once().expect_code(0);
    // A restored server goes on with number 4, without the last archived transactions; what was
    // archived is gone from its disk.
    for number in 1..=3 {
        std::fs::remove_file(site.binlog(&server.name(number))).unwrap();
    }
    server.write(&site, 4, 2, 5);
    server.open(&site, 5, 3);
    site.list(&[4, 5].map(|number| server.name(number)));
    keeping_all(&site, |site| {
        site.once().expect_code(0);
    });
    assert_eq!(
        site.history(),
        ["1 first-start from binlog.000001", "2 fork from binlog.000004 after 0001/binlog.000003"]
    );
    assert_eq!(
        site.cursor_lines(),
        ["0001: binlog.000001..binlog.000003", "0002: binlog.000004..binlog.000004"]
    );
}

#[test]
fn another_base_name_restarts_the_numbering() {
    for shared_index in [false, true] {
        let site = Site::folder();
        let old = Server::new();
        old.run(&site, 1, 3);
        site.once().expect_code(0);
        assert_eq!(site.committed().len(), 2);

        // Number 3 was left by a crash; the restart took log_bin's new value.
        let left = site.binlog("binlog.000003");
        let mut bytes = std::fs::read(&left).unwrap();
        bytes[21] &= !1;
        std::fs::write(&left, bytes).unwrap();
        let new = Server { base: "mysql-bin", ..Server::new() };
        new.put(&site, 1, 2, |generated| Generated {
            created_at_startup: true,
            next: Some("mysql-bin.000002".to_owned()),
            ..generated
        });
        new.open(&site, 2, 3);
        let mut listed = vec!["mysql-bin.000001", "mysql-bin.000002"];
        if shared_index {
            listed.splice(0..0, ["binlog.000001", "binlog.000002", "binlog.000003"]);
        } else {
            std::fs::remove_file(&left).unwrap();
        }
        site.list(&listed);
        keeping_all(&site, |site| {
            site.once().expect_code(0);
        });
        let left = if shared_index { 3 } else { 2 };
        let second =
            format!("2 numbering-restarted from mysql-bin.000001 after 0001/binlog.00000{left}");
        assert_eq!(site.history()[1..], [second]);
        let mut expected = vec!["0001/binlog.000001", "0001/binlog.000002"];
        if shared_index {
            expected.push("0001/binlog.000003");
        }
        expected.push("0002/mysql-bin.000001");
        assert_eq!(site.committed(), expected);
        let cursors = [
            format!("0001: binlog.000001..binlog.00000{left}"),
            "0002: mysql-bin.000001..mysql-bin.000001".to_owned(),
        ];
        assert_eq!(site.cursor_lines(), cursors);
        site.forget_state();
        keeping_all(&site, |site| {
            site.once().expect_code(0);
        });
        assert_eq!(site.cursor_lines(), cursors);
    }
}

#[test]
fn what_the_operator_did_not_want_stays_out_after_a_fork_too() {
    let site = Site::folder().source("start = \"binlog.000003\"");
    let server = Server::new();
    server.run(&site, 1, 6);
    site.once().expect_code(0);
    server.write(&site, 5, 4, 7);
    site.once().expect_code(0);
    assert_eq!(site.history()[1..], ["2 fork from binlog.000005 after 0001/binlog.000004"]);
    let expected =
        ["0001/binlog.000003", "0001/binlog.000004", "0001/binlog.000005", "0002/binlog.000005"];
    assert_eq!(site.committed(), expected);
    assert_eq!(site.status()["pending_total"].as_u64(), Some(0));
    site.forget_state();
    site.once().expect_code(0);
    assert_eq!(site.committed(), expected);
}

#[test]
fn numbers_order_segments_when_names_do_not() {
    let site = Site::folder();
    let server = Server::new();
    server.run(&site, 999_997, 1_000_002);
    site.once().expect_code(0);
    assert_eq!(
        site.committed(),
        [
            "0001/binlog.999997",
            "0001/binlog.999998",
            "0001/binlog.999999",
            "0001/binlog.1000000",
            "0001/binlog.1000001",
        ]
    );
    assert_eq!(site.cursor_lines(), ["0001: binlog.999997..binlog.1000001"]);
    let keys: Vec<String> = site.manifests().into_iter().map(|manifest| manifest.key).collect();
    assert!(keys[3].ends_with("/0001000000.json"), "{keys:?}");
    assert_eq!(site.status()["holes"], json!([]));
    site.verify(&["--deep"]).expect_code(0);
}
