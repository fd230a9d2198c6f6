//! Owns the restart machines of all services of one supervisor, and the order between them: a dependency comes up
//! before its dependents, and goes down after them.
//!
//! Driven by the supervisor's loop, which hands it inputs and asks [`Fleet::due`] after each, and by the control
//! API, which carries out a [`RestartPlan`]. Never performs an effect.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::Until;
use crate::id::ServiceId;
use crate::service::{Effect, Input, Service, Want};
use crate::time::Time;

/// The services of one supervisor.
#[derive(Debug, Default)]
pub struct Fleet {
    members: BTreeMap<ServiceId, FleetMember>,
    /// Ids are never given twice.
    next_id: u32,
    /// A shutdown has begun: nothing is started any more.
    is_closing: bool,
    /// The earliest moment that a service waits for, where nothing has happened to one since it was looked for.
    /// It is asked for with each message that passes, and those happen to no service.
    wakeup: Option<Option<Time>>,
}

#[derive(Debug)]
struct FleetMember {
    service: Service,
    /// The services that it needs; none where it has no place in the order.
    depends_on: Option<Vec<(ServiceId, Until)>>,
    pending: Option<Transition>,
}

/// A change of services, which each of them gets as an input as soon as the order allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Start them, and all that they need.
    Start,
    /// Stop them; those among them that need others of them go first. A start that waits is called off.
    Stop,
    /// The same, for services that are not defined any more.
    Retire,
    /// The same for good: nothing is started any more.
    Shutdown,
}

impl Transition {
    const fn input(self) -> Input {
        match self {
            Self::Start => Input::Start,
            Self::Stop => Input::Stop,
            Self::Retire => Input::Retire,
            Self::Shutdown => Input::Shutdown { within: None },
        }
    }
}

impl FleetMember {
    fn needs(&self) -> impl Iterator<Item = ServiceId> {
        self.depends_on.iter().flatten().map(|(needed, _)| *needed)
    }
}

impl Fleet {
    /// Takes a service in, and says by which id it is called from now on.
    pub fn add(&mut self, service: Service) -> ServiceId {
        let id = ServiceId(self.next_id);
        self.next_id += 1;
        self.wakeup = None;
        self.members.insert(id, FleetMember { service, depends_on: None, pending: None });
        id
    }

    /// Forgets a service that is down; says whether it was.
    pub fn remove(&mut self, id: ServiceId) -> bool {
        let is_down = self.service(id).is_some_and(|service| service.rest().is_some());
        if is_down {
            self.wakeup = None;
            self.members.remove(&id);
        }
        is_down
    }

