//! `inspect`: what one full read of a binlog file tells. Needs no configuration.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::text::{escape, size};
use super::{CommandError, Exit, Report};
use crate::binlog::{self, Inspection, Verdict};
use crate::gtid::Flavor;
use crate::segment::{Checksum, Digest, Ending};

/// What was found in each file.
#[derive(Debug, Serialize)]
pub struct InspectReport {
    files: Vec<Inspected>,
    /// Files that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

#[derive(Debug, Serialize)]
struct Unreadable {
    file: PathBuf,
    message: String,
}

#[derive(Debug, Serialize)]
struct Inspected {
    file: PathBuf,
    name: String,
    size: u64,
    sha256: Digest,
    flavor: Option<Flavor>,
    server_version: Option<String>,
    checksum: Option<Checksum>,
    previous_gtids: Option<String>,
    gtids: Option<String>,
    transactions: Option<u64>,
    anonymous_transactions: Option<u64>,
    events: u64,
    incidents: u64,
    first_event_at: Option<Timestamp>,
    last_event_at: Option<Timestamp>,
    last_commit_at: Option<Timestamp>,
    ending: Option<Ending>,
    in_use: Option<bool>,
    created_at_startup: Option<bool>,
    next_segment: Option<String>,
    key_id: Option<String>,
    verdict: Verdict,
    valid_up_to: u64,
    warnings: Vec<String>,
    error: Option<Damage>,
}

#[derive(Debug, Serialize)]
struct Damage {
    code: String,
    offset: u64,
    message: String,
}

/// Reads each file whole.
///
/// # Errors
/// None for what a file holds; one that cannot be read is part of the report.
pub fn inspect(files: Vec<PathBuf>) -> Result<InspectReport, CommandError> {
    let mut report = InspectReport { files: Vec::new(), unreadable: Vec::new() };
    for file in files {
        match open_regular(&file).and_then(binlog::inspect) {
            Ok(facts) => report.files.push(describe(file, facts)),
            Err(error) => {
                report.unreadable.push(Unreadable { file, message: error.to_string() });
            }
        }
    }
    Ok(report)
}

/// Opening a pipe would wait for its writer, and a device may have no end.
fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

fn describe(file: PathBuf, facts: Inspection) -> Inspected {
    let second = |at: Option<u32>| at.and_then(|at| Timestamp::from_second(at.into()).ok());
    let micro =
        |at: u64| i64::try_from(at).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    let readable = facts.coverage.readable;
    Inspected {
        name: file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        file,
        size: facts.size,
        sha256: facts.digest,
        flavor: facts.flavor,
        server_version: facts.server_version,
        checksum: facts.checksum,
        previous_gtids: facts.coverage.previous.map(|set| set.to_string()),
        gtids: facts.coverage.added.or(facts.added_before_damage).map(|set| set.to_string()),
        transactions: facts.transactions,
        anonymous_transactions: readable.then_some(facts.coverage.anonymous_transactions),
        events: facts.events,
        incidents: facts.incidents,
        first_event_at: second(facts.first_event_at),
        last_event_at: second(facts.last_event_at),
        last_commit_at: facts.last_commit_at.and_then(micro),
        ending: facts.ending,
        in_use: facts.in_use,
        created_at_startup: facts.created_at_startup,
        next_segment: facts.next_segment,
        key_id: facts.key_id,
        verdict: facts.verdict,
        valid_up_to: facts.valid_up_to,
        warnings: facts.warnings,
        error: facts.error.map(|damage| Damage {
            code: damage.code.to_string(),
            offset: damage.offset,
            message: damage.message,
        }),
    }
}

impl Report for InspectReport {
    fn text(&self) -> String {
        let mut out = String::new();
        for file in &self.files {
            out.push_str(&file.text());
        }
        for file in &self.unreadable {
            out.push_str(&format!(
                "{}: cannot be read: {}\n",
                escape(&file.file.display().to_string()),
                escape(&file.message)
            ));
        }
        out
    }

    fn exit(&self) -> Exit {
        let worst = |verdicts: &[Verdict]| self.files.iter().any(|f| verdicts.contains(&f.verdict));
        if !self.unreadable.is_empty() || worst(&[Verdict::Damaged, Verdict::NotABinlog]) {
            Exit::Failed
        } else if worst(&[Verdict::Encrypted]) {
            Exit::Missing
        } else {
            Exit::Done
        }
    }
}

impl Inspected {
    fn text(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Sound => "sound",
            Verdict::Unclosed => {
                "unclosed: sound up to its last whole event, but its server did not close it"
            }
            Verdict::Damaged => "DAMAGED",
            Verdict::Encrypted => "encrypted: its contents cannot be verified",
            Verdict::NotABinlog => "NOT A BINLOG",
        };
        let mut out = format!("{}: {verdict}\n", escape(&self.file.display().to_string()));
        let mut line = |label: &str, value: String| {
            out.push_str(&format!("  {label:<16}{}\n", escape(&value)));
        };
        line("size", format!("{} ({} bytes)", size(self.size), self.size));
        line("sha256", self.sha256.to_string());
        if let Some(version) = &self.server_version {
            let checksum = match self.checksum {
                Some(Checksum::Crc32) => "crc32",
                Some(Checksum::None) => "none",
                None => "unknown",
            };
            let flavor = self.flavor.map(|flavor| flavor.to_string()).unwrap_or_default();
            line("server", format!("{flavor} {version}, checksum {checksum}"));
        }
        if let Some(key) = &self.key_id {
            line("key", key.clone());
        }
        line("previous gtids", shown(self.previous_gtids.as_deref()));
        line("gtids", shown(self.gtids.as_deref()));
        if let Some(transactions) = self.transactions {
            let anonymous = self.anonymous_transactions.unwrap_or_default();
            line(
                "transactions",
                format!("{transactions} ({anonymous} without a GTID), {} events", self.events),
            );
        }
        if self.incidents > 0 {
            line(
                "incidents",
                format!("{}: the server says that changes may be missing", self.incidents),
            );
        }
        if let (Some(first), Some(last)) = (self.first_event_at, self.last_event_at) {
            line("events from", format!("{first} to {last}"));
        }
        if let Some(next) = &self.next_segment {
            line("next segment", next.clone());
        }
        for warning in &self.warnings {
            line("warning", warning.clone());
        }
        if let Some(error) = &self.error {
            line("error", format!("{} at offset {}: {}", error.code, error.offset, error.message));
        }
        out
    }
}

fn shown(set: Option<&str>) -> String {
    match set {
        None => "not known".to_owned(),
        Some("") => "none".to_owned(),
        Some(set) => set.to_owned(),
    }
}
