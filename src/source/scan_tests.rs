//! Tests of scans of a binlog directory.

use std::fs;
use std::time::Duration;

use super::*;
use crate::binlog::Kind;
use crate::source::fixture_tests::{copied, copy, scan, scanner, set};

fn names(scan: &Scan) -> Vec<&str> {
    scan.segments.iter().map(|listed| listed.name.as_str()).collect()
}

/// Sets the time of the last write back, so that the file counts as settled.
fn settle(dir: &Path) {
    let past = std::time::SystemTime::now() - Duration::from_secs(60);
    for entry in fs::read_dir(dir).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(past).unwrap();
    }
}

#[tokio::test]
async fn what_the_index_lists_is_reported_with_its_neighbours_and_first_events() {
    let dir = copied("mysql97-restart");
    // Not listed: a rotation that did not come to its index line.
    fs::write(dir.path().join("binlog.000099"), "x").unwrap();
    let scan = scan(dir.path()).await;
    let expected: Vec<String> = (1..=5).map(|n| format!("binlog.{n:06}")).collect();
    assert_eq!(names(&scan), expected);
    for (at, listed) in scan.segments.iter().enumerate() {
        assert_eq!(
            listed.listed_after.as_ref(),
            at.checked_sub(1).map(|at| &scan.segments[at].name)
        );
        assert_eq!(listed.next_listed.as_ref(), scan.segments.get(at + 1).map(|next| &next.name));
        let peek = listed.peek().unwrap();
        assert_eq!(peek.kind, Kind::Plain);
        assert!(peek.previous.is_some());
        let whole = crate::binlog::inspect(File::open(&listed.path).unwrap()).unwrap();
        assert_eq!(peek.head, whole.head);
        assert_eq!(peek.created_at_startup, whole.created_at_startup);
    }
    let last = scan.segments.last().unwrap();
    assert!(last.is_last());
    assert_eq!(scan.successor_at_startup(last), None);
    let by_start = scan.segments.iter().filter(|l| scan.successor_at_startup(l) == Some(true));
    assert_eq!(by_start.count(), 2);
}

#[tokio::test]
async fn a_listed_file_that_is_gone_or_no_file_is_told_apart() {
    let dir = copied("mysql97-basic");
    fs::remove_file(dir.path().join("binlog.000001")).unwrap();
    fs::remove_file(dir.path().join("binlog.000002")).unwrap();
    fs::create_dir(dir.path().join("binlog.000002")).unwrap();
    let scan = scan(dir.path()).await;
    assert_eq!(scan.segments[0].found, Found::Missing);
    assert!(matches!(scan.segments[1].found, Found::Unreadable(_)));
    assert!(scan.segments[2].signature().is_some());
}

#[tokio::test]
async fn order_is_by_number_and_an_older_base_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "./b.999999\n./b.1000000\n./new.000001\n";
    fs::write(dir.path().join("b.index"), lines).unwrap();
    for name in ["b.999999", "b.1000000", "new.000001"] {
        fs::copy(set("mysql97-basic").join("binlog.000001"), dir.path().join(name)).unwrap();
    }
    let scan = scan(dir.path()).await;
    assert_eq!(names(&scan), ["b.999999", "b.1000000", "new.000001"]);
}

#[tokio::test]
async fn after_a_reset_the_same_names_have_other_heads() {
    let dir = tempfile::tempdir().unwrap();
    copy(&set("mysql97-reset").join("before"), dir.path());
    let mut scanner = scanner(dir.path());
    settle(dir.path());
    let before = scanner.scan().await.unwrap();
    // Files first, in the order of the index, then the index.
    for listed in &before.segments {
        fs::remove_file(&listed.path).unwrap();
    }
    fs::remove_file(&before.index).unwrap();
    assert!(matches!(scanner.scan().await, Err(IndexError::Missing { .. })));
    copy(&set("mysql97-reset"), dir.path());
    settle(dir.path());
    let after = scanner.scan().await.unwrap();
    let first = |scan: &Scan| {
        let listed = scan.segments[0].clone();
        (listed.name.clone(), listed.peek().unwrap().head)
    };
    assert_eq!(first(&before).0, first(&after).0);
    assert_ne!(first(&before).1, first(&after).1);
}

#[tokio::test]
async fn first_events_are_read_again_only_of_files_written_to_or_not_settled() {
    let dir = copied("mysql97-basic");
    let mut scanner = scanner(dir.path());
    let kept = |a: &Scan, b: &Scan, at: usize| match (&a.segments[at].found, &b.segments[at].found)
    {
        (Found::Present { peek: a, .. }, Found::Present { peek: b, .. }) => Arc::ptr_eq(a, b),
        _ => panic!("absent"),
    };
    let fresh = scanner.scan().await.unwrap();
    let again = scanner.scan().await.unwrap();
    assert!(!kept(&fresh, &again, 0), "just written: within one tick it could change unseen");
    settle(dir.path());
    let first = scanner.scan().await.unwrap();
    let second = scanner.scan().await.unwrap();
    assert!((0..7).all(|at| kept(&first, &second, at)));
    // A pin is a hard link, and changes nothing.
    fs::hard_link(&second.segments[1].path, dir.path().join("pin")).unwrap();
    let file = File::options().write(true).open(&second.segments[0].path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(30)).unwrap();
    let third = scanner.scan().await.unwrap();
    assert!(!kept(&second, &third, 0));
    assert!(kept(&second, &third, 1));
    assert_eq!(second.segments[1].signature(), third.segments[1].signature());
}

#[tokio::test]
async fn a_file_just_created_and_still_empty_is_reported_as_torn() {
    let dir = copied("mysql97-basic");
    fs::write(dir.path().join("binlog.000007"), "").unwrap();
    let scan = scan(dir.path()).await;
    assert_eq!(scan.segments.last().unwrap().peek().unwrap().kind, Kind::Torn);
}
