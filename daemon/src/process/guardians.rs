//! Which guardian is whose: one for each instance that runs, and one of a service's that is idle.

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{GUARDIAN_ORDERS_MAX, IDLE_GUARDIANS_MAX};

use super::Report;
use super::frames::{Order, WardenOrder};
use super::host::{Guardian, Processes, Word};
use super::socket_task::Correspondent;
use super::spawn_error::explain;
use super::wire::Inbox;

impl Processes {
    pub(super) fn order(&self, service: ServiceId, generation: Generation, order: &Order) {
        if let Some((_, guardian)) = self.guardian_of(service, generation) {
            guardian.post.send(order, Vec::new());
        }
    }

    fn guardians_of(
        &self,
        service: ServiceId,
    ) -> impl Iterator<Item = ((ServiceId, u64), &Guardian)> {
        let all = self.guardians.range((service, 0)..=(service, u64::MAX));
        all.map(|(key, guardian)| (*key, guardian))
    }

    pub(super) fn guardian_of(
        &self,
        service: ServiceId,
        generation: Generation,
    ) -> Option<((ServiceId, u64), &Guardian)> {
        let runs = |guardian: &Guardian| {
            guardian.current.as_ref().is_some_and(|(current, _)| *current == generation)
        };
        self.guardians_of(service).find(|(_, guardian)| runs(guardian))
    }

    /// Where to find a guardian of the service's that is idle; one is made, if there is none.
    pub(super) fn idle_guardian(&mut self, service: ServiceId) -> io::Result<(ServiceId, u64)> {
        if self.warden.is_none() {
            self.start_warden()?;
        }
        let warden = self.warden.as_ref().and_then(|warden| warden.pid);
        // One whose warden was killed has nobody above it but us: it is let go when it is idle.
        self.let_go(service, |guardian| guardian.warden != warden);
        let idle = self.guardians_of(service).find(|(_, guardian)| guardian.is_idle());
        if let Some((key, _)) = idle {
            return Ok(key);
        }
        let number = self.next_guardian;
        self.next_guardian += 1;
        let (ours, theirs) = StdStream::pair()?;
        let post = Correspondent::open(
            ours,
            Inbox::default(),
            GUARDIAN_ORDERS_MAX,
            &mut self.tasks,
            self.words_sender.clone(),
            move |report| Word::Guardian { service, number, report },
            Word::GuardianGone { service, number },
        )?;
        if let Some(warden) = &self.warden {
            warden.send(&WardenOrder::Fork { guardian: number }, vec![theirs.into()]);
        }
        let key = (service, number);
        let (pid, current, unheard) = (None, None, None);
        self.guardians.insert(key, Guardian { number, warden, pid, post, current, unheard });
        Ok(key)
    }

    /// Lets idle guardians of the service's go: without us they end.
    fn let_go(&mut self, service: ServiceId, mut which: impl FnMut(&Guardian) -> bool) {
        let idle = self.guardians_of(service).filter(|(_, guardian)| guardian.is_idle());
        let gone: Vec<_> = idle.filter(|(_, it)| which(it)).map(|(key, _)| key).collect();
        let keeps = self.keeps();
        for key in gone {
            if let Some(guardian) = self.guardians.remove(&key).filter(|_| keeps) {
                guardian.post.send(&Order::Forget, Vec::new());
            }
        }
    }

    /// The first idle one is kept for the next start, which is the faster for it.
    pub(super) fn let_surplus_go(&mut self, service: ServiceId) {
        let mut kept = 0;
        self.let_go(service, |_| {
            kept += 1;
            kept > IDLE_GUARDIANS_MAX
        });
    }

    pub(super) fn fork_failed(&mut self, number: u64, errno: i32) {
        let found = self.guardians.iter().find(|(_, guardian)| guardian.number == number);
        let Some(key) = found.map(|(key, _)| *key) else {
            return;
        };
        let service = key.0;
        let lost = self.guardians.remove(&key).and_then(|guardian| guardian.current);
        if let Some((generation, command)) = lost {
            let failure = explain(&command, &io::Error::from_raw_os_error(errno));
            self.ready.push_back(Report::SpawnFailed { service, generation, failure });
        }
    }
}

impl Guardian {
    /// It runs nothing, and has said nothing that the loop has to hear first.
    const fn is_idle(&self) -> bool {
        self.current.is_none() && self.unheard.is_none()
    }
}
