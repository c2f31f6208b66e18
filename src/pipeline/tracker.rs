//! What is known of each segment that is not committed yet: a pure state machine.
//!
//! **Invariants.** A segment is in exactly one state (I3). The oldest segment that may be tried is
//! tried first, by incarnation and number (I12), never more than `workers` at once. Time is given,
//! never asked for: the same calls give the same states.

use std::collections::BTreeMap;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use jiff::Timestamp;

use crate::clock::MonoTime;
use crate::fault::Fault;
use crate::segment::{Incarnation, SegmentName, SegmentNumber};

/// Longest wait that a store's Retry-After is followed for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// One segment of one incarnation. Ordered by incarnation, then number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The segment's number.
    pub number: SegmentNumber,
}

/// How retries are spaced.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The first delay.
    pub base_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// How often a segment is tried before it is given up for this run.
    pub tries: Tries,
}

/// How often a segment is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tries {
    /// For as long as it takes.
    Endless,
    /// This often at most: `run --once`.
    Bounded(u32),
}

/// Where a segment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Ready to be tried.
    Closed,
    /// A worker has it.
    InFlight,
    /// Tried and failed; tried again at this time.
    BackingOff(MonoTime),
    /// Not final yet; looked at again at this time. No attempt is counted.
    Closing(MonoTime),
    /// Tried as often as this run tries.
    GivenUp,
}

/// A segment that is not committed yet.
#[derive(Debug)]
pub struct Tracked {
    /// Its name.
    pub name: SegmentName,
    /// Where it is.
    pub state: State,
    /// Tries so far.
    pub attempts: u32,
    /// When its server closed it, as far as the file tells.
    pub closed: Timestamp,
    /// When it was first seen closed, by the clock that waits are measured with.
    pub since_mono: MonoTime,
    /// The wall time of the next try, for humans.
    pub next_attempt_at: Option<Timestamp>,
    /// What went wrong last.
    pub fault: Option<Fault>,
    delays: backon::ExponentialBackoff,
}

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// To wait by.
    pub mono: MonoTime,
    /// To show.
    pub wall: Timestamp,
}

/// All segments that are not committed yet.
#[derive(Debug)]
pub struct Tracker {
    policy: RetryPolicy,
    workers: usize,
    in_flight: usize,
    segments: BTreeMap<Key, Tracked>,
}

impl Tracker {
    /// Nothing known yet.
    #[must_use]
    pub const fn new(policy: RetryPolicy, workers: usize) -> Self {
        Self { policy, workers, in_flight: 0, segments: BTreeMap::new() }
    }

    /// A closed segment was found. Says whether it is new.
    pub fn found(&mut self, key: Key, name: SegmentName, closed: Timestamp, now: Now) -> bool {
        if self.segments.contains_key(&key) {
            return false;
        }
        let delays = ExponentialBuilder::default()
            .with_min_delay(self.policy.base_delay)
            .with_max_delay(self.policy.max_delay)
            .with_factor(2.0)
            .without_max_times()
            .build();
        let tracked = Tracked {
            name,
            state: State::Closed,
            attempts: 0,
            closed,
            since_mono: now.mono,
            next_attempt_at: None,
            fault: None,
            delays,
        };
        self.segments.insert(key, tracked);
        true
    }

    /// The next segment to try, which is then in flight. `None` when all workers are busy or
    /// nothing may be tried yet.
    pub fn start(&mut self, now: MonoTime) -> Option<Key> {
        if self.in_flight >= self.workers {
            return None;
        }
        let ready = |tracked: &Tracked| match tracked.state {
            State::Closed => true,
            State::BackingOff(until) | State::Closing(until) => until <= now,
            State::InFlight | State::GivenUp => false,
        };
        let (key, tracked) = self.segments.iter_mut().find(|(_, tracked)| ready(tracked))?;
        tracked.state = State::InFlight;
        tracked.next_attempt_at = None;
        self.in_flight += 1;
        Some(key.clone())
    }

