//! How a local store writes: hashed while written to a temp file in the target's folder, fsynced,
//! then given its name.
//!
//! **Invariants.** A name is given only to bytes whose SHA-256 was the announced one. `Create` takes
//! a name with `renameat2(RENAME_NOREPLACE)`, or a hard link where the file system has no such call.
//!
//! **Crash.** Before the rename: a temp file, swept later. After it and before the folder's fsync:
//! the object may be there or not, as after a lost answer. The folders above are fsynced when they
//! are created, before anything is put into them.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::body::read_chunks;
use super::local::{LOCK, Root, TEMP_PREFIX, etag, local_fault};
use super::pace::wall;
use super::{Checked, FileBody, PutMode, Recheck, Stored};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

/// A [`PutMode`] that a thread can own.
#[derive(Debug, Clone)]
pub(super) enum Mode {
    Create,
    Replace,
    Update(String),
}

impl From<PutMode<'_>> for Mode {
    fn from(mode: PutMode<'_>) -> Self {
        match mode {
            PutMode::Create => Self::Create,
            PutMode::Replace => Self::Replace,
            PutMode::Update { etag } => Self::Update(etag.to_owned()),
        }
    }
}

/// The answer to bytes that are not those of their digest, in S3's words.
pub(super) fn bad_digest(operation: Operation, key: &str, announced: &Digest) -> Fault {
    let message = format!("the SHA-256 of what was written is not {announced}");
    let mut fault = Fault::new(operation, FaultKind::Answered, message).at(key);
    fault.code = Some("BadDigest".to_owned());
    fault.http_status = Some(400);
    fault
}

/// Makes the folders between the root and a target, each durable before the next.
fn make_folders(root: &Root, folder: &Path) -> io::Result<()> {
    if folder.is_dir() || folder == root.path {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return Ok(()) };
    make_folders(root, parent)?;
    match DirBuilder::new().mode(0o750).create(folder) {
        Ok(()) => {}
        // Another writer made it; it may not have been fsynced yet.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
        Err(error) => return Err(error),
    }
    File::open(parent)?.sync_all()
}

/// A new temp file beside the key's target.
pub(super) fn temp_file(
    root: &Root,
    operation: Operation,
    key: &str,
) -> Result<NamedTempFile, Fault> {
    let target = root.path_of(operation, key)?;
    root.check(operation)?;
    let folder = target.parent().unwrap_or(&root.path);
    make_folders(root, folder)
        .map_err(|error| local_fault(operation, key, "create folder", &error))?;
    tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .rand_bytes(16)
        .permissions(Permissions::from_mode(0o640))
        .tempfile_in(folder)
        .map_err(|error| local_fault(operation, key, "create temp file", &error))
}

pub(super) fn put(
    root: &Root,
    key: &str,
    body: &[u8],
    digest: &Digest,
    mode: &Mode,
) -> Result<Stored, Fault> {
    let mut temp = temp_file(root, Operation::Put, key)?;
    if super::digest_of(body) != *digest {
        return Err(bad_digest(Operation::Put, key, digest));
    }
    temp.write_all(body).map_err(|error| local_fault(Operation::Put, key, "write", &error))?;
    publish(root, Operation::Put, key, temp, mode)
}

pub(super) fn put_file(
    root: &Root,
    key: &str,
    body: FileBody,
    mode: &Mode,
) -> Result<Stored, Fault> {
    let mut temp = temp_file(root, Operation::Put, key)?;
    let announced = body.digest;
    // Whoever was to notice a change, it is this function: nothing is hashed twice.
    let asked = body.check;
    let body = FileBody { check: Recheck::ByStore, ..body };
    let mut hash = Sha256::new();
    let mut written = Ok(());
    read_chunks(&body, None, |chunk| {
        hash.update(&chunk);
        written = temp.write_all(&chunk);
        written.is_ok()
    })
    .map_err(|fault| fault.at(key))?;
    written.map_err(|error| local_fault(Operation::Put, key, "write", &error))?;
    if Digest::from_bytes(hash.finalize().into()) != announced {
        return Err(match asked {
            Recheck::ByStore => bad_digest(Operation::Put, key, &announced),
            Recheck::HashAgain => Fault::new(
                Operation::ReadSource,
                FaultKind::SourceChanged,
                "segment changed while it was copied: its SHA-256 is another one; it is inspected again",
            )
            .at(key),
        });
    }
    publish(root, Operation::Put, key, temp, mode)
}

/// Gives a written temp file its name, durably.
pub(super) fn publish(
    root: &Root,
    operation: Operation,
    key: &str,
    temp: NamedTempFile,
    mode: &Mode,
) -> Result<Stored, Fault> {
    let failed =
        |what: &'static str| move |error: io::Error| local_fault(operation, key, what, &error);
    let target = root.path_of(operation, key)?;
    temp.as_file().sync_all().map_err(failed("fsync"))?;
    let file = match mode {
        Mode::Create => temp.persist_noclobber(&target).map_err(|refused| {
            if refused.error.kind() == ErrorKind::AlreadyExists {
                let message = "there is an object under this key";
                Fault::new(operation, FaultKind::AlreadyExists, message).at(key)
            } else {
                local_fault(operation, key, "rename", &refused.error)
            }
        })?,
        Mode::Replace | Mode::Update(_) => {
            // Held until the rename is done; another process waits here.
            let lock = File::options()
                .write(true)
                .open(root.path.join(LOCK))
                .map_err(failed("open .lock"))?;
            flock(&lock, FlockOperation::LockExclusive)
                .map_err(|errno| local_fault(operation, key, "lock .lock", &errno.into()))?;
            let old = match fs::metadata(&target) {
                Ok(old) => Some(old),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(local_fault(operation, key, "read facts", &error)),
            };
            let same = match mode {
                Mode::Update(expected) => old.as_ref().map(etag).as_ref() == Some(expected),
                Mode::Create | Mode::Replace => true,
            };
            if !same {
                let message = "the object under this key has another ETag";
                return Err(Fault::new(operation, FaultKind::PreconditionFailed, message).at(key));
            }
            if let Some(before) = old.and_then(|old| old.modified().ok()) {
                // Clocks of file systems tick in milliseconds: two replacements in one tick, or
                // one after the clock was set back, must not look alike.
                let now = temp.as_file().metadata().and_then(|new| new.modified());
                if now.map_err(failed("read facts"))? <= before {
                    let later = before + Duration::from_nanos(1);
                    temp.as_file().set_modified(later).map_err(failed("set time"))?;
                    temp.as_file().sync_all().map_err(failed("fsync"))?;
                }
            }
            temp.persist(&target)
                .map_err(|refused| local_fault(operation, key, "rename", &refused.error))?
        }
    };
    if let Some(folder) = target.parent() {
        File::open(folder).and_then(|f| f.sync_all()).map_err(failed("fsync folder"))?;
    }
    let metadata = file.metadata().map_err(failed("read facts"))?;
    Ok(Stored {
        etag: Some(etag(&metadata)),
        version_id: None,
        size: metadata.len(),
        checked: Checked::Local,
    })
}

/// Removes temp files below a folder that were last written longer ago than this.
pub(super) fn sweep(folder: &Path, older_than: Duration, depth: usize) -> io::Result<u64> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            removed += sweep(&entry.path(), older_than, depth - 1)?;
        }
        if !kind.is_file() || !entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            continue;
        }
        let age = wall().duration_since(entry.metadata()?.modified()?);
        if age.unwrap_or_default() >= older_than {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}
