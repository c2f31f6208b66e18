//! What scripts rely on: help, text, JSON and exit codes of every command.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Ran, Workspace, fixture, repository, wait_until};
use crate::site::Site;

/// Takes places out of a text.
fn placed(text: &str, workspace: &Workspace) -> String {
    let text = text.replace(&workspace.path().display().to_string(), "[workspace]");
    text.replace(&repository("").display().to_string(), "[repository]/")
}

/// Takes times and waits out of a text.
fn timeless(text: &str) -> String {
    let mut out = String::new();
    let mut before = "";
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let time = bare.len() >= 20 && bare.ends_with('Z') && bare.contains('T');
        let seconds = before.ends_with("lag_seconds\": ") || before == "for ";
        let number = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
        let scrubbed = if time {
            word.replace(bare, "[time]")
        } else if seconds && number {
            word.replace(bare, "[n]")
        } else {
            word.to_owned()
        };
        out.push_str(&scrubbed);
        before = word;
    }
    out
}

/// All that a run said, without what differs from run to run.
fn said(ran: &Ran, workspace: &Workspace) -> String {
    let mut out = format!("exit code {}\n", ran.code);
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        if !text.is_empty() {
            out.push_str(&format!("--- {stream}\n{}", placed(text, workspace)));
        }
    }
    out
}

fn golden(name: &str, ran: &Ran, workspace: &Workspace) {
    insta::assert_snapshot!(name.replace([' ', '-'], "_"), timeless(&said(ran, workspace)));
}

