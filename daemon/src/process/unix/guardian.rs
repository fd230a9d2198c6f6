//! A guardian: parent and subreaper of the processes of one instance, and of the next when that is gone.
//! Driven by the orders of the supervisor's socket. Never decides about restarts.
//!
//! A small single-threaded process, forked by the warden. It starts what it is told, reports the
//! end once the *whole* tree is gone, and when its socket closes, because the supervisor has ended or was
//! killed, it ends the tree and itself.
//!
//! Unless the instance is to outlive its supervisor: then it spools the output meanwhile, remembers the
//! end, and reports both to the next supervisor, whose socket comes from the warden. When the warden
//! goes too, it ends the tree and itself.
//! Retention of the pipes never blocks on one.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::limits::{ORPHANED_GRACE, PIPE_CHUNK_BYTES, SWEEP_MAX, SWEEP_PAUSE};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::handover::millis;
use super::messages::{
    Frame, FrameReader, GuardianInvitation, GuardianOrder, GuardianReport, InstanceIdentity,
    Launch, ProcessEnd, RetainedInstance, TreeEnd, send_all, send_with,
};
use super::os::{self, ChildWatch};
use super::output_spool::OutputSpool;
use super::tree::{self, Change, Remaining, wait};

/// The name of a guardian in `ps`. Names have fifteen bytes there.
pub(super) const GUARDIAN: &CStr = c"afresh-guardian";

/// Guards until the supervisor is gone and the tree too.
pub(super) fn guard(socket: OwnedFd, warden: Option<WardenSocket>) -> io::Result<()> {
    os::set_name(GUARDIAN);
    os::wake_when_parent_dies();
    os::adopt_orphans()?;
    let watch = ChildWatch::new()?;
    let mut guardian = Guardian {
        socket,
        reader: FrameReader::default(),
        watch,
        tree: None,
        supervisor: Present,
        warden,
        retention: None,
    };
    guardian.report(&GuardianReport::Hello { pid: std::process::id() })?;
    while !guardian.is_done() {
        guardian.turn()?;
    }
    Ok(())
}

struct Guardian {
    socket: OwnedFd,
    reader: FrameReader,
    watch: ChildWatch,
    tree: Option<Tree>,
    supervisor: Supervisor,
    warden: Option<WardenSocket>,
    /// Retained for the next supervisor, where there is to be one.
    retention: Option<Retention>,
}

/// The warden, where it outlives its supervisor.
pub(super) struct WardenSocket {
    socket: OwnedFd,
    reader: FrameReader,
    /// The folder for spooled output.
    folder: PathBuf,
}

impl WardenSocket {
    pub(super) fn new(socket: OwnedFd, folder: PathBuf) -> Self {
        Self { socket, reader: FrameReader::default(), folder }
    }
}

use Supervisor::{Away, Gone, Present};

enum Supervisor {
    Present,
    /// It was killed, and another one may come.
    Away,
    /// The tree has until then to end by itself.
    Gone {
        kill_at: Instant,
    },
}

/// The processes of one instance.
struct Tree {
    generation: u64,
    leader: Pid,
    /// The end of the leader.
    end: Option<ProcessEnd>,
    /// Processes that the leader left behind.
    leftovers: u32,
    termination: Termination,
    /// Its ends of its output. Each that closes wakes the supervisor, just when the next instance is
    /// to be started: they close after the end was told.
    _output: Vec<OwnedFd>,
}

/// The steps that were taken to end the tree.
enum Termination {
    Not,
    Terminated(Signal),
    Killed { since: Instant },
}

impl Guardian {
    fn is_done(&self) -> bool {
        match self.supervisor {
            Present => false,
            Away => self.retention.is_none(),
            Gone { .. } => self.tree.is_none(),
        }
    }

