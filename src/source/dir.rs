//! The server's binlog directory, and careful reads of its index.
//!
//! **Invariants.** Level-triggered: every read looks at the disk anew and keeps nothing. An absent
//! index is looked for again, never taken for "no segments": MySQL unlinks it for milliseconds at
//! each rotation and purge. A list is returned only when two reads in a row agree.
//!
//! **Cancellation.** [`SourceDir::read_index`] may be dropped at any point; it writes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::errors::IndexError;
use super::locate::{INDEX_BYTES_MAX, Located, Undecided, has_crash_safe, locate};
use crate::binlog::index::{Index, IndexEntry, IndexParseError};
use crate::clock::{Clock, MonoTime};
use crate::sys::{ReadError, read_limited};

/// How long an index that is absent, torn or changing is looked at again. Up to 15 ms were seen
/// on a busy server; the rest is for a host that is short of everything.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Where a server keeps its binlogs, as the operator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePaths {
    /// Where the segments lie. When it is set, segments are looked for there alone, by name, so
    /// that an index written inside a container is followed outside of it.
    pub binlog_dir: Option<PathBuf>,
    /// The index; searched for in `binlog_dir` when not set.
    pub index: Option<PathBuf>,
    /// The server's data folder: relative lines of the index begin there.
    pub datadir: PathBuf,
}

/// The index as two agreeing reads saw it. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRead {
    /// The file that was read.
    pub path: PathBuf,
    /// What it lists.
    pub index: Index,
}

/// The binlog directory of one server.
#[derive(Debug, Clone)]
pub struct SourceDir {
    paths: SourcePaths,
    clock: Arc<dyn Clock>,
    patience: Duration,
}

impl SourceDir {
    /// The directory at these paths; nothing is looked at yet.
    #[must_use]
    pub fn new(paths: SourcePaths, clock: Arc<dyn Clock>) -> Self {
        Self { paths, clock, patience: PATIENCE }
    }

