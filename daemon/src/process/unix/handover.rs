//! Owns the handover of services from a supervisor to the next one of the workspace: the folder with its lock and
//! socket, the first exchange with a warden that outlives its supervisor, what the next supervisor will find, and the
//! takeover of what the one before has left. Driven by `Processes`. Never starts or ends a process itself.
//!
//! In the first exchange the warden greets, and the visitor sends one request. Visitors are the next supervisor, one
//! of another version that has the services ended, and commands that look. This is all that two versions of afresh
//! have to agree on for ever: fields are added at the end only.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{ADOPTION_WAIT, ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};
use nix::unistd::Uid;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep};

use super::guardian_table::GuardianKey;
use super::messages::{
    FrameSocket, Greeting, GuardianReport, PROTOCOL, VisitorRequest, WardenOrder, WardenReport,
};
use super::os::{self, short_path};
use super::output_spool::{SpoolReader, SpooledOutput};
use super::socket_task::{Peer, SocketTasks};
use super::warden::WARDEN;
use super::{InstanceStdio, Processes, StartError, kill_one};
use crate::os::{Folder, FolderOwner, LastLink, processes_with_stdout};
use crate::process::{AbandonedWarden, InstanceIdentity, RetainedInstance};
use crate::write_path::WritePath;

/// The name of the socket in the folder.
const SOCKET: &str = "warden.sock";

/// The name of the lock in the folder.
const LOCK: &str = "warden.lock";

/// An error with the folder in which an earlier supervisor left its services.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverFolderError {
    /// The folder cannot be made.
    #[error("cannot use the folder `{}`", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    /// Others could put something there.
    #[error("the folder `{}` {}; remove it", .0.display(), .1)]
    NotOurs(PathBuf, &'static str),
    /// The lock cannot be had.
    #[error("cannot lock `{}`", .0.display())]
    Lock(PathBuf, #[source] io::Error),
    /// Something of it is still there.
    #[error(
        "services of an afresh before this one are still there, by the lock in `{}`; run `afresh down`, and try again",
        .0.display()
    )]
    StillThere(PathBuf),
}

/// An error of the takeover of services that another supervisor has left. They run on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdoptError {
    /// The warden does not answer as it should.
    #[error("cannot take over the services of the afresh before this one")]
    Connection(#[from] io::Error),
    /// It is of a version whose warden speaks differently.
    #[error(
        "the services that run are of afresh {version} (warden {warden}), which this one cannot take over"
    )]
    Version { version: String, warden: u32 },
    /// Another supervisor has them.
    #[error("the services that run have a supervisor (warden {warden}), and it does not end")]
    Busy { warden: u32 },
}

/// A folder of a workspace, always the same: otherwise no earlier supervisor would be found. It stays open: what is
/// written there later leads nowhere else.
#[derive(Clone, Debug)]
pub(super) struct HandoverFolder {
    path: PathBuf,
    folder: Arc<Folder>,
}

