//! Binlog states of MariaDB.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::bytes::Bytes;
use super::scan::Scan;
use super::{MariadbRanges, ParseError};

/// One GTID of MariaDB, `D-S-N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The replication domain.
    pub domain: u32,
    /// The server that ran it.
    pub server: u32,
    /// Its number, which counts within the domain across servers and may jump.
    pub seq: u64,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.seq)
    }
}

/// The highest number of each domain and server, and which server was the last in each domain.
///
/// Equality looks at the newest pair too; to compare what is held, ask [`MariadbState::covers`]
/// in both directions or compare canonical texts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MariadbState {
    domains: BTreeMap<u32, Domain>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Domain {
    /// Never empty.
    servers: BTreeMap<u32, u64>,
    /// A key of `servers`.
    newest: u32,
}

impl MariadbState {
    /// The empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Raises the pair to at least `seq`, and makes it the newest of its domain.
    pub fn push(&mut self, domain: u32, server: u32, seq: u64) {
        let domain = self.domains.entry(domain).or_default();
        let held = domain.servers.entry(server).or_insert(seq);
        *held = seq.max(*held);
        domain.newest = server;
    }

    /// The number of a pair.
    #[must_use]
    pub fn seq(&self, domain: u32, server: u32) -> Option<u64> {
        self.domains.get(&domain)?.servers.get(&server).copied()
    }

    /// The newest pair of a domain.
    #[must_use]
    pub fn newest(&self, domain: u32) -> Option<Pair> {
        let server = self.domains.get(&domain)?.newest;
        Some(Pair { domain, server, seq: self.seq(domain, server)? })
    }

    /// The domains of which it has pairs, rising.
    pub fn domains(&self) -> impl Iterator<Item = u32> {
        self.domains.keys().copied()
    }

    /// All pairs in the order of the text: by domain, in a domain by server with the newest last.
    pub fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.domains.iter().flat_map(|(domain, held)| {
            let older = held.servers.iter().filter(|(server, _)| **server != held.newest);
            let newest = held.servers.get_key_value(&held.newest);
            older.chain(newest).map(|(server, seq)| Pair {
                domain: *domain,
                server: *server,
                seq: *seq,
            })
        })
    }

    /// The newest pair of each domain alone: what the server calls `gtid_binlog_pos`.
    #[must_use]
    pub fn position(&self) -> Self {
        let mut position = Self::new();
        for pair in self.domains().filter_map(|domain| self.newest(domain)) {
            position.push(pair.domain, pair.server, pair.seq);
        }
        position
    }

    /// Whether every pair of `other` is at or below ours.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.pairs().all(|pair| pair.seq <= self.held(pair.domain, pair.server))
    }

    /// Whether the highest number of every range is at or below ours.
    #[must_use]
    pub fn holds(&self, ranges: &MariadbRanges) -> bool {
        ranges.ranges().all(|(domain, server, _, highest)| highest <= self.held(domain, server))
    }

    /// For each pair that is higher here than in `other`, the numbers above `other`'s.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> MariadbRanges {
        let mut ranges = MariadbRanges::new();
        for pair in self.pairs() {
            let have = other.held(pair.domain, pair.server);
            if pair.seq > have {
                ranges.insert_range(pair.domain, pair.server, have + 1, pair.seq);
            }
        }
        ranges
    }

    /// This, raised by what a segment brings. Ranges do not say which pair of a domain came last;
    /// since numbers count within a domain, the highest one is taken.
    #[must_use]
    pub fn raised(&self, ranges: &MariadbRanges) -> Self {
        let mut raised = self.clone();
        let mut rising: Vec<_> = ranges.ranges().collect();
        rising.sort_by_key(|(domain, _, _, highest)| (*domain, *highest));
        for (domain, server, _, highest) in rising {
            raised.push(domain, server, highest);
        }
        raised
    }

    /// All pairs by domain and server, wherever the newest stands.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut pairs: Vec<_> = self.pairs().collect();
        pairs.sort_unstable();
        pairs.iter().map(Pair::to_string).collect::<Vec<_>>().join(",")
    }

    /// Reads the body of a GTID_LIST event, without header and checksum.
    ///
    /// # Errors
    /// When the body is no such list, whole and without rest.
    pub fn from_binary(body: &[u8]) -> Result<Self, ParseError> {
        let mut bytes = Bytes::new(body);
        let word = bytes.u32()?;
        // The high four bits are flags, of no use to us.
        let count = bytes.fits(0, u64::from(word & 0x0fff_ffff), 16)?;
        let mut state = Self::new();
        for _ in 0..count {
            let at = bytes.at();
            let pair = Pair { domain: bytes.u32()?, server: bytes.u32()?, seq: bytes.u64()? };
            state.push_new(at, pair)?;
        }
        if count == 0 && bytes.left() == EMPTY_PADDING {
            return Ok(state);
        }
        bytes.end()?;
        Ok(state)
    }

    /// The body of a GTID_LIST event.
    #[must_use]
    pub fn to_binary(&self) -> Vec<u8> {
        let count = self.pairs().count();
        let mut body = Vec::with_capacity(4 + 16 * count);
        body.extend_from_slice(&(count as u32 & 0x0fff_ffff).to_le_bytes());
        for pair in self.pairs() {
            body.extend_from_slice(&pair.domain.to_le_bytes());
            body.extend_from_slice(&pair.server.to_le_bytes());
            body.extend_from_slice(&pair.seq.to_le_bytes());
        }
        if count == 0 {
            body.resize(body.len() + EMPTY_PADDING, 0);
        }
        body
    }

    fn held(&self, domain: u32, server: u32) -> u64 {
        self.seq(domain, server).unwrap_or(0)
    }

    /// A state names a pair once. Twice is not a state, and which number counts would be a guess.
    fn push_new(&mut self, at: usize, pair: Pair) -> Result<(), ParseError> {
        if self.seq(pair.domain, pair.server).is_some() {
            let message =
                format!("second number for domain {} server {}", pair.domain, pair.server);
            return Err(ParseError::new(at, message));
        }
        self.push(pair.domain, pair.server, pair.seq);
        Ok(())
    }
}

