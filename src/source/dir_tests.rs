//! Tests of careful reads of the index.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::clock::RealClock;

/// A directory with an index, and plain empty segments of the names it lists.
struct Dir {
    dir: tempfile::TempDir,
}

impl Dir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn segments(&self, base: &str, numbers: std::ops::RangeInclusive<u32>) -> String {
        numbers
            .map(|n| {
                let name = format!("{base}.{n:06}");
                fs::write(self.path(&name), b"\xfebin").unwrap();
                format!("./{name}\n")
            })
            .collect()
    }

    fn source(&self, patience_ms: u64) -> SourceDir {
        let dir = self.dir.path().to_owned();
        let paths = SourcePaths { binlog_dir: Some(dir.clone()), index: None, datadir: dir };
        SourceDir::new(paths, Arc::new(RealClock::new()))
            .with_patience(Duration::from_millis(patience_ms))
    }

    /// As MySQL does it, with a pause where the index is gone.
    fn replace(&self, text: &str, gone: Duration) {
        let (index, safe) = (self.path("binlog.index"), self.path("binlog.index_crash_safe"));
        fs::write(&safe, text).unwrap();
        if index.exists() {
            fs::remove_file(&index).unwrap();
        }
        std::thread::sleep(gone);
        fs::rename(&safe, &index).unwrap();
    }
}

fn names(read: &IndexRead) -> Vec<&str> {
    read.index.entries.iter().map(|entry| entry.name.as_str()).collect()
}

#[tokio::test]
async fn the_index_is_found_in_the_binlog_directory() {
    let dir = Dir::new();
    fs::write(dir.path("binlog.index"), dir.segments("binlog", 1..=3)).unwrap();
    let read = dir.source(1000).read_index().await.unwrap();
    assert_eq!(read.path, dir.path("binlog.index"));
    assert_eq!(names(&read), ["binlog.000001", "binlog.000002", "binlog.000003"]);
}

#[tokio::test]
async fn a_relay_log_index_is_passed_over_by_its_flag_or_its_name() {
    let dir = Dir::new();
    fs::write(dir.path("binlog.index"), dir.segments("binlog", 1..=1)).unwrap();
    // A relay log by the flag of its first event, under an innocent name.
    let mut relay = b"\xfebin".to_vec();
    relay.resize(30, 0);
    relay[21] = 0x41;
    fs::write(dir.path("host.000001"), relay).unwrap();
    fs::write(dir.path("host.index"), "./host.000001\n").unwrap();
    // One whose flag is encrypted.
    fs::write(dir.path("db-relay-bin.000007"), [0xfd, b'b', b'i', b'n']).unwrap();
    fs::write(dir.path("db-relay-bin.index"), "./db-relay-bin.000007\n").unwrap();
    // One that lists nothing of this directory.
    fs::write(dir.path("old.index"), "./old.000001\n").unwrap();
    let read = dir.source(1000).read_index().await.unwrap();
    assert_eq!(read.path, dir.path("binlog.index"));
}

