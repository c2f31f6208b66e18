//! One file a subcommand. Each returns a report or an error; nothing here prints.
//!
//! **Invariants.** A report is the one source of text and JSON. An exit code is a function of the
//! report or of the error (`docs/design.md`, Exit codes).

mod config_check;
mod inspect;
mod open;
mod run;
mod status;
mod text;
mod verify;

pub use config_check::{ConfigReport, config_check};
pub use inspect::{InspectReport, inspect};
pub use open::{StoreFlags, load_config};
pub use run::{RunFlags, RunReport, Watcher, run};
pub use status::{Shown, StatusFlags, status};
pub use text::{escape, size};
pub use verify::{VerifyFlags, VerifyReport, verify};

use std::fmt;

use crate::config::ConfigError;
use crate::fault::Fault;
use crate::pipeline::RunError;
use crate::sys::{LockError, OpenStateError, StateLoadError};

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, nothing missing.
    Done,
    /// Failed, or could not be read.
    Failed,
    /// The command line is wrong.
    Usage,
    /// A hole, gap, damage, or something that cannot be verified.
    Missing,
    /// Another writer holds the lock or the lease.
    OtherWriter,
    /// State does not decode.
    StateBroken,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Missing => 3,
            Self::OtherWriter => 5,
            Self::StateBroken => 7,
        }
    }
}

/// What a command reports.
pub trait Report: erased::Json {
    /// For humans, with a newline at its end.
    fn text(&self) -> String;

    /// How the command ends.
    fn exit(&self) -> Exit;
}

mod erased {
    /// Anything that has a JSON form.
    pub trait Json {
        /// That form.
        fn json(&self) -> serde_json::Result<serde_json::Value>;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> serde_json::Result<serde_json::Value> {
            serde_json::to_value(self)
        }
    }
}

/// Why a command has no report.
#[derive(Debug)]
pub struct CommandError {
    /// How the command ends.
    pub exit: Exit,
    /// What went wrong, where, and what to do.
    pub message: String,
}

impl CommandError {
    /// An error that ends with code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into() }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

impl From<Fault> for CommandError {
    fn from(fault: Fault) -> Self {
        Self::failed(fault.to_string())
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        Self { exit: Exit::Usage, message: error.to_string() }
    }
}

impl From<StateLoadError> for CommandError {
    fn from(error: StateLoadError) -> Self {
        let exit = match error {
            StateLoadError::Read(_) => Exit::Failed,
            StateLoadError::Decode { .. } | StateLoadError::Invalid { .. } => Exit::StateBroken,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<OpenStateError> for CommandError {
    fn from(error: OpenStateError) -> Self {
        let exit = match error {
            OpenStateError::Make(_) | OpenStateError::Lock(LockError::Io { .. }) => Exit::Failed,
            OpenStateError::Lock(LockError::AlreadyLocked { .. }) => Exit::OtherWriter,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<RunError> for CommandError {
    fn from(error: RunError) -> Self {
        let exit = match error {
            RunError::Store(_)
            | RunError::NoStore { .. }
            | RunError::StateWrite(_)
            | RunError::Source(_) => Exit::Failed,
            RunError::LeaseHeld(_) => Exit::OtherWriter,
            RunError::StateLoad(error) => return error.into(),
        };
        Self { exit, message: error.to_string() }
    }
}
