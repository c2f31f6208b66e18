//! Durable writes of this host's state: the one road by which a file of ours reaches the disk.
//!
//! **Invariants.** After a successful write the new content survives a power cut; after a failed
//! or interrupted one a reader sees the old content or the new one, whole. A failed fsync or
//! rename, or EIO, poisons the handle: it refuses everything after (I8), because the kernel may
//! drop the pages of a failed fsync and report the next one as fine. No room does not poison.
//! [`Durable`] exists only for what is on disk (I5).
//!
//! **Crash.** Before the rename: a file named [`TEMP_PREFIX`]… is left, which
//! [`StateDir::remove_temp_files`] removes at the next start; the old content stands. Between
//! rename and fsync of the folder: the old or the new content stands, whole. Appends: a torn last
//! line can be left; readers of appended files must bear it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errors::{OpenStateError, StateLoadError, StateWriteError};
use super::judge::{Judgement, Step, judge};
use super::lock::StateLock;
use super::read::{ReadError, read_limited};

/// Begins the name of every file that is not finished yet.
pub const TEMP_PREFIX: &str = ".tmp-";

/// Longer than any file of state: a dead letter with the largest GTID sets seen stays far below.
pub const STATE_BYTES_MAX: u64 = 64 << 20;

/// A value that is on disk: made only by a durable write, or by reading one back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// The value.
    pub const fn get(&self) -> &T {
        &self.0
    }

    /// Gives the value up, and with it the proof.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Called before each step with the path it is about; an error takes the step's place. For crash
/// and fault tests; not in release builds.
#[cfg(debug_assertions)]
pub type Hook = std::sync::Arc<dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync>;

/// The state directory, locked, and the right to write to it.
pub struct StateDir {
    root: PathBuf,
    poison: OnceLock<String>,
    /// Held for as long as this handle lives; `None` only inside [`Self::open`].
    lock: Option<StateLock>,
    #[cfg(debug_assertions)]
    hook: Option<Hook>,
}

impl std::fmt::Debug for StateDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateDir")
            .field("root", &self.root)
            .field("poison", &self.poison.get())
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

impl StateDir {
    /// Makes the directory (0700) where it is missing, and takes its lock.
    ///
    /// # Errors
    /// When it cannot be made, or another process holds the lock.
    pub fn open(root: &Path) -> Result<Self, OpenStateError> {
        let mut state = Self {
            root: root.to_owned(),
            poison: OnceLock::new(),
            lock: None,
            #[cfg(debug_assertions)]
            hook: None,
        };
        state.create_dir_durable(root)?;
        state.lock = Some(StateLock::take(root)?);
        Ok(state)
    }

    /// Has `hook` called before each step from now on.
    #[cfg(debug_assertions)]
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hook = Some(hook);
        self
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Why nothing is written any more, if so.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Puts `bytes` in the place of the file, with mode 0600.
    ///
    /// # Errors
    /// Nothing of the new content may then be claimed; see [`StateWriteError`].
    pub fn write_atomic(&self, path: &Path, bytes: &[u8]) -> Result<(), StateWriteError> {
        let (folder_path, folder) = self.open_folder_of(path)?;
        let mut file = self.step(Step::OpenFile, path, || {
            // Opened and written here: `tempfile`'s own ways replace the system's error by one
            // that has no number any more, and EIO could not be told from others.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let open = |path: &Path| options.open(path);
            tempfile::Builder::new().prefix(TEMP_PREFIX).make_in(&folder_path, open)
        })?;
        self.step(Step::Write, path, || file.as_file_mut().write_all(bytes))?;
        self.step(Step::SyncFile, path, || file.as_file().sync_all())?;
        self.step(Step::Rename, path, || file.persist(path).map_err(|failed| failed.error))?;
        self.step(Step::SyncFolder, &folder_path, || folder.sync_all())
    }

    /// Saves a value as JSON, and returns the proof that it is on disk.
    ///
    /// # Errors
    /// As [`Self::write_atomic`], and when the value has no JSON form.
    pub fn save_json<T: Serialize>(
        &self,
        path: &Path,
        value: T,
    ) -> Result<Durable<T>, StateWriteError> {
        let mut bytes = serde_json::to_vec_pretty(&value)
            .map_err(|source| StateWriteError::Encode { path: path.to_owned(), source })?;
        bytes.push(b'\n');
        self.write_atomic(path, &bytes)?;
        Ok(Durable(value))
    }

    /// Reads a saved value back, with the proof that it is on disk.
    ///
    /// # Errors
    /// When it is absent, unreadable, longer than `max`, or does not decode.
    pub fn load_json<T: DeserializeOwned>(
        &self,
        path: &Path,
        max: u64,
    ) -> Result<Durable<T>, StateLoadError> {
        read_json(path, max).map(Durable)
    }

