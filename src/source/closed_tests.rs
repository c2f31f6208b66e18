//! Tests of the doors to Closed.

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use super::*;
use crate::source::fixture_tests::{copied, inspect, scan, seal_all, set, waited};
use crate::source::{Refusal, SealDamage};

/// The judgements of a folder in one line: the sealing, or the word for its absence.
async fn words(dir: &Path, policy: EncryptedPolicy) -> Vec<String> {
    let word = |verdict: SealVerdict<Closed>| match verdict {
        SealVerdict::Closed(closed) => format!("{:?}", closed.sealed()),
        SealVerdict::Closing(waiting) => format!("closing {waiting:?}"),
        SealVerdict::Active => "active".into(),
        SealVerdict::Damaged(_) => "damaged".into(),
        SealVerdict::Refused(_) => "refused".into(),
    };
    let all = seal_all(dir, policy, waited(0)).await;
    all.into_iter().map(|(_, verdict)| word(verdict)).collect()
}

#[tokio::test]
async fn every_set_that_a_real_server_left_is_judged_as_it_was() {
    let closed_then_active = |closed: usize| {
        let mut words = vec!["Closed"; closed];
        words.push("active");
        words
    };
    let closed_then_stopped = |closed: usize| {
        let mut words = vec!["Closed"; closed];
        words.push("Stop");
        words
    };
    let mut sets = vec![
        ("mysql97-basic", closed_then_active(6)),
        ("mysql97-tagged-gtid", closed_then_active(4)),
        ("mysql97-compressed", closed_then_active(5)),
        ("mysql97-nochecksum", closed_then_active(4)),
        ("mysql97-restart", closed_then_stopped(4)),
        ("mysql97-empty", closed_then_active(5)),
        ("mysql97-bigtrx", closed_then_active(2)),
        ("mysql97-purged", closed_then_active(3)),
        ("mysql97-gtidoff", closed_then_active(3)),
        ("mysql97-reset", closed_then_active(2)),
        ("mariadb1011-basic", closed_then_active(6)),
        ("mariadb1011-multidomain", closed_then_active(4)),
        ("mariadb1011-restart", closed_then_stopped(4)),
    ];
    for name in [
        "mysql97-crash",
        "mysql97-crash-truncated",
        "mariadb1011-crash",
        "mariadb1011-crash-truncated",
    ] {
        // Which one the server died in is told by the folder beside it.
        let died_in = fs::read_dir(set(name).join("at-crash"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .find(|file| !file.ends_with(".index") && file.starts_with("binlog."))
            .unwrap();
        let count = scan(copied(name).path()).await.segments.len();
        let at: usize = died_in.rsplit('.').next().unwrap().parse().unwrap();
        let mut words = closed_then_active(count - 1);
        words[at - 1] = "CrashTail";
        sets.push((name, words));
    }
    for (name, expected) in sets {
        let dir = copied(name);
        assert_eq!(words(dir.path(), EncryptedPolicy::Refuse).await, expected, "{name}");
    }
}

#[tokio::test]
async fn encrypted_segments_go_by_policy() {
    let dir = copied("mysql97-encrypted");
    let opaque = words(dir.path(), EncryptedPolicy::Opaque).await;
    assert_eq!(opaque, ["Closed", "Closed", "Closed", "Closed", "Closed", "active"]);
    let verdicts = seal_all(dir.path(), EncryptedPolicy::Refuse, waited(0)).await;
    let refused =
        verdicts.iter().filter(|(_, verdict)| *verdict == SealVerdict::Refused(Refusal::Encrypted));
    assert!(refused.count() >= 1, "{verdicts:?}");
}

#[tokio::test]
async fn damaged_variants_in_the_place_of_a_closed_segment_are_never_sealed() {
    let mut judged = 0;
    for variant in fs::read_dir(set("mysql97-corrupt")).unwrap() {
        let variant = variant.unwrap();
        let name = variant.file_name().into_string().unwrap();
        if name == "manifest.json" {
            continue;
        }
        let dir = copied("mysql97-basic");
        let bytes = fs::read(variant.path()).unwrap();
        fs::write(dir.path().join("binlog.000003"), bytes).unwrap();
        let verdicts = seal_all(dir.path(), EncryptedPolicy::Refuse, waited(0)).await;
        let (_, verdict) = verdicts.into_iter().find(|(n, _)| n == "binlog.000003").unwrap();
        match name.as_str() {
            "sound" => assert!(matches!(verdict, SealVerdict::Closed(_)), "{name}: {verdict:?}"),
            "in-use-flag-set" => {
                assert_eq!(verdict, SealVerdict::Closing(Waiting::InUseFlag));
            }
            _ => assert!(matches!(verdict, SealVerdict::Damaged(_)), "{name}: {verdict:?}"),
        }
        judged += 1;
    }
    assert!(judged >= 23, "{judged}");
}

fn set_in_use(path: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(21)).unwrap();
    file.write_all(&[1]).unwrap();
}

#[tokio::test]
async fn a_closing_segment_is_waited_for_and_after_the_limit_taken_as_it_stands() {
    let dir = copied("mariadb1011-basic");
    set_in_use(&dir.path().join("binlog.000002"));
    let verdict = |waited_secs| {
        let dir = dir.path().to_owned();
        async move {
            let all = seal_all(&dir, EncryptedPolicy::Refuse, waited(waited_secs)).await;
            all.into_iter().nth(1).unwrap().1
        }
    };
    assert_eq!(verdict(0).await, SealVerdict::Closing(Waiting::InUseFlag));
    let SealVerdict::Closed(closed) = verdict(30).await else { panic!() };
    assert_eq!(closed.sealed(), Sealed::Closed);
    assert_eq!(closed.listed_after().map(SegmentName::as_str), Some("binlog.000001"));
}

#[tokio::test]
async fn the_last_one_is_final_after_a_clean_stop_only() {
    // The fixture's last file of the first run ends in STOP; the index is cut to end with it.
    let dir = copied("mysql97-restart");
    let scan_all = scan(dir.path()).await;
    let stopped = scan_all
        .segments
        .iter()
        .position(|listed| scan_all.successor_at_startup(listed) == Some(true))
        .unwrap();
    let lines: String =
        scan_all.segments[..=stopped].iter().map(|listed| format!("./{}\n", listed.name)).collect();
    fs::write(dir.path().join("binlog.index"), lines).unwrap();
    let verdicts = seal_all(dir.path(), EncryptedPolicy::Refuse, waited(0)).await;
    let (_, SealVerdict::Closed(closed)) = &verdicts[stopped] else { panic!("{verdicts:?}") };
    assert_eq!(closed.sealed(), Sealed::Stop);
    set_in_use(closed.path());
    let verdicts = seal_all(dir.path(), EncryptedPolicy::Refuse, waited(99)).await;
    assert_eq!(verdicts[stopped].1, SealVerdict::Active);
}

#[tokio::test]
async fn a_file_that_changed_since_the_scan_is_not_sealed() {
    let dir = copied("mysql97-basic");
    let scan = scan(dir.path()).await;
    let listed = &scan.segments[0];
    let mut file = fs::OpenOptions::new().append(true).open(&listed.path).unwrap();
    file.write_all(b"x").unwrap();
    let (facts, file) = inspect(&listed.path);
    let inspected = Inspected { facts: &facts, file };
    let verdict = seal(&scan, listed, inspected, EncryptedPolicy::Refuse, waited(99));
    assert_eq!(verdict, SealVerdict::Closing(Waiting::Changed));
}

#[tokio::test]
async fn a_dead_servers_last_file_needs_the_proof_for_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    crate::source::fixture_tests::copy(
        &set("mysql97-crash-truncated").join("at-crash"),
        dir.path(),
    );
    if !dir.path().join("binlog.index").exists() {
        let name = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().file_name();
        let line = format!("./{}\n", name.to_str().unwrap());
        fs::write(dir.path().join("binlog.index"), line).unwrap();
    }
    let scan = scan(dir.path()).await;
    let listed = scan.segments.last().unwrap();
    let (facts, file) = inspect(&listed.path);
    let inspected = Inspected { facts: &facts, file };
    let policy = EncryptedPolicy::Refuse;
    assert_eq!(seal(&scan, listed, inspected, policy, waited(99)), SealVerdict::Active);
    let proof = NotOpen::assume(file);
    let verdict = seal_last_of_dead_server(listed, inspected, policy, &proof);
    let SealVerdict::Closed(closed) = verdict else { panic!("{verdict:?}") };
    assert_eq!(closed.sealed(), Sealed::Final);
    let other = NotOpen::assume(FileSignature { size: file.size + 1, ..file });
    let verdict = seal_last_of_dead_server(listed, inspected, policy, &other);
    assert_eq!(verdict, SealVerdict::Closing(Waiting::Changed));
}

#[test]
fn an_offered_file_is_taken_unless_its_bytes_are_damaged() {
    let name: SegmentName = "binlog.000003".parse().unwrap();
    let offer = |variant: &str| {
        let path = set("mysql97-corrupt").join(variant);
        let (facts, file) = inspect(&path);
        offer(name.clone(), &path, Inspected { facts: &facts, file }, EncryptedPolicy::Refuse)
    };
    let SealVerdict::Closed(closed) = offer("sound") else { panic!() };
    assert_eq!(closed.sealed(), Sealed::Offered);
    let damaged = offer("bitflip-body");
    assert!(matches!(damaged, SealVerdict::Damaged(SealDamage::Bytes(_))), "{damaged:?}");
}
