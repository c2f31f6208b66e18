//! Names of sources and of their incarnations.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Head;

/// A text that is not the name of a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("source name {0:?} does not match [a-z0-9][a-z0-9._-]{{0,62}}")]
pub struct BadSourceName(String);

/// The name of one MySQL or MariaDB server in an archive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(String);

impl SourceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SourceName {
    type Err = BadSourceName;

    fn from_str(text: &str) -> Result<Self, BadSourceName> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let first = text.bytes().next().is_some_and(plain);
        let rest = text.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'));
        if first && rest && text.len() <= 63 {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadSourceName(text.chars().take(80).collect()))
        }
    }
}

/// A text that is not the name of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("incarnation {0:?} is not four digits (from 0001), a dash and eight lower-case hex digits")]
pub struct BadIncarnation(String);

/// One run of segment numbering on a source: `<ordinal4>-<head8 of its first segment>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    ordinal: u32,
    head8: String,
}

impl Incarnation {
    /// The incarnation with this ordinal (from 1) whose first segment has this head.
    #[must_use]
    pub fn new(ordinal: u32, first: &Head) -> Self {
        Self { ordinal, head8: first.short() }
    }

    /// Counts from 1; a later incarnation of a source has a higher one.
    #[must_use]
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// The ordinal as the four digits of object keys.
    #[must_use]
    pub fn ordinal4(&self) -> String {
        format!("{:04}", self.ordinal)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{}", self.ordinal, self.head8)
    }
}

impl FromStr for Incarnation {
    type Err = BadIncarnation;

    fn from_str(text: &str) -> Result<Self, BadIncarnation> {
        let bad = || BadIncarnation(text.chars().take(80).collect());
        let (ordinal, head8) = text.split_once('-').ok_or_else(bad)?;
        let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let fine = ordinal.len() == 4
            && ordinal.bytes().all(|b| b.is_ascii_digit())
            && head8.len() == 8
            && head8.bytes().all(lower_hex);
        match ordinal.parse() {
            Ok(ordinal) if fine && ordinal > 0 => Ok(Self { ordinal, head8: head8.to_owned() }),
            Ok(_) | Err(_) => Err(bad()),
        }
    }
}

macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_serde!(SourceName);
text_serde!(Incarnation);
