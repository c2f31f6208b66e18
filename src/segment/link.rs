//! How a segment relates to the one before it: a pure table.
//!
//! Two independent judgements meet here. *Physical*: what the files say of each other (ROTATE's
//! name, whether the server started with this file, what the index listed before it). *Logical*:
//! what their GTID sets say. Density of GTID numbers is never a rule: only sets decide.

use super::{Ending, SegmentName};
use crate::gtid::{Added, Previous};

/// What the table needs to know of one segment.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Its name.
    pub name: &'a SegmentName,
    /// What the index listed before it when it was sealed.
    pub listed_after: Option<&'a SegmentName>,
    /// The file its ROTATE event names.
    pub next_segment: Option<&'a str>,
    /// How it ends; `None` when encryption hides that.
    pub ending: Option<Ending>,
    /// Whether it was sealed as the tail that a crash left.
    pub crash_tail: bool,
    /// Whether a server start opened it; `None` when encryption hides that.
    pub created_at_startup: Option<bool>,
    /// Its GTIDs before.
    pub previous: Option<&'a Previous>,
    /// Its own GTIDs.
    pub added: Option<&'a Added>,
    /// Transactions without a GTID; `None` when they cannot be counted.
    pub anonymous_transactions: Option<u64>,
}

/// What the files say of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Physical {
    /// A's ROTATE names B, and no server start lies between.
    Named,
    /// A server start opened B, right after A in the index.
    Restart,
    /// Encryption hides the ends, but the index listed B right after A and the numbers adjoin.
    Listed,
    /// A names another file, the index listed one between them, or A has no clean end and yet no
    /// server start opened B.
    Contradicted,
    /// None of these.
    Unknown,
}

/// What the GTID sets say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logical {
    /// B begins with exactly what A ends with.
    Equal,
    /// B begins with more than A ends with: these GTIDs lie between.
    Missing(Added),
    /// B does not know all that A holds.
    Fork,
    /// No GTIDs, or they cannot be read.
    Unknown,
}

/// How B relates to A before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Nothing lies between, proven.
    Follows,
    /// Nothing lies between by the files' word alone: no GTID set confirms it.
    FollowsUnverified,
    /// Something lies between; the GTIDs when they are known.
    Hole(Option<Added>),
    /// B belongs to another history.
    Fork,
}

impl Link {
    /// Whether a cursor may pass from A to B.
    #[must_use]
    pub const fn passes(&self) -> bool {
        match self {
            Self::Follows | Self::FollowsUnverified => true,
            Self::Hole(_) | Self::Fork => false,
        }
    }
}

/// The table.
#[must_use]
pub fn link(a: &Side<'_>, b: &Side<'_>) -> Link {
    let physical = physical(a, b);
    let joined = matches!(physical, Physical::Named | Physical::Restart);
    match logical(a, b) {
        Logical::Fork => Link::Fork,
        Logical::Missing(gtids) => Link::Hole(Some(gtids)),
        Logical::Equal if physical == Physical::Contradicted => Link::Hole(None),
        Logical::Equal if joined || no_anonymous(a, b) => Link::Follows,
        Logical::Unknown if joined || physical == Physical::Listed => Link::FollowsUnverified,
        Logical::Equal | Logical::Unknown => Link::Hole(None),
    }
}

fn no_anonymous(a: &Side<'_>, b: &Side<'_>) -> bool {
    a.anonymous_transactions == Some(0) && b.anonymous_transactions == Some(0)
}

/// What the two files say of each other.
fn physical(a: &Side<'_>, b: &Side<'_>) -> Physical {
    let listed_after_a = b.listed_after == Some(a.name);
    let between =
        |name: &SegmentName| name.base() == a.name.base() && name.number() > a.name.number();
    if !listed_after_a && b.listed_after.is_some_and(between) {
        // The index listed another segment between the two.
        return Physical::Contradicted;
    }
    let (Some(ending), Some(at_startup)) = (a.ending, b.created_at_startup) else {
        let adjacent = a.name.number().0.checked_add(1) == Some(b.name.number().0);
        return if adjacent && listed_after_a { Physical::Listed } else { Physical::Unknown };
    };
    let names_b = a.next_segment == Some(b.name.as_str());
    match ending {
        Ending::Rotate if !names_b => Physical::Contradicted,
        Ending::Rotate if !at_startup => Physical::Named,
        // The server died between writing ROTATE and opening B; its restart opened B.
        Ending::Rotate | Ending::Stop if at_startup && listed_after_a => Physical::Restart,
        Ending::None if a.crash_tail && at_startup && listed_after_a => Physical::Restart,
        Ending::None if !at_startup => Physical::Contradicted,
        Ending::Rotate | Ending::Stop | Ending::None => Physical::Unknown,
    }
}

/// What the two sets say of each other.
fn logical(a: &Side<'_>, b: &Side<'_>) -> Logical {
    let (Some(before), Some(begins)) = (a.previous, b.previous) else {
        return Logical::Unknown;
    };
    // Even where A's own GTIDs are hidden, B must know all that came before A.
    if !begins.covers(before) {
        return Logical::Fork;
    }
    let Some(ends) = a.added.and_then(|added| before.after(added)) else {
        return Logical::Unknown;
    };
    if ends.is_empty() && begins.is_empty() && !no_anonymous(a, b) {
        // Both empty because the server writes no GTIDs: that proves nothing.
        return Logical::Unknown;
    }
    if !begins.covers(&ends) {
        return Logical::Fork;
    }
    match begins.beyond(&ends) {
        Some(gtids) if !gtids.is_empty() => Logical::Missing(gtids),
        Some(_) => Logical::Equal,
        None => Logical::Unknown,
    }
}

#[cfg(test)]
mod tests;
