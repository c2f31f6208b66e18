//! Tests of the watch on directories that come and go.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use super::*;

/// Far beyond what an event takes, and far below the poll interval of these tests.
const LIMIT: Duration = Duration::from_secs(20);
const NEVER: Duration = Duration::from_secs(3600);

async fn event(watch: &mut Watch) {
    let nudge = tokio::time::timeout(LIMIT, watch.changed()).await;
    assert_eq!(nudge.expect("an event in time"), Nudge::Event);
}

/// Takes the nudges that are there already, until there is silence.
async fn settle(watch: &mut Watch) {
    while tokio::time::timeout(Duration::from_millis(250), watch.changed()).await.is_ok() {}
}

/// Goes on from nudge to nudge until this holds.
async fn until(watch: &mut Watch, holds: impl Fn(&Watch) -> bool) {
    let wait = async {
        while !holds(watch) {
            watch.changed().await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("a nudge in time");
}

fn watch(dir: &Path, poll_interval: Duration) -> Watch {
    Watch::new(&[dir.to_owned()], poll_interval)
}

#[tokio::test]
async fn what_a_rotation_does_nudges() {
    let dir = tempfile::tempdir().unwrap();
    let index = dir.path().join("binlog.index");
    fs::write(&index, "./binlog.000001\n").unwrap();
    let mut watch = watch(dir.path(), NEVER);
    assert!(watch.is_armed());
    settle(&mut watch).await;

    fs::write(dir.path().join("binlog.000002"), "x").unwrap();
    event(&mut watch).await;
    settle(&mut watch).await;

    let safe = dir.path().join("binlog.index_crash_safe");
    fs::write(&safe, "./binlog.000001\n./binlog.000002\n").unwrap();
    settle(&mut watch).await;
    fs::rename(&safe, &index).unwrap();
    event(&mut watch).await;
    settle(&mut watch).await;

    // In place, as MariaDB does it, by a descriptor that stays open.
    let mut open = OpenOptions::new().append(true).open(&index).unwrap();
    open.write_all(b"./binlog.000003\n").unwrap();
    event(&mut watch).await;
}

#[tokio::test]
async fn appends_to_the_active_segment_and_our_own_reads_are_silent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("binlog.000001");
    let mut active = File::create(&path).unwrap();
    let mut watch = watch(dir.path(), NEVER);
    settle(&mut watch).await;
    for _ in 0..50 {
        active.write_all(b"event").unwrap();
        fs::read(&path).unwrap();
        fs::read_dir(dir.path()).unwrap().count();
    }
    let nudge = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
    assert!(nudge.is_err(), "{nudge:?}");
    // The server lets go of it.
    drop(active);
    event(&mut watch).await;
}

#[tokio::test]
async fn a_thousand_events_are_few_nudges() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path(), NEVER);
    settle(&mut watch).await;
    for n in 0..1000 {
        fs::write(dir.path().join(format!("binlog.{n:06}")), "x").unwrap();
    }
    event(&mut watch).await;
    let mut more = 0;
    while tokio::time::timeout(Duration::from_millis(250), watch.changed()).await.is_ok() {
        more += 1;
    }
    assert!(more < 500, "{more}");
}

#[tokio::test]
async fn a_directory_made_anew_is_watched_again() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("mysql");
    fs::create_dir(&dir).unwrap();
    let mut watch = watch(&dir, NEVER);
    settle(&mut watch).await;
    for _ in 0..3 {
        fs::remove_dir_all(&dir).unwrap();
        until(&mut watch, |watch| !watch.is_armed()).await;
        fs::create_dir(&dir).unwrap();
        until(&mut watch, Watch::is_armed).await;
        settle(&mut watch).await;
        fs::write(dir.join("binlog.000001"), "x").unwrap();
        event(&mut watch).await;
    }
}

#[tokio::test]
async fn a_directory_made_anew_between_two_looks_is_watched_though_its_inode_is_the_same() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("mysql");
    fs::create_dir(&dir).unwrap();
    let mut watch = watch(&dir, NEVER);
    for _ in 0..5 {
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        event(&mut watch).await;
        settle(&mut watch).await;
        fs::write(dir.join("binlog.000001"), "x").unwrap();
        event(&mut watch).await;
    }
}

#[tokio::test]
async fn a_directory_replaced_by_another_of_its_name_is_watched() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("mysql");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(above.path().join("new")).unwrap();
    let mut watch = watch(&dir, NEVER);
    settle(&mut watch).await;
    fs::rename(&dir, above.path().join("old")).unwrap();
    fs::rename(above.path().join("new"), &dir).unwrap();
    event(&mut watch).await;
    settle(&mut watch).await;
    fs::write(dir.join("binlog.000001"), "x").unwrap();
    event(&mut watch).await;
}

#[tokio::test]
async fn a_directory_that_appears_later_is_watched_even_below_an_absent_one() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("var/mysql");
    let mut watch = watch(&dir, Duration::from_millis(20));
    assert!(!watch.is_armed());
    assert_eq!(watch.changed().await, Nudge::Poll);
    fs::create_dir_all(&dir).unwrap();
    let armed = async {
        while !watch.is_armed() {
            watch.changed().await;
        }
    };
    tokio::time::timeout(LIMIT, armed).await.unwrap();
}

#[tokio::test]
async fn neighbours_of_the_directory_do_not_nudge() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("mysql");
    fs::create_dir(&dir).unwrap();
    let mut watch = watch(&dir, NEVER);
    settle(&mut watch).await;
    fs::write(above.path().join("other.index"), "x").unwrap();
    fs::remove_file(above.path().join("other.index")).unwrap();
    let nudge = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
    assert!(nudge.is_err(), "{nudge:?}");
}

#[tokio::test(start_paused = true)]
async fn the_polling_floor_holds_without_events_and_is_not_moved_by_cancelling() {
    let above = tempfile::tempdir().unwrap();
    let mut watch = watch(&above.path().join("absent/dir"), Duration::from_secs(5));
    let begun = Instant::now();
    for _ in 0..10 {
        let dropped = tokio::time::timeout(Duration::from_millis(400), watch.changed()).await;
        assert!(dropped.is_err());
    }
    assert_eq!(watch.changed().await, Nudge::Poll);
    assert!(begun.elapsed() < Duration::from_millis(5_100), "{:?}", begun.elapsed());
    assert_eq!(watch.changed().await, Nudge::Poll);
}

#[tokio::test(start_paused = true)]
async fn without_a_watcher_polling_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(&dir.path().join("absent"), Duration::from_secs(5));
    watch.watcher = None;
    watch.warn(&notify::Error::new(notify::ErrorKind::MaxFilesWatch));
    assert!(watch.warned);
    assert_eq!(watch.changed().await, Nudge::Poll);
    assert!(!watch.is_armed());
}

#[test]
fn an_overrun_queue_is_a_nudge_though_it_has_no_paths() {
    let event = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
    assert_eq!(relevance(&Ok(event), &Own::default()), Relevance::Directory);
    let error = notify::Error::generic("lost");
    assert_eq!(relevance(&Err(error), &Own::default()), Relevance::Directory);
}
