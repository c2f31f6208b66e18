//! What the pipeline is told, and why it ends before its time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::snapshot::Snapshot;
use super::tracker::RetryPolicy;
use crate::archive::{LeaseError, PutOptions, TakeOver};
use crate::fault::Fault;
use crate::segment::{SegmentName, SourceName};
use crate::source::{EncryptedPolicy, SourcePaths};
use crate::store::Store;
use crate::sys::{StateLoadError, StateWriteError};

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

/// A question for what is known now; the answer goes back on it.
pub type Ask = oneshot::Sender<Arc<Snapshot>>;

/// How a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing was left to do.
    Done,
    /// It was told to stop.
    Stopped,
}

/// The pipeline's ties to the rest of the process.
#[derive(Debug)]
pub struct Outside {
    /// Told what is known, now and then; each time also says that the loop turns.
    pub publish: watch::Sender<Option<Arc<Snapshot>>>,
    /// Questions.
    pub asks: mpsc::Receiver<Ask>,
    /// Ends the run.
    pub stop: CancellationToken,
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

    pub(super) async fn store(&self) -> Result<Arc<dyn Store>, Fault> {
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
