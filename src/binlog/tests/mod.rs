//! The walk on made-up and on mutated bytes.

mod build;
mod hostile;
mod shapes;
