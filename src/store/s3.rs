//! Objects in an S3-compatible server: single puts, gets and heads.
//!
//! **Invariants.** An answer counts as S3's only with an ETag; it counts as proof only with our
//! SHA-256 echoed. Each request sends the digest as computed by the caller: no byte is hashed here,
//! and payloads are not signed, so that none is hashed by the SDK either.
//!
//! **Crash, cancellation.** A put that is dropped or cut off may have stored the object: the next
//! `Create` of the key then says `AlreadyExists`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_s3::operation::put_object::builders::PutObjectFluentBuilder;
use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use aws_sdk_s3::types::{
    ChecksumMode as SdkChecksumMode, ObjectLockMode, ServerSideEncryption, StorageClass,
};
use aws_smithy_types::DateTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::body::{FileChunks, PacedBytes};
use super::pace::{Pace, wall};
use super::s3_answer::{StoreClock, condition, conditions, plain_etag, timestamp, whole_sha256};
use super::s3_connect::{ChecksumMode, LockMode, S3Options, Sse, connect};
use super::s3_fault::{body_fault, fault};
use super::{
    Checked, FileBody, Multipart, Object, ObjectMeta, Page, PutMode, Store, Stored, key, s3_list,
    s3_multipart,
};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

/// A prefix of a bucket.
#[derive(Clone)]
pub struct S3Store {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) options: S3Options,
    /// Empty, or ends in a slash.
    pub(super) prefix: String,
    pub(super) pace: Option<Arc<Pace>>,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// The part of the bucket that a key is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    Payloads,
    Index,
    Other,
}

fn area(key: &str) -> Area {
    if key.starts_with("payloads/") {
        Area::Payloads
    } else if key.starts_with("index/") {
        Area::Index
    } else {
        Area::Other
    }
}

/// What one object is to be stored with.
pub(super) struct Placement {
    pub(super) storage_class: Option<StorageClass>,
    pub(super) encryption: Option<ServerSideEncryption>,
    pub(super) kms_key: Option<String>,
    pub(super) lock: Option<ObjectLockMode>,
    pub(super) retain_until: Option<DateTime>,
}

impl S3Store {
    /// Makes a store from options, with credentials of the usual AWS chain. Sends nothing to it.
    pub async fn connect(options: S3Options) -> Result<Self, Fault> {
        Self::connect_as(options, None).await
    }

    /// The same with credentials of another provider.
    pub async fn connect_as(
        options: S3Options,
        credentials: Option<SharedCredentialsProvider>,
    ) -> Result<Self, Fault> {
        let client = connect(&options, credentials).await?;
        let prefix = match options.prefix.trim_matches('/') {
            "" => String::new(),
            folders => format!("{folders}/"),
        };
        let pace = options.max_bandwidth.map(|rate| Arc::new(Pace::new(rate)));
        Ok(Self { inner: Arc::new(Inner { client, options, prefix, pace }) })
    }

    /// The key in the bucket.
    pub(super) fn full(&self, key: &str) -> String {
        format!("{}{key}", self.inner.prefix)
    }

    pub(super) fn owner(&self) -> Option<String> {
        self.inner.options.expected_bucket_owner.clone()
    }

    pub(super) fn sends_sha256(&self) -> bool {
        self.inner.options.checksum == ChecksumMode::Sha256
    }

    pub(super) fn sha256_header(&self, digest: &Digest) -> Option<String> {
        self.sends_sha256().then(|| BASE64.encode(digest.as_bytes()))
    }

    /// The client's configuration with the limit for a body of this size.
    pub(super) fn limit(&self, bytes: u64) -> aws_sdk_s3::config::Builder {
        let options = &self.inner.options;
        let limits = TimeoutConfig::builder()
            .connect_timeout(options.connect_timeout)
            .operation_attempt_timeout(options.attempt_timeout(bytes));
        aws_sdk_s3::Config::builder().timeout_config(limits.build())
    }

    pub(super) fn body_of(&self, bytes: Bytes) -> ByteStream {
        match &self.inner.pace {
            Some(pace) if !bytes.is_empty() => {
                let paced = PacedBytes::new(bytes, Arc::clone(pace));
                ByteStream::new(SdkBody::from_body_1_x(paced))
            }
            Some(_) | None => ByteStream::from(bytes),
        }
    }

