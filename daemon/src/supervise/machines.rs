//! Owns the restart machines of all services, the order between them, and the clock they go by.
//! Driven by [`Supervise`](super::Supervise). Never performs an effect.

use afresh_core::definition::Until;
use afresh_core::fleet::Fleet;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::policy::Policy;
use afresh_core::service::{Effect, Input, Service};
use afresh_core::supervisor::Supervisor;
use afresh_core::time::Time;
use tokio::time::Instant;

/// The machines in core, and the moment from which they count.
pub(crate) struct Machines {
    supervisor: Supervisor,
    fleet: Fleet,
    start: Instant,
}

/// A change of several services, in the order of their dependencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LifecycleRequest {
    /// Start them and all that they need.
    Start,
    /// Stop them, dependents first. A start that waits is called off.
    Stop,
    /// The same, for services that are not defined any more.
    Retire,
}

impl Machines {
    pub(super) fn new(start: Instant) -> Self {
        Self { supervisor: Supervisor::default(), fleet: Fleet::default(), start }
    }

    /// The time by which the machines go.
    pub(crate) fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    /// The machine of a service.
    pub(crate) fn service(&self, id: ServiceId) -> Option<&Service> {
        self.supervisor.service(id)
    }

    /// All machines.
    pub(crate) fn services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.supervisor.services()
    }

    /// The ids of all services.
    pub(crate) fn ids(&self) -> Vec<ServiceId> {
        self.services().map(|(id, _)| id).collect()
    }

    /// Whether all services are down, and no request waits for its turn.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.supervisor.is_at_rest() && !self.fleet.is_waiting()
    }

    /// The services that the start of this one waits for.
    pub(crate) fn waits_for(&self, id: ServiceId) -> Vec<ServiceId> {
        self.fleet.waits_for(id, &self.supervisor)
    }

    /// The services that this one depends on.
    pub(crate) fn needs(&self, id: ServiceId) -> Vec<ServiceId> {
        self.fleet.needs(id).collect()
    }

    pub(super) fn add(&mut self, service: Service) -> ServiceId {
        self.supervisor.add(service)
    }

    /// Forgets a service that is down; says whether it was.
    pub(super) fn remove(&mut self, id: ServiceId) -> bool {
        let is_down = self.supervisor.remove(id);
        if is_down {
            self.fleet.remove(id);
        }
        is_down
    }

    pub(super) fn set_needs(&mut self, id: ServiceId, needs: Vec<(ServiceId, Until)>) {
        self.fleet.set(id, needs);
    }

    pub(super) fn set_policy(&mut self, id: ServiceId, policy: Policy) {
        self.supervisor.set_policy(id, policy);
    }

    pub(super) fn resume(&mut self, id: ServiceId, generation: Generation, restarts: Option<u64>) {
        self.supervisor.resume(id, generation, restarts);
    }

    /// Moves the beginning of the clock before all that adopted instances know of.
    pub(super) fn begin_earlier(&mut self, by: std::time::Duration) {
        self.start = self.start.checked_sub(by).unwrap_or(self.start);
    }

    pub(super) fn handle(&mut self, id: ServiceId, input: Input) -> Vec<(ServiceId, Effect)> {
        let now = self.now();
        self.supervisor.handle(now, id, input)
    }

    pub(super) fn handle_all(&mut self, input: &Input) -> Vec<(ServiceId, Effect)> {
        let now = self.now();
        self.supervisor.handle_all(now, input)
    }

    pub(super) fn wake(&mut self) -> Vec<(ServiceId, Effect)> {
        let now = self.now();
        self.supervisor.wake(now)
    }

    /// When [`Machines::wake`] is to be called.
    pub(super) fn next_wakeup(&mut self) -> Option<Instant> {
        self.supervisor.next_wakeup().map(|at| self.start + at.since_start())
    }

    /// Registers a request with the order. Returns the inputs for services without one, such as those
    /// of `afresh keep`: they wait for no other.
    pub(super) fn request(
        &mut self,
        request: LifecycleRequest,
        services: Vec<ServiceId>,
    ) -> Vec<(ServiceId, Input)> {
        let (ordered, others): (Vec<_>, Vec<_>) =
            services.into_iter().partition(|id| self.fleet.contains(*id));
        let input = match request {
            LifecycleRequest::Start => {
                self.fleet.start(ordered);
                Input::Start
            }
            LifecycleRequest::Stop => {
                self.fleet.stop(ordered);
                Input::Stop
            }
            LifecycleRequest::Retire => {
                self.fleet.retire(ordered);
                Input::Retire
            }
        };
        others.into_iter().map(|id| (id, input.clone())).collect()
    }

    /// Registers the end of all services with the order. Returns the inputs for services without one.
    pub(super) fn shut_down(&mut self) -> Vec<(ServiceId, Input)> {
        self.fleet.shutdown();
        let mut others = self.ids();
        others.retain(|id| !self.fleet.contains(*id));
        others.into_iter().map(|id| (id, Input::Shutdown { within: None })).collect()
    }

    pub(super) fn hurry_up(&mut self) {
        self.fleet.hurry_up();
    }

    /// The inputs that the order allows now.
    pub(super) fn due(&mut self) -> Vec<(ServiceId, Input)> {
        match self.fleet.is_waiting() {
            true => self.fleet.due(&self.supervisor),
            false => Vec::new(),
        }
    }
}
