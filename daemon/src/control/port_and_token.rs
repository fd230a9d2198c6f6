//! Owns the port of the control API and its token, which every client over TCP must send. Used by the faces
//! before their loop. Never accepts a connection.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use afresh_core::http_access::{Guard, TOKEN_DIGITS, is_token, token_of};

use crate::git_index::git_tracks;
use crate::os;
use crate::store::user_state::{UserState, UserStateError};

/// The file of the token in the user's private folder. It is one for all of the user's workspaces: a workspace that was
/// merely copied could bring one that others know.
const TOKEN_FILE: &str = "control.token";

/// Where the control API is to be served over TCP, and the file with its token.
#[derive(Debug)]
pub struct ControlPort {
    address: SocketAddr,
    token_file: PathBuf,
}

impl ControlPort {
    /// At this address, with the token in the user's private folder.
    pub fn new(
        address: SocketAddr,
        state: Result<UserState, UserStateError>,
    ) -> Result<Self, ListenError> {
        let state = state.and_then(|state| state.prepare().map(|()| state));
        let state = state.map_err(ListenError::Folder)?;
        Ok(Self { address, token_file: state.path(TOKEN_FILE) })
    }
}

/// Why the control API is not served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The folder of the user's state cannot be used.
    #[error("there is no place for the token of the control API")]
    Folder(#[source] UserStateError),
    /// Others could reach it.
    #[error(
        "`{address}` is not an address of this machine alone; take 127.0.0.1, [::1] or localhost"
    )]
    NotLocal {
        /// The address.
        address: SocketAddr,
    },
    /// Another process listens there.
    #[error("`{address}` is in use{whom}; take another port, or 0 for any")]
    InUse {
        /// The address.
        address: SocketAddr,
        /// By whom, with a blank in front; empty where the system does not tell.
        whom: String,
    },
    /// The system says no.
    #[error("cannot listen on `{address}`")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no token, and none can be made.
    #[error("cannot {step} the token `{path}`")]
    Token {
        /// What failed.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may know it.
    #[error("the token `{path}` {what}; remove it, and a new one is made")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A port that is bound, and who may ask there.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(super) listener: TcpListener,
    pub(super) guard: Guard,
    address: SocketAddr,
    token_file: PathBuf,
}

/// A port that is bound, and not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    token_file: PathBuf,
}

impl Bound {
    /// Takes an address of this machine.
    pub(crate) fn bind(port: ControlPort) -> Result<Self, ListenError> {
        let ControlPort { address, token_file } = port;
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLocal { address });
        }
        let (listener, address) = listen_on(address)?;
        Ok(Self { listener, address, token_file })
    }

    /// Guards it by the token, which is made if need be.
    pub(crate) fn guarded(self) -> Result<Listen, ListenError> {
        let Self { listener, address, token_file } = self;
        let guard = Guard::new(address.port(), token(&token_file)?);
        Ok(Listen { listener, guard, address, token_file })
    }
}

impl Listen {
    /// Where it is, for the log.
    pub(crate) fn told(&self) -> String {
        let (address, file) = (self.address, self.token_file.display());
        format!("the control API is at http://{address}, for those who know the token in `{file}`")
    }
}

/// Takes an address, which has its port then.
pub(crate) fn listen_on(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => {
            let owner = os::listener_of(address.port());
            let whom =
                owner.map_or_else(String::new, |(pid, name)| format!(" by `{name}` (pid {pid})"));
            ListenError::InUse { address, whom }
        }
        _ => ListenError::Bind { address, source },
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.set_nonblocking(true).and_then(|()| listener.local_addr());
    let address = bound.map_err(failed)?;
    Ok((listener, address))
}

/// The token in a file. One that is not there is made, and stays: scripts, dashboards and clients know it.
pub(crate) fn token(path: &Path) -> Result<String, ListenError> {
    let failed = |step: &'static str| {
        move |source: io::Error| ListenError::Token { step, path: path.to_owned(), source }
    };
    match read(path)? {
        Some(_) if git_tracks(path) => {
            let what = "is tracked by git, so that all who have the repository know it";
            return Err(ListenError::NotOurs { path: path.to_owned(), what });
        }
        Some(token) => return Ok(token),
        None => make(path).map_err(failed("make"))?,
    }
    let gone = || failed("read")(io::ErrorKind::NotFound.into());
    read(path)?.ok_or_else(gone)
}

fn read(path: &Path) -> Result<Option<String>, ListenError> {
    let failed =
        |source: io::Error| ListenError::Token { step: "read", path: path.to_owned(), source };
    let not_ours = |what: &'static str| ListenError::NotOurs { path: path.to_owned(), what };
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => return Err(not_ours("is a link")),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let file = os::open_to_read(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(not_ours("is not a file"));
    }
    if let Some(what) = os::not_ours_alone(&metadata) {
        return Err(not_ours(what));
    }
    let mut text = String::new();
    file.take(TOKEN_DIGITS as u64 + 2).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim_end();
    if is_token(token) { Ok(Some(token.to_owned())) } else { Err(not_ours("has no token in it")) }
}

/// Makes a token. It has its name only when it is whole, and another afresh may have been faster.
fn make(path: &Path) -> io::Result<()> {
    let token = token_of(&os::random_bytes()?);
    let unnamed = path.with_file_name(format!(".token.{}.new", std::process::id()));
    fs::remove_file(&unnamed).ok();
    let mut file = os::create_private(&unnamed)?;
    let made = file
        .write_all(format!("{token}\n").as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&unnamed, path));
    fs::remove_file(&unnamed).ok();
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn a_token_is_made_once_and_is_not_anybodys_else() {
        let scratch = TempDir::new();
        let path = scratch.join("token");
        let first = token(&path).unwrap();
        assert!(is_token(&first));
        assert_eq!(token(&path).unwrap(), first);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_ne!(token(&scratch.join("other")).unwrap(), first);
        for broken in ["", "abc\n", &"x".repeat(64), &format!("{first}{first}")] {
            fs::write(&path, broken).unwrap();
            let error = token(&path).unwrap_err().to_string();
            assert!(error.contains("has no token in it; remove it"), "{error}");
        }
        let error = token(&scratch.join("missing/token")).unwrap_err().to_string();
        assert!(error.starts_with("cannot make the token"), "{error}");
        let error = token(path.parent().unwrap()).unwrap_err().to_string();
        assert!(error.contains("is not a file"), "{error}");
    }

    #[test]
    fn only_this_machine_is_listened_to_and_a_port_that_is_taken_is_said() {
        let port = |address| ControlPort { address, token_file: PathBuf::new() };
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:127.0.0.1]:0"] {
            let error = Bound::bind(port(address.parse().unwrap())).unwrap_err().to_string();
            assert!(error.contains("not an address of this machine alone"), "{error}");
        }
        let bound = Bound::bind(port("127.0.0.1:0".parse().unwrap())).unwrap();
        assert_ne!(bound.address.port(), 0);
        let error = Bound::bind(port(bound.address)).unwrap_err().to_string();
        let own = format!("(pid {})", std::process::id());
        assert!(
            error.contains("is in use") && (cfg!(not(target_os = "linux")) || error.contains(&own)),
            "{error}"
        );
    }
}
