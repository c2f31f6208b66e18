//! Archives closed MySQL and MariaDB binary log segments to object storage, with proof.
//!
//! The modules are floors: a lower one knows nothing of a higher one. `docs/architecture.md`
//! holds the floors, and `tests/architecture.rs` fails on an import that climbs.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods
    )
)]

pub mod archive;
pub mod binlog;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod control;
pub mod failure;
pub mod fault;
pub mod gtid;
pub mod pipeline;
pub mod progress;
pub mod segment;
pub mod source;
pub mod status;
pub mod store;
pub mod sys;
