//! Owns the session that runs: its start, its output, and the steps of its stop. Driven by the loop of the run. Never
//! decides when a session begins or ends.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::agent::{AgentEvent, AgentSession, Instruction, Setup};
use afresh_core::audit::redact::KnownSecrets;
use afresh_core::definition::StopSignal;
use afresh_core::id::Generation;
use afresh_core::limits::AGENT_TERM_WAIT;
use afresh_core::run::{Attempt, Cause, Input, Now};
use afresh_core::service::Exit;
use afresh_core::stop_ladder::{StopLadder, StopStep, StopTimes};
use afresh_core::time::{Stamp, Time};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::AGENT;
use super::agent::Agent;
use super::agent_output::{AgentOutput, OutputBatch, output_channel};
use super::log::SessionLog;
use super::setup::AgentSetup;
use crate::clock;
use crate::os;
use crate::process::{Command, InstanceStdio, OutputEnd, Processes};

/// The sessions of a run, one at a time.
pub(super) struct Sessions {
    setup: AgentSetup,
    folder: PathBuf,
    logs: PathBuf,
    env: Vec<(OsString, OsString)>,
    secrets: Arc<KnownSecrets>,
    running: Option<RunningSession>,
    sender: mpsc::Sender<OutputBatch>,
    /// The output of sessions, also of one that has ended.
    pub(super) output: mpsc::Receiver<OutputBatch>,
}

struct RunningSession {
    attempt: Attempt,
    agent: Agent,
    stop: Option<StopLadder>,
}

impl RunningSession {
    fn generation(&self) -> Generation {
        Generation(u64::from(self.attempt.0))
    }

    const fn stop_times(&self) -> StopTimes {
        StopTimes { stdin: self.agent.end_wait(), term: AGENT_TERM_WAIT }
    }
}

impl Sessions {
    pub(super) fn new(
        setup: AgentSetup,
        folder: PathBuf,
        logs: PathBuf,
        env: Vec<(OsString, OsString)>,
        secrets: Arc<KnownSecrets>,
    ) -> Self {
        let (sender, output) = output_channel();
        Self { setup, folder, logs, env, secrets, running: None, sender, output }
    }

