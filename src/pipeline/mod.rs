//! The daemon's work: find closed segments, archive them in parallel, move the cursor in order.
//!
//! One loop owns all state and drives the pure [`tracker`]; workers and the scout are tasks that
//! report to it. Uploads run in parallel and commit in any order; the cursor moves only along
//! *follows*, and only after it is on disk is it shown.
//!
//! **Invariants.** I1, I2, I3, I11. Only [`crate::archive::Committed`] reaches a chain, only a
//! frontier moves the cursor.
//!
//! **Crash.** Stopped anywhere: uploads in flight are tried again, commits are read from the bucket,
//! the cursor is behind at worst.
//!
//! **Cancellation.** [`run`] ends by its token: uploads are cut off, a commit in flight is waited for
//! briefly, the lease is released.

mod attach;
mod incarnations;
mod lease_task;
mod on_disk;
mod scout;
mod settings;
pub mod snapshot;
mod take;
pub mod tracker;
mod view;
mod worker;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::archive::{BLOCK, Committed, Inspected};
use crate::clock::{Clock, MonoTime};
use crate::failure::{Class, Classified, Scope, classify};
use crate::fault::{Fault, FaultKind};
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentName, SegmentNumber};
use crate::source::{FileSignature, Listed, Scan, Watch};
use crate::store::Capabilities;
use crate::sys::{StateDir, StateWriteError};

pub(crate) use attach::chain;
pub(crate) use view::{beyond, cursor};

pub use settings::{Ask, Connect, Mode, Outside, RunError, Settings, Start};

use lease_task::LeaseTask;
use scout::{Look, Obstacle, Scout};
use snapshot::Snapshot;
use tracker::{Key, Now, Tracker};
use worker::{Attempt, Bench, Outcome};

/// The loop turns at least this often, so that whoever watches it sees it alive.
const TICK: Duration = Duration::from_secs(5);

/// The shortest time between two snapshots.
const SHOW_PAUSE: Duration = Duration::from_millis(200);

/// A look at the directory and the archive that takes longer is stuck: the process no longer counts
/// as alive. Each request in it has a limit of its own, far below.
const LOOK_MAX: Duration = Duration::from_secs(1_800);

/// How soon a closing segment is looked at again.
const CLOSING_WAIT: Duration = Duration::from_millis(500);

/// How long work in flight may take to end once the daemon was told to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What the loop holds of a segment that is not committed.
#[derive(Debug)]
struct Job {
    listed: Listed,
    scan: Arc<Scan>,
    inspected: Option<Inspected>,
}

/// The archive once it was reached, and what hangs on it.
#[derive(Debug)]
struct Connected {
    bench: Arc<Bench>,
    capabilities: Capabilities,
    lease: LeaseTask,
}

struct Pipeline {
    settings: Arc<Settings>,
    state: Arc<StateDir>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    publish: watch::Sender<Option<Arc<Snapshot>>>,
    tracker: Tracker,
    jobs: BTreeMap<Key, Job>,
    chains: BTreeMap<Incarnation, Chain>,
    cursor: CursorFile,
    /// The cursor as it is on disk; `None` before the source was confirmed.
    durable: Option<CursorFile>,
    connected: Option<Connected>,
    archived: u64,
    floor: Option<SegmentNumber>,
    active: Option<SegmentName>,
    /// The last listed file, read whole and found not to be final: not read again until it changes.
    not_final: Option<FileSignature>,
    keyless: Vec<SegmentName>,
    /// Committed since the scout last left: what it finds of them is old news.
    committed: HashSet<Key>,
    /// A commit met other bytes under its number since the scout last left.
    conflict: bool,
    obstacles: BTreeMap<Obstacle, snapshot::Trouble>,
    state_trouble: Option<snapshot::Trouble>,
    workers: JoinSet<(Key, Outcome)>,
    /// Writes blocks of the catalog; at most one at a time.
    maintenance: JoinSet<Result<u64, Fault>>,
    /// Of the newest incarnation: numbers below this are in the catalog, or nobody could tell.
    catalogued: BTreeMap<Incarnation, SegmentNumber>,
    looks: u64,
    /// When the last snapshot was published.
    shown: Option<MonoTime>,
}

