//! One try at one segment: inspect, seal, put, prove, commit.
//!
//! **Crash.** As [`crate::archive`]: a payload without a manifest at worst.
//!
//! **Cancellation.** A try that is cancelled while it uploads leaves what a crash leaves. The commit
//! itself is not cancelled: it is one small request.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::tracker::Key;
use crate::archive::{Archive, CommitContext, Committed, Inspected, Put};
use crate::binlog::{self, Inspection};
use crate::clock::Clock;
use crate::fault::{Fault, FaultKind, Operation};
use crate::source::{
    self, EncryptedPolicy, FileSignature, Listed, OpenState, Patience, Scan, SealDamage, SealFacts,
    SealVerdict, who_has_open,
};

/// How long a segment that the server has not marked as closed may stay so before it is archived as
/// it stands. MariaDB clears the mark milliseconds after the rotation, later while XA transactions
/// are pending.
pub(super) const CLOSING_MAX: Duration = Duration::from_secs(30);

/// Bytes a read, and so between two looks at the stop signal.
const READ: usize = 256 << 10;

/// One try.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) key: Key,
    pub(super) listed: Listed,
    /// The look that listed it last.
    pub(super) scan: Arc<Scan>,
    /// What an earlier try found out, if the file is still the same.
    pub(super) inspected: Option<Inspected>,
    /// The server's UUID, when it has one.
    pub(super) server_uuid: Option<String>,
    /// How long the segment has been waited for.
    pub(super) waited: Duration,
    /// Whether the last file of a dead server is taken too.
    pub(super) last_is_final: bool,
}

/// What came of a try.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The manifest is there.
    Committed(Committed),
    /// Not final yet: look again soon.
    Closing,
    /// The server still writes it.
    Active,
    /// It failed; what was found out before it did.
    Failed(Box<Fault>, Option<Inspected>),
    /// The daemon stops.
    Stopped,
}

/// What all tries share.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) archive: Arc<Archive>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) encrypted: EncryptedPolicy,
    pub(super) stop: CancellationToken,
}

impl Bench {
    pub(super) async fn attempt(&self, attempt: Attempt) -> Outcome {
        let mut found = attempt.inspected.clone();
        match self.try_once(&attempt, &mut found).await {
            Ok(outcome) => outcome,
            Err(fault) => {
                if matches!(fault.kind, FaultKind::SourceChanged) || is_digest_refusal(&fault) {
                    // The bytes may not be those inspected: look again from the start.
                    found = None;
                }
                Outcome::Failed(Box::new(fault), found)
            }
        }
    }

    async fn try_once(
        &self,
        attempt: &Attempt,
        found: &mut Option<Inspected>,
    ) -> Result<Outcome, Fault> {
        let listed = &attempt.listed;
        let inspected = match found {
            Some(inspected) => inspected.clone(),
            None => {
                if self.still_closing(attempt)? {
                    return Ok(Outcome::Closing);
                }
                let Some((facts, file)) = self.inspect(&listed.path).await? else {
                    return Ok(Outcome::Stopped);
                };
                if listed.peek().is_none_or(|peek| peek.head != facts.head) {
                    let message = "another file has taken this segment's name";
                    return Err(source_fault(FaultKind::SourceGone, listed, message));
                }
                let closed = match self.seal(attempt, &facts, file)? {
                    SealVerdict::Closed(closed) => closed,
                    SealVerdict::Closing(_) => return Ok(Outcome::Closing),
                    SealVerdict::Active => return Ok(Outcome::Active),
                    SealVerdict::Damaged(damage) => {
                        // Code and offset are facts of their own, beside the message.
                        let message = match &damage {
                            SealDamage::Bytes(damage) => damage.message.clone(),
                            SealDamage::NoEnd { .. }
                            | SealDamage::NotOfRestart { .. }
                            | SealDamage::SuccessorUnknown { .. } => damage.to_string(),
                        };
                        let mut fault = source_fault(FaultKind::SourceDamaged, listed, &message);
                        if let Some(error) = &facts.error {
                            fault.code = Some(error.code.to_string());
                            fault.offset = Some(error.offset);
                        }
                        return Err(fault);
                    }
                    SealVerdict::Refused(refusal) => {
                        let message = refusal.to_string();
                        let mut fault = source_fault(FaultKind::SourceRefused, listed, &message);
                        fault.code = Some(refusal.code().to_owned());
                        return Err(fault);
                    }
                };
                found.insert(Inspected::new(closed, Arc::new(facts))).clone()
            }
        };
        let put = tokio::select! {
            () = self.stop.cancelled() => return Ok(Outcome::Stopped),
            put = self.archive.put(&attempt.key.incarnation, &inspected) => put?,
        };
        let committed = match put {
            Put::AlreadyCommitted(manifest) => Committed::from_store(manifest),
            Put::Proven(receipt) => {
                let context = CommitContext {
                    server_uuid: attempt.server_uuid.clone(),
                    now: self.clock.wall(),
                };
                self.archive.commit(&attempt.key.incarnation, &inspected, *receipt, context).await?
            }
        };
        Ok(Outcome::Committed(committed))
    }

