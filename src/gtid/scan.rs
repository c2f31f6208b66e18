//! Reads text piece by piece and knows where it stands.

use super::ParseError;

/// A text and how far it was read. Stands on a character boundary at all times: it only ever
/// steps over ASCII.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` (ASCII) if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        if next {
            self.at += 1;
        }
        next
    }

    /// Steps over all that `wanted` (true for ASCII only) accepts.
    pub(super) fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.bytes().position(|b| !wanted(b)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// Steps over what the servers take for white space.
    pub(super) fn spaces(&mut self) {
        self.take(|b| matches!(b, b' ' | b'\t'..=b'\r'));
    }

    /// A decimal number of digits alone, at most `max`. Leading zeros mean nothing.
    pub(super) fn number(&mut self, max: u64) -> Result<u64, ParseError> {
        let start = self.at;
        let digits = self.take(|b| b.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected("a number"));
        }
        // Only too many digits can fail here, and those are above any maximum.
        match digits.parse() {
            Ok(number) if number <= max => Ok(number),
            Ok(_) | Err(_) => Err(ParseError::new(start, format!("number above {max}"))),
        }
    }

    /// The error that something else than `wanted` stands here.
    pub(super) fn unexpected(&self, wanted: &str) -> ParseError {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => format!("{found:?}"),
            None => "the end".to_owned(),
        };
        ParseError::new(self.at, format!("expected {wanted}, found {found}"))
    }
}
