//! The text form of MySQL GTID sets.
//!
//! Read is what the server reads (9.7): white space, empty items, any case, any order, intervals
//! that are empty because they fall. Written is the canonical form alone.

use std::fmt;
use std::str::FromStr;

use super::scan::Scan;
use super::{MAX_GNO, MysqlSet, ParseError, Tag, Uuid};

impl FromStr for MysqlSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut set = Self::new();
        let mut scan = Scan::new(text);
        loop {
            scan.spaces();
            if !matches!(scan.peek(), None | Some(b',')) {
                item(&mut scan, &mut set)?;
            }
            if scan.peek().is_none() {
                return Ok(set);
            }
            if !scan.eat(b',') {
                return Err(scan.unexpected("':', ',' or the end"));
            }
        }
    }
}

/// One UUID with its tags and intervals, and the white space after it.
fn item(scan: &mut Scan<'_>, set: &mut MysqlSet) -> Result<(), ParseError> {
    let uuid = Uuid::scan(scan)?;
    let mut tag = Tag::untagged();
    scan.spaces();
    while scan.eat(b':') {
        scan.spaces();
        match scan.peek() {
            Some(b'0'..=b'9') => interval(scan, set, uuid, &tag)?,
            Some(byte) if Tag::begins(byte) => tag = Tag::scan(scan)?,
            Some(_) | None => return Err(scan.unexpected("a number or a tag")),
        }
        scan.spaces();
    }
    Ok(())
}

fn interval(
    scan: &mut Scan<'_>,
    set: &mut MysqlSet,
    uuid: Uuid,
    tag: &Tag,
) -> Result<(), ParseError> {
    let start = scan.at();
    let first = scan.number(MAX_GNO)?;
    if first == 0 {
        return Err(ParseError::new(start, "number 0: GTIDs begin at 1"));
    }
    scan.spaces();
    let last = if scan.eat(b'-') {
        scan.spaces();
        scan.number(MAX_GNO)?
    } else {
        first
    };
    // A range that falls is empty to the server, no error.
    set.insert_range(uuid, tag, first, last);
    Ok(())
}

impl fmt::Display for MysqlSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open = None;
        for (uuid, tag, intervals) in self.entries() {
            if open != Some(uuid) {
                let comma = if open.is_some() { "," } else { "" };
                write!(f, "{comma}{uuid}")?;
                open = Some(uuid);
            }
            if !tag.is_untagged() {
                write!(f, ":{tag}")?;
            }
            for (first, last) in intervals.iter() {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
        }
        Ok(())
    }
}
