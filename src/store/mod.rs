//! Where objects live: one trait over S3-compatible servers and folders, and what each is able to.
//!
//! Keys are relative to the store's prefix, use `/`, and no component of one begins with a dot
//! (such names are the local store's own).
//!
//! **Invariants.** Nothing here deletes an object. [`PutMode::Create`] never replaces one (I4),
//! on stores where [`probe`] found that honoured. A [`Stored`] says `ByStore` only where the store
//! echoed the SHA-256 that was sent; an echo of another one is a fault, never an `Ok`.
//!
//! **Crash.** Objects appear whole or not at all. A crash may leave a temp file beside its target
//! (local) or an open multipart upload (S3); [`Store::abort_stale_uploads`] ends both.
//!
//! **Cancellation.** Any future may be dropped. A dropped put may or may not have stored the
//! object, exactly as a lost answer; a dropped [`Multipart`] leaves the upload open.

mod body;
mod capabilities;
mod key;
mod local;
mod local_multipart;
mod local_write;
mod pace;
mod s3;
mod s3_answer;
mod s3_connect;
mod s3_fault;
mod s3_list;
mod s3_multipart;

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

pub use capabilities::{Capabilities, probe};
pub use local::LocalStore;
pub use s3::S3Store;
pub use s3_connect::{ChecksumMode, LockMode, ObjectLock, S3Options, Sse};

/// Most pages [`list_all`] takes: 100 million objects at 1,000 a page.
const LIST_PAGES_MAX: usize = 100_000;

/// What a write may meet under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode<'a> {
    /// Nothing: an object already there is [`FaultKind::AlreadyExists`].
    Create,
    /// Anything: it is replaced.
    Replace,
    /// An object with this ETag: anything else is [`FaultKind::PreconditionFailed`].
    Update {
        /// The ETag as an earlier answer of this store had it.
        etag: &'a str,
    },
}

/// Who compared the stored bytes with the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checked {
    /// The store echoed our SHA-256; for a multipart object, that of each part and the composite.
    ByStore,
    /// This process: hashed while writing, then fsynced.
    Local,
    /// Nobody.
    Not,
}

/// What the store said of an object it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The ETag, without quotes.
    pub etag: Option<String>,
    /// The version, on stores that keep them.
    pub version_id: Option<String>,
    /// Bytes sent.
    pub size: u64,
    /// Who compared them with the digest.
    pub checked: Checked,
}

/// The facts of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its key, relative to the store's prefix.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// The ETag, without quotes.
    pub etag: Option<String>,
    /// The version, on stores that keep them. Listings have none.
    pub version_id: Option<String>,
    /// When it was stored, by the store's clock.
    pub last_modified: Option<jiff::Timestamp>,
    /// How long ago that was, by the store's clock.
    pub age: Option<Duration>,
    /// Its SHA-256 where the store keeps one of the whole object and tells it (`head` only).
    pub sha256: Option<Digest>,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Objects, in no promised order.
    pub objects: Vec<ObjectMeta>,
    /// What to pass for the next page; `None` on the last one.
    pub next: Option<String>,
}

/// An object being read.
pub struct Object {
    /// Its facts.
    pub meta: ObjectMeta,
    /// Its bytes. Not compared with anything: callers hash.
    pub body: BoxStream<'static, Result<Bytes, Fault>>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// How a file is compared with its digest while it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recheck {
    /// The store compares: the digest goes along.
    ByStore,
    /// We do: the last chunk is sent only when the hash of all bytes is the digest.
    HashAgain,
}

/// A whole file to be sent.
#[derive(Debug, Clone)]
pub struct FileBody {
    /// The file, read by position: its offset is not used.
    pub file: Arc<File>,
    /// Its size when it was hashed.
    pub size: u64,
    /// Its SHA-256.
    pub digest: Digest,
    /// Who notices that it changed since.
    pub check: Recheck,
}

/// A part that the store took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    pub number: u32,
    /// Its bytes.
    pub size: u64,
    /// Its SHA-256, ours.
    pub digest: Digest,
    /// The ETag as the store wrote it.
    pub etag: Option<String>,
    /// Who compared the bytes with the digest.
    pub checked: Checked,
}

