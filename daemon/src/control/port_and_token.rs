//! Owns the port of the control API and its token, which every client over TCP must send. Used by the faces
//! before their loop. Never accepts a connection.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use afresh_core::http_access::{Guard, TOKEN_DIGITS, is_token, token_of};

use crate::git_index::git_tracks;
use crate::http::{Door, Port};
use crate::os;
use crate::store::user_state::{UserState, UserStateError};
use afresh_core::limits::LISTEN_BACKLOG;

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
    /// Another process listens at the other address that `localhost` can mean.
    #[error(
        "`{other}` is in use{whom}, and `localhost` can mean it: clients would send the token of `{address}` there; take \
         another port, or 0 for any"
    )]
    OtherInUse {
        /// The address.
        address: SocketAddr,
        /// The one that is taken.
        other: SocketAddr,
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
    pub(super) port: BoundPort,
    pub(super) guard: Guard,
    token_file: PathBuf,
}

/// A port that is bound, and not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    port: BoundPort,
    token_file: PathBuf,
}

/// An address that is bound, with its port. 127.0.0.1 comes with ::1, where the machine has that: `localhost` can mean
/// either, and whoever listened at the other one would be sent the token.
#[derive(Debug)]
pub(crate) struct BoundPort {
    listener: TcpListener,
    other: Option<TcpListener>,
    pub(crate) address: SocketAddr,
}

impl Bound {
    /// Takes an address of this machine.
    pub(crate) fn bind(port: ControlPort) -> Result<Self, ListenError> {
        let ControlPort { address, token_file } = port;
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLocal { address });
        }
        Ok(Self { port: BoundPort::listen(address)?, token_file })
    }

    /// Guards it by the token, which is made if need be.
    pub(crate) fn guarded(self) -> Result<Listen, ListenError> {
        let Self { port, token_file } = self;
        let guard = Guard::new(port.address.port(), token(&token_file)?);
        Ok(Listen { port, guard, token_file })
    }
}

impl Listen {
    /// Where it is, for the log.
    pub(crate) fn told(&self) -> String {
        let (address, file) = (self.port.address, self.token_file.display());
        format!("the control API is at http://{address}, for those who know the token in `{file}`")
    }
}

impl BoundPort {
    /// Takes an address, which has its port then.
    pub(crate) fn listen(address: SocketAddr) -> Result<Self, ListenError> {
        let mut tries = if address.port() == 0 { ANY_PORT_TRIES_MAX } else { 1 };
        loop {
            tries -= 1;
            match Self::try_listen(address) {
                Err(ListenError::OtherInUse { .. }) if tries > 0 => {}
                bound => return bound,
            }
        }
    }

    fn try_listen(wanted: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => {
                ListenError::InUse { address: wanted, whom: holder(wanted.port()) }
            }
            _ => ListenError::Bind { address: wanted, source },
        };
        let (listener, address) = bind(wanted).map_err(failed)?;
        if address.ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            return Ok(Self { listener, other: None, address });
        }
        let other = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
        match bind(other) {
            Ok((second, _)) => Ok(Self { listener, other: Some(second), address }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                // Else it would be found itself.
                drop(listener);
                Err(ListenError::OtherInUse { address, other, whom: holder(address.port()) })
            }
            // Without IPv6 nobody has that address.
            Err(_) => Ok(Self { listener, other: None, address }),
        }
    }

    /// As connections are accepted.
    pub(crate) fn door(self) -> io::Result<Door> {
        Port::of(self.listener, self.other).map(Door::Port)
    }
}

/// How often any port is tried, where it is free at one address and taken at the other.
const ANY_PORT_TRIES_MAX: u32 = 16;

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    os::set_backlog(&listener, LISTEN_BACKLOG)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The process that listens to a port, with a blank in front; empty where the system does not tell.
fn holder(port: u16) -> String {
    let owner = os::listener_of(port);
    owner.map_or_else(String::new, |(pid, name)| format!(" by `{name}` (pid {pid})"))
}

/// The token in a file. One that is not there is made, and stays: scripts, dashboards and clients know it.
pub(crate) fn token(path: &Path) -> Result<String, ListenError> {
    let failed = |step: &'static str| {
        move |source: io::Error| ListenError::Token { step, path: path.to_owned(), source }
    };
    match read(path)? {
        // Where git cannot say it, ours is used: no clone has brought it.
        Some(_) if git_tracks(path) == Ok(true) => {
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
    fn no_other_process_gets_the_address_that_localhost_can_mean_too() {
        let Ok(theirs) = TcpListener::bind("[::1]:0") else {
            println!("skipped: this machine has no IPv6");
            return;
        };
        let other = theirs.local_addr().unwrap();
        let wanted = SocketAddr::from(([127, 0, 0, 1], other.port()));
        let error = BoundPort::listen(wanted).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{other}` is in use")), "{error}");
        assert!(error.contains("`localhost` can mean it"), "{error}");
        drop(theirs);
        let bound = BoundPort::listen(wanted).unwrap();
        assert_eq!(TcpListener::bind(other).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(bound);
        // What was asked for by number alone is one address.
        let bound = BoundPort::listen(other).unwrap();
        assert!(bound.other.is_none());
        TcpListener::bind(wanted).unwrap();
    }

    #[test]
    fn only_this_machine_is_listened_to_and_a_port_that_is_taken_is_said() {
        let port = |address| ControlPort { address, token_file: PathBuf::new() };
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:127.0.0.1]:0"] {
            let error = Bound::bind(port(address.parse().unwrap())).unwrap_err().to_string();
            assert!(error.contains("not an address of this machine alone"), "{error}");
        }
        let bound = Bound::bind(port("127.0.0.1:0".parse().unwrap())).unwrap();
        assert_ne!(bound.port.address.port(), 0);
        let error = Bound::bind(port(bound.port.address)).unwrap_err().to_string();
        let own = format!("(pid {})", std::process::id());
        assert!(
            error.contains("is in use") && (cfg!(not(target_os = "linux")) || error.contains(&own)),
            "{error}"
        );
    }
}
