//! Takes over the services that an earlier supervisor has left: asks the warden for the guardians, and each
//! guardian for its instance with its pipes, its spooled output and its end. Driven by `Processes::enter`.
//! Never starts a process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::Generation;
use afresh_core::limits::{ADOPTION_WAIT, SWEEP_PAUSE};
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep};

use super::frames::{GuardianReport, RetainedInstance, WardenOrder, WardenReport};
use super::guardians::GuardianKey;
use super::handover_folder::HandoverFolder;
use super::handover_out::Handover;
use super::handover_protocol::{PROTOCOL, VisitorRequest, WardenConnection, next_frame};
use super::host::Processes;
use super::output_spool::{SpoolReader, SpooledOutput};
use super::socket_task::{Peer, SocketTasks};
use super::wire::{Frame, FrameReader, send_all};
use super::{AdoptError, InstanceStdio, os};

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

    use super::*;
    use crate::process::handover_protocol::Greeting;
    use crate::store::testing::TempDir;

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