/// A place for objects.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// For humans and status; no secrets.
    fn describe(&self) -> String;

    /// Whether objects are files of this host.
    fn is_local(&self) -> bool;

    /// Stores bytes. The digest goes along as given, right or wrong, for the store to compare.
    async fn put(
        &self,
        key: &str,
        body: Bytes,
        digest: &Digest,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault>;

    /// Stores a whole file in one request. A file that is not as `body` says is
    /// [`FaultKind::SourceChanged`], and nothing is stored.
    async fn put_file(&self, key: &str, body: FileBody, mode: PutMode<'_>)
    -> Result<Stored, Fault>;

    /// Begins an upload in parts.
    async fn multipart(&self, key: &str) -> Result<Box<dyn Multipart>, Fault>;

    /// Reads an object; `None` when there is none under the key.
    async fn get(&self, key: &str) -> Result<Option<Object>, Fault>;

    /// Reads an object's facts; `None` when there is none under the key.
    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Fault>;

    /// Lists objects whose keys begin with `prefix`. The order is not promised.
    async fn list_page(&self, prefix: &str, token: Option<String>) -> Result<Page, Fault>;

    /// Names of the folders right under `prefix`, which ends in `/` or is empty. Sorted.
    async fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Fault>;

    /// Ends uploads under `prefix` that began longer ago than this. Returns how many.
    async fn abort_stale_uploads(&self, prefix: &str, older_than: Duration) -> Result<u64, Fault>;
}

/// An upload in parts. Dropping it leaves the upload open on S3, and removes it on a local store.
#[async_trait]
pub trait Multipart: Send + Sync + fmt::Debug {
    /// Stores one part; the same number again replaces it. Parts may be sent at the same time.
    async fn part(&self, number: u32, bytes: Bytes, digest: &Digest) -> Result<Part, Fault>;

    /// Makes the object from all parts, 1 to the last. When the store refuses, the upload is
    /// aborted; when there was no answer, it is left to [`Store::abort_stale_uploads`].
    async fn complete(
        self: Box<Self>,
        parts: Vec<Part>,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault>;

    /// Gives the upload up.
    async fn abort(self: Box<Self>) -> Result<(), Fault>;
}

/// The SHA-256 of bytes in memory.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}

/// Reads a whole object of at most `max` bytes.
pub async fn get_small(
    store: &dyn Store,
    key: &str,
    max: usize,
) -> Result<Option<(Bytes, ObjectMeta)>, Fault> {
    let Some(mut object) = store.get(key).await? else { return Ok(None) };
    let too_large = |size: u64| {
        Fault::new(
            Operation::Get,
            FaultKind::Undecodable,
            format!("object has {size} bytes where at most {max} are expected"),
        )
        .at(key)
    };
    if object.meta.size > max as u64 {
        return Err(too_large(object.meta.size));
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = object.body.next().await {
        bytes.extend_from_slice(&chunk?);
        if bytes.len() > max {
            return Err(too_large(bytes.len() as u64));
        }
    }
    if bytes.len() as u64 != object.meta.size {
        let message = format!("answer ended after {} of {} bytes", bytes.len(), object.meta.size);
        return Err(Fault::new(Operation::Get, FaultKind::Transport, message).at(key));
    }
    Ok(Some((bytes.freeze(), object.meta)))
}

/// All objects whose keys begin with `prefix`, sorted by key.
pub async fn list_all(store: &dyn Store, prefix: &str) -> Result<Vec<ObjectMeta>, Fault> {
    let mut objects = Vec::new();
    let mut token = None;
    for _ in 0..LIST_PAGES_MAX {
        let page = store.list_page(prefix, token.clone()).await?;
        objects.extend(page.objects);
        if page.next.is_none() {
            objects.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            return Ok(objects);
        }
        if page.next == token {
            break;
        }
        token = page.next;
    }
    let message = "the listing does not end: the store repeats its continuation token";
    Err(Fault::new(Operation::List, FaultKind::Unproven, message).at(prefix))
}
