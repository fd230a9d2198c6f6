//! `afresh gateway`: many MCP servers behind one connection, or behind one port.
//!
//! One loop owns the hub, the restart machines of all servers and the pipes to them: a message goes from a
//! client to a server and back without leaving it. Clients over HTTP and servers over HTTP have tasks of
//! their own. The loop never decides about a message.

mod catalog_store;
mod http;
pub(crate) mod links;
mod otlp_sender;
mod own_token;
mod pin_store;
mod remote;
mod stdio_and_http_clients;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::RandomState;
use std::path::PathBuf;
use std::pin::pin;

use afresh_core::audit::{Actor, EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::{ErrorAnswer, Face, ReloadAnswer, ServiceStatus, ShutdownAnswer};
use afresh_core::gateway::backend::Backend;
use afresh_core::gateway::otlp_export::Destination;
use afresh_core::gateway::settings::Gateway as Wanted;
use afresh_core::gateway::{Effect, Hub, Input, Settings, StateKey};
use afresh_core::id::ServiceId;
use afresh_core::launchers::StartedBy;
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, GATEWAY_LAST_WAIT, LINES_IN_A_ROW_MAX, TRUST_LOOK_INTERVAL, TURNS_GIVEN,
};
use afresh_core::mcp::{AddedTools, ToolNames, WhichTools};
use afresh_core::service::{Input as ServiceInput, State};
use afresh_core::time::Time;
use afresh_core::trust::untrusted_note;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use self::catalog_store::CatalogStore;
#[cfg(feature = "fuzzing")]
pub use self::http::admit_request;
use self::links::{LinkSettings, Links};
use self::otlp_sender::Spans;
pub use self::own_token::{OwnTokenError, guard_front};
use self::pin_store::{PinEvent, PinStore};
use self::stdio_and_http_clients::{FrontEvent, GatewayFront};
use crate::clock::sleep_until;
use crate::control::{About, Control, LoopRequest, Reloading, RuntimeFolders, reloaded};
use crate::definition::Surroundings;
use crate::driver::Driver;
use crate::mcp::ServerPoll;
use crate::os::{self, SignalRequest, Signals};
use crate::output::OutputThread;
use crate::startup::{self, SetupError, StdioStartup};
use crate::store::catalogs::RepositoryCatalogs;
use crate::store::pins::RepositoryPins;
use crate::store::trust::TrustWatch;
use crate::store::user_state::UserState;
use crate::store::workspace::Workspace;
use crate::supervise::Supervisor;

/// Which servers stand behind the gateway, and how.
pub struct Gateway {
    /// What the configuration says: the servers, and who may use them.
    pub wanted: Wanted,
    /// Where state lives.
    pub workspace: Workspace,
    /// Where the trail is written.
    pub trail: TrailSettings,
    /// afresh's version.
    pub version: &'static str,
    /// Where the control socket may be.
    pub control: RuntimeFolders,
    /// What servers get besides their own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that their paths count from.
    pub base: PathBuf,
    /// Where all traffic with the servers is recorded.
    pub trace: Option<PathBuf>,
    /// The receiver of a span of each call.
    pub otlp: Option<Destination>,
    /// A file of root certificates for it, in place of the system's: `SSL_CERT_FILE`.
    pub certificates: Option<PathBuf>,
    /// Where the tools of servers are pinned; none where the user has no folder for it.
    pub pins: Option<RepositoryPins>,
    /// Where the servers' lists are stored for the next run; none where the user has no folder for it.
    pub catalogs: Option<RepositoryCatalogs>,
    /// Where the key of session ids is, so that sessions go on after a restart; none where the user has no folder for it.
    pub state: Option<UserState>,
    /// Where the log goes besides stderr.
    pub log_file: Option<PathBuf>,
    /// Reads the configuration again.
    pub reload: ReloadGateway,
    /// Tells when the user accepts what is not trusted yet.
    pub trust: Option<TrustWatch>,
    /// How this process was started: the end of a launcher is that of a client on stdio.
    pub started_by: StartedBy,
}

/// Reads the configuration again: all of it, and what people should know. What is wrong with it comes as text.
pub type ReloadGateway = Box<dyn FnMut() -> Result<(Wanted, Vec<String>), String> + Send>;

/// Serves until the client is gone or a signal ends it. Returns the exit code.
pub fn gateway(gateway: Gateway) -> Result<i32, SetupError> {
    startup::block_on(run(gateway))
}

