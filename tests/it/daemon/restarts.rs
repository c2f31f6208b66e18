//! Database servers that die and come back beneath the daemon.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{
    SOON, archived, closed, judge_gtids, previous_of, versioned, wait_for_cursor, workspace,
};
use crate::common::{MariadbServer, MysqlServer, S3Server, json_text};

#[test]
fn mysql_may_be_killed_and_started_anew_beneath_the_daemon() {
    let server = MysqlServer::start("daemon-crash", &[]);
    let s3 = S3Server::shared();
    let bucket = versioned(s3);
    let workspace = workspace(s3, bucket, "daemon-crash", &server.datadir);
    let mut daemon = workspace.daemon(&["run"]);
    server.shell("CREATE DATABASE d; CREATE TABLE d.t (i INT); INSERT INTO d.t VALUES (1)");
    server.kill();
    server.restart();
    server.shell("INSERT INTO d.t VALUES (2)");
    server.stop();
    // A clean stop closes the last file.
    wait_for_cursor(&workspace, &mut daemon, "binlog.000002", SOON);
    server.restart();
    server.shell("INSERT INTO d.t VALUES (3); FLUSH BINARY LOGS");
    wait_for_cursor(&workspace, &mut daemon, "binlog.000003", SOON);
    assert_eq!(workspace.status()["holes"], Value::from([0; 0]));
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait(Duration::from_secs(10)), 0);
    let archived = archived(s3, bucket, "daemon-crash");
    let manifests = archived.expect_files(&server.datadir, &closed(server.binlogs()));
    judge_gtids(&server, &manifests);
    let sealed: Vec<&str> = manifests.iter().map(|m| json_text(&m["sealed"])).collect();
    assert_eq!(sealed, ["crash-tail", "stop", "closed"]);
}

/// Takes about 20 s. MariaDB clears the in-use flag of a file only after the index lists the next.
#[test]
fn mariadb_files_are_archived_as_they_are_in_the_end() {
    let server = MariadbServer::start("daemon-mariadb", &[]);
    let s3 = S3Server::shared();
    let bucket = versioned(s3);
    let workspace = workspace(s3, bucket, "daemon-mariadb", &server.datadir);
    let mut daemon = workspace.daemon(&["run"]);
    let load = ["soak", "--seconds", "8", "--rate", "60", "--rotate", "0.4"];
    assert!(server.workload(&load).wait().unwrap().success());
    let rotated = closed(server.binlogs());
    assert!(rotated.len() >= 8, "{rotated:?}");
    wait_for_cursor(&workspace, &mut daemon, rotated.last().unwrap(), SOON);
    // A crash leaves the flag set for ever.
    server.shell("CREATE TABLE load.more (i INT); INSERT INTO load.more VALUES (1)");
    let crashed = server.binlogs().pop().unwrap();
    server.kill();
    server.restart();
    wait_for_cursor(&workspace, &mut daemon, &crashed, SOON);
    assert_eq!(workspace.status()["holes"], Value::from([0; 0]));
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);

    let files = server.binlogs();
    let archived = archived(s3, bucket, "daemon-mariadb");
    let manifests = archived.expect_files(&server.datadir, &closed(files.clone()));
    archived.expect_written_once();
    let (last, before) = manifests.split_last().unwrap();
    assert_eq!((&last["sealed"], &last["in_use"]), (&"crash-tail".into(), &true.into()));
    for manifest in before {
        assert_eq!((&manifest["sealed"], &manifest["in_use"]), (&"closed".into(), &false.into()));
    }
    let lists = previous_of(|sql| server.shell(sql), &files);
    let mut seen = BTreeSet::new();
    for (manifest, pair) in manifests.iter().zip(files.windows(2)) {
        assert_eq!(json_text(&manifest["previous"]), lists[&pair[0]], "previous of {}", pair[0]);
        // One domain, one server: the highest number added is where the next file begins.
        let added = json_text(&manifest["added"]);
        if added.is_empty() {
            // A busy machine: the server rotated before the next transaction came.
            assert_eq!(lists[&pair[1]], lists[&pair[0]], "after {}", pair[0]);
            continue;
        }
        let (pair_of, highest) =
            (added.rsplit_once('-').unwrap().0, added.rsplit([':', '-']).next());
        assert_eq!(lists[&pair[1]], format!("{pair_of}-{}", highest.unwrap()), "{added}");
        assert!(seen.insert(added.to_owned()));
    }
}
