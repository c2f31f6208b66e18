//! `status`: how far the source is archived, and what is in the way.

use std::path::Path;
use std::sync::Arc;

use super::open::{open, source_name, source_paths, start};
use super::text::escape;
use super::{CommandError, Exit, Report, load_config};
use crate::archive::Archive;
use crate::clock::RealClock;
use crate::control::{self, Answer, ControlError, Request};
use crate::pipeline::snapshot::{Cursor, Pending, PendingState, Why};
use crate::progress::CursorFile;
use crate::source::{Scanner, SourceDir};
use crate::status::{Daemon, StatusReport, offline};

/// How `status` answers.
#[derive(Debug, Clone, Copy)]
pub enum StatusFlags {
    /// Code 0 whenever there is an answer.
    Show,
    /// `--check`: a code that says how things are.
    Check,
}

/// The report, and how it is judged.
#[derive(Debug, serde::Serialize)]
pub struct Shown {
    #[serde(flatten)]
    report: StatusReport,
    #[serde(skip)]
    check: Option<u64>,
}

/// Asks the daemon; where none runs, reads the bucket, the state directory and the index.
///
/// # Errors
/// When neither can be read.
pub async fn status(path: Option<&Path>, flags: StatusFlags) -> Result<Shown, CommandError> {
    let config = load_config(path)?;
    let check = match flags {
        StatusFlags::Show => None,
        StatusFlags::Check => Some(config.limits.lag.as_secs()),
    };
    match control::ask(&config.control.socket, &Request::Status).await {
        Ok(Answer::Done { report }) => {
            let report = serde_json::from_value(report).map_err(|error| {
                CommandError::failed(format!(
                    "the daemon's answer does not decode: {error}; is it another version?"
                ))
            })?;
            return Ok(Shown { report, check });
        }
        Ok(Answer::Refused { message }) => return Err(CommandError::failed(message)),
        Err(ControlError::NoDaemon { .. }) => {}
        Err(error @ (ControlError::Denied { .. } | ControlError::Broken { .. })) => {
            return Err(CommandError::failed(error.to_string()));
        }
    }
    let (source, _) = source_name(&config)?;
    let durable = CursorFile::load(&config.state.dir, &source)?;
    let dir = SourceDir::new(source_paths(&config), Arc::new(RealClock::new()));
    // Without the binlogs the archive still tells how far it goes.
    let scan = Scanner::new(dir).scan().await.ok();
    let store = open(&config.store, &config.upload).await?;
    let archive = Arc::new(Archive::read_only(store, source));
    let snapshot = offline(archive, durable, scan, &start(&config)).await?;
    Ok(Shown { report: StatusReport { daemon: Daemon::Stopped, snapshot }, check })
}

impl Report for Shown {
    fn text(&self) -> String {
        text(&self.report)
    }

    fn exit(&self) -> Exit {
        let Some(lag_most) = self.check else { return Exit::Done };
        let snapshot = &self.report.snapshot;
        let works = self.report.daemon == Daemon::Running && snapshot.troubles.is_empty();
        if !works || snapshot.lag_seconds > lag_most {
            Exit::Failed
        } else if snapshot.holes.is_empty() {
            Exit::Done
        } else {
            Exit::Missing
        }
    }
}

/// The report for humans; also what `run --once` ends with.
pub(super) fn text(report: &StatusReport) -> String {
    let snapshot = &report.snapshot;
    let mut out = String::new();
    let mut line = |label: &str, value: String| {
        out.push_str(&format!("{label:<10}{}\n", escape(&value)));
    };
    let daemon = match report.daemon {
        Daemon::Running => "running",
        Daemon::Stopped => "not running",
    };
    line("source", format!("{}, daemon {daemon}", snapshot.source));
    line("store", snapshot.store.clone());
    line("cursor", cursor(snapshot.cursor.as_ref()));
    if let Some(gtids) = snapshot.cursor.as_ref().and_then(|cursor| cursor.gtids.as_ref()) {
        line("", format!("GTIDs up to there: {}", if gtids.is_empty() { "none" } else { gtids }));
    }
    let floor =
        snapshot.floor.map_or_else(String::new, |floor| format!(", floor at number {floor}"));
    line("archived", format!("{}{floor}", segments(snapshot.archived)));
    if let Some(active) = &snapshot.active {
        line("active", format!("{active} (archived once the server closes it)"));
    }
    if snapshot.unverified_links > 0 {
        let note = "links between segments that no GTID set confirms (no GTIDs, or encrypted)";
        line("note", format!("{} {note}", snapshot.unverified_links));
    }
    for run in &snapshot.ahead {
        let (first, last) = (run.first, run.last);
        line(
            "ahead",
            format!(
                "{} beyond the cursor, {} {first} to {last}",
                segments(run.segments),
                run.incarnation
            ),
        );
    }
    for hole in &snapshot.holes {
        let why = match hole.why {
            Why::Purged => "purged before it was archived",
            Why::Contradicted => "the files on either side contradict each other",
            Why::Unknown => "cause not known",
        };
        let gtids =
            hole.gtids.as_ref().map_or_else(String::new, |gtids| format!(", GTIDs {gtids}"));
        line("HOLE", format!("{} {} to {}{gtids}: {why}", hole.incarnation, hole.first, hole.last));
    }
    line(
        "pending",
        match snapshot.pending_total {
            0 => "nothing".to_owned(),
            total if report.daemon == Daemon::Stopped => segments(total),
            total => format!("{}, the oldest for {} s", segments(total), snapshot.lag_seconds),
        },
    );
    for pending in &snapshot.pending {
        line("", one(pending));
    }
    for trouble in &snapshot.troubles {
        line("TROUBLE", format!("{} since {}: {}", trouble.what, trouble.since, trouble.message));
    }
    out
}

fn cursor(cursor: Option<&Cursor>) -> String {
    cursor.map_or_else(
        || "none: the chain's first segment is not archived, or this host's state is lost and no daemon \
            has built it again"
            .to_owned(),
        |cursor| {
            format!(
                "{} (incarnation {}, chain from {})",
                cursor.segment, cursor.incarnation, cursor.from
            )
        },
    )
}

fn segments(count: u64) -> String {
    if count == 1 { "1 segment".to_owned() } else { format!("{count} segments") }
}

fn one(pending: &Pending) -> String {
    let state = match pending.state {
        PendingState::Closed => "waiting",
        PendingState::InFlight => "in flight",
        PendingState::BackingOff => "backing off",
        PendingState::Held => "held",
    };
    let mut text = format!("{} {state}", pending.segment);
    if pending.attempts > 0 {
        let tries = if pending.attempts == 1 { "try" } else { "tries" };
        text.push_str(&format!(", {} {tries}", pending.attempts));
    }
    if let Some(next) = pending.next_attempt_at {
        text.push_str(&format!(", next {next}"));
    }
    if let (Some(class), Some(cause)) = (pending.class, pending.cause) {
        text.push_str(&format!(", {class}, {cause}"));
    }
    if let Some(error) = &pending.error {
        text.push_str(&format!(": {error}"));
    }
    text
}
