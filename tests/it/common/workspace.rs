//! A folder for one test, and the real binary run in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{text, wait_for};

/// What one run of the binary did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit code; −1 when a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Panics with all that was said unless the exit code is this one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("not JSON: {e}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr)
        })
    }
}

/// A temporary folder with a home, a state folder and a configuration, removed on drop.
#[derive(Debug)]
pub struct Workspace {
    dir: TempDir,
    env: Vec<(String, String)>,
}

impl Workspace {
    /// An empty one.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("binlog-archiver-test-").tempdir().unwrap();
        for folder in ["home", "run"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir, env: Vec::new() }
    }

    /// Adds variables to the environment of every later run.
    pub fn with_env<'a>(mut self, env: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        self.env.extend(env.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes `config.toml`, adding state, socket and HTTP sections that keep a test to its own
    /// folder unless the text has them. Later runs use it.
    pub fn write_config(&self, config: &str) -> PathBuf {
        let mut config = config.to_owned();
        let folder = self.path().display();
        if !config.contains("[state]") {
            config += &format!("\n[state]\ndir = \"{folder}/state\"\n");
        }
        if !config.contains("[control]") {
            config += &format!("\n[control]\nsocket = \"{folder}/run/control\"\n");
        }
        if !config.contains("[http]") {
            config += "\n[http]\nlisten = \"\"\n";
        }
        let path = self.join("config.toml");
        std::fs::write(&path, config).unwrap();
        path
    }

    /// The binary with nothing of the caller's environment, ready to be given arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_binlog-archiver"));
        command
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.join("home"))
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .env("RUST_BACKTRACE", "1")
            // Off AWS, asking the instance for credentials costs seconds.
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("BINLOG_ARCHIVER_CONFIG", self.join("config.toml"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command().args(arguments).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Starts the binary as a daemon. What it says is appended to `daemon.log`.
    pub fn daemon(&self, arguments: &[&str]) -> Daemon {
        let log = self.join("daemon.log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.command();
        command.args(arguments).stdout(file.try_clone().unwrap()).stderr(file);
        Daemon { child: command.spawn().unwrap(), log }
    }
}

/// A running daemon. It is killed on drop.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that daemons of this workspace have said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGTERM and answers the exit code; panics when the daemon outlives the limit.
    pub fn terminate(self, limit: Duration) -> i32 {
        self.signal(Signal::TERM);
        self.wait(limit)
    }

    /// Answers the exit code (−1 after a signal); panics when the daemon outlives the limit.
    pub fn wait(mut self, limit: Duration) -> i32 {
        let log = self.log.clone();
        let what = format!("the end of the daemon; its log is {}", log.display());
        let status = wait_for(limit, &what, || self.child.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }

    /// Waits like [`Daemon::wait`] and answers the most memory held, too. The last look at it is
    /// at most some milliseconds before the end.
    pub fn wait_measured(mut self, limit: Duration) -> (i32, u64) {
        let (start, mut peak) = (Instant::now(), 0);
        loop {
            peak = peak.max(self.peak_memory_now().unwrap_or(0));
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), peak);
            }
            assert!(start.elapsed() < limit, "it outlives {limit:?}; log: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The most memory that the process has held at a time, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.peak_memory_now().expect("a living process")
    }

    fn peak_memory_now(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        // A process that has ended and was not waited for has no such line.
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already; there is nothing else to do about a failure here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
