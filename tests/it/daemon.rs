//! The daemon between a real database server and a real S3 server: load, kills, outages.

mod lease;
mod restarts;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{
    Archived, Daemon, MysqlServer, S3Server, Workspace, fixture, json_text, source_config,
    wait_for, wait_until,
};

/// How soon the daemon must stop, and be at the end of what is closed. Generous: the tests share
/// two cores.
const SOON: Duration = Duration::from_secs(30);

/// Fields that scripts rely on (`docs/design.md`, section 11).
const STATUS_FIELDS: [&str; 15] = [
    "source",
    "incarnation",
    "daemon",
    "cursor",
    "floor",
    "archived",
    "ahead",
    "holes",
    "losses",
    "pending_total",
    "pending",
    "dead_letters",
    "suspensions",
    "pins",
    "lag_seconds",
];

/// The closed segments of a server that rotates no more: all that it lists but the last.
fn closed(mut listed: Vec<String>) -> Vec<String> {
    assert!(listed.pop().is_some());
    listed
}

fn wait_for_cursor(workspace: &Workspace, daemon: &mut Daemon, segment: &str, limit: Duration) {
    let start = Instant::now();
    while workspace.cursor().as_deref() != Some(segment) {
        assert!(daemon.runs(), "the daemon has ended:\n{}", daemon.log());
        let at = workspace.cursor();
        assert!(
            start.elapsed() < limit,
            "after {limit:?} the cursor is at {at:?}, not {segment}:\n{}",
            daemon.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a running daemon answers.
fn wait_for_daemon(workspace: &Workspace) -> Value {
    wait_for(SOON, "a status from the daemon", || {
        let ran = workspace.run(&["status", "--json"]);
        (ran.code == 0).then(|| ran.json()).filter(|status| status["daemon"] == "running")
    })
}

/// The sets that the server prints of the Previous_gtids event (of MariaDB's Gtid_list) of each
/// binlog it lists.
fn previous_of(shell: impl Fn(&str) -> String, files: &[String]) -> BTreeMap<String, String> {
    let show = |file: &String| format!("SHOW BINLOG EVENTS IN '{file}' LIMIT 3;");
    let rows = shell(&files.iter().map(show).collect::<String>());
    let mut sets = BTreeMap::new();
    for row in rows.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        if matches!(fields[2], "Previous_gtids" | "Gtid_list") {
            let set = fields.get(5).copied().unwrap_or_default().replace("\\n", "");
            let set = set.trim_matches(['[', ']']).replace(' ', "");
            sets.insert(fields[0].to_owned(), set);
        }
    }
    assert!(files.iter().all(|file| sets.contains_key(file)), "{rows}");
    sets
}

fn joined(sets: [&str; 2]) -> String {
    sets.into_iter().filter(|set| !set.is_empty()).collect::<Vec<_>>().join(",")
}

/// Lets the server judge the GTIDs of all its closed segments' manifests.
fn judge_gtids(server: &MysqlServer, manifests: &[Value]) {
    let files = server.binlogs();
    let previous = previous_of(|sql| server.shell(sql), &files);
    let mut sql = String::new();
    for (manifest, pair) in manifests.iter().zip(files.windows(2)) {
        let (begins, added) = (json_text(&manifest["previous"]), json_text(&manifest["added"]));
        // Both are in canonical form.
        assert_eq!(begins, previous[&pair[0]], "previous of {}", pair[0]);
        let (after, next) = (joined([begins, added]), &previous[&pair[1]]);
        sql += &format!(
            "SELECT '{}', GTID_SUBSET('{added}', @@GLOBAL.gtid_executed), \
             GTID_SUBSET('{after}', '{next}'), GTID_SUBSET('{next}', '{after}'), \
             GTID_SUBSET('{added}', GTID_SUBTRACT('{added}', '{begins}'));",
            pair[0]
        );
    }
    // Nothing was written after the last rotation.
    let last = &previous[files.last().unwrap()];
    sql += &format!("SELECT 'all', 1, 1, GTID_SUBSET(@@GLOBAL.gtid_executed, '{last}'), 1;");
    let judged = server.shell(&sql);
    assert_eq!(judged.lines().count(), manifests.len() + 1, "{judged}");
    for row in judged.lines() {
        assert!(row.ends_with("\t1\t1\t1\t1"), "the server contradicts: {row}");
    }
}

/// A bucket that keeps versions, made anew for each run of the tests and shared by them.
fn versioned(s3: &S3Server) -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let name = format!("versioned-{}", now.as_millis());
        s3.look().in_bucket(&name).create_versioned();
        name
    })
}

/// A workspace with the configuration for a source in a bucket of this server.
fn workspace(s3: &S3Server, bucket: &str, name: &str, dir: &Path) -> Workspace {
    // Only the admin may use buckets made by a test.
    let workspace = Workspace::new().with_env(s3.env_of(&s3.admin));
    workspace.write_config(&source_config(name, dir, &s3.store_section_in(bucket, name)));
    workspace
}

