//! Messages in which not everybody reads the same: none of them is passed on. Who reads another id in it than we do
//! takes it for the answer to somebody else's request, and who reads another name calls what is denied.

use serde_json::json;

use super::super::{ClientId, LinkId};
use super::{Hub, number_in};
use crate::mcp::envelope::Message;
use crate::mcp::responses;

const WHY: &str = "a key of the message stands there twice, or is written with escapes: not everybody reads the \
     same in it";

impl Hub {
    /// One of a client's.
    pub(super) fn doubt_client(&mut self, client: ClientId, message: Message) {
        match message {
            Message::Request { id, .. } | Message::Invalid { id } => {
                self.answer(client, &id, responses::invalid(&id, WHY));
            }
            // A server waits for it.
            Message::Response { id: Some(id), .. } => {
                let number = number_in(id.raw(), b's');
                let is_its = |number: &u64| {
                    self.asked.get(number).is_some_and(|asked| asked.client == client)
                };
                if let Some(number) = number.filter(is_its) {
                    self.refuse(number, WHY);
                }
            }
            Message::Response { id: None, .. } | Message::Notification { .. } | Message::Batch => {}
        }
    }

    /// One of a server's.
    pub(super) fn doubt_link(&mut self, link: LinkId, message: Message) {
        let error = json!({"code": -32603, "message": WHY, "data": {"reason": "bad_reply"}});
        match message {
            // Whose it is, as we read it, gets to know why there is no other answer.
            Message::Response { id: Some(id), .. } => {
                self.answered(link, &id, responses::line(&id, "error", &error), true);
            }
            Message::Request { id, .. } => self.tell_link(link, responses::invalid(&id, WHY)),
            Message::Response { id: None, .. }
            | Message::Invalid { .. }
            | Message::Notification { .. }
            | Message::Batch => {}
        }
    }
}
