//! Checking an archive from the bucket alone: is every payload there, unchanged, and whole?
//!
//! **Invariants.** Reads only. What cannot be checked is a problem or an error, never fine (I14).

mod gaps;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};

use super::layout::{self, INDEX, PAYLOADS};
use super::lease::Lease;
use super::manifest::{IncarnationRecord, Manifest};
use super::prove::read_back;
use super::{Fault, catalog};
use crate::fault::FaultKind;
use crate::segment::{Incarnation, SegmentNumber, SourceName};
use crate::store::{self, ObjectMeta, Store};
use gaps::Walk;

/// Manifests read at once.
const LISTED_AT_ONCE: usize = 16;

/// Payloads read at once.
const DEEP_AT_ONCE: usize = 4;

/// How deep a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Listings and manifests: existence, size, ETag.
    Listed,
    /// Every payload read, decoded, hashed and compared.
    Deep,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A manifest's payload is not there.
    PayloadMissing,
    /// A payload has no manifest, an incarnation no record, or numbers between or before committed
    /// ones have neither manifest nor payload.
    ManifestMissing,
    /// Bytes do not match their digest, or an object does not decode.
    Damaged,
    /// A payload's size or ETag is not what was committed: only a deep check can tell more.
    Suspect,
}

/// One thing that is wrong, with its place.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Problem {
    /// The source.
    pub source: SourceName,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The segment's name, its number (or the first and last of several) where no manifest tells
    /// the name, or `*` for all of an incarnation.
    pub segment: String,
    /// What is wrong.
    pub kind: ProblemKind,
    /// The facts.
    pub detail: String,
}

/// What came of checking one source.
#[derive(Debug, Default)]
pub struct Checked {
    /// Manifests looked at.
    pub checked: u64,
    /// Manifests below the floor: their payloads were expired by the bucket's lifecycle.
    pub expired: u64,
    /// Segments that a live daemon may still archive.
    pub in_flight: u64,
    /// What is wrong, in order of incarnation and number.
    pub problems: Vec<Problem>,
}

/// The sources that have an index or payloads in this store.
///
/// # Errors
/// When the store cannot be read.
pub async fn list_sources(store: &dyn Store) -> Result<Vec<SourceName>, Fault> {
    let mut sources = BTreeSet::new();
    for folder in [INDEX, PAYLOADS] {
        let folders = store.list_folders(folder).await?;
        sources.extend(folders.iter().filter_map(|name| name.parse::<SourceName>().ok()));
    }
    Ok(sources.into_iter().collect())
}

/// The incarnations of a source that have manifests or payloads, with or without a record.
async fn list_incarnations(
    store: &dyn Store,
    source: &SourceName,
) -> Result<BTreeSet<Incarnation>, Fault> {
    let mut found = BTreeSet::new();
    for folder in [INDEX, PAYLOADS] {
        let folders = store.list_folders(&format!("{folder}{source}/")).await?;
        found.extend(folders.iter().filter_map(|name| name.parse::<Incarnation>().ok()));
    }
    Ok(found)
}

/// Checks all incarnations of a source. `progress` is told of each manifest done.
///
/// # Errors
/// When the store cannot be read. An object that does not decode is a problem, not an error.
pub async fn check_source(
    store: &dyn Store,
    source: &SourceName,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Checked, Fault> {
    let live = Lease::look(store, source).await?.is_some_and(|(_, live)| live);
    // Folders before records: a record is there before anything else of its incarnation is.
    let mut incarnations = list_incarnations(store, source).await?;
    let records = catalog::incarnations(store, source).await?;
    let newest = records.last().map(|record| record.incarnation.clone());
    let recorded: BTreeMap<Incarnation, IncarnationRecord> =
        records.into_iter().map(|record| (record.incarnation.clone(), record)).collect();
    incarnations.extend(recorded.keys().cloned());
    let mut checked = Checked::default();
    for incarnation in &incarnations {
        let known = recorded.get(incarnation);
        if known.is_none() {
            let record = layout::incarnation(source, &incarnation.ordinal4());
            checked.problems.push(Problem {
                source: source.clone(),
                incarnation: incarnation.clone(),
                segment: "*".to_owned(),
                kind: ProblemKind::ManifestMissing,
                detail: format!(
                    "{record} is not there or is another's: what it opened stays unseen"
                ),
            });
        }
        let live = live && newest.as_ref() == Some(incarnation);
        let of = Of { source, incarnation, record: known, live };
        check_incarnation(store, of, depth, progress, &mut checked).await?;
    }
    Ok(checked)
}

/// The incarnation to check.
struct Of<'a> {
    source: &'a SourceName,
    incarnation: &'a Incarnation,
    record: Option<&'a IncarnationRecord>,
    /// Whether a daemon adds to it now.
    live: bool,
}