async fn run(mut gateway: Gateway) -> Result<i32, SetupError> {
    let StdioStartup { mut signals, processes, stderr, stderr_thread, trace } =
        StdioStartup::new(gateway.log_file.take(), gateway.trace.take())?;
    let bound = GatewayFront::bind(&gateway.wanted.front)?;
    let spans =
        Spans::start(gateway.otlp.take(), gateway.version, gateway.certificates.take(), &stderr);
    let around = Surroundings {
        has_talkers: true,
        logger: "afresh.gateway",
        ..Surroundings::new(&mut gateway.workspace, &gateway.trail, stderr.clone(), stderr)
    };
    let about = About::new(Face::Gateway, None, &gateway.workspace, gateway.version);
    let supervise = Supervisor::new(processes, around);
    let state = gateway.state.take();
    let front = GatewayFront::open(bound, &gateway.wanted.front, &supervise.recorder, state)?;
    if front.is_single() {
        signals.end_with(os::Launchers::find(gateway.started_by)).map_err(SetupError::Signals)?;
    }
    supervise.recorder.note(started(&gateway));
    let control = Control::start(Some(gateway.control.clone()), None, about.clone(), &supervise);
    let hub = Hub::new(Settings {
        version: gateway.version.to_owned(),
        is_single: front.is_single(),
        expose: gateway.wanted.expose,
        admin_tools: gateway.wanted.admin_tools,
        start_wait: gateway.wanted.start_wait,
        era: gateway.wanted.era,
        state_key: StateKey([RandomState::new(), RandomState::new()]),
        is_traced: spans.queue.is_some(),
        is_transparent: false,
        first_link: 0,
    });
    let links = Links::start(gateway.link_settings(), about.clone(), trace);
    let links = links.map_err(SetupError::Runtime)?;
    let servers = std::mem::take(&mut gateway.wanted.servers);
    let mut switchboard = Switchboard {
        hub,
        start: Instant::now(),
        supervise,
        links,
        front,
        control,
        about,
        spans,
        pins: PinStore::new(gateway.pins),
        catalogs: CatalogStore::new(gateway.catalogs),
        backends: BTreeMap::new(),
        wanted: gateway.wanted,
        reload: gateway.reload,
        trust: gateway.trust,
        trust_look: Instant::now() + TRUST_LOOK_INTERVAL,
        left_at: None,
        left_by: Actor::Afresh("client has gone"),
    };
    if let Some(note) = untrusted_note(&switchboard.wanted.untrusted) {
        switchboard.supervise.log(&note);
    }
    switchboard.take_last_lists(&servers).await;
    switchboard.configure(servers).await;
    switchboard.drive(signals).await;
    end(switchboard, stderr_thread).await;
    Ok(0)
}

/// Ends all of it in time.
async fn end(switchboard: Switchboard, stderr_thread: OutputThread) {
    let left_at = switchboard.left_at.unwrap_or_else(Instant::now);
    let until = left_at + CLIENT_GONE_WITHIN - 4 * GATEWAY_LAST_WAIT;
    let rest = || until.saturating_duration_since(Instant::now()).max(GATEWAY_LAST_WAIT);
    let Switchboard {
        mut supervise, control, front, spans, pins, catalogs, links, left_by, ..
    } = switchboard;
    let trace = links.end();
    supervise.finish().await;
    supervise.recorder.note(stopped(&left_by));
    let clients = async {
        tokio::join!(
            control.close(),
            front.close(),
            spans.finish(),
            pins.finish(),
            catalogs.finish()
        )
    };
    // A client that does not read is not waited for, and holds up no other.
    timeout(rest(), pin!(clients)).await.ok();
    let (recorder, _) = supervise.shutdown().await;
    recorder.close(rest());
    let written = async {
        if let Some(trace) = trace {
            trace.close().await;
        }
        stderr_thread.done.await.ok();
    };
    timeout(rest(), pin!(written)).await.ok();
}

impl Gateway {
    /// What its servers have in common.
    fn link_settings(&mut self) -> LinkSettings {
        LinkSettings {
            environment: std::mem::take(&mut self.environment),
            own_variables: self.wanted.own_variables.clone(),
            base: self.base.clone(),
            hands_on_notices: false,
        }
    }
}

