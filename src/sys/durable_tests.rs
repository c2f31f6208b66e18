//! Tests of durable writes: every step failed in turn.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::*;

fn open() -> (tempfile::TempDir, StateDir) {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(&dir.path().join("state")).unwrap();
    (dir, state)
}

/// Fails the `nth` (from 0) step of this kind with `errno`.
fn failing(at: Step, errno: Errno) -> Hook {
    let left = Mutex::new(Some(errno));
    Arc::new(move |step, _| match left.lock().unwrap().take_if(|_| step == at) {
        Some(errno) => Err(errno.into()),
        None => Ok(()),
    })
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_write_replaces_the_whole_file_and_leaves_nothing_beside_it() {
    let (_dir, state) = open();
    let path = state.root().join("cursor.json");
    state.write_atomic(&path, b"a long old content").unwrap();
    state.write_atomic(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(state.root()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(names(state.root()), ["cursor.json", "lock"]);
}

#[test]
fn the_steps_come_in_the_order_that_survives_a_power_cut() {
    let (_dir, state) = open();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let state = state.with_hook(Arc::new(move |step, _| {
        log.lock().unwrap().push(step);
        Ok(())
    }));
    state.write_atomic(&state.root().join("f"), b"x").unwrap();
    let expected = [
        Step::OpenFolder,
        Step::OpenFile,
        Step::Write,
        Step::SyncFile,
        Step::Rename,
        Step::SyncFolder,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn stopping_before_any_step_leaves_the_old_content_whole_until_the_rename() {
    for (step, after) in [
        (Step::OpenFolder, "old"),
        (Step::OpenFile, "old"),
        (Step::Write, "old"),
        (Step::SyncFile, "old"),
        (Step::Rename, "old"),
        (Step::SyncFolder, "new"),
    ] {
        let (_dir, state) = open();
        let path = state.root().join("f");
        state.write_atomic(&path, b"old").unwrap();
        let state = state.with_hook(failing(step, Errno::NOSPC));
        let error = state.write_atomic(&path, b"new").unwrap_err();
        assert!(matches!(error, StateWriteError::Full { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), after, "{step:?}");
        assert_eq!(names(state.root()), ["f", "lock"], "{step:?}");
        // No room does not poison.
        state.write_atomic(&path, b"again").unwrap();
    }
}

#[test]
fn a_failed_sync_or_rename_or_eio_poisons_for_good() {
    for (step, errno) in [
        (Step::Write, Errno::IO),
        (Step::SyncFile, Errno::IO),
        (Step::SyncFile, Errno::INVAL),
        (Step::Rename, Errno::ACCESS),
        (Step::SyncFolder, Errno::BADF),
    ] {
        let (_dir, state) = open();
        let state = state.with_hook(failing(step, errno));
        let path = state.root().join("f");
        let first = state.write_atomic(&path, b"x").unwrap_err();
        assert!(matches!(first, StateWriteError::Poisoned { .. }), "{first}");
        // The hook fails once only; it is the handle that refuses from now on.
        let other = state.root().join("g");
        for later in [
            state.write_atomic(&other, b"y"),
            state.append(&other, b"y"),
            state.remove(&other),
            state.rename(&path, &other),
            state.create_dir_durable(&other),
            state.save_json(&other, 1).map(|_| ()),
            state.remove_temp_files(state.root()).map(|_| ()),
        ] {
            assert_eq!(later.unwrap_err().to_string(), first.to_string());
        }
        assert!(!other.exists());
        assert!(state.poisoned().is_some());
    }
}

#[test]
fn a_refusal_neither_writes_nor_poisons() {
    let (_dir, state) = open();
    let error = state.write_atomic(&state.root().join("no/such/folder"), b"x").unwrap_err();
    assert!(matches!(error, StateWriteError::Refused { .. }), "{error}");
    assert_eq!(state.poisoned(), None);
}

#[test]
fn only_our_unfinished_files_are_removed() {
    let (_dir, state) = open();
    for name in [".tmp-abc", ".tmp-", "f.tmp-", ".keep"] {
        fs::write(state.root().join(name), "x").unwrap();
    }
    fs::create_dir(state.root().join(".tmp-dir")).unwrap();
    assert_eq!(state.remove_temp_files(state.root()).unwrap(), 2);
    assert_eq!(names(state.root()), [".keep", ".tmp-dir", "f.tmp-", "lock"]);
}

#[test]
fn folders_are_made_with_those_above_them_and_may_be_there() {
    let (_dir, state) = open();
    let deep = state.root().join("a/b/c");
    state.create_dir_durable(&deep).unwrap();
    state.create_dir_durable(&deep).unwrap();
    assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
    let file = state.root().join("f");
    state.write_atomic(&file, b"x").unwrap();
    assert!(state.create_dir_durable(&file).is_err());
}

#[test]
fn values_come_back_with_their_proof_and_rot_is_an_error() {
    let (_dir, state) = open();
    let path = state.root().join("v.json");
    let saved = state.save_json(&path, vec![1, 2, 3]).unwrap();
    let loaded: Durable<Vec<u32>> = state.load_json(&path, 1000).unwrap();
    assert_eq!(loaded, saved);
    assert_eq!(load_optional::<Vec<u32>>(&path).unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(load_optional::<Vec<u32>>(&state.root().join("w.json")).unwrap(), None);
    fs::write(&path, "[1, 2").unwrap();
    assert!(load_optional::<Vec<u32>>(&path).is_err());
    let error = state.load_json::<Vec<u32>>(&path, 1000).unwrap_err();
    assert!(error.to_string().contains("v.json does not decode"), "{error}");
}

#[test]
fn appends_add_and_moves_and_removals_are_idempotent_where_they_can_be() {
    let (_dir, state) = open();
    let path = state.root().join("j.jsonl");
    state.append(&path, b"1\n").unwrap();
    state.append(&path, b"2\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"1\n2\n");
    let folder = state.root().join("old");
    state.create_dir_durable(&folder).unwrap();
    let moved = folder.join("j.jsonl");
    state.rename(&path, &moved).unwrap();
    assert!(moved.exists() && !path.exists());
    state.remove(&moved).unwrap();
    state.remove(&moved).unwrap();
}

#[test]
fn a_second_handle_is_refused_while_the_first_lives() {
    let (_dir, state) = open();
    let second = StateDir::open(state.root());
    assert!(matches!(second, Err(OpenStateError::Lock(_))), "{second:?}");
    let root = state.root().to_owned();
    drop(state);
    StateDir::open(&root).unwrap();
}

#[test]
fn a_full_file_system_is_told_from_a_broken_one() {
    // The kernel's own ENOSPC, not an injected one.
    let (_dir, state) = open();
    let error = state.append(Path::new("/dev/full"), b"x").unwrap_err();
    assert!(matches!(error, StateWriteError::Full { .. }), "{error}");
    assert_eq!(state.poisoned(), None);
}

#[test]
fn the_errors_of_a_real_folder_keep_their_number() {
    let (_dir, state) = open();
    let gone = state.root().join("gone");
    fs::create_dir(&gone).unwrap();
    let hook: Hook = {
        let gone = gone.clone();
        Arc::new(move |step, _| if step == Step::OpenFile { fs::remove_dir(&gone) } else { Ok(()) })
    };
    let state = state.with_hook(hook);
    let failed = state.write_atomic(&gone.join("f"), b"x").unwrap_err();
    let StateWriteError::Refused { source, .. } = failed else { panic!("{failed:?}") };
    assert_eq!(source.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    assert_eq!(state.poisoned(), None);
}
