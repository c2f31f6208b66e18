//! The judgement over a file, once its last byte was seen.

use super::damage::{Damage, DamageCode};
use super::event::{Header, kind as event_kind};
use super::facts::{Facts, Kind, Verdict};
use super::head::{MAGIC, MAGIC_ENCRYPTED};
use super::walk::{MAGIC_PAGES, State, Walker};
use crate::segment::{Coverage, Ending};

/// What the end of the file means.
struct End {
    verdict: Verdict,
    error: Option<Damage>,
}

impl End {
    fn new(verdict: Verdict, code: DamageCode, offset: u64, text: impl Into<String>) -> Self {
        Self { verdict, error: Some(Damage::new(code, offset, text)) }
    }
}

/// Makes the facts of a finished walk.
pub(super) fn judge(mut walk: Walker) -> Facts {
    let mut end = end(&walk);
    let kind = kind(&walk, &end);
    if kind == Kind::RelayLog {
        let text = "a replica's relay log; archive the source's binlog";
        end = End::new(Verdict::NotABinlog, DamageCode::RelayLog, 4, text);
    }
    let warnings = walk.scan.take_warnings();
    let scan = walk.scan;
    let hidden = matches!(kind, Kind::MysqlEncrypted { .. } | Kind::MariadbEncrypted);
    let damaged = matches!(end.verdict, Verdict::Damaged | Verdict::NotABinlog);
    let known = scan.format.is_some() && !hidden;
    let flavor = scan.format.as_ref().map(|format| format.flavor);
    let (transactions, anonymous) = (scan.transactions.whole, scan.transactions.anonymous);
    let unfinished = scan.transactions.unfinished + u64::from(scan.transactions.is_open() && known);
    let committed_at = scan.transactions.committed_at;
    let added = flavor.filter(|_| known).and_then(|flavor| scan.transactions.added(flavor));
    let (added, added_before_damage) = if damaged { (None, added) } else { (added, None) };
    let coverage = Coverage {
        previous: scan.previous,
        added,
        anonymous_transactions: anonymous,
        readable: known && !damaged,
    };
    let ending = if known && !damaged { Some(scan.ending.unwrap_or(Ending::None)) } else { None };
    let format = scan.format;
    Facts {
        size: walk.size,
        kind,
        flavor,
        server_version: format.as_ref().map(|format| format.server_version.clone()),
        checksum: format.as_ref().map(|format| format.checksum),
        created_at_startup: format.as_ref().map(|format| format.created_at_startup),
        in_use: format.as_ref().map(|format| format.in_use),
        ending,
        next_segment: scan.next_segment.filter(|_| ending == Some(Ending::Rotate)),
        coverage,
        added_before_damage,
        transactions: known.then_some(transactions),
        unfinished_transactions: unfinished,
        events: scan.events,
        incidents: scan.incidents,
        first_event_at: scan.first_event_at,
        last_event_at: scan.last_event_at,
        last_commit_at: (committed_at > 0).then_some(committed_at),
        verdict: end.verdict,
        error: end.error,
        valid_up_to: scan.valid_up_to,
        valid_up_to_transaction: scan.valid_up_to_transaction,
        warnings,
    }
}

pub(super) fn kind_so_far(walk: &Walker) -> Kind {
    kind(walk, &end(walk))
}

fn kind(walk: &Walker, end: &End) -> Kind {
    if let State::Encrypted(header) = &walk.state {
        return Kind::MysqlEncrypted {
            key_id: Some(header.key_id.clone()),
            server_uuid: header.server_uuid.clone(),
        };
    }
    if let Some(format) = &walk.scan.format {
        return if format.relay_log {
            Kind::RelayLog
        } else if walk.scan.encrypted_at.is_some() {
            Kind::MariadbEncrypted
        } else {
            Kind::Plain
        };
    }
    match end.error.as_ref().map(|damage| damage.code) {
        Some(DamageCode::InnodbPages) => Kind::InnodbPages,
        Some(code) if is_of_encryption_header(code) => {
            Kind::MysqlEncrypted { key_id: None, server_uuid: None }
        }
        Some(code) if is_of_another_format(code) => Kind::NotABinlog,
        Some(_) | None if end.verdict == Verdict::Unclosed => Kind::Torn,
        Some(_) | None => Kind::Plain,
    }
}

fn is_of_encryption_header(code: DamageCode) -> bool {
    matches!(code, DamageCode::TornEncryptionHeader | DamageCode::BadEncryptionHeader)
}

/// Whether this code says that the file is no binlog of a kind that is archived.
fn is_of_another_format(code: DamageCode) -> bool {
    matches!(
        code,
        DamageCode::BadMagic
            | DamageCode::TextConverted
            | DamageCode::InnodbPages
            | DamageCode::OldFormat
            | DamageCode::UnsupportedVersion
            | DamageCode::UnsupportedHeaderLength
    )
}

