//! What a QUERY event's statement does to the transaction around it.

use super::event::Cursor;

/// Bytes of a QUERY event's body that are enough for [`classify`]: its fixed part, the longest
/// status variables and schema name there can be, and the start of the statement.
pub(super) const BODY_KEEP: usize = 13 + 0xffff + 0xff + 1 + 64;

/// A statement's part in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    /// `BEGIN` or `XA START`.
    Begins,
    /// `COMMIT` or `ROLLBACK`, of a plain or an XA transaction.
    Ends,
    /// Any other.
    Plain,
}

/// Reads a QUERY event's body, or as much of it as [`BODY_KEEP`].
pub(super) fn classify(body: &[u8]) -> Statement {
    let text = statement(body).unwrap_or_default();
    let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
    let starts = |words: &str| {
        text.get(..words.len()).is_some_and(|start| start.eq_ignore_ascii_case(words.as_bytes()))
    };
    if is("BEGIN") || starts("XA START ") || starts("XA BEGIN ") {
        Statement::Begins
    } else if is("COMMIT") || is("ROLLBACK") || starts("XA COMMIT ") || starts("XA ROLLBACK ") {
        Statement::Ends
    } else {
        Statement::Plain
    }
}

fn statement(body: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor(body);
    cursor.take(8)?; // thread id, execution time
    let schema = cursor.u8()?;
    cursor.u16()?; // error code
    let variables = cursor.u16()?;
    cursor.take(usize::from(variables))?;
    cursor.take(usize::from(schema) + 1)?;
    Some(cursor.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend([4, 0, 0, 3, 0, 9, 9, 9]);
        body.extend(b"shop\0");
        body.extend(text.as_bytes());
        body
    }

    #[test]
    fn only_whole_statements_begin_or_end_a_transaction() {
        for (text, expected) in [
            ("BEGIN", Statement::Begins),
            ("XA START X'78',X'',1", Statement::Begins),
            ("COMMIT", Statement::Ends),
            ("ROLLBACK", Statement::Ends),
            ("XA COMMIT X'78',X'',1", Statement::Ends),
            ("ROLLBACK TO `a`", Statement::Plain),
            ("BEGINNING", Statement::Plain),
            ("XA END X'78',X'',1", Statement::Plain),
            ("CREATE TABLE t (id INT)", Statement::Plain),
            ("", Statement::Plain),
        ] {
            assert_eq!(classify(&body(text)), expected, "{text}");
        }
        assert_eq!(classify(&[0; 5]), Statement::Plain);
    }
}
