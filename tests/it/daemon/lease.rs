//! Who may archive a source: two daemons, and one that lost its state.

use std::time::{Duration, Instant};

use super::{SOON, archived, versioned, wait_for_cursor, wait_for_daemon, workspace};
use crate::common::{S3Server, Workspace, copy_files, fixture, wait_until};

/// A copy of a fixture's binlogs whose index lists only the first ones; `list` writes it again.
fn listing(workspace: &Workspace, set: &str, count: usize) {
    let dir = workspace.join("binlogs");
    if !dir.exists() {
        copy_files(&fixture(set), &dir);
    }
    let index = std::fs::read_to_string(fixture(set).join("binlog.index")).unwrap();
    let lines: Vec<&str> = index.lines().take(count).collect();
    std::fs::write(workspace.join("index.new"), lines.join("\n") + "\n").unwrap();
    std::fs::rename(workspace.join("index.new"), dir.join("binlog.index")).unwrap();
}

/// Takes over a minute: the first daemon learns at its next renewal of the lease, each 60 s, that
/// another one has it.
#[test]
fn two_daemons_on_one_source_find_out() {
    let s3 = S3Server::shared();
    let bucket = versioned(s3);
    let files = Workspace::new();
    listing(&files, "mysql97-basic", 3);
    let first = workspace(s3, bucket, "daemon-rivals", &files.join("binlogs"));
    let second = workspace(s3, bucket, "daemon-rivals", &files.join("binlogs"));
    let mut one = first.daemon(&["run"]);
    wait_for_cursor(&first, &mut one, "binlog.000002", SOON);

    // The same state directory.
    let start = Instant::now();
    let refused = first.run(&["run"]).expect_code(5);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(refused.stderr.contains(&format!("PID {}", one.pid())), "{}", refused.stderr);
    // Another one.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for arguments in [&["run"][..], &["run", "--once"]] {
        let refused = second.run(arguments).expect_code(5);
        assert!(refused.stderr.contains(&host), "{}", refused.stderr);
        assert!(refused.stderr.contains("--take-over"), "{}", refused.stderr);
    }
    assert!(one.runs());

    let taken = Instant::now();
    let mut two = second.daemon(&["run", "--take-over"]);
    wait_for_cursor(&second, &mut two, "binlog.000002", SOON);
    // Until the first one knows, both archive; neither overwrites.
    listing(&files, "mysql97-basic", 6);
    wait_for_cursor(&second, &mut two, "binlog.000005", SOON);
    let log = first.join("daemon.log");
    assert_eq!(one.wait(Duration::from_secs(90)), 5);
    eprintln!("the first daemon ended {:?} after the second began", taken.elapsed());
    let log = std::fs::read_to_string(log).unwrap();
    let last = log.lines().next_back().unwrap();
    assert!(last.contains(&host) && last.contains("another writer"), "{last}");
    assert!(two.runs());
    let archived = archived(s3, bucket, "daemon-rivals");
    assert_eq!(archived.lease()["released"], false, "the loser released the winner's lease");
    assert_eq!(two.terminate(Duration::from_secs(10)), 0);
    archived.expect_written_once();
    let names: Vec<String> = (1..=5).map(|number| format!("binlog.{number:06}")).collect();
    archived.expect_files(&files.join("binlogs"), &names);
}

#[test]
fn a_lost_state_directory_is_rebuilt_from_the_bucket() {
    let s3 = S3Server::shared();
    let bucket = versioned(s3);
    let workspace = workspace(s3, bucket, "daemon-rebuilt", &fixture("mysql97-restart"));
    let archived = archived(s3, bucket, "daemon-rebuilt");
    let mut daemon = workspace.daemon(&["run"]);
    wait_until(SOON, "all archived", || {
        workspace.cursor().is_some() && wait_for_daemon(&workspace)["pending_total"] == 0
    });
    assert!(daemon.runs());
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);
    let (cursor, versions) = (workspace.cursor_file().unwrap(), archived.expect_written_once());

    let lose = || std::fs::remove_dir_all(workspace.join("state")).unwrap();
    lose();
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(
        (workspace.cursor_file().unwrap(), archived.versions()),
        (cursor.clone(), versions.clone())
    );

    // Killed and lost at once: the lease is still that of the writer that is no more.
    let daemon = workspace.daemon(&["run"]);
    wait_until(SOON, "the lease", || archived.lease()["released"] == false);
    daemon.kill9();
    lose();
    workspace.run(&["run", "--once"]).expect_code(5);
    workspace.run(&["run", "--once", "--take-over"]).expect_code(0);
    assert_eq!((workspace.cursor_file().unwrap(), archived.versions()), (cursor, versions));
}
