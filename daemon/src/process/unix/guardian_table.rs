//! Owns the table of guardians: one for each instance that runs, and one of each service's that is idle.
//! Driven by `Processes`. Never starts or ends a guardian itself; the warden does.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::IDLE_GUARDIANS_MAX;
use nix::unistd::Pid;

use super::messages::{GuardianOrder, GuardianReport};
use super::socket_task::{Peer, SocketTasks};
use crate::process::spawn_error::explain;
use crate::process::{Command, Report, RetainedInstance};

/// The service of a guardian, and the guardian's number.
pub(super) type GuardianKey = (ServiceId, u64);

/// All guardians that have a socket.
#[derive(Default)]
pub(super) struct Guardians {
    pub(super) by_key: BTreeMap<GuardianKey, GuardianHandle>,
    pub(super) next_number: u64,
    /// They retain their instances for the next supervisor.
    pub(super) retain: bool,
    /// Those whose last report was given to the loop.
    handed_out: Vec<GuardianKey>,
}

/// One guardian.
pub(super) struct GuardianHandle {
    /// The warden that forked it.
    pub(super) warden: Option<Pid>,
    pub(super) pid: Option<Pid>,
    pub(super) peer: Peer,
    /// The instance that it runs; none where it is idle.
    pub(super) current: Option<(Generation, Command)>,
    /// The instance that it has run, whose end was not given to the loop.
    unreported: Option<Generation>,
}

impl GuardianHandle {
    /// It runs nothing, and has no report that the loop must get first.
    const fn is_idle(&self) -> bool {
        self.current.is_none() && self.unreported.is_none()
    }
}

impl Guardians {
    fn of(&self, service: ServiceId) -> impl Iterator<Item = (GuardianKey, &GuardianHandle)> {
        let all = self.by_key.range((service, 0)..=(service, u64::MAX));
        all.map(|(key, guardian)| (*key, guardian))
    }

    fn running(
        &self,
        service: ServiceId,
        generation: Generation,
    ) -> Option<(GuardianKey, &GuardianHandle)> {
        let runs = |guardian: &GuardianHandle| {
            guardian.current.as_ref().is_some_and(|(current, _)| *current == generation)
        };
        self.of(service).find(|(_, guardian)| runs(guardian))
    }

    /// Sends an order to the guardian of an instance, where there is one.
    pub(super) fn order(&self, service: ServiceId, generation: Generation, order: &GuardianOrder) {
        if let Some((_, guardian)) = self.running(service, generation) {
            guardian.peer.send(order, Vec::new());
        }
    }

    /// The idle guardian of a service, if it has one that this warden forked. Those of other wardens are
    /// released: only the supervisor is above them.
    pub(super) fn idle(&mut self, service: ServiceId, warden: Option<Pid>) -> Option<GuardianKey> {
        self.release(service, |guardian| guardian.warden != warden);
        self.of(service).find(|(_, guardian)| guardian.is_idle()).map(|(key, _)| key)
    }

    /// Adds a guardian that is yet to be forked. Returns its end of the socket, too.
    pub(super) fn add(
        &mut self,
        service: ServiceId,
        warden: Option<Pid>,
        sockets: &mut SocketTasks,
    ) -> io::Result<(GuardianKey, OwnedFd)> {
        let key = (service, self.next_number);
        self.next_number += 1;
        let (ours, theirs) = UnixStream::pair()?;
        let peer = sockets.open_guardian(key, ours.into())?;
        let (pid, current, unreported) = (None, None, None);
        self.by_key.insert(key, GuardianHandle { warden, pid, peer, current, unreported });
        Ok((key, theirs.into()))
    }

