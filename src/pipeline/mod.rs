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
mod scout;
pub mod snapshot;
pub mod tracker;
mod view;
mod worker;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::archive::{Committed, Inspected, Lease, LeaseError, PutOptions, TakeOver};
use crate::clock::Clock;
use crate::fault::{Fault, FaultKind};
use crate::progress::{Chain, CursorFile};
use crate::segment::{Incarnation, SegmentName, SegmentNumber, SourceName};
use crate::source::{EncryptedPolicy, Listed, Scan, SourcePaths, Watch};
use crate::store::{Capabilities, Store};
use crate::sys::{StateDir, StateLoadError, StateWriteError};

pub(crate) use attach::chain;
pub(crate) use view::{beyond, cursor};

use attach::Attached;
use scout::{Look, Obstacle, Scout};
use snapshot::Snapshot;
use tracker::{Key, Now, RetryPolicy, Tracker};
use worker::{Attempt, Bench, Outcome};

/// The loop turns at least this often, so that whoever watches it sees it alive.
const TICK: Duration = Duration::from_secs(5);

/// How soon a closing segment is looked at again.
const CLOSING_WAIT: Duration = Duration::from_millis(500);

/// How long work in flight may take to end once the daemon was told to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How often the lease is written again.
const LEASE_RENEWAL: Duration = Duration::from_secs(60);

/// How soon the lease is tried again when that failed.
const LEASE_RETRY: Duration = Duration::from_secs(10);

/// A source's first segment, on a source that has nothing in the archive yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The oldest one that the index lists.
    Oldest,
    /// The one that the server writes now.
    Now,
    /// This one, or the next after it that is there.
    Segment(SegmentName),
}

/// How long the pipeline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until it is told to stop.
    Daemon,
    /// Until all that is closed now is archived or given up.
    Once,
    /// The same, and a dead server's last file too.
    OnceFinal,
}

/// What the pipeline needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The source's name.
    pub source: SourceName,
    /// The server's UUID, when it has one.
    pub server_uuid: Option<String>,
    /// Where its binlogs are.
    pub paths: SourcePaths,
    /// Where a new source begins.
    pub start: Start,
    /// What is done with encrypted segments.
    pub encrypted: EncryptedPolicy,
    /// How payloads are put.
    pub put: PutOptions,
    /// Uploads at once.
    pub workers: usize,
    /// The longest time between two looks at the directory.
    pub poll_interval: Duration,
    /// How retries are spaced.
    pub retry: RetryPolicy,
    /// How long to run.
    pub mode: Mode,
    /// Whether another writer's fresh lease may be taken.
    pub take_over: TakeOver,
    /// This host's name, for humans.
    pub host: String,
    /// Where the archive is, for humans.
    pub store_label: String,
}

/// Makes the store; called until it succeeds.
#[derive(Clone)]
pub struct Connect(Arc<ConnectFn>);

type ConnectFn =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn Store>, Fault>> + Send>> + Send + Sync;

impl Connect {
    /// From a function that makes the store.
    pub fn new<F, T>(connect: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Arc<dyn Store>, Fault>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(connect())))
    }

    async fn store(&self) -> Result<Arc<dyn Store>, Fault> {
        (self.0)().await
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}

/// Why a run ends before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store, or the segment that is looked at, cannot be used.
    #[error("{0}")]
    Store(#[from] Fault),
    /// The store cannot be used, and nothing can be done without it.
    #[error("the store {store} cannot be used: {fault}")]
    NoStore {
        /// Which one.
        store: String,
        /// What it said.
        fault: Fault,
    },
    /// Another writer holds the lease.
    #[error("{0}")]
    LeaseHeld(String),
    /// State does not decode.
    #[error(transparent)]
    StateLoad(#[from] StateLoadError),
    /// State cannot be written.
    #[error(transparent)]
    StateWrite(#[from] StateWriteError),
    /// The binlog directory cannot be used.
    #[error("{0}")]
    Source(String),
}

impl From<LeaseError> for RunError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Fault(fault) => Self::Store(fault),
            LeaseError::Held { .. } => Self::LeaseHeld(error.to_string()),
        }
    }
}

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

