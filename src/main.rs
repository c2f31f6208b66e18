//! The binary: parse, call, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    binlog_archiver::cli::main()
}
