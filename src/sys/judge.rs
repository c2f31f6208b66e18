//! What a failed step of a durable write means (I8): a pure table.

use std::error::Error;
use std::io::{self, ErrorKind};

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
    match errno(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => return Judgement::Full,
        Some(Errno::IO) => return Judgement::Poison,
        Some(_) | None => {}
    }
    // Some wrappers hand on the kind and hide the number for good.
    let kind = error.kind();
    let no_room = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem];
    if no_room.contains(&kind) {
        return Judgement::Full;
    }
    match step {
        Step::SyncFile | Step::Rename | Step::SyncFolder => Judgement::Poison,
        Step::MakeFolder | Step::OpenFolder | Step::OpenFile | Step::Write | Step::Remove => {
            Judgement::Refused
        }
    }
}

/// The system's own number, however deep in the chain: who wraps an error, to add a path, makes one
/// without a number.
fn errno(error: &io::Error) -> Option<Errno> {
    if let Some(number) = error.raw_os_error() {
        return Some(Errno::from_raw_os_error(number));
    }
    // `source` of an `io::Error` passes over what it wraps, to the source of that.
    let mut next = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    while let Some(inner) = next {
        match inner.downcast_ref::<io::Error>() {
            Some(inner) => return errno(inner),
            None => next = inner.source(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Same kind, with a path, and what it wraps as its source.
    #[derive(Debug, thiserror::Error)]
    #[error("at path {path}")]
    struct WithPath {
        path: &'static str,
        source: io::Error,
    }

    fn wrapped(source: io::Error) -> io::Error {
        io::Error::new(source.kind(), WithPath { path: "/state/.tmp-1", source })
    }

    #[test]
    fn a_wrapped_error_is_judged_as_what_it_wraps() {
        use Judgement::{Full, Poison, Refused};
        let cases = [
            (Errno::NOSPC, Full),
            (Errno::DQUOT, Full),
            (Errno::ROFS, Full),
            (Errno::IO, Poison),
            (Errno::ACCESS, Refused),
        ];
        for (errno, expected) in cases {
            for step in [Step::OpenFile, Step::Write] {
                let once = wrapped(errno.into());
                assert_eq!(once.raw_os_error(), None);
                assert_eq!(judge(step, &once), expected, "{step:?} {errno:?}");
                assert_eq!(judge(step, &wrapped(once)), expected, "{step:?} {errno:?} twice");
                // An error held directly, with no wrapper between.
                let held = io::Error::other(io::Error::from(errno));
                assert_eq!(judge(step, &held), expected, "{step:?} {errno:?} held");
            }
        }
    }

    /// `tempfile` wraps so that only the kind is left.
    #[test]
    fn an_error_that_hides_its_number_is_judged_by_its_kind() {
        use std::io::Write;

        let dir = tempfile::tempdir().unwrap();
        let device = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let name = tempfile::TempPath::try_from_path(dir.path().join(".tmp-1")).unwrap();
        let error = tempfile::NamedTempFile::from_parts(device, name).write_all(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), None, "{error:?}");
        assert_eq!(judge(Step::Write, &error), Judgement::Full);
    }

    #[test]
    fn a_kind_without_a_number_is_enough_for_no_room() {
        let kinds =
            [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem];
        for kind in kinds {
            assert_eq!(judge(Step::SyncFile, &io::Error::new(kind, "no room")), Judgement::Full);
        }
    }

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
