//! What is wrong with a segment, by a stable name, and where.

use std::fmt;

use serde::{Serialize, Serializer};

/// One fault of a segment's bytes, or the reason why it is not closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message} at offset {offset} ({code})")]
pub struct Damage {
    /// Its stable name.
    pub code: DamageCode,
    /// Where in the file.
    pub offset: u64,
    /// The same for a human.
    pub message: String,
}

impl Damage {
    pub(super) fn new(code: DamageCode, offset: u64, message: impl Into<String>) -> Self {
        Self { code, offset, message: message.into() }
    }
}

macro_rules! damage_codes {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// The stable name of a fault. Scripts match on its text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DamageCode {
            $($(#[$doc])* $name,)*
        }

        impl DamageCode {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The text that scripts see.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

damage_codes! {
    /// No byte at all.
    Empty => "empty",
    /// One to three bytes that begin a magic number.
    TornMagic => "torn-magic",
    /// The magic number and nothing else.
    MagicOnly => "magic-only",
    /// Another magic number.
    BadMagic => "bad-magic",
    /// The magic number as a text conversion to UTF-8 leaves it.
    TextConverted => "text-converted",
    /// MariaDB's binlog in InnoDB pages.
    InnodbPages => "innodb-pages",
    /// A replica's relay log.
    RelayLog => "relay-log",
    /// The format of servers before 5.0.
    OldFormat => "old-format",
    /// The first event does not describe the format.
    NoFormatDescription => "no-format-description",
    /// The first event is cut off.
    TornFormatDescription => "torn-format-description",
    /// The first event and nothing else.
    FormatDescriptionOnly => "format-description-only",
    /// The first event cannot be decoded.
    BadFormatDescription => "bad-format-description",
    /// A binlog version other than 4.
    UnsupportedVersion => "unsupported-version",
    /// Event headers of another length than 19 bytes.
    UnsupportedHeaderLength => "unsupported-header-length",
    /// A checksum algorithm that is not known.
    UnsupportedChecksum => "unsupported-checksum",
    /// An event does not match its CRC32.
    CrcMismatch => "crc-mismatch",
    /// An event's length and end position disagree, and it does not match its CRC32 or is cut off.
    LengthMismatch => "length-mismatch",
    /// A sound event that belongs at another offset: bytes before it were removed or added.
    PositionMismatch => "position-mismatch",
    /// An event length that cannot be.
    BadLength => "bad-length",
    /// The file ends inside an event's header.
    TornHeader => "torn-header",
    /// The file ends inside an event's body.
    TornEvent => "torn-event",
    /// Zeros from an event boundary to the end of the file.
    ZeroTail => "zero-tail",
    /// Zeros in place of an event, and other bytes after them.
    ZeroHole => "zero-hole",
    /// Zeros after the event that ends the segment.
    TrailingZeros => "trailing-zeros",
    /// Bytes that are no event after the event that ends the segment.
    TrailingData => "trailing-data",
    /// A GTID event that cannot be decoded.
    BadGtid => "bad-gtid",
    /// The set of GTIDs before this segment cannot be decoded.
    BadPreviousGtids => "bad-previous-gtids",
    /// The file ends between two events of one transaction.
    OpenTransaction => "open-transaction",
    /// Sound to its end, but no ROTATE or STOP event ends it.
    NoRotateOrStop => "no-rotate-or-stop",
    /// Ended by ROTATE or STOP, but the in-use flag is set.
    InUse => "in-use",
    /// Encrypted by MySQL.
    MysqlEncrypted => "mysql-encrypted",
    /// Encrypted by MariaDB.
    MariadbEncrypted => "mariadb-encrypted",
    /// The header of a MySQL-encrypted file is cut off.
    TornEncryptionHeader => "torn-encryption-header",
    /// The header of a MySQL-encrypted file cannot be decoded.
    BadEncryptionHeader => "bad-encryption-header",
}

impl fmt::Display for DamageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for DamageCode {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_its_own_kebab_case_text() {
        let texts: BTreeSet<&str> = DamageCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), DamageCode::ALL.len());
        for text in texts {
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{text}");
        }
    }
}
