//! One source and its archive, in a folder or in S3, with the real binary run on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::common::{Ran, S3Server, Workspace, copy_files};

/// The source's name in every test.
pub const SOURCE: &str = "db1";

#[derive(Debug)]
enum Place {
    Folder(PathBuf),
    S3 { prefix: String },
}

/// A binlog directory that a test fills, and the archive that the binary makes of it.
#[derive(Debug)]
pub struct Site {
    pub workspace: Workspace,
    place: Place,
    source: String,
    upload: String,
}

impl Site {
    /// With its archive in a folder.
    pub fn folder() -> Self {
        let workspace = Workspace::new();
        let folder = workspace.join("archive");
        std::fs::create_dir(&folder).unwrap();
        Self::made(workspace, Place::Folder(folder))
    }

    /// With its archive under a prefix of its own in the shared bucket.
    pub fn s3(test: &str) -> Self {
        let workspace = Workspace::new().with_env(S3Server::shared().env());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let prefix = format!("{test}-{now}");
        Self::made(workspace, Place::S3 { prefix })
    }

    fn made(workspace: Workspace, place: Place) -> Self {
        std::fs::create_dir(workspace.join("binlogs")).unwrap();
        let site = Self { workspace, place, source: String::new(), upload: String::new() };
        site.configure();
        site
    }

