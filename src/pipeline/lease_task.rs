//! The task that keeps the writer lease.
//!
//! **Cancellation.** It is ended by its token, and then releases the lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::RunError;
use crate::archive::{Lease, LeaseError};
use crate::clock::Clock;

/// How often the lease is written again.
const LEASE_RENEWAL: Duration = Duration::from_secs(60);

/// How soon the lease is tried again when that failed.
const LEASE_RETRY: Duration = Duration::from_secs(10);

/// A running task.
#[derive(Debug)]
pub(super) struct LeaseTask {
    stop: CancellationToken,
    tasks: JoinSet<Result<(), RunError>>,
}

impl LeaseTask {
    /// Begins to renew the lease.
    pub(super) fn start(lease: Lease, clock: Arc<dyn Clock>) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(keep(lease, clock, stop.clone()));
        Self { stop, tasks }
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&mut self) -> RunError {
        match self.tasks.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => super::broken(&error),
            Some(Ok(Ok(()))) | None => RunError::Source("the lease task ended early".to_owned()),
        }
    }

    /// Releases the lease, or gives up after `patience`.
    pub(super) async fn release(&mut self, clock: &dyn Clock, patience: Duration) {
        self.stop.cancel();
        tokio::select! {
            ended = self.tasks.join_next() => {
                if let Some(Ok(Err(error))) = ended {
                    tracing::warn!(%error, "the lease was not released; it goes stale by itself");
                }
            }
            () = clock.sleep(patience) => {
                tracing::warn!("the lease was not released in time; it goes stale by itself");
            }
        }
    }
}

/// Renews the lease until it is lost or `stop` is cancelled, then releases it.
async fn keep(
    mut lease: Lease,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let mut wait = LEASE_RENEWAL;
    loop {
        tokio::select! {
            () = stop.cancelled() => return lease.release().await.map_err(RunError::from),
            () = clock.sleep(wait) => {}
        }
        wait = match lease.renew().await {
            Ok(()) => LEASE_RENEWAL,
            Err(error @ LeaseError::Held { .. }) => return Err(error.into()),
            Err(LeaseError::Fault(fault)) => {
                // The lease only detects; manifests are create-only with or without it.
                tracing::warn!(%fault, "the lease could not be renewed; trying again");
                LEASE_RETRY
            }
        };
    }
}
