//! Calls of our own tools. Most are answered from outside; a restart is answered here, when a new
//! instance serves and its tools are known.

use serde_json::json;

use super::super::envelope::{Id, param};
use super::super::inflight::Place;
use super::super::json;
use super::super::lists::{Changes, Kind, List};
use super::super::responses;
use super::super::tools::{AdminTool, Asked, Said};
use super::{Conversation, Effect};
use crate::id::Generation;
use crate::limits::RESTART_ANSWER_MAX;
use crate::time::Time;

/// A call of `restart_server` that waits for its answer.
#[derive(Debug)]
pub(super) struct RestartCall {
    id: Id,
    asked_at: Time,
    pub(super) until: Time,
    /// The newest instance at that time: only a newer one will do.
    pub(super) newest: Generation,
    old_pid: Option<u32>,
    before: Option<List>,
}

impl Conversation {
    /// Which of our tools a `tools/call` of this raw name is for.
    pub(super) fn own_tool(&self, name: Option<&[u8]>) -> Option<AdminTool> {
        self.tools.find(&name.and_then(json::read_text)?)
    }

    pub(super) fn call_own(&mut self, tool: AdminTool, id: Id, effects: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&id) else { return };
        match tool.asked(param(&flight.line, &["arguments"])) {
            Ok(asked) => {
                if let Asked::Restart { .. } = asked {
                    // An instance will come, or it will be said again that none does.
                    self.down = None;
                    let serving = self.serving.and_then(|serving| self.instances.get(&serving));
                    self.restart_calls.push(RestartCall {
                        id: id.clone(),
                        asked_at: self.now,
                        until: self.now + RESTART_ANSWER_MAX,
                        newest: self.newest,
                        old_pid: serving.map(|instance| instance.pid),
                        before: self.known.get(&Kind::Tools).cloned(),
                    });
                }
                effects.push(Effect::Asked { id, asked });
            }
            Err(text) => self.say(&id, &Said { text, data: None, is_error: true }, effects),
        }
    }

    /// Answers a call of one of our tools.
    pub(super) fn say(&mut self, id: &Id, said: &Said, effects: &mut Vec<Effect>) {
        let ours = self.flights.get(id).is_some_and(|flight| flight.place == Place::Ours);
        if ours && self.flights.remove(id).is_some() {
            effects.push(Effect::ToClient(responses::said(id, self.memory.era, said)));
        }
    }

    /// This instance serves, and its tools are known: whoever asked for it is told.
    pub(super) fn restarted(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        let Some(pid) = self.instances.get(&generation).map(|instance| instance.pid) else {
            return;
        };
        let now = self.known.get(&Kind::Tools).cloned();
        for call in
            self.restart_calls.extract_if(.., |call| call.newest < generation).collect::<Vec<_>>()
        {
            let seconds = self.now.since(call.asked_at).as_secs_f64();
            let changes = now.as_ref().zip(call.before.as_ref()).map(|(n, b)| n.changes_since(b));
            let said = success(&call, pid, seconds, changes.as_ref(), now.as_ref().map(List::len));
            self.say(&call.id, &said, effects);
        }
    }

    /// The instance ends: if it has not served, whoever waits for it waits in vain.
    pub(super) fn restart_ended(
        &mut self,
        generation: Generation,
        how: &str,
        effects: &mut Vec<Effect>,
    ) {
        if self.instances.get(&generation).is_some_and(|instance| !instance.has_served) {
            self.restart_failed(&format!("the new instance {how}"), Some(generation), effects);
        }
    }

    /// The new instance did not come up: whoever asked for it is told why. Where none is named, no
    /// other will come either.
    pub(super) fn restart_failed(
        &mut self,
        why: &str,
        generation: Option<Generation>,
        effects: &mut Vec<Effect>,
    ) {
        let waits = |call: &mut RestartCall| generation.is_none_or(|failed| call.newest < failed);
        for call in self.restart_calls.extract_if(.., waits).collect::<Vec<_>>() {
            let data = json!({"restarted": false, "old_pid": call.old_pid, "error": why});
            let text = format!("the server was not restarted: {why}");
            self.say(&call.id, &Said { text, data: Some(data), is_error: true }, effects);
        }
    }

    pub(super) fn expire_restart_calls(&mut self, effects: &mut Vec<Effect>) {
        let now = self.now;
        for call in self.restart_calls.extract_if(.., |call| call.until <= now).collect::<Vec<_>>()
        {
            let text = format!(
                "no new instance is ready after {} s; it is still being tried: call server_status \
                 for how far it is, and server_logs for what the server says",
                RESTART_ANSWER_MAX.as_secs()
            );
            let data = json!({"restarted": false, "old_pid": call.old_pid, "error": text});
            self.say(&call.id, &Said { text, data: Some(data), is_error: true }, effects);
        }
    }
}

fn success(
    call: &RestartCall,
    pid: u32,
    seconds: f64,
    changes: Option<&Changes>,
    count: Option<usize>,
) -> Said {
    let seconds = (seconds * 1e3).round() / 1e3;
    let old = call.old_pid.map_or_else(|| "none was running".to_owned(), |pid| pid.to_string());
    let mut text = format!("restarted in {seconds} s: old pid {old}, new pid {pid}.");
    let mut tools = json!({"count": count});
    match changes {
        None if call.before.is_some() => text.push_str(" Its tools could not be listed."),
        None => {}
        Some(changes) if changes.is_empty() => text.push_str(" The tools are the same."),
        Some(changes) => {
            let told = [
                ("added", &changes.added),
                ("removed", &changes.removed),
                ("changed", &changes.changed),
            ];
            for (word, names) in told.into_iter().filter(|(_, names)| !names.is_empty()) {
                text.push_str(&format!(" Tools {word}: {}.", names.join(", ")));
            }
        }
    }
    if let Some(Changes { added, removed, changed }) = changes {
        tools = json!({"count": count, "added": added, "removed": removed, "changed": changed});
    }
    let data = json!({
        "restarted": true,
        "old_pid": call.old_pid,
        "new_pid": pid,
        "seconds": seconds,
        "tools": tools,
    });
    Said { text, data: Some(data), is_error: false }
}
