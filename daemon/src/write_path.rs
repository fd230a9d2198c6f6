//! Owns the paths that afresh writes to, and how the files there are opened, made, renamed and removed. Used by all that
//! writes files. Beneath a workspace it never follows a link: a project that was merely cloned can ship one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::os::{self, Folder, FolderOwner, LastLink};

/// A file or folder that afresh writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritePath {
    path: PathBuf,
    /// The folder beneath which no link is followed; none for a path that the user has named.
    beneath: Option<PathBuf>,
}

impl WritePath {
    /// A path that the user has named, by a flag, a variable or the user's own file: links are followed.
    pub fn named(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), beneath: None }
    }

    /// A path beneath a folder. Only the links that lead to that folder are followed.
    pub fn beneath(folder: &Path, rest: impl AsRef<Path>) -> Self {
        let rest = rest.as_ref();
        let path = if rest.as_os_str().is_empty() { folder.to_owned() } else { folder.join(rest) };
        Self { path, beneath: Some(folder.to_owned()) }
    }

    /// The path, to be shown and read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has this name in the folder that this is.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self { path: self.path.join(name), beneath: self.beneath.clone() }
    }

    /// A file beside this one: with these characters behind its name.
    #[must_use]
    pub(crate) fn suffixed(&self, suffix: &str) -> Self {
        Self { path: suffixed(self.path.as_os_str(), suffix).into(), beneath: self.beneath.clone() }
    }

    /// The path without links in front of the folder beneath which none is followed.
    pub(crate) fn resolved(&self) -> io::Result<Self> {
        match &self.beneath {
            Some(folder) => Ok(Self::beneath(&fs::canonicalize(folder)?, self.rest(folder)?)),
            None => Ok(Self::named(fs::canonicalize(&self.path)?)),
        }
    }

    /// Opens it to append to and read from. It is made if need be, for this user alone.
    pub(crate) fn open_to_append(&self) -> io::Result<File> {
        let link = match self.beneath {
            Some(_) => LastLink::Refused,
            None => LastLink::Followed,
        };
        self.in_folder(|folder, name| folder.open_to_append(name, link))
    }

    /// Makes it, where it was not there, for this user alone.
    pub(crate) fn create_private(&self) -> io::Result<File> {
        self.in_folder(Folder::create_private)
    }

    /// Removes it, or a link in its place.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.in_folder(Folder::remove)
    }

    /// Gives it another name in its folder.
    pub(crate) fn rename(&self, to: &Self) -> io::Result<()> {
        let to = to.path.file_name().unwrap_or_default();
        self.in_folder(|folder, name| folder.rename(name, to))
    }

    /// Whether anything is there, be it a link to nothing.
    pub(crate) fn is_there(&self) -> bool {
        self.in_folder(|folder, name| Ok(folder.has(name))).unwrap_or(false)
    }

    /// Makes the folder that it is in, with those above it, for this user alone.
    pub(crate) fn make_parents(&self) -> io::Result<()> {
        let parent = self.parent();
        let Some(folder) = &self.beneath else { return fs::create_dir_all(parent) };
        let made = || {
            let mut builder = DirBuilder::new();
            os::make_private(&mut builder);
            builder.recursive(true).create(folder)?;
            let mut open = open_base(folder)?;
            for part in parent.strip_prefix(folder).map_err(io::Error::other)?.components() {
                if let Component::Normal(name) = part {
                    open.make(name)?;
                }
                open = open.enter(part.as_ref())?;
            }
            Ok(())
        };
        made().map_err(|error| self.explain(error))
    }

    /// Makes the folder that it is, for this user alone.
    pub fn make_folder(&self) -> io::Result<()> {
        // A name in it has it as its folder.
        self.join("x").make_parents()
    }

    /// Opens the folder that it is.
    pub(crate) fn open_folder(&self) -> io::Result<Folder> {
        let open = || match &self.beneath {
            Some(folder) => open_base(folder)?.enter(self.rest(folder)?),
            None => Folder::open(&self.path),
        };
        open().map_err(|error| self.explain(error))
    }

    /// The folder that it is in.
    pub(crate) fn parent(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Does something in the folder that it is in, with its name there.
    pub(crate) fn in_folder<T>(
        &self,
        action: impl FnOnce(&Folder, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let act = || {
            let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let folder = match &self.beneath {
                Some(folder) => open_base(folder)?
                    .enter(self.rest(folder)?.parent().unwrap_or(Path::new("")))?,
                None => Folder::open(self.parent())?,
            };
            action(&folder, name)
        };
        act().map_err(|error| self.explain(error))
    }

    fn rest(&self, folder: &Path) -> io::Result<&Path> {
        self.path.strip_prefix(folder).map_err(io::Error::other)
    }

    /// Names the link that is in the way, where one is.
    fn explain(&self, error: io::Error) -> io::Error {
        self.link_error().unwrap_or(error)
    }

    /// The error that a link is in the way.
    pub fn link_error(&self) -> Option<io::Error> {
        let link = self.link()?;
        let text =
            format!("`{}` is a symbolic link, and none is followed in a project", link.display());
        Some(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// The first link on the way that is not followed.
    pub fn link(&self) -> Option<PathBuf> {
        let folder = self.beneath.as_ref()?;
        let mut place = folder.clone();
        self.rest(folder).ok()?.components().find_map(|part| {
            place.push(part);
            place.is_symlink().then(|| place.clone())
        })
    }
}

/// Opens the folder beneath which no link is followed. Where that is the user's folder beside those of other users, such a
/// one can have made it since a clean-up removed ours: then it is not used.
fn open_base(folder: &Path) -> io::Result<Folder> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Folder::open(folder);
    };
    if folder != os::own_temporary_folder() {
        return Folder::open(folder);
    }
    let open = Folder::open(above)?.enter(name.as_ref())?;
    if open.claim()? == FolderOwner::Another {
        let text = format!("`{}` belongs to another user now", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(open)
}

/// A name with these characters behind it.
pub(crate) fn suffixed(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

/// Where a path of a project leads, if that is not in the project. One that leads to nothing leads nowhere.
pub fn leads_out(root: &Path, path: &Path) -> Option<PathBuf> {
    let (root, target) = (fs::canonicalize(root).ok()?, fs::canonicalize(root.join(path)).ok()?);
    (!target.starts_with(root)).then_some(target)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn folders_are_made_for_this_user_alone_and_not_through_a_link() {
        let dir = TempDir::new();
        let (root, outside) = (dir.join("root"), dir.join("outside"));
        fs::create_dir_all(&outside).unwrap();
        let file = WritePath::beneath(&root, "a/b/file");
        file.make_parents().unwrap();
        file.create_private().unwrap();
        for made in [&root, &root.join("a"), &root.join("a/b")] {
            assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
        symlink(&outside, root.join("link")).unwrap();
        let linked = WritePath::beneath(&root, "link/b/file");
        let error = linked.make_parents().unwrap_err().to_string();
        assert!(error.contains("root/link` is a symbolic link"), "{error}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        for error in [
            WritePath::beneath(&root, "link/file").open_to_append().err(),
            WritePath::beneath(&root, "link/file").create_private().err(),
            WritePath::beneath(&root, "link/file").remove().err(),
            WritePath::beneath(&root, "link").open_folder().err(),
            WritePath::beneath(&root, "link").open_to_append().err(),
        ] {
            let error = error.unwrap().to_string();
            assert!(error.contains("root/link` is a symbolic link"), "{error}");
        }
        WritePath::named(root.join("link/file")).open_to_append().unwrap();
        assert!(outside.join("file").exists(), "what the user has named is followed");
    }

    #[test]
    fn a_way_out_is_refused() {
        let dir = TempDir::new();
        fs::create_dir(dir.join("root")).unwrap();
        for rest in ["../out", "a/../../out", "/out", ".."] {
            let path = WritePath::beneath(&dir.join("root"), rest);
            path.open_to_append().unwrap_err();
            path.make_parents().and_then(|()| path.create_private().map(drop)).unwrap_err();
        }
        assert!(!dir.join("out").exists());
    }

    #[test]
    fn what_leads_out_is_seen_through_links() {
        let dir = TempDir::new();
        let root = dir.join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(dir.join("secret"), "").unwrap();
        fs::write(root.join("a/file"), "").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("a/file", root.join("in")).unwrap();
        symlink("nothing", root.join("nowhere")).unwrap();
        let secret = fs::canonicalize(dir.join("secret")).unwrap();
        for (path, target) in
            [("out", Some(secret)), ("in", None), ("a/file", None), ("nowhere", None), ("no", None)]
        {
            assert_eq!(leads_out(&root, Path::new(path)), target, "{path}");
        }
    }
}
