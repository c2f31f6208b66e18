//! A clock that moves only when it is told to: for tests and for the simulation.
//!
//! **Invariants.** Monotonic time never goes back. A sleeper wakes exactly when time has been
//! advanced to or beyond its point.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::{Clock, MonoTime, Sleep};

/// Time under the hand of its owner. Clones share one time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    mono: Arc<watch::Sender<MonoTime>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    wall: Timestamp,
    /// How many sleepers wait for each point.
    sleepers: BTreeMap<MonoTime, usize>,
}

impl ManualClock {
    /// A clock that stands at this wall time, and at the origin of its monotonic time.
    #[must_use]
    pub fn new(wall: Timestamp) -> Self {
        let state = State { wall, sleepers: BTreeMap::new() };
        Self {
            mono: Arc::new(watch::Sender::new(MonoTime::default())),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Moves wall and monotonic time on, and wakes whoever waited for that.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        let step = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        state.wall = state.wall.saturating_add(step).unwrap_or(Timestamp::MAX);
        drop(state);
        self.mono.send_modify(|now| *now = *now + by);
    }

    /// Moves on to the earliest point that a sleeper waits for; says how far that was. `None`
    /// when nobody sleeps.
    pub fn advance_to_next(&self) -> Option<Duration> {
        let step = self.next_wake()?.since(self.mono());
        self.advance(step);
        Some(step)
    }

    /// Sets the wall time alone, forwards or backwards, as an administrator or NTP would.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().wall = wall;
    }

    /// The earliest point that a sleeper waits for.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonoTime> {
        self.lock().sleepers.keys().next().copied()
    }

    /// How many sleepers wait.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The state is whole after each statement, so a panic elsewhere leaves it usable.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        self.lock().wall
    }

    fn mono(&self) -> MonoTime {
        *self.mono.borrow()
    }

    fn sleep_until(&self, until: MonoTime) -> Sleep {
        let mut now = self.mono.subscribe();
        let sleeper = (self.mono() < until).then(|| Sleeper::register(&self.state, until));
        Box::pin(async move {
            let _registered = sleeper;
            if now.wait_for(|now| *now >= until).await.is_err() {
                // The clock is gone, so its time stands still for ever.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Counted among the sleepers for as long as it lives.
#[derive(Debug)]
struct Sleeper {
    state: Arc<Mutex<State>>,
    until: MonoTime,
}

impl Sleeper {
    fn register(state: &Arc<Mutex<State>>, until: MonoTime) -> Self {
        *lock(state).sleepers.entry(until).or_insert(0) += 1;
        Self { state: Arc::clone(state), until }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(count) = state.sleepers.get_mut(&self.until) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.sleepers.remove(&self.until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn clock() -> ManualClock {
        ManualClock::new("2026-11-30T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn a_sleeper_wakes_exactly_when_its_point_is_reached() {
        let clock = clock();
        let mut sleep = clock.sleep(Duration::from_secs(10));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(9_999));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!((&mut sleep).now_or_never().is_some());
        assert_eq!(clock.wall().to_string(), "2026-11-30T12:00:10Z");
    }

    #[test]
    fn sleepers_are_counted_from_their_making_to_their_end() {
        let clock = clock();
        let early = clock.sleep(Duration::from_secs(1));
        let mut late = clock.sleep(Duration::from_secs(5));
        assert_eq!(clock.sleepers(), 2);
        drop(early);
        assert_eq!(clock.advance_to_next(), Some(Duration::from_secs(5)));
        assert!((&mut late).now_or_never().is_some());
        drop(late);
        assert_eq!((clock.sleepers(), clock.next_wake()), (0, None));
        assert_eq!(clock.advance_to_next(), None);
    }

    #[test]
    fn a_point_in_the_past_does_not_wait() {
        let clock = clock();
        clock.advance(Duration::from_secs(3));
        assert!(clock.sleep_until(MonoTime::default()).now_or_never().is_some());
    }

    #[test]
    fn wall_time_may_jump_while_monotonic_time_stands() {
        let clock = clock();
        clock.set_wall("2020-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(clock.mono(), MonoTime::default());
        assert_eq!(clock.wall().to_string(), "2020-01-01T00:00:00Z");
    }
}
