//! Owns the handover of services from a supervisor to the next one of the workspace: the folder with its lock and
//! socket, the first exchange with a warden that outlives its supervisor, what the next supervisor will find, and the
//! takeover of what the one before has left. Driven by `Processes`. Never starts or ends a process itself.
//!
//! In the first exchange the warden greets, and the visitor sends one request. Visitors are the next supervisor, one
//! of another version that has the services ended, and commands that look. This is all that two versions of afresh
//! have to agree on for ever: fields are added at the end only.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream, UnixStream as StdStream};
use std::path::{Path, PathBuf};
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
    Frame, FrameBody, FrameReader, GuardianReport, InstanceIdentity, RetainedInstance, WardenOrder,
    WardenReport, send_all,
};
use super::os::{self, short_path};
use super::output_spool::{SpoolReader, SpooledOutput};
use super::socket_task::{Peer, SocketTasks};
use super::{InstanceStdio, Processes, StartError};
use crate::os::{make_private, not_ours_alone};
use crate::process::{AbandonedWarden, AdoptError, HandoverFolderError};

/// The name of the socket in the folder.
pub(super) const SOCKET: &str = "warden.sock";

/// The name of the lock in the folder.
const LOCK: &str = "warden.lock";

/// A folder of a workspace, always the same: otherwise no earlier supervisor would be found.
#[derive(Clone, Debug)]
pub(crate) struct HandoverFolder {
    path: PathBuf,
}

/// The lock of the folder. Inherited by the warden and, when they are forked, by all guardians; it is free
/// again when the last of them is gone.
#[derive(Debug)]
pub(crate) struct FolderLock(pub(super) File);

impl HandoverFolder {
    /// Makes the folder, for this user alone, where it is not there yet.
    pub(crate) fn open(folder: &Path) -> Result<Self, HandoverFolderError> {
        let failed = |source| HandoverFolderError::Folder { path: folder.to_owned(), source };
        let mut builder = DirBuilder::new();
        make_private(&mut builder);
        match builder.create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(folder).map_err(failed)?;
        let wrong = match () {
            () if metadata.is_symlink() => Some("is a link"),
            () if !metadata.is_dir() => Some("is not a folder"),
            () => not_ours_alone(&metadata),
        };
        match wrong {
            Some(what) => Err(HandoverFolderError::NotOurs { path: folder.to_owned(), what }),
            // The warden has another working folder.
            None => Ok(Self { path: fs::canonicalize(folder).map_err(failed)? }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Takes the lock; none where a warden or guardian of an earlier supervisor still holds it.
    fn try_lock(&self) -> Result<Option<FolderLock>, HandoverFolderError> {
        let path = self.path.join(LOCK);
        let failed = |source| HandoverFolderError::Lock { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Listens for the next supervisor. The caller holds the lock, so a file of that name is left over.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let (named, unnamed) = (self.socket(), self.path.join("warden.new"));
        for left in [&named, &unnamed] {
            fs::remove_file(left).ok();
        }
        let open = File::open(&self.path)?;
        let short = short_path(&open, "warden.new");
        let listener = UnixListener::bind(short.as_ref().unwrap_or(&unnamed))?;
        fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
        fs::rename(&unnamed, &named)?;
        listener.set_nonblocking(true)?;
        Ok(listener.into())
    }
}

/// Waits until all wardens and guardians of earlier supervisors are gone, and with them all that they
/// guarded, for this long at most. Nothing may be started before.
pub(super) async fn wait_until_free(
    folder: &HandoverFolder,
    patience: Duration,
) -> Result<FolderLock, HandoverFolderError> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(lock) = folder.try_lock()? {
            return Ok(lock);
        }
        if deadline <= Instant::now() {
            return Err(HandoverFolderError::StillThere { path: folder.path.clone() });
        }
        sleep(SWEEP_PAUSE).await;
    }
}

/// Ends the services that are kept in this folder: SIGTERM, this long, SIGKILL. Waits until all are gone.
pub(super) async fn end_kept(
    folder: &HandoverFolder,
    grace: Duration,
) -> Result<FolderLock, HandoverFolderError> {
    if let Ok(Some(warden)) = WardenConnection::open(&folder.path) {
        // A request that does not arrive is covered by the wait for the lock.
        warden.request(VisitorRequest::End { grace_ms: millis(grace) }).ok();
    }
    wait_until_free(folder, grace + ORPHANED_GRACE * 2 + SWEEP_MAX * 2).await
}

/// The warden that keeps services in this folder although it has no supervisor, if there is one.
pub(crate) fn abandoned_warden(folder: &Path) -> Option<AbandonedWarden> {
    let greeting = WardenConnection::open(folder).ok()??.greeting;
    (!greeting.busy).then_some(AbandonedWarden {
        pid: greeting.warden,
        version: greeting.version,
        instances: greeting.instances,
        alone: Duration::from_millis(greeting.alone_ms),
    })
}

/// The form of everything that supervisor, warden and guardians say to each other, and of the files
/// of output. Another number for each change of it.
pub(super) const PROTOCOL: u64 = 1;

/// The beginning of a greeting.
const MAGIC: u64 = u64::from_le_bytes(*b"afresh\0k");

/// The warden's first message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// See [`PROTOCOL`].
    pub(crate) protocol: u64,
    /// The version of afresh that it is of.
    pub(crate) version: String,
    /// Its process.
    pub(crate) warden: u32,
    /// There is a supervisor.
    pub(crate) busy: bool,
    /// How many instances it keeps.
    pub(crate) instances: u64,
    /// For how long there has been no supervisor.
    pub(crate) alone_ms: u64,
}

/// The request of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitorRequest {
    /// To be the supervisor.
    Adopt { protocol: u64 },
    /// That all is ended, in this time.
    End { grace_ms: u64 },
}

