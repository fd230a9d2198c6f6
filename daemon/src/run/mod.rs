//! `afresh run`: drives the machine of a run. One loop owns the agent's session, gates, git and the record;
//! all processes go through the process layer, so that nothing of an agent outlives us.

mod agent;
mod agent_output;
mod control;
mod gate;
mod git;
mod leftovers;
mod log;
mod session;
mod setup;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use afresh_core::audit::redact::KnownSecrets;
use afresh_core::id::ServiceId;
use afresh_core::run::{Asked, Effect, Finish, GateEnd, Input, Now, Record, Say};
use afresh_core::time::{Stamp, Time};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::agent_output::Word;
use self::control::Board;
use self::git::{Answered, Git};
pub use self::leftovers::Mark;
use self::session::Running;
pub use self::setup::{Asker, Asks, JobHearer, Recorder, Run, RunError, Servers, Shower, asks};
use crate::control::Ask;
use crate::os::{self, Jobs, Signals};
use crate::process::{Processes, Report, ignore_in_supervisor};
use crate::run_briefly::{BriefStep, Briefs};

/// The only service that a run has: its agent, an instance for each session.
const AGENT: ServiceId = ServiceId(0);

/// Carries a plan out, until it is over or somebody wants it to stop.
pub fn run(run: Run) -> Result<Finish, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Runtime)?;
    let result = runtime.block_on(async {
        let signals = Signals::listen().map_err(RunError::Signals)?;
        ignore_in_supervisor().map_err(RunError::Signals)?;
        let jobs = run.job.is_some().then(Jobs::listen).transpose().map_err(RunError::Signals)?;
        let mut driver = Driver::new(run, jobs, Processes::start()?);
        // One that was killed may have left it.
        driver.remove_servers_file();
        let result = driver.drive(signals).await;
        driver.remove_servers_file();
        driver.close().await;
        result
    });
    runtime.shutdown_background();
    result
}

struct Driver {
    run: Run,
    board: Board,
    jobs: Option<Jobs>,
    processes: Processes,
    briefs: Briefs,
    git: Git,
    session: Option<Running>,
    words: (mpsc::Sender<Word>, mpsc::Receiver<Word>),
    answers: JoinSet<Answered>,
    /// What git had to say before: once is enough.
    noted: BTreeSet<String>,
    gate: JoinSet<GateEnd>,
    begun: Instant,
    finish: Option<Finish>,
    failed: Option<RunError>,
    /// Records that are written down together, before anything that follows from them is done…
    records: Vec<(Stamp, Record)>,
    /// …and what is shown then.
    says: Vec<Say>,
    /// What is neither shown nor written down.
    secrets: Arc<KnownSecrets>,
}

enum Happened {
    Report(Report),
    Brief(BriefStep),
    Word(Word),
    Git(Answered),
    Gate(GateEnd),
    Asked(Asked),
    Ask(Ask),
    Notice(String),
    Signal(os::SignalRequest),
    Job(os::Job),
    Wakeup,
}

impl Driver {
    fn new(mut run: Run, jobs: Option<Jobs>, processes: Processes) -> Self {
        let variables =
            run.env.iter().filter_map(|(name, value)| name.to_str().zip(value.to_str()));
        let secrets = Arc::new(KnownSecrets::of(variables));
        let briefs = Briefs::new();
        let git = Git {
            runner: briefs.runner(),
            folder: run.folder.clone(),
            env: git::env_of_git(&run.env),
            excludes: run.excludes.clone(),
            steps_up: git::steps_up(&run.folder, run.workspace.root()),
            wanted: run.branch.clone(),
            left_out: Vec::new(),
            notes: Vec::new(),
        };
        Self {
            board: Board::new(&mut run),
            run,
            jobs,
            processes,
            briefs,
            git,
            session: None,
            words: agent_output::words(),
            answers: JoinSet::new(),
            noted: BTreeSet::new(),
            gate: JoinSet::new(),
            begun: Instant::now(),
            finish: None,
            failed: None,
            records: Vec::new(),
            says: Vec::new(),
            secrets,
        }
    }

    async fn drive(&mut self, mut signals: Signals) -> Result<Finish, RunError> {
        self.go_to_branch().await?;
        self.give(Input::Begin);
        let mut interrupts = 0;
        loop {
            self.settle();
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if let Some(finish) = self.finish.clone() {
                self.farewell().await;
                return Ok(finish);
            }
            match self.wait(&mut signals).await {
                Happened::Report(report) if Briefs::are_meant(&report) => self.briefs.hear(report),
                Happened::Report(report) => self.hear(report),
                Happened::Brief(step) => self.briefs.react(&mut self.processes, step),
                Happened::Word(word) => self.take(word),
                Happened::Git(answered) => self.git_answered(answered),
                Happened::Gate(mut end) => {
                    end.output = self.secrets.redact(&end.output).into_owned();
                    self.give(Input::GateEnded(end));
                }
                Happened::Ask(ask) => self.answer(ask),
                Happened::Notice(text) => self.says.push(Say::Note(text, true)),
                Happened::Job(job) => {
                    if let Some(hear) = &mut self.run.job {
                        hear(job);
                    }
                }
                Happened::Signal(os::SignalRequest::Restart(_)) => {
                    self.give(Input::Asked(Asked::Restart))
                }
                // Where a screen is drawn, Ctrl+C is a key.
                Happened::Asked(Asked::Stop) | Happened::Signal(_) => {
                    interrupts += 1;
                    self.give(Input::Asked(Asked::Stop));
                    if interrupts > 1 {
                        self.end_faster();
                    }
                }
                Happened::Asked(asked) => self.give(Input::Asked(asked)),
                Happened::Wakeup => self.wake(),
            }
        }
    }

