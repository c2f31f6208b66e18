//! What tells one content of a file from another without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Which file it is, and whether it was written to. The time of inode change is left out on
/// purpose: making a hard link, as a pin does, changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileSignature {
    /// The device.
    pub dev: u64,
    /// The inode on it.
    pub ino: u64,
    /// In bytes.
    pub size: u64,
    /// When it was last written to, in nanoseconds of Unix time. Its grain is that of the
    /// kernel's clock tick: two writes within one can leave it the same.
    pub mtime_ns: i64,
}

impl FileSignature {
    /// From what the system says of an open descriptor or a path.
    #[must_use]
    pub fn of(facts: &Metadata) -> Self {
        Self {
            dev: facts.dev(),
            ino: facts.ino(),
            size: facts.size(),
            mtime_ns: facts
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(facts.mtime_nsec()),
        }
    }

    /// Whether both are of one file, written to or not.
    #[must_use]
    pub const fn same_file(&self, other: &Self) -> bool {
        self.dev == other.dev && self.ino == other.ino
    }
}
