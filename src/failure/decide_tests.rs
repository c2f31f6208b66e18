//! What is decided about each fault, one case at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::clock::MonoTime;
use crate::fault::{Fault, FaultKind, Operation};

pub(super) const HOUR: u64 = 3600;

pub(super) fn policy(canary: CanaryUse) -> Policy {
    Policy {
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(300),
        max_attempts: 8,
        max_age: Duration::from_secs(6 * HOUR),
        canary,
    }
}

pub(super) fn at(seconds: u64) -> MonoTime {
    MonoTime::after_origin(Duration::from_secs(seconds))
}

pub(super) fn answer(code: &str) -> Classified {
    let mut fault = Fault::new(Operation::Put, FaultKind::Answered, "no");
    fault.code = Some(code.to_owned());
    classify(&fault)
}

pub(super) fn of(kind: FaultKind) -> Classified {
    classify(&Fault::new(Operation::Put, kind, "no"))
}

fn disk(io: &str) -> Classified {
    let mut fault = Fault::new(Operation::ReadSource, FaultKind::LocalIo, "no");
    fault.io = Some(io.to_owned());
    classify(&fault)
}

/// A history and the clock beside it.
pub(super) struct Line {
    pub(super) history: History<u32>,
    pub(super) now: u64,
}

impl Line {
    fn new() -> Self {
        Self::with(CanaryUse::On)
    }

    pub(super) fn with(canary: CanaryUse) -> Self {
        Self { history: History::new(policy(canary)), now: 0 }
    }

    pub(super) fn ask(&mut self, segment: u32, fault: Classified, canary: Canary) -> Decision {
        let failed = Failed { segment: &segment, fault: &fault, canary, jitter: 1.0 };
        decide(&mut self.history, &failed, at(self.now))
    }

    pub(super) fn fails(&mut self, segment: u32, fault: Classified) -> Decision {
        self.ask(segment, fault, Canary::NotRun)
    }

    pub(super) fn commits(&mut self, segment: u32) -> Vec<Suspension> {
        self.history.succeeded(&segment, at(self.now))
    }
}

const EXHAUSTED: Decision = Decision::DeadLetter { class: LetterClass::Exhausted };
const LETTER: Decision = Decision::DeadLetter { class: LetterClass::Permanent };

fn suspended(scope: SuspensionScope, cause: Cause, probe: Probe, trigger: Trigger) -> Decision {
    Decision::Suspend { suspension: Suspension { scope, cause, probe }, trigger }
}

const fn is_retry(decision: Decision) -> bool {
    matches!(decision, Decision::Retry { .. })
}

use Probe::{Canary as ByCanary, Poll, Segment as BySegment};
use SuspensionScope::{Destination, Host, Source};
use Trigger::{DeadLetter as Lettered, Waits};

#[test]
fn the_first_fault_of_each_kind_at_first_contact() {
    let retry = Decision::Retry { after: Duration::from_secs(1) };
    let table = [
        (answer("InternalError"), retry),
        (answer("SlowDown"), retry),
        (of(FaultKind::Transport), retry),
        (of(FaultKind::Timeout), retry),
        (answer("SignatureDoesNotMatch"), retry),
        (answer("BadDigest"), retry),
        (of(FaultKind::SourceChanged), retry),
        (disk("EMFILE"), retry),
        (disk("EIO"), retry),
        // It may be this one file: a second try, or a second segment, tells.
        (disk("PermissionDenied"), retry),
        (of(FaultKind::SourceDamaged), LETTER),
        (of(FaultKind::SourceGone), LETTER),
        (of(FaultKind::Conflict), LETTER),
        (answer("EntityTooLarge"), LETTER),
        (answer("KeyTooLongError"), LETTER),
        (answer("AccessDenied"), Decision::RunCanary),
        (answer("Mystery"), Decision::RunCanary),
        (answer("InvalidRequest"), Decision::RunCanary),
        (of(FaultKind::Other), Decision::RunCanary),
        (answer("InvalidAccessKeyId"), suspended(Destination, Cause::Auth, ByCanary, Lettered)),
        (answer("NoSuchBucket"), suspended(Destination, Cause::NoBucket, ByCanary, Lettered)),
        (of(FaultKind::Tls), suspended(Destination, Cause::Tls, ByCanary, Lettered)),
        (
            of(FaultKind::Credentials),
            suspended(Destination, Cause::Credentials, ByCanary, Lettered),
        ),
        (answer("KMS.DisabledException"), suspended(Destination, Cause::Kms, ByCanary, Lettered)),
        (of(FaultKind::SourceRefused), suspended(Source, Cause::Unknown, Poll, Waits)),
        (of(FaultKind::LeaseLost), suspended(Source, Cause::LeaseLost, Poll, Waits)),
    ];
    for (fault, expected) in table {
        assert_eq!(Line::new().fails(1, fault), expected, "{fault:?}");
    }
}

