//! Owns the configuration file: TOML in, a validated [`Config`] out.
//!
//! **Invariants.** A `Config` that exists has passed every rule: nothing below checks a value
//! again. Unknown keys are errors that name the nearest known one. Every problem of a file is
//! reported at once, each with its line and column. Secrets are never in the file: it names the
//! files and variables that hold them. Keys are part of the surface that scripts rely on.

mod page;
mod reader;
mod sections;
mod store_url;
mod types;
mod units;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

pub use page::{Page, Secret};
pub use reader::Problem;
pub use store_url::{BadStoreUrl, StoreUrl};
pub use types::{
    Compression, Control, EncryptedSegments, Heartbeat, Http, Limits, MinFree, ObjectLock, Pins,
    Proof, Recovery, Retry, Source, Sse, Start, State, Store, StoreChecksum, Upload, Watch,
};

/// Where the configuration is when nothing else is said.
pub const DEFAULT_PATH: &str = "/etc/binlog-archiver/config.toml";

/// The environment variable that says where the configuration is.
pub const PATH_VARIABLE: &str = "BINLOG_ARCHIVER_CONFIG";

/// A whole, validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[source]`.
    pub source: Source,
    /// `[store]`.
    pub store: Store,
    /// `[state]`.
    pub state: State,
    /// `[pins]`.
    pub pins: Pins,
    /// `[upload]`.
    pub upload: Upload,
    /// `[watch]`.
    pub watch: Watch,
    /// `[retry]`.
    pub retry: Retry,
    /// `[recovery]`.
    pub recovery: Recovery,
    /// `[limits]`.
    pub limits: Limits,
    /// `[heartbeat]`.
    pub heartbeat: Heartbeat,
    /// Every `[[page]]`, in the order of the file.
    pub pages: Vec<Page>,
    /// `[control]`.
    pub control: Control,
    /// `[http]`.
    pub http: Http,
}

impl Config {
    /// Reads and validates a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read_regular(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Validates a text; `path` is what its problems are reported under.
    ///
    /// # Errors
    ///
    /// When anything in it is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let document = reader::Document::new(text);
        let config = document.root().and_then(sections::config);
        let problems = document.into_problems();
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            Some(_) | None => Err(ConfigError::Invalid { path: path.to_owned(), problems }),
        }
    }
}

/// Opening a pipe would wait for its writer, and a device may have no end.
fn read_regular(path: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        let message = "not a regular file";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, message));
    }
    std::fs::read_to_string(path)
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// The file could not be read.
    Read {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is wrong in one or more places.
    Invalid {
        /// Where it is.
        path: PathBuf,
        /// What is wrong, in the order of the places.
        problems: Vec<Problem>,
    },
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { error, .. } => Some(error),
            Self::Invalid { .. } => None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => {
                write!(f, "read configuration {}: {error}", path.display())?;
                if error.kind() == std::io::ErrorKind::NotFound {
                    write!(f, "; name another with --config FILE or {PATH_VARIABLE}")?;
                }
                Ok(())
            }
            Self::Invalid { path, problems } => {
                for (i, problem) in problems.iter().enumerate() {
                    let newline = if i == 0 { "" } else { "\n" };
                    write!(f, "{newline}{}:{problem}", path.display())?;
                }
                Ok(())
            }
        }
    }
}