    /// Waits for the next thing to happen, and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        let present = matches!(self.supervisor, Present);
        let socket = present.then(|| self.socket.as_fd());
        let warden = self.warden.as_ref().map(|warden| warden.socket.as_fd());
        let retention = self.retention.as_ref().filter(|_| !present);
        let [stdout, stderr] = retention.map_or([None; 2], Retention::outputs);
        let ready = wait(&self.watch, [socket, warden, stdout, stderr], self.patience())?;
        let [spoken, invited, printed @ ..] = ready;
        if spoken {
            self.listen()?;
        }
        if let Some(retention) = &mut self.retention {
            (0..2).filter(|index| printed[*index]).for_each(|index| retention.drain(index));
        }
        if invited {
            self.listen_to_warden()?;
        }
        self.watch.clear();
        self.press_on();
        self.reap()
    }

    /// The longest wait for the next event: unlimited, unless a tree is being ended.
    fn patience(&self) -> Option<Duration> {
        match (&self.tree, &self.supervisor) {
            (Some(Tree { termination: Termination::Killed { .. }, .. }), _) => Some(SWEEP_PAUSE),
            (Some(_), Gone { kill_at }) => Some(kill_at.saturating_duration_since(Instant::now())),
            _ => None,
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        // A supervisor that was killed with orders unread leaves a reset, not an end.
        if !self.reader.receive(self.socket.as_fd()).unwrap_or(false) {
            if self.warden.is_some() && self.retention.is_some() {
                self.supervisor = Away;
            } else {
                self.end(ORPHANED_GRACE);
            }
            return Ok(());
        }
        while let Some(order) = self.reader.next()? {
            self.follow(&order)?;
        }
        Ok(())
    }

    fn follow(&mut self, order: &GuardianOrder) -> io::Result<()> {
        if let Some(retention) = &mut self.retention {
            match order {
                GuardianOrder::SetCurrent(current) => retention.identity.current = *current,
                GuardianOrder::Terminate(_) | GuardianOrder::Kill => retention.stopping = true,
                GuardianOrder::CloseStdin => retention.close_stdin(),
                GuardianOrder::DiscardSpool => retention.discard_spool(),
                GuardianOrder::Acknowledge if !retention.has_ended() => {}
                GuardianOrder::Acknowledge | GuardianOrder::Release => self.retention = None,
                GuardianOrder::Launch(_) => {}
            }
        }
        match order {
            GuardianOrder::Launch(launch) => self.launch(launch)?,
            GuardianOrder::Terminate(signal) => self.terminate(tree::signal_of(*signal)),
            GuardianOrder::Kill => self.kill(),
            _ => {}
        }
        Ok(())
    }

    /// The supervisor is gone for good: so is what we guard, after this long at most.
    fn end(&mut self, grace: Duration) {
        self.supervisor = Gone { kill_at: Instant::now() + grace };
        self.terminate(Signal::SIGTERM);
    }

    fn listen_to_warden(&mut self) -> io::Result<()> {
        let Some(warden) = &mut self.warden else { return Ok(()) };
        if !warden.reader.receive(warden.socket.as_fd()).unwrap_or(false) {
            // Only the warden could bring the next supervisor.
            self.warden = None;
            if matches!(self.supervisor, Away) {
                self.end(ORPHANED_GRACE);
            }
            return Ok(());
        }
        let mut invitations = Vec::new();
        while let Some(invitation) = warden.reader.next()? {
            let socket = match invitation {
                GuardianInvitation::Connect => warden.reader.next_fd(),
                GuardianInvitation::End { .. } => None,
            };
            invitations.push((invitation, socket));
        }
        for invitation in invitations {
            match invitation {
                (GuardianInvitation::Connect, Some(socket)) => self.connect(socket)?,
                (GuardianInvitation::Connect, None) => {}
                (GuardianInvitation::End { grace_ms }, _) => {
                    self.end(Duration::from_millis(grace_ms))
                }
            }
        }
        Ok(())
    }

    /// There is a new supervisor: tells it what was kept for it.
    fn connect(&mut self, socket: OwnedFd) -> io::Result<()> {
        // The warden saw the end of the old one before we did; its last orders count.
        while matches!(self.supervisor, Present) && is_readable(&self.socket)? {
            self.listen()?;
        }
        let Some(retention) =
            self.retention.as_ref().filter(|_| !matches!(self.supervisor, Gone { .. }))
        else {
            return Ok(());
        };
        (self.socket, self.reader) = (socket, FrameReader::default());
        self.supervisor = Present;
        let (retained, descriptors) = retention.offer();
        let bytes = GuardianReport::Retained(Box::new(retained)).to_bytes();
        // One that is gone already is noticed by the next read of the socket.
        send_with(self.socket.as_fd(), &bytes, &descriptors).or(Ok(()))
    }

    fn launch(&mut self, launch: &Launch) -> io::Result<()> {
        let generation = launch.generation;
        let stdio = [self.reader.next_fd(), self.reader.next_fd(), self.reader.next_fd()];
        let count = launch.identity.as_ref().map_or(0, |it| if it.stdin { 3 } else { 2 });
        let ours: Vec<OwnedFd> = (0..count).filter_map(|_| self.reader.next_fd()).collect();
        let [Some(stdin), Some(stdout), Some(stderr)] = stdio else {
            return self
                .report(&GuardianReport::LaunchFailed { generation, errno: nix::libc::EBADF });
        };
        if self.tree.is_some() {
            // Never two: the supervisor waits for the end of one before it asks for the next.
            return self
                .report(&GuardianReport::LaunchFailed { generation, errno: nix::libc::EBUSY });
        }
        self.retention = None;
        let output = match launch.holds_output {
            true => [&stdout, &stderr].into_iter().filter_map(|fd| fd.try_clone().ok()).collect(),
            false => Vec::new(),
        };
        match os::start(launch, [stdin, stdout, stderr]) {
            Ok(leader) => {
                self.tree = Some(Tree {
                    generation,
                    leader,
                    end: None,
                    leftovers: 0,
                    termination: Termination::Not,
                    _output: output,
                });
                let pid = leader.as_raw().cast_unsigned();
                self.hold(launch, pid, ours);
                self.report(&GuardianReport::Launched { generation, pid })
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(nix::libc::EIO);
                self.report(&GuardianReport::LaunchFailed { generation, errno })
            }
        }
    }

    /// Holds what the next supervisor will need.
    fn hold(&mut self, launch: &Launch, pid: u32, ours: Vec<OwnedFd>) {
        let (Some(identity), Some(warden)) = (&launch.identity, &self.warden) else { return };
        let mut ours = ours.into_iter();
        let stdin = if identity.stdin { ours.next() } else { None };
        if let (Some(stdout), Some(stderr)) = (ours.next(), ours.next()) {
            let id = (launch.generation, pid);
            let retention =
                Retention::new(identity.clone(), id, stdin, [stdout, stderr], &warden.folder);
            self.retention = Some(retention);
        }
    }

    /// A signal to the leader's group, or to what the leader left.
    fn terminate(&mut self, signal: Signal) {
        let Some(tree) = &mut self.tree else { return };
        if matches!(tree.termination, Termination::Killed { .. }) {
            return;
        }
        tree.termination = Termination::Terminated(signal);
        match tree.end {
            None => {
                // The group may be gone while the leader is: it is a zombie then, and reaped next.
                killpg(tree.leader, signal).ok();
                // A stopped process does not hear it until it goes on.
                killpg(tree.leader, Signal::SIGCONT).ok();
            }
            Some(_) => {
                tree::signal_all(signal, &[]);
                tree::signal_all(Signal::SIGCONT, &[]);
            }
        }
    }

    fn kill(&mut self) {
        if let Some(tree) = &mut self.tree
            && !matches!(tree.termination, Termination::Killed { .. })
        {
            tree.termination = Termination::Killed { since: Instant::now() };
        }
    }

    /// Kills what is to be killed, again in each turn until nothing is left.
    fn press_on(&mut self) {
        if let Gone { kill_at } = self.supervisor
            && kill_at <= Instant::now()
        {
            self.kill();
        }
        if let Some(Tree { leader, end, termination: Termination::Killed { .. }, .. }) = &self.tree
        {
            if end.is_none() {
                kill(*leader, Signal::SIGKILL).ok();
            }
            tree::signal_all(Signal::SIGKILL, &[]);
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        let tree = &mut self.tree;
        let mut leader_ended = false;
        let remaining = tree::reap(|pid, change| {
            // A service that a user stopped stays so.
            if let Change::Ended(end) = change
                && let Some(tree) = tree.as_mut().filter(|tree| tree.leader == pid)
            {
                tree.end = Some(end);
                leader_ended = true;
            }
        });
        if leader_ended && remaining == Remaining::Some {
            self.leader_left_others();
        }
        let Some(tree) = &self.tree else {
            return Ok(());
        };
        let Some(end) = tree.end else { return Ok(()) };
        let given_up = matches!(tree.termination, Termination::Killed { since } if since.elapsed() > SWEEP_MAX);
        if remaining == Remaining::Some && !given_up {
            return Ok(());
        }
        let survivors =
            if remaining == Remaining::Some { tree::survivors(&[]) } else { Vec::new() };
        let (generation, leftovers) = (tree.generation, tree.leftovers);
        let gone_tree = self.tree.take();
        let end = TreeEnd { leader: end, leftovers, survivors };
        if let Some(retention) = &mut self.retention {
            retention.ended(end.clone());
        }
        self.report(&GuardianReport::Ended { generation, end }).inspect(|()| drop(gone_tree))
    }

    /// The leader is gone, its children are not. In a stop they get the rest of its time;
    /// otherwise they go at once, so that a new instance finds the ports and locks free.
    fn leader_left_others(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        match tree.termination {
            Termination::Terminated(signal) => self.terminate(signal),
            Termination::Not => {
                let others = tree::signal_all(Signal::SIGKILL, &[]);
                tree.leftovers = u32::try_from(others).unwrap_or(u32::MAX);
                tree.termination = Termination::Killed { since: Instant::now() };
            }
            Termination::Killed { .. } => {}
        }
    }

    fn report(&mut self, report: &GuardianReport) -> io::Result<()> {
        if !matches!(self.supervisor, Present) {
            return Ok(());
        }
        // A supervisor that is gone is noticed by the next read of the socket.
        send_all(self.socket.as_fd(), &report.to_bytes()).or(Ok(()))
    }
}

fn is_readable(socket: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
}

/// One instance that may outlive its supervisor.
#[derive(Debug)]
pub(super) struct Retention {
    pub(super) identity: InstanceIdentity,
    generation: u64,
    pid: u32,
    started: Instant,
    /// Its end and its uptime, until a supervisor has acknowledged them.
    end: Option<(TreeEnd, Duration)>,
    /// Its stop has begun.
    pub(super) stopping: bool,
    stdin: Option<OwnedFd>,
    /// Stdout and stderr, until their end.
    outputs: [Option<OwnedFd>; 2],
    spool: OutputSpool,
}

impl Retention {
    pub(super) fn new(
        identity: InstanceIdentity,
        (generation, pid): (u64, u32),
        stdin: Option<OwnedFd>,
        outputs: [OwnedFd; 2],
        folder: &Path,
    ) -> Self {
        Self {
            identity,
            generation,
            pid,
            started: Instant::now(),
            end: None,
            stopping: false,
            stdin,
            outputs: outputs.map(Some),
            spool: OutputSpool::new(folder),
        }
    }

    pub(super) fn close_stdin(&mut self) {
        self.stopping = true;
        self.stdin = None;
    }

    /// It is gone, and so is its whole tree.
    pub(super) fn ended(&mut self, end: TreeEnd) {
        self.end = Some((end, self.started.elapsed()));
    }

    /// Whether it is gone, and no supervisor has acknowledged that.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The pipes to read from while there is no supervisor.
    pub(super) fn outputs(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.outputs.each_ref().map(|output| output.as_ref().map(AsFd::as_fd))
    }

    /// Takes what is in a pipe, so that no service waits for a reader.
    pub(super) fn drain(&mut self, index: usize) {
        let Some(output) = &self.outputs[index] else { return };
        let stream = if index == 0 { LogStream::Stdout } else { LogStream::Stderr };
        // The supervisor has set it already, as the pipe is the same.
        fcntl(output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok();
        let mut buffer = [0; PIPE_CHUNK_BYTES];
        match nix::unistd::read(output, &mut buffer).map_err(io::Error::from) {
            Ok(0) => self.outputs[index] = None,
            Ok(length) => self.spool.write(stream, &buffer[..length]),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.outputs[index] = None,
        }
    }

    /// The spooled output is passed on.
    pub(super) fn discard_spool(&mut self) {
        self.spool.clear();
    }

    /// The report for the next supervisor, and the descriptors that go with it.
    pub(super) fn offer(&self) -> (RetainedInstance, Vec<BorrowedFd<'_>>) {
        let [stdout, stderr] = self.outputs();
        let [older, newer] = self.spool.files();
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let descriptors = [stdin, stdout, stderr, older, newer];
        let (end, uptime) = match &self.end {
            Some((end, uptime)) => (Some(end.clone()), *uptime),
            None => (None, self.started.elapsed()),
        };
        let retained = RetainedInstance {
            guardian: std::process::id(),
            identity: self.identity.clone(),
            generation: self.generation,
            pid: self.pid,
            uptime_ms: millis(uptime),
            stopping: self.stopping,
            end,
            descriptors: descriptors.map(|descriptor| descriptor.is_some()),
            lost: self.spool.lost,
        };
        (retained, descriptors.into_iter().flatten().collect())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