#[test]
fn the_canary_tells_whose_fault_it_is() {
    let denied = answer("AccessDenied");
    let mut line = Line::new();
    assert_eq!(line.fails(1, denied), Decision::RunCanary);
    assert_eq!(line.ask(1, denied, Canary::Passed), LETTER);

    let mut line = Line::new();
    line.fails(1, denied);
    let opened = suspended(Destination, Cause::AccessDenied, ByCanary, Lettered);
    assert_eq!(line.ask(1, denied, Canary::Failed(denied)), opened);
    // Five hundred more make no letter.
    for segment in 2..500 {
        let held = suspended(Destination, Cause::AccessDenied, ByCanary, Waits);
        assert_eq!(line.fails(segment, denied), held);
    }

    // A canary that broke on the way tells nothing yet.
    let mut line = Line::new();
    line.fails(1, denied);
    assert!(is_retry(line.ask(1, denied, Canary::Failed(of(FaultKind::Transport)))));
    // One that is refused for another reason found that one.
    line.fails(1, denied);
    let other = suspended(Destination, Cause::NoBucket, ByCanary, Waits);
    assert_eq!(line.ask(1, denied, Canary::Failed(answer("NoSuchBucket"))), other);
}

#[test]
fn two_segments_in_a_row_are_the_destination_but_two_damaged_ones_are_not() {
    let large = answer("EntityTooLarge");
    let mut line = Line::new();
    assert_eq!(line.fails(1, large), LETTER);
    assert_eq!(
        line.fails(2, large),
        suspended(Destination, Cause::TooLarge, ByCanary, Waits),
        "its canary is asked first"
    );
    // It passes, so it cannot tell; the next one that meets it is what has to go through.
    line.history.resume(Destination, at(0));
    let next = suspended(Destination, Cause::TooLarge, BySegment, Lettered);
    assert_eq!(line.fails(2, large), next);
    assert_eq!(line.commits(3).len(), 1, "another segment went the whole road");
    assert_eq!(line.fails(4, large), LETTER);

    let mut line = Line::new();
    for (segment, kind) in [FaultKind::SourceDamaged, FaultKind::SourceGone, FaultKind::Conflict]
        .into_iter()
        .flat_map(|kind| [kind; 20])
        .zip(1..)
        .map(|(kind, segment)| (segment, kind))
    {
        assert_eq!(line.fails(segment, of(kind)), LETTER, "{kind:?}");
    }

    // A success in between, and both are alone.
    let mut line = Line::new();
    assert_eq!(line.fails(1, large), LETTER);
    line.commits(9);
    assert_eq!(line.fails(2, large), LETTER);

    // Two segments that a disk cannot read: the disk.
    let mut line = Line::new();
    line.fails(1, disk("EIO"));
    assert_eq!(line.fails(1, disk("EIO")), LETTER);
    line.fails(2, disk("EIO"));
    assert_eq!(line.fails(2, disk("EIO")), suspended(Host, Cause::LocalIo, BySegment, Waits));
}

#[test]
fn without_a_canary_two_in_a_row_decide_alone() {
    let denied = answer("AccessDenied");
    let mut line = Line::with(CanaryUse::Off);
    assert_eq!(line.fails(1, denied), LETTER);
    assert_eq!(
        line.fails(2, denied),
        suspended(Destination, Cause::AccessDenied, BySegment, Waits)
    );
}

