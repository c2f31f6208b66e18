//! Turns what the SDK returns into facts.
//!
//! The SDK's own flags lie: a bad certificate is "I/O", failing credentials are "other", a body
//! that could not be read is a dispatch failure. So: code before status, status before transport,
//! and in transport the causes, from the outermost in, before the flags.
//!
//! **Invariants.** Only headers and bodies of *answers* are taken over, never of requests.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use aws_smithy_types::retry::ErrorKind;

use super::pace::wall;
use crate::fault::{Fault, FaultKind, Operation, TEXT_MAX, io_name};

/// Longest chain of causes that is walked.
const CAUSES_MAX: usize = 32;

/// An error and its causes. `io::Error` hides the error it wraps from `source`; it is shown here.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut found: Vec<&'a (dyn Error + 'static)> = Vec::new();
    let mut next: Option<&'a (dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if found.len() == CAUSES_MAX {
            break;
        }
        found.push(error);
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    found
}

fn find<'a, T: Error + 'static>(causes: &[&'a (dyn Error + 'static)]) -> Option<&'a T> {
    causes.iter().find_map(|cause| cause.downcast_ref())
}

/// The causes as one line; a cause that only repeats the one before is left out.
fn chain_text(causes: &[&(dyn Error + 'static)]) -> String {
    let mut text = String::new();
    for cause in causes {
        let one = cause.to_string();
        if one.is_empty() || text.ends_with(&one) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&one);
    }
    text
}

/// What a provider of credentials says that understood the request and refused it. The SDK boxes the
/// answer, so that only its text is left.
const PROVIDER_REFUSALS: [&str; 3] =
    ["AccessDenied", "ExpiredTokenException", "InvalidIdentityToken"];

fn credentials_code(error: &CredentialsError) -> &'static str {
    if matches!(error, CredentialsError::CredentialsNotLoaded(_)) {
        "CredentialsNotLoaded"
    } else if matches!(error, CredentialsError::ProviderTimedOut(_)) {
        "ProviderTimedOut"
    } else if matches!(error, CredentialsError::InvalidConfiguration(_)) {
        "InvalidConfiguration"
    } else if matches!(error, CredentialsError::ProviderError(_)) {
        "ProviderError"
    } else {
        "Unhandled"
    }
}

/// What the connector knew beyond the causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    Timeout,
    Io,
    /// The connection ended before an answer, without an I/O error.
    Closed,
    User,
    Nothing,
}

