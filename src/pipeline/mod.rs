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
mod land;
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

use crate::archive::{BLOCK, Inspected};
use crate::clock::{Clock, MonoTime};
use crate::failure::{Classified, classify};
use crate::fault::Fault;
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentName, SegmentNumber};
use crate::source::{FileSignature, Listed, Scan, Watch};
use crate::store::Capabilities;
use crate::sys::StateDir;

pub(crate) use attach::chain;
pub(crate) use view::{beyond, cursor};

pub use settings::{Ask, Connect, End, Mode, Outside, RunError, Settings, Start};

use lease_task::LeaseTask;
use scout::{Look, Obstacle, Scout};
use snapshot::Snapshot;
use tracker::{Key, Tracker};
use worker::{Attempt, Bench, Outcome};

/// The loop turns at least this often, so that whoever watches it sees it alive.
const TICK: Duration = Duration::from_secs(5);

/// The shortest time between two snapshots.
const SHOW_PAUSE: Duration = Duration::from_millis(200);

/// A look at the directory and the archive that takes longer is stuck: the process no longer counts
/// as alive. Each request in it has a limit of its own, far below.
const LOOK_MAX: Duration = Duration::from_secs(1_800);

/// How often multipart uploads that were left behind are aborted, besides at each start.
const SWEEP_PAUSE: Duration = Duration::from_secs(86_400);

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
    /// Listed and not to be read.
    unreadable: Vec<(SegmentName, String)>,
    /// The lowest listed segment beyond all that is committed.
    edge: Option<Listed>,
    server_uuid: Option<String>,
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
    /// When uploads that were left behind were last aborted.
    swept: MonoTime,
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
) -> Result<(Arc<Snapshot>, End), RunError> {
    let Outside { publish, mut asks, stop } = outside;
    let durable = CursorFile::load(state.root(), &settings.source)?;
    state.remove_temp_files(state.root())?;
    let (server_uuid, swept) = (settings.server_uuid.clone(), clock.mono());
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
        unreadable: Vec::new(),
        edge: None,
        server_uuid,
        committed: HashSet::new(),
        conflict: false,
        obstacles: BTreeMap::new(),
        state_trouble: None,
        workers: JoinSet::new(),
        maintenance: JoinSet::new(),
        catalogued: BTreeMap::new(),
        looks: 0,
        swept,
        shown: None,
    };
    let ended = pipeline.work(scout, &mut asks).await;
    pipeline.wind_down().await;
    let last = pipeline.show();
    ended.map(|end| (last, end))
}

impl Pipeline {
    async fn work(
        &mut self,
        scout: Scout,
        asks: &mut mpsc::Receiver<Ask>,
    ) -> Result<End, RunError> {
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
                return Ok(End::Done);
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
                () = self.stop.cancelled() => return Ok(End::Stopped),
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
                server_uuid: self.server_uuid.clone(),
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
        let now = self.clock.mono();
        if now.since(self.swept) >= SWEEP_PAUSE {
            self.swept = now;
            let archive = Arc::clone(&connected.bench.archive);
            self.maintenance.spawn(async move { archive.abort_stale_uploads().await.map(|_| 0) });
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

fn broken(error: &tokio::task::JoinError) -> RunError {
    RunError::Source(format!("a task of the daemon ended in a way it never should: {error}"))
}
