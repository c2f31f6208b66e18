//! Which incarnation a listed segment belongs to, and when a new one is opened.
//!
//! VM rollback, RESET, re-initialisation, restore and clone are all decided here, by what is on disk
//! against what is committed (`docs/formats.md`, Identity).
//!
//! **Invariants.** A number that is committed or known is the same segment only when heads agree,
//! and for the highest one on disk, digests too. Other bytes under such a number open a new
//! incarnation; nothing is replaced (I4).
//!
//! **Crash.** An incarnation may have been opened without a manifest; the next start uses it.
//!
//! **Cancellation.** A dropped future leaves at most such a record.

mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::archive::{Archive, FORMAT, First, IncarnationRecord, Manifest, Predecessor, Reason};
use crate::clock::Clock;
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::{Head, Incarnation, Link, SegmentName, SegmentNumber, link};
use crate::source::{FileSignature, Found, Listed, Scan};

use super::Start;
use super::on_disk::OnDisk;
use super::tracker::Key;

/// Tries to open an incarnation before a race with another writer counts as a fault.
const OPEN_TRIES: u32 = 5;

/// What this host says of itself in an incarnation's record.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) server_uuid: Option<String>,
    pub(super) host: String,
    pub(super) start: Start,
}

/// The newest incarnation, and what is known under its numbers.
#[derive(Debug)]
struct Newest {
    record: IncarnationRecord,
    committed: BTreeSet<SegmentNumber>,
    /// Segments of it seen on disk by this process, and its first one.
    seen: BTreeMap<SegmentNumber, Seen>,
    /// Whether the highest committed number on disk was compared by digest.
    compared: bool,
}

/// A segment as it was last seen.
#[derive(Debug, Clone)]
struct Seen {
    name: SegmentName,
    head: Head,
    /// Which file it was; `None` when only the incarnation's record told of it.
    file: Option<FileSignature>,
}

impl Seen {
    fn of(on_disk: &OnDisk<'_>) -> Self {
        let (name, head) = (on_disk.listed.name.clone(), on_disk.peek.head);
        Self { name, head, file: on_disk.listed.signature().copied() }
    }

    fn is_other_file(&self, on_disk: &OnDisk<'_>) -> bool {
        let now = on_disk.listed.signature();
        self.file.as_ref().zip(now).is_some_and(|(then, now)| !then.same_file(now))
    }
}

/// Decides for each scan.
#[derive(Debug)]
pub(super) struct Incarnations {
    archive: Arc<Archive>,
    clock: Arc<dyn Clock>,
    identity: Identity,
    newest: Option<Newest>,
    /// The newest one's predecessor, with what is committed in it: segments that both share.
    before: Option<(Predecessor, BTreeSet<SegmentNumber>)>,
}

/// What a scan's segments turned out to be.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    /// Not committed yet, with the key they belong under.
    pub(super) open: Vec<(Key, Listed)>,
    /// An incarnation opened by this scan.
    pub(super) opened: Vec<IncarnationRecord>,
    /// Not committed, listed before the last one, and not to be read: with what the system said.
    pub(super) unreadable: Vec<(SegmentName, String)>,
}

impl Incarnations {
    /// Begins with the newest incarnation of the archive, if it has one.
    pub(super) async fn load(
        archive: Arc<Archive>,
        clock: Arc<dyn Clock>,
        identity: Identity,
        records: &[IncarnationRecord],
    ) -> Result<Self, Fault> {
        let mut this = Self { archive, clock, identity, newest: None, before: None };
        if let Some(record) = records.last() {
            this.enter(record.clone()).await?;
        }
        Ok(this)
    }

    async fn enter(&mut self, record: IncarnationRecord) -> Result<(), Fault> {
        let committed = self.archive.committed(&record.incarnation).await?.into_keys().collect();
        self.before = match &record.predecessor {
            Some(predecessor) => {
                let numbers = self.archive.committed(&predecessor.incarnation).await?;
                Some((predecessor.clone(), numbers.into_keys().collect()))
            }
            None => None,
        };
        let first =
            Seen { name: record.first.segment.clone(), head: record.first.head, file: None };
        let seen = BTreeMap::from([(record.first.number, first)]);
        self.newest = Some(Newest { record, committed, seen, compared: false });
        Ok(())
    }

    /// A commit met other bytes under its number: what is known of the archive is out of date, as
    /// after a rollback of this very machine. Everything is read again.
    pub(super) async fn reload(&mut self) -> Result<Option<IncarnationRecord>, Fault> {
        let newest = self.archive.incarnations().await?.pop();
        if let Some(newest) = newest.clone() {
            self.enter(newest).await?;
        }
        Ok(newest)
    }

