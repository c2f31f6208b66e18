//! The lock of a state directory: one writer at a time (I11).
//!
//! **Invariants.** The lock is the kernel's, bound to an open descriptor: it ends with the
//! process that holds it, however that ends, and never goes stale. The PID inside the file is a
//! hint for humans and decides nothing. The file is never removed: removing it would let two
//! processes lock two files of one name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// The file in the state directory that is locked.
pub const LOCK_FILE: &str = "lock";

/// Digits of a PID, with room to spare.
const PID_TEXT_MAX: u64 = 32;

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error(
        "{} is locked by another process{}; only one may write to a state directory",
        path.display(),
        holder(*pid)
    )]
    AlreadyLocked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as the file says.
        pid: Option<u32>,
    },
    /// The lock file cannot be opened or locked.
    #[error("lock {}: {source}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (PID {pid})"))
}

/// The lock, held until dropped.
#[derive(Debug)]
pub struct StateLock {
    // Closing the descriptor releases the lock.
    _file: File,
    path: PathBuf,
}

impl StateLock {
    /// Takes the lock of this state directory, without waiting.
    ///
    /// # Errors
    /// When another process holds it, or the lock file cannot be made.
    pub fn take(state_dir: &Path) -> Result<Self, LockError> {
        let path = state_dir.join(LOCK_FILE);
        let failed = |source: io::Error| LockError::Io { path: path.clone(), source };
        // Not truncated on open: the text in it belongs to whoever holds the lock.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = read_pid(&mut file);
                return Err(LockError::AlreadyLocked { path, pid });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        // Only a hint, so a full disk does not matter; the lock is held already.
        let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = noted {
            tracing::debug!(path = %path.display(), %error, "the lock is held but its file has no PID");
        }
        Ok(Self { _file: file, path })
    }

    /// The lock file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_TEXT_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_learns_who_holds_it_and_gets_it_once_released() {
        let dir = tempfile::tempdir().unwrap();
        let held = StateLock::take(dir.path()).unwrap();
        let refused = StateLock::take(dir.path()).unwrap_err();
        let LockError::AlreadyLocked { pid, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*pid, Some(std::process::id()));
        assert!(refused.to_string().contains(&format!("(PID {})", std::process::id())));
        drop(held);
        drop(StateLock::take(dir.path()).unwrap());
    }

    #[test]
    fn a_lock_file_left_by_a_dead_process_does_not_lock() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(LOCK_FILE), "4194304 and a long tail\n").unwrap();
        let held = StateLock::take(dir.path()).unwrap();
        let text = std::fs::read_to_string(held.path()).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = StateLock::take(&dir.path().join("gone")).unwrap_err();
        assert!(error.to_string().contains("gone/lock"), "{error}");
    }
}
