//! The other end of control sockets: what the commands ask of running afresh processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use afresh_core::control::{
    Change, ChangeAnswer, ChangeRequest, ErrorAnswer, EventPage, InputAnswer, LogPage, Position,
    ReloadAnswer, ServiceList, ServiceStatus, ShutdownAnswer, VersionAnswer, escape,
};
use afresh_core::limits::{
    CONTROL_ANSWER_BYTES_MAX, CONTROL_ANSWER_WAIT, CONTROL_QUESTIONS_MAX, CONTROL_REQUEST_WAIT,
};
use hyper::Request;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::json;
use super::socket_path::{RuntimeFolders, owner_of};
use crate::http::{Connection, MessageBody, Response, WriteTimeout};
use crate::os;

/// Why something could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The event loop or the signals could not be set up.
    #[error("cannot set up the event loop")]
    Runtime(#[source] io::Error),
    /// There are no control sockets on this system yet.
    #[error("afresh has no control sockets on this system yet")]
    Unsupported,
    /// No afresh listens any more, or it is another one.
    #[error("cannot connect to `{path}`")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("the afresh behind `{path}` broke the connection off")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// How.
        #[source]
        source: hyper::Error,
    },
    /// No answer in time.
    #[error("the afresh behind `{path}` does not answer")]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// It does not want to.
    #[error("{what}")]
    Refused {
        /// In its own words.
        what: String,
        /// What it says to do about it.
        hint: Option<String>,
    },
    /// An answer that is none: another version, or another program.
    #[error("the afresh behind `{path}` says something that is not understood")]
    Strange {
        /// The socket.
        path: PathBuf,
    },
    /// What came could not be passed on.
    #[error("cannot print")]
    Print(#[source] io::Error),
}

/// A service that runs, and where it can be asked.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The socket of its afresh.
    pub socket: PathBuf,
    /// What that says.
    pub status: ServiceStatus,
}

impl Reached {
    /// The service as something to be asked.
    pub fn target(&self) -> ServiceAddress {
        ServiceAddress { socket: self.socket.clone(), name: self.status.name.clone() }
    }
}

/// A service to be asked.
#[derive(Clone, Debug)]
pub struct ServiceAddress {
    /// The socket of its afresh.
    pub socket: PathBuf,
    /// Its name there.
    pub name: String,
}

impl ServiceAddress {
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/services/{}/{rest}", escape(&self.name))
    }
}

/// What was found on this machine.
#[derive(Clone, Debug, Default)]
pub struct FoundServices {
    /// The services, by name.
    pub services: Vec<Reached>,
    /// afresh processes that do not answer.
    pub silent: Vec<u32>,
}

/// Finds all services of this user that run under an afresh. Sockets of processes that are gone are
/// removed on the way.
pub fn find(folders: &RuntimeFolders) -> Result<FoundServices, ControlError> {
    if !folders.is_supported() {
        return Err(ControlError::Unsupported);
    }
    block_on(async {
        let (stopped, sockets) = stopped_and_others(folders).await;
        let questions = sockets.into_iter().map(|socket| async move {
            let answer = get::<ServiceList>(&socket, "/v1/services").await;
            (answer, socket)
        });
        let silent = stopped.iter().filter_map(|socket| owner_of(socket)).collect();
        let mut found = FoundServices { services: Vec::new(), silent };
        for (answer, socket) in all(questions).await {
            match answer {
                Ok(ServiceList { services }) => {
                    let reached = |status| Reached { socket: socket.clone(), status };
                    found.services.extend(services.into_iter().map(reached));
                }
                // It ended before it could be asked.
                Err(ControlError::Broken { .. }) => {}
                Err(ControlError::Connect { source, .. }) if is_gone(&source) => {}
                Err(_) => found.silent.extend(owner_of(&socket)),
            }
        }
        let order = |reached: &Reached| {
            let ServiceStatus { workspace, name, supervisor_pid, .. } = &reached.status;
            (workspace.clone(), name.clone(), *supervisor_pid)
        };
        found.services.sort_by_cached_key(order);
        found.silent.sort_unstable();
        Ok(found)
    })
}

