//! The cursor and what is shown beside it, when the archive or the server's folder was tampered with.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::common::{S3Server, fixture, wait_until};
use crate::site::Site;

fn archived() -> Site {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    assert_eq!(site.status()["cursor"]["number"], json!(6));
    site
}

fn delete_third(site: &Site) {
    let third = |key: &String| key.contains("/0000000003");
    let keys: Vec<String> = site.objects().into_keys().filter(third).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    keys.iter().for_each(|key| site.delete(key));
}

#[test]
fn the_cursor_goes_back_to_what_the_archive_still_shows() {
    let site = archived();
    delete_third(&site);
    assert_eq!(site.status()["cursor"]["number"], json!(2));
    // The server still has it: it is archived again, and the cursor goes on.
    let said = site.once().expect_code(0).stderr;
    assert!(said.contains("no longer reaches"), "{said}");
    assert_eq!(site.status()["cursor"]["number"], json!(6));
}

#[test]
fn an_archive_that_lost_what_the_server_purged_has_a_hole() {
    let site = archived();
    delete_third(&site);
    for name in ["binlog.000001", "binlog.000002", "binlog.000003"] {
        std::fs::remove_file(site.binlog(name)).unwrap();
    }
    site.list(&["binlog.000004", "binlog.000005", "binlog.000006", "binlog.000007"]);
    site.once().expect_code(3);
    let status = site.status();
    assert_eq!(status["cursor"]["number"], json!(2));
    assert_eq!((&status["holes"][0]["first"], &status["holes"][0]["last"]), (&json!(3), &json!(3)));
    assert_eq!(site.cursors()["incarnations"].as_object().unwrap().len(), 1);
}

#[test]
fn a_listed_segment_that_is_not_there_is_never_dropped_unseen() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    std::fs::remove_file(site.binlog("binlog.000006")).unwrap();
    let said = site.once().expect_code(3).stdout;
    assert!(said.contains("binlog.000006 held") && said.contains("not there"), "{said}");
}

#[test]
fn what_was_purged_right_before_the_active_segment_is_a_hole() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.list(&[
        "binlog.000001",
        "binlog.000002",
        "binlog.000003",
        "binlog.000004",
        "binlog.000005",
    ]);
    site.once().expect_code(0);
    for number in 1..=6 {
        std::fs::remove_file(site.binlog(&format!("binlog.{number:06}"))).unwrap();
    }
    site.list(&["binlog.000007"]);
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(3).json();
    let hole = &report["holes"][0];
    assert_eq!(
        (&hole["first"], &hole["last"], &hole["why"]),
        (&json!(5), &json!(6), &json!("purged"))
    );
    assert_eq!(report["cursor"]["number"], json!(4));
}

#[test]
fn a_run_once_that_is_stopped_has_not_succeeded() {
    let s3 = S3Server::own();
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let config = std::fs::read_to_string(site.workspace.join("config.toml")).unwrap();
    let store = config.find("url = ").unwrap();
    let end = store + config[store..].find('\n').unwrap();
    let url = format!("url = \"s3://{}/stopped\"\nendpoint = \"{}\"", s3.bucket, s3.endpoint);
    let config = format!("{}{url}{}", &config[..store], &config[end..]);
    std::fs::write(site.workspace.join("config.toml"), config).unwrap();
    s3.pause();
    let daemon = site.workspace.daemon(&["run", "--once"]);
    wait_until(Duration::from_secs(10), "it holds its lock", || {
        site.workspace.join("state/lock").exists()
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(Duration::from_secs(15)), 1);
    s3.resume();
}
