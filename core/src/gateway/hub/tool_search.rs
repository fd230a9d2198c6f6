//! Owns the search of `expose = "search"`: the tools `find_tools` and `call_tool`. Driven by `route_request.rs`;
//! `tool_ranking.rs` says how well a tool fits. Never finds a tool that the client may not use.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::admin_tools::GatewayTool;
use super::client_lists::ClientView;
use crate::gateway::catalog::CatalogEntry;
use crate::gateway::tool_ranking::{RankedSource, rank};
use crate::limits::{FOUND_TOOLS, FOUND_TOOLS_MAX};
use crate::mcp::envelope::{edit, param};
use crate::mcp::{Kind, ToolResult, definition, json as raw};

pub(super) const FIND: &str = "find_tools";
pub(super) const CALL: &str = "call_tool";

impl ClientView<'_> {
    /// Searches the tools that it may use. Returns the names of those that fit best, besides the result.
    pub(super) fn find_tools(self, line: &[u8]) -> (ToolResult, Vec<String>) {
        let Some(query) = param(line, &["arguments", "query"]).and_then(raw::text) else {
            return (ToolResult::error("`query` must be a text: words to look for"), Vec::new());
        };
        let limit = param(line, &["arguments", "limit"])
            .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok())
            .unwrap_or(FOUND_TOOLS)
            .clamp(1, FOUND_TOOLS_MAX);
        let tools = self.usable_of_servers(Kind::Tools);
        let sources: Vec<RankedSource<'_>> = tools
            .iter()
            .map(|(server, entry)| RankedSource { server, name: &entry.own, json: &entry.json })
            .collect();
        let fitting = rank(&query, &sources);
        let found: Vec<&CatalogEntry> =
            fitting.iter().take(limit).map(|tool| tools[*tool].1).collect();
        let texts: Vec<Cow<'_, str>> =
            found.iter().map(|entry| String::from_utf8_lossy(&entry.json)).collect();
        let mut text = match found.is_empty() {
            true => format!("no tool fits `{query}`"),
            false => {
                let all = fitting.len();
                format!("{} of {all} tools that fit:\n{}", found.len(), texts.join("\n"))
            }
        };
        let starting = self.starting();
        if !starting.is_empty() {
            let names = starting.join(", ");
            text.push_str(&format!(
                "\nstill starting, so that tools of theirs may be missing here: {names}"
            ));
        }
        let names = found.iter().map(|entry| entry.exposed.clone()).collect();
        (ToolResult { text, data: None, is_error: false }, names)
    }

    /// The call of another tool that a call of `call_tool` stands for.
    pub(super) fn inner_call(self, line: &[u8]) -> Result<Vec<u8>, ToolResult> {
        let (Some(name), Some(old_name)) =
            (param(line, &["arguments", "name"]), param(line, &["name"]))
        else {
            return Err(ToolResult::error("`name` must be a text: the tool to call"));
        };
        let is_itself =
            raw::text(name).is_none_or(|name| self.own_tool(&name) == Some(GatewayTool::Call));
        let Some(arguments) = param(line, &["arguments"]).filter(|_| !is_itself) else {
            return Err(ToolResult::error("`name` must be the name of another tool"));
        };
        let inner = raw::get(arguments, &["arguments"]).filter(|raw| *raw != b"null");
        let edits = vec![
            (raw::place(line, old_name), name.to_vec()),
            (raw::place(line, arguments), inner.unwrap_or(b"{}").to_vec()),
        ];
        Ok(edit(line, edits))
    }
}

pub(super) fn search_definitions() -> [Value; 2] {
    let find = definition(
        FIND,
        "Search the tools of all servers. Answers with the definitions of those that fit best; \
         they can be called by their names from then on, or by call_tool.",
        &json!({
            "query": {"type": "string", "description": "What is to be done, in a few words."},
            "limit": {"type": "integer", "minimum": 1, "maximum": FOUND_TOOLS_MAX, "default": FOUND_TOOLS},
        }),
        &["query"],
        true,
    );
    let call = definition(
        CALL,
        "Call a tool that find_tools has found.",
        &json!({
            "name": {"type": "string", "description": "The tool's name."},
            "arguments": {"type": "object", "description": "What its inputSchema asks for."},
        }),
        &["name"],
        false,
    );
    [find, call]
}
