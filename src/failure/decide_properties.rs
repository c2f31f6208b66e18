//! What holds of every decision: played outages, and any faults in any order.

use std::time::Duration;

use proptest::prelude::*;

use super::Probe::{Canary as ByCanary, Poll, Segment as BySegment};
use super::SuspensionScope::{Destination, Host, Source};
use super::classify_tests::some_fault;
use super::decide_tests::{HOUR, Line, answer, at, of, policy};
use super::*;
use crate::fault::{Fault, FaultKind, Operation};

/// Plays a store that is down, with a canary each minute while suspended. Returns letters and
/// suspensions.
fn outage(canary: CanaryUse, faults: &[Classified], lasts: u64, jitter: f64) -> (usize, usize) {
    let mut history: History<usize> = History::new(policy(canary));
    history.succeeded(&999, at(0));
    let mut due: Vec<Option<u64>> = vec![Some(10); 6];
    let (mut letters, mut suspensions, mut asked) = (0, 0, 0);
    let mut now = 10;
    while now < lasts {
        for segment in 0..due.len() {
            let open = history.suspension(Destination);
            // While it is suspended, one probes now and then; or the canary does, and nobody.
            let may = match open.map(|open| open.probe) {
                None => due[segment].is_some_and(|due| due <= now),
                Some(ByCanary | Poll) => false,
                Some(BySegment) => now.is_multiple_of(300) && segment == (now / 300) as usize % 6,
            };
            if !may {
                continue;
            }
            asked += 1;
            let fault = &faults[asked % faults.len()];
            let mut failed = Failed { segment: &segment, fault, canary: Canary::NotRun, jitter };
            let mut decision = decide(&mut history, &failed, at(now));
            if decision == Decision::RunCanary {
                failed.canary = Canary::Failed(faults[(asked + 1) % faults.len()]);
                decision = decide(&mut history, &failed, at(now));
            }
            match decision {
                Decision::Retry { after } => due[segment] = Some(now + after.as_secs().max(1)),
                Decision::DeadLetter { .. } => letters += 1,
                Decision::Suspend { trigger, .. } => {
                    suspensions += usize::from(open.is_none());
                    letters += usize::from(trigger == Trigger::DeadLetter);
                    due[segment] = Some(0);
                }
                Decision::RunCanary => panic!("asked twice"),
            }
        }
        now += 10;
    }
    (letters, suspensions)
}

fn down() -> Vec<Classified> {
    let status = |status| {
        let mut fault = Fault::new(Operation::Put, FaultKind::Answered, "no");
        fault.http_status = Some(status);
        classify(&fault)
    };
    vec![
        of(FaultKind::Transport),
        of(FaultKind::Timeout),
        answer("InternalError"),
        answer("ServiceUnavailable"),
        answer("SlowDown"),
        status(500),
        status(502),
        status(503),
        status(504),
    ]
}

#[test]
fn six_hours_of_outage_make_one_suspension_and_no_letter() {
    for canary in [CanaryUse::On, CanaryUse::Off] {
        for fault in down() {
            assert_eq!(outage(canary, &[fault], 6 * HOUR, 1.0), (0, 1), "{canary:?} {fault:?}");
        }
        assert_eq!(outage(canary, &down(), 6 * HOUR, 1.0), (0, 1), "{canary:?}");
    }
}

/// Every fault of every kind, by what the tables make of it.
fn some_classified() -> impl Strategy<Value = Classified> {
    some_fault().prop_map(|fault| classify(&fault))
}

#[derive(Debug, Clone)]
enum Step {
    Fails { segment: u32, fault: Classified, canary: Option<Classified>, jitter: f64 },
    Commits { segment: u32 },
    Resumes(SuspensionScope),
    Credentials,
}

fn some_step() -> impl Strategy<Value = Step> {
    let scope = proptest::sample::select(vec![Destination, Host, Source]);
    let own = proptest::option::of(some_classified());
    prop_oneof![
        8 => (0..4_u32, some_classified(), own, any::<f64>())
            .prop_map(|(segment, fault, canary, jitter)| Step::Fails { segment, fault, canary, jitter }),
        2 => (0..4_u32).prop_map(|segment| Step::Commits { segment }),
        1 => scope.prop_map(Step::Resumes),
        1 => Just(Step::Credentials),
    ]
}

