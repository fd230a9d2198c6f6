//! Owns the parts of messages that were dealt with, and the tools that run. Driven by [`super::Opencode`]. Never
//! reports a tool twice.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use super::Effects;
use super::events::line;
use crate::agent::{AgentEvent, Effect};
use crate::limits::{AGENT_CALLS_MAX, AGENT_DETAIL_CHARS_MAX, AGENT_TOOLS_MAX};
use crate::text::cut_to_line;

/// Parts of messages, by their ids; of too many the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct MessageParts {
    ids: BTreeSet<String>,
    order: VecDeque<String>,
    /// Tools that run.
    tools: BTreeSet<String>,
}

impl MessageParts {
    /// Whether this id is new. It is not, from then on.
    pub(super) fn is_new(&mut self, id: &str) -> bool {
        if self.ids.contains(id) {
            return false;
        }
        if self.order.len() >= AGENT_CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(id.to_owned());
        self.order.push_back(id.to_owned());
        true
    }

    /// Takes in the state of a tool.
    pub(super) fn tool(&mut self, id: &str, part: &Value, effects: &mut Effects) {
        let state = &part["state"];
        let succeeded = match state["status"].as_str() {
            Some("running") => None,
            Some("completed") => Some(true),
            Some("error") => Some(false),
            // Its input is not complete.
            _ => return,
        };
        if self.is_new(id) {
            if self.tools.len() >= AGENT_TOOLS_MAX {
                self.tools.pop_first();
            }
            self.tools.insert(id.to_owned());
            let name = line(&part["tool"]);
            let began = AgentEvent::ToolBegan { id: id.to_owned(), name, detail: detail(state) };
            effects.push(Effect::Heard(began));
        }
        if let Some(succeeded) = succeeded
            && self.tools.remove(id)
        {
            effects.push(Effect::Heard(AgentEvent::ToolEnded { id: id.to_owned(), succeeded }));
        }
    }

    #[cfg(test)]
    pub(super) fn running_tools(&self) -> usize {
        self.tools.len()
    }

    /// Ends the tools that were cut off with their turn: no event ends them.
    pub(super) fn end_tools(&mut self) -> impl Iterator<Item = Effect> {
        let ended = |id| Effect::Heard(AgentEvent::ToolEnded { id, succeeded: false });
        std::mem::take(&mut self.tools).into_iter().map(ended)
    }
}

/// The inputs of a tool that say most, the best first.
const DETAILS: [&str; 9] =
    ["command", "filePath", "path", "pattern", "url", "query", "description", "name", "prompt"];

/// The input of a tool, as one line.
fn detail(state: &Value) -> String {
    let input = &state["input"];
    let known = DETAILS.iter().find_map(|&key| input[key].as_str());
    match known.or_else(|| state["title"].as_str()) {
        Some(text) => cut_to_line(text, AGENT_DETAIL_CHARS_MAX),
        None if input.as_object().is_some_and(|input| !input.is_empty()) => {
            cut_to_line(&input.to_string(), AGENT_DETAIL_CHARS_MAX)
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_begins_and_ends_once() {
        let (mut parts, mut effects) = (MessageParts::default(), Vec::new());
        let running =
            json!({"tool": "bash", "state": {"status": "running", "input": {"command": "ls"}}});
        let done = json!({"tool": "bash", "state": {"status": "completed"}});
        for part in [&running, &running, &done, &done] {
            parts.tool("a", part, &mut effects);
        }
        assert_eq!(effects.len(), 2, "{effects:?}");
        parts.tool("b", &running, &mut effects);
        assert_eq!(parts.end_tools().count(), 1);
        assert_eq!(parts.end_tools().count(), 0);
    }
}
