//! What came before: successes, faults in a row, grace, open suspensions.
//!
//! **Invariants.** Time is given, never asked for. A segment's counts last until it is committed or
//! dead-lettered; memory is one small record for each segment that is failing.

use std::collections::BTreeMap;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::cause::Cause;
use super::decide::{Probe, Suspension, SuspensionScope, is_remote};
use super::rule::{Class, Classified, Grace};
use super::throttle::Throttle;
use crate::clock::MonoTime;

/// A store that worked this long ago has worked a moment ago.
const AUTH_RECENT: Duration = Duration::from_secs(3600);

/// How long keys, policies and certificates may take to be known everywhere.
const AUTH_GRACE: Duration = Duration::from_secs(300);

/// How long a provider of credentials may be down.
const CREDENTIALS_GRACE: Duration = Duration::from_secs(600);

/// Whether a canary may be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryUse {
    /// It may.
    On,
    /// It may not: a write-once bucket would keep each of them.
    Off,
}

/// How retries are spaced and when they end.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// The first delay.
    pub base_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// Attempts that count, before a segment is exhausted.
    pub max_attempts: u32,
    /// After this long of failing alone every attempt counts.
    pub max_age: Duration,
    /// Whether a canary may be put.
    pub canary: CanaryUse,
}

/// Tries of one segment that ended for one cause.
#[derive(Debug, Clone, Copy)]
struct Tried {
    tries: u32,
    /// Segments committed before the first of them.
    commits_seen: u64,
}

/// What is known of one failing segment.
#[derive(Debug)]
struct Tally {
    /// Attempts that count.
    attempts: u32,
    causes: BTreeMap<Cause, Tried>,
    first_failed: MonoTime,
    /// Since when it fails and nothing succeeds.
    alone_since: MonoTime,
    /// Successes of the destination before its last failure.
    oks_seen: u64,
    /// When its first fault that has grace came.
    grace_since: Option<MonoTime>,
    delays: ExponentialBackoff,
}

/// Permanent faults of one cause since the last segment that was committed.
#[derive(Debug)]
pub(super) struct Streak<K> {
    first: K,
    shared: bool,
    /// The canary passed meanwhile: it cannot tell this cause.
    pub(super) canary_passed: bool,
    /// One of its segments was dead-lettered.
    pub(super) lettered: bool,
}

impl<K> Streak<K> {
    /// Whether two different segments met it.
    pub(super) const fn is_shared(&self) -> bool {
        self.shared
    }
}

/// Faults of the destination since its last success.
#[derive(Debug)]
struct Outage<K> {
    since: MonoTime,
    first: K,
    several: bool,
}

/// How long the destination has been failing, and whether for several segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutageSeen {
    pub(super) lasted: Duration,
    pub(super) several: bool,
}

/// What came before. `K` names a segment.
#[derive(Debug)]
pub struct History<K> {
    pub(super) policy: Policy,
    tallies: BTreeMap<K, Tally>,
    streaks: BTreeMap<Cause, Streak<K>>,
    /// When the destination last did what was asked, for a segment or the canary.
    last_ok: Option<MonoTime>,
    oks: u64,
    commits: u64,
    outage: Option<Outage<K>>,
    credentials_changed: Option<MonoTime>,
    open: BTreeMap<SuspensionScope, Suspension>,
    throttle: Throttle,
}

