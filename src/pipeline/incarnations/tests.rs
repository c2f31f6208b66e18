//! Races with another writer, and files caught while they are written: what a whole run cannot
//! show at will.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::archive::{Compression, ProofPolicy, PutOptions};
use crate::clock::RealClock;
use crate::source::{Scanner, SourceDir, SourcePaths};
use crate::store::{LocalStore, Store};

struct Host {
    dir: TempDir,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/binlogs/mysql97-basic").join(name)
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("binlogs")).unwrap();
        std::fs::create_dir(dir.path().join("archive")).unwrap();
        Self { dir }
    }

    fn binlog(&self, name: &str) -> PathBuf {
        self.dir.path().join("binlogs").join(name)
    }

    /// Puts the first `bytes` of a fixture there.
    fn write(&self, name: &str, bytes: usize) {
        let all = std::fs::read(fixture(name)).unwrap();
        std::fs::write(self.binlog(name), all.get(..bytes).unwrap_or(&all)).unwrap();
    }

    fn list(&self, names: &[&str]) {
        let lines: String = names.iter().map(|name| format!("./{name}\n")).collect();
        std::fs::write(self.binlog("binlog.index"), lines).unwrap();
    }

    async fn scan(&self) -> Scan {
        let dir = self.dir.path().join("binlogs");
        let paths = SourcePaths { binlog_dir: Some(dir.clone()), index: None, datadir: dir };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        Scanner::new(SourceDir::new(paths, clock)).scan().await.unwrap()
    }

    async fn archive(&self, writer: &str) -> Arc<Archive> {
        let root = self.dir.path().join("archive");
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(&root).unwrap());
        let source = "db1".parse().unwrap();
        let capabilities = Archive::probe(store.as_ref(), &source).await.unwrap();
        let options = PutOptions {
            compression: Compression::None,
            part_size: 8 << 20,
            multipart_threshold: 8 << 20,
            proof: ProofPolicy::Auto,
        };
        Arc::new(Archive::new(store, source, writer.to_owned(), capabilities, options))
    }

    /// As a writer that has read these records.
    async fn incarnations(&self, writer: &str, records: &[IncarnationRecord]) -> Incarnations {
        let identity =
            Identity { server_uuid: None, host: "here".to_owned(), start: Start::Oldest };
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let archive = self.archive(writer).await;
        Incarnations::load(archive, clock, identity, records).await.unwrap()
    }

    fn put(&self, key: &str, value: &serde_json::Value) {
        let path = self.dir.path().join("archive").join(key);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
    }
}

fn record(ordinal: u32, head: &str, writer: &str) -> serde_json::Value {
    json!({
        "format": 1, "source": "db1", "incarnation": format!("{ordinal:04}-{}", &head[..8]),
        "ordinal": ordinal, "reason": "first-start", "server_uuid": null, "flavor": "mysql",
        "first": {"segment": "binlog.000001", "number": 1, "head": head}, "predecessor": null,
        "writer_id": writer, "host": "elsewhere", "created_at": "2026-01-02T03:04:05Z"
    })
}

fn named(assignment: &Assignment) -> Vec<String> {
    let text = |(key, listed): &(Key, Listed)| {
        format!("{}/{}", &key.incarnation.to_string()[..4], listed.name)
    };
    assignment.open.iter().map(text).collect()
}

const THREE: [&str; 3] = ["binlog.000001", "binlog.000002", "binlog.000003"];

fn three() -> Host {
    let host = Host::new();
    THREE.iter().for_each(|name| host.write(name, usize::MAX));
    host.list(&THREE);
    host
}

#[tokio::test]
async fn an_ordinal_that_another_writer_takes_meanwhile_is_left_to_it() {
    let host = three();
    // Read before the others came, so that none is known.
    let mut ours = host.incarnations("ours", &[]).await;
    host.put("index/db1/incarnations/0001.json", &record(1, &"cd".repeat(32), "theirs"));
    host.put("index/db1/incarnations/0002.json", &record(2, &"ef".repeat(32), "theirs"));
    let assignment = ours.assign(&host.scan().await).await.unwrap();
    assert_eq!(assignment.opened.len(), 1);
    assert_eq!(assignment.opened[0].ordinal, 3);
    assert_eq!(named(&assignment), THREE.map(|name| format!("0003/{name}")));
    let records = host.archive("ours").await.incarnations().await.unwrap();
    let writers: Vec<&str> = records.iter().map(|record| record.writer_id.as_str()).collect();
    assert_eq!(writers, ["theirs", "theirs", "ours"]);
}

