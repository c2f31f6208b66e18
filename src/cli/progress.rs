//! Progress bars: on stderr, and only at a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

use crate::command::Watcher;

/// A bar over the segments of a run; `None` where nobody would see it.
pub(super) fn segments() -> Option<Watcher> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} segments, {elapsed}") {
        bar.set_style(style);
    }
    Some(Box::new(move |snapshot| {
        bar.set_length(snapshot.archived.saturating_add(snapshot.pending_total));
        bar.set_position(snapshot.archived);
    }))
}

/// A counter without an end; hidden where nobody would see it.
pub(super) fn counter(what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar
}
