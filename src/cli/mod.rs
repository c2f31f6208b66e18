//! The command line: arguments in, text or JSON out, and the exit code.
//!
//! **Invariants.** The only module that prints. Reports go to stdout, logs and errors to stderr.

mod args;
mod logging;
mod progress;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::archive::{Depth, TakeOver};
use crate::command::{
    self, CommandError, Exit, Report, RunFlags, StatusFlags, StoreFlags, VerifyFlags,
};
use crate::pipeline::Mode;
use args::{Args, Command, ConfigCommand, Format, LogFormat};

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // A closed pipe is no failure of ours.
            drop(error.print());
            return ExitCode::from(code.code());
        }
    };
    logging::init(&args);
    let log = args.log_format;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return fail(log, &CommandError::failed(format!("start the runtime: {error}")));
        }
    };
    let json = args.json();
    let code = match runtime.block_on(dispatch(args)) {
        Ok(report) => match show(report.as_ref(), json) {
            Ok(()) => ExitCode::from(report.exit().code()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                ExitCode::from(report.exit().code())
            }
            Err(error) => fail(log, &CommandError::failed(format!("write the report: {error}"))),
        },
        Err(error) => fail(log, &error),
    };
    // A read of a large file may still run; nothing waits for it.
    runtime.shutdown_background();
    code
}

async fn dispatch(args: Args) -> Result<Box<dyn Report>, CommandError> {
    let config = args.config.as_deref();
    Ok(match args.command {
        Command::Run { once, last, take_over, json: _ } => {
            let mode = match (once, last) {
                (_, true) => Mode::OnceFinal,
                (true, false) => Mode::Once,
                (false, false) => Mode::Daemon,
            };
            let take_over = if take_over { TakeOver::Now } else { TakeOver::WhenStale };
            let bar = if once { progress::segments() } else { None };
            Box::new(command::run(config, RunFlags { mode, take_over }, bar).await?)
        }
        Command::Status { check, json: _ } => {
            let flags = if check { StatusFlags::Check } else { StatusFlags::Show };
            Box::new(command::status(config, flags).await?)
        }
        Command::Inspect { files, json: _ } => Box::new(command::inspect(files)?),
        Command::Verify { deep, source, store, endpoint, region, json: _ } => {
            let flags = VerifyFlags {
                store: StoreFlags { url: store, endpoint, region },
                depth: if deep { Depth::Deep } else { Depth::Listed },
                source,
            };
            let bar = progress::counter("segments verified");
            Box::new(command::verify(config, flags, &|count| bar.inc(count)).await?)
        }
        Command::Config { command: ConfigCommand::Check { json: _ } } => {
            Box::new(command::config_check(config)?)
        }
    })
}

fn show(report: &dyn Report, json: Format) -> io::Result<()> {
    let text = match json {
        Format::Text => report.text(),
        Format::Json => {
            let mut text = serde_json::to_string_pretty(&report.json()?)?;
            text.push('\n');
            text
        }
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn fail(log: LogFormat, error: &CommandError) -> ExitCode {
    match log {
        // Whoever reads the log by program reads this line too.
        LogFormat::Json if tracing::enabled!(tracing::Level::ERROR) => {
            tracing::error!(code = error.exit.code(), "{}", error.message);
        }
        // A filter that leaves errors out does not make a failure silent.
        LogFormat::Json => {
            let (level, code) = ("ERROR", error.exit.code());
            let line =
                serde_json::json!({ "level": level, "message": error.message, "code": code });
            drop(writeln!(io::stderr(), "{line}"));
        }
        LogFormat::Human => print_error(error),
    }
    ExitCode::from(error.exit.code())
}

fn print_error(error: &CommandError) {
    let mut err = io::stderr().lock();
    let (red, plain) =
        if io::stderr().is_terminal() { ("\u{1b}[31m", "\u{1b}[0m") } else { ("", "") };
    let lines: Vec<String> = error.message.lines().map(command::escape).collect();
    // Nowhere is left to complain that stderr is closed.
    drop(writeln!(err, "{red}error{plain}: {}", lines.join("\n")));
}