    /// The server's UUID, as it is now.
    pub(super) fn server_is(&mut self, uuid: String) {
        self.identity.server_uuid = Some(uuid);
    }

    /// Whether a number is committed in the newest incarnation.
    pub(super) fn has(&self, number: SegmentNumber) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.committed.contains(&number))
    }

    /// A segment of the newest incarnation was committed.
    pub(super) fn committed(&mut self, key: &Key) {
        if let Some(newest) = &mut self.newest
            && newest.record.incarnation == key.incarnation
        {
            newest.committed.insert(key.number);
        }
        if let Some((predecessor, committed)) = &mut self.before
            && predecessor.incarnation == key.incarnation
        {
            committed.insert(key.number);
        }
    }

    /// Finds the incarnation of each listed segment, opening new ones where the server's history is
    /// not the archive's.
    pub(super) async fn assign(&mut self, scan: &Scan) -> Result<Assignment, Fault> {
        let mut assignment = Assignment::default();
        let all: Vec<OnDisk<'_>> = scan.segments.iter().filter_map(OnDisk::of).collect();
        let Some(last) = all.last().copied() else { return Ok(assignment) };
        // After a change of log_bin the index may still list segments of the older base.
        let base = last.listed.name.base();
        let (present, older): (Vec<OnDisk<'_>>, Vec<OnDisk<'_>>) =
            all.into_iter().partition(|on_disk| on_disk.listed.name.base() == base);
        // Each round opens one incarnation; more than a few in one scan is a fault of ours.
        for _ in 0..OPEN_TRIES {
            let Some(newest) = &self.newest else {
                let Some(first) = self.first_of(&present) else { return Ok(assignment) };
                // What cannot be read now would be left out of the chain for good.
                let blind = |listed: &&Listed| listed.name.number() < first.number;
                if let Some(fault) = scan.segments.iter().filter(blind).find_map(unreadable)
                    && self.identity.start == Start::Oldest
                {
                    return Err(fault);
                }
                self.open(Reason::FirstStart, first, None, &mut assignment).await?;
                continue;
            };
            let known = &newest.record;
            // Numbers never go down: below the first known one they begin anew, though no number
            // that is known shows it (a source archived from a later number on, then RESET).
            if base != known.first.segment.base() || last.number < known.first.number {
                let first = present.first().copied().unwrap_or(last);
                let left = self.left_at(self.last_known_of(&older)).await?;
                self.open(Reason::NumberingRestarted, first, left, &mut assignment).await?;
                continue;
            }
            let other_server = matches!(
                (&known.server_uuid, &self.identity.server_uuid),
                (Some(theirs), Some(ours)) if theirs != ours
            );
            let differs = self.differs(&present).await?;
            if other_server || differs.is_some() {
                let shared = self.last_shared(&present).await?;
                let after = shared.as_ref().map(|(number, _)| *number);
                if let Some(rotten) =
                    differs.filter(|number| !other_server && Some(*number) < after)
                {
                    self.forgive(&present, rotten);
                    continue;
                }
                let first =
                    present.iter().find(|l| after.is_none_or(|after| l.number > after)).copied();
                let Some(first) = first else { return Ok(assignment) };
                let reason = match (other_server, after) {
                    (true, _) => Reason::ServerChanged,
                    (false, Some(_)) => Reason::Fork,
                    (false, None) => Reason::NumberingRestarted,
                };
                let left = self.left_at(shared).await?;
                self.open(reason, first, left, &mut assignment).await?;
                continue;
            }
            if let Some(fork) = self.take_in(&present).await? {
                let below = self.nearest_below(fork.number).await?;
                let left = self.left_at(below).await?;
                self.open(Reason::Fork, fork, left, &mut assignment).await?;
                continue;
            }
            self.collect(&present, &older, &mut assignment);
            self.name_unreadable(scan, &mut assignment);
            return Ok(assignment);
        }
        let message = "the binlog directory shows a new history again and again within one look; \
                       is another server writing into it?";
        Err(Fault::new(Operation::ReadSource, FaultKind::Other, message))
    }

    /// The segment that archiving begins with on a source that has nothing yet.
    fn first_of<'a>(&self, present: &[OnDisk<'a>]) -> Option<OnDisk<'a>> {
        match &self.identity.start {
            Start::Oldest => present.first().copied(),
            // The one being written now; while its first event is not whole, the next look tells.
            Start::Now => present.last().copied().filter(|last| last.listed.is_last()),
            Start::Segment(name) => present.iter().find(|l| l.number >= name.number()).copied(),
        }
    }

    /// Takes numbers in that the newest incarnation does not know yet, in order, as far as nothing
    /// forks. Returns the first segment that does.
    async fn take_in<'a>(&mut self, present: &[OnDisk<'a>]) -> Result<Option<OnDisk<'a>>, Fault> {
        let mut below: Option<&OnDisk<'_>> = None;
        for on_disk in present {
            let Some(newest) = &self.newest else { return Ok(None) };
            let number = on_disk.number;
            let ours = self.before.is_none() || number >= newest.record.first.number;
            let seen = newest.seen.get(&number);
            let new = seen.is_none_or(|seen| seen.head != on_disk.peek.head);
            if ours && new && !newest.committed.contains(&number) {
                if number < newest.record.first.number && self.identity.start != Start::Oldest {
                    continue;
                }
                if self.forks(on_disk, below).await? {
                    return Ok(Some(*on_disk));
                }
            }
            if ours {
                if let Some(newest) = &mut self.newest {
                    newest.seen.insert(number, Seen::of(on_disk));
                }
                below = Some(on_disk);
            }
        }
        // Only what is on disk is compared again; one below it stays as a neighbour.
        if let (Some(newest), Some(lowest)) = (&mut self.newest, present.first()) {
            let first = newest.record.first.number;
            newest.seen.retain(|number, _| *number >= lowest.number || *number == first);
        }
        Ok(None)
    }

    /// Whether a new number's history is another one than its nearest known neighbour's.
    async fn forks(&self, on_disk: &OnDisk<'_>, below: Option<&OnDisk<'_>>) -> Result<bool, Fault> {
        let Some(newest) = &self.newest else { return Ok(false) };
        let incarnation = &newest.record.incarnation;
        let committed_below = newest.committed.range(..on_disk.number).next_back().copied();
        let nearer =
            below.filter(|below| committed_below.is_none_or(|number| below.number >= number));
        if let Some(below) = nearer.filter(|below| !newest.committed.contains(&below.number)) {
            return Ok(link(&below.side(), &on_disk.side()) == Link::Fork);
        }
        if let Some(number) = committed_below {
            let manifest = self.archive.manifest(incarnation, number).await?;
            let forks = |manifest: Manifest| link(&manifest.side(), &on_disk.side()) == Link::Fork;
            return Ok(manifest.is_some_and(forks));
        }
        let committed_above = newest.committed.range(on_disk.number..).next().copied();
        if let Some(number) = committed_above {
            let manifest = self.archive.manifest(incarnation, number).await?;
            let forks = |manifest: Manifest| link(&on_disk.side(), &manifest.side()) == Link::Fork;
            return Ok(manifest.is_some_and(forks));
        }
        Ok(false)
    }

    /// The highest segment of the newest incarnation's base that is on disk, where it is beyond all
    /// that is committed.
    fn last_known_of(&self, older: &[OnDisk<'_>]) -> Option<(SegmentNumber, SegmentName)> {
        let newest = self.newest.as_ref()?;
        let base = newest.record.first.segment.base();
        let of_base = older.iter().filter(|l| l.listed.name.base() == base);
        let highest = of_base.max_by_key(|l| l.number)?;
        let beyond = newest.committed.last().is_none_or(|number| highest.number > *number);
        beyond.then(|| (highest.number, highest.listed.name.clone()))
    }

    /// The nearest known segment below, on disk or not.
    async fn nearest_below(
        &self,
        number: SegmentNumber,
    ) -> Result<Option<(SegmentNumber, SegmentName)>, Fault> {
        let Some(newest) = &self.newest else { return Ok(None) };
        let seen = newest.seen.range(..number).next_back();
        let seen = seen.map(|(number, seen)| (*number, seen.name.clone()));
        let committed = newest.committed.range(..number).next_back().copied();
        let beyond = |number: &SegmentNumber| seen.as_ref().is_none_or(|(seen, _)| number > seen);
        let Some(number) = committed.filter(beyond) else { return Ok(seen) };
        let manifest = self.archive.manifest(&newest.record.incarnation, number).await?;
        Ok(manifest.map(|manifest| (manifest.number, manifest.segment)).or(seen))
    }

    /// Where the newest incarnation is left: at the segment both share, else at its highest one.
    async fn left_at(
        &self,
        shared: Option<(SegmentNumber, SegmentName)>,
    ) -> Result<Option<Predecessor>, Fault> {
        let Some(newest) = &self.newest else { return Ok(None) };
        let incarnation = newest.record.incarnation.clone();
        if let Some((number, segment)) = shared {
            return Ok(Some(Predecessor { incarnation, segment, number }));
        }
        let highest = newest.committed.last().copied();
        let manifest = match highest {
            Some(number) => self.archive.manifest(&incarnation, number).await?,
            None => None,
        };
        Ok(Some(match manifest {
            Some(manifest) => {
                Predecessor { incarnation, segment: manifest.segment, number: manifest.number }
            }
            None => {
                let first = newest.record.first.clone();
                Predecessor { incarnation, segment: first.segment, number: first.number }
            }
        }))
    }

    async fn open(
        &mut self,
        reason: Reason,
        first: OnDisk<'_>,
        predecessor: Option<Predecessor>,
        assignment: &mut Assignment,
    ) -> Result<(), Fault> {
        let (head, segment) = (first.peek.head, first.listed.name.clone());
        let mut ordinal = self.newest.as_ref().map_or(0, |newest| newest.record.ordinal);
        for _ in 0..OPEN_TRIES {
            ordinal += 1;
            let record = IncarnationRecord {
                format: FORMAT,
                source: self.archive.source().clone(),
                incarnation: Incarnation::new(ordinal, &head),
                ordinal,
                reason,
                server_uuid: self.identity.server_uuid.clone(),
                flavor: first.peek.flavor,
                first: First { segment: segment.clone(), number: first.number, head },
                predecessor: predecessor.clone(),
                writer_id: self.archive.writer_id().to_owned(),
                host: self.identity.host.clone(),
                created_at: self.clock.wall(),
            };
            if let Some(record) = self.archive.open_incarnation(record).await? {
                let (incarnation, segment) = (&record.incarnation, &record.first.segment);
                match reason {
                    Reason::FirstStart => {
                        tracing::info!(%incarnation, %segment, "opened the first incarnation");
                    }
                    Reason::NumberingRestarted | Reason::Fork | Reason::ServerChanged => {
                        tracing::warn!(%incarnation, %segment, ?reason, "history forked: opened an incarnation");
                    }
                }
                assignment.opened.push(record.clone());
                return self.enter(record).await;
            }
            // Taken: the record under that ordinal is another writer's.
            if let Some(taken) = self.archive.incarnations().await?.last() {
                ordinal = taken.ordinal;
            }
        }
        let message = "another writer keeps opening incarnations of this source at the same time";
        Err(Fault::new(Operation::Put, FaultKind::Conflict, message))
    }

    /// Names what the index lists and nobody can read: it waits for a human, and never unseen.
    fn name_unreadable(&self, scan: &Scan, assignment: &mut Assignment) {
        let Some(newest) = &self.newest else { return };
        for listed in scan.segments.iter().filter(|listed| !listed.is_last()) {
            let number = listed.name.number();
            let ours = listed.name.base() == newest.record.first.segment.base()
                && number >= newest.record.first.number
                && !newest.committed.contains(&number);
            if let Some(fault) = unreadable(listed).filter(|_| ours) {
                assignment.unreadable.push((listed.name.clone(), fault.to_string()));
            }
        }
    }

    /// The segments that are not committed, under the incarnation that each belongs to.
    fn collect(&self, present: &[OnDisk<'_>], older: &[OnDisk<'_>], assignment: &mut Assignment) {
        let Some(newest) = &self.newest else { return };
        let mut add = |incarnation: &Incarnation, on_disk: &OnDisk<'_>| {
            let key = Key { incarnation: incarnation.clone(), number: on_disk.number };
            assignment.open.push((key, on_disk.listed.clone()));
        };
        if let Some((shared, committed)) = &self.before {
            // What lies before the segment that the operator began with is not wanted.
            let wanted = match self.identity.start {
                Start::Oldest => SegmentNumber(0),
                Start::Now | Start::Segment(_) => {
                    committed.first().copied().unwrap_or(shared.number)
                }
            };
            for on_disk in older.iter().chain(present) {
                let number = on_disk.number;
                if number < wanted {
                    continue;
                }
                let before_ours = on_disk.listed.name.base() != newest.record.first.segment.base()
                    || number < newest.record.first.number;
                let its_base = on_disk.listed.name.base() == shared.segment.base();
                if before_ours && its_base && !committed.contains(&number) {
                    add(&shared.incarnation, on_disk);
                }
            }
        }
        for on_disk in present {
            let number = on_disk.number;
            if newest.seen.contains_key(&number) && !newest.committed.contains(&number) {
                add(&newest.record.incarnation, on_disk);
            }
        }
    }
}

/// Why a listed segment cannot be read, where it cannot.
fn unreadable(listed: &Listed) -> Option<Fault> {
    match &listed.found {
        Found::Present { .. } => None,
        Found::Unreadable(fault) => Some(fault.clone()),
        Found::Missing => {
            let message = "the index lists the segment, and its file is not there";
            let path = listed.path.display().to_string();
            Some(Fault::new(Operation::ReadSource, FaultKind::SourceGone, message).at(path))
        }
    }
}

#[cfg(test)]
mod tests;
