//! `config check`: reads the configuration and says what it means.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{CommandError, Exit, Report, load_config};
use crate::config::DEFAULT_PATH;

/// The configuration, as understood.
#[derive(Debug, Serialize)]
pub struct ConfigReport {
    /// The file.
    pub file: PathBuf,
    /// The source's name; null where it is the server's UUID.
    pub source: Option<String>,
    /// Where the binlogs are.
    pub binlog_dir: PathBuf,
    /// Where the archive is.
    pub store: String,
    /// Where state is kept.
    pub state: PathBuf,
}

/// Checks the configuration. Nothing is contacted.
///
/// # Errors
/// When it cannot be read or is wrong; every problem is named.
pub fn config_check(path: Option<&Path>) -> Result<ConfigReport, CommandError> {
    let config = load_config(path)?;
    Ok(ConfigReport {
        file: path.map_or_else(|| PathBuf::from(DEFAULT_PATH), Path::to_owned),
        source: config.source.name.as_ref().map(ToString::to_string),
        binlog_dir: config.source.binlog_dir.clone(),
        store: config.store.url.to_string(),
        state: config.state.dir,
    })
}

impl Report for ConfigReport {
    fn text(&self) -> String {
        let name = self.source.as_deref().unwrap_or("the server's UUID, from auto.cnf");
        format!(
            "{}: correct\n  source {name}\n  binlogs {}\n  store {}\n  state {}\n",
            self.file.display(),
            self.binlog_dir.display(),
            self.store,
            self.state.display()
        )
    }

    fn exit(&self) -> Exit {
        Exit::Done
    }
}
