//! What the data folder says of the server itself.

use std::path::{Path, PathBuf};

use crate::gtid::Uuid;
use crate::sys::{ReadError, read_to_string_limited};

/// The file holds a section and a line; a hundred times that is generous.
const AUTO_CNF_BYTES_MAX: u64 = 16 << 10;

/// Why the server's UUID could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ServerUuidError {
    /// The file is there and cannot be read.
    #[error(transparent)]
    Read(ReadError),
    /// The file is there, and its `server-uuid` is not a UUID or is missing.
    #[error("{} has no valid server-uuid in its section [auto]", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
    },
}

/// The server's UUID from `auto.cnf`; `None` where there is no such file, as with MariaDB.
///
/// # Errors
/// When the file is there, but unreadable or without a valid UUID.
pub fn server_uuid(datadir: &Path) -> Result<Option<Uuid>, ServerUuidError> {
    let path = datadir.join("auto.cnf");
    match read_to_string_limited(&path, AUTO_CNF_BYTES_MAX) {
        Ok(text) => parse(&text).map(Some).ok_or(ServerUuidError::Invalid { path }),
        Err(ReadError::NotFound { .. }) => Ok(None),
        Err(
            error @ (ReadError::Io { .. } | ReadError::TooLong { .. } | ReadError::NotText { .. }),
        ) => Err(ServerUuidError::Read(error)),
    }
}

fn parse(text: &str) -> Option<Uuid> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((key, value)) = line.split_once('=')
            && section == "auto"
            // The server's options may be written with either.
            && key.trim().replace('_', "-") == "server-uuid"
        {
            return value.trim().parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "d09776b3-ecfc-11f1-b947-02fc00000001";

    #[test]
    fn the_uuid_is_read_from_its_section_alone() {
        for text in [
            format!("[auto]\nserver-uuid={UUID}\n"),
            format!("# generated\r\n[auto]\r\nserver_uuid = {}\r\n", UUID.to_uppercase()),
            format!("[x]\nserver-uuid=no\n[auto]\nother=1\nserver-uuid={UUID}"),
        ] {
            assert_eq!(parse(&text).map(|uuid| uuid.to_string()).as_deref(), Some(UUID), "{text}");
        }
        for text in [String::new(), format!("server-uuid={UUID}"), "[auto]\nserver-uuid=1".into()] {
            assert_eq!(parse(&text).map(|uuid| uuid.to_string()), None, "{text}");
        }
    }

    #[test]
    fn an_absent_file_is_no_error_and_a_broken_one_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(server_uuid(dir.path()).unwrap().is_none());
        std::fs::write(dir.path().join("auto.cnf"), "[auto]\n").unwrap();
        let error = server_uuid(dir.path()).unwrap_err();
        assert!(error.to_string().contains("auto.cnf has no valid server-uuid"), "{error}");
    }
}