impl Frame for Greeting {
    fn write(&self, out: &mut Vec<u8>) {
        MAGIC.write(out);
        self.protocol.write(out);
        self.version.write(out);
        self.warden.write(out);
        self.busy.write(out);
        self.instances.write(out);
        self.alone_ms.write(out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        u64::read(input).filter(|magic| *magic == MAGIC)?;
        let greeting = Self {
            protocol: Frame::read(input)?,
            version: Frame::read(input)?,
            warden: Frame::read(input)?,
            busy: Frame::read(input)?,
            instances: Frame::read(input)?,
            alone_ms: Frame::read(input)?,
        };
        // Later versions may add fields.
        input.skip_rest();
        Some(greeting)
    }
}

impl Frame for VisitorRequest {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Adopt { protocol } => (1_u8, protocol),
            Self::End { grace_ms } => (2, grace_ms),
        };
        kind.write(out);
        number.write(out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        let (kind, number) = <(u8, u64)>::read(input)?;
        input.skip_rest();
        match kind {
            1 => Some(Self::Adopt { protocol: number }),
            2 => Some(Self::End { grace_ms: number }),
            _ => None,
        }
    }
}

/// A connection to a warden that has greeted.
#[derive(Debug)]
pub(super) struct WardenConnection {
    pub(super) greeting: Greeting,
    pub(super) socket: UnixStream,
    pub(super) reader: FrameReader,
}