/// An afresh that runs, and where it can be asked.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Its socket.
    pub socket: PathBuf,
    /// What it says of itself.
    pub version: VersionAnswer,
}

/// Finds every afresh of this user that answers, also one without services.
pub fn daemons(folders: &RuntimeFolders) -> Result<Vec<Daemon>, ControlError> {
    block_on(async {
        let (_, sockets) = stopped_and_others(folders).await;
        let questions = sockets.into_iter().map(|socket| async move {
            let answer = get(&socket, "/v1/version").await;
            Some(Daemon { version: answer.ok()?, socket })
        });
        Ok(all(questions).await.into_iter().flatten().collect())
    })
}

/// Asks for changes, all at once. The answers have the order of the services.
pub fn change(
    targets: &[ServiceAddress],
    what: Change,
    reason: &str,
    waits: bool,
) -> Result<Vec<Result<ChangeAnswer, ControlError>>, ControlError> {
    let query = if waits { "?wait=true" } else { "" };
    block_on(async {
        let questions = targets.iter().map(|target| {
            let path = target.path(&format!("{}{query}", what.name()));
            let (socket, body) = (target.socket.clone(), body_of(reason));
            async move { ask(&socket, "POST", &path, body, CONTROL_REQUEST_WAIT).await }
        });
        Ok(all(questions).await)
    })
}

/// The last lines of a service.
pub fn logs(target: &ServiceAddress, lines_max: Option<usize>) -> Result<LogPage, ControlError> {
    let query = lines_max.map_or_else(String::new, |lines| format!("?lines={lines}"));
    let path = target.path(&format!("logs{query}"));
    block_on(get(&target.socket, &path))
}

/// Writes to the stdin of a service.
pub fn input(target: &ServiceAddress, bytes: &[u8]) -> Result<InputAnswer, ControlError> {
    let path = target.path("input");
    block_on(ask(&target.socket, "POST", &path, bytes.to_vec(), CONTROL_ANSWER_WAIT))
}

/// What an afresh remembers of what has happened, after a position.
pub fn events(socket: &Path, since: &Position) -> Result<EventPage, ControlError> {
    let path = format!("/v1/events?since={since}");
    block_on(get(socket, &path))
}

/// The numbers of some of them, each with its pid, in their order; those that do not answer have none.
pub fn metrics(daemons: &[Daemon]) -> Result<Vec<(u32, String)>, ControlError> {
    block_on(async {
        let questions = daemons.iter().map(|daemon| {
            let (socket, pid) = (daemon.socket.clone(), daemon.version.pid);
            async move {
                let answer =
                    ask_bytes(&socket, "GET", "/v1/metrics", Vec::new(), CONTROL_ANSWER_WAIT);
                Some((pid, String::from_utf8(answer.await.ok()?).ok()?))
            }
        });
        Ok(all(questions).await.into_iter().flatten().collect())
    })
}

/// Lets an `afresh up` read its configuration again, and waits for what that begins where it is to.
pub fn reload(socket: &Path, reason: &str, waits: bool) -> Result<ReloadAnswer, ControlError> {
    let path = if waits { "/v1/reload?wait=true" } else { "/v1/reload" };
    block_on(ask(socket, "POST", path, body_of(reason), CONTROL_REQUEST_WAIT))
}

/// Ends an `afresh up` and all of its services.
pub fn shutdown(socket: &Path, reason: &str) -> Result<ShutdownAnswer, ControlError> {
    block_on(ask(socket, "POST", "/v1/shutdown", body_of(reason), CONTROL_REQUEST_WAIT))
}

/// The sockets of processes that are stopped, and all others. One that is stopped answers nothing: waiting for it would
/// delay every command, be it in another workspace. Another process can have the pid of one that is gone: the socket of
/// that one is dead.
async fn stopped_and_others(folders: &RuntimeFolders) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut stopped, mut others) = (Vec::new(), Vec::new());
    for socket in folders.sockets() {
        match owner_of(&socket).is_some_and(os::is_stopped) {
            true if is_dead(&socket).await => {}
            true => stopped.push(socket),
            false => others.push(socket),
        }
    }
    (stopped, others)
}

fn body_of(reason: &str) -> Vec<u8> {
    json(&ChangeRequest { reason: Some(reason.to_owned()) }).into_bytes()
}

