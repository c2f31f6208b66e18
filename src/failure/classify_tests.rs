//! Whole tables, and any fault at all.

use proptest::prelude::*;

use super::document_tests::kinds;
use super::shapes::{Fact, Place};
use super::*;
use crate::fault::{Fault, FaultKind, Operation};

const OPERATIONS: [Operation; 14] = [
    Operation::Connect,
    Operation::Put,
    Operation::CreateMultipart,
    Operation::UploadPart,
    Operation::CompleteMultipart,
    Operation::AbortMultipart,
    Operation::Get,
    Operation::Head,
    Operation::List,
    Operation::ListMultipart,
    Operation::ReadSource,
    Operation::Prove,
    Operation::Commit,
    Operation::Lease,
];

fn answered(code: Option<&str>, status: Option<u16>) -> Fault {
    let mut fault = Fault::new(Operation::Put, FaultKind::Answered, "said no");
    (fault.code, fault.http_status) = (code.map(str::to_owned), status);
    fault
}

fn local(operation: Operation, io: &str) -> Fault {
    let mut fault = Fault::new(operation, FaultKind::LocalIo, "failed");
    fault.io = Some(io.to_owned());
    fault
}

fn short(fault: &Fault) -> (Class, Scope, Cause) {
    let found = classify(fault);
    (found.class, found.scope, found.cause)
}

#[test]
fn each_code_and_each_status_gets_its_own_row() {
    for row in codes::CODES {
        for code in row.codes {
            for status in [None, Some(200), Some(400), Some(403), Some(503)] {
                assert_eq!(classify(&answered(Some(code), status)), row.rule, "{code} {status:?}");
            }
        }
    }
    let mut met = vec![false; statuses::STATUSES.len()];
    for status in 0..=999 {
        let rows = statuses::STATUSES.iter();
        let at = rows.clone().position(|row| {
            row.ranges.iter().any(|(first, last)| (first..=last).contains(&&status))
        });
        let found = classify(&answered(None, Some(status)));
        match at {
            Some(at) => {
                met[at] = true;
                assert_eq!(found, statuses::STATUSES[at].rule, "{status}");
            }
            None => assert_eq!(found, rule::UNKNOWN, "{status}"),
        }
        assert_eq!(at.is_some(), (300..600).contains(&status), "{status}");
    }
    assert_eq!(met, vec![true; met.len()], "a row that no status reaches");
}

#[test]
fn each_shape_is_reached_and_the_last_row_of_a_kind_takes_all() {
    for kind in kinds() {
        let rows = shapes::rows(kind);
        for (at, row) in rows.iter().enumerate() {
            let last = at + 1 == rows.len();
            assert_eq!(last, matches!((row.place, row.fact), (Place::Any, Fact::Any)), "{kind:?}");
            let operation = match row.place {
                Place::Any | Place::Store => Operation::Put,
                Place::SegmentFile => Operation::ReadSource,
                Place::Client => Operation::Connect,
            };
            let mut fault = Fault::new(operation, kind, "x");
            let names: &[&str] = match row.fact {
                Fact::Any => &["?"],
                Fact::Answer => {
                    fault.http_status = Some(200);
                    &["?"]
                }
                Fact::Io(names) | Fact::Code(names) | Fact::CodeHas(names) => names,
            };
            for name in names {
                match row.fact {
                    Fact::Any | Fact::Answer => {}
                    Fact::Io(_) => fault.io = Some((*name).to_owned()),
                    Fact::Code(_) => fault.code = Some((*name).to_owned()),
                    Fact::CodeHas(_) => fault.code = Some(format!("Some({name})")),
                }
                assert_eq!(classify(&fault), row.rule, "{kind:?} {name}");
            }
        }
    }
}

#[test]
fn a_code_counts_before_the_status_and_an_unknown_one_fails_closed() {
    use Class::{Permanent, Transient};
    use Scope::{Destination, NeedsCanary};
    let unknown = (Permanent, NeedsCanary, Cause::Unknown);
    let table = [
        (Some("SlowDown"), Some(200), (Transient, Destination, Cause::Throttled)),
        (Some("AccessDenied"), Some(503), (Permanent, NeedsCanary, Cause::AccessDenied)),
        // Not known, under a status that says that the server is at fault.
        (Some("Mystery"), Some(503), (Transient, Destination, Cause::ServerError)),
        (Some("Mystery"), Some(429), (Transient, Destination, Cause::Throttled)),
        // Not known, and nothing says that it is nothing.
        (Some("Mystery"), Some(404), unknown),
        (Some("Mystery"), Some(403), unknown),
        (Some("Mystery"), Some(501), unknown),
        (Some("Mystery"), Some(200), unknown),
        (Some("Mystery"), None, unknown),
        (None, None, unknown),
        (None, Some(200), unknown),
        (None, Some(999), unknown),
        // Codes are compared whole and with their case.
        (Some("slowdown"), Some(400), unknown),
        (Some("KMS.SomethingNew"), Some(400), (Permanent, Destination, Cause::Kms)),
        (Some("KMS.ThrottlingException"), Some(400), (Transient, Destination, Cause::Throttled)),
    ];
    for (code, status, expected) in table {
        assert_eq!(short(&answered(code, status)), expected, "{code:?} {status:?}");
    }
}

