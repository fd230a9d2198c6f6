//! Owns the definitions of the services and what is remembered of each: last lines, restarts, counts.
//! Driven by [`Supervisor`](super::Supervisor). Never talks to a process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use afresh_core::audit::Actor;
use afresh_core::audit::marker::Marker;
use afresh_core::control::metrics::Vitals;
use afresh_core::control::{LogStream, RestartNote};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::RESTARTS_TOLD_MAX;
use afresh_core::service::{Ending, Event, Exit};
use afresh_core::time::Stamp;

use crate::clock::now;
use crate::definition::Definition;
use crate::output::presentable;
use crate::pipe::Taps;
use crate::recent_lines::{Logs, MemoryTee};

/// All services of one supervisor.
pub(crate) struct Services {
    all: BTreeMap<ServiceId, SupervisedService>,
    /// How many services share the memory for their last lines.
    sharers: Arc<AtomicUsize>,
    /// A conversation says when an instance serves.
    have_conversations: bool,
}

struct SupervisedService {
    definition: Definition,
    /// Its last lines.
    logs: Logs,
    history: ServiceHistory,
}

impl Services {
    pub(super) fn new(have_conversations: bool) -> Self {
        Self { all: BTreeMap::new(), sharers: Arc::default(), have_conversations }
    }

    pub(super) fn add(&mut self, id: ServiceId, definition: Definition) {
        let (logs, history) = (Logs::new(&self.sharers), ServiceHistory::default());
        self.all.insert(id, SupervisedService { definition, logs, history });
    }

    pub(super) fn redefine(&mut self, id: ServiceId, definition: Definition) {
        if let Some(service) = self.all.get_mut(&id) {
            service.definition = definition;
        }
    }

    pub(super) fn remove(&mut self, id: ServiceId) {
        self.all.remove(&id);
    }

    /// A service as it was defined, and what is remembered of it.
    pub(crate) fn known(&self, id: ServiceId) -> Option<(&Definition, &ServiceHistory)> {
        self.all.get(&id).map(|service| (&service.definition, &service.history))
    }

    pub(super) fn definition(&self, id: ServiceId) -> Option<&Definition> {
        self.all.get(&id).map(|service| &service.definition)
    }

    pub(super) fn history_mut(&mut self, id: ServiceId) -> Option<&mut ServiceHistory> {
        self.all.get_mut(&id).map(|service| &mut service.history)
    }

    /// Notes what or who requested the stop of a service.
    pub(crate) fn note_stop(&mut self, id: ServiceId, by: &Actor) {
        if let Some(history) = self.history_mut(id) {
            history.stop_by = Some(by.clone());
        }
    }

    /// What or who has stopped a service that has ended so.
    pub(crate) fn stopped_by(&self, id: ServiceId, ending: &Ending) -> Actor {
        let requested = self.known(id).and_then(|(_, history)| history.stop_by.clone());
        requested.unwrap_or(match ending {
            Ending::StoppedByUser => Actor::Signal("SIGTERM or SIGINT"),
            _ => Actor::Afresh("policy"),
        })
    }

    /// The service of this name.
    pub(crate) fn named(&self, name: &str) -> Option<ServiceId> {
        self.all.iter().find(|(_, service)| service.definition.name == name).map(|(id, _)| *id)
    }

    pub(crate) fn name(&self, id: ServiceId) -> String {
        self.definition(id).map_or_else(String::new, |definition| definition.name.clone())
    }

    pub(crate) fn names(&self, ids: &[ServiceId]) -> Vec<String> {
        ids.iter().map(|id| self.name(*id)).collect()
    }

    pub(super) fn title(&self, id: ServiceId) -> String {
        self.definition(id).map_or_else(String::new, |definition| definition.title.clone())
    }

    /// The last lines of a service.
    pub(crate) fn logs(&self, id: ServiceId) -> Option<&Logs> {
        self.all.get(&id).map(|service| &service.logs)
    }

