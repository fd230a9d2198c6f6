//! Owns the lists of a server (tools, prompts, resources, templates) as the client knows them, and their comparison with
//! those of a new instance. Driven by [`Conversation`](super::Conversation), which sends the requests for pages and
//! tells the client of changes. Never sends anything itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::admin_tools::{AddedTools, AdminTool, Tools};
use super::envelope::{self, Id, param};
use super::inflight::{ClientRequests, Flight};
use super::replay::Era;
use super::{json, responses};
use crate::id::Generation;
use crate::limits::{COMPARING_MAX, LIST_PAGES_MAX, LIST_REMEMBERED_BYTES_MAX};
use crate::time::Time;

/// A list that a server can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Templates of resources; told together with the resources.
    Templates,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(crate) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The notification that it has changed.
    pub(crate) const fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// The member of a listen request's filter that asks for the notification.
    pub(crate) const fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
        }
    }

    /// The member of the answer that holds it, and the member of an entry that names it.
    pub(crate) const fn members(self) -> (&'static str, &'static str) {
        match self {
            Self::Tools => ("tools", "name"),
            Self::Prompts => ("prompts", "name"),
            Self::Resources => ("resources", "uri"),
            Self::Templates => ("resourceTemplates", "uriTemplate"),
        }
    }
}

/// A whole list: each entry's name, and a hash of the rest. Order does not matter, nor does the
/// order of members: some servers keep neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedList(BTreeMap<String, NamedEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedEntry {
    hash: u64,
    /// A tool that promises data for programs.
    has_output_schema: bool,
}

impl NamedList {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a tool is in the list, and promises no data for programs.
    fn is_for_people(&self, tool: &str) -> bool {
        self.0.get(tool).is_some_and(|entry| !entry.has_output_schema)
    }

    /// What has to happen to the older list to become this one.
    pub(super) fn changes_since(&self, old: &Self) -> Changes {
        let missing_in = |there: &Self, here: &Self| -> Vec<String> {
            here.0.keys().filter(|name| !there.0.contains_key(*name)).cloned().collect()
        };
        let differs =
            |name: &&String| old.0.get(*name).is_some_and(|entry| entry != &self.0[*name]);
        Changes {
            added: missing_in(old, self),
            removed: missing_in(self, old),
            changed: self.0.keys().filter(differs).cloned().collect(),
        }
    }
}

/// How two lists differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only in the new one.
    pub added: Vec<String>,
    /// Only in the old one.
    pub removed: Vec<String>,
    /// In both, and not the same.
    pub changed: Vec<String>,
}

impl Changes {
    /// Whether they are the same.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// A list that comes page by page.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    list: NamedList,
    /// The raw cursor of the page that comes next.
    pub(super) next: Option<Vec<u8>>,
    pub(super) count: usize,
}

impl Pages {
    /// Takes the answer that holds the next page. Returns the list when it is whole.
    pub(super) fn add(&mut self, kind: Kind, answer: &[u8]) -> Option<NamedList> {
        let (member, name) = kind.members();
        let entries = json::get(answer, &["result", member])?;
        for entry in json::elements(entries)? {
            let Ok(value) = serde_json::from_slice::<Value>(&entries[entry]) else { continue };
            let Some(name) = value[name].as_str() else { continue };
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            let has_output_schema = !value["outputSchema"].is_null();
            let entry = NamedEntry { hash: hasher.finish(), has_output_schema };
            self.list.0.insert(name.to_owned(), entry);
        }
        self.count += 1;
        self.next = next_cursor(answer).map(<[u8]>::to_vec);
        self.next.is_none().then(|| std::mem::take(&mut self.list))
    }
}

/// The raw cursor of the page that a request is for; none for the first.
fn cursor_of(flight: &Flight) -> Option<&[u8]> {
    param(&flight.line, &["cursor"]).filter(|cursor| *cursor != b"null")
}

/// The raw cursor of the page after this one.
pub(crate) fn next_cursor(answer: &[u8]) -> Option<&[u8]> {
    json::get(answer, &["result", "nextCursor"]).filter(|cursor| *cursor != b"null")
}

