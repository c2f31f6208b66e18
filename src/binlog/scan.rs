//! What the events of a segment mean, one after the other.

use super::damage::{Damage, DamageCode};
use super::event::{CRC_LEN, Cursor, FLAG_ARTIFICIAL, HEADER_LEN, Header, kind as event_kind};
use super::format::{self, Format};
use super::gtid_event;
use super::query;
use super::transaction::Transactions;
use crate::gtid::{Flavor, MariadbState, MysqlSet, Previous};
use crate::segment::{Checksum, Ending};

/// Longest set of earlier GTIDs that is decoded.
const PREVIOUS_KEEP: usize = 64 << 20;
/// Bytes of a ROTATE event that hold any file name.
const ROTATE_KEEP: usize = HEADER_LEN + 8 + 512 + CRC_LEN;
/// Bytes of an INCIDENT event that hold its message.
const INCIDENT_KEEP: usize = HEADER_LEN + 2 + 1 + 255;
/// Events above this length are refused by servers.
const LENGTH_USUAL_MAX: u32 = 1 << 30;
/// Warnings that are kept as text.
const WARNINGS_MAX: usize = 20;

/// What an event's header alone decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    /// How many of its first bytes [`Scan::event`] needs.
    pub(super) keep: usize,
    /// Whether it ends in a CRC32 that can be checked here.
    pub(super) has_crc: bool,
    /// Whether its end position is where it ends.
    pub(super) in_place: bool,
}

/// Gathers meaning from events that the walk has cut out.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) format: Option<Format>,
    pub(super) encrypted_at: Option<u64>,
    pub(super) ending: Option<Ending>,
    pub(super) next_segment: Option<String>,
    pub(super) previous: Option<Previous>,
    pub(super) transactions: Transactions,
    pub(super) events: u64,
    pub(super) incidents: u64,
    pub(super) first_event_at: Option<u32>,
    pub(super) last_event_at: Option<u32>,
    pub(super) valid_up_to: u64,
    pub(super) valid_up_to_transaction: u64,
    pub(super) warnings: Vec<String>,
    warnings_left_out: u64,
    misplaced: u64,
    has_crc: bool,
}

