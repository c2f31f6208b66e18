//! What is done about a failed try: a pure state machine over [`History`].
//!
//! **Invariants.** A segment's fault never stops the others: only what two segments met, or what the
//! canary met too, suspends. A local fault never suspends the destination. An attempt counts only
//! while others succeed, or after `max_age` alone: so an outage makes one suspension and no letters,
//! and each segment that keeps failing still ends in a letter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cause::Cause;
use super::history::{CanaryUse, History};
use super::rule::{Class, Classified, Origin, Scope};
use crate::clock::MonoTime;

/// A destination that fails for this long without any success is asked by the canary, and suspended.
const OUTAGE_AFTER: Duration = Duration::from_secs(900);

/// Tries of a segment that failed for this host's reasons, before it is told whether it is the host
/// or the segment.
const HOST_TRIES: u32 = 3;

/// What a suspension stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SuspensionScope {
    /// All that goes to this store.
    Destination,
    /// All on this host.
    Host,
    /// All of this source.
    Source,
}

/// How a suspension is found to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// A canary passes.
    Canary,
    /// A waiting segment is committed; each is tried in turn, for the one that met it first may be
    /// the one that is at fault.
    Segment,
    /// The source is looked at again.
    Poll,
}

/// Dispatch stopped for a fault of a destination, host or source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// What it stops.
    pub scope: SuspensionScope,
    /// Why.
    pub cause: Cause,
    /// How it ends.
    pub probe: Probe,
}

/// What becomes of the segment whose fault began or met a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// It is dead-lettered; its letter is released when the suspension ends.
    DeadLetter,
    /// It waits with the others.
    Waits,
}

/// Why a segment is dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LetterClass {
    /// It was tried as often as it is tried: another time may do.
    Exhausted,
    /// No try mends it.
    Permanent,
}

/// What is done about a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is tried again.
    Retry {
        /// No sooner than after this.
        after: Duration,
    },
    /// It leaves the hot path.
    DeadLetter {
        /// Why.
        class: LetterClass,
    },
    /// Dispatch stops, if it has not yet.
    Suspend {
        /// What stops. Already open ones are named again.
        suspension: Suspension,
        /// What becomes of this segment.
        trigger: Trigger,
    },
    /// A canary has to tell: put one, and decide again with what came of it. One canary answers for
    /// all segments that wait for it.
    RunCanary,
}

/// What the canary said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// It was not asked: the fault is new.
    NotRun,
    /// It went through.
    Passed,
    /// It failed, of this.
    Failed(Classified),
}

/// A failed try.
#[derive(Debug)]
pub struct Failed<'a, K> {
    /// Which segment.
    pub segment: &'a K,
    /// What its fault means by itself.
    pub fault: &'a Classified,
    /// What the canary said, where it was asked for this fault.
    pub canary: Canary,
    /// Uniform in 0..1.
    pub jitter: f64,
}

/// Decides what is done about a failed try.
#[must_use]
pub fn decide<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    match &failed.canary {
        Canary::NotRun => fresh(history, failed, now),
        Canary::Passed => canary_passed(history, failed, now),
        Canary::Failed(own) => canary_failed(history, failed, own, now),
    }
}

fn fresh<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    let counts = history.note(segment, fault, now);
    if fault.scope == Scope::Host {
        return host(history, failed, now);
    }
    match history.class(segment, fault) {
        Class::Transient => transient(history, failed, counts, now),
        Class::Permanent if history.in_grace(segment, fault.grace, now) => {
            retry(history, failed, now)
        }
        Class::Permanent => permanent(history, failed, now),
    }
}

fn transient<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    counts: bool,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    if counts && history.count(segment) {
        return letter(history, failed, LetterClass::Exhausted);
    }
    if !is_remote(fault) {
        return retry(history, failed, now);
    }
    if let Some(suspension) = history.suspension(SuspensionScope::Destination) {
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    let long = history.outage(now).filter(|outage| outage.lasted >= OUTAGE_AFTER && !counts);
    match (long, history.policy.canary) {
        (Some(_), CanaryUse::On) => Decision::RunCanary,
        (Some(outage), CanaryUse::Off) if outage.several => {
            let scope = SuspensionScope::Destination;
            let suspension = Suspension { scope, cause: fault.cause, probe: Probe::Segment };
            suspend(history, failed, suspension, Trigger::Waits)
        }
        (Some(_), CanaryUse::Off) | (None, CanaryUse::On | CanaryUse::Off) => {
            retry(history, failed, now)
        }
    }
}

fn permanent<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    match fault.scope {
        Scope::Segment | Scope::NeedsCanary => one_or_all(history, failed),
        Scope::Destination => {
            let streak = history.streak(segment, fault.cause);
            // One letter stands for them all.
            let trigger = if streak.lettered { Trigger::Waits } else { Trigger::DeadLetter };
            if streak.canary_passed || history.others_committed(segment, fault.cause) {
                // The canary or other segments pass: it is not the whole destination after all.
                return one_or_all(history, failed);
            }
            let scope = SuspensionScope::Destination;
            let probe = match history.policy.canary {
                CanaryUse::On => Probe::Canary,
                CanaryUse::Off => Probe::Segment,
            };
            let suspension = Suspension { scope, cause: fault.cause, probe };
            suspend(history, failed, suspension, trigger)
        }
        Scope::Source => {
            let scope = SuspensionScope::Source;
            let suspension = Suspension { scope, cause: fault.cause, probe: Probe::Poll };
            suspend(history, failed, suspension, Trigger::Waits)
        }
        Scope::Host => host(history, failed, now),
    }
}