    /// The segment is committed, or turned out not to be closed: nothing is left to track.
    pub fn done(&mut self, key: &Key) {
        let done = self.segments.remove(key);
        if done.is_some_and(|tracked| tracked.state == State::InFlight) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    /// The segment is not final yet: look again after `wait`.
    pub fn closing(&mut self, key: &Key, now: Now, wait: Duration) {
        if let Some(tracked) = self.land(key) {
            tracked.state = State::Closing(now.mono + wait);
            tracked.next_attempt_at = wall_after(now.wall, wait);
        }
    }

    /// The try failed. `jitter` is uniform in 0..1: the delay is drawn from the whole span (full
    /// jitter), so that many segments do not come back at once.
    pub fn failed(&mut self, key: &Key, fault: Fault, now: Now, jitter: f64) {
        let tries = self.policy.tries;
        let max_delay = self.policy.max_delay;
        let Some(tracked) = self.land(key) else { return };
        tracked.attempts = tracked.attempts.saturating_add(1);
        let hint = fault.retry_after_ms.map(Duration::from_millis).unwrap_or_default();
        tracked.fault = Some(fault);
        if let Tries::Bounded(most) = tries
            && tracked.attempts >= most
        {
            tracked.state = State::GivenUp;
            return;
        }
        let span = tracked.delays.next().unwrap_or(max_delay).min(max_delay);
        let delay = span.mul_f64(jitter.clamp(0.0, 1.0)).max(hint.min(RETRY_AFTER_MAX));
        tracked.state = State::BackingOff(now.mono + delay);
        tracked.next_attempt_at = wall_after(now.wall, delay);
    }

    /// The try failed in a way that no further try of this run can mend.
    pub fn give_up(&mut self, key: &Key, fault: Fault) {
        if let Some(tracked) = self.land(key) {
            tracked.attempts = tracked.attempts.saturating_add(1);
            tracked.fault = Some(fault);
            tracked.state = State::GivenUp;
        }
    }

    fn land(&mut self, key: &Key) -> Option<&mut Tracked> {
        let tracked = self.segments.get_mut(key)?;
        if tracked.state == State::InFlight {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        Some(tracked)
    }

    /// When the next waiting segment may be tried. `None` while all workers are busy: then one that
    /// lands is waited for, not the clock, which may long be past the deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonoTime> {
        if self.in_flight >= self.workers {
            return None;
        }
        let until = |tracked: &Tracked| match tracked.state {
            State::BackingOff(until) | State::Closing(until) => Some(until),
            State::Closed | State::InFlight | State::GivenUp => None,
        };
        self.segments.values().filter_map(until).min()
    }

    /// Whether anything is in flight or will be tried again.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.segments.values().all(|tracked| tracked.state == State::GivenUp)
    }

    /// Segments in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// One segment.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Tracked> {
        self.segments.get(key)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Tracked)> {
        self.segments.iter()
    }
}

