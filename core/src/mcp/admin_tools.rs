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
use crate::time::Time;

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

/// In front of the name of a tool that the server has too.
const PREFIX: &str = "afresh_";

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

    /// The tool behind a name that a conversation may have prefixed, because its server has one of that name.
    pub(crate) fn of_injected(name: &str) -> Option<Self> {
        Self::of_name(name.trim_start_matches(PREFIX))
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
                json!({"since_timestamp": {
                    "type": "number",
                    "description": "Unix time in seconds; usually the time before restart_server.",
                }}),
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
                let since = given("since_timestamp").and_then(Value::as_f64);
                let wanted = "`since_timestamp` must be a number: a Unix time in seconds";
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
    names: Vec<(String, AdminTool)>,
}

impl Tools {
    pub(super) fn new(enabled: bool) -> Self {
        let all = if enabled { &AdminTool::ALL[..] } else { &[] };
        Self { names: all.iter().map(|tool| (tool.name().to_owned(), *tool)).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn find(&self, name: &str) -> Option<AdminTool> {
        self.names.iter().find(|(ours, _)| ours == name).map(|(_, tool)| *tool)
    }

    /// The server has tools of these names: ours give way.
    pub(super) fn avoid<'a>(&mut self, theirs: impl Iterator<Item = &'a str>) {
        let theirs: BTreeSet<&str> = theirs.collect();
        for (ours, _) in &mut self.names {
            while theirs.contains(ours.as_str()) {
                ours.insert_str(0, PREFIX);
            }
        }
    }

    /// Definitions for a `tools/list`, separated by commas.
    pub(super) fn definitions(&self) -> String {
        let all: Vec<String> =
            self.names.iter().map(|(name, tool)| tool.definition(name).to_string()).collect();
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
pub(super) struct RestartCalls(pub(super) Vec<RestartCall>);

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
    /// When a call has waited long enough.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.0.first().map(|call| call.called_at + RESTART_ANSWER_MAX)
    }

    /// This instance serves, and its tools are known: the results of the calls that waited for it.
    pub(super) fn succeed(
        &mut self,
        now: Time,
        generation: Generation,
        pid: u32,
        tools: Option<&NamedList>,
    ) -> Vec<(Id, ToolResult)> {
        let done = self.0.extract_if(.., |call| call.newest < generation);
        done.map(|call| {
            let said = success(&call, pid, now, tools);
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
        let failed = self.0.extract_if(.., waits);
        let text = format!("the server was not restarted: {why}");
        failed.map(|call| failure(call, text.clone(), why)).collect()
    }

    /// The results of the calls that have waited long enough.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(Id, ToolResult)> {
        let expired = self.0.extract_if(.., |call| call.called_at + RESTART_ANSWER_MAX <= now);
        let text = format!(
            "no new instance is ready after {} s; it is still being tried: call server_status \
             for how far it is, and server_logs for what the server says",
            RESTART_ANSWER_MAX.as_secs()
        );
        expired.map(|call| failure(call, text.clone(), &text)).collect()
    }
}

fn failure(call: RestartCall, text: String, error: &str) -> (Id, ToolResult) {
    let data = json!({"restarted": false, "old_pid": call.old_pid, "error": error});
    (call.id, ToolResult { text, data: Some(data), is_error: true })
}

fn success(call: &RestartCall, pid: u32, now: Time, tools: Option<&NamedList>) -> ToolResult {
    let seconds = (now.since(call.called_at).as_secs_f64() * 1e3).round() / 1e3;
    let changes = tools.zip(call.before.as_ref()).map(|(tools, b)| tools.changes_since(b));
    let old = call.old_pid.map_or_else(|| "none was running".to_owned(), |pid| pid.to_string());
    let mut text = format!("restarted in {seconds} s: old pid {old}, new pid {pid}.");
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
        let mut tools = Tools::new(true);
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
        tools.avoid(["afresh_server_logs"].into_iter());
        assert_eq!(tools.find("afresh_afresh_server_logs"), Some(AdminTool::Logs));
        tools.avoid(["afresh_server_status", "server_status"].into_iter());
        assert_eq!(tools.find("afresh_afresh_server_status"), Some(AdminTool::Status));
        assert_eq!(Tools::new(false).definitions(), "");
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
        for bad in ["{}", r#"{"since_timestamp":"now"}"#] {
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
        RestartCalls(vec![RestartCall { id, called_at, newest, old_pid, before: None }])
    }

    #[test]
    fn only_a_newer_instance_ends_the_wait() {
        let mut calls = calls(Some(10));
        assert_eq!(calls.next_expiry(), Some(Time::ZERO + RESTART_ANSWER_MAX));
        assert_eq!(calls.succeed(Time::ZERO, Generation(2), 11, None), []);
        assert_eq!(calls.fail("it broke", Some(Generation(2))), []);
        assert_eq!(calls.expire(Time::ZERO), []);
        let done = calls.succeed(Time::ZERO, Generation(3), 11, None);
        assert!(matches!(&done[..], [(_, said)] if said.text.contains("old pid 10, new pid 11")));
        assert!(calls.0.is_empty());
    }

    #[test]
    fn a_call_ends_with_the_failure_or_with_its_time() {
        let failed = calls(None).fail("it broke", None);
        assert!(
            matches!(&failed[..], [(_, said)] if said.is_error && said.text.ends_with("it broke"))
        );
        let mut calls = calls(None);
        let expired = calls.expire(Time::ZERO + RESTART_ANSWER_MAX);
        assert!(matches!(&expired[..], [(_, said)] if said.is_error) && calls.0.is_empty());
    }
}
