//! What a segment is called and what it holds, as plain values.
//!
//! **Invariants.** Every value here was validated when it was made: a [`SegmentName`] is safe as
//! one path component, a [`SourceName`] and an [`Incarnation`] are safe inside a key. Order is by
//! number, never by name as text (I12). Nothing here touches a disk or a network.

mod hash;
mod incarnation;
mod link;
mod name;

pub use hash::{BadHex, Digest, Head};
pub use incarnation::{BadIncarnation, BadSourceName, Incarnation, SourceName};
pub use link::{Link, Logical, Physical, Side, link};
pub use name::{BadName, SegmentName, SegmentNumber};

use serde::{Deserialize, Serialize};

use crate::gtid::{Added, Previous};

pub use crate::gtid::Flavor;

/// What history a segment holds, in GTIDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// What the server had in its binlogs before this segment; `None` when not known.
    pub previous: Option<Previous>,
    /// Whole transactions of this segment; `None` when its body cannot be read.
    pub added: Option<Added>,
    /// Transactions without a GTID.
    pub anonymous_transactions: u64,
    /// Whether the events could be read at all (an encrypted body cannot).
    pub readable: bool,
}

/// How the last event of a segment ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// A ROTATE event: the server went on in another segment.
    Rotate,
    /// A STOP event: the server shut down cleanly.
    Stop,
    /// Neither: still being written, or the server died.
    None,
}

/// The algorithm of the per-event checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// CRC32 at the end of each event.
    Crc32,
    /// `binlog_checksum=NONE`, or a server too old to write one.
    None,
}

/// Why a segment counts as final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sealed {
    /// The index lists a later segment.
    Closed,
    /// The last one listed, ended by a clean shutdown.
    Stop,
    /// The server died in it, and another start opened the next one.
    CrashTail,
    /// The last file of a dead server, taken by `run --once --final`.
    Final,
    /// Offered by an operator from another place.
    Offered,
}
