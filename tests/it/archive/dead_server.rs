//! `run --once --final`: the last file of a server that died.

use std::collections::BTreeMap;

use crate::common::{copy_files, fixture};
use crate::site::Site;

#[test]
fn a_dead_servers_last_file_is_archived_when_asked_for_and_known_again_after_its_restart() {
    let sets = [
        // MySQL clears the file's in-use flag when it comes back; MariaDB leaves it.
        ("mysql97-crash", 3),
        ("mariadb1011-crash", 3),
        // It ends inside an event, and MariaDB leaves that too.
        ("mariadb1011-crash-truncated", 2),
    ];
    for (set, last) in sets {
        let site = dead_server(set, last);
        let before = site.kept();
        restart(&site, set);
        assert!(keeps(&site, &before), "{set}");
        assert_eq!(site.history(), ["1 first-start from binlog.000001"], "{set}");
        let cursor = format!("0001: binlog.000001..binlog.{:06}", last + 1);
        assert_eq!(site.cursor_lines(), [cursor], "{set}");
    }
}

#[test]
fn a_last_file_that_the_restarted_server_cuts_back_is_another_segment() {
    let site = dead_server("mysql97-crash-truncated", 2);
    let before = site.kept();
    restart(&site, "mysql97-crash-truncated");
    assert!(keeps(&site, &before));
    assert_eq!(
        site.history(),
        ["1 first-start from binlog.000001", "2 fork from binlog.000002 after 0001/binlog.000001"]
    );
    assert_eq!(
        site.cursor_lines(),
        ["0001: binlog.000001..binlog.000002", "0002: binlog.000002..binlog.000003"]
    );
    // The transaction that was cut off counts in neither.
    let manifests = site.manifests();
    assert_eq!(manifests[1].text("added"), manifests[2].text("added"));
    assert_eq!((manifests[1].text("sealed"), manifests[2].text("sealed")), ("final", "crash-tail"));
}

/// A server that died in its `last` segment, archived with that one.
fn dead_server(set: &str, last: usize) -> Site {
    let site = Site::folder();
    site.show(&fixture(set));
    copy_files(&fixture(set).join("at-crash"), &site.binlogs());
    assert_eq!(site.listed().len(), last, "{set}");
    site.once().expect_code(0);
    assert_eq!(site.committed().len(), last - 1, "{set}");
    let ran = site.among_visible_processes("exec \"$BINARY\" run --once --final");
    assert_eq!(ran.code, 0, "{set}: {}{}", ran.stdout, ran.stderr);
    let manifests = site.manifests();
    assert_eq!(manifests.len(), last, "{set}");
    assert_eq!(manifests[last - 1].text("sealed"), "final", "{set}");
    assert_eq!(manifests[last - 1].value["in_use"].as_bool(), Some(true), "{set}");
    site
}

/// The same server comes back.
fn restart(site: &Site, set: &str) {
    site.show(&fixture(set));
    site.once().expect_code(0);
    site.verify(&["--deep"]).expect_code(0);
}

/// Whether all these objects are still there, as they were.
fn keeps(site: &Site, before: &BTreeMap<String, Vec<u8>>) -> bool {
    let kept = site.kept();
    before.iter().all(|(key, bytes)| kept.get(key) == Some(bytes))
}

#[test]
fn a_file_that_a_process_has_open_is_no_dead_servers() {
    let site = Site::folder();
    site.show(&fixture("mysql97-basic"));
    let ran = site.among_visible_processes(
        "(exec 3>> binlogs/binlog.000007; exec sleep 60) & sleep 0.3; \"$BINARY\" run --once --final",
    );
    assert_eq!(ran.code, 3, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("(sleep) has it open"), "{}", ran.stdout);
    assert_eq!(site.committed().len(), 6);
    let ran = site.among_visible_processes("exec \"$BINARY\" run --once --final");
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(site.committed().len(), 7);
}
