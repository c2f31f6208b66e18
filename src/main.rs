//! The binary: parse, call, exit.

fn main() {}
