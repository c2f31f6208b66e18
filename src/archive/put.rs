//! Putting a segment's payload into the store, and the receipt that it is there.
//!
//! Two passes on purpose: the first inspected the file and gave its digest, the second uploads. The
//! second notices bytes that changed in between: the store rejects a body of another digest where it
//! was found to do so, else the bytes are hashed again on their way. A changed file is never
//! committed: fault `source-changed`, and it is inspected anew.
//!
//! **Crash.** Leaves a payload without a manifest, or a multipart upload without an object.
//!
//! **Cancellation.** A dropped put leaves what a crash leaves; the reading thread stops by itself.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::encode::{self, Encoded, EncodedPart, ZSTD_LEVEL};
use super::layout::{self, Encoding};
use super::manifest::{Create, Manifest, Payload, Proof};
use super::prove::{ProofPolicy, read_back};
use super::{Archive, Fault};
use crate::binlog::Inspection;
use crate::fault::{FaultKind, Operation};
use crate::segment::Incarnation;
use crate::source::{Closed, FileSignature};
use crate::store::{self, FileBody, Multipart, Part, PutMode, Recheck, Stored};

/// Parts in memory an upload: one being filled, one being sent.
const PARTS_HELD: usize = 2;

/// Parts a store takes at most, with room to spare under the 10,000 of S3.
const PARTS_MAX: u64 = 9_000;

/// How payloads are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// zstd, level 1.
    Zstd,
}

/// How payloads are put.
#[derive(Debug, Clone, Copy)]
pub struct PutOptions {
    /// Compression of payloads.
    pub compression: Compression,
    /// Bytes a part of a multipart upload.
    pub part_size: u64,
    /// An uncompressed payload above this many bytes goes in parts.
    pub multipart_threshold: u64,
    /// What counts as proof.
    pub proof: ProofPolicy,
}

/// A closed segment whose bytes were read whole.
#[derive(Debug, Clone)]
pub struct Inspected {
    closed: Closed,
    facts: Arc<Inspection>,
}

impl Inspected {
    /// Joins the seal with the facts that it was made from.
    #[must_use]
    pub const fn new(closed: Closed, facts: Arc<Inspection>) -> Self {
        Self { closed, facts }
    }

    /// The sealed segment.
    #[must_use]
    pub const fn closed(&self) -> &Closed {
        &self.closed
    }

    /// What one full read found.
    #[must_use]
    pub fn facts(&self) -> &Inspection {
        &self.facts
    }
}

/// Evidence that a payload is stored with its digest. Made by [`Archive::put`] alone.
#[derive(Debug, Clone)]
pub struct Receipt {
    pub(super) payload: Payload,
}

/// What came of a put.
#[derive(Debug)]
pub enum Put {
    /// The payload is stored and proven: commit it.
    Proven(Box<Receipt>),
    /// A manifest with this digest is there already: the segment is committed.
    AlreadyCommitted(Arc<Manifest>),
}

impl Archive {
    /// Stores the payload of a segment and proves it.
    ///
    /// # Errors
    /// `SourceChanged` when the file is not the one that was inspected, `Conflict` when the number
    /// is committed with other bytes, and whatever the store answers.
    pub async fn put(&self, incarnation: &Incarnation, segment: &Inspected) -> Result<Put, Fault> {
        let facts = segment.facts();
        let encoding = match self.options.compression {
            Compression::None => Encoding::Identity,
            Compression::Zstd => Encoding::Zstd,
        };
        let number = segment.closed().name().number();
        let key = layout::payload(self.source(), incarnation, number, &facts.digest, encoding);
        let file = Arc::new(open(segment.closed())?);
        let atomic = self.capabilities.create_only_put && self.capabilities.create_only_multipart;
        if !atomic && self.store().head(&key).await?.is_some() {
            return self.adopt(incarnation, segment, key, encoding).await;
        }
        let mode = if atomic { PutMode::Create } else { PutMode::Replace };
        let sent =
            if encoding == Encoding::Identity && facts.size <= self.options.multipart_threshold {
                self.put_whole(&key, file, segment, mode).await
            } else {
                self.put_encoded(&key, file, segment, encoding, mode).await
            };
        let sent = match sent {
            Ok(sent) => sent,
            Err(fault) if fault.kind == FaultKind::AlreadyExists => {
                return self.adopt(incarnation, segment, key, encoding).await;
            }
            Err(fault) => return Err(fault),
        };
        let parts = sent.part_size.is_some();
        let of = (sent.size, &sent.digest);
        let mut proof = self.prove(&key, &sent.stored, of, encoding, parts).await?;
        if !atomic && proof == Proof::Verified {
            // Two writers may have put it in turn: only what is there now counts.
            let unchecked = Stored { checked: store::Checked::Not, ..sent.stored.clone() };
            proof = self.prove(&key, &unchecked, of, encoding, true).await?;
        }
        let payload = Payload {
            key,
            size: sent.size,
            digest: sent.digest,
            etag: sent.stored.etag,
            version_id: sent.stored.version_id,
            encoding,
            encoder: encoder(encoding),
            part_size: sent.part_size,
            proof,
            create: if atomic { Create::Atomic } else { Create::Checked },
        };
        Ok(Put::Proven(Box::new(Receipt { payload })))
    }