    /// Whether it is known when an instance of a service serves. Otherwise one counts as up when it
    /// runs.
    pub(crate) fn says_ready(&self, id: ServiceId) -> bool {
        let says = |its: &Definition| its.health.is_some() || its.ready_at_start;
        self.have_conversations || self.definition(id).is_some_and(says)
    }

    /// The services with a memory limit.
    pub(super) fn limited(&self) -> impl Iterator<Item = ServiceId> {
        let is_limited =
            |service: &SupervisedService| service.definition.memory_bytes_max.is_some();
        self.all.iter().filter(move |(_, service)| is_limited(service)).map(|(id, _)| *id)
    }

    /// Where the output of a new instance is kept: its stdout and its stderr.
    pub(super) fn taps(&mut self, id: ServiceId, generation: Generation) -> Option<[Taps; 2]> {
        let SupervisedService { definition, logs, history } = self.all.get_mut(&id)?;
        history.ordered = generation;
        Some([LogStream::Stdout, LogStream::Stderr].map(|stream| Taps {
            memory: MemoryTee::new(logs, generation, stream),
            log: definition.log.as_ref().map(|log| log.tee(generation, stream)),
        }))
    }

    /// Puts a line of our own log beside the lines of one service.
    pub(super) fn remember_line(&self, id: ServiceId, message: &str) {
        if let Some(SupervisedService { definition, logs, history }) = self.all.get(&id) {
            let (generation, line) = (history.generation, presentable(message));
            logs.say(generation, &line);
            if let Some(log) = &definition.log {
                log.say(generation, &line);
            }
        }
    }

    /// The same, beside the lines of all services.
    pub(super) fn remember_line_of_all(&self, message: &str) {
        self.all.keys().for_each(|id| self.remember_line(*id, message));
    }
}

/// The memory of one service, besides its machine.
#[derive(Debug, Default)]
pub(crate) struct ServiceHistory {
    /// The newest instance whose start was ordered…
    ordered: Generation,
    /// …and the newest of which the event of its start, or of the failure to start, was recorded.
    generation: Generation,
    last_exit: Option<Exit>,
    /// What or who requested the stop, since the last start.
    stop_by: Option<Actor>,
    /// The last restart that was marked on disk.
    pub(crate) marker: Option<Marker>,
    /// When the newest instance was started.
    pub(crate) started_at: Option<Stamp>,
    /// Why the last restart by a swap failed.
    pub(crate) swap_failed: Option<RestartNote>,
    /// The last restarts, oldest first.
    pub(crate) restarts: VecDeque<RestartNote>,
    /// What is counted.
    pub(crate) vitals: Vitals,
}

impl ServiceHistory {
    pub(super) fn note(&mut self, event: &Event) {
        if matches!(
            event,
            Event::Started { .. }
                | Event::Adopted { .. }
                | Event::CandidateStarted { .. }
                | Event::SpareStarted { .. }
                | Event::SpawnFailed(_)
        ) {
            self.generation = self.ordered;
        }
        let reason = match event {
            Event::Started { .. } => {
                self.stop_by = None;
                self.started_at = Some(now());
                return;
            }
            Event::Adopted { uptime, .. } => {
                self.started_at = Some(now().earlier_by(*uptime));
                return;
            }
            Event::Exited { exit, .. } => {
                self.last_exit = Some(*exit);
                return;
            }
            Event::SwapFailed { why, .. } => {
                let reason = presentable(why);
                if let Some(requested) = self.restarts.back_mut() {
                    requested.reason.push_str(&format!(" (not done: {reason})"));
                }
                self.swap_failed = Some(RestartNote { time: now().to_string(), reason });
                return;
            }
            Event::RestartRequested { reason, .. } => reason.clone(),
            Event::Restarting { after: after @ Ending::SpawnFailed(_), .. } => after.to_string(),
            Event::Restarting { after, .. } => match self.last_exit {
                Some(exit) => format!("it {exit}: {after}"),
                None => after.to_string(),
            },
            _ => return,
        };
        if self.restarts.len() == RESTARTS_TOLD_MAX {
            self.restarts.pop_front();
        }
        let reason = presentable(&reason);
        self.restarts.push_back(RestartNote { time: now().to_string(), reason });
    }
}
