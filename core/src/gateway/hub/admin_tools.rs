//! Tools of the gateway's own: the ones that `afresh mcp` has, for each server, and a search.

use serde_json::{Value, json};

use super::super::ClientId;
use super::super::LinkId;
use super::super::backend::Expose;
use super::super::catalog::{self, Entry};
use super::route_request::Request;
use super::{Hub, edit, place, raw};
use crate::limits::{FOUND_TOOLS, FOUND_TOOLS_MAX};
use crate::mcp::envelope::{Id, Message, look, param};
use crate::mcp::{AdminTool, Kind};
use crate::service::State;

const FIND: &str = "find_tools";
const CALL: &str = "call_tool";

/// One of our tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Admin(AdminTool),
    Find,
    Call,
}

impl Hub {
    /// Whether a name is one of ours: then no server's tool has it, for nobody.
    pub(super) fn is_own_name(&self, name: &str) -> bool {
        match name {
            FIND | CALL => self.settings.expose == Expose::Search,
            _ if !self.settings.admin_tools || AdminTool::of_name(name).is_none() => false,
            _ => (0..self.servers.len()).any(|slot| self.is_managed(slot)),
        }
    }

    /// The one of our tools that a client means by a name, if it may use it. The search is for everybody: it
    /// finds only what they may use.
    pub(super) fn own_tool(&self, client: ClientId, name: &str) -> Option<Own> {
        if !self.is_own_name(name) {
            return None;
        }
        match name {
            FIND => Some(Own::Find),
            CALL => Some(Own::Call),
            _ if !self.may_use(client, name) => None,
            _ if !self.slots_of(client).into_iter().any(|slot| self.is_managed(slot)) => None,
            _ => AdminTool::of_name(name).map(Own::Admin),
        }
    }

    fn may_use(&self, client: ClientId, tool: &str) -> bool {
        self.clients.get(&client).is_some_and(|client| client.access.has_tool(tool))
    }

    /// Whether the server is there, and a program: only these can be restarted.
    fn is_managed(&self, slot: usize) -> bool {
        !self.servers[slot].is_gone && self.is_stdio(slot)
    }

    /// The tools that a conversation has added to its server's are not the server's.
    pub(super) fn take_own_tools(&mut self, link: LinkId, entries: &mut Vec<Entry>) {
        let Some(slot) = self.links.get(&link).map(|its| its.slot) else { return };
        if !self.settings.admin_tools || !self.is_stdio(slot) {
            return;
        }
        for admin in AdminTool::ALL {
            let is_it = |entry: &Entry| AdminTool::of_injected(&entry.own) == Some(admin);
            let ours = entries.iter().rposition(is_it);
            if let Some(at) = ours {
                let own = entries.remove(at).own;
                if let Some(its) = self.links.get_mut(&link) {
                    its.own_tools.insert(admin, own);
                }
            }
        }
    }