/// The lists of the server, with afresh's own tools in them.
#[derive(Debug, Default)]
pub(super) struct ListWatch {
    tools: Tools,
    /// What the client has seen of each list, or was told to read again.
    known: BTreeMap<Kind, NamedList>,
    /// The raw results that the client has got for whole lists of one page.
    results: BTreeMap<Kind, Vec<u8>>,
    /// Lists that the client is reading page by page.
    reading: BTreeMap<Kind, Pages>,
    comparison: Option<Comparison>,
    /// How the tools changed with the last restart.
    pub(super) last_changes: Option<Changes>,
}

/// The lists of a new instance, while they are compared with what the client has seen.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) generation: Generation,
    until: Time,
    /// Requests of afresh for pages.
    requests: BTreeMap<Id, (Kind, Pages)>,
    /// Lists of these that have changed since they were requested.
    stale: BTreeSet<Kind>,
    /// Lists that are whole and have changed.
    pub(super) changed: BTreeMap<Kind, Changes>,
    /// Lists that could not be had: the client has to read them again.
    pub(super) failed: BTreeSet<Kind>,
}

/// What follows the answer to a request for a page.
#[derive(Debug)]
pub(super) enum PageAnswer {
    /// The answer is to another request.
    Other,
    /// The comparison may be complete.
    Taken,
    /// This page is to be requested next.
    Next { generation: Generation, kind: Kind, pages: Pages },
}

impl ListWatch {
    pub(super) fn new(added: &AddedTools) -> Self {
        Self { tools: Tools::new(added), ..Self::default() }
    }

    /// The tool of afresh that a `tools/call` of this raw name is for.
    pub(super) fn admin_tool(&self, name: Option<&[u8]>) -> Option<AdminTool> {
        self.tools.find(&name.and_then(json::read_text)?)
    }

    /// Whether the result of a `tools/call` of this raw name is known to be for people alone.
    pub(super) fn is_for_people(&self, name: Option<&[u8]>) -> bool {
        let name = name.and_then(json::read_text);
        name.zip(self.tools()).is_some_and(|(name, tools)| tools.is_for_people(&name))
    }

    /// The tools of the server that the client knows.
    pub(super) fn tools(&self) -> Option<&NamedList> {
        self.known.get(&Kind::Tools)
    }

    /// The answer to `initialize`, or to a probe of the modern era, saying that lists may change: afresh
    /// notifies the client when they do, also where the server does not. And that there are tools, if
    /// there are only those of afresh.
    pub(super) fn advertised(&self, line: Vec<u8>) -> Vec<u8> {
        let capabilities = ["result", "capabilities"];
        let line = match json::get(&line, &["result", "capabilities", "tools"]) {
            None if !self.tools.is_empty() => {
                envelope::add_members(line, &capabilities, r#""tools":{}"#)
            }
            _ => line,
        };
        ["tools", "prompts", "resources"].into_iter().fold(line, |line, feature| {
            let path = ["result", "capabilities", feature];
            let old = ["result", "capabilities", feature, "listChanged"];
            match json::get(&line, &old) {
                Some(value) => envelope::splice(&line, json::place(&line, value), b"true"),
                None => envelope::add_members(line, &path, r#""listChanged":true"#),
            }
        })
    }

    /// An answer to a request for a list passes by. Returns it with afresh's own tools, where they belong.
    pub(super) fn listed(
        &mut self,
        flight: &Flight,
        line: Vec<u8>,
        is_error: bool,
        era: Era,
    ) -> Vec<u8> {
        let Some(kind) = Kind::of_method(&flight.method) else { return line };
        if flight.is_cancelled() {
            return line;
        }
        let shows_ours = kind == Kind::Tools && !self.tools.is_empty();
        if is_error {
            let unknown = json::get(&line, &["error", "code"]) == Some(b"-32601");
            return match json::get(&line, &["id"]).map(Id::new) {
                Some(id) if shows_ours && unknown => {
                    responses::page(&id, era, "tools", self.tools.definitions().as_bytes(), "")
                }
                _ => line,
            };
        }
        self.results.remove(&kind);
        let cursor = cursor_of(flight);
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
                return self.note_list(kind, list, line, pages.count);
            }
            None if pages.next.is_some() && pages.count < LIST_PAGES_MAX => {
                self.reading.insert(kind, pages);
            }
            None => {}
        }
        self.with_ours(kind, line)
    }

