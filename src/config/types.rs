//! The validated values, a type a section.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::StoreUrl;
use crate::segment::{SegmentName, SourceName};

/// `[source]`: the server whose segments are archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name in the archive; `None` means the server's UUID of `auto.cnf`.
    pub name: Option<SourceName>,
    /// The folder of its binlogs.
    pub binlog_dir: PathBuf,
    /// Its index file, when given; else the one in `binlog_dir`.
    pub index: Option<PathBuf>,
    /// Where `auto.cnf` lies.
    pub datadir: PathBuf,
    /// Where a first start begins.
    pub start: Start,
    /// What is done with encrypted segments.
    pub encrypted_segments: EncryptedSegments,
    /// After what time the server purges its binlogs; `None` when it never does.
    pub server_expire: Option<Duration>,
    /// The age of transactions in the active segment that is worth a warning.
    pub max_active_age: Duration,
}

/// Where a first start begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At the oldest segment that the server has.
    Oldest,
    /// At the segment that is active now.
    Now,
    /// At this one.
    Segment(SegmentName),
}

/// What is done with encrypted segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptedSegments {
    /// The source is suspended.
    Refuse,
    /// They are archived as they are; their GTIDs stay unknown.
    Opaque,
}

/// `[store]`: where the archive is and how objects are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The place.
    pub url: StoreUrl,
    /// The address of an S3-compatible server, without a slash at its end.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Whether the bucket stands in the path; the default is yes where `endpoint` is set.
    pub path_style: bool,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The account that must own the bucket.
    pub expected_bucket_owner: Option<String>,
    /// The storage class of payloads.
    pub storage_class: Option<String>,
    /// Encryption by the store.
    pub sse: Sse,
    /// The key of [`Sse::Kms`].
    pub kms_key_id: Option<String>,
    /// Whether objects are locked against deletion.
    pub object_lock: ObjectLock,
    /// For how long.
    pub object_lock_days: Option<u32>,
    /// How a payload is proven.
    pub proof: Proof,
    /// The checksum sent with payloads.
    pub checksum: StoreChecksum,
    /// Whether a canary object may be written.
    pub canary: bool,
}

/// Encryption by the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sse {
    /// What the bucket does by itself.
    None,
    /// Keys of the store.
    Aes256,
    /// A key of the key service.
    Kms,
}

/// Whether objects are locked against deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectLock {
    /// What the bucket does by itself.
    None,
    /// Users with a special right can lift it.
    Governance,
    /// Nobody can lift it.
    Compliance,
}

/// How a payload is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// By the store's own check where it has one, else by reading back.
    Auto,
    /// By reading every payload back.
    ReadBack,
}

/// The checksum sent with payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreChecksum {
    /// SHA-256, verified by the store.
    Sha256,
    /// None, for stores that refuse the header.
    None,
}

/// `[state]`: what this host remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The state folder.
    pub dir: PathBuf,
    /// How long resolved letters and old journal files are kept.
    pub keep_resolved: Duration,
}

/// `[pins]`: what keeps a segment's bytes when the server purges the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// The folder of links and copies.
    pub dir: PathBuf,
    /// How many bytes copies may take.
    pub copy_budget: u64,
    /// How much of the file system must stay free.
    pub min_free: MinFree,
}

/// How much of a file system must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// So many bytes.
    Bytes(u64),
    /// Such a share of its size, 0 to 99.
    Percent(u8),
}

/// `[upload]`: how payloads travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Uploads at a time.
    pub workers: u32,
    /// How payloads are compressed.
    pub compression: Compression,
    /// Bytes of one part of a multipart upload.
    pub part_size: u64,
    /// Payloads above this size go in parts.
    pub multipart_threshold: u64,
    /// Bytes a second for all uploads together; `None` for no limit.
    pub max_bandwidth: Option<u64>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long one attempt may take beyond what its size allows it.
    pub attempt_grace: Duration,
    /// Bytes a second that an attempt must reach: with its size this gives the time it is allowed.
    pub min_rate: u64,
}

/// How payloads are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zstd, level 1.
    Zstd,
    /// Not at all.
    None,
}

/// `[watch]`: how segments are discovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The longest time between two looks at the index.
    pub poll_interval: Duration,
}

/// `[retry]`: how a failing segment is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Tries while others succeed.
    pub max_attempts: u32,
    /// The first delay.
    pub base_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// The age from which failing alone counts too.
    pub max_age: Duration,
}

/// `[recovery]`: how dead letters of class `exhausted` are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Time between two looks.
    pub interval: Duration,
    /// Replays of one letter.
    pub max_replays: u32,
    /// Passes of `reprocess` over one letter.
    pub max_passes: u32,
    /// The first delay.
    pub base_delay: Duration,
    /// Letters at a time.
    pub batch: u32,
}

/// `[limits]`: what `status --check` complains about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest a closed segment may wait.
    pub lag: Duration,
}

/// `[heartbeat]`: a sign of life to somewhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Where to; `None` for nowhere.
    pub url: Option<String>,
    /// How often.
    pub interval: Duration,
}

/// `[control]`: the daemon's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Its path.
    pub socket: PathBuf,
    /// The group that may use it besides the daemon's user.
    pub group: Option<String>,
}

/// `[http]`: health, metrics and the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// The loopback address to serve on; `None` for none.
    pub listen: Option<SocketAddr>,
}
