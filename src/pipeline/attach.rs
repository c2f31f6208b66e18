//! Coming to know the archive: its capabilities, the lease, what is committed.
//!
//! **Invariants.** Nothing is uploaded before the lease is ours (I11). What is committed is what the
//! bucket says; a lost state directory costs nothing but this reading.
//!
//! **Crash.** Each step may be done again.
//!
//! **Cancellation.** A dropped attach may leave the lease written, which is ours all the same.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{RunError, Settings};
use crate::archive::{Archive, CommittedNumbers, IncarnationRecord, Lease};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::progress::{Chain, CursorFile};
use crate::segment::SegmentNumber;
use crate::store::{Capabilities, Store};
use crate::sys::{self, ReadError, StateDir, StateLoadError};

/// The format number of `store-caps.json` and `writer`.
const FORMAT: u32 = 1;

/// Largest of these two files.
const STATE_MAX: u64 = 1 << 20;

/// What attaching gave.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) archive: Arc<Archive>,
    pub(super) capabilities: Capabilities,
    pub(super) lease: Lease,
    pub(super) records: Vec<IncarnationRecord>,
    pub(super) chains: Vec<Chain>,
    pub(super) archived: u64,
    pub(super) floor: Option<SegmentNumber>,
}

/// `store-caps.json`: what a store was found to honour.
#[derive(Debug, Serialize, Deserialize)]
struct KnownCapabilities {
    format: u32,
    store: String,
    capabilities: Capabilities,
}

/// `writer`: who this host is to the archive.
#[derive(Debug, Serialize, Deserialize)]
struct Writer {
    format: u32,
    writer_id: String,
}

/// This host's writer id, made at the first start.
pub(super) fn writer_id(state: &StateDir) -> Result<String, RunError> {
    let path = state.root().join("writer");
    if let Some(writer) = load_optional::<Writer>(&path)? {
        return Ok(writer.writer_id);
    }
    let random: [u8; 16] = std::array::from_fn(|_| fastrand::u8(..));
    let writer = Writer { format: FORMAT, writer_id: hex::encode(random) };
    Ok(state.save_json(&path, writer)?.into_inner().writer_id)
}

fn load_optional<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, StateLoadError> {
    let value: serde_json::Value = match sys::read_json(path, STATE_MAX) {
        Ok(value) => value,
        Err(StateLoadError::Read(ReadError::NotFound { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Before the fields: a newer format may have others.
    if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64)
        && format > u64::from(FORMAT)
    {
        let detail = format!(
            "format {format} is newer than this version reads ({FORMAT}); use a newer binlog-archiver"
        );
        return Err(StateLoadError::undecodable(path, detail));
    }
    let decoded = serde_json::from_value(value);
    decoded.map(Some).map_err(|source| StateLoadError::Decode { path: path.to_owned(), source })
}

/// What the store honours: as found at the first start, or probed now.
async fn capabilities(
    store: &dyn Store,
    settings: &Settings,
    state: &StateDir,
) -> Result<Capabilities, RunError> {
    let path = state.root().join("store-caps.json");
    let label = store.describe();
    let known: Option<KnownCapabilities> = load_optional(&path)?;
    if let Some(known) = known.filter(|known| known.store == label) {
        return Ok(known.capabilities);
    }
    let capabilities = Archive::probe(store, &settings.source).await?;
    tracing::info!(store = %label, ?capabilities, "probed the store");
    let known = KnownCapabilities { format: FORMAT, store: label, capabilities };
    Ok(state.save_json(&path, known)?.into_inner().capabilities)
}

/// Attaches.
pub(super) async fn attach(
    store: Arc<dyn Store>,
    settings: &Settings,
    state: &StateDir,
    cursor: Option<&CursorFile>,
    clock: &dyn Clock,
) -> Result<Attached, RunError> {
    let capabilities = capabilities(store.as_ref(), settings, state).await?;
    let writer_id = writer_id(state)?;
    let lease = Lease::acquire(
        Arc::clone(&store),
        settings.source.clone(),
        &capabilities,
        (&writer_id, &settings.host),
        settings.take_over,
        clock.wall(),
    )
    .await?;
    let source = settings.source.clone();
    let archive = Arc::new(Archive::new(store, source, writer_id, capabilities, settings.put));
    let records = archive.incarnations().await?;
    let (mut chains, mut archived, mut floor) = (Vec::new(), 0, None);
    for record in &records {
        let committed = archive.committed(&record.incarnation).await?;
        archived += committed.len() as u64;
        chains.push(chain(&archive, record, &committed, cursor).await?);
        floor = archive.floor(&record.incarnation, committed.keys().copied()).await?;
    }
    match archive.abort_stale_uploads().await {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "aborted multipart uploads that a crash left behind"),
        // Leftovers cost money, not history: the next start tries again.
        Err(fault) => tracing::warn!(%fault, "leftover multipart uploads could not be aborted"),
    }
    Ok(Attached { archive, capabilities, lease, records, chains, archived, floor })
}

/// The chain of an incarnation, from its durable cursor on, else from its first segment.
pub(crate) async fn chain(
    archive: &Archive,
    record: &IncarnationRecord,
    committed: &CommittedNumbers,
    cursor: Option<&CursorFile>,
) -> Result<Chain, Fault> {
    let incarnation = &record.incarnation;
    let entry = cursor.and_then(|cursor| cursor.get(incarnation));
    // The cursor is of use only where the archive still has every number that it stands for.
    let whole = entry.filter(|entry| {
        let (from, to) = (entry.from.number(), entry.number);
        let numbers = (to.0 - from.0).saturating_add(1);
        committed.range(from..=to).count() as u64 == numbers
    });
    let at = match whole {
        Some(entry) => archive.manifest(incarnation, entry.number).await?,
        None => None,
    };
    let first = entry.map_or(record.first.number, |entry| entry.from.number());
    let mut chain = match (whole, at) {
        (Some(entry), Some(at)) => Chain::resume(incarnation.clone(), entry, Arc::new(at)),
        (_, _) => Chain::new(incarnation.clone(), first),
    };
    let known = chain.frontier_manifest().map(|manifest| manifest.number);
    let beyond = committed.iter().filter(|(number, _)| known.is_none_or(|known| **number > known));
    let beyond: CommittedNumbers = beyond.map(|(number, entry)| (*number, entry.clone())).collect();
    for manifest in archive.manifests(incarnation, &beyond).await? {
        chain.insert(manifest);
    }
    let reached = chain.frontier_manifest().map(|manifest| manifest.number);
    if let Some(entry) = entry.filter(|entry| reached.is_none_or(|reached| reached < entry.number))
    {
        tracing::error!(
            %incarnation, segment = %entry.segment, reached = ?reached.map(|number| number.0),
            "the cursor of this host stands where the archive no longer reaches: manifests were removed, \
             or it is another archive; the cursor goes back to what this one shows"
        );
    }
    Ok(chain)
}
