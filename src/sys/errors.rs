//! Why state could not be written or read, told apart by what has to happen next (I7, I8).

use std::io;
use std::path::{Path, PathBuf};

use super::lock::LockError;
use super::read::ReadError;

/// Why state was not written. Nothing may be claimed that was to be saved.
#[derive(Debug, thiserror::Error)]
pub enum StateWriteError {
    /// No room, no quota, or read-only: state writes are suspended until that ends; the handle
    /// stays usable.
    #[error("{step} {}: {source}; state writes wait until there is room again", path.display())]
    Full {
        /// The file or folder.
        path: PathBuf,
        /// What was being done, as a verb phrase.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused before anything durable was touched, for instance for want of
    /// permission or descriptors; the handle stays usable.
    #[error("{step} {}: {source}", path.display())]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// What was being done, as a verb phrase.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// What is on disk is no longer known: this write failed so, or an earlier one did. Every
    /// later write is refused too.
    #[error(
        "state is no longer written, for what is on disk is not known: {cause}; check the disk, then restart"
    )]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The value has no JSON form.
    #[error("encode {}: {source}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        source: serde_json::Error,
    },
}

/// Why state could not be read back (I7: it stops start-up, and is never skipped or rewritten).
#[derive(Debug, thiserror::Error)]
pub enum StateLoadError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file does not decode.
    #[error("{} does not decode: {source}; restore it from a backup or move it away by hand, it is never rewritten", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The file is JSON, but says what cannot be.
    #[error("{} does not decode: {detail}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        detail: String,
    },
}

impl StateLoadError {
    /// For a file that decodes, but contradicts itself or this version.
    #[must_use]
    pub fn undecodable(path: &Path, detail: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), detail: detail.into() }
    }
}

/// Why a state directory could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenStateError {
    /// It could not be made.
    #[error(transparent)]
    Make(#[from] StateWriteError),
    /// Its lock could not be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
}
