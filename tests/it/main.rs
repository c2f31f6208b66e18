//! Tests on the real binary and on real servers. One binary, a module a topic.
//!
//! Servers are fetched and started by the scripts of `tests/services`. One that cannot be had
//! fails the test that needs it: nothing is skipped.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod archive;
mod binlog;
mod cli;
mod common;
mod cursor;
mod daemon;
mod harness;
mod incarnations;
mod memory;
mod site;
mod soak;
mod store_cases;
mod store_contract;
mod store_s3;
mod store_wire;
mod systemd;
