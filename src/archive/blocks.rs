//! The catalog: manifests of 1,000 numbers in one object, so that a start or a check over 10^5
//! segments does not read them one by one.
//!
//! **Invariants.** The catalog is under `mutable/` and proves nothing: a line counts only where the
//! listing shows that very manifest, by its ETag; everything else is read from its own object.
//!
//! **Crash.** A block is written whole or not at all; a missing one is written by a later start.
//!
//! **Cancellation.** As a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use serde_json::Value;

use super::catalog::CommittedNumbers;
use super::encode::ZSTD_LEVEL;
use super::manifest::Manifest;
use super::{Archive, layout};
use crate::fault::{Fault, FaultKind, Operation};
use crate::gtid::Previous;
use crate::segment::{Incarnation, SegmentNumber};
use crate::store::{self, PutMode};

/// Numbers a block.
pub const BLOCK: u64 = 1_000;

/// Largest block read, as stored and decoded.
const BLOCK_MAX: usize = 256 << 20;

/// Fewer manifests than this are read one by one.
const WORTH_A_BLOCK: usize = 64;

/// The number that a block begins with.
const fn block_of(number: SegmentNumber) -> u64 {
    number.0 / BLOCK * BLOCK
}

fn bad(key: &str, what: impl Into<String>) -> Fault {
    Fault::new(Operation::Get, FaultKind::Undecodable, what).at(key)
}

impl Archive {
    /// Writes the blocks that are complete, numbers below `complete`, and not there yet. Returns how
    /// many.
    ///
    /// # Errors
    /// When the store cannot be read or written. The archive is none the worse.
    pub async fn write_catalog(
        &self,
        incarnation: &Incarnation,
        complete: SegmentNumber,
    ) -> Result<u64, Fault> {
        let committed = self.committed(incarnation).await?;
        let wanted: BTreeSet<u64> = committed
            .keys()
            .map(|number| block_of(*number))
            .filter(|first| first + BLOCK <= complete.0)
            .collect();
        let folder = layout::catalog(self.source(), incarnation);
        let there = store::list_all(self.store(), &folder).await?;
        let there: BTreeSet<String> = there.into_iter().map(|object| object.key).collect();
        let mut written = 0;
        for first in wanted {
            let key = layout::catalog_block(self.source(), incarnation, first, first + BLOCK - 1);
            if there.contains(&key) {
                continue;
            }
            let range = SegmentNumber(first)..SegmentNumber(first + BLOCK);
            let lines: Vec<_> =
                committed.range(range).map(|(number, entry)| (*number, entry)).collect();
            let numbers = lines.iter().map(|(number, _)| *number).collect();
            let manifests = self.read_each(incarnation, numbers).await?;
            let etags = lines.into_iter().map(|(_, entry)| entry.etag.as_deref());
            let bytes =
                encode(manifests.iter().map(AsRef::as_ref).zip(etags)).map_err(|error| {
                    Fault::new(Operation::Put, FaultKind::Construction, error.to_string()).at(&key)
                })?;
            let digest = store::digest_of(&bytes);
            self.store().put(&key, bytes.into(), &digest, PutMode::Replace).await?;
            written += 1;
        }
        Ok(written)
    }

    /// Reads these manifests, in order: from the catalog where it has them as listed, else one by
    /// one.
    ///
    /// # Errors
    /// When the store cannot be read, or a manifest is gone or does not decode.
    pub async fn manifests(
        &self,
        incarnation: &Incarnation,
        listed: &CommittedNumbers,
    ) -> Result<Vec<Arc<Manifest>>, Fault> {
        let mut found: BTreeMap<SegmentNumber, Arc<Manifest>> = BTreeMap::new();
        let mut by_block: BTreeMap<u64, usize> = BTreeMap::new();
        for number in listed.keys() {
            *by_block.entry(block_of(*number)).or_default() += 1;
        }
        for (first, count) in by_block {
            if count < WORTH_A_BLOCK {
                continue;
            }
            let key = layout::catalog_block(self.source(), incarnation, first, first + BLOCK - 1);
            match self.read_block(&key).await {
                Ok(lines) => {
                    for (manifest, etag) in lines {
                        let entry = listed.get(&manifest.number);
                        let ours = manifest.source == *self.source()
                            && manifest.incarnation == *incarnation;
                        if ours && etag.is_some() && entry.is_some_and(|entry| entry.etag == etag) {
                            found.insert(manifest.number, Arc::new(manifest));
                        }
                    }
                }
                // It proves nothing, so what is wrong with it costs nothing but requests.
                Err(fault) if fault.kind == FaultKind::Undecodable => {
                    tracing::warn!(%fault, "a block of the catalog is left out");
                }
                Err(fault) => return Err(fault),
            }
        }
        let missing = listed.keys().copied().filter(|number| !found.contains_key(number)).collect();
        for manifest in self.read_each(incarnation, missing).await? {
            found.insert(manifest.number, manifest);
        }
        Ok(found.into_values().collect())
    }

