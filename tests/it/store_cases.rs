//! One test of a store each, for any store; and what they are made with.

use std::future::Future;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use binlog_archiver::fault::{Fault, FaultKind, Operation};
use binlog_archiver::segment::Digest;
use binlog_archiver::store::{
    Capabilities, Checked, FileBody, PutMode, Recheck, S3Options, S3Store, Store, digest_of,
    get_small, list_all, probe,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};

use crate::common::{Keys, S3Server};

pub const MIB: usize = 1 << 20;

// ---- stores ----

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

pub fn provider(keys: &Keys) -> Option<SharedCredentialsProvider> {
    let Keys { id, secret } = keys;
    Some(SharedCredentialsProvider::new(Credentials::new(id, secret, None, None, "test")))
}

/// Options for a prefix of the shared server that no other run uses.
pub fn options(server: &S3Server, test: &str) -> S3Options {
    let prefix = format!("store-contract/{}-{test}", std::process::id());
    let mut options = S3Options::new(&server.bucket, prefix);
    options.endpoint = Some(server.endpoint.clone());
    options.region = Some(server.region.clone());
    options
}

pub async fn connect(options: S3Options, keys: &Keys) -> S3Store {
    S3Store::connect_as(options, provider(keys)).await.unwrap()
}

pub async fn shared(test: &str) -> S3Store {
    let server = S3Server::shared();
    connect(options(server, test), &server.writer).await
}

// ---- helpers of the cases ----

pub fn random(size: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(size).collect()
}

pub fn file_of(content: &[u8], check: Recheck) -> FileBody {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    let (size, digest) = (content.len() as u64, digest_of(content));
    FileBody { file: Arc::new(file), size, digest, check }
}

/// What proof this store gives for an object it checked.
pub fn checked_here(store: &dyn Store) -> Checked {
    if store.is_local() { Checked::Local } else { Checked::ByStore }
}

pub async fn put(
    store: &dyn Store,
    key: &str,
    bytes: &[u8],
    mode: PutMode<'_>,
) -> Result<(), Fault> {
    let stored = store.put(key, Bytes::copy_from_slice(bytes), &digest_of(bytes), mode).await?;
    assert_eq!((stored.size, stored.checked), (bytes.len() as u64, checked_here(store)));
    Ok(())
}

pub async fn content(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    get_small(store, key, 1 << 30).await.unwrap().map(|(bytes, _)| bytes.to_vec())
}

pub async fn stored_digest(store: &dyn Store, key: &str) -> (u64, Digest) {
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

pub async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    list_all(store, prefix).await.unwrap().into_iter().map(|object| object.key).collect()
}

#[track_caller]
pub fn code(fault: &Fault) -> &str {
    assert_eq!(fault.kind, FaultKind::Answered, "{fault:?}");
    fault.code.as_deref().unwrap_or_else(|| panic!("no code: {fault:?}"))
}

// ---- the cases ----

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
    type Case<'a> = (&'a str, Recheck, &'a dyn Fn(&FileBody));
    let cases: [Case<'_>; 5] = [
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
