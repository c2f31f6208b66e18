//! The manifest of a segment, and the record of an incarnation: JSON of `docs/formats.md`.
//!
//! **Invariants.** Readers ignore fields they do not know and refuse a higher `format`. Sets are
//! parsed by the manifest's own flavor when read, so that a manifest in memory never holds text
//! that is not a set.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::layout::Encoding;
use crate::gtid::{Added, Flavor, Previous};
use crate::segment::{
    Checksum, Digest, Ending, Head, Incarnation, Sealed, SegmentName, SegmentNumber, Side,
    SourceName,
};

/// The format number that this version writes and the highest it reads.
pub const FORMAT: u32 = 1;

/// How a stored payload was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// The store rejects wrong digests, and confirmed this one.
    Verified,
    /// Read back whole and hashed.
    ReadBack,
    /// A local file system wrote and synced it.
    Local,
}

/// How create-only was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Create {
    /// By the store, atomically.
    Atomic,
    /// By looking before and comparing after, under the lease.
    Checked,
}

/// Facts of a stored payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Key relative to the archive's prefix.
    pub key: String,
    /// Stored bytes.
    pub size: u64,
    /// SHA-256 of the stored bytes.
    pub digest: Digest,
    /// The store's ETag.
    pub etag: Option<String>,
    /// The store's version id.
    pub version_id: Option<String>,
    /// How the bytes are stored.
    pub encoding: Encoding,
    /// What encoded them.
    pub encoder: Option<String>,
    /// Bytes a part of a multipart upload; null for a single put.
    pub part_size: Option<u64>,
    /// How it was proven.
    pub proof: Proof,
    /// How create-only was kept.
    pub create: Create,
}

/// The JSON object that commits a segment (I1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawManifest")]
#[expect(missing_docs, reason = "the fields are those of docs/formats.md, under the same names")]
pub struct Manifest {
    pub format: u32,
    pub source: SourceName,
    pub incarnation: Incarnation,
    pub writer_id: String,
    pub segment: SegmentName,
    pub number: SegmentNumber,
    pub listed_after: Option<SegmentName>,
    pub size: u64,
    pub digest: Digest,
    pub digest_body: Option<Digest>,
    pub head: Head,
    pub key_id: Option<String>,
    pub payload: Payload,
    pub flavor: Option<Flavor>,
    pub server_version: Option<String>,
    pub server_uuid: Option<String>,
    pub checksum: Option<Checksum>,
    #[serde(serialize_with = "as_text")]
    pub previous: Option<Previous>,
    #[serde(serialize_with = "as_text")]
    pub added: Option<Added>,
    pub previous_hash: Option<Digest>,
    pub after_hash: Option<Digest>,
    pub readable: bool,
    pub transactions: Option<u64>,
    pub anonymous_transactions: Option<u64>,
    pub events: Option<u64>,
    pub incidents: Option<u64>,
    pub first_event_at: Option<Timestamp>,
    pub last_event_at: Option<Timestamp>,
    pub last_commit_at: Option<Timestamp>,
    pub created_at_startup: Option<bool>,
    pub in_use: Option<bool>,
    pub ending: Option<Ending>,
    pub next_segment: Option<String>,
    pub sealed: Sealed,
    pub archived_at: Timestamp,
    pub archiver_version: String,
}

#[derive(Deserialize)]
struct RawManifest {
    format: u32,
    source: SourceName,
    incarnation: Incarnation,
    writer_id: String,
    segment: SegmentName,
    number: SegmentNumber,
    listed_after: Option<SegmentName>,
    size: u64,
    digest: Digest,
    digest_body: Option<Digest>,
    head: Head,
    key_id: Option<String>,
    payload: Payload,
    flavor: Option<Flavor>,
    server_version: Option<String>,
    server_uuid: Option<String>,
    checksum: Option<Checksum>,
    previous: Option<String>,
    added: Option<String>,
    previous_hash: Option<Digest>,
    after_hash: Option<Digest>,
    readable: bool,
    transactions: Option<u64>,
    anonymous_transactions: Option<u64>,
    events: Option<u64>,
    incidents: Option<u64>,
    first_event_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    last_commit_at: Option<Timestamp>,
    created_at_startup: Option<bool>,
    in_use: Option<bool>,
    ending: Option<Ending>,
    next_segment: Option<String>,
    sealed: Sealed,
    archived_at: Timestamp,
    archiver_version: String,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(set) => serializer.collect_str(set),
        None => serializer.serialize_none(),
    }
}

/// Why a manifest's fields do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum BadManifest {
    /// Written by a later version.
    #[error("format {0} is newer than this version reads ({FORMAT}); use a newer binlog-archiver")]
    Format(u32),
    /// `segment` and `number` disagree.
    #[error("segment {0} does not have number {1}")]
    Number(SegmentName, SegmentNumber),
    /// A set that does not parse, or no flavor to parse it by.
    #[error("field {0} is not a GTID set: {1}")]
    Set(&'static str, String),
    /// A payload key outside the place of payloads.
    #[error("payload key {0:?} is not one of this segment's")]
    Key(String),
}

