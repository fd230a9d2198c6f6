//! Finds and prepares the state folder: the project's `.afresh/`, or the user's outside of one.
//!
//! Reads no environment: the caller passes it in.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};

use afresh_core::config::{ConfiguredPath, TrailSettings};

use super::atomic_replace::{ReplaceFileError, Rights, replace_file};
use super::user_state::user_state_folder;
use crate::error_chain::chain;
use crate::os::{self, FolderOwner};
use crate::write_path::WritePath;

/// The folder that afresh works for, and where its state goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    root: Option<PathBuf>,
    /// The first one that can be used is; there is always one.
    places: Vec<StateFolder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StateFolder {
    kind: Kind,
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `.afresh/` in the workspace.
    Project,
    /// The user's state folder.
    User,
    /// A folder beside those of other users.
    Temporary,
}

/// A configuration file that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// Every user can create files in its folder.
    OpenFolder(PathBuf),
    /// It is another user's, in a folder above the current one.
    AnotherUsers(PathBuf),
}

/// Why a state folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PrepareWorkspaceError {
    /// It does not exist and can't be made.
    #[error("cannot create the state folder `{0}`")]
    Create(PathBuf, #[source] io::Error),
    /// It exists, but nothing can be written there.
    #[error("cannot write to the state folder `{0}`")]
    Access(PathBuf, #[source] io::Error),
    /// Another user made it, or can write to it.
    #[error("state folder `{0}` is not this user's alone; remove it or set XDG_STATE_HOME")]
    NotOurs(PathBuf),
    /// It is a project's, and another user made it.
    #[error("state folder `{0}` belongs to another user; remove it, or make it yours")]
    AnotherUsers(PathBuf),
    /// It is a link, in a project.
    #[error("state folder `{0}` is a link; make it a folder, or remove it")]
    Link(PathBuf),
    /// Its `.gitignore` can't be written.
    #[error("cannot keep the state folder `{0}` out of git")]
    Ignore(PathBuf, #[source] ReplaceFileError),
}

impl Workspace {
    /// Finds the workspace that `cwd` is in; the caller reads `HOME` and `XDG_STATE_HOME`.
    pub fn find(cwd: &Path, home: Option<&Path>, xdg_state_home: Option<&Path>) -> Self {
        let home = home.filter(|home| home.is_absolute());
        let is_found = |folder: &&Path| is_root(folder, home) && !is_foreign(folder, cwd);
        let root = cwd.ancestors().find(is_found);
        let project = root.map(|root| root.join(STATE));
        let user = user_state_folder(home, xdg_state_home);
        // Projects that nothing can be written to have a folder each: they are not one.
        let apart = |path: PathBuf| match root {
            Some(root) => path.join("projects").join(folder_name(root)),
            None => path,
        };
        let user = user.map(apart);
        let temporary = os::own_temporary_folder();
        let places =
            [(Kind::Project, project), (Kind::User, user), (Kind::Temporary, Some(temporary))]
                .into_iter()
                .filter_map(|(kind, path)| path.map(|path| StateFolder { kind, path }))
                .collect();
        Self { root: root.map(Path::to_owned), places }
    }

    /// A configuration file that does not count, nearer to `cwd` than what does: another user has made it, or could have.
    pub fn passed_over(&self, cwd: &Path) -> Option<PassedOver> {
        let nearer = cwd.ancestors().take_while(|folder| Some(*folder) != self.root());
        let mut found = nearer.filter(|folder| folder.join(CONFIG).is_file());
        found.find_map(|folder| match folder.join(CONFIG) {
            file if os::is_open_to_all(folder) => Some(PassedOver::OpenFolder(file)),
            file if is_foreign(folder, cwd) => Some(PassedOver::AnotherUsers(file)),
            _ => None,
        })
    }

    /// The project's folder; none outside of one.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.places[0].path
    }

    /// The state folder, to write into it.
    pub fn writable_state(&self) -> WritePath {
        self.places[0].writable()
    }

    /// The folder of the logs of services.
    pub fn logs(&self) -> PathBuf {
        self.state().join("logs")
    }

    /// The same, to write into it.
    pub fn writable_logs(&self) -> WritePath {
        self.writable_state().join("logs")
    }

    /// Creates the state folder. Where it can't be used, [`state`](Self::state) is another one
    /// afterwards, and the text says so; or it says what is wrong with this one.
    pub fn prepare(&mut self) -> Result<Option<String>, PrepareWorkspaceError> {
        let mut failure = None;
        let warning = loop {
            match self.places[0].prepare() {
                Ok(warning) => break warning,
                Err(error) if self.places.len() == 1 => return Err(failure.unwrap_or(error)),
                Err(error) => failure = failure.or(Some(error)),
            }
            self.places.remove(0);
        };
        let said = |error| format!("{}; state goes to `{}`", chain(&error), self.state().display());
        Ok(failure.map(said).or(warning))
    }

    /// Makes the state folder again where it was, after it was deleted. No other folder takes its place: on failure,
    /// another try can succeed.
    pub(crate) fn restore(&self) -> Result<(), PrepareWorkspaceError> {
        self.places[0].prepare().map(drop)
    }

    /// Looks where [`prepare`](Self::prepare) would put the state, and creates nothing. A command that
    /// only reads goes there afterwards; where no place can be used, nothing changes.
    pub fn locate(&mut self) {
        if let Some(usable) = self.places.iter().position(StateFolder::is_usable) {
            self.places.drain(..usable);
        }
    }
}

/// The files of the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailFiles {
    /// The audit trail.
    pub audit: WritePath,
    /// The restart marker.
    pub marker: WritePath,
}

