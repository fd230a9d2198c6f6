//! A guardian: parent and subreaper of the processes of one instance, and of the next when that is gone.
//! Driven by the orders of the supervisor's socket. Never decides about restarts.
//!
//! A small single-threaded process, forked by the warden. It starts what it is told, reports the
//! end once the *whole* tree is gone, and when its socket closes, because the supervisor has ended or was
//! killed, it ends the tree and itself.
//!
//! Unless the instance is to outlive its supervisor: then it spools the output meanwhile, remembers the
//! end, and reports both to the next supervisor, whose socket comes from the warden. When the warden
//! goes too, it ends the tree and itself. It never blocks on a pipe of the instance.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::id::Generation;
use afresh_core::limits::{ORPHANED_GRACE, PIPE_CHUNK_BYTES, SWEEP_MAX, SWEEP_PAUSE};
use afresh_core::service::Exit;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::descendants::{self, Change, wait};
use super::messages::{FrameSocket, GuardianInvitation, GuardianOrder, GuardianReport, Launch};
use super::os::{self, ChildWatch};
use super::output_spool::OutputSpool;
use crate::process::{Remains, RetainedInstance};

/// The name of a guardian in `ps`. Names have fifteen bytes there.
pub(super) const GUARDIAN: &CStr = c"afresh-guardian";

/// Guards until the supervisor is gone and the tree too.
pub(super) fn guard(socket: UnixStream, warden: Option<WardenSocket>) -> io::Result<()> {
    os::set_name(GUARDIAN);
    os::wake_when_parent_dies();
    os::adopt_orphans()?;
    let (line, watch) = (FrameSocket::from(socket), ChildWatch::new()?);
    let (tree, supervisor, retention) = (None, Present, None);
    let mut guardian = Guardian { line, watch, tree, supervisor, warden, retention };
    guardian.report(&GuardianReport::Hello { pid: std::process::id() });
    while !guardian.is_done() {
        guardian.turn()?;
    }
    Ok(())
}

struct Guardian {
    line: FrameSocket,
    watch: ChildWatch,
    tree: Option<Tree>,
    supervisor: Supervisor,
    warden: Option<WardenSocket>,
    /// Retained for the next supervisor, where there is to be one.
    retention: Option<Retention>,
}

/// The warden, where it outlives its supervisor.
pub(super) struct WardenSocket {
    pub(super) line: FrameSocket,
    /// The folder for spooled output.
    pub(super) folder: PathBuf,
}

use Supervisor::{Away, Gone, Present};

enum Supervisor {
    /// Its socket is open.
    Present,
    /// It was killed, and another one may come.
    Away,
    /// The tree has until then to end by itself.
    Gone { kill_at: Instant },
}

/// The processes of one instance.
struct Tree {
    generation: Generation,
    leader: Pid,
    /// The end of the leader.
    end: Option<Exit>,
    /// Processes that the leader left behind.
    leftovers: u32,
    termination: Termination,
    /// Its ends of its output. Each that closes wakes the supervisor, just when the next instance is
    /// to be started: they close after the end was told.
    _output: Vec<OwnedFd>,
}