    /// Gives a service its place in the order, or another one.
    pub fn set_needs(&mut self, id: ServiceId, needs: Vec<(ServiceId, Until)>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.depends_on = Some(needs);
        }
    }

    /// One service.
    pub fn service(&self, id: ServiceId) -> Option<&Service> {
        self.members.get(&id).map(|member| &member.service)
    }

    /// One service, to which something happens.
    pub fn service_mut(&mut self, id: ServiceId) -> Option<&mut Service> {
        self.wakeup = None;
        self.members.get_mut(&id).map(|member| &mut member.service)
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.members.iter().map(|(id, member)| (*id, &member.service))
    }

    /// The ids of all services.
    pub fn ids(&self) -> Vec<ServiceId> {
        self.members.keys().copied().collect()
    }

    /// Hands an input to one service.
    pub fn handle(&mut self, now: Time, id: ServiceId, input: Input) -> Vec<(ServiceId, Effect)> {
        let effects = self.service_mut(id).map(|service| service.handle(now, input));
        effects.unwrap_or_default().into_iter().map(|effect| (id, effect)).collect()
    }

    /// Hands the same input to every service.
    pub fn handle_all(&mut self, now: Time, input: &Input) -> Vec<(ServiceId, Effect)> {
        self.ids().into_iter().flat_map(|id| self.handle(now, id, input.clone())).collect()
    }

    /// Wakes the services whose time has come.
    pub fn wake(&mut self, now: Time) -> Vec<(ServiceId, Effect)> {
        let mut due = self.ids();
        due.retain(|id| self.members[id].service.next_wakeup().is_some_and(|at| at <= now));
        due.into_iter().flat_map(|id| self.handle(now, id, Input::Wakeup)).collect()
    }

    /// When `wake` wants to be called.
    pub fn next_wakeup(&mut self) -> Option<Time> {
        let members = &self.members;
        let earliest = || members.values().filter_map(|member| member.service.next_wakeup()).min();
        *self.wakeup.get_or_insert_with(earliest)
    }

    /// Whether every service is down, with nothing planned.
    pub fn is_at_rest(&self) -> bool {
        let is_at_rest =
            |member: &FleetMember| member.service.rest().is_some() && member.pending.is_none();
        self.members.values().all(is_at_rest)
    }

    /// Registers a change with the order. Returns the inputs for services without a place in it: they wait for no
    /// other.
    pub fn request(
        &mut self,
        transition: Transition,
        ids: Vec<ServiceId>,
    ) -> Vec<(ServiceId, Input)> {
        let is_ordered =
            |id: &ServiceId| self.members.get(id).is_some_and(|member| member.depends_on.is_some());
        let (mut left, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_ordered);
        self.is_closing |= transition == Transition::Shutdown;
        if self.is_closing && transition != Transition::Shutdown {
            left.clear();
        }
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            let member = self.members.get_mut(&id).filter(|member| member.depends_on.is_some());
            let Some(member) = member.filter(|_| seen.insert(id)) else { continue };
            member.pending = Some(transition);
            if transition == Transition::Start {
                left.extend(member.needs());
            }
        }
        others.into_iter().map(|id| (id, transition.input())).collect()
    }

    /// Drops the order: every pending input is due now.
    pub fn hurry_up(&mut self) {
        self.members
            .values_mut()
            .filter_map(|member| member.depends_on.as_mut())
            .for_each(Vec::clear);
    }

    /// What the order allows now.
    pub fn due(&mut self) -> Vec<(ServiceId, Input)> {
        let is_due = |(id, member): (&ServiceId, &FleetMember)| {
            let transition = member.pending?;
            let waits = match transition {
                Transition::Start => !self.missing(*id).is_empty(),
                Transition::Stop | Transition::Retire | Transition::Shutdown => self.is_needed(*id),
            };
            (!waits).then_some((*id, transition.input()))
        };
        let due: Vec<(ServiceId, Input)> = self.members.iter().filter_map(is_due).collect();
        for (id, _) in &due {
            if let Some(member) = self.members.get_mut(id) {
                member.pending = None;
            }
        }
        due
    }

    /// Whether a service is on its way out because it is not defined any more.
    pub fn is_retiring(&self, id: ServiceId) -> bool {
        self.members.get(&id).is_some_and(|FleetMember { service, pending, .. }| {
            *pending == Some(Transition::Retire) || service.want() == Want::Gone
        })
    }

    /// What a service waits for, where its start does.
    pub fn waits_for(&self, id: ServiceId) -> Vec<ServiceId> {
        match self.members.get(&id).and_then(|member| member.pending) {
            Some(Transition::Start) => self.missing(id),
            _ => Vec::new(),
        }
    }

    /// The services that this one needs.
    pub fn needs(&self, id: ServiceId) -> Vec<ServiceId> {
        self.members.get(&id).into_iter().flat_map(FleetMember::needs).collect()
    }

    fn missing(&self, id: ServiceId) -> Vec<ServiceId> {
        let depends_on = self.members.get(&id).and_then(|member| member.depends_on.as_ref());
        let is_missing = |(needed, until): &&(ServiceId, Until)| {
            let needed = self.members.get(needed);
            needed.is_some_and(|it| it.depends_on.is_some() && !it.service.has_reached(*until))
        };
        let missing = depends_on.into_iter().flatten().filter(is_missing);
        missing.map(|(needed, _)| *needed).collect()
    }

    /// Whether a dependent that is to go too is still there.
    fn is_needed(&self, id: ServiceId) -> bool {
        let dependents = self.members.values().filter(|member| member.needs().any(|it| it == id));
        dependents.into_iter().any(|FleetMember { service, pending, .. }| {
            let goes = match pending {
                Some(Transition::Stop | Transition::Retire | Transition::Shutdown) => true,
                // It got its input, and is stopping.
                None => self.is_closing || service.is_stopping(),
                Some(Transition::Start) => false,
            };
            goes && service.rest().is_none()
        })
    }
}