#[test]
fn help() {
    let workspace = Workspace::new();
    let commands: [&[&str]; 7] = [
        &["--help"],
        &["run", "--help"],
        &["status", "--help"],
        &["inspect", "--help"],
        &["verify", "--help"],
        &["config", "--help"],
        &["config", "check", "--help"],
    ];
    for command in commands {
        let ran = workspace.run(command);
        let name = command.join(" ").replace("--help", "help");
        golden(&name, &ran, &workspace);
    }
    let version = workspace.run(&["--version"]).expect_code(0);
    assert_eq!(version.stdout, format!("binlog-archiver {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_command_lines_end_with_2() {
    let workspace = Workspace::new();
    let wrong: [&[&str]; 8] = [
        &[],
        &["frobnicate"],
        &["run", "--final"],
        &["run", "--once", "extra"],
        &["inspect"],
        &["verify", "--endpoint", "http://127.0.0.1:1"],
        &["verify", "--store", "http://bucket/prefix"],
        &["verify", "--store", "file:///tmp", "--source", "No Such Name"],
    ];
    for command in wrong {
        let ran = workspace.run(command).expect_code(2);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{command:?}");
    }
}

#[test]
fn a_configuration_that_is_missing_or_wrong_is_named() {
    let workspace = Workspace::new();
    let missing = workspace.run(&["config", "check"]);
    golden("config missing", &missing, &workspace);
    for command in [&["run"][..], &["run", "--once"], &["status"], &["verify"]] {
        let ran = workspace.run(command);
        assert_eq!(ran.code, missing.code, "{command:?}");
        assert_eq!(ran.stderr, missing.stderr, "{command:?}");
    }
    workspace.write_config(
        "[source]\nname = \"DB 1\"\nbinlogdir = \"/var/lib/mysql\"\n\
         [store]\nurl = \"ftp://x\"\n[upload]\nworkers = 0\n[retry]\nbase_delay = \"soon\"\n",
    );
    let wrong = workspace.run(&["config", "check"]);
    golden("config wrong", &wrong, &workspace);
}

#[test]
fn a_good_configuration_is_said_to_be_so() {
    let site = Site::folder();
    let ran = site.workspace.run(&["config", "check"]).expect_code(0);
    golden("config good", &ran, &site.workspace);
    let report = site.workspace.run(&["config", "check", "--json"]).expect_code(0).json();
    assert_eq!(report["source"], json!("db1"));
    for field in ["file", "binlog_dir", "store", "state"] {
        assert!(report[field].is_string(), "{field}");
    }
}

#[test]
fn inspect_of_a_sound_an_encrypted_a_damaged_and_a_missing_file() {
    let workspace = Workspace::new();
    let sound = fixture("mysql97-tagged-gtid").join("binlog.000002");
    let cases = [
        ("sound", sound.clone(), 0),
        ("mariadb", fixture("mariadb1011-multidomain").join("binlog.000002"), 0),
        ("unclosed", fixture("mysql97-basic").join("binlog.000007"), 0),
        ("encrypted", fixture("mysql97-encrypted").join("binlog.000001"), 3),
        ("damaged", fixture("mysql97-corrupt").join("bitflip-body"), 1),
        ("not a binlog", repository("Cargo.toml"), 1),
        ("missing", fixture("mysql97-basic").join("binlog.999999"), 1),
    ];
    for (name, path, code) in &cases {
        let path = path.to_str().unwrap();
        let ran = workspace.run(&["inspect", path]).expect_code(*code);
        let as_json = workspace.run(&["inspect", "--json", path]).expect_code(*code);
        if *name == "not a binlog" {
            // The manifest of this package changes.
            assert_eq!(as_json.json()["files"][0]["verdict"], json!("not-a-binlog"));
            continue;
        }
        let name = name.replace(' ', "_");
        insta::assert_snapshot!(format!("inspect_{name}"), said(&ran, &workspace));
        insta::assert_snapshot!(format!("inspect_{name}_json"), said(&as_json, &workspace));
    }
    // The worst of several counts.
    let of = |names: &[&str]| {
        let paths = cases.iter().filter(|(name, ..)| names.contains(name)).map(|(_, path, _)| path);
        let mut command = workspace.command();
        command.arg("inspect").args(paths).output().unwrap().status.code()
    };
    assert_eq!(of(&["sound", "encrypted"]), Some(3));
    assert_eq!(of(&["sound", "encrypted", "damaged"]), Some(1));
    assert_eq!(of(&["encrypted", "missing"]), Some(1));
}

#[test]
fn inspect_json_has_the_fields_that_scripts_rely_on() {
    let workspace = Workspace::new();
    let path = fixture("mysql97-basic").join("binlog.000002");
    let report = workspace.run(&["inspect", "--json", path.to_str().unwrap()]).json();
    has_fields(
        &report["files"][0],
        &[
            "file",
            "name",
            "size",
            "sha256",
            "flavor",
            "server_version",
            "checksum",
            "previous_gtids",
            "gtids",
            "transactions",
            "anonymous_transactions",
            "events",
            "first_event_at",
            "last_event_at",
            "ending",
            "in_use",
            "created_at_startup",
            "next_segment",
            "verdict",
            "error",
        ],
    );
}

#[track_caller]
fn has_fields(object: &Value, fields: &[&str]) {
    let object = object.as_object().unwrap_or_else(|| panic!("{object} is no object"));
    for field in fields {
        assert!(object.contains_key(*field), "{field} in {object:?}");
    }
}

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

/// Checks every part of a status by the names of `docs/design.md`.
fn is_status(report: &Value) {
    has_fields(report, &STATUS_FIELDS);
    if !report["cursor"].is_null() {
        has_fields(&report["cursor"], &["incarnation", "segment", "number", "gtids", "from"]);
    }
    let parts: [(&str, &[&str]); 3] = [
        ("ahead", &["incarnation", "first", "last", "segments"]),
        ("holes", &["incarnation", "first", "last", "gtids", "why"]),
        ("pending", &["incarnation", "segment", "state", "attempts", "next_attempt_at"]),
    ];
    for (list, fields) in parts {
        for part in report[list].as_array().unwrap() {
            has_fields(part, fields);
        }
    }
    has_fields(&report["dead_letters"], &["open", "released"]);
    has_fields(&report["pins"], &["method", "bytes"]);
}

/// A source with a damaged segment in the middle.
fn damaged_site() -> Site {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let damaged = fixture("mysql97-corrupt").join("bitflip-body");
    std::fs::copy(damaged, site.binlog("binlog.000003")).unwrap();
    site
}

#[test]
fn run_once_and_status_of_a_source_that_is_fine() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let status = site.workspace.run(&["status"]);
    golden("status before the first run", &status, &site.workspace);
    let ran = site.once().expect_code(0);
    golden("run once", &ran, &site.workspace);
    let status = site.workspace.run(&["status"]).expect_code(0);
    golden("status", &status, &site.workspace);
    let status = site.workspace.run(&["status", "--json"]).expect_code(0);
    is_status(&status.json());
    golden("status json", &status, &site.workspace);
    let report = site.workspace.run(&["run", "--once", "--json"]).expect_code(0).json();
    is_status(&report);
    assert_eq!(report["daemon"], json!("stopped"));
    // No daemon runs.
    site.workspace.run(&["status", "--check"]).expect_code(1);
}

#[test]
fn run_once_and_status_of_a_source_with_damage_and_with_a_hole() {
    let site = damaged_site();
    let ran = site.once().expect_code(3);
    golden("run once damaged", &ran, &site.workspace);
    let ran = site.workspace.run(&["run", "--once", "--json"]).expect_code(3);
    is_status(&ran.json());
    golden("run once damaged json", &ran, &site.workspace);
    let status = site.workspace.run(&["status"]).expect_code(0);
    golden("status damaged", &status, &site.workspace);
    site.list(&["binlog.000005", "binlog.000006", "binlog.000007"]);
    let ran = site.once().expect_code(3);
    golden("run once hole", &ran, &site.workspace);
    let status = site.workspace.run(&["status", "--json"]).expect_code(0);
    is_status(&status.json());
    golden("status hole json", &status, &site.workspace);
}

#[test]
fn verify_text_and_json() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let ran = site.verify(&[]);
    golden("verify nothing", &ran, &site.workspace);
    site.once().expect_code(0);
    let ran = site.verify(&[]).expect_code(0);
    golden("verify", &ran, &site.workspace);
    let manifests = site.manifests();
    site.put(manifests[1].payload(), b"other bytes");
    site.delete(manifests[2].payload());
    site.delete(&manifests[4].key);
    let ran = site.verify(&["--deep"]).expect_code(3);
    golden("verify deep problems", &ran, &site.workspace);
    let ran = site.verify(&["--deep", "--json"]).expect_code(3);
    has_fields(&ran.json(), &["checked", "problems"]);
    for problem in ran.json()["problems"].as_array().unwrap() {
        has_fields(problem, &["source", "incarnation", "segment", "kind", "detail"]);
    }
    site.verify(&["--source", "db1"]).expect_code(3);
    let ran = site.verify(&["--source", "db2"]);
    golden("verify no such source", &ran, &site.workspace);
    let ran = Workspace::new().run(&["verify", "--store", "file:///nowhere/at/all"]);
    golden("verify no such store", &ran, &site.workspace);
}

