//! Whether any process has a file open, by the word of `/proc`.
//!
//! **Invariants.** "No" is only said when every process that could have it open was seen (I14):
//! a descriptor table that cannot be read, processes hidden by a mount option, and a PID
//! namespace of our own on a file that others may reach all make it unknown.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::signature::FileSignature;

/// The inode of the first PID namespace: fixed by the kernel (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// `PF_KTHREAD`: a thread of the kernel, which has no descriptors.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Evidence that no process but this one had the file open. Made by [`who_has_open`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOpen {
    file: FileSignature,
}

impl NotOpen {
    /// The file as it was then.
    #[must_use]
    pub const fn file(&self) -> &FileSignature {
        &self.file
    }

    #[cfg(test)]
    pub(super) const fn assume(file: FileSignature) -> Self {
        Self { file }
    }
}

/// What `/proc` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenState {
    /// No other process has it open.
    No(NotOpen),
    /// This one has.
    Yes {
        /// Its number.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// Not every process can be seen.
    Unknown {
        /// Why not, and what would help.
        why: String,
    },
}

/// Looks for another process that has the file open. Reads the descriptor tables of all
/// processes, so it blocks for a moment.
///
/// # Errors
/// When the file itself, or `/proc`, cannot be looked at.
pub fn who_has_open(path: &Path) -> io::Result<OpenState> {
    let path = path.canonicalize()?;
    let file = FileSignature::of(&fs::metadata(&path)?);
    let own = std::process::id();
    let mut unseen = Unseen::default();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        match has_open(&entry.path(), &file) {
            Ok(true) => {
                let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                return Ok(OpenState::Yes { pid, comm: comm.trim_end().to_owned() });
            }
            Ok(false) => {}
            Err(_) if is_gone_or_kernel(&entry.path()) => {}
            Err(error) => unseen.note(pid, &error),
        }
    }
    // Looked at last: what was seen to be open is so, however much is hidden.
    let why = unseen.why().or_else(hidden_processes).or_else(|| hidden_namespace(&path));
    Ok(why.map_or(OpenState::No(NotOpen { file }), |why| OpenState::Unknown { why }))
}

#[derive(Default)]
struct Unseen {
    count: usize,
    first: Option<(u32, String)>,
}

impl Unseen {
    fn note(&mut self, pid: u32, error: &io::Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| (pid, error.to_string()));
    }

    fn why(&self) -> Option<String> {
        let (pid, error) = self.first.as_ref()?;
        Some(format!(
            "the open files of {} processes cannot be read, first PID {pid}: {error}; CAP_SYS_PTRACE is needed",
            self.count
        ))
    }
}

fn has_open(process: &Path, file: &FileSignature) -> io::Result<bool> {
    for fd in fs::read_dir(process.join("fd"))? {
        // Follows the link to the open file itself, even when its name is gone.
        let facts = match fs::metadata(fd?.path()) {
            Ok(facts) => facts,
            // Closed in between, or the name of a socket or pipe.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if facts.dev() == file.dev && facts.ino() == file.ino {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_gone_or_kernel(process: &Path) -> bool {
    let Ok(stat) = fs::read_to_string(process.join("stat")) else {
        // Readable by everyone for as long as the process lives.
        return !process.exists();
    };
    // The name stands in parentheses and may hold anything; state is the first field after it.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let zombie = matches!(fields.next(), Some("Z" | "X"));
    let kernel = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    zombie || kernel.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

fn hidden_processes() -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let hides = |mount: &Mount| {
        mount.point == Path::new("/proc")
            && mount.options.split(',').any(|option| {
                option.strip_prefix("hidepid=").is_some_and(|how| !matches!(how, "0" | "off"))
            })
    };
    let mounts = mounts()?;
    mounts.iter().any(hides).then(|| "/proc hides other users' processes; run as root".to_owned())
}

fn hidden_namespace(path: &Path) -> Option<String> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    if namespace.is_some_and(|name| name.as_os_str() == FIRST_PID_NAMESPACE) {
        return None;
    }
    // Within a container, a file of the container's own root is reached by no other; one on a
    // volume may be open in a container that we cannot see.
    let mounts = mounts().unwrap_or_default();
    let holder = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count());
    if holder.is_some_and(|mount| mount.point == Path::new("/")) {
        return None;
    }
    Some("processes outside this container cannot be seen; run in the host's PID namespace".into())
}

struct Mount {
    point: PathBuf,
    options: String,
}

fn mounts() -> Option<Vec<Mount>> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    Some(text.lines().filter_map(mount).collect())
}

/// `36 35 98:0 /root /point options optional… - type source super-options`
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ');
    let point = fields.nth(4)?.replace("\\040", " ");
    let own = fields.next()?;
    let of_file_system = after.split(' ').nth(2)?;
    Some(Mount { point: point.into(), options: format!("{own},{of_file_system}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_holds_the_file_is_named_even_after_the_name_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("binlog.000001");
        fs::write(&path, "x").unwrap();
        let input = fs::File::open(&path).unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(input)).spawn().unwrap();
        let again = dir.path().join("again");
        fs::hard_link(&path, &again).unwrap();
        let seen = who_has_open(&path);
        fs::remove_file(&path).unwrap();
        let through_link = who_has_open(&again);
        child.kill().unwrap();
        child.wait().unwrap();
        for seen in [seen.unwrap(), through_link.unwrap()] {
            assert!(matches!(seen, OpenState::Yes { pid, .. } if pid == child.id()), "{seen:?}");
        }
    }

    #[test]
    fn our_own_descriptor_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("binlog.000001");
        fs::write(&path, "x").unwrap();
        let _open = fs::File::open(&path).unwrap();
        match who_has_open(&path).unwrap() {
            OpenState::No(proof) => assert_eq!(proof.file().size, 1),
            // Not everything can be seen from everywhere a test runs, and that must be told.
            OpenState::Unknown { why } => assert!(why.contains("CAP_SYS_PTRACE"), "{why}"),
            OpenState::Yes { pid, comm } => panic!("{pid} {comm}"),
        }
        let file = FileSignature::of(&fs::metadata(&path).unwrap());
        assert!(has_open(Path::new("/proc/self"), &file).unwrap());
    }

    #[test]
    fn mount_lines_are_split_where_the_kernel_splits_them() {
        let line = "25 22 0:21 / /a\\040b rw,nosuid shared:5 master:1 - proc proc rw,hidepid=2";
        let seen = mount(line).unwrap();
        assert_eq!(seen.point, Path::new("/a b"));
        assert_eq!(seen.options, "rw,nosuid,rw,hidepid=2");
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error() {
        assert!(who_has_open(Path::new("/nonexistent/binlog.000001")).is_err());
    }
}
