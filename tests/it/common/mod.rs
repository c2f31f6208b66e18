//! What the tests share: real servers, a workspace with the binary, fixtures, waiting.
#![allow(dead_code, unused_imports)]

mod archive;
mod database;
mod generate;
mod s3;
mod workspace;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub use archive::{Archived, sha256, sha256_file, source_config, text as json_text};
pub use database::{MariadbServer, MysqlServer, Server};
pub use generate::{Generated, Rows, Written};
pub use s3::{Keys, S3Server};
pub use workspace::{Daemon, Ran, Workspace};

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder of `fixtures/binlogs`.
pub fn fixture(set: &str) -> PathBuf {
    let path = repository("fixtures/binlogs").join(set);
    assert!(path.is_dir(), "no fixture set at {}", path.display());
    path
}

/// Copies the plain files of a folder (a fixture set) into another, made when absent, in which
/// a test may then write. Times and rights are not kept.
pub fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            // Not fs::copy: the copy must be writable even where the fixture is not.
            let bytes = std::fs::read(entry.path()).unwrap();
            std::fs::write(to.join(entry.file_name()), bytes).unwrap();
        }
    }
}

/// Calls until it answers true; panics after the time limit, naming what was waited for.
pub fn wait_until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(limit, what, || holds().then_some(()));
}

/// Calls until it answers a value; panics after the time limit, naming what was waited for.
pub fn wait_for<T>(limit: Duration, what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where servers are fetched to and run: `services` in cargo's target folder.
fn services_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository("target"), |dir| repository("").join(dir));
    let dir = target.join("services");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A lock between the test processes on one target folder, held until dropped.
fn services_lock(name: &str) -> File {
    let file = File::create(services_dir().join(format!("{name}.lock"))).unwrap();
    file.lock().unwrap();
    file
}

/// A script of `tests/services`, ready to be given arguments.
fn script(name: &str) -> Command {
    let mut command = Command::new(repository("tests/services").join(name));
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end; panics with all it said unless it exits 0.
fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} did not start: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}
