//! Options of an S3 store, and the client made from them.
//!
//! The SDK's own retries are off: our loop decides, with history that the SDK has not. Providers
//! of credentials keep theirs. One client lives as long as its store, because the clock skew it
//! learned lives in it.
//!
//! **Invariants.** No secret is in the options. Whatever the SDK would panic on (a broken CA file)
//! is checked here first and returned as a `Construction` fault.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_config::identity::IdentityCache;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Builder, ConnectorBuilder, tls};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::fault::{Fault, FaultKind, Operation};

/// Region for servers that do not care, when only an endpoint is given.
const REGION_OF_ENDPOINTS: &str = "us-east-1";
/// A database host's uplink may be busy for longer than the SDK's 5 s.
const STALL_GRACE: Duration = Duration::from_secs(20);
/// Without it the SDK derives 6 s from our having no retries, too short for a slow IMDS or STS.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);

/// Encryption at rest asked of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sse {
    /// Whatever the bucket does by itself.
    #[default]
    None,
    /// Keys of the store.
    Aes256,
    /// A key of the key management service.
    Kms {
        /// Its id or ARN; `None` is the account's default key.
        key_id: Option<String>,
    },
}

/// Who may shorten a retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Principals with a special permission.
    Governance,
    /// Nobody.
    Compliance,
}

/// Retention of each new object under `payloads/` and `index/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectLock {
    /// Who may shorten it.
    pub mode: LockMode,
    /// For how many days from the put.
    pub days: u32,
}

/// What goes along with an upload for the store to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumMode {
    /// `x-amz-checksum-sha256` with our digest.
    #[default]
    Sha256,
    /// Nothing, for servers that refuse the header.
    None,
}

/// Everything an S3 store is told. Credentials come from the usual AWS chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    /// The bucket.
    pub bucket: String,
    /// What all keys begin with; slashes at its ends do not matter.
    pub prefix: String,
    /// URL of a server other than AWS.
    pub endpoint: Option<String>,
    /// Region; default from the AWS chain, or `us-east-1` with an endpoint.
    pub region: Option<String>,
    /// Bucket in the path instead of the host name; default: with an endpoint.
    pub path_style: Option<bool>,
    /// PEM file of certificates trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Account that must own the bucket.
    pub expected_bucket_owner: Option<String>,
    /// Storage class of payloads.
    pub storage_class: Option<String>,
    /// Encryption at rest.
    pub sse: Sse,
    /// Retention of payloads and of the index.
    pub object_lock: Option<ObjectLock>,
    /// Digest header.
    pub checksum: ChecksumMode,
    /// Limit for a connection, TLS included.
    pub connect_timeout: Duration,
    /// Limit for a request without a body; added to that of each request.
    pub attempt_grace: Duration,
    /// Slowest rate at which a body may be sent, in bytes a second.
    pub min_rate: u64,
    /// Most that all uploads send together, in bytes a second.
    pub max_bandwidth: Option<u64>,
}

impl S3Options {
    /// The defaults for a bucket and prefix.
    #[must_use]
    pub fn new(bucket: impl Into<String>, prefix: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: prefix.into(),
            endpoint: None,
            region: None,
            path_style: None,
            ca_file: None,
            expected_bucket_owner: None,
            storage_class: None,
            sse: Sse::None,
            object_lock: None,
            checksum: ChecksumMode::Sha256,
            connect_timeout: Duration::from_secs(5),
            attempt_grace: Duration::from_secs(60),
            min_rate: 256 << 10,
            max_bandwidth: None,
        }
    }

    /// Limit for one request that sends this many bytes.
    pub(super) fn attempt_timeout(&self, bytes: u64) -> Duration {
        // Under a bandwidth limit a body waits its turn behind those of other workers.
        let shared = self.max_bandwidth.map_or(u64::MAX, |rate| rate / 16);
        self.attempt_grace + Duration::from_secs(bytes / self.min_rate.min(shared).max(1))
    }

    fn check(&self) -> Result<(), Fault> {
        if self.bucket.is_empty() || self.bucket.contains('/') {
            return Err(construction(format!("{:?} is not the name of a bucket", self.bucket)));
        }
        let scheme = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if let Some(endpoint) = self.endpoint.as_deref().filter(|url| !scheme(url)) {
            return Err(construction(format!(
                "endpoint {endpoint:?} does not begin with http:// or https://"
            )));
        }
        if self.object_lock.is_some() && self.checksum == ChecksumMode::None {
            return Err(construction(
                "object lock needs a checksum on every put; set store.checksum = \"sha256\"",
            ));
        }
        Ok(())
    }
}