#[test]
fn state_that_does_not_decode_ends_with_7_and_stays() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    site.once().expect_code(0);
    let cursor = site.workspace.join("state/cursor.json");
    let sound = std::fs::read_to_string(&cursor).unwrap();
    let broken = [
        ("garbage", "{\"format\": 1, \"sou".to_owned()),
        ("empty", String::new()),
        ("newer format", sound.replace("\"format\": 1", "\"format\": 2")),
        ("another source", sound.replace("db1", "db2")),
        ("a contradiction", sound.replace("\"number\": 6", "\"number\": 7")),
    ];
    for (what, text) in broken {
        assert_ne!(text, sound, "{what}");
        std::fs::write(&cursor, &text).unwrap();
        for command in [&["run", "--once"][..], &["run"], &["status"]] {
            let ran = site.workspace.run(command);
            assert_eq!(ran.code, 7, "{what}, {command:?}: {}{}", ran.stdout, ran.stderr);
            let path = cursor.to_str().unwrap();
            assert!(ran.stderr.contains(path), "{what}: {}", ran.stderr);
        }
        let ran = site.once();
        golden(&format!("state {what}"), &ran, &site.workspace);
        assert_eq!(std::fs::read_to_string(&cursor).unwrap(), text, "{what}: it was rewritten");
    }
    std::fs::write(&cursor, sound).unwrap();
    for file in ["writer", "store-caps.json"] {
        let path = site.workspace.join("state").join(file);
        let sound = std::fs::read_to_string(&path).unwrap();
        for text in ["{", &sound.replace("\"format\": 1", "\"format\": 2")] {
            std::fs::write(&path, text).unwrap();
            site.once().expect_code(7);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, sound).unwrap();
    }
    site.once().expect_code(0);
}

#[test]
fn another_process_on_the_state_directory_ends_with_5() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let daemon = site.workspace.daemon(&["run"]);
    let limit = std::time::Duration::from_secs(30);
    wait_until(limit, "six segments", || site.committed().len() == 6);
    let ran = site.once().expect_code(5);
    assert!(ran.stderr.contains("locked by another process"), "{}", ran.stderr);
    assert!(ran.stderr.contains(&daemon.pid().to_string()), "{}", ran.stderr);

    // While it runs, it answers for itself.
    wait_until(limit, "the cursor is shown", || {
        let report = site.workspace.run(&["status", "--json"]).expect_code(0).json();
        is_status(&report);
        assert_eq!(report["daemon"], json!("running"));
        report["cursor"]["segment"] == json!("binlog.000006")
    });
    site.workspace.run(&["status", "--check"]).expect_code(0);
    let text = site.workspace.run(&["status"]).expect_code(0).stdout;
    assert!(text.starts_with("source    db1, daemon running\n"), "{text}");
    assert_eq!(daemon.terminate(limit), 0);
    site.once().expect_code(0);
}

