//! What faults mean that are no answer of a store: the road to it, credentials, this host, the
//! segment itself.

use super::cause::Cause;
use super::rule::Scope::{Destination, Host, NeedsCanary, Segment, Source};
use super::rule::{Classified, Grace, Origin, UNKNOWN, permanent, transient};
use crate::fault::{Fault, FaultKind, Operation};

/// Which fact tells rows of one kind apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fact {
    /// None: the last row of each kind.
    Any,
    /// The I/O error's name.
    Io(&'static [&'static str]),
    /// The code.
    Code(&'static [&'static str]),
    /// What the code contains.
    CodeHas(&'static [&'static str]),
    /// That there was an answer.
    Answer,
}

/// Which steps a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// All of them.
    Any,
    /// Reading the segment's own file.
    SegmentFile,
    /// Making the client.
    Client,
    /// All that is done to the store.
    Store,
}

const fn place(operation: Operation) -> Place {
    match operation {
        Operation::ReadSource => Place::SegmentFile,
        Operation::Connect => Place::Client,
        Operation::Put
        | Operation::CreateMultipart
        | Operation::UploadPart
        | Operation::CompleteMultipart
        | Operation::AbortMultipart
        | Operation::Get
        | Operation::Head
        | Operation::List
        | Operation::ListMultipart
        | Operation::Prove
        | Operation::Commit
        | Operation::Lease => Place::Store,
    }
}

/// Facts that mean the same.
pub(super) struct Row {
    pub(super) place: Place,
    pub(super) fact: Fact,
    pub(super) rule: Classified,
}

const fn row(fact: Fact, rule: Classified) -> Row {
    Row { place: Place::Any, fact, rule }
}

const fn at(place: Place, fact: Fact, rule: Classified) -> Row {
    Row { place, fact, rule }
}

const fn road(rule: Classified) -> Classified {
    rule.from(Origin::Road)
}

const fn local(rule: Classified) -> Classified {
    rule.from(Origin::Host)
}

const fn archive(rule: Classified) -> Classified {
    rule.from(Origin::Archive)
}

const DESCRIPTORS: Fact = Fact::Io(&["EMFILE", "ENFILE", "OutOfMemory"]);
const NO_ROOM: Fact = Fact::Io(&["StorageFull", "QuotaExceeded", "ReadOnlyFilesystem"]);
const DENIED: Fact = Fact::Io(&["PermissionDenied"]);
const DAMAGED_DISK: Fact = Fact::Io(&["EIO"]);
const STALE: Fact = Fact::Io(&["StaleNetworkFileHandle"]);

const TOO_MANY: Classified = local(transient(Host, Cause::TooManyFiles));

const TRANSPORT: &[Row] = &[
    row(Fact::Io(&["Dns"]), road(transient(Destination, Cause::Dns))),
    row(
        Fact::Io(&["ConnectionClosed", "UnexpectedEof"]),
        road(transient(Segment, Cause::Connection)),
    ),
    row(Fact::Io(&["TimedOut"]), road(transient(Destination, Cause::Timeout))),
    row(DESCRIPTORS, TOO_MANY),
    row(
        Fact::Io(&[
            "ConnectionRefused",
            "ConnectionReset",
            "ConnectionAborted",
            "BrokenPipe",
            "NotConnected",
            "HostUnreachable",
            "NetworkUnreachable",
            "NetworkDown",
            "AddrNotAvailable",
        ]),
        road(transient(Destination, Cause::Connection)),
    ),
    row(Fact::Any, road(transient(Destination, Cause::Connection))),
];

const TLS: &[Row] = &[
    row(
        Fact::CodeHas(&["InvalidContentType", "InvalidMessage"]),
        road(permanent(Destination, Cause::Tls)),
    ),
    row(Fact::Any, road(permanent(Destination, Cause::Tls).grace(Grace::Auth))),
];

const CREDENTIALS: &[Row] = &[
    row(
        Fact::Code(&["CredentialsNotLoaded", "ProviderError", "ProviderTimedOut"]),
        road(permanent(Destination, Cause::Credentials).grace(Grace::Credentials)),
    ),
    row(
        Fact::Code(&["ProviderRefused", "InvalidConfiguration", "Unhandled"]),
        road(permanent(Destination, Cause::Credentials)),
    ),
    row(Fact::Any, road(permanent(Destination, Cause::Credentials))),
];

const CONSTRUCTION: &[Row] = &[
    row(Fact::Code(&["NoRegion"]), road(permanent(Destination, Cause::Configuration))),
    at(Place::Client, Fact::Any, road(permanent(Destination, Cause::Configuration))),
    row(Fact::Any, road(permanent(NeedsCanary, Cause::BadRequest))),
];