/// Every decision of a run.
fn play(canary: CanaryUse, steps: &[(Step, u64)]) -> Vec<Decision> {
    let mut line = Line::with(canary);
    let mut decisions = Vec::new();
    for (step, wait) in steps {
        line.now += wait;
        match step {
            Step::Commits { segment } => drop(line.commits(*segment)),
            Step::Resumes(scope) => drop(line.history.resume(*scope, at(line.now))),
            Step::Credentials => line.history.credentials_changed(at(line.now)),
            Step::Fails { segment, fault, canary, jitter } => {
                let mut failed = Failed { segment, fault, canary: Canary::NotRun, jitter: *jitter };
                let mut decision = decide(&mut line.history, &failed, at(line.now));
                decisions.push(decision);
                if decision == Decision::RunCanary {
                    failed.canary = canary.map_or(Canary::Passed, Canary::Failed);
                    decision = decide(&mut line.history, &failed, at(line.now));
                    decisions.push(decision);
                }
                if let Decision::Suspend { suspension, .. } = decision {
                    assert_eq!(line.history.suspension(suspension.scope), Some(suspension));
                }
            }
        }
    }
    decisions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_is_total_and_deterministic(
        off in any::<bool>(),
        steps in proptest::collection::vec((some_step(), 0..4000_u64), 0..60),
    ) {
        let canary = if off { CanaryUse::Off } else { CanaryUse::On };
        let decisions = play(canary, &steps);
        prop_assert_eq!(&decisions, &play(canary, &steps));
        let mut asked = false;
        for decision in decisions {
            // What the canary said is never answered with another canary.
            prop_assert!(!(asked && decision == Decision::RunCanary));
            asked = decision == Decision::RunCanary;
            prop_assert!(canary == CanaryUse::On || !asked);
            if let Decision::Retry { after } = decision {
                prop_assert!(after <= Duration::from_secs(300), "{after:?}");
            }
        }
    }

    /// One segment meets a fault again and again, whatever it is and whatever the others do: it ends
    /// in a letter, or in a suspension that a human is told of.
    #[test]
    fn the_cap_always_ends(
        faults in proptest::collection::vec(some_classified(), 1..5),
        others in any::<bool>(),
        off in any::<bool>(),
    ) {
        let mut line = Line::with(if off { CanaryUse::Off } else { CanaryUse::On });
        let mut ended = false;
        for at in 0..2000 {
            let fault = faults[at % faults.len()];
            let mut decision = line.fails(1, fault);
            if decision == Decision::RunCanary {
                decision = line.ask(1, fault, Canary::Passed);
            }
            match decision {
                Decision::Retry { after } => line.now += after.as_secs().max(1),
                Decision::DeadLetter { .. } | Decision::Suspend { .. } => {
                    ended = true;
                    break;
                }
                Decision::RunCanary => prop_assert!(false, "asked twice"),
            }
            if others {
                line.commits(2);
            }
        }
        prop_assert!(ended, "after {} s", line.now);
    }

    #[test]
    fn no_outage_of_six_hours_makes_a_letter(
        picks in proptest::collection::vec(0..9_usize, 1..12),
        off in any::<bool>(),
        jitter in 0.05..1.0_f64,
    ) {
        let down = down();
        let faults: Vec<Classified> = picks.iter().map(|pick| down[*pick]).collect();
        let canary = if off { CanaryUse::Off } else { CanaryUse::On };
        let (letters, suspensions) = outage(canary, &faults, 6 * HOUR, jitter);
        prop_assert_eq!(letters, 0);
        prop_assert_eq!(suspensions, 1);
    }

    /// Segments that fail for ever, at a destination whose canary passes: its suspension opens and ends,
    /// and each of them is lettered.
    #[test]
    fn a_suspension_that_ends_does_not_open_for_ever(
        faults in proptest::collection::vec(some_classified(), 1..4),
        segments in 1..4_u32,
        off in any::<bool>(),
    ) {
        let mut line = Line::with(if off { CanaryUse::Off } else { CanaryUse::On });
        let mut waiting: Vec<u32> = (0..segments).collect();
        for round in 0..5000 {
            let Some(segment) = waiting.get(round % waiting.len().max(1)).copied() else { break };
            let fault = faults[round % faults.len()];
            let mut decision = line.fails(segment, fault);
            if decision == Decision::RunCanary {
                decision = line.ask(segment, fault, Canary::Passed);
            }
            let lettered = match decision {
                Decision::Retry { after } => {
                    line.now += after.as_secs().max(1);
                    false
                }
                Decision::DeadLetter { .. } => true,
                Decision::Suspend { suspension, trigger } => {
                    if suspension.scope != Destination {
                        // This host or this source stays suspended: a human is told.
                        return Ok(());
                    }
                    line.now += 60;
                    line.history.resume(Destination, at(line.now));
                    trigger == Trigger::DeadLetter
                }
                Decision::RunCanary => panic!("asked twice"),
            };
            if lettered {
                waiting.retain(|other| *other != segment);
            }
        }
        prop_assert!(waiting.is_empty(), "{waiting:?} after {} s", line.now);
    }
}
