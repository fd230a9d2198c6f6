//! Owns the tasks of clients: which server, and which client, each handle belongs to. Driven by [`Hub`](super::Hub), which routes requests
//! about tasks, and by the results of calls, which create them. Never polls a task.
//!
//! A handle opens nothing for another client than the one whose call has created the task. It is the id that the server gave,
//! unless its owner has a task of another server by that: then it is one of ours, and messages have it in place of the
//! server's on the client's side.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value, json};

use super::hub_state::Directory;
use super::outgoing::ClientRequest;
use super::route_request::Request;
use super::sessions::Principal;
use crate::gateway::{ClientId, LinkId};
use crate::limits::GATEWAY_TASKS_MAX;
use crate::mcp::envelope::{edit, param};
use crate::mcp::tasks::{EXTENSION, KnownTask, knows_extension, told_ends};
use crate::mcp::{Era, json as raw, responses};

/// The methods that are about tasks.
const METHODS: [&str; 5] =
    ["tasks/get", "tasks/result", "tasks/update", "tasks/cancel", "tasks/list"];

/// Those that the newer protocol has not, and that the older has not.
const ONLY_OLDER: [&str; 2] = ["tasks/result", "tasks/list"];
const ONLY_NEWER: &str = "tasks/update";

/// All tasks, by their owners and handles.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    all: BTreeMap<(Principal, String), Task>,
    last_number: u64,
    /// A handle was one of ours: only then messages are looked at for them.
    has_renamed: bool,
}

/// A part of a message, and what stands there otherwise.
type Edit = (Range<usize>, Vec<u8>);

/// A server, and the parts of the request that are otherwise for it.
pub(super) type Destination = (usize, Vec<Edit>);

/// Where a message names the task that it belongs to, below its parameters or its result.
const RELATED: [&str; 3] = ["_meta", "io.modelcontextprotocol/related-task", "taskId"];

#[derive(Debug)]
struct Task {
    slot: usize,
    link: LinkId,
    /// The id that its server has given.
    own: String,
    /// The name of its owner's token.
    token: String,
    number: u64,
    known: KnownTask,
    /// Why its server is gone for good.
    lost: Option<String>,
}