/// Runs until the token is cancelled, or, with [`Mode::Once`], until nothing is left to do. Returns
/// the last snapshot.
///
/// # Errors
/// When another writer holds the lease, state cannot be read or written, or a first start cannot
/// reach its store.
pub async fn run(
    settings: Settings,
    state: StateDir,
    clock: Arc<dyn Clock>,
    connect: Connect,
    outside: Outside,
) -> Result<Arc<Snapshot>, RunError> {
    let Outside { publish, mut asks, stop } = outside;
    let durable = CursorFile::load(state.root(), &settings.source)?;
    state.remove_temp_files(state.root())?;
    let (settings, state) = (Arc::new(settings), Arc::new(state));
    let scout = Scout::new(
        Arc::clone(&settings),
        Arc::clone(&state),
        Arc::clone(&clock),
        connect,
        durable.clone(),
    );
    let mut pipeline = Pipeline {
        tracker: Tracker::new(settings.retry, settings.workers),
        cursor: durable.clone().unwrap_or_else(|| CursorFile::new(settings.source.clone())),
        durable,
        settings,
        state,
        clock,
        stop,
        publish,
        jobs: BTreeMap::new(),
        chains: BTreeMap::new(),
        connected: None,
        archived: 0,
        floor: None,
        active: None,
        not_final: None,
        keyless: Vec::new(),
        committed: HashSet::new(),
        conflict: false,
        obstacles: BTreeMap::new(),
        state_trouble: None,
        workers: JoinSet::new(),
        maintenance: JoinSet::new(),
        catalogued: BTreeMap::new(),
        looks: 0,
        shown: None,
    };
    let ended = pipeline.work(scout, &mut asks).await;
    pipeline.wind_down().await;
    let last = pipeline.show();
    ended.map(|()| last)
}

