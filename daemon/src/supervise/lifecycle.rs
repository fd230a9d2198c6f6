//! Services come and go: definitions, starts and stops in the order of their dependencies. Driven by the faces (`up`,
//! `keep`, `gateway`) and the control API. The order itself is decided in core.

use afresh_core::audit::Actor;
use afresh_core::fleet::Transition;
use afresh_core::id::ServiceId;
use afresh_core::service::{Effect, Event, Input, Service};

use super::Supervisor;
use crate::definition::Definition;

impl Supervisor {
    /// Takes a service in; it is down until it is started.
    pub(crate) fn add(&mut self, definition: Definition, seed: u64) -> ServiceId {
        let id = self.fleet.add(Service::new(definition.policy.clone(), seed));
        if let Some(check) = definition.health.clone() {
            self.checks.add(id, check);
        }
        self.memory.expect(&definition);
        self.processes.introduce(id, &definition.name);
        self.services.add(id, definition);
        id
    }

    /// Gives a service another definition; its next instance is by that.
    pub(crate) fn redefine(&mut self, service: ServiceId, definition: Definition) {
        if let Some(machine) = self.fleet.service_mut(service) {
            machine.set_policy(definition.policy.clone());
        }
        self.memory.expect(&definition);
        self.checks.remove(service);
        if let Some(check) = definition.health.clone() {
            self.checks.add(service, check);
        }
        self.services.redefine(service, definition);
    }

    /// Forgets a service that is down; says whether it is. The record of its end is written first.
    pub(crate) fn forget(&mut self, service: ServiceId) -> bool {
        let is_down = self.recorder.writing.is_none() && self.fleet.remove(service);
        if is_down {
            self.checks.remove(service);
            self.instances.lingering.remove(&service);
            self.services.remove(service);
        }
        is_down
    }

    /// Starts, stops or retires services, each as soon as the order allows it; `by` is recorded when one has stopped.
    pub(crate) async fn request(
        &mut self,
        transition: Transition,
        services: Vec<ServiceId>,
        by: &Actor,
    ) {
        if transition != Transition::Start {
            services.iter().for_each(|id| self.services.note_stop(*id, by));
        }
        for (id, input) in self.fleet.request(transition, services) {
            self.input_to(id, input).await;
        }
        self.advance().await;
    }

    /// Ends a stop that takes too long for the user: no instance is waited for any more.
    pub(crate) async fn hurry_up(&mut self) {
        self.fleet.hurry_up();
        self.advance().await;
        self.input(&Input::HurryUp).await;
    }

    /// Records an event of a service that its machine does not know of.
    pub(crate) async fn announce(&mut self, service: ServiceId, event: Event) {
        self.perform(vec![(service, Effect::Tell(event))]).await;
    }
}
