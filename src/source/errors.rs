//! Why the server's index could not be read, told apart by what a human has to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::binlog::index::IndexParseError;

/// Why no list of segments was read. Never to be taken for "there are no segments".
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There is none, after more waiting than a rotation or purge takes.
    #[error(
        "no binlog index at {} after {waited_ms} ms{}",
        path.display(),
        if *crash_safe { "; its .index_crash_safe is there: the server died replacing it, and its next start restores it" } else { "; is binary logging on, and does source.binlog_dir or source.index name the right place?" }
    )]
    Missing {
        /// The index, or the directory that was searched for one.
        path: PathBuf,
        /// How long it was looked for.
        waited_ms: u64,
        /// Whether MySQL's replacement for it lies there unrenamed.
        crash_safe: bool,
    },
    /// It lists nothing, which a server never leaves so.
    #[error("binlog index {} is still empty after {waited_ms} ms", path.display())]
    Empty {
        /// The index.
        path: PathBuf,
        /// How long it was looked at.
        waited_ms: u64,
    },
    /// Its last line is not finished.
    #[error("binlog index {}: line {line} still has no newline after {waited_ms} ms", path.display())]
    Torn {
        /// The index.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// How long it was looked at.
        waited_ms: u64,
    },
    /// A line is no segment, or lists one again.
    #[error("binlog index {}: {source}", path.display())]
    BadLine {
        /// The index.
        path: PathBuf,
        /// Which line and why.
        source: IndexParseError,
    },
    /// It changed at every look.
    #[error("binlog index {} changed at every read for {waited_ms} ms", path.display())]
    Unsettled {
        /// The index.
        path: PathBuf,
        /// How long it was looked at.
        waited_ms: u64,
    },
    /// The server writes its binlog into InnoDB pages.
    #[error(
        "{} is MariaDB's binlog in InnoDB pages, which cannot be archived; start the server without \
         binlog_storage_engine, so that it writes its binlog as files, and remove the .ibb files",
        path.display()
    )]
    PageFormat {
        /// One of its files.
        path: PathBuf,
    },
    /// More than one file could be the index.
    #[error("more than one binlog index in {}: {}; set source.index to the right one", dir.display(), list(candidates))]
    Ambiguous {
        /// The directory.
        dir: PathBuf,
        /// The files.
        candidates: Vec<PathBuf>,
    },
    /// The system refused.
    #[error("read {}: {source}{}", path.display(), hint(source))]
    Unreadable {
        /// The index or its directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

fn hint(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::PermissionDenied {
        "; give the archiver's user the group of the server, and that group read access"
    } else {
        ""
    }
}

impl IndexError {
    /// The file or directory it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Missing { path, .. }
            | Self::Empty { path, .. }
            | Self::Torn { path, .. }
            | Self::BadLine { path, .. }
            | Self::Unsettled { path, .. }
            | Self::PageFormat { path }
            | Self::Unreadable { path, .. } => path,
            Self::Ambiguous { dir, .. } => dir,
        }
    }
}
