//! What clients want to hear of: the listeners of the newer protocol, and the resources of both.

use serde_json::{Value, json};

use super::super::{ClientId, LinkId};
use super::link::Stage;
use super::session::Filter;
use super::{Hub, What};
use crate::limits::{CLIENT_LISTENS_MAX, CLIENT_SUBSCRIPTIONS_MAX};
use crate::mcp::envelope::{Id, param};
use crate::mcp::{Era, Kind, responses};

impl Hub {
    /// A client of the newer protocol wants to hear what changes.
    pub(super) fn listen(&mut self, client: ClientId, id: &Id, line: &[u8]) {
        let asked: Value = param(line, &["notifications"])
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or(Value::Null);
        let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].map(Kind::filter);
        let uris = asked["resourceSubscriptions"].as_array();
        let filter = Filter {
            lists: lists.into_iter().filter(|name| asked[*name] == true).collect(),
            uris: uris
                .into_iter()
                .flatten()
                .filter_map(|uri| uri.as_str().map(str::to_owned))
                .collect(),
        };
        let Some(its) = self.clients.get_mut(&client) else { return };
        if its.listens.len() >= CLIENT_LISTENS_MAX || filter.uris.len() > CLIENT_SUBSCRIPTIONS_MAX {
            let why = format!(
                "no more than {CLIENT_LISTENS_MAX} streams and {CLIENT_SUBSCRIPTIONS_MAX} resources"
            );
            return self.answer_error(client, id, -32603, &why);
        }
        its.listens.insert(id.clone(), filter);
        self.use_servers(client);
        let granted = if asked.is_object() { asked } else { json!({}) };
        let more = format!(r#","notifications":{granted}"#);
        let line = to_listener("notifications/subscriptions/acknowledged", id, more.as_bytes());
        self.answer(client, id, line);
        for link in self.links_of(client) {
            self.sync_subscriptions(link);
        }
    }

    /// Tells a server which resources are wanted, where that has changed.
    pub(super) fn sync_subscriptions(&mut self, link: LinkId) {
        let Some(its) = self.links.get(&link) else { return };
        if its.stage != Stage::Open {
            return;
        }
        let (slot, is_modern) = (its.slot, its.era == Era::Modern);
        let mut wanted = std::collections::BTreeSet::new();
        for user in self.users_of(link) {
            let Some(client) = self.clients.get(&user) else { continue };
            for uri in client.uris() {
                if self.slot_of_uri(user, uri) == Some(slot) {
                    wanted.insert(uri.clone());
                }
            }
        }
        let Some(its) = self.links.get_mut(&link) else { return };
        let known = std::mem::replace(&mut its.subscribed, wanted.clone());
        if is_modern {
            if known == wanted && its.listens.is_some() {
                return;
            }
            let old = its.listens.take();
            let meta = String::from_utf8_lossy(&its.meta).into_owned();
            let uris: Vec<&String> = wanted.iter().collect();
            let filter = json!({
                "toolsListChanged": true,
                "promptsListChanged": true,
                "resourcesListChanged": true,
                "resourceSubscriptions": uris,
            });
            let params = format!(r#"{{"_meta":{meta},"notifications":{filter}}}"#);
            if let Some(old) = old {
                self.withdraw(old, "other resources are wanted");
            }
            let number =
                self.request(link, "subscriptions/listen", params.as_bytes(), What::Listens);
            if let Some(its) = self.links.get_mut(&link) {
                its.listens = Some(number);
            }
            return;
        }
        let has_subscribe = its.capabilities["resources"]["subscribe"] == true;
        for (method, uris) in [
            ("resources/subscribe", wanted.difference(&known)),
            ("resources/unsubscribe", known.difference(&wanted)),
        ] {
            for uri in uris.filter(|_| has_subscribe) {
                let params = json!({"uri": uri}).to_string();
                self.request(link, method, params.as_bytes(), What::Ignored);
            }
        }
    }
}

/// A notification for one listener, with more of its parameters.
pub(super) fn to_listener(method: &str, id: &Id, more: &[u8]) -> Vec<u8> {
    let meta = br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"#;
    responses::notification(method, Some(&[meta, id.raw(), b"}", more, b"}"].concat()))
}
