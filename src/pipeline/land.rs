//! What becomes of a try: the segment is committed, waits, or is tried again; and the cursor.
//!
//! **Crash.** A commit whose cursor is not written yet is found by the next start.

use std::sync::Arc;

use super::tracker::{Key, Now};
use super::worker::Outcome;
use super::{CLOSING_WAIT, Mode, Pipeline, RunError, broken, snapshot};
use crate::archive::Committed;
use crate::failure::{Class, Classified, Scope, classify};
use crate::fault::FaultKind;
use crate::progress::Chain;
use crate::sys::StateWriteError;

impl Pipeline {
    pub(super) async fn landed(&mut self, key: Key, outcome: Outcome) -> Result<(), RunError> {
        let now = Now { mono: self.clock.mono(), wall: self.clock.wall() };
        match outcome {
            Outcome::Committed(committed) => self.commit(key, committed).await?,
            Outcome::Closing => self.tracker.closing(&key, now, CLOSING_WAIT),
            Outcome::Active => {
                self.tracker.done(&key);
                self.not_final =
                    self.jobs.remove(&key).and_then(|job| job.listed.signature().copied());
            }
            Outcome::Stopped => {}
            Outcome::Failed(fault, inspected) => {
                let (incarnation, segment) =
                    (&key.incarnation, self.jobs.get(&key).map(|job| job.listed.name.clone()));
                let segment = segment.map(|name| name.to_string()).unwrap_or_default();
                if let Some(job) = self.jobs.get_mut(&key) {
                    job.inspected = inspected;
                }
                let classified = classify(&fault);
                let (class, cause) = (classified.class, classified.cause);
                tracing::warn!(%incarnation, %segment, %class, %cause, %fault, "archiving a segment failed");
                self.conflict |= fault.kind == FaultKind::Conflict;
                let once = self.settings.mode != Mode::Daemon;
                if once && no_try_mends(&classified) {
                    self.tracker.give_up(&key, *fault);
                } else {
                    self.tracker.failed(&key, *fault, now, fastrand::f64());
                }
            }
        }
        Ok(())
    }

    pub(super) async fn commit(&mut self, key: Key, committed: Committed) -> Result<(), RunError> {
        let manifest = committed.manifest();
        tracing::info!(
            incarnation = %key.incarnation,
            segment = %manifest.segment,
            size = manifest.size,
            stored = manifest.payload.size,
            proof = ?manifest.payload.proof,
            "archived"
        );
        self.archived += 1;
        // Commits come in any order; the floor is the newest incarnation's.
        if self.chains.keys().next_back() == Some(&key.incarnation) {
            self.floor =
                Some(self.floor.map_or(manifest.number, |floor| floor.min(manifest.number)));
        }
        if let Some(chain) = self.chains.get_mut(&key.incarnation) {
            chain.insert(Arc::clone(manifest));
        }
        self.tracker.done(&key);
        self.jobs.remove(&key);
        self.committed.insert(key);
        self.save_cursor().await
    }

    /// Moves the cursor to the frontiers and writes it. A full disk is waited for: until the file is
    /// written, nothing new is claimed (I8).
    pub(super) async fn save_cursor(&mut self) -> Result<(), RunError> {
        let mut changed = self.durable.is_none();
        for frontier in self.chains.values().filter_map(Chain::frontier) {
            changed |= self.cursor.advance(&frontier);
        }
        changed |= self.durable.as_ref() != Some(&self.cursor);
        if !changed && self.state_trouble.is_none() {
            return Ok(());
        }
        let (state, cursor) = (Arc::clone(&self.state), self.cursor.clone());
        let saved = tokio::task::spawn_blocking(move || cursor.save(&state).map(|()| cursor));
        match saved.await.map_err(|error| broken(&error))? {
            Ok(durable) => {
                self.durable = Some(durable);
                self.state_trouble = None;
                Ok(())
            }
            Err(error @ StateWriteError::Full { .. }) => {
                tracing::error!(%error, "the cursor cannot be written; archiving goes on");
                let since =
                    self.state_trouble.as_ref().map_or_else(|| self.clock.wall(), |t| t.since);
                self.state_trouble = Some(snapshot::Trouble {
                    what: "state".to_owned(),
                    since,
                    message: error.to_string(),
                });
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether trying again in this run is of no use. What this host lacks may come back while it runs.
const fn no_try_mends(fault: &Classified) -> bool {
    match (fault.class, fault.scope) {
        (Class::Transient, _) | (Class::Permanent, Scope::Host) => false,
        (
            Class::Permanent,
            Scope::Segment | Scope::Source | Scope::Destination | Scope::NeedsCanary,
        ) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, Operation};

    #[test]
    fn a_run_that_ends_gives_up_at_once_what_no_try_mends() {
        let gives_up = |operation, kind, code: Option<&str>, io: Option<&str>| {
            let mut fault = Fault::new(operation, kind, "no");
            (fault.code, fault.io) = (code.map(str::to_owned), io.map(str::to_owned));
            no_try_mends(&classify(&fault))
        };
        let (put, read) = (Operation::Put, Operation::ReadSource);
        assert!(gives_up(read, FaultKind::SourceDamaged, None, None));
        assert!(gives_up(read, FaultKind::SourceRefused, Some("encrypted"), None));
        assert!(gives_up(put, FaultKind::Conflict, None, None));
        assert!(gives_up(put, FaultKind::Answered, Some("AccessDenied"), None));
        assert!(gives_up(put, FaultKind::Answered, Some("Mystery"), None));
        assert!(gives_up(put, FaultKind::Tls, None, None));
        assert!(!gives_up(put, FaultKind::Answered, Some("SlowDown"), None));
        assert!(!gives_up(put, FaultKind::Answered, Some("BadDigest"), None));
        assert!(!gives_up(put, FaultKind::Transport, None, None));
        assert!(!gives_up(read, FaultKind::SourceChanged, None, None));
        assert!(!gives_up(read, FaultKind::LocalIo, None, Some("PermissionDenied")));
    }
}
