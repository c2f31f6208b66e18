//! When a segment is final: a pure table.
//!
//! **Invariants.** Total; the server may never write again to what it calls closed, except for
//! the one in-use bit after the limit of waiting. What cannot be told is never called closed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::binlog::{Damage, Inspection, Kind, Verdict};
use crate::segment::{Ending, Sealed};

/// Up to this size a file holds nothing but a magic number, or its beginnings.
const MAGIC_BYTES: u64 = 4;

/// What to do with segments whose events are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EncryptedPolicy {
    /// Do not archive them: without the server's keys they are worth nothing.
    #[default]
    Refuse,
    /// Archive them as they are, unverified.
    Opaque,
}

/// Where the index lists a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Before a later one.
    Earlier(Successor),
    /// Last.
    Last,
    /// Last, and no process has it open: the server is dead, and an operator said so.
    LastOfDeadServer,
}

/// How the next listed segment came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Successor {
    /// A server start opened it.
    AtStartup,
    /// A rotation opened it.
    ByRotation,
    /// It cannot be read, or is encrypted.
    Unknown,
}

impl From<Option<bool>> for Successor {
    fn from(created_at_startup: Option<bool>) -> Self {
        match created_at_startup {
            Some(true) => Self::AtStartup,
            Some(false) => Self::ByRotation,
            None => Self::Unknown,
        }
    }
}

/// What the table needs to know of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealFacts {
    /// The judgement over the bytes.
    pub verdict: Verdict,
    /// What the file is.
    pub kind: Kind,
    /// How it ends; `None` where that is hidden.
    pub ending: Option<Ending>,
    /// The in-use flag; `None` where that is hidden.
    pub in_use: Option<bool>,
    /// In bytes.
    pub size: u64,
    /// Whether it is what a server leaves that dies in it and is started again.
    pub is_left_by_restart: bool,
    /// What is wrong with it.
    pub error: Option<Damage>,
}

impl From<&Inspection> for SealFacts {
    fn from(inspection: &Inspection) -> Self {
        Self {
            verdict: inspection.verdict,
            kind: inspection.kind.clone(),
            ending: inspection.ending,
            in_use: inspection.in_use,
            size: inspection.size,
            is_left_by_restart: inspection.is_left_by_restart,
            error: inspection.error.clone(),
        }
    }
}

/// How long a segment has been *closing*, and how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Since the index first listed a later one.
    pub waited: Duration,
    /// After this it is archived, or called damaged, as it stands.
    pub limit: Duration,
}

impl Patience {
    const fn is_over(self) -> bool {
        self.waited.as_nanos() >= self.limit.as_nanos()
    }
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealVerdict<C> {
    /// Final.
    Closed(C),
    /// Final within a moment: wait, look at the file again, and inspect it again, even where its
    /// size and times are the same.
    Closing(Waiting),
    /// The server may still write to it.
    Active,
    /// Final, and not what a server leaves.
    Damaged(SealDamage),
    /// Policy says that this is not archived: a fault of the source, not of the segment.
    Refused(Refusal),
}

impl<C> SealVerdict<C> {
    /// The same with what stands in `Closed` made into something else.
    pub fn map<D>(self, make: impl FnOnce(C) -> D) -> SealVerdict<D> {
        match self {
            Self::Closed(closed) => SealVerdict::Closed(make(closed)),
            Self::Closing(waiting) => SealVerdict::Closing(waiting),
            Self::Active => SealVerdict::Active,
            Self::Damaged(damage) => SealVerdict::Damaged(damage),
            Self::Refused(refusal) => SealVerdict::Refused(refusal),
        }
    }
}

/// What a closing segment is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// MariaDB clears the in-use flag only after the index lists the next one.
    InUseFlag,
    /// The first event of the next one cannot be read yet.
    Successor,
    /// The file changed between listing and inspection.
    Changed,
}

/// Why a final segment is not archived as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealDamage {
    /// Its bytes are damaged.
    #[error("{0}")]
    Bytes(Damage),
    /// No ROTATE or STOP, and yet the server went on without a restart.
    #[error("no ROTATE or STOP ends it, but the server opened the next one without a restart: its tail is missing{}", because(error.as_ref()))]
    NoEnd {
        /// What the walk says of its end.
        error: Option<Damage>,
    },
    /// No ROTATE or STOP, and not what a restart leaves.
    #[error("no ROTATE or STOP ends it, and it is not what a restart leaves{}", because(error.as_ref()))]
    NotOfRestart {
        /// What the walk says of its end.
        error: Option<Damage>,
    },
    /// No ROTATE or STOP, and the next one does not tell why.
    #[error("no ROTATE or STOP ends it, and the next one cannot be read to tell whether the server restarted{}", because(error.as_ref()))]
    SuccessorUnknown {
        /// What the walk says of its end.
        error: Option<Damage>,
    },
}

fn because(error: Option<&Damage>) -> String {
    error.map_or_else(String::new, |error| format!(": {}", error.message))
}

/// What policy refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Encrypted, and the policy is to refuse.
    #[error(
        "encrypted by the server; set source.encrypted_segments = \"opaque\" to archive such segments unverified"
    )]
    Encrypted,
    /// MariaDB's binlog in InnoDB pages, which is not supported.
    #[error(
        "MariaDB's binlog in InnoDB pages, which cannot be archived; set binlog_storage_engine back to files"
    )]
    PageFormat,
}

