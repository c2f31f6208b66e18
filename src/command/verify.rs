//! `verify`: checks an archive from the bucket alone.

use std::path::Path;

use serde::Serialize;

use super::open::open_for_reading;
use super::text::escape;
use super::{CommandError, Exit, Report, StoreFlags};
use crate::archive::{Depth, Problem, ProblemKind, check_source, list_sources};
use crate::segment::SourceName;

/// What to verify.
#[derive(Debug)]
pub struct VerifyFlags {
    /// Where, without a configuration.
    pub store: StoreFlags,
    /// How deep.
    pub depth: Depth,
    /// One source; all of the store otherwise.
    pub source: Option<SourceName>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// Manifests checked.
    checked: u64,
    /// Below the floor: expired by the bucket's lifecycle.
    expired: u64,
    /// A live daemon may still archive them.
    in_flight: u64,
    /// Whether every payload was read.
    deep: bool,
    sources: Vec<SourceName>,
    problems: Vec<Problem>,
}

/// Checks. `progress` is told of each manifest done.
///
/// # Errors
/// When the store cannot be read, or has no such source.
pub async fn verify(
    config: Option<&Path>,
    flags: VerifyFlags,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<VerifyReport, CommandError> {
    let (store, _) = open_for_reading(config, &flags.store).await?;
    let all = list_sources(store.as_ref()).await?;
    let sources = match flags.source {
        Some(source) if all.contains(&source) => vec![source],
        Some(source) => {
            let known: Vec<&str> = all.iter().map(SourceName::as_str).collect();
            return Err(CommandError::failed(format!(
                "{} has no source {source}; it has: {}",
                store.describe(),
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        }
        None if all.is_empty() => {
            return Err(CommandError::failed(format!(
                "{} has no archive: nothing under index/; is the prefix right?",
                store.describe()
            )));
        }
        None => all,
    };
    let mut report = VerifyReport {
        checked: 0,
        expired: 0,
        in_flight: 0,
        deep: flags.depth == Depth::Deep,
        sources,
        problems: Vec::new(),
    };
    for source in &report.sources {
        let found = check_source(store.as_ref(), source, flags.depth, progress).await?;
        report.checked += found.checked;
        report.expired += found.expired;
        report.in_flight += found.in_flight;
        report.problems.extend(found.problems);
    }
    Ok(report)
}

impl Report for VerifyReport {
    fn text(&self) -> String {
        let mut out = String::new();
        for problem in &self.problems {
            let kind = match problem.kind {
                ProblemKind::PayloadMissing => "payload-missing",
                ProblemKind::ManifestMissing => "manifest-missing",
                ProblemKind::Damaged => "damaged",
                ProblemKind::Suspect => "suspect",
            };
            out.push_str(&format!(
                "{kind}: {} {} {}: {}\n",
                problem.source,
                problem.incarnation,
                escape(&problem.segment),
                escape(&problem.detail)
            ));
        }
        let how = if self.deep {
            "every payload read, decoded and hashed"
        } else {
            "listings and manifests only; --deep reads every payload"
        };
        out.push_str(&format!("{} segments checked ({how})", self.checked));
        if self.expired > 0 {
            out.push_str(&format!(", {} expired below the floor", self.expired));
        }
        if self.in_flight > 0 {
            out.push_str(&format!(", {} in flight", self.in_flight));
        }
        if self.checked == 0 {
            out.push_str(", NOTHING IS COMMITTED: no manifest was found");
        }
        out.push_str(&match self.problems.len() {
            0 if self.checked == 0 => "\n".to_owned(),
            0 => ", no problem found\n".to_owned(),
            1 => ", 1 PROBLEM\n".to_owned(),
            count => format!(", {count} PROBLEMS\n"),
        });
        out
    }

    fn exit(&self) -> Exit {
        if self.problems.is_empty() { Exit::Done } else { Exit::Missing }
    }
}