impl HandoverFolder {
    /// Makes the folder, for this user alone, where it is not there yet.
    pub(super) fn open(place: &WritePath) -> Result<Self, HandoverFolderError> {
        let failed = |source| HandoverFolderError::Folder(place.path().to_owned(), source);
        let not_ours = |what| HandoverFolderError::NotOurs(place.path().to_owned(), what);
        let opened = place.make_folder().and_then(|()| place.open_folder());
        let folder = opened.map_err(|error| match fs::symlink_metadata(place.path()) {
            Ok(metadata) if metadata.is_symlink() => not_ours("is a link"),
            Ok(metadata) if !metadata.is_dir() => not_ours("is not a folder"),
            _ => failed(error),
        })?;
        // A clone can ship it, with the rights that its files usually get.
        match folder.claim().map_err(failed)? {
            FolderOwner::We => {}
            FolderOwner::OpenToOthers => return Err(not_ours("is open to other users")),
            FolderOwner::Another => return Err(not_ours("belongs to another user")),
        }
        // The warden has another working folder.
        let path = fs::canonicalize(place.path()).map_err(failed)?;
        Ok(Self { path, folder: Arc::new(folder) })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Takes the lock; none where a warden or guardian of an earlier supervisor still holds it. It is inherited by
    /// the warden and, when they are forked, by all guardians, and is free again when the last of them is gone.
    fn try_lock(&self) -> Result<Option<File>, HandoverFolderError> {
        let opened = self.folder.open_to_append(LOCK.as_ref(), LastLink::Refused);
        match opened.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file)) {
            Ok(file) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(HandoverFolderError::Lock(self.path.join(LOCK), error))
            }
        }
    }

    /// Waits until all wardens and guardians of earlier supervisors are gone, and with them all that they
    /// guarded, for this long at most. Nothing may be started before. Returns the lock.
    pub(super) async fn wait_until_free(
        &self,
        patience: Duration,
    ) -> Result<File, HandoverFolderError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            if deadline <= Instant::now() {
                return Err(HandoverFolderError::StillThere(self.path.clone()));
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Ends the services that are kept in this folder: SIGTERM, this long, SIGKILL. Waits until all are gone.
    pub(super) async fn end_kept(&self, grace: Duration) -> Result<File, HandoverFolderError> {
        if let Ok(Some((_, warden))) = visit(&self.path) {
            // A request that does not arrive is covered by the wait for the lock.
            warden.send(&VisitorRequest::End { grace }, &[]).ok();
        }
        self.wait_until_free(grace + ORPHANED_GRACE * 2 + SWEEP_MAX * 2).await
    }

    /// Listens for the next supervisor. The caller holds the lock, so a file of that name is left over.
    fn listen(&self) -> io::Result<OwnedFd> {
        let unnamed = "warden.new";
        for left in [SOCKET, unnamed] {
            self.folder.remove(left.as_ref()).ok();
        }
        let path = short_path(&*self.folder, unnamed).unwrap_or_else(|| self.path.join(unnamed));
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        self.folder.rename(unnamed.as_ref(), SOCKET.as_ref())?;
        listener.set_nonblocking(true)?;
        Ok(listener.into())
    }
}

/// The warden that keeps services in this folder although it has no supervisor, if there is one. A link, which a clone can
/// have, leads to those of another workspace: they are none of this one.
pub(crate) fn abandoned_warden(folder: &Path) -> Option<AbandonedWarden> {
    if folder.is_symlink() {
        return None;
    }
    let Greeting { warden: pid, version, busy, instances, alone, .. } = visit(folder).ok()??.0;
    (!busy).then_some(AbandonedWarden { pid, version, instances, alone })
}

