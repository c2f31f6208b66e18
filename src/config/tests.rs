//! Good files, and the golden message of every bad value.

use super::*;
use std::time::Duration;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
}

const MINIMAL: &str =
    "[source]\nbinlog_dir = \"/var/lib/mysql\"\n[store]\nurl = \"s3://bucket/db\"\n";

/// The message for the minimal file with these lines added to one section.
fn problem(section: &str, lines: &str) -> String {
    let text = match section {
        "source" => format!("[store]\nurl = \"s3://bucket\"\n[source]\n{lines}\n"),
        "store" => format!("[source]\nbinlog_dir = \"/b\"\n[store]\n{lines}\n"),
        other => format!("{MINIMAL}[{other}]\n{lines}\n"),
    };
    parse(&text).unwrap_err()
}

#[test]
fn a_minimal_file_gets_every_default() {
    let config = parse(MINIMAL).unwrap();
    let source = &config.source;
    assert_eq!(source.binlog_dir, Path::new("/var/lib/mysql"));
    assert_eq!(source.server_expire, Some(Duration::from_secs(30 * 86_400)));
    assert_eq!((&source.datadir, &source.index, &source.name), (&source.binlog_dir, &None, &None));
    assert_eq!(
        (&source.start, source.encrypted_segments),
        (&Start::Oldest, EncryptedSegments::Refuse)
    );
    let store = &config.store;
    assert_eq!(store.url, StoreUrl::S3 { bucket: "bucket".into(), prefix: "db".into() });
    assert!(store.canary && !store.path_style);
    assert_eq!((store.proof, store.checksum), (Proof::Auto, StoreChecksum::Sha256));
    assert_eq!(config.state.dir, Path::new("/var/lib/binlog-archiver"));
    assert_eq!(config.pins.dir, Path::new("/var/lib/binlog-archiver/pins"));
    assert_eq!(config.pins.min_free, MinFree::Percent(10));
    let upload = &config.upload;
    assert_eq!((upload.workers, upload.compression), (4, Compression::Zstd));
    assert_eq!((upload.part_size, upload.multipart_threshold), (8 << 20, 512 << 20));
    assert_eq!(upload.max_bandwidth, None);
    assert_eq!(config.watch.poll_interval, Duration::from_secs(5));
    assert_eq!((config.retry.max_attempts, config.retry.max_age), (8, Duration::from_secs(21_600)));
    assert_eq!(config.control.socket, Path::new("/run/binlog-archiver/control"));
    assert_eq!(config.http.listen.unwrap().to_string(), "127.0.0.1:9187");
    assert!(config.pages.is_empty());
}

#[test]
fn a_full_file_is_taken_as_written() {
    let config = parse(
        r#"
[source]
name = "db1"
index = "/data/log/binlog.index"
datadir = "/data"
start = "binlog.000042"
encrypted_segments = "opaque"
server_expire = "7d"
[store]
url = "file:///srv/archive"
[pins]
copy_budget = "2GiB"
min_free = "5GiB"
[upload]
workers = 2
compression = "none"
max_bandwidth = "50MiB/s"
[watch]
poll_interval = "250ms"
[http]
listen = ""
[[page]]
kind = "pagerduty"
routing_key_file = "/etc/binlog-archiver/pagerduty"
[[page]]
kind = "alertmanager"
urls = ["http://am1:9093", "http://am2:9093"]
[[page]]
kind = "slack"
url_env = "SLACK"
[[page]]
kind = "webhook"
url = "https://example.com/hook"
[[page]]
kind = "command"
command = ["/usr/local/bin/tell", "--now"]
timeout = "10s"
"#,
    )
    .unwrap();
    assert_eq!(config.source.binlog_dir, Path::new("/data/log"));
    assert_eq!(config.source.start, Start::Segment("binlog.000042".parse().unwrap()));
    assert_eq!(config.pins.min_free, MinFree::Bytes(5 << 30));
    assert_eq!(config.upload.max_bandwidth, Some(50 << 20));
    assert_eq!(config.http.listen, None);
    assert_eq!(config.pages.len(), 5);
    assert_eq!(
        config.pages[4],
        Page::Command {
            command: vec!["/usr/local/bin/tell".into(), "--now".into()],
            timeout: Duration::from_secs(10)
        }
    );
    let never = MINIMAL.replace("[store]", "server_expire = \"0\"\n[store]");
    assert_eq!(parse(&never).unwrap().source.server_expire, None);
    let endpoint = format!("{MINIMAL}endpoint = \"http://127.0.0.1:9000/\"\n");
    let store = parse(&endpoint).unwrap().store;
    assert_eq!(
        (store.endpoint.as_deref(), store.path_style),
        (Some("http://127.0.0.1:9000"), true)
    );
}

