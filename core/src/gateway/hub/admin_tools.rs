//! The tools of the gateway's own: those that `afresh mcp` has, for each server, and a search (`tool_search.rs`). Listed
//! and called like servers' tools. Never restarts a server: the server's conversation does.

use serde_json::{Value, json};

use super::Settings;
use super::backends::{BackendSlot, Backends};
use super::client_lists::ClientView;
use super::tool_search::{CALL, FIND, search_definitions};
use crate::gateway::backend::Expose;
use crate::mcp::envelope::param;
use crate::mcp::{AdminTool, Kind, ToolResult, definition, json as raw};
use crate::service::State;
use crate::time::Time;

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
        let is_admin = || AdminTool::of_name(name).is_some();
        match name {
            FIND | CALL => expose == Expose::Search,
            _ => admin_tools && is_admin() && self.slots.iter().any(BackendSlot::is_managed),
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
            _ if !self.slots().any(|slot| self.backends.slots[slot].is_managed()) => None,
            _ => AdminTool::of_name(name).map(GatewayTool::Admin),
        }
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
        if self.backends.settings.admin_tools && !names.is_empty() {
            let tools = AdminTool::ALL.into_iter();
            let tools = tools.filter(|tool| self.session.access.has_tool(tool.name()));
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

    /// The state of all its servers.
    pub(super) fn status(self, now: Time) -> ToolResult {
        let mut text = String::new();
        let mut all = Vec::new();
        for slot in self.slots() {
            let name = self.backends.slots[slot].name();
            let link = self.link_to(slot).and_then(|link| self.backends.links.get(link));
            let state = link.map(|link| link.state(now));
            let word = state.as_ref().map_or("not used yet", State::word);
            let why = match state {
                Some(State::Failed { why } | State::Degraded { why }) => Some(why),
                _ => None,
            };
            let tools = self.entries(slot, Kind::Tools).len();
            let calls = link.map_or(0, |link| link.calls.in_flight);
            text.push_str(&format!("{name}: {word}, {tools} tools, {calls} calls in flight"));
            text.push_str(&why.as_ref().map_or_else(String::new, |why| format!(" ({why})")));
            text.push('\n');
            all.push(json!({"server": name, "state": word, "tools": tools, "in_flight": calls, "why": why}));
        }
        let data = Some(json!({"servers": all}));
        ToolResult { text: text.trim_end().to_owned(), data, is_error: false }
    }
}

fn admin_definition(tool: AdminTool, servers: &[&str]) -> Value {
    let text = |text: &str| json!({"type": "string", "description": text});
    let mut properties =
        json!({"server": {"type": "string", "enum": servers, "description": "Which server."}});
    let (description, required): (_, &[&str]) = match tool {
        AdminTool::Restart => {
            properties["reason"] = text("Why, for the audit trail.");
            let description = "Restart an MCP server behind this gateway, so that changes of its code take \
                 effect. No connection and no other call is lost. Answers when the new instance is ready; if \
                 the new code does not start, the old instance goes on and the answer has the error.";
            (description, &["server"])
        }
        AdminTool::Verify => {
            properties["since_timestamp"] =
                json!({"type": "number", "description": "Unix time in seconds."});
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
