//! Tests of the table of when a segment is final.

use super::*;
use crate::binlog::DamageCode;

const SHORT: Patience = Patience { waited: Duration::from_secs(1), limit: Duration::from_secs(30) };
const OVER: Patience = Patience { waited: Duration::from_secs(30), limit: Duration::from_secs(30) };

fn damage(code: DamageCode) -> Damage {
    Damage { code, offset: 4, message: "what was seen".into() }
}

fn facts(verdict: Verdict, ending: Option<Ending>, in_use: Option<bool>) -> SealFacts {
    let error = match verdict {
        Verdict::Sound => None,
        Verdict::Unclosed => Some(damage(DamageCode::NoRotateOrStop)),
        Verdict::Damaged => Some(damage(DamageCode::CrcMismatch)),
        Verdict::Encrypted => Some(damage(DamageCode::MariadbEncrypted)),
        Verdict::NotABinlog => Some(damage(DamageCode::BadMagic)),
    };
    let kind = match verdict {
        Verdict::Sound | Verdict::Unclosed | Verdict::Damaged => Kind::Plain,
        Verdict::Encrypted => Kind::MariadbEncrypted,
        Verdict::NotABinlog => Kind::NotABinlog,
    };
    SealFacts { verdict, kind, ending, in_use, size: 1000, is_left_by_restart: false, error }
}

fn left_by_restart(facts: SealFacts) -> SealFacts {
    SealFacts { is_left_by_restart: true, ..facts }
}

/// The judgement as one word for a table.
fn word(position: Position, facts: &SealFacts, patience: Patience) -> String {
    match judge(position, facts, EncryptedPolicy::Opaque, patience) {
        SealVerdict::Closed(sealed) => format!("closed:{sealed:?}"),
        SealVerdict::Closing(waiting) => format!("closing:{waiting:?}"),
        SealVerdict::Active => "active".into(),
        SealVerdict::Damaged(SealDamage::Bytes(_)) => "damaged:bytes".into(),
        SealVerdict::Damaged(SealDamage::NoEnd { .. }) => "damaged:no-end".into(),
        SealVerdict::Damaged(SealDamage::NotOfRestart { .. }) => "damaged:not-of-restart".into(),
        SealVerdict::Damaged(SealDamage::SuccessorUnknown { .. }) => "damaged:unknown".into(),
        SealVerdict::Refused(refusal) => format!("refused:{refusal:?}"),
    }
}

