//! Slowing down for everybody when the store asks for it, and coming back.
//!
//! Each request to slow down halves how many segments are sent at once; successes bring it back, one
//! doubling at a time.

use std::time::Duration;

use crate::clock::MonoTime;

/// Workers that were busy together are told to slow down together: that counts once.
const CUT_PAUSE: Duration = Duration::from_secs(10);

/// How long it has to go well before more is tried.
const RECOVER_PAUSE: Duration = Duration::from_secs(30);

/// Enough halvings for any number of workers.
const HALVINGS_MAX: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Throttle {
    halvings: u32,
    changed: Option<MonoTime>,
    hold: MonoTime,
}

impl Throttle {
    pub(super) const fn new() -> Self {
        Self { halvings: 0, changed: None, hold: MonoTime::after_origin(Duration::ZERO) }
    }

    pub(super) fn throttled(&mut self, now: MonoTime, retry_after: Option<Duration>) {
        self.hold = self.hold.max(now + retry_after.unwrap_or_default());
        if self.rested(now, CUT_PAUSE) {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
            self.changed = Some(now);
        }
    }

    pub(super) fn succeeded(&mut self, now: MonoTime) {
        if self.halvings > 0 && self.rested(now, RECOVER_PAUSE) {
            self.halvings -= 1;
            self.changed = Some(now);
        }
    }

    fn rested(&self, now: MonoTime, pause: Duration) -> bool {
        self.changed.is_none_or(|changed| now.since(changed) >= pause)
    }

    pub(super) fn workers(&self, most: usize) -> usize {
        (most >> self.halvings).max(1)
    }

    pub(super) fn hold(&self, now: MonoTime) -> Option<MonoTime> {
        (self.hold > now).then_some(self.hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime::after_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn it_halves_once_a_burst_and_recovers_step_by_step() {
        let mut throttle = Throttle::new();
        assert_eq!(throttle.workers(8), 8);
        for _ in 0..8 {
            throttle.throttled(at(0), None);
        }
        assert_eq!(throttle.workers(8), 4);
        throttle.throttled(at(10), Some(Duration::from_secs(7)));
        assert_eq!((throttle.workers(8), throttle.hold(at(11))), (2, Some(at(17))));
        assert_eq!(throttle.hold(at(17)), None);
        for second in 20..50 {
            throttle.throttled(at(second), None);
        }
        assert_eq!(throttle.workers(8), 1, "one always goes on");
        for second in 50..200 {
            throttle.succeeded(at(second));
        }
        assert_eq!(throttle.workers(8), 8);
    }
}
