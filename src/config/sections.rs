//! What each section holds, its defaults, and the rules between its keys.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Config;
use super::page::{self, Page};
use super::reader::Section;
use super::store_url::StoreUrl;
use super::types::{
    Compression, Control, EncryptedSegments, Heartbeat, Http, Limits, MinFree, ObjectLock, Pins,
    Proof, Recovery, Retry, Source, Sse, Start, State, Store, StoreChecksum, Upload, Watch,
};
use super::units;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// S3 takes no part below this, save the last of an upload.
const PART_SIZE_MIN: u64 = 5 * MIB;
/// Each worker holds one part in memory.
const PART_SIZE_MAX: u64 = 64 * MIB;
/// S3 takes no larger object in one request.
const SINGLE_PUT_MAX: u64 = 5 * GIB;

/// Reads the whole document; `None` when a problem was noted that leaves nothing to go on with.
pub(super) fn config(mut root: Section<'_, '_>) -> Option<Config> {
    let source = source(root.section("source"));
    let store = store(root.section("store"));
    let state = state(root.section("state"));
    let datadir = source.as_ref().map(|source| source.datadir.as_path());
    let pins = pins(root.section("pins"), &state.dir, datadir);
    let upload = upload(root.section("upload"));
    let watch = watch(root.section("watch"));
    let retry = retry(root.section("retry"));
    let recovery = recovery(root.section("recovery"));
    let limits = limits(root.section("limits"));
    let heartbeat = heartbeat(root.section("heartbeat"));
    let pages: Vec<Page> = root.sections("page").into_iter().filter_map(page::page).collect();
    let control = control(root.section("control"));
    let http = http(root.section("http"));
    root.end();
    Some(Config {
        source: source?,
        store: store?,
        state,
        pins,
        upload,
        watch,
        retry,
        recovery,
        limits,
        heartbeat,
        pages,
        control,
        http,
    })
}

fn source(mut section: Section<'_, '_>) -> Option<Source> {
    let name = section.read("name", str::parse);
    let folder = section.path("binlog_dir");
    let index = section.path("index");
    let datadir = section.path("datadir");
    let start = section.read("start", |text| match text {
        "oldest" => Ok(Start::Oldest),
        "now" => Ok(Start::Now),
        name => name.parse().map(Start::Segment).map_err(|error| {
            format!(
                "{error}; write \"oldest\", \"now\" or a segment's name, such as \"binlog.000042\""
            )
        }),
    });
    let policies = [("refuse", EncryptedSegments::Refuse), ("opaque", EncryptedSegments::Opaque)];
    let encrypted_segments = section.choice("encrypted_segments", &policies);
    let server_expire = section.read("server_expire", |text| match text {
        // As the server's own setting says it.
        "0" => Ok(None),
        text => units::duration(text).map(|time| Some(time).filter(|time| !time.is_zero())),
    });
    let max_active_age = duration_or(&mut section, "max_active_age", 15 * MINUTE);
    let of_index = index.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let binlog_dir = folder.or(of_index);
    if !section.has("binlog_dir") && !section.has("index") {
        section.problem(
            "binlog_dir",
            "missing; write the folder of the server's binlogs, or index with the path of its index file",
        );
    }
    section.end();
    let binlog_dir = binlog_dir?;
    Some(Source {
        name,
        index,
        datadir: datadir.unwrap_or_else(|| binlog_dir.clone()),
        binlog_dir,
        start: start.unwrap_or(Start::Oldest),
        encrypted_segments: encrypted_segments.unwrap_or(EncryptedSegments::Refuse),
        server_expire: server_expire.unwrap_or(Some(30 * DAY)),
        max_active_age,
    })
}

