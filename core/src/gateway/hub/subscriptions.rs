//! Owns the resources and lists that one client wants to hear of. Changed by the client's requests; read when a
//! server reports a change. Never talks to a server: `Directory::sync_subscriptions` does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::limits::{CLIENT_LISTENS_MAX, CLIENT_SUBSCRIPTIONS_MAX};
use crate::mcp::envelope::Id;
use crate::mcp::{Kind, responses};

/// A client's subscriptions, of both protocols.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// By `resources/subscribe`.
    resources: BTreeSet<String>,
    /// By `subscriptions/listen`: the ids of the requests, each with its filter.
    listeners: BTreeMap<Id, ListenFilter>,
}

/// The changes that a listener is told of.
#[derive(Debug)]
struct ListenFilter {
    /// The lists, by the names that the filter has for them.
    lists: BTreeSet<&'static str>,
    resources: BTreeSet<String>,
}

impl Subscriptions {
    /// All resources.
    pub(super) fn uris(&self) -> impl Iterator<Item = &String> {
        self.resources.iter().chain(self.listeners.values().flat_map(|filter| &filter.resources))
    }

    /// Whether no further resource can be subscribed to.
    pub(super) fn is_full(&self) -> bool {
        self.resources.len() >= CLIENT_SUBSCRIPTIONS_MAX
    }

    pub(super) fn subscribe(&mut self, uri: String) {
        self.resources.insert(uri);
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        self.resources.remove(uri);
    }

    pub(super) fn is_listening(&self, id: &Id) -> bool {
        self.listeners.contains_key(id)
    }

    /// Adds a listener; says why it is refused.
    pub(super) fn listen(&mut self, id: &Id, filter: &Value) -> Result<(), String> {
        let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].map(Kind::filter);
        let uris = filter["resourceSubscriptions"].as_array().into_iter().flatten();
        let filter = ListenFilter {
            lists: lists.into_iter().filter(|name| filter[*name] == true).collect(),
            resources: uris.filter_map(|uri| uri.as_str().map(str::to_owned)).collect(),
        };
        if self.listeners.len() >= CLIENT_LISTENS_MAX
            || filter.resources.len() > CLIENT_SUBSCRIPTIONS_MAX
        {
            return Err(format!(
                "no more than {CLIENT_LISTENS_MAX} streams and {CLIENT_SUBSCRIPTIONS_MAX} resources"
            ));
        }
        self.listeners.insert(id.clone(), filter);
        Ok(())
    }

    /// Ends a listener; returns whether there was one.
    pub(super) fn stop_listening(&mut self, id: &Id) -> bool {
        self.listeners.remove(id).is_some()
    }

    /// The notification that a resource has changed, once for each way in which the client subscribed to it.
    /// `members` are those of its parameters, each with a comma in front.
    pub(super) fn updates(&self, uri: &str, members: &[u8]) -> Vec<(Vec<u8>, Option<Id>)> {
        let method = "notifications/resources/updated";
        let mut lines = Vec::new();
        if self.resources.contains(uri) {
            let params = [b"{", members.get(1..).unwrap_or_default(), b"}"].concat();
            lines.push((responses::notification(method, Some(&params)), None));
        }
        let listeners = self.listeners.iter().filter(|(_, filter)| filter.resources.contains(uri));
        lines.extend(listeners.map(|(id, _)| (to_listener(method, id, members), Some(id.clone()))));
        lines
    }

    /// The notification that a list has changed, for each listener that asked for it.
    pub(super) fn list_changes(&self, kind: Kind) -> Vec<(Vec<u8>, Option<Id>)> {
        let asks = |filter: &ListenFilter| filter.lists.contains(kind.filter());
        let listeners = self.listeners.iter().filter(|(_, filter)| asks(filter));
        let line = |id: &Id| to_listener(kind.notification(), id, b"");
        listeners.map(|(id, _)| (line(id), Some(id.clone()))).collect()
    }
}

/// A notification for one listener; further members of its parameters have a comma in front.
pub(super) fn to_listener(method: &str, id: &Id, members: &[u8]) -> Vec<u8> {
    let meta = br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"#;
    responses::notification(method, Some(&[meta, id.raw(), b"}", members, b"}"].concat()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_told_once_for_each_subscription() {
        let mut all = Subscriptions::default();
        all.subscribe("x://a".to_owned());
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://a", "x://b"]});
        assert_eq!(all.listen(&Id::new(b"5"), &filter), Ok(()));
        let about = |lines: Vec<(Vec<u8>, Option<Id>)>| -> Vec<Option<Id>> {
            lines.into_iter().map(|(_, about)| about).collect()
        };
        assert_eq!(about(all.updates("x://a", b"")), [None, Some(Id::new(b"5"))]);
        assert_eq!(about(all.updates("x://b", b"")), [Some(Id::new(b"5"))]);
        assert_eq!(about(all.list_changes(Kind::Tools)), [Some(Id::new(b"5"))]);
        assert_eq!(about(all.list_changes(Kind::Prompts)), []);
        assert!(all.stop_listening(&Id::new(b"5")) && !all.stop_listening(&Id::new(b"5")));
        assert_eq!(all.uris().count(), 1);
    }
}
