//! The process layer on Linux and macOS, the supervisor's end: the connection to the warden, the pipes of instances,
//! and the table of guardians, the sweep after lost ones and the handover to the next supervisor, which are files of
//! their own. Driven by the loops, which get a [`Report`] from each call of [`Processes::next`]. Never decides about
//! restarts, and never waits for the warden.

mod descendants;
#[cfg(feature = "fuzzing")]
mod fuzzed_frames;
mod guardian;
mod guardian_table;
mod handover;
mod messages;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(not(target_os = "linux"))]
#[path = "macos.rs"]
mod os;
mod output_spool;
mod socket_task;
mod usage;
mod warden;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};

use afresh_core::definition::{OnSupervisorDeath, StopSignal};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    DESCRIPTORS_KEPT, PREDECESSOR_GRACE, PREDECESSOR_WAIT, SWEEP_PAUSE, WARDEN_LIFE_MIN,
};
use afresh_core::service::SpawnFailure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as ChildSignal, SignalKind, signal};
use tokio::time::{Instant, sleep};

use self::descendants::Sweep;
use self::guardian_table::{GuardianHandle, GuardianKey, Guardians};
use self::handover::{AdoptError, Handover, HandoverFolder, HandoverFolderError, adopt};
use self::messages::{FrameSocket, GuardianOrder, Launch, WardenOrder, WardenReport};
use self::socket_task::{Peer, PeerMessage, SocketTasks};
use super::spawn_error::explain;
use super::{Command, Entered, OutputEnd, Report, WARDEN_COMMAND};

pub(crate) use self::descendants::{is_alive, kill_one, terminate_one};
#[cfg(feature = "fuzzing")]
pub use self::fuzzed_frames::{FRAME_KINDS, FramesRead, read_frames};
pub(crate) use self::handover::{AdoptedInstance, abandoned_warden, end_lost};
pub(crate) use self::os::{MECHANISM, own_cgroup, own_executable};
pub(crate) use self::output_spool::SpoolReader;
pub(crate) use self::usage::{own_usage, usage_of_tree, usage_of_trees};
pub(crate) use self::warden::run as run_warden;
pub(crate) use crate::os::dispositions::ignore_in_supervisor;
use crate::os::{is_kept_back, too_many_files};
use crate::write_path::WritePath;

