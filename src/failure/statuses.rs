//! What an HTTP status means by itself: proxies answer without a code that a store would give.

use super::cause::Cause;
use super::rule::Scope::{Destination, NeedsCanary, Segment};
use super::rule::{Classified, Grace, permanent, transient};

/// Statuses that mean the same: each a range, both ends included.
pub(super) struct Row {
    pub(super) ranges: &'static [(u16, u16)],
    pub(super) rule: Classified,
}

const fn row(ranges: &'static [(u16, u16)], rule: Classified) -> Row {
    Row { ranges, rule }
}

/// The table. The first row that has the status counts.
pub(super) const STATUSES: &[Row] = &[
    row(
        &[(429, 429), (509, 509), (529, 529)],
        transient(Destination, Cause::Throttled).throttling(),
    ),
    row(&[(408, 408), (425, 425), (499, 499), (504, 504)], transient(Destination, Cause::Timeout)),
    row(&[(501, 501), (505, 505), (508, 508)], permanent(Destination, Cause::Capability)),
    row(&[(507, 507)], permanent(Destination, Cause::Quota)),
    row(&[(407, 407), (511, 511)], permanent(Destination, Cause::Proxy)),
    row(&[(500, 599)], transient(Destination, Cause::ServerError)),
    row(&[(401, 401), (403, 403)], permanent(NeedsCanary, Cause::AccessDenied).grace(Grace::Auth)),
    row(&[(307, 307)], transient(Destination, Cause::Redirect)),
    row(&[(304, 304), (412, 412)], transient(Segment, Cause::Conflict).tries(3)),
    row(&[(300, 399), (404, 405), (410, 410)], permanent(Destination, Cause::Endpoint)),
    row(&[(409, 409)], transient(Segment, Cause::Contention).tries(5)),
    row(&[(411, 411)], permanent(Destination, Cause::Capability)),
    row(&[(413, 413)], permanent(Segment, Cause::TooLarge)),
    row(&[(414, 414), (431, 431)], permanent(Segment, Cause::BadKey)),
    row(&[(400, 499)], permanent(NeedsCanary, Cause::BadRequest)),
];

/// What a status means, if it is an error's.
pub(super) fn find(status: u16) -> Option<Classified> {
    let within = |&(first, last): &(u16, u16)| (first..=last).contains(&status);
    STATUSES.iter().find(|row| row.ranges.iter().any(within)).map(|row| row.rule)
}
