//! Finds what is to be archived: attaches to the archive, looks at the binlog directory, and gives
//! each segment its incarnation.
//!
//! Level-triggered: each look lists and compares, so a lost event costs one interval and never a
//! segment. While the archive cannot be asked it keeps looking; what it found waits without a key.
//!
//! **Cancellation.** Dropping a look at any await is safe: it writes nothing but create-only
//! incarnation records and the lease.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::attach::{Attached, attach};
use super::incarnations::{Assignment, Identity, Incarnations};
use super::tracker::{Key, Tries};
use super::{Connect, Mode, RunError, Settings};
use crate::archive::IncarnationRecord;
use crate::clock::{Clock, MonoTime};
use crate::fault::Operation;
use crate::progress::CursorFile;
use crate::segment::SegmentName;
use crate::source::{self, Listed, Scan, Scanner, SourceDir};
use crate::store::Store;
use crate::sys::StateDir;

/// Something the scout could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// The archive cannot be asked.
    Store,
    /// The binlog directory cannot be read.
    Source,
}

/// What one look found.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The archive, the first time that it could be asked.
    pub(super) attached: Option<Box<Attached>>,
    /// What is on disk, when it could be read.
    pub(super) scan: Option<Arc<Scan>>,
    /// Segments that are not committed, under their keys; `None` when they could not be told.
    pub(super) open: Option<Vec<(Key, Listed)>>,
    /// Incarnations opened by this look.
    pub(super) opened: Vec<IncarnationRecord>,
    /// Listed and not to be read, with what the system said.
    pub(super) unreadable: Vec<(SegmentName, String)>,
    /// The server's UUID, when it has one.
    pub(super) server_uuid: Option<String>,
    /// Closed segments that have no key while the archive cannot be asked.
    pub(super) keyless: Vec<SegmentName>,
    /// The segment the server writes now.
    pub(super) active: Option<SegmentName>,
    /// What stood in the way; an obstacle not named here is gone.
    pub(super) obstacles: Vec<(Obstacle, String)>,
    /// What the process must end for.
    pub(super) fatal: Option<RunError>,
}

/// Looks, one at a time.
#[derive(Debug)]
pub(super) struct Scout {
    settings: Arc<Settings>,
    state: Arc<StateDir>,
    clock: Arc<dyn Clock>,
    connect: Connect,
    scanner: Scanner,
    store: Option<Arc<dyn Store>>,
    incarnations: Option<Incarnations>,
    cursor: Option<CursorFile>,
    delays: ExponentialBackoff,
    tries: u32,
    not_before: MonoTime,
    obstacle: Option<String>,
    /// What is known of the archive is out of date.
    stale: bool,
}

/// How the tries to reach the archive are spaced.
fn delays(settings: &Settings) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(settings.retry.base_delay)
        .with_max_delay(settings.retry.max_delay.min(Duration::from_secs(60)))
        .without_max_times()
        .build()
}

impl Scout {
    pub(super) fn new(
        settings: Arc<Settings>,
        state: Arc<StateDir>,
        clock: Arc<dyn Clock>,
        connect: Connect,
        cursor: Option<CursorFile>,
    ) -> Self {
        let dir = SourceDir::new(settings.paths.clone(), Arc::clone(&clock));
        let scanner = Scanner::new(dir);
        let delays = delays(&settings);
        let not_before = clock.mono();
        Self {
            settings,
            state,
            clock,
            connect,
            scanner,
            store: None,
            incarnations: None,
            cursor,
            delays,
            tries: 0,
            not_before,
            obstacle: None,
            stale: false,
        }
    }

    /// The directory it looks at.
    pub(super) const fn dir(&self) -> &SourceDir {
        self.scanner.dir()
    }

    /// When the archive is asked again, while it could not be.
    pub(super) fn next_try(&self) -> Option<MonoTime> {
        self.obstacle.as_ref().map(|_| self.not_before)
    }

    /// A segment was committed since the last look.
    pub(super) fn committed(&mut self, key: &Key) {
        if let Some(incarnations) = &mut self.incarnations {
            incarnations.committed(key);
        }
    }

    /// A commit met other bytes under its number: the next look reads the archive anew.
    pub(super) const fn distrust(&mut self) {
        self.stale = true;
    }