/// A permanent fault of one segment, as far as it tells by itself. Met by two segments with no
/// success in between, it is not the segment's.
fn one_or_all<K: Ord + Clone>(history: &mut History<K>, failed: &Failed<'_, K>) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    let remote = is_remote(fault);
    if remote && let Some(suspension) = history.suspension(SuspensionScope::Destination) {
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    let canary = history.policy.canary;
    let streak = history.streak(segment, fault.cause);
    if streak.is_shared()
        && let Some(scope) = shared_scope(fault)
    {
        let trigger = if streak.lettered { Trigger::Waits } else { Trigger::DeadLetter };
        let by_canary = remote && !streak.canary_passed && canary == CanaryUse::On;
        let probe = if by_canary { Probe::Canary } else { Probe::Segment };
        let suspension = Suspension { scope, cause: fault.cause, probe };
        return suspend(history, failed, suspension, trigger);
    }
    if fault.scope == Scope::NeedsCanary && canary == CanaryUse::On {
        return Decision::RunCanary;
    }
    letter(history, failed, LetterClass::Permanent)
}

/// What fails when two segments meet the same fault: the store that answers it, the disk that gives
/// it. Two damaged segments are two damaged segments.
fn shared_scope(fault: &Classified) -> Option<SuspensionScope> {
    match fault.origin {
        Origin::Store | Origin::Road => Some(SuspensionScope::Destination),
        Origin::Host if fault.cause == Cause::LocalIo => Some(SuspensionScope::Host),
        Origin::Host | Origin::Archive => None,
    }
}

/// A fault of this host, unless others are committed meanwhile: then it is this segment's file.
fn host<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    let scope = SuspensionScope::Host;
    if let Some(suspension) = history.suspension(scope) {
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    let tries = history.tries(segment, fault.cause);
    let shared = history.streak(segment, fault.cause).is_shared();
    let told = match fault.class {
        Class::Transient => tries >= HOST_TRIES,
        Class::Permanent => shared || tries >= HOST_TRIES,
    };
    if !told {
        return retry(history, failed, now);
    }
    if shared || !history.others_committed(segment, fault.cause) {
        let suspension = Suspension { scope, cause: fault.cause, probe: Probe::Segment };
        return suspend(history, failed, suspension, Trigger::Waits);
    }
    match fault.class {
        Class::Permanent => letter(history, failed, LetterClass::Permanent),
        Class::Transient if tries >= history.policy.max_attempts => {
            letter(history, failed, LetterClass::Exhausted)
        }
        Class::Transient => retry(history, failed, now),
    }
}

fn canary_passed<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    history.healthy(now);
    if let Some(mut suspension) = history.suspension(SuspensionScope::Destination) {
        // Others met it while the canary ran: what it cannot tell, the next segment does.
        suspension.probe = Probe::Segment;
        history.open(suspension);
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    match history.class(segment, fault) {
        Class::Transient if fault.throttle && !history.is_aged(segment, now) => {
            retry(history, failed, now)
        }
        Class::Transient if history.count(segment) => {
            letter(history, failed, LetterClass::Exhausted)
        }
        Class::Transient => retry(history, failed, now),
        Class::Permanent => {
            history.streak(segment, fault.cause).canary_passed = true;
            letter(history, failed, LetterClass::Permanent)
        }
    }
}

fn canary_failed<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    own: &Classified,
    now: MonoTime,
) -> Decision {
    let (segment, fault) = (failed.segment, failed.fault);
    let scope = SuspensionScope::Destination;
    if let Some(suspension) = history.suspension(scope) {
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    let same = own.cause == fault.cause;
    let long = history.outage(now).is_some_and(|outage| outage.lasted >= OUTAGE_AFTER);
    let tells = match own.class {
        Class::Permanent => true,
        // A canary that fails for a passing reason of its own tells nothing yet.
        Class::Transient => same || long,
    };
    if !tells || own.origin == Origin::Host {
        return retry(history, failed, now);
    }
    let met_it = same && history.class(segment, fault) == Class::Permanent;
    let trigger = if met_it { Trigger::DeadLetter } else { Trigger::Waits };
    let suspension = Suspension { scope, cause: own.cause, probe: Probe::Canary };
    suspend(history, failed, suspension, trigger)
}

pub(super) const fn is_remote(fault: &Classified) -> bool {
    match fault.origin {
        Origin::Store | Origin::Road => true,
        Origin::Archive | Origin::Host => false,
    }
}

fn retry<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    now: MonoTime,
) -> Decision {
    Decision::Retry { after: history.delay(failed.segment, failed.fault, failed.jitter, now) }
}

fn letter<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    class: LetterClass,
) -> Decision {
    let (segment, cause) = (failed.segment, failed.fault.cause);
    history.lettered(segment, cause);
    Decision::DeadLetter { class }
}

/// Opens a suspension, or names the one that is open: then nothing is dead-lettered for it.
fn suspend<K: Ord + Clone>(
    history: &mut History<K>,
    failed: &Failed<'_, K>,
    suspension: Suspension,
    trigger: Trigger,
) -> Decision {
    if let Some(suspension) = history.suspension(suspension.scope) {
        return Decision::Suspend { suspension, trigger: Trigger::Waits };
    }
    history.open(suspension);
    if trigger == Trigger::DeadLetter {
        history.lettered(failed.segment, failed.fault.cause);
    }
    Decision::Suspend { suspension, trigger }
}
