//! The only effects on this host's state: durable writes, the lock, signals.
//!
//! **Invariants.** One writer per state directory (I11): a [`StateDir`] holds the lock for as
//! long as it lives, and only it writes. A failed fsync or rename, or EIO, poisons it (I8).

mod durable;
mod errors;
mod judge;
mod lock;
mod read;
mod signals;

#[cfg(debug_assertions)]
pub use durable::Hook;
pub use durable::{Durable, STATE_BYTES_MAX, StateDir, TEMP_PREFIX, load_optional, read_json};
pub use errors::{OpenStateError, StateLoadError, StateWriteError};
pub use judge::Step;
pub use lock::{LOCK_FILE, LockError, StateLock};
pub use read::{ReadError, read_limited, read_to_string_limited};
pub use signals::{Signals, StopSignal};