    /// The client knows this list now, whose last page is in this answer.
    fn note_list(&mut self, kind: Kind, list: NamedList, line: Vec<u8>, pages: usize) -> Vec<u8> {
        if kind == Kind::Tools {
            self.tools.avoid(list.names());
        }
        self.known.insert(kind, list);
        let line = self.with_ours(kind, line);
        let result = json::get(&line, &["result"]).filter(|_| pages == 1);
        let result = result.filter(|result| result.len() <= LIST_REMEMBERED_BYTES_MAX);
        self.results.extend(result.map(|result| (kind, result.to_vec())));
        line
    }

    /// The server answers a request for a list whose client has got the remembered one meanwhile. Returns the list that
    /// the client is to read again, because it is another.
    pub(super) fn listed_late(
        &mut self,
        flight: &Flight,
        line: &[u8],
        is_error: bool,
    ) -> Option<Kind> {
        let kind = Kind::of_method(&flight.method).filter(|_| !is_error)?;
        self.results.remove(&kind);
        let mut pages = Pages::default();
        let Some(list) = pages.add(kind, line) else {
            // The remembered one has a single page.
            return pages.next.is_some().then_some(kind);
        };
        let is_same = self.known.get(&kind) == Some(&list);
        self.note_list(kind, list, line.to_vec(), pages.count);
        (!is_same).then_some(kind)
    }

    /// The server says that lists have changed: what it has answered before is not given to the client any more.
    pub(super) fn forget_results(&mut self, notification: &str) {
        self.results.retain(|kind, _| kind.notification() != notification);
    }

    /// The raw result that a request for a list had the last time.
    pub(super) fn remembered(&self, flight: &Flight) -> Option<&[u8]> {
        let kind = Kind::of_method(&flight.method).filter(|_| cursor_of(flight).is_none())?;
        self.results.get(&kind).map(Vec::as_slice)
    }

    /// Answers to the requests for lists that a silent server owes, as far as the lists are known. It may still answer them,
    /// which no client waits for any more: they count as given up.
    pub(super) fn answer_owed(
        &self,
        requests: &mut ClientRequests,
        generation: Generation,
        now: Time,
    ) -> Vec<Vec<u8>> {
        let is_owed = |flight: &Flight| {
            flight.is_with(generation)
                && !flight.is_cancelled()
                && self.remembered(flight).is_some()
        };
        let owed = requests.ids_of(is_owed);
        let answer = |id: Id| {
            let flight = requests.get_mut(&id)?;
            (flight.cancelled_at, flight.is_answered_from_memory) = (Some(now), true);
            Some(responses::result(&id, self.remembered(flight)?))
        };
        owed.into_iter().filter_map(answer).collect()
    }

    /// The tools of afresh stand at the end of the last page.
    fn with_ours(&self, kind: Kind, line: Vec<u8>) -> Vec<u8> {
        match kind {
            Kind::Tools if !self.tools.is_empty() && next_cursor(&line).is_none() => {
                self.tools.added_to(line)
            }
            _ => line,
        }
    }

    /// Begins the comparison with a new instance. Returns the lists to request: those that the client has
    /// seen, and the tools where they are needed besides.
    pub(super) fn compare(
        &mut self,
        now: Time,
        generation: Generation,
        needs_tools: bool,
    ) -> BTreeSet<Kind> {
        let until = now + COMPARING_MAX;
        self.comparison = Some(Comparison { generation, until, ..Comparison::default() });
        let known = self.known.keys().copied();
        known.chain(needs_tools.then_some(Kind::Tools)).collect()
    }