/// Ends what a warden keeps that has neither a supervisor nor the file of its socket, so that no visitor reaches it. It
/// is known by the lock, which is its stdout, and killed: then its guardians end their instances, and themselves. Waits
/// until all are gone. Returns how many instances it kept, or the processes that are left.
pub(crate) fn end_lost(folder: &Path) -> Result<usize, Vec<u32>> {
    if folder.is_symlink() {
        return Ok(0);
    }
    // The folder itself can be gone, too.
    let real = folder.ancestors().find_map(|above| {
        let rest = folder.strip_prefix(above).ok()?;
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    let lock = real.unwrap_or_else(|| folder.to_owned()).join(LOCK);
    let is_lost = |(_, name, parent): &&(u32, String, String)| {
        // A supervisor that is alive is ended itself.
        name.as_bytes() == WARDEN.to_bytes() && parent != "afresh"
    };
    let holders = processes_with_stdout(&lock);
    let lost: Vec<_> = holders.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(0);
    }
    // One that is gone meanwhile needs no signal.
    lost.iter().for_each(|(pid, ..)| kill_one(*pid).unwrap_or_default());
    let wait = ORPHANED_GRACE * 2 + SWEEP_MAX * 2;
    for _ in 0..wait.as_millis() / SWEEP_PAUSE.as_millis() {
        if processes_with_stdout(&lock).is_empty() {
            return Ok(holders.len() - lost.len());
        }
        std::thread::sleep(SWEEP_PAUSE);
    }
    Err(processes_with_stdout(&lock).into_iter().map(|(pid, ..)| pid).collect())
}

/// Connects to the warden that listens in this folder, and hears its greeting; none where there is no warden.
fn visit(folder: &Path) -> io::Result<Option<(Greeting, FrameSocket)>> {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    let connect = || {
        // A FIFO of that name would not be opened before it has a writer.
        let directory = nix::libc::O_DIRECTORY;
        let open = File::options().read(true).custom_flags(directory).open(folder)?;
        let path = short_path(&open, SOCKET).unwrap_or_else(|| folder.join(SOCKET));
        // A link, which a clone can have, leads to the warden of another workspace: none of this one.
        if path.is_symlink() {
            return Ok(None);
        }
        let socket = UnixStream::connect(path)?;
        if os::peer(socket.as_fd())?.0 != Uid::effective().as_raw() {
            let text = "another process listens there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        socket.set_read_timeout(Some(ADOPTION_WAIT))?;
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let mut line = FrameSocket::from(socket);
        // Without a greeting it ends, or has just ended.
        Ok(line.next()?.map(|greeting| (greeting, line)))
    };
    let gone = [NotFound, ConnectionRefused, ConnectionReset, BrokenPipe];
    match connect() {
        Err(error) if gone.contains(&error.kind()) => Ok(None),
        visited => visited,
    }
}

/// The supervisor's side of a handover: what the next supervisor of the workspace will find. Without a listener,
/// wardens and guardians only hold the lock.
pub(super) struct Handover {
    pub(super) folder: HandoverFolder,
    /// Given to each warden.
    pub(super) lock: File,
    /// Given to each warden that outlives this process.
    listener: Option<OwnedFd>,
    /// The stdin of instances is held open, too.
    pub(super) holds_stdin: bool,
    pub(super) names: BTreeMap<ServiceId, String>,
    /// The current instance of each service, as its guardian was told.
    current: BTreeMap<ServiceId, Generation>,
}

impl Handover {
    fn new(folder: HandoverFolder, lock: File, listener: Option<OwnedFd>) -> Self {
        let (names, current) = (BTreeMap::new(), BTreeMap::new());
        Self { folder, lock, listener, holds_stdin: false, names, current }
    }

    /// Begins in a folder where `lock` says that nothing of an earlier supervisor is left.
    pub(super) fn begin(
        folder: HandoverFolder,
        lock: File,
        on_death: OnSupervisorDeath,
    ) -> Result<Self, StartError> {
        let listener = match on_death {
            OnSupervisorDeath::Kill => Ok(None),
            OnSupervisorDeath::Keep => folder.listen().map(Some),
        };
        let listener = listener.map_err(|error| StartError::Listen(folder.socket(), error))?;
        Ok(Self::new(folder, lock, listener))
    }

    /// Whether instances outlive this process.
    pub(super) const fn retains(&self) -> bool {
        self.listener.is_some()
    }

    /// The order to outlive this process, with the socket to listen on.
    pub(super) fn keep_order(&self) -> io::Result<Option<(WardenOrder, OwnedFd)>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let (socket, folder) = (self.folder.socket(), self.folder.path.clone());
        Ok(Some((WardenOrder::Keep { socket, folder }, listener.try_clone()?)))
    }

    /// Sets the current instance of a service. Returns the instances that change by it, and whether each
    /// is the current one now.
    pub(super) fn set_current(
        &mut self,
        service: ServiceId,
        current: Option<Generation>,
    ) -> Vec<(Generation, bool)> {
        let before = match current {
            Some(current) => self.current.insert(service, current),
            None => self.current.remove(&service),
        };
        if before == current {
            return Vec::new();
        }
        let (old, new) = (before.map(|it| (it, false)), current.map(|it| (it, true)));
        old.into_iter().chain(new).collect()
    }

    /// The identity of a new instance and our ends of its pipes, which its guardian retains.
    pub(super) fn retained(
        &self,
        service: ServiceId,
        generation: Generation,
        stdio: &InstanceStdio,
    ) -> io::Result<(Option<InstanceIdentity>, Vec<OwnedFd>)> {
        if !self.retains() {
            return Ok((None, Vec::new()));
        }
        let stdin = self.holds_stdin.then(|| stdio.stdin.as_fd());
        let held = stdin.into_iter().chain([stdio.stdout.as_fd(), stdio.stderr.as_fd()]);
        let identity = InstanceIdentity {
            service: self.names.get(&service).cloned().unwrap_or_default(),
            current: self.current.get(&service) == Some(&generation),
            stdin: self.holds_stdin,
        };
        let held: io::Result<Vec<_>> = held.map(|pipe| pipe.try_clone_to_owned()).collect();
        Ok((Some(identity), held?))
    }
}

/// An instance that another supervisor has started.
pub(crate) struct AdoptedInstance {
    pub(crate) retained: RetainedInstance,
    /// The number of its guardian.
    pub(super) guardian: u64,
    line: FrameSocket,
    descriptors: [Option<OwnedFd>; 5],
}

impl AdoptedInstance {
    /// Opens its pipes and its spooled output, and gives its guardian's socket a task.
    pub(super) fn open(
        self,
        key: GuardianKey,
        sockets: &mut SocketTasks,
    ) -> io::Result<(InstanceStdio, [SpoolReader; 2], Peer)> {
        let [stdin, stdout, stderr, older, newer] = self.descriptors;
        let stdio = InstanceStdio {
            stdin: pipe::Sender::from_owned_fd(or_closed(stdin, |(_, write)| write)?)?,
            stdout: pipe::Receiver::from_owned_fd(or_closed(stdout, |(read, _)| read)?)?,
            stderr: pipe::Receiver::from_owned_fd(or_closed(stderr, |(read, _)| read)?)?,
        };
        let peer = sockets.open_guardian(key, self.line)?;
        let (spool, is_read) = SpooledOutput::new(older.into_iter().chain(newer).collect());
        sockets.watch_spool(key, is_read);
        let earlier = [LogStream::Stdout, LogStream::Stderr]
            .map(|stream| SpoolReader::new(spool.clone(), stream));
        Ok((stdio, earlier, peer))
    }
}

/// Takes over what another supervisor has left to run; none where there is nothing. Waits for a moment
/// while that supervisor is being killed.
pub(super) async fn adopt(
    folder: &HandoverFolder,
    on_death: OnSupervisorDeath,
) -> Result<Option<(Processes, Vec<AdoptedInstance>)>, AdoptError> {
    let deadline = Instant::now() + ADOPTION_WAIT;
    loop {
        let Some((greeting, line)) = visit(&folder.path)? else { return Ok(None) };
        let Greeting { protocol, version, warden, busy, .. } = greeting;
        if protocol != PROTOCOL {
            return Err(AdoptError::Version { version, warden });
        }
        if !busy {
            return Ok(take_over(warden, line, folder, on_death)?);
        }
        if deadline <= Instant::now() {
            return Err(AdoptError::Busy { warden });
        }
        sleep(SWEEP_PAUSE).await;
    }
}

/// Becomes the supervisor of a warden that has none. None where it ends meanwhile.
fn take_over(
    warden: u32,
    mut line: FrameSocket,
    folder: &HandoverFolder,
    on_death: OnSupervisorDeath,
) -> io::Result<Option<(Processes, Vec<AdoptedInstance>)>> {
    // It raises the limit of descriptors, which come next.
    let mut processes = Processes::without_warden().map_err(io::Error::other)?;
    line.send(&VisitorRequest::Adopt { protocol: PROTOCOL }, &[])?;
    let mut sockets = Vec::new();
    let next_guardian = loop {
        match line.next()? {
            Some(WardenReport::Guardian { guardian }) => {
                let socket = line.reader.next_fd().ok_or(io::ErrorKind::InvalidData)?;
                sockets.push((guardian, UnixStream::from(socket)));
            }
            Some(WardenReport::Given { next_guardian }) => break next_guardian,
            Some(_) => {}
            None => return Ok(None),
        }
    };
    let (lock, listener) = (line.reader.next_fd(), line.reader.next_fd());
    let (lock, listener) = lock.zip(listener).ok_or(io::ErrorKind::InvalidData)?;
    let mut instances = Vec::new();
    for (number, socket) in sockets {
        match receive_instance(number, socket)? {
            Some(instance) => instances.push(instance),
            // It has nothing, or hangs: in both cases it has to be gone before anything starts.
            None => bury(&mut line, number)?,
        }
    }
    let listener = (on_death == OnSupervisorDeath::Keep).then_some(listener);
    let handover = Handover::new(folder.clone(), lock.into(), listener);
    processes.join(warden, line, handover, next_guardian)?;
    Ok(Some((processes, instances)))
}

/// Receives what a guardian has retained; none where it has nothing, or does not answer.
fn receive_instance(guardian: u64, socket: UnixStream) -> io::Result<Option<AdoptedInstance>> {
    socket.set_read_timeout(Some(ADOPTION_WAIT))?;
    let mut line = FrameSocket::from(socket);
    let Ok(Some(GuardianReport::Retained(retained))) = line.next() else { return Ok(None) };
    let sent = retained.descriptors;
    let descriptors = sent.map(|sent| if sent { line.reader.next_fd() } else { None });
    if descriptors.each_ref().map(Option::is_some) != sent {
        return Err(io::Error::other("not all descriptors have arrived; is there a limit?"));
    }
    Ok(Some(AdoptedInstance { retained, guardian, line, descriptors }))
}

/// Has a guardian and its tree ended, and waits for it.
fn bury(warden: &mut FrameSocket, guardian: u64) -> io::Result<()> {
    warden.send(&WardenOrder::Bury { guardian }, &[])?;
    loop {
        match warden.next()?.ok_or(io::ErrorKind::UnexpectedEof)? {
            WardenReport::Buried { guardian: buried, .. } if buried == guardian => return Ok(()),
            _ => {}
        }
    }
}

/// A pipe that has come to its end has no descriptor any more: one whose other end is closed is as good.
fn or_closed(
    descriptor: Option<OwnedFd>,
    end: impl Fn((OwnedFd, OwnedFd)) -> OwnedFd,
) -> io::Result<OwnedFd> {
    descriptor.map_or_else(|| os::pipe().map(end), Ok)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;
    use crate::process::unix::pipes;
    use crate::store::testing::TempDir;

    fn open(folder: &Path) -> Result<HandoverFolder, HandoverFolderError> {
        let (above, name) = (folder.parent().unwrap(), folder.file_name().unwrap());
        HandoverFolder::open(&WritePath::beneath(above, name))
    }

    #[test]
    fn a_folder_that_becomes_a_link_gets_no_lock_and_no_socket_elsewhere() {
        let scratch = TempDir::new();
        let folder = open(&scratch.join("run")).unwrap();
        fs::create_dir(scratch.join("outside")).unwrap();
        fs::set_permissions(scratch.join("outside"), PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(scratch.join("run"), scratch.join("moved")).unwrap();
        std::os::unix::fs::symlink(scratch.join("outside"), scratch.join("run")).unwrap();
        drop(folder.try_lock().unwrap().unwrap());
        if cfg!(target_os = "linux") {
            drop(folder.listen().unwrap());
            assert_eq!(fs::read_dir(scratch.join("moved")).unwrap().count(), 2);
        }
        let refused = open(&scratch.join("run"));
        assert!(matches!(refused, Err(HandoverFolderError::NotOurs(..))), "{refused:?}");
        assert_eq!(fs::read_dir(scratch.join("outside")).unwrap().count(), 0);
        let mode = fs::metadata(scratch.join("outside")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "its rights are another's");
    }

    #[test]
    fn a_link_in_the_place_of_the_socket_leads_to_no_warden() {
        let scratch = TempDir::new();
        let theirs = open(&scratch.join("theirs")).unwrap();
        let _listener = theirs.listen().unwrap();
        let clone = open(&scratch.join("clone")).unwrap();
        std::os::unix::fs::symlink(theirs.socket(), clone.socket()).unwrap();
        // One that listens and does not greet would be waited for.
        assert!(matches!(visit(&clone.path), Ok(None)));
    }

    #[tokio::test]
    async fn a_folder_is_free_when_the_last_holder_is_gone() {
        let scratch = TempDir::new();
        let folder = open(&scratch.join("run")).unwrap();
        let soon = Duration::from_millis(20);
        let lock = folder.wait_until_free(soon).await.unwrap();
        let inherited = lock.try_clone().unwrap();
        drop(lock);
        let refused = folder.wait_until_free(soon).await;
        assert!(matches!(refused, Err(HandoverFolderError::StillThere(_))), "{refused:?}");
        drop(inherited);
        folder.wait_until_free(soon).await.unwrap();
        assert!(abandoned_warden(&folder.path).is_none());
    }

    #[test]
    fn a_folder_that_others_may_change_is_mended_and_a_link_refused() {
        let scratch = TempDir::new();
        let (folder, link) = (scratch.join("open"), scratch.join("link"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let refused = open(&link);
        assert!(matches!(refused, Err(HandoverFolderError::NotOurs(..))), "{refused:?}");
        assert!(open(&folder).is_ok());
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_socket_can_be_deep_down() {
        let scratch = TempDir::new();
        let deep = scratch.join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let folder = open(&deep.join("run")).unwrap();
        if cfg!(target_os = "linux") {
            folder.listen().unwrap();
            assert!(folder.socket().exists());
            // The listener is dropped.
            assert!(abandoned_warden(&folder.path).is_none());
        }
    }

    const SERVICE: ServiceId = ServiceId(7);

    async fn begin(dir: &TempDir, on_death: OnSupervisorDeath) -> Handover {
        let folder = open(&dir.join("run")).unwrap();
        let lock = folder.wait_until_free(Duration::ZERO).await.unwrap();
        Handover::begin(folder, lock, on_death).unwrap()
    }

    #[tokio::test]
    async fn only_instances_whose_state_changes_are_told() {
        let dir = TempDir::new();
        let mut handover = begin(&dir, OnSupervisorDeath::Keep).await;
        let [one, two] = [Generation(1), Generation(2)];
        assert_eq!(handover.set_current(SERVICE, Some(one)), [(one, true)]);
        assert_eq!(handover.set_current(SERVICE, Some(one)), []);
        assert_eq!(handover.set_current(SERVICE, Some(two)), [(one, false), (two, true)]);
        assert_eq!(handover.set_current(SERVICE, None), [(two, false)]);
    }

    #[tokio::test]
    async fn an_instance_is_retained_with_its_name_and_pipes_where_it_outlives_us() {
        let dir = TempDir::new();
        let (stdio, _theirs) = pipes().unwrap();
        {
            let handover = begin(&dir, OnSupervisorDeath::Kill).await;
            let (identity, held) = handover.retained(SERVICE, Generation(1), &stdio).unwrap();
            assert_eq!((identity, held.len()), (None, 0));
            assert!(handover.keep_order().unwrap().is_none());
        }
        let mut handover = begin(&dir, OnSupervisorDeath::Keep).await;
        handover.names.insert(SERVICE, "web".to_owned());
        handover.holds_stdin = true;
        handover.set_current(SERVICE, Some(Generation(1)));
        let (identity, held) = handover.retained(SERVICE, Generation(1), &stdio).unwrap();
        let expected = InstanceIdentity { service: "web".to_owned(), current: true, stdin: true };
        assert_eq!((identity, held.len()), (Some(expected), 3));
        assert!(handover.keep_order().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_warden_of_another_version_is_left_alone() {
        let scratch = TempDir::new();
        let folder = open(&scratch.join("run")).unwrap();
        let listener = UnixListener::from(folder.listen().unwrap());
        listener.set_nonblocking(false).unwrap();
        let warden = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let version = "9.9.9".to_owned();
            let greeting = Greeting { protocol: u64::MAX, version, ..Greeting::default() };
            let mut line = FrameSocket::from(socket);
            line.send(&greeting, &[]).unwrap();
            line.next::<VisitorRequest>().unwrap()
        });
        let refused = adopt(&folder, OnSupervisorDeath::Keep).await;
        let Err(AdoptError::Version { version, .. }) = refused else {
            panic!("it is not of this version");
        };
        assert_eq!(version, "9.9.9");
        assert_eq!(warden.join().unwrap(), None, "nothing is sent to it");
    }
}
