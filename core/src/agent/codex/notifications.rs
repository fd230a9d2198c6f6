//! Reads the notifications of Codex: turns, items, of which some are uses of tools, errors, use.

use super::{Codex, CodexTurn, Phase, failure};
use crate::agent::stream::Object;
use crate::agent::{AgentEvent, TurnEnd, TurnFailure};
use crate::limits::{AGENT_DETAIL_CHARS_MAX, AGENT_TEXT_CHARS_MAX};
use crate::text::{cut, cut_bytes};
use crate::time::Stamp;

impl Codex {
    /// Takes in what Codex tells.
    pub(super) fn notified(&mut self, now: Stamp, method: &str, params: &Object<'_>) {
        if method == "account/rateLimits/updated" {
            return self.limits.update(&params.object("rateLimits"));
        }
        let Phase::Open { thread: ours } = &self.phase else { return };
        let Some(thread) = params.cut_text("threadId", AGENT_DETAIL_CHARS_MAX) else { return };
        let is_ours = *ours == thread;
        if method == "thread/tokenUsage/updated" {
            let told = params.object("tokenUsage");
            return self.effects.extend(self.usage.update(&thread, is_ours, &told));
        }
        // What a subagent does, it does for itself: only what it uses concerns us.
        if !is_ours {
            return;
        }
        match method {
            "turn/started" => self.turn_started(&params.object("turn")),
            "turn/completed" => self.turn_completed(now, &params.object("turn")),
            "item/started" => self.item_started(&params.object("item")),
            "item/completed" => self.item_completed(&params.object("item")),
            "error" => self.failed(now, params),
            "thread/compacted" if !self.compacts_in_items => self.hear(AgentEvent::Compacted),
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: &Object<'_>) {
        let Some(id) = turn.text("id") else { return };
        let interrupt = match &self.turn {
            // It may begin one by itself, for a goal.
            CodexTurn::None => false,
            CodexTurn::Requested { interrupt, .. } | CodexTurn::Running { interrupt, .. } => {
                *interrupt
            }
        };
        self.turn = CodexTurn::Running { id: id.into_owned(), begun: true, interrupt };
        self.interrupt_begun();
    }

    fn turn_completed(&mut self, now: Stamp, turn: &Object<'_>) {
        let is_it = match &self.turn {
            CodexTurn::None => false,
            CodexTurn::Requested { .. } => true,
            CodexTurn::Running { id, .. } => turn.text("id").is_none_or(|ended| *id == ended),
        };
        if !is_it {
            return;
        }
        let error = turn.raw("error").and_then(Object::read);
        let error = error.map(|error| failure::read(&error, &self.limits, now));
        let end = match turn.text("status").as_deref() {
            Some("completed") => TurnEnd::Done(std::mem::take(&mut self.said)),
            Some("interrupted") => TurnEnd::Interrupted,
            _ => error
                .or_else(|| self.error.take())
                .unwrap_or_else(|| failure::other("codex does not say why")),
        };
        if matches!(end, TurnEnd::Done(_)) {
            self.turn = CodexTurn::None;
            self.ended = Some(end);
            self.settle();
        } else {
            self.finish(end);
        }
    }

    fn item_started(&mut self, item: &Object<'_>) {
        self.compacts_in_items |= is_compaction(item);
        if let (Some(id), Some((name, detail))) = (id_of(item), tool(item)) {
            self.effects.extend(self.tools.begin(id, name, detail));
        }
    }

    fn item_completed(&mut self, item: &Object<'_>) {
        if is_compaction(item) {
            self.compacts_in_items = true;
            return self.hear(AgentEvent::Compacted);
        }
        if item.text("type").as_deref() == Some("agentMessage") {
            let text = item.cut_text("text", AGENT_TEXT_CHARS_MAX).unwrap_or_default();
            if !text.is_empty() {
                self.said.clone_from(&text);
                self.hear(AgentEvent::Text(text));
            }
        }
        if let Some(id) = id_of(item) {
            self.effects.extend(self.tools.end(id, succeeded(item)));
        }
    }

    fn failed(&mut self, now: Stamp, params: &Object<'_>) {
        let error = params.object("error");
        if !params.is_true("willRetry") {
            self.error = Some(failure::read(&error, &self.limits, now));
            return;
        }
        let message = error.cut_text("message", AGENT_TEXT_CHARS_MAX).unwrap_or_default();
        let failure = match failure::read(&error, &self.limits, now) {
            TurnEnd::Failed { failure, .. } => failure,
            _ => TurnFailure::Other,
        };
        self.tries = failure::attempt(&message).unwrap_or(self.tries.saturating_add(1));
        let why = error.cut_text("additionalDetails", AGENT_TEXT_CHARS_MAX).unwrap_or(message);
        self.hear(AgentEvent::Retrying { attempt: self.tries, why, at: None, failure });
    }
}

fn is_compaction(item: &Object<'_>) -> bool {
    item.text("type").as_deref() == Some("contextCompaction")
}

/// Ids are short; one that is not shall not fill the memory.
fn id_of(object: &Object<'_>) -> Option<String> {
    object.cut_text("id", AGENT_DETAIL_CHARS_MAX)
}

/// The tool that an item is a use of: its name, and on what, in a line for people. None for items that are
/// no use of a tool, and for those that are not known.
fn tool(item: &Object<'_>) -> Option<(String, String)> {
    let text = |key| item.cut_text(key, AGENT_DETAIL_CHARS_MAX).unwrap_or_default();
    let (name, detail) = match item.text("type")?.as_ref() {
        "commandExecution" => ("shell".into(), command(item)),
        "fileChange" => ("edit".into(), paths(item)),
        "mcpToolCall" => {
            // As the model knows it.
            (format!("mcp__{}__{}", text("server"), text("tool")), arguments(item))
        }
        "dynamicToolCall" => (text("tool"), arguments(item)),
        "collabAgentToolCall" => (text("tool"), text("prompt")),
        "webSearch" => ("webSearch".into(), text("query")),
        "imageView" => ("imageView".into(), text("path")),
        "imageGeneration" => ("imageGeneration".into(), String::new()),
        "sleep" => ("sleep".into(), String::new()),
        _ => return None,
    };
    let line: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some((name, cut(line.trim(), AGENT_DETAIL_CHARS_MAX)))
}

/// Whether the tool did what it was to do, as far as it says.
fn succeeded(item: &Object<'_>) -> bool {
    item.text("status").is_none_or(|status| status == "completed")
        && item.raw("exitCode").is_none_or(|code| code == b"0")
        && item.raw("success") != Some(b"false")
}

/// The command as the model wrote it, without the shell around it, where it is one.
fn command(item: &Object<'_>) -> String {
    let mut actions = item.objects("commandActions");
    let only = actions.next().filter(|_| actions.next().is_none());
    let written = only.and_then(|only| only.cut_text("command", AGENT_DETAIL_CHARS_MAX));
    written.or_else(|| item.cut_text("command", AGENT_DETAIL_CHARS_MAX)).unwrap_or_default()
}

fn paths(item: &Object<'_>) -> String {
    let paths =
        item.objects("changes").filter_map(|it| it.cut_text("path", AGENT_DETAIL_CHARS_MAX));
    // The rest is cut off.
    paths.take(AGENT_DETAIL_CHARS_MAX).collect::<Vec<_>>().join(", ")
}

fn arguments(item: &Object<'_>) -> String {
    item.raw("arguments").map(|raw| cut_bytes(raw, AGENT_DETAIL_CHARS_MAX)).unwrap_or_default()
}