fn wall_after(wall: Timestamp, wait: Duration) -> Option<Timestamp> {
    wall.checked_add(wait).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{FaultKind, Operation};

    fn key(number: u64) -> Key {
        Key { incarnation: "0001-00000000".parse().unwrap(), number: SegmentNumber(number) }
    }

    fn name(number: u64) -> SegmentName {
        format!("binlog.{number:06}").parse().unwrap()
    }

    fn at(seconds: u64) -> Now {
        let mono = MonoTime::after_origin(Duration::from_secs(seconds));
        Now { mono, wall: Timestamp::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    fn tracker(workers: usize, tries: Tries) -> Tracker {
        let policy = RetryPolicy {
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(300),
            tries,
        };
        Tracker::new(policy, workers)
    }

    fn fault() -> Fault {
        Fault::new(Operation::Put, FaultKind::Answered, "no")
    }

    #[test]
    fn the_oldest_by_number_starts_first_and_workers_bound_it() {
        let mut tracker = tracker(2, Tries::Endless);
        for number in [1_000_000, 999_999, 7] {
            assert!(tracker.found(key(number), name(number), at(0).wall, at(0)));
        }
        assert!(!tracker.found(key(7), name(7), at(0).wall, at(0)));
        assert_eq!(tracker.start(at(0).mono), Some(key(7)));
        assert_eq!(tracker.start(at(0).mono), Some(key(999_999)));
        assert_eq!(tracker.start(at(0).mono), None);
        tracker.done(&key(7));
        assert_eq!(tracker.start(at(0).mono), Some(key(1_000_000)));
    }

    #[test]
    fn delays_double_up_to_the_cap_and_never_end() {
        let mut tracker = tracker(1, Tries::Endless);
        tracker.found(key(1), name(1), at(0).wall, at(0));
        let mut now = at(0);
        let mut seen = Vec::new();
        for _ in 0..40 {
            assert_eq!(tracker.start(now.mono), Some(key(1)));
            tracker.failed(&key(1), fault(), now, 1.0);
            let until = tracker.next_deadline().unwrap();
            seen.push(until.since(now.mono).as_secs());
            assert_eq!(tracker.start(now.mono), None);
            now = at(until.since_origin().as_secs());
        }
        assert_eq!(&seen[..4], &[1, 2, 4, 8]);
        assert_eq!(seen.last(), Some(&300));
        assert!(!tracker.idle());
    }

    #[test]
    fn bounded_tries_end_and_others_go_on() {
        let mut tracker = tracker(1, Tries::Bounded(2));
        tracker.found(key(1), name(1), at(0).wall, at(0));
        tracker.found(key(2), name(2), at(0).wall, at(0));
        assert_eq!(tracker.start(at(0).mono), Some(key(1)));
        tracker.failed(&key(1), fault(), at(0), 1.0);
        assert_eq!(tracker.start(at(0).mono), Some(key(2)));
        tracker.done(&key(2));
        assert_eq!(tracker.start(at(9).mono), Some(key(1)));
        tracker.failed(&key(1), fault(), at(9), 1.0);
        assert!(tracker.idle());
        assert_eq!(tracker.get(&key(1)).unwrap().attempts, 2);
    }

    #[test]
    fn retry_after_lengthens_a_delay_within_its_cap() {
        let mut tracker = tracker(1, Tries::Endless);
        tracker.found(key(1), name(1), at(0).wall, at(0));
        tracker.start(at(0).mono);
        let mut slow = fault();
        slow.retry_after_ms = Some(86_400_000);
        tracker.failed(&key(1), slow, at(0), 0.0);
        assert_eq!(tracker.next_deadline(), Some(at(300).mono));
    }

    #[test]
    fn no_deadline_is_waited_for_while_all_workers_are_busy() {
        let mut tracker = tracker(1, Tries::Endless);
        tracker.found(key(1), name(1), at(0).wall, at(0));
        tracker.found(key(2), name(2), at(0).wall, at(0));
        tracker.start(at(0).mono);
        tracker.failed(&key(1), fault(), at(0), 1.0);
        assert_eq!(tracker.next_deadline(), Some(at(1).mono));
        assert_eq!(tracker.start(at(0).mono), Some(key(2)));
        // A loop that slept until that deadline would spin from then on.
        assert_eq!(tracker.next_deadline(), None);
        tracker.done(&key(2));
        assert_eq!(tracker.next_deadline(), Some(at(1).mono));
    }

    #[test]
    fn a_closing_segment_waits_without_counting_an_attempt() {
        let mut tracker = tracker(1, Tries::Bounded(1));
        tracker.found(key(1), name(1), at(0).wall, at(0));
        tracker.start(at(0).mono);
        tracker.closing(&key(1), at(0), Duration::from_secs(1));
        assert_eq!(tracker.start(at(0).mono), None);
        assert_eq!(tracker.start(at(1).mono), Some(key(1)));
        assert_eq!(tracker.get(&key(1)).unwrap().attempts, 0);
    }
}
