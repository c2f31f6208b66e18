//! Objects as files of this host: `file://`.
//!
//! A key is a path below the root. Names that begin with a dot are ours: `.tmp-…` is an object being
//! written, `.lock` serialises replacements and marks the root, so that an unmounted one is noticed
//! instead of being filled.
//!
//! **Invariants.** Nothing outside the root is touched. An ETag is size and modification time in
//! hex: put, head and list agree on it, it changes with every replacement, and copying with
//! `cp -a` or `rsync -a` keeps it.
//!
//! **Cancellation.** Work goes on in a blocking thread when its future is dropped: a dropped put
//! may still store the object.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::local_multipart::LocalMultipart;
use super::local_write::{self, Mode};
use super::pace::{CHUNK, wall};
use super::{FileBody, Multipart, Object, ObjectMeta, Page, PutMode, Store, Stored, key};
use crate::fault::{Fault, FaultKind, Operation, io_name};
use crate::segment::Digest;

/// What the names of files being written begin with.
pub(super) const TEMP_PREFIX: &str = ".tmp-";
/// Serialises replacements, and marks a root.
pub(super) const LOCK: &str = ".lock";
/// Deepest folder that a listing enters. Keys of an archive have six levels.
const DEPTH_MAX: usize = 16;

/// A folder of objects.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: Arc<Root>,
}

/// The folder, and whether it had its mark when it was opened.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    marked: bool,
}

pub(super) fn local_fault(operation: Operation, key: &str, what: &str, error: &io::Error) -> Fault {
    let message = format!("{what}: {error}");
    let mut fault = Fault::new(operation, FaultKind::LocalIo, message).at(key);
    fault.io = Some(io_name(error));
    fault
}

fn root_gone(operation: Operation, path: &Path) -> Fault {
    let message = format!(
        "the archive's folder {} is not there, or not the one that was opened; mount it or create it",
        path.display()
    );
    let mut fault = Fault::new(operation, FaultKind::Answered, message);
    fault.code = Some("NoSuchBucket".to_owned());
    fault
}

/// Runs blocking work; it ends even when nobody waits for it.
pub(super) async fn blocking<T: Send + 'static>(
    operation: Operation,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => {
            Err(Fault::new(operation, FaultKind::Other, format!("worker thread: {error}")))
        }
    }
}

/// Size and modification time, in hex.
pub(super) fn etag(metadata: &Metadata) -> String {
    let nanos = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    format!("{:x}-{nanos:x}", metadata.size())
}

fn meta(key: &str, metadata: &Metadata) -> ObjectMeta {
    let modified = metadata.modified().ok();
    ObjectMeta {
        key: key.to_owned(),
        size: metadata.size(),
        etag: Some(etag(metadata)),
        version_id: None,
        last_modified: modified.and_then(|time| jiff::Timestamp::try_from(time).ok()),
        age: modified.map(|time| wall().duration_since(time).unwrap_or_default()),
        sha256: None,
    }
}

impl Root {
    /// Fails when the root is not the one that was opened, as after an unmount.
    pub(super) fn check(&self, operation: Operation) -> Result<(), Fault> {
        let there = if self.marked { self.path.join(LOCK).exists() } else { self.path.is_dir() };
        if there { Ok(()) } else { Err(root_gone(operation, &self.path)) }
    }

    /// The path of a checked key.
    pub(super) fn path_of(&self, operation: Operation, key: &str) -> Result<PathBuf, Fault> {
        key::check(operation, key)?;
        Ok(self.path.join(key))
    }