/// The task that keeps the lease.
#[derive(Debug)]
struct LeaseTask {
    stop: CancellationToken,
    tasks: JoinSet<Result<(), RunError>>,
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
    keyless: Vec<SegmentName>,
    /// Committed since the scout last left: what it finds of them is old news.
    committed: HashSet<Key>,
    obstacles: BTreeMap<Obstacle, snapshot::Trouble>,
    state_trouble: Option<snapshot::Trouble>,
    workers: JoinSet<(Key, Outcome)>,
    looks: u64,
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
    publish: watch::Sender<Option<Arc<Snapshot>>>,
    stop: CancellationToken,
) -> Result<Arc<Snapshot>, RunError> {
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
        keyless: Vec::new(),
        committed: HashSet::new(),
        obstacles: BTreeMap::new(),
        state_trouble: None,
        workers: JoinSet::new(),
        looks: 0,
    };
    let ended = pipeline.work(scout).await;
    pipeline.wind_down().await;
    let last = pipeline.show();
    ended.map(|()| last)
}

impl Pipeline {
    async fn work(&mut self, scout: Scout) -> Result<(), RunError> {
        let mut watch = Watch::new(&scout.dir().watched_dirs(), self.settings.poll_interval);
        let mut home = Some(scout);
        let mut away: JoinSet<(Scout, Look)> = JoinSet::new();
        let mut look_now = true;
        loop {
            if look_now && let Some(scout) = home.take() {
                look_now = false;
                away.spawn(scout.look());
            }
            self.dispatch();
            self.show();
            if self.is_done() && home.is_some() && !look_now {
                return Ok(());
            }
            let now = self.clock.mono();
            let retry_look = home.as_ref().and_then(Scout::next_try);
            let wake = [self.tracker.next_deadline(), retry_look].into_iter().flatten().min();
            let wake = wake.unwrap_or(now + TICK).min(now + TICK);
            let lease = async {
                match self.connected.as_mut() {
                    Some(connected) => connected.lease.tasks.join_next().await,
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
                Some(ended) = lease => {
                    return match ended {
                        Ok(Err(error)) => Err(error),
                        Ok(Ok(())) => Ok(()),
                        Err(error) => Err(broken(&error)),
                    };
                }
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

    async fn landed(&mut self, key: Key, outcome: Outcome) -> Result<(), RunError> {
        let now = Now { mono: self.clock.mono(), wall: self.clock.wall() };
        match outcome {
            Outcome::Committed(committed) => self.commit(key, committed).await?,
            Outcome::Closing => self.tracker.closing(&key, now, CLOSING_WAIT),
            Outcome::Active => {
                self.tracker.done(&key);
                self.jobs.remove(&key);
            }
            Outcome::Stopped => {}
            Outcome::Failed(fault, inspected) => {
                let (incarnation, segment) =
                    (&key.incarnation, self.jobs.get(&key).map(|job| job.listed.name.clone()));
                let segment = segment.map(|name| name.to_string()).unwrap_or_default();
                if let Some(job) = self.jobs.get_mut(&key) {
                    job.inspected = inspected;
                }
                tracing::warn!(%incarnation, %segment, %fault, "archiving a segment failed");
                let once = self.settings.mode != Mode::Daemon;
                if once && no_try_mends(&fault) {
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
        if self.floor.is_none() {
            self.floor = Some(manifest.number);
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

    /// Takes in what a look found.
    async fn take(&mut self, look: Look, recent: &HashSet<Key>) -> Result<(), RunError> {
        self.note(&look);
        if let Some(fatal) = look.fatal {
            return Err(fatal);
        }
        if let Some(attached) = look.attached {
            self.attach(*attached);
            self.save_cursor().await?;
        }
        for record in look.opened {
            let chain = Chain::new(record.incarnation.clone(), record.first.number);
            self.chains.entry(record.incarnation).or_insert(chain);
        }
        self.active = look.active;
        self.keyless = look.keyless;
        if let (Some(open), Some(scan)) = (look.open, look.scan) {
            self.looks += 1;
            for (key, listed) in open {
                if !recent.contains(&key) {
                    self.found(key, listed, &scan);
                }
            }
        }
        if self.state_trouble.is_some() {
            self.save_cursor().await?;
        }
        Ok(())
    }

    fn found(&mut self, key: Key, listed: Listed, scan: &Arc<Scan>) {
        // The server still writes its last file, unless it shut down cleanly.
        let in_use = listed.peek().and_then(|peek| peek.in_use);
        let may_be_final = in_use == Some(false) || self.settings.mode == Mode::OnceFinal;
        if listed.is_last() && !may_be_final {
            return;
        }
        let now = Now { mono: self.clock.mono(), wall: self.clock.wall() };
        self.tracker.found(key.clone(), listed.name.clone(), now);
        let scan = Arc::clone(scan);
        match self.jobs.get_mut(&key) {
            Some(job) => {
                if job.listed.signature() != listed.signature() {
                    job.inspected = None;
                }
                job.listed = listed;
                job.scan = scan;
            }
            None => {
                self.jobs.insert(key, Job { listed, scan, inspected: None });
            }
        }
    }

    fn attach(&mut self, attached: Attached) {
        let Attached { archive, capabilities, lease, records: _, chains, archived, floor } =
            attached;
        tracing::info!(
            source = %self.settings.source,
            store = %self.settings.store_label,
            archived,
            "attached to the archive"
        );
        self.archived = archived;
        self.floor = floor;
        self.chains =
            chains.into_iter().map(|chain| (chain.incarnation().clone(), chain)).collect();
        let bench = Bench {
            archive,
            clock: Arc::clone(&self.clock),
            server_uuid: self.settings.server_uuid.clone(),
            encrypted: self.settings.encrypted,
            stop: self.stop.clone(),
        };
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_lease(lease, Arc::clone(&self.clock), stop.clone()));
        self.connected = Some(Connected {
            bench: Arc::new(bench),
            capabilities,
            lease: LeaseTask { stop, tasks },
        });
    }

    /// Keeps what stands in the way, since when, and says so once.
    fn note(&mut self, look: &Look) {
        let now = self.clock.wall();
        self.obstacles.retain(|obstacle, trouble| {
            let stays = look.obstacles.iter().any(|(found, _)| found == obstacle);
            if !stays {
                tracing::info!(what = %trouble.what, since = %trouble.since, "works again");
            }
            stays
        });
        for (obstacle, message) in &look.obstacles {
            let what = match obstacle {
                Obstacle::Store => "store",
                Obstacle::Source => "source",
            };
            let known = self.obstacles.get(obstacle);
            if known.is_none_or(|known| known.message != *message) {
                tracing::warn!(what, message, "cannot go on; trying again");
            }
            let since = known.map_or(now, |known| known.since);
            let trouble =
                snapshot::Trouble { what: what.to_owned(), since, message: message.clone() };
            self.obstacles.insert(*obstacle, trouble);
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
        if let Some(connected) = &mut self.connected {
            connected.lease.stop.cancel();
            tokio::select! {
                ended = connected.lease.tasks.join_next() => {
                    if let Some(Ok(Err(error))) = ended {
                        tracing::warn!(%error, "the lease was not released; it goes stale by itself");
                    }
                }
                () = self.clock.sleep(STOP_PATIENCE) => {
                    tracing::warn!("the lease was not released in time; it goes stale by itself");
                }
            }
        }
    }
}

/// Renews the lease until it is lost or `stop` is cancelled, then releases it.
async fn keep_lease(
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

/// Whether trying again in this run is of no use: the segment itself is what is wrong.
const fn no_try_mends(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::SourceDamaged
            | FaultKind::SourceRefused
            | FaultKind::SourceGone
            | FaultKind::Conflict
    )
}

fn broken(error: &tokio::task::JoinError) -> RunError {
    RunError::Source(format!("a task of the daemon ended in a way it never should: {error}"))
}
