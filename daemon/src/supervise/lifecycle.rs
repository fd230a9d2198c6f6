//! Starts, stops and redefinitions of services, in the order of their dependencies. Driven by the faces
//! (`up`, `keep`, `gateway`) and the control API. The order itself is decided in core.

use afresh_core::definition::Until;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::{Effect, Event, Input, Service};

use super::Supervise;
use super::machines::LifecycleRequest;
use crate::definition::Definition;

impl Supervise {
    /// Takes a service in; it is down until it is started.
    pub(crate) fn add(&mut self, definition: Definition, seed: u64) -> ServiceId {
        let id = self.machines.add(Service::new(definition.policy.clone(), seed));
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
        self.machines.set_policy(service, definition.policy.clone());
        self.memory.expect(&definition);
        self.checks.remove(service);
        if let Some(check) = definition.health.clone() {
            self.checks.add(service, check);
        }
        self.services.redefine(service, definition);
    }

    /// Forgets a service that is down; says whether it is. The record of its end is written first.
    pub(crate) fn forget(&mut self, service: ServiceId) -> bool {
        let is_down = !self.recorder.is_writing() && self.machines.remove(service);
        if is_down {
            self.checks.remove(service);
            self.instances.forget(service);
            self.services.remove(service);
        }
        is_down
    }

    /// Sets the services that a service depends on.
    pub(crate) fn set_needs(&mut self, service: ServiceId, needs: Vec<(ServiceId, Until)>) {
        self.machines.set_needs(service, needs);
    }

    /// Goes on with the counts of an earlier supervisor.
    pub(crate) fn resume(
        &mut self,
        service: ServiceId,
        generation: Generation,
        restarts: Option<u64>,
    ) {
        self.machines.resume(service, generation, restarts);
    }

    /// Starts, stops or retires services, each as soon as the order allows it.
    pub(crate) async fn request(&mut self, request: LifecycleRequest, services: Vec<ServiceId>) {
        for (id, input) in self.machines.request(request, services) {
            self.input_to(id, input).await;
        }
        self.advance().await;
    }

    /// Stops everything in order, for good.
    pub(crate) async fn shut_down(&mut self) {
        for (id, input) in self.machines.shut_down() {
            self.input_to(id, input).await;
        }
        self.advance().await;
    }

    /// Ends a stop that takes too long for the user: no instance is waited for any more.
    pub(crate) async fn hurry_up(&mut self) {
        self.machines.hurry_up();
        self.advance().await;
        self.input(&Input::HurryUp).await;
    }

    /// Records an event of a service that its machine does not know of.
    pub(crate) async fn announce(&mut self, service: ServiceId, event: Event) {
        self.perform(vec![(service, Effect::Tell(event))]).await;
    }
}
