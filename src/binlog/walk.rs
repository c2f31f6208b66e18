//! Cuts a stream of bytes into events and checks each of them, whatever the size of the chunks.

use super::damage::{Damage, DamageCode};
use super::encrypted;
use super::event::{CRC_LEN, HEADER_LEN, Header, kind as event_kind};
use super::facts::Facts;
use super::format;
use super::head::{MAGIC, MAGIC_ENCRYPTED};
use super::scan::{Admitted, Scan};

/// MariaDB's magic number of pages, and that of a plain file after a conversion to UTF-8.
pub(super) const MAGIC_PAGES: [u8; 4] = [0xfe, 0xfe, 0x0d, 0x01];
const MAGIC_CONVERTED: [u8; 4] = [0xef, 0xbf, 0xbd, b'b'];

/// How a walk is to be done. Nothing to choose yet.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct WalkOptions {}

/// Walks over a segment that is fed front to back.
#[derive(Debug)]
pub struct Walker {
    /// Bytes fed.
    pub(super) size: u64,
    /// Where the event begins that is next or in hand.
    pub(super) at: u64,
    pub(super) state: State,
    /// The first bytes of what is in hand, while it is spread over chunks.
    pub(super) held: Vec<u8>,
    pub(super) scan: Scan,
}

/// What the next byte belongs to.
#[derive(Debug)]
pub(super) enum State {
    Magic,
    Header,
    Body(Body),
    /// Zeros since the last event.
    Zeros,
    EncryptionHeader,
    /// Nothing more to learn: the reason.
    Refused(Damage),
    Encrypted(encrypted::EncryptionHeader),
}

/// An event that is spread over chunks.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) header: Header,
    pub(super) admitted: Admitted,
    /// Bytes to come, the CRC32 included.
    left: usize,
    crc: crc32fast::Hasher,
    stored: [u8; CRC_LEN],
}

impl Walker {
    /// A walk that has seen nothing yet.
    #[must_use]
    pub fn new(options: WalkOptions) -> Self {
        let WalkOptions {} = options;
        Self { size: 0, at: 0, state: State::Magic, held: Vec::new(), scan: Scan::default() }
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        self.size = self.size.saturating_add(chunk.len() as u64);
        // Every turn takes at least one byte off the chunk, or changes to a state that does.
        while !chunk.is_empty() {
            chunk = match &mut self.state {
                State::Header => self.header(chunk),
                State::Body(_) => self.body(chunk),
                State::Magic => self.magic(chunk),
                State::EncryptionHeader => self.encryption_header(chunk),
                State::Zeros => {
                    if chunk.iter().any(|byte| *byte != 0) {
                        self.zero_hole();
                    }
                    return;
                }
                State::Refused(_) | State::Encrypted(_) => return,
            };
        }
    }

    /// The facts, after the last byte.
    #[must_use]
    pub fn finish(self) -> Facts {
        super::verdict::judge(self)
    }

    /// Whether MySQL encrypted the file, by its magic number.
    pub(super) fn is_mysql_encrypted(&self) -> bool {
        match &self.state {
            State::EncryptionHeader | State::Encrypted(_) => true,
            State::Refused(damage) => damage.code == DamageCode::BadEncryptionHeader,
            State::Magic | State::Header | State::Body(_) | State::Zeros => false,
        }
    }

