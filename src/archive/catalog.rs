//! What is in the archive: incarnations, and which numbers of each are committed.
//!
//! **Invariants.** What is committed is what the listing of manifests says; nothing local is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::manifest::{FORMAT, IncarnationRecord, Manifest};
use super::{Archive, layout, misplaced, read_json, to_json};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::{Incarnation, SegmentNumber, SourceName};
use crate::store::{self, PutMode, Store};

/// Requests for manifests in flight at once.
const GETS: usize = 16;

/// A manifest as the listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The object's ETag.
    pub etag: Option<String>,
}

/// The committed numbers of an incarnation, in order.
pub type CommittedNumbers = BTreeMap<SegmentNumber, ManifestEntry>;

/// Reads the incarnations of a source, oldest first.
pub(super) async fn incarnations(
    store: &dyn Store,
    source: &SourceName,
) -> Result<Vec<IncarnationRecord>, Fault> {
    let mut records = Vec::new();
    for object in store::list_all(store, &layout::incarnations(source)).await? {
        let found: Option<(IncarnationRecord, _)> = read_json(store, &object.key).await?;
        let Some((record, _)) = found else { continue };
        if record.format > FORMAT {
            let message =
                format!("format {} is newer than this version reads ({FORMAT})", record.format);
            return Err(Fault::new(Operation::Get, FaultKind::Undecodable, message).at(object.key));
        }
        let expected = layout::incarnation(source, &record.incarnation.ordinal4());
        let fits = record.source == *source
            && object.key == expected
            && record.ordinal == record.incarnation.ordinal()
            && record.incarnation == Incarnation::new(record.ordinal, &record.first.head);
        if !fits {
            return Err(misplaced(&object.key));
        }
        records.push(record);
    }
    records.sort_by_key(|record| record.ordinal);
    Ok(records)
}

/// Lists the committed numbers of an incarnation.
pub(super) async fn committed(
    store: &dyn Store,
    source: &SourceName,
    incarnation: &Incarnation,
) -> Result<CommittedNumbers, Fault> {
    let listing = store::list_all(store, &layout::manifests(source, incarnation)).await?;
    let entry = |object: store::ObjectMeta| {
        let number = layout::manifest_number(&object.key)?;
        Some((number, ManifestEntry { etag: object.etag }))
    };
    Ok(listing.into_iter().filter_map(entry).collect())
}

/// Reads the manifest of a number, if it was committed.
pub(super) async fn manifest(
    store: &dyn Store,
    source: &SourceName,
    incarnation: &Incarnation,
    number: SegmentNumber,
) -> Result<Option<Manifest>, Fault> {
    let key = layout::manifest(source, incarnation, number);
    let found: Option<(Manifest, _)> = read_json(store, &key).await?;
    match found {
        Some((manifest, _))
            if manifest.source != *source
                || manifest.incarnation != *incarnation
                || manifest.number != number =>
        {
            Err(misplaced(&key))
        }
        found => Ok(found.map(|(manifest, _)| manifest)),
    }
}

impl Archive {
    /// The manifest of a number, if it was committed.
    ///
    /// # Errors
    /// When the store cannot be read, or the object does not decode.
    pub async fn manifest(
        &self,
        incarnation: &Incarnation,
        number: SegmentNumber,
    ) -> Result<Option<Manifest>, Fault> {
        manifest(self.store(), self.source(), incarnation, number).await
    }

    /// The incarnations of the source, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read, or a record does not decode.
    pub async fn incarnations(&self) -> Result<Vec<IncarnationRecord>, Fault> {
        incarnations(self.store(), self.source()).await
    }

    /// The committed numbers of an incarnation, from one listing.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn committed(&self, incarnation: &Incarnation) -> Result<CommittedNumbers, Fault> {
        committed(self.store(), self.source(), incarnation).await
    }

    /// The floor: the lowest of these committed numbers whose payload is still there.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn floor(
        &self,
        incarnation: &Incarnation,
        mut committed: impl Iterator<Item = SegmentNumber>,
    ) -> Result<Option<SegmentNumber>, Fault> {
        let folder = layout::payloads(self.source(), incarnation);
        let listing = store::list_all(self.store(), &folder).await?;
        let present: BTreeSet<SegmentNumber> =
            listing.iter().filter_map(|object| layout::payload_number(&object.key)).collect();
        Ok(committed.find(|number| present.contains(number)))
    }

    /// Reads these manifests, several at once, in the order given. One that is gone meanwhile is
    /// an error: nobody deletes manifests.
    pub(super) async fn read_each(
        &self,
        incarnation: &Incarnation,
        numbers: Vec<SegmentNumber>,
    ) -> Result<Vec<Arc<Manifest>>, Fault> {
        stream::iter(numbers)
            .map(|number| async move {
                let found = self.manifest(incarnation, number).await?;
                found.map(Arc::new).ok_or_else(|| {
                    let key = layout::manifest(self.source(), incarnation, number);
                    let message = "the manifest was listed and is gone; nothing of ours deletes it";
                    Fault::new(Operation::Get, FaultKind::NotFound, message).at(key)
                })
            })
            .buffered(GETS)
            .try_collect()
            .await
    }

    /// Opens an incarnation by creating its record. `None` when its ordinal was taken by another
    /// one meanwhile: read the incarnations again and take the next.
    ///
    /// # Errors
    /// When the store refuses the record.
    pub async fn open_incarnation(
        &self,
        record: IncarnationRecord,
    ) -> Result<Option<IncarnationRecord>, Fault> {
        let key = layout::incarnation(self.source(), &record.incarnation.ordinal4());
        let (bytes, digest) = to_json(&record, &key)?;
        // Stopped here, the record may exist without a manifest; the next start uses it.
        match self.create_object(&key, bytes, &digest).await {
            Ok(_) => Ok(Some(record)),
            Err(fault) if fault.kind == FaultKind::AlreadyExists => {
                let found: Option<(IncarnationRecord, _)> = read_json(self.store(), &key).await?;
                Ok(found.map(|(taken, _)| taken).filter(|taken| {
                    taken.first.head == record.first.head && taken.writer_id == record.writer_id
                }))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Creates a small object, or fails with `AlreadyExists`; proven before it returns. Where the
    /// store does not honour create-only: look, put, read back, under the lease.
    pub(super) async fn create_object(
        &self,
        key: &str,
        bytes: bytes::Bytes,
        digest: &crate::segment::Digest,
    ) -> Result<store::Stored, Fault> {
        let atomic = self.capabilities.create_only_put;
        if !atomic && self.store.head(key).await?.is_some() {
            let message = "the object is already there";
            return Err(Fault::new(Operation::Put, FaultKind::AlreadyExists, message).at(key));
        }
        let mode = if atomic { PutMode::Create } else { PutMode::Replace };
        let stored = self.store.put(key, bytes.clone(), digest, mode).await?;
        let proven = match stored.checked {
            store::Checked::ByStore => self.capabilities.rejects_wrong_put && atomic,
            store::Checked::Local => true,
            store::Checked::Not => false,
        };
        if !proven {
            let back = store::get_small(self.store(), key, bytes.len().saturating_add(1)).await?;
            if back.is_none_or(|(found, _)| found != bytes) {
                let message = "the object read back is not what was put";
                return Err(Fault::new(Operation::Prove, FaultKind::Damaged, message).at(key));
            }
        }
        Ok(stored)
    }
}
