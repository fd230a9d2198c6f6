//! Owns the session that runs: its start, its output, and the steps of its stop. Driven by the loop of the run. Never
//! decides when a session begins or ends.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::agent::{self, AgentEvent, Instruction, Setup};
use afresh_core::audit::redact::KnownSecrets;
use afresh_core::definition::StopSignal;
use afresh_core::id::Generation;
use afresh_core::limits::{AGENT_TERM_WAIT, AGENT_WORDS_MAX};
use afresh_core::run::{Attempt, Cause, Input, Now};
use afresh_core::service::Exit;
use afresh_core::stop_ladder::{StopLadder, StopStep, StopTimes};
use afresh_core::time::{Stamp, Time};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AGENT;
use super::agent::Agent;
use super::agent_output::{AgentOutput, OutputBatch};
use super::parameters::AgentSetup;
use super::session_log::SessionLog;
use crate::clock;
use crate::os;
use crate::process::{Command, OutputEnd, Processes};
use crate::write_path::WritePath;

/// The sessions of a run, one at a time.
pub(super) struct Sessions {
    setup: AgentSetup,
    folder: PathBuf,
    logs: WritePath,
    env: Vec<(OsString, OsString)>,
    secrets: Arc<KnownSecrets>,
    pub(super) running: Option<Agent>,
    sender: mpsc::Sender<OutputBatch>,
    /// The output of sessions, also of one that has ended.
    pub(super) output: mpsc::Receiver<OutputBatch>,
}

impl Sessions {
    pub(super) fn new(
        setup: AgentSetup,
        folder: PathBuf,
        logs: WritePath,
        env: Vec<(OsString, OsString)>,
        secrets: Arc<KnownSecrets>,
    ) -> Self {
        let (sender, output) = mpsc::channel(AGENT_WORDS_MAX);
        Self { setup, folder, logs, env, secrets, running: None, sender, output }
    }

    /// Starts a session, or says why it cannot.
    pub(super) fn open(
        &mut self,
        attempt: Attempt,
        prompt: String,
        processes: &mut Processes,
    ) -> Result<(), String> {
        let settings = self.setup.kind.profile().settings_variable.and_then(|name| {
            let own = self.env.iter().find(|(variable, _)| variable == name)?;
            own.1.to_str().map(str::to_owned)
        });
        let setup = Setup {
            program: self.setup.program.clone(),
            folder: self.folder.to_string_lossy().into_owned(),
            model: self.setup.model.clone(),
            permission: self.setup.permission,
            id: uuid(),
            port: free_port(),
            prompt,
            servers: (self.setup.servers)(),
            file: self.setup.servers_file.path().to_string_lossy().into_owned(),
            settings,
        };
        let machine = self.setup.kind.session(setup, uuid());
        let start = machine.start();
        if let Some(content) = &start.file {
            self.remove_servers_file();
            let file = &self.setup.servers_file;
            let written = file.create_private().and_then(|mut file| file.write_all(content));
            written
                .map_err(|error| format!("cannot write `{}`: {error}", file.path().display()))?;
        }
        let mut env = self.env.clone();
        env.extend(start.env.iter().map(|(name, value)| (name.into(), value.into())));
        let argv = start.argv.iter().map(OsString::from).collect();
        let command = Command { argv, cwd: Some(self.folder.clone()), env };
        let stdio = processes
            .spawn(AGENT, generation(attempt), &command, OutputEnd::WhenClosed)
            .map_err(|failure| failure.message)?;
        let log = SessionLog::create(&self.log_path(attempt), Arc::clone(&self.secrets));
        let sender = self.sender.clone();
        self.running = Some(Agent::new(attempt, self.setup.kind, machine, stdio, sender, log));
        Ok(())
    }

    fn log_path(&self, attempt: Attempt) -> WritePath {
        self.logs.join(format!("session-{}.jsonl", attempt.0))
    }

    /// Removes the file with the servers, where it exists: there are secrets in it.
    pub(super) fn remove_servers_file(&self) {
        self.setup.servers_file.remove().ok();
    }

    fn of(&mut self, attempt: Attempt) -> Option<&mut Agent> {
        self.running.as_mut().filter(|agent| agent.attempt == attempt)
    }

    fn inputs(&self, attempt: Attempt, heard: Vec<AgentEvent>) -> Vec<Input> {
        let input = |heard: AgentEvent| Input::Heard(attempt, heard.without_secrets(&self.secrets));
        heard.into_iter().map(input).collect()
    }

