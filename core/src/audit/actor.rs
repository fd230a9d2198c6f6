//! Owns the actors of the trail: what or who requested a restart or a stop, or was refused. Written as `props.by` by
//! the records that have one. Never looks anything up: the daemon says what it knows of a peer.

use core::net::SocketAddr;

use serde_json::{Value, json};

use crate::limits::ACTOR_NAME_CHARS_MAX;

/// What or who did something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A process on the other end of a Unix socket, by the kernel's word.
    Process {
        /// Its user.
        uid: u32,
        /// Its id, where the system tells.
        pid: Option<u32>,
    },
    /// A program on the other end of a TCP connection, of which no more is known.
    Address(SocketAddr),
    /// A client that sent a token of this name.
    Token(String),
    /// An MCP client that called a tool of afresh.
    Client {
        /// As it calls itself.
        name: Option<String>,
        /// The name of its token.
        token: Option<String>,
        /// The tool.
        tool: &'static str,
    },
    /// The sender of this signal, whom the system does not name.
    Signal(&'static str),
    /// A part of afresh, such as `watch`.
    Afresh(&'static str),
}

impl Actor {
    /// The value of `props.by`. Names that clients choose are cut to [`ACTOR_NAME_CHARS_MAX`].
    pub fn to_json(&self) -> Value {
        let cut = |name: &str| name.chars().take(ACTOR_NAME_CHARS_MAX).collect::<String>();
        match self {
            Self::Process { uid, pid: Some(pid) } => json!({"uid": uid, "pid": pid}),
            Self::Process { uid, pid: None } => json!({"uid": uid}),
            Self::Address(address) => json!({"address": address.to_string()}),
            Self::Token(name) => json!({"token": name}),
            Self::Client { name, token, tool } => {
                let mut by = json!({});
                if let Some(name) = name {
                    by["client"] = cut(name).into();
                }
                if let Some(token) = token {
                    by["token"] = token.as_str().into();
                }
                by["tool"] = (*tool).into();
                by
            }
            Self::Signal(name) => json!({"signal": name}),
            Self::Afresh(part) => json!({"afresh": part}),
        }
    }
}

/// A `props.by` of the trail for people, such as `uid 1000, pid 4711`; none where there is none, and where afresh acted
/// by itself: the message says why.
pub fn shown(by: &Value) -> Option<String> {
    let members = by.as_object().filter(|members| !members.contains_key("afresh"))?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let parts: Vec<String> =
        members.iter().map(|(key, value)| format!("{key} {}", text(value))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_actor_is_an_object_that_people_can_read_too() {
        let token = || "ci".to_owned();
        let client = |name: Option<&str>, token| Actor::Client {
            name: name.map(str::to_owned),
            token,
            tool: "restart_server",
        };
        for (actor, json, text) in [
            (
                Actor::Process { uid: 1000, pid: Some(4711) },
                r#"{"uid":1000,"pid":4711}"#,
                Some("uid 1000, pid 4711"),
            ),
            (Actor::Process { uid: 0, pid: None }, r#"{"uid":0}"#, Some("uid 0")),
            (
                Actor::Address(([127, 0, 0, 1], 80).into()),
                r#"{"address":"127.0.0.1:80"}"#,
                Some("address 127.0.0.1:80"),
            ),
            (Actor::Token(token()), r#"{"token":"ci"}"#, Some("token ci")),
            (
                client(Some("claude-code"), Some(token())),
                r#"{"client":"claude-code","token":"ci","tool":"restart_server"}"#,
                Some("client claude-code, token ci, tool restart_server"),
            ),
            (client(None, None), r#"{"tool":"restart_server"}"#, Some("tool restart_server")),
            (Actor::Signal("SIGTERM"), r#"{"signal":"SIGTERM"}"#, Some("signal SIGTERM")),
            (Actor::Afresh("watch"), r#"{"afresh":"watch"}"#, None),
        ] {
            assert_eq!(actor.to_json().to_string(), json);
            assert_eq!(shown(&actor.to_json()).as_deref(), text);
        }
        assert_eq!(shown(&Value::Null), None);
        let long = client(Some(&"x".repeat(10_000)), None).to_json();
        assert_eq!(long["client"].as_str().map(str::len), Some(ACTOR_NAME_CHARS_MAX));
    }
}
