//! The commit: creating the manifest.
//!
//! **Invariants.** Only a [`Receipt`] is committed. Create-only: a manifest of another writer under
//! the same number is a conflict, never a replace (I4).
//!
//! **Crash.** The manifest is there whole or not at all. Stopped before it: the payload is found and
//! adopted by the next attempt. Stopped after it: the next start reads it.

use std::sync::Arc;

use jiff::Timestamp;

use super::manifest::{FORMAT, Manifest, set_hash};
use super::put::{Inspected, Receipt, conflict};
use super::{Archive, Fault, layout, to_json};
use crate::fault::FaultKind;
use crate::segment::Incarnation;

/// A segment whose manifest is in the store. Made by a commit, or by reading a manifest.
#[derive(Debug, Clone)]
pub struct Committed {
    manifest: Arc<Manifest>,
}

impl Committed {
    /// What was read from the store is committed.
    #[must_use]
    pub const fn from_store(manifest: Arc<Manifest>) -> Self {
        Self { manifest }
    }

    /// The manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
}

/// What only the committing process knows of a segment.
#[derive(Debug, Clone)]
pub struct CommitContext {
    /// The server's UUID, when it has one.
    pub server_uuid: Option<String>,
    /// Now.
    pub now: Timestamp,
}

impl Archive {
    /// Creates the manifest of a proven payload.
    ///
    /// # Errors
    /// `Conflict` when the number is committed with other bytes, and whatever the store answers.
    pub async fn commit(
        &self,
        incarnation: &Incarnation,
        segment: &Inspected,
        receipt: Receipt,
        context: CommitContext,
    ) -> Result<Committed, Fault> {
        let manifest = self.describe(incarnation, segment, receipt, context);
        let key = layout::manifest(self.source(), incarnation, manifest.number);
        let (bytes, digest) = to_json(&manifest, &key)?;
        match self.create_object(&key, bytes, &digest).await {
            Ok(_) => Ok(Committed { manifest: Arc::new(manifest) }),
            Err(fault) if fault.kind == FaultKind::AlreadyExists => {
                // An earlier commit of ours whose answer was lost, or another writer's.
                match self.manifest(incarnation, manifest.number).await? {
                    Some(found) if found.digest == manifest.digest => {
                        Ok(Committed { manifest: Arc::new(found) })
                    }
                    Some(found) => Err(conflict(&found, &key)),
                    None => Err(fault),
                }
            }
            Err(fault) => Err(fault),
        }
    }

    fn describe(
        &self,
        incarnation: &Incarnation,
        segment: &Inspected,
        receipt: Receipt,
        context: CommitContext,
    ) -> Manifest {
        let (closed, facts) = (segment.closed(), segment.facts());
        let coverage = &facts.coverage;
        let seconds = |at: Option<u32>| at.and_then(|at| Timestamp::from_second(at.into()).ok());
        let micros =
            |at: u64| i64::try_from(at).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
        let readable = coverage.readable;
        let after = coverage.previous.as_ref().zip(coverage.added.as_ref());
        let after = after.and_then(|(previous, added)| previous.after(added));
        Manifest {
            format: FORMAT,
            source: self.source().clone(),
            incarnation: incarnation.clone(),
            writer_id: self.writer_id().to_owned(),
            segment: closed.name().clone(),
            number: closed.name().number(),
            listed_after: closed.listed_after().cloned(),
            size: facts.size,
            digest: facts.digest,
            digest_body: facts.digest_body,
            head: facts.head,
            key_id: facts.key_id.clone(),
            payload: receipt.payload,
            flavor: facts.flavor,
            server_version: facts.server_version.clone(),
            server_uuid: context.server_uuid,
            checksum: facts.checksum,
            previous_hash: coverage.previous.as_ref().map(set_hash),
            after_hash: after.as_ref().map(set_hash),
            previous: coverage.previous.clone(),
            added: coverage.added.clone(),
            readable,
            transactions: facts.transactions,
            anonymous_transactions: readable.then_some(coverage.anonymous_transactions),
            events: readable.then_some(facts.events),
            incidents: readable.then_some(facts.incidents),
            first_event_at: seconds(facts.first_event_at),
            last_event_at: seconds(facts.last_event_at),
            last_commit_at: facts.last_commit_at.and_then(micros),
            created_at_startup: facts.created_at_startup,
            in_use: facts.in_use,
            ending: facts.ending,
            next_segment: facts.next_segment.clone(),
            sealed: closed.sealed(),
            archived_at: context.now,
            archiver_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
