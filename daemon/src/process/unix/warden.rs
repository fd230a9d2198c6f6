//! The warden process: forks the guardians, and sweeps up after one that was killed. Driven by the orders of
//! the supervisor's socket and by the ends of its children. Never starts a service itself.
//!
//! One a supervisor, the same binary started with a hidden subcommand, single-threaded and without
//! an async runtime. Guardians are forked from it, so that a hundred of them share its memory, and
//! a guardian costs no exec. It is a subreaper above them: what a killed guardian leaves becomes
//! its child, and is killed.
//!
//! Where services are to outlive their supervisor, it does too, and brings the next one together with
//! the guardians. It serves one visitor at a time, and none that sends no request. Its stdout is a lock that
//! it and all guardians hold.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::{ADOPTION_WAIT, ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE, VISITOR_WAIT};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, dup2_stdin, setsid};
use tokio::time::Instant;

use super::descendants::{self, Change, wait};
use super::guardian::{WardenSocket, guard};
use super::messages::{
    FrameSocket, Greeting, GuardianInvitation, PROTOCOL, VisitorRequest, WardenOrder, WardenReport,
};
use super::os::{self, Cgroup, ChildWatch};
use crate::os::dispositions;

/// The name of a warden in `ps`.
pub(super) const WARDEN: &CStr = c"afresh-warden";

/// Runs the warden, on the socket that is its stdin, until the supervisor and all guardians are
/// gone. Returns in each of its guardians, too, when that one is done.
pub(crate) fn run() -> io::Result<()> {
    os::close_inherited();
    // Only one descriptor may hold the socket open.
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?)?;
    // Its own session: Ctrl+C and the end of a terminal are the supervisor's business, which
    // may have a client to answer first.
    setsid().ok();
    dispositions::ignore(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT])?;
    os::set_name(WARDEN);
    os::wake_when_parent_dies();
    os::adopt_orphans()?;
    let parent_cgroup = Cgroup::own().inspect(Cgroup::clean);
    let mut warden = Warden {
        supervisor: Some(UnixStream::from(socket).into()),
        supervisor_pid: std::os::unix::process::parent_id(),
        watch: ChildWatch::new()?,
        guardians: BTreeMap::new(),
        next_guardian: 0,
        strays_since: None,
        leave_by: None,
        parent_cgroup,
        handover: None,
    };
    loop {
        match warden.turn()? {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(None) => {
                warden.handover.iter().for_each(HandoverListener::close);
                return Ok(());
            }
            ControlFlow::Break(Some((socket, keeper))) => {
                // All our sockets must close with the warden, not with its guardians; their cgroups
                // are the warden's to remove.
                let others = std::mem::take(&mut warden.guardians).into_values();
                others.for_each(|child| std::mem::forget(child.cgroup));
                drop(warden);
                return guard(socket, keeper);
            }
        }
    }
}

/// The sockets of a guardian: to the supervisor, and to the warden where it outlives that one.
type GuardianSockets = (UnixStream, Option<WardenSocket>);

struct Warden {
    /// None after it was killed, while the next one may come.
    supervisor: Option<FrameSocket>,
    supervisor_pid: u32,
    watch: ChildWatch,
    guardians: BTreeMap<u64, ForkedGuardian>,
    next_guardian: u64,
    /// Since when there are processes that a killed guardian left.
    strays_since: Option<Instant>,
    /// The supervisor is gone; guardians that are not gone by then are killed.
    leave_by: Option<Instant>,
    parent_cgroup: Option<Cgroup>,
    /// Where the warden outlives the supervisor.
    handover: Option<HandoverListener>,
}

struct ForkedGuardian {
    pid: Pid,
    gone: bool,
    /// Tells it of the next supervisor.
    channel: Option<FrameSocket>,
    /// The supervisor waits for the report that all is gone.
    bury: bool,
    cgroup: Option<Cgroup>,
}

impl Warden {
    /// Deals with the next thing that happens. Breaks with its sockets in a guardian that was forked, and with none when
    /// all is done.
    fn turn(&mut self) -> io::Result<ControlFlow<Option<GuardianSockets>>> {
        let present = self.supervisor.as_ref().filter(|_| self.leave_by.is_none());
        let socket = present.map(|line| line.socket.as_fd());
        let [arrived, visitor] =
            self.handover.as_ref().map_or([None; 2], HandoverListener::sources);
        let ready = wait(&self.watch, [socket, arrived, visitor], self.patience())?;
        if ready[0]
            && let Some(sockets) = self.listen()?
        {
            return Ok(ControlFlow::Break(Some(sockets)));
        }
        self.receive_visitors(ready[1], ready[2]);
        self.watch.clear();
        if self.leave_by.is_some_and(|at| at <= Instant::now()) {
            self.guardians.values().filter(|child| !child.gone).for_each(ForkedGuardian::kill);
        }
        let are_left = self.reap();
        self.sweep(are_left);
        let busy = !self.guardians.is_empty() || self.strays_since.is_some();
        let stays = self.leave_by.is_none() && self.supervisor.is_some();
        Ok(if stays || busy { ControlFlow::Continue(()) } else { ControlFlow::Break(None) })
    }

