//! GTID sets and positions of MySQL and MariaDB: text form, binary form, algebra.
//!
//! Owns the two shapes of history. MySQL counts transactions in sets: intervals for each
//! `(uuid, tag)`. MariaDB counts in states: one highest number for each `(domain, server)`, where
//! numbers may jump. [`Previous`] is what a server had before a segment, [`Added`] what a segment
//! brings; the rest of the house uses these two and seldom asks for the flavor.
//!
//! **Invariants.** A value here is always in canonical form: intervals merged, no empty entry, so
//! equal sets are equal values and print the same text. Counts read from bytes are checked against
//! the bytes that are left before anything is allocated for them. Text or bytes that do not fit
//! the grammar are an error with the offset, never a guess (I14). Nothing here does I/O.

mod bytes;
mod ids;
mod intervals;
mod mariadb;
mod mariadb_ranges;
mod mysql;
mod mysql_binary;
mod mysql_text;
mod scan;

pub use ids::{Tag, Uuid};
pub use mariadb::{MariadbState, Pair};
pub use mariadb_ranges::MariadbRanges;
pub use mysql::{MAX_GNO, MysqlSet};

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Which server wrote a segment; the two count transactions in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// MySQL, and what is built from it (Percona Server, Aurora).
    Mysql,
    /// MariaDB.
    Mariadb,
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        })
    }
}

/// A text or a binary body that is not a set, state or position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at byte {offset}")]
pub struct ParseError {
    /// Where, in bytes from the start of the text or of the binary body.
    pub offset: usize,
    /// What was wrong there.
    pub message: String,
}

impl ParseError {
    fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

/// What a server had in its binlogs up to some moment. Prints as text of the surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Previous {
    /// A MySQL GTID set.
    Mysql(MysqlSet),
    /// A MariaDB binlog state.
    Mariadb(MariadbState),
}

/// What a segment, or what is missing between two, brings. Prints as text of the surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// A MySQL GTID set.
    Mysql(MysqlSet),
    /// Lowest and highest number of each MariaDB domain and server.
    Mariadb(MariadbRanges),
}

impl Previous {
    /// Nothing at all.
    #[must_use]
    pub fn empty(flavor: Flavor) -> Self {
        match flavor {
            Flavor::Mysql => Self::Mysql(MysqlSet::new()),
            Flavor::Mariadb => Self::Mariadb(MariadbState::new()),
        }
    }

    /// Reads the text form of this flavor.
    ///
    /// # Errors
    /// When the text does not fit the flavor's grammar.
    pub fn parse(flavor: Flavor, text: &str) -> Result<Self, ParseError> {
        match flavor {
            Flavor::Mysql => text.parse().map(Self::Mysql),
            Flavor::Mariadb => text.parse().map(Self::Mariadb),
        }
    }

    /// Whose it is.
    #[must_use]
    pub const fn flavor(&self) -> Flavor {
        match self {
            Self::Mysql(_) => Flavor::Mysql,
            Self::Mariadb(_) => Flavor::Mariadb,
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Mysql(set) => set.is_empty(),
            Self::Mariadb(state) => state.is_empty(),
        }
    }

    /// This and `added` together; `None` when they are of different flavors.
    #[must_use]
    pub fn after(&self, added: &Added) -> Option<Self> {
        match (self, added) {
            (Self::Mysql(set), Added::Mysql(more)) => Some(Self::Mysql(set.union(more))),
            (Self::Mariadb(state), Added::Mariadb(more)) => Some(Self::Mariadb(state.raised(more))),
            (Self::Mysql(_), Added::Mariadb(_)) | (Self::Mariadb(_), Added::Mysql(_)) => None,
        }
    }

