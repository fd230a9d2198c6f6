//! Owns the loop of `afresh gateway`: inputs to the hub, and its effects. Driven by clients, servers and timers. Never
//! decides about a message.

use std::collections::BTreeMap;

use afresh_core::control::{ErrorAnswer, ReloadAnswer, ServiceStatus, ShutdownAnswer};
use afresh_core::gateway::backend::Backend;
use afresh_core::gateway::settings::Gateway as Wanted;
use afresh_core::gateway::{Effect, Hub, Input};
use afresh_core::id::ServiceId;
use afresh_core::limits::{CLIENT_GONE_WITHIN, GATEWAY_LAST_WAIT, LINES_IN_A_ROW_MAX};
use afresh_core::service::{Input as ServiceInput, State};
use afresh_core::time::Time;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::ReloadGateway;
use super::front::{FrontEvent, GatewayFront};
use super::links::Links;
use super::remote::RemoteEvent;
use super::spans::Spans;
use crate::control::{About, Control, LoopRequest, Reloading, reloaded};
use crate::os::{SignalRequest, Signals};
use crate::store::trace::Trace;
use crate::supervise::Supervisor;

/// The hub, and all that it speaks to.
pub(super) struct Switchboard {
    pub(super) hub: Hub,
    pub(super) start: Instant,
    pub(super) supervise: Supervisor,
    pub(super) links: Links,
    pub(super) front: GatewayFront,
    pub(super) control: Control,
    pub(super) about: About,
    pub(super) spans: Spans,
    pub(super) backends: BTreeMap<String, Backend>,
    /// As it holds now, without the servers.
    pub(super) wanted: Wanted,
    pub(super) reload: ReloadGateway,
    /// When we were told to go.
    pub(super) left_at: Option<Instant>,
}

impl Switchboard {
    /// What has to be ended in order.
    pub(super) fn end(self) -> (Supervisor, Control, GatewayFront, Spans, Option<Trace>) {
        (self.supervise, self.control, self.front, self.spans, self.links.end())
    }

    /// Until when others are waited for, so that all of it ends in time.
    pub(super) fn left_by(&self) -> Instant {
        let left_at = self.left_at.unwrap_or_else(Instant::now);
        left_at + CLIENT_GONE_WITHIN - 4 * GATEWAY_LAST_WAIT
    }

    /// The servers are these now.
    pub(super) async fn configure(&mut self, servers: Vec<Backend>) {
        self.backends =
            servers.iter().map(|server| (server.name.clone(), server.clone())).collect();
        self.input(Input::Configured(servers)).await;
    }

    pub(super) async fn drive(&mut self, mut signals: Signals) {
        while !(self.left_at.is_some() && self.supervise.fleet.is_at_rest()) {
            while let Some(event) = self.supervise.instances.next_event() {
                self.links.servers.follow(&mut self.supervise, event).await;
            }
            self.links.tidy(&mut self.supervise);
            let wakeup = self.hub.next_wakeup().map(|at| self.start + at.since_start());
            let has_room = self.front.has_room() || self.left_at.is_some();
            tokio::select! {
                asked = signals.next() => self.asked(asked).await,
                ask = self.control.next() => self.answer(ask).await,
                wakeup = self.supervise.wait() => {
                    self.supervise.react(wakeup).await;
                    self.note_states().await;
                }
                word = self.front.next() => self.hear(word).await,
                (service, came) = self.links.servers.next(), if has_room => {
                    let is_message = came.is_message();
                    self.links.servers.deal_with(&mut self.supervise, service, came).await;
                    self.take(service).await;
                    if !is_message {
                        self.note_states().await;
                    }
                }
                Some(word) = self.links.words.recv(), if has_room => self.hear_remote(word).await,
                () = until(wakeup) => self.input(Input::Wakeup).await,
            }
        }
    }

    async fn asked(&mut self, asked: SignalRequest) {
        match asked {
            SignalRequest::Restart(reason) if self.left_at.is_none() => {
                self.supervise.input(&ServiceInput::Restart { reason: reason.to_owned() }).await;
            }
            SignalRequest::Stop("SIGHUP") if !self.front.is_single() => {
                drop(self.read_again("SIGHUP").await);
            }
            _ => self.leave().await,
        }
    }

    /// The client is gone, or we were told to go: all of it within a second.
    async fn leave(&mut self) {
        self.left_at.get_or_insert_with(Instant::now);
        self.supervise.instances.is_hurried = true;
        self.front.leave();
        for span in self.hub.end_spans(Time::after_start(self.start.elapsed())) {
            self.spans.take(span);
        }
        // They are sent while the servers go.
        self.spans.close();
        self.links.leave(&mut self.supervise).await;
    }