    /// Appends to a file (made with mode 0600), and syncs it.
    ///
    /// # Errors
    /// A part of `bytes` may have been written then.
    pub fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), StateWriteError> {
        let (folder_path, folder) = self.open_folder_of(path)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let mut file = self.step(Step::OpenFile, path, || options.open(path))?;
        let new = file.metadata().is_ok_and(|facts| facts.len() == 0);
        self.step(Step::Write, path, || file.write_all(bytes))?;
        self.step(Step::SyncFile, path, || file.sync_data())?;
        if new { self.step(Step::SyncFolder, &folder_path, || folder.sync_all()) } else { Ok(()) }
    }

    /// Moves a file of state within the state directory.
    ///
    /// # Errors
    /// See [`StateWriteError`].
    #[expect(clippy::disallowed_methods, reason = "the one place where both folders are synced")]
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), StateWriteError> {
        let (from_path, from_folder) = self.open_folder_of(from)?;
        let (to_path, to_folder) = self.open_folder_of(to)?;
        self.step(Step::Rename, to, || fs::rename(from, to))?;
        // The new name first: stopping between the two shows the file twice, never not at all.
        self.step(Step::SyncFolder, &to_path, || to_folder.sync_all())?;
        if from_path == to_path {
            return Ok(());
        }
        self.step(Step::SyncFolder, &from_path, || from_folder.sync_all())
    }

    /// Removes a file of state; one that is gone already is fine.
    ///
    /// # Errors
    /// See [`StateWriteError`].
    pub fn remove(&self, path: &Path) -> Result<(), StateWriteError> {
        let (folder_path, folder) = self.open_folder_of(path)?;
        self.step(Step::Remove, path, || match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        })?;
        self.step(Step::SyncFolder, &folder_path, || folder.sync_all())
    }

    /// Removes what interrupted writes left in this folder (not below it); says how many.
    ///
    /// # Errors
    /// See [`StateWriteError`].
    pub fn remove_temp_files(&self, dir: &Path) -> Result<usize, StateWriteError> {
        let entries = self.step(Step::OpenFolder, dir, || {
            fs::read_dir(dir)?.collect::<io::Result<Vec<fs::DirEntry>>>()
        })?;
        let mut removed = 0;
        for entry in entries {
            let ours = entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes());
            if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                self.remove(&entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Makes a folder, and those above it that are missing, with mode 0700; one that is there
    /// already is fine.
    ///
    /// # Errors
    /// See [`StateWriteError`].
    pub fn create_dir_durable(&self, path: &Path) -> Result<(), StateWriteError> {
        let parent = folder_of(path);
        if !path.is_dir() && parent != path && !parent.is_dir() {
            self.create_dir_durable(parent)?;
        }
        let made = self.step(Step::MakeFolder, path, || {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(_) if path.is_dir() => Ok(false),
                done => done.map(|()| true),
            }
        })?;
        // An earlier run may have stopped between making it and this sync, so an old folder is
        // synced too where that is possible.
        match File::open(parent) {
            Ok(folder) => self.step(Step::SyncFolder, parent, || folder.sync_all()),
            Err(error) if made => Err(self.failed(Step::OpenFolder, parent, error)),
            Err(_) => Ok(()),
        }
    }

    fn open_folder_of(&self, path: &Path) -> Result<(PathBuf, File), StateWriteError> {
        let folder = folder_of(path);
        // Opened first, so that want of a descriptor cannot come between rename and sync.
        let file = self.step(Step::OpenFolder, folder, || File::open(folder))?;
        Ok((folder.to_owned(), file))
    }

    fn step<T>(
        &self,
        step: Step,
        path: &Path,
        act: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, StateWriteError> {
        if let Some(cause) = self.poison.get() {
            return Err(StateWriteError::Poisoned { cause: cause.clone() });
        }
        #[cfg(debug_assertions)]
        if let Some(hook) = &self.hook {
            hook(step, path).map_err(|source| self.failed(step, path, source))?;
        }
        act().map_err(|source| self.failed(step, path, source))
    }

    fn failed(&self, step: Step, path: &Path, source: io::Error) -> StateWriteError {
        let (path, verb) = (path.to_owned(), step.verb());
        match judge(step, &source) {
            Judgement::Full => StateWriteError::Full { path, step: verb, source },
            Judgement::Refused => StateWriteError::Refused { path, step: verb, source },
            Judgement::Poison => {
                let first = || format!("{verb} {}: {source}", path.display());
                StateWriteError::Poisoned { cause: self.poison.get_or_init(first).clone() }
            }
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Reads a JSON file, without any claim on the state directory.
///
/// # Errors
/// When it is absent, unreadable, longer than `max`, or does not decode.
pub fn read_json<T: DeserializeOwned>(path: &Path, max: u64) -> Result<T, StateLoadError> {
    let bytes = read_limited(path, max)?;
    serde_json::from_slice(&bytes)
        .map_err(|source| StateLoadError::Decode { path: path.to_owned(), source })
}

/// Reads a JSON file of state that may be absent, without any claim on the state directory.
///
/// # Errors
/// When it is unreadable, longer than [`STATE_BYTES_MAX`], or does not decode.
pub fn load_optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateLoadError> {
    match read_json(path, STATE_BYTES_MAX) {
        Ok(value) => Ok(Some(value)),
        Err(StateLoadError::Read(ReadError::NotFound { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "durable_tests.rs"]
mod tests;
