//! Reads and replaces the configuration files of MCP clients. Driven by `afresh adopt` and `afresh run`. Never
//! interprets their content.
//!
//! They are the user's: a file keeps its rights and its owner, a link stays a link, and a file that has changed since
//! it was read is left alone.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use afresh_core::client_file_paths::{self, UserFolders};
use afresh_core::limits::ADOPT_FILE_BYTES_MAX;

use super::atomic_replace::{ReplaceFileError, Rights, replace_file};
use crate::os;
use crate::write_path::WritePath;

/// A file in which a client keeps its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The client that reads it.
    pub client: &'static str,
    /// Its owner.
    pub scope: FileOwner,
    /// Where it is.
    pub path: PathBuf,
    /// The folder that it may not lead out of.
    within: Option<PathBuf>,
}

/// The owner of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// The project's, for all who work on it.
    Project,
    /// The person's, for all projects.
    User,
    /// The one that was named.
    Named,
}

/// Why a configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadClientFileError {
    /// There is none.
    #[error("there is no file `{0}`")]
    Missing(PathBuf),
    /// It is a folder, a pipe or a device.
    #[error("`{0}` is not a file")]
    NotAFile(PathBuf),
    /// It is a link, and what it leads to is not the project's.
    #[error("`{0}` leads out of the project, to `{1}`; name it to change it all the same")]
    Outside(PathBuf, PathBuf),
    /// The system does not let us.
    #[error("cannot read `{0}`")]
    Io(PathBuf, #[source] io::Error),
}

/// Why a configuration could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum WriteClientFileError {
    /// Its permissions say that it should not be.
    #[error("`{0}` is read-only")]
    ReadOnly(PathBuf),
    /// Another program has changed it.
    #[error("`{0}` was changed meanwhile, and is left as it is; run the command again")]
    Changed(PathBuf),
    /// The system does not let us.
    #[error("cannot change `{0}`")]
    Replace(PathBuf, #[source] ReplaceFileError),
}

impl ClientFile {
    /// A file that the user named.
    pub fn named(path: PathBuf) -> Self {
        Self { client: "", scope: FileOwner::Named, path, within: None }
    }

    /// The same file, which has to be in this folder after all links.
    pub fn within(self, folder: &Path) -> Self {
        Self { within: Some(folder.to_owned()), ..self }
    }

    /// Whether it is the file of this path, whichever way the two paths lead there.
    pub fn is_at(&self, path: &Path) -> bool {
        are_same_file(&self.path, path)
    }

    /// The files that exist: the project's, from `cwd` up to its root, then the user's.
    ///
    /// `variable` gives those variables that are absolute paths; `home` is the user's folder.
    pub fn find(
        cwd: &Path,
        root: Option<&Path>,
        home: Option<&Path>,
        variable: &dyn Fn(&str) -> Option<PathBuf>,
    ) -> Vec<Self> {
        let settings = home.map(|home| os::settings_folder(home, variable));
        let folders = UserFolders { home, settings: settings.as_deref(), variable };
        let mut user: Vec<Self> = Vec::new();
        // Without a folder of the user, a variable alone makes none of the files the user's.
        if home.is_some() {
            let files = client_file_paths::user_files(&folders).into_iter();
            user.extend(files.map(|(file, path)| Self {
                client: file.client,
                scope: FileOwner::User,
                path,
                within: None,
            }));
        }
        let root = root.unwrap_or(cwd);
        let folders = cwd.ancestors().take_while(|folder| folder.starts_with(root));
        let project = folders.flat_map(|folder| {
            client_file_paths::project_files().map(move |file| Self {
                client: file.client,
                scope: FileOwner::Project,
                path: folder.join(file.path),
                within: Some(root.to_owned()),
            })
        });
        // A file whose existence is unknown fails when it is read.
        let exists = |file: &Self| file.path.try_exists().unwrap_or(true);
        user.retain(exists);
        let is_users = |file: &Self| user.iter().any(|other| file.is_at(&other.path));
        let mut found: Vec<Self> = project.filter(|file| exists(file) && !is_users(file)).collect();
        found.extend(user);
        found
    }