/// One incarnation under check.
struct Check<'a> {
    store: &'a dyn Store,
    source: &'a SourceName,
    incarnation: &'a Incarnation,
    depth: Depth,
    /// What the listing showed under `payloads/`, by key.
    payloads: BTreeMap<String, ObjectMeta>,
    /// Below this number a missing payload was expired by the bucket's lifecycle.
    floor: Option<SegmentNumber>,
}

/// What came of one manifest.
enum Verdict {
    Fine,
    Expired,
    Wrong(Problem),
}

async fn check_incarnation(
    store: &dyn Store,
    Of { source, incarnation, record, live }: Of<'_>,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
    checked: &mut Checked,
) -> Result<(), Fault> {
    // Manifests before payloads: a payload is there before its manifest is.
    let manifests = catalog::committed(store, source, incarnation).await?;
    let listing = store::list_all(store, &layout::payloads(source, incarnation)).await?;
    let payloads: BTreeMap<String, ObjectMeta> =
        listing.into_iter().map(|object| (object.key.clone(), object)).collect();
    let present: BTreeSet<SegmentNumber> =
        payloads.keys().filter_map(|key| layout::payload_number(key)).collect();
    let floor = manifests.keys().find(|number| present.contains(number)).copied();
    let check = Check { store, source, incarnation, depth, payloads, floor };

    let mut problems: Vec<(SegmentNumber, Problem)> = Vec::new();
    let mut verdicts = stream::iter(manifests.keys().copied())
        .map(|number| {
            let check = &check;
            async move { (number, check.manifest(number).await) }
        })
        .buffered(match depth {
            Depth::Listed => LISTED_AT_ONCE,
            Depth::Deep => DEEP_AT_ONCE,
        });
    // In order of numbers, so that neighbours meet.
    let mut walk = Walk::default();
    while let Some((number, verdict)) = verdicts.next().await {
        checked.checked += 1;
        let (manifest, verdict) = verdict?;
        walk.next(number, manifest);
        match verdict {
            Verdict::Fine => {}
            Verdict::Expired => checked.expired += 1,
            Verdict::Wrong(problem) => problems.push((number, problem)),
        }
        progress(1);
    }
    drop(verdicts);

    let highest = manifests.keys().next_back().copied();
    // Numbers with a payload alone.
    let mut told = BTreeSet::new();
    for key in check.payloads.keys() {
        let Some(number) = layout::payload_number(key) else { continue };
        if manifests.contains_key(&number) {
            // The committed payload, or bytes beside it that never were.
            continue;
        }
        told.insert(number);
        let commit = layout::manifest(source, incarnation, number);
        if store.head(&commit).await?.is_some() {
            // Committed after the listing.
            continue;
        }
        if live && highest.is_none_or(|highest| number > highest) {
            checked.in_flight += 1;
            continue;
        }
        let detail = format!("{key} has no manifest: it was removed, or the commit never came");
        problems
            .push((number, check.problem(number.padded(), ProblemKind::ManifestMissing, detail)));
    }
    for gap in walk.done(record, manifests.keys().next().copied()) {
        for gap in gap.without(&told) {
            if live {
                checked.in_flight = checked.in_flight.saturating_add(gap.len());
                continue;
            }
            let (segment, kind) = (gap.segment(), ProblemKind::ManifestMissing);
            problems.push((gap.first, check.problem(segment, kind, gap.detail)));
        }
    }
    problems.sort_by_key(|(number, _)| *number);
    checked.problems.extend(problems.into_iter().map(|(_, problem)| problem));
    Ok(())
}

