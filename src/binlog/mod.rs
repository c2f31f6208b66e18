//! Bytes of binlog files to facts.

pub mod index;
