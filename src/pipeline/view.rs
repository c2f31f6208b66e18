//! The snapshot that `status` shows, made from the loop's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Pipeline;
use super::on_disk::OnDisk;
use super::snapshot::{
    AheadRun, Cursor, DeadLetters, Hole, PENDING_SHOWN, Pending, PendingState, Pins, Snapshot, Why,
};
use super::tracker::{Key, State};
use crate::archive::Manifest;
use crate::failure::classify;
use crate::gtid::Added;
use crate::progress::{Chain, CursorEntry, CursorFile};
use crate::segment::{Incarnation, Link, SegmentNumber, link};

/// Longest gap whose numbers are looked at one by one.
const GAP_LOOKED_AT: u64 = 10_000;

impl Pipeline {
    /// Publishes what is known now.
    pub(super) fn show(&self) -> Arc<Snapshot> {
        let snapshot = Arc::new(self.snapshot());
        self.publish.send_replace(Some(Arc::clone(&snapshot)));
        snapshot
    }

    fn snapshot(&self) -> Snapshot {
        let now = self.clock.wall();
        let oldest = self.tracker.iter().map(|(_, tracked)| tracked.closed).min();
        let newest = self.chains.keys().next_back();
        let waits = |incarnation: &Incarnation, number| {
            let key = Key { incarnation: incarnation.clone(), number };
            let unreadable = newest == Some(incarnation)
                && self.unreadable.iter().any(|(name, _)| name.number() == number);
            self.tracker.get(&key).is_some() || unreadable
        };
        let (ahead, mut holes) = beyond(&self.chains, waits);
        holes.extend(self.edge_holes(waits));
        let troubles = self.obstacles.values().chain(&self.state_trouble).cloned().collect();
        Snapshot {
            source: self.settings.source.clone(),
            incarnation: self.chains.keys().next_back().cloned(),
            cursor: cursor(&self.chains, self.durable.as_ref()),
            floor: self.floor,
            archived: self.archived,
            ahead,
            holes,
            losses: Vec::new(),
            pending_total: (self.tracker.iter().count()
                + self.keyless.len()
                + self.unreadable.len()) as u64,
            pending: self.pending(),
            dead_letters: DeadLetters::default(),
            suspensions: Vec::new(),
            pins: Pins { method: "none".to_owned(), bytes: 0 },
            lag_seconds: oldest.map_or(0, |oldest| seconds_between(oldest, now)),
            unverified_links: self.chains.values().map(Chain::unverified).sum(),
            active: self.active.clone(),
            troubles,
            store: self.settings.store_label.clone(),
            capabilities: self.connected.as_ref().map(|connected| connected.capabilities),
        }
    }

    fn pending(&self) -> Vec<Pending> {
        let tracked = self.tracker.iter().map(|(key, tracked)| {
            let classified = tracked.fault.as_ref().map(classify);
            Pending {
                incarnation: Some(key.incarnation.clone()),
                segment: tracked.name.clone(),
                state: match tracked.state {
                    State::Closed | State::Closing(_) => PendingState::Closed,
                    State::InFlight => PendingState::InFlight,
                    State::BackingOff(_) => PendingState::BackingOff,
                    State::GivenUp => PendingState::Held,
                },
                attempts: tracked.attempts,
                next_attempt_at: tracked.next_attempt_at,
                class: classified.map(|found| found.class),
                cause: classified.map(|found| found.cause),
                error: tracked.fault.as_ref().map(ToString::to_string),
            }
        });
        let unreadable = self.unreadable.iter().map(|(segment, error)| Pending {
            incarnation: self.chains.keys().next_back().cloned(),
            segment: segment.clone(),
            state: PendingState::Held,
            attempts: 0,
            next_attempt_at: None,
            class: None,
            cause: None,
            error: Some(error.clone()),
        });
        let keyless = self.keyless.iter().map(|segment| Pending {
            incarnation: None,
            segment: segment.clone(),
            state: PendingState::Held,
            attempts: 0,
            next_attempt_at: None,
            class: None,
            cause: None,
            error: None,
        });
        tracked.chain(unreadable).chain(keyless).take(PENDING_SHOWN).collect()
    }

    /// What lies between the last committed segment and the next one that the index lists, and is
    /// neither listed nor waiting: the server purged it before it was archived.
    fn edge_holes(&self, waits: impl Fn(&Incarnation, SegmentNumber) -> bool) -> Vec<Hole> {
        let Some((incarnation, chain)) = self.chains.last_key_value() else { return Vec::new() };
        let edge = self.edge.as_ref().and_then(OnDisk::of);
        let (Some(last), Some(edge)) = (chain.last(), edge) else { return Vec::new() };
        if edge.number <= last.number {
            return Vec::new();
        }
        let gtids = match link(&last.side(), &edge.side()) {
            Link::Hole(gtids) => gtids,
            Link::Follows | Link::FollowsUnverified | Link::Fork => return Vec::new(),
        };
        let numbers = (last.number.0 + 1, edge.number.0.saturating_sub(1));
        holes_between(incarnation, numbers, gtids.as_ref(), Why::Purged, &waits)
    }
}

