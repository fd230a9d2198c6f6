//! Reads members of a line without parsing all of it: a picture in a tool's result has megabytes. A member of another
//! shape than expected is treated as missing, so that no line is lost for one member.

use std::borrow::Cow;

use crate::limits::AGENT_DETAIL_CHARS_MAX;
use crate::mcp::json;
use crate::text::cut;

/// A line, looked at from outside.
pub(super) struct StreamLine<'a> {
    bytes: &'a [u8],
    members: Vec<json::JsonMember>,
    pub(super) kind: Cow<'a, str>,
}

impl<'a> StreamLine<'a> {
    /// `None` where it is no object. Something without a type is something that we do not know.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let members = json::members(bytes)?;
        let mut line = Self { bytes, members, kind: Cow::Borrowed("") };
        line.kind = line.text("type").unwrap_or_default();
        Some(line)
    }

    pub(super) fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    /// A member; one that is null is none.
    pub(super) fn get(&self, key: &str) -> Option<&'a [u8]> {
        let is_key = |member: &&json::JsonMember| {
            let raw = &self.bytes[member.key.clone()];
            raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")) == Some(key.as_bytes())
        };
        let member = self.members.iter().rev().find(is_key)?;
        Some(&self.bytes[member.value.clone()]).filter(|value| *value != b"null")
    }

    pub(super) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        json::read_text(self.get(key)?)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        whole_number(self.get(key)?)
    }

    /// Whether a subagent said it, and not the agent itself.
    pub(super) fn is_of_subagent(&self) -> bool {
        self.get("parent_tool_use_id").is_some()
    }

    /// Whether this is the result of a turn in which the message with this id was heard.
    pub(super) fn answers(&self, id: &str) -> bool {
        let all = self.get("user_message_uuids").unwrap_or_default();
        let ids = json::elements(all).unwrap_or_default();
        ids.into_iter().any(|one| json::read_text(&all[one]).as_deref() == Some(id))
    }
}

/// The parts of a message.
pub(super) fn blocks(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let content = json::get(message, &["content"]).unwrap_or_default();
    json::elements(content).unwrap_or_default().into_iter().map(|one| &content[one])
}

pub(super) fn text<'a>(bytes: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    json::read_text(json::get(bytes, path)?)
}

pub(super) fn number(bytes: &[u8], path: &[&str]) -> Option<u64> {
    whole_number(json::get(bytes, path)?)
}

pub(super) fn is_true(bytes: &[u8], path: &[&str]) -> bool {
    json::get(bytes, path) == Some(b"true")
}

fn whole_number(raw: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(raw).ok()?;
    // Another program may well write 1e6, or count in fractions; the cast keeps within the range.
    text.parse().ok().or_else(|| Some(text.parse::<f64>().ok().filter(|n| *n >= 0.0)? as u64))
}

/// On what a tool is used: the member of its input that says most, in one line.
pub(super) fn detail(input: &[u8]) -> String {
    let telling =
        TELLING.iter().find_map(|key| text(input, &[key]).filter(|text| !text.is_empty()));
    let line = match &telling {
        Some(text) => text.trim().lines().next().unwrap_or_default(),
        None => "",
    };
    cut(line, AGENT_DETAIL_CHARS_MAX)
}

/// From the most to the least telling.
const TELLING: [&str; 11] = [
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "path",
    "url",
    "query",
    "description",
    "subject",
    "skill",
    "prompt",
];
