//! Log lines on stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::args::{Args, LogFormat};

/// Sets the log up. A filter that does not parse falls back to the default and says so.
pub(super) fn init(args: &Args) {
    let default = args.default_log();
    let parsed = args.log.as_deref().map(EnvFilter::try_new);
    let (filter, complaint) = match parsed {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(default), Some(error)),
        None => (EnvFilter::new(default), None),
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_target(false)
        .with_writer(io::stderr);
    // Set once, at the start of the process; a second time changes nothing.
    let set = match args.log_format {
        LogFormat::Human => lines.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(set);
    if let Some(error) = complaint {
        tracing::warn!(%error, "the log filter does not parse; using {default}");
    }
}
