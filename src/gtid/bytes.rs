//! Reads little-endian values from a body, never past its end.

use super::ParseError;

/// A body and how far it was read.
#[derive(Debug)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Bytes<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body, whole: body.len() }
    }

    /// How many bytes are left.
    pub(super) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// How many bytes were read.
    pub(super) const fn at(&self) -> usize {
        self.whole - self.rest.len()
    }

    pub(super) fn slice(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            let message = format!("{len} bytes wanted, {} left", self.left());
            return Err(ParseError::new(self.at(), message));
        };
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            let message = format!("{N} bytes wanted, {} left", self.left());
            return Err(ParseError::new(self.at(), message));
        };
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of entries that take at least `entry` bytes each. More than can lie in the bytes
    /// left is an error here, so that nobody loops or allocates for a count that is garbage.
    pub(super) fn fits(&self, at: usize, count: u64, entry: u64) -> Result<usize, ParseError> {
        match (usize::try_from(count), count.checked_mul(entry)) {
            (Ok(count), Some(need)) if need <= self.left() as u64 => Ok(count),
            _ => {
                let message = format!(
                    "count {count} of entries of at least {entry} bytes, but {} bytes left",
                    self.left()
                );
                Err(ParseError::new(at, message))
            }
        }
    }

    /// An unsigned variable-length integer: as many trailing 1-bits in the first byte as bytes
    /// follow it.
    pub(super) fn varint(&mut self) -> Result<u64, ParseError> {
        let [first] = self.array()?;
        let more = first.trailing_ones();
        let follow = self.slice(more as usize)?;
        let high = follow.iter().rev().fold(0_u64, |sum, b| (sum << 8) | u64::from(*b));
        if more >= 7 {
            // The first byte is all length: what follows is the value.
            return Ok(high);
        }
        Ok((u64::from(first) | (high << 8)) >> (more + 1))
    }

    /// The end of the body, or an error.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(ParseError::new(self.at(), format!("{} bytes after the last entry", self.left())))
    }
}
