//! The shipped unit: systemd accepts it, and what it starts exists.

use std::process::Command;

use crate::common::{Workspace, repository};

const UNIT: &str = "systemd/binlog-archiver.service";

fn value(unit: &str, key: &str) -> String {
    let line = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
    unit.lines().find_map(line).unwrap_or_else(|| panic!("{UNIT} has no {key}"))
}

#[test]
fn systemd_accepts_the_unit() {
    // The program is not installed where the unit says, and systemd looks for it: verify a copy
    // that names the one under test, which is otherwise the same.
    let unit = std::fs::read_to_string(repository(UNIT)).unwrap();
    let program = env!("CARGO_BIN_EXE_binlog-archiver");
    let workspace = Workspace::new();
    let copy = workspace.join("binlog-archiver.service");
    std::fs::write(&copy, unit.replace("/usr/bin/binlog-archiver", program)).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&copy)
        .output()
        .expect("systemd-analyze, of the package systemd");
    let said = String::from_utf8_lossy(&verified.stderr);
    // Complaints about other units of the host are not ours.
    let ours: Vec<_> = said.lines().filter(|line| line.contains("binlog-archiver")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
}

#[test]
fn the_unit_starts_a_subcommand_that_exists() {
    let unit = std::fs::read_to_string(repository(UNIT)).unwrap();
    let start = value(&unit, "ExecStart");
    let mut words = start.split_whitespace().skip(1);
    assert_eq!(words.next(), Some("--config"));
    assert_eq!(words.next(), Some("/etc/binlog-archiver/config.toml"));
    let subcommand = words.next().expect("a subcommand");
    assert_eq!(words.next(), None);
    let workspace = Workspace::new();
    let help = workspace.run(&["--help"]).expect_code(0).stdout;
    let listed = |line: &str| line.split_whitespace().next() == Some(subcommand);
    assert!(help.lines().any(listed), "{subcommand} is not in:\n{help}");
    assert!(help.contains("--config"), "{help}");
    workspace.run(&[subcommand, "--help"]).expect_code(0);
}

#[test]
fn the_unit_keeps_to_the_design() {
    let unit = std::fs::read_to_string(repository(UNIT)).unwrap();
    assert_eq!(value(&unit, "Type"), "notify");
    assert_eq!(value(&unit, "RestartPreventExitStatus"), "2 7");
    assert_eq!(value(&unit, "StateDirectory"), "binlog-archiver");
    assert_eq!(value(&unit, "StateDirectoryMode"), "0700");
    // Each of these makes mounts, across which link(2) fails.
    for mounting in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "BindPaths",
        "BindReadOnlyPaths",
        "TemporaryFileSystem",
        "RootDirectory",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "ProcSubset",
        "DynamicUser",
        "PrivateMounts",
        "MountAPIVFS",
    ] {
        let set = |line: &str| line.starts_with(&format!("{mounting}="));
        assert!(!unit.lines().any(set), "{mounting} makes mounts");
    }
}
