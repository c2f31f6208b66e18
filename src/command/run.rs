//! `run`: the daemon, and `run --once`.
//!
//! **Crash.** As [`crate::pipeline`]. The state lock goes with the process.

use std::path::Path;
use std::sync::Arc;

use sd_notify::NotifyState;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::open::{connect, put_options, source_name, source_paths, start};
use super::status::text;
use super::{CommandError, Exit, Report, load_config};
use crate::archive::TakeOver;
use crate::clock::{Clock, RealClock};
use crate::config::{self, Config};
use crate::control::{Answer, Handler, Request, Server};
use crate::pipeline::snapshot::{PendingState, Snapshot};
use crate::pipeline::tracker::{RetryPolicy, Tries};
use crate::pipeline::{self, Ask, End, Mode, Outside, Settings};
use crate::source::EncryptedPolicy;
use crate::status::{Daemon, StatusReport};
use crate::sys::{Signals, StateDir};

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct RunFlags {
    /// How long.
    pub mode: Mode,
    /// Whether another writer's fresh lease may be taken.
    pub take_over: TakeOver,
}

/// How a run ended.
#[derive(Debug, Serialize)]
pub struct RunReport {
    #[serde(flatten)]
    status: StatusReport,
    #[serde(skip)]
    mode: Option<Mode>,
}

/// What watches a run from outside: told of each new snapshot.
pub type Watcher = Box<dyn Fn(&Snapshot) + Send>;

/// Runs until it is told to stop, or with `--once` until nothing is left to do.
///
/// # Errors
/// When it cannot start, or must not go on.
pub async fn run(
    path: Option<&Path>,
    flags: RunFlags,
    watcher: Option<Watcher>,
) -> Result<RunReport, CommandError> {
    let config = load_config(path)?;
    // Before anything that a stop would have to undo.
    let mut signals = Signals::listen()
        .map_err(|error| CommandError::failed(format!("listen for signals: {error}")))?;
    let state = StateDir::open(&config.state.dir)?;
    let settings = settings(&config, flags)?;
    let mode = flags.mode;
    let stop = CancellationToken::new();
    let (publish, snapshots) = watch::channel(None);
    let mut beside = JoinSet::new();
    let stopper = stop.clone();
    beside.spawn(async move {
        let _ = signals.cancel(&stopper).await;
    });
    beside.spawn(notify(snapshots, watcher));
    let (ask, asks) = mpsc::channel(1);
    if mode == Mode::Daemon {
        let socket = config.control.socket.clone();
        match Server::bind(&socket) {
            Ok(server) => {
                beside.spawn(async move { server.serve(handler(ask)).await });
            }
            Err(error) => tracing::warn!(
                socket = %socket.display(), %error,
                "no control socket: status will not see this daemon; does its directory exist?"
            ),
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let outside = Outside { publish, asks, stop };
    let ended = pipeline::run(settings, state, clock, connect(&config), outside).await;
    tell(&[NotifyState::Stopping]);
    beside.shutdown().await;
    let (snapshot, end) = ended?;
    if mode != Mode::Daemon && end == End::Stopped {
        return Err(CommandError::failed(
            "stopped before all that is closed was archived; run it again",
        ));
    }
    let status = StatusReport { daemon: Daemon::Stopped, snapshot: Snapshot::clone(&snapshot) };
    Ok(RunReport { status, mode: (mode != Mode::Daemon).then_some(mode) })
}

/// Tells systemd that the loop turns, and the watcher what it knows. The first snapshot comes once
/// state is decoded and the source is watched: that is what *ready* means.
async fn notify(mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>, watcher: Option<Watcher>) {
    let mut ready = false;
    while snapshots.changed().await.is_ok() {
        if !std::mem::replace(&mut ready, true) {
            tell(&[NotifyState::Ready]);
        }
        let snapshot = snapshots.borrow_and_update().clone();
        let Some(snapshot) = snapshot else { continue };
        if let Some(watcher) = &watcher {
            watcher(&snapshot);
        }
        let at =
            snapshot.cursor.as_ref().map_or_else(|| "none".to_owned(), |c| c.segment.to_string());
        let line = format!(
            "cursor {at}, {} archived, {} pending",
            snapshot.archived, snapshot.pending_total
        );
        tell(&[NotifyState::Watchdog, NotifyState::Status(&line)]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "notify systemd");
    }
}

/// Answers for the loop, with what it knows at that moment.
fn handler(asks: mpsc::Sender<Ask>) -> Handler {
    Arc::new(move |request| {
        let asks = asks.clone();
        Box::pin(async move {
            match request {
                Request::Status => status(&asks).await,
            }
        })
    })
}

async fn status(asks: &mpsc::Sender<Ask>) -> Answer {
    let stopping = || Answer::Refused { message: "the daemon is stopping".to_owned() };
    let (reply, answer) = oneshot::channel();
    if asks.send(reply).await.is_err() {
        return stopping();
    }
    let Ok(snapshot) = answer.await else { return stopping() };
    let report = StatusReport { daemon: Daemon::Running, snapshot: Snapshot::clone(&snapshot) };
    match serde_json::to_value(&report) {
        Ok(report) => Answer::Done { report },
        Err(error) => Answer::Refused { message: error.to_string() },
    }
}

fn settings(config: &Config, flags: RunFlags) -> Result<Settings, CommandError> {
    let (source, server_uuid) = source_name(config)?;
    Ok(Settings {
        source,
        server_uuid,
        paths: source_paths(config),
        start: start(config),
        encrypted: match config.source.encrypted_segments {
            config::EncryptedSegments::Refuse => EncryptedPolicy::Refuse,
            config::EncryptedSegments::Opaque => EncryptedPolicy::Opaque,
        },
        put: put_options(config),
        workers: usize::try_from(config.upload.workers).unwrap_or(1),
        poll_interval: config.watch.poll_interval,
        retry: RetryPolicy {
            base_delay: config.retry.base_delay,
            max_delay: config.retry.max_delay,
            tries: match flags.mode {
                Mode::Daemon => Tries::Endless,
                Mode::Once | Mode::OnceFinal => Tries::Bounded(config.retry.max_attempts),
            },
        },
        mode: flags.mode,
        take_over: flags.take_over,
        host: host_name(),
        store_label: config.store.url.to_string(),
    })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Report for RunReport {
    fn text(&self) -> String {
        if self.mode.is_some() { text(&self.status) } else { String::new() }
    }

    fn exit(&self) -> Exit {
        let snapshot = &self.status.snapshot;
        let held = snapshot.pending.iter().any(|pending| pending.state == PendingState::Held);
        if self.mode.is_some() && (held || snapshot.pending_total > 0 || !snapshot.holes.is_empty())
        {
            Exit::Missing
        } else {
            Exit::Done
        }
    }
}
