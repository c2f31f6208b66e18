//! Reads of small files with an upper limit, so that no file can exhaust memory.
//!
//! **Invariants.** Never more than the limit is held, whatever the file claims to be.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a small file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("{} is not there", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Longer than such a file can be.
    #[error("{} is longer than {max} bytes, so it is not what it should be", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// Not UTF-8.
    #[error("{} is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// When it is absent, longer, or cannot be read.
pub fn read_limited(path: &Path, max: u64) -> Result<Vec<u8>, ReadError> {
    let failed = |source: io::Error| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::NotFound {
            ReadError::NotFound { path }
        } else {
            ReadError::Io { path, source }
        }
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= max) {
        Ok(bytes)
    } else {
        Err(ReadError::TooLong { path: path.to_owned(), max })
    }
}

/// Reads a text file of at most `max` bytes.
///
/// # Errors
/// As [`read_limited`], and when it is not UTF-8.
pub fn read_to_string_limited(path: &Path, max: u64) -> Result<String, ReadError> {
    String::from_utf8(read_limited(path, max)?)
        .map_err(|_| ReadError::NotText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_to_the_byte_even_for_a_file_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_to_string_limited(&path, 5).unwrap(), "12345");
        assert!(matches!(read_to_string_limited(&path, 4), Err(ReadError::TooLong { max: 4, .. })));
        assert!(matches!(
            read_limited(Path::new("/dev/zero"), 1000),
            Err(ReadError::TooLong { .. })
        ));
    }

    #[test]
    fn absent_unreadable_and_not_text_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let absent = read_limited(&dir.path().join("f"), 5);
        assert!(matches!(absent, Err(ReadError::NotFound { .. })));
        assert!(matches!(read_limited(dir.path(), 5), Err(ReadError::Io { .. })));
        let path = dir.path().join("g");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read_to_string_limited(&path, 9), Err(ReadError::NotText { .. })));
    }
}
