//! The head: a segment's name before its body is read.

use sha2::{Digest as _, Sha256};

use super::encrypted;
use super::event::{FLAGS_AT, HEADER_LEN, Header, kind};
use crate::segment::{Digest, Head};

/// The magic number of a plain file.
pub(super) const MAGIC: [u8; 4] = *b"\xfebin";
/// The magic number of a file that MySQL encrypted.
pub(super) const MAGIC_ENCRYPTED: [u8; 4] = *b"\xfdbin";

/// Where the ciphertext that is hashed ends.
const ENCRYPTED_END: u64 = 4096;

#[derive(Debug)]
enum State {
    /// Collecting the magic number.
    Magic,
    /// Inside the first event; how many bytes of it are still to come, once its length is known.
    First { left: Option<u64> },
    /// Inside the second event; `sure` is the hash should it turn out cut off.
    Second { sure: Sha256, left: Option<u64> },
    /// Inside an encrypted file.
    Encrypted,
    /// All bytes that count were seen.
    Done,
    /// No first event: every byte counts.
    Whole,
}

/// Computes the head of a segment that is fed front to back.
#[derive(Debug)]
pub(super) struct HeadHasher {
    state: State,
    hash: Sha256,
    offset: u64,
    header: Vec<u8>,
}

impl HeadHasher {
    pub(super) fn new() -> Self {
        let header = Vec::with_capacity(HEADER_LEN);
        Self { state: State::Magic, hash: Sha256::new(), offset: 0, header }
    }

    /// Whether the bytes fed so far decide the head.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            let before = chunk;
            chunk = match &self.state {
                State::Done | State::Whole => return,
                State::Magic => self.magic(chunk),
                State::First { .. } | State::Second { .. } => self.event(chunk),
                State::Encrypted => self.encrypted(chunk),
            };
            let taken = before.len() - chunk.len();
            self.offset += u64::try_from(taken).unwrap_or(u64::MAX);
        }
    }

    /// The head; `whole` is the SHA-256 of every byte of the file.
    pub(super) fn finish(self, whole: Digest) -> Head {
        let hash = match self.state {
            State::Done => self.hash,
            // Cut off inside the second event: the first one alone is sure.
            State::Second { sure, .. } => sure,
            State::Encrypted if self.offset > encrypted::BODY_AT => self.hash,
            State::Magic | State::First { .. } | State::Encrypted | State::Whole => {
                return Head::from_bytes(*whole.as_bytes());
            }
        };
        Head::from_bytes(hash.finalize().into())
    }

    fn magic<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = chunk.split_at(chunk.len().min(4 - self.header.len().min(4)));
        self.header.extend_from_slice(taken);
        if self.header.len() == 4 {
            if self.header == MAGIC {
                self.hash.update(MAGIC);
                self.state = State::First { left: None };
            } else if self.header == MAGIC_ENCRYPTED {
                self.state = State::Encrypted;
            } else {
                self.state = State::Whole;
            }
            self.header.clear();
        }
        rest
    }

    fn encrypted<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let edge =
            if self.offset < encrypted::BODY_AT { encrypted::BODY_AT } else { ENCRYPTED_END };
        let until_edge = usize::try_from(edge - self.offset).unwrap_or(usize::MAX);
        let (taken, rest) = chunk.split_at(chunk.len().min(until_edge));
        if edge == ENCRYPTED_END {
            self.hash.update(taken);
            if taken.len() == until_edge {
                self.state = State::Done;
            }
        }
        rest
    }

    fn event<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let left = match &mut self.state {
            State::First { left } | State::Second { left, .. } => left,
            State::Magic | State::Encrypted | State::Done | State::Whole => return chunk,
        };
        if let Some(left) = left {
            let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
            let (taken, rest) = chunk.split_at(chunk.len().min(wanted));
            self.hash.update(taken);
            *left -= u64::try_from(taken.len()).unwrap_or(*left);
            if *left == 0 {
                self.end_event();
            }
            return rest;
        }
        let missing = HEADER_LEN - self.header.len().min(HEADER_LEN);
        let (taken, rest) = chunk.split_at(chunk.len().min(missing));
        self.header.extend_from_slice(taken);
        if let Some(header) = Header::parse(&self.header) {
            self.begin_event(header);
        }
        rest
    }

    fn begin_event(&mut self, header: Header) {
        let fits = u64::from(header.length).checked_sub(19);
        match (&mut self.state, fits) {
            (State::First { left }, Some(body)) => {
                // The server clears the in-use bit on closing; the head stays.
                if let Some(flags) = self.header.get_mut(FLAGS_AT) {
                    *flags &= !1;
                }
                *left = Some(body);
            }
            (State::First { .. }, None) => {
                self.state = State::Whole;
                return;
            }
            (State::Second { left, .. }, Some(body)) if counts(header.kind) => *left = Some(body),
            (State::Second { .. }, _) => {
                self.state = State::Done;
                return;
            }
            (State::Magic | State::Encrypted | State::Done | State::Whole, _) => return,
        }
        self.hash.update(&self.header);
        self.header.clear();
        if fits == Some(0) {
            self.end_event();
        }
    }

    fn end_event(&mut self) {
        self.state = match self.state {
            State::First { .. } => State::Second { sure: self.hash.clone(), left: None },
            State::Second { .. } | State::Magic | State::Encrypted | State::Done => State::Done,
            State::Whole => State::Whole,
        };
    }
}

/// Whether a second event of this type is part of the head.
const fn counts(kind: u8) -> bool {
    matches!(kind, kind::PREVIOUS_GTIDS | kind::MARIADB_GTID_LIST | kind::MARIADB_START_ENCRYPTION)
}