impl Refusal {
    /// Its stable name.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::PageFormat => "page-format",
        }
    }
}

/// The table.
#[must_use]
pub fn judge(
    position: Position,
    facts: &SealFacts,
    policy: EncryptedPolicy,
    patience: Patience,
) -> SealVerdict<Sealed> {
    if position == Position::Last {
        // Only a clean stop is final here: whatever else it looks like, the server may live.
        return if is_stopped(facts) {
            SealVerdict::Closed(Sealed::Stop)
        } else {
            SealVerdict::Active
        };
    }
    if let Some(refusal) = refusal(facts, policy) {
        return SealVerdict::Refused(refusal);
    }
    match position {
        Position::Earlier(successor) => earlier(successor, facts, patience),
        Position::LastOfDeadServer => last_of_dead_server(facts),
        Position::Last => SealVerdict::Active,
    }
}

fn is_stopped(facts: &SealFacts) -> bool {
    facts.verdict == Verdict::Sound
        && facts.ending == Some(Ending::Stop)
        && facts.in_use == Some(false)
}

pub(super) fn refusal(facts: &SealFacts, policy: EncryptedPolicy) -> Option<Refusal> {
    match &facts.kind {
        Kind::MysqlEncrypted { .. } | Kind::MariadbEncrypted => match policy {
            EncryptedPolicy::Refuse => Some(Refusal::Encrypted),
            EncryptedPolicy::Opaque => None,
        },
        Kind::InnodbPages => Some(Refusal::PageFormat),
        Kind::Plain | Kind::RelayLog | Kind::Torn | Kind::NotABinlog => None,
    }
}

fn earlier(successor: Successor, facts: &SealFacts, patience: Patience) -> SealVerdict<Sealed> {
    match facts.verdict {
        Verdict::Sound => SealVerdict::Closed(Sealed::Closed),
        Verdict::Encrypted => encrypted(successor, facts, patience),
        Verdict::Unclosed if matches!(facts.kind, Kind::MysqlEncrypted { .. }) => {
            // Cut off inside its encryption header. What would tell why is encrypted too.
            SealVerdict::Closed(Sealed::CrashTail)
        }
        Verdict::Unclosed => match facts.ending {
            Some(Ending::Rotate | Ending::Stop) if patience.is_over() => {
                SealVerdict::Closed(Sealed::Closed)
            }
            Some(Ending::Rotate | Ending::Stop) => SealVerdict::Closing(Waiting::InUseFlag),
            Some(Ending::None) | None => without_end(successor, facts, patience),
        },
        Verdict::NotABinlog if facts.size <= MAGIC_BYTES => without_end(successor, facts, patience),
        Verdict::Damaged | Verdict::NotABinlog => SealVerdict::Damaged(bytes(facts)),
    }
}

fn encrypted(successor: Successor, facts: &SealFacts, patience: Patience) -> SealVerdict<Sealed> {
    // MariaDB leaves the flag readable; MySQL hides it, and has cleared it by now.
    if facts.in_use != Some(true) {
        return SealVerdict::Closed(Sealed::Closed);
    }
    match successor {
        Successor::AtStartup => SealVerdict::Closed(Sealed::CrashTail),
        Successor::ByRotation | Successor::Unknown if patience.is_over() => {
            SealVerdict::Closed(Sealed::Closed)
        }
        Successor::ByRotation | Successor::Unknown => SealVerdict::Closing(Waiting::InUseFlag),
    }
}

fn without_end(successor: Successor, facts: &SealFacts, patience: Patience) -> SealVerdict<Sealed> {
    let error = facts.error.clone();
    let of_restart = facts.is_left_by_restart || facts.size <= MAGIC_BYTES;
    match successor {
        Successor::AtStartup if of_restart => SealVerdict::Closed(Sealed::CrashTail),
        Successor::AtStartup => SealVerdict::Damaged(SealDamage::NotOfRestart { error }),
        Successor::ByRotation => SealVerdict::Damaged(SealDamage::NoEnd { error }),
        Successor::Unknown if patience.is_over() => {
            SealVerdict::Damaged(SealDamage::SuccessorUnknown { error })
        }
        Successor::Unknown => SealVerdict::Closing(Waiting::Successor),
    }
}

fn last_of_dead_server(facts: &SealFacts) -> SealVerdict<Sealed> {
    match facts.verdict {
        Verdict::Sound if is_stopped(facts) => SealVerdict::Closed(Sealed::Stop),
        Verdict::Sound | Verdict::Unclosed | Verdict::Encrypted => {
            SealVerdict::Closed(Sealed::Final)
        }
        Verdict::NotABinlog if facts.size <= MAGIC_BYTES => SealVerdict::Closed(Sealed::Final),
        Verdict::Damaged | Verdict::NotABinlog => SealVerdict::Damaged(bytes(facts)),
    }
}

pub(super) fn bytes(facts: &SealFacts) -> SealDamage {
    match facts.error.clone() {
        Some(error) => SealDamage::Bytes(error),
        None => SealDamage::NotOfRestart { error: None },
    }
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