    pub(super) fn placement(&self, key: &str) -> Placement {
        let options = &self.inner.options;
        let area = area(key);
        let class = options.storage_class.as_deref().filter(|_| area == Area::Payloads);
        let lock = options.object_lock.filter(|_| area != Area::Other);
        let (encryption, kms_key) = match &options.sse {
            Sse::None => (None, None),
            Sse::Aes256 => (Some(ServerSideEncryption::Aes256), None),
            Sse::Kms { key_id } => (Some(ServerSideEncryption::AwsKms), key_id.clone()),
        };
        Placement {
            storage_class: class.map(StorageClass::from),
            encryption,
            kms_key,
            lock: lock.map(|lock| match lock.mode {
                LockMode::Governance => ObjectLockMode::Governance,
                LockMode::Compliance => ObjectLockMode::Compliance,
            }),
            retain_until: lock.map(|lock| {
                let for_days = Duration::from_secs(u64::from(lock.days) * 86_400);
                DateTime::from(wall() + for_days)
            }),
        }
    }

    fn put_request(
        &self,
        key: &str,
        size: u64,
        digest: &Digest,
        mode: PutMode<'_>,
    ) -> PutObjectFluentBuilder {
        let placement = self.placement(key);
        let (if_none_match, if_match) = conditions(mode);
        self.inner
            .client
            .put_object()
            .bucket(&self.inner.options.bucket)
            .key(self.full(key))
            .content_length(i64::try_from(size).unwrap_or(i64::MAX))
            .set_checksum_sha256(self.sha256_header(digest))
            .set_if_none_match(if_none_match)
            .set_if_match(if_match)
            .set_expected_bucket_owner(self.owner())
            .set_storage_class(placement.storage_class)
            .set_server_side_encryption(placement.encryption)
            .set_ssekms_key_id(placement.kms_key)
            .set_object_lock_mode(placement.lock)
            .set_object_lock_retain_until_date(placement.retain_until)
    }

    async fn send_put(
        &self,
        key: &str,
        size: u64,
        digest: &Digest,
        mode: PutMode<'_>,
        request: PutObjectFluentBuilder,
    ) -> Result<Stored, Fault> {
        let answer = request
            .customize()
            .config_override(self.limit(size))
            .disable_payload_signing()
            .send()
            .await
            .map_err(|error| condition(fault(Operation::Put, key, &error), mode))?;
        let echo = self.echoed(Operation::Put, key, digest, answer.checksum_sha256())?;
        let etag = plain_etag(answer.e_tag());
        // A login page of a proxy is a success without an ETag.
        let checked = if etag.is_some() { echo } else { Checked::Not };
        Ok(Stored { etag, version_id: answer.version_id, size, checked })
    }

    /// Compares the SHA-256 that the store echoed with the one it was sent.
    pub(super) fn echoed(
        &self,
        operation: Operation,
        key: &str,
        digest: &Digest,
        echo: Option<&str>,
    ) -> Result<Checked, Fault> {
        match (self.sha256_header(digest), echo) {
            (Some(sent), Some(echo)) if sent == echo => Ok(Checked::ByStore),
            (Some(sent), Some(echo)) => {
                let message = format!("the store says it took SHA-256 {echo}, sent was {sent}");
                Err(Fault::new(operation, FaultKind::Unproven, message).at(key))
            }
            (_, None) | (None, Some(_)) => Ok(Checked::Not),
        }
    }

    async fn read(&self, key: &str) -> Result<Option<Object>, Fault> {
        let clock = StoreClock::default();
        let answer = self
            .inner
            .client
            .get_object()
            .bucket(&self.inner.options.bucket)
            .key(self.full(key))
            .set_expected_bucket_owner(self.owner())
            .customize()
            .interceptor(clock.clone())
            .send()
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
            Err(error) => return Err(fault(Operation::Get, key, &error)),
        };
        let meta = ObjectMeta {
            key: key.to_owned(),
            size: answer.content_length().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            etag: Some(self.etag_or_fault(Operation::Get, key, answer.e_tag())?),
            version_id: answer.version_id.clone(),
            last_modified: timestamp(answer.last_modified()),
            age: clock.age(answer.last_modified()),
            sha256: None,
        };
        let name = key.to_owned();
        let body = futures_util::stream::unfold(Some(answer.body), move |body| {
            let name = name.clone();
            async move {
                let mut body = body?;
                match body.next().await? {
                    Ok(bytes) => Some((Ok(bytes), Some(body))),
                    Err(error) => Some((Err(body_fault(&name, &error)), None)),
                }
            }
        });
        Ok(Some(Object { meta, body: body.boxed() }))
    }

    fn etag_or_fault(
        &self,
        operation: Operation,
        key: &str,
        etag: Option<&str>,
    ) -> Result<String, Fault> {
        plain_etag(etag).ok_or_else(|| {
            let message = "the answer has no ETag; the endpoint does not speak S3 \
                           (a proxy or login page may stand in between)";
            Fault::new(operation, FaultKind::Unproven, message).at(key)
        })
    }
}

