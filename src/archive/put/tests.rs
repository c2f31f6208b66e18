//! Put, adopt and commit against a folder, with what others may have left there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::archive::CommitContext;
use crate::binlog;
use crate::segment::{Sealed, SegmentNumber};
use crate::source::{PinnedSegment, from_pin};
use crate::store::{LocalStore, Store};

struct Place {
    dir: TempDir,
    archive: Archive,
}

fn incarnation() -> Incarnation {
    "0001-0a1b2c3d".parse().unwrap()
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/binlogs/mysql97-basic").join(name)
}

impl Place {
    async fn new(compression: Compression) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("archive")).unwrap();
        std::fs::create_dir(dir.path().join("binlogs")).unwrap();
        let archive = Self::of(&dir, compression, "a").await;
        Self { dir, archive }
    }

    async fn of(dir: &TempDir, compression: Compression, writer: &str) -> Archive {
        let store: Arc<dyn Store> =
            Arc::new(LocalStore::open(&dir.path().join("archive")).unwrap());
        let source = "db1".parse().unwrap();
        let capabilities = Archive::probe(store.as_ref(), &source).await.unwrap();
        let options = PutOptions {
            compression,
            part_size: 8 << 10,
            multipart_threshold: 8 << 10,
            proof: ProofPolicy::Auto,
        };
        Archive::new(store, source, writer.to_owned(), capabilities, options)
    }

    /// A fixture as a segment of this name.
    fn segment(&self, fixture_name: &str, name: &str) -> Inspected {
        let path = self.dir.path().join("binlogs").join(name);
        std::fs::write(&path, std::fs::read(fixture(fixture_name)).unwrap()).unwrap();
        let file = File::open(&path).unwrap();
        let signature = FileSignature::of(&file.metadata().unwrap());
        let facts = binlog::inspect(file).unwrap();
        let closed = from_pin(PinnedSegment {
            name: name.parse().unwrap(),
            path,
            listed_after: None,
            sealed: Sealed::Closed,
            file: signature,
        });
        Inspected::new(closed, Arc::new(facts))
    }

    fn key(&self, segment: &Inspected, encoding: Encoding) -> String {
        let number = segment.closed().name().number();
        let digest = &segment.facts().digest;
        layout::payload(self.archive.source(), &incarnation(), number, digest, encoding)
    }

    fn write(&self, key: &str, bytes: &[u8]) {
        let path = self.dir.path().join("archive").join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// All that must never be overwritten.
    fn kept(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.dir.path().join("archive")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_string_lossy().contains("mutable") {
                    found.insert(path.clone(), std::fs::read(&path).unwrap());
                }
            }
        }
        found
    }
}

async fn put(archive: &Archive, segment: &Inspected) -> Result<Put, Fault> {
    archive.put(&incarnation(), segment).await
}

async fn receipt(archive: &Archive, segment: &Inspected) -> Receipt {
    match put(archive, segment).await.unwrap() {
        Put::Proven(receipt) => *receipt,
        Put::AlreadyCommitted(manifest) => panic!("{manifest:?}"),
    }
}

async fn commit(
    archive: &Archive,
    segment: &Inspected,
    receipt: Receipt,
) -> Result<Arc<Manifest>, Fault> {
    let context = CommitContext { server_uuid: None, now: Timestamp::UNIX_EPOCH };
    let committed = archive.commit(&incarnation(), segment, receipt, context).await?;
    Ok(Arc::clone(committed.manifest()))
}

#[tokio::test]
async fn a_segment_is_put_proven_and_committed_once() {
    for compression in [Compression::None, Compression::Zstd] {
        let place = Place::new(compression).await;
        let segment = place.segment("binlog.000003", "binlog.000003");
        let proven = receipt(&place.archive, &segment).await;
        assert_eq!(proven.payload.proof, Proof::Local);
        assert_eq!(proven.payload.create, Create::Atomic);
        let manifest = commit(&place.archive, &segment, proven).await.unwrap();
        assert_eq!(manifest.digest, segment.facts().digest);
        let before = place.kept();
        match put(&place.archive, &segment).await.unwrap() {
            Put::AlreadyCommitted(found) => assert_eq!(found, manifest),
            Put::Proven(receipt) => panic!("{receipt:?}"),
        }
        assert_eq!(place.kept(), before);
    }
}