/// The server pads the body of an empty list to six bytes, so that it can be replaced by a dummy.
const EMPTY_PADDING: usize = 2;

/// Steps over `D-S-N`.
pub(super) fn scan_pair(scan: &mut Scan<'_>) -> Result<Pair, ParseError> {
    let domain = scan_u32(scan)?;
    dash(scan)?;
    let server = scan_u32(scan)?;
    dash(scan)?;
    Ok(Pair { domain, server, seq: scan.number(u64::MAX)? })
}

fn scan_u32(scan: &mut Scan<'_>) -> Result<u32, ParseError> {
    let at = scan.at();
    let number = scan.number(u64::from(u32::MAX))?;
    u32::try_from(number).map_err(|_| ParseError::new(at, "number above 32 bits"))
}

fn dash(scan: &mut Scan<'_>) -> Result<(), ParseError> {
    if scan.eat(b'-') { Ok(()) } else { Err(scan.unexpected("'-' of D-S-N")) }
}

/// Reads items joined by commas, or nothing at all. No spaces, no comma at the end: as the server.
pub(super) fn scan_list(
    text: &str,
    mut item: impl FnMut(&mut Scan<'_>) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut scan = Scan::new(text);
    loop {
        item(&mut scan)?;
        if scan.peek().is_none() {
            return Ok(());
        }
        if !scan.eat(b',') {
            return Err(scan.unexpected("',' or the end"));
        }
    }
}

impl FromStr for MariadbState {
    type Err = ParseError;

    /// Takes pairs in any order. Of a domain's pairs the last in the text is the newest.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut state = Self::new();
        scan_list(text, |scan| {
            let at = scan.at();
            let pair = scan_pair(scan)?;
            state.push_new(at, pair)
        })?;
        Ok(state)
    }
}

impl fmt::Display for MariadbState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pair) in self.pairs().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{pair}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for MariadbState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MariadbState({self})")
    }
}
