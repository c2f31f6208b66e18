//! What a MariaDB segment brings: lowest and highest number of each domain and server.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::mariadb::{scan_list, scan_pair};
use super::{MariadbState, ParseError};

/// Lowest and highest number seen for each domain and server. Numbers between need not exist.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MariadbRanges {
    pairs: BTreeMap<(u32, u32), (u64, u64)>,
}

impl MariadbRanges {
    /// No range.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Widens the pair's range to `seq`.
    pub fn insert(&mut self, domain: u32, server: u32, seq: u64) {
        self.insert_range(domain, server, seq, seq);
    }

    /// Widens the pair's range to `lowest` and `highest`. A range that falls adds nothing.
    pub fn insert_range(&mut self, domain: u32, server: u32, lowest: u64, highest: u64) {
        if lowest > highest {
            return;
        }
        let held = self.pairs.entry((domain, server)).or_insert((lowest, highest));
        *held = (held.0.min(lowest), held.1.max(highest));
    }

    /// Domain, server, lowest and highest of each range, by domain and server.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32, u64, u64)> {
        self.pairs
            .iter()
            .map(|((domain, server), (lowest, highest))| (*domain, *server, *lowest, *highest))
    }

    /// The domains of which it has ranges, rising.
    pub fn domains(&self) -> impl Iterator<Item = u32> {
        let mut last = None;
        self.pairs.keys().filter_map(move |(domain, _)| {
            (last.replace(*domain) != Some(*domain)).then_some(*domain)
        })
    }

    /// For each pair, the range from the lower lowest to the higher highest.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (domain, server, lowest, highest) in other.ranges() {
            sum.insert_range(domain, server, lowest, highest);
        }
        sum
    }

    /// What is not in `other`. Where `other` takes a piece from the middle, the whole range
    /// stays: one range cannot say it, and what may be missing must not vanish.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        for (domain, server, lowest, highest) in self.ranges() {
            let (mut from, mut to) = (lowest, Some(highest));
            if let Some((cut_lowest, cut_highest)) = other.pairs.get(&(domain, server)).copied() {
                let cuts_bottom = cut_lowest <= lowest && cut_highest >= lowest;
                let cuts_top = cut_highest >= highest && cut_lowest <= highest;
                if cuts_bottom && cuts_top {
                    to = None;
                } else if cuts_bottom {
                    from = cut_highest.saturating_add(1);
                } else if cuts_top {
                    to = cut_lowest.checked_sub(1);
                }
            }
            if let Some(to) = to {
                rest.insert_range(domain, server, from, to);
            }
        }
        rest
    }

    /// Where the ranges of both overlap.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        for (domain, server, lowest, highest) in self.ranges() {
            if let Some((their_lowest, their_highest)) = other.pairs.get(&(domain, server)) {
                let (lowest, highest) = (lowest.max(*their_lowest), highest.min(*their_highest));
                both.insert_range(domain, server, lowest, highest);
            }
        }
        both
    }

    /// Whether every range of `other` lies in one of ours.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.pairs.iter().all(|(pair, (lowest, highest))| {
            self.pairs.get(pair).is_some_and(|ours| ours.0 <= *lowest && ours.1 >= *highest)
        })
    }

    /// Whether no ranges of both overlap.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).is_empty()
    }

    /// What lies above a position that a user gives: it covers all GTIDs of its domain, of any
    /// server, up to its number.
    #[must_use]
    pub fn above(&self, position: &MariadbState) -> Self {
        let mut rest = Self::new();
        for (domain, server, lowest, highest) in self.ranges() {
            let Some(newest) = position.newest(domain) else {
                rest.insert_range(domain, server, lowest, highest);
                continue;
            };
            if let Some(from) = newest.seq.checked_add(1) {
                rest.insert_range(domain, server, from.max(lowest), highest);
            }
        }
        rest
    }

    /// How many numbers the ranges span, saturating: at most so many GTIDs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges().fold(0_u64, |sum, (_, _, lowest, highest)| {
            sum.saturating_add(highest - lowest).saturating_add(1)
        })
    }
}

impl FromStr for MariadbRanges {
    type Err = ParseError;

    /// Reads `D-S-N` or `D-S-N:M`, joined by commas, in any order.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut ranges = Self::new();
        scan_list(text, |scan| {
            let at = scan.at();
            let pair = scan_pair(scan)?;
            let highest = if scan.eat(b':') { scan.number(u64::MAX)? } else { pair.seq };
            if highest < pair.seq {
                let message = format!("range {}:{highest} falls", pair.seq);
                return Err(ParseError::new(at, message));
            }
            // Two ranges of a pair would become one that claims what lies between them.
            if ranges.pairs.insert((pair.domain, pair.server), (pair.seq, highest)).is_some() {
                let (domain, server) = (pair.domain, pair.server);
                let message = format!("second range for domain {domain} server {server}");
                return Err(ParseError::new(at, message));
            }
            Ok(())
        })?;
        Ok(ranges)
    }
}

impl fmt::Display for MariadbRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (domain, server, lowest, highest)) in self.ranges().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{domain}-{server}-{lowest}")?;
            if highest != lowest {
                write!(f, ":{highest}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for MariadbRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MariadbRanges({self})")
    }
}
