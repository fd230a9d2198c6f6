//! Owns the state of the session that a new instance must be given: what the old one knew.
//!
//! Driven by [`Conversation`](super::Conversation) as messages pass by. Never sends anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::envelope::{Id, Params, param, splice};
use super::inflight::Flight;
use super::json::{self, get};
use super::lists::Kind;
use super::responses::notification;

/// Which generation of the protocol is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// Not known yet.
    #[default]
    Unknown,
    /// Up to 2025-11-25: a session, opened by `initialize`.
    Legacy,
    /// From 2026-07-28: no handshake, every request for itself.
    Modern,
}

/// The state of the session, as far as it can be made again.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) era: Era,
    /// The client's own `initialize`: its parameters, with the version that was agreed on.
    session: Option<Vec<u8>>,
    initialized: bool,
    /// The parameters of the last `logging/setLevel` that succeeded.
    level: Option<Vec<u8>>,
    /// The parameters of each `resources/subscribe` that holds, by its raw URI.
    subscribed: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Listen requests that are open, as they came.
    pub(crate) listening: BTreeMap<Id, Vec<u8>>,
    /// Those whose acknowledgement the client has.
    pub(crate) acknowledged: BTreeSet<Id>,
    /// The `_meta` of the client's last request of the modern era.
    meta: Option<Vec<u8>>,
}

impl Memory {
    /// A request of the client's passes by.
    pub(crate) fn request(&mut self, id: &Id, method: &str, params: &Params, line: &[u8]) {
        let is_modern = params.version.is_some();
        match method {
            "initialize" => self.era = Era::Legacy,
            "server/discover" => {}
            _ if is_modern && self.era != Era::Legacy => self.era = Era::Modern,
            _ => {}
        }
        if is_modern {
            self.meta = params.meta.clone().map(|meta| line[meta].to_vec());
        }
        if method == "subscriptions/listen" {
            self.listening.insert(id.clone(), line.to_vec());
        }
    }

    /// A notification of the client's passes by.
    pub(crate) fn notification(&mut self, method: &str) {
        self.initialized |= method == "notifications/initialized";
    }

    /// An answer passes by: what was asked for holds now.
    pub(crate) fn answered(&mut self, id: &Id, flight: &Flight, answer: &[u8], is_error: bool) {
        if flight.is_listen() {
            self.stop_listening(id);
        }
        if is_error {
            return;
        }
        let params = || get(&flight.line, &["params"]).map(<[u8]>::to_vec);
        let uri = || param(&flight.line, &["uri"]).map(<[u8]>::to_vec);
        match flight.method.as_str() {
            "initialize" => self.session = agreed(&flight.line, answer),
            "logging/setLevel" => self.level = params(),
            "resources/subscribe" => self.subscribed.extend(uri().zip(params())),
            "resources/unsubscribe" => {
                uri().map(|uri| self.subscribed.remove(&uri));
            }
            _ => {}
        }
    }

    /// The request that opens the session anew, with its method; `None` where there is nothing to
    /// open.
    pub(crate) fn opening(&self) -> Option<(&'static str, Vec<u8>)> {
        match self.era {
            Era::Unknown => None,
            Era::Legacy => self.session.clone().map(|params| ("initialize", params)),
            // The first message decides the era: it must carry the client's own `_meta`.
            Era::Modern => Some(("server/discover", params(Some(self.meta.as_deref()?), b""))),
        }
    }

    /// The name that the client gives itself.
    pub(crate) fn client_name(&self) -> Option<String> {
        client_name(self.session.as_deref(), self.meta.as_deref())
    }

    /// The notification that follows the opening in the legacy era, if the client has sent it.
    pub(crate) fn initialized(&self) -> Option<Vec<u8>> {
        self.initialized.then(|| notification("notifications/initialized", None))
    }

    /// The requests that follow it: method and parameters.
    pub(crate) fn restoring(&self) -> Vec<(&'static str, Vec<u8>)> {
        let level = self.level.clone().map(|params| ("logging/setLevel", params));
        let subscribed =
            self.subscribed.values().map(|params| ("resources/subscribe", params.clone()));
        level.into_iter().chain(subscribed).collect()
    }