    /// Our tools, as a client sees them in the list.
    pub(super) fn own_definitions(&self, client: ClientId) -> Vec<String> {
        let mut all = Vec::new();
        if self.settings.expose == Expose::Search {
            all.push(definition(
                FIND,
                "Search the tools of all servers. Answers with the definitions of those that fit best; \
                 they can be called by their names from then on, or by call_tool.",
                &json!({
                    "query": {"type": "string", "description": "Words to look for in names and descriptions."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": FOUND_TOOLS_MAX, "default": FOUND_TOOLS},
                }),
                &["query"],
                true,
            ));
            all.push(definition(
                CALL,
                "Call a tool that find_tools has found.",
                &json!({
                    "name": {"type": "string", "description": "The tool's name."},
                    "arguments": {"type": "object", "description": "What its inputSchema asks for."},
                }),
                &["name"],
                false,
            ));
        }
        if !self.settings.admin_tools {
            return all;
        }
        let names: Vec<&str> = self
            .slots_of(client)
            .into_iter()
            .filter(|slot| self.is_stdio(*slot))
            .map(|slot| self.servers[slot].backend.name.as_str())
            .collect();
        if names.is_empty() {
            return all;
        }
        let server = json!({"type": "string", "enum": names, "description": "Which server."});
        let with = |more: Value| {
            let mut properties = json!({"server": server});
            if let (Value::Object(properties), Value::Object(more)) = (&mut properties, more) {
                properties.extend(more);
            }
            properties
        };
        let described = |kind: &str, text: &str| json!({"type": kind, "description": text});
        for tool in AdminTool::ALL.into_iter().filter(|tool| self.may_use(client, tool.name())) {
            let (description, properties, required): (_, _, &[&str]) = match tool {
                AdminTool::Restart => (
                    "Restart an MCP server behind this gateway, so that changes of its code take effect. No \
                     connection and no other call is lost. Answers when the new instance is ready; if the new \
                     code does not start, the old instance goes on and the answer has the error.",
                    json!({"reason": described("string", "Why, for the audit trail.")}),
                    &["server"],
                ),
                AdminTool::Verify => (
                    "Check that an MCP server behind this gateway has been restarted since a given time.",
                    json!({"since_timestamp": described("number", "Unix time in seconds.")}),
                    &["server", "since_timestamp"],
                ),
                AdminTool::Status => (
                    "How the MCP servers behind this gateway do, or one of them in detail.",
                    json!({}),
                    &[],
                ),
                AdminTool::Logs => (
                    "The last lines that an MCP server behind this gateway wrote to its stderr.",
                    json!({
                        "lines": {"type": "integer", "minimum": 1, "default": 50},
                        "filter": described("string", "Only lines that contain this text."),
                    }),
                    &["server"],
                ),
            };
            let is_read_only = tool != AdminTool::Restart;
            all.push(definition(
                tool.name(),
                description,
                &with(properties),
                required,
                is_read_only,
            ));
        }
        all
    }

    /// Our tools, as each client sees them that has begun.
    pub(super) fn own_of_all(&self) -> Vec<(ClientId, Vec<String>)> {
        let open = self.clients.iter().filter(|(_, client)| client.is_open);
        open.map(|(client, _)| (*client, self.own_definitions(*client))).collect()
    }

    /// A client calls one of our tools.
    pub(super) fn call_own(
        &mut self,
        client: ClientId,
        own: Own,
        mut request: Request<'_>,
        is_late: bool,
    ) {
        let (id, params, line) = (request.id, request.params, request.line);
        match own {
            Own::Find => self.find(client, id, line),
            Own::Call => self.call_found(client, id, line, is_late),
            Own::Admin(tool) => {
                let server = param(line, &["arguments", "server"]).and_then(raw::text);
                if server.is_none() && tool == AdminTool::Status {
                    return self.status(client, id);
                }
                let slots = self.slots_of(client);
                let named = |slot: &usize| {
                    server.as_ref().is_none_or(|name| self.servers[*slot].backend.name == *name)
                };
                let mut found = slots.iter().copied().filter(named);
                let (Some(slot), None) = (found.next(), found.next()) else {
                    let names: Vec<&str> = slots
                        .iter()
                        .map(|slot| self.servers[*slot].backend.name.as_str())
                        .collect();
                    let text = format!("`server` must be one of: {}", names.join(", "));
                    return self.say(client, id, &text, None, true);
                };
                if !self.is_stdio(slot) {
                    let text = "this server is reached over HTTP: only who runs it can do that";
                    return self.say(client, id, text, None, true);
                }
                let link = match self.link_for(client, slot) {
                    Ok(link) => link,
                    Err(why) => return self.say(client, id, &why, None, true),
                };
                let its = self.links.get(&link);
                let called = its.and_then(|its| its.own_tools.get(&tool)).cloned();
                let called =
                    Value::from(called.unwrap_or_else(|| tool.name().to_owned())).to_string();
                request.edits.extend(params.name.clone().map(|at| (at, called.into_bytes())));
                // The conversation answers it, in whatever state the server is.
                self.send(client, link, request, None);
                if tool == AdminTool::Restart {
                    self.retry_now(link);
                }
            }
        }
    }

    fn say(&mut self, client: ClientId, id: &Id, text: &str, data: Option<Value>, is_error: bool) {
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
        if let Some(data) = data {
            result["structuredContent"] = data;
        }
        self.answer_result(client, id, result);
    }

    /// How all servers do.
    fn status(&mut self, client: ClientId, id: &Id) {
        let mut text = String::new();
        let mut all = Vec::new();
        for slot in self.slots_of(client) {
            let name = self.servers[slot].backend.name.clone();
            let link = self.current_link(client, slot).and_then(|link| self.links.get(&link));
            let how = link.map(|link| self.how(link));
            let state = how.as_ref().map_or("not used yet", State::word);
            let why = match how {
                Some(State::Failed { why } | State::Degraded { why }) => Some(why),
                _ => None,
            };
            let tools = self.entries_of(client, slot, Kind::Tools).len();
            let calls = link.map_or(0, |link| link.in_flight);
            text.push_str(&format!("{name}: {state}, {tools} tools, {calls} calls in flight"));
            text.push_str(&why.as_ref().map_or_else(String::new, |why| format!(" ({why})")));
            text.push('\n');
            all.push(json!({"server": name, "state": state, "tools": tools, "in_flight": calls, "why": why}));
        }
        self.say(client, id, text.trim_end(), Some(json!({"servers": all})), false);
    }

    /// Looks for tools, and shows those that were found from then on.
    fn find(&mut self, client: ClientId, id: &Id, line: &[u8]) {
        let Some(query) = param(line, &["arguments", "query"]).and_then(raw::text) else {
            return self.say(client, id, "`query` must be a text: words to look for", None, true);
        };
        let limit = param(line, &["arguments", "limit"])
            .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok())
            .unwrap_or(FOUND_TOOLS)
            .clamp(1, FOUND_TOOLS_MAX);
        let words: Vec<String> =
            query.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let fits = |entry| catalog::score(entry, &words).map(|score| (score, entry));
        let mut found: Vec<(usize, &Entry)> =
            self.usable(client, Kind::Tools).into_iter().filter_map(fits).collect();
        let all = found.len();
        found.sort_by_key(|(score, entry)| (usize::MAX - score, &entry.exposed));
        found.truncate(limit);
        let names: Vec<String> = found.iter().map(|(_, entry)| entry.exposed.clone()).collect();
        let texts = found.iter().map(|(_, entry)| String::from_utf8_lossy(&entry.json));
        let texts: Vec<_> = texts.collect();
        let text = match names.is_empty() {
            true => format!("no tool fits `{query}`"),
            false => format!("{} of {all} tools that fit:\n{}", names.len(), texts.join("\n")),
        };
        let mut is_new = false;
        if let Some(its) = self.clients.get_mut(&client) {
            for name in names {
                is_new |= its.revealed.insert(name);
            }
        }
        self.say(client, id, &text, None, false);
        if is_new {
            self.tell_client_list_changed(client, Kind::Tools);
        }
    }

    /// Calls a tool by name, for clients that can only call what was in the list when they began.
    fn call_found(&mut self, client: ClientId, id: &Id, line: &[u8], is_late: bool) {
        let (Some(name), Some(old_name)) =
            (param(line, &["arguments", "name"]), param(line, &["name"]))
        else {
            return self.say(client, id, "`name` must be a text: the tool to call", None, true);
        };
        let is_own =
            raw::text(name).is_none_or(|name| self.own_tool(client, &name) == Some(Own::Call));
        let Some(arguments) = param(line, &["arguments"]).filter(|_| !is_own) else {
            return self.say(client, id, "`name` must be the name of another tool", None, true);
        };
        let inner = raw::get(arguments, &["arguments"]).filter(|raw| *raw != b"null");
        let edits = vec![
            (place(line, old_name), name.to_vec()),
            (place(line, arguments), inner.unwrap_or(b"{}").to_vec()),
        ];
        let line = edit(line, edits);
        if let Some(Message::Request { params, .. }) = look(&line) {
            self.call(client, Request::new(id, "tools/call", &params, &line), is_late);
        }
    }
}

fn definition(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
    read_only: bool,
) -> String {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": read_only, "destructiveHint": false, "openWorldHint": false},
    })
    .to_string()
}
