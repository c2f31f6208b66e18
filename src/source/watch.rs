//! When to look at the directory again: nudges from inotify, and a polling floor below them.
//!
//! **Invariants.** A nudge carries nothing and is never needed: a lost one costs one poll
//! interval, never a segment. Nudges coalesce into one, so nothing can pile up. A directory that
//! is absent, appears later or is made anew is watched as soon as that is seen.
//!
//! **Cancellation.** [`Watch::changed`] may be dropped at any point: a nudge that it has not
//! returned stays, and the polling floor does not move.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why [`Watch::changed`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nudge {
    /// Something happened in a watched directory.
    Event,
    /// The poll interval is over.
    Poll,
}

/// Watches directories, and the one above each of them.
#[derive(Debug)]
pub struct Watch {
    dirs: Vec<Watched>,
    watcher: Option<RecommendedWatcher>,
    signal: Arc<Signal>,
    poll_interval: Duration,
    next_poll: Instant,
    /// Whether an operator was told already that only the polling floor works.
    warned: bool,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    parent: Option<PathBuf>,
    /// Device and inode of what is watched under `path` now.
    armed: Option<(u64, u64)>,
    parent_armed: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Signal {
    nudge: Notify,
    /// A watched directory itself came, went or changed its name.
    moved: AtomicBool,
}

impl Watch {
    /// Begins to watch. Never fails: without inotify there is still the polling floor.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "the floor is a wait of the runtime, not a record"
    )]
    pub fn new(dirs: &[PathBuf], poll_interval: Duration) -> Self {
        let dirs: Vec<Watched> = dirs.iter().map(|dir| Watched::new(dir)).collect();
        let signal = Arc::new(Signal::default());
        let mut watch = Self {
            watcher: None,
            signal,
            poll_interval,
            next_poll: Instant::now() + poll_interval,
            warned: false,
            dirs,
        };
        watch.start();
        watch.arm();
        watch
    }

    /// Whether every directory is watched by inotify, and not by polling alone.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.dirs.iter().all(|dir| dir.armed.is_some())
    }

    /// Returns once there may be something new, and at the latest when the poll interval is over.
    #[allow(
        clippy::disallowed_methods,
        reason = "the floor is a wait of the runtime, not a record"
    )]
    pub async fn changed(&mut self) -> Nudge {
        let nudge = tokio::select! {
            () = self.signal.nudge.notified() => Nudge::Event,
            () = tokio::time::sleep_until(self.next_poll) => Nudge::Poll,
        };
        // From here to the end nothing waits, so a nudge that was taken is also returned.
        if self.signal.moved.swap(false, Ordering::AcqRel) {
            // A directory made anew can have the inode of the old one, so none is trusted.
            self.disarm();
            self.arm();
        } else if nudge == Nudge::Poll {
            self.arm();
        }
        self.next_poll = Instant::now() + self.poll_interval;
        nudge
    }

    fn start(&mut self) {
        let signal = Arc::clone(&self.signal);
        let own = Own {
            dirs: self.dirs.iter().map(|dir| dir.path.clone()).collect(),
            parents: self.dirs.iter().filter_map(|dir| dir.parent.clone()).collect(),
        };
        let handler = move |event: notify::Result<Event>| match relevance(&event, &own) {
            Relevance::None => {}
            Relevance::Content => signal.nudge.notify_one(),
            Relevance::Directory => {
                signal.moved.store(true, Ordering::Release);
                signal.nudge.notify_one();
            }
        };
        match notify::recommended_watcher(handler) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => self.warn(&error),
        }
    }

    fn disarm(&mut self) {
        let Some(watcher) = self.watcher.as_mut() else { return };
        for dir in &mut self.dirs {
            if let Some(parent) = &dir.parent {
                unwatch(watcher, parent, &mut dir.parent_armed);
            }
            unwatch(watcher, &dir.path, &mut dir.armed);
        }
    }

    /// Watches whatever is there and not watched yet, or not the same as what was watched.
    fn arm(&mut self) {
        let Some(watcher) = self.watcher.as_mut() else { return };
        let mut failed = None;
        for dir in &mut self.dirs {
            if let Some(parent) = &dir.parent {
                failed = rearm(watcher, parent, &mut dir.parent_armed).err().or(failed);
            }
            // After the parent, so that what comes in between is seen there.
            let before = dir.armed;
            failed = rearm(watcher, &dir.path, &mut dir.armed).err().or(failed);
            if dir.armed.is_some() && dir.armed != before {
                // It may have been filled before it was watched.
                self.signal.nudge.notify_one();
            }
        }
        if let Some(error) = failed {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                %error,
                poll_interval = ?self.poll_interval,
                "no file events for the binlog directory (see fs.inotify.max_user_watches and \
                 max_user_instances); new segments are seen by polling alone"
            );
        }
    }
}

