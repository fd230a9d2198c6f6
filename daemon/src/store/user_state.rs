//! Owns the user's private folder: what the user trusts, pinned tools, catalogs, keys and tokens. Read and changed by
//! commands and loops. Never lies in a workspace: a cloned repository could ship it.
//!
//! Each file is a JSON object with a `version`. A file of a newer version is left alone, with an error that says so.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::iter::repeat_n;
use std::path::{Path, PathBuf};

use afresh_core::limits::{DOWN_LOOK_INTERVAL, STATE_FILE_BYTES_MAX, STATE_LOCK_TRIES_MAX};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::atomic_replace::{ReplaceFileError, Rights, replace_file};
use super::lock::lock_patiently;
use crate::os;
use crate::write_path::WritePath;

/// The content of one file in the private folder. A missing file is the default.
pub trait StateFile: Default + Serialize + DeserializeOwned {
    /// The name of the file.
    const NAME: &'static str;
    /// The version that this build writes; older ones are read.
    const VERSION: u64;
}

/// The user's private folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserState {
    folder: PathBuf,
}

/// Why the private folder, or a file in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserStateError {
    /// Neither variable names a folder.
    #[error("there is no folder for the user's state; set HOME or XDG_STATE_HOME")]
    NoFolder,
    /// The folder cannot be made.
    #[error("cannot create the folder `{0}`")]
    Create(PathBuf, #[source] io::Error),
    /// Another user owns it, or can write to it.
    #[error("the folder `{0}` {1}; make it yours with mode 0700, or set XDG_STATE_HOME")]
    NotOurs(PathBuf, &'static str),
    /// A newer afresh has written it.
    #[error("`{0}` has version {1}, and this afresh knows {2}; use the newer afresh")]
    Newer(PathBuf, u64, u64),
    /// It is not what afresh writes.
    #[error("`{0}` is damaged; move it away to start anew")]
    Damaged(PathBuf, #[source] serde_json::Error),
    /// It is larger than afresh ever writes.
    #[error("`{0}` is larger than {STATE_FILE_BYTES_MAX} bytes; move it away to start anew")]
    TooLarge(PathBuf),
    /// The system does not let us read it.
    #[error("cannot read `{0}`")]
    Read(PathBuf, #[source] io::Error),
    /// Another process holds the lock for too long, or the lock cannot be used.
    #[error("cannot lock `{0}`")]
    Lock(PathBuf, #[source] io::Error),
    /// It cannot be written.
    #[error("cannot change `{0}`")]
    Write(PathBuf, #[source] ReplaceFileError),
}

impl UserState {
    /// The folder of this user; the caller reads `HOME` and `XDG_STATE_HOME`. Creates nothing.
    pub fn find(
        home: Option<&Path>,
        xdg_state_home: Option<&Path>,
    ) -> Result<Self, UserStateError> {
        let state = user_state_folder(home, xdg_state_home).ok_or(UserStateError::NoFolder)?;
        Ok(Self { folder: state.join("private") })
    }

    /// A file or folder in it, for content that is not a [`StateFile`].
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the folder, or checks that it is this user's alone.
    pub fn prepare(&self) -> Result<(), UserStateError> {
        let mut builder = DirBuilder::new();
        os::make_private(&mut builder);
        let failed = |source| UserStateError::Create(self.folder.clone(), source);
        builder.recursive(true).create(&self.folder).map_err(failed)?;
        self.check(&fs::symlink_metadata(&self.folder).map_err(failed)?)
    }

    fn check(&self, metadata: &fs::Metadata) -> Result<(), UserStateError> {
        let wrong = match () {
            () if !metadata.is_dir() => Some("is not a folder"),
            () => os::not_ours_alone(metadata),
        };
        wrong.map_or(Ok(()), |what| Err(UserStateError::NotOurs(self.folder.clone(), what)))
    }

    /// Reads a file; the default where there is none.
    pub fn read<T: StateFile>(&self) -> Result<T, UserStateError> {
        let path = self.path(T::NAME);
        match fs::symlink_metadata(&self.folder) {
            Ok(metadata) => self.check(&metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(UserStateError::Read(path, error)),
        }
        let failed = |source| UserStateError::Read(path.clone(), source);
        let file = match os::open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(STATE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > STATE_FILE_BYTES_MAX {
            return Err(UserStateError::TooLarge(path));
        }
        let damaged = |source| UserStateError::Damaged(path.clone(), source);
        let value: Value = serde_json::from_slice(&bytes).map_err(damaged)?;
        // One that is no number is of no version that is known: it is not taken for an old one.
        let version = value.get("version").map(u64::deserialize).transpose().map_err(damaged)?;
        match version {
            Some(found) if found > T::VERSION => {
                Err(UserStateError::Newer(path, found, T::VERSION))
            }
            _ => serde_json::from_value(value).map_err(damaged),
        }
    }

    /// Reads a file, changes its content and writes it, while no other process does.
    pub fn change<T: StateFile, R>(
        &self,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, UserStateError> {
        self.prepare()?;
        let _lock = self.lock()?;
        let mut content = self.read::<T>()?;
        let result = change(&mut content);
        let path = self.path(T::NAME);
        let damaged = |source| UserStateError::Damaged(path.clone(), source);
        let mut value = serde_json::to_value(&content).map_err(damaged)?;
        if let Value::Object(members) = &mut value {
            members.insert("version".to_owned(), T::VERSION.into());
        }
        let text = format!("{value:#}\n");
        if text.len() as u64 > STATE_FILE_BYTES_MAX {
            return Err(UserStateError::TooLarge(path));
        }
        replace_file(&WritePath::named(&path), text.as_bytes(), Rights::Private)
            .map_err(|source| UserStateError::Write(path, source))?;
        Ok(result)
    }

    /// Held while a file of the folder is changed; the kernel releases it when the process ends.
    fn lock(&self) -> Result<File, UserStateError> {
        let path = self.path("lock");
        let failed = |source| UserStateError::Lock(path.clone(), source);
        let file = os::open_to_append(&path).map_err(failed)?;
        lock_patiently(&file, repeat_n(DOWN_LOOK_INTERVAL, STATE_LOCK_TRIES_MAX))
            .map_err(|error| failed(error.into()))?;
        Ok(file)
    }
}

/// Where afresh keeps state of this user that belongs to no workspace.
pub fn user_state_folder(home: Option<&Path>, xdg_state_home: Option<&Path>) -> Option<PathBuf> {
    let absolute = |path: &&Path| path.is_absolute();
    xdg_state_home
        .filter(absolute)
        .map(|xdg| xdg.join("afresh"))
        .or_else(|| home.filter(absolute).map(|home| home.join(".local/state/afresh")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde::Deserialize;

    use super::*;
    use crate::store::testing::TempDir;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Names {
        names: Vec<String>,
    }

    impl StateFile for Names {
        const NAME: &'static str = "names.json";
        const VERSION: u64 = 2;
    }

    fn state(dir: &TempDir) -> UserState {
        UserState::find(Some(&dir.join("")), None).unwrap()
    }

    #[test]
    fn a_change_is_kept_with_its_version_and_is_this_users_alone() {
        let dir = TempDir::new();
        let state = state(&dir);
        assert_eq!(state.read::<Names>().unwrap(), Names::default());
        assert!(!state.folder.exists(), "reading creates nothing");
        for name in ["one", "two"] {
            state.change(|names: &mut Names| names.names.push(name.to_owned())).unwrap();
        }
        assert_eq!(state.read::<Names>().unwrap().names, ["one", "two"]);
        let text = fs::read_to_string(state.path("names.json")).unwrap();
        assert!(text.contains("\"version\": 2"), "{text}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state.folder), mode(&state.path("names.json"))), (0o700, 0o600));
    }

    #[test]
    fn a_newer_or_damaged_file_is_named_and_left_alone() {
        let dir = TempDir::new();
        let state = state(&dir);
        state.prepare().unwrap();
        for (text, wanted) in [
            ("{\"version\": 3, \"names\": 7}", "has version 3, and this afresh knows 2"),
            ("{\"version\": 2, \"names\"", "is damaged"),
            ("{\"version\": \"3\", \"names\": []}", "is damaged"),
            ("{\"version\": 2.0, \"names\": []}", "is damaged"),
        ] {
            fs::write(state.path("names.json"), text).unwrap();
            let read = state.read::<Names>().unwrap_err().to_string();
            let changed = state.change(|_: &mut Names| ()).unwrap_err().to_string();
            assert!(read.contains(wanted) && changed.contains(wanted), "{read}; {changed}");
            assert_eq!(fs::read_to_string(state.path("names.json")).unwrap(), text);
        }
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let dir = TempDir::new();
        let state = state(&dir);
        state.prepare().unwrap();
        fs::set_permissions(&state.folder, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(state.read::<Names>(), Err(UserStateError::NotOurs(..))));
        assert!(matches!(state.change(|_: &mut Names| ()), Err(UserStateError::NotOurs(..))));
    }

    #[test]
    fn changes_of_many_threads_are_all_kept() {
        let dir = TempDir::new();
        let state = state(&dir);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let state = &state;
                scope.spawn(move || {
                    state.change(|names: &mut Names| names.names.push(number.to_string())).unwrap()
                });
            }
        });
        assert_eq!(state.read::<Names>().unwrap().names.len(), 8);
    }
}