fn started(gateway: &Gateway) -> Record {
    let names: Vec<&str> =
        gateway.wanted.servers.iter().map(|server| server.name.as_str()).collect();
    let (count, end) = (names.len(), if names.len() == 1 { "" } else { "s" });
    Record {
        level: Level::Info,
        logger: "afresh.gateway".to_owned(),
        message: format!("afresh {} stands in front of {count} server{end}", gateway.version),
        event_type: EventType::SupervisorStarted,
        props: vec![
            ("pid", std::process::id().into()),
            ("version", gateway.version.into()),
            ("servers", names.into()),
            ("not_trusted", gateway.wanted.untrusted.clone().into()),
        ],
    }
}

fn stopped(by: &Actor) -> Record {
    Record {
        level: Level::Info,
        logger: "afresh.gateway".to_owned(),
        message: "afresh has stopped".to_owned(),
        event_type: EventType::SupervisorStopped,
        props: vec![("pid", std::process::id().into()), ("by", by.to_json())],
    }
}

/// The hub, and all that it speaks to.
struct Switchboard {
    hub: Hub,
    start: Instant,
    supervise: Supervisor,
    links: Links,
    front: GatewayFront,
    control: Control,
    about: About,
    spans: Spans,
    pins: PinStore,
    catalogs: CatalogStore,
    backends: BTreeMap<String, Backend>,
    /// As it holds now, without the servers.
    wanted: Wanted,
    reload: ReloadGateway,
    trust: Option<TrustWatch>,
    /// When it is looked at next, while something is not trusted.
    trust_look: Instant,
    /// When we were told to go.
    left_at: Option<Instant>,
    /// What or who told us.
    left_by: Actor,
}

impl Switchboard {
    /// The first servers will be these: what they had in the last run is shown while they start.
    async fn take_last_lists(&mut self, servers: &[Backend]) {
        self.catalogs.configure(servers);
        match self.catalogs.read() {
            Ok(lists) => self.input(Input::LastLists(lists)).await,
            Err(text) => self.supervise.log(&text),
        }
    }

    /// The servers are these now.
    async fn configure(&mut self, servers: Vec<Backend>) {
        self.prepare_pins(&servers);
        self.catalogs.configure(&servers);
        self.input(Input::Pinned(self.pins.sections())).await;
        self.backends =
            servers.iter().map(|server| (server.name.clone(), server.clone())).collect();
        self.input(Input::Untrusted(self.wanted.untrusted.clone())).await;
        self.input(Input::LeftOut(self.wanted.left_out.clone())).await;
        self.input(Input::Configured(servers)).await;
    }

    fn prepare_pins(&mut self, servers: &[Backend]) {
        if let Some(text) = self.pins.prepare(servers) {
            self.supervise.log(&text);
        }
    }

    /// What is stored of the pins is known, or cannot be.
    async fn note_pins(&mut self, event: PinEvent) {
        match event {
            PinEvent::Stored(stored) => {
                self.input(Input::Pinned(stored)).await;
                self.pins.look(self.hub.has_changes_to_accept());
            }
            PinEvent::Failed(text) => self.supervise.log(&text),
        }
    }

    async fn drive(&mut self, mut signals: Signals) {
        while !(self.left_at.is_some() && self.supervise.fleet.is_at_rest()) {
            while let Some(event) = self.supervise.instances.next_event() {
                self.links.servers.follow(&mut self.supervise, event).await;
            }
            self.links.tidy(&mut self.supervise);
            self.give_way().await;
            let wakeup = self.hub.next_wakeup().map(|at| self.start + at.since_start());
            let has_room = self.front.has_room() || self.left_at.is_some();
            let may_be_trusted = !self.wanted.untrusted.is_empty() && self.left_at.is_none();
            let trust_look = may_be_trusted.then_some(self.trust_look);
            tokio::select! {
                asked = signals.next() => self.asked(asked).await,
                ask = self.control.next() => self.answer(ask).await,
                wakeup = self.supervise.wait() => {
                    self.supervise.react(wakeup).await;
                    self.note_states().await;
                }
                word = self.front.next() => match word {
                    FrontEvent::Hub(input) => self.input(input).await,
                    // What waited for that is looked at again.
                    FrontEvent::Read => {}
                    FrontEvent::Over => self.leave(Actor::Afresh("client has gone")).await,
                },
                (service, came) = self.links.servers.next(), if has_room => {
                    let is_message = matches!(came, ServerPoll::Lines);
                    self.links.servers.deal_with(&mut self.supervise, service, came).await;
                    self.take(service).await;
                    if !is_message {
                        self.note_states().await;
                    }
                }
                Some(input) = self.links.words.recv(), if has_room => {
                    // What comes of a link that is closed matters no more.
                    if let Input::Link { link, .. } | Input::Serves { link, .. } = &input
                        && self.links.ways.contains_key(link)
                    {
                        self.input(input).await;
                    }
                }
                event = self.pins.next() => self.note_pins(event).await,
                text = self.catalogs.next() => self.supervise.log(&text),
                () = sleep_until(wakeup) => self.input(Input::Wakeup).await,
                () = sleep_until(trust_look) => self.look_at_trust().await,
            }
        }
    }

