//! The tools of the gateway's own: those that `afresh mcp` has, for each server, and a search (`tool_search.rs`). Listed
//! and called like servers' tools. Never restarts a server: the server's conversation does.

use serde_json::{Value, json};

use super::Settings;
use super::backends::{BackendSlot, Backends};
use super::client_lists::ClientView;
use super::link::Link;
use super::tool_search::{CALL, FIND, search_definitions};
use crate::gateway::access_patterns::Access;
use crate::gateway::backend::Expose;
use crate::gateway::exposed_names;
use crate::gateway::pins::{Section, listed};
use crate::mcp::envelope::param;
use crate::mcp::{AdminTool, Kind, ToolResult, definition, json as raw, since_schema};
use crate::service::State;
use crate::time::Time;
use crate::trust::untrusted_note;

/// A tool of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayTool {
    Admin(AdminTool),
    Find,
    Call,
}

impl Backends {
    /// Whether a tool's name is one of the gateway's own: then no server's tool has it, for any client.
    pub(super) fn reserves(&self, name: &str) -> bool {
        let Settings { expose, admin_tools, .. } = self.settings;
        let has_managed = || self.slots.iter().any(BackendSlot::is_managed);
        match (name, AdminTool::of_name(name)) {
            (FIND | CALL, _) => expose == Expose::Search,
            (_, None) => false,
            // It says what is not trusted, where there is nothing else.
            (_, Some(AdminTool::Status)) if !self.untrusted.is_empty() => admin_tools,
            (_, Some(_)) => admin_tools && has_managed(),
        }
    }
}