fn archived(s3: &S3Server, bucket: &str, name: &str) -> Archived {
    s3.archived(bucket, name, name)
}

/// Takes about 35 s: the claim is about a daemon that stands beside a loaded server, here for 18 s
/// with a rotation a second; the rest is the start of the server and the reading back of all.
#[test]
fn every_closed_segment_of_a_loaded_mysql_is_archived() {
    let server = MysqlServer::start("daemon-load", &[]);
    let s3 = S3Server::shared();
    let workspace = Workspace::new().with_env(s3.env());
    let section = s3.store_section("daemon-load");
    workspace.write_config(&source_config("daemon-load", &server.datadir, &section));
    let archived = archived(s3, &s3.bucket, "daemon-load");
    // What an earlier run left on a server that still stands.
    for key in archived.look.objects("daemon-load/").into_keys() {
        archived.look.delete(&key);
    }
    let load = ["soak", "--seconds", "18", "--rate", "80", "--rotate", "1", "--tags", "app,batch"];
    let mut load = server.workload(&load);
    let mut daemon = workspace.daemon(&["run"]);
    let early = wait_for_daemon(&workspace);
    for field in STATUS_FIELDS {
        assert!(early.get(field).is_some(), "no {field} in {early}");
    }
    assert!(early["lag_seconds"].is_u64() && early["pins"]["method"].is_string(), "{early}");
    assert!(load.wait().unwrap().success());

    let segments = closed(server.binlogs());
    assert!(segments.len() >= 12, "{segments:?}");
    let last = segments.last().unwrap();
    wait_for_cursor(&workspace, &mut daemon, last, SOON);
    wait_until(SOON, "a status with nothing pending", || workspace.status()["pending_total"] == 0);
    let status = workspace.status();
    assert_eq!(status["daemon"], "running");
    assert_eq!(status["cursor"]["segment"], **last);
    assert_eq!(status["cursor"]["from"], "binlog.000001");
    assert_eq!(status["archived"], segments.len());
    assert_eq!((&status["holes"], &status["ahead"]), (&Value::from([0; 0]), &Value::from([0; 0])));
    let executed = server.shell("SELECT @@GLOBAL.gtid_executed").replace("\\n", "");
    assert_eq!(json_text(&status["cursor"]["gtids"]), executed);
    assert_eq!(workspace.run(&["status", "--check"]).code, 0);

    let manifests = archived.expect_files(&server.datadir, &segments);
    judge_gtids(&server, &manifests);
    for manifest in &manifests {
        assert_eq!(manifest["sealed"], "closed", "{manifest}");
        assert_eq!(manifest["payload"]["proof"], "verified", "{manifest}");
        assert_eq!(manifest["payload"]["create"], "atomic", "{manifest}");
    }
    assert!(archived.uncommitted().is_empty());

    assert_eq!(archived.lease()["released"], false);
    let stopping = Instant::now();
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);
    eprintln!("stopped after {:?}; {} segments", stopping.elapsed(), segments.len());
    assert_eq!(archived.lease()["released"], true);
    let after = workspace.status();
    assert_eq!(after["daemon"], "stopped");
    assert_eq!(after["cursor"], status["cursor"]);
    let verified = workspace.run(&["verify", "--deep", "--json"]).expect_code(0).json();
    assert_eq!(verified["checked"], segments.len());
}

/// Puts segments of noise that take several parts each, so that kills meet multipart uploads.
fn write_large_segments(server: &MysqlServer, count: usize) {
    server.shell("CREATE DATABASE large; CREATE TABLE large.t (b VARBINARY(1024))");
    for _ in 0..count {
        server.shell(
            "SET cte_max_recursion_depth = 30000; INSERT INTO large.t \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
             SELECT RANDOM_BYTES(1024) FROM n; FLUSH BINARY LOGS",
        );
    }
}

