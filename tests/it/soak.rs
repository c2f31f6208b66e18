//! What takes too long for every run: `make soak`. A folder is the store, segments are generated.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Generated, Workspace, wait_until};

/// A binlog directory that grows by whole segments, as a server's does.
struct Grown {
    dir: PathBuf,
    next: u64,
    gno: u64,
}

impl Grown {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let mut grown = Self { dir, next: 1, gno: 1 };
        grown.list();
        grown
    }

    fn name(number: u64) -> String {
        format!("binlog.{number:06}")
    }

    /// Rotates: the next segment is whole before the index lists the one after it.
    fn rotate(&mut self, size_min: u64) {
        let (name, after) = (Self::name(self.next), Self::name(self.next + 1));
        let segment = Generated {
            first_gno: self.gno,
            size_min,
            next: Some(after),
            seed: (self.next % 251) as u8,
            ..Generated::default()
        };
        let mut bytes = Vec::new();
        self.gno += segment.write(&mut bytes).unwrap().transactions;
        fs::write(self.dir.join(&name), bytes).unwrap();
        self.next += 1;
        self.list();
    }

    /// Lists all that is there and the one being written, which has no file yet.
    fn list(&mut self) {
        let lines: String = (1..=self.next).map(|n| format!("./{}\n", Self::name(n))).collect();
        let temp = self.dir.join("binlog.index_crash_safe");
        fs::write(&temp, lines).unwrap();
        fs::rename(temp, self.dir.join("binlog.index")).unwrap();
    }
}

fn workspace(poll: &str) -> (Workspace, PathBuf) {
    let space = Workspace::new();
    let archive = space.join("archive");
    fs::create_dir(&archive).unwrap();
    space.write_config(&format!(
        "[source]\nname = \"soak\"\nbinlog_dir = \"{}\"\n[store]\nurl = \"file://{}\"\n[watch]\npoll_interval = \"{poll}\"\n",
        space.join("binlogs").display(),
        archive.display()
    ));
    (space, archive)
}

fn files(root: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if !entry.file_name().to_string_lossy().starts_with(".tmp-") {
                // What a killed writer left unfinished is swept a day later.
                found.push((entry.path(), entry.metadata().unwrap().len()));
            }
        }
    }
    found.sort();
    found
}

/// Minutes: 500 processes are started and killed.
#[test]
#[ignore = "soak"]
fn five_hundred_kills_lose_and_repeat_nothing() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (space, archive) = workspace("1s");
    let mut grown = Grown::new(space.join("binlogs"));
    for _ in 0..500 {
        grown.rotate(random.u64(0..300_000));
        let daemon = space.daemon(&["run"]);
        std::thread::sleep(Duration::from_millis(random.u64(0..120)));
        grown.rotate(random.u64(0..30_000));
        std::thread::sleep(Duration::from_millis(random.u64(0..60)));
        daemon.kill9();
    }
    // A writer that was killed did not release its lease, but it is this host's own.
    space.run(&["run", "--once"]).expect_code(0);
    let status = space.run(&["status", "--json"]).expect_code(0).json();
    assert_eq!(status["cursor"]["number"], grown.next - 1);
    assert_eq!(status["archived"], grown.next - 1);
    space.run(&["verify", "--deep"]).expect_code(0);
    let before = files(&archive.join("payloads"));
    assert_eq!(before.len() as u64, grown.next - 1, "one payload a segment");
    space.run(&["run", "--once"]).expect_code(0);
    assert_eq!(files(&archive.join("payloads")), before);
}

/// A minute: 10,000 small files are written and synced.
#[test]
#[ignore = "soak"]
fn ten_thousand_segments_and_a_lost_state_directory() {
    let (space, archive) = workspace("5s");
    let mut grown = Grown::new(space.join("binlogs"));
    for _ in 0..10_000 {
        grown.next += 1;
    }
    // The index is rewritten once, not 10,000 times.
    let segments = grown.next - 1;
    grown.next = 1;
    for number in 1..=segments {
        let segment = Generated {
            first_gno: number,
            size_min: 1_000,
            rows_events: 1,
            next: Some(Grown::name(number + 1)),
            ..Generated::default()
        };
        let mut file = fs::File::create(grown.dir.join(Grown::name(number))).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(segment.write(&mut bytes).unwrap().transactions, 1);
        file.write_all(&bytes).unwrap();
    }
    grown.next = segments + 1;
    grown.list();

    let timed = |what: &str, arguments: &[&str]| {
        let start = Instant::now();
        let ran = space.run(arguments).expect_code(0);
        eprintln!("{what}: {:.2} s", start.elapsed().as_secs_f64());
        ran
    };
    timed("archive 10,000 segments", &["run", "--once"]);
    timed("a second run with nothing to do", &["run", "--once"]);
    let mut daemon = space.daemon(&["run"]);
    wait_until(Duration::from_secs(60), "the catalog is written", || {
        archive.join("mutable/soak/catalog").exists()
            && files(&archive.join("mutable/soak/catalog")).len() == 10
    });
    assert!(daemon.runs());
    assert_eq!(daemon.terminate(Duration::from_secs(10)), 0);
    fs::remove_dir_all(space.join("state")).unwrap();
    let report = timed("a lost state directory, built again", &["run", "--once", "--json"]).json();
    assert_eq!(report["cursor"]["number"], segments);
    assert_eq!(report["archived"], segments);
    timed("verify", &["verify"]);
}
