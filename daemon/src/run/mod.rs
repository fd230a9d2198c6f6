//! Owns the loop of `afresh run`: wait → core → perform. Every happening becomes inputs of the machine; its effects
//! are performed in order, and what they lead to joins the queue of inputs. All processes go through the process
//! layer, so that nothing of an agent outlives afresh. Never decides.
//!
//! A record is on disk before an effect that follows from it is performed, and before it is shown.

mod agent;
mod agent_output;
mod control;
mod gate;
mod git;
mod journal;
mod leftovers;
mod parameters;
mod session;
mod session_log;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use afresh_core::audit::actor;
use afresh_core::audit::redact::{KnownSecrets, Redaction};
use afresh_core::control::Change;
use afresh_core::id::ServiceId;
use afresh_core::run::{Effect, Finish, Input, Machine, Now, Record, RunEvent, UserRequest};
use afresh_core::time::Time;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::agent::Agent;
use self::agent_output::{AgentOutput, OutputBatch};
use self::control::ControlBoard;
use self::gate::GateRunner;
use self::git::{Git, GitReply};
use self::journal::Journal;
pub use self::leftovers::ProcessMark;
pub use self::parameters::{
    AgentSetup, Run, RunError, RunUpdate, Servers, UserRequestSender, run_events, user_requests,
};
use self::session::Sessions;
use crate::clock::{self, sleep_until};
use crate::control::LoopRequest;
use crate::os::{self, Jobs, Signals};
use crate::process::{Processes, Report};
use crate::run_briefly::Briefs;
use crate::startup::{SetupError, block_on, signals};

/// The only service of a run: its agent, an instance for each session.
const AGENT: ServiceId = ServiceId(0);

/// Carries a plan out, until it is over or a user stops it.
pub fn run(run: Run) -> Result<Finish, RunError> {
    block_on(async {
        let signals = signals()?;
        let jobs = run.hears_jobs.then(Jobs::listen).transpose().map_err(SetupError::Signals)?;
        let mut driver = RunDriver::new(run, jobs, Processes::start()?);
        // A run that was killed may have left it.
        driver.sessions.remove_servers_file();
        let result = driver.drive(signals).await;
        driver.sessions.remove_servers_file();
        driver.close().await;
        result
    })
}

struct RunDriver {
    machine: Machine,
    /// Inputs that the machine has not taken yet.
    inputs: VecDeque<Input>,
    journal: Journal,
    events: SyncSender<RunUpdate>,
    board: ControlBoard,
    jobs: Option<Jobs>,
    processes: Processes,
    briefs: Briefs,
    git: Git,
    git_replies: JoinSet<GitReply>,
    /// Notes of git that were shown: once is enough.
    git_notes: BTreeSet<String>,
    sessions: Sessions,
    gates: GateRunner,
    requests: mpsc::Receiver<UserRequest>,
    /// Requests to stop so far; from the second on, steps of the end do not wait.
    stops: u32,
    begun: Instant,
    finish: Option<Finish>,
    failed: Option<RunError>,
    /// Values that are neither shown nor recorded.
    secrets: Arc<KnownSecrets>,
}

impl RunDriver {
    fn new(run: Run, jobs: Option<Jobs>, processes: Processes) -> Self {
        let variables =
            run.env.iter().filter_map(|(name, value)| name.to_str().zip(value.to_str()));
        let secrets = Arc::new(KnownSecrets::of(variables));
        let briefs = Briefs::new();
        let git = Git::new(&run, briefs.runner());
        let Run { machine, agent, folder, logs, env, number, workspace, .. } = run;
        let board = ControlBoard::new(number, &workspace, &agent.program, run.control, run.version);
        let (runner, running) = (briefs.runner(), JoinSet::new());
        let gates = GateRunner { runner, folder: folder.clone(), env: env.clone(), running };
        let sessions = Sessions::new(agent, folder, logs.clone(), env, Arc::clone(&secrets));
        let (runs, mark, records, says) = (run.runs, run.mark, Vec::new(), Vec::new());
        Self {
            machine,
            inputs: VecDeque::from([Input::Begin]),
            journal: Journal { runs, number, workspace, logs, mark, records, says },
            events: run.events,
            board,
            jobs,
            processes,
            briefs,
            git,
            git_replies: JoinSet::new(),
            git_notes: BTreeSet::new(),
            sessions,
            gates,
            requests: run.requests,
            stops: 0,
            begun: Instant::now(),
            finish: None,
            failed: None,
            secrets,
        }
    }

