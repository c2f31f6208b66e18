//! A look at the first events of a segment: enough to name it and to judge what it follows.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::damage::Damage;
use super::facts::Kind;
use super::head::HeadHasher;
use super::verdict;
use super::walk::{State, WalkOptions, Walker};
use crate::gtid::{Flavor, Previous};
use crate::segment::{Digest, Head};

/// Bytes of the first read: what the first two events of most segments fit into.
const CHUNK: usize = 4 << 10;
/// Bytes of the reads after it, for long sets of earlier GTIDs.
const CHUNK_LATER: usize = 64 << 10;

/// What the first events of a segment tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peek {
    /// The segment's name before its body is read; the same as that of an inspection.
    pub head: Head,
    /// Whether more bytes cannot change the head: a file that is still written may have fewer than
    /// the head is over.
    pub head_is_final: bool,
    /// How many bytes were read.
    pub size_seen: u64,
    /// What the file is.
    pub kind: Kind,
    /// Whose server wrote it.
    pub flavor: Option<Flavor>,
    /// That server's version.
    pub server_version: Option<String>,
    /// Whether a server start opened it.
    pub created_at_startup: Option<bool>,
    /// The in-use flag.
    pub in_use: Option<bool>,
    /// GTIDs before this segment.
    pub previous: Option<Previous>,
    /// What is wrong with the bytes that were read.
    pub error: Option<Damage>,
}

/// Reads the first events of a segment. A file without a whole first event is read to its end,
/// because its head is over all of it.
///
/// # Errors
/// When the reader fails. What the bytes are is never an error here.
pub fn peek(mut reader: impl Read) -> io::Result<Peek> {
    let mut head = HeadHasher::new();
    let mut all = Sha256::new();
    let mut walk = Walker::new(WalkOptions::default());
    let mut chunk = vec![0; CHUNK];
    while !head.is_done() {
        match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                let bytes = chunk.get(..count).unwrap_or_default();
                head.feed(bytes);
                all.update(bytes);
                walk.feed(bytes);
                if walk.size >= CHUNK as u64 && !head.is_done() {
                    chunk.resize(CHUNK_LATER, 0);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let kind = verdict::kind_so_far(&walk);
    let error = match &walk.state {
        State::Refused(damage) => Some(damage.clone()),
        State::Magic
        | State::Header
        | State::Body(_)
        | State::Zeros
        | State::EncryptionHeader
        | State::Encrypted(_) => None,
    };
    let format = walk.scan.format;
    let head_is_final = head.is_done();
    Ok(Peek {
        head_is_final,
        head: head.finish(Digest::from_bytes(all.finalize().into())),
        size_seen: walk.size,
        kind,
        flavor: format.as_ref().map(|format| format.flavor),
        server_version: format.as_ref().map(|format| format.server_version.clone()),
        created_at_startup: format.as_ref().map(|format| format.created_at_startup),
        in_use: format.as_ref().map(|format| format.in_use),
        previous: walk.scan.previous,
        error,
    })
}
