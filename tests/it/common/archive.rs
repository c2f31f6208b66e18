//! An archive as `docs/formats.md` describes it, read without any of the archiver's own code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::s3::Look;
use super::{S3Server, Workspace};

/// The configuration of a source in front of a `[store]` section, with retries short enough for
/// a test.
pub fn source_config(name: &str, binlog_dir: &Path, store: &str) -> String {
    format!(
        "[source]\nname = \"{name}\"\nbinlog_dir = \"{}\"\n{store}\n\
         [retry]\nbase_delay = \"200ms\"\nmax_delay = \"2s\"\n",
        binlog_dir.display()
    )
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// SHA-256 of a file in hex.
pub fn sha256_file(path: &Path) -> String {
    let mut file = std::fs::File::open(path).unwrap();
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match std::io::Read::read(&mut file, &mut buffer).unwrap() {
            0 => return hex::encode(hash.finalize()),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// One source's archive under one prefix of a bucket.
#[derive(Debug)]
pub struct Archived {
    pub look: Look,
    prefix: String,
    source: String,
}

impl Archived {
    pub fn new(look: Look, prefix: &str, source: &str) -> Self {
        Self { look, prefix: prefix.to_owned(), source: source.to_owned() }
    }

    fn json(&self, key: &str) -> Value {
        serde_json::from_slice(&self.look.get(key)).unwrap_or_else(|e| panic!("{key}: {e}"))
    }

    /// All manifests, by incarnation and number.
    pub fn manifests(&self) -> Vec<Value> {
        let objects = self.look.objects(&format!("{}/index/{}/", self.prefix, self.source));
        let mut keys: Vec<&String> =
            objects.keys().filter(|key| key.contains("/manifests/")).collect();
        // Not the store's order, which may be by folder.
        keys.sort();
        keys.into_iter().map(|key| self.json(key)).collect()
    }

    /// The segment's bytes, after the stored ones were found to be those of the manifest.
    pub fn payload(&self, manifest: &Value) -> Vec<u8> {
        let payload = &manifest["payload"];
        let stored = self.look.get(&format!("{}/{}", self.prefix, text(&payload["key"])));
        assert_eq!(payload["size"], stored.len(), "{manifest}");
        assert_eq!(payload["digest"], sha256(&stored), "{manifest}");
        match text(&payload["encoding"]) {
            "zstd" => zstd::decode_all(stored.as_slice()).unwrap(),
            "identity" => stored,
            other => panic!("encoding {other}"),
        }
    }

    /// Asserts that these segments, and no others, are committed, in this order, and that what is
    /// stored of each is its local file. Answers the manifests.
    pub fn expect_files(&self, dir: &Path, segments: &[String]) -> Vec<Value> {
        let manifests = self.manifests();
        let committed: Vec<&str> = manifests.iter().map(|m| text(&m["segment"])).collect();
        assert_eq!(committed, segments);
        for (manifest, segment) in manifests.iter().zip(segments) {
            let local = sha256_file(&dir.join(segment));
            assert_eq!(sha256(&self.payload(manifest)), local, "stored bytes of {segment}");
            assert_eq!(manifest["digest"], local, "digest of {segment}");
        }
        manifests
    }

    /// How many versions each key of what is never overwritten has.
    pub fn versions(&self) -> BTreeMap<String, usize> {
        let folder = |name: &str| format!("{}/{name}/{}/", self.prefix, self.source);
        let mut found = self.look.versions(&folder("payloads"));
        found.extend(self.look.versions(&folder("index")));
        found
    }

    /// Asserts that nothing was ever overwritten or deleted. The bucket keeps versions.
    pub fn expect_written_once(&self) -> BTreeMap<String, usize> {
        let versions = self.versions();
        let again: Vec<_> = versions.iter().filter(|(_, count)| **count != 1).collect();
        assert!(again.is_empty(), "written more than once: {again:?}");
        assert!(!versions.is_empty());
        versions
    }

    /// Payloads that no manifest names: what an attempt left that was cut off.
    pub fn uncommitted(&self) -> BTreeSet<String> {
        let folder = format!("{}/payloads/{}/", self.prefix, self.source);
        let stored: BTreeSet<String> = self.look.objects(&folder).into_keys().collect();
        let key = |m: Value| format!("{}/{}", self.prefix, text(&m["payload"]["key"]));
        let committed = self.manifests().into_iter().map(key).collect();
        &stored - &committed
    }

    /// The writer lease.
    pub fn lease(&self) -> Value {
        self.json(&format!("{}/mutable/{}/writer.json", self.prefix, self.source))
    }
}

/// A JSON string's text.
#[track_caller]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}"))
}

impl Workspace {
    /// `cursor.json`, when it is there.
    pub fn cursor_file(&self) -> Option<Value> {
        let bytes = std::fs::read(self.join("state/cursor.json")).ok()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    /// The segment that `cursor.json` names for the newest incarnation.
    pub fn cursor(&self) -> Option<String> {
        let file = self.cursor_file()?;
        let (_, newest) = file["incarnations"].as_object().unwrap().iter().max_by_key(|e| e.0)?;
        Some(text(&newest["segment"]).to_owned())
    }

    /// What `status --json` says.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.run(&["status", "--json"]).expect_code(0).json()
    }
}

impl S3Server {
    /// The archive of a source under a prefix of a bucket, seen by the admin.
    pub fn archived(&self, bucket: &str, prefix: &str, source: &str) -> Archived {
        Archived::new(self.look().in_bucket(bucket), prefix, source)
    }
}
