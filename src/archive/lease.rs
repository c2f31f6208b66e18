//! The writer lease of a source: it detects a second writer (I11). Safety is create-only manifests.
//!
//! **Crash.** A lease that was not released stays; the same writer takes it again at once, another
//! one waits until it is stale or is told to take over.
//!
//! **Cancellation.** A dropped renewal leaves the old or the new lease, both ours.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::manifest::FORMAT;
use super::{layout, read_json, to_json};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::SourceName;
use crate::store::{self, Capabilities, PutMode, Store};

/// A lease is fresh for this long after it was written.
const FRESH: Duration = Duration::from_secs(300);

/// Tries to write it before another's writing at the same time counts as a fault.
const TRIES: u32 = 5;

/// The lease as it is in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    format: u32,
    writer_id: String,
    /// The writer's host name, for humans.
    pub host: String,
    epoch: u64,
    started_at: Timestamp,
    /// Set at a clean stop.
    pub released: bool,
}

/// Whether a fresh lease of another writer may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// Only one that is stale or released.
    WhenStale,
    /// Any: the operator says that the other writer is gone.
    Now,
}

/// Why the lease is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another writer holds it.
    #[error(
        "another writer on host {host} holds the lease of source {source_name} (written {age_seconds} s ago); \
         stop it, or use --take-over when it is gone for good"
    )]
    Held {
        /// The source.
        source_name: SourceName,
        /// The other writer's host.
        host: String,
        /// Seconds since it was last renewed.
        age_seconds: u64,
    },
    /// The store cannot be read or written.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A lease that is ours as far as we know.
#[derive(Debug)]
pub struct Lease {
    store: Arc<dyn Store>,
    source: SourceName,
    conditional: bool,
    state: LeaseState,
    etag: Option<String>,
}

impl Lease {
    /// Takes the lease.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when another writer's is fresh.
    pub async fn acquire(
        store: Arc<dyn Store>,
        source: SourceName,
        capabilities: &Capabilities,
        (writer_id, host): (&str, &str),
        take_over: TakeOver,
        now: Timestamp,
    ) -> Result<Self, LeaseError> {
        let state = LeaseState {
            format: FORMAT,
            writer_id: writer_id.to_owned(),
            host: host.to_owned(),
            epoch: 1,
            started_at: now,
            released: false,
        };
        let conditional = capabilities.create_only_put && capabilities.conditional_replace;
        let mut lease = Self { store, source, conditional, state, etag: None };
        for _ in 0..TRIES {
            match lease.read().await? {
                None => {}
                Some((found, meta)) => {
                    lease.state.epoch = found.epoch;
                    if found.writer_id != writer_id {
                        let age = meta.age.unwrap_or_default();
                        if !found.released && age < FRESH && take_over == TakeOver::WhenStale {
                            return Err(lease.held(found, age));
                        }
                        lease.state.epoch = found.epoch.saturating_add(1);
                    }
                    lease.etag = meta.etag;
                }
            }
            match lease.write().await {
                Ok(()) => return Ok(lease),
                // Somebody wrote between our read and our write: look again.
                Err(fault) if lost_race(&fault) => lease.etag = None,
                Err(fault) => return Err(fault.into()),
            }
        }
        let message = "another process keeps writing the lease at the same time";
        let key = layout::lease(&lease.source);
        Err(Fault::new(Operation::Lease, FaultKind::LeaseLost, message).at(key).into())
    }

    /// Writes the lease again.
    ///
    /// # Errors
    /// [`LeaseError::Held`] when another writer has taken it: stop committing.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        if !self.conditional {
            self.still_ours().await?;
        }
        match self.write().await {
            Ok(()) => Ok(()),
            Err(fault) if lost_race(&fault) => {
                // Another writer's, or our own earlier write whose answer was lost.
                self.still_ours().await?;
                Ok(self.write().await?)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Reads the lease; its ETag is the one that the next write replaces. A clone of this host's
    /// disk has our `writer_id`, but started at another time.
    async fn still_ours(&mut self) -> Result<(), LeaseError> {
        match self.read().await? {
            Some((found, meta))
                if found.started_at != self.state.started_at
                    || found.writer_id != self.state.writer_id =>
            {
                Err(self.held(found, meta.age.unwrap_or_default()))
            }
            found => {
                self.etag = found.and_then(|(_, meta)| meta.etag);
                Ok(())
            }
        }
    }

    /// Marks the lease as released, so that another host need not wait.
    ///
    /// # Errors
    /// When the store cannot be written; the lease then becomes stale by itself.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        self.state.released = true;
        self.renew().await
    }

    /// Reads a source's lease without taking it: its state and its age.
    ///
    /// # Errors
    /// When the store cannot be read, or the lease does not decode.
    pub async fn look(
        store: &dyn Store,
        source: &SourceName,
    ) -> Result<Option<(LeaseState, bool)>, Fault> {
        let found: Option<(LeaseState, store::ObjectMeta)> =
            read_json(store, &layout::lease(source)).await?;
        Ok(found.map(|(state, meta)| {
            let live = !state.released && meta.age.unwrap_or_default() < FRESH;
            (state, live)
        }))
    }

    async fn read(&self) -> Result<Option<(LeaseState, store::ObjectMeta)>, Fault> {
        read_json(self.store.as_ref(), &layout::lease(&self.source)).await
    }

    async fn write(&mut self) -> Result<(), Fault> {
        let key = layout::lease(&self.source);
        let (bytes, digest) = to_json(&self.state, &key)?;
        let mode = match (&self.etag, self.conditional) {
            (Some(etag), true) => PutMode::Update { etag },
            (None, true) => PutMode::Create,
            (_, false) => PutMode::Replace,
        };
        let stored = self.store.put(&key, bytes, &digest, mode).await?;
        self.etag = stored.etag;
        if !self.conditional {
            let found = self.read().await?;
            if found.is_none_or(|(found, _)| found.writer_id != self.state.writer_id) {
                let message = "another process wrote the lease at the same time";
                return Err(
                    Fault::new(Operation::Lease, FaultKind::PreconditionFailed, message).at(key)
                );
            }
        }
        Ok(())
    }

    fn held(&self, found: LeaseState, age: Duration) -> LeaseError {
        LeaseError::Held {
            source_name: self.source.clone(),
            host: found.host,
            age_seconds: age.as_secs(),
        }
    }
}

fn lost_race(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::AlreadyExists | FaultKind::PreconditionFailed | FaultKind::NotFound
    )
}

#[cfg(test)]
mod tests;