/// The restart of several services, step by step: each comes after all that it depends on, directly or
/// not. A service whose dependency did not come up again is left as it is.
#[derive(Debug)]
pub struct RestartPlan<K> {
    steps: std::vec::IntoIter<Vec<K>>,
    /// The transitive dependencies of every known service.
    needs: BTreeMap<K, BTreeSet<K>>,
    restarted: Vec<K>,
    failed: Vec<K>,
}

/// One service of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartStep<K> {
    /// Restart it, and report to the plan with [`RestartPlan::done`].
    Restart(K),
    /// Leave it as it is: a service that it depends on is not up.
    Skip {
        /// The service.
        service: K,
        /// The dependency that is not up.
        needed: K,
    },
}

impl<K: Clone + Ord> RestartPlan<K> {
    /// The plan for these services, in their order within a step. `depends_on` holds the direct
    /// dependencies of every known service. Services in a circle come in one step.
    pub fn new(chosen: &[K], depends_on: &BTreeMap<K, Vec<K>>) -> Self {
        let needs: BTreeMap<K, BTreeSet<K>> = depends_on
            .keys()
            .map(|service| (service.clone(), closure(service, depends_on)))
            .collect();
        let mut steps = Vec::new();
        let mut left = chosen.to_vec();
        while !left.is_empty() {
            let is_next = |service: &K| {
                let needed = needs.get(service);
                !left.iter().any(|other| needed.is_some_and(|needed| needed.contains(other)))
            };
            let (mut next, mut later): (Vec<K>, Vec<K>) = left.iter().cloned().partition(is_next);
            if next.is_empty() {
                std::mem::swap(&mut next, &mut later);
            }
            steps.push(next);
            left = later;
        }
        Self { steps: steps.into_iter(), needs, restarted: Vec::new(), failed: Vec::new() }
    }

    /// The next step, once every service of the last one was reported; `None` after the last step.
    pub fn next_step(&mut self) -> Option<Vec<RestartStep<K>>> {
        let step = self.steps.next()?;
        let step: Vec<RestartStep<K>> = (step.into_iter())
            .map(|service| match self.failed.iter().find(|it| self.depends(&service, it)) {
                Some(needed) => RestartStep::Skip { needed: needed.clone(), service },
                None => RestartStep::Restart(service),
            })
            .collect();
        for skipped in &step {
            if let RestartStep::Skip { service, .. } = skipped {
                self.failed.push(service.clone());
            }
        }
        Some(step)
    }

    /// Reports whether a service of the step came up again.
    pub fn done(&mut self, service: K, is_up: bool) {
        if is_up { &mut self.restarted } else { &mut self.failed }.push(service);
    }

    /// Whether a service depends on another one, directly or not.
    pub fn depends(&self, service: &K, on: &K) -> bool {
        self.needs.get(service).is_some_and(|needs| needs.contains(on))
    }

    /// The services among these that depend on a restarted one and were no part of the plan.
    pub fn left_alone(&self, running: impl IntoIterator<Item = K>) -> Vec<K> {
        let is_left = |service: &K| {
            !self.restarted.contains(service)
                && !self.failed.contains(service)
                && self.restarted.iter().any(|it| self.depends(service, it))
        };
        running.into_iter().filter(is_left).collect()
    }
}