#[test]
fn what_fails_on_this_host_is_never_the_destinations() {
    for io in ["PermissionDenied", "EIO", "EMFILE", "StorageFull", "Uncategorized", "errno 200"] {
        let found = classify(&local(Operation::ReadSource, io));
        assert_eq!(found.origin, Origin::Host, "{io}");
        assert!(matches!(found.scope, Scope::Segment | Scope::Host), "{io}: {found:?}");
    }
    // The same errors of a store that is a folder are.
    let full = short(&local(Operation::Put, "StorageFull"));
    assert_eq!(full, (Class::Permanent, Scope::Destination, Cause::DiskFull));
}

#[test]
fn real_io_errors_have_the_names_that_the_table_knows() {
    use rustix::io::Errno;
    let cases = [
        (Errno::ACCESS, Cause::Permission),
        (Errno::PERM, Cause::Permission),
        (Errno::IO, Cause::LocalIo),
        (Errno::MFILE, Cause::TooManyFiles),
        (Errno::NFILE, Cause::TooManyFiles),
        (Errno::NOMEM, Cause::TooManyFiles),
        (Errno::NOSPC, Cause::DiskFull),
        (Errno::DQUOT, Cause::DiskFull),
        (Errno::ROFS, Cause::DiskFull),
        (Errno::STALE, Cause::LocalIo),
        (Errno::NOENT, Cause::SourceGone),
    ];
    for (errno, cause) in cases {
        let error = std::io::Error::from(errno);
        let fault = Fault::local(Operation::ReadSource, std::path::Path::new("/b/1"), &error);
        assert_eq!(classify(&fault).cause, cause, "{errno:?} is {:?}", fault.io);
    }
    assert_eq!(classify(&local(Operation::ReadSource, "StaleNetworkFileHandle")).tries, Some(5));
}

#[test]
fn retry_after_is_taken_over_within_its_cap() {
    let mut fault = answered(None, Some(503));
    assert_eq!(classify(&fault).retry_after, None);
    fault.retry_after_ms = Some(7_000);
    assert_eq!(classify(&fault).retry_after, Some(std::time::Duration::from_secs(7)));
    fault.retry_after_ms = Some(u64::MAX);
    assert_eq!(classify(&fault).retry_after, Some(std::time::Duration::from_secs(300)));
}

fn some_text(known: Vec<&'static str>) -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        proptest::sample::select(known).prop_map(|text| Some(text.to_owned())),
        "[A-Za-z.]{0,12}".prop_map(Some),
    ]
}

fn some_code() -> impl Strategy<Value = Option<String>> {
    let mut known: Vec<&str> = codes::CODES.iter().flat_map(|row| row.codes).copied().collect();
    for row in kinds().into_iter().flat_map(shapes::rows) {
        match row.fact {
            Fact::Code(names) | Fact::CodeHas(names) => known.extend(names),
            Fact::Any | Fact::Answer | Fact::Io(_) => {}
        }
    }
    some_text(known)
}

fn some_io() -> impl Strategy<Value = Option<String>> {
    let mut known = vec!["Other", "InvalidData"];
    for row in kinds().into_iter().flat_map(shapes::rows) {
        match row.fact {
            Fact::Io(names) => known.extend(names),
            Fact::Any | Fact::Answer | Fact::Code(_) | Fact::CodeHas(_) => {}
        }
    }
    some_text(known)
}

pub(super) fn some_fault() -> impl Strategy<Value = Fault> {
    let kind = proptest::sample::select(kinds());
    let operation = proptest::sample::select(OPERATIONS.to_vec());
    let status =
        prop_oneof![Just(None), any::<u16>().prop_map(Some), (300..600_u16).prop_map(Some)];
    let wait =
        prop_oneof![Just(None), any::<u64>().prop_map(Some), (0..400_000_u64).prop_map(Some)];
    (kind, operation, some_code(), status, some_io(), wait).prop_map(
        |(kind, operation, code, status, io, wait)| {
            let mut fault = Fault::new(operation, kind, "x");
            (fault.code, fault.http_status, fault.io) = (code, status, io);
            fault.retry_after_ms = wait;
            fault
        },
    )
}

proptest! {
    #[test]
    fn every_code_status_and_shape_has_exactly_one_answer(fault in some_fault()) {
        let found = classify(&fault);
        // It is a row of a table or, failing closed, none.
        let mut row = found;
        row.retry_after = None;
        let known = codes::CODES.iter().map(|row| row.rule)
            .chain(statuses::STATUSES.iter().map(|row| row.rule))
            .chain(shapes::rows(fault.kind).iter().map(|row| row.rule))
            .any(|rule| rule == row);
        prop_assert!(known || row == rule::UNKNOWN, "{row:?}");
        prop_assert!(
            found.cause != Cause::Unknown || found.class == Class::Permanent,
            "{found:?}"
        );
        prop_assert!(found.tries.is_none() || found.class == Class::Transient, "{found:?}");
        prop_assert!(!found.throttle || found.cause == Cause::Throttled, "{found:?}");
        // Only what decides does: a text, a key or a request id never.
        let mut other = fault.clone();
        other.message = "SlowDown AccessDenied 503".to_owned();
        (other.key, other.request_id) = (Some("k".to_owned()), Some("r".to_owned()));
        prop_assert_eq!(classify(&other), found);
    }
}