/// Facts of a request that got no answer.
fn unanswered(operation: Operation, key: &str, error: &(dyn Error + 'static), hint: Hint) -> Fault {
    let causes = causes(error);
    if let Some(own) = find::<Fault>(&causes) {
        // Our body failed: a local fault, never the store's.
        return own.clone().at(key);
    }
    let text = chain_text(&causes);
    let mut fault = Fault::new(operation, FaultKind::Other, text.as_str()).at(key);
    if let Some(credentials) = find::<CredentialsError>(&causes) {
        fault.kind = FaultKind::Credentials;
        let refused = PROVIDER_REFUSALS.iter().any(|refusal| text.contains(refusal));
        let code = match credentials_code(credentials) {
            "ProviderError" if refused => "ProviderRefused",
            code => code,
        };
        fault.code = Some(code.to_owned());
        return fault;
    }
    if let Some(tls) = find::<rustls::Error>(&causes) {
        fault.kind = FaultKind::Tls;
        fault.code = Some(format!("{tls:?}").chars().take(200).collect());
        return fault;
    }
    let io = find::<io::Error>(&causes);
    fault.io = io.map(io_name);
    if text.contains("dns error") {
        fault.io = Some("Dns".to_owned());
    }
    let stalled = text.contains("minimum throughput was specified");
    fault.kind = if hint == Hint::Timeout || stalled {
        FaultKind::Timeout
    } else if text.contains("region must be set") || text.contains("egion was not") {
        fault.code = Some("NoRegion".to_owned());
        FaultKind::Construction
    } else if hint == Hint::User {
        // What we were sending could not be read: a local fault, never the store's.
        fault.operation = Operation::ReadSource;
        FaultKind::LocalIo
    } else if io.is_some() || hint == Hint::Io {
        FaultKind::Transport
    } else if hint == Hint::Closed || text.contains("connection closed before message completed") {
        fault.io = Some("ConnectionClosed".to_owned());
        FaultKind::Transport
    } else {
        FaultKind::Other
    };
    fault
}

/// A fault while an answer's body was read.
pub(super) fn body_fault(key: &str, error: &(dyn Error + 'static)) -> Fault {
    let mut fault = unanswered(Operation::Get, key, error, Hint::Nothing);
    if fault.kind == FaultKind::Other {
        fault.kind = FaultKind::Transport;
    }
    fault
}

/// The facts of a failed request.
pub(super) fn fault<E>(operation: Operation, key: &str, error: &SdkError<E>) -> Fault
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let code = error.code().filter(|code| !code.is_empty());
    if let Some(raw) = error.raw_response() {
        let success = (200..300).contains(&raw.status().as_u16());
        if code.is_some() || !success {
            return answered(operation, key, code, error.message(), raw);
        }
        if matches!(error, SdkError::ServiceError(_)) {
            // A success whose body is another document than the one asked for.
            let mut fault = answered(operation, key, None, None, raw);
            fault.kind = FaultKind::Undecodable;
            return fault;
        }
        // A success that could not be read: cut off, or not S3 at all.
        let mut fault = unanswered(operation, key, error, Hint::Nothing);
        if fault.kind == FaultKind::Other {
            fault.kind = FaultKind::Undecodable;
        }
        return with_answer(fault, raw);
    }
    let SdkError::DispatchFailure(failure) = error else {
        let timeout = matches!(error, SdkError::TimeoutError(_));
        let hint = if timeout { Hint::Timeout } else { Hint::Nothing };
        let mut fault = unanswered(operation, key, error, hint);
        if fault.kind == FaultKind::Other && matches!(error, SdkError::ConstructionFailure(_)) {
            fault.kind = FaultKind::Construction;
        }
        return fault;
    };
    let hint = if failure.is_user() {
        Hint::User
    } else if failure.is_timeout() {
        Hint::Timeout
    } else if failure.is_io() {
        Hint::Io
    } else if failure.as_other() == Some(ErrorKind::TransientError) {
        Hint::Closed
    } else {
        Hint::Nothing
    };
    unanswered(operation, key, error, hint)
}

fn header<'a>(raw: &'a HttpResponse, name: &str) -> Option<&'a str> {
    raw.headers().get(name).filter(|value| !value.is_empty())
}

fn with_answer(mut fault: Fault, raw: &HttpResponse) -> Fault {
    fault.http_status = Some(raw.status().as_u16());
    fault.request_id = header(raw, "x-amz-request-id").map(str::to_owned);
    fault.extended_request_id = header(raw, "x-amz-id-2").map(str::to_owned);
    fault.retry_after_ms = retry_after(raw);
    fault
}

fn answered(
    operation: Operation,
    key: &str,
    code: Option<&str>,
    message: Option<&str>,
    raw: &HttpResponse,
) -> Fault {
    let body = raw.body().bytes().unwrap_or_default();
    let body = String::from_utf8_lossy(body.get(..TEXT_MAX).unwrap_or(body));
    let mut text = match message.filter(|message| !message.is_empty()) {
        Some(message) => message.to_owned(),
        None if body.trim().is_empty() => "the store answered with an error".to_owned(),
        None => format!("the store answered: {}", body.trim()),
    };
    if let Some(region) = header(raw, "x-amz-bucket-region") {
        text.push_str(&format!("; the bucket is in region {region}"));
    }
    if let (403, Some(skew)) = (raw.status().as_u16(), skew(raw)) {
        text.push_str(&format!("; the store's clock is {skew} s from ours"));
    }
    let mut fault = Fault::new(operation, FaultKind::Answered, text).at(key);
    fault.code = code.map(str::to_owned);
    with_answer(fault, raw)
}

