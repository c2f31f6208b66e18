//! The token that a segment is final, and the three doors to it: the server's directory, a pin,
//! a file that an operator offers.
//!
//! **Invariants.** [`Closed`] is made here alone. Whoever uploads takes one, so the active
//! segment cannot be uploaded. It names one content of one file: a file that was written to since
//! is another one, and the upload has to notice.

use std::path::{Path, PathBuf};

use super::open_files::NotOpen;
use super::scan::{Found, Listed, Scan};
use super::seal::{
    self, EncryptedPolicy, Patience, Position, SealFacts, SealVerdict, Successor, Waiting,
};
use super::signature::FileSignature;
use crate::binlog::Verdict;
use crate::segment::{Sealed, SegmentName};

/// A segment to which its server will never write again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    name: SegmentName,
    path: PathBuf,
    listed_after: Option<SegmentName>,
    sealed: Sealed,
    file: FileSignature,
}

impl Closed {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &SegmentName {
        &self.name
    }

    /// Where its bytes were when it was sealed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the index listed before it.
    #[must_use]
    pub const fn listed_after(&self) -> Option<&SegmentName> {
        self.listed_after.as_ref()
    }

    /// Why it counts as final.
    #[must_use]
    pub const fn sealed(&self) -> Sealed {
        self.sealed
    }

    /// The file, and which content of it.
    #[must_use]
    pub const fn file(&self) -> &FileSignature {
        &self.file
    }
}

/// What an inspection says, and of which content of the file.
#[derive(Debug, Clone, Copy)]
pub struct Inspected<'a> {
    /// What it says.
    pub facts: &'a SealFacts,
    /// Of the open descriptor, taken before the first byte was read.
    pub file: FileSignature,
}

/// The first door: a segment that the index lists.
#[must_use]
pub fn seal(
    scan: &Scan,
    listed: &Listed,
    inspected: Inspected<'_>,
    policy: EncryptedPolicy,
    patience: Patience,
) -> SealVerdict<Closed> {
    let position = if listed.is_last() {
        Position::Last
    } else {
        Position::Earlier(Successor::from(scan.successor_at_startup(listed)))
    };
    seal_listed(position, listed, inspected, policy, patience)
}

/// The first door for the last segment of a dead server. The scan must be newer than the proof
/// that nobody has the file open.
#[must_use]
pub fn seal_last_of_dead_server(
    listed: &Listed,
    inspected: Inspected<'_>,
    policy: EncryptedPolicy,
    proof: &NotOpen,
) -> SealVerdict<Closed> {
    if !listed.is_last() || proof.file() != &inspected.file {
        return SealVerdict::Closing(Waiting::Changed);
    }
    let patience = Patience { waited: std::time::Duration::ZERO, limit: std::time::Duration::ZERO };
    seal_listed(Position::LastOfDeadServer, listed, inspected, policy, patience)
}

fn seal_listed(
    position: Position,
    listed: &Listed,
    inspected: Inspected<'_>,
    policy: EncryptedPolicy,
    patience: Patience,
) -> SealVerdict<Closed> {
    let same = match &listed.found {
        Found::Present { signature, .. } => *signature == inspected.file,
        Found::Missing | Found::Unreadable(_) => false,
    };
    if !same {
        return match position {
            Position::Last => SealVerdict::Active,
            Position::Earlier(_) | Position::LastOfDeadServer => {
                SealVerdict::Closing(Waiting::Changed)
            }
        };
    }
    seal::judge(position, inspected.facts, policy, patience).map(|sealed| Closed {
        name: listed.name.clone(),
        path: listed.path.clone(),
        listed_after: listed.listed_after.clone(),
        sealed,
        file: inspected.file,
    })
}

/// What the record of a pin says of the segment that it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedSegment {
    /// Its name.
    pub name: SegmentName,
    /// Where its bytes are kept.
    pub path: PathBuf,
    /// What the index listed before it.
    pub listed_after: Option<SegmentName>,
    /// Why it counted as final when it was pinned.
    pub sealed: Sealed,
    /// The kept file.
    pub file: FileSignature,
}

/// The second door: a segment that was sealed when its pin was made.
#[must_use]
pub fn from_pin(pinned: PinnedSegment) -> Closed {
    let PinnedSegment { name, path, listed_after, sealed, file } = pinned;
    Closed { name, path, listed_after, sealed, file }
}

/// The third door: a file that an operator offers for a segment that the server no longer has.
#[must_use]
pub fn offer(
    name: SegmentName,
    path: &Path,
    inspected: Inspected<'_>,
    policy: EncryptedPolicy,
) -> SealVerdict<Closed> {
    let facts = inspected.facts;
    if let Some(refusal) = seal::refusal(facts, policy) {
        return SealVerdict::Refused(refusal);
    }
    match facts.verdict {
        Verdict::Sound | Verdict::Unclosed | Verdict::Encrypted => SealVerdict::Closed(Closed {
            name,
            path: path.to_owned(),
            listed_after: None,
            sealed: Sealed::Offered,
            file: inspected.file,
        }),
        Verdict::Damaged | Verdict::NotABinlog => SealVerdict::Damaged(seal::bytes(facts)),
    }
}

#[cfg(test)]
#[path = "closed_tests.rs"]
mod tests;