/// All that a service depends on, directly or not.
fn closure<K: Clone + Ord>(service: &K, depends_on: &BTreeMap<K, Vec<K>>) -> BTreeSet<K> {
    let mut found = BTreeSet::new();
    let mut left = vec![service];
    while let Some(next) = left.pop() {
        for needed in depends_on.get(next).into_iter().flatten() {
            if found.insert(needed.clone()) {
                left.push(needed);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Generation;
    use crate::policy::Policy;
    use crate::service::Exit;
    use crate::stop_ladder::StopStep;

    /// Services by number, with the outside played by the test.
    struct World {
        fleet: Fleet,
        now: Time,
        /// What happened, in order: `+0` for a start, `-0` for the beginning of a stop.
        log: Vec<String>,
    }

    impl World {
        fn new(needs: &[&[(u32, Until)]]) -> Self {
            let mut world = Self { fleet: Fleet::default(), now: Time::ZERO, log: Vec::new() };
            for needs in needs {
                let id = world.fleet.add(Service::new(Policy::default(), 1));
                let needs = needs.iter().map(|(id, until)| (ServiceId(*id), *until)).collect();
                world.fleet.set_needs(id, needs);
            }
            world
        }

        fn input(&mut self, id: u32, input: Input) {
            let effects = self.fleet.handle(self.now, ServiceId(id), input);
            for (id, effect) in effects {
                match effect {
                    Effect::Spawn(_) => self.log.push(format!("+{}", id.0)),
                    Effect::Stop(StopStep::CloseStdin, _) => self.log.push(format!("-{}", id.0)),
                    _ => {}
                }
            }
            self.settle();
        }

        fn request(&mut self, transition: Transition, ids: &[u32]) {
            let ids = ids.iter().copied().map(ServiceId).collect();
            assert_eq!(self.fleet.request(transition, ids), []);
            self.settle();
        }

        fn settle(&mut self) {
            for (id, input) in self.fleet.due() {
                self.input(id.0, input);
            }
        }

        fn spawned(&mut self, id: u32) {
            let generation = self.generation(id);
            self.input(id, Input::Spawned(generation, 100 + id));
        }

        fn ready(&mut self, id: u32) {
            let generation = self.generation(id);
            self.input(id, Input::Ready(generation));
        }

        fn exited(&mut self, id: u32, exit: Exit) {
            let generation = self.generation(id);
            self.input(id, Input::Exited(generation, exit));
        }

        fn generation(&self, id: u32) -> Generation {
            self.fleet.service(ServiceId(id)).unwrap().generation()
        }

        fn log(&mut self) -> String {
            std::mem::take(&mut self.log).join(" ")
        }
    }

    const READY: Until = Until::Ready;
    const STARTED: Until = Until::Started;

    #[test]
    fn what_is_needed_comes_first() {
        // 0 needs 1 ready and 2 started; 1 needs 2 ready.
        let mut world = World::new(&[&[(1, READY), (2, STARTED)], &[(2, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        assert_eq!(world.log(), "+2");
        assert_eq!(world.fleet.waits_for(ServiceId(0)), [1, 2].map(ServiceId));
        world.spawned(2);
        assert_eq!(world.log(), "");
        world.ready(2);
        assert_eq!(world.log(), "+1");
        world.spawned(1);
        world.ready(1);
        assert_eq!(world.log(), "+0");
        assert_eq!(world.fleet.due(), []);
    }

    #[test]
    fn one_that_has_done_its_work_is_not_missing() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        world.spawned(1);
        world.exited(1, Exit::Code(0));
        assert_eq!(world.log(), "+1 +0");
    }

    #[test]
    fn one_that_fails_keeps_the_others_waiting_until_it_is_well() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        world.spawned(1);
        world.exited(1, Exit::Code(3));
        assert_eq!(world.log(), "+1");
        world.now = Time::after_start(std::time::Duration::from_secs(10));
        world.input(1, Input::Wakeup);
        world.spawned(1);
        world.ready(1);
        assert_eq!(world.log(), "+1 +0");
    }

    #[test]
    fn all_go_in_the_opposite_order() {
        let mut world = World::new(&[&[(1, READY)], &[(2, READY)], &[]]);
        world.request(Transition::Start, &[0, 1, 2]);
        for id in [2, 1, 0] {
            world.spawned(id);
            world.ready(id);
        }
        assert_eq!(world.log(), "+2 +1 +0");
        world.request(Transition::Shutdown, &[0, 1, 2]);
        assert_eq!(world.log(), "-0");
        world.exited(0, Exit::Signal(15));
        assert_eq!(world.log(), "-1");
        world.fleet.hurry_up();
        world.settle();
        assert_eq!(world.log(), "-2");
        world.exited(2, Exit::Signal(15));
        world.exited(1, Exit::Signal(15));
        assert!(world.fleet.is_at_rest());
        world.request(Transition::Start, &[0]);
        assert_eq!(world.log(), "", "nothing comes after a shutdown");
    }

    #[test]
    fn a_stop_of_one_leaves_the_others_alone() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        for id in [1, 0] {
            world.spawned(id);
            world.ready(id);
        }
        world.log();
        world.request(Transition::Stop, &[1]);
        assert_eq!(world.log(), "-1");
        assert_eq!(world.fleet.needs(ServiceId(0)), [ServiceId(1)]);
    }

    #[test]
    fn a_start_that_waits_can_be_called_off() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        world.request(Transition::Stop, &[0]);
        world.spawned(1);
        world.ready(1);
        assert_eq!(world.log(), "+1");
    }

    #[test]
    fn a_service_that_waits_to_be_retired_is_on_its_way_out() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.request(Transition::Start, &[0]);
        for id in [1, 0] {
            world.spawned(id);
            world.ready(id);
        }
        world.request(Transition::Retire, &[0, 1]);
        assert_eq!(world.log(), "+1 +0 -0");
        assert!([0, 1].map(ServiceId).into_iter().all(|id| world.fleet.is_retiring(id)));
        world.request(Transition::Start, &[1]);
        assert!(!world.fleet.is_retiring(ServiceId(1)), "it is defined again");
    }

    fn plan(chosen: &[&'static str]) -> RestartPlan<&'static str> {
        let depends_on = [
            ("web", vec!["api"]),
            ("api", vec!["db"]),
            ("db", vec![]),
            ("job", vec!["db"]),
            ("alone", vec![]),
        ];
        RestartPlan::new(chosen, &BTreeMap::from(depends_on))
    }

    fn restart(services: &[&'static str]) -> Option<Vec<RestartStep<&'static str>>> {
        Some(services.iter().map(|service| RestartStep::Restart(*service)).collect())
    }

    #[test]
    fn a_restart_begins_with_what_the_others_need() {
        // `web` needs `db` by way of `api`, which is not restarted.
        let mut plan = plan(&["web", "db", "alone"]);
        assert_eq!(plan.next_step(), restart(&["db", "alone"]));
        plan.done("db", true);
        plan.done("alone", true);
        assert_eq!(plan.next_step(), restart(&["web"]));
        plan.done("web", true);
        assert_eq!(plan.next_step(), None);
        assert_eq!(plan.left_alone(["web", "api", "job", "alone"]), ["api", "job"]);
    }

    #[test]
    fn what_depends_on_a_service_that_is_not_up_is_left_as_it_is() {
        let mut plan = plan(&["web", "api", "db", "job"]);
        assert_eq!(plan.next_step(), restart(&["db"]));
        plan.done("db", true);
        assert_eq!(plan.next_step(), restart(&["api", "job"]));
        plan.done("api", false);
        plan.done("job", true);
        let skipped = RestartStep::Skip { service: "web", needed: "api" };
        assert_eq!(plan.next_step(), Some(vec![skipped]));
        assert_eq!(plan.left_alone(["web"]), [""; 0]);
    }

    #[test]
    fn a_circle_has_no_order_and_an_end() {
        let depends_on = BTreeMap::from([("a", vec!["b"]), ("b", vec!["a"])]);
        let mut plan = RestartPlan::new(&["a", "b"], &depends_on);
        assert_eq!(plan.next_step(), restart(&["a", "b"]));
        assert_eq!(plan.next_step(), None);
    }
}