    fn patience(&self) -> Option<Duration> {
        let visitor = self.handover.as_ref().and_then(|handover| handover.visitor.as_ref());
        let until = self.leave_by.into_iter().chain(visitor.map(|visitor| visitor.until)).min();
        match (self.strays_since, until) {
            (Some(_), _) => Some(SWEEP_PAUSE),
            (None, Some(at)) => Some(at.saturating_duration_since(Instant::now()).max(SWEEP_PAUSE)),
            (None, None) => None,
        }
    }

    /// Follows the orders that have come. In a guardian that was forked, returns its sockets.
    fn listen(&mut self) -> io::Result<Option<GuardianSockets>> {
        let Some(line) = &mut self.supervisor else { return Ok(None) };
        if !line.receive() {
            // Each guardian has noticed by itself, unless it was stopped or hangs.
            for child in self.guardians.values().filter(|child| !child.gone) {
                kill(child.pid, Signal::SIGCONT).ok();
            }
            self.supervisor = None;
            match &mut self.handover {
                Some(handover) => handover.alone_since = Instant::now(),
                None => self.leave_by = Some(Instant::now() + ORPHANED_GRACE + ORPHANED_GRACE),
            }
            return Ok(None);
        }
        while let Some(line) = &mut self.supervisor
            && let Some(order) = line.reader.next()?
        {
            match order {
                WardenOrder::Keep { socket, folder } => {
                    self.handover = line.reader.next_fd().map(|listener| HandoverListener {
                        listener: listener.into(),
                        socket,
                        folder,
                        visitor: None,
                        alone_since: Instant::now(),
                    });
                }
                WardenOrder::Leave => {
                    self.handover.take().iter().for_each(HandoverListener::close);
                }
                WardenOrder::Fork { guardian } => {
                    let socket = line.reader.next_fd();
                    if let Some(sockets) = self.fork(guardian, socket) {
                        return Ok(Some(sockets));
                    }
                }
                WardenOrder::Bury { guardian } => match self.guardians.get_mut(&guardian) {
                    Some(child) => {
                        child.bury = true;
                        child.kill();
                    }
                    None => self.report(&WardenReport::Buried { guardian, survivors: Vec::new() }),
                },
            }
        }
        Ok(None)
    }

    /// Forks a guardian. Returns its sockets in the child.
    fn fork(&mut self, guardian: u64, socket: Option<OwnedFd>) -> Option<GuardianSockets> {
        self.next_guardian = self.next_guardian.max(guardian + 1);
        let Some(socket) = socket else {
            self.report(&WardenReport::ForkFailed { guardian, errno: nix::libc::EBADF });
            return None;
        };
        // Without a line between us it is one that does not outlive the supervisor.
        let pair = self.handover.as_ref().and_then(|handover| {
            let (channel, theirs) = UnixStream::pair().ok()?;
            let folder = handover.folder.clone();
            Some((channel.into(), WardenSocket { line: theirs.into(), folder }))
        });
        let (channel, keeper) = pair.unzip();
        let parent = self.parent_cgroup.as_ref();
        let cgroup = parent.and_then(|parent| parent.child(self.supervisor_pid, guardian));
        match os::fork_into(cgroup.as_ref()) {
            Ok(Some(pid)) => {
                let child = ForkedGuardian { pid, gone: false, channel, bury: false, cgroup };
                self.guardians.insert(guardian, child);
            }
            Ok(None) => {
                // Removed by the warden, which holds the same.
                std::mem::forget(cgroup);
                return Some((socket.into(), keeper));
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(nix::libc::EAGAIN);
                self.report(&WardenReport::ForkFailed { guardian, errno });
            }
        }
        None
    }

    /// Returns whether children are left.
    fn reap(&mut self) -> bool {
        let guardians = &mut self.guardians;
        let are_left = descendants::reap(|pid, change| {
            let Some(child) = guardians.values_mut().find(|child| child.pid == pid) else {
                return;
            };
            match change {
                Change::Ended(_) => child.gone = true,
                // A guardian that is stopped guards nothing.
                Change::Stopped => drop(kill(pid, Signal::SIGCONT)),
            }
        });
        if self.guardians.values().any(|child| child.gone) {
            self.strays_since.get_or_insert_with(Instant::now);
        }
        are_left
    }

    /// Kills all children that are no guardians, until there is none.
    fn sweep(&mut self, are_left: bool) {
        let Some(since) = self.strays_since else { return };
        let living: Vec<Pid> =
            self.guardians.values().filter(|g| !g.gone).map(|child| child.pid).collect();
        let strays = if are_left { descendants::signal_all(Signal::SIGKILL, &living) } else { 0 };
        let given_up = since.elapsed() > SWEEP_MAX;
        if strays > 0 && !given_up {
            return;
        }
        let survivors = if strays > 0 { descendants::survivors(&living) } else { Vec::new() };
        self.strays_since = None;
        let gone: Vec<_> = self.guardians.extract_if(.., |_, child| child.gone).collect();
        for (guardian, child) in gone {
            drop(child.cgroup);
            if child.bury {
                self.report(&WardenReport::Buried { guardian, survivors: survivors.clone() });
            }
        }
    }