/// Asks many questions, some at once. The answers have the order of the questions.
async fn all<T: Send + 'static>(
    questions: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut asked = JoinSet::new();
    let mut answers = Vec::new();
    for (at, question) in questions.enumerate() {
        if asked.len() >= CONTROL_QUESTIONS_MAX {
            // A question that panicked has no answer.
            answers.extend(asked.join_next().await.and_then(Result::ok));
        }
        asked.spawn(async move { (at, question.await) });
    }
    answers.extend(asked.join_all().await);
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Whether no process listens to a socket any more; then it is removed. A socket has its name only while
/// its process listens, and no two have the same, so no other is removed.
pub(super) async fn is_dead(socket: &Path) -> bool {
    let dead = os::connect(socket).await.is_err_and(|error| is_gone(&error));
    if dead {
        fs::remove_file(socket).ok();
    }
    dead
}

/// Whether a connection failed because no process is there, and not because it is busy.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Asks for a value, for which no work is done.
pub(super) async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, ControlError> {
    ask(socket, "GET", path, Vec::new(), CONTROL_ANSWER_WAIT).await
}

/// Asks for a value, within a time.
async fn ask<T: DeserializeOwned>(
    socket: &Path,
    method: &str,
    path: &str,
    body: Vec<u8>,
    wait_max: std::time::Duration,
) -> Result<T, ControlError> {
    let bytes = ask_bytes(socket, method, path, body, wait_max).await?;
    serde_json::from_slice(&bytes).map_err(|_| strange(socket))
}

/// The same for an answer of any form.
async fn ask_bytes(
    socket: &Path,
    method: &str,
    path: &str,
    body: Vec<u8>,
    wait_max: std::time::Duration,
) -> Result<Vec<u8>, ControlError> {
    let answer = async {
        let mut response = request(socket, (method, path), &[], body).await?;
        if !response.is_success() {
            return Err(refused(socket, response).await);
        }
        let bytes = response.all(CONTROL_ANSWER_BYTES_MAX).await;
        Ok(bytes.map_err(|source| broken(socket, source))?.unwrap_or_default())
    };
    timeout(wait_max, answer).await.map_err(|_| ControlError::Silent { path: socket.to_owned() })?
}

/// Sends a request over a connection of its own, to a process of this user.
pub(super) async fn request(
    socket: &Path,
    (method, path): (&str, &str),
    headers: &[(&str, String)],
    body: Vec<u8>,
) -> Result<Response, ControlError> {
    let refused = |source| ControlError::Connect { path: socket.to_owned(), source };
    let stream = match os::connect(socket).await {
        Ok(stream) => stream,
        Err(error) => {
            is_dead(socket).await;
            return Err(refused(error));
        }
    };
    if !os::is_own_peer(&stream) {
        return Err(refused(io::Error::other("another user listens there")));
    }
    let broken = |source| broken(socket, source);
    let connection = Connection::open(Box::new(WriteTimeout::new(stream)), None).await;
    let connection = connection.map_err(broken)?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "afresh")
        .header("content-type", "application/octet-stream");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(MessageBody::from(body)).map_err(|_| strange(socket))?;
    connection.send(request).await.map_err(|error| broken(error.source))
}

pub(super) async fn refused(socket: &Path, mut response: Response) -> ControlError {
    let body = response.all(CONTROL_ANSWER_BYTES_MAX).await;
    let body = body.ok().flatten().unwrap_or_default();
    match serde_json::from_slice::<ErrorAnswer>(&body) {
        Ok(ErrorAnswer { error }) => ControlError::Refused { what: error.what, hint: error.hint },
        Err(_) => strange(socket),
    }
}

pub(super) fn broken(socket: &Path, source: hyper::Error) -> ControlError {
    ControlError::Broken { path: socket.to_owned(), source }
}

pub(super) fn strange(socket: &Path) -> ControlError {
    ControlError::Strange { path: socket.to_owned() }
}

fn block_on<T>(question: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    new_runtime()?.block_on(question)
}

pub(super) fn new_runtime() -> Result<Runtime, ControlError> {
    Builder::new_current_thread().enable_all().build().map_err(ControlError::Runtime)
}
