//! The binlog index file: bytes to the list of segments that the server knows.
//!
//! **Invariants.** Pure and total: no input makes it panic. What it returns rises within a base;
//! text that a server would not leave there for long is an error, so that the caller reads again.
//!
//! One line a segment, relative to the server's data folder or absolute. MySQL replaces the file
//! whole, so it is always consistent when it is there. MariaDB appends in place, and purges by
//! writing the shorter list over the start of the longer one before it cuts the file: a reader in
//! between sees old lines behind the last name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::segment::{BadName, SegmentName, SegmentNumber};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Counted from 1.
    pub line: usize,
    /// As written: absolute, or relative to the server's data folder.
    pub path: PathBuf,
    /// Its last component.
    pub name: SegmentName,
}

/// The segments that an index lists, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// In the order of the file.
    pub entries: Vec<IndexEntry>,
    /// Lines at the end that a purge in progress has not cut yet; left out of `entries`.
    pub stale_lines: usize,
}

/// Why bytes are not an index, as they stand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexParseError {
    /// The last line has no newline: it is being written.
    #[error("line {line} has no newline yet")]
    Torn {
        /// Counted from 1.
        line: usize,
    },
    /// Not UTF-8 in a segment's name.
    #[error("line {line} is not UTF-8 text")]
    NotText {
        /// Counted from 1.
        line: usize,
    },
    /// The server writes its binlog into InnoDB pages.
    #[error(
        "line {line}: {name} is MariaDB's binlog in InnoDB pages, which cannot be archived; start \
         the server without binlog_storage_engine, so that it writes its binlog as files"
    )]
    PageFormat {
        /// Counted from 1.
        line: usize,
        /// The file.
        name: String,
    },
    /// Not the name of a segment.
    #[error("line {line}: {source}")]
    BadName {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: BadName,
    },
    /// One number twice. A server whose `log_bin` has two dots and no number writes all its
    /// segments under one name.
    #[error("line {line}: {name} is listed already at line {first}")]
    Repeated {
        /// Counted from 1.
        line: usize,
        /// Where it stands first.
        first: usize,
        /// The name.
        name: SegmentName,
    },
    /// A number below one listed earlier. A server only ever adds higher ones; a list that is half
    /// written over can look so.
    #[error("line {line}: {name} is listed after {before}")]
    OutOfOrder {
        /// Counted from 1.
        line: usize,
        /// The name.
        name: SegmentName,
        /// The higher one before it.
        before: SegmentName,
    },
}

impl Index {
    /// Reads the bytes of an index file.
    ///
    /// # Errors
    /// When a line is torn or no segment, or a segment is listed twice.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexParseError> {
        let mut entries = Vec::new();
        for (at, raw) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
            let line = at + 1;
            let text = raw.strip_suffix(b"\n").ok_or(IndexParseError::Torn { line })?;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if !text.is_empty() {
                entries.push(entry(line, text)?);
            }
        }
        let stale_lines = cut_stale_tail(&mut entries);
        refuse_disorder(&entries)?;
        Ok(Self { entries, stale_lines })
    }
}

fn entry(line: usize, text: &[u8]) -> Result<IndexEntry, IndexParseError> {
    let name = text.rsplit(|&b| b == b'/').next().unwrap_or(text);
    let name = std::str::from_utf8(name).map_err(|_| IndexParseError::NotText { line })?;
    if super::is_page_format_name(name) {
        // Control characters have no place in a message.
        let name = name.escape_default().to_string();
        return Err(IndexParseError::PageFormat { line, name });
    }
    let name = name.parse().map_err(|source| IndexParseError::BadName { line, source })?;
    Ok(IndexEntry { line, path: PathBuf::from(OsStr::from_bytes(text)), name })
}

/// Cuts what a purge in place left behind the last name: the end of the older list. Of that and
/// the new list, the shorter one is the end of the longer one; anything else is a list that is
/// only half written over, and is left for the caller to refuse.
fn cut_stale_tail(entries: &mut Vec<IndexEntry>) -> usize {
    let Some(last) = entries.last() else { return 0 };
    let first = entries.iter().position(|entry| entry.name == last.name);
    let Some(kept) = first.map(|at| at + 1) else { return 0 };
    let (new, tail) = entries.split_at_checked(kept).unwrap_or_default();
    let one_ends_the_other =
        new.iter().rev().zip(tail.iter().rev()).all(|(new, old)| new.name == old.name);
    let rises = tail.is_sorted_by(|a, b| a.name.number() < b.name.number());
    if !one_ends_the_other || !rises {
        return 0;
    }
    let stale = tail.len();
    entries.truncate(kept);
    stale
}

