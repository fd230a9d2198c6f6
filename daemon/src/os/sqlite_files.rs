//! Owns how SQLite opens and removes files on Linux and macOS: beneath their own folder, and through no link. SQLite takes
//! paths, which it resolves anew for each of its files; who can change a folder on the way could lead them elsewhere
//! between two of these. Set once by `store/runs.rs`, for all databases of this process. Never decides which file is
//! opened.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::mode_t;
use nix::sys::stat::Mode;
use rusqlite::ffi::{SQLITE_OK, sqlite3_syscall_ptr, sqlite3_vfs_find};

use super::Folder;

/// Makes SQLite follow no link on the way to a file that it opens or removes. The paths that it gets have none then.
pub(crate) fn restrict_sqlite() -> io::Result<()> {
    static DONE: OnceLock<bool> = OnceLock::new();
    match *DONE.get_or_init(replace_calls) {
        true => Ok(()),
        false => Err(io::Error::other("SQLite does not let its calls be replaced")),
    }
}

#[expect(unsafe_code, reason = "the calls of SQLite have no safe face")]
fn replace_calls() -> bool {
    // SAFETY: without a name it returns the standard one, which is never taken away, or null.
    let Some(vfs) = (unsafe { sqlite3_vfs_find(std::ptr::null()).as_mut() }) else { return false };
    let Some(replace) = vfs.xSetSystemCall else { return false };
    // SAFETY: SQLite calls what is set under this name with exactly these arguments.
    let open: sqlite3_syscall_ptr =
        Some(unsafe { std::mem::transmute::<OpenCall, unsafe extern "C" fn()>(open) });
    // SAFETY: the same.
    let remove: sqlite3_syscall_ptr =
        Some(unsafe { std::mem::transmute::<RemoveCall, unsafe extern "C" fn()>(remove) });
    [(c"open", open), (c"unlink", remove)].into_iter().all(|(name, call)| {
        // SAFETY: the name ends with a zero byte and is only compared; the calls live as long as the process.
        unsafe { replace(vfs, name.as_ptr(), call) == SQLITE_OK }
    })
}

type OpenCall = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type RemoveCall = unsafe extern "C" fn(*const c_char) -> c_int;

/// Stands for `open` of the C library: the descriptor, or -1 with `errno`.
#[expect(unsafe_code, reason = "gets the path as C has it")]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite gives the path of a file, with a zero byte at its end.
    let path = unsafe { CStr::from_ptr(path) };
    // The bits of a mode fit into both types, whose widths differ between systems.
    let mode = Mode::from_bits_truncate(mode_t::try_from(mode).unwrap_or_default());
    let flags = OFlag::from_bits_retain(flags);
    returned(in_its_folder(path, |folder, name| {
        Ok(folder.open_itself(name, flags, mode)?.into_raw_fd())
    }))
}

/// Stands for `unlink` of the C library.
#[expect(unsafe_code, reason = "gets the path as C has it")]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: as for `open`.
    let path = unsafe { CStr::from_ptr(path) };
    returned(in_its_folder(path, |folder, name| folder.remove(name).map(|()| 0)))
}

fn in_its_folder(
    path: &CStr,
    act: impl FnOnce(&Folder, &OsStr) -> io::Result<c_int>,
) -> io::Result<c_int> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    // SQLite makes all paths absolute, and opens some folders by themselves.
    let rest = path.strip_prefix("/").map_err(|_| io::Error::from(Errno::EINVAL))?;
    let name = rest.file_name().ok_or(Errno::EINVAL)?;
    let folder = Folder::open(Path::new("/"))?.enter(rest.parent().unwrap_or(Path::new("")))?;
    act(&folder, name)
}

/// The result as C has it.
fn returned(result: io::Result<c_int>) -> c_int {
    result.unwrap_or_else(|error| {
        Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as c_int)).set();
        -1
    })
}