    /// Reads it; of a file that is too large, one byte more than is allowed.
    pub fn read(&self) -> Result<ClientText, ReadClientFileError> {
        let path = || self.path.clone();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ReadClientFileError::Missing(path()),
            _ => ReadClientFileError::Io(path(), source),
        };
        let target = self.path.canonicalize().map_err(failed)?;
        if let Some(within) = &self.within {
            let within = within.canonicalize().map_err(failed)?;
            if !target.starts_with(within) {
                return Err(ReadClientFileError::Outside(path(), target));
            }
        }
        let metadata = fs::metadata(&target).map_err(failed)?;
        if !metadata.is_file() {
            return Err(ReadClientFileError::NotAFile(path()));
        }
        let bytes = read_bytes(&target).map_err(failed)?;
        Ok(ClientText { path: target, bytes, metadata })
    }
}

/// A configuration as it was read.
#[derive(Debug)]
pub struct ClientText {
    /// What the links lead to.
    path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
    metadata: Metadata,
}

impl ClientText {
    /// Whether both are the same file, be it by different names.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// Replaces the file, if it is still as it was read.
    pub fn replace(&self, content: &str) -> Result<(), WriteClientFileError> {
        let path = || self.path.clone();
        if self.metadata.permissions().readonly() {
            return Err(WriteClientFileError::ReadOnly(path()));
        }
        if read_bytes(&self.path).ok().as_ref() != Some(&self.bytes) {
            return Err(WriteClientFileError::Changed(path()));
        }
        replace_file(
            &WritePath::named(&self.path),
            content.as_bytes(),
            Rights::Like(&self.metadata),
        )
        .map_err(|source| WriteClientFileError::Replace(path(), source))
    }
}

