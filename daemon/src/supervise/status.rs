//! What can be seen of the services from outside the loop, and what they remember for it.

use std::collections::VecDeque;
use std::path::Path;

use afresh_core::audit::marker::Marker;
use afresh_core::control::metrics::Vitals;
use afresh_core::control::{HealthStatus, RestartNote, Stream};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::RESTARTS_TOLD_MAX;
use afresh_core::service::{Effect, Ending, Event, Exit, Snapshot, State};
use afresh_core::supervisor::Supervisor;
use afresh_core::time::{Stamp, Time};
use tokio::sync::watch;

use super::{Kept, Supervise};
use crate::clock::now;
use crate::definition::Definition;
use crate::events::Events;
use crate::logs::{Logs, Tee};
use crate::output::{Output, presentable};
use crate::pipe::Taps;

/// What is remembered of a service, besides its machine.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) logs: Logs,
    /// The newest instance whose start was ordered…
    ordered: Generation,
    /// …and the newest of which it was told whether it started.
    generation: Generation,
    last_exit: Option<Exit>,
    /// The last restart that was marked on disk.
    pub(crate) mark: Option<Marker>,
    /// When the newest instance was started.
    pub(crate) started_at: Option<Stamp>,
    /// Why the last restart by a swap failed.
    pub(crate) swap_failed: Option<RestartNote>,
    /// The last restarts, oldest first.
    pub(crate) restarts: VecDeque<RestartNote>,
    /// What is counted.
    pub(crate) vitals: Vitals,
}

impl Past {
    pub(crate) fn new(logs: Logs) -> Self {
        let generation = Generation::default();
        Self {
            logs,
            ordered: generation,
            generation,
            last_exit: None,
            mark: None,
            started_at: None,
            swap_failed: None,
            restarts: VecDeque::new(),
            vitals: Vitals::default(),
        }
    }

    fn note(&mut self, event: &Event) {
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
                if let Some(asked) = self.restarts.back_mut() {
                    asked.reason.push_str(&format!(" (not done: {reason})"));
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

impl Kept {
    /// Where the output of a new instance is kept: its stdout and its stderr.
    pub(super) fn taps(&mut self, generation: Generation) -> [Taps; 2] {
        self.past.ordered = generation;
        [Stream::Stdout, Stream::Stderr].map(|stream| Taps {
            memory: Tee::new(&self.past.logs, generation, stream),
            log: self.definition.log.as_ref().map(|log| log.tee(generation, stream)),
        })
    }
}

impl Supervise {
    /// The machines, to look at.
    pub(crate) fn core(&self) -> &Supervisor {
        &self.core
    }

    /// How a service is now, by its machine and its health check.
    pub(crate) fn snapshot(&self, service: ServiceId) -> Option<Snapshot> {
        let mut snapshot = self.core.service(service)?.snapshot(self.now());
        if let Some(health) = self.health(service) {
            snapshot.state = snapshot.state.with_health(&health);
        }
        if snapshot.pid.is_none() && !self.waits_for(service).is_empty() {
            snapshot.state = State::Waiting;
        }
        Some(snapshot)
    }

    /// How well a service is; none where it has no check.
    pub(crate) fn health(&self, service: ServiceId) -> Option<HealthStatus> {
        self.checks.status(service, now())
    }

    /// Where the last restart is marked.
    pub(crate) fn marker_file(&self) -> &Path {
        &self.around.marker_file
    }

    /// The last lines of a service.
    pub(crate) fn logs(&self, service: ServiceId) -> Option<&Logs> {
        self.services.get(&service).map(|kept| &kept.past.logs)
    }

    /// A service as it was defined, and what is remembered of it.
    pub(crate) fn known(&self, service: ServiceId) -> Option<(&Definition, &Past)> {
        self.services.get(&service).map(|kept| (&kept.definition, &kept.past))
    }

    /// The service of this name.
    pub(crate) fn named(&self, name: &str) -> Option<ServiceId> {
        self.services.iter().find(|(_, kept)| kept.definition.name == name).map(|(id, _)| *id)
    }

    /// Changes whenever something was told about a service.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The time by which the machines go.
    pub(crate) fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    /// Whether it is known when an instance of a service serves. Otherwise one counts as up when it
    /// runs.
    pub(crate) fn says_ready(&self, service: ServiceId) -> bool {
        let definition = self.services.get(&service).map(|kept| &kept.definition);
        self.around.has_talkers
            || definition.is_some_and(|its| its.health.is_some() || its.ready_at_start)
    }

    /// What was told, for the control API.
    pub(crate) fn events(&self) -> Events {
        self.events.clone()
    }

    /// Tells something about a service that its machine does not know of.
    pub(crate) async fn announce(&mut self, service: ServiceId, event: Event) {
        self.perform(vec![(service, Effect::Tell(event))]).await;
    }

    /// Remembers an event, for those who ask later.
    pub(super) fn remember(&mut self, service: ServiceId, event: &Event) {
        let (now, says_ready) = (self.now(), self.says_ready(service));
        if let Some(kept) = self.services.get_mut(&service) {
            kept.past.note(event);
            kept.past.vitals.note(now, event, says_ready);
            let Definition { name, title, .. } = &kept.definition;
            self.beside.hooks.told(name, title, event);
        }
        let (title, name) = (self.title(service), self.name(service));
        self.events.push(&event.record(&title, &name, self.around.logger));
        self.changes.send_modify(|count| *count += 1);
    }

    /// An instance serves: no event says so, and somebody may wait for just that.
    pub(super) fn now_serves(&mut self, service: ServiceId) {
        let now = self.now();
        if let Some(kept) = self.services.get_mut(&service) {
            kept.past.vitals.ready(now);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Where the log is written.
    pub(crate) fn stderr(&self) -> Output {
        self.around.stderr.clone()
    }

    /// Writes a line of the log about one service.
    pub(super) fn log_about(&self, service: ServiceId, message: &str) {
        self.around.stderr.log(message);
        self.remember_line(service, message);
    }

    /// Puts a line of the log beside the service's own.
    pub(super) fn remember_line(&self, service: ServiceId, message: &str) {
        if let Some(kept) = self.services.get(&service) {
            let (generation, line) = (kept.past.generation, presentable(message));
            kept.past.logs.say(generation, &line);
            if let Some(log) = &kept.definition.log {
                log.say(generation, &line);
            }
        }
    }

    pub(crate) fn name(&self, service: ServiceId) -> String {
        self.services.get(&service).map_or_else(String::new, |kept| kept.definition.name.clone())
    }

    pub(super) fn title(&self, service: ServiceId) -> String {
        self.services.get(&service).map_or_else(String::new, |kept| kept.definition.title.clone())
    }
}
