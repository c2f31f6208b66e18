//! What a failed step of a durable write means (I8): a pure table.

use std::io;

use rustix::io::Errno;

/// One step of a durable write, in the order in which a write takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Making a folder.
    MakeFolder,
    /// Opening the folder that is synced last.
    OpenFolder,
    /// Making the temporary file, or opening a file to append to.
    OpenFile,
    /// Writing the bytes.
    Write,
    /// fsync of the file.
    SyncFile,
    /// Renaming over the old file.
    Rename,
    /// Removing a file.
    Remove,
    /// fsync of the folder.
    SyncFolder,
}

impl Step {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::MakeFolder => "make folder",
            Self::OpenFolder => "open folder",
            Self::OpenFile => "open file in place of",
            Self::Write => "write",
            Self::SyncFile => "sync",
            Self::Rename => "rename to",
            Self::Remove => "remove",
            Self::SyncFolder => "sync folder",
        }
    }
}

/// What has to happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Wait for room; nothing old was harmed.
    Full,
    /// This write did not happen; others may.
    Refused,
    /// What is on disk is not known: no more writes.
    Poison,
}

/// The table. No room is never poison, not even at fsync: the new bytes are thrown away and the
/// next try writes all of them again, so no page whose write-back failed is ever relied on.
pub(super) fn judge(step: Step, error: &io::Error) -> Judgement {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => return Judgement::Full,
        Some(Errno::IO) => return Judgement::Poison,
        Some(_) | None => {}
    }
    match step {
        Step::SyncFile | Step::Rename | Step::SyncFolder => Judgement::Poison,
        Step::MakeFolder | Step::OpenFolder | Step::OpenFile | Step::Write | Step::Remove => {
            Judgement::Refused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table() {
        use Judgement::{Full, Poison, Refused};
        let table = [
            // step, ENOSPC, EDQUOT, EROFS, EIO, EACCES, EMFILE
            (Step::MakeFolder, [Full, Full, Full, Poison, Refused, Refused]),
            (Step::OpenFolder, [Full, Full, Full, Poison, Refused, Refused]),
            (Step::OpenFile, [Full, Full, Full, Poison, Refused, Refused]),
            (Step::Write, [Full, Full, Full, Poison, Refused, Refused]),
            (Step::SyncFile, [Full, Full, Full, Poison, Poison, Poison]),
            (Step::Rename, [Full, Full, Full, Poison, Poison, Poison]),
            (Step::Remove, [Full, Full, Full, Poison, Refused, Refused]),
            (Step::SyncFolder, [Full, Full, Full, Poison, Poison, Poison]),
        ];
        let errors =
            [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO, Errno::ACCESS, Errno::MFILE];
        for (step, row) in table {
            for (errno, expected) in errors.into_iter().zip(row) {
                assert_eq!(judge(step, &errno.into()), expected, "{step:?} {errno:?}");
            }
        }
        let short = io::Error::from(io::ErrorKind::WriteZero);
        assert_eq!(judge(Step::Write, &short), Refused);
    }
}
