//! Reads the items of a turn that are uses of tools. Keeps no state.

use std::borrow::Cow;

use super::line_fields::Object;
use crate::limits::AGENT_DETAIL_CHARS_MAX;
use crate::text::{cut, cut_bytes};

/// The tool that an item is a use of: its name, and on what, in a line for people. None for items that are
/// no use of a tool, and for those that are not known.
pub(super) fn tool(item: &Object<'_>) -> Option<(String, String)> {
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
    Some((name, one_line(&detail)))
}

/// Whether the tool did what it was to do, as far as it says.
pub(super) fn succeeded(item: &Object<'_>) -> bool {
    let status = item.text("status");
    let is_good = |status: Cow<'_, str>| status == "completed";
    status.is_none_or(is_good)
        && item.raw("exitCode").is_none_or(|code| code == b"0")
        && item.raw("success") != Some(b"false")
}

/// The command as the model wrote it, without the shell around it, where it is one.
fn command(item: &Object<'_>) -> String {
    let written = match item.objects("commandActions").as_slice() {
        [only] => only.cut_text("command", AGENT_DETAIL_CHARS_MAX),
        _ => None,
    };
    written.or_else(|| item.cut_text("command", AGENT_DETAIL_CHARS_MAX)).unwrap_or_default()
}

fn paths(item: &Object<'_>) -> String {
    let mut paths = String::new();
    for change in item.objects("changes") {
        if paths.len() > AGENT_DETAIL_CHARS_MAX {
            break;
        }
        let path = change.cut_text("path", AGENT_DETAIL_CHARS_MAX).unwrap_or_default();
        paths = if paths.is_empty() { path } else { format!("{paths}, {path}") };
    }
    paths
}

fn arguments(item: &Object<'_>) -> String {
    item.raw("arguments").map(|raw| cut_bytes(raw, AGENT_DETAIL_CHARS_MAX)).unwrap_or_default()
}

fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(line.trim(), AGENT_DETAIL_CHARS_MAX)
}
