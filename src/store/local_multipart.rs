//! Uploads in parts to a local store.
//!
//! Parts that come in order are appended to one temp file at once; a part that comes early waits in
//! a file of its own until those before it are there.
//!
//! **Invariants.** A part is taken only when its SHA-256 is the announced one. The object is made of
//! exactly the parts that were taken.
//!
//! **Crash, cancellation.** Temp files are removed when the upload is dropped, and swept after a
//! crash.

use std::collections::BTreeMap;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tempfile::NamedTempFile;

use super::local::{Root, blocking, local_fault};
use super::local_write::{Mode, bad_digest, publish, temp_file};
use super::{Checked, Multipart, Part, PutMode, Stored, digest_of};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

#[derive(Debug)]
struct Parts {
    whole: NamedTempFile,
    /// Size and digest of the parts in `whole`, 1 first.
    appended: Vec<(u64, Digest)>,
    early: BTreeMap<u32, (NamedTempFile, u64, Digest)>,
}

/// An open upload.
#[derive(Debug)]
pub(super) struct LocalMultipart {
    root: Arc<Root>,
    key: String,
    /// `None` once the upload was completed.
    parts: Arc<Mutex<Option<Parts>>>,
}

impl Parts {
    fn length(&self) -> u64 {
        self.appended.iter().map(|(size, _)| size).sum()
    }

    fn next(&self) -> u32 {
        u32::try_from(self.appended.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Cuts off whatever a failed write left behind the last whole part.
    fn rewind(&mut self) -> io::Result<()> {
        let length = self.length();
        let file = self.whole.as_file_mut();
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(())
    }

    fn append_early(&mut self) -> io::Result<()> {
        while let Some((mut file, size, digest)) = self.early.remove(&self.next()) {
            self.rewind()?;
            file.as_file_mut().seek(SeekFrom::Start(0))?;
            io::copy(file.as_file_mut(), self.whole.as_file_mut())?;
            self.appended.push((size, digest));
        }
        Ok(())
    }
}

fn refused(key: &str, operation: Operation, code: &str, message: String) -> Fault {
    let mut fault = Fault::new(operation, FaultKind::Answered, message).at(key);
    fault.code = Some(code.to_owned());
    fault.http_status = Some(400);
    fault
}

fn no_upload(key: &str, operation: Operation) -> Fault {
    refused(key, operation, "NoSuchUpload", "the upload has ended".to_owned())
}

fn take_part(
    root: &Root,
    key: &str,
    parts: &Mutex<Option<Parts>>,
    number: u32,
    bytes: &[u8],
    digest: &Digest,
) -> Result<(), Fault> {
    let operation = Operation::UploadPart;
    if digest_of(bytes) != *digest {
        return Err(bad_digest(operation, key, digest));
    }
    let failed = |error: io::Error| local_fault(operation, key, "write part", &error);
    let size = bytes.len() as u64;
    let mut guard = parts.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = guard.as_mut().ok_or_else(|| no_upload(key, operation))?;
    if number != 0 && number + 1 == parts.next() {
        // The last one again.
        parts.appended.pop();
    }
    if number == parts.next() {
        parts.rewind().map_err(failed)?;
        parts.whole.write_all(bytes).map_err(failed)?;
        parts.appended.push((size, *digest));
        return parts.append_early().map_err(failed);
    }
    if number < parts.next() {
        let message = format!("part {number} cannot be replaced after part {}", number + 1);
        return Err(refused(key, operation, "InvalidPart", message));
    }
    let mut early = temp_file(root, operation, key)?;
    early.write_all(bytes).map_err(failed)?;
    parts.early.insert(number, (early, size, *digest));
    Ok(())
}

impl LocalMultipart {
    pub(super) fn begin(root: Arc<Root>, key: &str) -> Result<Self, Fault> {
        let whole = temp_file(&root, Operation::CreateMultipart, key)?;
        let parts = Parts { whole, appended: Vec::new(), early: BTreeMap::new() };
        Ok(Self { root, key: key.to_owned(), parts: Arc::new(Mutex::new(Some(parts))) })
    }
}

#[async_trait]
impl Multipart for LocalMultipart {
    async fn part(&self, number: u32, bytes: Bytes, digest: &Digest) -> Result<Part, Fault> {
        let (root, key, parts) =
            (Arc::clone(&self.root), self.key.clone(), Arc::clone(&self.parts));
        let (size, digest) = (bytes.len() as u64, *digest);
        blocking(Operation::UploadPart, move || {
            take_part(&root, &key, &parts, number, &bytes, &digest)?;
            Ok(Part { number, size, digest, etag: None, checked: Checked::Local })
        })
        .await
    }

    async fn complete(
        self: Box<Self>,
        mut parts: Vec<Part>,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        let mode = Mode::from(mode);
        blocking(Operation::CompleteMultipart, move || {
            let operation = Operation::CompleteMultipart;
            let taken = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut taken = taken.ok_or_else(|| no_upload(&self.key, operation))?;
            parts.sort_unstable_by_key(|part| part.number);
            let asked = parts.iter().map(|part| (part.size, part.digest));
            let numbered = parts.iter().map(|part| part.number).eq(1..taken.next());
            if !numbered || !asked.eq(taken.appended.iter().copied()) || !taken.early.is_empty() {
                let message = "the parts named are not the parts taken".to_owned();
                return Err(refused(&self.key, operation, "InvalidPart", message));
            }
            taken.rewind().map_err(|error| local_fault(operation, &self.key, "seek", &error))?;
            publish(&self.root, operation, &self.key, taken.whole, &mode)
        })
        .await
    }

    async fn abort(self: Box<Self>) -> Result<(), Fault> {
        blocking(Operation::AbortMultipart, move || {
            drop(self.parts.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
        .await
    }
}