/// The upload id in an answer that the SDK refuses because its root element has another name
/// (`InitiateMultipartUpload`, as servers built on gofakes3 write it).
pub(super) fn upload_id_of<E>(error: &SdkError<E>) -> Option<String> {
    let raw = error.raw_response().filter(|raw| raw.status().as_u16() == 200)?;
    let body = std::str::from_utf8(raw.body().bytes()?).ok()?;
    let (_, body) = body.split_once("<InitiateMultipartUpload>")?;
    let (_, rest) = body.split_once("<UploadId>")?;
    let (id, _) = rest.split_once("</UploadId>")?;
    let plain = |b: u8| b.is_ascii_graphic() && b != b'&' && b != b'<';
    (!id.is_empty() && id.bytes().all(plain)).then(|| id.to_owned())
}

/// The time in an answer's `Date` header.
pub(super) fn answered_at(raw: &HttpResponse) -> Option<SystemTime> {
    http_date(header(raw, "date")?)
}

fn http_date(text: &str) -> Option<SystemTime> {
    SystemTime::try_from(DateTime::from_str(text, Format::HttpDate).ok()?).ok()
}

/// The store's clock minus ours, where that is more than a minute.
fn skew(raw: &HttpResponse) -> Option<i64> {
    let theirs = DateTime::from(answered_at(raw)?).secs();
    let skew = theirs - DateTime::from(wall()).secs();
    (skew.abs() > 60).then_some(skew)
}

