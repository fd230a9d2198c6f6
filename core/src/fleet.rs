//! In which order services come and go: what one needs comes before it, and goes after it.
//!
//! Owns no service: it is told what is wanted, looks at the machines, and says what each of them is to
//! be told now. It is asked again after everything that happens.

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::Until;
use crate::id::ServiceId;
use crate::service::Input;
use crate::supervisor::Supervisor;

/// The order of the services of one supervisor.
#[derive(Debug, Default)]
pub struct Fleet {
    members: BTreeMap<ServiceId, Member>,
    /// Nothing comes any more.
    is_closing: bool,
}

#[derive(Debug, Default)]
struct Member {
    depends_on: Vec<(ServiceId, Until)>,
    wish: Option<Wish>,
}

/// What is to be done when the order allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
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
            member.wish = Some(Wish::Start);
            left.extend(member.depends_on.iter().map(|(needed, _)| *needed));
        }
    }

    /// These are to be down; those among them that need others of them go first. Starts of theirs that
    /// wait are called off.
    pub fn stop(&mut self, ids: impl IntoIterator<Item = ServiceId>) {
        self.set_wishes(ids, Wish::Stop);
    }

    /// The same, for services that are not defined any more.
    pub fn retire(&mut self, ids: impl IntoIterator<Item = ServiceId>) {
        self.set_wishes(ids, Wish::Retire);
    }

    fn set_wishes(&mut self, ids: impl IntoIterator<Item = ServiceId>, wish: Wish) {
        for id in ids {
            if let Some(member) = self.members.get_mut(&id).filter(|_| !self.is_closing) {
                member.wish = Some(wish);
            }
        }
    }

    /// All are to be down, and stay so.
    pub fn shutdown(&mut self) {
        self.is_closing = true;
        for member in self.members.values_mut() {
            member.wish = Some(Wish::Shutdown);
        }
    }

    /// Nobody waits for anybody any more: all that are not told yet are told now.
    pub fn hurry_up(&mut self) {
        self.members.values_mut().for_each(|member| member.depends_on.clear());
    }

    /// What the order allows now.
    pub fn due(&mut self, services: &Supervisor) -> Vec<(ServiceId, Input)> {
        let is_due = |(id, member): (&ServiceId, &Member)| {
            let input = match member.wish? {
                Wish::Start if !self.missing(*id, services).is_empty() => return None,
                Wish::Start => Input::Start,
                Wish::Stop | Wish::Retire | Wish::Shutdown if self.is_needed(*id, services) => {
                    return None;
                }
                Wish::Stop => Input::Stop,
                Wish::Retire => Input::Retire,
                Wish::Shutdown => Input::Shutdown { within: None },
            };
            Some((*id, input))
        };
        let due: Vec<(ServiceId, Input)> = self.members.iter().filter_map(is_due).collect();
        for (id, _) in &due {
            if let Some(member) = self.members.get_mut(id) {
                member.wish = None;
            }
        }
        due
    }

    /// What a service waits for, where its start does.
    pub fn waits_for(&self, id: ServiceId, services: &Supervisor) -> Vec<ServiceId> {
        match self.members.get(&id).and_then(|member| member.wish) {
            Some(Wish::Start) => self.missing(id, services),
            _ => Vec::new(),
        }
    }

    /// Whether something is still to be told to somebody.
    pub fn is_waiting(&self) -> bool {
        self.members.values().any(|member| member.wish.is_some())
    }

    /// Those that this one needs.
    pub fn needs(&self, id: ServiceId) -> impl Iterator<Item = ServiceId> {
        self.members
            .get(&id)
            .into_iter()
            .flat_map(|member| member.depends_on.iter().map(|(id, _)| *id))
    }

    /// Those who need this one.
    pub fn dependents(&self, id: ServiceId) -> impl Iterator<Item = ServiceId> {
        let needs =
            move |member: &Member| member.depends_on.iter().any(|(needed, _)| *needed == id);
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

    /// Whether somebody who is to go too, and needs this one, is still there.
    fn is_needed(&self, id: ServiceId, services: &Supervisor) -> bool {
        self.dependents(id).any(|other| {
            let goes = match self.members[&other].wish {
                Some(Wish::Stop | Wish::Retire | Wish::Shutdown) => true,
                // It was told, and is on its way.
                None => self.is_closing || services.service(other).is_some_and(|s| s.is_stopping()),
                Some(Wish::Start) => false,
            };
            goes && services.service(other).is_some_and(|service| service.rest().is_none())
        })
    }
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
}