impl TrailFiles {
    /// The configured ones, a relative path counted from the workspace, or those in its state
    /// folder.
    pub fn of(workspace: &Workspace, settings: &TrailSettings) -> Self {
        let base = workspace.root().unwrap_or(workspace.state());
        let place = |configured: &Option<ConfiguredPath>, name: &str| match configured {
            Some(ConfiguredPath { path, is_project: true }) => WritePath::beneath(base, path),
            Some(ConfiguredPath { path, is_project: false }) => WritePath::named(base.join(path)),
            None => workspace.writable_state().join(name),
        };
        Self {
            audit: place(&settings.audit_file, "audit.jsonl"),
            marker: place(&settings.marker_file, "restart_marker.json"),
        }
    }
}

/// A name for a project's folder that no other project has, and that people recognise.
fn folder_name(root: &Path) -> String {
    let named = root.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = named.chars().filter(|c| plain(*c)).take(40).collect();
    // FNV-1a: the same in every version.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash =
        root.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |h, b| step(h, *b));
    format!("{}-{hash:016x}", name.trim_start_matches('.'))
}

impl StateFolder {
    /// Whether it can be written, or made.
    fn is_usable(&self) -> bool {
        let above = self.path.ancestors().find(|path| path.exists());
        let ours = match self.kind {
            Kind::Project => self.path.symlink_metadata().is_err() || is_ours(&self.path),
            Kind::User => true,
            Kind::Temporary => !self.path.exists() || is_ours_alone(&self.path),
        };
        let writable = |folder: &Path| folder.is_dir() && os::can_write(folder).is_ok();
        ours && above.is_some_and(writable)
    }

    /// The folder, to write into it: of a project, no link beneath its root is followed.
    fn writable(&self) -> WritePath {
        match (self.kind, self.path.parent(), self.path.file_name()) {
            (Kind::Project, Some(root), Some(name)) => WritePath::beneath(root, name),
            _ => WritePath::beneath(&self.path, ""),
        }
    }

    /// Makes it, or checks that it can be used. Returns what a user should know about it.
    fn prepare(&self) -> Result<Option<String>, PrepareWorkspaceError> {
        let path = || self.path.clone();
        let warning = match self.kind {
            Kind::Project => self.claim()?,
            Kind::User | Kind::Temporary => {
                let mut builder = DirBuilder::new();
                os::make_private(&mut builder);
                builder
                    .recursive(true)
                    .create(&self.path)
                    .map_err(|source| PrepareWorkspaceError::Create(path(), source))?;
                None
            }
        };
        if self.kind == Kind::Temporary && !is_ours_alone(&self.path) {
            return Err(PrepareWorkspaceError::NotOurs(path()));
        }
        os::can_write(&self.path)
            .map_err(|source| PrepareWorkspaceError::Access(path(), source))?;
        if self.kind == Kind::Project {
            keep_out_of_git(&self.writable())
                .map_err(|source| PrepareWorkspaceError::Ignore(path(), source))?;
        }
        Ok(warning)
    }