    /// Adds lines to `[source]`.
    pub fn source(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.source);
        self.configure();
        self
    }

    /// Adds lines to `[upload]`.
    pub fn upload(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.upload);
        self.configure();
        self
    }

    fn configure(&self) {
        let binlogs = self.binlogs();
        let store = match &self.place {
            Place::Folder(folder) => format!("[store]\nurl = \"file://{}\"\n", folder.display()),
            Place::S3 { prefix } => S3Server::shared().store_section(prefix),
        };
        self.workspace.write_config(&format!(
            "[source]\nname = \"{SOURCE}\"\nbinlog_dir = \"{}\"\n{}\n{store}\n[upload]\n{}\n\
             [retry]\nmax_attempts = 3\nbase_delay = \"10ms\"\nmax_delay = \"50ms\"\n",
            binlogs.display(),
            self.source,
            self.upload
        ));
    }

    /// The server's folder.
    pub fn binlogs(&self) -> PathBuf {
        self.workspace.join("binlogs")
    }

    /// A file of the server's.
    pub fn binlog(&self, name: &str) -> PathBuf {
        self.binlogs().join(name)
    }

    /// Makes the server's folder hold these files and nothing else.
    pub fn show(&self, folder: &Path) {
        std::fs::remove_dir_all(self.binlogs()).unwrap();
        copy_files(folder, &self.binlogs());
    }

    /// Writes the index.
    pub fn list<N: AsRef<str>>(&self, names: &[N]) {
        let lines: String = names.iter().map(|name| format!("./{}\n", name.as_ref())).collect();
        std::fs::write(self.binlog("binlog.index"), lines).unwrap();
    }

    /// What the index lists.
    pub fn listed(&self) -> Vec<String> {
        let index = std::fs::read_to_string(self.binlog("binlog.index")).unwrap();
        index.lines().map(|line| line.trim_start_matches("./").to_owned()).collect()
    }

    /// Writes `auto.cnf`.
    pub fn server_uuid(&self, uuid: &str) {
        std::fs::write(self.binlog("auto.cnf"), format!("[auto]\nserver-uuid={uuid}\n")).unwrap();
    }

    /// Archives all that is closed.
    pub fn once(&self) -> Ran {
        self.workspace.run(&["run", "--once"])
    }

    /// Runs a shell script that finds the binary in `$BINARY`, in a process namespace of its own:
    /// as on a host where every process can be seen.
    pub fn among_visible_processes(&self, script: &str) -> Ran {
        let binary = self.workspace.command();
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .envs(binary.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("BINARY", binary.get_program()).current_dir(self.workspace.path());
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What `status` says.
    pub fn status(&self) -> Value {
        self.workspace.run(&["status", "--json"]).expect_code(0).json()
    }

    /// Verifies the archive, as the configuration names it.
    pub fn verify(&self, options: &[&str]) -> Ran {
        self.workspace.run(&[&["verify"], options].concat())
    }

    /// Verifies the archive from a place that has no configuration.
    pub fn verify_elsewhere(&self, options: &[&str]) -> Ran {
        match &self.place {
            Place::Folder(folder) => {
                let url = format!("file://{}", folder.display());
                let store = ["verify", "--store", url.as_str()];
                Workspace::new().run(&[store.as_slice(), options].concat())
            }
            Place::S3 { prefix } => {
                let server = S3Server::shared();
                let url = format!("s3://{}/{prefix}", server.bucket);
                let store = ["verify", "--store", url.as_str(), "--endpoint", &server.endpoint];
                // Reading needs a reader's rights alone.
                let elsewhere = Workspace::new().with_env(server.env_of(&server.reader));
                elsewhere.run(&[store.as_slice(), &["--region", &server.region], options].concat())
            }
        }
    }

    /// Loses the state directory, as with the host's disk.
    pub fn forget_state(&self) {
        std::fs::remove_dir_all(self.workspace.join("state")).unwrap();
    }

    /// The state directory's `cursor.json`.
    pub fn cursors(&self) -> Value {
        let bytes = std::fs::read(self.workspace.join("state/cursor.json")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Every object with its bytes, by key below the prefix.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        match &self.place {
            Place::Folder(folder) => {
                let mut found = BTreeMap::new();
                read_below(folder, "", &mut found);
                found
            }
            Place::S3 { prefix } => {
                let look = S3Server::shared().look();
                let keys = look.objects(&format!("{prefix}/")).into_keys();
                let short = |key: &str| key[prefix.len() + 1..].to_owned();
                keys.map(|key| (short(&key), look.get(&key))).collect()
            }
        }
    }

    /// The same without what may be overwritten.
    pub fn kept(&self) -> BTreeMap<String, Vec<u8>> {
        let mut objects = self.objects();
        objects.retain(|key, _| !key.starts_with("mutable/"));
        objects
    }

    /// Stores an object behind the archiver's back.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        match &self.place {
            Place::Folder(folder) => {
                let path = folder.join(key);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            Place::S3 { prefix } => {
                S3Server::shared().look().put(&format!("{prefix}/{key}"), bytes.to_vec());
            }
        }
    }

    /// Removes an object behind the archiver's back.
    pub fn delete(&self, key: &str) {
        match &self.place {
            Place::Folder(folder) => std::fs::remove_file(folder.join(key)).unwrap(),
            Place::S3 { prefix } => S3Server::shared().look().delete(&format!("{prefix}/{key}")),
        }
    }

    /// The manifests, by incarnation and number.
    pub fn manifests(&self) -> Vec<Manifest> {
        let objects = self.objects();
        let of_manifest = |(key, bytes): (&String, &Vec<u8>)| {
            let is_one = key.contains("/manifests/");
            is_one.then(|| Manifest { key: key.clone(), value: json(bytes) })
        };
        objects.iter().filter_map(of_manifest).collect()
    }

    /// The records of incarnations, oldest first.
    pub fn incarnations(&self) -> Vec<Value> {
        let objects = self.objects();
        let records = objects.iter().filter(|(key, _)| key.contains("/incarnations/"));
        records.map(|(_, bytes)| json(bytes)).collect()
    }

    /// Incarnations in short: name, reason, first segment, predecessor and its segment.
    pub fn history(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let line = |record: &Value| {
            let left = &record["predecessor"];
            let left = if left.is_null() {
                String::new()
            } else {
                let of = text(&left["incarnation"])[..4].to_owned();
                format!(" after {of}/{}", text(&left["segment"]))
            };
            let ordinal = record["ordinal"].as_u64().unwrap();
            let (reason, first) = (text(&record["reason"]), text(&record["first"]["segment"]));
            format!("{ordinal} {reason} from {first}{left}")
        };
        self.incarnations().iter().map(line).collect()
    }

    /// What is committed, as `ordinal/segment`.
    pub fn committed(&self) -> Vec<String> {
        let short = |manifest: &Manifest| {
            format!("{}/{}", &manifest.text("incarnation")[..4], manifest.text("segment"))
        };
        self.manifests().iter().map(short).collect()
    }

    /// The cursors on disk, as `ordinal: from..segment`.
    pub fn cursor_lines(&self) -> Vec<String> {
        let cursors = self.cursors();
        let line = |(incarnation, entry): (&String, &Value)| {
            let (from, to) = (entry["from"].as_str().unwrap(), entry["segment"].as_str().unwrap());
            format!("{}: {from}..{to}", &incarnation[..4])
        };
        cursors["incarnations"].as_object().unwrap().iter().map(line).collect()
    }
}

/// A manifest with its key.
#[derive(Debug)]
pub struct Manifest {
    pub key: String,
    pub value: Value,
}

impl Manifest {
    /// A field that is text.
    #[track_caller]
    pub fn text(&self, field: &str) -> &str {
        self.value[field].as_str().unwrap_or_else(|| panic!("{field} in {}", self.value))
    }

    /// The payload's key.
    pub fn payload(&self) -> &str {
        self.value["payload"]["key"].as_str().unwrap()
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn read_below(folder: &Path, key: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let key = if key.is_empty() { name } else { format!("{key}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            read_below(&entry.path(), &key, found);
        } else {
            found.insert(key, std::fs::read(entry.path()).unwrap());
        }
    }
}