    /// Whether all of `other` is in this. Of different flavors, only an empty `other` is.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mysql(set), Self::Mysql(other)) => set.contains(other),
            (Self::Mariadb(state), Self::Mariadb(other)) => state.covers(other),
            (Self::Mysql(_), Self::Mariadb(_)) | (Self::Mariadb(_), Self::Mysql(_)) => {
                other.is_empty()
            }
        }
    }

    /// Whether all of `added` is in this. Of different flavors, only an empty one is.
    #[must_use]
    pub fn holds(&self, added: &Added) -> bool {
        match (self, added) {
            (Self::Mysql(set), Added::Mysql(added)) => set.contains(added),
            (Self::Mariadb(state), Added::Mariadb(added)) => state.holds(added),
            (Self::Mysql(_), Added::Mariadb(_)) | (Self::Mariadb(_), Added::Mysql(_)) => {
                added.is_empty()
            }
        }
    }

    /// What this has that `other` has not; `None` when they are of different flavors.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Option<Added> {
        match (self, other) {
            (Self::Mysql(set), Self::Mysql(other)) => Some(Added::Mysql(set.difference(other))),
            (Self::Mariadb(state), Self::Mariadb(other)) => {
                Some(Added::Mariadb(state.beyond(other)))
            }
            (Self::Mysql(_), Self::Mariadb(_)) | (Self::Mariadb(_), Self::Mysql(_)) => None,
        }
    }

    /// The text that is hashed. It differs from the shown text for MariaDB alone, where it is
    /// sorted by domain and server: which pair is newest is not part of what is held.
    #[must_use]
    pub fn canonical(&self) -> String {
        match self {
            Self::Mysql(set) => set.to_string(),
            Self::Mariadb(state) => state.canonical(),
        }
    }
}

impl Added {
    /// Nothing at all.
    #[must_use]
    pub fn empty(flavor: Flavor) -> Self {
        match flavor {
            Flavor::Mysql => Self::Mysql(MysqlSet::new()),
            Flavor::Mariadb => Self::Mariadb(MariadbRanges::new()),
        }
    }

    /// Reads the text form of this flavor.
    ///
    /// # Errors
    /// When the text does not fit the flavor's grammar.
    pub fn parse(flavor: Flavor, text: &str) -> Result<Self, ParseError> {
        match flavor {
            Flavor::Mysql => text.parse().map(Self::Mysql),
            Flavor::Mariadb => text.parse().map(Self::Mariadb),
        }
    }

    /// Whose it is.
    #[must_use]
    pub const fn flavor(&self) -> Flavor {
        match self {
            Self::Mysql(_) => Flavor::Mysql,
            Self::Mariadb(_) => Flavor::Mariadb,
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Mysql(set) => set.is_empty(),
            Self::Mariadb(ranges) => ranges.is_empty(),
        }
    }

    /// What is in either; `None` when they are of different flavors.
    #[must_use]
    pub fn union(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Mysql(set), Self::Mysql(other)) => Some(Self::Mysql(set.union(other))),
            (Self::Mariadb(ranges), Self::Mariadb(other)) => {
                Some(Self::Mariadb(ranges.union(other)))
            }
            (Self::Mysql(_), Self::Mariadb(_)) | (Self::Mariadb(_), Self::Mysql(_)) => None,
        }
    }

    /// What is in this and not in `other`; `None` when they are of different flavors. See
    /// [`MariadbRanges::difference`] for what ranges cannot say.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Mysql(set), Self::Mysql(other)) => Some(Self::Mysql(set.difference(other))),
            (Self::Mariadb(ranges), Self::Mariadb(other)) => {
                Some(Self::Mariadb(ranges.difference(other)))
            }
            (Self::Mysql(_), Self::Mariadb(_)) | (Self::Mariadb(_), Self::Mysql(_)) => None,
        }
    }

    /// How many GTIDs it is. MariaDB numbers may jump, so there it is the span: at most so many.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Mysql(set) => set.count(),
            Self::Mariadb(ranges) => ranges.count(),
        }
    }
}

impl fmt::Display for Previous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mysql(set) => set.fmt(f),
            Self::Mariadb(state) => state.fmt(f),
        }
    }
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mysql(set) => set.fmt(f),
            Self::Mariadb(ranges) => ranges.fmt(f),
        }
    }
}

impl Serialize for Previous {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl Serialize for Added {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