impl Tasks {
    /// Notes a task, and returns its handle: one of ours where its owner has another one by the id of the server.
    fn add(&mut self, owner: Principal, mut task: Task, may_rename: bool) -> String {
        let is_before = |old: &&mut Task| (old.link, &old.own) == (task.link, &task.own);
        for old in self.all.values_mut().filter(is_before) {
            let why = "it has given the id of this task to another one";
            old.lost.get_or_insert_with(|| why.to_owned());
        }
        self.last_number += 1;
        task.number = self.last_number;
        let its = self.all.iter().filter(|(_, old)| old.token == task.token);
        if its.clone().count() >= GATEWAY_TASKS_MAX {
            let oldest = its.min_by_key(|(_, old)| old.number).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.all.remove(&oldest));
        }
        let is_taken = |handle: &String| {
            self.get(&owner, handle).is_some_and(|old| may_rename && old.link != task.link)
        };
        let others = (task.number..).map(|number| format!("{number}:{}", task.own));
        let mut handles = [task.own.clone()].into_iter().chain(others);
        let handle = handles.find(|handle| !is_taken(handle)).unwrap_or_default();
        self.has_renamed |= handle != task.own;
        self.all.insert((owner, handle.clone()), task);
        handle
    }

    /// Forgets the tasks of a client that is gone.
    pub(super) fn forget(&mut self, owner: &Principal) {
        self.all.retain(|(its, _), _| its != owner);
    }

    /// A link is closed, and its server gone with what it worked on.
    pub(super) fn lose(&mut self, link: LinkId, why: &str) {
        for task in self.all.values_mut().filter(|task| task.link == link) {
            task.lost.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Whether there are any; most gateways have none.
    pub(super) fn has_any(&self) -> bool {
        !self.all.is_empty()
    }

    fn get(&self, owner: &Principal, handle: &str) -> Option<&Task> {
        self.all.get(&(owner.clone(), handle.to_owned()))
    }

    /// The task of a server, by its own id: of this owner, or of any.
    fn find(
        &self,
        link: LinkId,
        own: &str,
        owner: Option<&Principal>,
    ) -> Option<&(Principal, String)> {
        let is_it = |(key, task): &(&(Principal, String), &Task)| {
            task.own == own && task.link == link && owner.is_none_or(|owner| *owner == key.0)
        };
        // Of those that its server gave one id, the newest is meant.
        let newest = self.all.iter().filter(is_it).max_by_key(|(_, task)| task.number);
        newest.map(|(key, _)| key)
    }

    /// The changes that put the handle of a task in the place of its server's id, where it is another.
    fn handle_edits(
        &self,
        line: &[u8],
        places: &[&[&str]],
        link: LinkId,
        owner: Option<&Principal>,
    ) -> Vec<Edit> {
        if !self.has_renamed {
            return Vec::new();
        }
        let handle = |own: &str| Some(self.find(link, own, owner)?.1.clone());
        renamed(line, places, handle)
    }

    /// A message of a server, with the handles that its clients have.
    pub(super) fn with_handles(&self, link: LinkId, line: Vec<u8>) -> Vec<u8> {
        if !self.has_renamed {
            return line;
        }
        let method = raw::get(&line, &["method"]).and_then(raw::text).unwrap_or_default();
        let related = [&["params"], &RELATED[..]].concat();
        // In its requests, the ids are those of tasks of clients.
        let its: &[&str] = if method.starts_with("notifications/tasks/") {
            &["params", "taskId"]
        } else {
            &related
        };
        let edits = self.handle_edits(&line, &[&related, its], link, None);
        if edits.is_empty() { line } else { edit(&line, edits) }
    }

    /// The response of a server to a client's request, with that client's handles; none where they are the server's ids.
    pub(super) fn answer_with_handles(
        &self,
        directory: &Directory,
        link: LinkId,
        request: &ClientRequest,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let owner = self.has_renamed.then(|| directory.principal_of(request.client))??;
        let related = [&["result"], &RELATED[..]].concat();
        let its: &[&str] =
            if is_about_tasks(&request.method) { &["result", "taskId"] } else { &related };
        let edits = self.handle_edits(line, &[&related, its], link, Some(&owner));
        (!edits.is_empty()).then(|| edit(line, edits))
    }

    /// A client's response to the question of a server, with the server's own ids.
    pub(super) fn with_own_ids(
        &self,
        directory: &Directory,
        client: ClientId,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let owner = self.has_renamed.then(|| directory.principal_of(client))??;
        let own = |handle: &str| Some(self.get(&owner, handle)?.own.clone());
        let edits = renamed(line, &[&[&["result"], &RELATED[..]].concat()], own);
        (!edits.is_empty()).then(|| edit(line, edits))
    }

    /// The session whose task a server means, by its handle.
    fn session_of(&self, link: LinkId, handle: &str) -> Option<ClientId> {
        let is_it = |(_, its): &(Principal, String), task: &Task| {
            its == handle && task.link == link && task.lost.is_none()
        };
        let (owner, _) =
            self.all.iter().find(|(key, task)| is_it(key, task)).map(|(key, _)| key)?;
        match owner {
            Principal::Session(client) => Some(*client),
            Principal::Named { .. } => None,
        }
    }

    /// The servers at which an owner has tasks.
    fn slots_of(&self, owner: &Principal) -> BTreeSet<usize> {
        let its = self.all.iter().filter(|((its, _), task)| its == owner && task.lost.is_none());
        its.map(|(_, task)| task.slot).collect()
    }

    /// Notes the task that the result of a call creates. Returns that result with the task's handle, where it is another
    /// than the server's id.
    pub(super) fn note(
        &mut self,
        directory: &Directory,
        link: LinkId,
        request: &ClientRequest,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let (own, known) = KnownTask::created(line).filter(|_| request.may_make_task)?;
        let owner = directory.principal_of(request.client)?;
        let token = directory.sessions.get(&request.client)?.access.name.clone();
        let slot = directory.backends.links.get(link)?.slot;
        let task = Task { slot, link, own, token, number: 0, known, lost: None };
        // A server that is alone has no other beside it, and its handles are not routed.
        let may_rename = !directory.backends.settings.is_transparent;
        self.add(owner.clone(), task, may_rename);
        let related = [&["result"], &RELATED[..]].concat();
        let places: [&[&str]; 3] = [&["result", "task", "taskId"], &["result", "taskId"], &related];
        let edits = self.handle_edits(line, &places, link, Some(&owner));
        (!edits.is_empty()).then(|| edit(line, edits))
    }

    /// A client is told this by a server, with the server's own ids: tasks may have ended.
    pub(super) fn note_told(&mut self, link: LinkId, method: &str, line: &[u8]) {
        if !self.has_any() {
            return;
        }
        let ends = told_ends(method, line);
        if ends.is_empty() {
            return;
        }
        let its = self.all.values_mut().filter(|task| task.link == link && task.lost.is_none());
        for task in its {
            if let Some(end) = ends.get(&task.own) {
                task.known.note_end(end);
            }
        }
    }

    /// The client that a message of a server is for because of the task that it names, by its handle.
    pub(super) fn owner_of(&self, link: LinkId, line: &[u8]) -> Option<ClientId> {
        let handle =
            param(line, &RELATED).or_else(|| param(line, &["taskId"])).and_then(raw::text)?;
        self.session_of(link, &handle)
    }

    /// The server that a client's request about tasks is for; none where it is answered.
    pub(super) fn route(
        &self,
        directory: &mut Directory,
        request: &Request<'_>,
    ) -> Option<Destination> {
        let Request { client, id, method, line, params, .. } = *request;
        let era = directory.era_of(client);
        let is_modern = era == Era::Modern;
        let is_other_eras =
            if is_modern { ONLY_OLDER.contains(&method) } else { method == ONLY_NEWER };
        if is_other_eras || !Self::are_offered(directory, client) {
            directory.out.answer_error(client, id, -32601, "method not found");
            return None;
        }
        let meta = params.meta.clone().map(|meta| &line[meta]);
        if is_modern && !meta.is_some_and(knows_extension) {
            let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
            let message = format!("the client does not have the extension `{EXTENSION}`");
            let error = json!({"code": -32021, "message": message, "data": data});
            directory.out.answer(client, id, responses::line(id, "error", &error));
            return None;
        }
        if method == "tasks/list" {
            return self.route_list(directory, request);
        }
        let handle = param(line, &["taskId"]).and_then(raw::text).unwrap_or_default();
        let owner = directory.principal_of(client)?;
        let task = self.get(&owner, &handle);
        let view = directory.client(client);
        let task = task.filter(|task| view.is_some_and(|view| view.may_use_server(task.slot)));
        let Some(task) = task else {
            let why = format!("there is no task `{handle}`");
            directory.out.answer_error(client, id, -32602, &why);
            return None;
        };
        let is_there = view.and_then(|view| view.link_to(task.slot)) == Some(task.link);
        let gone = (!is_there).then(|| "another instance is in its place".to_owned());
        if let Some(why) = task.lost.clone().or(gone) {
            let name = directory.backends.slots[task.slot].name();
            let why = format!("the server `{name}` is gone, and its task with it: {why}");
            let answer = task.known.answer_for_lost(id, era, method, &handle, &why);
            directory.out.answer(client, id, answer);
            return None;
        }
        let own =
            |handle: &str| Some(self.get(&owner, handle)?.own.clone()).filter(|_| self.has_renamed);
        let places: [&[&str]; 2] = [&["params", "taskId"], &[&["params"], &RELATED[..]].concat()];
        Some((task.slot, renamed(line, &places, own)))
    }

    /// The server whose tasks are on the page that a client asks for.
    fn route_list(&self, directory: &mut Directory, request: &Request<'_>) -> Option<Destination> {
        let Request { client, id, line, .. } = *request;
        let raw_cursor = param(line, &["cursor"]).filter(|raw| *raw != b"null");
        let mut slots = self.lists_of(directory, client);
        let Some(raw_cursor) = raw_cursor else {
            let first = slots.next();
            drop(slots);
            if first.is_none() {
                directory.out.answer(
                    client,
                    id,
                    responses::page(id, Era::Legacy, "tasks", b"", ""),
                );
            }
            return Some((first?, Vec::new()));
        };
        let cursor = raw::text(raw_cursor).unwrap_or_default();
        let place = cursor.strip_prefix('t').and_then(|rest| rest.split_once(':'));
        let place = place.and_then(|(slot, rest)| Some((slot.parse().ok()?, rest)));
        let place = place.filter(|(slot, _)| slots.any(|its| its == *slot));
        drop(slots);
        let Some((slot, rest)) = place else {
            directory.out.answer_error(client, id, -32602, "there is no such cursor");
            return None;
        };
        Some((slot, cursor_edit(line, raw_cursor, rest).into_iter().collect()))
    }

    /// A page of a server's tasks for one client: those that are its own, and a cursor that leads to its other servers.
    pub(super) fn own_page(
        &self,
        directory: &Directory,
        link: LinkId,
        request: &ClientRequest,
        line: &[u8],
    ) -> Vec<u8> {
        let bad = || responses::error(&request.id, -32603, "the server's list of tasks is no list");
        self.own_tasks(directory, link, request, line).unwrap_or_else(bad)
    }

    fn own_tasks(
        &self,
        directory: &Directory,
        link: LinkId,
        request: &ClientRequest,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let owner = directory.principal_of(request.client)?;
        let slot = directory.backends.links.get(link)?.slot;
        let list = raw::get(line, &["result", "tasks"])?;
        let elements = raw::elements(list)?.into_iter().map(|part| &list[part]);
        // A page may be long: each entry is looked up, not searched for.
        let mut handles: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for ((whose, handle), task) in &self.all {
            if *whose == owner && task.link == link {
                let newest = handles.entry(&task.own).or_default();
                *newest = (task.number, handle.as_str()).max(*newest);
            }
        }
        let its = |task: &[u8]| {
            let own = raw::get(task, &["taskId"]).and_then(raw::text)?;
            let (_, handle) = handles.get(own.as_str())?;
            Some(edit(task, renamed(task, &[&["taskId"]], |_| Some((*handle).to_owned()))))
        };
        let own: Vec<Vec<u8>> = elements.filter_map(its).collect();
        let next = raw::get(line, &["result", "nextCursor"]).and_then(raw::text);
        let next = match next {
            // A request to a server that is alone is passed on as it is, with its cursor.
            Some(cursor) if directory.backends.settings.is_transparent => Some(cursor),
            Some(cursor) => Some(format!("t{slot}:{cursor}")),
            None => self
                .lists_of(directory, request.client)
                .find(|its| *its > slot)
                .map(|its| format!("t{its}:")),
        };
        let next = next.map(|next| format!(r#","nextCursor":{}"#, Value::from(next)));
        Some(responses::page(
            &request.id,
            Era::Legacy,
            "tasks",
            &own.join(&b','),
            &next.unwrap_or_default(),
        ))
    }

    /// The servers that list tasks, and have some of a client's.
    fn lists_of<'a>(
        &self,
        directory: &'a Directory,
        client: ClientId,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let owner = directory.principal_of(client);
        let slots = owner.map_or_else(BTreeSet::new, |owner| self.slots_of(&owner));
        let view = directory.client(client);
        slots.into_iter().filter(move |slot| {
            let link = view.filter(|view| view.has_server(*slot));
            let link = link.and_then(|view| view.link_to(*slot));
            let link = link.and_then(|link| directory.backends.links.get(link));
            link.is_some_and(|link| link.capabilities["tasks"]["list"].is_object())
        })
    }

    /// Whether a server that a client uses offers tasks in its protocol.
    fn are_offered(directory: &Directory, client: ClientId) -> bool {
        let is_modern = directory.era_of(client) == Era::Modern;
        let links = directory
            .links_of(client)
            .into_iter()
            .filter_map(|id| directory.backends.links.get(id));
        let mut capabilities = links.map(|link| (link.era == Era::Modern, &link.capabilities));
        capabilities.any(|(is_newer, all)| match is_newer {
            true => is_modern && all["extensions"][EXTENSION].is_object(),
            false => !is_modern && all["tasks"].is_object(),
        })
    }
}

/// Whether the result of a request may be a task: where the client asks for one, or knows the extension.
pub(super) fn may_make_task(request: &Request<'_>) -> bool {
    let meta = request.params.meta.clone().map(|meta| &request.line[meta]);
    let knows = || request.params.version.is_some() && meta.is_some_and(knows_extension);
    request.method == "tools/call" && (request.params.task.is_some() || knows())
}

pub(super) fn is_about_tasks(method: &str) -> bool {
    METHODS.contains(&method)
}

/// The changes that give tasks other names, at these places of a message; nothing where a name stays.
fn renamed(line: &[u8], places: &[&[&str]], name: impl Fn(&str) -> Option<String>) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for found in places.iter().filter_map(|path| raw::get(line, path)) {
        let part = raw::place(line, found);
        let other = raw::text(found).and_then(|old| name(&old).filter(|new| *new != old));
        if let Some(other) = other.filter(|_| edits.iter().all(|(its, _)| *its != part)) {
            edits.push((part, Value::from(other).to_string().into_bytes()));
        }
    }
    edits
}

/// The change that gives a request the server's own cursor, or none.
fn cursor_edit(line: &[u8], cursor: &[u8], own: &str) -> Option<Edit> {
    if !own.is_empty() {
        return Some((raw::place(line, cursor), Value::from(own).to_string().into_bytes()));
    }
    let params = raw::get(line, &["params"])?;
    let members = raw::members(params)?;
    let start = raw::place(line, params).start;
    let at =
        members.iter().position(|its| params[its.value.clone()].as_ptr() == cursor.as_ptr())?;
    let place = match (at.checked_sub(1).map(|before| &members[before]), members.get(at + 1)) {
        (Some(before), _) => before.value.end..members[at].value.end,
        (None, Some(next)) => members[at].key.start..next.key.start,
        (None, None) => members[at].key.start..members[at].value.end,
    };
    Some((start + place.start..start + place.end, Vec::new()))
}