    /// Makes the state folder of a project this user's alone. A link could lead anywhere, and what another user made
    /// could be changed by that one: neither is used.
    fn claim(&self) -> Result<Option<String>, PrepareWorkspaceError> {
        let path = || self.path.clone();
        let folder = self.writable();
        let made = folder.make_folder().and_then(|()| folder.open_folder()?.claim());
        match made {
            Ok(FolderOwner::We) => Ok(None),
            Ok(FolderOwner::OpenToOthers) => Ok(Some(format!(
                "warning: other users can read `{}`: its file system has no rights of files; keep secrets out of the \
                 output of services, or move the workspace",
                self.path.display()
            ))),
            Ok(FolderOwner::Another) => Err(PrepareWorkspaceError::AnotherUsers(path())),
            Err(_) if folder.link().is_some() => Err(PrepareWorkspaceError::Link(path())),
            Err(source) => Err(PrepareWorkspaceError::Create(path(), source)),
        }
    }
}

/// Makes the folder of a file of ours again, if it was removed meanwhile.
pub(super) fn make_state_folder(file: &WritePath) -> io::Result<()> {
    file.make_parents()?;
    let mut folders = file.parent().ancestors();
    let state = folders.find(|folder| folder.file_name().is_some_and(|it| it == STATE));
    if let Some(root) = state.and_then(Path::parent) {
        // Not worth a lost record: the next start tries again, and says why it cannot.
        keep_out_of_git(&WritePath::beneath(root, STATE)).ok();
    }
    Ok(())
}

/// The name of the configuration file of a project.
const CONFIG: &str = "afresh.toml";

/// The name of the state folder of a project.
const STATE: &str = ".afresh";

fn keep_out_of_git(folder: &WritePath) -> Result<(), ReplaceFileError> {
    let ignore = folder.join(".gitignore");
    // One that the user has changed is the user's.
    if ignore.is_there() { Ok(()) } else { replace_file(&ignore, b"*\n", Rights::Usual) }
}

/// Whether a folder is a workspace.
///
/// The home directory and `/` need a configuration file: a `.git` for dotfiles or a stray `.afresh`
/// would make everything below them one workspace. A folder in which every user can create
/// files, such as `/tmp`, is none: another user could have made the mark.
fn is_root(folder: &Path, home: Option<&Path>) -> bool {
    if os::is_open_to_all(folder) {
        return false;
    }
    let is_home = home
        .is_some_and(|home| folder == home || home.canonicalize().is_ok_and(|home| folder == home));
    let marks: &[&str] = match is_home || folder.parent().is_none() {
        true => &[CONFIG],
        false => &[CONFIG, ".git", ".afresh"],
    };
    marks.iter().any(|mark| match *mark {
        ".afresh" => folder.join(mark).is_dir(),
        _ => folder.join(mark).exists(),
    })
}

/// Whether a folder above the current one has a configuration of another user. Who goes into a folder and orders what
/// stands there has looked; who is somewhere below it may know nothing of it.
fn is_foreign(folder: &Path, cwd: &Path) -> bool {
    let file = || fs::symlink_metadata(folder.join(CONFIG));
    folder != cwd && file().is_ok_and(|metadata| !os::is_ours_or_systems(&metadata))
}

fn is_ours(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() && os::is_ours(&metadata))
}

