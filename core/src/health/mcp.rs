//! Owns the requests of a health check to an MCP server behind streamable HTTP, and the meaning of its answers.
//!
//! Up to 2025-11-25 a server is opened with `initialize` and asked with `ping`; after it there is neither,
//! and `server/discover` is what every server must answer.

use serde_json::{Value, json};

/// The version that is asked for in `initialize`: the last one that has it.
const LAST_WITH_PING: &str = "2025-11-25";

/// The first version without `initialize` and `ping`.
const FIRST_WITHOUT_PING: &str = "2026-07-28";

/// A message to a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its method.
    pub method: &'static str,
    /// What the answer must carry; none for a notification, which has no answer.
    pub id: Option<&'static str>,
    /// The version that goes into a header; none before it is known.
    pub version: Option<String>,
    /// The session that goes into a header.
    pub session: Option<String>,
    /// The body.
    pub body: String,
}

/// How a server wants to be asked, as its first answer says. It holds for one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With `ping`, in this version and session.
    Ping {
        /// The version that was agreed upon.
        version: String,
        /// The session, where the server has them.
        session: Option<String>,
    },
    /// With `server/discover`.
    Discover,
}

/// What a server said.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerReply {
    /// The result of what was asked.
    Result(Value),
    /// An error, as a sentence.
    Error(String),
}

impl Question {
    /// The method, where the version is one that wants it in a header.
    pub fn method_header(&self) -> Option<&'static str> {
        self.version.as_deref().filter(|version| *version >= FIRST_WITHOUT_PING)?;
        Some(self.method)
    }
}

impl Manner {
    /// The manner that the result of `initialize` speaks of; none where it is no such result.
    pub fn after_initialize(result: &Value, session: Option<String>) -> Option<Self> {
        let version = result.get("protocolVersion")?.as_str()?;
        // Versions are dates, so that they are in the order of letters.
        Some(match version >= FIRST_WITHOUT_PING {
            true => Self::Discover,
            false => Self::Ping { version: version.to_owned(), session },
        })
    }

    /// The question that every healthy server answers.
    pub fn question(&self) -> Question {
        match self {
            Self::Ping { version, session } => Question {
                version: Some(version.clone()),
                session: session.clone(),
                ..request("ping", "afresh-ping", json!({}))
            },
            Self::Discover => discover(),
        }
    }
}

/// Opens a session.
pub fn initialize(own_version: &str) -> Question {
    let client = json!({ "name": "afresh", "version": own_version });
    let params = json!({
        "protocolVersion": LAST_WITH_PING,
        "capabilities": {},
        "clientInfo": client,
    });
    request("initialize", "afresh-initialize", params)
}

/// Ends the opening of a session.
pub fn initialized(version: &str, session: Option<String>) -> Question {
    let method = "notifications/initialized";
    let body = json!({ "jsonrpc": "2.0", "method": method }).to_string();
    Question { method, id: None, version: Some(version.to_owned()), session, body }
}

/// Asks a server that knows no `initialize`.
pub fn discover() -> Question {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": FIRST_WITHOUT_PING,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "afresh", "version": "1" },
    });
    Question {
        version: Some(FIRST_WITHOUT_PING.to_owned()),
        ..request("server/discover", "afresh-discover", json!({ "_meta": meta }))
    }
}

fn request(method: &'static str, id: &'static str, params: Value) -> Question {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    Question { method, id: Some(id), version: None, session: None, body: body.to_string() }
}

/// What a message says to the question of this id; none where it is something else, such as a
/// notification in between.
pub fn read(message: &[u8], id: &str) -> Option<ServerReply> {
    let mut message: Value = serde_json::from_slice(message).ok()?;
    // An error before the id was read has none.
    let is_ours = match message.get("id") {
        Some(Value::Null) | None => message.get("error").is_some(),
        Some(found) => found == id,
    };
    if !is_ours {
        return None;
    }
    if let Some(error) = message.get("error") {
        let code = error.get("code").cloned().unwrap_or_default();
        return Some(ServerReply::Error(format!("it answered with error {code}")));
    }
    message.get_mut("result").map(|result| ServerReply::Result(result.take()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_says_how_to_ask() {
        let after = |version: &str| {
            let result = json!({ "protocolVersion": version, "capabilities": {} });
            Manner::after_initialize(&result, Some("s1".to_owned()))
        };
        for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
            let question = after(version).unwrap().question();
            assert_eq!((question.method, question.version.as_deref()), ("ping", Some(version)));
            assert_eq!(question.session.as_deref(), Some("s1"));
            assert_eq!(question.method_header(), None);
        }
        let question = after("2026-07-28").unwrap().question();
        assert_eq!((question.method, &question.session), ("server/discover", &None));
        assert_eq!(question.method_header(), Some("server/discover"));
        assert!(question.body.contains("io.modelcontextprotocol/clientCapabilities"));
        assert_eq!(Manner::after_initialize(&json!({ "protocolVersion": 1 }), None), None);
        assert_eq!(Manner::after_initialize(&json!([]), None), None);
    }

    #[test]
    fn only_an_answer_is_read() {
        let read = |text: &str| read(text.as_bytes(), "afresh-ping");
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":"afresh-ping","result":{}}"#),
            Some(ServerReply::Result(json!({})))
        );
        let error = "it answered with error -32601".to_owned();
        assert_eq!(
            read(r#"{"id":"afresh-ping","error":{"code":-32601,"message":"secret"}}"#),
            Some(ServerReply::Error(error.clone()))
        );
        assert_eq!(read(r#"{"error":{"code":-32601}}"#), Some(ServerReply::Error(error)));
        for other in [
            r#"{"method":"notifications/message"}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"id":"afresh-ping"}"#,
            "[]",
            "<html>",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
