//! A guardian: parent and subreaper of the processes of one instance, and of the next when that is gone.
//!
//! A small single-threaded process, forked by the warden. It starts what it is told, reports the
//! end once the *whole* tree is gone, and when its socket closes, because the supervisor is gone
//! however it went, it ends the tree and itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::frames::{End, Launch, Order, Report};
use super::os::{self, ChildWatch};
use super::tree::{self, Change, Remaining, wait};
use super::wire::{Frame, Inbox, send_all};

/// Guards until the supervisor is gone and the tree too.
pub(super) fn guard(socket: OwnedFd) -> io::Result<()> {
    os::set_name(c"afresh-guardian");
    os::wake_when_parent_dies();
    os::adopt_orphans()?;
    let watch = ChildWatch::new()?;
    let mut guardian =
        Guardian { socket, inbox: Inbox::default(), watch, tree: None, supervisor: Present };
    guardian.report(&Report::Hello { pid: std::process::id() })?;
    while !guardian.is_done() {
        guardian.turn()?;
    }
    Ok(())
}

struct Guardian {
    socket: OwnedFd,
    inbox: Inbox,
    watch: ChildWatch,
    tree: Option<Tree>,
    supervisor: Supervisor,
}

use Supervisor::{Gone, Present};

enum Supervisor {
    Present,
    /// The tree has until then to end by itself.
    Gone {
        kill_at: Instant,
    },
}

/// The processes of one instance.
struct Tree {
    generation: u64,
    leader: Pid,
    /// How the leader ended.
    end: Option<End>,
    /// Processes that the leader left behind.
    leftovers: u32,
    pressure: Pressure,
}

/// What has been done to end the tree.
enum Pressure {
    Not,
    Terminated,
    Killed { since: Instant },
}

impl Guardian {
    fn is_done(&self) -> bool {
        matches!(self.supervisor, Gone { .. }) && self.tree.is_none()
    }

    /// Waits for the next thing to happen, and deals with it.
    fn turn(&mut self) -> io::Result<()> {
        let present = matches!(self.supervisor, Present);
        let socket = present.then(|| self.socket.as_fd());
        if wait(&self.watch, socket, self.patience())? {
            self.listen()?;
        }
        self.watch.clear();
        self.press_on();
        self.reap()
    }

    /// How long nothing may happen: for ever, unless a tree is being ended.
    fn patience(&self) -> Option<Duration> {
        match (&self.tree, &self.supervisor) {
            (Some(Tree { pressure: Pressure::Killed { .. }, .. }), _) => Some(SWEEP_PAUSE),
            (Some(_), Gone { kill_at }) => Some(kill_at.saturating_duration_since(Instant::now())),
            _ => None,
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        // A supervisor that was killed with orders unread leaves a reset, not an end.
        if !self.inbox.receive(self.socket.as_fd()).unwrap_or(false) {
            self.supervisor = Gone { kill_at: Instant::now() + ORPHANED_GRACE };
            self.terminate();
            return Ok(());
        }
        while let Some(order) = self.inbox.next()? {
            match order {
                Order::Launch(launch) => self.launch(&launch)?,
                Order::Terminate => self.terminate(),
                Order::Kill => self.kill(),
            }
        }
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> io::Result<()> {
        let generation = launch.generation;
        let stdio = [self.inbox.next_fd(), self.inbox.next_fd(), self.inbox.next_fd()];
        let [Some(stdin), Some(stdout), Some(stderr)] = stdio else {
            return self.report(&Report::LaunchFailed { generation, errno: nix::libc::EBADF });
        };
        if self.tree.is_some() {
            // Never two: the supervisor waits for the end of one before it asks for the next.
            return self.report(&Report::LaunchFailed { generation, errno: nix::libc::EBUSY });
        }
        match os::start(launch, [stdin, stdout, stderr]) {
            Ok(leader) => {
                self.tree = Some(Tree {
                    generation,
                    leader,
                    end: None,
                    leftovers: 0,
                    pressure: Pressure::Not,
                });
                let pid = leader.as_raw().cast_unsigned();
                self.report(&Report::Launched { generation, pid })
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(nix::libc::EIO);
                self.report(&Report::LaunchFailed { generation, errno })
            }
        }
    }

    /// SIGTERM to the leader's group, or to what the leader left.
    fn terminate(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        if matches!(tree.pressure, Pressure::Killed { .. }) {
            return;
        }
        tree.pressure = Pressure::Terminated;
        match tree.end {
            None => {
                // The group may be gone while the leader is: it is a zombie then, and reaped next.
                killpg(tree.leader, Signal::SIGTERM).ok();
                // A stopped process does not hear SIGTERM until it goes on.
                killpg(tree.leader, Signal::SIGCONT).ok();
            }
            Some(_) => {
                tree::signal_all(Signal::SIGTERM, &[]);
                tree::signal_all(Signal::SIGCONT, &[]);
            }
        }
    }

    fn kill(&mut self) {
        if let Some(tree) = &mut self.tree
            && !matches!(tree.pressure, Pressure::Killed { .. })
        {
            tree.pressure = Pressure::Killed { since: Instant::now() };
        }
    }

    /// Kills what is to be killed, again in each turn until nothing is left.
    fn press_on(&mut self) {
        if let Gone { kill_at } = self.supervisor
            && kill_at <= Instant::now()
        {
            self.kill();
        }
        if let Some(Tree { leader, end, pressure: Pressure::Killed { .. }, .. }) = &self.tree {
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
            // A service that somebody stopped is left so: it is not ours to wake.
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
        let given_up =
            matches!(tree.pressure, Pressure::Killed { since } if since.elapsed() > SWEEP_MAX);
        if remaining == Remaining::Some && !given_up {
            return Ok(());
        }
        let survivors =
            if remaining == Remaining::Some { tree::survivors(&[]) } else { Vec::new() };
        let (generation, leftovers) = (tree.generation, tree.leftovers);
        self.tree = None;
        self.report(&Report::Ended { generation, end, leftovers, survivors })
    }

    /// The leader is gone, its children are not. In a stop they get the rest of its time;
    /// otherwise they go at once, so that a new instance finds the ports and locks free.
    fn leader_left_others(&mut self) {
        let Some(tree) = &mut self.tree else { return };
        match tree.pressure {
            Pressure::Terminated => self.terminate(),
            Pressure::Not => {
                let others = tree::signal_all(Signal::SIGKILL, &[]);
                tree.leftovers = u32::try_from(others).unwrap_or(u32::MAX);
                tree.pressure = Pressure::Killed { since: Instant::now() };
            }
            Pressure::Killed { .. } => {}
        }
    }

    fn report(&mut self, report: &Report) -> io::Result<()> {
        if matches!(self.supervisor, Gone { .. }) {
            return Ok(());
        }
        // A supervisor that is gone is noticed by the next read of the socket.
        send_all(self.socket.as_fd(), &report.to_bytes()).or(Ok(()))
    }
}