/// An error of the setup of the process layer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The warden did not start from this binary.
    #[error("cannot start the warden from `{}`", .0.display())]
    Warden(PathBuf, #[source] io::Error),
    /// The ends of children cannot be heard.
    #[error("cannot listen for the ends of children")]
    Signals(#[source] io::Error),
    /// The next supervisor could not find us at this socket.
    #[error("cannot listen at `{}`, so no service could outlive afresh", .0.display())]
    Listen(PathBuf, #[source] io::Error),
    /// The folder of the handover cannot be used.
    #[error("cannot make sure that no service runs twice")]
    Handover(#[from] HandoverFolderError),
    /// The services that it has left cannot be taken over.
    #[error("cannot go on with the services that run")]
    Adopt(#[from] AdoptError),
    /// The path of this binary is not known.
    #[error("cannot find out the path of this binary")]
    Executable(#[source] io::Error),
}

/// All processes that afresh has started.
pub(crate) struct Processes {
    sockets: SocketTasks,
    exe: PathBuf,
    /// None after it was killed.
    warden: Option<Warden>,
    guardians: Guardians,
    sweep: Sweep,
    /// Only in a workspace: others have no next supervisor.
    handover: Option<Handover>,
    /// Reports that the loop has not asked for yet.
    ready: VecDeque<Report>,
    child_ended: ChildSignal,
    /// The limit of open files that children get; that of this process is raised.
    open_files: Option<(u64, u64)>,
}

impl Processes {
    /// Sets up the process layer, with the warden running.
    pub(crate) fn start() -> Result<Self, StartError> {
        Self::without_warden()?.with_warden()
    }

    /// Sets up the process layer in a folder that belongs to the workspace: takes over what the
    /// supervisor before has left to run, or waits until nothing of it is there, and begins anew.
    /// However that one ended, and with any `on_death` of its own, nothing runs twice.
    pub(crate) async fn enter(
        folder: &WritePath,
        on_death: OnSupervisorDeath,
    ) -> Result<Entered, StartError> {
        let folder = HandoverFolder::open(folder)?;
        let mut notices = Vec::new();
        let lock = match adopt(&folder, on_death).await {
            Ok(Some((processes, instances))) => {
                return Ok(Entered { processes, instances, notices });
            }
            Ok(None) => folder.wait_until_free(PREDECESSOR_WAIT).await?,
            Err(error @ AdoptError::Version { .. }) => {
                notices.push(format!("{error}: ending them"));
                folder.end_kept(PREDECESSOR_GRACE).await?
            }
            Err(error) => return Err(error.into()),
        };
        let mut processes = Self::without_warden()?;
        let handover = Handover::begin(folder, lock, on_death)?;
        processes.guardians.retain = handover.retains();
        processes.handover = Some(handover);
        Ok(Entered { processes: processes.with_warden()?, instances: Vec::new(), notices })
    }

    fn without_warden() -> Result<Self, StartError> {
        // Without it a killed warden's guardians would go to init: less, but not nothing.
        os::adopt_orphans().ok();
        Ok(Self {
            sockets: SocketTasks::new(),
            exe: own_executable().map_err(StartError::Executable)?,
            warden: None,
            guardians: Guardians::default(),
            sweep: Sweep::new(),
            handover: None,
            ready: VecDeque::new(),
            child_ended: signal(SignalKind::child()).map_err(StartError::Signals)?,
            open_files: raise_open_files(),
        })
    }

    fn with_warden(mut self) -> Result<Self, StartError> {
        match self.start_warden() {
            Ok(()) => Ok(self),
            Err(error) => Err(StartError::Warden(self.exe, error)),
        }
    }

    /// Starts a warden, and tells it to outlive this process where services do.
    fn start_warden(&mut self) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = StdCommand::new(&self.exe);
        command.arg0("afresh").arg(WARDEN_COMMAND).env_clear().current_dir("/");
        // Its end of our stderr would keep the reader of ours waiting.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(handover) = &self.handover {
            // Inherited at once: there is no moment in which the lock is free.
            command.stdout(handover.lock.try_clone()?);
        }
        let pid = Pid::from_raw(command.spawn()?.id().cast_signed());
        let peer = self.sockets.open_warden(pid, ours.into())?;
        let keep = self.handover.as_ref().map(Handover::keep_order).transpose()?.flatten();
        if let Some((order, listener)) = keep {
            peer.send(&order, vec![listener]);
        }
        self.warden = Some(Warden { pid, peer, since: Instant::now(), is_foreign: false });
        Ok(())
    }

    /// Sends an order, where there is a warden.
    fn order_warden(&self, order: &WardenOrder, fds: Vec<OwnedFd>) {
        if let Some(warden) = &self.warden {
            warden.peer.send(order, fds);
        }
    }

    fn warden_pid(&self) -> Option<Pid> {
        self.warden.as_ref().map(|warden| warden.pid)
    }

    /// Becomes the supervisor of a warden that another one has started.
    fn join(
        &mut self,
        warden: u32,
        line: FrameSocket,
        handover: Handover,
        next_guardian: u64,
    ) -> io::Result<()> {
        let pid = Pid::from_raw(warden.cast_signed());
        let peer = self.sockets.open_warden(pid, line)?;
        self.warden = Some(Warden { pid, peer, since: Instant::now(), is_foreign: true });
        if !handover.retains() {
            self.order_warden(&WardenOrder::Leave, Vec::new());
        }
        self.guardians.retain = handover.retains();
        self.guardians.next_number = next_guardian;
        self.handover = Some(handover);
        Ok(())
    }

    /// Takes an instance that another supervisor has started, as one of this service's. Its end, also
    /// where it has ended meanwhile, comes as a report. One that cannot be taken is ended. Returns its spooled
    /// output of stdout and stderr, too, which comes first.
    pub(crate) fn take(
        &mut self,
        service: ServiceId,
        instance: AdoptedInstance,
    ) -> io::Result<(InstanceStdio, [SpoolReader; 2])> {
        let (guardian, retained) = (instance.guardian, instance.retained.clone());
        let (key, generation) = ((service, guardian), retained.generation);
        match instance.open(key, &mut self.sockets) {
            Ok((stdio, earlier, peer)) => {
                if let Some(handover) = self.handover.as_mut().filter(|_| retained.identity.current)
                {
                    handover.set_current(service, Some(generation));
                }
                self.ready.extend(self.guardians.adopt(key, self.warden_pid(), peer, retained));
                Ok((stdio, earlier))
            }
            Err(error) => {
                self.sweep.lost_guardians.insert(guardian, (service, generation));
                self.order_warden(&WardenOrder::Bury { guardian }, Vec::new());
                Err(error)
            }
        }
    }

    /// Starts an instance. The answer comes as a report.
    pub(crate) fn spawn(
        &mut self,
        service: ServiceId,
        generation: Generation,
        command: &Command,
        output: OutputEnd,
    ) -> Result<InstanceStdio, SpawnFailure> {
        let failed = |error: io::Error| explain(command, &error);
        let (ours, mut theirs) = pipes().map_err(failed)?;
        let retained = self.handover.as_ref().map(|it| it.retained(service, generation, &ours));
        let (identity, held) = retained.transpose().map_err(failed)?.unwrap_or_default();
        theirs.extend(held);
        let key = self.idle_guardian(service).map_err(failed)?;
        let cwd = command.cwd.clone().or_else(|| std::env::current_dir().ok());
        let launch = Launch {
            generation,
            command: Command { cwd, ..command.clone() },
            open_files: self.open_files,
            holds_output: output == OutputEnd::WithTheInstance,
            identity,
        };
        let order = GuardianOrder::Launch(launch);
        self.guardians.launch(key, (generation, command.clone()), &order, theirs);
        Ok(ours)
    }

    /// An idle guardian of the service's; one is made, if there is none.
    fn idle_guardian(&mut self, service: ServiceId) -> io::Result<GuardianKey> {
        if self.warden.is_none() {
            self.start_warden()?;
        }
        let warden = self.warden_pid();
        if let Some(key) = self.guardians.idle(service, warden) {
            return Ok(key);
        }
        let (key, socket) = self.guardians.add(service, warden, &mut self.sockets)?;
        self.order_warden(&WardenOrder::Fork { guardian: key.1 }, vec![socket]);
        Ok(key)
    }

    /// This signal to the instance's process and its group.
    pub(crate) fn terminate(&self, service: ServiceId, generation: Generation, signal: StopSignal) {
        self.guardians.order(service, generation, &GuardianOrder::Terminate(signal));
    }

    /// SIGKILL to the instance's whole tree.
    pub(crate) fn kill(&self, service: ServiceId, generation: Generation) {
        self.guardians.order(service, generation, &GuardianOrder::Kill);
    }

    /// Gives up on the instance's guardian: it is killed, and its tree swept.
    pub(crate) fn abandon(&mut self, service: ServiceId, generation: Generation) {
        if let Some((key, guardian)) = self.guardians.remove_running(service, generation) {
            self.bury(key, guardian);
        }
    }

    /// The stdin of instances is in use: it has to stay open for the next supervisor.
    pub(crate) fn hold_stdin(&mut self) {
        self.handover.iter_mut().for_each(|handover| handover.holds_stdin = true);
    }

    /// Sets the name of a service, for the next supervisor.
    pub(crate) fn introduce(&mut self, service: ServiceId, name: &str) {
        if let Some(handover) = &mut self.handover {
            handover.names.insert(service, name.to_owned());
        }
    }

    /// Sets which instance of a service is the current one, for the next supervisor.
    pub(crate) fn mark(&mut self, service: ServiceId, current: Option<Generation>) {
        let Some(handover) = self.handover.as_mut().filter(|it| it.retains()) else { return };
        for (generation, is_current) in handover.set_current(service, current) {
            self.guardians.order(service, generation, &GuardianOrder::SetCurrent(is_current));
        }
    }

    /// The stop of an instance begins: its guardian no longer holds its stdin.
    pub(crate) fn close_stdin(&self, service: ServiceId, generation: Generation) {
        if self.handover.as_ref().is_some_and(Handover::retains) {
            self.guardians.order(service, generation, &GuardianOrder::CloseStdin);
        }
    }

    /// The next report. Cancel safe.
    pub(crate) async fn next(&mut self) -> Report {
        self.guardians.acknowledge();
        loop {
            if let Some(report) = self.ready.pop_front() {
                self.guardians.hand_out(&report);
                return report;
            }
            tokio::select! {
                message = self.sockets.next() => self.handle(message),
                // Guardians whose warden was killed are children of this process.
                _ = self.child_ended.recv() => drop(self.sweep.reap()),
                () = sleep(SWEEP_PAUSE), if self.sweep.since.is_some() => {
                    let pids = self.guardians.by_key.values().filter_map(|guardian| guardian.pid);
                    let living = pids.chain(self.warden.as_ref().map(|warden| warden.pid));
                    self.ready.extend(self.sweep.step(living));
                }
            }
        }
    }

    /// Lets all guardians and the warden go, and waits until they have.
    pub(crate) async fn shutdown(mut self) {
        self.guardians.close();
        if let Some(handover) = self.handover.as_ref().filter(|it| it.retains()) {
            self.order_warden(&WardenOrder::Leave, Vec::new());
            // There may be no warden to do it.
            fs::remove_file(handover.folder.socket()).ok();
        }
        // Closes the connection.
        let warden = self.warden.take().map(|warden| warden.pid);
        self.sockets.close().await;
        self.sweep.wait_for_end(warden).await;
    }

    fn handle(&mut self, message: PeerMessage) {
        match message {
            PeerMessage::Guardian(key, report) => {
                self.ready.extend(self.guardians.handle(key, report));
            }
            PeerMessage::GuardianGone(key) => {
                if let Some(guardian) = self.guardians.by_key.remove(&key) {
                    self.bury(key, guardian);
                }
            }
            PeerMessage::SpoolRead(key) => {
                if let Some(guardian) = self.guardians.by_key.get(&key) {
                    guardian.peer.send(&GuardianOrder::DiscardSpool, Vec::new());
                }
            }
            PeerMessage::Warden(WardenReport::Guardian { .. } | WardenReport::Given { .. }) => {}
            PeerMessage::Warden(WardenReport::Buried { guardian, survivors }) => {
                self.ready.extend(self.sweep.finish(guardian, survivors));
            }
            PeerMessage::Warden(WardenReport::ForkFailed { guardian, errno }) => {
                self.ready.extend(self.guardians.fork_failed(guardian, errno));
            }
            PeerMessage::WardenGone(pid) => self.replace_warden(pid),
        }
    }

    /// A guardian is lost: what it left has to be gone before its service may start again.
    fn bury(&mut self, (service, number): GuardianKey, guardian: GuardianHandle) {
        if let Some((generation, _)) = guardian.current {
            self.sweep.lost_guardians.insert(number, (service, generation));
        }
        if self.warden.is_some() && self.warden_pid() == guardian.warden {
            self.order_warden(&WardenOrder::Bury { guardian: number }, Vec::new());
        } else {
            // Its warden was killed before it: what it left are children of this process.
            self.sweep.since.get_or_insert_with(Instant::now);
        }
        let text = "a guardian was lost; what it guarded is ended".to_owned();
        self.ready.push_back(Report::Notice(text));
    }

    /// The socket of a warden is at its end.
    fn replace_warden(&mut self, pid: Pid) {
        let Some(lost) = self.warden.take_if(|warden| warden.pid == pid) else { return };
        self.sweep.lost_warden = (!lost.is_foreign).then_some(pid);
        self.sweep.since = Some(Instant::now());
        // The next one waits until it is needed where this one lived so shortly.
        let text = if lost.since.elapsed() < WARDEN_LIFE_MIN && !lost.is_foreign {
            "the warden was killed soon after its start; the next start makes another".to_owned()
        } else {
            match self.start_warden() {
                Ok(()) => "the warden was killed; a new one takes its place".to_owned(),
                Err(error) => format!("the warden was killed, and no new one starts: {error}"),
            }
        };
        self.ready.push_back(Report::Notice(text));
    }
}

/// A thousand services need four descriptors each. Returns the limit that was there before.
fn raise_open_files() -> Option<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
    Some((soft, hard))
}

/// The connection to the warden.
struct Warden {
    pid: Pid,
    peer: Peer,
    since: Instant,
    /// Another supervisor started it: it is no child of this process.
    is_foreign: bool,
}

/// Our ends of an instance's pipes.
#[derive(Debug)]
pub(crate) struct InstanceStdio {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

/// Our ends, and theirs in the order stdin, stdout, stderr.
fn pipes() -> io::Result<(InstanceStdio, Vec<OwnedFd>)> {
    let (their_stdin, our_stdin) = os::pipe()?;
    let (our_stdout, their_stdout) = os::pipe()?;
    let (our_stderr, their_stderr) = os::pipe()?;
    if is_kept_back(&their_stderr, DESCRIPTORS_KEPT) {
        return Err(too_many_files());
    }
    let ours = InstanceStdio {
        stdin: pipe::Sender::from_owned_fd(our_stdin)?,
        stdout: pipe::Receiver::from_owned_fd(our_stdout)?,
        stderr: pipe::Receiver::from_owned_fd(our_stderr)?,
    };
    Ok((ours, vec![their_stdin, their_stdout, their_stderr]))
}