    /// The client has just read a list of an instance that is on its way out: the one that serves may
    /// offer something else. Returns the list to request.
    pub(super) fn compare_late(
        &mut self,
        now: Time,
        serving: Generation,
        method: &str,
    ) -> Option<Kind> {
        let kind = Kind::of_method(method).filter(|kind| self.known.contains_key(kind))?;
        let (generation, until) = (serving, now + COMPARING_MAX);
        let begin = || Comparison { generation, until, ..Comparison::default() };
        let comparison = self.comparison.get_or_insert_with(begin);
        let is_requested = comparison.requests.values().any(|(requested, _)| *requested == kind);
        (!is_requested).then_some(kind)
    }

    /// A page is requested by this id.
    pub(super) fn requested(&mut self, id: Id, kind: Kind, pages: Pages) {
        if let Some(comparison) = &mut self.comparison {
            comparison.requests.insert(id, (kind, pages));
        }
    }

    /// Takes the answer to a request of afresh, if that was for a page.
    pub(super) fn answered(&mut self, id: &Id, line: &[u8], is_error: bool) -> PageAnswer {
        let Some(comparison) = &mut self.comparison else { return PageAnswer::Other };
        let generation = comparison.generation;
        let Some((kind, mut pages)) = comparison.requests.remove(id) else {
            return PageAnswer::Other;
        };
        if comparison.stale.remove(&kind) {
            return PageAnswer::Next { generation, kind, pages: Pages::default() };
        }
        match pages.add(kind, line) {
            _ if is_error => {
                comparison.failed.insert(kind);
            }
            Some(list) => {
                if kind == Kind::Tools {
                    self.tools.avoid(list.names());
                }
                if let Some(old) = self.known.insert(kind, list.clone()) {
                    let changes = list.changes_since(&old);
                    if !changes.is_empty() {
                        self.results.remove(&kind);
                    }
                    if kind == Kind::Tools {
                        self.last_changes = Some(changes.clone());
                    }
                    comparison.changed.insert(kind, changes);
                }
            }
            None if pages.next.is_some() && pages.count < LIST_PAGES_MAX => {
                return PageAnswer::Next { generation, kind, pages };
            }
            None => {}
        }
        PageAnswer::Taken
    }

    /// Takes a notification that a list has changed which is being compared anyway; says whether it is
    /// one. The list is then requested again from its first page, once for any number of notifications.
    pub(super) fn take_notification(&mut self, generation: Generation, method: &str) -> bool {
        let Some(comparison) = self.comparison.as_mut().filter(|it| it.generation == generation)
        else {
            return false;
        };
        let requested = comparison.requests.values().map(|(kind, _)| *kind);
        let meant: Vec<Kind> = requested.filter(|kind| kind.notification() == method).collect();
        comparison.stale.extend(&meant);
        !meant.is_empty()
    }

