//! Owns what is left of lost guardians and of a killed warden, until it is swept. Driven by `Processes`: it
//! steps every `SWEEP_PAUSE` while something is left. Never touches living guardians.

use std::collections::BTreeMap;
use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{SWEEP_MAX, SWEEP_ON_MAX, SWEEP_PAUSE};
use afresh_core::service::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use tokio::time::{Instant, sleep};

use super::frames::{ProcessEnd, Survivor, TreeEnd};
use super::tree::{self, Change, Remaining};
use super::{Remains, Report, os};

/// Trees that have to be gone before their services may start again.
pub(super) struct Sweep {
    /// Guardians that were lost, with their instances.
    lost_guardians: BTreeMap<u64, (ServiceId, Generation)>,
    /// Children from before this was afresh (a shell may `exec` it): not swept.
    spared: Vec<Pid>,
    /// The warden was killed: what it left became children of this process.
    since: Option<Instant>,
    lost_warden: Option<Pid>,
}

impl Sweep {
    pub(super) fn new() -> Self {
        let spared = os::children(getpid());
        Self { lost_guardians: BTreeMap::new(), spared, since: None, lost_warden: None }
    }

    pub(super) const fn is_running(&self) -> bool {
        self.since.is_some()
    }

    /// The tree of a lost guardian has to be gone before its instance counts as exited.
    pub(super) fn expect(&mut self, number: u64, service: ServiceId, generation: Generation) {
        self.lost_guardians.insert(number, (service, generation));
    }

    /// Begins to sweep the children of this process.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// The warden is lost, and is reaped where it is a child.
    pub(super) fn begin_after_warden(&mut self, child: Option<Pid>) {
        self.lost_warden = child;
        self.since = Some(Instant::now());
    }

    /// The tree of a lost guardian is gone, but for survivors.
    pub(super) fn finish(&mut self, number: u64, survivors: Vec<Survivor>) -> Option<Report> {
        let (service, generation) = self.lost_guardians.remove(&number)?;
        let remains = Remains { leftovers: 0, survivors: named(survivors) };
        Some(Report::Exited { service, generation, exit: Exit::Unknown, remains })
    }

    pub(super) fn reap(&mut self) -> Remaining {
        let lost_warden = &mut self.lost_warden;
        let spared = &self.spared;
        tree::reap(|pid, change| match change {
            Change::Ended(_) => drop(lost_warden.take_if(|lost| *lost == pid)),
            // A warden or guardian that is stopped guards nothing.
            Change::Stopped if !spared.contains(&pid) => drop(kill(pid, Signal::SIGCONT)),
            Change::Stopped => {}
        })
    }

    /// Kills what lost guardians and wardens left. Without a warden, living guardians are children too,
    /// and `living` names them.
    pub(super) fn step(&mut self, living: impl Iterator<Item = Pid>) -> Vec<Report> {
        let remaining = self.reap();
        let (strays, spared) = self.kill_strays(remaining, living);
        let elapsed = self.since.map_or(Duration::MAX, |since| since.elapsed());
        let done = strays == 0 && self.lost_warden.is_none();
        if !done && elapsed <= SWEEP_MAX {
            return Vec::new();
        }
        // What cannot be ended is reported once, and tried again for a while.
        if done || elapsed > SWEEP_ON_MAX {
            self.since = None;
        }
        let survivors = if strays > 0 { tree::survivors(&spared) } else { Vec::new() };
        let numbers: Vec<u64> = self.lost_guardians.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.finish(number, survivors.clone())).collect()
    }

    /// Returns how many there were, and the children that were spared.
    fn kill_strays(
        &self,
        remaining: Remaining,
        living: impl Iterator<Item = Pid>,
    ) -> (usize, Vec<Pid>) {
        let foreign = self.spared.iter().copied().chain(tree::in_our_session());
        let spared: Vec<Pid> = living.chain(foreign).collect();
        match remaining {
            Remaining::None => (0, spared),
            Remaining::Some => (tree::signal_all(Signal::SIGKILL, &spared), spared),
        }
    }

    /// Waits until the warden and all else that this process has started are gone, though not for ever.
    pub(super) async fn wait_for_end(&self, warden: Option<Pid>) {
        let deadline = Instant::now() + SWEEP_MAX * 2;
        while Instant::now() < deadline {
            let mut warden_alive = warden.is_some_and(|pid| os::name_if_alive(pid).is_some());
            let remaining = tree::reap(|pid, change| {
                warden_alive &= Some(pid) != warden || matches!(change, Change::Stopped);
            });
            if self.kill_strays(remaining, warden.into_iter()).0 == 0 && !warden_alive {
                return;
            }
            sleep(SWEEP_PAUSE).await;
        }
    }
}

/// The report of the end of an instance.
pub(super) fn exited(service: ServiceId, generation: Generation, end: TreeEnd) -> Report {
    let exit = match end.leader {
        ProcessEnd::Code(code) => Exit::Code(code),
        ProcessEnd::Signal(signal) => Exit::Signal(signal),
    };
    let remains = Remains { leftovers: end.leftovers, survivors: named(end.survivors) };
    Report::Exited { service, generation, exit, remains }
}

fn named(survivors: Vec<Survivor>) -> Vec<(u32, String)> {
    survivors.into_iter().map(|survivor| (survivor.pid, survivor.name)).collect()
}
