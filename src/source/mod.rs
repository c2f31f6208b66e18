//! The server's binlog directory: which segments are there, which are final, and when to look
//! again. Reads only; the server's own files are never changed (I10).
//!
//! **Invariants.** Files that the index does not list are never reported. Order is by number
//! (I12). [`Closed`] is made by the doors of this module alone, and never for a segment that the
//! server may still write to.
//!
//! **Cancellation.** Every future here may be dropped at any point.

mod closed;
mod dir;
mod errors;
mod locate;
mod open_files;
mod scan;
mod seal;
mod server;
mod signature;
mod watch;

#[cfg(test)]
mod fixture_tests;

pub use closed::{
    Closed, Inspected, PinnedSegment, from_pin, offer, seal, seal_last_of_dead_server,
};
pub use dir::{IndexRead, SourceDir, SourcePaths};
pub use errors::IndexError;
pub use open_files::{NotOpen, OpenState, who_has_open};
pub use scan::{Found, Listed, Scan, Scanner};
pub use seal::{
    EncryptedPolicy, Patience, Position, Refusal, SealDamage, SealFacts, SealVerdict, Successor,
    Waiting, judge,
};
pub use server::{ServerUuidError, server_uuid};
pub use signature::FileSignature;
pub use watch::{Nudge, Watch};

use std::io;

/// Runs work that blocks on the disk away from the runtime's own threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