fn end(walk: &Walker) -> End {
    let at = walk.at;
    match &walk.state {
        State::Refused(damage) => {
            let foreign = is_of_another_format(damage.code);
            let verdict = if foreign { Verdict::NotABinlog } else { Verdict::Damaged };
            End { verdict, error: Some(damage.clone()) }
        }
        State::Encrypted(header) => {
            let text = format!("encrypted by MySQL with key {:?}", header.key_id);
            End::new(Verdict::Encrypted, DamageCode::MysqlEncrypted, 0, text)
        }
        State::EncryptionHeader => {
            let text = format!("{} of the 512 bytes of an encryption header", walk.held.len());
            End::new(Verdict::Unclosed, DamageCode::TornEncryptionHeader, 0, text)
        }
        State::Magic => torn_magic(&walk.held),
        State::Zeros => zeros(walk),
        State::Header if walk.held.is_empty() => boundary(walk),
        State::Header if walk.held.iter().all(|byte| *byte == 0) => zeros(walk),
        State::Header => {
            let text = format!("{} of the 19 bytes of an event header", walk.held.len());
            torn(walk, DamageCode::TornHeader, text, walk.held.get(4).copied())
        }
        State::Body(body) => {
            let Header { kind, length, .. } = body.header;
            let there = walk.size.saturating_sub(at);
            let text = format!("{there} of the {length} bytes of an event of type {kind}");
            if body.admitted.in_place {
                torn(walk, DamageCode::TornEvent, text, Some(kind))
            } else {
                let text = format!("{text}, whose end position disagrees");
                trailing_or(walk, DamageCode::LengthMismatch, text)
            }
        }
    }
}

fn torn_magic(held: &[u8]) -> End {
    let begins = [MAGIC, MAGIC_ENCRYPTED, MAGIC_PAGES].iter().any(|magic| magic.starts_with(held));
    let count = held.len();
    if count == 0 {
        End::new(Verdict::Unclosed, DamageCode::Empty, 0, "no byte at all")
    } else if begins {
        let text = format!("{count} of the 4 bytes of the magic number");
        End::new(Verdict::Unclosed, DamageCode::TornMagic, 0, text)
    } else {
        let text = "the magic number is not that of a binlog";
        End::new(Verdict::NotABinlog, DamageCode::BadMagic, 0, text)
    }
}

/// The file ends inside something.
fn torn(walk: &Walker, code: DamageCode, text: String, kind: Option<u8>) -> End {
    let at = walk.at;
    let Some(format) = &walk.scan.format else {
        let describes = kind.is_none_or(|kind| kind == event_kind::FORMAT_DESCRIPTION);
        return if describes {
            End::new(Verdict::Unclosed, DamageCode::TornFormatDescription, at, text)
        } else {
            End::new(Verdict::Damaged, DamageCode::NoFormatDescription, at, text)
        };
    };
    // What a server was writing when it died; MariaDB leaves it so for ever.
    if format.in_use && walk.scan.ending.is_none() {
        return if walk.scan.encrypted_at.is_some() {
            mariadb_encrypted(walk)
        } else {
            End::new(Verdict::Unclosed, code, at, text)
        };
    }
    trailing_or(walk, code, text)
}

fn zeros(walk: &Walker) -> End {
    let at = walk.at;
    let count = walk.size.saturating_sub(at);
    let text = format!("{count} zero bytes from here to the end of the file");
    if walk.scan.ending.is_some() {
        return End::new(Verdict::Damaged, DamageCode::TrailingZeros, at, text);
    }
    let in_use = walk.scan.format.as_ref().is_some_and(|format| format.in_use);
    if in_use && walk.scan.encrypted_at.is_some() {
        return mariadb_encrypted(walk);
    }
    let unclosed = in_use || walk.scan.format.is_none();
    let verdict = if unclosed { Verdict::Unclosed } else { Verdict::Damaged };
    End::new(verdict, DamageCode::ZeroTail, at, text)
}

fn trailing_or(walk: &Walker, code: DamageCode, text: String) -> End {
    let code = if walk.scan.ending.is_some() { DamageCode::TrailingData } else { code };
    End::new(Verdict::Damaged, code, walk.at, text)
}

fn mariadb_encrypted(walk: &Walker) -> End {
    let at = walk.scan.encrypted_at.unwrap_or(walk.at);
    End::new(
        Verdict::Encrypted,
        DamageCode::MariadbEncrypted,
        at,
        "encrypted by MariaDB from here on",
    )
}

/// The file ends where an event ends.
fn boundary(walk: &Walker) -> End {
    let scan = &walk.scan;
    let at = walk.at;
    let Some(format) = &scan.format else {
        let text = "the magic number and nothing else";
        return End::new(Verdict::Unclosed, DamageCode::MagicOnly, at, text);
    };
    if scan.encrypted_at.is_some() {
        return mariadb_encrypted(walk);
    }
    let unclosed = |code, offset, text: &str| End::new(Verdict::Unclosed, code, offset, text);
    if scan.ending.is_some() {
        return if format.in_use {
            unclosed(DamageCode::InUse, 21, "the in-use flag is set, though ROTATE or STOP ends it")
        } else {
            End { verdict: Verdict::Sound, error: None }
        };
    }
    if scan.events == 1 {
        return unclosed(DamageCode::FormatDescriptionOnly, at, "no event after the first");
    }
    if scan.valid_up_to_transaction < scan.valid_up_to {
        let from = scan.valid_up_to_transaction;
        return unclosed(DamageCode::OpenTransaction, from, "this transaction is not whole");
    }
    unclosed(DamageCode::NoRotateOrStop, at, "no ROTATE or STOP ends it")
}
