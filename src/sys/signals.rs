//! Signals that ask the process to stop, turned into a cancellation.
//!
//! **Invariants.** A signal only ever cancels a token; each part then ends its work in its own
//! order. From [`Signals::listen`] on, neither signal kills the process.
//!
//! **Cancellation.** [`Signals::next`] loses no signal when dropped: it is kept until read.

use std::fmt;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A signal that asks for a clean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// From the service manager.
    Term,
    /// From the keyboard.
    Int,
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
        })
    }
}

/// SIGTERM and SIGINT of this process.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Begins to listen. Needs a running runtime.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// The next signal.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.term.recv() => StopSignal::Term,
            _ = self.int.recv() => StopSignal::Int,
        }
    }

    /// Cancels the token at the first signal, and returns it; ends with `None` when the token was
    /// cancelled by someone else.
    pub async fn cancel(&mut self, token: &CancellationToken) -> Option<StopSignal> {
        tokio::select! {
            () = token.cancelled() => None,
            signal = self.next() => {
                tracing::info!(%signal, "stopping");
                token.cancel();
                Some(signal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    }

    // One test for both: signals belong to the whole process, so two tests would race.
    #[tokio::test]
    async fn a_signal_cancels_and_is_named() {
        let mut signals = Signals::listen().unwrap();
        let token = CancellationToken::new();
        raise(rustix::process::Signal::TERM);
        assert_eq!(signals.cancel(&token).await, Some(StopSignal::Term));
        assert!(token.is_cancelled());
        assert_eq!(signals.cancel(&token).await, None);
        raise(rustix::process::Signal::INT);
        assert_eq!(signals.next().await, StopSignal::Int);
    }
}