    async fn hear(&mut self, word: FrontEvent) {
        match word {
            FrontEvent::Joined { client, access } => {
                self.input(Input::Joined { client, access }).await
            }
            FrontEvent::Said { client, line } => self.input(Input::Client { client, line }).await,
            FrontEvent::SaidTooMuch { client, beginning, ending } => {
                self.input(Input::ClientTooLong { client, beginning, ending }).await;
            }
            FrontEvent::Left { client } => self.input(Input::Left { client }).await,
            // What waited for that is looked at again.
            FrontEvent::Read => {}
            FrontEvent::Over => self.leave().await,
        }
    }

    /// Tells the hub which servers do otherwise than before.
    async fn note_states(&mut self) {
        for (link, state) in self.links.changed(&self.supervise) {
            self.input(Input::Serves { link, state }).await;
        }
    }

    /// Takes what is said of a server over HTTP.
    async fn hear_remote(&mut self, word: RemoteEvent) {
        let (link, input) = match word {
            RemoteEvent::Line { link, line, about } => (link, Input::Link { link, line, about }),
            RemoteEvent::Serves { link, how } => {
                let state = match how {
                    Ok(()) => State::Ready,
                    Err(why) => State::Failed { why },
                };
                (link, Input::Serves { link, state })
            }
        };
        if self.links.has(link) {
            self.input(input).await;
        }
    }

    /// Takes what a server has said.
    async fn take(&mut self, service: ServiceId) {
        let lines = self.links.servers.take_outbox(service);
        let Some(link) = self.links.of(service) else { return };
        let is_flood = lines.len() == LINES_IN_A_ROW_MAX;
        for line in lines {
            self.input(Input::Link { link, line, about: None }).await;
        }
        if is_flood {
            // Connections get to write what they were given.
            yield_now().await;
        }
    }

    /// Hands an input to the hub, and does what it says.
    async fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let now = Time::after_start(self.start.elapsed());
            for effect in self.hub.handle(now, input) {
                inputs.extend(self.perform(effect).await);
            }
        }
    }

    /// Returns what the hub has to know at once.
    async fn perform(&mut self, effect: Effect) -> Option<Input> {
        let supervise = &mut self.supervise;
        match effect {
            Effect::ToClient { client, line, about } => {
                self.front.tell(client, line, about);
            }
            Effect::ToLink { link, line } => return self.links.tell(link, line),
            Effect::Open { link, backend, suffix } => {
                let server = self.backends.get(&backend)?;
                if let Err(why) = self.links.open(supervise, link, server, &suffix).await {
                    supervise.log(&format!("the server `{backend}` cannot be used: {why}"));
                    return Some(Input::LinkLost { link, why });
                }
            }
            Effect::Refused { link, why } => self.links.refused(supervise, link, why).await,
            Effect::Close { link } => self.links.close(supervise, link).await,
            Effect::Log(text) => supervise.log(&text),
            Effect::Span(span) => self.spans.take(span),
        }
        None
    }

    /// Answers a question of the control API.
    async fn answer(&mut self, ask: LoopRequest) {
        match ask {
            LoopRequest::Reload { reason, answer } => {
                let done = self.read_again(&reason).await;
                // The caller may have gone.
                answer.send(done).ok();
            }
            LoopRequest::Shutdown { answer, .. } if !self.front.is_single() => {
                let stopping = self.backends.keys().cloned().collect();
                self.leave().await;
                answer.send(Ok(ShutdownAnswer { stopping })).ok();
            }
            LoopRequest::Status { name, answer } => {
                let ours = self.supervise.fleet.ids().into_iter().filter_map(|id| {
                    let mut status = self.about.status(&self.supervise, id)?;
                    let runs = |state: &State| {
                        matches!(state, State::Ready | State::Running | State::Degraded { .. })
                    };
                    // That its process runs is not all: the hub knows whether it answers.
                    if let Some(link) = self.links.of(id).filter(|_| runs(&status.state))
                        && let Some(state) = self.hub.state_of(link)
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
                answer.send(ours.chain(remotes).filter(is_asked).collect()).ok();
            }
            ask => self.control.answer(&mut self.supervise, ask).await,
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    async fn read_again(&mut self, why: &str) -> Result<Reloading, ErrorAnswer> {
        if self.left_at.is_some() {
            return Err(ErrorAnswer::new("nothing is begun any more: afresh is stopping"));
        }
        // An address that is bound stays.
        let listen = self.wanted.front.http;
        let read = (self.reload)().and_then(|(wanted, notes)| {
            self.front.check(&wanted, listen).map(|()| (wanted, notes))
        });
        match read {
            Ok((mut wanted, mut notes)) => {
                self.supervise.log(&format!("{why}: reading the configuration again"));
                notes.extend(self.wanted.changes(&wanted));
                notes.iter().for_each(|note| self.supervise.log(note));
                let servers = std::mem::take(&mut wanted.servers);
                self.front.configure(&wanted, listen);
                // What needs a restart is as it was, and is said again the next time.
                wanted.front.http = listen;
                (wanted.expose, wanted.admin_tools) = (self.wanted.expose, self.wanted.admin_tools);
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
                let mut record = reloaded("afresh.gateway", added, changed, removed);
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

/// Waits until then; for ever where there is no moment. Cancel safe.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
