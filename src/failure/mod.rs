//! What a fault means, and what is done about it.
//!
//! [`classify`] turns a [`Fault`](crate::fault::Fault) into a class, a scope and a cause: a table,
//! which `docs/failures.md` repeats for humans row by row. [`decide`] adds the history: whether others
//! succeed, what the canary said, how long it has lasted. Together they are the only place that
//! judges a fault.
//!
//! **Invariants.** Both are total and pure: the same facts and the same history give the same answer.
//! What is not in the table is permanent, and its scope is the canary's to tell. No fault is retried
//! for ever; and an outage of the store that is shorter than `max_age` ends in no dead letter.

mod cause;
mod classify;
mod codes;
mod decide;
mod history;
mod rule;
mod shapes;
mod statuses;
mod throttle;

pub use cause::Cause;
pub use classify::classify;
pub use decide::{
    Canary, Decision, Failed, LetterClass, Probe, Suspension, SuspensionScope, Trigger, decide,
};
pub use history::{CanaryUse, History, Policy};
pub use rule::{Class, Classified, Grace, Origin, Scope};

#[cfg(test)]
mod classify_tests;
#[cfg(test)]
mod decide_properties;
#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod document_tests;
