//! The binary form of MySQL GTID sets: the body of a PREVIOUS_GTIDS event.
//!
//! Format 0 has no tags, format 1 has one with each entry. The server may use format 1 for a set
//! without tags. Entries are taken in any order, as the server takes them.

use super::bytes::Bytes;
use super::{MAX_GNO, MysqlSet, ParseError, Tag, Uuid};

/// Which of the two layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Untagged,
    Tagged,
}

impl MysqlSet {
    /// Reads the body of a PREVIOUS_GTIDS event, without header and checksum.
    ///
    /// # Errors
    /// When the body is no such set, whole and without rest.
    pub fn from_binary(body: &[u8]) -> Result<Self, ParseError> {
        let mut bytes = Bytes::new(body);
        let (format, count) = header(bytes.u64()?)?;
        let least = match format {
            Format::Untagged => 16 + 8,
            Format::Tagged => 16 + 1 + 8,
        };
        let count = bytes.fits(0, count, least)?;
        let mut set = Self::new();
        for _ in 0..count {
            entry(&mut bytes, format, &mut set)?;
        }
        bytes.end()?;
        Ok(set)
    }

    /// The body of a PREVIOUS_GTIDS event: format 0 without tags, else format 1.
    #[must_use]
    pub fn to_binary(&self) -> Vec<u8> {
        let tagged = self.entries().any(|(_, tag, _)| !tag.is_untagged());
        let count = self.entries().count() as u64;
        let mut body = Vec::new();
        let header = if tagged { 1 << 56 | count << 8 | 1 } else { count };
        body.extend_from_slice(&header.to_le_bytes());
        for (uuid, tag, intervals) in self.entries() {
            body.extend_from_slice(uuid.as_bytes());
            if tagged {
                // At most 32 characters: its length is a varint of one byte.
                body.push((tag.as_str().len() as u8) << 1);
                body.extend_from_slice(tag.as_str().as_bytes());
            }
            body.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for (first, last) in intervals.iter() {
                body.extend_from_slice(&first.to_le_bytes());
                body.extend_from_slice(&(last + 1).to_le_bytes());
            }
        }
        body
    }
}

/// Format and number of entries.
fn header(word: u64) -> Result<(Format, u64), ParseError> {
    let low = word & ((1 << 56) - 1);
    match word >> 56 {
        0 => Ok((Format::Untagged, low)),
        1 if low & 0xff == 1 => Ok((Format::Tagged, low >> 8)),
        1 => Err(ParseError::new(0, "format 1 is not repeated in the lowest byte")),
        other => Err(ParseError::new(7, format!("unknown format {other} of a GTID set"))),
    }
}

fn entry(bytes: &mut Bytes<'_>, format: Format, set: &mut MysqlSet) -> Result<(), ParseError> {
    let start = bytes.at();
    let uuid = Uuid::from_bytes(bytes.array()?);
    let tag = match format {
        Format::Untagged => Tag::untagged(),
        Format::Tagged => tag(bytes)?,
    };
    if set.get(uuid, &tag).is_some() {
        let message = format!("second entry for {uuid} and tag {:?}", tag.as_str());
        return Err(ParseError::new(start, message));
    }
    let at = bytes.at();
    let count = bytes.u64()?;
    let mut last_end = 0;
    for _ in 0..bytes.fits(at, count, 16)? {
        let at = bytes.at();
        let (first, end) = (bytes.u64()?, bytes.u64()?);
        // A start at the last end would be one interval with it: the server refuses that too.
        if first <= last_end || end <= first || end > MAX_GNO + 1 {
            let message = format!("interval {first}..{end} after {last_end}");
            return Err(ParseError::new(at, message));
        }
        set.insert_range(uuid, &tag, first, end - 1);
        last_end = end;
    }
    Ok(())
}

fn tag(bytes: &mut Bytes<'_>) -> Result<Tag, ParseError> {
    let at = bytes.at();
    let bad = |what: &str| ParseError::new(at, format!("tag {what}"));
    let len = usize::try_from(bytes.varint()?).map_err(|_| bad("is too long"))?;
    if len > Tag::MAX_LEN {
        return Err(bad("is too long"));
    }
    let text = std::str::from_utf8(bytes.slice(len)?).map_err(|_| bad("is not text"))?;
    let tag: Tag = text.parse().map_err(|_| bad("has characters that no tag may have"))?;
    if tag.as_str() != text {
        return Err(bad("is not in lower case"));
    }
    Ok(tag)
}