#[async_trait]
impl Store for S3Store {
    fn describe(&self) -> String {
        let S3Options { bucket, endpoint, .. } = &self.inner.options;
        let place = format!("s3://{bucket}/{}", self.inner.prefix);
        match endpoint {
            // What stands before an @ may be a password.
            Some(url) => match url.split_once("://").zip(url.rsplit_once('@')) {
                Some(((scheme, _), (_, host))) => format!("{place} at {scheme}://{host}"),
                None => format!("{place} at {url}"),
            },
            None => place,
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    async fn put(
        &self,
        key: &str,
        body: Bytes,
        digest: &Digest,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        key::check(Operation::Put, key)?;
        let size = body.len() as u64;
        let request = self.put_request(key, size, digest, mode).body(self.body_of(body));
        self.send_put(key, size, digest, mode, request).await
    }

    async fn put_file(
        &self,
        key: &str,
        body: FileBody,
        mode: PutMode<'_>,
    ) -> Result<Stored, Fault> {
        key::check(Operation::Put, key)?;
        let (size, digest) = (body.size, body.digest);
        let chunks = FileChunks::start(body, self.inner.pace.clone()).map_err(|f| f.at(key))?;
        let stream = if size == 0 {
            ByteStream::from(Bytes::new())
        } else {
            ByteStream::new(SdkBody::from_body_1_x(chunks))
        };
        let request = self.put_request(key, size, &digest, mode).body(stream);
        self.send_put(key, size, &digest, mode, request).await
    }

    async fn multipart(&self, key: &str) -> Result<Box<dyn Multipart>, Fault> {
        key::check(Operation::CreateMultipart, key)?;
        s3_multipart::create(self, key).await
    }

    async fn get(&self, key: &str) -> Result<Option<Object>, Fault> {
        key::check(Operation::Get, key)?;
        self.read(key).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, Fault> {
        key::check(Operation::Head, key)?;
        let clock = StoreClock::default();
        let answer = self
            .inner
            .client
            .head_object()
            .bucket(&self.inner.options.bucket)
            .key(self.full(key))
            .set_expected_bucket_owner(self.owner())
            .set_checksum_mode(self.sends_sha256().then_some(SdkChecksumMode::Enabled))
            .customize()
            .interceptor(clock.clone())
            .send()
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if is_404(&error) => {
                // An answer to HEAD has no body, so no code: a missing bucket looks the same.
                return Ok(self.read(key).await?.map(|object| object.meta));
            }
            Err(error) => return Err(fault(Operation::Head, key, &error)),
        };
        Ok(Some(ObjectMeta {
            key: key.to_owned(),
            size: answer.content_length().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
            etag: Some(self.etag_or_fault(Operation::Head, key, answer.e_tag())?),
            version_id: answer.version_id.clone(),
            last_modified: timestamp(answer.last_modified()),
            age: clock.age(answer.last_modified()),
            sha256: whole_sha256(answer.checksum_sha256()),
        }))
    }

    async fn list_page(&self, prefix: &str, token: Option<String>) -> Result<Page, Fault> {
        s3_list::page(self, prefix, token).await
    }

    async fn list_folders(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        s3_list::folders(self, prefix).await
    }

    async fn abort_stale_uploads(&self, prefix: &str, older_than: Duration) -> Result<u64, Fault> {
        s3_list::abort_stale_uploads(self, prefix, older_than).await
    }
}

fn is_404<E>(error: &SdkError<E>) -> bool {
    error.raw_response().is_some_and(|raw| raw.status().as_u16() == 404)
}
