//! The server's binlog directory: which segments are there, which are final, and when to look
//! again. Reads only; the server's own files are never changed (I10).
//!
//! **Invariants.** Files that the index does not list are never reported. Order is by number
//! (I12). [`Closed`] is made by the doors of this module alone, and never for a segment that the
//! server may still write to.
//!
//! **Cancellation.** Every future here may be dropped at any point.

mod dir;
mod errors;
mod locate;
mod open_files;
mod server;
mod signature;

pub use dir::{IndexRead, SourceDir, SourcePaths};
pub use errors::IndexError;
pub use open_files::{NotOpen, OpenState, who_has_open};
pub use server::{ServerUuidError, server_uuid};
pub use signature::FileSignature;

use std::io;

/// Runs work that blocks on the disk away from the runtime's own threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
