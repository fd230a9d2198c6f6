//! Lists, signals and reaps a whole tree of processes. Used by supervisor, warden and guardians. The sweep
//! holds what is left of lost guardians and of a killed warden.
//!
//! Works on the calling process's own descendants. Because the caller adopts orphans, a process
//! that loses its parent becomes its child: when no child is left, the tree is gone for certain.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{SWEEP_MAX, SWEEP_ON_MAX, SWEEP_PAUSE};
use afresh_core::service::Exit;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getsid};
use tokio::time::{Instant, sleep};

use super::os::{self, ChildWatch};
use crate::process::{Remains, Report};

/// A change of a child.
pub(super) enum Change {
    /// It ended, and is reaped.
    Ended(Exit),
    /// It was stopped by a signal.
    Stopped,
}

/// Reaps every child that has ended, and tells of those that were stopped. Returns whether children are left.
pub(super) fn reap(mut changed: impl FnMut(Pid, Change)) -> bool {
    loop {
        let mut status = 0;
        // The wrapper of nix knows no real-time signals: it reaps their victims and gives an error.
        // SAFETY: the kernel writes one number, into a variable that outlives the call.
        #[expect(unsafe_code, reason = "every signal must be understood")]
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        let change = match pid {
            0 => return true,
            1.. if libc::WIFEXITED(status) => Change::Ended(Exit::Code(libc::WEXITSTATUS(status))),
            1.. if libc::WIFSIGNALED(status) => Change::Ended(Exit::Signal(libc::WTERMSIG(status))),
            1.. if libc::WIFSTOPPED(status) => Change::Stopped,
            1.. => continue,
            _ if Errno::last() == Errno::ECHILD => return false,
            // Interrupted: nothing else is possible with these arguments.
            _ => continue,
        };
        changed(Pid::from_raw(pid), change);
    }
}

/// All descendants of ours but `spared` and theirs, parents before their children.
pub(super) fn descendants(spared: &[Pid]) -> Vec<Pid> {
    let ours = os::children(getpid()).into_iter().filter(|pid| !spared.contains(pid));
    below(ours.collect(), os::children)
}

/// These and all their descendants, parents before their children.
pub(super) fn below(mut found: Vec<Pid>, children: impl Fn(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut known: BTreeSet<Pid> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for child in children(pid) {
            // A pid can be listed twice when a parent dies during the walk, and one that is given anew could stand
            // above itself.
            if known.insert(child) {
                found.push(child);
            }
        }
    }
    found
}

/// Children of ours that are none of our services: they are in our own session, which the warden
/// and all below it have left.
pub(super) fn in_our_session() -> Vec<Pid> {
    let session = |pid: Option<Pid>| getsid(pid).ok();
    let ours = session(None);
    os::children(getpid()).into_iter().filter(|pid| session(Some(*pid)) == ours).collect()
}

/// Sends a signal to all descendants but `spared`. Returns how many there were.
///
/// Parents come first: their orphans become our children, and the next round finds them there.
pub(super) fn signal_all(signal: Signal, spared: &[Pid]) -> usize {
    let all = descendants(spared);
    for pid in &all {
        // Gone already, or not ours to kill: the next round or the survivors' list says so.
        kill(*pid, signal).ok();
    }
    all.len()
}

/// The descendants that are alive, for the one who has to be told.
pub(super) fn survivors(spared: &[Pid]) -> Vec<(u32, String)> {
    let alive = |pid: Pid| Some((pid.as_raw().cast_unsigned(), os::name_if_alive(pid)?));
    let named: Vec<(u32, String)> = descendants(spared).into_iter().filter_map(alive).collect();
    if named.is_empty() && !os::can_list() {
        let name = "not listed, because /proc belongs to another PID namespace".to_owned();
        return vec![(0, name)];
    }
    named
}