    /// Everything that still runs ends with the process layer.
    async fn close(self) {
        let Self { processes, gate, answers, board, .. } = self;
        drop((gate, answers));
        board.control.close().await;
        processes.shutdown().await;
    }

    async fn go_to_branch(&mut self) -> Result<(), RunError> {
        let Some(branch) = self.run.branch.clone() else { return Ok(()) };
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

    async fn wait(&mut self, signals: &mut Signals) -> Happened {
        let (wake_at, jobs) = (self.next_wakeup(), &mut self.jobs);
        let job = async {
            match jobs {
                Some(jobs) => jobs.next().await,
                None => std::future::pending().await,
            }
        };
        let wakeup = async {
            match wake_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            report = self.processes.next() => Happened::Report(report),
            step = self.briefs.next() => Happened::Brief(step),
            Some(word) = self.words.1.recv() => Happened::Word(word),
            Some(answered) = self.answers.join_next() => Happened::Git(whole(answered)),
            Some(end) = self.gate.join_next() => Happened::Gate(whole(end)),
            Some(asked) = self.run.asked.0.recv() => Happened::Asked(asked),
            ask = self.board.control.next() => Happened::Ask(ask),
            Some(text) = self.board.notices.recv() => Happened::Notice(text),
            asked = signals.next() => Happened::Signal(asked),
            job = job => Happened::Job(job),
            () = wakeup => Happened::Wakeup,
        }
    }

    fn now(&self) -> Now {
        Now { time: Time::after_start(self.begun.elapsed()), stamp: stamp() }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let machine = self.run.machine.next_wakeup(self.now());
        let machine = machine.map(|time| self.begun + time.since_start());
        let session = self.session.as_ref().and_then(|session| session.agent.next_wakeup());
        let ending = self.session.as_ref().and_then(|session| session.ending).map(|(_, at)| at);
        [machine, session, ending].into_iter().flatten().min()
    }

    fn wake(&mut self) {
        let now = Instant::now();
        self.step_of_end(now);
        if let Some(session) = &mut self.session
            && session.agent.wake_at.is_some_and(|at| at <= now)
        {
            let heard = session.agent.wake(stamp());
            self.heard(heard);
        }
        self.end_if_over();
        self.give(Input::Wakeup);
    }

    /// Gives the machine what happened, and does what it says.
    fn give(&mut self, input: Input) {
        for effect in self.run.machine.handle(self.now(), input) {
            self.perform(effect);
        }
    }

    fn git_answered(&mut self, answered: Answered) {
        for note in answered.notes {
            if self.noted.insert(note.clone()) {
                self.says.push(Say::Note(note, true));
            }
        }
        if let Some(stash) = answered.stash {
            self.give(Input::Stash(stash));
        }
        self.give(Input::Git(answered.answer));
    }

    fn perform(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Record(_) | Effect::Say(_)) {
            self.settle();
        }
        match effect {
            Effect::Open { attempt, prompt } => self.open(attempt, prompt),
            Effect::Tell(attempt, told) => self.tell(attempt, &told),
            Effect::End(attempt) => self.end(attempt),
            Effect::Git(ask) => drop(self.answers.spawn(self.git.clone().ask(ask))),
            Effect::RunGate { gate, command, time_max } => self.run_gate(gate, command, time_max),
            // Whoever asked is gone, and so is what was asked for.
            Effect::EndGate => self.gate = JoinSet::new(),
            Effect::Record(record) => {
                if let Record::AttemptEnded { .. } = &record {
                    self.note_end(&record);
                }
                self.board.note(&record);
                // What a session has used in all is only told better by what follows at once.
                if let Record::Spent { .. } = &record {
                    self.records.retain(|(_, earlier)| !matches!(earlier, Record::Spent { .. }));
                }
                self.records.push((stamp(), record));
            }
            Effect::Say(say) => {
                // Nobody reads two of these at once.
                if matches!(say, Say::Context(..) | Say::Spent(_) | Say::Moved) {
                    let kind = std::mem::discriminant(&say);
                    self.says.retain(|earlier| std::mem::discriminant(earlier) != kind);
                }
                self.says.push(say);
            }
            Effect::Finish(finish) => self.finish = Some(finish),
        }
    }

    /// Writes down what has happened, and shows it: whoever has seen it can rely on it.
    fn settle(&mut self) {
        if !self.records.is_empty() {
            if let Err(why) = (self.run.record)(&self.records) {
                self.failed.get_or_insert(RunError::Record(why));
            }
            self.records.clear();
        }
        if !self.says.is_empty() {
            let view = self.run.machine.view();
            for say in &self.says {
                self.board.hear(view.attempt, say);
            }
            (self.run.show)(&self.says, &view);
            self.says.clear();
        }
    }
}

/// A task that panicked ends all of it: nobody would wait for its answer in vain.
fn whole<T>(joined: Result<T, JoinError>) -> T {
    joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// The time on the wall.
fn stamp() -> Stamp {
    Stamp::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