#[tokio::test]
async fn an_ordinal_taken_by_our_own_lost_answer_is_ours() {
    let host = three();
    let mut first = host.incarnations("ours", &[]).await;
    let opened = first.assign(&host.scan().await).await.unwrap().opened;
    // The same writer, which never heard that it had succeeded.
    let mut again = host.incarnations("ours", &[]).await;
    let assignment = again.assign(&host.scan().await).await.unwrap();
    assert_eq!(assignment.opened, opened);
    assert_eq!(host.archive("ours").await.incarnations().await.unwrap(), opened);
    // Another writer's attempt with the very same head is not.
    let mut other = host.incarnations("other", &[]).await;
    let assignment = other.assign(&host.scan().await).await.unwrap();
    assert_eq!(assignment.opened[0].ordinal, 2);
}

#[tokio::test]
async fn a_head_that_the_server_is_still_writing_names_nothing() {
    let whole = std::fs::read(fixture("binlog.000001")).unwrap();
    let first_event = 4 + u32::from_le_bytes(whole[13..17].try_into().unwrap()) as usize;
    for bytes in [0, 3, 4, 60, first_event, first_event + 5, first_event + 20] {
        let host = Host::new();
        host.write("binlog.000001", bytes);
        host.list(&["binlog.000001"]);
        let mut ours = host.incarnations("ours", &[]).await;
        let assignment = ours.assign(&host.scan().await).await.unwrap();
        assert!(assignment.opened.is_empty() && assignment.open.is_empty(), "{bytes} bytes");
        host.write("binlog.000001", usize::MAX);
        let assignment = ours.assign(&host.scan().await).await.unwrap();
        assert_eq!(named(&assignment), ["0001/binlog.000001"], "{bytes} bytes");
        let head = assignment.opened[0].first.head;
        assert_eq!(head, crate::binlog::inspect(whole.as_slice()).unwrap().head);
    }
}

#[tokio::test]
async fn a_next_segment_caught_half_written_forks_nothing() {
    let host = three();
    host.write("binlog.000003", 127);
    let mut ours = host.incarnations("ours", &[]).await;
    let assignment = ours.assign(&host.scan().await).await.unwrap();
    assert_eq!(named(&assignment), ["0001/binlog.000001", "0001/binlog.000002"]);
    host.write("binlog.000003", usize::MAX);
    let assignment = ours.assign(&host.scan().await).await.unwrap();
    assert!(assignment.opened.is_empty());
    assert_eq!(named(&assignment), THREE.map(|name| format!("0001/{name}")));
}

#[tokio::test]
async fn a_head_mended_before_its_segment_was_committed_stays_in_its_incarnation() {
    let host = three();
    let mut bytes = std::fs::read(fixture("binlog.000002")).unwrap();
    bytes[28] ^= 1;
    std::fs::write(host.binlog("binlog.000002"), &bytes).unwrap();
    let mut ours = host.incarnations("ours", &[]).await;
    let before = named(&ours.assign(&host.scan().await).await.unwrap());
    host.write("binlog.000002", usize::MAX);
    let assignment = ours.assign(&host.scan().await).await.unwrap();
    assert!(assignment.opened.is_empty());
    assert_eq!(named(&assignment), before);
}

#[tokio::test]
async fn a_server_that_starts_over_before_anything_was_committed_gets_its_own_incarnation() {
    let host = three();
    let mut ours = host.incarnations("ours", &[]).await;
    ours.assign(&host.scan().await).await.unwrap();
    let reset = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/binlogs/mysql97-reset");
    for name in THREE {
        std::fs::write(host.binlog(name), std::fs::read(reset.join(name)).unwrap()).unwrap();
    }
    let assignment = ours.assign(&host.scan().await).await.unwrap();
    assert_eq!(assignment.opened[0].reason, Reason::NumberingRestarted);
    assert_eq!(named(&assignment), THREE.map(|name| format!("0002/{name}")));
}

#[tokio::test]
async fn numbers_below_the_first_known_one_begin_anew() {
    let host = Host::new();
    let later = ["binlog.000004", "binlog.000005"];
    later.iter().for_each(|name| host.write(name, usize::MAX));
    host.list(&later);
    let mut incarnations = host.incarnations("a", &[]).await;
    let first = incarnations.assign(&host.scan().await).await.unwrap();
    assert_eq!(named(&first), ["0001/binlog.000004", "0001/binlog.000005"]);
    // RESET: nothing that is known is left, and what comes has lower numbers.
    host.write("binlog.000001", usize::MAX);
    host.list(&["binlog.000001"]);
    let after = incarnations.assign(&host.scan().await).await.unwrap();
    assert_eq!(named(&after), ["0002/binlog.000001"]);
    assert_eq!(after.opened[0].reason, Reason::NumberingRestarted);
}
