//! How much memory an archiving run holds, on segments of 0 bytes to 1 GiB.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Generated, Rows, S3Server, Workspace, sha256_file, source_config};

const MIB: u64 = 1 << 20;

/// What the issue promises at 4 workers.
const PEAK_MAX: u64 = 128 * MIB;

/// In order of number; the large ones first, so that four workers have them at the same time. The
/// last but one is empty: a server died before it wrote its first byte.
const SIZES: [u64; 6] = [1024 * MIB, 256 * MIB, 256 * MIB, 256 * MIB, 100 * MIB, 10 << 10];

/// Writes the segments, an index and an active file. Answers the SHA-256 of each closed one.
fn generate(dir: &Path) -> Vec<String> {
    let name = |number: usize| format!("binlog.{number:06}");
    let (mut gno, mut index) = (1, String::new());
    let mut write = |number: usize, segment: Generated| {
        let segment = Generated { first_gno: gno, rows: Rows::Noise, rows_events: 16, ..segment };
        let mut file =
            BufWriter::with_capacity(1 << 20, File::create(dir.join(name(number))).unwrap());
        gno += segment.write(&mut file).unwrap().transactions;
    };
    for (at, size_min) in SIZES.into_iter().enumerate() {
        let (number, seed) = (at + 1, at as u8);
        let next = Some(name(number + 1));
        write(number, Generated { size_min, seed, next, ..Generated::default() });
    }
    let empty = SIZES.len() + 1;
    File::create(dir.join(name(empty))).unwrap();
    let active = Generated { created_at_startup: true, next: None, ..Generated::default() };
    write(empty + 1, active);
    for number in 1..=empty + 1 {
        index += &format!("./{}\n", name(number));
    }
    std::fs::write(dir.join("binlog.index"), index).unwrap();
    (1..=empty).map(|number| sha256_file(&dir.join(name(number)))).collect()
}

/// Archives everything in one run and answers the peak of its memory.
fn peak_of_a_run(what: &str, dir: &Path, digests: &[String], store: &str, env: &Workspace) -> u64 {
    env.write_config(&source_config("memory", dir, store));
    let start = Instant::now();
    let daemon = env.daemon(&["run", "--once", "--json"]);
    let (code, peak) = daemon.wait_measured(Duration::from_secs(900));
    let log = std::fs::read_to_string(env.join("daemon.log")).unwrap();
    assert_eq!(code, 0, "{what}: {log}");
    eprintln!("{what}: peak {:.1} MiB in {:?}", peak as f64 / MIB as f64, start.elapsed());
    let report: Value = serde_json::from_str(&log[log.find("{\n").unwrap()..]).unwrap();
    assert_eq!(report["archived"], digests.len(), "{what}");
    assert_eq!(report["cursor"]["segment"], format!("binlog.{:06}", digests.len()), "{what}");
    peak
}

fn upload(compression: &str) -> String {
    format!("[upload]\nworkers = 4\ncompression = \"{compression}\"\n")
}

/// Takes minutes: 2 GiB are archived four times, and an S3 server on the same two cores stores
/// some 30 MiB a second. One test, so that the segments are made once and one archive at a time
/// is on disk.
#[test]
fn segments_of_any_size_take_little_memory() {
    let segments = tempfile::Builder::new().prefix("binlog-archiver-memory-").tempdir().unwrap();
    let digests = generate(segments.path());
    let mut peaks = Vec::new();
    for compression in ["zstd", "none"] {
        let workspace = Workspace::new();
        let folder = workspace.join("archive");
        std::fs::create_dir(&folder).unwrap();
        let store =
            format!("[store]\nurl = \"file://{}\"\n{}", folder.display(), upload(compression));
        let what = format!("file, {compression}");
        peaks.push((peak_of_a_run(&what, segments.path(), &digests, &store, &workspace), what));
        let manifests = folder.join("index/memory");
        let incarnation = std::fs::read_dir(&manifests)
            .unwrap()
            .map(|entry| entry.unwrap().path().join("manifests"))
            .find(|path| path.is_dir())
            .unwrap();
        for (at, digest) in digests.iter().enumerate() {
            let bytes = std::fs::read(incarnation.join(format!("{:010}.json", at + 1))).unwrap();
            let manifest: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(manifest["digest"], **digest, "{manifest}");
        }
    }
    for compression in ["zstd", "none"] {
        // A server of its own, so that its data goes with it.
        let s3 = S3Server::own();
        let workspace = Workspace::new().with_env(s3.env());
        let store = s3.store_section("memory") + &upload(compression);
        let what = format!("S3, {compression}");
        peaks.push((peak_of_a_run(&what, segments.path(), &digests, &store, &workspace), what));
        let manifests = s3.archived(&s3.bucket, "memory", "memory").manifests();
        let stored: Vec<&str> = manifests.iter().map(|m| m["digest"].as_str().unwrap()).collect();
        assert_eq!(stored, digests);
    }
    for (peak, what) in peaks {
        assert!(peak < PEAK_MAX, "{what}: {} MiB", peak / MIB);
    }
}
