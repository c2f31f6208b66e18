//! Time as a parameter: wall time to show and to store, monotonic time to wait by.
//!
//! **Invariants.** Backoff, deadlines and limits are measured by [`MonoTime`], which no one can
//! set back. Nothing orders by wall time (I12): it is written into records for humans only.
//!
//! **Cancellation.** A [`Sleep`] holds nothing; dropping it is always safe.

mod manual;

pub use manual::ManualClock;

use std::fmt;
use std::future::Future;
use std::ops::Add;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;

/// A point of monotonic time, counted from an arbitrary origin of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoTime(Duration);

impl MonoTime {
    /// The point this long after the clock's origin.
    #[must_use]
    pub const fn after_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the clock's origin this is.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for MonoTime {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// A wait that ends by itself; owns all it needs.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time comes from. Shared as `Arc<dyn Clock>`.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time of day: for records and for humans, never to order or to wait by.
    fn wall(&self) -> Timestamp;

    /// The time to measure waits by.
    fn mono(&self) -> MonoTime;

    /// Ends once [`Self::mono`] has reached `until`; at once when it already has.
    fn sleep_until(&self, until: MonoTime) -> Sleep;

    /// Ends after `wait`.
    fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.mono() + wait)
    }
}

/// The host's clocks.
#[derive(Debug, Clone)]
pub struct RealClock {
    origin: tokio::time::Instant,
}

impl RealClock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where time comes from the host")]
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where time comes from the host")]
impl Clock for RealClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn mono(&self) -> MonoTime {
        MonoTime(self.origin.elapsed())
    }

    fn sleep_until(&self, until: MonoTime) -> Sleep {
        let wait = until.since(self.mono());
        // Later than the runtime's own limit is the same as never, and tokio clamps it.
        Box::pin(async move { tokio::time::sleep(wait).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mono_time_never_wraps_and_never_goes_negative() {
        let early = MonoTime::after_origin(Duration::from_secs(1));
        let late = early + Duration::from_secs(2);
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert!(late + Duration::MAX > late);
    }

    #[tokio::test(start_paused = true)]
    async fn the_real_clock_sleeps_by_monotonic_time() {
        let clock = RealClock::new();
        let before = clock.mono();
        clock.sleep(Duration::from_secs(3600)).await;
        assert!(clock.mono().since(before) >= Duration::from_secs(3600));
        clock.sleep_until(before).await;
    }
}