fn store(mut section: Section<'_, '_>) -> Option<Store> {
    let url = section.read("url", str::parse::<StoreUrl>);
    let endpoint = section.read("endpoint", endpoint);
    let region = section.word("region");
    let path_style = section.flag("path_style");
    let ca_file = section.path("ca_file");
    let expected_bucket_owner = section.read("expected_bucket_owner", account);
    let storage_class = section.word("storage_class");
    let sses = [("none", Sse::None), ("aes256", Sse::Aes256), ("kms", Sse::Kms)];
    let sse = section.choice("sse", &sses).unwrap_or(Sse::None);
    let kms_key_id = section.word("kms_key_id");
    let locks = [
        ("none", ObjectLock::None),
        ("governance", ObjectLock::Governance),
        ("compliance", ObjectLock::Compliance),
    ];
    let object_lock = section.choice("object_lock", &locks).unwrap_or(ObjectLock::None);
    let object_lock_days = section.number("object_lock_days", 1..=36_500);
    let proof = section.choice("proof", &[("auto", Proof::Auto), ("read-back", Proof::ReadBack)]);
    let checksums = [("sha256", StoreChecksum::Sha256), ("none", StoreChecksum::None)];
    let checksum = section.choice("checksum", &checksums);
    let canary = section.flag("canary");

    if !section.has("url") {
        section.problem("url", "missing; write s3://bucket/prefix or file:///folder");
    }
    match sse {
        Sse::Kms if !section.has("kms_key_id") => {
            section.problem("sse", "\"kms\" needs kms_key_id: the key's id or ARN");
        }
        Sse::None | Sse::Aes256 if section.has("kms_key_id") => {
            section.problem("kms_key_id", "has no effect without sse = \"kms\"");
        }
        Sse::None | Sse::Aes256 | Sse::Kms => {}
    }
    match object_lock {
        ObjectLock::None if section.has("object_lock_days") => section.problem(
            "object_lock_days",
            "has no effect without object_lock = \"governance\" or \"compliance\"",
        ),
        ObjectLock::Governance | ObjectLock::Compliance if !section.has("object_lock_days") => {
            section.problem("object_lock", "needs object_lock_days: how long objects stay locked");
        }
        ObjectLock::None | ObjectLock::Governance | ObjectLock::Compliance => {}
    }
    if matches!(url, Some(StoreUrl::File { .. })) {
        if sse != Sse::None {
            section.problem("sse", "a file:// archive is not encrypted by the store; remove it");
        }
        if object_lock != ObjectLock::None {
            section.problem("object_lock", "a file:// archive has no object lock; remove it");
        }
    }
    section.end();
    Some(Store {
        url: url?,
        path_style: path_style.unwrap_or(endpoint.is_some()),
        endpoint,
        region,
        ca_file,
        expected_bucket_owner,
        storage_class,
        sse,
        kms_key_id,
        object_lock,
        object_lock_days,
        proof: proof.unwrap_or(Proof::Auto),
        checksum: checksum.unwrap_or(StoreChecksum::Sha256),
        canary: canary.unwrap_or(true),
    })
}

fn state(mut section: Section<'_, '_>) -> State {
    let dir = section.path("dir").unwrap_or_else(|| PathBuf::from("/var/lib/binlog-archiver"));
    let keep_resolved = duration_or(&mut section, "keep_resolved", 90 * DAY);
    section.end();
    State { dir, keep_resolved }
}

fn pins(mut section: Section<'_, '_>, state: &Path, datadir: Option<&Path>) -> Pins {
    let dir = section.path("dir").unwrap_or_else(|| state.join("pins"));
    let copy_budget = section.read("copy_budget", units::size).unwrap_or(0);
    let min_free = section.read("min_free", |text| {
        units::percent(text).map(MinFree::Percent).map_or_else(
            || {
                units::size(text)
                    .map(MinFree::Bytes)
                    .map_err(|e| format!("{e}, or a share such as \"10%\""))
            },
            Ok,
        )
    });
    if let Some(datadir) = datadir.filter(|datadir| dir.starts_with(datadir)) {
        let mut message =
            format!("{} lies in the server's data folder {}", dir.display(), datadir.display());
        message += ", where MariaDB takes any folder for a database; choose another folder on the same file system";
        if !section.has("dir") {
            // Writing to a String cannot fail.
            let _written = write!(message, " (the default is pins in state.dir)");
        }
        section.problem("dir", message);
    }
    section.end();
    Pins { dir, copy_budget, min_free: min_free.unwrap_or(MinFree::Percent(10)) }
}

fn upload(mut section: Section<'_, '_>) -> Upload {
    let workers = section.number("workers", 1..=64).unwrap_or(4);
    let compressions = [("zstd", Compression::Zstd), ("none", Compression::None)];
    let compression = section.choice("compression", &compressions).unwrap_or(Compression::Zstd);
    let part_size = size_or(&mut section, "part_size", 8 * MIB, PART_SIZE_MIN, PART_SIZE_MAX);
    let multipart_threshold =
        size_or(&mut section, "multipart_threshold", 512 * MIB, PART_SIZE_MIN, SINGLE_PUT_MAX);
    let bandwidth = section.read("max_bandwidth", |text| {
        let bytes = units::size(text.strip_suffix("/s").unwrap_or(text))?;
        if bytes == 0 || bytes >= 64 * KIB {
            Ok(bytes)
        } else {
            Err(format!("{text:?} a second is less than 64KiB; write \"0\" for no limit"))
        }
    });
    let connect_timeout = duration_or(&mut section, "connect_timeout", 5 * SECOND);
    let attempt_grace = duration_or(&mut section, "attempt_grace", MINUTE);
    let min_rate = size_or(&mut section, "min_rate", 256 * KIB, 1, GIB);
    section.end();
    Upload {
        workers,
        compression,
        part_size,
        multipart_threshold,
        max_bandwidth: bandwidth.filter(|bytes| *bytes > 0),
        connect_timeout,
        attempt_grace,
        min_rate,
    }
}