    async fn drive(&mut self, mut signals: Signals) -> Result<Finish, RunError> {
        self.go_to_branch().await?;
        loop {
            self.advance();
            self.settle();
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if let Some(finish) = self.finish.clone() {
                self.farewell().await;
                return Ok(finish);
            }
            self.wait(&mut signals).await;
        }
    }

    /// Ends all that still runs with the process layer.
    async fn close(self) {
        let Self { processes, gates, git_replies, board, .. } = self;
        drop((gates, git_replies));
        board.control.close().await;
        processes.shutdown().await;
    }

    async fn go_to_branch(&mut self) -> Result<(), RunError> {
        let Some(branch) = self.git.wanted.clone() else { return Ok(()) };
        let git = self.git.clone();
        let switched = async { git.switch(&branch).await };
        let mut switched = std::pin::pin!(switched);
        loop {
            tokio::select! {
                done = &mut switched => {
                    return done.map_err(|why| RunError::Branch { branch: branch.clone(), why });
                }
                report = self.processes.next() => if Briefs::are_meant(&report) {
                    self.briefs.hear(report);
                },
                step = self.briefs.next() => self.briefs.react(&mut self.processes, step),
            }
        }
    }

    /// Waits for what happens next, and turns it into inputs of the machine.
    async fn wait(&mut self, signals: &mut Signals) {
        let (wake_at, jobs) = (self.next_wakeup(), &mut self.jobs);
        let job = async {
            match jobs {
                Some(jobs) => jobs.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            report = self.processes.next() => self.take_report(report),
            step = self.briefs.next() => self.briefs.react(&mut self.processes, step),
            Some(batch) = self.sessions.output.recv() => self.take_output(batch),
            Some(reply) = self.git_replies.join_next() => self.take_git(joined(reply)),
            Some(end) = self.gates.running.join_next() => {
                let mut end = joined(end);
                // It goes into the prompt of the session that is to mend what failed.
                end.output = self.secrets.redact(&end.output, Redaction::Prompts).into_owned();
                self.inputs.push_back(Input::GateEnded(end));
            }
            Some(request) = self.requests.recv() => self.take_request(request),
            ask = self.board.control.next() => self.answer(ask),
            Some(text) = self.board.notices.recv() => {
                self.journal.say(RunEvent::Note(text, true));
            }
            asked = signals.next() => self.take_request(match asked {
                os::SignalRequest::Restart(_) => UserRequest::Restart,
                _ => UserRequest::Stop,
            }),
            job = job => drop(self.events.send(RunUpdate::Job(job))),
            () = sleep_until(wake_at) => {
                let now = self.now();
                self.sessions.take_stop_step(now.time, &mut self.processes);
                self.inputs.extend(self.sessions.wake(now.stamp));
                self.end_session();
                self.inputs.push_back(Input::Wakeup);
            }
        }
    }

    fn now(&self) -> Now {
        Now { time: Time::after_start(self.begun.elapsed()), stamp: clock::now() }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let machine = self.machine.next_wakeup(self.now());
        let stop = self.sessions.next_stop_step();
        let times = [machine, stop].into_iter().flatten();
        let times = times.map(|time| self.begun + time.since_start());
        times.chain(self.sessions.running.as_ref().and_then(Agent::next_wakeup)).min()
    }

    /// Takes a request of the user. Where a screen is drawn, Ctrl+C is a key.
    fn take_request(&mut self, request: UserRequest) {
        let is_stop = request == UserRequest::Stop;
        self.inputs.push_back(Input::User(request));
        if is_stop {
            self.stops += 1;
            self.advance();
            if self.stops > 1 {
                self.sessions.hurry_stop(self.now().time, &mut self.processes);
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        match report {
            report if Briefs::are_meant(&report) => self.briefs.hear(report),
            Report::Spawned { pid, .. } => {
                let now = clock::now();
                self.board.process = Some((pid, now));
                self.inputs.extend(self.sessions.spawned(now));
            }
            Report::SpawnFailed { failure, .. } => {
                self.inputs.extend(self.sessions.spawn_failed(failure.message));
            }
            Report::Exited { exit, .. } => {
                if let Some(agent) = &mut self.sessions.running {
                    agent.exited(exit);
                }
                self.end_session();
            }
            Report::Notice(text) => self.journal.say(RunEvent::Note(text, true)),
        }
    }

    /// The agent hears the answer to one output before the next one is read.
    fn take_output(&mut self, batch: OutputBatch) {
        let OutputBatch { attempt, outputs } = batch;
        if outputs.iter().any(|output| matches!(output, AgentOutput::Piece)) {
            self.inputs.push_back(Input::Streaming(attempt));
        }
        let now = clock::now();
        for output in outputs {
            self.inputs.extend(self.sessions.take(now, attempt, output));
            self.advance();
        }
        if let Some(agent) = &mut self.sessions.running {
            agent.log.flush();
        }
        self.end_session();
    }

    fn take_git(&mut self, reply: GitReply) {
        for note in reply.notes {
            if self.git_notes.insert(note.clone()) {
                self.journal.say(RunEvent::Note(note, true));
            }
        }
        self.inputs.extend(reply.stash.map(Input::Stash));
        self.inputs.push_back(Input::Git(reply.answer));
    }

    /// Ends the session whose process is gone and whose output is read.
    fn end_session(&mut self) {
        let ended = self.sessions.take_ended(clock::now());
        self.inputs.extend(ended);
    }

    /// Gives the machine its inputs and performs its effects, until there are no more.
    fn advance(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            for effect in self.machine.handle(self.now(), input) {
                // Nothing follows from what could not be recorded.
                if self.failed.is_none() {
                    self.perform(effect);
                }
            }
        }
    }

    /// Performs an effect; what comes of it at once joins the inputs.
    fn perform(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Record(_) | Effect::Event(_)) {
            self.settle();
            if self.failed.is_some() {
                return;
            }
        }
        match effect {
            Effect::Open { attempt, prompt } => {
                if let Err(why) = self.sessions.open(attempt, prompt, &mut self.processes) {
                    self.inputs.push_back(Input::NotStarted(attempt, why));
                }
            }
            Effect::Tell(attempt, told) => {
                self.inputs.extend(self.sessions.tell(clock::now(), attempt, &told));
            }
            Effect::End(attempt) => {
                let now = self.now();
                self.inputs.extend(self.sessions.begin_stop(now, attempt));
            }
            Effect::Git(ask) => drop(self.git_replies.spawn(self.git.clone().ask(ask))),
            Effect::RunGate { gate, command, time_max } => self.gates.run(gate, command, time_max),
            Effect::EndGate => self.gates.running = JoinSet::new(),
            Effect::Record(record) => {
                if let Record::AttemptEnded { attempt, cause, detail, .. } = &record {
                    self.sessions.log_end(*attempt, *cause, detail);
                }
                self.board.note(&record);
                self.journal.record(clock::now(), record);
            }
            Effect::Event(say) => self.journal.say(say),
            Effect::Finish(finish) => self.finish = Some(finish),
        }
    }

    /// Records what has happened, and then shows it.
    fn settle(&mut self) {
        if let Err(why) = self.journal.write() {
            self.failed.get_or_insert(RunError::Record(why));
        }
        let says = std::mem::take(&mut self.journal.says);
        if !says.is_empty() {
            let view = self.machine.view();
            says.iter().for_each(|say| self.board.log(view.attempt, say));
            // A display that is gone is no reason to stop.
            self.events.send(RunUpdate::Progress { says, view: Box::new(view) }).ok();
        }
    }

    /// Answers a question over the control API. A change is recorded before it is answered.
    fn answer(&mut self, ask: LoopRequest) {
        let LoopRequest::Change { name, what, reason, by, answer } = ask else {
            return self.board.answer(ask, &self.machine, self.finish.as_ref());
        };
        let begun = self.board.begin_change(&name, what, &self.machine);
        let request = match what {
            // A run that runs need not be started.
            Change::Start => None,
            Change::Stop => Some(UserRequest::Stop),
            Change::Restart => Some(UserRequest::Restart),
        };
        if let Some(request) = request.filter(|_| begun.is_ok()) {
            let by = actor::shown(&by.to_json()).unwrap_or_default();
            let text = format!("a {} was requested by {by}: {reason}", what.name());
            self.journal.say(RunEvent::Note(text, false));
            self.inputs.push_back(Input::User(request));
            self.advance();
            self.settle();
        }
        answer.send(begun).ok();
    }

    /// Answers clients of the control API that wait for the end.
    async fn farewell(&mut self) {
        self.board.changes.send_modify(|changes| *changes += 1);
        while let Some(ask) = self.board.next_before_end().await {
            self.answer(ask);
        }
    }
}

/// A task that panicked ends the run: its answer would never come.
fn joined<T>(joined: Result<T, JoinError>) -> T {
    joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