    async fn read_block(&self, key: &str) -> Result<Vec<(Manifest, Option<String>)>, Fault> {
        match store::get_small(self.store(), key, BLOCK_MAX).await? {
            None => Ok(Vec::new()),
            Some((bytes, _)) => decode(&bytes).map_err(|message| bad(key, message)),
        }
    }
}

/// The block's bytes: a manifest a line with its ETag. `previous` is left out where it is what the
/// line before ends with.
fn encode<'a>(
    lines: impl Iterator<Item = (&'a Manifest, Option<&'a str>)>,
) -> std::io::Result<Vec<u8>> {
    let mut out = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
    let mut after: Option<Previous> = None;
    for (manifest, etag) in lines {
        let mut line = serde_json::to_value(manifest)?;
        if let Value::Object(fields) = &mut line {
            if after.is_some() && manifest.previous == after {
                fields.remove("previous");
            }
            fields.insert("etag".to_owned(), etag.map_or(Value::Null, Value::from));
        }
        serde_json::to_writer(&mut out, &line)?;
        std::io::Write::write_all(&mut out, b"\n")?;
        after = manifest.after();
    }
    out.finish()
}

fn decode(bytes: &[u8]) -> Result<Vec<(Manifest, Option<String>)>, String> {
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|error| error.to_string())?;
    let reader = BufReader::new(decoder.take(BLOCK_MAX as u64));
    let mut lines = Vec::new();
    let mut after: Option<Previous> = None;
    for line in reader.lines() {
        let line = line.map_err(|error| error.to_string())?;
        let mut value: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let mut etag = None;
        if let Value::Object(fields) = &mut value {
            etag = fields.remove("etag").and_then(|etag| etag.as_str().map(str::to_owned));
            if let (None, Some(after)) = (fields.get("previous"), &after) {
                fields.insert("previous".to_owned(), Value::from(after.to_string()));
            }
        }
        let manifest: Manifest =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        after = manifest.after();
        lines.push((manifest, etag));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::sample;
    use crate::store::{LocalStore, Store};

    fn incarnation() -> Incarnation {
        "0001-0a1b2c3d".parse().unwrap()
    }

    async fn archive(root: &std::path::Path, numbers: std::ops::RangeInclusive<u64>) -> Archive {
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(root).unwrap());
        let source = "db1".parse().unwrap();
        for number in numbers {
            let key = layout::manifest(&source, &incarnation(), SegmentNumber(number));
            let bytes = serde_json::to_vec(&sample::value(number)).unwrap();
            let digest = store::digest_of(&bytes);
            store.put(&key, bytes.into(), &digest, PutMode::Create).await.unwrap();
        }
        Archive::read_only(store, source)
    }

    #[tokio::test]
    async fn blocks_give_back_what_the_manifests_hold() {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path(), 1..=1_100).await;
        let complete = SegmentNumber(1_100);
        assert_eq!(archive.write_catalog(&incarnation(), complete).await.unwrap(), 1);
        assert_eq!(archive.write_catalog(&incarnation(), complete).await.unwrap(), 0);
        let listed = archive.committed(&incarnation()).await.unwrap();
        let numbers = listed.keys().copied().collect();
        let one_by_one = archive.read_each(&incarnation(), numbers).await.unwrap();
        assert_eq!(archive.manifests(&incarnation(), &listed).await.unwrap(), one_by_one);

        let key = layout::catalog_block(archive.source(), &incarnation(), 0, 999);
        let lines = archive.read_block(&key).await.unwrap();
        assert_eq!(lines.len(), 999);
        let stored = std::fs::read(dir.path().join(&key)).unwrap();
        let text = String::from_utf8(zstd::decode_all(&stored[..]).unwrap()).unwrap();
        // Only the first line tells what came before it.
        assert_eq!(text.lines().filter(|line| line.contains("\"previous\":")).count(), 1);
    }

    #[tokio::test]
    async fn a_line_that_the_listing_does_not_show_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let archive = archive(dir.path(), 1..=1_000).await;
        archive.write_catalog(&incarnation(), SegmentNumber(1_000)).await.unwrap();
        let source = archive.source().clone();
        // Somebody replaced a manifest behind our back: the catalog must not hide it.
        let key = layout::manifest(&source, &incarnation(), SegmentNumber(500));
        let mut other = sample::value(500);
        other["writer_id"] = "somebody".into();
        let bytes = serde_json::to_vec(&other).unwrap();
        let digest = store::digest_of(&bytes);
        archive.store().put(&key, bytes.into(), &digest, PutMode::Replace).await.unwrap();
        let listed = archive.committed(&incarnation()).await.unwrap();
        let found = archive.manifests(&incarnation(), &listed).await.unwrap();
        assert_eq!(found[499].writer_id, "somebody");
        // Nor may a block that does not decode stop anything.
        let block = layout::catalog_block(&source, &incarnation(), 0, 999);
        let junk = bytes::Bytes::from_static(b"junk");
        let digest = store::digest_of(&junk);
        archive.store().put(&block, junk, &digest, PutMode::Replace).await.unwrap();
        assert_eq!(archive.manifests(&incarnation(), &listed).await.unwrap().len(), 1_000);
    }
}
