//! From configuration to the parts that commands use: store, source, archive.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CommandError;
use crate::archive::{Compression, ProofPolicy, PutOptions};
use crate::config::{self, Config, StoreUrl};
use crate::fault::Fault;
use crate::pipeline::{Connect, Start};
use crate::segment::SourceName;
use crate::source::{self, SourcePaths};
use crate::store::{
    ChecksumMode, LocalStore, LockMode, ObjectLock, S3Options, S3Store, Sse, Store,
};

/// Where an archive is, for commands that work without a configuration.
#[derive(Debug, Clone, Default)]
pub struct StoreFlags {
    /// `--store`.
    pub url: Option<String>,
    /// `--endpoint`.
    pub endpoint: Option<String>,
    /// `--region`.
    pub region: Option<String>,
}

/// Reads the configuration.
///
/// # Errors
/// When it cannot be read or is wrong.
pub fn load_config(path: Option<&Path>) -> Result<Config, CommandError> {
    let path = path.map_or_else(|| PathBuf::from(config::DEFAULT_PATH), Path::to_owned);
    Ok(Config::load(&path)?)
}

/// Makes the store that the configuration names.
pub(super) fn connect(config: &Config) -> Connect {
    let (store, upload) = (config.store.clone(), config.upload.clone());
    Connect::new(move || {
        let (store, upload) = (store.clone(), upload.clone());
        async move { open(&store, &upload).await }
    })
}

/// The store of a configuration, made now.
pub(super) async fn open(
    store: &config::Store,
    upload: &config::Upload,
) -> Result<Arc<dyn Store>, Fault> {
    let (bucket, prefix) = match &store.url {
        StoreUrl::File { path } => return Ok(Arc::new(LocalStore::open(path)?)),
        StoreUrl::S3 { bucket, prefix } => (bucket, prefix),
    };
    let mut options = S3Options::new(bucket, prefix);
    options.endpoint.clone_from(&store.endpoint);
    options.region.clone_from(&store.region);
    options.path_style = Some(store.path_style);
    options.ca_file.clone_from(&store.ca_file);
    options.expected_bucket_owner.clone_from(&store.expected_bucket_owner);
    options.storage_class.clone_from(&store.storage_class);
    options.sse = match store.sse {
        config::Sse::None => Sse::None,
        config::Sse::Aes256 => Sse::Aes256,
        config::Sse::Kms => Sse::Kms { key_id: store.kms_key_id.clone() },
    };
    let lock = |mode| store.object_lock_days.map(|days| ObjectLock { mode, days });
    options.object_lock = match store.object_lock {
        config::ObjectLock::None => None,
        config::ObjectLock::Governance => lock(LockMode::Governance),
        config::ObjectLock::Compliance => lock(LockMode::Compliance),
    };
    options.checksum = match store.checksum {
        config::StoreChecksum::Sha256 => ChecksumMode::Sha256,
        config::StoreChecksum::None => ChecksumMode::None,
    };
    options.connect_timeout = upload.connect_timeout;
    options.attempt_grace = upload.attempt_grace;
    options.min_rate = upload.min_rate;
    options.max_bandwidth = upload.max_bandwidth;
    Ok(Arc::new(S3Store::connect(options).await?))
}

/// The store for a command that reads an archive: `--store` without a configuration, else the
/// configuration's.
pub(super) async fn open_for_reading(
    config: Option<&Path>,
    flags: &StoreFlags,
) -> Result<(Arc<dyn Store>, Option<Config>), CommandError> {
    let Some(url) = &flags.url else {
        let config = load_config(config)?;
        return Ok((open(&config.store, &config.upload).await?, Some(config)));
    };
    let url: StoreUrl = url.parse().map_err(|error: config::BadStoreUrl| CommandError {
        exit: super::Exit::Usage,
        message: format!("--store: {error}"),
    })?;
    let store: Arc<dyn Store> = match &url {
        StoreUrl::File { path } => Arc::new(LocalStore::open(path)?),
        StoreUrl::S3 { bucket, prefix } => {
            let mut options = S3Options::new(bucket, prefix);
            options.endpoint.clone_from(&flags.endpoint);
            options.region.clone_from(&flags.region);
            Arc::new(S3Store::connect(options).await?)
        }
    };
    Ok((store, None))
}

/// The server's UUID and the source's name.
pub(super) fn source_name(config: &Config) -> Result<(SourceName, Option<String>), CommandError> {
    let uuid = source::server_uuid(&config.source.datadir).map(|uuid| uuid.map(|u| u.to_string()));
    match (&config.source.name, uuid) {
        (Some(name), uuid) => Ok((name.clone(), uuid.unwrap_or_default())),
        (None, Ok(Some(uuid))) => {
            let name =
                uuid.parse().map_err(|_| CommandError::failed("server_uuid is no source name"))?;
            Ok((name, Some(uuid)))
        }
        (None, Ok(None)) => Err(CommandError::failed(format!(
            "the source has no name: {} has no auto.cnf (MariaDB never has one); set source.name",
            config.source.datadir.display()
        ))),
        (None, Err(error)) => Err(CommandError::failed(format!(
            "the source has no name, and the server's UUID cannot be read: {error}; set source.name"
        ))),
    }
}

/// Where a new source begins.
pub(super) fn start(config: &Config) -> Start {
    match &config.source.start {
        config::Start::Oldest => Start::Oldest,
        config::Start::Now => Start::Now,
        config::Start::Segment(name) => Start::Segment(name.clone()),
    }
}

/// Where the binlogs are.
pub(super) fn source_paths(config: &Config) -> SourcePaths {
    let source = &config.source;
    SourcePaths {
        binlog_dir: Some(source.binlog_dir.clone()),
        index: source.index.clone(),
        datadir: source.datadir.clone(),
    }
}

/// How payloads are put.
pub(super) fn put_options(config: &Config) -> PutOptions {
    PutOptions {
        compression: match config.upload.compression {
            config::Compression::None => Compression::None,
            config::Compression::Zstd => Compression::Zstd,
        },
        part_size: config.upload.part_size,
        multipart_threshold: config.upload.multipart_threshold,
        proof: match config.store.proof {
            config::Proof::Auto => ProofPolicy::Auto,
            config::Proof::ReadBack => ProofPolicy::ReadBack,
        },
    }
}