#[test]
fn every_problem_of_a_file_is_reported_at_its_place() {
    let text =
        "[source]\nbinlog_dir = \"data\"\nnome = \"x\"\n[store]\n  url = \"bucket\"\n[uplaod]\n";
    insta::assert_snapshot!(parse(text).unwrap_err(), @r#"
    c.toml:2:14: binlog_dir in [source]: "data" is not an absolute path; begin it with /
    c.toml:3:1: unknown key nome in [source]; the nearest one is name
    c.toml:5:9: url in [store]: store URL "bucket" begins with neither s3:// nor file:///; write s3://bucket/prefix or file:///folder
    c.toml:6:2: unknown section uplaod; the nearest one is upload
    "#);
    insta::assert_snapshot!(parse("").unwrap_err(), @r"
    c.toml:1:1: binlog_dir in [source]: missing; write the folder of the server's binlogs, or index with the path of its index file
    c.toml:1:1: url in [store]: missing; write s3://bucket/prefix or file:///folder
    ");
    insta::assert_snapshot!(parse("[source\nx = \n").unwrap_err(), @"c.toml:1:8: unclosed table, expected `]`");
    insta::assert_snapshot!(parse("source = 1\nstore = []\npage = {}\n").unwrap_err(), @r"
    c.toml:1:10: binlog_dir in [source]: missing; write the folder of the server's binlogs, or index with the path of its index file
    c.toml:1:10: source is a section; write [source] above its keys
    c.toml:2:9: store is a section; write [store] above its keys
    c.toml:2:9: url in [store]: missing; write s3://bucket/prefix or file:///folder
    c.toml:3:8: page is a list; write [[page]] above each one's keys
    ");
}

#[test]
fn each_bad_value_has_its_message() {
    let cases = [
        ("source", "binlog_dir = \"/b\"\nname = \"DB 1\""),
        ("source", "binlog_dir = 5"),
        ("source", "binlog_dir = \"/b\"\nstart = \"newest\""),
        ("source", "binlog_dir = \"/b\"\nencrypted_segments = \"allow\""),
        ("source", "binlog_dir = \"/b\"\nserver_expire = \"30\""),
        ("source", "binlog_dir = \"/b\"\nmax_active_age = \"0s\""),
        ("source", "binlog_dir = \"/b\"\nserver_expire = \"never\""),
        ("source", "datadir = \"/b\""),
        ("source", "binlog_dir = \"/var/lib\""),
        ("store", "url = \"s3://b\""),
        ("store", "url = \"s3://bucket/a//b\""),
        ("store", "url = \"file://archive\""),
        ("store", "url = \"s3://bucket\"\nendpoint = \"minio:9000\""),
        ("store", "url = \"s3://bucket\"\nendpoint = \"https://minio:9000/bucket\""),
        ("store", "url = \"s3://bucket\"\nendpoint = \"https://key:secret@minio\""),
        ("store", "url = \"s3://bucket\"\nregion = \"\""),
        ("store", "url = \"s3://bucket\"\npath_style = \"yes\""),
        ("store", "url = \"s3://bucket\"\nexpected_bucket_owner = \"me\""),
        ("store", "url = \"s3://bucket\"\nsse = \"kms\""),
        ("store", "url = \"s3://bucket\"\nkms_key_id = \"k\""),
        ("store", "url = \"s3://bucket\"\nobject_lock = \"governance\""),
        ("store", "url = \"s3://bucket\"\nobject_lock_days = 30"),
        ("store", "url = \"file:///a\"\nsse = \"aes256\""),
        ("store", "url = \"file:///a\"\nobject_lock = \"compliance\"\nobject_lock_days = 1"),
        ("store", "url = \"s3://bucket\"\nproof = \"none\""),
        ("state", "dir = \"/var/lib/mysql\""),
        ("pins", "dir = \"/var/lib/mysql/pins\""),
        ("pins", "copy_budget = \"2GB\""),
        ("pins", "min_free = \"100%\""),
        ("upload", "workers = 0"),
        ("upload", "workers = \"4\""),
        ("upload", "compression = \"gzip\""),
        ("upload", "part_size = \"4MiB\""),
        ("upload", "part_size = \"65MiB\""),
        ("upload", "multipart_threshold = \"6GiB\""),
        ("upload", "max_bandwidth = \"1KiB/s\""),
        ("watch", "poll_interval = \"2h\""),
        ("retry", "base_delay = \"10m\""),
        ("control", "socket = \"control\""),
        ("http", "listen = \"0.0.0.0:9187\""),
        ("http", "listen = \"9187\""),
        ("heartbeat", "url = \"example.com\""),
        ("[page]", "url = \"https://example.com\""),
        ("[page]", "kind = \"email\""),
        ("[page]", "kind = \"pagerduty\""),
        ("[page]", "kind = \"pagerduty\"\nrouting_key_file = \"/k\"\nrouting_key_env = \"K\""),
        ("[page]", "kind = \"webhook\""),
        ("[page]", "kind = \"command\"\ncommand = [\"tell\"]"),
        ("[page]", "kind = \"alertmanager\"\nurl = \"http://am:9093\""),
    ];
    let mut golden = String::new();
    for (section, lines) in cases {
        golden += &problem(section, lines);
        golden += "\n";
    }
    insta::assert_snapshot!("bad_values", golden);
}

#[test]
fn an_absent_file_says_how_to_name_another() {
    let error = Config::load(Path::new("/nonexistent/c.toml")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/c.toml") && error.contains("--config"), "{error}");
}

#[test]
fn nothing_in_a_file_makes_it_panic() {
    use proptest::prelude::*;
    let piece = prop::sample::select(vec![
        "[source]\n",
        "[store]\n",
        "[[page]]\n",
        "[page]\n",
        "url = ",
        "name = ",
        "binlog_dir = ",
        "kind = ",
        "workers = ",
        "\"",
        "s3://",
        "\n",
        "=",
        "é",
        "{",
        "}",
        "[",
        "]",
        "1",
        "0x",
        "\u{0}",
        "18446744073709551616",
        "\"9223372036854775807d\"",
        "\"command\"\n",
        "true",
        "#",
        "'''",
    ]);
    let text = prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat());
    proptest!(|(text in text)| {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.is_empty());
        }
    });
}

/// The sample, with every commented key taken in: what it shows must be what the code knows.
#[test]
fn the_samples_parse_and_the_complete_one_has_every_key() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let minimal = Config::load(&folder.join("minimal.toml")).unwrap();
    let path = folder.join("binlog-archiver.toml");
    let complete = Config::load(&path).unwrap();
    // As shipped it says no more than the minimal one: what it sets are the defaults.
    assert_eq!(complete, minimal);

    // A key is commented out by "# " right before it; prose begins with a capital or is indented.
    let text = std::fs::read_to_string(&path).unwrap();
    let mut all = String::new();
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_key = bare.split_once(" = ").is_some_and(|(key, _)| {
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        });
        all += if is_key || bare.starts_with("[[page]]") { bare } else { line };
        all += "\n";
    }
    let document = reader::Document::new(&all);
    assert!(document.root().and_then(sections::config).is_some());
    let shown: toml::Table = all.parse().unwrap();
    for (title, key) in document.asked() {
        let name = title.trim_matches(['[', ']']);
        let found = match title.as_str() {
            "" => shown.contains_key(key),
            "[[page]]" => text.contains(key),
            _ => shown[name].as_table().unwrap().contains_key(key),
        };
        assert!(found, "{} does not show {key} of {title}", path.display());
    }
    assert_eq!(document.into_problems(), []);
}
