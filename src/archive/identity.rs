//! Whether a file on disk is the segment of a manifest.
//!
//! **Invariants.** Files that differ in the in-use bit only (bit 0 at offset 21) are the same
//! segment: the server clears it after the file is final. MySQL rewrites the first 512 bytes of an
//! encrypted file when its master key is rotated, so those are compared by the rest.

use std::io::{self, Read};

use super::manifest::Manifest;
use crate::binlog::{self, Inspection};

/// Offset of the byte whose lowest bit is the in-use flag.
const IN_USE_OFFSET: u64 = 21;

/// How a file compares with a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The same segment.
    Same,
    /// Another one.
    Other,
}

/// Compares a file with a manifest: heads first, then whole contents. `open` is called once, or
/// twice when only the in-use bit may differ.
///
/// # Errors
/// When the file cannot be read.
pub fn compare<R: Read>(
    mut open: impl FnMut() -> io::Result<R>,
    manifest: &Manifest,
) -> io::Result<Comparison> {
    let facts: Inspection = binlog::inspect(open()?)?;
    if facts.head != manifest.head {
        return Ok(Comparison::Other);
    }
    if facts.digest_body.is_some() && manifest.digest_body.is_some() {
        return Ok(comparison(facts.digest_body == manifest.digest_body));
    }
    if facts.digest == manifest.digest {
        return Ok(Comparison::Same);
    }
    match manifest.in_use {
        Some(in_use) if facts.in_use != manifest.in_use => {
            let as_archived = WithInUse { inner: open()?, offset: 0, in_use };
            Ok(comparison(binlog::inspect(as_archived)?.digest == manifest.digest))
        }
        Some(_) | None => Ok(Comparison::Other),
    }
}

const fn comparison(same: bool) -> Comparison {
    if same { Comparison::Same } else { Comparison::Other }
}

/// The file with its in-use bit as it was archived.
struct WithInUse<R> {
    inner: R,
    offset: u64,
    in_use: bool,
}

impl<R: Read> Read for WithInUse<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let at = IN_USE_OFFSET.checked_sub(self.offset).and_then(|at| usize::try_from(at).ok());
        if let Some(byte) = at.filter(|at| *at < count).and_then(|at| buffer.get_mut(at)) {
            *byte = (*byte & !1) | u8::from(self.in_use);
        }
        self.offset += count as u64;
        Ok(count)
    }
}