#[tokio::test]
async fn the_same_bytes_in_another_encoding_of_theirs_are_adopted() {
    for level in [-3, 1, 9, 19] {
        let place = Place::new(Compression::Zstd).await;
        let segment = place.segment("binlog.000003", "binlog.000003");
        let plain = std::fs::read(fixture("binlog.000003")).unwrap();
        let stored = zstd::encode_all(plain.as_slice(), level).unwrap();
        let key = place.key(&segment, Encoding::Zstd);
        place.write(&key, &stored);
        let before = place.kept();
        let adopted = receipt(&place.archive, &segment).await;
        assert_eq!(place.kept(), before, "level {level}");
        assert_eq!(adopted.payload.size, stored.len() as u64);
        assert_eq!(adopted.payload.digest, store::digest_of(&stored));
        assert_eq!((adopted.payload.encoder.clone(), adopted.payload.part_size), (None, None));
        let manifest = commit(&place.archive, &segment, adopted).await.unwrap();
        assert_eq!(manifest.payload.key, key);
        assert_eq!(manifest.digest, store::digest_of(&plain));
    }
}

#[tokio::test]
async fn other_bytes_under_our_key_are_a_conflict_and_stay() {
    let packed =
        |name: &str| zstd::encode_all(std::fs::read(fixture(name)).unwrap().as_slice(), 1).unwrap();
    let whole = packed("binlog.000003");
    let others = [
        ("not zstd", b"something else".to_vec()),
        ("empty", Vec::new()),
        ("another segment", packed("binlog.000002")),
        ("cut off", whole[..whole.len() - 9].to_vec()),
    ];
    for (what, bytes) in others {
        let place = Place::new(Compression::Zstd).await;
        let segment = place.segment("binlog.000003", "binlog.000003");
        place.write(&place.key(&segment, Encoding::Zstd), &bytes);
        let before = place.kept();
        let fault = put(&place.archive, &segment).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Conflict, "{what}: {fault}");
        assert!(fault.message.contains("nothing is overwritten"), "{what}: {fault}");
        assert_eq!(place.kept(), before, "{what}");
    }
    let place = Place::new(Compression::None).await;
    let segment = place.segment("binlog.000003", "binlog.000003");
    let mut flipped = std::fs::read(fixture("binlog.000003")).unwrap();
    flipped[30_000] ^= 1;
    place.write(&place.key(&segment, Encoding::Identity), &flipped);
    let before = place.kept();
    assert_eq!(put(&place.archive, &segment).await.unwrap_err().kind, FaultKind::Conflict);
    assert_eq!(place.kept(), before);
}

#[tokio::test]
async fn a_number_that_another_writer_committed_with_other_bytes_is_a_conflict() {
    let place = Place::new(Compression::Zstd).await;
    let theirs = Place::of(&place.dir, Compression::Zstd, "b").await;
    let other = place.segment("binlog.000002", "binlog.000003");
    let proven = receipt(&theirs, &other).await;
    commit(&theirs, &other, proven).await.unwrap();
    let before = place.kept();

    let ours = place.segment("binlog.000003", "binlog.000003");
    let proven = receipt(&place.archive, &ours).await;
    let fault = commit(&place.archive, &ours, proven).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Conflict);
    assert!(fault.message.contains("by writer b"), "{fault}");
    let after = place.kept();
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
    let number = SegmentNumber(3);
    let found = place.archive.manifest(&incarnation(), number).await.unwrap().unwrap();
    assert_eq!(found.writer_id, "b");
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_again() {
    let place = Place::new(Compression::Zstd).await;
    let segment = place.segment("binlog.000003", "binlog.000003");
    let proven = receipt(&place.archive, &segment).await;
    let first = commit(&place.archive, &segment, proven.clone()).await.unwrap();
    let before = place.kept();
    let again = commit(&place.archive, &segment, proven).await.unwrap();
    assert_eq!((again, place.kept()), (first, before));
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_inspected_is_not_stored() {
    for compression in [Compression::None, Compression::Zstd] {
        let place = Place::new(compression).await;
        let segment = place.segment("binlog.000003", "binlog.000003");
        let path = segment.closed().path().to_owned();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30_000] ^= 1;
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        // Noticed by the file's times,
        let later = modified + std::time::Duration::from_secs(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let fault = put(&place.archive, &segment).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::SourceChanged, "{fault}");
        // by its bytes where the times tell nothing,
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let fault = put(&place.archive, &segment).await.unwrap_err();
        let noticed =
            fault.kind == FaultKind::SourceChanged || fault.code.as_deref() == Some("BadDigest");
        assert!(noticed, "{compression:?}: {fault}");
        // and by its size.
        bytes.truncate(9_000);
        std::fs::write(&path, &bytes).unwrap();
        let fault = put(&place.archive, &segment).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::SourceChanged, "{fault}");
        let marks = |path: &PathBuf| path.file_name().is_some_and(|name| name == ".lock");
        let left: Vec<PathBuf> = place.kept().into_keys().filter(|path| !marks(path)).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{compression:?}");
    }
}
