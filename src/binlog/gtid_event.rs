//! The events that open a transaction: GTID, tagged GTID, anonymous GTID, MariaDB's GTID.

use super::event::{Cursor, Header, kind};
use crate::gtid::{Tag, Uuid};

/// Bytes of the body that hold all that is read of any of these events.
pub(super) const BODY_KEEP: usize = 256;

/// Highest number a MySQL GTID can have.
const GNO_MAX: u64 = (1 << 63) - 2;

/// Whose transaction begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gtid {
    /// MySQL, `uuid[:tag]:gno`.
    Mysql {
        /// The server that ran it first.
        uuid: Uuid,
        /// Its tag.
        tag: Tag,
        /// Its number.
        gno: u64,
    },
    /// MariaDB, `domain-server-seq`.
    Mariadb {
        /// Replication domain.
        domain: u32,
        /// The server that ran it first.
        server: u32,
        /// Its number.
        seq: u64,
    },
    /// A transaction without a GTID.
    Anonymous,
    /// A GTID event in a form newer than this code.
    Unknown,
}

/// A decoded GTID event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) gtid: Gtid,
    /// Microseconds; 0 when not given.
    pub(super) committed_at: u64,
    /// MariaDB's "standalone": one statement is the whole group.
    pub(super) standalone: bool,
}

/// Decodes the body of a GTID event of any kind; the error says what is wrong.
pub(super) fn read(header: &Header, body: &[u8]) -> Result<Opening, &'static str> {
    match header.kind {
        kind::GTID => untagged(body).filter(named).ok_or("GTID event too short or without number"),
        kind::ANONYMOUS_GTID => {
            let committed_at = untagged(body).map_or(0, |opening| opening.committed_at);
            Ok(Opening { gtid: Gtid::Anonymous, committed_at, standalone: false })
        }
        kind::GTID_TAGGED => tagged(body).filter(named).ok_or("tagged GTID event does not decode"),
        kind::MARIADB_GTID => mariadb(header, body).ok_or("GTID event too short"),
        _ => Err("not a GTID event"),
    }
}

/// Whether the event has a GTID that may be in a set.
fn named(opening: &Opening) -> bool {
    match &opening.gtid {
        Gtid::Mysql { gno, .. } => (1..=GNO_MAX).contains(gno),
        Gtid::Mariadb { .. } | Gtid::Anonymous | Gtid::Unknown => true,
    }
}

fn untagged(body: &[u8]) -> Option<Opening> {
    let mut cursor = Cursor(body);
    cursor.u8()?;
    let uuid = Uuid::from_bytes(cursor.bytes16()?);
    let gno = cursor.u64()?;
    Some(Opening {
        gtid: Gtid::Mysql { uuid, tag: Tag::untagged(), gno },
        committed_at: untagged_time(cursor).unwrap_or(0),
        standalone: false,
    })
}

/// The immediate commit time: from 8.0 on, after the logical clock.
fn untagged_time(mut cursor: Cursor<'_>) -> Option<u64> {
    if cursor.u8()? != 2 {
        return None;
    }
    cursor.take(16)?;
    let mut bytes = [0; 8];
    bytes.get_mut(..7)?.copy_from_slice(cursor.take(7)?);
    // Bit 55 says that another time follows.
    Some(u64::from_le_bytes(bytes) & !(1 << 55))
}

