//! What `status` reports: the running daemon's own word, or what the bucket and the disk tell.
//!
//! **Invariants.** Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::archive::{Archive, CommittedNumbers, IncarnationRecord};
use crate::clock::{Clock, RealClock};
use crate::fault::Fault;
use crate::pipeline::snapshot::{
    DeadLetters, PENDING_SHOWN, Pending, PendingState, Pins, Snapshot,
};
use crate::pipeline::{Start, beyond, chain, cursor};
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentName, SegmentNumber};
use crate::source::{Found, Listed, Scan};

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
    let archived_here = history_is_known(&archive, &known, listed).await?;
    let waiting: Vec<(Option<&Incarnation>, &Listed)> = listed
        .iter()
        .filter(|listed| !listed.is_last() || trouble(listed).is_some())
        .filter_map(|listed| match archived_here {
            OnDisk::Known => Some((belongs(&listed.name, &known, start)?, listed)),
            OnDisk::Unknown => Some((None, listed)),
        })
        .collect();
    let (ahead, holes) = beyond(&chains, |of, number: SegmentNumber| {
        let is = |listed: &Listed| listed.name.number() == number;
        waiting.iter().any(|(incarnation, listed)| *incarnation == Some(of) && is(listed))
    });
    let pending = waiting.iter().take(PENDING_SHOWN).map(|(incarnation, listed)| {
        let error = trouble(listed);
        Pending {
            incarnation: incarnation.cloned(),
            segment: listed.name.clone(),
            state: if error.is_some() { PendingState::Held } else { PendingState::Closed },
            attempts: 0,
            next_attempt_at: None,
            class: None,
            cause: None,
            error,
        }
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
        lag_seconds: lag(waiting.iter().map(|(_, listed)| *listed)),
        unverified_links: chains.values().map(Chain::unverified).sum(),
        active: listed.iter().find(|listed| listed.is_last()).map(|listed| listed.name.clone()),
        troubles: Vec::new(),
        store: archive.store().describe(),
        capabilities: None,
        incarnation: known.last().map(|(record, _)| record.incarnation.clone()),
    })
}

/// Why a listed segment cannot be archived as it stands.
fn trouble(listed: &Listed) -> Option<String> {
    match &listed.found {
        Found::Present { .. } => None,
        Found::Missing => Some(format!("{} is listed and not there", listed.path.display())),
        Found::Unreadable(fault) => Some(fault.to_string()),
    }
}

/// How long ago the oldest of these was last written to, in seconds.
fn lag<'a>(waiting: impl Iterator<Item = &'a Listed>) -> u64 {
    let written = waiting.filter_map(Listed::signature).map(|signature| signature.mtime_ns).min();
    let now = RealClock::new().wall().as_nanosecond();
    let age = written.map_or(0, |written| now.saturating_sub(written.into()));
    u64::try_from(age / 1_000_000_000).unwrap_or(0)
}

/// Whether the segments on disk are those that the newest incarnation goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDisk {
    Known,
    /// Of another history: the server began its numbers anew, or was set up again, and no daemon
    /// has seen that yet.
    Unknown,
}

/// Compares the highest committed segment that is on disk by its head: after a RESET, numbers
/// alone look as if all were archived.
async fn history_is_known(
    archive: &Archive,
    known: &[(&IncarnationRecord, CommittedNumbers)],
    listed: &[Listed],
) -> Result<OnDisk, Fault> {
    let Some((newest, committed)) = known.last() else { return Ok(OnDisk::Known) };
    let of_base = |listed: &&Listed| listed.name.base() == newest.first.segment.base();
    let mut of_base: Vec<&Listed> = listed.iter().filter(of_base).collect();
    of_base.sort_by_key(|listed| listed.name.number());
    if of_base.last().is_some_and(|last| last.name.number() < newest.first.number) {
        // Numbers never go down within an incarnation.
        return Ok(OnDisk::Unknown);
    }
    for listed in of_base.into_iter().rev() {
        let number = listed.name.number();
        let Some(peek) = listed.peek().filter(|_| committed.contains_key(&number)) else {
            continue;
        };
        let manifest = archive.manifest(&newest.incarnation, number).await?;
        let differs = manifest.is_some_and(|manifest| manifest.head != peek.head);
        return Ok(if differs { OnDisk::Unknown } else { OnDisk::Known });
    }
    Ok(OnDisk::Known)
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