fn is_ours_alone(folder: &Path) -> bool {
    folder
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_dir() && os::not_ours_alone(&metadata).is_none())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn the_nearest_folder_with_a_mark_is_the_workspace() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("home/repo/sub/deep")).unwrap();
        fs::create_dir_all(dir.join("home/other/.afresh")).unwrap();
        fs::create_dir_all(dir.join("home/.afresh")).unwrap();
        fs::create_dir_all(dir.join("home/.git")).unwrap();
        fs::write(dir.join("home/repo/.git"), "gitdir: x").unwrap();
        fs::write(dir.join("home/repo/sub/afresh.toml"), "").unwrap();
        let home = dir.join("home");
        let root = |cwd: &str| Workspace::find(&dir.join(cwd), Some(&home), None).root;
        assert_eq!(root("home/repo/sub/deep"), Some(dir.join("home/repo/sub")));
        assert_eq!(root("home/repo"), Some(dir.join("home/repo")));
        assert_eq!(root("home/other/.afresh"), Some(dir.join("home/other")));
        // The home directory has marks, but no configuration.
        assert_eq!(root("home/plain"), None);
        fs::write(dir.join("home/afresh.toml"), "").unwrap();
        assert_eq!(root("home/plain"), Some(home.clone()));
    }

    #[test]
    fn a_folder_of_everyone_is_no_workspace() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("shared/.git")).unwrap();
        fs::set_permissions(dir.join("shared"), PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(Workspace::find(&dir.join("shared"), None, None).root, None);
    }

    #[test]
    fn a_configuration_of_another_user_above_is_passed_over() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("mine/theirs/sub")).unwrap();
        let file = dir.join("mine/theirs/afresh.toml");
        fs::write(&file, "").unwrap();
        fs::write(dir.join("mine/afresh.toml"), "").unwrap();
        let find = |cwd: &str| Workspace::find(&dir.join(cwd), None, None);
        assert_eq!(find("mine/theirs/sub").root, Some(dir.join("mine/theirs")));
        if std::os::unix::fs::chown(&file, Some(65_534), None).is_err() {
            println!("skipped: only root can give a file to another user");
            return;
        }
        let below = find("mine/theirs/sub");
        assert_eq!(below.root, Some(dir.join("mine")));
        let said = below.passed_over(&dir.join("mine/theirs/sub"));
        assert_eq!(said, Some(PassedOver::AnotherUsers(file)));
        // Who is in that folder has chosen it.
        let there = find("mine/theirs");
        assert_eq!(there.root, Some(dir.join("mine/theirs")));
        assert_eq!(there.passed_over(&dir.join("mine/theirs")), None);
    }

    #[test]
    fn outside_of_a_workspace_the_users_folder_is_used() {
        let dir = TempDir::new();
        let (home, xdg) = (dir.join("home"), dir.join("xdg"));
        let state = |home: Option<&Path>, xdg: Option<&Path>| {
            Workspace::find(&dir.join("plain"), home, xdg).state().to_owned()
        };
        assert_eq!(state(Some(&home), Some(&xdg)), xdg.join("afresh"));
        let usual = home.join(".local/state/afresh");
        assert_eq!(state(Some(&home), Some(Path::new("relative"))), usual);
        assert_eq!(state(Some(&home), None), usual);
        assert!(state(None, None).starts_with(std::env::temp_dir()));

        let mut workspace = Workspace::find(&dir.join("plain"), Some(&home), Some(&xdg));
        assert_eq!(workspace.prepare().unwrap(), None);
        let mode = fs::metadata(xdg.join("afresh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(!xdg.join("afresh/.gitignore").exists());
    }

    #[test]
    fn the_state_folder_is_kept_out_of_git_once() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join(".git")).unwrap();
        let mut workspace = Workspace::find(&dir.join(""), None, None);
        let ignore = dir.join(".afresh/.gitignore");
        for content in ["*\n", "# mine\n"] {
            assert_eq!(workspace.prepare().unwrap(), None);
            assert_eq!(workspace.state(), dir.join(".afresh"));
            assert!(fs::read_to_string(&ignore).unwrap().len() >= 2);
            fs::write(&ignore, content).unwrap();
        }
        workspace.prepare().unwrap();
        assert_eq!(fs::read_to_string(&ignore).unwrap(), "# mine\n");
    }

    #[test]
    fn a_workspace_that_cannot_be_written_falls_back_to_the_users_folder() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("repo/.git")).unwrap();
        // A file where the folder should be fails for root too.
        fs::write(dir.join("repo/.afresh"), "").unwrap();
        let home = dir.join("home");
        let mut workspace = Workspace::find(&dir.join("repo"), Some(&home), None);
        let mut looked = workspace.clone();
        looked.locate();
        assert!(!home.exists(), "looking creates nothing");
        let notice = workspace.prepare().unwrap().unwrap();
        assert!(notice.contains("repo/.afresh") && notice.contains("state goes to"));
        let projects = home.join(".local/state/afresh/projects");
        assert_eq!(workspace.state().parent(), Some(projects.as_path()));
        assert_eq!(workspace.root(), Some(dir.join("repo").as_path()));
        assert_eq!(looked, workspace);
        fs::create_dir_all(dir.join("other/repo/.git")).unwrap();
        fs::write(dir.join("other/repo/.afresh"), "").unwrap();
        let mut other = Workspace::find(&dir.join("other/repo"), Some(&home), None);
        other.prepare().unwrap();
        assert_ne!(other.state(), workspace.state(), "each project has its own");
    }

    #[test]
    fn a_temporary_folder_must_be_ours_alone() {
        let dir = TempDir::new();
        let place = StateFolder { kind: Kind::Temporary, path: dir.join("afresh-1") };
        place.prepare().unwrap();
        fs::set_permissions(&place.path, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(place.prepare(), Err(PrepareWorkspaceError::NotOurs { .. })));
        fs::rename(&place.path, dir.join("real")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), &place.path).unwrap();
        assert!(matches!(place.prepare(), Err(PrepareWorkspaceError::NotOurs { .. })));
    }
}
