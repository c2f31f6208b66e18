//! The snapshot that `status` shows, made from the loop's state.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Pipeline;
use super::snapshot::{
    AheadRun, Cursor, DeadLetters, Hole, PENDING_SHOWN, Pending, PendingState, Pins, Snapshot, Why,
};
use super::tracker::{Key, State};
use crate::failure::classify;
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentNumber};

impl Pipeline {
    /// Publishes what is known now.
    pub(super) fn show(&self) -> Arc<Snapshot> {
        let snapshot = Arc::new(self.snapshot());
        self.publish.send_replace(Some(Arc::clone(&snapshot)));
        snapshot
    }

    fn snapshot(&self) -> Snapshot {
        let now = self.clock.mono();
        let oldest = self.tracker.iter().map(|(_, tracked)| tracked.since_mono).min();
        let (ahead, holes) = beyond(&self.chains, |incarnation, first, last| {
            let waiting = |number| {
                let key = Key { incarnation: incarnation.clone(), number };
                self.tracker.get(&key).is_some()
            };
            (first.0..=last.0)
                .take(PENDING_SHOWN * 100)
                .any(|number| waiting(SegmentNumber(number)))
        });
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
            pending_total: (self.tracker.iter().count() + self.keyless.len()) as u64,
            pending: self.pending(),
            dead_letters: DeadLetters::default(),
            suspensions: Vec::new(),
            pins: Pins { method: "none".to_owned(), bytes: 0 },
            lag_seconds: oldest.map_or(0, |oldest| now.since(oldest).as_secs()),
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
        tracked.chain(keyless).take(PENDING_SHOWN).collect()
    }
}

/// The newest incarnation's cursor, as it is on disk.
pub(crate) fn cursor(
    chains: &BTreeMap<Incarnation, Chain>,
    durable: Option<&CursorFile>,
) -> Option<Cursor> {
    let durable = durable?;
    let (incarnation, entry) = match chains.keys().next_back() {
        Some(newest) => (newest, durable.get(newest)?),
        None => durable.newest()?,
    };
    let at = chains.get(incarnation).and_then(Chain::frontier_manifest);
    let at = at.filter(|manifest| manifest.number == entry.number);
    Some(Cursor {
        incarnation: incarnation.clone(),
        segment: entry.segment.clone(),
        number: entry.number,
        gtids: at.and_then(|manifest| manifest.after()).map(|set| set.to_string()),
        from: entry.from.clone(),
    })
}

/// Runs of committed segments beyond the frontiers, and the holes before them: gaps in which no
/// segment is waiting.
pub(crate) fn beyond(
    chains: &BTreeMap<Incarnation, Chain>,
    waiting: impl Fn(&Incarnation, SegmentNumber, SegmentNumber) -> bool,
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
            let first = gap.after.map_or(chain.first(), |after| SegmentNumber(after.0 + 1));
            let last = SegmentNumber(gap.before.0.saturating_sub(1));
            // Where no number is missing, the neighbours themselves are named.
            let adjacent = first > last;
            if !adjacent && waiting(incarnation, first, last) {
                continue;
            }
            let (first, last) = match gap.after {
                Some(after) if adjacent => (after, gap.before),
                Some(_) | None => (first, last),
            };
            holes.push(Hole {
                incarnation: incarnation.clone(),
                first,
                last,
                why: if adjacent && gap.gtids.is_none() { Why::Contradicted } else { Why::Unknown },
                gtids: gap.gtids.map(|gtids| gtids.to_string()),
            });
        }
    }
    (ahead, holes)
}