impl Check<'_> {
    fn problem(&self, segment: String, kind: ProblemKind, detail: String) -> Problem {
        Problem {
            source: self.source.clone(),
            incarnation: self.incarnation.clone(),
            segment,
            kind,
            detail,
        }
    }

    /// The manifest of a number, where it decodes, and what came of checking it.
    async fn manifest(
        &self,
        number: SegmentNumber,
    ) -> Result<(Option<Box<Manifest>>, Verdict), Fault> {
        let wrong = |kind, detail| Verdict::Wrong(self.problem(number.padded(), kind, detail));
        let found = catalog::manifest(self.store, self.source, self.incarnation, number).await;
        match found {
            Ok(Some(manifest)) => {
                let verdict = self.payload(&manifest).await?;
                Ok((Some(Box::new(manifest)), verdict))
            }
            Ok(None) => {
                let detail = "the manifest was listed and is gone".to_owned();
                Ok((None, wrong(ProblemKind::ManifestMissing, detail)))
            }
            Err(fault) if fault.kind == FaultKind::Undecodable => {
                Ok((None, wrong(ProblemKind::Damaged, fault.to_string())))
            }
            Err(fault) => Err(fault),
        }
    }

    async fn payload(&self, manifest: &Manifest) -> Result<Verdict, Fault> {
        let wrong =
            |segment: String, kind, detail| Ok(Verdict::Wrong(self.problem(segment, kind, detail)));
        let (name, payload) = (manifest.segment.to_string(), &manifest.payload);
        let Some(object) = self.payloads.get(&payload.key) else {
            if self.floor.is_some_and(|floor| manifest.number < floor) {
                return Ok(Verdict::Expired);
            }
            let detail = format!("{} is not there", payload.key);
            return wrong(name, ProblemKind::PayloadMissing, detail);
        };
        if self.depth == Depth::Listed {
            return Ok(match suspect(manifest, object) {
                Some(detail) => Verdict::Wrong(self.problem(name, ProblemKind::Suspect, detail)),
                None => Verdict::Fine,
            });
        }
        let back = read_back(self.store, &payload.key, payload.encoding, &mut |_| {}).await?;
        let Some(back) = back else {
            let detail = format!("{} is gone", payload.key);
            return wrong(name, ProblemKind::PayloadMissing, detail);
        };
        if back.decoded == Some((manifest.size, manifest.digest)) {
            return Ok(Verdict::Fine);
        }
        let got = back.decoded.map_or_else(
            || format!("{} stored bytes that do not decode", back.stored_size),
            |(size, digest)| format!("{size} bytes of SHA-256 {digest}"),
        );
        let detail = format!(
            "{} holds {got}; committed were {} bytes of SHA-256 {}",
            payload.key, manifest.size, manifest.digest
        );
        wrong(name, ProblemKind::Damaged, detail)
    }
}

fn suspect(manifest: &Manifest, object: &ObjectMeta) -> Option<String> {
    let payload = &manifest.payload;
    if object.size != payload.size {
        let detail =
            format!("{} has {} bytes, committed were {}", payload.key, object.size, payload.size);
        return Some(detail);
    }
    match (&object.etag, &payload.etag) {
        (Some(now), Some(then)) if now != then => Some(format!(
            "{} has ETag {now}, committed was {then}; verify --deep reads its bytes",
            payload.key
        )),
        (Some(_) | None, Some(_) | None) => None,
    }
}
