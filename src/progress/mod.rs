//! How far a source is archived without a hole: chains, frontiers, and the durable cursor.
//!
//! **Invariants.** The frontier is the end of the longest run of *follows* from the chain's first
//! segment, and only grows; cursor ≤ frontier (I2). A [`Frontier`] is made here alone and is the
//! only thing that moves a cursor: one beyond the frontier does not compile. Order is by number
//! (I12). No setting advances past a hole (I13).
//!
//! **Crash.** A commit whose cursor was not written yet is found by the next start, which reads the
//! manifests after the cursor and moves it.

mod chain;
mod cursor;

pub use chain::{Ahead, Chain, Frontier, Gap};
pub use cursor::{CursorEntry, CursorFile};