impl ClientView<'_> {
    /// The gateway's tool of a name, if the client may use it. Each may search: it finds only what it may use.
    pub(super) fn own_tool(self, name: &str) -> Option<GatewayTool> {
        if !self.backends.reserves(name) {
            return None;
        }
        match name {
            FIND => Some(GatewayTool::Find),
            CALL => Some(GatewayTool::Call),
            _ if !self.session.access.has_tool(name) => None,
            _ => {
                let is_managed = |slot: usize| self.backends.slots[slot].is_managed();
                let tool = AdminTool::of_name(name)?;
                (self.slots().any(is_managed) || self.has_status_alone(tool))
                    .then_some(GatewayTool::Admin(tool))
            }
        }
    }

    /// Whether it has a tool although there is no server to be managed: there are some that are not trusted.
    fn has_status_alone(self, tool: AdminTool) -> bool {
        tool == AdminTool::Status && self.untrusted_note().is_some()
    }

    /// What it is told of servers that are not trusted; nothing where its token opens only some servers.
    pub(super) fn untrusted_note(self) -> Option<String> {
        let Access { servers, tools, .. } = &self.session.access;
        let opens_all = servers.is_none() && tools.is_none();
        untrusted_note(&self.backends.untrusted).filter(|_| opens_all)
    }

    /// The definitions of the gateway's tools, as the client sees them in its list.
    pub(super) fn own_definitions(self) -> Vec<Value> {
        let mut all = Vec::new();
        if self.backends.settings.expose == Expose::Search {
            all.extend(search_definitions());
        }
        let names: Vec<&str> = self
            .slots()
            .map(|slot| &self.backends.slots[slot])
            .filter(|slot| slot.is_managed())
            .map(|slot| slot.name())
            .collect();
        if self.backends.settings.admin_tools {
            let tools = AdminTool::ALL.into_iter();
            let tools = tools.filter(|tool| self.session.access.has_tool(tool.name()));
            let tools = tools.filter(|tool| !names.is_empty() || self.has_status_alone(*tool));
            all.extend(tools.map(|tool| admin_definition(tool, &names)));
        }
        all
    }

    /// The server that a call of an admin tool names, by its argument `server`; else the result with the error.
    pub(super) fn slot_of_argument(self, line: &[u8]) -> Result<usize, ToolResult> {
        let server = param(line, &["arguments", "server"]).and_then(raw::text);
        let slots: Vec<usize> = self.slots().collect();
        let name = |slot: usize| self.backends.slots[slot].name();
        let is_named = |slot: &usize| server.as_ref().is_none_or(|server| name(*slot) == server);
        let mut found = slots.iter().copied().filter(is_named);
        let (Some(slot), None) = (found.next(), found.next()) else {
            let names: Vec<&str> = slots.into_iter().map(name).collect();
            let text = format!("`server` must be one of: {}", names.join(", "));
            return Err(ToolResult::error(text));
        };
        if !self.backends.slots[slot].backend.is_stdio() {
            let text = "this server is reached over HTTP: only who runs it can do that";
            return Err(ToolResult::error(text));
        }
        Ok(slot)
    }

    /// What it may use of a server and has changed since it was pinned, in words.
    fn changed_since_pinned(self, slot: usize) -> Vec<String> {
        let backend = &self.backends.slots[slot].backend;
        let mut changed = self.backends.changed_since_pinned(slot);
        changed.retain(|(section, own)| {
            let name = exposed_names::exposed(backend, Kind::Tools, own);
            *section != Section::Tools || self.session.access.has_tool(&name)
        });
        changed.into_iter().map(|(section, own)| section.item(own)).collect()
    }

    /// The state of all its servers.
    pub(super) fn status(self, now: Time) -> ToolResult {
        let mut text = String::new();
        let mut all = Vec::new();
        for slot in self.slots() {
            let name = self.backends.slots[slot].name();
            let link = self.link_to(slot).and_then(|link| self.backends.links.get(link));
            let state = link.map(|link| link.state(now));
            let word = state.as_ref().map_or("not used yet", State::word);
            // Why there is no session says more than the state of the process.
            let why = link.and_then(Link::failure).map(str::to_owned).or(match state {
                Some(State::Failed { why } | State::Degraded { why }) => Some(why),
                _ => None,
            });
            let tools = self.entries(slot, Kind::Tools).len();
            let calls = link.map_or(0, |link| link.calls.in_flight);
            text.push_str(&format!("{name}: {word}, {tools} tools, {calls} calls in flight"));
            text.push_str(&why.as_ref().map_or_else(String::new, |why| format!(" ({why})")));
            let mut data = json!({"server": name, "state": word, "tools": tools, "in_flight": calls, "why": why});
            let changed = self.changed_since_pinned(slot);
            if !changed.is_empty() {
                let names = listed(&changed);
                text.push_str(&format!(
                    "; tools changed since pinned: {names}; `afresh trust {name}` shows how"
                ));
                data["changed_since_pinned"] = changed.into();
            }
            if self.backends.slots[slot].is_shared_anyway {
                text.push_str("; clients that cannot be told apart share it, in spite of `share = \"per-client\"`");
                data["shared_by_unknown"] = true.into();
            }
            text.push('\n');
            all.push(data);
        }
        let is_its = |(name, _): &&(String, String)| self.session.access.has_server(name, name);
        for (name, why) in self.backends.left_out.iter().filter(is_its) {
            text.push_str(&format!("{name}: left out ({why})\n"));
            all.push(json!({"server": name, "state": "left out", "why": why}));
        }
        let mut data = json!({"servers": all});
        if let Some(note) = self.untrusted_note() {
            text.push_str(&note);
            data["not_trusted"] = json!(self.backends.untrusted);
        }
        let data = Some(data);
        ToolResult { text: text.trim_end().to_owned(), data, is_error: false }
    }
}

fn admin_definition(tool: AdminTool, servers: &[&str]) -> Value {
    let text = |text: &str| json!({"type": "string", "description": text});
    let mut properties = match servers {
        [] => json!({}),
        servers => {
            json!({"server": {"type": "string", "enum": servers, "description": "Which server."}})
        }
    };
    let (description, required): (_, &[&str]) = match tool {
        AdminTool::Restart => {
            properties["reason"] = text("Why, for the audit trail.");
            let description = "Restart an MCP server behind this gateway, so that changes of its code take \
                 effect. No connection and no other call is lost. Answers when the new instance is ready; if \
                 the new code does not start, the old instance goes on and the answer has the error.";
            (description, &["server"])
        }
        AdminTool::Verify => {
            properties["since_timestamp"] = since_schema("usually the time before restart_server");
            let description = "Check that an MCP server behind this gateway has been restarted since a given time.";
            (description, &["server", "since_timestamp"])
        }
        AdminTool::Status => {
            ("How the MCP servers behind this gateway do, or one of them in detail.", &[])
        }
        AdminTool::Logs => {
            properties["lines"] = json!({"type": "integer", "minimum": 1, "default": 50});
            properties["filter"] = text("Only lines that contain this text.");
            let description =
                "The last lines that an MCP server behind this gateway wrote to its stderr.";
            (description, &["server"])
        }
    };
    definition(tool.name(), description, &properties, required, tool != AdminTool::Restart)
}
