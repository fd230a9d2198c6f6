//! Owns the hub: the servers of all shims of a workspace, in one loop. Started detached by a shim; ends when nobody uses it.
//!
//! Each server has a hub of the gateway with nothing else in it (`afresh_core::gateway::Hub`), through which its clients see
//! it as it is: that machine knows whose a question, a progress report or an update is. Decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;
use std::pin::pin;

use afresh_core::audit::{Actor, EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::{Face, ServiceStatus, SharedStatus};
use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::backend::{Backend, ClientEra, Expose};
use afresh_core::gateway::{ClientId, Effect, Hub, Input, LinkId, Settings, StateKey};
use afresh_core::id::ServiceId;
use afresh_core::limits::{CLIENT_GONE_WITHIN, GATEWAY_LAST_WAIT, SHARE_START_WAIT};
use afresh_core::mcp::AddedTools;
use afresh_core::mcp::frame::Frame;
use afresh_core::service::State;
use afresh_core::share::protocol::{
    Hello, HubFrame, PROTOCOL, PROTOCOL_BEFORE, ShimFrame, frame_of, is_frame, is_spoken, line_of,
};
use afresh_core::share::{InstanceEffect, InstanceId, Instances, SessionId, SessionRequest};
use afresh_core::time::Time;
use tokio::time::{Instant, timeout};

use super::hub_place::HubPlace;
use super::shim_connections::{ShimConnections, ShimEvent, ShimWriter};
use crate::clock::sleep_until;
use crate::control::{About, Control, LoopRequest, RuntimeFolders};
use crate::definition::Surroundings;
use crate::gateway::links::{LinkSettings, Links};
use crate::mcp::ServerPoll;
use crate::os::{self, SignalRequest, Signals};
use crate::startup::{self, SetupError, StdioStartup};
use crate::store::workspace::Workspace;
use crate::supervise::Supervisor;

/// What a hub is started with.
pub struct ShareHub {
    /// Where shims find it.
    pub place: HubPlace,
    /// Where state lives.
    pub workspace: Workspace,
    /// Where the trail is written.
    pub trail: TrailSettings,
    /// afresh's version.
    pub version: &'static str,
    /// Where the control socket may be.
    pub control: RuntimeFolders,
    /// Reads the configuration for a session's server.
    pub resolve: ResolveServer,
}

/// A server as its first session and the configuration have it.
#[derive(Clone, Debug)]
pub struct SharedServer {
    /// How it is started, restarted and stopped.
    pub backend: Backend,
    /// The tools of afresh beside its own.
    pub tools: AddedTools,
    /// Whether results of its tools say that it was restarted.
    pub tells_restarts: bool,
}

/// Reads the configuration for a session's server.
pub type ResolveServer = Box<dyn FnMut(&SessionRequest) -> Result<SharedServer, String> + Send>;

/// Serves shims until there are none. Another hub of the workspace makes it end at once.
pub fn share_hub(hub: ShareHub) -> Result<i32, SetupError> {
    if !hub.place.is_held() {
        return Ok(1);
    }
    // What a terminal or a client sends to the shim's group is not for us.
    os::leave_session().ok();
    startup::block_on(run(hub))
}

async fn run(mut hub: ShareHub) -> Result<i32, SetupError> {
    let StdioStartup { signals, processes, stderr, stderr_thread, .. } =
        StdioStartup::new(Some(hub.place.log_file()), None)?;
    let around = Surroundings {
        has_talkers: true,
        logger: "afresh.share",
        ..Surroundings::new(&mut hub.workspace, &hub.trail, stderr.clone(), stderr)
    };
    let about = About::new(Face::Mcp, None, &hub.workspace, hub.version);
    let supervise = Supervisor::new(processes, around);
    supervise.recorder.note(record("afresh stands in front of shared servers", true, None));
    let control = Control::start(Some(hub.control), None, about.clone(), &supervise);
    let settings = LinkSettings { hands_on_notices: true, ..LinkSettings::default() };
    let links = Links::start(settings, about.clone(), None).map_err(SetupError::Runtime)?;
    let listener = hub.place.listen().map_err(SetupError::Runtime)?;
    let mut switchboard = Switchboard {
        start: Instant::now(),
        supervise,
        links,
        control,
        about,
        connections: ShimConnections::new(listener),
        instances: Instances::new(Time::ZERO),
        shared: BTreeMap::new(),
        sessions: BTreeMap::new(),
        resolve: hub.resolve,
        version: hub.version,
        hands_over: false,
        left_at: None,
        left_by: Actor::Afresh("unused hub"),
    };
    switchboard.drive(signals).await;

    let left_at = switchboard.left_at.unwrap_or_else(Instant::now);
    let until = left_at + CLIENT_GONE_WITHIN - 4 * GATEWAY_LAST_WAIT;
    let rest = || until.saturating_duration_since(Instant::now()).max(GATEWAY_LAST_WAIT);
    let Switchboard { mut supervise, control, links, connections, sessions, left_by, .. } =
        switchboard;
    drop((links.end(), sessions));
    supervise.finish().await;
    supervise.recorder.note(record("afresh has stopped", false, Some(&left_by)));
    let ends = async { tokio::join!(control.close(), connections.close()) };
    timeout(rest(), pin!(ends)).await.ok();
    let (recorder, _) = supervise.shutdown().await;
    recorder.close(rest());
    timeout(rest(), stderr_thread.done).await.ok();
    Ok(0)
}

fn record(message: &str, is_start: bool, by: Option<&Actor>) -> Record {
    let mut props = vec![("pid", std::process::id().into())];
    props.extend(by.map(|by| ("by", by.to_json())));
    Record {
        level: Level::Info,
        logger: "afresh.share".to_owned(),
        message: message.to_owned(),
        event_type: match is_start {
            true => EventType::SupervisorStarted,
            false => EventType::SupervisorStopped,
        },
        props,
    }
}

/// The servers, and the shims of their clients.
struct Switchboard {
    start: Instant,
    supervise: Supervisor,
    links: Links,
    control: Control,
    about: About,
    connections: ShimConnections,
    instances: Instances,
    shared: BTreeMap<InstanceId, Shared>,
    sessions: BTreeMap<SessionId, Session>,
    resolve: ResolveServer,
    version: &'static str,
    /// A newer afresh wants to take over as soon as nothing is in flight.
    hands_over: bool,
    left_at: Option<Instant>,
    left_by: Actor,
}

/// A server and its clients.
struct Shared {
    hub: Hub,
    server: SharedServer,
}

/// A shim.
struct Session {
    instance: InstanceId,
    writer: ShimWriter,
    protocol: u32,
    /// Lines of MCP that it has sent.
    read: u64,
}

/// The links of an instance have its number in their upper half.
const LINK_BITS: u32 = 32;

const fn instance_of(link: LinkId) -> InstanceId {
    InstanceId(link.0 >> LINK_BITS)
}

const fn client_of(session: SessionId) -> ClientId {
    ClientId(session.0)
}

impl Switchboard {
    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    async fn drive(&mut self, mut signals: Signals) {
        while !(self.left_at.is_some() && self.supervise.fleet.is_at_rest()) {
            while let Some(event) = self.supervise.instances.next_event() {
                self.links.servers.follow(&mut self.supervise, event).await;
            }
            self.links.tidy(&mut self.supervise);
            // A second time would be an order to hurry: the servers have the time that they are given to end.
            if self.hands_over
                && self.left_at.is_none()
                && self.shared.values().all(|shared| shared.hub.in_flight() == 0)
            {
                self.leave(Actor::Afresh("newer version")).await;
            }
            let wakeups = self.shared.values().filter_map(|shared| shared.hub.next_wakeup());
            let wakeup = wakeups.chain(self.instances.next_wakeup()).min();
            let wakeup = wakeup.map(|at| self.start + at.since_start());
            tokio::select! {
                asked = signals.next() => self.asked(asked).await,
                ask = self.control.next() => self.answer(ask).await,
                wakeup = self.supervise.wait() => {
                    self.supervise.react(wakeup).await;
                    self.note_states().await;
                }
                (session, event) = self.connections.next() => self.shim(session, event).await,
                (service, came) = self.links.servers.next() => {
                    let is_message = matches!(came, ServerPoll::Lines);
                    self.links.servers.deal_with(&mut self.supervise, service, came).await;
                    self.take(service).await;
                    if !is_message {
                        self.note_states().await;
                    }
                }
                () = sleep_until(wakeup) => self.wake().await,
            }
        }
    }

    async fn asked(&mut self, asked: SignalRequest) {
        match asked {
            SignalRequest::Restart(reason) if self.left_at.is_none() => {
                let by = Actor::Signal(reason);
                let reason = reason.to_owned();
                let restart = afresh_core::service::Input::Restart { reason, by };
                self.supervise.input(&restart).await;
            }
            signal => self.leave(Actor::Signal(signal.name())).await,
        }
    }

    /// Ends: shims are told how much of theirs was looked at, and attach to the next hub.
    async fn leave(&mut self, by: Actor) {
        if self.left_at.is_none() {
            (self.left_at, self.left_by) = (Some(Instant::now()), by);
        }
        self.instances.leave();
        self.connections.stop_listening();
        for session in std::mem::take(&mut self.sessions).into_values() {
            if session.protocol > PROTOCOL_BEFORE {
                session
                    .writer
                    .send(line_of(&HubFrame::Leaving { read: session.read, keeps_state: false }));
            }
        }
        self.supervise.instances.is_hurried = true;
        let by = self.left_by.clone();
        self.links.leave(&mut self.supervise, &by).await;
    }

    async fn wake(&mut self) {
        let ids: Vec<InstanceId> = self.shared.keys().copied().collect();
        for id in ids {
            self.input(id, Input::Wakeup).await;
        }
        for effect in self.instances.wake(self.now()) {
            match effect {
                InstanceEffect::Stop(id) => self.drop_instance(id).await,
                InstanceEffect::End => self.leave(Actor::Afresh("unused hub")).await,
            }
        }
    }

    /// Ends a server that nobody uses.
    async fn drop_instance(&mut self, id: InstanceId) {
        self.input(id, Input::Configured(Vec::new())).await;
        self.shared.remove(&id);
    }

    async fn shim(&mut self, id: SessionId, event: ShimEvent) {
        match event {
            ShimEvent::Hello(frame, writer) => self.welcome(id, frame, writer).await,
            ShimEvent::Line(frame) => self.line(id, frame).await,
            ShimEvent::Gone => self.gone(id).await,
        }
    }

    /// A shim attaches.
    async fn welcome(&mut self, id: SessionId, frame: Frame, writer: ShimWriter) {
        let hello = match &frame {
            Frame::Line(line) => match frame_of(line) {
                Some(ShimFrame::Hello(hello)) => Some(*hello),
                Some(ShimFrame::HandOver) => {
                    self.hands_over = true;
                    None
                }
                Some(ShimFrame::Ping | ShimFrame::Roots(_)) | None => None,
            },
            Frame::TooLong { .. } => None,
        };
        let Some(hello) = hello else { return };
        if self.left_at.is_some() {
            // The connection ends without a word, and the shim looks for the next hub: a refusal would be final.
            return;
        }
        let refuse = |why: String| line_of(&HubFrame::Refused { protocol: PROTOCOL, why });
        let Hello { protocol, pid, session, .. } = hello;
        if !is_spoken(protocol) {
            let why = format!("the hub speaks version {PROTOCOL}, and the shim version {protocol}");
            writer.send(refuse(why));
            return;
        }
        let (instance, server) = match self.attach(id, &session).await {
            Ok(attached) => attached,
            Err(why) => {
                writer.send(refuse(why));
                return;
            }
        };
        self.supervise.log(&format!("{}: a client has come (shim {pid})", server.backend.name));
        let (version, tells_restarts) = (self.version.to_owned(), server.tells_restarts);
        let pid = std::process::id();
        writer.send(line_of(&HubFrame::Welcome { protocol, version, pid, tells_restarts }));
        self.sessions.insert(id, Session { instance, writer, protocol, read: 0 });
        let joined = Input::Joined { client: client_of(id), access: Access::default() };
        self.input(instance, joined).await;
    }

    /// Gives a session its server, which is started where there is none.
    async fn attach(
        &mut self,
        id: SessionId,
        request: &SessionRequest,
    ) -> Result<(InstanceId, SharedServer), String> {
        let attached = self.instances.attach(id, request)?;
        if !attached.is_new {
            let shared = self.shared.get(&attached.instance);
            let server = shared.map(|shared| shared.server.clone());
            return Ok((attached.instance, server.ok_or("the server is ending")?));
        }
        let named = SessionRequest { name: attached.name.clone(), ..request.clone() };
        let server = match (self.resolve)(&named) {
            Ok(server) => server,
            Err(why) => {
                let now = self.now();
                self.instances.detach(now, id);
                self.instances.forget(now, attached.instance);
                return Err(why);
            }
        };
        let hub = Hub::new(Settings {
            version: self.version.to_owned(),
            is_single: false,
            expose: Expose::All,
            admin_tools: false,
            start_wait: SHARE_START_WAIT,
            era: ClientEra::Auto,
            state_key: StateKey([RandomState::new(), RandomState::new()]),
            is_traced: false,
            is_transparent: true,
            first_link: attached.instance.0 << LINK_BITS,
        });
        let backend = server.backend.clone();
        self.shared.insert(attached.instance, Shared { hub, server: server.clone() });
        self.input(attached.instance, Input::Configured(vec![backend])).await;
        Ok((attached.instance, server))
    }

    /// A line of a shim that has attached.
    async fn line(&mut self, id: SessionId, frame: Frame) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (instance, client) = (session.instance, client_of(id));
        let input = match frame {
            Frame::Line(line) if is_frame(&line) => {
                match frame_of(&line) {
                    Some(ShimFrame::Ping) => drop(session.writer.send(line_of(&HubFrame::Pong))),
                    Some(ShimFrame::HandOver) => {
                        self.supervise.log("a newer afresh takes over as soon as nothing runs");
                        self.hands_over = true;
                    }
                    Some(ShimFrame::Roots(roots)) => {
                        if !self.instances.set_roots(id, roots) {
                            self.send_away(id).await;
                        }
                    }
                    Some(ShimFrame::Hello(_)) | None => {}
                }
                return;
            }
            Frame::Line(line) => Input::Client { client, line },
            Frame::TooLong { beginning, ending, .. } => {
                Input::ClientTooLong { client, beginning, ending }
            }
        };
        session.read += 1;
        self.input(instance, input).await;
    }

    /// Its client needs another server: it attaches again, and gets that one.
    async fn send_away(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id) {
            let (read, keeps_state) = (session.read, true);
            session.writer.send(line_of(&HubFrame::Leaving { read, keeps_state }));
        }
        self.gone(id).await;
    }

    async fn gone(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.instances.detach(self.now(), id);
        self.input(session.instance, Input::Left { client: client_of(id) }).await;
    }

    /// Takes what a server has said.
    async fn take(&mut self, service: ServiceId) {
        let lines = self.links.servers.take_outbox(service);
        let Some(link) = self.links.links.get(&service).copied() else { return };
        let instance = instance_of(link);
        for line in lines {
            match is_frame(&line) {
                true => self.tell_all(instance, &line),
                false => self.input(instance, Input::Link { link, line, about: None }).await,
            }
        }
    }

    /// Hands a frame of ours on to all clients of a server.
    fn tell_all(&mut self, instance: InstanceId, line: &[u8]) {
        let of_instance = self.sessions.values().filter(|its| its.instance == instance);
        for session in of_instance.filter(|its| its.protocol > PROTOCOL_BEFORE) {
            session.writer.send(line.to_vec());
        }
    }

    async fn note_states(&mut self) {
        for (link, state) in self.links.changed(&self.supervise) {
            self.input(instance_of(link), Input::Serves { link, state }).await;
        }
    }

    async fn answer(&mut self, ask: LoopRequest) {
        match ask {
            LoopRequest::Status { name, answer } => {
                let all = self.supervise.fleet.ids().into_iter();
                let status = |id: ServiceId| {
                    let mut status = self.about.status(&self.supervise, id)?;
                    let runs = |state: &State| {
                        matches!(state, State::Ready | State::Running | State::Degraded { .. })
                    };
                    if let Some(link) = self.links.links.get(&id).filter(|_| runs(&status.state))
                        && let Some(shared) = self.shared.get(&instance_of(*link))
                        && let Some(state) = shared.hub.state_of(*link)
                    {
                        status.state = state;
                    }
                    let shared = self.instances.report(&status.name);
                    status.shared = shared.map(|(clients, apart)| SharedStatus { clients, apart });
                    Some(status)
                };
                let is_asked =
                    |status: &ServiceStatus| name.as_ref().is_none_or(|name| status.name == *name);
                answer.send(all.filter_map(status).filter(is_asked).collect()).ok();
            }
            ask => self.control.answer(&mut self.supervise, ask).await,
        }
    }

    /// Lets the machine of a server decide, and does what it says.
    async fn input(&mut self, instance: InstanceId, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now();
            let Some(shared) = self.shared.get_mut(&instance) else { return };
            for effect in shared.hub.handle(now, input) {
                inputs.extend(self.perform(instance, effect).await);
            }
        }
    }

    async fn perform(&mut self, instance: InstanceId, effect: Effect) -> Option<Input> {
        match effect {
            Effect::ToClient { client, line, .. } => {
                let id = SessionId(client.0);
                if let Some(session) = self.sessions.get(&id)
                    && !session.writer.send(line)
                {
                    // It does not read: it attaches again when it does.
                    self.sessions.remove(&id);
                    self.instances.detach(self.now(), id);
                    return Some(Input::Left { client });
                }
            }
            Effect::ToLink { link, line } => return self.links.tell(link, line),
            Effect::Open { link, suffix, .. } => {
                let SharedServer { backend, tools, .. } =
                    self.shared.get(&instance)?.server.clone();
                let opened =
                    self.links.open(&mut self.supervise, link, (&backend, tools), &suffix).await;
                if let Err(why) = opened {
                    let name = &backend.name;
                    self.supervise.log(&format!("the server `{name}` cannot be used: {why}"));
                }
            }
            Effect::Refused { link, why } => {
                self.links.refused(&mut self.supervise, link, why).await;
            }
            Effect::Close { link } => self.links.close(&mut self.supervise, link).await,
            Effect::Log(text) => self.supervise.log(&text),
            // None is asked for.
            Effect::RestartCalled { .. }
            | Effect::Pin(_)
            | Effect::Span(_)
            | Effect::StoreList(_) => {}
        }
        None
    }
}