fn are_same_file(one: &Path, other: &Path) -> bool {
    let canonical = || Some((one.canonicalize().ok()?, other.canonicalize().ok()?));
    one == other || canonical().is_some_and(|(one, other)| one == other)
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(ADOPT_FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    os::open_to_read(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The paths of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPaths {
    /// The executable.
    pub path: PathBuf,
    /// The one that PATH has, where it leads to this program or to the launcher of its npm package.
    pub on_path: Option<PathBuf>,
}

impl OwnPaths {
    /// Finds them.
    pub fn find(path_variable: Option<&OsStr>) -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let on_path = first_in_path(path_variable, NAME).filter(|found| {
            let (Ok(found), Ok(own)) = (found.canonicalize(), path.canonicalize()) else {
                return false;
            };
            found == own
                || node_modules_of(&found).is_some_and(|it| node_modules_of(&own) == Some(it))
        });
        Ok(Self { path, on_path })
    }
}

/// The outermost `node_modules` that a path lies in.
fn node_modules_of(path: &Path) -> Option<PathBuf> {
    let mut folders: Vec<&Path> = path.ancestors().collect();
    folders.reverse();
    let found = folders.into_iter().find(|folder| folder.ends_with("node_modules"));
    found.map(Path::to_owned)
}

/// Whether PATH has a program of this name.
pub fn is_in_path(path_variable: Option<&OsStr>, name: &str) -> bool {
    first_in_path(path_variable, name).is_some()
}

/// The path of this program; the one that PATH leads to, where it does, because that stays the same when
/// a new version takes its place.
pub fn own_path(path_variable: Option<&OsStr>) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(found_in_path(path_variable, &own).unwrap_or(own))
}

const NAME: &str = "afresh";

fn first_in_path(path_variable: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    let folders = path_variable.into_iter().flat_map(std::env::split_paths);
    folders.filter(|folder| folder.is_absolute()).find_map(|folder| os::program_in(&folder, name))
}

fn found_in_path(path_variable: Option<&OsStr>, own: &Path) -> Option<PathBuf> {
    first_in_path(path_variable, NAME).filter(|found| {
        match (found.canonicalize(), own.canonicalize()) {
            (Ok(found), Ok(own)) => found == own,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::store::testing::TempDir;

    fn put(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }

    #[test]
    fn files_are_found_up_to_the_root_and_no_further() {
        let dir = TempDir::new();
        let home = dir.join("home");
        for path in [
            "home/.mcp.json",
            "home/repo/.mcp.json",
            "home/repo/sub/.vscode/mcp.json",
            "home/repo/sub/deep/opencode.jsonc",
            "home/.cursor/mcp.json",
            "home/codex/config.toml",
        ] {
            put(dir.join(path));
        }
        let variable = |name: &str| (name == "CODEX_HOME").then(|| home.join("codex"));
        let find = |cwd: &str, root: Option<&str>| -> Vec<(FileOwner, PathBuf)> {
            let root = root.map(|root| home.join(root));
            let all = ClientFile::find(&home.join(cwd), root.as_deref(), Some(&home), &variable);
            let from_home = |path: &Path| path.strip_prefix(&home).unwrap().to_owned();
            all.iter().map(|file| (file.scope, from_home(&file.path))).collect()
        };
        let users = [(FileOwner::User, ".cursor/mcp.json"), (FileOwner::User, "codex/config.toml")];
        let wanted = |project: &[&str]| -> Vec<(FileOwner, PathBuf)> {
            let project = project.iter().map(|path| (FileOwner::Project, *path));
            project.chain(users).map(|(whose, path)| (whose, path.into())).collect()
        };
        assert_eq!(
            find("repo/sub/deep", Some("repo")),
            wanted(&[
                "repo/sub/deep/opencode.jsonc",
                "repo/sub/.vscode/mcp.json",
                "repo/.mcp.json"
            ])
        );
        assert_eq!(find("repo/sub", None), wanted(&["repo/sub/.vscode/mcp.json"]));
        // At home, what is the user's is not the project's.
        assert_eq!(find("", None), wanted(&[".mcp.json"]));
    }

    #[test]
    fn the_users_files_are_found_once_by_whatever_path() {
        let dir = TempDir::new();
        put(dir.join("home/.cursor/mcp.json"));
        put(dir.join("home/.mcp.json"));
        symlink("home", dir.join("link")).unwrap();
        for (cwd, home) in [("home", "link"), ("link", "home"), ("link/../home", "home")] {
            let found = ClientFile::find(&dir.join(cwd), None, Some(&dir.join(home)), &|_| None);
            let found: Vec<(FileOwner, PathBuf)> =
                found.into_iter().map(|file| (file.scope, file.path)).collect();
            let wanted = [
                (FileOwner::Project, dir.join(cwd).join(".mcp.json")),
                (FileOwner::User, dir.join(home).join(".cursor/mcp.json")),
            ];
            assert_eq!(found, wanted, "{cwd} {home}");
        }
        let named = ClientFile::named(dir.join("home/../link/.cursor/../.mcp.json"));
        assert!(named.is_at(&dir.join("home/.mcp.json")) && !named.is_at(&dir.join("home/x")));
        assert!(!named.is_at(&dir.join("home/.cursor/mcp.json")));
    }

    #[test]
    fn a_replaced_file_keeps_its_rights_and_its_link() {
        let dir = TempDir::new();
        fs::write(dir.join("real.json"), "old").unwrap();
        fs::set_permissions(dir.join("real.json"), PermissionsExt::from_mode(0o640)).unwrap();
        symlink("real.json", dir.join("link.json")).unwrap();
        let text = ClientFile::named(dir.join("link.json")).read().unwrap();
        assert_eq!(text.bytes, b"old");
        text.replace("new").unwrap();
        assert!(dir.join("link.json").is_symlink());
        assert_eq!(fs::read(dir.join("real.json")).unwrap(), b"new");
        let mode = fs::metadata(dir.join("real.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.join("")).unwrap().count(), 2, "nothing else is left");
        // It has changed since it was read.
        let error = text.replace("newer").unwrap_err();
        assert!(matches!(error, WriteClientFileError::Changed { .. }), "{error}");
        assert_eq!(fs::read(dir.join("real.json")).unwrap(), b"new");
    }

    #[test]
    fn what_is_not_ours_to_change_is_refused() {
        let dir = TempDir::new();
        put(dir.join("outside.json"));
        fs::create_dir_all(dir.join("repo/.vscode/mcp.json")).unwrap();
        symlink("../outside.json", dir.join("repo/.mcp.json")).unwrap();
        let found = ClientFile::find(&dir.join("repo"), None, None, &|_| None);
        let errors: Vec<String> =
            found.iter().map(|file| file.read().unwrap_err().to_string()).collect();
        assert!(errors[0].ends_with("mcp.json` is not a file"), "{errors:?}");
        assert!(errors[1].contains("leads out of the project"), "{errors:?}");
        assert_eq!(errors.len(), 2);

        fs::set_permissions(dir.join("outside.json"), PermissionsExt::from_mode(0o444)).unwrap();
        let text = ClientFile::named(dir.join("outside.json")).read().unwrap();
        let error = text.replace("x").unwrap_err();
        assert!(matches!(error, WriteClientFileError::ReadOnly { .. }), "{error}");
        let missing = ClientFile::named(dir.join("nowhere")).read().unwrap_err();
        assert!(matches!(missing, ReadClientFileError::Missing { .. }), "{missing}");
    }
}
