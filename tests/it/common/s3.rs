//! A real S3 server on loopback.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};

use super::{must, script, services_dir, services_lock, text};

/// Ports that the script takes from the one it is given.
const PORTS: u16 = 8;
/// Below the range from which the kernel gives ports to clients.
const FIRST_PORT: u16 = 18_000;
const LAST_PORT: u16 = 31_000;

/// One user of the server.
#[derive(Debug, Clone)]
pub struct Keys {
    pub id: String,
    pub secret: String,
}

/// A running S3 server: SeaweedFS with a bucket and three users.
#[derive(Debug)]
pub struct S3Server {
    dir: PathBuf,
    own: bool,
    pub endpoint: String,
    pub region: String,
    /// A bucket that is there, and which `writer` and `reader` have rights for.
    pub bucket: String,
    pub admin: Keys,
    /// May read, write, tag and list `bucket`, and nothing else.
    pub writer: Keys,
    /// May read and list `bucket`.
    pub reader: Keys,
}

impl S3Server {
    /// The server that all tests of a run share. Each test uses a prefix of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<S3Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(services_dir().join("s3"), false))
    }

    /// A server for one test alone, which may kill it. It is removed on drop.
    pub fn own() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{count}", std::process::id());
        Self::start(services_dir().join("s3-own").join(name), true)
    }

    fn start(dir: PathBuf, own: bool) -> Self {
        // One start at a time: two could choose the same ports.
        let lock = services_lock("s3-start");
        let weed = must(script("s3-seaweedfs").arg("install").arg(services_dir().join("weed")));
        let output = must(
            script("s3-seaweedfs")
                .env("WEED", text(weed.stdout).trim())
                .args(["start".as_ref(), dir.as_os_str()])
                .args([&free_ports().to_string(), "binlogs"]),
        );
        drop(lock);
        let vars = exports(&text(output.stdout));
        let var = |name: &str| {
            vars.get(name).unwrap_or_else(|| panic!("s3-seaweedfs printed no {name}")).clone()
        };
        let keys = |prefix: &str| Keys {
            id: var(&format!("{prefix}ACCESS_KEY_ID")),
            secret: var(&format!("{prefix}SECRET_ACCESS_KEY")),
        };
        Self {
            own,
            endpoint: var("S3_ENDPOINT"),
            region: var("AWS_REGION"),
            bucket: var("S3_BUCKET"),
            admin: keys("S3_ADMIN_"),
            writer: keys("AWS_"),
            reader: keys("S3_READER_"),
            dir,
        }
    }

    fn act(&self, command: &str) {
        assert!(self.own, "the shared server is not one test's to {command}");
        must(script("s3-seaweedfs").arg(command).arg(&self.dir));
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        self.act("kill");
    }

    /// Starts it again on the same port and data, killing it first when it still runs.
    pub fn restart(&self) {
        self.act("kill");
        self.act("restart");
    }

    /// Stops it with SIGSTOP: connections stay open, nothing answers.
    pub fn pause(&self) {
        self.act("pause");
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.act("resume");
    }

    /// The environment that gives a program the writer's rights.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        self.env_of(&self.writer)
    }

    /// The environment that gives a program one user's rights.
    pub fn env_of(&self, keys: &Keys) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", keys.id.clone()),
            ("AWS_SECRET_ACCESS_KEY", keys.secret.clone()),
            ("AWS_REGION", self.region.clone()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// The `[store]` section for a prefix of the shared bucket.
    pub fn store_section(&self, prefix: &str) -> String {
        self.store_section_in(&self.bucket, prefix)
    }

    /// The `[store]` section for a prefix of one bucket.
    pub fn store_section_in(&self, bucket: &str, prefix: &str) -> String {
        let Self { endpoint, region, .. } = self;
        format!(
            "[store]\nurl = \"s3://{bucket}/{prefix}\"\nendpoint = \"{endpoint}\"\nregion = \"{region}\"\n"
        )
    }

    /// A second, independent view of the server, with the admin's rights.
    pub fn look(&self) -> Look {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new(self.region.clone()))
            .endpoint_url(&self.endpoint)
            .force_path_style(true)
            .credentials_provider(Credentials::new(
                &self.admin.id,
                &self.admin.secret,
                None,
                None,
                "test",
            ))
            .build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Look { client: aws_sdk_s3::Client::from_conf(config), runtime, bucket: self.bucket.clone() }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if self.own {
            let ended = script("s3-seaweedfs").arg("destroy").arg(&self.dir).status();
            if !ended.is_ok_and(|status| status.success()) {
                eprintln!("could not remove the S3 server in {}", self.dir.display());
            }
        }
    }
}