    /// The parameters of a request of our own, with more of them after the `_meta` that it must have.
    pub(crate) fn params(&self, more: &[u8]) -> Vec<u8> {
        params(self.meta.as_deref().filter(|_| self.era == Era::Modern), more)
    }

    /// The listen request of this id has ended.
    pub(crate) fn stop_listening(&mut self, id: &Id) {
        self.listening.remove(id);
        self.acknowledged.remove(id);
    }

    /// The parameters of an update for each resource that the client has subscribed to: what
    /// changed while no instance served is lost, and must be read again.
    pub(crate) fn updates(&self) -> Vec<Vec<u8>> {
        let legacy =
            self.subscribed.keys().map(|uri| [br#"{"uri":"#, uri.as_slice(), b"}"].concat());
        let modern = self.listening.iter().flat_map(|(id, line)| {
            let acknowledged = self.acknowledged.contains(id);
            let uris = param(line, &["notifications", "resourceSubscriptions"]).unwrap_or(b"[]");
            let elements = json::elements(uris).filter(|_| acknowledged).unwrap_or_default();
            let more = move |uri: Range<usize>| [br#""uri":"#, &uris[uri]].concat();
            elements.into_iter().map(move |uri| listener_params(id, &more(uri)))
        });
        match self.era {
            Era::Legacy => legacy.collect(),
            Era::Modern => modern.collect(),
            Era::Unknown => Vec::new(),
        }
    }

    /// The notifications that tell the client of a list that changed.
    pub(crate) fn list_changed(&self, kind: Kind) -> impl Iterator<Item = Vec<u8>> {
        let listeners = self.list_listeners(kind.filter()).into_iter();
        listeners.map(move |params| notification(kind.notification(), params.as_deref()))
    }

    /// The parameters of each of them.
    pub(crate) fn list_listeners(&self, filter: &str) -> Vec<Option<Vec<u8>>> {
        match self.era {
            Era::Legacy if self.session.is_some() => vec![None],
            Era::Legacy | Era::Unknown => Vec::new(),
            Era::Modern => {
                let wants = |(id, line): &(&Id, &Vec<u8>)| {
                    param(line, &["notifications", filter]) == Some(b"true")
                        && self.acknowledged.contains(id)
                };
                let listeners = self.listening.iter().filter(wants);
                listeners.map(|(id, _)| Some(listener_params(id, b""))).collect()
            }
        }
    }
}

/// The parameters of a request, with more of them after the `_meta` that it may need.
pub(crate) fn params(meta: Option<&[u8]>, more: &[u8]) -> Vec<u8> {
    let Some(meta) = meta else { return [b"{", more, b"}"].concat() };
    let comma: &[u8] = if more.is_empty() { b"" } else { b"," };
    [br#"{"_meta":"#, meta, comma, more, b"}"].concat()
}

/// The parameters of a notification for one listener of the modern era.
pub(crate) fn listener_params(id: &Id, more: &[u8]) -> Vec<u8> {
    let meta = [br#"{"io.modelcontextprotocol/subscriptionId":"#, id.raw(), b"}"].concat();
    params(Some(&meta), more)
}

/// The parameters of `initialize` with the version that the server chose: a new instance must not
/// choose another one.
fn agreed(request: &[u8], answer: &[u8]) -> Option<Vec<u8>> {
    let params = get(request, &["params"])?;
    let Some(version) = get(answer, &["result", "protocolVersion"]) else {
        return Some(params.to_vec());
    };
    let members = json::members(params)?;
    let asked =
        members.iter().find(|member| &params[member.key.clone()] == b"\"protocolVersion\"")?;
    Some(splice(params, asked.value.clone(), version))
}
/// The name that a client gives itself, by the parameters of its `initialize` or, in the modern era, by the `_meta` of a
/// request.
pub(crate) fn client_name(opening: Option<&[u8]>, meta: Option<&[u8]>) -> Option<String> {
    let opened = opening.and_then(|params| get(params, &["clientInfo", "name"]));
    let name = opened.or_else(|| get(meta?, &["io.modelcontextprotocol/clientInfo", "name"]));
    name.and_then(json::text)
}