    /// Looks once.
    pub(super) async fn look(mut self) -> (Self, Look) {
        let mut look = Look::default();
        let scan = match self.scanner.scan().await {
            Ok(scan) => {
                look.active =
                    scan.segments.iter().find(|listed| listed.is_last()).map(|l| l.name.clone());
                Some(Arc::new(scan))
            }
            Err(error) => {
                if self.settings.mode != Mode::Daemon {
                    look.fatal = Some(RunError::Source(error.to_string()));
                    return (self, look);
                }
                // The directory may be late, or be made anew: the next look tells.
                look.obstacles.push((Obstacle::Source, error.to_string()));
                None
            }
        };
        if let Err(error) = self.ask(scan.as_deref(), &mut look).await {
            self.store_failed(error, &mut look);
        }
        if let (None, Some(scan)) = (&look.open, &scan) {
            let cursor = self.cursor.as_ref().and_then(CursorFile::newest);
            let archived = cursor.map(|(_, entry)| entry.number);
            let waiting = scan.segments.iter().filter(|listed| {
                let number = listed.name.number();
                !listed.is_last()
                    && match &self.incarnations {
                        Some(incarnations) => !incarnations.has(number),
                        // Before the archive was ever asked, the cursor is all that is known.
                        None => archived.is_none_or(|archived| number > archived),
                    }
            });
            look.keyless = waiting.map(|listed| listed.name.clone()).collect();
        }
        look.scan = scan;
        (self, look)
    }

    /// Asks the archive what the listed segments are, attaching first where that is still to do.
    async fn ask(&mut self, scan: Option<&Scan>, look: &mut Look) -> Result<(), RunError> {
        if self.clock.mono() < self.not_before {
            if let Some(obstacle) = &self.obstacle {
                look.obstacles.push((Obstacle::Store, obstacle.clone()));
            }
            return Ok(());
        }
        if self.incarnations.is_none() {
            let store = match &self.store {
                Some(store) => Arc::clone(store),
                None => self.store.insert(self.connect.store().await?).clone(),
            };
            let attached = attach(
                store,
                &self.settings,
                &self.state,
                self.cursor.as_ref(),
                self.clock.as_ref(),
            );
            let attached = attached.await?;
            let identity = Identity {
                server_uuid: self.settings.server_uuid.clone(),
                host: self.settings.host.clone(),
                start: self.settings.start.clone(),
            };
            let archive = Arc::clone(&attached.archive);
            let clock = Arc::clone(&self.clock);
            let incarnations = Incarnations::load(archive, clock, identity, &attached.records);
            self.incarnations = Some(incarnations.await?);
            look.attached = Some(Box::new(attached));
        }
        let Some(incarnations) = &mut self.incarnations else { return Ok(()) };
        if let Ok(Some(uuid)) = source::server_uuid(&self.settings.paths.datadir) {
            incarnations.server_is(uuid.to_string());
            look.server_uuid = Some(uuid.to_string());
        }
        if self.stale {
            look.opened.extend(incarnations.reload().await?);
            self.stale = false;
        }
        let Some(scan) = scan else { return Ok(()) };
        let Assignment { open, opened, unreadable } = incarnations.assign(scan).await?;
        look.open = Some(open);
        look.opened.extend(opened);
        look.unreadable = unreadable;
        if self.obstacle.take().is_some() {
            self.delays = delays(&self.settings);
        }
        self.tries = 0;
        Ok(())
    }

    /// The archive, for humans.
    fn place(&self) -> String {
        let store = self.store.as_ref();
        store.map_or_else(|| self.settings.store_label.clone(), |store| store.describe())
    }

    /// Decides what a failure to ask the archive means. A source that was confirmed once starts
    /// without its store and waits; a first start fails, and so does one run that has tried enough.
    fn store_failed(&mut self, error: RunError, look: &mut Look) {
        self.tries = self.tries.saturating_add(1);
        let patient = match (&error, self.settings.retry.tries) {
            // The file vanished or changed while it was looked at: the next look tells.
            (RunError::Store(fault), tries)
                if fault.operation == Operation::ReadSource
                    && !matches!(tries, Tries::Bounded(most) if self.tries >= most) =>
            {
                look.obstacles.push((Obstacle::Source, error.to_string()));
                return;
            }
            (RunError::Store(fault), Tries::Endless) => {
                self.cursor.is_some() || {
                    look.attached.is_some()
                        || self.incarnations.is_some()
                        || fault.retry_after_ms.is_some()
                }
            }
            (RunError::Store(fault), Tries::Bounded(most)) => {
                self.tries < most
                    && !fault.http_status.is_some_and(|status| (400..429).contains(&status))
            }
            (_, _) => false,
        };
        // A message is of no use to a human without the place that it is about.
        let error = match error {
            RunError::Store(fault) => RunError::NoStore { store: self.place(), fault },
            error @ (RunError::NoStore { .. }
            | RunError::LeaseHeld(_)
            | RunError::StateLoad(_)
            | RunError::StateWrite(_)
            | RunError::Source(_)) => error,
        };
        if !patient {
            look.fatal = Some(error);
            return;
        }
        let message = error.to_string();
        let span = self.delays.next().unwrap_or(Duration::from_secs(60));
        self.not_before = self.clock.mono() + span.mul_f64(fastrand::f64());
        self.obstacle = Some(message.clone());
        look.obstacles.push((Obstacle::Store, message));
    }
}