impl TryFrom<RawManifest> for Manifest {
    type Error = BadManifest;

    fn try_from(raw: RawManifest) -> Result<Self, BadManifest> {
        if raw.format > FORMAT {
            return Err(BadManifest::Format(raw.format));
        }
        if raw.segment.number() != raw.number {
            return Err(BadManifest::Number(raw.segment, raw.number));
        }
        let folder = super::layout::payloads(&raw.source, &raw.incarnation);
        let in_folder =
            raw.payload.key.strip_prefix(&folder).is_some_and(|name| !name.contains('/'));
        if !in_folder || super::layout::payload_number(&raw.payload.key) != Some(raw.number) {
            return Err(BadManifest::Key(raw.payload.key));
        }
        let previous = set("previous", raw.flavor, raw.previous, Previous::parse)?;
        let added = set("added", raw.flavor, raw.added, Added::parse)?;
        Ok(Self {
            format: raw.format,
            source: raw.source,
            incarnation: raw.incarnation,
            writer_id: raw.writer_id,
            segment: raw.segment,
            number: raw.number,
            listed_after: raw.listed_after,
            size: raw.size,
            digest: raw.digest,
            digest_body: raw.digest_body,
            head: raw.head,
            key_id: raw.key_id,
            payload: raw.payload,
            flavor: raw.flavor,
            server_version: raw.server_version,
            server_uuid: raw.server_uuid,
            checksum: raw.checksum,
            previous,
            added,
            previous_hash: raw.previous_hash,
            after_hash: raw.after_hash,
            readable: raw.readable,
            transactions: raw.transactions,
            anonymous_transactions: raw.anonymous_transactions,
            events: raw.events,
            incidents: raw.incidents,
            first_event_at: raw.first_event_at,
            last_event_at: raw.last_event_at,
            last_commit_at: raw.last_commit_at,
            created_at_startup: raw.created_at_startup,
            in_use: raw.in_use,
            ending: raw.ending,
            next_segment: raw.next_segment,
            sealed: raw.sealed,
            archived_at: raw.archived_at,
            archiver_version: raw.archiver_version,
        })
    }
}

fn set<T, E: std::fmt::Display>(
    field: &'static str,
    flavor: Option<Flavor>,
    text: Option<String>,
    parse: impl Fn(Flavor, &str) -> Result<T, E>,
) -> Result<Option<T>, BadManifest> {
    let Some(text) = text else { return Ok(None) };
    let flavor = flavor.ok_or_else(|| BadManifest::Set(field, "flavor is null".to_owned()))?;
    parse(flavor, &text).map(Some).map_err(|error| BadManifest::Set(field, error.to_string()))
}

impl Manifest {
    /// What the link table needs to know of this segment.
    #[must_use]
    pub fn side(&self) -> Side<'_> {
        Side {
            name: &self.segment,
            listed_after: self.listed_after.as_ref(),
            next_segment: self.next_segment.as_deref(),
            ending: self.ending,
            crash_tail: self.sealed == Sealed::CrashTail,
            created_at_startup: self.created_at_startup,
            previous: self.previous.as_ref(),
            added: self.added.as_ref(),
            anonymous_transactions: self.anonymous_transactions,
        }
    }

    /// The set after this segment, when it is known.
    #[must_use]
    pub fn after(&self) -> Option<Previous> {
        self.previous.as_ref()?.after(self.added.as_ref()?)
    }
}

/// SHA-256 of a set's canonical text, as in `previous_hash` and `after_hash`.
#[must_use]
pub fn set_hash(set: &Previous) -> Digest {
    Digest::from_bytes(Sha256::digest(set.canonical().as_bytes()).into())
}

/// Why an incarnation was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The first one of a source.
    FirstStart,
    /// The server began to number its segments anew.
    NumberingRestarted,
    /// The server's history parted from what is archived.
    Fork,
    /// Another server (`server_uuid`) writes the segments.
    ServerChanged,
}

/// A segment named by number and head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// Its name.
    pub segment: SegmentName,
    /// Its number.
    pub number: SegmentNumber,
    /// Its head.
    pub head: Head,
}

/// Where an earlier incarnation was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// The earlier incarnation.
    pub incarnation: Incarnation,
    /// Its last segment that this history shares, or its last one known.
    pub segment: SegmentName,
    /// That segment's number.
    pub number: SegmentNumber,
}

/// The record that opens an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of docs/formats.md, under the same names")]
pub struct IncarnationRecord {
    pub format: u32,
    pub source: SourceName,
    pub incarnation: Incarnation,
    pub ordinal: u32,
    pub reason: Reason,
    pub server_uuid: Option<String>,
    pub flavor: Option<Flavor>,
    pub first: First,
    pub predecessor: Option<Predecessor>,
    pub writer_id: String,
    pub host: String,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests;
