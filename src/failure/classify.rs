//! What a fault means by itself: tables, asked in one order.
//!
//! Of an answer the code counts before the status, and either before what the connector says: proxies
//! answer with a status and no code, and a success may carry an error's code.

use std::time::Duration;

use super::rule::{Class, Classified, UNKNOWN};
use super::{codes, shapes, statuses};
use crate::fault::{Fault, FaultKind};

/// Longest wait that a store's Retry-After is followed for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// What a fault means by itself: total, and from its facts alone.
#[must_use]
pub fn classify(fault: &Fault) -> Classified {
    let mut found = match fault.kind {
        FaultKind::Answered => answered(fault),
        FaultKind::AlreadyExists
        | FaultKind::PreconditionFailed
        | FaultKind::NotFound
        | FaultKind::Unproven
        | FaultKind::Transport
        | FaultKind::Tls
        | FaultKind::Timeout
        | FaultKind::Credentials
        | FaultKind::Construction
        | FaultKind::LocalIo
        | FaultKind::SourceChanged
        | FaultKind::SourceGone
        | FaultKind::SourceDamaged
        | FaultKind::SourceRefused
        | FaultKind::Damaged
        | FaultKind::Conflict
        | FaultKind::LeaseLost
        | FaultKind::Undecodable
        | FaultKind::Other => shapes::find(fault),
    };
    let asked = fault.retry_after_ms.map(Duration::from_millis);
    found.retry_after = asked.map(|wait| wait.min(RETRY_AFTER_MAX));
    found
}

/// A code that is not known leaves the decision to the status only where that one says that the
/// server failed or is busy: of all else it is not known what it means.
fn answered(fault: &Fault) -> Classified {
    let by_code = fault.code.as_deref().map(codes::find);
    let by_status = fault.http_status.and_then(statuses::find);
    match (by_code, by_status) {
        (Some(Some(known)), _) => known,
        (Some(None), Some(status)) if status.class == Class::Transient => status,
        (Some(None), Some(_) | None) => UNKNOWN,
        (None, Some(status)) => status,
        (None, None) => shapes::find(fault),
    }
}