    async fn put_whole(
        &self,
        key: &str,
        file: Arc<File>,
        segment: &Inspected,
        mode: PutMode<'_>,
    ) -> Result<Sent, Fault> {
        let facts = segment.facts();
        let check =
            if self.capabilities.rejects_wrong_put { Recheck::ByStore } else { Recheck::HashAgain };
        let body = FileBody { file, size: facts.size, digest: facts.digest, check };
        let stored = self.store().put_file(key, body, mode).await?;
        Ok(Sent { stored, size: facts.size, digest: facts.digest, part_size: None })
    }

    /// Reads, encodes and sends at the same time. One part is put in one request, more of them as a
    /// multipart upload, which is completed only when the bytes read were those inspected.
    async fn put_encoded(
        &self,
        key: &str,
        file: Arc<File>,
        segment: &Inspected,
        encoding: Encoding,
        mode: PutMode<'_>,
    ) -> Result<Sent, Fault> {
        let facts = segment.facts();
        let part_size = self.options.part_size.max(facts.size.div_ceil(PARTS_MAX));
        let job = encode::Job {
            file,
            size: facts.size,
            encoding,
            part_size: usize::try_from(part_size).unwrap_or(usize::MAX),
        };
        let (token, tokens) = mpsc::channel(PARTS_HELD);
        for _ in 0..PARTS_HELD {
            // The channel has room for them all.
            token.try_send(()).ok();
        }
        let (sender, mut parts) = mpsc::channel(1);
        let path = segment.closed().path().to_owned();
        let thread = tokio::task::spawn_blocking(move || encode::encode(&job, tokens, sender));
        let finish = async |thread: tokio::task::JoinHandle<std::io::Result<Encoded>>| {
            let encoded = match thread.await {
                Ok(Ok(encoded)) => encoded,
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(changed(&path, "it became shorter"));
                }
                Ok(Err(error)) => return Err(Fault::local(Operation::ReadSource, &path, &error)),
                Err(error) => {
                    return Err(Fault::new(
                        Operation::ReadSource,
                        FaultKind::Other,
                        error.to_string(),
                    ));
                }
            };
            if encoded.source == facts.digest {
                Ok(encoded)
            } else {
                Err(changed(&path, "its bytes are not those inspected"))
            }
        };
        let (Some(first), second) = (parts.recv().await, parts.recv().await) else {
            let encoded = finish(thread).await?;
            let message = format!("no part came of {} bytes", encoded.size);
            return Err(Fault::new(Operation::ReadSource, FaultKind::Other, message).at(key));
        };
        let Some(second) = second else {
            let encoded = finish(thread).await?;
            let stored = self.store().put(key, first.bytes, &first.digest, mode).await?;
            return Ok(Sent {
                stored,
                size: encoded.size,
                digest: encoded.stored,
                part_size: None,
            });
        };
        let upload = self.store().multipart(key).await?;
        let sent = async {
            let sent = send_parts(upload.as_ref(), [first, second], parts, token).await?;
            Ok((sent, finish(thread).await?))
        };
        let (sent, encoded) = match sent.await {
            Ok(done) => done,
            Err(fault) => {
                abort(upload).await;
                return Err(fault);
            }
        };
        let stored = upload.complete(sent, mode).await?;
        Ok(Sent { stored, size: encoded.size, digest: encoded.stored, part_size: Some(part_size) })
    }

    /// Something is under our key. Encoders differ, so other stored bytes may be ours: only the
    /// decoded ones decide, and the manifest before them.
    async fn adopt(
        &self,
        incarnation: &Incarnation,
        segment: &Inspected,
        key: String,
        encoding: Encoding,
    ) -> Result<Put, Fault> {
        let facts = segment.facts();
        let number = segment.closed().name().number();
        if let Some(manifest) = self.manifest(incarnation, number).await? {
            return if manifest.digest == facts.digest {
                Ok(Put::AlreadyCommitted(Arc::new(manifest)))
            } else {
                Err(conflict(&manifest, &layout::manifest(self.source(), incarnation, number)))
            };
        }
        let back = read_back(self.store(), &key, encoding, &mut |_| {}).await?;
        let Some(back) = back else {
            let message = "the payload was there and is gone; nothing of ours deletes it";
            return Err(Fault::new(Operation::Prove, FaultKind::Damaged, message).at(key));
        };
        if back.decoded != Some((facts.size, facts.digest)) {
            let message = "other bytes are stored under this payload's key; nothing is \
                           overwritten: compare the object with the segment by hand";
            return Err(Fault::new(Operation::Put, FaultKind::Conflict, message).at(key));
        }
        let payload = Payload {
            key,
            size: back.stored_size,
            digest: back.stored_digest,
            etag: back.meta.etag,
            version_id: back.meta.version_id,
            encoding,
            // Whoever put it may have been another version.
            encoder: None,
            part_size: None,
            proof: if self.store().is_local() { Proof::Local } else { Proof::ReadBack },
            create: if self.capabilities.create_only_put {
                Create::Atomic
            } else {
                Create::Checked
            },
        };
        Ok(Put::Proven(Box::new(Receipt { payload })))
    }
}

