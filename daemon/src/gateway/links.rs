//! Owns the links to servers: programs under the restart machines, and tasks that speak HTTP.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::audit::Actor;
use afresh_core::gateway::backend::{Backend, StdioServer, Transport};
use afresh_core::gateway::inherited_env::{BASIC_PREFIXES, BASIC_VARIABLES, InheritedEnv};
use afresh_core::gateway::{Input, LinkId, NotTaken};
use afresh_core::id::ServiceId;
use afresh_core::limits::{CLIENT_GONE_WITHIN, QUEUE_WAIT, REMOTE_WORDS_MAX};
use afresh_core::mcp::envelope::{Id, Message, look};
use afresh_core::mcp::{AddedTools, Conversation, Settings, TellRestarts};
use afresh_core::policy::Policy;
use afresh_core::service::{Input as ServiceInput, Service, State};
use tokio::sync::mpsc;

use super::remote::Remote;
use crate::clock::seed;
use crate::control::About;
use crate::definition::{Definition, Variables};
use crate::mcp::{FastPath, RestartTriggers, Server, Servers};
use crate::os::is_variable;
use crate::process::Command;
use crate::store::trace::Trace;
use crate::supervise::Supervisor;
use crate::wires::Wires;

/// Where a link leads.
pub(crate) enum Way {
    Program(ServiceId),
    Remote(Remote),
    /// Nowhere, and why.
    Blocked(String),
}

/// What all servers have in common.
#[derive(Debug, Default)]
pub(crate) struct LinkSettings {
    /// What servers get besides their own variables.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Variables that no server gets.
    pub(crate) own_variables: Vec<String>,
    /// The folder that their paths count from.
    pub(crate) base: PathBuf,
    /// What a model is to be told of its server goes to each client, and not into one result.
    pub(crate) hands_on_notices: bool,
}

/// All links that are open.
pub(crate) struct Links {
    pub(crate) servers: Servers,
    /// What is said by servers that are reached over HTTP.
    pub(crate) words: mpsc::Receiver<Input>,
    words_sender: mpsc::Sender<Input>,
    pub(crate) ways: BTreeMap<LinkId, Way>,
    pub(crate) links: BTreeMap<ServiceId, LinkId>,
    /// How they do, as the hub knows it.
    states: BTreeMap<ServiceId, &'static str>,
    /// Services whose links are closed, until they are down.
    leaving: Vec<ServiceId>,
    environment: Vec<(OsString, OsString)>,
    /// Variables that no server gets.
    pub(crate) own_variables: Vec<String>,
    base: PathBuf,
    /// What a model is to be told of its server goes to each client, and not into one result.
    hands_on_notices: bool,
    about: About,
    trace: Option<Trace>,
    /// How many there were, so that no two wait alike.
    count: u64,
}

impl Links {
    pub(crate) fn start(
        settings: LinkSettings,
        about: About,
        trace: Option<Trace>,
    ) -> io::Result<Self> {
        let LinkSettings { environment, own_variables, base, hands_on_notices } = settings;
        let (words_sender, words) = mpsc::channel(REMOTE_WORDS_MAX);
        Ok(Self {
            servers: Servers::start()?,
            words,
            words_sender,
            ways: BTreeMap::new(),
            links: BTreeMap::new(),
            states: BTreeMap::new(),
            leaving: Vec::new(),
            environment,
            own_variables,
            base,
            hands_on_notices,
            about,
            trace,
            count: 0,
        })
    }

    /// Drops the servers and what they hold of the trace and of our stderr, whose ends are waited for.
    pub(crate) fn end(self) -> Option<Trace> {
        self.trace
    }

    /// Starts a conversation with a server.
    pub(crate) async fn open(
        &mut self,
        supervise: &mut Supervisor,
        link: LinkId,
        (backend, tools): (&Backend, AddedTools),
        suffix: &str,
    ) -> Result<(), String> {
        match &backend.transport {
            Transport::Stdio(stdio) => {
                let name = format!("{}{suffix}", backend.name);
                let started = self.start_program(supervise, link, name, (stdio, tools)).await;
                if let Err(why) = &started {
                    self.ways.insert(link, Way::Blocked(why.clone()));
                }
                started
            }
            Transport::Http(http) => {
                let (log, name) = (supervise.recorder.stderr.clone(), backend.name.clone());
                let say = move |text: &str| log.log(&format!("{name}: {text}"));
                let remote = Remote::start(link, http, self.words_sender.clone(), say);
                self.ways.insert(link, Way::Remote(remote));
                Ok(())
            }
        }
    }

    async fn start_program(
        &mut self,
        supervise: &mut Supervisor,
        link: LinkId,
        name: String,
        (stdio, tools): (&StdioServer, AddedTools),
    ) -> Result<(), String> {
        let cwd = stdio.cwd.as_ref().map_or_else(|| self.base.clone(), |cwd| self.base.join(cwd));
        let log = supervise.recorder.stderr.clone();
        let whose = name.clone();
        let triggers = RestartTriggers::new(
            &stdio.watch,
            &cwd,
            stdio.watch_debounce,
            Vec::new(),
            move |text: &str| log.log(&format!("{whose}: {text}")),
        )
        .map_err(|error| crate::error_chain::chain(&error))?;
        let argv = stdio.command.iter().map(OsString::from).collect();
        let variables = Variables {
            base: self.environment_of(stdio),
            file: stdio.env_file.as_ref().map(|file| self.base.join(file)),
            given: stdio.env.clone(),
        };
        // Clients want it, even where it ended by itself.
        let (restart_on_normal_exit, spare) = (true, stdio.spare);
        let policy = Policy { restart_on_normal_exit, spare, ..stdio.policy.clone() };
        let command = Command { argv, env: Vec::new(), cwd: Some(cwd) };
        let memory_bytes_max = stdio.health.memory_bytes_max;
        let definition = Definition::talker(&name, command, variables, policy, memory_bytes_max);
        self.count += 1;
        let service = supervise.add(definition, seed().wrapping_add(self.count));
        let settings = Settings {
            server: name.clone(),
            patience: QUEUE_WAIT,
            tools,
            tell_restarts: match self.hands_on_notices {
                true if stdio.tell_restarts => TellRestarts::HandedOn,
                _ => stdio.tell_restarts.into(),
            },
            wedge_timeout: stdio.health.wedge_timeout,
        };
        let trace = self.trace.as_ref().map(|trace| trace.of(&name));
        let lane = FastPath::new(Conversation::new(&settings), Wires::without_client(), trace);
        self.servers.insert(Server::new(lane, service, triggers, self.about.clone()));
        self.ways.insert(link, Way::Program(service));
        self.links.insert(service, link);
        supervise.input_to(service, ServiceInput::Start).await;
        Ok(())
    }

