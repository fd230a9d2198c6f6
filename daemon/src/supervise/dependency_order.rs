//! Services that need one another: they are started and stopped in the order that core says. Those that
//! were never ordered, as of `afresh keep`, wait for nobody.

use afresh_core::definition::Until;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::Input;

use super::Supervise;
use crate::definition::Definition;

impl Supervise {
    /// Says what a service needs.
    pub(crate) fn order(&mut self, service: ServiceId, needs: Vec<(ServiceId, Until)>) {
        self.fleet.set(service, needs);
    }

    /// Goes on with the counts of an earlier supervisor.
    pub(crate) fn resume(
        &mut self,
        service: ServiceId,
        generation: Generation,
        restarts: Option<u64>,
    ) {
        self.core.resume(service, generation, restarts);
    }

    /// Starts services and all that they need, as soon as the order allows it.
    pub(crate) async fn start(&mut self, services: Vec<ServiceId>) {
        let (ordered, others) = self.by_order(services);
        self.fleet.start(ordered);
        for id in others {
            self.input_to(id, Input::Start).await;
        }
        self.advance().await;
    }

    /// Stops services, those that need others of them first. A start that waits is called off.
    pub(crate) async fn stop(&mut self, services: Vec<ServiceId>) {
        let (ordered, others) = self.by_order(services);
        self.fleet.stop(ordered);
        for id in others {
            self.input_to(id, Input::Stop).await;
        }
        self.advance().await;
    }

    /// Stops services that are not defined any more, in the same order.
    pub(crate) async fn retire(&mut self, services: Vec<ServiceId>) {
        let (ordered, others) = self.by_order(services);
        self.fleet.retire(ordered);
        for id in others {
            self.input_to(id, Input::Retire).await;
        }
        self.advance().await;
    }

    fn by_order(&self, services: Vec<ServiceId>) -> (Vec<ServiceId>, Vec<ServiceId>) {
        services.into_iter().partition(|id| self.fleet.contains(*id))
    }

    /// Stops everything in order, for good.
    pub(crate) async fn shut_down(&mut self) {
        self.fleet.shutdown();
        self.advance().await;
    }

    /// Whoever waits for a stop has lost patience.
    pub(crate) async fn hurry_up(&mut self) {
        self.fleet.hurry_up();
        self.advance().await;
        self.input(&Input::HurryUp).await;
    }

    /// Whether all is down, and nobody is to be told anything.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.core.is_at_rest() && !self.fleet.is_waiting()
    }

    /// The names of those that a service waits for.
    pub(crate) fn waits_for(&self, service: ServiceId) -> Vec<String> {
        let ids = self.fleet.waits_for(service, &self.core);
        ids.into_iter().map(|id| self.name(id)).collect()
    }

    /// The names of those that a service needs.
    pub(crate) fn needs(&self, service: ServiceId) -> Vec<String> {
        self.fleet.needs(service).map(|id| self.name(id)).collect()
    }

    /// Gives a service another definition; its next instance is by that.
    pub(crate) fn redefine(&mut self, service: ServiceId, definition: Definition) {
        self.core.set_policy(service, definition.policy.clone());
        self.scales.expect(definition.memory_bytes_max);
        self.checks.remove(service);
        if let Some(check) = definition.health.clone() {
            self.checks.add(service, check);
        }
        if let Some(kept) = self.services.get_mut(&service) {
            kept.definition = definition;
        }
    }

    /// Forgets a service that is down; says whether it is. What is to be told of its end is told first.
    pub(crate) fn forget(&mut self, service: ServiceId) -> bool {
        let is_down = self.writing.is_none() && self.core.remove(service);
        if is_down {
            self.fleet.remove(service);
            self.checks.remove(service);
            self.services.remove(&service);
        }
        is_down
    }

    /// What the order allows now becomes inputs; says whether there is any.
    pub(super) fn follow_order(&mut self) -> bool {
        if !self.fleet.is_waiting() {
            return false;
        }
        let due = self.fleet.due(&self.core);
        let is_any = !due.is_empty();
        self.follow_ups.extend(due);
        is_any
    }
}
