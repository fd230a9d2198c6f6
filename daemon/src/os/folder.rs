//! Owns access to files through an open folder on Linux and macOS: no path to it is resolved a second time, and no link
//! beneath it is followed. `windows.rs` has the same type. Used by `write_path.rs`. Never decides what is written.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::kernel::open_beneath;
use super::{FolderOwner, LastLink};

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A folder on the way to another: its names need not be readable.
#[cfg(target_os = "linux")]
const PASSED: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASSED: OFlag = OFlag::from_bits_retain(nix::libc::O_SEARCH).union(OFlag::O_CLOEXEC);

impl Folder {
    /// Opens a folder. Links on the way to it are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, FOLDER, Mode::empty())?))
    }

    /// Opens a folder beneath this one. A link on the way, or a way out of it, is an error.
    pub(crate) fn enter(&self, rest: &Path) -> io::Result<Self> {
        if rest.as_os_str().is_empty() {
            return Ok(Self(self.0.try_clone()?));
        }
        match open_beneath(self.0.as_fd(), rest, FOLDER) {
            Some(opened) => opened.map(Self),
            None => self.walk(rest),
        }
    }

    /// The same, one name after the other: for kernels that cannot do it at once.
    fn walk(&self, rest: &Path) -> io::Result<Self> {
        let mut folder = Self(self.0.try_clone()?);
        for part in rest.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::CurDir => continue,
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
            let flags = PASSED | OFlag::O_NOFOLLOW;
            folder = Self(openat(&folder.0, name, flags, Mode::empty())?);
        }
        // What is read or made durable is the last one alone: those on the way may be closed to us.
        Ok(Self(openat(&folder.0, ".", FOLDER, Mode::empty())?))
    }

    /// Makes a folder in this one, for this user alone. One that is there is left as it is.
    pub(crate) fn make(&self, name: &OsStr) -> io::Result<()> {
        match mkdirat(&self.0, name, Mode::S_IRWXU) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file to append to and read from, which is made if need be, for this user alone; a FIFO without a
    /// reader does not hang us.
    pub(crate) fn open_to_append(&self, name: &OsStr, link: LastLink) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NONBLOCK;
        let flags = match link {
            LastLink::Followed => flags,
            LastLink::Refused => flags | OFlag::O_NOFOLLOW,
        };
        self.file(name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
    }

    /// Makes a file that was not there, for this user alone.
    pub(crate) fn create_private(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.file(name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
    }

    /// Makes a file that was not there, with the usual rights.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.file(name, flags, Mode::from_bits_truncate(0o666))
    }

    /// Opens what has this name, unless it is a link.
    pub(crate) fn open_itself(&self, name: &OsStr, flags: OFlag, mode: Mode) -> io::Result<File> {
        self.file(name, flags | OFlag::O_NOFOLLOW, mode)
    }

    fn file(&self, name: &OsStr, flags: OFlag, mode: Mode) -> io::Result<File> {
        Ok(openat(&self.0, name, flags | OFlag::O_CLOEXEC, mode)?.into())
    }

    /// Gives an entry of this folder another name in it; what had that name is replaced.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file. Of a link, the link itself.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Whether anything has this name here, be it a link to nothing.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(&self.0)?)
    }

    /// Takes rights of other users away, if it is ours, and says whose it is then.
    pub(crate) fn claim(&self) -> io::Result<FolderOwner> {
        let before = fstat(&self.0)?;
        if before.st_uid != Uid::effective().as_raw() {
            return Ok(FolderOwner::Another);
        }
        let is_open = |mode: nix::libc::mode_t| mode & 0o077 != 0;
        if is_open(before.st_mode) {
            // Whether it had an effect is seen next: file systems without modes differ in what they answer.
            fchmod(&self.0, Mode::S_IRWXU).ok();
        }
        let after = fstat(&self.0)?;
        Ok(if is_open(after.st_mode) { FolderOwner::OpenToOthers } else { FolderOwner::We })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn no_way_of_opening_follows_a_link_or_leads_out() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("root/a/b")).unwrap();
        fs::create_dir_all(dir.join("outside/b")).unwrap();
        symlink(dir.join("outside"), dir.join("root/absolute")).unwrap();
        symlink("../outside", dir.join("root/relative")).unwrap();
        symlink("a", dir.join("root/inside")).unwrap();
        // What leads to the folder itself is the caller's.
        symlink("root", dir.join("link")).unwrap();
        let root = Folder::open(&dir.join("link")).unwrap();
        let ways: [fn(&Folder, &Path) -> io::Result<Folder>; 2] = [Folder::enter, Folder::walk];
        for enter in ways {
            let made = enter(&root, Path::new("a/b")).unwrap();
            made.create_private("file".as_ref()).unwrap();
            for out in ["absolute/b", "relative/b", "inside/b", "inside", "..", "a/../../outside"] {
                enter(&root, Path::new(out)).unwrap_err();
            }
            made.remove("file".as_ref()).unwrap();
        }
        assert_eq!(fs::read_dir(dir.join("outside/b")).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_on_the_way_need_not_be_readable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("root/a/b")).unwrap();
        fs::set_permissions(dir.join("root/a"), PermissionsExt::from_mode(0o111)).unwrap();
        let root = Folder::open(&dir.join("root")).unwrap();
        let ways: [fn(&Folder, &Path) -> io::Result<Folder>; 2] = [Folder::enter, Folder::walk];
        for enter in ways {
            enter(&root, Path::new("a/b")).unwrap().create_private("file".as_ref()).unwrap();
            enter(&root, Path::new("a/b")).unwrap().remove("file".as_ref()).unwrap();
            enter(&root, Path::new("")).unwrap().sync().unwrap();
        }
        fs::set_permissions(dir.join("root/a"), PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn the_last_name_may_be_a_link_only_where_the_user_has_named_it() {
        let dir = TempDir::new();
        fs::write(dir.join("real"), "").unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink("nothing", dir.join("dangling")).unwrap();
        let folder = Folder::open(&dir.join("")).unwrap();
        folder.open_to_append("link".as_ref(), LastLink::Followed).unwrap();
        for name in ["link", "dangling"] {
            folder.open_to_append(name.as_ref(), LastLink::Refused).unwrap_err();
            folder.create_private(name.as_ref()).unwrap_err();
            folder.create(name.as_ref()).unwrap_err();
            assert!(folder.has(name.as_ref()));
        }
        assert!(!dir.join("nothing").exists());
        folder.rename("real".as_ref(), "link".as_ref()).unwrap();
        assert!(!dir.join("link").is_symlink(), "a link is replaced, not followed");
    }
}
