//! Routes the requests of clients: the hub answers those that are about all servers, and sends the others to the server
//! that has the tool, prompt or resource. Driven by [`Hub::handle`]. Never reads a response.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::Hub;
use super::admin_tools::GatewayTool;
use super::client_lists::APP_SCHEME;
use super::held_calls::{HeldCalls, Resumption, can_ask, target_of, without_answers};
use super::held_requests::Wait;
use super::outgoing::{ClientRequest, Purpose, own_id};
use super::sessions::{LEGACY, LEVELS, MODERN, level_in};
use super::tasks::{is_about_tasks, may_make_task};
use crate::gateway::backend::ClientEra;
use crate::gateway::{ClientId, Effect, LinkId};
use crate::limits::{GATEWAY_HELLO_WAIT, LISTEN_FILTER_BYTES_MAX};
use crate::mcp::envelope::{Id, Message, Params, edit, look, param};
use crate::mcp::replay::listener_params;
use crate::mcp::{AdminTool, Kind, ToolResult, json as raw, responses};

/// Methods of the older protocol only.
const SESSION_METHODS: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// A request of a client's.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) client: ClientId,
    pub(super) id: &'a Id,
    pub(super) method: &'a str,
    pub(super) params: &'a Params,
    pub(super) line: &'a [u8],
    /// The parts that differ for the server.
    edits: Vec<(Range<usize>, Vec<u8>)>,
    /// The resource that it is about.
    uri: Option<String>,
}

impl<'a> Request<'a> {
    pub(super) fn new(
        client: ClientId,
        id: &'a Id,
        method: &'a str,
        params: &'a Params,
        line: &'a [u8],
    ) -> Self {
        Self { client, id, method, params, line, edits: Vec::new(), uri: None }
    }

    /// The same with a text in a place of it.
    fn with(mut self, part: Option<(Range<usize>, String)>) -> Self {
        let quoted = |text: String| Value::from(text).to_string().into_bytes();
        self.edits.extend(part.map(|(part, text)| (part, quoted(text))));
        self
    }

    /// The same with other parts, raw.
    fn edited(mut self, parts: Vec<(Range<usize>, Vec<u8>)>) -> Self {
        self.edits.extend(parts);
        self
    }

    /// The name of the tool or prompt, where it is a text.
    pub(super) fn name(&self) -> Option<String> {
        self.params.name.clone().and_then(|name| raw::text(&self.line[name]))
    }
}

impl Hub {
    /// A request of a client's. One that was held or has waited for its server is late: it is not held again.
    pub(super) fn handle_request(&mut self, request: Request<'_>, is_late: bool) {
        let Request { client, id, method, .. } = request;
        let Some(session) = self.directory.sessions.get_mut(&client) else { return };
        let is_open =
            session.requests.contains_key(id) || session.subscriptions.listeners.contains_key(id);
        let is_waiting =
            || self.held.has(client, id) || self.directory.backends.links.is_waiting(client, id);
        if is_open || !is_late && is_waiting() {
            // Two requests with one id cannot be answered apart: the first one is.
            return;
        }
        let sent = session.requests.len();
        if self.held.has_too_many(client, sent) {
            let why =
                "too many requests have no answer yet; nothing was done; wait for some of them";
            let reason = "too_many_requests";
            return self.directory.answer_failure(client, id, method, reason, why);
        }
        if let Some(error) = newer_protocol_error(&request, self.directory.backends.settings.era) {
            return self.directory.out.answer(client, id, responses::line(id, "error", &error));
        }
        let Some(session) = self.directory.sessions.get_mut(&client) else { return };
        if let Err(error) = session.note_version(&request) {
            return self.directory.out.answer(client, id, responses::line(id, "error", &error));
        }
        if request.params.version.is_some()
            && session.is_modern()
            && SESSION_METHODS.contains(&method)
        {
            let why = "method not found: this version of the protocol does not have it";
            return self.directory.out.answer_error(client, id, -32601, why);
        }
        match self.server_requests.held_calls.resume(&mut self.directory, &request) {
            Resumption::None => {}
            Resumption::Done => return,
            Resumption::Unsent(link) => {
                // The line is new to the server, and waits until that knows the client's roots.
                let within = self.server_requests.tell_roots(&mut self.directory, link);
                let (until, wait) = (self.directory.out.now + within, Wait::Roots(link));
                let line = without_answers(request.line);
                self.held.hold(client, line, wait, until);
                self.directory.out.is_settled = true;
                return;
            }
        }
        let settings = &self.directory.backends.settings;
        let (is_transparent, start_wait) = (settings.is_transparent, settings.start_wait);
        // A server that is alone is waited for: nothing else can answer for it.
        let hello_wait =
            if is_transparent { start_wait } else { GATEWAY_HELLO_WAIT.min(start_wait) };
        let Some(session) = self.directory.sessions.get_mut(&client) else { return };
        match method {
            "initialize" => {
                if let Err(why) = session.initialize(request.line) {
                    return self.directory.out.answer_error(client, id, -32602, &why);
                }
                self.answer_when_settled(&request, hello_wait, is_late);
            }
            "server/discover" => self.answer_when_settled(&request, hello_wait, is_late),
            "ping" => self.directory.out.answer(client, id, responses::pong(id)),
            "logging/setLevel" => self.set_log_level(&request),
            "resources/subscribe" | "resources/unsubscribe" => self.resource(request),
            "subscriptions/listen" => self.listen(&request),
            _ if is_transparent => self.route(request),
            "tools/call" => self.call_tool(request),
            "resources/read" => self.resource(request),
            _ if Kind::of_method(method).is_some() => {
                self.answer_when_settled(&request, start_wait, is_late);
            }
            _ if is_about_tasks(method) => {
                if let Some((slot, edits)) = self.tasks.route(&mut self.directory, &request) {
                    self.forward(slot, request.edited(edits));
                }
            }
            _ => self.route(request),
        }
    }