impl WardenConnection {
    /// Connects to the warden that listens in this folder; none where there is none.
    pub(super) fn open(folder: &Path) -> io::Result<Option<Self>> {
        let socket = match connect(folder) {
            Ok(socket) => socket,
            Err(error) if is_unreachable(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if os::peer(socket.as_fd())?.0 != Uid::effective().as_raw() {
            let text = "somebody else listens there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        socket.set_read_timeout(Some(ADOPTION_WAIT))?;
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let mut reader = FrameReader::default();
        match next_frame(&socket, &mut reader) {
            Ok(Some(greeting)) => Ok(Some(Self { greeting, socket, reader })),
            // It ends, or has just ended.
            Ok(None) => Ok(None),
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends the request.
    pub(super) fn request(&self, request: VisitorRequest) -> io::Result<()> {
        send_all(self.socket.as_fd(), &request.to_bytes())
    }

    /// The next frame; none at the end.
    pub(super) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        next_frame(&self.socket, &mut self.reader)
    }
}

/// Waits for the next frame on a socket that blocks; none at its end.
pub(super) fn next_frame<F: Frame>(
    socket: &UnixStream,
    reader: &mut FrameReader,
) -> io::Result<Option<F>> {
    loop {
        if let Some(frame) = reader.next()? {
            return Ok(Some(frame));
        }
        match reader.receive(socket.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let open = File::open(folder)?;
    let path = short_path(&open, SOCKET).unwrap_or_else(|| folder.join(SOCKET));
    UnixStream::connect(path)
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe)
}

/// A duration in milliseconds, as frames have it.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The supervisor's side of a handover. Without a listener, wardens and guardians only hold the lock.
pub(super) struct Handover {
    folder: HandoverFolder,
    /// Given to each warden.
    lock: File,
    /// Given to each warden that outlives this process.
    listener: Option<OwnedFd>,
    /// The stdin of instances is held open, too.
    holds_stdin: bool,
    names: BTreeMap<ServiceId, String>,
    /// The current instance of each service, as its guardian was told.
    current: BTreeMap<ServiceId, Generation>,
}

impl Handover {
    pub(super) fn new(folder: HandoverFolder, lock: File, listener: Option<OwnedFd>) -> Self {
        let (names, current) = (BTreeMap::new(), BTreeMap::new());
        Self { folder, lock, listener, holds_stdin: false, names, current }
    }

    /// Begins in a folder where `lock` says that nothing of an earlier supervisor is left.
    pub(super) fn begin(
        folder: &HandoverFolder,
        lock: FolderLock,
        on_death: OnSupervisorDeath,
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { path: folder.socket(), source };
        let listener = match on_death {
            OnSupervisorDeath::Kill => None,
            OnSupervisorDeath::Keep => Some(folder.listen().map_err(failed)?),
        };
        Ok(Self::new(folder.clone(), lock.0, listener))
    }

    /// Whether instances outlive this process.
    pub(super) const fn retains(&self) -> bool {
        self.listener.is_some()
    }

    /// The lock, as a new warden inherits it.
    pub(super) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// The order to outlive this process, with the socket to listen on.
    pub(super) fn keep_order(&self) -> io::Result<Option<(WardenOrder, OwnedFd)>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let (socket, folder) = (self.folder.socket(), self.folder.path().to_owned());
        Ok(Some((WardenOrder::Keep { socket, folder }, listener.try_clone()?)))
    }

    /// The stdin of instances is in use: it has to stay open for the next supervisor.
    pub(super) const fn hold_stdin(&mut self) {
        self.holds_stdin = true;
    }

    /// Sets the name of a service.
    pub(super) fn introduce(&mut self, service: ServiceId, name: &str) {
        self.names.insert(service, name.to_owned());
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
        let mut descriptors = Vec::new();
        if self.holds_stdin {
            descriptors.push(stdio.stdin.as_fd().try_clone_to_owned()?);
        }
        descriptors.push(stdio.stdout.as_fd().try_clone_to_owned()?);
        descriptors.push(stdio.stderr.as_fd().try_clone_to_owned()?);
        let identity = InstanceIdentity {
            service: self.names.get(&service).cloned().unwrap_or_default(),
            current: self.current.get(&service) == Some(&generation),
            stdin: self.holds_stdin,
        };
        Ok((Some(identity), descriptors))
    }

    /// Removes the socket: the supervisor ends in order, and there may be no warden to do it.
    pub(super) fn close(&self) {
        fs::remove_file(self.folder.socket()).ok();
    }
}

/// The process layer of a supervisor that begins.
pub(crate) struct Entered {
    pub(crate) processes: Processes,
    /// The instances that run already: for the loop to adopt, each with [`Processes::take`].
    pub(crate) instances: Vec<AdoptedInstance>,
    /// Notices for the user.
    pub(crate) notices: Vec<String>,
}

/// An instance that another supervisor has started.
pub(crate) struct AdoptedInstance {
    number: u64,
    retained: RetainedInstance,
    socket: StdStream,
    reader: FrameReader,
    descriptors: [Option<OwnedFd>; 5],
}

impl AdoptedInstance {
    /// The name of its service.
    pub(crate) fn service(&self) -> &str {
        &self.retained.identity.service
    }

    pub(crate) const fn generation(&self) -> Generation {
        Generation(self.retained.generation)
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.retained.pid
    }

    /// How long it has run; of one that has ended, how long it ran.
    pub(crate) const fn uptime(&self) -> Duration {
        Duration::from_millis(self.retained.uptime_ms)
    }

    /// Whether it is the current one of its service.
    pub(crate) const fn is_current(&self) -> bool {
        self.retained.identity.current
    }

    /// Whether its stop had begun.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.retained.stopping
    }

    /// Bytes of its output that are lost, because no supervisor came for too long.
    pub(crate) const fn lost_bytes(&self) -> u64 {
        self.retained.lost
    }

    /// The number of its guardian.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Opens its pipes, and gives its guardian's socket a task.
    pub(super) fn open(
        self,
        key: GuardianKey,
        sockets: &mut SocketTasks,
    ) -> io::Result<(AdoptedStdio, Peer, RetainedInstance)> {
        let [stdin, stdout, stderr, older, newer] = self.descriptors;
        let stdio = InstanceStdio {
            stdin: pipe::Sender::from_owned_fd(or_closed(stdin, |(_, write)| write)?)?,
            stdout: pipe::Receiver::from_owned_fd(or_closed(stdout, |(read, _)| read)?)?,
            stderr: pipe::Receiver::from_owned_fd(or_closed(stderr, |(read, _)| read)?)?,
        };
        let peer = sockets.open_guardian(key, self.socket, self.reader)?;
        let (spool, is_read) = SpooledOutput::new(older.into_iter().chain(newer).collect());
        sockets.watch_spool(key, is_read);
        let earlier = [LogStream::Stdout, LogStream::Stderr]
            .map(|stream| SpoolReader::new(spool.clone(), stream));
        Ok((AdoptedStdio { stdio, earlier }, peer, self.retained))
    }
}

/// The output of an adopted instance.
pub(crate) struct AdoptedStdio {
    pub(crate) stdio: InstanceStdio,
    /// The spooled output of stdout and stderr: comes first.
    pub(crate) earlier: [SpoolReader; 2],
}

/// Takes over what another supervisor has left to run; none where there is nothing. Waits for a moment
/// while that supervisor is being killed.
pub(super) async fn adopt(
    folder: &HandoverFolder,
    on_death: OnSupervisorDeath,
) -> Result<Option<(Processes, Vec<AdoptedInstance>)>, AdoptError> {
    let deadline = Instant::now() + ADOPTION_WAIT;
    loop {
        let Some(warden) = WardenConnection::open(folder.path()).map_err(AdoptError::Connection)?
        else {
            return Ok(None);
        };
        let greeting = &warden.greeting;
        if greeting.protocol != PROTOCOL {
            let version = greeting.version.clone();
            return Err(AdoptError::Version { version, warden: greeting.warden });
        }
        if !greeting.busy {
            return take_over(warden, folder, on_death).map_err(AdoptError::Connection);
        }
        if deadline <= Instant::now() {
            return Err(AdoptError::Busy { warden: greeting.warden });
        }
        sleep(SWEEP_PAUSE).await;
    }
}

/// Becomes the supervisor of a warden that has none. None where it ends meanwhile.
fn take_over(
    mut warden: WardenConnection,
    folder: &HandoverFolder,
    on_death: OnSupervisorDeath,
) -> io::Result<Option<(Processes, Vec<AdoptedInstance>)>> {
    // It raises the limit of descriptors, which come next.
    let mut processes = Processes::without_warden().map_err(io::Error::other)?;
    warden.request(VisitorRequest::Adopt { protocol: PROTOCOL })?;
    let mut sockets = Vec::new();
    let next_guardian = loop {
        match warden.next()? {
            Some(WardenReport::Guardian { guardian }) => {
                let socket = warden.reader.next_fd().ok_or(io::ErrorKind::InvalidData)?;
                sockets.push((guardian, StdStream::from(socket)));
            }
            Some(WardenReport::Given { next_guardian }) => break next_guardian,
            Some(_) => {}
            None => return Ok(None),
        }
    };
    let (lock, listener) = (warden.reader.next_fd(), warden.reader.next_fd());
    let (Some(lock), Some(listener)) = (lock, listener) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut instances = Vec::new();
    for (number, socket) in sockets {
        match receive_instance(number, socket)? {
            Some(instance) => instances.push(instance),
            // It has nothing, or hangs: in both cases it has to be gone before anything starts.
            None => bury(&mut warden, number)?,
        }
    }
    let listener = (on_death == OnSupervisorDeath::Keep).then_some(listener);
    let handover = Handover::new(folder.clone(), lock.into(), listener);
    processes.join(warden, handover, next_guardian)?;
    Ok(Some((processes, instances)))
}

/// Receives what a guardian has retained; none where it has nothing, or does not answer.
fn receive_instance(number: u64, socket: StdStream) -> io::Result<Option<AdoptedInstance>> {
    socket.set_read_timeout(Some(ADOPTION_WAIT))?;
    let mut reader = FrameReader::default();
    let Ok(Some(GuardianReport::Retained(retained))) = next_frame(&socket, &mut reader) else {
        return Ok(None);
    };
    let sent = retained.descriptors;
    let descriptors = sent.map(|sent| if sent { reader.next_fd() } else { None });
    if descriptors.each_ref().map(Option::is_some) != sent {
        return Err(io::Error::other("not all descriptors have arrived; is there a limit?"));
    }
    Ok(Some(AdoptedInstance { number, retained: *retained, socket, reader, descriptors }))
}

/// Has a guardian and its tree ended, and waits for it.
fn bury(warden: &mut WardenConnection, guardian: u64) -> io::Result<()> {
    send_all(warden.socket.as_fd(), &WardenOrder::Bury { guardian }.to_bytes())?;
    loop {
        match warden.next()? {
            Some(WardenReport::Buried { guardian: buried, .. }) if buried == guardian => {
                return Ok(());
            }
            Some(_) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A pipe that has come to its end has no descriptor any more: one whose other end is closed is as good.
fn or_closed(
    descriptor: Option<OwnedFd>,
    end: impl Fn((OwnedFd, OwnedFd)) -> OwnedFd,
) -> io::Result<OwnedFd> {
    match descriptor {
        Some(descriptor) => Ok(descriptor),
        None => os::pipe().map(end),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;
    use crate::process::unix::pipes;
    use crate::store::testing::TempDir;

    #[tokio::test]
    async fn a_folder_is_free_when_the_last_holder_is_gone() {
        let scratch = TempDir::new();
        let folder = HandoverFolder::open(&scratch.join("run")).unwrap();
        let soon = Duration::from_millis(20);
        let lock = wait_until_free(&folder, soon).await.unwrap();
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        let refused = wait_until_free(&folder, soon).await;
        assert!(matches!(refused, Err(HandoverFolderError::StillThere { .. })), "{refused:?}");
        drop(inherited);
        wait_until_free(&folder, soon).await.unwrap();
        assert!(abandoned_warden(folder.path()).is_none());
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let scratch = TempDir::new();
        let (folder, link) = (scratch.join("open"), scratch.join("link"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        for path in [&folder, &link] {
            let refused = HandoverFolder::open(path);
            assert!(matches!(refused, Err(HandoverFolderError::NotOurs { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_socket_can_be_deep_down() {
        let scratch = TempDir::new();
        let deep = scratch.join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let folder = HandoverFolder::open(&deep.join("run")).unwrap();
        if cfg!(target_os = "linux") {
            folder.listen().unwrap();
            assert!(folder.socket().exists());
            // The listener is dropped.
            assert!(abandoned_warden(folder.path()).is_none());
        }
    }

    fn read<F: Frame>(bytes: &[u8]) -> io::Result<Option<F>> {
        let mut reader = FrameReader::default();
        bytes.iter().for_each(|byte| reader.push(*byte));
        reader.next()
    }

    /// What this version sends, byte by byte: every later one has to understand it.
    #[test]
    fn what_versions_agree_on_does_not_change() {
        let greeting = Greeting {
            protocol: 1,
            version: "0.1.0".to_owned(),
            warden: 7,
            busy: true,
            instances: 2,
            alone_ms: 3,
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = greeting.to_bytes();
        assert_eq!(
            hex(&bytes),
            "36000000\
             616672657368006b\
             0100000000000000\
             0500000000000000302e312e30\
             0700000000000000\
             01\
             0200000000000000\
             0300000000000000"
        );
        assert_eq!(read::<Greeting>(&bytes).unwrap(), Some(greeting));
        let request = VisitorRequest::End { grace_ms: 5 };
        assert_eq!(hex(&request.to_bytes()), "09000000020500000000000000");
        assert_eq!(read::<VisitorRequest>(&request.to_bytes()).unwrap(), Some(request));
        let request = VisitorRequest::Adopt { protocol: 1 };
        assert_eq!(hex(&request.to_bytes()), "09000000010100000000000000");
    }

    #[test]
    fn a_greeting_that_says_more_is_understood_and_garbage_is_not() {
        let mut bytes = Greeting::default().to_bytes();
        bytes.extend([1, 2, 3]);
        bytes[0] += 3;
        assert_eq!(read::<Greeting>(&bytes).unwrap(), Some(Greeting::default()));
        bytes[5] ^= 1;
        assert!(read::<Greeting>(&bytes).is_err());
    }

    const SERVICE: ServiceId = ServiceId(7);

    async fn begin(dir: &TempDir, on_death: OnSupervisorDeath) -> Handover {
        let folder = HandoverFolder::open(&dir.join("run")).unwrap();
        let lock = wait_until_free(&folder, Duration::ZERO).await.unwrap();
        Handover::begin(&folder, lock, on_death).unwrap()
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
        handover.introduce(SERVICE, "web");
        handover.hold_stdin();
        handover.set_current(SERVICE, Some(Generation(1)));
        let (identity, held) = handover.retained(SERVICE, Generation(1), &stdio).unwrap();
        let expected = InstanceIdentity { service: "web".to_owned(), current: true, stdin: true };
        assert_eq!((identity, held.len()), (Some(expected), 3));
        assert!(handover.keep_order().unwrap().is_some());
    }

    #[tokio::test]
    async fn a_warden_of_another_version_is_left_alone() {
        let scratch = TempDir::new();
        let folder = HandoverFolder::open(&scratch.join("run")).unwrap();
        let listener = UnixListener::from(folder.listen().unwrap());
        listener.set_nonblocking(false).unwrap();
        let warden = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let version = "9.9.9".to_owned();
            let greeting = Greeting { protocol: u64::MAX, version, ..Greeting::default() };
            send_all(socket.as_fd(), &greeting.to_bytes()).unwrap();
            next_frame::<VisitorRequest>(&socket, &mut FrameReader::default()).unwrap()
        });
        let refused = adopt(&folder, OnSupervisorDeath::Keep).await;
        let Err(AdoptError::Version { version, .. }) = refused else {
            panic!("it is not of this version");
        };
        assert_eq!(version, "9.9.9");
        assert_eq!(warden.join().unwrap(), None, "nothing is sent to it");
    }
}
