//! The daemon's control socket: one JSON request a line, one JSON answer a line.
//!
//! **Invariants.** The socket is 0660 in a directory that systemd makes for the daemon; it is the
//! only way to talk to a running daemon besides signals. A client's request is bounded in size and
//! time, so that no client can hold the daemon.
//!
//! **Crash.** A socket file without a listener may stay; the next start removes it, holding the
//! state lock.
//!
//! **Cancellation.** A dropped exchange leaves nothing.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Longest request.
const REQUEST_MAX: u64 = 1 << 20;

/// Longest answer: a status with all its holes.
const ANSWER_MAX: u64 = 64 << 20;

/// Clients served at once; more wait.
const CLIENTS: usize = 16;

/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The daemon's status.
    Status,
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for.
    Done {
        /// The report.
        report: Value,
    },
    /// The request was not understood or could not be carried out.
    Refused {
        /// Why.
        message: String,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens: the daemon does not run.
    #[error("no daemon listens on {}", path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is there and may not be used.
    #[error("no access to {}: {error}; be root, the daemon's user, or a member of its group", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The exchange broke.
    #[error("talk to the daemon on {}: {message}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// How.
        message: String,
    },
}

/// Answers a request.
pub type Handler = Arc<dyn Fn(Request) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A listening control socket; removed when it is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: UnixListener,
}

impl Server {
    /// Listens on `path`. The caller holds the state lock, so a socket file found there is dead.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Serves clients until it is dropped.
    pub async fn serve(&self, handler: Handler) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        let clients = tokio_util::task::TaskTracker::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let handler = Arc::clone(&handler);
                    clients.spawn(async move {
                        let served = tokio::time::timeout(PATIENCE, serve(stream, &handler)).await;
                        if let Ok(Err(error)) = served {
                            tracing::debug!(%error, "a control client went away");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept on the control socket");
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "remove the control socket");
        }
    }
}

async fn serve(mut stream: UnixStream, handler: &Handler) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = Vec::new();
    BufReader::new(read.take(REQUEST_MAX)).read_until(b'\n', &mut line).await?;
    let answer = match serde_json::from_slice(&line) {
        Ok(request) => handler(request).await,
        Err(error) => Answer::Refused { message: format!("not a request: {error}") },
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    write.write_all(&bytes).await
}

/// Asks the daemon.
///
/// # Errors
/// When no daemon listens, access is denied, or the exchange breaks.
pub async fn ask(path: &Path, request: &Request) -> Result<Answer, ControlError> {
    let broken = |message: String| ControlError::Broken { path: path.to_owned(), message };
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) => {
            use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
            let (path, kind) = (path.to_owned(), error.kind());
            return Err(if matches!(kind, NotFound | ConnectionRefused) {
                ControlError::NoDaemon { path }
            } else if kind == PermissionDenied {
                ControlError::Denied { path, error }
            } else {
                broken(error.to_string())
            });
        }
    };
    let mut bytes = serde_json::to_vec(request).map_err(|error| broken(error.to_string()))?;
    bytes.push(b'\n');
    let exchange = async {
        stream.write_all(&bytes).await?;
        let mut answer = Vec::new();
        BufReader::new((&mut stream).take(ANSWER_MAX)).read_until(b'\n', &mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, exchange)
        .await
        .map_err(|_| broken(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(|error| broken(error.to_string()))?;
    serde_json::from_slice(&answer)
        .map_err(|error| broken(format!("the answer does not decode: {error}")))
}
