//! The cursor file: what is written, what is read, what stops a start.

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::archive::sample;
use crate::progress::Chain;

fn source() -> SourceName {
    "db1".parse().unwrap()
}

fn incarnation(ordinal: u32) -> Incarnation {
    format!("{ordinal:04}-0a1b2c3d").parse().unwrap()
}

/// A frontier of the incarnation, as the only maker of frontiers makes it.
fn frontier(ordinal: u32, first: u64, last: u64) -> Frontier {
    let mut chain = Chain::new(incarnation(ordinal), SegmentNumber(first));
    for number in first..=last {
        chain.insert(std::sync::Arc::new(sample::with(number, &json!({}))));
    }
    chain.frontier().unwrap()
}

fn written(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(CursorFile::path(dir.path()), text).unwrap();
    dir
}

#[track_caller]
fn refused(text: &str) -> String {
    let dir = written(text);
    let error = CursorFile::load(dir.path(), &source()).unwrap_err();
    let path = CursorFile::path(dir.path());
    assert!(
        matches!(error, StateLoadError::Decode { .. } | StateLoadError::Invalid { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), text, "it was rewritten");
    error.to_string()
}

#[test]
fn no_file_is_a_source_that_was_never_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(CursorFile::load(dir.path(), &source()).unwrap(), None);
}

#[test]
fn what_is_saved_comes_back_and_is_as_the_format_says() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let mut file = CursorFile::new(source());
    assert!(file.advance(&frontier(1, 4, 6)));
    assert!(file.advance(&frontier(2, 1, 2)));
    file.save(&state).unwrap();
    assert_eq!(CursorFile::load(dir.path(), &source()).unwrap(), Some(file.clone()));
    assert_eq!(CursorFile::peek(dir.path()).unwrap(), Some(file.clone()));
    let text = std::fs::read(CursorFile::path(dir.path())).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        value,
        json!({"format": 1, "source": "db1", "incarnations": {
            "0001-0a1b2c3d": {"from": "binlog.000004", "segment": "binlog.000006", "number": 6},
            "0002-0a1b2c3d": {"from": "binlog.000001", "segment": "binlog.000002", "number": 2},
        }})
    );
    let (newest, entry) = file.newest().unwrap();
    assert_eq!((newest, entry.number), (&incarnation(2), SegmentNumber(2)));
}

#[test]
fn a_cursor_never_goes_back() {
    let mut file = CursorFile::new(source());
    assert!(file.advance(&frontier(1, 1, 5)));
    assert!(!file.advance(&frontier(1, 1, 5)));
    assert!(!file.advance(&frontier(1, 1, 3)));
    assert_eq!(file.get(&incarnation(1)).unwrap().number, SegmentNumber(5));
    assert!(file.advance(&frontier(1, 1, 6)));
    assert_eq!(file.get(&incarnation(1)).unwrap().number, SegmentNumber(6));
    assert_eq!(file.get(&incarnation(2)), None);
}

#[test]
fn incarnations_are_in_order_of_their_ordinals() {
    let mut file = CursorFile::new(source());
    for ordinal in [2, 10, 9] {
        file.advance(&frontier(ordinal, 1, 1));
    }
    assert_eq!(file.newest().unwrap().0, &incarnation(10));
}

#[test]
fn files_that_do_not_decode_are_refused_and_left() {
    for text in ["", "{", "null", "[]", "{\"format\": 1}", "{\"format\": \"1\"}"] {
        refused(text);
    }
    let entry = |entry: &str| {
        format!(
            "{{\"format\": 1, \"source\": \"db1\", \"incarnations\": {{\"0001-0a1b2c3d\": {entry}}}}}"
        )
    };
    refused(&entry("{\"from\": \"binlog.000001\", \"segment\": \"binlog.000002\"}"));
    refused(&entry("{\"from\": \"..\", \"segment\": \"binlog.000002\", \"number\": 2}"));
    let message = refused(&entry(
        "{\"from\": \"binlog.000001\", \"segment\": \"binlog.000002\", \"number\": 3}",
    ));
    assert!(message.contains("does not have number 3"), "{message}");
    let message = refused(&entry(
        "{\"from\": \"binlog.000009\", \"segment\": \"binlog.000002\", \"number\": 2}",
    ));
    assert!(message.contains("begins after"), "{message}");
}

#[test]
fn a_newer_format_and_another_source_are_refused_by_name() {
    let message = refused("{\"format\": 2, \"source\": \"db1\", \"incarnations\": {}}");
    assert!(message.contains("format 2 is newer"), "{message}");
    // Also where its fields are others.
    let message = refused("{\"format\": 2, \"cursors\": []}");
    assert!(message.contains("format 2 is newer"), "{message}");
    let message = refused("{\"format\": 1, \"source\": \"db2\", \"incarnations\": {}}");
    assert!(message.contains("of source db2") && message.contains("archives db1"), "{message}");
}

#[test]
fn fields_of_a_later_version_of_the_same_format_are_ignored() {
    let text = "{\"format\": 1, \"source\": \"db1\", \"incarnations\": {}, \"more\": 1}";
    let dir = written(text);
    assert!(CursorFile::load(dir.path(), &source()).unwrap().is_some());
}