/// Takes about a minute: twenty kills at random moments of two seconds each, with load beneath.
/// `KILL_SEED` repeats the moments of a run.
#[test]
fn twenty_kills_lose_nothing_and_overwrite_nothing() {
    let seed =
        std::env::var("KILL_SEED").map_or_else(|_| fastrand::u64(..), |s| s.parse().unwrap());
    eprintln!("KILL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = MysqlServer::start("daemon-kills", &[]);
    write_large_segments(&server, 2);
    let s3 = S3Server::shared();
    let bucket = versioned(s3);
    let workspace = workspace(s3, bucket, "daemon-kills", &server.datadir);
    let archived = archived(s3, bucket, "daemon-kills");
    let load = ["soak", "--seconds", "30", "--rate", "100", "--size", "2000", "--rotate", "1"];
    let mut load = server.workload(&load);
    let mut progress = Vec::new();
    let mut interrupted = 0;
    for _ in 0..20 {
        let daemon = workspace.daemon(&["run"]);
        std::thread::sleep(Duration::from_millis(random.u64(100..2000)));
        daemon.kill9();
        progress.push(archived.manifests().len());
        interrupted += usize::from(!archived.uncommitted().is_empty());
        // Whatever was claimed is there.
        if let Some(cursor) = workspace.cursor() {
            assert!(archived.manifests().iter().any(|m| m["segment"] == *cursor), "{cursor}");
        }
    }
    eprintln!("committed after each kill: {progress:?}; {interrupted} between put and commit");
    assert!(load.wait().unwrap().success());

    let segments = closed(server.binlogs());
    let mut daemon = workspace.daemon(&["run"]);
    wait_for_cursor(&workspace, &mut daemon, segments.last().unwrap(), SOON * 2);
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);
    let manifests = archived.expect_files(&server.datadir, &segments);
    judge_gtids(&server, &manifests);
    assert!(archived.uncommitted().is_empty(), "{:?}", archived.uncommitted());
    let versions = archived.expect_written_once();
    let left = archived.look.unfinished_uploads("daemon-kills/");
    eprintln!("{} multipart uploads left by kills; a start aborts them once a day old", left.len());

    let once = workspace.run(&["run", "--once", "--json"]).expect_code(0).json();
    assert_eq!(once["archived"], segments.len());
    assert_eq!(archived.versions(), versions);
}

/// Takes about 50 s: the store dies twice under a load of 30 s, and takes seconds to come back.
#[test]
fn an_outage_of_the_store_loses_nothing() {
    let server = MysqlServer::start("daemon-outage", &[]);
    let s3 = S3Server::own();
    let workspace = workspace(&s3, &s3.bucket, "daemon-outage", &server.datadir);
    let mut load = server.workload(&["soak", "--seconds", "30", "--rate", "50", "--rotate", "1"]);
    let mut daemon = workspace.daemon(&["run"]);
    wait_until(SOON, "a first commit", || workspace.cursor().is_some());

    let rotations = |count: usize| {
        let from = server.binlogs().len();
        wait_until(SOON, "rotations", || server.binlogs().len() >= from + count);
    };
    s3.kill();
    rotations(3);
    let status = workspace.status();
    assert_eq!(status["daemon"], "running");
    let oldest = &status["pending"][0];
    assert_eq!(oldest["state"], "backing-off", "{status}");
    assert!(json_text(&oldest["error"]).contains("refused"), "{oldest}");
    let newest = closed(server.binlogs()).pop().unwrap();
    s3.restart();
    let number = |segment: &str| segment.rsplit('.').next().unwrap().parse::<u64>().unwrap();
    let reached =
        |segment: &str| workspace.cursor().is_some_and(|cursor| number(&cursor) >= number(segment));
    wait_until(SOON, "the daemon caught up", || reached(&newest));

    // A store that takes connections and does not answer keeps nobody from stopping.
    s3.pause();
    rotations(1);
    assert_eq!(daemon.terminate(Duration::from_secs(15)), 0);

    // Absent when the daemon starts, on a source that was confirmed before.
    s3.kill();
    daemon = workspace.daemon(&["run"]);
    let status = wait_for_daemon(&workspace);
    assert_eq!(status["daemon"], "running");
    rotations(2);
    let status = wait_for(SOON, "a status with the store's trouble", || {
        let status = workspace.status();
        let told = status["troubles"].as_array().unwrap().iter().any(|t| t["what"] == "store");
        (told && status["pending_total"].as_u64() >= Some(2)).then_some(status)
    });
    assert_eq!(status["cursor"]["segment"], *workspace.cursor().unwrap(), "{status}");
    s3.restart();
    assert!(load.wait().unwrap().success());
    let segments = closed(server.binlogs());
    wait_for_cursor(&workspace, &mut daemon, segments.last().unwrap(), SOON * 2);
    assert_eq!(workspace.status()["troubles"], Value::from([0; 0]));
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);
    let archived = archived(&s3, &s3.bucket, "daemon-outage");
    judge_gtids(&server, &archived.expect_files(&server.datadir, &segments));
}

#[test]
fn a_first_start_without_its_store_fails_and_says_so() {
    let workspace = Workspace::new().with_env([
        ("AWS_ACCESS_KEY_ID", "nobody".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "nothing".to_owned()),
    ]);
    // Nothing listens on the port of discard.
    let store = "[store]\nurl = \"s3://bucket/prefix\"\nendpoint = \"http://127.0.0.1:9\"\nregion = \"r\"\n";
    workspace.write_config(&source_config("db1", &fixture("mysql97-basic"), store));
    let daemon = workspace.daemon(&["run"]);
    let log_of = workspace.join("daemon.log");
    assert_eq!(daemon.wait(SOON), 1);
    let log = std::fs::read_to_string(log_of).unwrap();
    let error = log.lines().find(|line| line.contains("error:")).unwrap_or_else(|| panic!("{log}"));
    assert!(error.contains("127.0.0.1:9"), "which store? {error}");
    assert!(error.to_lowercase().contains("connect"), "what is wrong? {error}");
    assert!(workspace.cursor_file().is_none());
}