impl<K: Ord + Clone> History<K> {
    /// Nothing happened yet.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            tallies: BTreeMap::new(),
            streaks: BTreeMap::new(),
            last_ok: None,
            oks: 0,
            commits: 0,
            outage: None,
            credentials_changed: None,
            open: BTreeMap::new(),
            throttle: Throttle::new(),
        }
    }

    /// A suspension that an earlier process left open.
    pub fn restore(&mut self, suspension: Suspension) {
        self.open.insert(suspension.scope, suspension);
    }

    /// A segment was committed. Returns the suspensions that this ends: it went the whole road.
    pub fn succeeded(&mut self, segment: &K, now: MonoTime) -> Vec<Suspension> {
        self.tallies.remove(segment);
        self.streaks.clear();
        self.commits += 1;
        self.throttle.succeeded(now);
        self.healthy(now);
        [SuspensionScope::Destination, SuspensionScope::Host]
            .iter()
            .filter_map(|scope| self.open.remove(scope))
            .collect()
    }

    /// A suspension has ended: its canary passed, or its cause was found to be gone.
    pub fn resume(&mut self, scope: SuspensionScope, now: MonoTime) -> Option<Suspension> {
        let ended = self.open.remove(&scope);
        if scope == SuspensionScope::Destination {
            self.healthy(now);
            for streak in self.streaks.values_mut() {
                // Its letter is released with the suspension.
                (streak.canary_passed, streak.lettered) = (true, false);
            }
        }
        ended
    }

    /// The segment is no longer tried: it left in another way than by a decision.
    pub fn forget(&mut self, segment: &K) {
        self.tallies.remove(segment);
    }

    /// Other credentials were loaded.
    pub const fn credentials_changed(&mut self, now: MonoTime) {
        self.credentials_changed = Some(now);
    }

    /// The open suspension of a scope.
    #[must_use]
    pub fn suspension(&self, scope: SuspensionScope) -> Option<Suspension> {
        self.open.get(&scope).copied()
    }

    /// How many segments may be sent at once, of `most`, after what the store said of its load.
    #[must_use]
    pub fn workers(&self, most: usize) -> usize {
        self.throttle.workers(most)
    }

    /// Until when the store asked everybody to wait.
    #[must_use]
    pub fn hold(&self, now: MonoTime) -> Option<MonoTime> {
        self.throttle.hold(now)
    }

    /// The destination did what was asked.
    pub(super) fn healthy(&mut self, now: MonoTime) {
        self.last_ok = Some(now);
        self.oks += 1;
        self.outage = None;
    }

    /// Takes in a fault. Says whether the try counts as an attempt.
    pub(super) fn note(&mut self, segment: &K, fault: &Classified, now: MonoTime) -> bool {
        if fault.throttle {
            self.throttle.throttled(now, fault.retry_after);
        }
        if is_remote(fault) {
            match &mut self.outage {
                Some(outage) => outage.several |= outage.first != *segment,
                None => {
                    self.outage =
                        Some(Outage { since: now, first: segment.clone(), several: false });
                }
            }
        }
        // Whoever waits for a canary burns no attempts.
        let held = is_remote(fault)
            && self
                .suspension(SuspensionScope::Destination)
                .is_some_and(|suspension| suspension.probe == Probe::Canary);
        let (oks, commits, max_age) = (self.oks, self.commits, self.policy.max_age);
        let tally = self.tally(segment, now);
        let tried =
            tally.causes.entry(fault.cause).or_insert(Tried { tries: 0, commits_seen: commits });
        tried.tries = tried.tries.saturating_add(1);
        let others = oks > tally.oks_seen;
        tally.oks_seen = oks;
        if others {
            tally.alone_since = now;
        }
        let alone_too_long = now.since(tally.alone_since) >= max_age;
        // The store says "later": that is no attempt, unless it says so for ever.
        let too_long = now.since(tally.first_failed) >= max_age;
        !held && if fault.throttle { too_long } else { others || alone_too_long }
    }

    fn tally(&mut self, segment: &K, now: MonoTime) -> &mut Tally {
        let (policy, oks) = (self.policy, self.oks);
        self.tallies.entry(segment.clone()).or_insert_with(|| Tally {
            attempts: 0,
            causes: BTreeMap::new(),
            first_failed: now,
            alone_since: now,
            oks_seen: oks,
            grace_since: None,
            delays: ExponentialBuilder::default()
                .with_min_delay(policy.base_delay)
                .with_max_delay(policy.max_delay)
                .with_factor(2.0)
                .without_max_times()
                .build(),
        })
    }

    /// Counts an attempt. Says whether it was the last.
    pub(super) fn count(&mut self, segment: &K) -> bool {
        let most = self.policy.max_attempts;
        self.tallies.get_mut(segment).is_some_and(|tally| {
            tally.attempts = tally.attempts.saturating_add(1);
            tally.attempts >= most
        })
    }

    /// The class, after as many tries as there were.
    pub(super) fn class(&self, segment: &K, fault: &Classified) -> Class {
        match (fault.class, fault.tries) {
            (Class::Transient, Some(most)) if self.tries(segment, fault.cause) >= most => {
                Class::Permanent
            }
            (class, Some(_) | None) => class,
        }
    }

    /// Tries of a segment that ended for this cause.
    pub(super) fn tries(&self, segment: &K, cause: Cause) -> u32 {
        self.tried(segment, cause).map_or(0, |tried| tried.tries)
    }

    fn tried(&self, segment: &K, cause: Cause) -> Option<&Tried> {
        self.tallies.get(segment)?.causes.get(&cause)
    }

    /// Whether others were committed since this one first failed for this cause.
    pub(super) fn others_committed(&self, segment: &K, cause: Cause) -> bool {
        self.tried(segment, cause).is_some_and(|tried| self.commits > tried.commits_seen)
    }

    /// Whether the store has been putting this segment off for too long.
    pub(super) fn is_aged(&self, segment: &K, now: MonoTime) -> bool {
        let tally = self.tallies.get(segment);
        tally.is_some_and(|tally| now.since(tally.first_failed) >= self.policy.max_age)
    }

    /// Whether a permanent fault is tried again all the same.
    pub(super) fn in_grace(&mut self, segment: &K, grace: Grace, now: MonoTime) -> bool {
        let (lasts, known) = match grace {
            Grace::None => return false,
            Grace::Auth => {
                let within = |time: Option<MonoTime>, span: Duration| {
                    time.is_some_and(|time| now.since(time) < span)
                };
                let worked = within(self.last_ok, AUTH_RECENT);
                (AUTH_GRACE, worked || within(self.credentials_changed, AUTH_GRACE))
            }
            Grace::Credentials => (CREDENTIALS_GRACE, self.last_ok.is_some()),
        };
        let since = *self.tally(segment, now).grace_since.get_or_insert(now);
        known && now.since(since) < lasts
    }

    /// How long the destination has been failing.
    pub(super) fn outage(&self, now: MonoTime) -> Option<OutageSeen> {
        let outage = self.outage.as_ref()?;
        Some(OutageSeen { lasted: now.since(outage.since), several: outage.several })
    }

    /// The faults of a cause in a row, this segment's among them.
    pub(super) fn streak(&mut self, segment: &K, cause: Cause) -> &mut Streak<K> {
        let streak = self.streaks.entry(cause).or_insert_with(|| Streak {
            first: segment.clone(),
            shared: false,
            canary_passed: false,
            lettered: false,
        });
        streak.shared |= streak.first != *segment;
        streak
    }

    /// The next delay: drawn from the whole span, so that many do not come back at once.
    pub(super) fn delay(
        &mut self,
        segment: &K,
        fault: &Classified,
        jitter: f64,
        now: MonoTime,
    ) -> Duration {
        let longest = self.policy.max_delay;
        let span = self.tally(segment, now).delays.next().unwrap_or(longest).min(longest);
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
        span.mul_f64(jitter).max(fault.retry_after.unwrap_or_default())
    }

    /// Opens a suspension.
    pub(super) fn open(&mut self, suspension: Suspension) {
        self.open.insert(suspension.scope, suspension);
    }

    /// The segment leaves the hot path.
    pub(super) fn lettered(&mut self, segment: &K, cause: Cause) {
        self.tallies.remove(segment);
        if let Some(streak) = self.streaks.get_mut(&cause) {
            streak.lettered = true;
        }
    }
}
