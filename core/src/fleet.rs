//! Owns the order in which services start, stop and restart: a dependency comes up before its
//! dependents, and goes down after them.
//!
//! Driven by the supervisor's loop, which asks [`Fleet::due`] after every input, and by the control API,
//! which carries out a [`RestartPlan`]. Never owns a service: it reads the machines and returns their inputs.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::Until;
use crate::id::ServiceId;
use crate::service::Input;
use crate::supervisor::Supervisor;

/// The order of the services of one supervisor.
#[derive(Debug, Default)]
pub struct Fleet {
    members: BTreeMap<ServiceId, FleetMember>,
    /// A shutdown has begun: nothing is started any more.
    is_closing: bool,
}

#[derive(Debug, Default)]
struct FleetMember {
    depends_on: Vec<(ServiceId, Until)>,
    pending: Option<Transition>,
}

/// An input that a service gets as soon as the order allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Start,
    Stop,
    Retire,
    Shutdown,
}

impl Fleet {
    /// Takes a service in, or changes what it needs. Services that are not members are not waited for.
    pub fn set(&mut self, id: ServiceId, depends_on: Vec<(ServiceId, Until)>) {
        self.members.entry(id).or_default().depends_on = depends_on;
    }

    /// Whether a service was taken in.
    pub fn contains(&self, id: ServiceId) -> bool {
        self.members.contains_key(&id)
    }

    /// Forgets a service.
    pub fn remove(&mut self, id: ServiceId) {
        self.members.remove(&id);
    }

