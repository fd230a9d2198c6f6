//! Owns the hub: the servers of all shims of a workspace, in one loop. Started detached by a shim; ends when nobody uses it.
//!
//! Each server has a hub of the gateway with nothing else in it (`afresh_core::gateway::Hub`), through which its clients see
//! it as it is: that machine knows whose a question, a progress report or an update is. Decides nothing.

use std::hash::RandomState;
use std::pin::pin;

use afresh_core::audit::{Actor, EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::{Face, ServiceStatus, SharedStatus};
use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::backend::{Backend, ClientEra, Expose};
use afresh_core::gateway::{Effect, Hub, Input, Settings, StateKey};
use afresh_core::id::ServiceId;
use afresh_core::limits::{CLIENT_GONE_WITHIN, GATEWAY_LAST_WAIT, SHARE_START_WAIT};
use afresh_core::mcp::AddedTools;
use afresh_core::mcp::frame::Frame;
use afresh_core::service::State;
use afresh_core::share::protocol::{
    Hello, HubFrame, PROTOCOL, PROTOCOL_BEFORE, ShimFrame, frame_of, is_spoken, line_of,
};
use afresh_core::share::{InstanceEffect, InstanceId, SessionId, SessionRequest};
use tokio::time::{Instant, timeout};

use super::hub_place::HubPlace;
use super::shim_connections::{NewShim, ShimListener};
use super::traffic::{Interruption, LINK_BITS, Session, Shared, Traffic, client_of, instance_of};
use crate::control::{About, Control, LoopRequest, RuntimeFolders};
use crate::definition::Surroundings;
use crate::gateway::links::{LinkSettings, Links};
use crate::mcp::{PipePoll, Polled};
use crate::os::{self, SignalRequest, Signals};
use crate::startup::{self, SetupError, StdioStartup};
use crate::store::workspace::Workspace;
use crate::supervise::{Supervisor, Wakeup};

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
        supervise,
        control,
        about,
        traffic: Traffic::new(links),
        poll: PipePoll::start().map_err(SetupError::Runtime)?,
        listener: ShimListener::new(listener),
        resolve: hub.resolve,
        version: hub.version,
        left_at: None,
        left_by: Actor::Afresh("unused hub"),
    };
    switchboard.drive(signals).await;

    let left_at = switchboard.left_at.unwrap_or_else(Instant::now);
    let until = left_at + CLIENT_GONE_WITHIN - 4 * GATEWAY_LAST_WAIT;
    let rest = || until.saturating_duration_since(Instant::now()).max(GATEWAY_LAST_WAIT);
    let Switchboard { mut supervise, control, traffic, listener, left_by, .. } = switchboard;
    // With the servers and the writers of the last sessions. What shims still say is not read.
    drop(traffic);
    supervise.finish().await;
    supervise.recorder.note(record("afresh has stopped", false, Some(&left_by)));
    let ends = async { tokio::join!(control.close(), listener.close()) };
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
    supervise: Supervisor,
    control: Control,
    about: About,
    traffic: Traffic,
    poll: PipePoll,
    listener: ShimListener,
    resolve: ResolveServer,
    version: &'static str,
    left_at: Option<Instant>,
    left_by: Actor,
}

/// Something besides the traffic.
enum Other {
    Signal(SignalRequest),
    Control(LoopRequest),
    Supervise(Wakeup),
    Shim(Box<NewShim>),
}

impl Switchboard {
    async fn drive(&mut self, mut signals: Signals) {
        while !(self.left_at.is_some() && self.supervise.fleet.is_at_rest()) {
            while let Some(event) = self.supervise.instances.next_event() {
                self.traffic.links.servers.follow(&mut self.supervise, event).await;
            }
            self.traffic.links.tidy(&mut self.supervise);
            let shims = self.traffic.shims.count();
            let others = async {
                tokio::select! {
                    asked = signals.next() => Other::Signal(asked),
                    ask = self.control.next() => Other::Control(ask),
                    wakeup = self.supervise.wait() => Other::Supervise(wakeup),
                    shim = self.listener.next(shims) => Other::Shim(Box::new(shim)),
                }
            };
            match self.poll.pass_until(&mut self.traffic, None, others).await {
                Polled::Interruption(interruption) => self.deal_with(interruption).await,
                Polled::Due => self.wake().await,
                Polled::Other(Other::Signal(asked)) => self.asked(asked).await,
                Polled::Other(Other::Control(ask)) => self.answer(ask).await,
                Polled::Other(Other::Supervise(wakeup)) => {
                    self.supervise.react(wakeup).await;
                    self.note_states().await;
                }
                Polled::Other(Other::Shim(shim)) => self.welcome(*shim).await,
            }
        }
    }

    async fn deal_with(&mut self, interruption: Interruption) {
        match interruption {
            Interruption::Effect(instance, effect) => self.perform(instance, effect).await,
            Interruption::Server(service, polled) => {
                let servers = &mut self.traffic.links.servers;
                servers.deal_with(&mut self.supervise, service, polled).await;
                self.traffic.take(service);
                self.settle().await;
                self.note_states().await;
            }
            Interruption::HandOverWanted => {
                self.supervise.log("a newer afresh takes over as soon as nothing runs");
                self.hand_over();
            }
            Interruption::HandOver => self.leave(Actor::Afresh("newer version")).await,
            Interruption::ShimGone => self.settle().await,
        }
    }

