//! The arguments, as scripts rely on them.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::segment::SourceName;

/// Archives closed MySQL and MariaDB binary log segments to object storage, with proof.
#[derive(Debug, Parser)]
#[command(name = "binlog-archiver", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 something is missing or cannot be \
                        verified, 5 another writer, 7 state does not decode. inspect: 1 damaged, not a \
                        binlog or unreadable, 3 encrypted."
)]
pub(super) struct Args {
    /// Configuration file [default: /etc/binlog-archiver/config.toml]
    #[arg(long, global = true, value_name = "FILE", env = crate::config::PATH_VARIABLE, hide_env_values = true)]
    pub(super) config: Option<PathBuf>,

    /// Form of log lines on stderr
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human, env = "BINLOG_ARCHIVER_LOG_FORMAT")]
    pub(super) log_format: LogFormat,

    /// Which log lines: error, warn, info, debug, trace, or a filter such as info,binlog_archiver=debug
    /// [default: info for the daemon, warn otherwise]
    #[arg(long, global = true, value_name = "FILTER", env = "BINLOG_ARCHIVER_LOG")]
    pub(super) log: Option<String>,

    #[command(subcommand)]
    pub(super) command: Command,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Archive closed segments: as a daemon, or once
    Run {
        /// Archive all that is closed now, then exit
        #[arg(long)]
        once: bool,
        /// A dead server's last file too; refused while a process has it open or that cannot be seen
        #[arg(long = "final", requires = "once")]
        last: bool,
        /// Take the lease even where another writer's is fresh: only when that writer is gone for good
        #[arg(long)]
        take_over: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// How far the source is archived, and what is in the way
    Status {
        /// Exit code says how things are: 1 no daemon, trouble or lag; 3 a hole; 0 fine
        #[arg(long)]
        check: bool,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read binlog files whole and say what they hold; needs no configuration
    #[command(after_help = "Exit codes: 0 sound, or not closed by its server; 1 damaged, not a \
                            binlog, or unreadable; 3 encrypted. The worst of several files counts.")]
    Inspect {
        /// Files to read
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check an archive from the bucket alone
    Verify {
        /// Read, decode and hash every payload
        #[arg(long)]
        deep: bool,
        /// Only this source
        #[arg(long, value_name = "NAME")]
        source: Option<SourceName>,
        /// The archive, instead of a configuration: s3://bucket/prefix or file:///folder
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        /// Address of an S3-compatible server, with --store
        #[arg(long, value_name = "URL", requires = "store")]
        endpoint: Option<String>,
        /// Region, with --store
        #[arg(long, requires = "store")]
        region: Option<String>,
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
    /// About the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Read the configuration and name everything that is wrong; contacts nothing
    Check {
        /// Report as JSON
        #[arg(long)]
        json: bool,
    },
}

impl Args {
    /// The form of the report.
    pub(super) const fn json(&self) -> Format {
        let json = match &self.command {
            Command::Run { json, .. }
            | Command::Status { json, .. }
            | Command::Inspect { json, .. }
            | Command::Verify { json, .. }
            | Command::Config { command: ConfigCommand::Check { json } } => *json,
        };
        if json { Format::Json } else { Format::Text }
    }

    /// The log filter where none is given.
    pub(super) const fn default_log(&self) -> &'static str {
        match &self.command {
            Command::Run { once: false, .. } => {
                "info,aws_config=error,aws_runtime=error,aws_smithy_runtime=error,aws_sdk_s3=error"
            }
            Command::Run { .. }
            | Command::Status { .. }
            | Command::Inspect { .. }
            | Command::Verify { .. }
            | Command::Config { .. } => {
                "warn,aws_config=error,aws_runtime=error,aws_smithy_runtime=error,aws_sdk_s3=error"
            }
        }
    }
}
