//! One look at the whole binlog directory: what the index lists, and what is there of it.
//!
//! **Invariants.** Each scan looks anew; nothing depends on the events of a watch. What the index
//! does not list is not reported: an unlisted file is not written yet, or is being purged. Order
//! is by number (I12). The only thing kept between scans is a cache of first events, taken up
//! again only for a file that was not written to since.
//!
//! **Cancellation.** [`Scanner::scan`] may be dropped at any point; at worst the cache is lost.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::dir::{IndexRead, SourceDir};
use super::errors::IndexError;
use super::signature::FileSignature;
use crate::binlog::{Peek, peek};
use crate::fault::{Fault, Operation};
use crate::segment::SegmentName;

/// A file written to less than this ago may be written to again within one tick of the kernel's
/// clock, and would not show it; its cached events are not relied on.
const SETTLED_NS: i128 = 2_000_000_000;

/// What is there under a listed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The file.
    Present {
        /// Which content of it.
        signature: FileSignature,
        /// Its first events.
        peek: Arc<Peek>,
    },
    /// Nothing: removed after the index was read, or behind the server's back.
    Missing,
    /// Something that cannot be read.
    Unreadable(Fault),
}

/// One segment that the index lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name; the number is in it.
    pub name: SegmentName,
    /// Its file.
    pub path: PathBuf,
    /// What the index lists before it.
    pub listed_after: Option<SegmentName>,
    /// What the index lists after it; `None` for the last one, which may be active.
    pub next_listed: Option<SegmentName>,
    /// What is there.
    pub found: Found,
}

impl Listed {
    /// Whether the index lists no later one.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.next_listed.is_none()
    }

    /// Its first events, when it is there.
    #[must_use]
    pub fn peek(&self) -> Option<&Peek> {
        match &self.found {
            Found::Present { peek, .. } => Some(peek),
            Found::Missing | Found::Unreadable(_) => None,
        }
    }

    /// Which content of its file was seen, when it is there.
    #[must_use]
    pub const fn signature(&self) -> Option<&FileSignature> {
        match &self.found {
            Found::Present { signature, .. } => Some(signature),
            Found::Missing | Found::Unreadable(_) => None,
        }
    }
}

/// All that the index lists at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The index.
    pub index: PathBuf,
    /// By number; after a change of `log_bin`, those of the older base first.
    pub segments: Vec<Listed>,
}

impl Scan {
    /// The segment of this name.
    #[must_use]
    pub fn get(&self, name: &SegmentName) -> Option<&Listed> {
        self.segments.iter().find(|listed| &listed.name == name)
    }

    /// Whether a server start opened what the index lists after this one; `None` when nothing is
    /// listed after it, or its first events cannot be read.
    #[must_use]
    pub fn successor_at_startup(&self, listed: &Listed) -> Option<bool> {
        self.get(listed.next_listed.as_ref()?)?.peek()?.created_at_startup
    }
}

/// Scans one binlog directory again and again.
#[derive(Debug)]
pub struct Scanner {
    dir: SourceDir,
    cache: Cache,
}

type Cache = HashMap<PathBuf, (FileSignature, Arc<Peek>)>;

impl Scanner {
    /// For this directory.
    #[must_use]
    pub fn new(dir: SourceDir) -> Self {
        Self { dir, cache: Cache::new() }
    }

    /// The directory.
    #[must_use]
    pub const fn dir(&self) -> &SourceDir {
        &self.dir
    }

    /// Reads the index, and looks at each file that it lists.
    ///
    /// # Errors
    /// When the index cannot be read. A segment that cannot is part of the answer instead.
    pub async fn scan(&mut self) -> Result<Scan, IndexError> {
        let read = self.dir.read_index().await?;
        let index = read.path.clone();
        let now = self.dir.clock().wall();
        let cache = std::mem::take(&mut self.cache);
        let dir = self.dir.clone();
        let looked = super::blocking(move || look(&dir, &read, &cache, now)).await;
        let (segments, cache) =
            looked.map_err(|source| IndexError::Unreadable { path: index.clone(), source })?;
        self.cache = cache;
        Ok(Scan { index, segments })
    }
}

fn look(dir: &SourceDir, read: &IndexRead, old: &Cache, now: Timestamp) -> (Vec<Listed>, Cache) {
    let entries = &read.index.entries;
    let mut cache = Cache::with_capacity(entries.len());
    let mut bases: HashMap<&str, usize> = HashMap::new();
    let mut keyed: Vec<(_, Listed)> = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        let path = dir.resolve(entry);
        let found = found(&path, old, now);
        if let Found::Present { signature, peek } = &found {
            cache.insert(path.clone(), (*signature, Arc::clone(peek)));
        }
        let before = at.checked_sub(1).and_then(|at| entries.get(at));
        let after = entries.get(at + 1);
        let next_base = bases.len();
        let base = *bases.entry(entry.name.base()).or_insert(next_base);
        keyed.push((
            (base, entry.name.number()),
            Listed {
                name: entry.name.clone(),
                path,
                listed_after: before.map(|entry| entry.name.clone()),
                next_listed: after.map(|entry| entry.name.clone()),
                found,
            },
        ));
    }
    keyed.sort_by_key(|(key, _)| *key);
    (keyed.into_iter().map(|(_, listed)| listed).collect(), cache)
}

fn found(path: &Path, old: &Cache, now: Timestamp) -> Found {
    match present(path, old, now) {
        Ok((signature, peek)) => Found::Present { signature, peek },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Missing,
        Err(error) => Found::Unreadable(Fault::local(Operation::ReadSource, path, &error)),
    }
}

fn present(path: &Path, old: &Cache, now: Timestamp) -> io::Result<(FileSignature, Arc<Peek>)> {
    let facts = fs::metadata(path)?;
    if !facts.is_file() {
        // Opening a pipe would wait for its writer.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let signature = FileSignature::of(&facts);
    if let Some((seen, peek)) = old.get(path)
        && *seen == signature
        && now.as_nanosecond() - i128::from(signature.mtime_ns) > SETTLED_NS
    {
        return Ok((signature, Arc::clone(peek)));
    }
    let file = File::open(path)?;
    // Of what is read, not of the path: the two can differ while a server starts over.
    let signature = FileSignature::of(&file.metadata()?);
    Ok((signature, Arc::new(peek(&file)?)))
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