    /// These are to be up, and all that they need.
    pub fn start(&mut self, ids: impl IntoIterator<Item = ServiceId>) {
        if self.is_closing {
            return;
        }
        let mut left: Vec<ServiceId> = ids.into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            let Some(member) = self.members.get_mut(&id).filter(|_| seen.insert(id)) else {
                continue;
            };
            member.pending = Some(Transition::Start);
            left.extend(member.depends_on.iter().map(|(needed, _)| *needed));
        }
    }

    /// These are to be down; those among them that need others of them go first. Starts of theirs that
    /// wait are called off.
    pub fn stop(&mut self, ids: impl IntoIterator<Item = ServiceId>) {
        self.set_pending(ids, Transition::Stop);
    }

    /// The same, for services that are not defined any more.
    pub fn retire(&mut self, ids: impl IntoIterator<Item = ServiceId>) {
        self.set_pending(ids, Transition::Retire);
    }

    fn set_pending(&mut self, ids: impl IntoIterator<Item = ServiceId>, transition: Transition) {
        for id in ids {
            if let Some(member) = self.members.get_mut(&id).filter(|_| !self.is_closing) {
                member.pending = Some(transition);
            }
        }
    }

    /// All are to be down, and stay so.
    pub fn shutdown(&mut self) {
        self.is_closing = true;
        for member in self.members.values_mut() {
            member.pending = Some(Transition::Shutdown);
        }
    }

    /// Drops the order: every pending input is due now.
    pub fn hurry_up(&mut self) {
        self.members.values_mut().for_each(|member| member.depends_on.clear());
    }

    /// What the order allows now.
    pub fn due(&mut self, services: &Supervisor) -> Vec<(ServiceId, Input)> {
        let is_due = |(id, member): (&ServiceId, &FleetMember)| {
            let input = match member.pending? {
                Transition::Start if !self.missing(*id, services).is_empty() => return None,
                Transition::Start => Input::Start,
                Transition::Stop | Transition::Retire | Transition::Shutdown
                    if self.is_needed(*id, services) =>
                {
                    return None;
                }
                Transition::Stop => Input::Stop,
                Transition::Retire => Input::Retire,
                Transition::Shutdown => Input::Shutdown { within: None },
            };
            Some((*id, input))
        };
        let due: Vec<(ServiceId, Input)> = self.members.iter().filter_map(is_due).collect();
        for (id, _) in &due {
            if let Some(member) = self.members.get_mut(id) {
                member.pending = None;
            }
        }
        due
    }

    /// What a service waits for, where its start does.
    pub fn waits_for(&self, id: ServiceId, services: &Supervisor) -> Vec<ServiceId> {
        match self.members.get(&id).and_then(|member| member.pending) {
            Some(Transition::Start) => self.missing(id, services),
            _ => Vec::new(),
        }
    }

    /// Whether an input is still pending.
    pub fn is_waiting(&self) -> bool {
        self.members.values().any(|member| member.pending.is_some())
    }

    /// The services that this one needs.
    pub fn needs(&self, id: ServiceId) -> impl Iterator<Item = ServiceId> {
        self.members
            .get(&id)
            .into_iter()
            .flat_map(|member| member.depends_on.iter().map(|(id, _)| *id))
    }

    /// The services that need this one.
    pub fn dependents(&self, id: ServiceId) -> impl Iterator<Item = ServiceId> {
        let needs =
            move |member: &FleetMember| member.depends_on.iter().any(|(needed, _)| *needed == id);
        self.members.iter().filter(move |(_, member)| needs(member)).map(|(id, _)| *id)
    }

    fn missing(&self, id: ServiceId, services: &Supervisor) -> Vec<ServiceId> {
        let Some(member) = self.members.get(&id) else { return Vec::new() };
        let is_missing = |(needed, until): &&(ServiceId, Until)| {
            self.members.contains_key(needed)
                && services.service(*needed).is_some_and(|service| !service.has_reached(*until))
        };
        member.depends_on.iter().filter(is_missing).map(|(needed, _)| *needed).collect()
    }

    /// Whether a dependent that is to go too is still there.
    fn is_needed(&self, id: ServiceId, services: &Supervisor) -> bool {
        self.dependents(id).any(|other| {
            let goes = match self.members[&other].pending {
                Some(Transition::Stop | Transition::Retire | Transition::Shutdown) => true,
                // It got its input, and is stopping.
                None => self.is_closing || services.service(other).is_some_and(|s| s.is_stopping()),
                Some(Transition::Start) => false,
            };
            goes && services.service(other).is_some_and(|service| service.rest().is_none())
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
    use crate::service::{Effect, Exit, Service};
    use crate::time::Time;

    /// Services by number, with the outside played by the test.
    struct World {
        fleet: Fleet,
        services: Supervisor,
        now: Time,
        /// What happened, in order: `+0` for a start, `-0` for the beginning of a stop.
        log: Vec<String>,
    }

    impl World {
        fn new(needs: &[&[(u32, Until)]]) -> Self {
            let mut world = Self {
                fleet: Fleet::default(),
                services: Supervisor::default(),
                now: Time::ZERO,
                log: Vec::new(),
            };
            for needs in needs {
                let id = world.services.add(Service::new(Policy::default(), 1));
                let needs = needs.iter().map(|(id, until)| (ServiceId(*id), *until)).collect();
                world.fleet.set(id, needs);
            }
            world
        }

        fn input(&mut self, id: u32, input: Input) {
            let effects = self.services.handle(self.now, ServiceId(id), input);
            for (id, effect) in effects {
                match effect {
                    Effect::Spawn { .. } => self.log.push(format!("+{}", id.0)),
                    Effect::CloseStdin { .. } => self.log.push(format!("-{}", id.0)),
                    _ => {}
                }
            }
            self.settle();
        }

        fn settle(&mut self) {
            for (id, input) in self.fleet.due(&self.services) {
                self.input(id.0, input);
            }
        }

        fn spawned(&mut self, id: u32) {
            let generation = self.generation(id);
            self.input(id, Input::Spawned { generation, pid: 100 + id });
        }

        fn ready(&mut self, id: u32) {
            let generation = self.generation(id);
            self.input(id, Input::Ready { generation });
        }

        fn exited(&mut self, id: u32, exit: Exit) {
            let generation = self.generation(id);
            self.input(id, Input::Exited { generation, exit });
        }

        fn generation(&self, id: u32) -> Generation {
            self.services.service(ServiceId(id)).unwrap().generation()
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
        world.fleet.start([ServiceId(0)]);
        world.settle();
        assert_eq!(world.log(), "+2");
        assert_eq!(world.fleet.waits_for(ServiceId(0), &world.services), [1, 2].map(ServiceId));
        world.spawned(2);
        assert_eq!(world.log(), "");
        world.ready(2);
        assert_eq!(world.log(), "+1");
        world.spawned(1);
        world.ready(1);
        assert_eq!(world.log(), "+0");
        assert!(!world.fleet.is_waiting());
    }

    #[test]
    fn one_that_has_done_its_work_is_not_missing() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.fleet.start([ServiceId(0)]);
        world.settle();
        world.spawned(1);
        world.exited(1, Exit::Code(0));
        assert_eq!(world.log(), "+1 +0");
    }

    #[test]
    fn one_that_fails_keeps_the_others_waiting_until_it_is_well() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.fleet.start([ServiceId(0)]);
        world.settle();
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
        world.fleet.start((0..3).map(ServiceId));
        world.settle();
        for id in [2, 1, 0] {
            world.spawned(id);
            world.ready(id);
        }
        assert_eq!(world.log(), "+2 +1 +0");
        world.fleet.shutdown();
        world.settle();
        assert_eq!(world.log(), "-0");
        world.exited(0, Exit::Signal(15));
        assert_eq!(world.log(), "-1");
        world.fleet.hurry_up();
        world.settle();
        assert_eq!(world.log(), "-2");
        world.exited(2, Exit::Signal(15));
        world.exited(1, Exit::Signal(15));
        assert!(world.services.is_at_rest());
        world.fleet.start([ServiceId(0)]);
        world.settle();
        assert_eq!(world.log(), "", "nothing comes after a shutdown");
    }

    #[test]
    fn a_stop_of_one_leaves_the_others_alone() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.fleet.start([ServiceId(0)]);
        world.settle();
        for id in [1, 0] {
            world.spawned(id);
            world.ready(id);
        }
        world.log();
        world.fleet.stop([ServiceId(1)]);
        world.settle();
        assert_eq!(world.log(), "-1");
        assert_eq!(world.fleet.dependents(ServiceId(1)).collect::<Vec<_>>(), [ServiceId(0)]);
    }

    #[test]
    fn a_start_that_waits_can_be_called_off() {
        let mut world = World::new(&[&[(1, READY)], &[]]);
        world.fleet.start([ServiceId(0)]);
        world.settle();
        world.fleet.stop([ServiceId(0)]);
        world.settle();
        world.spawned(1);
        world.ready(1);
        assert_eq!(world.log(), "+1");
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