impl Scan {
    pub(super) fn warn(&mut self, text: impl FnOnce() -> String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text());
        } else {
            self.warnings_left_out += 1;
        }
    }

    fn flavor(&self) -> Option<Flavor> {
        self.format.as_ref().map(|format| format.flavor)
    }

    fn is_relay_log(&self) -> bool {
        self.format.as_ref().is_some_and(|format| format.relay_log)
    }

    /// Judges an event that begins at `at` by its header.
    pub(super) fn admit(&mut self, at: u64, header: &Header) -> Result<Admitted, Damage> {
        let bad = |code, text: String| Err(Damage::new(code, at, text));
        if self.format.is_none() {
            match header.kind {
                event_kind::FORMAT_DESCRIPTION => {}
                event_kind::START_V3 => {
                    let text = "a binlog of a server before 5.0 (START_EVENT_V3)";
                    return bad(DamageCode::OldFormat, text.to_owned());
                }
                other => {
                    let text = format!("the first event has type {other}, not 15");
                    return bad(DamageCode::NoFormatDescription, text);
                }
            }
        }
        let encrypted = self.encrypted_at.is_some();
        let describes = header.kind == event_kind::FORMAT_DESCRIPTION && !encrypted;
        let has_crc = self.has_crc && !describes;
        let (least, most) = match (describes, has_crc) {
            (true, _) => (format::LEN_MIN, format::LEN_MAX),
            (false, true) => (23, u32::MAX),
            (false, false) => (19, u32::MAX),
        };
        if header.length < least || header.length > most {
            let text = format!("event of type {} has length {}", header.kind, header.length);
            return bad(DamageCode::BadLength, text);
        }
        if header.length > LENGTH_USUAL_MAX {
            let length = header.length;
            self.warn(|| format!("event of {length} bytes at offset {at}: more than 1 GiB"));
        }
        let in_place = encrypted || self.in_place(at, header);
        // Of an encrypted event the length alone is readable.
        Ok(Admitted { keep: self.keep(header), has_crc: has_crc && !encrypted, in_place })
    }

    /// Whether the end position, which wraps at 4 GiB, is where the event ends.
    fn in_place(&mut self, at: u64, header: &Header) -> bool {
        let end = at.wrapping_add(u64::from(header.length));
        if end & 0xffff_ffff == u64::from(header.end_position) {
            return true;
        }
        // MariaDB from 11.4 on leaves it out inside a transaction.
        let left_out = header.end_position == 0
            && (self.flavor() == Some(Flavor::Mariadb) || header.flags & FLAG_ARTIFICIAL != 0);
        if left_out {
            return true;
        }
        if self.is_relay_log() {
            self.misplaced += 1;
            return true;
        }
        false
    }

    fn keep(&self, header: &Header) -> usize {
        let wanted = if self.encrypted_at.is_some() {
            HEADER_LEN
        } else {
            match header.kind {
                event_kind::FORMAT_DESCRIPTION => usize::MAX,
                event_kind::PREVIOUS_GTIDS | event_kind::MARIADB_GTID_LIST if self.events == 1 => {
                    PREVIOUS_KEEP
                }
                event_kind::GTID
                | event_kind::ANONYMOUS_GTID
                | event_kind::GTID_TAGGED
                | event_kind::MARIADB_GTID => HEADER_LEN + gtid_event::BODY_KEEP,
                event_kind::QUERY => HEADER_LEN + query::BODY_KEEP,
                event_kind::ROTATE => ROTATE_KEEP,
                event_kind::INCIDENT => INCIDENT_KEEP,
                _ => HEADER_LEN,
            }
        };
        wanted.min(usize::try_from(header.length).unwrap_or(usize::MAX))
    }

    /// Takes in a whole event whose framing and CRC32 hold. `kept` is the event from its header
    /// on, or as much of it as [`Admitted::keep`].
    pub(super) fn event(&mut self, at: u64, header: &Header, kept: &[u8]) -> Result<(), Damage> {
        let end = at.saturating_add(u64::from(header.length));
        if self.encrypted_at.is_some() {
            self.events += 1;
            self.valid_up_to = end;
            return Ok(());
        }
        if self.ending.take().is_some() {
            self.next_segment = None;
            self.warn(|| format!("events go on after ROTATE or STOP at offset {at}"));
        }
        let trailer = if self.has_crc { CRC_LEN } else { 0 };
        let body_end = usize::try_from(header.length).unwrap_or(usize::MAX) - trailer;
        let body = kept.get(HEADER_LEN..body_end.min(kept.len())).unwrap_or_default();
        let bad = |code, text: &str| Damage::new(code, at, text);
        match header.kind {
            event_kind::FORMAT_DESCRIPTION => self.describe(at, kept)?,
            event_kind::PREVIOUS_GTIDS | event_kind::MARIADB_GTID_LIST => {
                let whole = kept.len() >= body_end;
                self.previous(at, header, whole.then_some(body))?;
            }
            event_kind::GTID
            | event_kind::ANONYMOUS_GTID
            | event_kind::GTID_TAGGED
            | event_kind::MARIADB_GTID => {
                let opening = gtid_event::read(header, body)
                    .map_err(|text| bad(DamageCode::BadGtid, text))?;
                self.transactions.begin(opening);
            }
            event_kind::ROTATE if header.flags & FLAG_ARTIFICIAL == 0 => {
                self.transactions.cut_short();
                self.ending = Some(Ending::Rotate);
                self.next_segment = next_name(body);
            }
            event_kind::STOP => {
                self.transactions.cut_short();
                self.ending = Some(Ending::Stop);
            }
            event_kind::MARIADB_START_ENCRYPTION => self.encrypted_at = Some(at),
            event_kind::INCIDENT => {
                self.incidents += 1;
                let message = incident(body);
                self.warn(|| format!("incident at offset {at}: changes may be lost ({message})"));
                self.transactions.event(header, body);
            }
            _ => self.transactions.event(header, body),
        }
        self.events += 1;
        if header.timestamp != 0 {
            self.first_event_at.get_or_insert(header.timestamp);
            self.last_event_at = Some(header.timestamp);
        }
        self.valid_up_to = end;
        if !self.transactions.is_open() && !Transactions::leads_in(header.kind) {
            self.valid_up_to_transaction = end;
        }
        Ok(())
    }

    fn describe(&mut self, at: u64, event: &[u8]) -> Result<(), Damage> {
        let format = format::read(event).map_err(|(code, text)| Damage::new(code, at, text))?;
        if format.unchecked_crc_wrong {
            self.warn(|| format!("the format description at offset {at} has a wrong CRC32"));
        }
        self.has_crc = format.checksum == Checksum::Crc32;
        match &self.format {
            None => self.format = Some(format),
            // A relay log has the master's description after its own.
            Some(first) if first.relay_log => {}
            Some(_) => self.warn(|| format!("another format description at offset {at}")),
        }
        Ok(())
    }

    fn previous(&mut self, at: u64, header: &Header, body: Option<&[u8]>) -> Result<(), Damage> {
        if self.events != 1 {
            if !self.is_relay_log() {
                self.warn(|| format!("a set of earlier GTIDs at offset {at}, not second"));
            }
            return Ok(());
        }
        let Some(body) = body else {
            let length = header.length;
            self.warn(|| format!("earlier GTIDs not read: an event of {length} bytes"));
            return Ok(());
        };
        let read = if header.kind == event_kind::MARIADB_GTID_LIST {
            MariadbState::from_binary(body).map(Previous::Mariadb)
        } else {
            // The top byte of the first number is the format; later servers may write others.
            if let Some(newer) = body.get(7).filter(|format| **format > 1) {
                self.warn(|| format!("earlier GTIDs not read: format {newer} is not known"));
                return Ok(());
            }
            MysqlSet::from_binary(body).map(Previous::Mysql)
        };
        let previous = read.map_err(|error| {
            let text = format!("the set of earlier GTIDs does not decode: {error}");
            Damage::new(DamageCode::BadPreviousGtids, at, text)
        })?;
        if Some(previous.flavor()) == self.flavor() {
            self.previous = Some(previous);
        } else {
            self.warn(|| format!("earlier GTIDs of another flavor at offset {at}"));
        }
        Ok(())
    }

    /// The warnings, closed with what was only counted.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        if self.misplaced > 0 {
            warnings.push(format!("{} events with another log's positions", self.misplaced));
        }
        if self.transactions.unfinished > 0 {
            let count = self.transactions.unfinished;
            warnings.push(format!("{count} transactions began and were never ended"));
        }
        if self.warnings_left_out > 0 {
            warnings.push(format!("and {} more warnings", self.warnings_left_out));
        }
        warnings
    }
}

/// The base name in a ROTATE event.
fn next_name(body: &[u8]) -> Option<String> {
    let name = body.get(8..)?;
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    (!base.is_empty()).then(|| String::from_utf8_lossy(base).into_owned())
}

/// Number and message of an INCIDENT event, escaped.
fn incident(body: &[u8]) -> String {
    let mut cursor = Cursor(body);
    let number = cursor.u16().unwrap_or(0);
    let length = cursor.u8().unwrap_or(0);
    let text = cursor.take(usize::from(length).min(cursor.0.len())).unwrap_or_default();
    format!("{number}: {:?}", String::from_utf8_lossy(text))
}