    fn report(&self, report: &WardenReport) {
        if let Some(line) = &self.supervisor {
            // A supervisor that is gone is noticed by the next read of the socket.
            line.send(report, &[]).ok();
        }
    }
}

impl ForkedGuardian {
    /// Its tree too, at one stroke, where there is a cgroup.
    fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        if !self.gone {
            kill(self.pid, Signal::SIGKILL).ok();
        }
    }
}

/// The listening socket of a warden that outlives its supervisor.
struct HandoverListener {
    listener: UnixListener,
    socket: PathBuf,
    /// The folder for the spooled output of guardians.
    folder: PathBuf,
    visitor: Option<Visitor>,
    alone_since: Instant,
}

struct Visitor {
    line: FrameSocket,
    pid: u32,
    until: Instant,
}

impl HandoverListener {
    /// The descriptors to wait for: the listener, or the present visitor.
    fn sources(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match &self.visitor {
            None => [Some(self.listener.as_fd()), None],
            Some(visitor) => [None, Some(visitor.line.socket.as_fd())],
        }
    }

    /// Accepts no more visitors. The lock is still held, so the path is ours.
    fn close(&self) {
        fs::remove_file(&self.socket).ok();
    }

    fn greet(&mut self, mut greeting: Greeting) -> io::Result<()> {
        let (socket, _) = self.listener.accept()?;
        socket.set_nonblocking(false)?;
        // A visitor that does not read must not block the warden.
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let (user, pid) = os::peer(socket.as_fd())?;
        if user != Uid::effective().as_raw() {
            return Ok(());
        }
        if !greeting.busy {
            greeting.alone = self.alone_since.elapsed();
        }
        let line = FrameSocket::from(socket);
        line.send(&greeting, &[])?;
        if !greeting.busy {
            self.visitor = Some(Visitor { line, pid, until: Instant::now() + VISITOR_WAIT });
        }
        Ok(())
    }
}

impl Warden {
    /// Accepts a visitor, and handles the request of the present one.
    fn receive_visitors(&mut self, arrived: bool, sent: bool) {
        let greeting = self.greeting();
        let Some(handover) = &mut self.handover else { return };
        if arrived {
            // An error only concerns the visitor.
            handover.greet(greeting).ok();
        }
        if sent && let Some(mut visitor) = handover.visitor.take() {
            let stays = visitor.line.receive();
            match visitor.line.reader.next() {
                Ok(None) if stays => handover.visitor = Some(visitor),
                Ok(Some(VisitorRequest::Adopt { protocol: PROTOCOL })) => self.admit(visitor),
                Ok(Some(VisitorRequest::End { grace })) => self.end(grace),
                // It has left, or its request is of another protocol.
                Ok(_) | Err(_) => {}
            }
        }
        if let Some(handover) = &mut self.handover {
            handover.visitor.take_if(|visitor| visitor.until <= Instant::now());
        }
    }

    fn greeting(&self) -> Greeting {
        let living = self.guardians.values().filter(|child| !child.gone);
        Greeting {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            warden: std::process::id(),
            busy: self.supervisor.is_some() || self.leave_by.is_some(),
            instances: living.count() as u64,
            ..Greeting::default()
        }
    }

    /// The visitor is the supervisor from now on.
    fn admit(&mut self, visitor: Visitor) {
        self.supervisor_pid = visitor.pid;
        for (number, child) in self.guardians.iter().filter(|(_, child)| !child.gone) {
            let Some(channel) = &child.channel else { continue };
            // One that was stopped would let the new supervisor wait.
            kill(child.pid, Signal::SIGCONT).ok();
            let Ok((theirs, ours)) = UnixStream::pair() else { continue };
            // A guardian that does not receive it is buried by the supervisor, which gets no report from it.
            channel.send(&GuardianInvitation::Connect, &[theirs.as_fd()]).ok();
            let report = WardenReport::Guardian { guardian: *number };
            visitor.line.send(&report, &[ours.as_fd()]).ok();
        }
        let given = WardenReport::Given { next_guardian: self.next_guardian };
        if let Some(handover) = &self.handover {
            // Our stdout is the lock.
            let stdout = io::stdout();
            visitor.line.send(&given, &[stdout.as_fd(), handover.listener.as_fd()]).ok();
        }
        // A supervisor reads.
        visitor.line.socket.set_write_timeout(None).ok();
        self.supervisor = Some(visitor.line);
    }

    /// Ends all that is kept.
    fn end(&mut self, grace: Duration) {
        for channel in self.guardians.values().filter_map(|child| child.channel.as_ref()) {
            channel.send(&GuardianInvitation::End { grace }, &[]).ok();
        }
        self.leave_by = Some(Instant::now() + grace + ORPHANED_GRACE + ORPHANED_GRACE);
    }
}
