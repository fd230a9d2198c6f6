//! Owns the text of a session id by which a session goes on after a restart of the gateway: a random name, and what its
//! client said in `initialize`. The daemon signs it and checks the signature; `sessions_and_streams.rs` opens the session
//! anew. Never knows a key or a clock.

use serde_json::{Map, Value, json};

use super::client_state::{MessageStream, STANDALONE, SessionId};
use super::sessions_and_streams::Front;
use super::{FrontEffect, HttpRefusal, ResumedSession};
use crate::base64;
use crate::gateway::access_patterns::Access;
use crate::gateway::{ClientId, Input};
use crate::limits::{
    CLIENT_INTRODUCTION_BYTES_MAX, SESSION_ID_BYTES_MAX, SESSION_NAME_CHARS_MAX,
    SESSION_PARAMS_BYTES_MAX,
};
use crate::mcp::envelope::Id;
use crate::mcp::json as raw;
use crate::time::Time;

/// What the id of a session says besides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionClaim {
    /// When it was issued, in seconds since 1970.
    pub issued: u64,
    /// What binds it to its token.
    pub binding: String,
    /// The parameters of `initialize`, as far as they are needed.
    pub params: Vec<u8>,
}

/// The text of a session id, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionText<'a> {
    /// What is signed.
    pub signed: &'a str,
    /// The signature.
    pub signature: &'a str,
}

impl SessionClaim {
    /// The claim of a session that this line opens; none where it cannot be short enough.
    pub fn of_initialize(line: &[u8], issued: u64, binding: String) -> Option<Self> {
        // More is refused, and reading it takes many times its bytes.
        let params = raw::get(line, &["params"])?;
        if params.len() > CLIENT_INTRODUCTION_BYTES_MAX {
            return None;
        }
        let value = |key: &str| raw::value(raw::get(params, &[key]));
        let text = |value: &Value| {
            let text = value.as_str().unwrap_or_default();
            Value::from(text.chars().take(SESSION_NAME_CHARS_MAX).collect::<String>())
        };
        let (info, capabilities) = (value("clientInfo"), value("capabilities"));
        let client = json!({"name": text(&info["name"]), "version": text(&info["version"])});
        let params = |capabilities: &Value| {
            let version = value("protocolVersion");
            let all = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": client});
            Some(all.to_string().into_bytes()).filter(|all| all.len() <= SESSION_PARAMS_BYTES_MAX)
        };
        // Without what nobody knows, where there is too much of it.
        let known = ["roots", "sampling", "elicitation"].into_iter();
        let known = known.filter(|key| capabilities[*key].is_object());
        let known: Map<String, Value> = known.map(|key| (key.to_owned(), json!({}))).collect();
        let params = params(&capabilities).or_else(|| params(&Value::Object(known)))?;
        Some(Self { issued, binding, params })
    }

    /// The text to be signed.
    pub fn to_text(&self, session: SessionId) -> Option<String> {
        let params: Value = serde_json::from_slice(&self.params).ok()?;
        let claim = json!({"t": self.issued, "b": self.binding, "p": params}).to_string();
        Some(format!("{session}.{}", base64::encode(claim.as_bytes())))
    }

    /// Reads a text whose signature is right.
    pub fn parse(signed: &str) -> Option<Self> {
        let (_, claim) = signed.split_once('.')?;
        let claim: Value = serde_json::from_slice(&base64::decode(claim.as_bytes())?).ok()?;
        Some(Self {
            issued: claim["t"].as_u64()?,
            binding: claim["b"].as_str()?.to_owned(),
            params: claim["p"]
                .as_object()?
                .clone()
                .into_iter()
                .collect::<Value>()
                .to_string()
                .into(),
        })
    }
}

impl Front {
    /// Whether there is a session of this name, whoever's it is.
    pub fn has_session(&self, name: &str) -> bool {
        SessionId::parse(name).is_some_and(|session| self.sessions.contains_key(&session))
    }

    /// Opens a session anew that began in a gateway before this one. None where another token's has its name.
    pub(super) fn resume(
        &mut self,
        now: Time,
        name: &str,
        owner: (Option<usize>, Access),
        resumes: &ResumedSession,
    ) -> Result<Option<ClientId>, HttpRefusal> {
        let is_free = |session: &SessionId| !self.sessions.contains_key(session);
        let Some(session) = SessionId::parse(name).filter(is_free) else { return Ok(None) };
        let client = self.join(now, Some((session, name)), owner, &Id::new(b"null"))?;
        if let Some(its) = self.clients.get_mut(&client) {
            (its.is_open, its.is_resumed) = (true, true);
            // Its client may still have ids of events of the gateway before: no new one is equal to one of these.
            let from = resumes.numbers_from.max(1);
            its.last_stream = from;
            its.streams.insert(STANDALONE, MessageStream::numbered_from(from));
        }
        self.effects
            .push(FrontEffect::Hub(Input::Resumed { client, params: resumes.params.clone() }));
        Ok(Some(client))
    }
}

impl<'a> SessionText<'a> {
    /// The parts of a session id; none where it has no signature.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        (text.len() <= SESSION_ID_BYTES_MAX).then_some(Self { signed, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(params: &str) -> Option<SessionClaim> {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        SessionClaim::of_initialize(line.as_bytes(), 7, "x".to_owned())
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let session = SessionId([7; 16]);
        let claim = claim(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"c","version":"1","x":2},"_meta":{}}"#,
        )
        .unwrap();
        let text = claim.to_text(session).unwrap();
        assert!(text.starts_with("07070707070707070707070707070707."));
        assert_eq!(SessionClaim::parse(&text), Some(claim.clone()));
        let params: Value = serde_json::from_slice(&claim.params).unwrap();
        assert_eq!(params["capabilities"], json!({"roots": {"listChanged": true}}));
        assert_eq!(params["clientInfo"], json!({"name": "c", "version": "1"}));
        let whole = format!("{text}.sig");
        let parts = SessionText::parse(&whole).unwrap();
        assert_eq!((parts.signed, parts.signature), (text.as_str(), "sig"));
    }

    #[test]
    fn an_id_stays_short() {
        let long = "x".repeat(5_000);
        let params = format!(
            r#"{{"protocolVersion":"2025-06-18","capabilities":{{"sampling":{{}},"experimental":{{"x":"{long}"}}}},"clientInfo":{{"name":"{long}","version":"{long}"}}}}"#
        );
        let claim = claim(&params).unwrap();
        assert!(claim.to_text(SessionId([1; 16])).unwrap().len() < SESSION_ID_BYTES_MAX - 64);
        let params: Value = serde_json::from_slice(&claim.params).unwrap();
        assert_eq!(params["capabilities"], json!({"sampling": {}}));
        assert_eq!(self::claim(&format!(r#"{{"protocolVersion":"{long}"}}"#)), None);
        let too_long = format!(r#"{{"protocolVersion":"2025-06-18","x":"{}"}}"#, long.repeat(4));
        assert_eq!(self::claim(&too_long), None, "it is not even read");
        assert_eq!(SessionText::parse(&format!("a.{long}")), None);
        for text in ["", "a", "a.!!", "a.e30="] {
            assert_eq!(SessionClaim::parse(text), None, "{text}");
        }
    }
}
