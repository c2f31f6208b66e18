//! `cursor.json`: for each incarnation, how far this host knows it to be archived without a hole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Frontier;
use crate::segment::{Incarnation, SegmentName, SegmentNumber, SourceName};
use crate::sys::{self, ReadError, StateDir, StateLoadError, StateWriteError};

/// The format number that this version writes and the highest it reads.
const FORMAT: u32 = 1;

/// Largest such file: 10^5 incarnations.
const SIZE_MAX: u64 = 16 << 20;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One incarnation's cursor: every segment from `from` to `segment` can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorEntry {
    /// The chain's first segment.
    pub from: SegmentName,
    /// The last segment of the chain.
    pub segment: SegmentName,
    /// That segment's number.
    pub number: SegmentNumber,
    /// Links on the way that no GTID set confirms.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unverified: u64,
}

/// The durable cursors of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorFile {
    format: u32,
    source: SourceName,
    incarnations: BTreeMap<Incarnation, CursorEntry>,
}

impl CursorFile {
    /// No cursor yet.
    #[must_use]
    pub const fn new(source: SourceName) -> Self {
        Self { format: FORMAT, source, incarnations: BTreeMap::new() }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join("cursor.json")
    }

    /// Reads the file; `None` when there is none: this host never confirmed the source.
    ///
    /// # Errors
    /// When it does not decode or is of another source (I7): it is left as it is.
    pub fn load(state_dir: &Path, source: &SourceName) -> Result<Option<Self>, StateLoadError> {
        let path = Self::path(state_dir);
        let Some(file) = Self::peek(state_dir)? else { return Ok(None) };
        if file.source != *source {
            let detail = format!(
                "it is of source {}, and this daemon archives {source}; use a state directory of its own, \
                 or set source.name",
                file.source
            );
            return Err(StateLoadError::undecodable(&path, detail));
        }
        Ok(Some(file))
    }

    /// Reads the file, whatever its source.
    ///
    /// # Errors
    /// When it does not decode.
    pub fn peek(state_dir: &Path) -> Result<Option<Self>, StateLoadError> {
        let path = Self::path(state_dir);
        let value: serde_json::Value = match sys::read_json(&path, SIZE_MAX) {
            Ok(value) => value,
            Err(StateLoadError::Read(ReadError::NotFound { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Before the fields: a newer format may have others.
        if let Some(format) = value.get("format").and_then(serde_json::Value::as_u64)
            && format > u64::from(FORMAT)
        {
            let detail = format!(
                "format {format} is newer than this version reads ({FORMAT}); use a newer binlog-archiver"
            );
            return Err(StateLoadError::undecodable(&path, detail));
        }
        let file: Self = serde_json::from_value(value)
            .map_err(|source| StateLoadError::Decode { path: path.clone(), source })?;
        for (incarnation, entry) in &file.incarnations {
            let CursorEntry { from, segment, number, unverified: _ } = entry;
            if segment.number() != *number {
                let detail = format!(
                    "incarnation {incarnation}: segment {segment} does not have number {number}"
                );
                return Err(StateLoadError::undecodable(&path, detail));
            }
            if from.number() > *number {
                let detail = format!(
                    "incarnation {incarnation}: the chain begins after its end: {from}, {segment}"
                );
                return Err(StateLoadError::undecodable(&path, detail));
            }
        }
        Ok(Some(file))
    }

    /// The cursor of an incarnation.
    #[must_use]
    pub fn get(&self, incarnation: &Incarnation) -> Option<&CursorEntry> {
        self.incarnations.get(incarnation)
    }

    /// The newest incarnation that has a cursor.
    #[must_use]
    pub fn newest(&self) -> Option<(&Incarnation, &CursorEntry)> {
        self.incarnations.last_key_value()
    }

    /// The source's name.
    #[must_use]
    pub const fn source(&self) -> &SourceName {
        &self.source
    }

    /// Moves an incarnation's cursor to its frontier. Says whether that changed anything.
    pub fn advance(&mut self, frontier: &Frontier) -> bool {
        let entry = frontier.entry();
        let old = self.incarnations.get(frontier.incarnation());
        if old.is_some_and(|old| old.from == entry.from && old.number >= entry.number) {
            return false;
        }
        self.incarnations.insert(frontier.incarnation().clone(), entry);
        true
    }

    /// Makes the file say what the archive shows, and no more: for an archive that was changed,
    /// emptied or exchanged, cursors go back. Says whether that changed anything.
    pub fn confirm(&mut self, frontiers: &[Frontier]) -> bool {
        let shown: BTreeMap<Incarnation, CursorEntry> = frontiers
            .iter()
            .map(|frontier| (frontier.incarnation().clone(), frontier.entry()))
            .collect();
        let changed = self.incarnations != shown;
        self.incarnations = shown;
        changed
    }

    /// Writes the file. Stopped before the rename, the old cursor stays, which is still true.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn save(&self, state: &StateDir) -> Result<(), StateWriteError> {
        state.save_json(&Self::path(state.root()), self).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