fn construction(message: impl Into<String>) -> Fault {
    Fault::new(Operation::Connect, FaultKind::Construction, message)
}

/// Makes the client. Sends nothing to the store; the AWS chain may ask its own services.
pub(super) async fn connect(
    options: &S3Options,
    credentials: Option<SharedCredentialsProvider>,
) -> Result<Client, Fault> {
    options.check()?;
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .identity_cache(IdentityCache::lazy().load_timeout(CREDENTIALS_TIMEOUT).build());
    if let Some(credentials) = credentials {
        loader = loader.credentials_provider(credentials);
    }
    if let Some(path) = &options.ca_file {
        loader = loader.http_client(trusting(path)?);
    }
    let endpoint_region = options.endpoint.as_ref().map(|_| REGION_OF_ENDPOINTS.to_owned());
    if let Some(region) = options.region.clone().or(endpoint_region) {
        loader = loader.region(Region::new(region));
    }
    let sdk = loader.load().await;
    if sdk.region().is_none() {
        return Err(construction("no region is set; set store.region or AWS_REGION"));
    }
    let has_endpoint = options.endpoint.is_some() || sdk.endpoint_url().is_some();
    let mut config = aws_sdk_s3::config::Builder::from(&sdk)
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(
            StalledStreamProtectionConfig::enabled().grace_period(STALL_GRACE).build(),
        )
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(options.connect_timeout)
                .operation_attempt_timeout(options.attempt_timeout(0))
                .build(),
        )
        // Our own SHA-256 header always goes along; a default trailer would cost more than the
        // hash, and many servers refuse it. Callers hash what they read.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .force_path_style(options.path_style.unwrap_or(has_endpoint));
    if let Some(endpoint) = &options.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Ok(Client::from_conf(config.build()))
}

/// An HTTP client as the SDK makes it, with more roots of trust.
fn trusting(path: &Path) -> Result<SharedHttpClient, Fault> {
    let shown = path.display();
    let pem = std::fs::read(path)
        .map_err(|error| construction(format!("read CA file {shown}: {error}")))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| construction(format!("CA file {shown} is not PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(construction(format!("CA file {shown} has no certificate")));
    }
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            construction(format!("CA file {shown} has an unusable certificate: {error}"))
        })?;
    }
    let context = tls::TlsContext::builder()
        .with_trust_store(tls::TrustStore::default().with_pem_certificate(pem))
        .build()
        .map_err(|error| construction(format!("CA file {shown}: {error}")))?;
    Ok(Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = ConnectorBuilder::default()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc))
            .tls_context(context.clone())
            .proxy_config(ProxyConfig::from_env());
        connector.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector.build()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_may_take_its_bytes_at_the_slowest_rate() {
        let mut options = S3Options::new("b", "");
        assert_eq!(options.attempt_timeout(0), Duration::from_secs(60));
        assert_eq!(options.attempt_timeout(100 << 20), Duration::from_secs(460));
        options.max_bandwidth = Some(1 << 20);
        assert_eq!(options.attempt_timeout(100 << 20), Duration::from_secs(60 + 1600));
        options.min_rate = 0;
        options.max_bandwidth = Some(0);
        assert_eq!(options.attempt_timeout(10), Duration::from_secs(70));
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a file that is not there yet, in a test")]
    async fn what_the_sdk_would_panic_on_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("empty.pem", ""),
            ("text.pem", "hello"),
            ("broken.pem", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"),
            ("bogus.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let mut options = S3Options::new("b", "");
            options.endpoint = Some("https://localhost:1".into());
            options.ca_file = Some(path);
            let fault = connect(&options, None).await.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Construction, "{name}: {fault}");
        }
        let mut options = S3Options::new("b", "");
        options.endpoint = Some("localhost:9000".into());
        assert_eq!(connect(&options, None).await.unwrap_err().kind, FaultKind::Construction);
        assert!(connect(&S3Options::new("", ""), None).await.is_err());
    }
}
