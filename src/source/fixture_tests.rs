//! What the tests of this module share: folders made of what real servers wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::binlog;
use crate::clock::RealClock;

/// A set of the fixtures.
pub(super) fn set(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/binlogs").join(name)
}

/// Copies all files of a folder; folders in it are left out.
pub(super) fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// A copy of a set to change at will.
pub(super) fn copied(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&set(name), dir.path());
    dir
}

pub(super) fn scanner(dir: &Path) -> Scanner {
    let paths =
        SourcePaths { binlog_dir: Some(dir.to_owned()), index: None, datadir: dir.to_owned() };
    let dir = SourceDir::new(paths, Arc::new(RealClock::new()));
    Scanner::new(dir.with_patience(Duration::from_millis(500)))
}

pub(super) async fn scan(dir: &Path) -> Scan {
    scanner(dir).scan().await.unwrap()
}

/// Inspects one, as a worker does.
pub(super) fn inspect(path: &Path) -> (SealFacts, FileSignature) {
    let file = fs::File::open(path).unwrap();
    let signature = FileSignature::of(&file.metadata().unwrap());
    (SealFacts::from(&binlog::inspect(&file).unwrap()), signature)
}

pub(super) const fn waited(waited_secs: u64) -> Patience {
    Patience { waited: Duration::from_secs(waited_secs), limit: Duration::from_secs(30) }
}

/// Scans, inspects and seals all of a folder: name and judgement, in order.
pub(super) async fn seal_all(
    dir: &Path,
    policy: EncryptedPolicy,
    patience: Patience,
) -> Vec<(String, SealVerdict<Closed>)> {
    let scan = scan(dir).await;
    let judge = |listed: &Listed| {
        let (facts, file) = inspect(&listed.path);
        let inspected = Inspected { facts: &facts, file };
        let verdict = seal(&scan, listed, inspected, policy, patience);
        (listed.name.to_string(), verdict)
    };
    scan.segments.iter().map(judge).collect()
}
