//! Owns the tools that afresh adds to a server's own, so that an agent can restart and inspect the server that it works
//! on, and the calls of `restart_server` that wait for a new instance. Driven by
//! [`Conversation`](super::Conversation), which sends the results. Never carries a call out.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::envelope::{self, Id};
use super::json;
use super::lists::{Changes, NamedList};
use crate::id::Generation;
use crate::limits::{RESTART_ANSWER_MAX, RESTART_REASON_CHARS_MAX};
use crate::time::{Stamp, Time};

/// A tool that afresh adds to a server's own. The gateway offers the same ones, each for all of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AdminTool {
    Restart,
    Verify,
    Status,
    Logs,
}

/// What was asked of one of our tools.
#[derive(Clone, Debug, PartialEq)]
pub enum AdminRequest {
    /// A new instance.
    Restart {
        /// Why, for the record.
        reason: String,
    },
    /// Whether a new instance has taken over since then.
    Verify {
        /// In Unix seconds.
        since: f64,
    },
    /// How the server does.
    Status,
    /// What the server wrote to its stderr.
    Logs {
        /// This many lines at most, the last ones.
        lines: usize,
        /// Only lines with this text in them.
        filter: Option<String>,
    },
}

/// What a tool has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// For the model.
    pub text: String,
    /// For programs.
    pub data: Option<Value>,
    /// It did not work.
    pub is_error: bool,
}

impl ToolResult {
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), data: None, is_error: true }
    }
}

/// Which tools of afresh stand beside the server's, and what they are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedTools {
    /// Which of them.
    pub which: WhichTools,
    /// What they are called in the server's list.
    pub names: ToolNames,
}

/// Which tools of afresh stand beside the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhichTools {
    /// All of them.
    All,
    /// `restart_server` alone.
    Restart,
    /// None.
    #[default]
    None,
}

/// What the tools of afresh are called in the list of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolNames {
    /// `restart_server`: a client with two such servers cannot tell their tools apart.
    #[default]
    Bare,
    /// `NAME_restart_server`, with the name of the server. The bare names can be called, too, where the server has no
    /// tool of that name.
    Prefixed(String),
    /// They are not listed, and are called as `afresh:restart_server` and so on. The gateway has tools of its own that
    /// are for all servers, and calls these.
    Reserved,
}

/// In front of the name of a tool that the server has too.
const AVOIDING: &str = "afresh";

/// In front of names that no tool of a server has behind a gateway.
pub(crate) const RESERVED_PREFIX: &str = "afresh:";

/// Several clients and model APIs take no longer name.
const NAME_CHARS_MAX: usize = 64;

const LINES_DEFAULT: usize = 50;
const LINES_MAX: usize = 1_000;

