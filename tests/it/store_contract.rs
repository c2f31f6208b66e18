//! What every store promises, on a folder and on a real S3 server; then what only a folder does.

use binlog_archiver::store::{LocalStore, PutMode, Store as _, digest_of};
use bytes::Bytes;

use crate::store_cases::{block_on, code, put};

macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_a_folder {
            $(#[test] fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let store = binlog_archiver::store::LocalStore::open(folder.path()).unwrap();
                crate::store_cases::block_on(crate::store_cases::$name(&store));
            })*
        }
        mod on_s3 {
            $(#[test] fn $name() {
                crate::store_cases::block_on(async {
                    crate::store_cases::$name(&crate::store_cases::shared(stringify!($name)).await).await;
                });
            })*
        }
    };
}

on_every_store!(
    create_puts_once,
    a_wrong_digest_stores_nothing,
    replace_and_update_by_etag,
    files_of_all_sizes_come_back_equal,
    a_changed_file_is_not_stored,
    parts_make_an_object,
    a_wrong_part_is_rejected,
    completing_creates_only,
    an_aborted_upload_leaves_nothing,
    a_listing_is_whole_over_pages,
    folders_are_listed_by_name,
    what_is_not_there_is_none,
    keys_outside_are_refused,
    stale_uploads_are_swept,
    the_probe_finds_every_capability,
);

// ---- a folder alone ----

#[test]
fn a_folder_that_is_not_there_is_no_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("archive");
    assert_eq!(code(&LocalStore::open(&root).unwrap_err()), "NoSuchBucket");
    std::fs::create_dir(&root).unwrap();
    let store = LocalStore::open(&root).unwrap();
    block_on(async {
        put(&store, "index/1", b"1", PutMode::Create).await.unwrap();
        // As when a disk is unmounted: the folder is there, and is another one.
        std::fs::rename(&root, folder.path().join("away")).unwrap();
        std::fs::create_dir(&root).unwrap();
        assert_eq!(code(&store.get("index/1").await.unwrap_err()), "NoSuchBucket");
        assert_eq!(code(&store.list_page("", None).await.unwrap_err()), "NoSuchBucket");
        let fault = put(&store, "index/2", b"2", PutMode::Create).await.unwrap_err();
        assert_eq!(code(&fault), "NoSuchBucket");
    });
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn a_folder_keeps_only_whole_objects() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    block_on(async {
        let wrong = digest_of(b"");
        store.put("a/b/c", Bytes::from_static(b"x"), &wrong, PutMode::Create).await.unwrap_err();
        drop(store.multipart("a/b/d").await.unwrap());
        assert!(store.list_folders("").await.unwrap().is_empty());
    });
    assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 0);
}
