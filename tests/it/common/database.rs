//! Real database servers on loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::{must, script, services_dir, text};

/// A running MySQL server.
pub type MysqlServer = Server<Mysql>;
/// A running MariaDB server.
pub type MariadbServer = Server<Mariadb>;

/// Which script runs a server.
pub trait Kind {
    /// The script's name in `tests/services`.
    const SCRIPT: &'static str;
    /// The folder in the services folder that instances share.
    const DIR: &'static str;
    /// The program that prints binlogs.
    const BINLOG_TOOL: &'static str;
}

/// MySQL of Debian sid.
#[derive(Debug)]
pub struct Mysql;

impl Kind for Mysql {
    const SCRIPT: &'static str = "mysql-sid";
    const DIR: &'static str = "mysql";
    const BINLOG_TOOL: &'static str = "mysqlbinlog";
}

/// MariaDB of Debian bookworm.
#[derive(Debug)]
pub struct Mariadb;

impl Kind for Mariadb {
    const SCRIPT: &'static str = "mariadb";
    const DIR: &'static str = "mariadb";
    const BINLOG_TOOL: &'static str = "mariadb-binlog";
}

/// A database server with a data folder of its own. It is killed and removed on drop.
#[derive(Debug)]
pub struct Server<K: Kind> {
    dir: PathBuf,
    instance: String,
    pub datadir: PathBuf,
    pub socket: PathBuf,
    pub port: u16,
    kind: std::marker::PhantomData<K>,
}

impl<K: Kind> Server<K> {
    /// Fetches the server when it is not there, and starts an instance. `options` are the
    /// script's (`-m`, `--encrypt`, …), then `--` and the server's own. Names are unique to the
    /// test; what an earlier run left under the name is removed.
    pub fn start(instance: &str, options: &[&str]) -> Self {
        let dir = services_dir().join(K::DIR);
        must(script(K::SCRIPT).arg(&dir).args(["wipe", "-i", instance]));
        let mut server = Self {
            dir,
            instance: instance.to_owned(),
            datadir: PathBuf::new(),
            socket: PathBuf::new(),
            port: 0,
            kind: std::marker::PhantomData,
        };
        must(server.action("start").args(options));
        let facts = server.facts();
        let fact = |name: &str| {
            facts.get(name).unwrap_or_else(|| panic!("{} printed no {name}", K::SCRIPT)).clone()
        };
        server.datadir = fact("DATADIR").into();
        server.socket = fact("SOCKET").into();
        server.port = fact("PORT").parse().unwrap();
        server
    }

    fn action(&self, action: &str) -> Command {
        let mut command = script(K::SCRIPT);
        command.arg(&self.dir).args([action, "-i", &self.instance]);
        command
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let printed = text(must(&mut self.action("env")).stdout);
        let pairs = printed.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The server's process; panics when it does not run.
    pub fn pid(&self) -> i32 {
        self.facts().get("PID").and_then(|pid| pid.parse().ok()).expect("a running server")
    }

    /// A binlog or the index in the data folder.
    pub fn binlog(&self, name: &str) -> PathBuf {
        self.datadir.join(name)
    }

    /// Runs SQL as root; panics when it fails. Answers the rows, tab-separated, without headers.
    pub fn shell(&self, sql: &str) -> String {
        let answer = self.try_shell(sql);
        assert!(
            answer.status.success(),
            "{} {}: {sql}\n{}",
            K::SCRIPT,
            self.instance,
            String::from_utf8_lossy(&answer.stderr)
        );
        text(answer.stdout).trim_end().to_owned()
    }

    /// Runs SQL as root and answers what the client said, whether or not it failed.
    pub fn try_shell(&self, sql: &str) -> Output {
        self.action("shell").args(["-N", "-B", "-e", sql]).output().unwrap()
    }

    /// The files that the server itself lists as its binlogs, in its order.
    pub fn binlogs(&self) -> Vec<String> {
        let rows = self.shell("SHOW BINARY LOGS");
        rows.lines().filter_map(|row| row.split('\t').next()).map(str::to_owned).collect()
    }

    /// Runs a program of the server's (or of the host) to its end, and answers what it printed.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> String {
        text(must(self.action("run").arg(program).args(arguments)).stdout)
    }

    /// What the server's own tool prints of a binlog, with checksums verified.
    pub fn print_binlog(&self, path: &Path) -> String {
        let verify = "--verify-binlog-checksum";
        self.tool(K::BINLOG_TOOL, &["--no-defaults", verify, path.to_str().unwrap()])
    }

    /// Starts `tests/services/workload` against the server: `["soak", "--seconds", "30", …]`.
    /// Its end is the caller's to wait for.
    pub fn workload(&self, arguments: &[&str]) -> Child {
        let workload = super::repository("tests/services/workload");
        let mut command = self.action("run");
        command.arg(workload).arg("-").args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    /// Ends the server cleanly: its last binlog gets a STOP event.
    pub fn stop(&self) {
        must(&mut self.action("stop"));
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        must(&mut self.action("kill"));
    }

    /// Starts a stopped or killed server again, with the port and options it had.
    pub fn restart(&self) {
        must(&mut self.action("start"));
    }
}

impl<K: Kind> Drop for Server<K> {
    fn drop(&mut self) {
        let wiped = self.action("wipe").status();
        if !wiped.is_ok_and(|status| status.success()) {
            eprintln!("could not remove {} {}", K::SCRIPT, self.instance);
        }
    }
}
