//! All services of one supervisor: who is meant by an input, and when to wake up next.

use std::collections::BTreeMap;

use crate::id::{Generation, ServiceId};
use crate::service::{Effect, Input, Service};
use crate::time::Time;

/// The machines of all services.
#[derive(Debug, Default)]
pub struct Supervisor {
    services: BTreeMap<ServiceId, Service>,
}

impl Supervisor {
    /// Takes a service in, and says by which id it is called from now on.
    pub fn add(&mut self, service: Service) -> ServiceId {
        let id = ServiceId(u32::try_from(self.services.len()).expect("fewer than 2^32 services"));
        self.services.insert(id, service);
        id
    }

    /// Goes on with the counts of the supervisor before, of one service.
    pub fn resume(&mut self, id: ServiceId, generation: Generation, restarts: u64) {
        if let Some(service) = self.services.get_mut(&id) {
            service.resume(generation, restarts);
        }
    }

    /// Hands an input to one service.
    pub fn handle(&mut self, now: Time, id: ServiceId, input: Input) -> Vec<(ServiceId, Effect)> {
        let effects = self.services.get_mut(&id).map(|service| service.handle(now, input));
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
    pub fn next_wakeup(&self) -> Option<Time> {
        self.services.values().filter_map(Service::next_wakeup).min()
    }

    /// Whether every service is down, with nothing planned.
    pub fn is_at_rest(&self) -> bool {
        self.services.values().all(|service| service.rest().is_some())
    }

    /// One service.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        self.services.get(&id)
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.services.iter().map(|(id, service)| (*id, service))
    }
}
