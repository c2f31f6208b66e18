//! What `status` reports: the running daemon's own word, or what the bucket and the disk tell.
//!
//! **Invariants.** Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::archive::Archive;
use crate::fault::Fault;
use crate::pipeline::snapshot::{
    DeadLetters, PENDING_SHOWN, Pending, PendingState, Pins, Snapshot,
};
use crate::pipeline::{beyond, chain, cursor};
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentNumber};
use crate::source::Scan;

/// Whether the daemon answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Daemon {
    /// It runs, and the rest is its word.
    Running,
    /// It does not; the rest was read from the bucket, the state directory and the index.
    Stopped,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Whether the daemon answered.
    pub daemon: Daemon,
    /// What is known.
    #[serde(flatten)]
    pub snapshot: Snapshot,
}

/// Reads the status of a source whose daemon does not run.
///
/// # Errors
/// When the store cannot be read.
pub async fn offline(
    archive: Arc<Archive>,
    durable: Option<CursorFile>,
    scan: Option<Scan>,
) -> Result<Snapshot, Fault> {
    let records = archive.incarnations().await?;
    let (mut chains, mut archived, mut floor) = (BTreeMap::new(), 0, None);
    let mut newest = None;
    for record in &records {
        let committed = archive.committed(&record.incarnation).await?;
        archived += committed.len() as u64;
        let numbers = committed.keys().copied();
        let chain: Chain = chain(&archive, record, &committed, durable.as_ref()).await?;
        floor = archive.floor(&record.incarnation, numbers).await?;
        chains.insert(record.incarnation.clone(), chain);
        newest = Some((record.incarnation.clone(), committed));
    }
    let listed = scan.as_ref().map(|scan| scan.segments.as_slice()).unwrap_or_default();
    let waiting: Vec<_> = listed
        .iter()
        .filter(|listed| !listed.is_last())
        .filter(|listed| {
            let number = listed.name.number();
            newest.as_ref().is_none_or(|(_, committed)| !committed.contains_key(&number))
        })
        .collect();
    let incarnation = newest.map(|(incarnation, _)| incarnation);
    let (ahead, holes) = beyond(&chains, |of, first: SegmentNumber, last| {
        let newest: Option<&Incarnation> = incarnation.as_ref();
        newest == Some(of) && waiting.iter().any(|l| (first..=last).contains(&l.name.number()))
    });
    let pending = waiting.iter().take(PENDING_SHOWN).map(|listed| Pending {
        incarnation: incarnation.clone(),
        segment: listed.name.clone(),
        state: PendingState::Closed,
        attempts: 0,
        next_attempt_at: None,
        error: None,
    });
    Ok(Snapshot {
        source: archive.source().clone(),
        cursor: cursor(&chains, durable.as_ref()),
        floor,
        archived,
        ahead,
        holes,
        losses: Vec::new(),
        pending_total: waiting.len() as u64,
        pending: pending.collect(),
        dead_letters: DeadLetters::default(),
        suspensions: Vec::new(),
        pins: Pins { method: "none".to_owned(), bytes: 0 },
        lag_seconds: 0,
        unverified_links: chains.values().map(Chain::unverified).sum(),
        active: listed.iter().find(|listed| listed.is_last()).map(|listed| listed.name.clone()),
        troubles: Vec::new(),
        store: archive.store().describe(),
        capabilities: None,
        incarnation,
    })
}
