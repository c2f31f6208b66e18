//! What the first events of a listed file tell of it.
//!
//! **Invariants.** A head that is not final yet is not shown: it would name another segment later.

use crate::binlog::Peek;
use crate::segment::{SegmentNumber, Side};
use crate::source::Listed;

/// A listed segment whose first events are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnDisk<'a> {
    pub(super) listed: &'a Listed,
    pub(super) peek: &'a Peek,
    pub(super) number: SegmentNumber,
}

impl<'a> OnDisk<'a> {
    /// `None` for one that is gone or cannot be read, and for a last one of which the server has not
    /// written all that its head is over: at a server start the second event comes later than the
    /// first, and the head of an encrypted file is over its first 4 KiB.
    pub(super) fn of(listed: &'a Listed) -> Option<Self> {
        let peek = listed.peek()?;
        let unwritten = listed.is_last() && !peek.head_is_final;
        (!unwritten).then_some(Self { listed, peek, number: listed.name.number() })
    }

    /// What the first events of a file tell of it.
    pub(super) fn side(&self) -> Side<'a> {
        Side {
            name: &self.listed.name,
            listed_after: self.listed.listed_after.as_ref(),
            next_segment: None,
            ending: None,
            crash_tail: false,
            created_at_startup: self.peek.created_at_startup,
            previous: self.peek.previous.as_ref(),
            added: None,
            anonymous_transactions: None,
        }
    }
}