const LOCAL_IO: &[Row] = &[
    row(DESCRIPTORS, TOO_MANY),
    at(Place::SegmentFile, DENIED, local(permanent(Host, Cause::Permission))),
    at(Place::SegmentFile, NO_ROOM, local(permanent(Host, Cause::DiskFull))),
    at(Place::SegmentFile, DAMAGED_DISK, local(transient(Segment, Cause::LocalIo).tries(2))),
    at(Place::SegmentFile, STALE, local(transient(Segment, Cause::LocalIo).tries(5))),
    at(Place::SegmentFile, Fact::Any, local(transient(Segment, Cause::LocalIo).tries(2))),
    // From here on: a store that is a folder.
    row(DENIED, permanent(Destination, Cause::Permission)),
    row(NO_ROOM, permanent(Destination, Cause::DiskFull)),
    row(Fact::Io(&["InvalidFilename"]), permanent(Segment, Cause::BadKey)),
    row(DAMAGED_DISK, transient(Destination, Cause::LocalIo).tries(2)),
    row(STALE, transient(Destination, Cause::LocalIo).tries(5)),
    row(Fact::Any, transient(Destination, Cause::LocalIo).tries(3)),
];

const REFUSED: &[Row] = &[
    row(Fact::Code(&["encrypted"]), local(permanent(Source, Cause::Encrypted))),
    row(Fact::Code(&["page-format"]), local(permanent(Source, Cause::PageFormat))),
    row(Fact::Code(&["still-open"]), local(permanent(Segment, Cause::StillOpen))),
    row(Fact::Any, local(permanent(Source, Cause::Unknown))),
];

const UNDECODABLE: &[Row] = &[
    row(Fact::Answer, transient(Destination, Cause::Undecodable).tries(3)),
    row(Fact::Any, archive(permanent(NeedsCanary, Cause::Undecodable))),
];

const OTHER: &[Row] =
    &[at(Place::SegmentFile, Fact::Any, local(UNKNOWN)), row(Fact::Any, road(UNKNOWN))];

/// The rows of a kind. The last one of each has [`Fact::Any`], so that one always answers.
pub(super) const fn rows(kind: FaultKind) -> &'static [Row] {
    match kind {
        // Code and status were asked before; what is left says nothing.
        FaultKind::Answered => const { &[row(Fact::Any, UNKNOWN)] },
        FaultKind::AlreadyExists | FaultKind::PreconditionFailed => {
            const { &[row(Fact::Any, transient(Segment, Cause::Conflict).tries(3))] }
        }
        FaultKind::NotFound => {
            const { &[row(Fact::Any, archive(permanent(NeedsCanary, Cause::ArchiveDamaged)))] }
        }
        FaultKind::Unproven => {
            const { &[row(Fact::Any, transient(NeedsCanary, Cause::Unproven).tries(3))] }
        }
        FaultKind::Transport => TRANSPORT,
        FaultKind::Tls => TLS,
        FaultKind::Timeout => {
            const { &[row(Fact::Any, road(transient(Destination, Cause::Timeout)))] }
        }
        FaultKind::Credentials => CREDENTIALS,
        FaultKind::Construction => CONSTRUCTION,
        FaultKind::LocalIo => LOCAL_IO,
        FaultKind::SourceChanged => {
            const { &[row(Fact::Any, local(transient(Segment, Cause::SourceChanged).tries(3)))] }
        }
        FaultKind::SourceGone => {
            const { &[row(Fact::Any, local(permanent(Segment, Cause::SourceGone)))] }
        }
        FaultKind::SourceDamaged => {
            const { &[row(Fact::Any, local(permanent(Segment, Cause::SourceDamaged)))] }
        }
        FaultKind::SourceRefused => REFUSED,
        FaultKind::Damaged => {
            const { &[row(Fact::Any, permanent(Segment, Cause::ArchiveDamaged))] }
        }
        FaultKind::Conflict => {
            const { &[row(Fact::Any, archive(permanent(Segment, Cause::Conflict)))] }
        }
        FaultKind::LeaseLost => {
            const { &[row(Fact::Any, archive(permanent(Source, Cause::LeaseLost)))] }
        }
        FaultKind::Undecodable => UNDECODABLE,
        FaultKind::Other => OTHER,
    }
}

/// What a fault means by its kind. The first row that fits counts.
pub(super) fn find(fault: &Fault) -> Classified {
    let here = place(fault.operation);
    let (io, code) = (fault.io.as_deref(), fault.code.as_deref());
    let fits = |row: &Row| {
        let placed = row.place == Place::Any || row.place == here;
        placed
            && match row.fact {
                Fact::Any => true,
                Fact::Io(names) => io.is_some_and(|io| names.contains(&io)),
                Fact::Code(codes) => code.is_some_and(|code| codes.contains(&code)),
                Fact::CodeHas(parts) => {
                    code.is_some_and(|code| parts.iter().any(|part| code.contains(part)))
                }
                Fact::Answer => fault.http_status.is_some(),
            }
    };
    rows(fault.kind).iter().find(|row| fits(row)).map_or(UNKNOWN, |row| row.rule)
}
