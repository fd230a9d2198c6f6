//! Owns the instances of the server: which one serves, how far the others are, and what each was sent.
//!
//! Driven by [`Conversation`](super::Conversation). Never decides what becomes of a request.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Generation;
use crate::limits::PONGS_MAX;
use crate::mcp::envelope::Id;
use crate::mcp::inflight::Class;

/// All instances that run.
#[derive(Debug, Default)]
pub(super) struct Instances {
    all: BTreeMap<Generation, ServerInstance>,
    /// The one that gets all that is new.
    pub(super) serving: Option<Generation>,
    pub(super) newest: Generation,
}

/// A process of the server.
#[derive(Debug, Default)]
pub(super) struct ServerInstance {
    pub(super) pid: u32,
    /// It has had the session.
    pub(super) has_served: bool,
    /// It has answered a request: it can be started.
    pub(super) has_answered: bool,
    /// It has answered a call of a tool: a model may rely on what it keeps.
    pub(super) has_answered_call: bool,
    /// Another one has taken the session over from it.
    pub(super) is_replaced: bool,
    /// Lines that it was sent: the number of the next one.
    pub(super) sent: u64,
    /// Its pings that were answered before it had the session.
    pongs: usize,
    pub(super) stage: SessionStage,
    pub(super) received: Received,
    /// The request that opens its session.
    pub(super) opening: Option<Id>,
    /// Listen requests that were sent again, and whose acknowledgement the client has already.
    pub(super) listening_again: BTreeSet<Id>,
}

/// What an instance has received so far: the first message can commit it to an era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Received {
    #[default]
    Nothing,
    OnlyProbe,
    More,
}

/// The stage of the session with an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SessionStage {
    #[default]
    Opening,
    Serving,
    Draining,
    Leaving,
}

impl ServerInstance {
    /// A request goes to it.
    pub(super) fn note_request(&mut self, class: Class) {
        self.received = match (self.received, class) {
            (Received::Nothing | Received::OnlyProbe, Class::Probe) => Received::OnlyProbe,
            _ => Received::More,
        };
    }

    /// Counts a ping that comes before the session; says whether it is answered.
    pub(super) fn may_pong(&mut self) -> bool {
        self.pongs += 1;
        self.pongs <= PONGS_MAX
    }

    /// Whether this answers the request that opens the session, and in time; asked once.
    pub(super) fn take_opening(&mut self, id: &Id) -> bool {
        let is_opening = self.opening.take_if(|opening| opening == id).is_some();
        is_opening && self.stage != SessionStage::Leaving
    }
}

impl Instances {
    pub(super) fn start(&mut self, generation: Generation, pid: u32) {
        self.newest = self.newest.max(generation);
        self.all.insert(generation, ServerInstance { pid, ..ServerInstance::default() });
    }

    pub(super) fn get(&self, generation: Generation) -> Option<&ServerInstance> {
        self.all.get(&generation)
    }

    pub(super) fn get_mut(&mut self, generation: Generation) -> Option<&mut ServerInstance> {
        self.all.get_mut(&generation)
    }

    pub(super) fn generations(&self) -> Vec<Generation> {
        self.all.keys().copied().collect()
    }

    pub(super) fn is(&self, generation: Generation, stage: SessionStage) -> bool {
        self.get(generation).is_some_and(|instance| instance.stage == stage)
    }

    /// A message that is no request goes to an instance.
    pub(super) fn note_message(&mut self, generation: Generation) {
        if let Some(instance) = self.all.get_mut(&generation) {
            instance.received = Received::More;
        }
    }

    /// An instance that could not be given a session yet.
    pub(super) fn idle(&self) -> Option<Generation> {
        let is_idle = |instance: &ServerInstance| {
            instance.stage == SessionStage::Opening && instance.opening.is_none()
        };
        self.all.iter().find(|(_, instance)| is_idle(instance)).map(|(generation, _)| *generation)
    }

    /// Makes an instance the one that serves, and drains the one before. Where a newer one serves, this
    /// one drains; says which it is.
    pub(super) fn serve(&mut self, generation: Generation) -> bool {
        if self.serving.is_some_and(|serving| serving > generation) {
            self.set_stage(generation, SessionStage::Draining);
            return false;
        }
        if let Some(old) = self.serving.replace(generation) {
            self.set_stage(old, SessionStage::Draining);
            if let Some(old) = self.all.get_mut(&old) {
                old.is_replaced = true;
            }
        }
        if let Some(instance) = self.all.get_mut(&generation) {
            (instance.stage, instance.has_served) = (SessionStage::Serving, true);
        }
        true
    }

    /// An instance is on its way out.
    pub(super) fn leave(&mut self, generation: Generation) {
        if self.all.contains_key(&generation) {
            self.set_stage(generation, SessionStage::Leaving);
            self.serving.take_if(|serving| *serving == generation);
        }
    }

    /// An instance is gone.
    pub(super) fn end(&mut self, generation: Generation) -> Option<ServerInstance> {
        let instance = self.all.remove(&generation)?;
        self.serving.take_if(|serving| *serving == generation);
        Some(instance)
    }

    pub(super) fn set_stage(&mut self, generation: Generation, stage: SessionStage) {
        if let Some(instance) = self.all.get_mut(&generation) {
            instance.stage = stage;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_is_ready_serves_and_the_others_drain() {
        let (one, two, three) = (Generation(1), Generation(2), Generation(3));
        let mut instances = Instances::default();
        for generation in [one, two, three] {
            instances.start(generation, 7);
        }
        assert_eq!((instances.newest, instances.idle()), (three, Some(one)));
        assert!(instances.serve(two) && instances.serve(three) && !instances.serve(one));
        assert_eq!(instances.serving, Some(three));
        assert!(instances.is(one, SessionStage::Draining));
        assert!(instances.is(two, SessionStage::Draining));
        instances.leave(three);
        assert_eq!((instances.serving, instances.idle()), (None, None));
        assert!(instances.end(three).is_some_and(|instance| instance.has_served));
    }

    #[test]
    fn only_probes_leave_the_era_open() {
        let one = Generation(1);
        let mut instances = Instances::default();
        instances.start(one, 7);
        let instance = instances.get_mut(one).unwrap();
        instance.note_request(Class::Probe);
        assert_eq!(instance.received, Received::OnlyProbe);
        instance.note_request(Class::Safe);
        instance.note_request(Class::Probe);
        assert_eq!(instance.received, Received::More);
    }
}
