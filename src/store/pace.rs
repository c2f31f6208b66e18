//! The limit on what all uploads of a store send together, and this module's only look at the
//! host's clocks.
//!
//! **Invariants.** Over any long time no more than the rate is sent; uploads take turns in the
//! order in which they ask.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Largest piece that is read, or sent under a limit, at once.
pub(super) const CHUNK: usize = 1 << 20;

/// The host's time of day: ages of local files, retention dates, and the distance to a store's
/// clock. Nothing is decided or ordered by it.
#[expect(clippy::disallowed_methods, reason = "compared with times of files and answers only")]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

#[expect(clippy::disallowed_methods, reason = "the rate of real sockets, no decision")]
fn mono() -> Instant {
    Instant::now()
}

/// Waits in a thread of the blocking pool.
#[expect(clippy::disallowed_methods, reason = "called on blocking threads only")]
pub(super) fn wait_blocking(turn: Duration) {
    std::thread::sleep(turn);
}

/// Waits in a task.
#[expect(clippy::disallowed_methods, reason = "the rate of real sockets, no decision")]
pub(super) fn wait(turn: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(turn)
}

/// Turns of a shared bandwidth.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    free_at: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), free_at: Mutex::new(mono()) }
    }

    /// Takes a turn for this many bytes; returns how long to wait for it.
    pub(super) fn reserve(&self, bytes: usize) -> Duration {
        let now = mono();
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*free_at).max(now);
        *free_at = begin + takes;
        begin - now
    }

    /// A piece takes about a quarter of a second, so that no turn is long.
    pub(super) fn chunk(&self) -> usize {
        usize::try_from(self.bytes_per_second / 4).unwrap_or(CHUNK).clamp(16 << 10, CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_add_up_to_the_rate() {
        let pace = Pace::new(1 << 20);
        let waits: Vec<_> = (0..5).map(|_| pace.reserve(1 << 20)).collect();
        assert!(waits[0] < Duration::from_millis(50));
        assert!(waits[4] > Duration::from_millis(3_900) && waits[4] <= Duration::from_secs(4));
        assert_eq!(pace.chunk(), 256 << 10);
        assert_eq!(Pace::new(1).chunk(), 16 << 10);
        assert_eq!(Pace::new(u64::MAX).chunk(), CHUNK);
    }
}