/// The steps that were taken to end the tree.
#[derive(Clone, Copy)]
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
        let socket = present.then(|| self.line.socket.as_fd());
        let warden = self.warden.as_ref().map(|warden| warden.line.socket.as_fd());
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
        self.reap();
        Ok(())
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
        if !self.line.receive() {
            if self.warden.is_some() && self.retention.is_some() {
                self.supervisor = Away;
            } else {
                self.end(ORPHANED_GRACE);
            }
            return Ok(());
        }
        while let Some(order) = self.line.reader.next()? {
            self.follow(order);
        }
        Ok(())
    }

    fn follow(&mut self, order: GuardianOrder) {
        if let Some(Retention { instance, stdin, spool, .. }) = &mut self.retention {
            match order {
                GuardianOrder::SetCurrent(current) => instance.identity.current = current,
                GuardianOrder::Terminate(_) | GuardianOrder::Kill => instance.stopping = true,
                GuardianOrder::CloseStdin => (instance.stopping, *stdin) = (true, None),
                GuardianOrder::DiscardSpool => spool.clear(),
                // It has not ended yet.
                GuardianOrder::Acknowledge if instance.end.is_none() => {}
                GuardianOrder::Acknowledge | GuardianOrder::Release => self.retention = None,
                GuardianOrder::Launch(_) => {}
            }
        }
        match order {
            GuardianOrder::Launch(launch) => self.launch(&launch),
            GuardianOrder::Terminate(signal) => {
                self.terminate(signal.name().parse().unwrap_or(Signal::SIGTERM));
            }
            GuardianOrder::Kill => self.kill(),
            _ => {}
        }
    }

    /// The supervisor is gone for good: so is what we guard, after this long at most.
    fn end(&mut self, grace: Duration) {
        self.supervisor = Gone { kill_at: Instant::now() + grace };
        self.terminate(Signal::SIGTERM);
    }

    fn listen_to_warden(&mut self) -> io::Result<()> {
        let Some(warden) = &mut self.warden else { return Ok(()) };
        if !warden.line.receive() {
            // Only the warden could bring the next supervisor.
            self.warden = None;
            if matches!(self.supervisor, Away) {
                self.end(ORPHANED_GRACE);
            }
            return Ok(());
        }
        while let Some(warden) = &mut self.warden
            && let Some(invitation) = warden.line.reader.next()?
        {
            match invitation {
                GuardianInvitation::Connect => {
                    let socket = warden.line.reader.next_fd();
                    socket.map_or(Ok(()), |socket| self.connect(socket.into()))?;
                }
                GuardianInvitation::End { grace } => self.end(grace),
            }
        }
        Ok(())
    }

    /// There is a new supervisor: tells it what was kept for it.
    fn connect(&mut self, socket: UnixStream) -> io::Result<()> {
        // The warden saw the end of the old one before we did; its last orders count.
        while matches!(self.supervisor, Present) && is_readable(&self.line.socket)? {
            self.listen()?;
        }
        let Some(retention) =
            self.retention.as_ref().filter(|_| !matches!(self.supervisor, Gone { .. }))
        else {
            return Ok(());
        };
        (self.line, self.supervisor) = (socket.into(), Present);
        let (retained, descriptors) = retention.offer();
        // One that is gone already is noticed by the next read of the socket.
        self.line.send(&GuardianReport::Retained(retained), &descriptors).ok();
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) {
        let generation = launch.generation;
        let report = match self.start(launch) {
            Ok(leader) => {
                GuardianReport::Launched { generation, pid: leader.as_raw().cast_unsigned() }
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(nix::libc::EIO);
                GuardianReport::LaunchFailed { generation, errno }
            }
        };
        self.report(&report);
    }

    fn start(&mut self, launch: &Launch) -> io::Result<Pid> {
        let mut next_fd = || self.line.reader.next_fd();
        let stdio = [next_fd(), next_fd(), next_fd()];
        let count = launch.identity.as_ref().map_or(0, |it| if it.stdin { 3 } else { 2 });
        let ours: Vec<OwnedFd> = (0..count).filter_map(|_| next_fd()).collect();
        let [Some(stdin), Some(stdout), Some(stderr)] = stdio else {
            return Err(Errno::EBADF.into());
        };
        if self.tree.is_some() {
            // Never two: the supervisor waits for the end of one before it asks for the next.
            return Err(Errno::EBUSY.into());
        }
        self.retention = None;
        let held = if launch.holds_output { vec![&stdout, &stderr] } else { Vec::new() };
        let output = held.into_iter().filter_map(|fd| fd.try_clone().ok()).collect();
        let leader = os::start(launch, [stdin, stdout, stderr])?;
        self.tree = Some(Tree {
            generation: launch.generation,
            leader,
            end: None,
            leftovers: 0,
            termination: Termination::Not,
            _output: output,
        });
        self.hold(launch, leader, ours);
        Ok(leader)
    }

    /// Holds what the next supervisor will need.
    fn hold(&mut self, launch: &Launch, leader: Pid, ours: Vec<OwnedFd>) {
        let (Some(identity), Some(warden)) = (&launch.identity, &self.warden) else { return };
        let mut ours = ours.into_iter();
        let stdin = if identity.stdin { ours.next() } else { None };
        if let (Some(stdout), Some(stderr)) = (ours.next(), ours.next()) {
            let instance = RetainedInstance {
                guardian: std::process::id(),
                identity: identity.clone(),
                generation: launch.generation,
                pid: leader.as_raw().cast_unsigned(),
                ..RetainedInstance::default()
            };
            let outputs = [Some(stdout), Some(stderr)];
            let (started, spool) = (Instant::now(), OutputSpool::new(&warden.folder));
            self.retention = Some(Retention { instance, started, stdin, outputs, spool });
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
                descendants::signal_all(signal, &[]);
                descendants::signal_all(Signal::SIGCONT, &[]);
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
            descendants::signal_all(Signal::SIGKILL, &[]);
        }
    }

    fn reap(&mut self) {
        let tree = &mut self.tree;
        let mut leader_ended = false;
        let others_left = descendants::reap(|pid, change| {
            // A service that a user stopped stays so.
            if let Change::Ended(exit) = change
                && let Some(tree) = tree.as_mut().filter(|tree| tree.leader == pid)
            {
                tree.end = Some(exit);
                leader_ended = true;
            }
        });
        if leader_ended && others_left {
            self.leader_left_others();
        }
        let Some(Tree { generation, end: Some(exit), leftovers, termination, .. }) = self.tree
        else {
            return;
        };
        let given_up =
            matches!(termination, Termination::Killed { since } if since.elapsed() > SWEEP_MAX);
        if others_left && !given_up {
            return;
        }
        let survivors = if others_left { descendants::survivors(&[]) } else { Vec::new() };
        let remains = Remains { leftovers, survivors };
        let gone_tree = self.tree.take();
        if let Some(Retention { instance, started, .. }) = &mut self.retention {
            instance.end = Some((exit, remains.clone()));
            instance.uptime = started.elapsed();
        }
        self.report(&GuardianReport::Ended { generation, exit, remains });
        drop(gone_tree);
    }

    /// The leader is gone, its children are not. In a stop they get the rest of its time;
    /// otherwise they go at once, so that a new instance finds the ports and locks free.
    fn leader_left_others(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        match tree.termination {
            Termination::Terminated(signal) => self.terminate(signal),
            Termination::Not => {
                let others = descendants::signal_all(Signal::SIGKILL, &[]);
                tree.leftovers = u32::try_from(others).unwrap_or(u32::MAX);
                tree.termination = Termination::Killed { since: Instant::now() };
            }
            Termination::Killed { .. } => {}
        }
    }

    fn report(&self, report: &GuardianReport) {
        if matches!(self.supervisor, Present) {
            // A supervisor that is gone is noticed by the next read of the socket.
            self.line.send(report, &[]).ok();
        }
    }
}

