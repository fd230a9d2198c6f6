//! Chooses the events of a service that hooks get, and their text.

use std::collections::BTreeMap;

use super::HookEvent;
use crate::duration::show_duration;
use crate::service::{Event, Exit};
use crate::time::Stamp;

/// Something that hooks are told of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// What happened.
    pub event: HookEvent,
    /// The name of the service.
    pub service: String,
    /// When.
    pub time: Stamp,
    /// The process that it happened to, or the new one after a restart.
    pub pid: Option<u32>,
    /// How the last process ended.
    pub exit: Option<Exit>,
    /// Why, where that is known.
    pub reason: Option<String>,
    /// Restarts of every kind so far.
    pub restarts: u64,
    /// A sentence for people.
    pub message: String,
}

/// What has to be remembered of each service to know what its next event means. Grows by one small
/// entry for each name of a service.
#[derive(Debug, Default)]
pub struct Stories(BTreeMap<String, Story>);

#[derive(Debug, Default)]
struct Story {
    pid: Option<u32>,
    exit: Option<Exit>,
    restarts: u64,
    has_run: bool,
    /// Why a restart was asked for that is not done yet.
    asked: Option<String>,
}

impl Stories {
    /// What is to be told of an event; mostly nothing. `title` is how people call the service.
    pub fn hear(
        &mut self,
        time: Stamp,
        service: &str,
        title: &str,
        event: &Event,
    ) -> Vec<Happening> {
        let story = self.0.entry(service.to_owned()).or_default();
        let told = story.hear(title, event);
        let happening = |(event, reason, message): (HookEvent, Option<String>, String)| Happening {
            event,
            service: service.to_owned(),
            time,
            pid: story.pid,
            exit: story.exit,
            reason,
            restarts: story.restarts,
            message,
        };
        told.into_iter().map(happening).collect()
    }
}

type Told = (HookEvent, Option<String>, String);

impl Story {
    fn hear(&mut self, title: &str, event: &Event) -> Vec<Told> {
        let said = || event.message(title);
        match event {
            Event::Started { pid, restarts, .. } => {
                (self.pid, self.restarts, self.has_run) = (Some(*pid), *restarts, true);
                let restarted = self.asked.take().map(|reason| {
                    let message = format!("{title} was restarted (pid {pid}): {reason}");
                    (HookEvent::Restarted, Some(reason), message)
                });
                return restarted.into_iter().collect();
            }
            Event::Exited { pid, exit, ending, .. } if ending.is_crash() => {
                (self.pid, self.exit) = (pid.or(self.pid), Some(*exit));
                return vec![(HookEvent::Crash, Some(ending.to_string()), said())];
            }
            Event::SpawnFailed(failure) => {
                let crash = (HookEvent::Crash, Some(failure.message.clone()), said());
                self.pid = None;
                // What never ran and cannot run is not tried again, and no other event says so.
                let is_hopeless = failure.permanent && !self.has_run && self.asked.is_none();
                let gave_up = is_hopeless.then(|| {
                    let message = format!("{title} is not tried again: {}", failure.message);
                    (HookEvent::GaveUp, Some(failure.message.clone()), message)
                });
                return [crash].into_iter().chain(gave_up).collect();
            }
            Event::CrashLoop { crashes, window, .. } => {
                let reason = format!("{crashes} crashes within {}", show_duration(*window));
                return vec![(HookEvent::CrashLoop, Some(reason), said())];
            }
            Event::GaveUp { last, .. } => {
                self.asked = None;
                return vec![(HookEvent::GaveUp, Some(last.to_string()), said())];
            }
            Event::Recovered { .. } => return vec![(HookEvent::Recovered, None, said())],
            Event::RestartRequested { reason, .. } => self.asked = Some(reason.clone()),
            // The restart that was asked for does not come.
            Event::SwapFailed { .. } | Event::Stopped(_) => self.asked = None,
            Event::Exited { exit, .. } => self.exit = Some(*exit),
            Event::Adopted { pid, .. } => (self.pid, self.has_run) = (Some(*pid), true),
            Event::UserRequested(_)
            | Event::Health(_)
            | Event::CandidateStarted { .. }
            | Event::SpareStarted { .. }
            | Event::Replacing { .. }
            | Event::ExitingForRestart { .. }
            | Event::Throttled { .. }
            | Event::Restarting { .. }
            | Event::Escalating { .. } => {}
        }
        Vec::new()
    }
}
