//! What the daemon knows, for `status`: plain values under the names that scripts rely on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::failure::{Cause, Class};
use crate::segment::{Incarnation, SegmentName, SegmentNumber, SourceName};
use crate::store::Capabilities;

/// Most pending segments that are named one by one.
pub const PENDING_SHOWN: usize = 100;

/// Everything `status` shows of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Snapshot {
    pub source: SourceName,
    pub incarnation: Option<Incarnation>,
    pub cursor: Option<Cursor>,
    pub floor: Option<SegmentNumber>,
    pub archived: u64,
    pub ahead: Vec<AheadRun>,
    pub holes: Vec<Hole>,
    pub losses: Vec<Loss>,
    pub pending_total: u64,
    pub pending: Vec<Pending>,
    pub dead_letters: DeadLetters,
    pub suspensions: Vec<Suspension>,
    pub pins: Pins,
    pub lag_seconds: u64,
    /// Links passed by this process that no GTID set confirms.
    pub unverified_links: u64,
    /// The segment the server writes now.
    pub active: Option<SegmentName>,
    /// What keeps the daemon from its work now.
    pub troubles: Vec<Trouble>,
    /// Where the archive is.
    pub store: String,
    /// What the store was found to honour; null before it was reached.
    pub capabilities: Option<Capabilities>,
}

/// How far the newest incarnation is archived without a hole, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Cursor {
    pub incarnation: Incarnation,
    pub segment: SegmentName,
    pub number: SegmentNumber,
    pub gtids: Option<String>,
    pub from: SegmentName,
}

/// Committed segments beyond the cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct AheadRun {
    pub incarnation: Incarnation,
    pub first: SegmentNumber,
    pub last: SegmentNumber,
    pub segments: u64,
}

/// Segments or GTIDs that are missing and that nothing waiting will bring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Hole {
    pub incarnation: Incarnation,
    pub first: SegmentNumber,
    pub last: SegmentNumber,
    pub gtids: Option<String>,
    pub why: Why,
}

/// Why something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The server purged it before it was archived.
    Purged,
    /// The files on either side contradict each other.
    Contradicted,
    /// Not known.
    Unknown,
}

/// A loss that a human attested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Loss {
    pub incarnation: Incarnation,
    pub first: SegmentNumber,
    pub last: SegmentNumber,
    pub gtids: Option<String>,
    pub by: String,
    pub reason: String,
}

/// A closed segment that is not committed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its incarnation; null while the archive cannot be asked.
    pub incarnation: Option<Incarnation>,
    /// Its name.
    pub segment: SegmentName,
    /// Where it is.
    pub state: PendingState,
    /// Tries so far.
    pub attempts: u32,
    /// When it is tried again.
    pub next_attempt_at: Option<Timestamp>,
    /// Whether another try may help.
    pub class: Option<Class>,
    /// Why the last try failed, by name.
    pub cause: Option<Cause>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// Where a pending segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PendingState {
    /// Waiting for a worker.
    Closed,
    /// A worker has it.
    InFlight,
    /// Tried and failed, tried again later.
    BackingOff,
    /// Not tried: the archive cannot be asked, or this run gave it up.
    Held,
}

/// Counts of dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct DeadLetters {
    pub open: u64,
    pub released: u64,
}

/// Dispatch stopped for a fault of a destination, host or source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Suspension {
    pub scope: String,
    pub cause: String,
    pub since: Timestamp,
}

/// What keeps bytes when the server purges its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/design.md, under the same names")]
pub struct Pins {
    pub method: String,
    pub bytes: u64,
}

/// Something that keeps the daemon from its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What does not work: `store`, `source`, `state` or `lease`.
    pub what: String,
    /// Since when.
    pub since: Timestamp,
    /// What was said, and what to do.
    pub message: String,
}
