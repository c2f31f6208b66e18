//! Names and numbers of segments: `binlog.000042` is number 42 of base `binlog`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number after the last dot of a segment's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// Ten digits, zero-padded, so that a listing of keys is in order of numbers.
    #[must_use]
    pub fn padded(self) -> String {
        format!("{:010}", self.0)
    }

    /// Reads the ten digits of [`Self::padded`] back.
    #[must_use]
    pub fn from_padded(text: &str) -> Option<Self> {
        let digits = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit());
        if digits { text.parse().ok().map(Self) } else { None }
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not the name of a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No dot, or not 1 to 10 digits after the last one.
    #[error("segment name {0:?} does not end in a dot and 1 to 10 digits")]
    NoNumber(String),
    /// Would not be safe as one path component.
    #[error(
        "segment name {0:?} is empty before its number, too long, or has a slash or control character"
    )]
    Unsafe(String),
}

/// The file name of a segment, checked to be safe as one path component.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SegmentName {
    text: String,
    base_len: usize,
    number: SegmentNumber,
}

impl SegmentName {
    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part before the last dot.
    #[must_use]
    pub fn base(&self) -> &str {
        self.text.get(..self.base_len).unwrap_or_default()
    }

    /// The number after the last dot.
    #[must_use]
    pub const fn number(&self) -> SegmentNumber {
        self.number
    }
}

impl FromStr for SegmentName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let shown = || text.chars().take(80).collect::<String>();
        let (base, digits) = text.rsplit_once('.').ok_or_else(|| BadName::NoNumber(shown()))?;
        let digits_fine =
            (1..=10).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        let number = match digits.parse() {
            Ok(number) if digits_fine => SegmentNumber(number),
            Ok(_) | Err(_) => return Err(BadName::NoNumber(shown())),
        };
        let unsafe_char = |c: char| c == '/' || c == '\\' || c.is_control();
        if base.is_empty() || base == "." || text.len() > 255 || text.chars().any(unsafe_char) {
            return Err(BadName::Unsafe(shown()));
        }
        Ok(Self { text: text.to_owned(), base_len: base.len(), number })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Serialize for SegmentName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for SegmentName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_splits_at_its_last_dot() {
        let name: SegmentName = "host.example.000042".parse().unwrap();
        assert_eq!((name.base(), name.number()), ("host.example", SegmentNumber(42)));
        let seven: SegmentName = "binlog.1000000".parse().unwrap();
        assert!(seven.number() > "binlog.999999".parse::<SegmentName>().unwrap().number());
        assert_eq!(seven.number().padded(), "0001000000");
        assert_eq!(SegmentNumber::from_padded("0001000000"), Some(SegmentNumber(1_000_000)));
        assert_eq!(SegmentNumber::from_padded("+001000000"), None);
    }

    #[test]
    fn names_that_could_leave_their_folder_are_refused() {
        for bad in [
            "",
            "binlog",
            "binlog.",
            ".000001",
            "..000001",
            "a/b.000001",
            "binlog.00000000001",
            "binlog.+1",
            "binlog.index",
            "bin\nlog.000001",
        ] {
            assert!(bad.parse::<SegmentName>().is_err(), "{bad:?}");
        }
    }
}
