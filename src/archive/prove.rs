//! Proof that a payload is stored with its digest: the store's own word where it was found to
//! reject wrong ones, else a read of the whole object.

use std::io::Write;

use futures_util::StreamExt;
use sha2::{Digest as _, Sha256};

use super::layout::Encoding;
use super::manifest::Proof;
use super::{Archive, Fault};
use crate::fault::{FaultKind, Operation};
use crate::segment::Digest;
use crate::store::{self, Store, Stored};

/// What counts as proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofPolicy {
    /// The store's own check where it was probed, else reading back.
    Auto,
    /// Always read back.
    ReadBack,
}

/// What a stored payload holds, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadBack {
    pub(super) meta: store::ObjectMeta,
    pub(super) stored_size: u64,
    pub(super) stored_digest: Digest,
    /// Of the decoded bytes; `None` when they do not decode.
    pub(super) decoded: Option<(u64, Digest)>,
}

/// A sink that hashes, and hands on to `also`.
struct HashSink<'a> {
    hash: Sha256,
    size: u64,
    also: &'a mut (dyn FnMut(&[u8]) + Send),
}

impl Write for HashSink<'_> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.hash.update(data);
        self.size += data.len() as u64;
        (self.also)(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads a payload whole, hashes it as stored and decoded, and gives the decoded bytes to `also`.
/// `None` when it is not there. Memory is one chunk, whatever the object's size.
pub(super) async fn read_back(
    store: &dyn Store,
    key: &str,
    encoding: Encoding,
    also: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<Option<ReadBack>, Fault> {
    let Some(object) = store.get(key).await? else { return Ok(None) };
    let (meta, mut body) = (object.meta, object.body);
    let (mut stored, mut stored_size) = (Sha256::new(), 0_u64);
    let mut sink = Some(HashSink { hash: Sha256::new(), size: 0, also });
    let mut decoder = None;
    if encoding == Encoding::Zstd {
        let local = |error: std::io::Error| {
            Fault::new(Operation::Prove, FaultKind::Other, error.to_string()).at(key)
        };
        decoder = sink.take().map(zstd::stream::write::Decoder::new).transpose().map_err(local)?;
    }
    let mut decodes = true;
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        stored.update(&chunk);
        stored_size += chunk.len() as u64;
        if let Some(decoder) = &mut decoder {
            decodes = decodes && decoder.write_all(&chunk).is_ok();
        } else if let Some(sink) = &mut sink {
            decodes = decodes && sink.write_all(&chunk).is_ok();
        }
    }
    if let Some(mut decoder) = decoder {
        decodes = decodes && decoder.flush().is_ok();
        sink = Some(decoder.into_inner());
    }
    let decoded = sink
        .filter(|_| decodes)
        .map(|sink| (sink.size, Digest::from_bytes(sink.hash.finalize().into())));
    let stored_digest = Digest::from_bytes(stored.finalize().into());
    Ok(Some(ReadBack { meta, stored_size, stored_digest, decoded }))
}

impl Archive {
    /// Proves that the object under `key` has these bytes, as strongly as the store allows.
    pub(super) async fn prove(
        &self,
        key: &str,
        stored: &Stored,
        (size, digest): (u64, &Digest),
        encoding: Encoding,
        parts: bool,
    ) -> Result<Proof, Fault> {
        let rejects = if parts {
            self.capabilities.rejects_wrong_part
        } else {
            self.capabilities.rejects_wrong_put
        };
        let vouched = rejects && self.options.proof == ProofPolicy::Auto;
        match stored.checked {
            store::Checked::Local => return Ok(Proof::Local),
            store::Checked::ByStore if vouched => return Ok(Proof::Verified),
            // The answer was lost or did not carry the digest: the object's own facts may.
            store::Checked::Not if vouched && !parts => {
                let head = self.store.head(key).await?;
                if head.is_some_and(|head| head.size == size && head.sha256 == Some(*digest)) {
                    return Ok(Proof::Verified);
                }
            }
            store::Checked::ByStore | store::Checked::Not => {}
        }
        let back = read_back(self.store(), key, encoding, &mut |_| {}).await?;
        match back {
            Some(back) if back.stored_size == size && back.stored_digest == *digest => {
                Ok(Proof::ReadBack)
            }
            found => {
                let what = found.map_or_else(
                    || "nothing is there".to_owned(),
                    |back| {
                        format!(
                            "{} bytes of SHA-256 {} are there",
                            back.stored_size, back.stored_digest
                        )
                    },
                );
                let message =
                    format!("{size} bytes of SHA-256 {digest} were put, and read back {what}");
                Err(Fault::new(Operation::Prove, FaultKind::Damaged, message).at(key))
            }
        }
    }
}