#[test]
fn another_writer_of_the_source_ends_with_5_until_it_is_told_to_take_over() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let daemon = site.workspace.daemon(&["run"]);
    let limit = std::time::Duration::from_secs(30);
    wait_until(limit, "six segments", || site.committed().len() == 6);
    // Another host with another state directory.
    let config = std::fs::read_to_string(site.workspace.join("config.toml")).unwrap();
    let other = Workspace::new();
    let config = config.replace(&format!("{}/state", site.workspace.path().display()), "STATE");
    let config = config.replace("STATE", other.join("state").to_str().unwrap());
    other.write_config(&config);
    let ran = other.run(&["run", "--once"]).expect_code(5);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(ran.stderr.contains(&format!("another writer on host {host}")), "{}", ran.stderr);
    assert!(ran.stderr.contains("--take-over"), "{}", ran.stderr);
    // Told so, it does; and with a clean stop of the other, it need not be told.
    assert_eq!(daemon.terminate(limit), 0);
    other.run(&["run", "--once"]).expect_code(0);
    let daemon = site.workspace.daemon(&["run"]);
    let running = || daemon.log().matches("attached to the archive").count() == 2;
    wait_until(limit, "the first one again", running);
    other.run(&["run", "--once", "--take-over"]).expect_code(0);
    assert_eq!(site.committed().len(), 6);
}

#[test]
fn a_store_that_is_not_there_fails_a_first_start() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    std::fs::remove_dir_all(site.workspace.join("archive")).unwrap();
    for command in [&["run", "--once"][..], &["run"]] {
        let ran = site.workspace.run(command).expect_code(1);
        assert!(ran.stderr.contains("mount it or create it"), "{}", ran.stderr);
    }
    assert!(!site.workspace.join("state/cursor.json").exists());
}

#[test]
fn a_binlog_directory_without_an_index_is_an_error() {
    let site = Site::folder();
    let ran = site.once().expect_code(1);
    assert!(ran.stderr.contains(site.binlogs().to_str().unwrap()), "{}", ran.stderr);
}

#[test]
fn names_from_files_reach_a_terminal_escaped() {
    let workspace = Workspace::new();
    let evil = workspace.join("bin\u{1b}[31mlog.000001");
    std::fs::copy(fixture("mysql97-basic").join("binlog.000002"), &evil).unwrap();
    let ran = workspace.run(&["inspect", evil.to_str().unwrap()]).expect_code(0);
    assert!(ran.stdout.contains("bin\\u{1b}[31mlog.000001"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'));
    assert!(Path::new(&evil).exists());
}

#[test]
fn what_is_no_regular_file_is_an_error_and_never_waited_for() {
    let workspace = Workspace::new();
    let pipe = workspace.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    for path in [pipe.as_path(), Path::new("/dev/zero"), workspace.path()] {
        let path = path.to_str().unwrap();
        let ran = workspace.run(&["inspect", path]).expect_code(1);
        assert!(ran.stdout.contains("not a regular file"), "{path}: {}", ran.stdout);
        let ran = workspace.run(&["config", "check", "--config", path]);
        assert!(ran.stderr.contains("not a regular file"), "{path}: {}", ran.stderr);
        assert_ne!(ran.code, 0, "{path}");
    }
}

#[test]
fn a_failing_run_with_a_json_log_ends_with_a_json_line() {
    let site = Site::folder();
    for command in [&["run", "--once"][..], &["run", "--once", "--log", "off"], &["verify"]] {
        let ran = site.workspace.run(&[command, &["--log-format", "json"]].concat()).expect_code(1);
        let lines: Vec<Value> =
            ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!(last["level"], json!("ERROR"), "{last}");
        assert!(!last["message"].as_str().unwrap().is_empty(), "{last}");
    }
}

#[test]
fn after_a_reset_that_no_daemon_has_seen_nothing_on_disk_counts_as_archived() {
    let site = Site::folder();
    site.show(&fixture("mysql97-reset/before"));
    site.once().expect_code(0);
    assert_eq!(site.status()["pending_total"], json!(0));
    assert_eq!(site.status()["lag_seconds"], json!(0));
    site.show(&fixture("mysql97-reset"));
    let path = site.binlog("binlog.000001");
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
    let status = site.status();
    assert_eq!(status["pending_total"], json!(2), "{status}");
    for pending in status["pending"].as_array().unwrap() {
        assert_eq!(pending["incarnation"], Value::Null, "{status}");
        assert_eq!(pending["state"], json!("closed"), "{status}");
    }
    let lag = status["lag_seconds"].as_u64().unwrap();
    assert!((3600..3700).contains(&lag), "{lag}");

    // What is listed and cannot be read is held, and says why.
    std::fs::remove_file(&path).unwrap();
    let second = site.binlog("binlog.000002");
    std::fs::remove_file(&second).unwrap();
    std::fs::create_dir(&second).unwrap();
    let status = site.status();
    for (at, why) in [(0, "not there"), (1, "not a regular file")] {
        let pending = &status["pending"][at];
        assert_eq!(pending["state"], json!("held"), "{status}");
        assert!(pending["error"].as_str().unwrap().contains(why), "{status}");
    }
}