impl Watched {
    fn new(dir: &Path) -> Self {
        let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let path: PathBuf = path.components().collect();
        let parent = path.parent().map(Path::to_owned);
        Self { path, parent, armed: None, parent_armed: None }
    }
}

fn rearm(
    watcher: &mut RecommendedWatcher,
    path: &Path,
    armed: &mut Option<(u64, u64)>,
) -> notify::Result<()> {
    let there = identity(path);
    if *armed == there {
        return Ok(());
    }
    unwatch(watcher, path, armed);
    if there.is_none() {
        return Ok(());
    }
    match watcher.watch(path, RecursiveMode::NonRecursive) {
        Ok(()) => {
            // Of before the call: had it been replaced in between, the next poll sees that.
            *armed = there;
            Ok(())
        }
        Err(_) if identity(path).is_none() => Ok(()),
        Err(error) => Err(error),
    }
}

fn unwatch(watcher: &mut RecommendedWatcher, path: &Path, armed: &mut Option<(u64, u64)>) {
    if armed.take().is_some()
        && let Err(error) = watcher.unwatch(path)
    {
        // The kernel has dropped it already, with the directory.
        tracing::debug!(path = %path.display(), %error, "the old watch was gone");
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().filter(fs::Metadata::is_dir).map(|facts| (facts.dev(), facts.ino()))
}

/// What is watched, by path.
#[derive(Debug, Default)]
struct Own {
    dirs: HashSet<PathBuf>,
    parents: HashSet<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum Relevance {
    None,
    Content,
    Directory,
}

/// What an event is worth. A server appends to its active segment many times a second, and our
/// own reads are events too: neither says anything new.
fn relevance(event: &notify::Result<Event>, own: &Own) -> Relevance {
    let Ok(event) = event else { return Relevance::Directory };
    if event.need_rescan() {
        // The queue ran over: anything may have happened. Such an event has no paths.
        return Relevance::Directory;
    }
    let watched = |path: &PathBuf| own.dirs.contains(path) || own.parents.contains(path);
    let about_own = event.paths.iter().any(watched);
    let is_within = |path: &PathBuf| path.parent().is_some_and(|dir| own.dirs.contains(dir));
    let within = event.paths.iter().any(is_within);
    match event.kind {
        EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
            if about_own {
                Relevance::Directory
            } else if within {
                Relevance::Content
            } else {
                // A neighbour of the directory.
                Relevance::None
            }
        }
        // MariaDB adds to its index in place.
        EventKind::Modify(_) if within && event.paths.iter().any(|path| is_index(path)) => {
            Relevance::Content
        }
        // A server closes a segment when it rotates, stops or dies.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) if within => Relevance::Content,
        EventKind::Any | EventKind::Other if within || about_own => Relevance::Content,
        EventKind::Access(_) | EventKind::Modify(_) | EventKind::Any | EventKind::Other => {
            Relevance::None
        }
    }
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "index")
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