    async fn asked(&mut self, asked: SignalRequest) {
        match asked {
            SignalRequest::Restart(reason) if self.left_at.is_none() => {
                let (reason, by) = (reason.to_owned(), Actor::Signal(reason));
                self.supervise.input(&ServiceInput::Restart { reason, by }).await;
            }
            SignalRequest::Stop("SIGHUP") if !self.front.is_single() => {
                drop(self.read_again("SIGHUP", &Actor::Signal("SIGHUP")).await);
            }
            signal => self.leave(Actor::Signal(signal.name())).await,
        }
    }

    /// The client is gone, or we were told to go: all of it within a second.
    async fn leave(&mut self, by: Actor) {
        if self.left_at.is_none() {
            (self.left_at, self.left_by) = (Some(Instant::now()), by);
        }
        self.supervise.instances.is_hurried = true;
        self.front.leave();
        for span in self.hub.end_spans(Time::after_start(self.start.elapsed())) {
            self.spans.take(span);
        }
        // They are sent while the servers go.
        self.spans.queue = None;
        self.links.leave(&mut self.supervise, &self.left_by).await;
    }

    /// Tells the hub which servers do otherwise than before.
    async fn note_states(&mut self) {
        for (link, state) in self.links.changed(&self.supervise) {
            self.input(Input::Serves { link, state }).await;
        }
    }

    /// Takes what a server has said.
    async fn take(&mut self, service: ServiceId) {
        let lines = self.links.servers.take_outbox(service);
        let Some(link) = self.links.links.get(&service).copied() else { return };
        let is_flood = lines.len() == LINES_IN_A_ROW_MAX;
        for line in lines {
            self.input(Input::Link { link, line, about: None }).await;
            self.give_way().await;
        }
        if is_flood {
            // Connections get to write what they were given.
            yield_now().await;
        }
    }

    /// Lets connections write what they were given, where that is much, and others send their requests.
    async fn give_way(&mut self) {
        if self.front.gives_way() {
            for _ in 0..TURNS_GIVEN {
                yield_now().await;
            }
        }
    }

    /// Answers a question of the control API.
    async fn answer(&mut self, ask: LoopRequest) {
        match ask {
            LoopRequest::Reload { reason, by, answer } => {
                let done = self.read_again(&reason, &by).await;
                // The caller may have gone.
                answer.send(done).ok();
            }
            LoopRequest::Shutdown { by, answer, .. } if !self.front.is_single() => {
                let stopping = self.backends.keys().cloned().collect();
                self.leave(by).await;
                answer.send(Ok(ShutdownAnswer { stopping })).ok();
            }
            LoopRequest::Status { name, answer } => {
                let ours = self.supervise.fleet.ids().into_iter().filter_map(|id| {
                    let mut status = self.about.status(&self.supervise, id)?;
                    let runs = |state: &State| {
                        matches!(state, State::Ready | State::Running | State::Degraded { .. })
                    };
                    // That its process runs is not all: the hub knows whether it answers.
                    if let Some(link) = self.links.links.get(&id).filter(|_| runs(&status.state))
                        && let Some(state) = self.hub.state_of(*link)
                    {
                        status.state = state;
                    }
                    Some(status)
                });
                let remotes = self.hub.remotes().into_iter();
                let remotes =
                    remotes.map(|(name, address, state)| self.about.remote(name, address, state));
                let is_asked =
                    |status: &ServiceStatus| name.as_ref().is_none_or(|name| status.name == *name);
                let left_out = self.wanted.left_out.iter().cloned().map(|(name, why)| {
                    self.about.remote(name, String::new(), State::Failed { why })
                });
                let all = ours.chain(remotes).chain(left_out);
                answer.send(all.filter(is_asked).collect()).ok();
            }
            ask => self.control.answer(&mut self.supervise, ask).await,
        }
    }