fn watch(mut section: Section<'_, '_>) -> Watch {
    let poll_interval = duration_or(&mut section, "poll_interval", 5 * SECOND);
    if poll_interval > HOUR {
        section.problem("poll_interval", "longer than 1h: closed segments would wait too long");
    }
    section.end();
    Watch { poll_interval }
}

fn retry(mut section: Section<'_, '_>) -> Retry {
    let max_attempts = section.number("max_attempts", 1..=1000).unwrap_or(8);
    let base_delay = duration_or(&mut section, "base_delay", SECOND);
    let max_delay = duration_or(&mut section, "max_delay", 5 * MINUTE);
    let max_age = duration_or(&mut section, "max_age", 6 * HOUR);
    if base_delay > max_delay {
        let (base, max) = (units::print_duration(base_delay), units::print_duration(max_delay));
        section.problem("base_delay", format!("{base} is longer than max_delay, {max}"));
    }
    section.end();
    Retry { max_attempts, base_delay, max_delay, max_age }
}

fn recovery(mut section: Section<'_, '_>) -> Recovery {
    let interval = duration_or(&mut section, "interval", 30 * SECOND);
    let max_replays = section.number("max_replays", 0..=1000).unwrap_or(3);
    let max_passes = section.number("max_passes", 1..=1000).unwrap_or(5);
    let base_delay = duration_or(&mut section, "base_delay", 30 * SECOND);
    let batch = section.number("batch", 1..=10_000).unwrap_or(100);
    section.end();
    Recovery { interval, max_replays, max_passes, base_delay, batch }
}

fn limits(mut section: Section<'_, '_>) -> Limits {
    let lag = duration_or(&mut section, "lag", 15 * MINUTE);
    section.end();
    Limits { lag }
}

fn heartbeat(mut section: Section<'_, '_>) -> Heartbeat {
    let url = section.read("url", http_url);
    let interval = duration_or(&mut section, "interval", MINUTE);
    section.end();
    Heartbeat { url, interval }
}

fn control(mut section: Section<'_, '_>) -> Control {
    let socket = section.read("socket", |text| {
        // A Unix socket's address holds 108 bytes, the last one zero.
        if !text.starts_with('/') {
            Err(format!("{text:?} is not an absolute path; begin it with /"))
        } else if text.len() > 107 {
            Err(format!("{text:?} is longer than the 107 bytes of a socket's path"))
        } else {
            Ok(PathBuf::from(text))
        }
    });
    let group = section.word("group");
    section.end();
    Control {
        socket: socket.unwrap_or_else(|| PathBuf::from("/run/binlog-archiver/control")),
        group,
    }
}

fn http(mut section: Section<'_, '_>) -> Http {
    let listen = section.read("listen", |text| {
        if text.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!("{text:?} is not an address and port; write \"127.0.0.1:9187\", or \"\" to turn it off")
        })?;
        if address.ip().is_loopback() {
            Ok(Some(address))
        } else {
            Err(format!("{text:?} is not a loopback address: what is served has no authentication; write \"127.0.0.1:9187\""))
        }
    });
    section.end();
    Http { listen: listen.unwrap_or_else(|| Some(SocketAddr::from(([127, 0, 0, 1], 9187)))) }
}

/// A duration of at least 1 ms.
pub(super) fn duration_or(
    section: &mut Section<'_, '_>,
    key: &'static str,
    default: Duration,
) -> Duration {
    let given = section.read(key, |text| match units::duration(text) {
        Ok(duration) if duration.is_zero() => Err(format!("{text:?} is no time at all")),
        other => other,
    });
    given.unwrap_or(default)
}

fn size_or(
    section: &mut Section<'_, '_>,
    key: &'static str,
    default: u64,
    low: u64,
    high: u64,
) -> u64 {
    let given = section.read(key, |text| match units::size(text) {
        Ok(size) if !(low..=high).contains(&size) => {
            let (low, high) = (units::print_size(low), units::print_size(high));
            Err(format!("{text:?} is not between {low} and {high}"))
        }
        other => other,
    });
    given.unwrap_or(default)
}

/// An `http://` or `https://` address without a user and password in it.
pub(super) fn http_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => {
            Err("the address has a user or password in it; secrets do not belong here".to_owned())
        }
        Some(host)
            if !host.is_empty()
                && !text.contains(|c: char| c.is_whitespace() || c.is_control()) =>
        {
            Ok(text.to_owned())
        }
        Some(_) | None => {
            Err(format!("{text:?} is not an address; write http://host or https://host:port"))
        }
    }
}

/// The address of an S3-compatible server: scheme, host and port alone.
fn endpoint(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    let plain = url.strip_suffix('/').unwrap_or(&url);
    if plain.matches('/').count() == 2 && !plain.contains(['?', '#']) {
        Ok(plain.to_owned())
    } else {
        Err(format!(
            "{text:?} has more than a scheme, a host and a port; the bucket and prefix stand in url"
        ))
    }
}

fn account(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit()) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is not an AWS account number of 12 digits"))
    }
}