    /// The same with another limit to looking again.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The paths that it was made with.
    #[must_use]
    pub const fn paths(&self) -> &SourcePaths {
        &self.paths
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The directories whose changes announce new segments.
    #[must_use]
    pub fn watched_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.paths.search_dir().to_owned()];
        let beside_index = self.paths.index.as_deref().and_then(Path::parent);
        if let Some(dir) = beside_index.filter(|dir| !dir.as_os_str().is_empty())
            && !dirs.iter().any(|known| known == dir)
        {
            dirs.push(dir.to_owned());
        }
        dirs
    }

    /// The file of a line of the index.
    #[must_use]
    pub fn resolve(&self, entry: &IndexEntry) -> PathBuf {
        match &self.paths.binlog_dir {
            Some(dir) => dir.join(entry.name.as_str()),
            // An absolute line replaces the data folder.
            None => self.paths.datadir.join(&entry.path).components().collect(),
        }
    }

    /// Reads the index until two reads agree.
    ///
    /// # Errors
    /// When that does not come about within the limit, or looking again is of no use.
    pub async fn read_index(&self) -> Result<IndexRead, IndexError> {
        let begun = self.clock.mono();
        let mut pause = PAUSE_FIRST;
        let mut before = None;
        loop {
            let paths = self.paths.clone();
            let seen = super::blocking(move || look(&paths)).await.unwrap_or_else(|source| {
                Look::Fatal(IndexError::Unreadable { path: self.paths.named(), source })
            });
            let waited = self.clock.mono().since(begun);
            let late = waited >= self.patience;
            match self.judge(seen, &mut before, waited) {
                Verdict::Read(read) if read.index.stale_lines == 0 || late => return Ok(read),
                Verdict::Fatal(error) => return Err(error),
                Verdict::Again(error) if late => return Err(error),
                Verdict::Read(_) | Verdict::Again(_) => {}
            }
            self.clock.sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    fn judge(&self, seen: Look, before: &mut Option<Bytes>, waited: Duration) -> Verdict {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        match seen {
            Look::Fatal(error) => Verdict::Fatal(error),
            Look::Absent { path, crash_safe } => {
                *before = None;
                Verdict::Again(IndexError::Missing { path, waited_ms, crash_safe })
            }
            Look::Undecided { path, source } => {
                *before = None;
                Verdict::Again(parse_error(path, source, waited_ms))
            }
            Look::Read(bytes) if before.as_ref() != Some(&bytes) => {
                let path = bytes.path.clone();
                *before = Some(bytes);
                Verdict::Again(IndexError::Unsettled { path, waited_ms })
            }
            Look::Read(Bytes { path, bytes }) => match Index::parse(&bytes) {
                Ok(index) if index.entries.is_empty() => {
                    Verdict::Again(IndexError::Empty { path, waited_ms })
                }
                Ok(index) => Verdict::Read(IndexRead { path, index }),
                Err(source) => Verdict::Again(parse_error(path, source, waited_ms)),
            },
        }
    }

    /// The monotonic time of this source's clock.
    #[must_use]
    pub fn now(&self) -> MonoTime {
        self.clock.mono()
    }
}

impl SourcePaths {
    /// Where the segments lie, as far as the configuration says.
    #[must_use]
    pub fn search_dir(&self) -> &Path {
        let beside_index = self.index.as_deref().and_then(Path::parent);
        self.binlog_dir
            .as_deref()
            .or(beside_index.filter(|dir| !dir.as_os_str().is_empty()))
            .unwrap_or(&self.datadir)
    }

    fn named(&self) -> PathBuf {
        self.index.clone().unwrap_or_else(|| self.search_dir().to_owned())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Bytes {
    path: PathBuf,
    bytes: Vec<u8>,
}

enum Look {
    Read(Bytes),
    Absent { path: PathBuf, crash_safe: bool },
    Undecided { path: PathBuf, source: IndexParseError },
    Fatal(IndexError),
}

enum Verdict {
    Read(IndexRead),
    Again(IndexError),
    Fatal(IndexError),
}

fn parse_error(path: PathBuf, source: IndexParseError, waited_ms: u64) -> IndexError {
    match source {
        IndexParseError::Torn { line } => IndexError::Torn { path, line, waited_ms },
        source @ (IndexParseError::NotText { .. }
        | IndexParseError::PageFormat { .. }
        | IndexParseError::BadName { .. }
        | IndexParseError::Repeated { .. }
        | IndexParseError::OutOfOrder { .. }) => IndexError::BadLine { path, source },
    }
}

/// One look at the disk, without waiting.
fn look(paths: &SourcePaths) -> Look {
    let path = match &paths.index {
        Some(path) => path.clone(),
        None => {
            let dir = paths.search_dir().to_owned();
            match locate(&dir) {
                Ok(Located::Found(path)) => path,
                Ok(Located::Absent { crash_safe }) => {
                    return Look::Absent { path: dir, crash_safe };
                }
                Ok(Located::PageFormat(path)) => {
                    return Look::Fatal(IndexError::PageFormat { path });
                }
                Ok(Located::Ambiguous(candidates)) => {
                    return Look::Fatal(IndexError::Ambiguous { dir, candidates });
                }
                Ok(Located::Undecided { path, why: Undecided::Parse(source) }) => {
                    return Look::Undecided { path, source };
                }
                Ok(Located::Undecided { path, why: Undecided::Read(source) }) => {
                    return refused(path, source);
                }
                Err(source) => return refused(dir, source),
            }
        }
    };
    match read_limited(&path, INDEX_BYTES_MAX) {
        Ok(bytes) => Look::Read(Bytes { path, bytes }),
        Err(ReadError::NotFound { path }) => {
            let crash_safe = has_crash_safe(&path);
            Look::Absent { path, crash_safe }
        }
        Err(ReadError::Io { path, source }) => refused(path, source),
        Err(error @ (ReadError::TooLong { .. } | ReadError::NotText { .. })) => {
            refused(path, io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
        }
    }
}

fn refused(path: PathBuf, source: io::Error) -> Look {
    if source.kind() == io::ErrorKind::NotFound {
        Look::Absent { path, crash_safe: false }
    } else {
        Look::Fatal(IndexError::Unreadable { path, source })
    }
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