    /// Serves what the user has accepted meanwhile.
    async fn look_at_trust(&mut self) {
        self.trust_look = Instant::now() + TRUST_LOOK_INTERVAL;
        if self.trust.as_mut().is_some_and(TrustWatch::has_changed) {
            drop(self.read_again("`afresh trust`", &Actor::Afresh("trust")).await);
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    async fn read_again(&mut self, why: &str, by: &Actor) -> Result<Reloading, ErrorAnswer> {
        if self.left_at.is_some() {
            return Err(ErrorAnswer::new("nothing is begun any more: afresh is stopping"));
        }
        // An address that is bound stays.
        let listen = self.wanted.front.http.clone();
        let read = (self.reload)().and_then(|(mut wanted, mut notes)| {
            notes.extend(self.wanted.changes(&wanted));
            notes.extend(untrusted_note(&wanted.untrusted));
            wanted.front.http = listen;
            match wanted.front.http.as_ref().map_or(Ok(()), |_| wanted.front.check()) {
                Ok(()) => Ok((wanted, notes)),
                Err(error) => Err(format!("error: {error}")),
            }
        });
        match read {
            Ok((mut wanted, notes)) => {
                self.supervise.log(&format!("{why}: reading the configuration again"));
                notes.iter().for_each(|note| self.supervise.log(note));
                let servers = std::mem::take(&mut wanted.servers);
                self.prepare_pins(&servers);
                if let GatewayFront::Http(front) = &mut self.front {
                    front.configure(&wanted.front);
                }
                // What needs a restart is as it was, and is said again the next time.
                self.links.own_variables = wanted.own_variables.clone();
                (wanted.expose, wanted.admin_tools) = (self.wanted.expose, self.wanted.admin_tools);
                (wanted.start_wait, wanted.era) = (self.wanted.start_wait, self.wanted.era);
                self.wanted = wanted;
                let mut answer = ReloadAnswer { notes, ..ReloadAnswer::default() };
                for server in &servers {
                    let list = match self.backends.get(&server.name) {
                        None => &mut answer.added,
                        Some(old) if old == server => &mut answer.unchanged,
                        Some(_) => &mut answer.changed,
                    };
                    list.push(server.name.clone());
                }
                let is_gone = |name: &&String| !servers.iter().any(|server| server.name == **name);
                answer.removed = self.backends.keys().filter(is_gone).cloned().collect();
                let ReloadAnswer { added, changed, removed, notes, .. } = &answer;
                let mut record = reloaded("afresh.gateway", added, changed, removed, by);
                record.props.push(("notes", notes.clone().into()));
                self.supervise.recorder.note(record);
                self.configure(servers).await;
                Ok(Reloading { answer, begun: Vec::new() })
            }
            Err(wrong) => {
                self.supervise.log(&format!("the configuration stays as it was:\n{wrong}"));
                Err(ErrorAnswer::new(format!("the configuration stays as it was\n{wrong}")))
            }
        }
    }
}

impl Driver for Switchboard {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.hub.handle(Time::after_start(self.start.elapsed()), input)
    }

    async fn perform(&mut self, effect: Effect) -> Option<Input> {
        let supervise = &mut self.supervise;
        match effect {
            Effect::ToClient { client, line, about } => {
                self.front.tell(client, line, about);
            }
            Effect::ToLink { link, line } => return self.links.tell(link, line),
            Effect::RestartCalled { link, id, by } => self.links.note_caller(link, id, by),
            Effect::Open { link, backend, suffix } => {
                let server = self.backends.get(&backend)?;
                let which = match self.wanted.admin_tools {
                    true => WhichTools::All,
                    false => WhichTools::None,
                };
                let tools = AddedTools { which, names: ToolNames::Reserved };
                if let Err(why) = self.links.open(supervise, link, (server, tools), &suffix).await {
                    // The link's first message comes back as one that is not taken.
                    supervise.log(&format!("the server `{backend}` cannot be used: {why}"));
                }
            }
            Effect::Refused { link, why } => self.links.refused(supervise, link, why).await,
            Effect::Close { link } => self.links.close(supervise, link).await,
            Effect::Log(text) => supervise.log(&text),
            Effect::Pin(report) => {
                if let Some(record) = self.pins.take(report) {
                    supervise.recorder.note(record);
                }
                self.pins.look(self.hub.has_changes_to_accept());
            }
            Effect::StoreList(report) => self.catalogs.take(report),
            Effect::Span(span) => self.spans.take(span),
        }
        None
    }
}