impl AdminTool {
    pub(crate) const ALL: [Self; 4] = [Self::Restart, Self::Verify, Self::Status, Self::Logs];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart_server",
            Self::Verify => "verify_server_restarted",
            Self::Status => "server_status",
            Self::Logs => "server_logs",
        }
    }

    /// The tool of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// What it is called where it is not listed; see [`ToolNames::Reserved`].
    pub(crate) fn reserved_name(self) -> String {
        format!("{RESERVED_PREFIX}{}", self.name())
    }

    /// Its name behind a prefix. The prefix of one that is too long is cut, and has a hash of the whole.
    fn prefixed(self, prefix: &str) -> String {
        let (prefix, own) = (tool_name_part(prefix), self.name());
        let room = NAME_CHARS_MAX - own.len() - 1;
        match prefix.as_str() {
            "" => own.to_owned(),
            prefix if prefix.len() <= room => format!("{prefix}_{own}"),
            prefix => {
                let hash = format!("{:08x}", fnv_1a(prefix.as_bytes()));
                format!("{}_{hash}_{own}", &prefix[..room - hash.len() - 1])
            }
        }
    }

    fn definition(self, name: &str) -> Value {
        let (description, properties, required, read_only): (_, _, &[&str], _) = match self {
            Self::Restart => (
                "Restart this MCP server, so that changes of its code take effect. The connection \
                 stays, and no other call is lost. Answers when the new instance is ready: with the \
                 old and the new process id, and the tools that were added, removed and changed. If \
                 the new code does not start, the old instance goes on and the answer has the error.",
                json!({"reason": {
                    "type": "string",
                    "description": "Why, for the audit trail.",
                    "default": "code changes",
                }}),
                &[],
                false,
            ),
            Self::Verify => (
                "Check that this MCP server has been restarted since a given time. Reads the restart \
                 marker on disk.",
                json!({"since_timestamp": since_schema("usually the time before restart_server")}),
                &["since_timestamp"],
                true,
            ),
            Self::Status => (
                "How this MCP server does: state, process id, uptime, restarts with their reasons, \
                 last exit, tools gained and lost with the last restart.",
                json!({}),
                &[],
                true,
            ),
            Self::Logs => (
                "The last lines that this MCP server wrote to its stderr, across restarts.",
                json!({
                    "lines": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": LINES_MAX,
                        "default": LINES_DEFAULT,
                        "description": "How many lines at most.",
                    },
                    "filter": {
                        "type": "string",
                        "description": "Only lines that contain this text, in upper or lower case.",
                    },
                }),
                &[],
                true,
            ),
        };
        let mut definition = definition(name, description, &properties, required, read_only);
        definition["annotations"]["idempotentHint"] = read_only.into();
        definition
    }

    /// What is asked for, or what is wrong with it.
    pub(super) fn asked(self, arguments: Option<&[u8]>) -> Result<AdminRequest, String> {
        let arguments: Value = match arguments {
            None => json!({}),
            Some(raw) => serde_json::from_slice(raw).map_err(|error| error.to_string())?,
        };
        let arguments = match &arguments {
            Value::Object(arguments) => arguments,
            Value::Null => &serde_json::Map::new(),
            _ => return Err("the arguments must be an object".to_owned()),
        };
        let given = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        let text = |name: &str| match given(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{name}` must be a string")),
        };
        Ok(match self {
            Self::Restart => {
                let reason = text("reason")?.filter(|reason| !reason.trim().is_empty());
                let reason = reason.unwrap_or_else(|| "code changes".to_owned());
                let reason = reason.chars().take(RESTART_REASON_CHARS_MAX).collect();
                AdminRequest::Restart { reason }
            }
            Self::Verify => {
                let since = given("since_timestamp").and_then(read_since);
                let wanted = "`since_timestamp` must be a Unix time in seconds, such as 1763196120.5, or a time in \
                              ISO 8601 with its offset, such as \"2026-11-15T08:42:00Z\"";
                AdminRequest::Verify { since: since.ok_or(wanted)? }
            }
            Self::Status => AdminRequest::Status,
            Self::Logs => {
                let lines = match given("lines") {
                    None => LINES_DEFAULT,
                    Some(lines) => match lines.as_u64() {
                        Some(lines @ 1..) => usize::try_from(lines).unwrap_or(LINES_MAX),
                        _ => return Err("`lines` must be a whole number, 1 or more".to_owned()),
                    },
                };
                AdminRequest::Logs { lines: lines.min(LINES_MAX), filter: text("filter")? }
            }
        })
    }
}

/// The schema of a time since which something is asked.
pub(crate) fn since_schema(which: &str) -> Value {
    let description =
        format!("Unix time in seconds, or a time in ISO 8601 with its offset; {which}.");
    json!({"anyOf": [{"type": "number"}, {"type": "string"}], "description": description})
}

/// A time in Unix seconds, as a number or as a text, or in ISO 8601.
fn read_since(given: &Value) -> Option<f64> {
    let text = match given {
        Value::String(text) => text.trim(),
        other => return other.as_f64(),
    };
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.or_else(|| Stamp::parse(text).map(Stamp::unix_seconds))
}

/// A server's name as a part of a tool's name: some clients take no other characters there.
fn tool_name_part(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// The hash FNV-1a: the same in each version of afresh, so that names stay as they are.
fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The definition of a tool of afresh, for a `tools/list`.
pub(crate) fn definition(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
    read_only: bool,
) -> Value {
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
}

/// Our tools, with the names that do not clash with the server's.
#[derive(Debug, Default)]
pub(super) struct Tools {
    tools: Vec<ListedTool>,
    are_hidden: bool,
}

#[derive(Debug)]
struct ListedTool {
    tool: AdminTool,
    prefix: String,
    /// With the prefix.
    name: String,
    /// Whether the server has a tool of the bare name.
    is_bare_name_taken: bool,
}

impl Tools {
    pub(super) fn new(added: &AddedTools) -> Self {
        let tools: &[AdminTool] = match added.which {
            WhichTools::All => &AdminTool::ALL,
            WhichTools::Restart => &[AdminTool::Restart],
            WhichTools::None => &[],
        };
        let listed = |tool: &AdminTool| {
            let (tool, is_reserved) = (*tool, added.names == ToolNames::Reserved);
            let prefix = match &added.names {
                ToolNames::Prefixed(prefix) => prefix.clone(),
                ToolNames::Bare | ToolNames::Reserved => String::new(),
            };
            let name = if is_reserved { tool.reserved_name() } else { tool.prefixed(&prefix) };
            ListedTool { tool, prefix, name, is_bare_name_taken: is_reserved }
        };
        let are_hidden = added.names == ToolNames::Reserved;
        Self { tools: tools.iter().map(listed).collect(), are_hidden }
    }

    /// Whether there are none in the list.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty() || self.are_hidden
    }

    pub(super) fn find(&self, name: &str) -> Option<AdminTool> {
        let is_it = |its: &&ListedTool| {
            its.name == name || !its.is_bare_name_taken && its.tool.name() == name
        };
        self.tools.iter().find(is_it).map(|its| its.tool)
    }

    /// The server has tools of these names: ours give way.
    pub(super) fn avoid<'a>(&mut self, theirs: impl Iterator<Item = &'a str>) {
        if self.are_hidden {
            return;
        }
        let theirs: BTreeSet<&str> = theirs.collect();
        for its in &mut self.tools {
            its.is_bare_name_taken = theirs.contains(its.tool.name());
            while theirs.contains(its.name.as_str()) {
                its.prefix = match its.prefix.as_str() {
                    "" => AVOIDING.to_owned(),
                    prefix => format!("{AVOIDING}_{prefix}"),
                };
                its.name = its.tool.prefixed(&its.prefix);
            }
        }
    }

    /// Definitions for a `tools/list`, separated by commas.
    pub(super) fn definitions(&self) -> String {
        let all: Vec<String> =
            self.tools.iter().map(|its| its.tool.definition(&its.name).to_string()).collect();
        all.join(",")
    }

    /// The answer to `tools/list` with ours at the end.
    pub(super) fn added_to(&self, answer: Vec<u8>) -> Vec<u8> {
        let Some(list) = json::get(&answer, &["result", "tools"]) else { return answer };
        let Some(elements) = json::elements(list) else { return answer };
        let end = json::place(&answer, list).end - 1;
        let comma = if elements.is_empty() { "" } else { "," };
        let ours = format!("{comma}{}", self.definitions());
        envelope::splice(&answer, end..end, ours.as_bytes())
    }
}

/// The calls of `restart_server` that wait for a new instance.
#[derive(Debug, Default)]
pub(super) struct RestartCalls {
    /// The name of the server.
    server: String,
    pub(super) waiting: Vec<RestartCall>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct RestartCall {
    pub(super) id: Id,
    pub(super) called_at: Time,
    /// The newest instance at that time: only a newer one will do.
    pub(super) newest: Generation,
    pub(super) old_pid: Option<u32>,
    /// The tools at that time.
    pub(super) before: Option<NamedList>,
}

impl RestartCalls {
    pub(super) fn new(server: &str) -> Self {
        Self { server: server.to_owned(), waiting: Vec::new() }
    }

    /// When a call has waited long enough.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.waiting.first().map(|call| call.called_at + RESTART_ANSWER_MAX)
    }

    /// This instance serves, and its tools are known: the results of the calls that waited for it.
    pub(super) fn succeed(
        &mut self,
        now: Time,
        generation: Generation,
        pid: u32,
        tools: Option<&NamedList>,
    ) -> Vec<(Id, ToolResult)> {
        let done = self.waiting.extract_if(.., |call| call.newest < generation);
        done.map(|call| {
            let said = success(&self.server, &call, pid, now, tools);
            (call.id, said)
        })
        .collect()
    }

    /// The new instance did not come up. Where none is named, no other will come either.
    pub(super) fn fail(
        &mut self,
        why: &str,
        generation: Option<Generation>,
    ) -> Vec<(Id, ToolResult)> {
        let waits = |call: &mut RestartCall| generation.is_none_or(|failed| call.newest < failed);
        let failed = self.waiting.extract_if(.., waits);
        let text = format!("the server `{}` was not restarted: {why}", self.server);
        failed.map(|call| failure(&self.server, call, text.clone(), why)).collect()
    }

    /// The results of the calls that have waited long enough.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(Id, ToolResult)> {
        let expired =
            self.waiting.extract_if(.., |call| call.called_at + RESTART_ANSWER_MAX <= now);
        let text = format!(
            "no new instance of the server `{}` is ready after {} s; it is still being tried: call \
             server_status for how far it is, and server_logs for what the server says",
            self.server,
            RESTART_ANSWER_MAX.as_secs()
        );
        expired.map(|call| failure(&self.server, call, text.clone(), &text)).collect()
    }
}

fn failure(server: &str, call: RestartCall, text: String, error: &str) -> (Id, ToolResult) {
    let data =
        json!({"server": server, "restarted": false, "old_pid": call.old_pid, "error": error});
    (call.id, ToolResult { text, data: Some(data), is_error: true })
}

fn success(
    server: &str,
    call: &RestartCall,
    pid: u32,
    now: Time,
    tools: Option<&NamedList>,
) -> ToolResult {
    let seconds = (now.since(call.called_at).as_secs_f64() * 1e3).round() / 1e3;
    let changes = tools.zip(call.before.as_ref()).map(|(tools, b)| tools.changes_since(b));
    let old = call.old_pid.map_or_else(|| "none was running".to_owned(), |pid| pid.to_string());
    let mut text = format!(
        "the server `{server}` was restarted in {seconds} s: old pid {old}, new pid {pid}."
    );
    let mut tools = json!({"count": tools.map(NamedList::len)});
    match changes {
        None if call.before.is_some() => text.push_str(" Its tools could not be listed."),
        None => {}
        Some(changes) => {
            if changes.is_empty() {
                text.push_str(" The tools are the same.");
            }
            let Changes { added, removed, changed } = changes;
            for (word, names) in [("added", added), ("removed", removed), ("changed", changed)] {
                if !names.is_empty() {
                    text.push_str(&format!(" Tools {word}: {}.", names.join(", ")));
                }
                tools[word] = json!(names);
            }
        }
    }
    let data = json!({
        "server": server,
        "restarted": true,
        "old_pid": call.old_pid,
        "new_pid": pid,
        "seconds": seconds,
        "tools": tools,
    });
    ToolResult { text, data: Some(data), is_error: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_tools_are_added_and_give_way() {
        let mut tools = tools(WhichTools::All, ToolNames::Bare);
        let whole =
            tools.added_to(br#"{"id":1,"result":{"tools":[{"name":"a"}] ,"x":1.50}}"#.to_vec());
        let text = String::from_utf8(whole.clone()).expect("text");
        assert!(text.starts_with(r#"{"id":1,"result":{"tools":[{"name":"a"},{"name":"restart_"#));
        assert!(text.ends_with(r#"}] ,"x":1.50}}"#));
        let value: Value = serde_json::from_slice(&whole).expect("it is JSON");
        assert_eq!(value["result"]["tools"].as_array().map(Vec::len), Some(5));
        tools.avoid(["server_logs", "other"].into_iter());
        assert_eq!(tools.find("server_logs"), None);
        assert_eq!(tools.find("afresh_server_logs"), Some(AdminTool::Logs));
        tools.avoid(["server_logs", "afresh_server_logs"].into_iter());
        assert_eq!(tools.find("afresh_afresh_server_logs"), Some(AdminTool::Logs));
        tools.avoid(["afresh_server_status", "server_status"].into_iter());
        assert_eq!(tools.find("afresh_afresh_server_status"), Some(AdminTool::Status));
        assert_eq!(Tools::default().definitions(), "");
    }

    fn tools(which: WhichTools, names: ToolNames) -> Tools {
        Tools::new(&AddedTools { which, names })
    }

    /// The names in the list.
    fn listed(tools: &Tools) -> Vec<String> {
        let whole = tools.added_to(br#"{"id":1,"result":{"tools":[]}}"#.to_vec());
        let value: Value = serde_json::from_slice(&whole).expect("it is JSON");
        let all = value["result"]["tools"].as_array().expect("a list").iter();
        all.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn names_begin_with_that_of_the_server_and_bare_ones_are_called_too() {
        let prefixed = |name: &str| ToolNames::Prefixed(name.to_owned());
        let mut docs = tools(WhichTools::All, prefixed("my docs/ü"));
        let names = ["restart_server", "verify_server_restarted", "server_status", "server_logs"];
        assert_eq!(listed(&docs), names.map(|name| format!("my_docs___{name}")));
        for name in names {
            assert!(docs.find(name).is_some() && docs.find(&format!("my_docs___{name}")).is_some());
        }
        // The server has such a tool, and then none any more.
        docs.avoid(["server_logs", "my_docs___server_status"].into_iter());
        assert_eq!(docs.find("server_logs"), None);
        assert_eq!(docs.find("my_docs___server_logs"), Some(AdminTool::Logs));
        assert_eq!(docs.find("my_docs___server_status"), None);
        assert_eq!(docs.find("afresh_my_docs___server_status"), Some(AdminTool::Status));
        docs.avoid(["other"].into_iter());
        assert_eq!(docs.find("server_logs"), Some(AdminTool::Logs));
        let one = tools(WhichTools::Restart, prefixed("docs"));
        assert_eq!(listed(&one), ["docs_restart_server"]);
        assert_eq!(
            (one.find("restart_server"), one.find("server_logs")),
            (Some(AdminTool::Restart), None)
        );
        assert!(tools(WhichTools::None, prefixed("docs")).is_empty());
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let names =
            |name: &str| listed(&tools(WhichTools::All, ToolNames::Prefixed(name.to_owned())));
        let (one, other) = (names(&"x".repeat(70)), names(&format!("{}y", "x".repeat(70))));
        for (one, other) in one.iter().zip(&other) {
            assert_ne!(one, other);
            assert!(one.len() == NAME_CHARS_MAX && other.len() == NAME_CHARS_MAX, "{one} {other}");
        }
        assert!(one[0].ends_with("_restart_server"), "{one:?}");
        // The same in each version.
        assert_eq!(one[0], "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_77f3c97d_restart_server");
        let longest = "x".repeat(NAME_CHARS_MAX - "_restart_server".len());
        assert_eq!(names(&longest)[0], format!("{longest}_restart_server"));
    }

    #[test]
    fn reserved_names_are_called_and_not_listed() {
        let mut hidden = tools(WhichTools::All, ToolNames::Reserved);
        assert!(hidden.is_empty());
        hidden.avoid(["afresh:restart_server"].into_iter());
        assert_eq!(hidden.find("afresh:restart_server"), Some(AdminTool::Restart));
        assert_eq!(hidden.find("restart_server"), None);
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let asked = |tool: AdminTool, text: &str| tool.asked(Some(text.as_bytes()));
        let reason = |reason: &str| Ok(AdminRequest::Restart { reason: reason.to_owned() });
        assert_eq!(AdminTool::Restart.asked(None), reason("code changes"));
        assert_eq!(asked(AdminTool::Restart, r#"{"reason":" "}"#), reason("code changes"));
        assert_eq!(
            asked(AdminTool::Restart, r#"{"reason":"new parser","odd":1}"#),
            reason("new parser")
        );
        assert!(asked(AdminTool::Restart, r#"{"reason":7}"#).is_err());
        let long = asked(AdminTool::Restart, &json!({"reason": "ü".repeat(100_000)}).to_string());
        assert_eq!(long, reason(&"ü".repeat(RESTART_REASON_CHARS_MAX)));
        assert!(asked(AdminTool::Restart, "[1]").is_err());
        assert_eq!(
            asked(AdminTool::Verify, r#"{"since_timestamp":1763196120.25}"#),
            Ok(AdminRequest::Verify { since: 1_763_196_120.25 })
        );
        for same in [
            r#""2025-11-15T08:42:00.250Z""#,
            r#""2025-11-15T09:42:00.25+01:00""#,
            r#""1763196120.25""#,
        ] {
            let text = format!(r#"{{"since_timestamp":{same}}}"#);
            let since = AdminRequest::Verify { since: 1_763_196_120.25 };
            assert_eq!(asked(AdminTool::Verify, &text), Ok(since), "{same}");
        }
        for bad in ["{}", r#"{"since_timestamp":"now"}"#, r#"{"since_timestamp":"NaN"}"#] {
            assert!(
                asked(AdminTool::Verify, bad).is_err_and(|why| why.contains("since_timestamp"))
            );
        }
        assert_eq!(
            asked(AdminTool::Logs, r#"{"lines":99999,"filter":"E"}"#),
            Ok(AdminRequest::Logs { lines: LINES_MAX, filter: Some("E".to_owned()) })
        );
        for bad in [r#"{"lines":0}"#, r#"{"lines":-1}"#, r#"{"lines":1.5}"#, r#"{"filter":1}"#] {
            assert!(asked(AdminTool::Logs, bad).is_err(), "{bad}");
        }
    }
}

#[cfg(test)]
mod restart_tests {
    use super::*;

    fn calls(old_pid: Option<u32>) -> RestartCalls {
        let (id, called_at, newest) = (Id::new(b"1"), Time::ZERO, Generation(2));
        let mut calls = RestartCalls::new("docs");
        calls.waiting.push(RestartCall { id, called_at, newest, old_pid, before: None });
        calls
    }

    #[test]
    fn only_a_newer_instance_ends_the_wait() {
        let mut calls = calls(Some(10));
        assert_eq!(calls.next_expiry(), Some(Time::ZERO + RESTART_ANSWER_MAX));
        assert_eq!(calls.succeed(Time::ZERO, Generation(2), 11, None), []);
        assert_eq!(calls.fail("it broke", Some(Generation(2))), []);
        assert_eq!(calls.expire(Time::ZERO), []);
        let done = calls.succeed(Time::ZERO, Generation(3), 11, None);
        let wanted = "the server `docs` was restarted in 0 s: old pid 10, new pid 11";
        assert!(matches!(&done[..], [(_, said)] if said.text.starts_with(wanted)), "{done:?}");
        assert!(calls.waiting.is_empty());
    }

    #[test]
    fn a_call_ends_with_the_failure_or_with_its_time() {
        let failed = calls(None).fail("it broke", None);
        assert!(
            matches!(&failed[..], [(_, said)] if said.is_error && said.text.ends_with("it broke"))
        );
        let mut calls = calls(None);
        let expired = calls.expire(Time::ZERO + RESTART_ANSWER_MAX);
        assert!(matches!(&expired[..], [(_, said)] if said.is_error) && calls.waiting.is_empty());
    }
}