fn refuse_disorder(entries: &[IndexEntry]) -> Result<(), IndexParseError> {
    let mut seen: HashMap<(&str, SegmentNumber), usize> = HashMap::with_capacity(entries.len());
    let mut highest: HashMap<&str, &SegmentName> = HashMap::new();
    for entry in entries {
        let (line, name) = (entry.line, &entry.name);
        if let Some(first) = seen.insert((name.base(), name.number()), line) {
            return Err(IndexParseError::Repeated { line, first, name: name.clone() });
        }
        if let Some(before) = highest.insert(name.base(), name)
            && before.number() > name.number()
        {
            let (name, before) = (name.clone(), before.clone());
            return Err(IndexParseError::OutOfOrder { line, name, before });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        let index = Index::parse(text.as_bytes()).unwrap();
        index.entries.into_iter().map(|entry| entry.name.as_str().to_owned()).collect()
    }

    fn error(text: &str) -> String {
        Index::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn relative_absolute_bare_and_crlf_lines_are_read() {
        let text = "./binlog.000001\n/var/lib/mysql/binlog.000002\r\n\nbinlog.000003\n";
        let index = Index::parse(text.as_bytes()).unwrap();
        let seen: Vec<_> =
            index.entries.iter().map(|e| (e.line, e.path.to_str().unwrap())).collect();
        let expected =
            [(1, "./binlog.000001"), (2, "/var/lib/mysql/binlog.000002"), (4, "binlog.000003")];
        assert_eq!(seen, expected);
        assert_eq!(index.stale_lines, 0);
    }

    #[test]
    fn an_empty_index_lists_nothing_and_blank_lines_end_nothing() {
        assert_eq!(Index::parse(b"").unwrap(), Index::default());
        assert_eq!(names("\n\r\n"), Vec::<String>::new());
        assert_eq!(names("a.1\n\n\na.2\n"), ["a.1", "a.2"]);
    }

    #[test]
    fn dots_in_the_base_and_a_directory_with_dots_do_not_matter() {
        assert_eq!(names("./v1.5/host.example.000009\n"), ["host.example.000009"]);
        assert_eq!(names("b.999999\nb.1000000\n"), ["b.999999", "b.1000000"]);
    }

    #[test]
    fn a_line_without_newline_is_torn_even_when_it_looks_whole() {
        assert_eq!(error("./b.000001\n./b.000002"), "line 2 has no newline yet");
        assert_eq!(error("./b.00"), "line 1 has no newline yet");
    }

    #[test]
    fn what_a_purge_in_place_left_behind_is_dropped() {
        for (text, expected, stale) in [
            ("b.2\nb.3\nb.3\n", &["b.2", "b.3"][..], 1),
            // 1 to 7, purged to 3.
            ("b.3\nb.4\nb.5\nb.6\nb.7\nb.6\nb.7\n", &["b.3", "b.4", "b.5", "b.6", "b.7"], 2),
            // 1 to 7, purged to 6: the tail goes back before the first name.
            ("b.6\nb.7\nb.3\nb.4\nb.5\nb.6\nb.7\n", &["b.6", "b.7"], 5),
            ("b.7\nb.2\nb.3\nb.7\n", &["b.7"], 3),
        ] {
            let index = Index::parse(text.as_bytes()).unwrap();
            let seen: Vec<_> = index.entries.iter().map(|e| e.name.as_str()).collect();
            assert_eq!((seen.as_slice(), index.stale_lines), (expected, stale), "{text:?}");
        }
    }

    #[test]
    fn other_repeats_and_names_without_a_number_are_refused_with_their_line() {
        assert_eq!(error("b.1\nb.2\nb.1\nb.3\n"), "line 3: b.1 is listed already at line 1");
        assert_eq!(error("b.2\nb.3\nb.1\nb.2\nb.4\n"), "line 3: b.1 is listed after b.3");
        assert_eq!(error("b.2\nb.3\nb.1\nb.2\n"), "line 3: b.1 is listed after b.3");
        // Half written over, in the middle of a line: 20 is about to be written over 14.
        let half = "b.17\nb.18\nb.19\nb.24\nb.22\nb.23\nb.24\n";
        assert_eq!(error(half), "line 5: b.22 is listed after b.24");
        // The same, with one digit written: 20 is about to be written over 19.
        assert_eq!(error("b.18\nb.19\nb.29\nb.20\n"), "line 4: b.20 is listed after b.29");
        assert_eq!(error("b.1\nb.01\n"), "line 2: b.01 is listed already at line 1");
        assert!(error("./host.example\n./host.example\n").starts_with("line 1: "));
        assert!(error("b.1\n./\n").starts_with("line 2: "));
        assert!(error("b.1\n./..\n").starts_with("line 2: "));
        let bad = Index::parse(b"b.1\n\xff\xfe.2\n").unwrap_err();
        assert_eq!(bad.to_string(), "line 2 is not UTF-8 text");
    }

    #[test]
    fn two_bases_may_hold_the_same_number() {
        assert_eq!(names("old.000001\nnew.000001\n"), ["old.000001", "new.000001"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _judged = Index::parse(&bytes).is_ok();
        }

        #[test]
        fn text_close_to_an_index_never_yields_a_name_twice(
            text in "(\\./|/d/)?([ab]\\.[0-9]{1,3}\r?\n|\n|[ab]\\.[0-9]\n){0,12}"
        ) {
            if let Ok(index) = Index::parse(text.as_bytes()) {
                let mut names: Vec<_> = index.entries.iter().map(|e| e.name.as_str()).collect();
                names.sort_unstable();
                let before = names.len();
                names.dedup();
                prop_assert_eq!(names.len(), before);
            }
        }

        #[test]
        fn every_state_of_a_purge_in_place_is_the_new_list_or_an_error(
            count in 2_usize..30, purged in 1_usize..29, written in 0_usize..400
        ) {
            let purged = purged.min(count - 1);
            let list = |from: usize| -> String {
                (from..=count).map(|n| format!("./b.{n:06}\n")).collect()
            };
            let (old, new) = (list(1), list(purged + 1));
            // The first `written` bytes of the new list lie over the start of the old one.
            let written = written.min(new.len());
            let seen = format!("{}{}", &new[..written], &old[written..]);
            if let Ok(index) = Index::parse(seen.as_bytes()) {
                let names: Vec<_> = index.entries.iter().map(|e| e.name.number().0).collect();
                let from = |first: usize| (first..=count).map(|n| n as u64).collect::<Vec<_>>();
                prop_assert!(names == from(purged + 1) || names == from(1), "{:?}", names);
            }
        }
    }
}
