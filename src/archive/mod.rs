//! Segments in a store: put, prove, commit, list, check.
//!
//! **Invariants.** The manifest, created only after its payload was proven, is the one commit point
//! (I1). Nothing under `payloads/` and `index/` is overwritten or deleted (I4). A [`Receipt`] comes
//! only from [`Archive::put`], a [`Committed`] only from [`Archive::commit`]: a commit without proof
//! does not compile.
//!
//! **Crash.** A payload without a manifest may stay behind; the next attempt finds it, proves it by
//! reading it back and adopts it. A multipart upload may stay behind; it is aborted a day later.
//!
//! **Cancellation.** Every future here may be dropped at any await: what is in the bucket then is
//! what a crash would have left.

mod blocks;
mod catalog;
mod check;
mod commit;
mod encode;
mod identity;
mod layout;
mod lease;
mod manifest;
mod prove;
mod put;
#[cfg(test)]
pub(crate) mod sample;

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

pub use blocks::BLOCK;
pub use catalog::{CommittedNumbers, ManifestEntry};
pub use check::{Checked, Depth, Problem, ProblemKind, check_source, list_sources};
pub use commit::{CommitContext, Committed};
pub use identity::{Comparison, compare};
pub use layout::Encoding;
pub use lease::{Lease, LeaseError, LeaseState, TakeOver};
pub use manifest::{
    Create, FORMAT, First, IncarnationRecord, Manifest, Predecessor, Proof, Reason, set_hash,
};
pub use prove::ProofPolicy;
pub use put::{Compression, Inspected, Put, PutOptions, Receipt};

use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::{Digest, SourceName};
use crate::store::{self, Capabilities, Store};

/// Largest JSON object read from a store; a GTID set of 10^5 intervals is a few megabytes.
const JSON_MAX: usize = 64 << 20;

/// One source's archive in a store.
#[derive(Debug, Clone)]
pub struct Archive {
    store: Arc<dyn Store>,
    source: SourceName,
    writer_id: String,
    capabilities: Capabilities,
    options: PutOptions,
}

impl Archive {
    /// The archive of `source` in `store`, written as `writer_id`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        source: SourceName,
        writer_id: String,
        capabilities: Capabilities,
        options: PutOptions,
    ) -> Self {
        Self { store, source, writer_id, capabilities, options }
    }

    /// An archive that is only read: what the store honours does not matter.
    #[must_use]
    pub fn read_only(store: Arc<dyn Store>, source: SourceName) -> Self {
        let options = PutOptions {
            compression: Compression::None,
            part_size: 0,
            multipart_threshold: 0,
            proof: ProofPolicy::ReadBack,
        };
        let capabilities = Capabilities {
            create_only_put: false,
            create_only_multipart: false,
            conditional_replace: false,
            rejects_wrong_put: false,
            rejects_wrong_part: false,
        };
        Self::new(store, source, String::new(), capabilities, options)
    }

    /// The source's name.
    #[must_use]
    pub const fn source(&self) -> &SourceName {
        &self.source
    }

    /// Where the objects are.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Who writes.
    #[must_use]
    pub fn writer_id(&self) -> &str {
        &self.writer_id
    }

    /// Finds out what the store honours. Overwrites the canary; deletes nothing.
    ///
    /// # Errors
    /// When the store cannot be reached or refuses the canary for another reason than the probe's.
    pub async fn probe(store: &dyn Store, source: &SourceName) -> Result<Capabilities, Fault> {
        store::probe(store, &layout::canary(source)).await
    }

    /// Aborts multipart uploads of this source that a crash left behind more than a day ago.
    ///
    /// # Errors
    /// When the store refuses to list or abort them.
    pub async fn abort_stale_uploads(&self) -> Result<u64, Fault> {
        const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);
        self.store.abort_stale_uploads(&format!("payloads/{}/", self.source), DAY).await
    }
}

fn misplaced(key: &str) -> Fault {
    let message = "the object names another source, incarnation or number than its key does; \
                   compare it with docs/formats.md, and see the bucket's log for who wrote it";
    Fault::new(Operation::Get, FaultKind::Undecodable, message).at(key)
}

/// Reads and decodes a JSON object with its facts.
async fn read_json<T: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<(T, store::ObjectMeta)>, Fault> {
    let Some((bytes, meta)) = store::get_small(store, key, JSON_MAX).await? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some((value, meta))),
        Err(error) => {
            let message = format!(
                "the object does not decode: {error}; it is left as it is, look at it by hand"
            );
            Err(Fault::new(Operation::Get, FaultKind::Undecodable, message).at(key))
        }
    }
}

/// JSON of an object with its digest, one line.
fn to_json<T: Serialize>(value: &T, key: &str) -> Result<(Bytes, Digest), Fault> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| {
        Fault::new(Operation::Put, FaultKind::Construction, error.to_string()).at(key)
    })?;
    bytes.push(b'\n');
    let digest = Digest::from_bytes(Sha256::digest(&bytes).into());
    Ok((Bytes::from(bytes), digest))
}
