//! Keys of objects, relative to the archive's prefix. One function a kind of object, so that no
//! other module ever writes a key by hand.
//!
//! **Invariants.** Names in keys come from validated values only. Numbers have ten digits, so that
//! a listing is in order of numbers; readers sort all the same (I12).

use crate::segment::{Digest, Incarnation, SegmentNumber, SourceName};

/// How a payload's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// As they are.
    Identity,
    /// One zstd stream.
    Zstd,
}

/// Where all manifests, incarnations, losses and letter copies of all sources are.
pub(super) const INDEX: &str = "index/";

/// Where all payloads of all sources are.
pub(super) const PAYLOADS: &str = "payloads/";

/// Where the payloads of an incarnation are.
pub(super) fn payloads(source: &SourceName, incarnation: &Incarnation) -> String {
    format!("{PAYLOADS}{source}/{incarnation}/")
}

/// A payload.
pub(super) fn payload(
    source: &SourceName,
    incarnation: &Incarnation,
    number: SegmentNumber,
    digest: &Digest,
    encoding: Encoding,
) -> String {
    let suffix = match encoding {
        Encoding::Identity => "",
        Encoding::Zstd => ".zst",
    };
    let (folder, number) = (payloads(source, incarnation), number.padded());
    format!("{folder}{number}-{}.binlog{suffix}", digest.short())
}

/// The number in a payload's key.
pub(super) fn payload_number(key: &str) -> Option<SegmentNumber> {
    let (_, name) = key.rsplit_once('/')?;
    let (number, rest) = name.split_once('-')?;
    let digest = rest.strip_suffix(".zst").unwrap_or(rest).strip_suffix(".binlog")?;
    let hex = digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { SegmentNumber::from_padded(number) } else { None }
}

/// Where the incarnations of a source are.
pub(super) fn incarnations(source: &SourceName) -> String {
    format!("{INDEX}{source}/incarnations/")
}

/// An incarnation's record.
pub(super) fn incarnation(source: &SourceName, ordinal4: &str) -> String {
    format!("{}{ordinal4}.json", incarnations(source))
}

/// Where the manifests of an incarnation are.
pub(super) fn manifests(source: &SourceName, incarnation: &Incarnation) -> String {
    format!("{INDEX}{source}/{incarnation}/manifests/")
}

/// A manifest: the commit point (I1).
pub(super) fn manifest(
    source: &SourceName,
    incarnation: &Incarnation,
    number: SegmentNumber,
) -> String {
    format!("{}{}.json", manifests(source, incarnation), number.padded())
}

/// The number in a manifest's key.
pub(super) fn manifest_number(key: &str) -> Option<SegmentNumber> {
    let (_, name) = key.rsplit_once('/')?;
    SegmentNumber::from_padded(name.strip_suffix(".json")?)
}

/// Where the catalog of an incarnation is.
pub(super) fn catalog(source: &SourceName, incarnation: &Incarnation) -> String {
    format!("mutable/{source}/catalog/{incarnation}/")
}

/// A block of the catalog.
pub(super) fn catalog_block(
    source: &SourceName,
    incarnation: &Incarnation,
    first: u64,
    last: u64,
) -> String {
    format!("{}{first:010}-{last:010}.jsonl.zst", catalog(source, incarnation))
}

/// The writer lease of a source.
pub(super) fn lease(source: &SourceName) -> String {
    format!("mutable/{source}/writer.json")
}

/// The object that probes write.
pub(super) fn canary(source: &SourceName) -> String {
    format!("mutable/{source}/canary")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_format() {
        let source: SourceName = "db1".parse().unwrap();
        let incarnation: Incarnation = "0001-0a1b2c3d".parse().unwrap();
        let digest = Digest::from_bytes([0xab; 32]);
        let number = SegmentNumber(42);
        let key = payload(&source, &incarnation, number, &digest, Encoding::Zstd);
        assert_eq!(
            key,
            format!("payloads/db1/0001-0a1b2c3d/0000000042-{}.binlog.zst", "ab".repeat(16))
        );
        assert_eq!(payload_number(&key), Some(number));
        let key = manifest(&source, &incarnation, number);
        assert_eq!(key, "index/db1/0001-0a1b2c3d/manifests/0000000042.json");
        assert_eq!(manifest_number(&key), Some(number));
        assert_eq!(lease(&source), "mutable/db1/writer.json");
        assert_eq!(payload_number("payloads/db1/0001-0a1b2c3d/.tmp-1"), None);
    }
}