    /// Leaves when nothing is in flight, once: a second order to leave would hurry the servers.
    fn hand_over(&mut self) {
        self.traffic.hands_over = self.left_at.is_none();
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
        self.traffic.hands_over = false;
        self.traffic.instances.leave();
        self.listener.stop_listening();
        for session in std::mem::take(&mut self.traffic.sessions).into_values() {
            if session.protocol > PROTOCOL_BEFORE {
                session
                    .writer
                    .send(line_of(&HubFrame::Leaving { read: session.read, keeps_state: false }));
            }
        }
        self.supervise.instances.is_hurried = true;
        let by = self.left_by.clone();
        self.traffic.links.leave(&mut self.supervise, &by).await;
    }

    async fn wake(&mut self) {
        let ids: Vec<InstanceId> = self.traffic.shared.keys().copied().collect();
        for id in ids {
            self.input(id, Input::Wakeup).await;
        }
        let now = self.traffic.now();
        for effect in self.traffic.instances.wake(now) {
            match effect {
                InstanceEffect::Stop(id) => self.drop_instance(id).await,
                InstanceEffect::End => self.leave(Actor::Afresh("unused hub")).await,
            }
        }
    }

    /// Ends a server that nobody uses.
    async fn drop_instance(&mut self, id: InstanceId) {
        self.input(id, Input::Configured(Vec::new())).await;
        self.traffic.shared.remove(&id);
    }

    /// A shim attaches.
    async fn welcome(&mut self, shim: NewShim) {
        let NewShim { id, hello: frame, reader, writer } = shim;
        let hello = match &frame {
            Frame::Line(line) => match frame_of(line) {
                Some(ShimFrame::Hello(hello)) => Some(*hello),
                Some(ShimFrame::HandOver) => {
                    self.hand_over();
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
        self.traffic.sessions.insert(id, Session { instance, writer, protocol, read: 0 });
        self.traffic.shims.insert(id, reader);
        let joined = Input::Joined { client: client_of(id), access: Access::default() };
        self.input(instance, joined).await;
    }

    /// Gives a session its server, which is started where there is none.
    async fn attach(
        &mut self,
        id: SessionId,
        request: &SessionRequest,
    ) -> Result<(InstanceId, SharedServer), String> {
        let attached = self.traffic.instances.attach(id, request)?;
        if !attached.is_new {
            let shared = self.traffic.shared.get(&attached.instance);
            let server = shared.map(|shared| shared.server.clone());
            return Ok((attached.instance, server.ok_or("the server is ending")?));
        }
        let named = SessionRequest { name: attached.name.clone(), ..request.clone() };
        let server = match (self.resolve)(&named) {
            Ok(server) => server,
            Err(why) => {
                let now = self.traffic.now();
                self.traffic.instances.detach(now, id);
                self.traffic.instances.forget(now, attached.instance);
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
        let shared = Shared { hub, server: server.clone() };
        self.traffic.shared.insert(attached.instance, shared);
        self.input(attached.instance, Input::Configured(vec![backend])).await;
        Ok((attached.instance, server))
    }

    async fn note_states(&mut self) {
        for (link, state) in self.traffic.links.changed(&self.supervise) {
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
                    let link = self.traffic.links.links.get(&id);
                    if let Some(link) = link.filter(|_| runs(&status.state))
                        && let Some(shared) = self.traffic.shared.get(&instance_of(*link))
                        && let Some(state) = shared.hub.state_of(*link)
                    {
                        status.state = state;
                    }
                    let shared = self.traffic.instances.report(&status.name);
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
        self.traffic.push(instance, input);
        self.settle().await;
    }

    /// Does what follows from what was said, until nothing more does.
    async fn settle(&mut self) {
        while let Some((instance, effect)) = self.traffic.pass() {
            self.perform(instance, effect).await;
        }
    }

    async fn perform(&mut self, instance: InstanceId, effect: Effect) {
        let (supervise, links) = (&mut self.supervise, &mut self.traffic.links);
        match effect {
            Effect::Open { link, suffix, .. } => {
                let Some(shared) = self.traffic.shared.get(&instance) else { return };
                let SharedServer { backend, tools, .. } = shared.server.clone();
                let opened = links.open(supervise, link, (&backend, tools), &suffix).await;
                if let Err(why) = opened {
                    let name = &backend.name;
                    supervise.log(&format!("the server `{name}` cannot be used: {why}"));
                }
            }
            Effect::Refused { link, why } => links.refused(supervise, link, why).await,
            Effect::Close { link } => links.close(supervise, link).await,
            Effect::Log(text) => supervise.log(&text),
            // Those are on their way already, and none of the others is asked for.
            Effect::ToClient { .. }
            | Effect::ToLink { .. }
            | Effect::RestartCalled { .. }
            | Effect::Pin(_)
            | Effect::Span(_)
            | Effect::StoreList(_) => {}
        }
    }
}