    /// Opens an object; `None` when it is not there.
    fn open(&self, operation: Operation, key: &str) -> Result<Option<(File, Metadata)>, Fault> {
        let path = self.path_of(operation, key)?;
        let opened = File::open(&path).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        });
        match opened {
            Ok((_, metadata)) if !metadata.is_file() => Ok(None),
            Ok(found) => Ok(Some(found)),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                self.check(operation)?;
                Ok(None)
            }
            Err(error) => Err(local_fault(operation, key, "open", &error)),
        }
    }

    /// Calls `each` for every object below `folder` whose name there begins with `start`.
    /// Returns false as soon as `each` does.
    fn walk(
        &self,
        folder: &str,
        start: &str,
        depth: usize,
        each: &mut dyn FnMut(&str, &Metadata) -> bool,
    ) -> Result<bool, Fault> {
        let failed =
            |what: &str, error: &io::Error| local_fault(Operation::List, folder, what, error);
        let entries = match std::fs::read_dir(self.path.join(folder)) {
            Ok(entries) => entries,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(true);
            }
            Err(error) => return Err(failed("read folder", &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed("read folder", &error))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(start)) else { continue };
            if name.starts_with('.') {
                continue;
            }
            let metadata = match std::fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                // Gone since, or a link to nowhere.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("read facts", &error)),
            };
            let key = format!("{folder}{name}");
            let goes_on = if !metadata.is_dir() {
                !metadata.is_file() || each(&key, &metadata)
            } else if depth == 0 {
                return Err(failed(
                    "read folder",
                    &io::Error::other("folders are nested too deep"),
                ));
            } else {
                self.walk(&format!("{key}/"), "", depth - 1, each)?
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl LocalStore {
    /// Opens an existing folder. It is never created: a missing one is a mistyped path, or a disk
    /// that is not mounted.
    pub fn open(root: &Path) -> Result<Self, Fault> {
        let gone = |_| root_gone(Operation::Connect, root);
        let path = root.canonicalize().map_err(gone)?;
        if !path.is_dir() {
            return Err(root_gone(Operation::Connect, root));
        }
        // A root that cannot be written to can still be read.
        let mark = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
        let marked = mark.is_ok() || path.join(LOCK).exists();
        Ok(Self { root: Arc::new(Root { path, marked }) })
    }
}

#[async_trait]
impl Store for LocalStore {
    fn describe(&self) -> String {
        format!("file://{}", self.root.path.display())
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn put(
        &self,
        key: &str,
        body: Bytes,
        digest: &Digest,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        let (root, key, digest, mode) =
            (Arc::clone(&self.root), key.to_owned(), *digest, Mode::from(mode));
        blocking(Operation::Put, move || local_write::put(&root, &key, &body, &digest, &mode)).await
    }

    async fn put_file(
        &self,
        key: &str,
        body: FileBody,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        let (root, key, mode) = (Arc::clone(&self.root), key.to_owned(), Mode::from(mode));
        blocking(Operation::Put, move || local_write::put_file(&root, &key, body, &mode)).await
    }

    async fn multipart(&self, key: &str) -> Result<Box<dyn Multipart>, Fault> {
        let (root, key) = (Arc::clone(&self.root), key.to_owned());
        let upload =
            blocking(Operation::CreateMultipart, move || LocalMultipart::begin(root, &key));
        Ok(Box::new(upload.await?))
    }

    async fn get(&self, key: &str) -> Result<Option<Object>, Fault> {
        let (root, name) = (Arc::clone(&self.root), key.to_owned());
        let opened = blocking(Operation::Get, move || root.open(Operation::Get, &name)).await?;
        let Some((file, metadata)) = opened else { return Ok(None) };
        let (sender, mut chunks) = mpsc::channel(1);
        let name = key.to_owned();
        let size = metadata.size();
        tokio::task::spawn_blocking(move || {
            let mut at = 0;
            while at < size {
                let length = usize::try_from(size - at).unwrap_or(CHUNK).min(CHUNK);
                let mut bytes = vec![0; length];
                let read = file.read_exact_at(&mut bytes, at);
                let failed = read.is_err();
                let chunk = read
                    .map(|()| Bytes::from(bytes))
                    .map_err(|error| local_fault(Operation::Get, &name, "read", &error));
                at += length as u64;
                // A reader that is gone wants no more.
                if sender.blocking_send(chunk).is_err() || failed {
                    break;
                }
            }
        });
        let body = futures_util::stream::poll_fn(move |cx| chunks.poll_recv(cx)).boxed();
        Ok(Some(Object { meta: meta(key, &metadata), body }))
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Fault> {
        let (root, key) = (Arc::clone(&self.root), key.to_owned());
        blocking(Operation::Head, move || {
            Ok(root.open(Operation::Head, &key)?.map(|(_, metadata)| meta(&key, &metadata)))
        })
        .await
    }

    /// All at once: a folder has no token to go on from.
    async fn list_page(&self, prefix: &str, _: Option<String>) -> Result<Page, Fault> {
        key::check_prefix(Operation::List, prefix)?;
        let (root, prefix) = (Arc::clone(&self.root), prefix.to_owned());
        blocking(Operation::List, move || {
            root.check(Operation::List)?;
            let mut objects = Vec::new();
            let (folder, start) = split(&prefix);
            root.walk(folder, start, DEPTH_MAX, &mut |key, metadata| {
                objects.push(meta(key, metadata));
                true
            })?;
            Ok(Page { objects, next: None })
        })
        .await
    }

    async fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        key::check_prefix(Operation::List, prefix)?;
        let (root, prefix) = (Arc::clone(&self.root), prefix.to_owned());
        blocking(Operation::List, move || {
            root.check(Operation::List)?;
            let mut names = Vec::new();
            let (folder, start) = split(&prefix);
            let entries = match std::fs::read_dir(root.path.join(folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(names),
                Err(error) => return Err(local_fault(Operation::List, &prefix, "read", &error)),
            };
            for entry in entries {
                let entry =
                    entry.map_err(|error| local_fault(Operation::List, &prefix, "read", &error))?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                if name.starts_with('.') || !name.starts_with(start) || !entry.path().is_dir() {
                    continue;
                }
                // As in S3, a folder is there only while an object is in it.
                let empty =
                    root.walk(&format!("{folder}{name}/"), "", DEPTH_MAX, &mut |_, _| false)?;
                if !empty {
                    names.push(name.to_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        })
        .await
    }

    async fn abort_stale_uploads(&self, prefix: &str, older_than: Duration) -> Result<u64, Fault> {
        key::check_prefix(Operation::ListMultipart, prefix)?;
        let (root, prefix) = (Arc::clone(&self.root), prefix.to_owned());
        blocking(Operation::ListMultipart, move || {
            root.check(Operation::ListMultipart)?;
            let (folder, _) = split(&prefix);
            local_write::sweep(&root.path.join(folder), older_than, DEPTH_MAX)
                .map_err(|error| local_fault(Operation::ListMultipart, &prefix, "sweep", &error))
        })
        .await
    }
}

/// The folder of a prefix with its slash, and the beginning of a name in it.
fn split(prefix: &str) -> (&str, &str) {
    prefix.split_at(prefix.rfind('/').map_or(0, |at| at + 1))
}