    /// Answers a request about all servers of a client. Where some of them are still starting, it is held until
    /// their lists are read, for each of them so long.
    fn answer_when_settled(&mut self, request: &Request<'_>, within: Duration, is_late: bool) {
        let Request { client, id, method, line, .. } = *request;
        self.directory.use_servers(client);
        let Some(view) = self.directory.client(client) else { return };
        let now = self.directory.out.now;
        if let Some(until) = view.settles_at(within, now).filter(|_| !is_late) {
            let (line, wait) = (line.to_vec(), Wait::Start(within));
            return self.held.hold(client, line, wait, until);
        }
        if let Some(kind) = Kind::of_method(method) {
            return match view.list(id, kind, line) {
                Some(list) => self.directory.out.answer(client, id, list),
                None => {
                    self.directory.out.answer_error(client, id, -32602, "there is no such cursor")
                }
            };
        }
        let is_transparent = self.directory.backends.settings.is_transparent;
        if let Some((code, why)) = view.missing_introduction(method).filter(|_| is_transparent) {
            return self.directory.out.answer_error(client, id, code, &why);
        }
        let result = match method {
            _ if is_transparent => view.introduction(method),
            "initialize" => view.initialize_result(),
            _ => view.discover_result(),
        };
        if let Some(session) = self.directory.sessions.get_mut(&client)
            && method == "initialize"
        {
            session.is_open = true;
        }
        self.directory.answer_result(client, id, result);
    }

    fn set_log_level(&mut self, request: &Request<'_>) {
        let Request { client, id, line, .. } = *request;
        let Some(level) = level_in(line, &["level"]) else {
            let why = format!("`level` must be one of {}", LEVELS.join(", "));
            return self.directory.out.answer_error(client, id, -32602, &why);
        };
        if let Some(session) = self.directory.sessions.get_mut(&client) {
            session.log_level = Some(level);
        }
        for link in self.directory.links_of(client) {
            self.directory.sync_log_level(link);
        }
        self.directory.answer_result(client, id, json!({}));
    }