    /// When a comparison has taken long enough.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.comparison.as_ref().map(|comparison| comparison.until)
    }

    /// Ends the wait for an instance that does not answer in time. Returns the lists that it has said to
    /// be changed: their notifications were held back in favour of the comparison.
    pub(super) fn expire(&mut self, now: Time) -> BTreeSet<Kind> {
        match self.comparison.as_mut().filter(|comparison| comparison.until <= now) {
            Some(comparison) => {
                let late = std::mem::take(&mut comparison.requests);
                comparison.failed.extend(late.into_values().map(|(kind, _)| kind));
                std::mem::take(&mut comparison.stale)
            }
            None => BTreeSet::new(),
        }
    }

    /// The comparison, if it is complete.
    pub(super) fn take_compared(&mut self) -> Option<Comparison> {
        let mut comparison = self.comparison.take_if(|it| it.requests.is_empty())?;
        comparison.changed.retain(|_, changes| !changes.is_empty());
        comparison.failed.retain(|kind| self.known.remove(kind).is_some());
        Some(comparison)
    }

    /// An instance is gone.
    pub(super) fn end(&mut self, generation: Generation) {
        self.comparison.take_if(|comparison| comparison.generation == generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tools: &str) -> NamedList {
        let answer = format!(r#"{{"id":1,"result":{{"tools":{tools}}}}}"#);
        Pages::default().add(Kind::Tools, answer.as_bytes()).expect("a whole list")
    }

    #[test]
    fn lists_are_compared_by_what_they_say() {
        let old = list(r#"[{"name":"a","x":{"p":1,"q":2}},{"name":"b"},{"name":"c"}]"#);
        let same = list(r#"[ {"name":"c"}, {"x":{"q":2, "p":1},"name":"a"},{"name":"b"}]"#);
        assert!(same.changes_since(&old).is_empty());
        let new = list(r#"[{"name":"a","x":{"p":1,"q":3}},{"name":"c"},{"name":"d"}]"#);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            new.changes_since(&old),
            Changes { added: names(&["d"]), removed: names(&["b"]), changed: names(&["a"]) }
        );
    }

    #[test]
    fn a_list_is_whole_with_its_last_page() {
        let mut pages = Pages::default();
        let first = br#"{"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}"#;
        assert_eq!(pages.add(Kind::Tools, first), None);
        assert_eq!(pages.next.as_deref(), Some(&b"\"x\""[..]));
        let last = br#"{"result":{"tools":[{"name":"b"}, 7, {}],"nextCursor":null}}"#;
        let whole = pages.add(Kind::Tools, last).expect("it is whole");
        assert_eq!(whole.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Pages::default().add(Kind::Tools, b"{\"result\":{}}"), None);
    }
}

#[cfg(test)]
mod comparison_tests {
    use super::*;
    use crate::mcp::inflight::{Class, Location};

    const LIST: &[u8] = br#"{"id":1,"result":{"tools":[{"name":"a"}]}}"#;

    fn known() -> ListWatch {
        let mut lists = ListWatch::new(&AddedTools::default());
        let (class, method) = (Class::Safe, "tools/list".to_owned());
        let flight = Flight::new(method, b"{}".to_vec(), class, Location::Local, Time::ZERO);
        assert_eq!(lists.listed(&flight, LIST.to_vec(), false, Era::Legacy), LIST);
        lists
    }

    #[test]
    fn a_list_that_changes_while_it_is_compared_is_requested_again() {
        let mut lists = known();
        let (one, id) = (Generation(1), Id::new(b"1"));
        assert_eq!(lists.compare(Time::ZERO, one, false), [Kind::Tools].into());
        lists.requested(id.clone(), Kind::Tools, Pages::default());
        assert!(!lists.take_notification(one, "notifications/prompts/list_changed"));
        assert!(!lists.take_notification(Generation(2), Kind::Tools.notification()));
        assert!(lists.take_notification(one, Kind::Tools.notification()));
        let answer = lists.answered(&id, LIST, false);
        assert!(matches!(answer, PageAnswer::Next { kind: Kind::Tools, .. }), "{answer:?}");
        lists.requested(id.clone(), Kind::Tools, Pages::default());
        let new = br#"{"id":1,"result":{"tools":[{"name":"b"}]}}"#;
        assert!(matches!(lists.answered(&id, new, false), PageAnswer::Taken));
        let compared = lists.take_compared().unwrap();
        assert_eq!((compared.changed.len(), compared.failed.len()), (1, 0));
        assert!(matches!(lists.answered(&id, LIST, false), PageAnswer::Other));
    }

    #[test]
    fn a_list_that_does_not_come_in_time_is_unknown() {
        let mut lists = known();
        lists.compare(Time::ZERO, Generation(1), false);
        lists.requested(Id::new(b"1"), Kind::Tools, Pages::default());
        assert!(lists.take_compared().is_none());
        let late = lists.next_expiry().unwrap();
        assert_eq!(lists.expire(late), BTreeSet::new());
        assert_eq!(lists.take_compared().unwrap().failed, [Kind::Tools].into());
        assert!(lists.tools().is_none());
    }
}