#[test]
fn grace_needs_an_earlier_success_and_ends() {
    let cases = [
        (answer("AccessDenied"), 300, Decision::RunCanary),
        (
            answer("InvalidAccessKeyId"),
            300,
            suspended(Destination, Cause::Auth, ByCanary, Lettered),
        ),
        (of(FaultKind::Tls), 300, suspended(Destination, Cause::Tls, ByCanary, Lettered)),
        (
            classify(&{
                let mut fault = Fault::new(Operation::Put, FaultKind::Credentials, "no");
                fault.code = Some("ProviderError".to_owned());
                fault
            }),
            600,
            suspended(Destination, Cause::Credentials, ByCanary, Lettered),
        ),
    ];
    for (fault, lasts, then) in cases {
        assert_eq!(Line::new().fails(1, fault), then, "never at first contact");
        let mut line = Line::new();
        line.commits(9);
        for second in [100, 101, 99 + lasts] {
            line.now = second;
            assert!(is_retry(line.fails(1, fault)), "{fault:?} {second}");
        }
        line.now = 100 + lasts;
        assert_eq!(line.fails(1, fault), then);
    }
    // The last success was too long ago; but the credentials were changed a moment ago.
    let fault = answer("InvalidAccessKeyId");
    let mut line = Line::new();
    line.commits(9);
    line.now = 3601;
    assert!(!is_retry(line.fails(1, fault)));
    let mut line = Line::new();
    line.history.credentials_changed(at(0));
    assert!(is_retry(line.fails(1, fault)));
    // Others' successes do not lengthen one segment's grace.
    let mut line = Line::new();
    line.commits(9);
    for second in 0..300 {
        line.now = second;
        assert!(is_retry(line.fails(1, answer("AccessDenied"))), "{second}");
        line.commits(9);
    }
    line.now = 300;
    assert_eq!(line.fails(1, answer("AccessDenied")), Decision::RunCanary);
}

#[test]
fn limited_tries_end_as_permanent() {
    let cases = [
        (
            answer("RequestTimeTooSkewed"),
            3,
            suspended(Destination, Cause::ClockSkew, ByCanary, Lettered),
        ),
        (
            answer("SignatureDoesNotMatch"),
            2,
            suspended(Destination, Cause::Auth, ByCanary, Lettered),
        ),
        (answer("BadDigest"), 3, Decision::RunCanary),
        (of(FaultKind::SourceChanged), 3, LETTER),
        (answer("NoSuchUpload"), 2, LETTER),
        (disk("EIO"), 2, LETTER),
        (disk("StaleNetworkFileHandle"), 5, LETTER),
    ];
    for (fault, most, then) in cases {
        let mut line = Line::new();
        for _ in 1..most {
            assert!(is_retry(line.fails(1, fault)), "{fault:?}");
        }
        assert_eq!(line.fails(1, fault), then, "{fault:?}");
    }
}

#[test]
fn attempts_count_while_others_succeed() {
    let mut line = Line::new();
    let mut tries = 0;
    loop {
        tries += 1;
        line.now += 10;
        if line.fails(1, answer("InternalError")) == EXHAUSTED {
            break;
        }
        line.commits(2);
    }
    // The first one found nobody else; eight counted.
    assert_eq!(tries, 9);
    // And the next one begins anew.
    assert!(is_retry(line.fails(1, answer("InternalError"))));
}

#[test]
fn alone_they_count_by_the_canary_or_after_max_age() {
    let fault = of(FaultKind::Timeout);
    let mut line = Line::new();
    let (mut canaries, mut ended) = (0, None);
    while line.now < 48 * HOUR {
        let mut decision = line.fails(1, fault);
        if decision == Decision::RunCanary {
            canaries += 1;
            decision = line.ask(1, fault, Canary::Passed);
        }
        if decision == EXHAUSTED {
            ended = Some(line.now);
            break;
        }
        assert!(is_retry(decision), "{decision:?}");
        line.now += 300;
    }
    assert!(canaries >= 1 && ended.is_some_and(|ended| ended < 6 * HOUR), "{canaries} {ended:?}");

    let mut line = Line::with(CanaryUse::Off);
    while line.fails(1, fault) != EXHAUSTED {
        line.now += 300;
    }
    assert!((6 * HOUR..7 * HOUR).contains(&line.now), "{}", line.now);
}