    /// The process runs.
    pub(super) fn spawned(&mut self, now: Stamp) -> Vec<Input> {
        let Some(agent) = &mut self.running else { return Vec::new() };
        let (attempt, heard) = (agent.attempt, agent.give(now, agent::Input::Started));
        self.inputs(attempt, heard)
    }

    pub(super) fn spawn_failed(&mut self, why: String) -> Option<Input> {
        self.running.take().map(|agent| Input::NotStarted(agent.attempt, why))
    }

    pub(super) fn take(&mut self, now: Stamp, attempt: Attempt, output: AgentOutput) -> Vec<Input> {
        let heard = self.of(attempt).map(|agent| agent.take(now, output));
        self.inputs(attempt, heard.unwrap_or_default())
    }

    pub(super) fn tell(&mut self, now: Stamp, attempt: Attempt, told: &Instruction) -> Vec<Input> {
        let heard = self.of(attempt).map(|agent| agent.tell(now, told));
        self.inputs(attempt, heard.unwrap_or_default())
    }

    pub(super) fn wake(&mut self, now: Stamp) -> Vec<Input> {
        let is_due = |agent: &&mut Agent| agent.wake_at.is_some_and(|at| at <= Instant::now());
        let Some(agent) = self.running.as_mut().filter(is_due) else { return Vec::new() };
        let (attempt, heard) = (agent.attempt, agent.wake(now));
        self.inputs(attempt, heard)
    }

    /// Takes the session whose process is gone and whose output is read.
    pub(super) fn take_ended(&mut self, now: Stamp) -> Vec<Input> {
        let Some(mut agent) = self.running.take_if(|agent| agent.is_over()) else {
            return Vec::new();
        };
        self.remove_servers_file();
        let exit = agent.exit.take().map_or(Exit::Unknown, |(exit, _)| exit);
        let mut inputs = self.inputs(agent.attempt, agent.give(now, agent::Input::Ended(&exit)));
        inputs.push(Input::SessionEnded(agent.attempt, exit.to_string()));
        inputs
    }

    /// Begins the stop of a session, where it has not begun: the agent is told to end first.
    pub(super) fn begin_stop(&mut self, now: Now, attempt: Attempt) -> Vec<Input> {
        let inputs = self.tell(now.stamp, attempt, &Instruction::End);
        if let Some(agent) = self.of(attempt) {
            let times = stop_times(agent);
            let begin = || StopLadder::begin(now.time, StopStep::CloseStdin, times);
            agent.stop.get_or_insert_with(begin);
        }
        inputs
    }

    /// When the next step of a stop is due.
    pub(super) fn next_stop_step(&self) -> Option<Time> {
        self.running.as_ref()?.stop.as_ref().map(StopLadder::next_at)
    }

    /// Takes the next step of a stop, where that is due.
    pub(super) fn take_stop_step(&mut self, now: Time, processes: &mut Processes) {
        if self.next_stop_step().is_some_and(|at| at <= now) {
            self.hurry_stop(now, processes);
        }
    }

    /// Takes the next step of a stop, due or not.
    pub(super) fn hurry_stop(&mut self, now: Time, processes: &mut Processes) {
        let Some(agent) = &mut self.running else { return };
        let (generation, times) = (generation(agent.attempt), stop_times(agent));
        let Some(stop) = &mut agent.stop else { return };
        match stop.escalate(now, times) {
            StopStep::CloseStdin => {}
            StopStep::Terminate => processes.terminate(AGENT, generation, StopSignal::Terminate),
            StopStep::Kill => processes.kill(AGENT, generation),
            StopStep::Abandon => processes.abandon(AGENT, generation),
        }
    }

    /// Adds to the log of a session why it ended.
    pub(super) fn log_end(&self, attempt: Attempt, cause: Cause, detail: &str) {
        let mut log = SessionLog::append(&self.log_path(attempt), Arc::clone(&self.secrets));
        log.ended(clock::now(), cause, detail);
    }
}

fn generation(attempt: Attempt) -> Generation {
    Generation(u64::from(attempt.0))
}

fn stop_times(agent: &Agent) -> StopTimes {
    StopTimes { stdin: agent.speaks.end_wait(), term: AGENT_TERM_WAIT }
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    listener.and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

/// A random UUID, version 4.
pub(super) fn uuid() -> String {
    let mut bytes = os::random_bytes::<16>().unwrap_or_default();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
