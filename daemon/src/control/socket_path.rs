//! Owns the paths of control sockets: the user's runtime folder, or one beside those of other users. Used by the
//! server and the clients of the control API. A folder or socket that is not this user's alone is never used.
//!
//! A socket is called after its process, not after its service: names and workspaces have any length,
//! the path of a socket has not. What runs there, it says itself.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use afresh_core::limits::{CONTROL_LEFTOVER_AGE, CONTROL_SOCKETS_MAX};

use crate::clock::now;
use crate::error_chain::chain;
use crate::os::{self, SOCKET_PATH_BYTES_MAX, SocketListener};

/// The folders that may have control sockets of this user, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFolders(Vec<PathBuf>);

/// The last of the folders, in the user's state: no other user can take its name.
const OWN: &str = "sockets";

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error("cannot create the runtime folder `{path}`")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the runtime folder `{path}` {what}; remove it")]
    NotOurs { path: PathBuf, what: &'static str },
    #[error("the path of the runtime folder `{path}` is too long for a socket")]
    TooLong { path: PathBuf },
    #[error("cannot make a control socket in `{path}`")]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    /// A system that has no such folder is nothing to talk about, as long as there is another one.
    fn is_worth_saying(&self) -> bool {
        !matches!(self, Self::Create { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl RuntimeFolders {
    /// The folders of this user; the caller reads `XDG_RUNTIME_DIR`, and knows the folder of the user's state.
    pub fn new(xdg_runtime_dir: Option<&Path>, state: Option<PathBuf>) -> Self {
        let mut folders =
            os::runtime_folders(xdg_runtime_dir.filter(|folder| folder.is_absolute()));
        if !folders.is_empty() {
            folders.extend(state.map(|state| state.join(OWN)));
        }
        Self(folders)
    }

    /// One folder and no other: its sockets are out of sight for an afresh without it, and the other way round.
    pub fn only(folder: PathBuf) -> Self {
        Self(if os::runtime_folders(None).is_empty() { Vec::new() } else { vec![folder] })
    }

    /// Whether this system has any.
    pub(super) fn is_supported(&self) -> bool {
        !self.0.is_empty()
    }

    /// Makes a socket in the first folder that can have one; `complain` is told why it is not a
    /// better one, in at most one line.
    pub(super) fn listen(&self, complain: impl Fn(&str)) -> Option<SocketListener> {
        let mut failure = None;
        for folder in &self.0 {
            match listen_in(folder) {
                Ok(socket) => {
                    if let Some(error) = failure.filter(FolderError::is_worth_saying) {
                        let error = chain(&error);
                        complain(&format!(
                            "{error}; the control socket is in `{}`",
                            folder.display()
                        ));
                    }
                    return Some(socket);
                }
                Err(error) => {
                    failure = failure.filter(FolderError::is_worth_saying).or(Some(error))
                }
            }
        }
        if let Some(error) = failure {
            complain(&format!("`afresh status` will not see this: {}", chain(&error)));
        }
        None
    }

    /// The first folder that can be this user's alone; it is made where it is not there.
    pub(crate) fn private_folder(&self) -> Option<PathBuf> {
        self.0.iter().find(|folder| prepare(folder).is_ok()).cloned()
    }

    /// Says that a better folder than the one with the sockets is not this user's: another user can have made it, and
    /// what runs is not seen there. None where all is well, or nothing runs.
    pub fn warning(&self) -> Option<String> {
        let mut failure = None;
        for folder in &self.0 {
            match check(folder) {
                Ok(()) => {
                    let place = folder.display();
                    return failure.map(|error| {
                        format!("{}; the control socket is in `{place}`", chain(&error))
                    });
                }
                Err(error @ FolderError::NotOurs { .. }) => failure = failure.or(Some(error)),
                Err(_) => {}
            }
        }
        failure.map(|error| format!("`afresh status` will not see this: {}", chain(&error)))
    }

    /// The sockets that are there, whether a process listens or not.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        self.files("sock").collect()
    }

    /// Removes what processes left that were killed while they made their socket.
    pub(super) fn remove_leftovers(&self) {
        let is_old = |path: &PathBuf| {
            let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
            let age = modified.map(|modified| SystemTime::now().duration_since(modified));
            age.is_ok_and(|age| age.is_ok_and(|age| age > CONTROL_LEFTOVER_AGE))
        };
        for path in self.files("new").filter(is_old) {
            fs::remove_file(path).ok();
        }
    }

    fn files(&self, extension: &str) -> impl Iterator<Item = PathBuf> {
        // Who can put a socket there could pretend to be us.
        let ours = self.0.iter().filter(|folder| check(folder).is_ok());
        let entries = ours.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let found = entries.take(CONTROL_SOCKETS_MAX).map(|entry| entry.path());
        found.filter(move |path| path.extension().is_some_and(|found| found == extension))
    }
}

/// The process that a socket belongs to, as its name says.
pub(super) fn owner_of(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

fn listen_in(folder: &Path) -> Result<SocketListener, FolderError> {
    let path = || folder.to_owned();
    let name = format!("{}-{:08x}", std::process::id(), (now().unix_seconds() * 1e6) as u64 as u32);
    let (named, unnamed) =
        (folder.join(format!("{name}.sock")), folder.join(format!("{name}.new")));
    if named.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(FolderError::TooLong { path: path() });
    }
    prepare(folder)?;
    SocketListener::bind(&named, &unnamed)
        .map_err(|source| FolderError::Bind { path: path(), source })
}

/// Makes a folder that is this user's alone, or checks that it is.
fn prepare(folder: &Path) -> Result<(), FolderError> {
    let path = || folder.to_owned();
    let mut builder = DirBuilder::new();
    os::make_private(&mut builder);
    // Those above the others are the system's.
    builder.recursive(folder.file_name().is_some_and(|name| name == OWN));
    match builder.create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(FolderError::Create { path: path(), source }),
    }
    check(folder)
}

/// Whether a folder is one, and this user's alone.
fn check(folder: &Path) -> Result<(), FolderError> {
    let path = || folder.to_owned();
    let metadata = fs::symlink_metadata(folder)
        .map_err(|source| FolderError::Create { path: path(), source })?;
    let wrong = match () {
        () if metadata.is_symlink() => Some("is a link"),
        () if !metadata.is_dir() => Some("is not a folder"),
        () => os::not_ours_alone(&metadata),
    };
    wrong.map_or(Ok(()), |what| Err(FolderError::NotOurs { path: path(), what }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::store::testing::TempDir;

    /// What is said when these folders are tried, and the socket.
    fn listen(folders: &[PathBuf]) -> (Option<SocketListener>, Vec<String>) {
        let said = RefCell::new(Vec::new());
        let complain = |text: &str| said.borrow_mut().push(text.to_owned());
        let socket = RuntimeFolders(folders.to_vec()).listen(complain);
        (socket, said.into_inner())
    }

    #[tokio::test]
    async fn the_first_folder_that_will_do_is_used_and_one_line_says_why_not_a_better_one() {
        let scratch = TempDir::new();
        let (file, good) = (scratch.join("file"), scratch.join("good"));
        fs::write(&file, "").unwrap();
        let missing = scratch.join("missing/afresh");
        let (socket, said) = listen(&[missing.clone(), good.clone()]);
        assert!(socket.is_some() && said.is_empty(), "{said:?}");
        let folders = RuntimeFolders(vec![missing.clone(), good.clone()]);
        let sockets = folders.sockets();
        assert_eq!(
            sockets.iter().map(|path| owner_of(path)).collect::<Vec<_>>(),
            [Some(std::process::id())]
        );
        drop(socket);
        assert!(folders.sockets().is_empty());

        let (socket, said) = listen(&[missing.clone(), file.clone(), good]);
        assert!(socket.is_some());
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("is not a folder; remove it; the control socket is in"),
            "{said:?}"
        );

        let (socket, said) = listen(&[file.clone(), missing]);
        assert!(socket.is_none());
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("`afresh status` will not see this: the runtime folder"),
            "{said:?}"
        );
        let long = scratch.join("x".repeat(120));
        let (socket, said) = listen(&[long]);
        assert!(socket.is_none() && said[0].contains("too long"), "{said:?}");
    }

    #[tokio::test]
    async fn where_another_user_has_taken_all_shared_folders_the_one_in_the_users_state_is_used() {
        let scratch = TempDir::new();
        let (squatted, state) =
            (scratch.join("squatted"), scratch.join("home/.local/state/afresh"));
        fs::write(&squatted, "").unwrap();
        let folders = RuntimeFolders(vec![squatted.clone(), state.join(OWN)]);
        assert!(folders.warning().is_some_and(|text| text.contains("will not see this")));
        let said = RefCell::new(Vec::new());
        let socket = folders.listen(|text| said.borrow_mut().push(text.to_owned()));
        assert!(socket.is_some() && folders.sockets().len() == 1);
        let named = folders.warning().unwrap();
        assert_eq!(said.into_inner().concat(), named);
        for text in ["squatted` is not a folder; remove it", "afresh/sockets`"] {
            assert!(named.contains(text), "{named}");
        }
        fs::remove_file(&squatted).unwrap();
        assert_eq!(folders.warning(), None);
        assert!(RuntimeFolders::new(None, Some(state.clone())).0.ends_with(&[state.join(OWN)]));
    }

    #[test]
    fn names_that_are_not_ours_have_no_owner() {
        for (name, owner) in [("7-abc.sock", Some(7)), ("x.sock", None), ("-1.sock", None)] {
            assert_eq!(owner_of(Path::new(name)), owner, "{name}");
        }
    }
}
