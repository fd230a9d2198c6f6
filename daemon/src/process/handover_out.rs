//! The supervisor's side of services that outlive it: what the guardians are told, so that the next
//! supervisor finds all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};
use nix::unistd::Pid;

use super::frames::{Kept, Order, WardenOrder};
use super::handover_folder::{Hold, Place};
use super::host::{Processes, StartError};
use super::socket_task::Correspondent;
use super::{Report, Stdio};

/// What there is where wardens and guardians hold a lock, and may outlive us.
pub(super) struct Keep {
    place: Place,
    /// Given to each warden.
    hold: File,
    /// Given to each warden that outlives us.
    pub(super) listener: Option<OwnedFd>,
    /// The stdin of instances is held open, too.
    stdin: bool,
    names: BTreeMap<ServiceId, String>,
    /// Which instance is the current one, as its guardian was told.
    pub(super) current: BTreeMap<ServiceId, Generation>,
    /// Guardians whose last report was given to the loop.
    handed: Vec<(ServiceId, u64)>,
    /// A warden that is not our child: another supervisor started it.
    pub(super) foreign_warden: Option<Pid>,
}

impl Processes {
    /// Sets up the process layer in a place, where the next supervisor will find what is left of it;
    /// `hold` says that nothing of the one before is.
    pub(crate) fn start_in(
        place: &Place,
        hold: Hold,
        on_death: OnSupervisorDeath,
    ) -> Result<Self, StartError> {
        let mut processes = Self::without_warden()?;
        let listener = match on_death {
            OnSupervisorDeath::Kill => None,
            OnSupervisorDeath::Keep => {
                let path = place.socket();
                let listener = place.listen();
                Some(listener.map_err(|source| StartError::Listen { path, source })?)
            }
        };
        processes.keep = Some(Keep::new(place.clone(), hold.0, listener));
        processes.start_first_warden()?;
        Ok(processes)
    }

    /// The stdin of instances is in use: it has to stay open for the next supervisor.
    pub(crate) fn hold_stdin(&mut self) {
        if let Some(keep) = &mut self.keep {
            keep.stdin = true;
        }
    }

    /// Says how a service is called, for the next supervisor.
    pub(crate) fn introduce(&mut self, service: ServiceId, name: &str) {
        if let Some(keep) = &mut self.keep {
            keep.names.insert(service, name.to_owned());
        }
    }

    /// Says which instance of a service is the current one, for the next supervisor.
    pub(crate) fn mark(&mut self, service: ServiceId, current: Option<Generation>) {
        let Some(keep) = self.keep.as_mut().filter(|keep| keep.listener.is_some()) else { return };
        let before = match current {
            Some(current) => keep.current.insert(service, current),
            None => keep.current.remove(&service),
        };
        if before != current {
            for (generation, is_current) in [(before, false), (current, true)] {
                if let Some(generation) = generation {
                    self.order(service, generation, &Order::Current(is_current));
                }
            }
        }
    }

    /// The stop of an instance begins: nobody holds its stdin any more.
    pub(crate) fn close_stdin(&self, service: ServiceId, generation: Generation) {
        if self.keeps() {
            self.order(service, generation, &Order::CloseStdin);
        }
    }

    pub(super) fn keeps(&self) -> bool {
        self.keep.as_ref().is_some_and(|keep| keep.listener.is_some())
    }

    /// What a new warden has as its stdout.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        self.keep.as_ref().map(|keep| keep.hold.try_clone()).transpose()
    }

    /// Tells a new warden what it is to outlive.
    pub(super) fn brief_warden(&self, warden: &Correspondent) -> io::Result<()> {
        if let Some(keep) = &self.keep
            && let Some(listener) = &keep.listener
        {
            let (socket, folder) = (keep.place.socket(), keep.place.folder().to_owned());
            warden.send(&WardenOrder::Keep { socket, folder }, vec![listener.try_clone()?]);
        }
        Ok(())
    }

    /// What a new instance's guardian holds for the next supervisor.
    pub(super) fn kept(
        &self,
        service: ServiceId,
        generation: Generation,
        ours: &Stdio,
    ) -> io::Result<(Option<Kept>, Vec<OwnedFd>)> {
        let Some(keep) = self.keep.as_ref().filter(|keep| keep.listener.is_some()) else {
            return Ok((None, Vec::new()));
        };
        let mut descriptors = Vec::new();
        if keep.stdin {
            descriptors.push(ours.stdin.as_fd().try_clone_to_owned()?);
        }
        descriptors.push(ours.stdout.as_fd().try_clone_to_owned()?);
        descriptors.push(ours.stderr.as_fd().try_clone_to_owned()?);
        let kept = Kept {
            service: keep.names.get(&service).cloned().unwrap_or_default(),
            current: keep.current.get(&service) == Some(&generation),
            stdin: keep.stdin,
        };
        Ok((Some(kept), descriptors))
    }

    /// The loop gets this report now; when it asks for the next one, it has dealt with it.
    pub(super) fn hand_out(&mut self, report: &Report) {
        let Report::Exited { service, generation, .. } = report else { return };
        let all = self.guardians.range_mut((*service, 0)..=(*service, u64::MAX));
        for (key, guardian) in all {
            if guardian.unheard.take_if(|unheard| unheard == generation).is_some()
                && let Some(keep) = &mut self.keep
            {
                keep.handed.push(*key);
            }
        }
    }

    /// The loop has dealt with what it was given: nobody has to remember it any more.
    pub(super) fn acknowledge(&mut self) {
        let handed = self.keep.as_mut().map(|keep| std::mem::take(&mut keep.handed));
        for key in handed.unwrap_or_default() {
            // Another instance has it by now, or it is gone: then it remembers nothing.
            if let Some(guardian) = self.guardians.get(&key)
                && guardian.current.is_none()
            {
                guardian.post.send(&Order::Acknowledge, Vec::new());
                self.let_surplus_go(key.0);
            }
        }
    }

    /// We end in order: nothing outlives us.
    pub(super) fn forget_all(&self) {
        if self.keeps() {
            for guardian in self.guardians.values() {
                guardian.post.send(&Order::Forget, Vec::new());
            }
            if let Some(warden) = &self.warden {
                warden.send(&WardenOrder::Leave, Vec::new());
            }
            // Where there is no warden, nobody else does.
            if let Some(keep) = &self.keep {
                fs::remove_file(keep.place.socket()).ok();
            }
        }
    }
}

impl Keep {
    pub(super) const fn new(place: Place, hold: File, listener: Option<OwnedFd>) -> Self {
        Self {
            place,
            hold,
            listener,
            stdin: false,
            names: BTreeMap::new(),
            current: BTreeMap::new(),
            handed: Vec::new(),
            foreign_warden: None,
        }
    }
}