fn is_readable(socket: &UnixStream) -> io::Result<bool> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
}

/// One instance that may outlive its supervisor.
#[derive(Debug)]
struct Retention {
    /// As the next supervisor is told of it; the end until a supervisor has acknowledged it.
    instance: RetainedInstance,
    started: Instant,
    stdin: Option<OwnedFd>,
    /// Stdout and stderr, until their end.
    outputs: [Option<OwnedFd>; 2],
    spool: OutputSpool,
}

impl Retention {
    /// The pipes to read from while there is no supervisor.
    fn outputs(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.outputs.each_ref().map(|output| output.as_ref().map(AsFd::as_fd))
    }

    /// Takes what is in a pipe, so that no service waits for a reader.
    fn drain(&mut self, index: usize) {
        let Some(output) = &self.outputs[index] else { return };
        let stream = if index == 0 { LogStream::Stdout } else { LogStream::Stderr };
        // The supervisor has set it already, as the pipe is the same.
        fcntl(output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok();
        let mut buffer = [0; PIPE_CHUNK_BYTES];
        match nix::unistd::read(output, &mut buffer) {
            Ok(length @ 1..) => self.spool.write(stream, &buffer[..length]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(0) | Err(_) => self.outputs[index] = None,
        }
    }

    /// The report for the next supervisor, and the descriptors that go with it.
    fn offer(&self) -> (RetainedInstance, Vec<BorrowedFd<'_>>) {
        let [stdout, stderr] = self.outputs();
        let [older, newer] = self.spool.files();
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let descriptors = [stdin, stdout, stderr, older, newer];
        let instance = self.instance.clone();
        let retained = RetainedInstance {
            uptime: instance.end.as_ref().map_or(self.started.elapsed(), |_| instance.uptime),
            descriptors: descriptors.map(|descriptor| descriptor.is_some()),
            lost: self.spool.lost,
            ..instance
        };
        (retained, descriptors.into_iter().flatten().collect())
    }
}
