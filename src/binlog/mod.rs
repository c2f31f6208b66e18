//! Bytes of a segment to facts, over any stream: framing, CRC32, GTIDs, times, head and digest.
//!
//! One walk reads a file once, front to back, in chunks of any size. It understands what MySQL 5.7
//! to 9.7 and MariaDB 10 to 12 write. Event types it does not know are counted, never refused.
//!
//! **Invariants.** Nothing that lies on a disk makes this module panic, loop or allocate without
//! bound: every length is compared with the bytes that are there before it is used, only the
//! bodies that must be decoded are held, and each of them under a cap. The facts do not depend on
//! how the bytes were cut into chunks. A GTID counts only when its transaction is there as a
//! whole, so no hole is covered by half of a transaction (I13, I14).

mod damage;
mod encrypted;
mod event;
mod facts;
mod format;
mod gtid_event;
mod head;
pub mod index;
mod inspect;
mod peek;
mod query;
mod scan;
mod transaction;
mod verdict;
mod walk;

#[cfg(test)]
mod tests;

pub use damage::{Damage, DamageCode};
pub use facts::{Facts, Kind, Verdict};
pub use inspect::{Inspection, Inspector, inspect};
pub use peek::{Peek, peek};
pub use walk::{WalkOptions, Walker};

/// Whether a file name is that of MariaDB's binlog in InnoDB pages, which is another format.
#[must_use]
pub fn is_page_format_name(name: &str) -> bool {
    name.ends_with(".ibb")
}
