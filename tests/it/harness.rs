//! The harness itself: servers start, survive kills, and are gone afterwards.

use std::time::Duration;

use crate::common::{MariadbServer, MysqlServer, S3Server, Workspace, wait_until};

#[test]
fn an_own_s3_server_keeps_objects_over_a_kill_and_counts_versions() {
    let server = S3Server::own();
    let look = server.look().in_bucket("versioned");
    look.create_versioned();
    look.put("a/1", b"one".to_vec());
    look.put("a/1", b"two".to_vec());
    server.kill();
    server.restart();
    let look = server.look().in_bucket("versioned");
    assert_eq!(look.get("a/1"), b"two");
    assert_eq!(look.versions("a/").into_iter().collect::<Vec<_>>(), [("a/1".to_owned(), 2)]);
    server.pause();
    server.resume();
    look.delete("a/1");
    assert!(look.objects("a/").is_empty());
    assert!(look.unfinished_uploads("").is_empty());
}

#[test]
fn the_shared_s3_server_has_its_bucket() {
    let server = S3Server::shared();
    let look = server.look();
    look.put("harness/1", vec![7; 100]);
    assert_eq!(
        look.objects("harness/").into_iter().collect::<Vec<_>>(),
        [("harness/1".into(), 100)]
    );
    look.delete("harness/1");
}

#[test]
fn mysql_rotates_stops_and_survives_a_kill() {
    let server = MysqlServer::start("harness", &["-m", "65536"]);
    server.shell("CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); FLUSH BINARY LOGS");
    assert_eq!(server.binlogs(), ["binlog.000001", "binlog.000002"]);
    let mut load = server.workload(&["soak", "--seconds", "2", "--rate", "20", "--rotate", "0.5"]);
    assert!(load.wait().unwrap().success());
    server.kill();
    server.restart();
    server.shell("INSERT INTO d.t VALUES (1)");
    server.stop();
    server.restart();
    assert_eq!(server.shell("SELECT COUNT(*) FROM d.t"), "1");
    assert!(server.print_binlog(&server.binlog("binlog.000001")).contains("CREATE TABLE"));
    assert!(!server.try_shell("SELECT nothing FROM nowhere").status.success());
    let datadir = server.datadir.clone();
    drop(server);
    assert!(!datadir.exists());
}

#[test]
fn mariadb_rotates() {
    let server = MariadbServer::start("harness", &[]);
    server.shell("CREATE DATABASE d; FLUSH BINARY LOGS");
    assert_eq!(server.binlogs().len(), 2);
    assert!(server.pid() > 0);
}

#[test]
fn a_daemon_is_run_with_a_clean_environment_and_ended() {
    let workspace = Workspace::new();
    assert_eq!(
        workspace.command().get_envs().filter(|(name, _)| *name == "AWS_PROFILE").count(),
        0
    );
    workspace.run(&["--version"]).expect_code(0);
    let daemon = workspace.daemon(&["--help"]);
    assert_eq!(daemon.wait(Duration::from_secs(10)), 0);
    wait_until(Duration::from_secs(1), "nothing", || true);
}