    /// Starts a session, or says why it cannot.
    pub(super) fn open(
        &mut self,
        attempt: Attempt,
        prompt: String,
        processes: &mut Processes,
    ) -> Result<(), String> {
        let settings = self.setup.kind.settings_variable().and_then(|name| {
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
            file: self.setup.servers_file.to_string_lossy().into_owned(),
            settings,
        };
        let machine = self.setup.kind.session(setup, uuid());
        let start = machine.start();
        if let Some(content) = &start.file {
            self.write_servers_file(content).map_err(|error| {
                format!("cannot write `{}`: {error}", self.setup.servers_file.display())
            })?;
        }
        let mut env = self.env.clone();
        env.extend(start.env.iter().map(|(name, value)| (name.into(), value.into())));
        let argv = start.argv.iter().map(OsString::from).collect();
        let command = Command { argv, cwd: Some(self.folder.clone()), env };
        let generation = Generation(u64::from(attempt.0));
        let stdio = processes
            .spawn(AGENT, generation, &command, OutputEnd::WhenClosed)
            .map_err(|failure| failure.message)?;
        self.begin(attempt, machine, stdio);
        Ok(())
    }

    fn begin(
        &mut self,
        attempt: Attempt,
        machine: Box<dyn AgentSession + Send>,
        stdio: InstanceStdio,
    ) {
        let log = SessionLog::create(&self.log_path(attempt), Arc::clone(&self.secrets));
        let agent = Agent::new(attempt, self.setup.kind, machine, stdio, self.sender.clone(), log);
        self.running = Some(RunningSession { attempt, agent, stop: None });
    }

    fn log_path(&self, attempt: Attempt) -> PathBuf {
        self.logs.join(format!("session-{}.jsonl", attempt.0))
    }

    fn write_servers_file(&self, content: &[u8]) -> std::io::Result<()> {
        self.remove_servers_file();
        os::create_private(&self.setup.servers_file)?.write_all(content)
    }

    /// Removes the file with the servers, where it exists: there are secrets in it.
    pub(super) fn remove_servers_file(&self) {
        std::fs::remove_file(&self.setup.servers_file).ok();
    }

    fn of(&mut self, attempt: Attempt) -> Option<&mut RunningSession> {
        self.running.as_mut().filter(|session| session.attempt == attempt)
    }

    fn inputs(&self, attempt: Attempt, heard: Vec<AgentEvent>) -> Vec<Input> {
        let input = |heard: AgentEvent| Input::Heard(attempt, heard.without_secrets(&self.secrets));
        heard.into_iter().map(input).collect()
    }

    /// The process runs.
    pub(super) fn spawned(&mut self, now: Stamp) -> Vec<Input> {
        let Some(session) = &mut self.running else { return Vec::new() };
        let (attempt, heard) = (session.attempt, session.agent.started(now));
        self.inputs(attempt, heard)
    }

    pub(super) fn spawn_failed(&mut self, why: String) -> Option<Input> {
        self.running.take().map(|session| Input::NotStarted(session.attempt, why))
    }

    /// The process is gone; its output may not be.
    pub(super) fn exited(&mut self, exit: Exit) {
        if let Some(session) = &mut self.running {
            session.agent.exited(exit);
        }
    }

    pub(super) fn take_output(
        &mut self,
        now: Stamp,
        attempt: Attempt,
        output: AgentOutput,
    ) -> Vec<Input> {
        let Some(session) = self.of(attempt) else { return Vec::new() };
        let heard = session.agent.take(now, output);
        self.inputs(attempt, heard)
    }

    /// Writes the log of what was taken together.
    pub(super) fn flush_log(&mut self) {
        if let Some(session) = &mut self.running {
            session.agent.write_log();
        }
    }

    pub(super) fn tell(&mut self, now: Stamp, attempt: Attempt, told: &Instruction) -> Vec<Input> {
        let Some(session) = self.of(attempt) else { return Vec::new() };
        let heard = session.agent.tell(now, told);
        self.inputs(attempt, heard)
    }

    /// When the agent has to be woken.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.running.as_ref().and_then(|session| session.agent.next_wakeup())
    }

    pub(super) fn wake(&mut self, now: Stamp) -> Vec<Input> {
        let is_due = |session: &&mut RunningSession| {
            session.agent.wake_at.is_some_and(|at| at <= Instant::now())
        };
        let Some(session) = self.running.as_mut().filter(is_due) else { return Vec::new() };
        let (attempt, heard) = (session.attempt, session.agent.wake(now));
        self.inputs(attempt, heard)
    }

    /// Takes the session whose process is gone and whose output is read.
    pub(super) fn take_ended(&mut self, now: Stamp) -> Vec<Input> {
        let Some(session) = self.running.take_if(|session| session.agent.is_over()) else {
            return Vec::new();
        };
        self.remove_servers_file();
        let attempt = session.attempt;
        let exit = session.agent.exit.map_or(Exit::Unknown, |(exit, _)| exit);
        let mut inputs = self.inputs(attempt, session.agent.ended(now, &exit));
        inputs.push(Input::SessionEnded(attempt, exit.to_string()));
        inputs
    }

    /// Begins the stop of a session, where it has not begun: the agent is told to end first.
    pub(super) fn begin_stop(&mut self, now: Now, attempt: Attempt) -> Vec<Input> {
        let inputs = self.tell(now.stamp, attempt, &Instruction::End);
        if let Some(session) = self.of(attempt) {
            let times = session.stop_times();
            let begin = || StopLadder::begin(now.time, StopStep::CloseStdin, times);
            session.stop.get_or_insert_with(begin);
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
        let Some(session) = &mut self.running else { return };
        let (generation, times) = (session.generation(), session.stop_times());
        let Some(stop) = &mut session.stop else { return };
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