    /// A client of the newer protocol opens a stream of changes.
    fn listen(&mut self, request: &Request<'_>) {
        let Request { client, id, line, .. } = *request;
        let filter = param(line, &["notifications"]);
        if filter.is_some_and(|filter| filter.len() > LISTEN_FILTER_BYTES_MAX) {
            let why = format!("`notifications` has more than {LISTEN_FILTER_BYTES_MAX} bytes");
            return self.directory.out.answer_error(client, id, -32602, &why);
        }
        let filter = raw::value(filter);
        let Some(session) = self.directory.sessions.get_mut(&client) else { return };
        if let Err(why) = session.subscriptions.listen(id, &filter) {
            return self.directory.out.answer_error(client, id, -32603, &why);
        }
        self.directory.use_servers(client);
        let mut granted = if filter.is_object() { filter } else { json!({}) };
        // Tasks are polled.
        granted.as_object_mut().and_then(|granted| granted.remove("taskIds"));
        let params = listener_params(id, format!(r#""notifications":{granted}"#).as_bytes());
        let method = "notifications/subscriptions/acknowledged";
        let line = responses::notification(method, Some(&params));
        self.directory.out.answer(client, id, line);
        self.sync_subscriptions_of(client);
    }

    /// The resources that a client wants to hear of have changed.
    pub(super) fn sync_subscriptions_of(&mut self, client: ClientId) {
        for link in self.directory.links_of(client) {
            self.directory.sync_subscriptions(link);
        }
    }

    fn call_tool(&mut self, request: Request<'_>) {
        let Request { client, id, line, .. } = request;
        let Some(name) = request.name() else {
            let why = "`name` is missing: the tool to call";
            return self.directory.out.answer_error(client, id, -32602, why);
        };
        let Some(view) = self.directory.client(client) else { return };
        match view.own_tool(&name) {
            None => self.route(request),
            Some(GatewayTool::Admin(tool)) => self.call_admin(tool, request),
            Some(GatewayTool::Call) => match view.inner_call(line) {
                Ok(line) => {
                    if let Some(Message::Request { params, .. }) = look(&line) {
                        // As a whole: where the call was held, it was so under its own name.
                        let inner = Request::new(client, id, "tools/call", &params, &line);
                        self.handle_request(inner, true);
                    }
                }
                Err(result) => self.directory.answer_tool(client, id, &result),
            },
            Some(GatewayTool::Find) => {
                let (result, names) = view.find_tools(line);
                let session = self.directory.sessions.get_mut(&client);
                let is_new = session.is_some_and(|session| session.reveal(names));
                self.directory.answer_tool(client, id, &result);
                if is_new {
                    self.directory.notify(client, Kind::Tools);
                }
            }
        }
    }

    /// A client calls an admin tool: the server's conversation answers it, in any state of the server.
    fn call_admin(&mut self, tool: AdminTool, request: Request<'_>) {
        let Request { client, id, line, .. } = request;
        let Some(view) = self.directory.client(client) else { return };
        let server = param(line, &["arguments", "server"]).and_then(raw::text);
        if server.is_none() && tool == AdminTool::Status {
            let status = view.status(self.directory.out.now);
            return self.directory.answer_tool(client, id, &status);
        }
        let link = view
            .slot_of_argument(line)
            .and_then(|slot| self.directory.link_for(client, slot).map_err(ToolResult::error));
        let link = match link {
            Ok(link) => link,
            Err(result) => return self.directory.answer_tool(client, id, &result),
        };
        let part = request.params.name.clone().map(|part| (part, tool.reserved_name()));
        self.send(link, request.with(part), None);
        if tool != AdminTool::Restart {
            return;
        }
        if let Some(session) = self.directory.sessions.get(&client)
            && let Some(number) = session.requests.get(id)
        {
            let (id, by) = (Id::new(&own_id('g', *number)), session.caller_of(tool));
            self.directory.out.effects.push(Effect::RestartCalled { link, id, by });
        }
        if let Some(link) = self.directory.backends.links.get_mut(link) {
            // The next request opens the session again.
            link.retry_at = link.retry_at.map(|_| self.directory.out.now);
        }
    }

    /// Sends a request to the server that has what it names.
    fn route(&mut self, request: Request<'_>) {
        let Request { client, id, .. } = request;
        let Some(view) = self.directory.client(client) else { return };
        match view.server_of(&request) {
            Ok((slot, part)) => self.forward(slot, request.with(part)),
            Err((code, why)) => self.directory.out.answer_error(client, id, code, &why),
        }
    }

    fn resource(&mut self, mut request: Request<'_>) {
        let Request { client, id, method, line, .. } = request;
        let uri = param(line, &["uri"]).and_then(raw::text).unwrap_or_default();
        let Some(view) = self.directory.client(client) else { return };
        let Some(slot) = view.slot_of_uri(&uri) else {
            let why = format!("no server has the resource `{uri}`");
            let code = if view.session.is_modern() { -32602 } else { -32002 };
            let error = json!({"code": code, "message": why, "data": {"uri": uri}});
            return self.directory.out.answer(client, id, responses::line(id, "error", &error));
        };
        let (link, refusal) = (view.link_to(slot), view.session.subscriptions.refusal_of(&uri));
        if method == "resources/unsubscribe" {
            if let Some(session) = self.directory.sessions.get_mut(&client) {
                session.subscriptions.resources.remove(&uri);
            }
            let wants = |user: ClientId| {
                let session = self.directory.sessions.get(&user);
                session.is_some_and(|session| session.subscriptions.uris().any(|its| *its == uri))
            };
            if link.is_some_and(|link| self.directory.users_of(link).into_iter().any(wants)) {
                return self.directory.answer_result(client, id, json!({}));
            }
        }
        if let Some(why) = refusal.filter(|_| method == "resources/subscribe") {
            return self.directory.out.answer_error(client, id, -32603, &why);
        }
        if uri.starts_with(APP_SCHEME)
            && let Some(session) = self.directory.sessions.get_mut(&client)
        {
            session.app = Some(slot);
        }
        request.uri = Some(uri);
        self.forward(slot, request);
    }

    /// Passes a request on to a server, as soon as there is a session with it.
    fn forward(&mut self, slot: usize, request: Request<'_>) {
        let (directory, asking) = (&mut self.directory, &self.server_requests.asking_calls);
        let admission = match directory.link_for(request.client, slot) {
            Ok(link) => {
                let out = &mut directory.out;
                directory.backends.admit(link, request.client, request.line, out)
            }
            Err(why) => {
                let name = directory.backends.slots[slot].name();
                let why = format!("nothing was done, the server `{name}` cannot be used: {why}");
                Err(("server_down", why))
            }
        };
        match admission {
            Ok(None) => {}
            Err((reason, why)) => directory.refuse(slot, &request, reason, &why),
            Ok(Some(link)) if HeldCalls::needs_roots(directory, link, &request) => {
                if !self.server_requests.held_calls.ask_roots(directory, link, &request) {
                    let why = "nothing was done: too many calls wait for answers of this client; try again later";
                    directory.refuse(slot, &request, "server_busy", why);
                }
            }
            Ok(Some(link)) if HeldCalls::has_unknown_state(directory, link, &request) => {
                let why = "nothing was done: `requestState` is unknown, was used, or has expired; call again without it";
                directory.out.answer_error(request.client, request.id, -32602, why);
            }
            Ok(Some(link)) if self.held.must_wait(link, &request, asking, &directory.out) => {
                self.held.hold_for_turn(link, &request, &directory.out);
            }
            Ok(Some(link)) => {
                let timeout = directory.backends.slots[slot].backend.call_timeout;
                self.send(link, request, timeout);
            }
        }
    }

    /// Sends a client's request over a link, under an id of ours.
    fn send(&mut self, link: LinkId, request: Request<'_>, timeout: Option<Duration>) {
        let directory = &mut self.directory;
        self.server_requests.client_ready(request.client, directory);
        let slot = directory.backends.links.get(link).map(|its| its.slot);
        let span = slot.and_then(|slot| directory.begin_span(slot, &request));
        let target = target_of(&request);
        let may_make_task = may_make_task(&request);
        let Request { client, id, method, params, line, mut edits, uri } = request;
        let Some(raw_id) = raw::get(line, &["id"]) else { return };
        let number = directory.out.requests.number();
        let token = params.progress_token.clone().map(|part| line[part].to_vec());
        let parts = params.progress_token.clone().into_iter().chain([raw::place(line, raw_id)]);
        edits.extend(parts.map(|part| (part, own_id('g', number))));
        let level_path = ["_meta", "io.modelcontextprotocol/logLevel"];
        let is_bridged = directory.is_bridged(client, link);
        let (inputs, target) = match directory.sessions.get(&client) {
            Some(session) if is_bridged && can_ask(method) => (session.inputs(), target),
            _ if directory.backends.settings.is_transparent => (Vec::new(), target),
            _ => (Vec::new(), String::new()),
        };
        let principal = is_bridged.then(|| directory.principal_of(client)).flatten();
        let log_level = is_bridged.then(|| level_in(line, &level_path)).flatten();
        let line = edit(line, edits);
        if let Some(session) = directory.sessions.get_mut(&client) {
            session.requests.insert(id.clone(), number);
        }
        if let Some(its) = directory.backends.links.get_mut(link) {
            its.calls.start(client);
            if principal.is_some() && its.roots.owner == principal {
                its.roots.used_at = directory.out.now;
            }
        }
        let (id, method) = (id.clone(), method.to_owned());
        let is_held = false;
        let request = ClientRequest {
            client,
            id,
            method,
            target,
            token,
            uri,
            log_level,
            inputs,
            may_make_task,
            is_held,
        };
        let out = &mut directory.out;
        let until = timeout.map(|timeout| out.now + timeout);
        out.requests.insert(number, link, Purpose::Client(request), until, span);
        out.send_to_link(link, line);
    }
}

/// The error for a request of the newer protocol, where clients may speak only the older one.
fn newer_protocol_error(request: &Request<'_>, era: ClientEra) -> Option<Value> {
    if era != ClientEra::Legacy {
        return None;
    }
    let version = request.params.version.clone();
    let version = version.and_then(|version| raw::text(&request.line[version]));
    match (request.method, version) {
        ("server/discover", _) => Some(json!({"code": -32601, "message": "method not found"})),
        (_, Some(version)) if version == MODERN => {
            let data = json!({"supported": LEGACY, "requested": version});
            let message = "this gateway speaks no newer version (`era` of `[gateway]`)";
            Some(json!({"code": -32022, "message": message, "data": data}))
        }
        _ => None,
    }
}