struct Sent {
    stored: Stored,
    size: u64,
    digest: crate::segment::Digest,
    part_size: Option<u64>,
}

async fn send_parts(
    upload: &dyn Multipart,
    first: [EncodedPart; 2],
    mut rest: mpsc::Receiver<EncodedPart>,
    token: mpsc::Sender<()>,
) -> Result<Vec<Part>, Fault> {
    let mut sent = Vec::new();
    let mut waiting = first.into_iter();
    loop {
        let next = match waiting.next() {
            Some(part) => Some(part),
            None => rest.recv().await,
        };
        let Some(part) = next else { return Ok(sent) };
        let number = u32::try_from(sent.len() + 1).unwrap_or(u32::MAX);
        sent.push(upload.part(number, part.bytes, &part.digest).await?);
        // The part's memory is free: the reading thread may fill another. It may have ended.
        token.try_send(()).ok();
    }
}

/// Gives a multipart upload up. That it fails too is no news: a later start aborts it.
async fn abort(upload: Box<dyn Multipart>) {
    if let Err(fault) = upload.abort().await {
        tracing::debug!(%fault, "a multipart upload stays behind; it is aborted a day from now");
    }
}

fn encoder(encoding: Encoding) -> Option<String> {
    match encoding {
        Encoding::Identity => None,
        Encoding::Zstd => {
            let version = zstd::zstd_safe::version_string();
            Some(format!("zstd {version} level {ZSTD_LEVEL}"))
        }
    }
}

/// Opens the file that was inspected, if it is still that one.
fn open(closed: &Closed) -> Result<File, Fault> {
    let path = closed.path();
    let local = |error: &std::io::Error| Fault::local(Operation::ReadSource, path, error);
    let file = File::open(path).map_err(|error| local(&error))?;
    let now = FileSignature::of(&file.metadata().map_err(|error| local(&error))?);
    if now == *closed.file() {
        Ok(file)
    } else {
        Err(changed(path, "it was written to, or is another file"))
    }
}

fn changed(path: &Path, how: &str) -> Fault {
    let message = format!("the segment changed after it was inspected: {how}");
    Fault::new(Operation::ReadSource, FaultKind::SourceChanged, message)
        .at(path.display().to_string())
}

pub(super) fn conflict(manifest: &Manifest, key: &str) -> Fault {
    let message = format!(
        "number {} is committed with other bytes (SHA-256 {}, by writer {}); nothing is overwritten",
        manifest.number, manifest.digest, manifest.writer_id
    );
    Fault::new(Operation::Commit, FaultKind::Conflict, message).at(key)
}

#[cfg(test)]
mod tests;