    /// Adds the guardian of an instance that another supervisor started. Returns the report of its end,
    /// where it has ended meanwhile.
    pub(super) fn adopt(
        &mut self,
        key: GuardianKey,
        warden: Option<Pid>,
        peer: Peer,
        instance: RetainedInstance,
    ) -> Option<Report> {
        if !self.retain {
            peer.send(&GuardianOrder::Release, Vec::new());
        }
        let generation = instance.generation;
        let handle = GuardianHandle {
            warden,
            pid: Some(Pid::from_raw(instance.guardian.cast_signed())),
            peer,
            current: instance.end.is_none().then(|| (generation, Command::default())),
            unreported: instance.end.is_some().then_some(generation),
        };
        self.by_key.insert(key, handle);
        let (service, (exit, remains)) = (key.0, instance.end?);
        Some(Report::Exited { service, generation, exit, remains })
    }

    /// Sends an order to start an instance.
    pub(super) fn launch(
        &mut self,
        key: GuardianKey,
        (generation, command): (Generation, Command),
        order: &GuardianOrder,
        stdio: Vec<OwnedFd>,
    ) {
        if let Some(guardian) = self.by_key.get_mut(&key) {
            guardian.current = Some((generation, command));
            match guardian.pid {
                Some(_) => guardian.peer.send_first(order, stdio),
                // It is not forked yet, and that takes longer.
                None => guardian.peer.send(order, stdio),
            }
        }
    }

    /// Removes the guardian of an instance.
    pub(super) fn remove_running(
        &mut self,
        service: ServiceId,
        generation: Generation,
    ) -> Option<(GuardianKey, GuardianHandle)> {
        let key = self.running(service, generation)?.0;
        Some((key, self.by_key.remove(&key)?))
    }

    /// Takes a report of a guardian. Returns what the loop is told.
    pub(super) fn handle(&mut self, key: GuardianKey, report: GuardianReport) -> Option<Report> {
        let guardian = self.by_key.get_mut(&key)?;
        let service = key.0;
        let report = match report {
            GuardianReport::Hello { pid } => {
                guardian.pid = Some(Pid::from_raw(pid.cast_signed()));
                return None;
            }
            GuardianReport::Launched { generation, pid } => {
                Report::Spawned { service, generation, pid }
            }
            GuardianReport::LaunchFailed { errno, .. } => {
                let (generation, command) = guardian.current.take()?;
                let failure = explain(&command, &io::Error::from_raw_os_error(errno));
                Report::SpawnFailed { service, generation, failure }
            }
            GuardianReport::Ended { generation, exit, remains } => {
                guardian.current = None;
                guardian.unreported = self.retain.then_some(generation);
                Report::Exited { service, generation, exit, remains }
            }
            // Sent once, and received during the handover.
            GuardianReport::Retained(_) => return None,
        };
        self.release_surplus(service);
        Some(report)
    }

    /// The warden could not fork a guardian. Returns the report of the start that failed with it.
    pub(super) fn fork_failed(&mut self, number: u64, errno: i32) -> Option<Report> {
        let key = *self.by_key.keys().find(|(_, other)| *other == number)?;
        let (generation, command) = self.by_key.remove(&key)?.current?;
        let failure = explain(&command, &io::Error::from_raw_os_error(errno));
        Some(Report::SpawnFailed { service: key.0, generation, failure })
    }

    /// The loop gets this report now; when it asks for the next one, it has dealt with it.
    pub(super) fn hand_out(&mut self, report: &Report) {
        let Report::Exited { service, generation, .. } = report else { return };
        for (key, guardian) in self.by_key.range_mut((*service, 0)..=(*service, u64::MAX)) {
            if guardian.unreported.take_if(|unreported| unreported == generation).is_some() {
                self.handed_out.push(*key);
            }
        }
    }

    /// The loop has dealt with the reports it was given: guardians need not remember those ends.
    pub(super) fn acknowledge(&mut self) {
        for key in std::mem::take(&mut self.handed_out) {
            // One that runs another instance by now, or is gone, remembers nothing.
            if let Some(guardian) = self.by_key.get(&key)
                && guardian.current.is_none()
            {
                guardian.peer.send(&GuardianOrder::Acknowledge, Vec::new());
                self.release_surplus(key.0);
            }
        }
    }

