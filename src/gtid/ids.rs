//! The two names of a MySQL GTID: the UUID of the server that ran it, and its tag.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ParseError;
use super::scan::Scan;

/// The UUID of a MySQL server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// Takes the bytes in the order of the text.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes in the order of the text.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Steps over a UUID: with dashes, with dashes in braces, or 32 digits alone; any case.
    pub(super) fn scan(scan: &mut Scan<'_>) -> Result<Self, ParseError> {
        let start = scan.at();
        let text = scan.take(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'{' | b'}'));
        if text.is_empty() {
            return Err(scan.unexpected("a UUID"));
        }
        let bad = || ParseError::new(start, "not a UUID of 8-4-4-4-12 hex digits");
        let bare = match text.strip_prefix('{') {
            Some(rest) => {
                rest.strip_suffix('}').filter(|inner| inner.len() == 36).ok_or_else(bad)?
            }
            None => text,
        };
        let mut bytes = [0; 16];
        if bare.len() == 32 {
            hex::decode_to_slice(bare, &mut bytes).map_err(|_| bad())?;
            return Ok(Self(bytes));
        }
        if bare.len() != 36 {
            return Err(bad());
        }
        let dashes_fine =
            bare.bytes().enumerate().all(|(at, b)| (b == b'-') == matches!(at, 8 | 13 | 18 | 23));
        let digits: String = bare.split('-').collect();
        if !dashes_fine || hex::decode_to_slice(digits, &mut bytes).is_err() {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

impl FromStr for Uuid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut scan = Scan::new(text);
        let uuid = Self::scan(&mut scan)?;
        match scan.peek() {
            None => Ok(uuid),
            Some(_) => Err(scan.unexpected("the end of the UUID")),
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The tag of a MySQL GTID (8.3+); most have none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(Box<str>);

impl Tag {
    /// Longest tag, in characters.
    pub(super) const MAX_LEN: usize = 32;

    /// No tag. It sorts before all others.
    #[must_use]
    pub fn untagged() -> Self {
        Self::default()
    }

    /// Whether it is no tag.
    #[must_use]
    pub fn is_untagged(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag as text, empty for none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a tag may begin with this byte.
    pub(super) const fn begins(byte: u8) -> bool {
        byte.is_ascii_alphabetic() || byte == b'_'
    }

    /// Steps over a tag that is not empty.
    pub(super) fn scan(scan: &mut Scan<'_>) -> Result<Self, ParseError> {
        let start = scan.at();
        if !scan.peek().is_some_and(Self::begins) {
            return Err(scan.unexpected("a tag"));
        }
        let text = scan.take(|b| b.is_ascii_alphanumeric() || b == b'_');
        if text.len() > Self::MAX_LEN {
            let message = format!("tag of more than {} characters", Self::MAX_LEN);
            return Err(ParseError::new(start, message));
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }
}

impl FromStr for Tag {
    type Err = ParseError;

    /// Takes any case and makes it lower case. The empty text is no tag.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Ok(Self::untagged());
        }
        let mut scan = Scan::new(text);
        let tag = Self::scan(&mut scan)?;
        match scan.peek() {
            None => Ok(tag),
            Some(_) => Err(scan.unexpected("a letter, digit or underscore of a tag")),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:?})", self.0)
    }
}
