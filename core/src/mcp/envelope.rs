//! The envelope of a JSON-RPC message: what it is and whose it is. The payload stays raw.

use std::ops::Range;

use super::json::{self, get};

/// An id as the raw JSON that came: `7`, `"a"`. Never compared as a number: 7 and "7" are two ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(Box<[u8]>);

impl Id {
    /// The id of this raw JSON.
    pub fn new(raw: &[u8]) -> Self {
        Self(raw.into())
    }

    /// The raw JSON.
    pub fn raw(&self) -> &[u8] {
        &self.0
    }
}

/// A message, looked at from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// What is asked.
        method: String,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
    },
    /// Answers a request.
    Response {
        /// Of the request; none in some errors.
        id: Option<Id>,
        /// Whether it is an error.
        is_error: bool,
    },
    /// Several messages in one line.
    Batch,
}

/// Looks at a line; `None` where it is no JSON-RPC message.
pub fn look(line: &[u8]) -> Option<Message> {
    let Some(members) = json::members(line) else {
        return json::elements(line).map(|_| Message::Batch);
    };
    let value = |key: &str| {
        let quoted =
            |member: &&json::Member| line[member.key.clone()] == *format!("\"{key}\"").as_bytes();
        members.iter().rev().find(quoted).map(|member| &line[member.value.clone()])
    };
    let id = value("id").filter(|raw| *raw != b"null").map(Id::new);
    match (value("method").and_then(json::text), id) {
        (Some(method), Some(id)) => Some(Message::Request { id, method }),
        (Some(method), None) => Some(Message::Notification { method }),
        (None, id) => {
            let is_error = value("error").is_some();
            (is_error || value("result").is_some()).then_some(Message::Response { id, is_error })
        }
    }
}

/// The line with another id; everything else as it was.
pub fn with_id(line: &[u8], id: &[u8]) -> Option<Vec<u8>> {
    let members = json::members(line)?;
    let member = members.into_iter().rev().find(|member| &line[member.key.clone()] == b"\"id\"")?;
    Some(splice(line, member.value, id))
}

/// The bytes with a part replaced.
pub fn splice(bytes: &[u8], part: Range<usize>, by: &[u8]) -> Vec<u8> {
    [&bytes[..part.start], by, &bytes[part.end..]].concat()
}

/// A parameter of a message, by its path.
pub fn param<'a>(line: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    get(get(line, &["params"])?, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, method: &str) -> Option<Message> {
        Some(Message::Request { id: Id::new(id.as_bytes()), method: method.to_owned() })
    }

    #[test]
    fn messages_are_told_apart() {
        assert_eq!(look(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), request("1", "ping"));
        assert_eq!(look(br#"{"method":"a\/b","id":"x"}"#), request("\"x\"", "a/b"));
        assert_eq!(
            look(br#"{"method":"n","id":null}"#),
            Some(Message::Notification { method: "n".to_owned() })
        );
        let response =
            |id: Option<&[u8]>, is_error| Some(Message::Response { id: id.map(Id::new), is_error });
        assert_eq!(look(br#"{"result":{"id":5},"id":1}"#), response(Some(b"1"), false));
        assert_eq!(look(br#"{"error":{}}"#), response(None, true));
        assert_eq!(look(b"[]"), Some(Message::Batch));
        for bad in [&b"hello"[..], b"{}", b"7", b"{\"id\":1}", b"{\"method\":7}"] {
            assert_eq!(look(bad), None);
        }
    }

    #[test]
    fn an_id_is_replaced_and_nothing_else() {
        let line = br#"{ "x":1.50, "id" : 7 ,"result":{"id":7}}"#;
        let changed = with_id(line, b"\"s2:0\"").unwrap();
        assert_eq!(changed, br#"{ "x":1.50, "id" : "s2:0" ,"result":{"id":7}}"#);
        assert_eq!(with_id(b"{}", b"1"), None);
    }
}
