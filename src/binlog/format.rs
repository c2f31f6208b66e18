//! The first event of a segment: who wrote it, how, and whether it was closed.

use super::damage::DamageCode;
use super::event::{CRC_LEN, Cursor, FLAG_IN_USE, FLAG_RELAY_LOG, FLAGS_AT, HEADER_LEN, Header};
use crate::gtid::Flavor;
use crate::segment::Checksum;

/// Longest format description there can be; real ones have at most 252 bytes.
pub(super) const LEN_MAX: u32 = 4096;

/// Shortest format description: the header and the fields before the table of lengths.
pub(super) const LEN_MIN: u32 = 76;

/// A decoded format description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) server_version: String,
    pub(super) flavor: Flavor,
    pub(super) created_at_startup: bool,
    pub(super) checksum: Checksum,
    pub(super) in_use: bool,
    pub(super) relay_log: bool,
    /// The event's own CRC32 is wrong while the algorithm is "none": servers do not check it.
    pub(super) unchecked_crc_wrong: bool,
}

/// Decodes a whole format description, header included.
pub(super) fn read(event: &[u8]) -> Result<Format, (DamageCode, String)> {
    let short = || (DamageCode::BadFormatDescription, "format description too short".to_owned());
    let header = Header::parse(event).ok_or_else(short)?;
    let mut body = Cursor(event.get(HEADER_LEN..).ok_or_else(short)?);
    let version = body.u16().ok_or_else(short)?;
    let text = body.take(50).ok_or_else(short)?;
    let created = body.u32().ok_or_else(short)?;
    let header_length = body.u8().ok_or_else(short)?;

    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let server_version = String::from_utf8_lossy(text).into_owned();
    let flavor = if server_version.contains("MariaDB") { Flavor::Mariadb } else { Flavor::Mysql };

    // A damaged version text must not hide that there is a CRC32, so one that holds proves itself.
    let crc_holds = own_crc_holds(event);
    let numbers = version_numbers(&server_version);
    let since = match flavor {
        Flavor::Mysql => [5, 6, 1],
        Flavor::Mariadb => [5, 3, 0],
    };
    let mut unchecked_crc_wrong = false;
    let checksum = if crc_holds || numbers.is_some_and(|numbers| numbers >= since) {
        let algorithm = event.len().checked_sub(CRC_LEN + 1).and_then(|at| event.get(at));
        match (algorithm, crc_holds) {
            (Some(0), false) => {
                unchecked_crc_wrong = true;
                Checksum::None
            }
            (_, false) => return Err(crc_mismatch()),
            (Some(1), true) => Checksum::Crc32,
            (Some(0 | 255), true) => Checksum::None,
            (other, true) => {
                let text = format!("checksum algorithm {other:?} is not known");
                return Err((DamageCode::UnsupportedChecksum, text));
            }
        }
    } else if numbers.is_some() {
        Checksum::None
    } else {
        return Err(crc_mismatch());
    };

    if version != 4 {
        let text =
            format!("binlog version {version}; only version 4 (MySQL 5.0 and later) is read");
        return Err((DamageCode::UnsupportedVersion, text));
    }
    if usize::from(header_length) != HEADER_LEN {
        let text = format!("event headers of {header_length} bytes; only 19 are read");
        return Err((DamageCode::UnsupportedHeaderLength, text));
    }
    Ok(Format {
        server_version,
        flavor,
        created_at_startup: created != 0,
        checksum,
        in_use: header.flags & FLAG_IN_USE != 0,
        relay_log: header.flags & FLAG_RELAY_LOG != 0,
        unchecked_crc_wrong,
    })
}

fn crc_mismatch() -> (DamageCode, String) {
    (DamageCode::CrcMismatch, "the format description does not match its CRC32".to_owned())
}

/// The server computes this CRC32 with the in-use bit clear, and changes that bit alone on closing.
pub(super) fn own_crc_holds(event: &[u8]) -> bool {
    let Some((covered, stored)) = event.split_last_chunk::<CRC_LEN>() else {
        return false;
    };
    let Some((before, [flags, after @ ..])) = covered.split_at_checked(FLAGS_AT) else {
        return false;
    };
    let mut crc = crc32fast::Hasher::new();
    crc.update(before);
    crc.update(&[flags & !1]);
    crc.update(after);
    crc.finalize() == u32::from_le_bytes(*stored)
}

/// Splits a version as the server does: three numbers of at most 255, text after them ignored.
fn version_numbers(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.splitn(3, '.');
    let mut number = |last: bool| {
        let part = parts.next()?;
        let end = part.bytes().take_while(u8::is_ascii_digit).count();
        let whole = last || end == part.len();
        let value = part.get(..end)?.parse().ok()?;
        (whole && value <= 255).then_some(value)
    };
    Some([number(false)?, number(false)?, number(true)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_split_like_the_servers() {
        assert_eq!(version_numbers("9.7.4-2"), Some([9, 7, 4]));
        assert_eq!(version_numbers("10.11.19-MariaDB-0+deb12u1-log"), Some([10, 11, 19]));
        assert_eq!(version_numbers("5.6.1.2"), Some([5, 6, 1]));
        for bad in ["", "9", "9.7", "9.7.", "9x.7.4", "300.1.1", "9.7y4-2", "-1.2.3"] {
            assert_eq!(version_numbers(bad), None, "{bad}");
        }
    }
}
