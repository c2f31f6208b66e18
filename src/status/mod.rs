//! What `status` reports: the running daemon's own word, or what the bucket and the disk tell.
//!
//! **Invariants.** Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::archive::{Archive, CommittedNumbers, IncarnationRecord};
use crate::fault::Fault;
use crate::pipeline::snapshot::{
    DeadLetters, PENDING_SHOWN, Pending, PendingState, Pins, Snapshot,
};
use crate::pipeline::{Start, beyond, chain, cursor};
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentName, SegmentNumber};
use crate::source::{Listed, Scan};

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
    start: &Start,
) -> Result<Snapshot, Fault> {
    let records = archive.incarnations().await?;
    let (mut chains, mut archived, mut floor) = (BTreeMap::new(), 0, None);
    let mut known = Vec::new();
    for record in &records {
        let committed = archive.committed(&record.incarnation).await?;
        archived += committed.len() as u64;
        let numbers = committed.keys().copied();
        let chain: Chain = chain(&archive, record, &committed, durable.as_ref()).await?;
        floor = archive.floor(&record.incarnation, numbers).await?;
        chains.insert(record.incarnation.clone(), chain);
        known.push((record, committed));
    }
    let listed = scan.as_ref().map(|scan| scan.segments.as_slice()).unwrap_or_default();
    let waiting: Vec<(Option<&Incarnation>, &Listed)> = listed
        .iter()
        .filter(|listed| !listed.is_last())
        .filter_map(|listed| Some((belongs(&listed.name, &known, start)?, listed)))
        .collect();
    let (ahead, holes) = beyond(&chains, |of, number: SegmentNumber| {
        let is = |listed: &Listed| listed.name.number() == number;
        waiting.iter().any(|(incarnation, listed)| *incarnation == Some(of) && is(listed))
    });
    let pending = waiting.iter().take(PENDING_SHOWN).map(|(incarnation, listed)| Pending {
        incarnation: incarnation.cloned(),
        segment: listed.name.clone(),
        state: PendingState::Closed,
        attempts: 0,
        next_attempt_at: None,
        class: None,
        cause: None,
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
        incarnation: known.last().map(|(record, _)| record.incarnation.clone()),
    })
}

/// Where a closed segment that is not committed belongs, as far as names and numbers tell: to the
/// newest incarnation, or to the one before. `None` for what is committed or not wanted.
fn belongs<'a>(
    name: &SegmentName,
    known: &'a [(&IncarnationRecord, CommittedNumbers)],
    start: &Start,
) -> Option<Option<&'a Incarnation>> {
    let number = name.number();
    let Some(((newest, committed), older)) = known.split_last() else {
        let wanted = match start {
            Start::Oldest => true,
            Start::Now => false,
            Start::Segment(first) => number >= first.number(),
        };
        return wanted.then_some(None);
    };
    let base = |record: &IncarnationRecord| record.first.segment.base() == name.base();
    let from = |first: SegmentNumber| *start == Start::Oldest || number >= first;
    if base(newest) && (number >= newest.first.number || older.is_empty()) {
        let open = from(newest.first.number) && !committed.contains_key(&number);
        return open.then_some(Some(&newest.incarnation));
    }
    let left = newest.predecessor.as_ref()?;
    let (before, committed) =
        older.iter().rev().find(|(record, _)| record.incarnation == left.incarnation)?;
    let first = committed.keys().next().copied().unwrap_or(left.number);
    let open = base(before) && from(first) && !committed.contains_key(&number);
    open.then_some(Some(&before.incarnation))
}
