//! Lists: what the client sees of them, and whether a new instance still offers the same.

use std::collections::{BTreeMap, BTreeSet};

use super::super::envelope::{self, Id, param};
use super::super::inflight::Flight;
use super::super::lists::{Changes, Kind, Pages, next_cursor};
use super::super::{json, responses};
use super::{Conversation, Effect};
use crate::id::Generation;
use crate::limits::{COMPARING_MAX, LIST_PAGES_MAX};
use crate::time::Time;

/// The lists of a new instance, while they are compared with what the client has seen.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) generation: Generation,
    pub(super) until: Time,
    /// Our requests for pages.
    requests: BTreeMap<Id, (Kind, Pages)>,
    /// Lists of these that have changed since they were asked for.
    stale: BTreeSet<Kind>,
    /// Lists that are whole and have changed.
    changed: BTreeMap<Kind, Changes>,
    /// Lists that could not be had.
    failed: BTreeSet<Kind>,
}

impl Settling {
    const fn new(generation: Generation, until: Time) -> Self {
        Self {
            generation,
            until,
            requests: BTreeMap::new(),
            stale: BTreeSet::new(),
            changed: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }
}

impl Conversation {
    /// The answer to `initialize`, or to a probe of the modern era, saying that lists may change: we
    /// say it when they do, whatever the server can. And that there are tools, if there are only ours.
    pub(super) fn advertised(&self, line: Vec<u8>) -> Vec<u8> {
        let capabilities = ["result", "capabilities"];
        let line = match json::get(&line, &["result", "capabilities", "tools"]) {
            None if !self.tools.is_empty() => add_member(line, &capabilities, r#""tools":{}"#),
            _ => line,
        };
        ["tools", "prompts", "resources"].into_iter().fold(line, |line, feature| {
            let path = ["result", "capabilities", feature];
            let old = ["result", "capabilities", feature, "listChanged"];
            match json::get(&line, &old) {
                Some(value) => {
                    let start = value.as_ptr() as usize - line.as_ptr() as usize;
                    envelope::splice(&line, start..start + value.len(), b"true")
                }
                None => add_member(line, &path, r#""listChanged":true"#),
            }
        })
    }

    /// An answer to a request for a list passes by. Returns it with our own tools, where they belong.
    pub(super) fn listed(&mut self, flight: &Flight, line: Vec<u8>, is_error: bool) -> Vec<u8> {
        let Some(kind) = Kind::of_method(&flight.method) else { return line };
        if flight.cancelled {
            return line;
        }
        let shows_ours = kind == Kind::Tools && !self.tools.is_empty();
        if is_error {
            let unknown = json::get(&line, &["error", "code"]) == Some(b"-32601");
            return match json::get(&line, &["id"]).map(Id::new) {
                Some(id) if shows_ours && unknown => {
                    responses::only_tools(&id, self.memory.era, &self.tools.definitions())
                }
                _ => line,
            };
        }
        let cursor = param(&flight.line, &["cursor"]).filter(|cursor| *cursor != b"null");
        let mut pages = match cursor {
            None => Pages::default(),
            Some(cursor) => match self.reading.remove(&kind) {
                Some(pages) if pages.next.as_deref() == Some(cursor) => pages,
                // Somewhere in the middle: no whole list comes of this.
                _ => return self.with_ours(kind, line),
            },
        };
        match pages.add(kind, &line) {
            Some(list) => {
                if shows_ours {
                    self.tools.avoid(list.names());
                }
                self.known.insert(kind, list);
            }
            None if pages.next.is_some() && pages.count < LIST_PAGES_MAX => {
                self.reading.insert(kind, pages);
            }
            None => {}
        }
        self.with_ours(kind, line)
    }

    /// The client has just read a list of an instance that is on its way out: the one that serves may
    /// offer something else.
    pub(super) fn compare_late(
        &mut self,
        generation: Generation,
        method: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(serving) = self.serving.filter(|serving| *serving != generation) else { return };
        let kind = Kind::of_method(method).filter(|kind| self.known.contains_key(kind));
        let Some(kind) = kind else { return };
        let until = self.now + COMPARING_MAX;
        let settling = self.settling.get_or_insert_with(|| Settling::new(serving, until));
        if !settling.requests.values().any(|(asked, _)| *asked == kind) {
            self.ask_for_page(serving, kind, Pages::default(), effects);
        }
    }

    /// Our tools stand at the end of the last page.
    fn with_ours(&self, kind: Kind, line: Vec<u8>) -> Vec<u8> {
        match kind {
            Kind::Tools if !self.tools.is_empty() && next_cursor(&line).is_none() => {
                self.tools.added_to(line)
            }
            _ => line,
        }
    }

    /// Asks a new instance for the lists that the client has seen.
    pub(super) fn compare(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        let mut kinds: BTreeSet<Kind> = self.known.keys().copied().collect();
        if !self.restart_calls.is_empty() {
            kinds.insert(Kind::Tools);
        }
        let until = self.now + COMPARING_MAX;
        self.settling = Some(Settling::new(generation, until));
        for kind in kinds {
            self.ask_for_page(generation, kind, Pages::default(), effects);
        }
        self.settle_if_done(effects);
    }

    fn ask_for_page(
        &mut self,
        generation: Generation,
        kind: Kind,
        pages: Pages,
        effects: &mut Vec<Effect>,
    ) {
        let cursor = pages.next.as_ref().map(|next| [br#""cursor":"#, next.as_slice()].concat());
        let params = self.memory.params(&cursor.unwrap_or_default());
        let (id, line) = self.own_request(generation, kind.method(), &params);
        if let Some(settling) = &mut self.settling {
            settling.requests.insert(id, (kind, pages));
        }
        self.tell_server(generation, line, effects);
    }

    /// A page of a list that we asked for; `false` where the answer is something else.
    pub(super) fn page_answered(
        &mut self,
        id: &Id,
        line: &[u8],
        is_error: bool,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(settling) = &mut self.settling else { return false };
        let generation = settling.generation;
        let Some((kind, mut pages)) = settling.requests.remove(id) else { return false };
        if settling.stale.remove(&kind) {
            self.ask_for_page(generation, kind, Pages::default(), effects);
            return true;
        }
        match pages.add(kind, line) {
            _ if is_error => {
                settling.failed.insert(kind);
            }
            Some(list) => {
                if kind == Kind::Tools {
                    self.tools.avoid(list.names());
                }
                if let Some(old) = self.known.insert(kind, list.clone()) {
                    let changes = list.changes_since(&old);
                    if kind == Kind::Tools {
                        self.last_changes = Some(changes.clone());
                    }
                    settling.changed.insert(kind, changes);
                }
            }
            None if pages.next.is_some() && pages.count < LIST_PAGES_MAX => {
                self.ask_for_page(generation, kind, pages, effects);
            }
            None => {}
        }
        self.settle_if_done(effects);
        true
    }

    /// Whether this says that a list has changed which is being compared anyway.
    pub(super) fn is_being_compared(&self, generation: Generation, method: &str) -> bool {
        self.settling.as_ref().is_some_and(|settling| {
            settling.generation == generation
                && settling.requests.values().any(|(kind, _)| kind.notification() == method)
        })
    }

    /// The list changed while it was read: once more from the first page, when what was asked for is
    /// there. Who says it a thousand times is asked once.
    pub(super) fn compare_again(&mut self, method: &str) {
        let Some(settling) = &mut self.settling else { return };
        let asked = settling.requests.values().map(|(kind, _)| *kind);
        settling.stale.extend(asked.filter(|kind| kind.notification() == method));
    }

    /// An instance that does not answer in time is not waited for. What it has said to be changed is
    /// passed on now: it was kept back in favour of the comparison.
    pub(super) fn settle_late(&mut self, effects: &mut Vec<Effect>) {
        if let Some(settling) = self.settling.as_mut().filter(|s| s.until <= self.now) {
            let late = std::mem::take(&mut settling.requests);
            settling.failed.extend(late.into_values().map(|(kind, _)| kind));
            let stale = std::mem::take(&mut settling.stale);
            let told: BTreeSet<_> = stale.iter().map(|k| (k.notification(), k.filter())).collect();
            for (notification, filter) in told {
                self.tell_list_changed(notification, filter, effects);
            }
            self.settle_if_done(effects);
        }
    }

    fn tell_list_changed(&self, notification: &str, filter: &str, effects: &mut Vec<Effect>) {
        for params in self.memory.list_listeners(filter) {
            let line = responses::notification(notification, params.as_deref());
            effects.push(Effect::ToClient(line));
        }
    }

    fn settle_if_done(&mut self, effects: &mut Vec<Effect>) {
        let Some(settling) = self.settling.take_if(|settling| settling.requests.is_empty()) else {
            return;
        };
        let mut told = BTreeSet::new();
        for (kind, changes) in settling.changed.into_iter().filter(|(_, c)| !c.is_empty()) {
            if told.insert(kind.notification()) {
                self.tell_list_changed(kind.notification(), kind.filter(), effects);
            }
            effects.push(Effect::ListChanged { kind, changes });
        }
        // Nobody knows whether these have changed: the client is told to look for itself.
        for kind in settling.failed {
            if self.known.remove(&kind).is_some() && told.insert(kind.notification()) {
                self.tell_list_changed(kind.notification(), kind.filter(), effects);
            }
        }
        self.restarted(settling.generation, effects);
    }
}

/// The line with a member more in the object at this path; as it was, where there is no such object.
fn add_member(line: Vec<u8>, path: &[&str], member: &str) -> Vec<u8> {
    let Some(object) = json::get(&line, path) else { return line };
    let Some(members) = json::members(object) else { return line };
    let start = object.as_ptr() as usize - line.as_ptr() as usize;
    let comma = if members.is_empty() { "" } else { "," };
    envelope::splice(&line, start..start + 1, format!("{{{member}{comma}").as_bytes())
}