/// Seconds from one moment to a later one.
pub(crate) fn seconds_between(earlier: Timestamp, later: Timestamp) -> u64 {
    u64::try_from(later.as_second() - earlier.as_second()).unwrap_or(0)
}

/// The newest incarnation's cursor: as it is on disk, and never beyond what the archive shows.
pub(crate) fn cursor(
    chains: &BTreeMap<Incarnation, Chain>,
    durable: Option<&CursorFile>,
) -> Option<Cursor> {
    let durable = durable?;
    let Some((incarnation, chain)) = chains.last_key_value() else {
        // The archive was not asked yet: the disk's word is all there is.
        let (incarnation, entry) = durable.newest()?;
        return Some(shown(incarnation, entry, None));
    };
    let entry = durable.get(incarnation)?;
    let frontier = chain.frontier()?.entry();
    let at = chain.frontier_manifest();
    if entry.number < frontier.number {
        return Some(shown(incarnation, entry, None));
    }
    Some(shown(incarnation, &frontier, at))
}

fn shown(incarnation: &Incarnation, entry: &CursorEntry, at: Option<&Arc<Manifest>>) -> Cursor {
    Cursor {
        incarnation: incarnation.clone(),
        segment: entry.segment.clone(),
        number: entry.number,
        gtids: at.and_then(|manifest| manifest.after()).map(|set| set.to_string()),
        from: entry.from.clone(),
    }
}

/// Runs of committed segments beyond the frontiers, and the holes before them: numbers in a gap
/// that nothing waiting will bring.
pub(crate) fn beyond(
    chains: &BTreeMap<Incarnation, Chain>,
    waits: impl Fn(&Incarnation, SegmentNumber) -> bool,
) -> (Vec<AheadRun>, Vec<Hole>) {
    let (mut ahead, mut holes) = (Vec::new(), Vec::new());
    for (incarnation, chain) in chains {
        let (runs, gaps) = chain.beyond();
        ahead.extend(runs.into_iter().map(|run| AheadRun {
            incarnation: incarnation.clone(),
            first: run.first,
            last: run.last,
            segments: run.segments,
        }));
        for gap in gaps {
            let first = gap.after.map_or(chain.first().0, |after| after.0 + 1);
            let last = gap.before.0.saturating_sub(1);
            match gap.after {
                // No number is missing: the neighbours themselves are named.
                Some(after) if first > last => holes.push(Hole {
                    incarnation: incarnation.clone(),
                    first: after,
                    last: gap.before,
                    why: if gap.gtids.is_none() { Why::Contradicted } else { Why::Unknown },
                    gtids: gap.gtids.map(|gtids| gtids.to_string()),
                }),
                Some(_) | None => {
                    let gtids = gap.gtids.as_ref();
                    let why = Why::Unknown;
                    holes.extend(holes_between(incarnation, (first, last), gtids, why, &waits));
                }
            }
        }
    }
    (ahead, holes)
}

/// The runs of numbers from `first` to `last` for which nothing waits. Their GTIDs are known only
/// where they are one run and all of the gap.
fn holes_between(
    incarnation: &Incarnation,
    (first, last): (u64, u64),
    gtids: Option<&Added>,
    why: Why,
    waits: &impl Fn(&Incarnation, SegmentNumber) -> bool,
) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    // A longer gap is named by its ends alone, as if nothing in it were waiting.
    if last.saturating_sub(first) >= GAP_LOOKED_AT {
        let (first, last) = (SegmentNumber(first), SegmentNumber(last));
        let gtids = gtids.map(ToString::to_string);
        return vec![Hole { incarnation: incarnation.clone(), first, last, gtids, why }];
    }
    for number in first..=last {
        let number = SegmentNumber(number);
        if waits(incarnation, number) {
            continue;
        }
        match holes.last_mut() {
            Some(hole) if hole.last.0 + 1 == number.0 => hole.last = number,
            Some(_) | None => holes.push(Hole {
                incarnation: incarnation.clone(),
                first: number,
                last: number,
                gtids: None,
                why,
            }),
        }
    }
    if let [only] = holes.as_mut_slice()
        && (only.first.0, only.last.0) == (first, last)
    {
        only.gtids = gtids.map(ToString::to_string);
    }
    holes
}