#[test]
fn the_whole_table() {
    use Ending::{None as NoEnd, Rotate, Stop};
    use Verdict::{Damaged, Encrypted, NotABinlog, Sound, Unclosed};
    let closed = facts(Sound, Some(Rotate), Some(false));
    let stopped = facts(Sound, Some(Stop), Some(false));
    let rotated_in_use = facts(Unclosed, Some(Rotate), Some(true));
    let stopped_in_use = facts(Unclosed, Some(Stop), Some(true));
    let tail = left_by_restart(facts(Unclosed, Some(NoEnd), Some(false)));
    let not_tail = facts(Unclosed, Some(NoEnd), Some(true));
    let mut torn = left_by_restart(facts(Unclosed, None, None));
    (torn.kind, torn.size) = (Kind::Torn, 60);
    let mut zeros = facts(NotABinlog, None, None);
    zeros.size = 4;
    let damaged = facts(Damaged, None, Some(false));
    let foreign = facts(NotABinlog, None, None);
    let mut mysql_encrypted = facts(Encrypted, None, None);
    mysql_encrypted.kind = Kind::MysqlEncrypted { key_id: None, server_uuid: None };
    let mut torn_encrypted = left_by_restart(facts(Unclosed, None, None));
    torn_encrypted.kind = mysql_encrypted.kind.clone();
    let mariadb_encrypted = facts(Encrypted, None, Some(false));
    let mariadb_encrypted_open = left_by_restart(facts(Encrypted, None, Some(true)));
    let mut pages = foreign.clone();
    pages.kind = Kind::InnodbPages;

    let (startup, rotation) = (Successor::AtStartup, Successor::ByRotation);
    let unknown = Successor::Unknown;
    // facts, last, then with a later one: by start, by rotation, unknown, unknown for too long,
    // and last of a dead server.
    let table: &[(&str, &SealFacts, [&str; 6])] = &[
        (
            "rotated",
            &closed,
            [
                "active",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "stopped",
            &stopped,
            [
                "closed:Stop",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Stop",
            ],
        ),
        (
            "rotated, in use",
            &rotated_in_use,
            [
                "active",
                "closing:InUseFlag",
                "closing:InUseFlag",
                "closing:InUseFlag",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "stopped, in use",
            &stopped_in_use,
            [
                "active",
                "closing:InUseFlag",
                "closing:InUseFlag",
                "closing:InUseFlag",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "crash tail",
            &tail,
            [
                "active",
                "closed:CrashTail",
                "damaged:no-end",
                "closing:Successor",
                "damaged:unknown",
                "closed:Final",
            ],
        ),
        (
            "no end, not of a restart",
            &not_tail,
            [
                "active",
                "damaged:not-of-restart",
                "damaged:no-end",
                "closing:Successor",
                "damaged:unknown",
                "closed:Final",
            ],
        ),
        (
            "torn first event",
            &torn,
            [
                "active",
                "closed:CrashTail",
                "damaged:no-end",
                "closing:Successor",
                "damaged:unknown",
                "closed:Final",
            ],
        ),
        (
            "four zeros",
            &zeros,
            [
                "active",
                "closed:CrashTail",
                "damaged:no-end",
                "closing:Successor",
                "damaged:unknown",
                "closed:Final",
            ],
        ),
        (
            "damaged",
            &damaged,
            [
                "active",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
            ],
        ),
        (
            "foreign",
            &foreign,
            [
                "active",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
                "damaged:bytes",
            ],
        ),
        (
            "MySQL-encrypted",
            &mysql_encrypted,
            [
                "active",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "MySQL-encrypted, torn header",
            &torn_encrypted,
            [
                "active",
                "closed:CrashTail",
                "closed:CrashTail",
                "closed:CrashTail",
                "closed:CrashTail",
                "closed:Final",
            ],
        ),
        (
            "MariaDB-encrypted",
            &mariadb_encrypted,
            [
                "active",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "MariaDB-encrypted, in use",
            &mariadb_encrypted_open,
            [
                "active",
                "closed:CrashTail",
                "closing:InUseFlag",
                "closing:InUseFlag",
                "closed:Closed",
                "closed:Final",
            ],
        ),
        (
            "pages",
            &pages,
            [
                "active",
                "refused:PageFormat",
                "refused:PageFormat",
                "refused:PageFormat",
                "refused:PageFormat",
                "refused:PageFormat",
            ],
        ),
    ];
    for (name, facts, expected) in table {
        let seen = [
            word(Position::Last, facts, SHORT),
            word(Position::Earlier(startup), facts, SHORT),
            word(Position::Earlier(rotation), facts, SHORT),
            word(Position::Earlier(unknown), facts, SHORT),
            word(Position::Earlier(unknown), facts, OVER),
            word(Position::LastOfDeadServer, facts, SHORT),
        ];
        assert_eq!(&seen, expected, "{name}");
        // Waiting longer never makes the last one of a live server final.
        assert_eq!(word(Position::Last, facts, OVER), expected[0], "{name}");
    }
}

#[test]
fn policy_refuses_encrypted_segments_once_they_are_final() {
    let encrypted = facts(Verdict::Encrypted, None, Some(false));
    for position in [Position::Earlier(Successor::AtStartup), Position::LastOfDeadServer] {
        let verdict = judge(position, &encrypted, EncryptedPolicy::Refuse, OVER);
        assert_eq!(verdict, SealVerdict::Refused(Refusal::Encrypted));
    }
    let verdict = judge(Position::Last, &encrypted, EncryptedPolicy::Refuse, OVER);
    assert_eq!(verdict, SealVerdict::Active);
}

#[test]
fn damage_says_what_was_seen() {
    let tail = facts(Verdict::Unclosed, Some(Ending::None), Some(false));
    let verdict =
        judge(Position::Earlier(Successor::ByRotation), &tail, EncryptedPolicy::Refuse, SHORT);
    let SealVerdict::Damaged(damage) = verdict else { panic!("{verdict:?}") };
    let text = damage.to_string();
    assert!(text.contains("without a restart"), "{text}");
}