    /// The variables that a server gets besides those of its own.
    fn environment_of(&self, stdio: &StdioServer) -> Arc<[(OsString, OsString)]> {
        let is_own = |key: &OsStr| self.own_variables.iter().any(|name| is_variable(key, name));
        let is_basic = |key: &OsStr| {
            let begins = |prefix: &&str| key.to_str().is_some_and(|key| key.starts_with(prefix));
            BASIC_VARIABLES.iter().any(|name| is_variable(key, name))
                || BASIC_PREFIXES.iter().any(begins)
        };
        let is_given = |(key, _): &&(OsString, OsString)| match stdio.inherit_env {
            InheritedEnv::All => !is_own(key),
            InheritedEnv::Minimal => !is_own(key) && is_basic(key),
        };
        self.environment.iter().filter(is_given).cloned().collect()
    }

    /// A client has called a restart by this request, which is on its way over a link.
    pub(crate) fn note_caller(&mut self, link: LinkId, id: Id, by: Actor) {
        if let Some(Way::Program(service)) = self.ways.get(&link) {
            self.servers.note_caller(*service, id, by);
        }
    }

    /// Says a line over a link. Returns what the hub has to know where it cannot be said.
    pub(crate) fn tell(&mut self, link: LinkId, line: Vec<u8>) -> Option<Input> {
        let service = match self.ways.get_mut(&link)? {
            Way::Program(service) => *service,
            Way::Remote(remote) => {
                remote.tell(line);
                return None;
            }
            Way::Blocked(why) => {
                let why = NotTaken::Blocked(why.clone());
                return Some(Input::NotTaken { link, line, why });
            }
        };
        // Answers and cancellations are short, and there are no more of them than of requests.
        let is_short = || !matches!(look(&line), Some(Message::Request { .. }));
        if self.servers.has_room(service) || is_short() {
            self.servers.say(service, line);
            return None;
        }
        Some(Input::NotTaken { link, line, why: NotTaken::Full })
    }

    /// The server has not taken the session.
    pub(crate) async fn refused(&mut self, supervise: &mut Supervisor, link: LinkId, why: String) {
        let Some(Way::Program(service)) = self.ways.get(&link) else { return };
        let service = *service;
        let generation = supervise.fleet.service(service).map(|service| service.generation());
        if let (Some(generation), Some(mut driver)) =
            (generation, self.servers.driver(service, supervise))
        {
            driver.fail(generation, format!("it refused the session: {why}")).await;
        }
    }

    /// Ends the conversation; the server is down within a second.
    pub(crate) async fn close(&mut self, supervise: &mut Supervisor, link: LinkId) {
        // A remote one ends when it is dropped.
        let Some(Way::Program(service)) = self.ways.remove(&link) else { return };
        self.links.remove(&service);
        self.leaving.push(service);
        if let Some(mut driver) = self.servers.driver(service, supervise) {
            let by = Actor::Afresh("unused server");
            driver.leave_as(ServiceInput::Dismiss { within: CLIENT_GONE_WITHIN }, &by).await;
        }
    }

    /// Ends all of them; those that are leaving already are hurried.
    pub(crate) async fn leave(&mut self, supervise: &mut Supervisor, by: &Actor) {
        self.ways.retain(|_, way| matches!(way, Way::Program(_)));
        let all: Vec<ServiceId> = self.links.keys().chain(&self.leaving).copied().collect();
        for service in all {
            if let Some(mut driver) = self.servers.driver(service, supervise) {
                driver.leave(by).await;
            }
        }
    }

    /// The links whose servers do otherwise than the last time.
    pub(crate) fn changed(&mut self, supervise: &Supervisor) -> Vec<(LinkId, State)> {
        let mut changed = Vec::new();
        for (service, link) in &self.links {
            let Some(state) = supervise.snapshot(*service).map(|snapshot| snapshot.state) else {
                continue;
            };
            // That its process runs is not enough: it has not taken up the session yet.
            let state = if state == State::Running { State::Starting } else { state };
            // One that has never served is starting, which the hub knows.
            let is_first = matches!(state, State::Waiting | State::Starting | State::Stopped)
                && !supervise.fleet.service(*service).is_some_and(Service::has_run);
            if !is_first && self.states.insert(*service, state.word()) != Some(state.word()) {
                changed.push((*link, state));
            }
        }
        changed
    }

    /// Forgets those that are down.
    pub(crate) fn tidy(&mut self, supervise: &mut Supervisor) {
        let (servers, states) = (&mut self.servers, &mut self.states);
        self.leaving.retain(|service| {
            let is_gone = supervise.forget(*service);
            if is_gone {
                servers.remove(*service);
                states.remove(service);
            }
            !is_gone
        });
    }
}
