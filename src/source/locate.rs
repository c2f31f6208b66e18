//! Finds the binlog index among the files of a directory.
//!
//! **Invariants.** A relay log's index is never taken for the binlog's. Where more than one file
//! could be it, none is chosen: following the wrong one would archive nothing, in silence.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::binlog::index::{Index, IndexParseError};
use crate::binlog::is_page_format_name;
use crate::sys::{ReadError, read_limited};

/// Lines of 300 bytes for 200,000 segments; no index is longer.
pub(super) const INDEX_BYTES_MAX: u64 = 64 << 20;

/// What MySQL calls the new index before it renames it over the old one.
const CRASH_SAFE_SUFFIX: &str = ".index_crash_safe";

/// Where the low flags byte of the first event lies, and its bit for a relay log.
const FLAGS_OFFSET: usize = 21;
const RELAY_LOG_FLAG: u8 = 0x40;
const PLAIN_MAGIC: [u8; 4] = *b"\xfebin";

/// What the search came to.
#[derive(Debug)]
pub(super) enum Located {
    /// The one.
    Found(PathBuf),
    /// None at this moment.
    Absent { crash_safe: bool },
    /// The server writes its binlog into InnoDB pages; this is one of the files.
    PageFormat(PathBuf),
    /// More than one.
    Ambiguous(Vec<PathBuf>),
    /// None is sure, and this one cannot be judged as it stands.
    Undecided { path: PathBuf, why: Undecided },
}

/// Why a file that could be the index cannot be judged.
#[derive(Debug)]
pub(super) enum Undecided {
    Parse(IndexParseError),
    Read(io::Error),
}

/// Looks for the index of the binlog whose segments lie in `dir`.
pub(super) fn locate(dir: &Path) -> io::Result<Located> {
    let mut found = Vec::new();
    let mut undecided = None;
    let mut crash_safe = false;
    let mut page_format = None;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        crash_safe |= bytes.ends_with(CRASH_SAFE_SUFFIX.as_bytes());
        if name.to_str().is_some_and(is_page_format_name) {
            let path = dir.join(&name);
            page_format = page_format.max(Some((written(&path), path)));
            continue;
        }
        if !bytes.ends_with(b".index") {
            continue;
        }
        let path = dir.join(&name);
        match judge(dir, &path) {
            Judged::Binlog => found.push(path),
            Judged::Other => {}
            Judged::Undecided(why) => undecided = Some((path, why)),
        }
    }
    found.sort();
    // An index that the server touched later is that of a server that went back to files.
    if let Some((at, path)) = page_format
        && found.iter().all(|index| written(index) < at)
    {
        return Ok(Located::PageFormat(path));
    }
    Ok(match (found.pop(), undecided) {
        (Some(path), _) if found.is_empty() => Located::Found(path),
        (Some(path), _) => {
            found.push(path);
            Located::Ambiguous(found)
        }
        (None, Some((path, why))) => Located::Undecided { path, why },
        (None, None) => Located::Absent { crash_safe },
    })
}

/// When a file was last written to; nothing for one that is gone.
fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|facts| facts.modified()).ok()
}

/// Whether MySQL's replacement of this index lies there unrenamed.
pub(super) fn has_crash_safe(index: &Path) -> bool {
    let mut name = index.as_os_str().to_owned();
    name.push("_crash_safe");
    Path::new(&name).exists()
}

enum Judged {
    Binlog,
    Other,
    Undecided(Undecided),
}

fn judge(dir: &Path, path: &Path) -> Judged {
    let bytes = match read_limited(path, INDEX_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(ReadError::Io { source, .. }) => return Judged::Undecided(Undecided::Read(source)),
        // Unlinked since it was listed, or far too long to be one.
        Err(ReadError::NotFound { .. } | ReadError::TooLong { .. } | ReadError::NotText { .. }) => {
            return Judged::Other;
        }
    };
    let index = match Index::parse(&bytes) {
        Ok(index) => index,
        Err(error) => return Judged::Undecided(Undecided::Parse(error)),
    };
    // From the newest: it is the one that a purge in progress has not taken.
    for entry in index.entries.iter().rev() {
        let segment = dir.join(entry.name.as_str());
        match is_relay_log(&segment, entry.name.base()) {
            Ok(true) => return Judged::Other,
            Ok(false) => return Judged::Binlog,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Judged::Undecided(Undecided::Read(error)),
        }
    }
    Judged::Other
}

fn is_relay_log(segment: &Path, base: &str) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(segment)?.take(FLAGS_OFFSET as u64 + 1).read_to_end(&mut start)?;
    let flags = start.get(FLAGS_OFFSET).filter(|_| start.starts_with(&PLAIN_MAGIC));
    // Encryption hides the flag, and then only the name is left to tell.
    Ok(flags.map_or_else(|| base.contains("relay"), |flags| flags & RELAY_LOG_FLAG != 0))
}
