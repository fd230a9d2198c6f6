//! What follows the end of an instance, and the loss of a guardian or of the warden: nothing of theirs
//! may stay.

use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{SWEEP_MAX, SWEEP_ON_MAX};
use afresh_core::service::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::frames::{End, Gone, Survivor, WardenOrder};
use super::host::{Guardian, Processes};
use super::tree::{self, Change, Remaining};
use super::{Remains, Report};

impl Processes {
    /// A guardian is lost: what it left has to be gone before its service may start again.
    pub(super) fn bury(&mut self, service: ServiceId, guardian: Guardian) {
        if let Some((generation, _)) = guardian.current {
            self.burials.insert(guardian.number, (service, generation));
        }
        match &self.warden {
            Some(warden) if warden.pid == guardian.warden => {
                warden.send(&WardenOrder::Bury { guardian: guardian.number }, Vec::new());
            }
            // Its warden was killed before it: what it left has become ours.
            Some(_) | None => {
                self.sweeping_since.get_or_insert_with(Instant::now);
            }
        }
        self.ready
            .push_back(Report::Notice("a guardian was lost; what it guarded is ended".to_owned()));
    }

    pub(super) fn buried(&mut self, number: u64, survivors: Vec<Survivor>) {
        if let Some((service, generation)) = self.burials.remove(&number) {
            let remains = Remains { leftovers: 0, survivors: named(survivors) };
            self.ready.push_back(Report::Exited {
                service,
                generation,
                exit: Exit::Unknown,
                remains,
            });
        }
    }

    pub(super) fn reap(&mut self) -> Remaining {
        let lost_warden = &mut self.lost_warden;
        let spared = &self.spared;
        tree::reap(|pid, change| match change {
            Change::Ended(_) => drop(lost_warden.take_if(|lost| *lost == pid)),
            // A warden or guardian that sleeps guards nobody.
            Change::Stopped if !spared.contains(&pid) => drop(kill(pid, Signal::SIGCONT)),
            Change::Stopped => {}
        })
    }

    /// Without a warden the guardians are our children, and what lost ones left is too.
    pub(super) fn sweep(&mut self) {
        let remaining = self.reap();
        let living = self.guardians.values().filter_map(|guardian| guardian.pid);
        let warden = self.warden.as_ref().and_then(|warden| warden.pid);
        let foreign = self.spared.iter().copied().chain(tree::in_our_session());
        let spared: Vec<Pid> = living.chain(warden).chain(foreign).collect();
        let strays = match remaining {
            Remaining::None => 0,
            Remaining::Some => tree::signal_all(Signal::SIGKILL, &spared),
        };
        let elapsed = self.sweeping_since.map_or(Duration::MAX, |since| since.elapsed());
        let done = strays == 0 && self.lost_warden.is_none();
        if !done && elapsed <= SWEEP_MAX {
            return;
        }
        // What cannot be ended is told once, and tried on for a while.
        if done || elapsed > SWEEP_ON_MAX {
            self.sweeping_since = None;
        }
        let survivors = if strays > 0 { tree::survivors(&spared) } else { Vec::new() };
        for number in self.burials.keys().copied().collect::<Vec<_>>() {
            self.buried(number, survivors.clone());
        }
    }
}

/// What is told of the end of an instance.
pub(super) fn ended(service: ServiceId, generation: Generation, gone: Gone) -> Report {
    let exit = match gone.end {
        End::Code(code) => Exit::Code(code),
        End::Signal(signal) => Exit::Signal(signal),
    };
    let remains = Remains { leftovers: gone.leftovers, survivors: named(gone.survivors) };
    Report::Exited { service, generation, exit, remains }
}

fn named(survivors: Vec<Survivor>) -> Vec<(u32, String)> {
    survivors.into_iter().map(|survivor| (survivor.pid, survivor.name)).collect()
}
