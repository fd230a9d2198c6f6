//! Owns what the next supervisor of the workspace will find: the lock, the listening socket, and which
//! instance of each service is the current one. Driven by `Processes`. Never talks to a guardian itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};

use super::InstanceStdio;
use super::frames::{InstanceIdentity, WardenOrder};
use super::handover_folder::{FolderLock, HandoverFolder};
use super::host::StartError;

/// The supervisor's side of a handover. Without a listener, wardens and guardians only hold the lock.
pub(super) struct Handover {
    folder: HandoverFolder,
    /// Given to each warden.
    lock: File,
    /// Given to each warden that outlives this process.
    listener: Option<OwnedFd>,
    /// The stdin of instances is held open, too.
    holds_stdin: bool,
    names: BTreeMap<ServiceId, String>,
    /// The current instance of each service, as its guardian was told.
    current: BTreeMap<ServiceId, Generation>,
}

impl Handover {
    pub(super) fn new(folder: HandoverFolder, lock: File, listener: Option<OwnedFd>) -> Self {
        let (names, current) = (BTreeMap::new(), BTreeMap::new());
        Self { folder, lock, listener, holds_stdin: false, names, current }
    }

    /// Begins in a folder where `lock` says that nothing of an earlier supervisor is left.
    pub(super) fn begin(
        folder: &HandoverFolder,
        lock: FolderLock,
        on_death: OnSupervisorDeath,
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { path: folder.socket(), source };
        let listener = match on_death {
            OnSupervisorDeath::Kill => None,
            OnSupervisorDeath::Keep => Some(folder.listen().map_err(failed)?),
        };
        Ok(Self::new(folder.clone(), lock.0, listener))
    }

    /// Whether instances outlive this process.
    pub(super) const fn retains(&self) -> bool {
        self.listener.is_some()
    }

    /// The lock, as a new warden inherits it.
    pub(super) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// The order to outlive this process, with the socket to listen on.
    pub(super) fn keep_order(&self) -> io::Result<Option<(WardenOrder, OwnedFd)>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let (socket, folder) = (self.folder.socket(), self.folder.path().to_owned());
        Ok(Some((WardenOrder::Keep { socket, folder }, listener.try_clone()?)))
    }

    /// The stdin of instances is in use: it has to stay open for the next supervisor.
    pub(super) const fn hold_stdin(&mut self) {
        self.holds_stdin = true;
    }

    /// Sets the name of a service.
    pub(super) fn introduce(&mut self, service: ServiceId, name: &str) {
        self.names.insert(service, name.to_owned());
    }

    /// Sets the current instance of a service. Returns the instances that change by it, and whether each
    /// is the current one now.
    pub(super) fn set_current(
        &mut self,
        service: ServiceId,
        current: Option<Generation>,
    ) -> Vec<(Generation, bool)> {
        let before = match current {
            Some(current) => self.current.insert(service, current),
            None => self.current.remove(&service),
        };
        if before == current {
            return Vec::new();
        }
        let (old, new) = (before.map(|it| (it, false)), current.map(|it| (it, true)));
        old.into_iter().chain(new).collect()
    }

    /// The identity of a new instance and our ends of its pipes, which its guardian retains.
    pub(super) fn retained(
        &self,
        service: ServiceId,
        generation: Generation,
        stdio: &InstanceStdio,
    ) -> io::Result<(Option<InstanceIdentity>, Vec<OwnedFd>)> {
        if !self.retains() {
            return Ok((None, Vec::new()));
        }
        let mut descriptors = Vec::new();
        if self.holds_stdin {
            descriptors.push(stdio.stdin.as_fd().try_clone_to_owned()?);
        }
        descriptors.push(stdio.stdout.as_fd().try_clone_to_owned()?);
        descriptors.push(stdio.stderr.as_fd().try_clone_to_owned()?);
        let identity = InstanceIdentity {
            service: self.names.get(&service).cloned().unwrap_or_default(),
            current: self.current.get(&service) == Some(&generation),
            stdin: self.holds_stdin,
        };
        Ok((Some(identity), descriptors))
    }

    /// Removes the socket: the supervisor ends in order, and there may be no warden to do it.
    pub(super) fn close(&self) {
        fs::remove_file(self.folder.socket()).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::handover_folder::wait_until_free;
    use crate::process::stdio::pipes;
    use crate::store::testing::TempDir;

    const SERVICE: ServiceId = ServiceId(7);

    async fn begin(dir: &TempDir, on_death: OnSupervisorDeath) -> Handover {
        let folder = HandoverFolder::open(&dir.join("run")).unwrap();
        let lock = wait_until_free(&folder, Duration::ZERO).await.unwrap();
        Handover::begin(&folder, lock, on_death).unwrap()
    }

    #[tokio::test]
    async fn only_instances_whose_state_changes_are_told() {
        let dir = TempDir::new();
        let mut handover = begin(&dir, OnSupervisorDeath::Keep).await;
        let [one, two] = [Generation(1), Generation(2)];
        assert_eq!(handover.set_current(SERVICE, Some(one)), [(one, true)]);
        assert_eq!(handover.set_current(SERVICE, Some(one)), []);
        assert_eq!(handover.set_current(SERVICE, Some(two)), [(one, false), (two, true)]);
        assert_eq!(handover.set_current(SERVICE, None), [(two, false)]);
    }

    #[tokio::test]
    async fn an_instance_is_retained_with_its_name_and_pipes_where_it_outlives_us() {
        let dir = TempDir::new();
        let (stdio, _theirs) = pipes().unwrap();
        {
            let handover = begin(&dir, OnSupervisorDeath::Kill).await;
            let (identity, held) = handover.retained(SERVICE, Generation(1), &stdio).unwrap();
            assert_eq!((identity, held.len()), (None, 0));
            assert!(handover.keep_order().unwrap().is_none());
        }
        let mut handover = begin(&dir, OnSupervisorDeath::Keep).await;
        handover.introduce(SERVICE, "web");
        handover.hold_stdin();
        handover.set_current(SERVICE, Some(Generation(1)));
        let (identity, held) = handover.retained(SERVICE, Generation(1), &stdio).unwrap();
        let expected = InstanceIdentity { service: "web".to_owned(), current: true, stdin: true };
        assert_eq!((identity, held.len()), (Some(expected), 3));
        assert!(handover.keep_order().unwrap().is_some());
    }
}
