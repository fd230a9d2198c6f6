//! Owns the machines of all services of one supervisor: routes inputs to them, and knows the next wakeup.
//!
//! Driven by the daemon's loop. Never orders starts and stops; that is `fleet.rs`.

use std::collections::BTreeMap;

use crate::id::{Generation, ServiceId};
use crate::policy::Policy;
use crate::service::{Effect, Input, Service};
use crate::time::Time;

/// The machines of all services.
#[derive(Debug, Default)]
pub struct Supervisor {
    services: BTreeMap<ServiceId, Service>,
    /// Ids are never given twice.
    next: u32,
    /// The earliest moment that a service waits for, where nothing has happened to one since it was looked for.
    /// It is asked for with each message that passes, and those happen to no service.
    wakeup: Option<Option<Time>>,
}

impl Supervisor {
    /// Takes a service in, and says by which id it is called from now on.
    pub fn add(&mut self, service: Service) -> ServiceId {
        let id = ServiceId(self.next);
        self.next += 1;
        self.wakeup = None;
        self.services.insert(id, service);
        id
    }

    /// Forgets a service that is down; says whether it was.
    pub fn remove(&mut self, id: ServiceId) -> bool {
        let is_down = self.service(id).is_some_and(|service| service.rest().is_some());
        if is_down {
            self.wakeup = None;
            self.services.remove(&id);
        }
        is_down
    }

    /// Lets a service go on with the counts of an earlier supervisor.
    pub fn resume(&mut self, id: ServiceId, generation: Generation, restarts: Option<u64>) {
        if let Some(service) = self.service_mut(id) {
            service.resume(generation, restarts);
        }
    }

    /// Changes the rules of a service; they hold from the next thing that happens to it.
    pub fn set_policy(&mut self, id: ServiceId, policy: Policy) {
        if let Some(service) = self.service_mut(id) {
            service.set_policy(policy);
        }
    }

    /// Hands an input to one service.
    pub fn handle(&mut self, now: Time, id: ServiceId, input: Input) -> Vec<(ServiceId, Effect)> {
        let effects = self.service_mut(id).map(|service| service.handle(now, input));
        effects.unwrap_or_default().into_iter().map(|effect| (id, effect)).collect()
    }

    /// Hands the same input to every service.
    pub fn handle_all(&mut self, now: Time, input: &Input) -> Vec<(ServiceId, Effect)> {
        let ids: Vec<ServiceId> = self.services.keys().copied().collect();
        ids.into_iter().flat_map(|id| self.handle(now, id, input.clone())).collect()
    }

    /// Wakes the services whose time has come.
    pub fn wake(&mut self, now: Time) -> Vec<(ServiceId, Effect)> {
        let due = |service: &Service| service.next_wakeup().is_some_and(|at| at <= now);
        let ids: Vec<ServiceId> =
            self.services.iter().filter(|(_, service)| due(service)).map(|(id, _)| *id).collect();
        ids.into_iter().flat_map(|id| self.handle(now, id, Input::Wakeup)).collect()
    }

    /// When `wake` wants to be called.
    pub fn next_wakeup(&mut self) -> Option<Time> {
        let services = &self.services;
        let earliest = || services.values().filter_map(Service::next_wakeup).min();
        *self.wakeup.get_or_insert_with(earliest)
    }

    /// Whether every service is down, with nothing planned.
    pub fn is_at_rest(&self) -> bool {
        self.services.values().all(|service| service.rest().is_some())
    }

    /// One service.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        self.services.get(&id)
    }

    /// One service, to which something happens.
    fn service_mut(&mut self, id: ServiceId) -> Option<&mut Service> {
        self.wakeup = None;
        self.services.get_mut(&id)
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.services.iter().map(|(id, service)| (*id, service))
    }
}
