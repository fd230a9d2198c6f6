//! Owns the requests of the server that the hub has not answered. Driven by
//! [`Traffic`](super::traffic::Traffic). Never sends a response itself.
//!
//! A new session counts its ids anew, so the hub knows each request by an id of the link.

use std::collections::BTreeMap;

use crate::limits::ASKED_MAX;
use crate::mcp::envelope::{self, Id};

#[derive(Debug)]
struct ServerRequest {
    session: u64,
    /// The server's id.
    id: Id,
}

/// Requests by the ids that the hub knows them by.
#[derive(Debug, Default)]
pub(super) struct ServerRequests(BTreeMap<Id, ServerRequest>);

impl ServerRequests {
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= ASKED_MAX
    }

    /// Adds a request; returns its line with an id for the hub, made of the session and a fresh number.
    pub(super) fn add(
        &mut self,
        session: u64,
        number: u64,
        id: &Id,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let hub_id = format!("\"s{session}:{number}\"");
        let line = envelope::with_id(line, hub_id.as_bytes())?;
        let request = ServerRequest { session, id: id.clone() };
        self.0.insert(Id::new(hub_id.as_bytes()), request);
        Some(line)
    }

    /// The hub's response with the server's id; none where the session that asked is gone.
    pub(super) fn respond(&mut self, session: u64, hub_id: &Id, line: &[u8]) -> Option<Vec<u8>> {
        let request = self.0.remove(hub_id).filter(|request| request.session == session)?;
        envelope::with_id(line, request.id.raw())
    }

    /// Removes a request that the server cancels; returns the hub's id.
    pub(super) fn cancel(&mut self, id: &Id) -> Option<Id> {
        let hub_id = self.0.iter().find(|(_, request)| request.id == *id)?.0.clone();
        self.0.remove(&hub_id);
        Some(hub_id)
    }

    /// Forgets all; returns the hub's ids.
    pub(super) fn take_all(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_goes_to_the_session_that_asked() {
        let mut requests = ServerRequests::default();
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let asked = requests.add(3, 7, &Id::new(b"1"), line).unwrap();
        assert!(String::from_utf8(asked).unwrap().contains(r#""id":"s3:7""#));
        let hub_id = Id::new(br#""s3:7""#);
        let response = br#"{"jsonrpc":"2.0","id":"s3:7","result":{}}"#;
        let sent = requests.respond(3, &hub_id, response).unwrap();
        assert!(String::from_utf8(sent).unwrap().contains(r#""id":1"#));
        assert_eq!(requests.respond(3, &hub_id, response), None);
        requests.add(3, 8, &Id::new(b"1"), line).unwrap();
        assert_eq!(requests.respond(4, &Id::new(br#""s3:8""#), response), None);
        requests.add(4, 9, &Id::new(b"1"), line).unwrap();
        assert_eq!(requests.cancel(&Id::new(b"1")), Some(Id::new(br#""s4:9""#)));
        assert_eq!(requests.take_all(), []);
    }
}