/// A message of MySQL's serialization library: ids rise, each before its value.
fn tagged(body: &[u8]) -> Option<Opening> {
    let mut cursor = Cursor(body);
    if cursor.varint()? != 1 {
        return Some(Opening { gtid: Gtid::Unknown, committed_at: 0, standalone: false });
    }
    // The size of the whole message. Fields may be absent, so a message that is cut off could pass
    // for one without a tag.
    let size = usize::try_from(cursor.varint()?).ok()?;
    let used = body.len() - cursor.0.len();
    cursor = Cursor(body.get(used..size)?);
    let last_needed = cursor.varint()?;
    let (mut uuid, mut gno, mut tag, mut committed_at) = (None, None, Tag::untagged(), 0);
    // Every turn takes at least one byte off a body of at most BODY_KEEP.
    while !cursor.0.is_empty() {
        match cursor.varint()? {
            0 => {
                cursor.varint()?; // flags
            }
            1 => uuid = Some(spread_uuid(&mut cursor)?),
            2 => gno = Some(u64::try_from(cursor.svarint()?).ok()?),
            3 => {
                let length = usize::try_from(cursor.varint()?).ok()?;
                let text = std::str::from_utf8(cursor.take(length)?).ok()?;
                tag = if text.is_empty() { Tag::untagged() } else { text.parse().ok()? };
            }
            4 | 5 => {
                cursor.svarint()?; // logical clock
            }
            6 => {
                committed_at = cursor.varint()?;
                // Ids rise, and nothing after this one is needed.
                break;
            }
            id if id <= 11 => break,
            id if id <= last_needed => return None,
            _ => break,
        }
    }
    let gtid = Gtid::Mysql { uuid: uuid?, tag, gno: gno? };
    Some(Opening { gtid, committed_at, standalone: false })
}

/// Sixteen integers, one for each byte.
fn spread_uuid(cursor: &mut Cursor<'_>) -> Option<Uuid> {
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = u8::try_from(cursor.varint()?).ok()?;
    }
    Some(Uuid::from_bytes(bytes))
}

fn mariadb(header: &Header, body: &[u8]) -> Option<Opening> {
    let mut cursor = Cursor(body);
    let seq = cursor.u64()?;
    let domain = cursor.u32()?;
    let flags = cursor.u8()?;
    Some(Opening {
        gtid: Gtid::Mariadb { domain, server: header.server_id, seq },
        committed_at: 0,
        standalone: flags & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8) -> Header {
        Header { timestamp: 0, kind, server_id: 7, length: 0, end_position: 0, flags: 0 }
    }

    fn uuid() -> Uuid {
        "d09776b3-ecfc-11f1-b947-02fc00000001".parse().unwrap()
    }

    #[test]
    fn a_real_tagged_gtid() {
        let body = hex::decode(
            "0278000000024103 5d02eccd02b103f10322c503e5028e04f10300000002\
             0404060c63695f74616708080a100c7f1bf1a248846106108504128312 0b"
                .replace(' ', ""),
        )
        .unwrap();
        let opening = read(&header(kind::GTID_TAGGED), &body).unwrap();
        let tag = "ci_tag".parse().unwrap();
        assert_eq!(opening.gtid, Gtid::Mysql { uuid: uuid(), tag, gno: 1 });
        assert_eq!(opening.committed_at, 1_796_070_642_479_387);
        for cut in 0..46 {
            assert!(read(&header(kind::GTID_TAGGED), &body[..cut]).is_err(), "{cut}");
        }
        let newer = read(&header(kind::GTID_TAGGED), &[0x04, 0x78]).unwrap();
        assert_eq!(newer.gtid, Gtid::Unknown);
    }

    #[test]
    fn a_real_untagged_gtid_whole_and_as_5_6_wrote_it() {
        let body = hex::decode(
            "01d09776b3ecfc11f1b94702fc000000010100000000000000\
             02000000000000000001000000000000008fb6a148846106b050620100",
        )
        .unwrap();
        let opening = read(&header(kind::GTID), &body).unwrap();
        assert_eq!(opening.gtid, Gtid::Mysql { uuid: uuid(), tag: Tag::untagged(), gno: 1 });
        assert_eq!(opening.committed_at, 1_796_070_642_398_863);
        assert_eq!(read(&header(kind::GTID), &body[..25]).unwrap().committed_at, 0);
        assert!(read(&header(kind::GTID), &body[..24]).is_err());
        let mut without_number = body;
        without_number[17] = 0;
        assert!(read(&header(kind::GTID), &without_number).is_err());
    }

    #[test]
    fn a_real_mariadb_gtid_takes_its_server_from_the_header() {
        let body = hex::decode("0800000000000000000000000c000000000000").unwrap();
        let opening = read(&header(kind::MARIADB_GTID), &body).unwrap();
        assert_eq!(opening.gtid, Gtid::Mariadb { domain: 0, server: 7, seq: 8 });
        assert!(!opening.standalone);
    }
}