/// Waits until a child changes, something arrives on one of `sources`, or `patience` is over.
/// Returns where there is something, be it an end.
pub(super) fn wait<const N: usize>(
    watch: &ChildWatch,
    sources: [Option<BorrowedFd<'_>>; N],
    patience: Option<Duration>,
) -> io::Result<[bool; N]> {
    // Rounded up: a turn that comes a moment too early would only spin.
    let timeout = patience.map_or(PollTimeout::NONE, |patience| {
        PollTimeout::try_from(patience.as_millis() + 1).unwrap_or(PollTimeout::MAX)
    });
    let mut fds = vec![PollFd::new(watch.fd(), PollFlags::POLLIN)];
    fds.extend(sources.iter().flatten().map(|source| PollFd::new(*source, PollFlags::POLLIN)));
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut polled = fds[1..].iter().map(|fd| fd.any().unwrap_or(true));
    Ok(sources.map(|source| source.is_some() && polled.next().unwrap_or(false)))
}

/// Asks one process to end, by its id.
pub(crate) fn terminate_one(pid: u32) -> io::Result<()> {
    Ok(kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?)
}

/// Kills one process by its id.
pub(crate) fn kill_one(pid: u32) -> io::Result<()> {
    Ok(kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL)?)
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    os::name_if_alive(Pid::from_raw(pid.cast_signed())).is_some()
}

/// Trees that have to be gone before their services may start again.
#[derive(Default)]
pub(super) struct Sweep {
    /// Guardians that were lost, with their instances: the tree of each has to be gone before its instance counts
    /// as exited.
    pub(super) lost_guardians: BTreeMap<u64, (ServiceId, Generation)>,
    /// Children from before this was afresh (a shell may `exec` it): not swept.
    spared: Vec<Pid>,
    /// Set where children of this process are swept: the warden was killed, and what it left became those.
    pub(super) since: Option<Instant>,
    /// A warden that was killed, and has to be reaped.
    pub(super) lost_warden: Option<Pid>,
}

impl Sweep {
    pub(super) fn new() -> Self {
        Self { spared: os::children(getpid()), ..Self::default() }
    }

    /// The tree of a lost guardian is gone, but for survivors.
    pub(super) fn finish(&mut self, number: u64, survivors: Vec<(u32, String)>) -> Option<Report> {
        let (service, generation) = self.lost_guardians.remove(&number)?;
        let remains = Remains { leftovers: 0, survivors };
        Some(Report::Exited { service, generation, exit: Exit::Unknown, remains })
    }

    pub(super) fn reap(&mut self) -> bool {
        let lost_warden = &mut self.lost_warden;
        let spared = &self.spared;
        reap(|pid, change| match change {
            Change::Ended(_) => drop(lost_warden.take_if(|lost| *lost == pid)),
            // A warden or guardian that is stopped guards nothing.
            Change::Stopped if !spared.contains(&pid) => drop(kill(pid, Signal::SIGCONT)),
            Change::Stopped => {}
        })
    }

    /// Kills what lost guardians and wardens left. Without a warden, living guardians are children too,
    /// and `living` names them.
    pub(super) fn step(&mut self, living: impl Iterator<Item = Pid>) -> Vec<Report> {
        let are_left = self.reap();
        let (strays, spared) = self.kill_strays(are_left, living);
        let elapsed = self.since.map_or(Duration::MAX, |since| since.elapsed());
        let done = strays == 0 && self.lost_warden.is_none();
        if !done && elapsed <= SWEEP_MAX {
            return Vec::new();
        }
        // What cannot be ended is reported once, and tried again for a while.
        if done || elapsed > SWEEP_ON_MAX {
            self.since = None;
        }
        let survivors = if strays > 0 { survivors(&spared) } else { Vec::new() };
        let numbers: Vec<u64> = self.lost_guardians.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.finish(number, survivors.clone())).collect()
    }

    /// Returns how many there were, and the children that were spared.
    fn kill_strays(&self, are_left: bool, living: impl Iterator<Item = Pid>) -> (usize, Vec<Pid>) {
        let foreign = self.spared.iter().copied().chain(in_our_session());
        let spared: Vec<Pid> = living.chain(foreign).collect();
        let strays = if are_left { signal_all(Signal::SIGKILL, &spared) } else { 0 };
        (strays, spared)
    }

    /// Waits until the warden and all else that this process has started are gone, though not for ever.
    pub(super) async fn wait_for_end(&self, warden: Option<Pid>) {
        let deadline = Instant::now() + SWEEP_MAX * 2;
        while Instant::now() < deadline {
            let mut warden_alive = warden.is_some_and(|pid| os::name_if_alive(pid).is_some());
            let are_left = reap(|pid, change| {
                warden_alive &= Some(pid) != warden || matches!(change, Change::Stopped);
            });
            if self.kill_strays(are_left, warden.into_iter()).0 == 0 && !warden_alive {
                return;
            }
            sleep(SWEEP_PAUSE).await;
        }
    }
}