impl Pipeline {
    async fn work(&mut self, scout: Scout, asks: &mut mpsc::Receiver<Ask>) -> Result<(), RunError> {
        let mut watch = Watch::new(&scout.dir().watched_dirs(), self.settings.poll_interval);
        let mut home = Some(scout);
        let mut away: JoinSet<(Scout, Look)> = JoinSet::new();
        let mut look_now = true;
        let mut left = self.clock.mono();
        loop {
            if look_now && let Some(mut scout) = home.take() {
                look_now = false;
                // What was committed since it came back.
                for key in &self.committed {
                    scout.committed(key);
                }
                if std::mem::take(&mut self.conflict) {
                    scout.distrust();
                }
                left = self.clock.mono();
                away.spawn(scout.look());
            }
            self.dispatch();
            self.catalogue();
            // Whoever watches this process sees it alive by this alone. While much happens at once it
            // is shown now and then: what it costs grows with what is pending.
            let now = self.clock.mono();
            let alive = home.is_some() || now.since(left) < LOOK_MAX;
            let due = self.shown.is_none_or(|shown| now.since(shown) >= SHOW_PAUSE);
            if alive && due {
                self.show();
                self.shown = Some(now);
            }
            if self.is_done() && home.is_some() && !look_now {
                return Ok(());
            }
            let retry_look = home.as_ref().and_then(Scout::next_try);
            let wake = [self.tracker.next_deadline(), retry_look].into_iter().flatten().min();
            let soon = if due { TICK } else { SHOW_PAUSE };
            let wake = wake.unwrap_or(now + soon).min(now + soon);
            let lost = async {
                match self.connected.as_mut() {
                    Some(connected) => connected.lease.lost().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                Some(done) = self.workers.join_next() => match done {
                    Ok((key, outcome)) => self.landed(key, outcome).await?,
                    Err(error) => return Err(broken(&error)),
                },
                Some(back) = away.join_next() => {
                    let (mut scout, look) = back.map_err(|error| broken(&error))?;
                    // Committed while it was away: it may still have found them open.
                    let recent = std::mem::take(&mut self.committed);
                    for key in &recent {
                        scout.committed(key);
                    }
                    home = Some(scout);
                    self.take(look, &recent).await?;
                }
                _ = watch.changed(), if home.is_some() => look_now = true,
                Some(reply) = asks.recv() => {
                    // Whoever asked may have gone away meanwhile.
                    drop(reply.send(self.show()));
                }
                error = lost => return Err(error),
                Some(ended) = self.maintenance.join_next() => self.maintained(ended),
                () = self.clock.sleep_until(wake) => {
                    let due = retry_look.is_some_and(|at| at <= self.clock.mono());
                    look_now = look_now || due;
                }
            }
        }
    }

    /// Starts as many tries as there are workers and segments that may be tried.
    fn dispatch(&mut self) {
        let Some(connected) = &self.connected else { return };
        while let Some(key) = self.tracker.start(self.clock.mono()) {
            let Some(job) = self.jobs.get(&key) else {
                self.tracker.done(&key);
                continue;
            };
            let since = self
                .tracker
                .get(&key)
                .map_or(Duration::ZERO, |tracked| self.clock.mono().since(tracked.since_mono));
            let attempt = Attempt {
                key: key.clone(),
                listed: job.listed.clone(),
                scan: Arc::clone(&job.scan),
                inspected: job.inspected.clone(),
                waited: since,
                last_is_final: self.settings.mode == Mode::OnceFinal,
            };
            let bench = Arc::clone(&connected.bench);
            self.workers.spawn(async move {
                let outcome = bench.attempt(attempt).await;
                (key, outcome)
            });
        }
    }

    /// Has a block of the catalog written once the frontier has left it. What is not written now is
    /// written by a later start.
    fn catalogue(&mut self) {
        let Some(connected) = &self.connected else { return };
        if !self.maintenance.is_empty() {
            return;
        }
        for chain in self.chains.values() {
            let Some(frontier) = chain.frontier_manifest().map(|manifest| manifest.number) else {
                continue;
            };
            let incarnation = chain.incarnation().clone();
            let left = SegmentNumber(frontier.0 / BLOCK * BLOCK);
            let done = self.catalogued.get(&incarnation).copied().unwrap_or(SegmentNumber(0));
            if left > done {
                self.catalogued.insert(incarnation.clone(), left);
                let archive = Arc::clone(&connected.bench.archive);
                self.maintenance
                    .spawn(async move { archive.write_catalog(&incarnation, left).await });
                return;
            }
        }
    }

    fn maintained(&self, ended: Result<Result<u64, Fault>, tokio::task::JoinError>) {
        match ended {
            Ok(Ok(0)) => {}
            Ok(Ok(blocks)) => tracing::info!(blocks, "wrote the catalog"),
            Ok(Err(fault)) => {
                let Classified { class, cause, .. } = classify(&fault);
                tracing::warn!(%class, %cause, %fault, "the catalog was not written; a later start tries again");
            }
            Err(error) => {
                tracing::warn!(%error, "the catalog was not written; a later start tries again")
            }
        }
    }

    async fn landed(&mut self, key: Key, outcome: Outcome) -> Result<(), RunError> {
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

    async fn commit(&mut self, key: Key, committed: Committed) -> Result<(), RunError> {
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
    async fn save_cursor(&mut self) -> Result<(), RunError> {
        let mut changed = self.durable.is_none();
        for frontier in self.chains.values().filter_map(Chain::frontier) {
            changed |= self.cursor.advance(&frontier);
        }
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

    /// Whether a run that ends by itself has nothing left to do.
    fn is_done(&self) -> bool {
        let once = self.settings.mode != Mode::Daemon;
        once && self.looks > 0 && self.obstacles.is_empty() && self.tracker.idle()
    }

    /// Ends what is in flight: uploads were cut off by the token, commits are waited for.
    async fn wind_down(&mut self) {
        self.stop.cancel();
        let deadline = self.clock.mono() + STOP_PATIENCE;
        loop {
            tokio::select! {
                done = self.workers.join_next() => match done {
                    Some(Ok((key, Outcome::Committed(committed)))) => {
                        if let Err(error) = self.commit(key, committed).await {
                            tracing::error!(%error, "the last commit is not in the cursor; the next start finds it");
                        }
                    }
                    Some(Ok(_) | Err(_)) => {}
                    None => break,
                },
                () = self.clock.sleep_until(deadline) => {
                    self.workers.abort_all();
                    break;
                }
            }
        }
        self.maintenance.abort_all();
        if let Some(connected) = &mut self.connected {
            connected.lease.release(self.clock.as_ref(), STOP_PATIENCE).await;
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

fn broken(error: &tokio::task::JoinError) -> RunError {
    RunError::Source(format!("a task of the daemon ended in a way it never should: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Operation;

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