#[tokio::test]
async fn mariadb_page_files_are_refused_by_name() {
    let dir = Dir::new();
    fs::write(dir.path("binlog-000000.ibb"), b"pages").unwrap();
    let error = dir.source(1000).read_index().await.unwrap_err();
    assert!(matches!(error, IndexError::PageFormat { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("binlog-000000.ibb") && error.contains("InnoDB pages"), "{error}");
    assert!(error.contains("without binlog_storage_engine"), "{error}");

    // An index from before is followed only where the server went back to it.
    let index = dir.path("binlog.index");
    fs::write(&index, dir.segments("binlog", 1..=1)).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(60);
    let touch = |path: &Path, at| {
        fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    touch(&dir.path("binlog-000000.ibb"), later);
    let error = dir.source(1000).read_index().await.unwrap_err();
    assert!(matches!(error, IndexError::PageFormat { .. }), "{error}");
    touch(&index, later + Duration::from_secs(1));
    assert_eq!(dir.source(1000).read_index().await.unwrap().path, index);

    // An index that lists them.
    fs::write(&index, "./binlog-000000.ibb\n").unwrap();
    touch(&index, later + Duration::from_secs(1));
    let mut paths = dir.source(1).paths().clone();
    paths.index = Some(index);
    let source = SourceDir::new(paths, Arc::new(RealClock::new()));
    let error = source.with_patience(Duration::from_millis(20)).read_index().await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("line 1: binlog-000000.ibb is MariaDB's binlog in InnoDB"), "{error}");
}

#[tokio::test]
async fn two_candidates_are_named_and_neither_is_taken() {
    let dir = Dir::new();
    fs::write(dir.path("a.index"), dir.segments("a", 1..=1)).unwrap();
    fs::write(dir.path("b.index"), dir.segments("b", 1..=1)).unwrap();
    let error = dir.source(1000).read_index().await.unwrap_err().to_string();
    assert!(error.contains("a.index") && error.contains("b.index"), "{error}");
    assert!(error.ends_with("set source.index to the right one"), "{error}");
}

#[tokio::test]
async fn an_index_absent_for_a_while_is_waited_for() {
    let dir = Dir::new();
    let text = dir.segments("binlog", 1..=2);
    let source = dir.source(20_000);
    let writer = async {
        tokio::time::sleep(Duration::from_millis(120)).await;
        fs::write(dir.path("binlog.index"), &text).unwrap();
    };
    let (read, ()) = tokio::join!(source.read_index(), writer);
    assert_eq!(names(&read.unwrap()).len(), 2);
}

#[tokio::test]
async fn an_index_absent_for_too_long_is_an_error_and_never_an_empty_list() {
    let dir = Dir::new();
    let text = dir.segments("binlog", 1..=2);
    let missing = dir.source(60).read_index().await.unwrap_err();
    assert!(
        matches!(missing, IndexError::Missing { crash_safe: false, waited_ms: 60.., .. }),
        "{missing}"
    );
    // Killed between unlink and rename.
    fs::write(dir.path("binlog.index_crash_safe"), text).unwrap();
    let missing = dir.source(60).read_index().await.unwrap_err();
    assert!(matches!(missing, IndexError::Missing { crash_safe: true, .. }), "{missing}");
    let mut source = dir.source(60);
    source.paths.index = Some(dir.path("binlog.index"));
    let missing = source.read_index().await.unwrap_err();
    assert!(matches!(missing, IndexError::Missing { crash_safe: true, .. }), "{missing}");
    fs::write(dir.path("binlog.index"), "").unwrap();
    let empty = source.read_index().await.unwrap_err();
    assert!(matches!(empty, IndexError::Empty { .. }), "{empty}");
    source.paths.index = Some(dir.path("no/such/folder/binlog.index"));
    let missing = source.read_index().await.unwrap_err();
    assert!(matches!(missing, IndexError::Missing { .. }), "{missing}");
}

#[tokio::test]
async fn a_torn_line_is_waited_for_and_then_named() {
    let dir = Dir::new();
    let text = dir.segments("binlog", 1..=2);
    fs::write(dir.path("binlog.index"), text.trim_end()).unwrap();
    let torn = dir.source(60).read_index().await.unwrap_err();
    assert!(matches!(torn, IndexError::Torn { line: 2, .. }), "{torn}");
    let source = dir.source(20_000);
    let writer = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        fs::write(dir.path("binlog.index"), &text).unwrap();
    };
    let (read, ()) = tokio::join!(source.read_index(), writer);
    assert_eq!(names(&read.unwrap()).len(), 2);
}

#[tokio::test]
async fn a_bad_line_is_named_with_its_number() {
    let dir = Dir::new();
    fs::write(dir.path("host.index"), "./host.example\n./host.example\n").unwrap();
    let error = dir.source(20).read_index().await.unwrap_err().to_string();
    assert!(error.contains("host.index: line 1: "), "{error}");
}

#[tokio::test]
async fn a_purge_that_never_ends_is_read_without_its_stale_tail() {
    let dir = Dir::new();
    let all = dir.segments("binlog", 1..=3);
    fs::write(dir.path("binlog.index"), format!("{}./binlog.000003\n", &all[16..])).unwrap();
    let read = dir.source(60).read_index().await.unwrap();
    assert_eq!(names(&read), ["binlog.000002", "binlog.000003"]);
    assert_eq!(read.index.stale_lines, 1);
}

#[tokio::test]
async fn no_permission_is_told_at_once() {
    if rustix::process::geteuid().is_root() {
        // Root may read everything; a directory in place of the file is refused to all.
        let dir = Dir::new();
        fs::create_dir(dir.path("binlog.index")).unwrap();
        let error = dir.source(20_000).read_index().await.unwrap_err();
        assert!(matches!(error, IndexError::Unreadable { .. }), "{error}");
    } else {
        let dir = Dir::new();
        fs::write(dir.path("binlog.index"), dir.segments("binlog", 1..=1)).unwrap();
        fs::set_permissions(dir.path("binlog.index"), fs::Permissions::from_mode(0o000)).unwrap();
        let error = dir.source(20_000).read_index().await.unwrap_err().to_string();
        assert!(error.contains("give the archiver's user the group"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_storm_of_rotations_and_purges_no_read_is_ever_short() {
    let dir = Dir::new();
    const KEPT: u32 = 20;
    dir.replace(&dir.segments("binlog", 1..=KEPT), Duration::ZERO);
    let source = dir.source(20_000);
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            // Each step adds one and purges the oldest; the index is gone for half of the time.
            for last in KEPT + 1..KEPT + 150 {
                let text = dir.segments("binlog", last - KEPT + 1..=last);
                dir.replace(&text, Duration::from_micros(700));
                std::thread::sleep(Duration::from_micros(700));
            }
            done.store(true, Ordering::SeqCst);
        });
        let reads = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut reads = Vec::new();
                while !done.load(Ordering::SeqCst) {
                    reads.push(source.read_index().await.unwrap());
                }
                reads.push(source.read_index().await.unwrap());
                reads
            })
        });
        storm.join().unwrap();
        reads
    });
    let mut newest = 0;
    for read in &reads {
        let numbers: Vec<u64> = read.index.entries.iter().map(|e| e.name.number().0).collect();
        assert_eq!(numbers.len(), KEPT as usize, "{numbers:?}");
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
        assert!(numbers.last().copied() >= Some(newest));
        newest = numbers.last().copied().unwrap_or_default();
    }
    assert_eq!(newest, u64::from(KEPT + 149));
}

#[test]
fn lines_are_resolved_against_the_data_folder_unless_the_directory_is_given() {
    let entry = |text: &str| Index::parse(text.as_bytes()).unwrap().entries.remove(0);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let source = |binlog_dir: Option<&str>| {
        let paths = SourcePaths {
            binlog_dir: binlog_dir.map(PathBuf::from),
            index: Some("/logs/b.index".into()),
            datadir: "/data".into(),
        };
        SourceDir::new(paths, Arc::clone(&clock))
    };
    let by_index = source(None);
    assert_eq!(by_index.resolve(&entry("./b.1\n")), Path::new("/data/b.1"));
    assert_eq!(by_index.resolve(&entry("/logs/b.1\n")), Path::new("/logs/b.1"));
    assert_eq!(by_index.watched_dirs(), [Path::new("/logs")]);
    let by_dir = source(Some("/srv/mysql"));
    assert_eq!(by_dir.resolve(&entry("/var/lib/mysql/b.1\n")), Path::new("/srv/mysql/b.1"));
    assert_eq!(by_dir.watched_dirs(), [Path::new("/srv/mysql"), Path::new("/logs")]);
}