    /// Releases idle guardians of a service: without a socket to the supervisor they end.
    fn release(
        &mut self,
        service: ServiceId,
        mut is_released: impl FnMut(&GuardianHandle) -> bool,
    ) {
        let idle = self.of(service).filter(|(_, guardian)| guardian.is_idle());
        let gone: Vec<_> = idle.filter(|(_, it)| is_released(it)).map(|(key, _)| key).collect();
        for key in gone {
            if let Some(guardian) = self.by_key.remove(&key).filter(|_| self.retain) {
                guardian.peer.send(&GuardianOrder::Release, Vec::new());
            }
        }
    }

    /// Releases all idle ones but the first, which makes the next start faster.
    fn release_surplus(&mut self, service: ServiceId) {
        let mut idle = 0;
        self.release(service, |_| {
            idle += 1;
            idle > IDLE_GUARDIANS_MAX
        });
    }

    /// Closes all sockets: nothing outlives this supervisor.
    pub(super) fn close(&mut self) {
        for guardian in std::mem::take(&mut self.by_key).into_values().filter(|_| self.retain) {
            guardian.peer.send(&GuardianOrder::Release, Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use afresh_core::service::Exit;

    use super::*;
    use crate::process::Remains;

    const SERVICE: ServiceId = ServiceId(7);

    fn ended(generation: u64) -> GuardianReport {
        let (generation, exit) = (Generation(generation), Exit::Code(3));
        GuardianReport::Ended { generation, exit, remains: Remains::default() }
    }

    fn start(guardians: &mut Guardians, sockets: &mut SocketTasks, generation: u64) -> GuardianKey {
        let (key, _socket) = guardians.add(SERVICE, None, sockets).unwrap();
        let instance = (Generation(generation), Command::default());
        guardians.launch(key, instance, &GuardianOrder::Kill, Vec::new());
        key
    }

    #[tokio::test]
    async fn one_idle_guardian_is_kept_for_the_next_start() {
        let (mut guardians, mut sockets) = (Guardians::default(), SocketTasks::new());
        let first = start(&mut guardians, &mut sockets, 1);
        let second = start(&mut guardians, &mut sockets, 2);
        assert_eq!(guardians.idle(SERVICE, None), None);
        for (key, generation) in [(first, 1), (second, 2)] {
            let report = guardians.handle(key, ended(generation));
            let Some(Report::Exited { generation: of, exit, .. }) = report else {
                panic!("{report:?}");
            };
            assert_eq!((of, exit), (Generation(generation), Exit::Code(3)));
        }
        assert_eq!(guardians.by_key.len(), IDLE_GUARDIANS_MAX);
        assert_eq!(guardians.idle(SERVICE, None), Some(first));
        let other_warden = Some(Pid::from_raw(1));
        assert_eq!(guardians.idle(SERVICE, other_warden), None);
        assert!(guardians.by_key.is_empty(), "the warden that forked it is gone");
    }

    #[tokio::test]
    async fn a_retained_end_is_remembered_until_the_loop_has_dealt_with_it() {
        let (mut guardians, mut sockets) = (Guardians::default(), SocketTasks::new());
        (guardians.retain, guardians.next_number) = (true, 5);
        let key = start(&mut guardians, &mut sockets, 1);
        assert_eq!(key.1, 5);
        let report = guardians.handle(key, ended(1)).unwrap();
        assert_eq!(guardians.idle(SERVICE, None), None, "its end is not reported yet");
        guardians.hand_out(&report);
        assert_eq!(guardians.handed_out, [key]);
        guardians.acknowledge();
        assert_eq!(guardians.idle(SERVICE, None), Some(key));
    }

    #[tokio::test]
    async fn a_fork_that_fails_fails_the_start_that_waits_for_it() {
        let (mut guardians, mut sockets) = (Guardians::default(), SocketTasks::new());
        let key = start(&mut guardians, &mut sockets, 4);
        let report = guardians.fork_failed(key.1, nix::libc::EAGAIN);
        let Some(Report::SpawnFailed { generation, failure, .. }) = report else {
            panic!("{report:?}");
        };
        assert_eq!(generation, Generation(4));
        assert!(failure.message.contains("too many processes"), "{}", failure.message);
        assert!(guardians.by_key.is_empty());
    }
}