/// `Retry-After` in seconds or as a date, or `x-amz-retry-after` in milliseconds: the longer one.
fn retry_after(raw: &HttpResponse) -> Option<u64> {
    let standard = header(raw, "retry-after").and_then(|text| match text.trim().parse::<u64>() {
        Ok(seconds) => Some(seconds.saturating_mul(1000)),
        Err(_) => {
            let from = answered_at(raw).unwrap_or_else(wall);
            let wait = http_date(text.trim())?.duration_since(from).unwrap_or(Duration::ZERO);
            u64::try_from(wait.as_millis()).ok()
        }
    });
    let amazon = header(raw, "x-amz-retry-after").and_then(|text| text.trim().parse().ok());
    standard.max(amazon)
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::operation::put_object::PutObjectError;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::body::SdkBody;
    use aws_smithy_types::error::ErrorMetadata;

    use super::*;

    type PutError = SdkError<PutObjectError>;

    fn response(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> HttpResponse {
        let status = StatusCode::try_from(status).unwrap();
        let mut raw = HttpResponse::new(status, SdkBody::from(body));
        for (name, value) in headers {
            raw.headers_mut().insert(*name, *value);
        }
        raw
    }

    fn service(code: Option<&str>, raw: HttpResponse) -> Fault {
        let mut meta = ErrorMetadata::builder();
        if let Some(code) = code {
            meta = meta.code(code);
        }
        let error: PutError = SdkError::service_error(PutObjectError::generic(meta.build()), raw);
        fault(Operation::Put, "k", &error)
    }

    fn dispatch(error: ConnectorError) -> Fault {
        let error: PutError = SdkError::dispatch_failure(error);
        fault(Operation::Put, "k", &error)
    }

    #[test]
    fn a_code_is_taken_before_the_status() {
        let found = service(Some("SlowDown"), response(200, &[("x-amz-request-id", "r1")], ""));
        assert_eq!((found.kind, found.http_status), (FaultKind::Answered, Some(200)));
        assert_eq!(
            (found.code.as_deref(), found.request_id.as_deref()),
            (Some("SlowDown"), Some("r1"))
        );
    }

    #[test]
    fn an_html_answer_keeps_its_status_and_text() {
        let found = service(None, response(503, &[("retry-after", "7")], "<html>busy</html>"));
        assert_eq!((found.kind, found.code.as_deref()), (FaultKind::Answered, None));
        assert_eq!((found.http_status, found.retry_after_ms), (Some(503), Some(7000)));
        assert!(found.message.contains("busy"), "{}", found.message);
        let long = service(None, response(502, &[], &"é".repeat(3000)));
        assert!(long.message.len() <= TEXT_MAX);
    }

    #[test]
    fn retry_after_is_read_in_its_three_forms() {
        let date = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"),
        ];
        assert_eq!(service(None, response(503, &date, "")).retry_after_ms, Some(60_000));
        let amazon = [("x-amz-retry-after", "1500"), ("retry-after", "1")];
        assert_eq!(service(None, response(503, &amazon, "")).retry_after_ms, Some(1500));
        assert_eq!(
            service(None, response(503, &[("retry-after", "soon")], "")).retry_after_ms,
            None
        );
    }

    #[test]
    fn a_certificate_fault_is_not_transport() {
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(tls);
        let found = dispatch(ConnectorError::io(Box::new(wrapped)));
        assert_eq!(found.kind, FaultKind::Tls);
        assert!(found.code.unwrap().contains("UnknownIssuer"));
    }

    #[test]
    fn missing_credentials_have_their_own_kind() {
        let source = CredentialsError::not_loaded("nothing configured");
        let found = dispatch(ConnectorError::other(Box::new(source), None));
        assert_eq!(found.kind, FaultKind::Credentials);
        assert_eq!(found.code.as_deref(), Some("CredentialsNotLoaded"));
        let inner = io::Error::from(io::ErrorKind::ConnectionRefused);
        let found = dispatch(ConnectorError::other(
            Box::new(CredentialsError::provider_error(inner)),
            None,
        ));
        assert_eq!(found.code.as_deref(), Some("ProviderError"));
        let refused = io::Error::other("service error: AccessDenied: not your role");
        let refused = CredentialsError::provider_error(refused);
        let found = dispatch(ConnectorError::other(Box::new(refused), None));
        assert_eq!(
            (found.kind, found.code.as_deref()),
            (FaultKind::Credentials, Some("ProviderRefused"))
        );
    }

    #[test]
    fn our_own_body_fault_comes_back_as_it_was() {
        let own = Fault::new(Operation::ReadSource, FaultKind::SourceChanged, "changed");
        let found = dispatch(ConnectorError::user(Box::new(own)));
        assert_eq!(
            (found.operation, found.kind),
            (Operation::ReadSource, FaultKind::SourceChanged)
        );
        assert_eq!(found.key.as_deref(), Some("k"));
    }

    #[test]
    fn transport_faults_are_told_apart() {
        let refused = io::Error::from_raw_os_error(111);
        let found = dispatch(ConnectorError::io(Box::new(refused)));
        assert_eq!(
            (found.kind, found.io.as_deref()),
            (FaultKind::Transport, Some("ConnectionRefused"))
        );
        let slow = dispatch(ConnectorError::timeout("slow".into()));
        assert_eq!(slow.kind, FaultKind::Timeout);
        let closed =
            dispatch(ConnectorError::other("closed".into(), Some(ErrorKind::TransientError)));
        assert_eq!(
            (closed.kind, closed.io.as_deref()),
            (FaultKind::Transport, Some("ConnectionClosed"))
        );
        assert_eq!(dispatch(ConnectorError::other("odd".into(), None)).kind, FaultKind::Other);
        let limit: PutError = SdkError::timeout_error("limit");
        assert_eq!(fault(Operation::Put, "k", &limit).kind, FaultKind::Timeout);
        let built: PutError = SdkError::construction_failure("no bucket");
        assert_eq!(fault(Operation::Put, "k", &built).kind, FaultKind::Construction);
    }

    #[test]
    fn a_success_that_does_not_parse_is_undecodable_or_cut_off() {
        let odd: PutError = SdkError::response_error("bad root", response(200, &[], "<html/>"));
        assert_eq!(fault(Operation::List, "p", &odd).kind, FaultKind::Undecodable);
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        let cut: PutError = SdkError::response_error(cut, response(200, &[], ""));
        assert_eq!(fault(Operation::List, "p", &cut).kind, FaultKind::Transport);
        let page = service(None, response(200, &[], "<html>log in</html>"));
        assert_eq!((page.kind, page.http_status), (FaultKind::Undecodable, Some(200)));
        let proxy: PutError = SdkError::response_error("bad", response(407, &[], "<html/>"));
        assert_eq!(fault(Operation::List, "p", &proxy).kind, FaultKind::Answered);
    }
}
