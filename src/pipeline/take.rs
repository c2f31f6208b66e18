//! Taking in what a look at the directory and the archive found.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::attach::Attached;
use super::lease_task::LeaseTask;
use super::scout::{Look, Obstacle};
use super::tracker::{Key, Now, State};
use super::worker::Bench;
use super::{Connected, Job, Mode, Pipeline, RunError, snapshot};
use crate::progress::Chain;
use crate::segment::{Head, SegmentName};
use crate::source::{Listed, Scan};

impl Pipeline {
    /// Takes in what a look found.
    pub(super) async fn take(&mut self, look: Look, recent: &HashSet<Key>) -> Result<(), RunError> {
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
            self.floor = None;
        }
        self.active = look.active;
        self.keyless = look.keyless;
        if look.open.is_some() {
            self.unreadable = look.unreadable;
        }
        if look.server_uuid.is_some() {
            self.server_uuid = look.server_uuid;
        }
        if let (Some(open), Some(scan)) = (look.open, look.scan) {
            self.looks += 1;
            self.reassign(&open, &scan);
            self.edge = self.edge_of(&open);
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

    /// The lowest listed segment beyond all that is committed in the newest incarnation: what lies
    /// between the two and is not listed can never come.
    fn edge_of(&self, open: &[(Key, Listed)]) -> Option<Listed> {
        let (incarnation, chain) = self.chains.last_key_value()?;
        let last = chain.last()?.number;
        let beyond =
            open.iter().filter(|(key, _)| key.incarnation == *incarnation && key.number > last);
        beyond.min_by_key(|(key, _)| key.number).map(|(_, listed)| listed.clone())
    }

    /// Lets go of segments that the look gave to another incarnation, or found committed: the same
    /// bytes under another key. One whose bytes are gone stays, for all to see.
    fn reassign(&mut self, open: &[(Key, Listed)], scan: &Scan) {
        let keys: HashMap<&SegmentName, &Key> =
            open.iter().map(|(key, listed)| (&listed.name, key)).collect();
        let heads: HashMap<&SegmentName, Head> = scan
            .segments
            .iter()
            .filter_map(|listed| Some((&listed.name, listed.peek()?.head)))
            .collect();
        let gone: Vec<Key> = self
            .jobs
            .iter()
            .filter(|(key, job)| {
                let head = job.listed.peek().map(|peek| peek.head);
                let same = head.is_some() && heads.get(&job.listed.name).copied() == head;
                same && keys.get(&job.listed.name) != Some(key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            if self.tracker.get(&key).is_some_and(|tracked| tracked.state != State::InFlight) {
                self.tracker.done(&key);
                self.jobs.remove(&key);
            }
        }
    }

    fn found(&mut self, key: Key, mut listed: Listed, scan: &Arc<Scan>) {
        // The server still writes its last file, unless it shut down cleanly.
        let in_use = listed.peek().and_then(|peek| peek.in_use);
        let may_be_final = in_use == Some(false) || self.settings.mode == Mode::OnceFinal;
        let known = self.not_final.is_some() && listed.signature() == self.not_final.as_ref();
        if listed.is_last() && (!may_be_final || known) {
            return;
        }
        let now = Now { mono: self.clock.mono(), wall: self.clock.wall() };
        // The server's last write to it is when it was closed, whenever this process began to look.
        let written = listed.signature().map(|file| i128::from(file.mtime_ns));
        let closed = written.and_then(|ns| Timestamp::from_nanosecond(ns).ok()).unwrap_or(now.wall);
        self.tracker.found(key.clone(), listed.name.clone(), closed.min(now.wall), now);
        let scan = Arc::clone(scan);
        match self.jobs.get_mut(&key) {
            Some(job) => {
                if job.listed.signature() != listed.signature() {
                    job.inspected = None;
                }
                // Once its predecessor is purged, the index no longer tells what it was.
                listed.listed_after = listed.listed_after.or(job.listed.listed_after.take());
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
        let frontiers: Vec<_> = self.chains.values().filter_map(Chain::frontier).collect();
        self.cursor.confirm(&frontiers);
        let bench = Bench {
            archive,
            clock: Arc::clone(&self.clock),
            encrypted: self.settings.encrypted,
            stop: self.stop.clone(),
        };
        self.connected = Some(Connected {
            bench: Arc::new(bench),
            capabilities,
            lease: LeaseTask::start(lease, Arc::clone(&self.clock)),
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
}