/// What is in one bucket, read and changed behind the archiver's back.
#[derive(Debug)]
pub struct Look {
    client: aws_sdk_s3::Client,
    runtime: tokio::runtime::Runtime,
    bucket: String,
}

impl Look {
    /// The same in another bucket.
    pub fn in_bucket(mut self, bucket: &str) -> Self {
        bucket.clone_into(&mut self.bucket);
        self
    }

    /// Creates the bucket with versioning on. Only the admin has rights for it.
    pub fn create_versioned(&self) {
        self.runtime.block_on(async {
            self.client.create_bucket().bucket(&self.bucket).send().await.unwrap();
            let enabled =
                VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
            let request = self.client.put_bucket_versioning().bucket(&self.bucket);
            request.versioning_configuration(enabled).send().await.unwrap();
        });
    }

    /// Keys and sizes under a prefix, sorted by key.
    pub fn objects(&self, prefix: &str) -> BTreeMap<String, u64> {
        self.runtime.block_on(async {
            let mut found = BTreeMap::new();
            let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
            let mut pages = request.into_paginator().send();
            while let Some(page) = pages.next().await {
                for object in page.unwrap().contents() {
                    let size = u64::try_from(object.size().unwrap()).unwrap();
                    found.insert(object.key().unwrap().to_owned(), size);
                }
            }
            found
        })
    }

    /// How many versions (delete markers count) each key under a prefix has.
    pub fn versions(&self, prefix: &str) -> BTreeMap<String, usize> {
        self.runtime.block_on(async {
            let mut found = BTreeMap::<String, usize>::new();
            let (mut key, mut version) = (None, None);
            loop {
                let page = self
                    .client
                    .list_object_versions()
                    .bucket(&self.bucket)
                    .prefix(prefix)
                    .set_key_marker(key)
                    .set_version_id_marker(version)
                    .send()
                    .await
                    .unwrap();
                let versions = page.versions().iter().map(|v| v.key());
                for key in versions.chain(page.delete_markers().iter().map(|v| v.key())) {
                    *found.entry(key.unwrap().to_owned()).or_default() += 1;
                }
                if page.is_truncated() != Some(true) {
                    return found;
                }
                key = page.next_key_marker().map(str::to_owned);
                version = page.next_version_id_marker().map(str::to_owned);
            }
        })
    }

    /// Multipart uploads under a prefix that were neither completed nor aborted.
    pub fn unfinished_uploads(&self, prefix: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let request = self.client.list_multipart_uploads().bucket(&self.bucket);
            let page = request.prefix(prefix).send().await.unwrap();
            page.uploads().iter().map(|upload| upload.key().unwrap().to_owned()).collect()
        })
    }

    /// An object's bytes.
    pub fn get(&self, key: &str) -> Vec<u8> {
        self.runtime.block_on(async {
            let answer = self.client.get_object().bucket(&self.bucket).key(key).send().await;
            let answer = answer.unwrap_or_else(|e| panic!("get {key}: {e:?}"));
            answer.body.collect().await.unwrap().to_vec()
        })
    }

    /// Stores bytes under a key, whatever was there.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.runtime.block_on(async {
            let request = self.client.put_object().bucket(&self.bucket).key(key);
            request.body(ByteStream::from(bytes)).send().await.unwrap();
        });
    }

    /// Removes an object.
    pub fn delete(&self, key: &str) {
        self.runtime.block_on(async {
            self.client.delete_object().bucket(&self.bucket).key(key).send().await.unwrap();
        });
    }
}

/// The `export NAME='value'` lines that a script printed.
fn exports(printed: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('\'').to_owned()))
    };
    printed.lines().filter_map(line).collect()
}

/// The first of [`PORTS`] free ports in a row.
fn free_ports() -> u16 {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let steps = u32::from((LAST_PORT - FIRST_PORT) / PORTS);
    for step in 0..steps {
        // Processes begin at different places, so that they seldom meet.
        let step = u16::try_from((std::process::id() * 7 + step) % steps).unwrap();
        let first = FIRST_PORT + step * PORTS;
        if (first..first + PORTS).all(free) {
            return first;
        }
    }
    panic!("no {PORTS} free ports in a row from {FIRST_PORT} to {LAST_PORT}");
}
