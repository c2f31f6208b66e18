//! What is read from the answers of an S3-compatible server, and the conditions sent to it.
//!
//! **Invariants.** ETags lose their quotes here, so that put, head and list agree whatever a server
//! quotes. Ages are by the clock of the answer that told of the object, never by ours.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::BoxError;
use aws_smithy_types::DateTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::PutMode;
use super::s3_fault::answered_at;
use crate::fault::{Fault, FaultKind};
use crate::segment::Digest;

/// Takes the store's clock from an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreClock(Arc<Mutex<Option<SystemTime>>>);

impl StoreClock {
    /// How long ago a moment was, by the clock of the answer that told of it.
    pub(super) fn age(&self, moment: Option<&DateTime>) -> Option<Duration> {
        let now = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let then = SystemTime::try_from(*moment?).ok()?;
        Some(now.duration_since(then).unwrap_or(Duration::ZERO))
    }
}

impl Intercept for StoreClock {
    fn name(&self) -> &'static str {
        "StoreClock"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let at = answered_at(context.response());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
        Ok(())
    }
}

/// An ETag without its quotes, so that put, head and list agree whatever the server quotes.
pub(super) fn plain_etag(etag: Option<&str>) -> Option<String> {
    etag.map(|etag| etag.trim_matches('"').to_owned()).filter(|etag| !etag.is_empty())
}

pub(super) fn timestamp(time: Option<&DateTime>) -> Option<jiff::Timestamp> {
    let time = time?;
    let nanos = i32::try_from(time.subsec_nanos()).ok()?;
    jiff::Timestamp::new(time.secs(), nanos).ok()
}

/// Turns a refused condition into its own kind.
pub(super) fn condition(mut fault: Fault, mode: PutMode<'_>) -> Fault {
    if fault.kind != FaultKind::Answered {
        return fault;
    }
    let code = fault.code.as_deref();
    match mode {
        // Some old servers say 304 where they mean 412.
        PutMode::Create
            if code == Some("PreconditionFailed")
                || (code.is_none() && matches!(fault.http_status, Some(304 | 412))) =>
        {
            fault.kind = FaultKind::AlreadyExists;
        }
        PutMode::Update { .. }
            if matches!(code, Some("PreconditionFailed" | "NoSuchKey"))
                || (code.is_none() && fault.http_status == Some(412)) =>
        {
            fault.kind = FaultKind::PreconditionFailed;
        }
        PutMode::Create | PutMode::Replace | PutMode::Update { .. } => {}
    }
    fault
}

/// The headers for a mode: `If-None-Match`, `If-Match`.
pub(super) fn conditions(mode: PutMode<'_>) -> (Option<String>, Option<String>) {
    match mode {
        PutMode::Create => (Some("*".to_owned()), None),
        PutMode::Replace => (None, None),
        PutMode::Update { etag } => (None, Some(format!("\"{etag}\""))),
    }
}

/// The SHA-256 of a whole object; that of a multipart one is of its parts' and ends in `-N`.
pub(super) fn whole_sha256(text: Option<&str>) -> Option<Digest> {
    let bytes = BASE64.decode(text?).ok()?;
    Some(Digest::from_bytes(bytes.try_into().ok()?))
}