    fn magic<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let rest = self.hold(chunk, MAGIC.len());
        if let Some(magic) = self.held.first_chunk::<4>() {
            let bad = |code, text: &str| State::Refused(Damage::new(code, 0, text));
            self.state = match *magic {
                MAGIC => State::Header,
                MAGIC_ENCRYPTED => State::EncryptionHeader,
                MAGIC_PAGES => bad(
                    DamageCode::InnodbPages,
                    "MariaDB's binlog in InnoDB pages, not a file of events",
                ),
                MAGIC_CONVERTED => bad(
                    DamageCode::TextConverted,
                    "a binlog that went through a conversion to UTF-8",
                ),
                _ => bad(DamageCode::BadMagic, "the magic number is not that of a binlog"),
            };
            if matches!(self.state, State::Header) {
                self.held.clear();
                self.at = 4;
                self.scan.valid_up_to = 4;
                self.scan.valid_up_to_transaction = 4;
            }
        }
        rest
    }

    /// Holds bytes until there are `wanted`; returns what is left of the chunk.
    fn hold<'a>(&mut self, chunk: &'a [u8], wanted: usize) -> &'a [u8] {
        let missing = wanted.saturating_sub(self.held.len());
        let (taken, rest) = chunk.split_at(chunk.len().min(missing));
        self.held.extend_from_slice(taken);
        rest
    }

    fn encryption_header<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let rest = self.hold(chunk, encrypted::LEN);
        if self.held.len() == encrypted::LEN {
            self.state = match encrypted::read(&self.held) {
                Ok(header) => State::Encrypted(header),
                Err((code, text)) => State::Refused(Damage::new(code, 0, text)),
            };
        }
        rest
    }

    fn header<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let whole = if self.held.is_empty() { Header::parse(chunk) } else { None };
        let Some(header) = whole else {
            let rest = self.hold(chunk, HEADER_LEN);
            if let Some(header) = Header::parse(&self.held) {
                match self.admit(&header) {
                    Ok(admitted) => self.begin_body(header, admitted),
                    Err(state) => self.state = state,
                }
            }
            return rest;
        };
        let admitted = match self.admit(&header) {
            Ok(admitted) => admitted,
            Err(state) => {
                self.state = state;
                return chunk;
            }
        };
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let Some((event, rest)) = chunk.split_at_checked(length) else {
            let rest = self.hold(chunk, HEADER_LEN);
            self.begin_body(header, admitted);
            return rest;
        };
        // The usual way: nothing is copied.
        let crc_holds = holds(&header, admitted, event, || crc_holds(event));
        let done = self
            .intact(&header, admitted, crc_holds)
            .and_then(|()| self.scan.event(self.at, &header, event));
        self.end_event(&header, done);
        rest
    }

    fn admit(&mut self, header: &Header) -> Result<Admitted, State> {
        if header.is_zero() {
            return Err(State::Zeros);
        }
        self.scan.admit(self.at, header).map_err(|damage| self.refused(damage))
    }

    /// The header is in `held`, and `held` is to grow to what the decoder needs.
    fn begin_body(&mut self, header: Header, admitted: Admitted) {
        let left = usize::try_from(header.length).unwrap_or(usize::MAX) - HEADER_LEN;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.held);
        let body = Body { header, admitted, left, crc, stored: [0; CRC_LEN] };
        self.state = State::Body(body);
        if left == 0 {
            self.end_body();
        }
    }

    fn body<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let State::Body(body) = &mut self.state else {
            return chunk;
        };
        let (taken, rest) = chunk.split_at(chunk.len().min(body.left));
        let wanted = body.admitted.keep.saturating_sub(self.held.len());
        self.held.extend_from_slice(taken.get(..wanted.min(taken.len())).unwrap_or_default());
        if body.admitted.has_crc {
            let covered = body.left.saturating_sub(CRC_LEN).min(taken.len());
            let (covered, trailer) = taken.split_at(covered);
            body.crc.update(covered);
            for byte in trailer {
                body.stored.rotate_left(1);
                if let Some(last) = body.stored.last_mut() {
                    *last = *byte;
                }
            }
        }
        body.left -= taken.len();
        if body.left == 0 {
            self.end_body();
        }
        rest
    }

    fn end_body(&mut self) {
        let State::Body(body) = std::mem::replace(&mut self.state, State::Header) else {
            return;
        };
        let Body { header, admitted, left: _, crc, stored } = body;
        let streamed = || crc.finalize() == u32::from_le_bytes(stored);
        let crc_holds = holds(&header, admitted, &self.held, streamed);
        let done = self
            .intact(&header, admitted, crc_holds)
            .and_then(|()| self.scan.event(self.at, &header, &self.held));
        self.held.clear();
        self.held.shrink_to(HELD_KEPT);
        self.end_event(&header, done);
    }

    /// Whether the event is whole and at its place.
    fn intact(&self, header: &Header, admitted: Admitted, crc_holds: bool) -> Result<(), Damage> {
        let (code, text) = match (crc_holds, admitted.in_place) {
            (true, true) => return Ok(()),
            (false, true) => (DamageCode::CrcMismatch, "does not match its CRC32"),
            (false, false) => {
                (DamageCode::LengthMismatch, "matches neither its CRC32 nor its end position")
            }
            (true, false) => (DamageCode::PositionMismatch, "belongs at another offset"),
        };
        let Header { kind, length, end_position, .. } = header;
        let text =
            format!("event of type {kind}, {length} bytes, end position {end_position}, {text}");
        Err(Damage::new(code, self.at, text))
    }

    fn end_event(&mut self, header: &Header, done: Result<(), Damage>) {
        match done {
            Ok(()) => self.at = self.at.saturating_add(u64::from(header.length)),
            Err(damage) => self.state = self.refused(damage),
        }
    }

    fn zero_hole(&mut self) {
        let text = "zeros in place of an event, and other bytes after them";
        self.state = self.refused(Damage::new(DamageCode::ZeroHole, self.at, text));
    }

    /// The state after damage. Whatever follows the end of a segment is one kind of damage.
    fn refused(&self, damage: Damage) -> State {
        let damage = match self.scan.ending {
            None => damage,
            Some(_) => {
                let text = format!("bytes after the end of the segment: {}", damage.message);
                Damage::new(DamageCode::TrailingData, damage.offset, text)
            }
        };
        State::Refused(damage)
    }
}

/// Memory that is kept from one event that is spread over chunks to the next.
const HELD_KEPT: usize = 128 << 10;

/// Whether the CRC32 of an event holds, where it has one. A format description has rules of its own,
/// and is looked at here only to tell what is wrong with one that is out of place.
fn holds(
    header: &Header,
    admitted: Admitted,
    event: &[u8],
    crc_holds: impl FnOnce() -> bool,
) -> bool {
    if header.kind == event_kind::FORMAT_DESCRIPTION && !admitted.in_place {
        format::own_crc_holds(event)
    } else {
        !admitted.has_crc || crc_holds()
    }
}

fn crc_holds(event: &[u8]) -> bool {
    event
        .split_last_chunk::<CRC_LEN>()
        .is_some_and(|(covered, stored)| crc32fast::hash(covered) == u32::from_le_bytes(*stored))
}
