//! The warden: makes the guardians, and sweeps up after one that was killed.
//!
//! One a supervisor, the same binary started with a hidden subcommand, single-threaded and without
//! an async runtime. Guardians are forked from it, so that a hundred of them share its memory, and
//! a guardian costs no exec. It is a subreaper above them: what a killed guardian leaves becomes
//! its child, and is killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2_stdin, setsid};
use tokio::time::Instant;

use super::dispositions;
use super::frames::{WardenOrder, WardenReport};
use super::guardian::guard;
use super::os::{self, Cgroup, ChildWatch};
use super::tree::{self, Change, Remaining, wait};
use super::wire::{Frame, Inbox, send_all};

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
    os::set_name(c"afresh-warden");
    os::wake_when_parent_dies();
    os::adopt_orphans()?;
    let parent_cgroup = Cgroup::own().inspect(Cgroup::clean);
    let mut warden = Warden {
        socket,
        inbox: Inbox::default(),
        watch: ChildWatch::new()?,
        guardians: BTreeMap::new(),
        strays_since: None,
        leave_by: None,
        parent_cgroup,
    };
    loop {
        match warden.turn()? {
            Turn::Next => {}
            Turn::Done => return Ok(()),
            Turn::Child(socket) => {
                // Our own socket must close with the warden, not with its guardians; their cgroups
                // are the warden's to remove.
                std::mem::forget(std::mem::take(&mut warden.guardians));
                drop(warden);
                return guard(socket);
            }
        }
    }
}

/// What follows a turn.
enum Turn {
    Next,
    Done,
    /// We are a guardian now, and this is its socket.
    Child(OwnedFd),
}

struct Warden {
    socket: OwnedFd,
    inbox: Inbox,
    watch: ChildWatch,
    guardians: BTreeMap<u64, Guarded>,
    /// Since when there are processes that a killed guardian left.
    strays_since: Option<Instant>,
    /// The supervisor is gone; guardians that are not gone by then are killed.
    leave_by: Option<Instant>,
    parent_cgroup: Option<Cgroup>,
}

struct Guarded {
    pid: Pid,
    gone: bool,
    /// The supervisor waits for word that all is gone.
    bury: bool,
    cgroup: Option<Cgroup>,
}

impl Warden {
    /// Deals with the next thing that happens.
    fn turn(&mut self) -> io::Result<Turn> {
        let socket = self.leave_by.is_none().then(|| self.socket.as_fd());
        if wait(&self.watch, socket, self.patience())?
            && let Some(socket) = self.listen()?
        {
            return Ok(Turn::Child(socket));
        }
        self.watch.clear();
        if self.leave_by.is_some_and(|at| at <= Instant::now()) {
            self.guardians.values().filter(|guarded| !guarded.gone).for_each(Guarded::kill);
        }
        let remaining = self.reap();
        self.sweep(remaining)?;
        let busy = !self.guardians.is_empty() || self.strays_since.is_some();
        Ok(if self.leave_by.is_none() || busy { Turn::Next } else { Turn::Done })
    }

    fn patience(&self) -> Option<Duration> {
        match (self.strays_since, self.leave_by) {
            (Some(_), _) => Some(SWEEP_PAUSE),
            (None, Some(at)) => Some(at.saturating_duration_since(Instant::now()).max(SWEEP_PAUSE)),
            (None, None) => None,
        }
    }

    /// Follows the orders that have come. In a guardian that was forked, returns its socket.
    fn listen(&mut self) -> io::Result<Option<OwnedFd>> {
        if !self.inbox.receive(self.socket.as_fd()).unwrap_or(false) {
            // Each guardian has noticed by itself, unless it was stopped or hangs.
            for guarded in self.guardians.values().filter(|guarded| !guarded.gone) {
                kill(guarded.pid, Signal::SIGCONT).ok();
            }
            self.leave_by = Some(Instant::now() + ORPHANED_GRACE + ORPHANED_GRACE);
            return Ok(None);
        }
        while let Some(order) = self.inbox.next()? {
            match order {
                WardenOrder::Fork { guardian } => {
                    if let Some(socket) = self.fork(guardian)? {
                        return Ok(Some(socket));
                    }
                }
                WardenOrder::Bury { guardian } => match self.guardians.get_mut(&guardian) {
                    Some(guarded) => {
                        guarded.bury = true;
                        guarded.kill();
                    }
                    None => {
                        self.report(&WardenReport::Buried { guardian, survivors: Vec::new() })?
                    }
                },
            }
        }
        Ok(None)
    }

    /// Forks a guardian. Returns its socket in the child.
    fn fork(&mut self, guardian: u64) -> io::Result<Option<OwnedFd>> {
        let Some(socket) = self.inbox.next_fd() else {
            let errno = nix::libc::EBADF;
            self.report(&WardenReport::ForkFailed { guardian, errno })?;
            return Ok(None);
        };
        let cgroup = self.parent_cgroup.as_ref().and_then(|parent| parent.child(guardian));
        match os::fork_into(cgroup.as_ref()) {
            Ok(Some(pid)) => {
                let guarded = Guarded { pid, gone: false, bury: false, cgroup };
                self.guardians.insert(guardian, guarded);
            }
            Ok(None) => {
                // Removed by the warden, which holds the same.
                std::mem::forget(cgroup);
                return Ok(Some(socket));
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(nix::libc::EAGAIN);
                self.report(&WardenReport::ForkFailed { guardian, errno })?;
            }
        }
        Ok(None)
    }

    fn reap(&mut self) -> Remaining {
        let guardians = &mut self.guardians;
        let remaining = tree::reap(|pid, change| {
            let Some(guarded) = guardians.values_mut().find(|guarded| guarded.pid == pid) else {
                return;
            };
            match change {
                Change::Ended(_) => guarded.gone = true,
                // A guardian that sleeps guards nobody.
                Change::Stopped => drop(kill(pid, Signal::SIGCONT)),
            }
        });
        if self.guardians.values().any(|guarded| guarded.gone) {
            self.strays_since.get_or_insert_with(Instant::now);
        }
        remaining
    }

    /// Kills whatever is our child and no guardian, until there is no such thing.
    fn sweep(&mut self, remaining: Remaining) -> io::Result<()> {
        let Some(since) = self.strays_since else {
            return Ok(());
        };
        let living: Vec<Pid> =
            self.guardians.values().filter(|g| !g.gone).map(|guarded| guarded.pid).collect();
        let strays = match remaining {
            Remaining::None => 0,
            Remaining::Some => tree::signal_all(Signal::SIGKILL, &living),
        };
        let given_up = since.elapsed() > SWEEP_MAX;
        if strays > 0 && !given_up {
            return Ok(());
        }
        let survivors = if strays > 0 { tree::survivors(&living) } else { Vec::new() };
        self.strays_since = None;
        let gone = self.guardians.iter().filter(|(_, guarded)| guarded.gone);
        for guardian in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(guarded) = self.guardians.remove(&guardian) else {
                continue;
            };
            drop(guarded.cgroup);
            if guarded.bury {
                let survivors = survivors.clone();
                self.report(&WardenReport::Buried { guardian, survivors })?;
            }
        }
        Ok(())
    }

    fn report(&self, report: &WardenReport) -> io::Result<()> {
        // A supervisor that is gone is noticed by the next read of the socket.
        send_all(self.socket.as_fd(), &report.to_bytes()).or(Ok(()))
    }
}

impl Guarded {
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
