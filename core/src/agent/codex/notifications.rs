//! Reads the notifications of Codex: turns, items, errors, use.

use super::line_fields::Object;
use super::{Codex, CodexTurn, Phase, failure, item};
use crate::agent::{AgentEvent, Effect, TurnEnd};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_TEXT_CHARS_MAX, AGENT_TOOLS_MAX};
use crate::time::Stamp;

impl Codex {
    /// Takes in what Codex tells.
    pub(super) fn notified(
        &mut self,
        now: Stamp,
        method: &str,
        params: &Object<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if method == "account/rateLimits/updated" {
            return self.limits.update(&params.object("rateLimits"));
        }
        let Phase::Open { thread: ours } = &self.phase else { return };
        let Some(thread) = params.cut_text("threadId", AGENT_DETAIL_CHARS_MAX) else { return };
        let is_ours = *ours == thread;
        if method == "thread/tokenUsage/updated" {
            let heard = self.usage.update(&thread, is_ours, &params.object("tokenUsage"));
            return effects.extend(heard.into_iter().map(Effect::Heard));
        }
        // What a subagent does, it does for itself: only what it uses concerns us.
        if !is_ours {
            return;
        }
        match method {
            "turn/started" => self.turn_started(&params.object("turn"), effects),
            "turn/completed" => self.turn_completed(now, &params.object("turn"), effects),
            "item/started" => self.item_started(&params.object("item"), effects),
            "item/completed" => self.item_completed(&params.object("item"), effects),
            "error" => self.failed(now, params, effects),
            "thread/compacted" if !self.compacts_in_items => {
                effects.push(Effect::Heard(AgentEvent::Compacted));
            }
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: &Object<'_>, effects: &mut Vec<Effect>) {
        let Some(id) = turn.text("id") else { return };
        let interrupt = match &self.turn {
            // It may begin one by itself, for a goal.
            CodexTurn::None => false,
            CodexTurn::Requested { interrupt, .. } | CodexTurn::Running { interrupt, .. } => {
                *interrupt
            }
        };
        self.turn = CodexTurn::Running { id: id.into_owned(), begun: true, interrupt };
        self.interrupt_begun(effects);
    }

    fn turn_completed(&mut self, now: Stamp, turn: &Object<'_>, effects: &mut Vec<Effect>) {
        let is_it = match &self.turn {
            CodexTurn::None => false,
            CodexTurn::Requested { .. } => true,
            CodexTurn::Running { id, .. } => turn.text("id").is_none_or(|ended| *id == ended),
        };
        if !is_it {
            return;
        }
        let error = turn.raw("error").and_then(Object::read);
        let error = error.map(|error| failure::of_turn(&error, &self.limits, now));
        let end = match turn.text("status").as_deref() {
            Some("completed") => TurnEnd::Done(std::mem::take(&mut self.said)),
            Some("interrupted") => TurnEnd::Interrupted,
            _ => error
                .or_else(|| self.error.take())
                .unwrap_or_else(|| failure::other("codex does not say why"))
                .into(),
        };
        if matches!(end, TurnEnd::Done(_)) {
            self.turn = CodexTurn::None;
            self.ended = Some(end);
            self.settle(effects);
        } else {
            self.finish(end, effects);
        }
    }

    fn item_started(&mut self, item: &Object<'_>, effects: &mut Vec<Effect>) {
        self.compacts_in_items |= is_compaction(item);
        let (Some(id), Some((name, detail))) = (id_of(item), item::tool(item)) else { return };
        if self.tools.contains(&id) {
            return;
        }
        if self.tools.len() >= AGENT_TOOLS_MAX {
            self.tools.pop_front();
        }
        self.tools.push_back(id.clone());
        effects.push(Effect::Heard(AgentEvent::ToolBegan { id, name, detail }));
    }

    fn item_completed(&mut self, item: &Object<'_>, effects: &mut Vec<Effect>) {
        if is_compaction(item) {
            self.compacts_in_items = true;
            return effects.push(Effect::Heard(AgentEvent::Compacted));
        }
        if item.text("type").as_deref() == Some("agentMessage") {
            let text = item.cut_text("text", AGENT_TEXT_CHARS_MAX).unwrap_or_default();
            if !text.is_empty() {
                self.said.clone_from(&text);
                effects.push(Effect::Heard(AgentEvent::Text(text)));
            }
        }
        if let Some(id) = id_of(item)
            && let Some(place) = self.tools.iter().position(|known| *known == id)
        {
            self.tools.remove(place);
            let succeeded = item::succeeded(item);
            effects.push(Effect::Heard(AgentEvent::ToolEnded { id, succeeded }));
        }
    }

    fn failed(&mut self, now: Stamp, params: &Object<'_>, effects: &mut Vec<Effect>) {
        let error = params.object("error");
        if params.raw("willRetry") != Some(b"true") {
            self.error = Some(failure::of_turn(&error, &self.limits, now));
            return;
        }
        let message = error.cut_text("message", AGENT_TEXT_CHARS_MAX).unwrap_or_default();
        self.tries = failure::attempt(&message).unwrap_or(self.tries.saturating_add(1));
        let why = error.cut_text("additionalDetails", AGENT_TEXT_CHARS_MAX).unwrap_or(message);
        effects.push(Effect::Heard(AgentEvent::Retrying { attempt: self.tries, why, at: None }));
    }
}

fn is_compaction(item: &Object<'_>) -> bool {
    item.text("type").as_deref() == Some("contextCompaction")
}

/// Ids are short; one that is not shall not fill the memory.
fn id_of(object: &Object<'_>) -> Option<String> {
    object.cut_text("id", AGENT_DETAIL_CHARS_MAX)
}