#[test]
fn a_host_fault_of_one_file_does_not_stop_the_others() {
    let denied = disk("PermissionDenied");
    let mut line = Line::new();
    assert!(is_retry(line.fails(1, denied)));
    // Another one meets it too.
    assert_eq!(line.fails(2, denied), suspended(Host, Cause::Permission, BySegment, Waits));
    assert_eq!(line.history.suspension(Destination), None);

    let mut line = Line::new();
    assert!(is_retry(line.fails(1, denied)));
    line.commits(2);
    assert!(is_retry(line.fails(1, denied)));
    line.commits(3);
    assert_eq!(line.fails(1, denied), LETTER);
}

#[test]
fn throttling_slows_all_and_counts_no_attempt() {
    let mut line = Line::new();
    for _ in 0..200 {
        line.now += 60;
        assert!(is_retry(line.fails(1, answer("SlowDown"))));
        line.commits(2);
    }
    assert_eq!(line.history.workers(8), 1);
    let mut slow = answer("SlowDown");
    slow.retry_after = Some(Duration::from_secs(200));
    assert!(matches!(line.fails(1, slow), Decision::Retry { after } if after.as_secs() >= 200));
    assert_eq!(line.history.hold(at(line.now)), Some(at(line.now + 200)));
    // A store that puts one off for ever: that ends too.
    while line.fails(1, answer("SlowDown")) != EXHAUSTED {
        line.now += 300;
        line.commits(2);
    }
    assert!((6 * HOUR..8 * HOUR).contains(&line.now), "{}", line.now);
}

#[test]
fn one_segment_whose_destination_fault_others_do_not_meet_is_lettered_at_last() {
    let gone = answer("InvalidBucketState");
    let mut line = Line::new();
    let opened = suspended(Destination, Cause::NoBucket, ByCanary, Lettered);
    assert_eq!(line.fails(1, gone), opened);
    assert!(line.history.resume(Destination, at(9)).is_some());
    assert_eq!(line.fails(1, gone), LETTER, "it does not open and end for ever");
}

/// A key is revoked while 500 segments wait and four are in flight; one of those still commits.
/// Returns letters and suspensions.
fn revoked(fault: Classified, late_commit: u64) -> (usize, usize) {
    let mut line = Line::new();
    line.commits(9999);
    // The first one meets it before that commit, the others around it.
    let first_tries = (1..=500).map(|segment| (segment, if segment == 1 { 100 } else { 102 }));
    let mut due: BTreeMap<u32, u64> = first_tries.collect();
    let (mut letters, mut suspensions) = (0, 0);
    for now in 100..2 * HOUR {
        line.now = now;
        if now == late_commit {
            line.commits(9998);
        }
        // Four at once: those that are due, oldest first.
        let ready: Vec<u32> =
            due.iter().filter(|(_, at)| **at <= now).map(|(s, _)| *s).take(4).collect();
        for segment in ready {
            if line.history.suspension(Destination).is_some() {
                break;
            }
            let mut decision = line.fails(segment, fault);
            if decision == Decision::RunCanary {
                decision = line.ask(segment, fault, Canary::Failed(fault));
            }
            match decision {
                Decision::Retry { after } => {
                    due.insert(segment, now + after.as_secs().max(1));
                }
                Decision::DeadLetter { .. } => {
                    letters += 1;
                    due.remove(&segment);
                }
                Decision::Suspend { trigger, .. } => {
                    suspensions += 1;
                    if trigger == Lettered {
                        letters += 1;
                        due.remove(&segment);
                    }
                }
                Decision::RunCanary => panic!("asked twice"),
            }
        }
    }
    (letters, suspensions)
}

#[test]
fn a_revoked_key_makes_one_letter_and_one_suspension() {
    for code in ["InvalidAccessKeyId", "AccessDenied", "SignatureDoesNotMatch", "ExpiredToken"] {
        for late_commit in [0, 101, 103, 110, 250] {
            assert_eq!(revoked(answer(code), late_commit), (1, 1), "{code} {late_commit}");
        }
    }
}