    /// A cheap look before a whole read: is the in-use mark still set on a segment whose successor
    /// was opened by a rotation? Then the server is about to clear it.
    fn still_closing(&self, attempt: &Attempt) -> Result<bool, Fault> {
        let listed = &attempt.listed;
        let rotated = attempt.scan.successor_at_startup(listed) == Some(false);
        if !rotated || attempt.waited >= CLOSING_MAX {
            return Ok(false);
        }
        let mut flags = [0; 1];
        let read = File::open(&listed.path).and_then(|file| file.read_at(&mut flags, 21));
        match read {
            Ok(count) => {
                let plain = listed.peek().is_some_and(|peek| peek.kind == binlog::Kind::Plain);
                Ok(plain && count == 1 && flags[0] & 1 == 1)
            }
            Err(error) => Err(Fault::local(Operation::ReadSource, &listed.path, &error)),
        }
    }

    /// Reads a file whole. `None` when the daemon stops meanwhile.
    async fn inspect(&self, path: &Path) -> Result<Option<(Inspection, FileSignature)>, Fault> {
        let (owned, stop) = (path.to_owned(), self.stop.clone());
        let read = tokio::task::spawn_blocking(move || {
            let file = File::open(&owned)?;
            let signature = FileSignature::of(&file.metadata()?);
            // The server's own reads decide what stays in the page cache, not ours.
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::NoReuse).ok();
            Ok((binlog::inspect(Stoppable { inner: file, stop })?, signature))
        });
        match read.await {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err(_)) if self.stop.is_cancelled() => Ok(None),
            Ok(Err(error)) => Err(Fault::local(Operation::ReadSource, path, &error)),
            Err(error) => {
                Err(Fault::new(Operation::ReadSource, FaultKind::Other, error.to_string()))
            }
        }
    }

    fn seal(
        &self,
        attempt: &Attempt,
        facts: &Inspection,
        file: FileSignature,
    ) -> Result<SealVerdict<source::Closed>, Fault> {
        let (listed, facts) = (&attempt.listed, SealFacts::from(facts));
        let inspected = source::Inspected { facts: &facts, file };
        if !(attempt.last_is_final && listed.is_last()) {
            let patience = Patience { waited: attempt.waited, limit: CLOSING_MAX };
            return Ok(source::seal(&attempt.scan, listed, inspected, self.encrypted, patience));
        }
        let message = match who_has_open(&listed.path) {
            Ok(OpenState::No(proof)) => {
                return Ok(source::seal_last_of_dead_server(
                    listed,
                    inspected,
                    self.encrypted,
                    &proof,
                ));
            }
            Ok(OpenState::Yes { pid, comm }) => format!(
                "process {pid} ({comm}) has it open: it is not a dead server's; stop the server, or leave --final out"
            ),
            Ok(OpenState::Unknown { why }) => format!(
                "whether a process has it open cannot be seen ({why}); run as root, or leave --final out"
            ),
            Err(error) => return Err(Fault::local(Operation::ReadSource, &listed.path, &error)),
        };
        let mut fault = source_fault(FaultKind::SourceRefused, listed, &message);
        fault.code = Some("still-open".to_owned());
        Err(fault)
    }
}

fn source_fault(kind: FaultKind, listed: &Listed, message: &str) -> Fault {
    Fault::new(Operation::ReadSource, kind, message).at(listed.path.display().to_string())
}

/// The store found that the bytes do not have the digest that was sent with them.
fn is_digest_refusal(fault: &Fault) -> bool {
    fault.code.as_deref().is_some_and(|code| code == "BadDigest" || code.contains("Mismatch"))
}

/// A file whose reading ends when the daemon stops.
struct Stoppable {
    inner: File,
    stop: CancellationToken,
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_cancelled() {
            return Err(io::Error::other("the daemon stops"));
        }
        let most = buffer.len().min(READ);
        self.inner.read(buffer.get_mut(..most).unwrap_or_default())
    }
}
