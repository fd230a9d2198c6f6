//! Owns commands that should end soon: runs them all at once, bounded in time and output, and captures what
//! they print. Driven by the supervisor's loop through [`Briefs`], asked by any task with a [`BriefRunner`].
//!
//! They go through the process layer like everything else: at a limit the whole tree is ended by the stop
//! ladder, SIGTERM first, so that a command such as git can remove its lock.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::definition::StopSignal;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{BRIEF_TERM_WAIT, BRIEFS_ASKED_MAX};
use afresh_core::service::{Exit, SpawnFailure};
use afresh_core::stop_ladder::{StopLadder, StopStep, StopTimes};
use afresh_core::time::Time;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::sleep_until;
use crate::os::{PipeReader, PipeWriter};
use crate::pipe::read_chunk;
use crate::process::{Command, InstanceStdio, OutputEnd, Processes, Remains, Report};

/// A command with limits of time and output.
#[derive(Clone, Debug)]
pub(crate) struct Brief {
    pub(crate) command: Command,
    /// What it finds on its stdin, which is closed after it.
    pub(crate) stdin: Vec<u8>,
    pub(crate) time_max: Duration,
    /// Of stdout and of stderr, each.
    pub(crate) output_bytes_max: usize,
}

/// The end of a command. The tree is gone, or its survivors are named.
#[derive(Debug)]
pub(crate) struct BriefOutcome {
    pub(crate) ending: BriefEnding,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) remains: Remains,
    /// From the start until the whole tree was gone.
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) enum BriefEnding {
    /// It ended by itself.
    Exited(Exit),
    /// It never ran.
    SpawnFailed(SpawnFailure),
    /// Its time was over.
    TimedOut,
    /// It said more than it may.
    TooMuchOutput,
}

/// Runs them all; the outcomes are in the order of the commands. Nothing else may run in these
/// processes meanwhile. Takes at most the longest of the times, [`BRIEF_TERM_WAIT`] and three times the
/// wait after a kill.
pub(crate) async fn run_briefly(
    processes: &mut Processes,
    briefs: Vec<Brief>,
) -> Vec<BriefOutcome> {
    let mut runs = Briefs::new();
    let mut begin = |brief| {
        let (answer, outcome) = oneshot::channel();
        runs.begin(processes, brief, answer);
        outcome
    };
    let outcomes: Vec<_> = briefs.into_iter().map(&mut begin).collect();
    runs.answer();
    while !runs.all.is_empty() {
        tokio::select! {
            report = processes.next() => runs.hear(report),
            step = runs.next() => runs.react(processes, step),
        }
    }
    outcomes.into_iter().filter_map(|mut outcome| outcome.try_recv().ok()).collect()
}

/// All of them are instances of one service that no supervisor has: one guardian at most stays idle.
const BRIEFS: ServiceId = ServiceId(u32::MAX);

/// Commands that are run beside services, in the same process layer.
pub(crate) struct Briefs {
    last: Generation,
    all: BTreeMap<Generation, BriefRun>,
    captures: JoinSet<Captured>,
    writers: JoinSet<()>,
    requests: mpsc::Receiver<BriefRequest>,
    runner: BriefRunner,
}

/// Asks for commands to be run, from any task.
#[derive(Clone, Debug)]
pub(crate) struct BriefRunner(mpsc::Sender<BriefRequest>);

type BriefRequest = (Brief, oneshot::Sender<BriefOutcome>);

/// What the loop has to hand back to [`Briefs::react`].
pub(crate) enum BriefStep {
    Requested(Box<BriefRequest>),
    /// The task that asked has gone: the command is ended.
    Abandoned(Generation),
    Captured(Captured),
    Due,
}

struct BriefRun {
    generation: Generation,
    start: Instant,
    /// When the next step of its end is due; none when it is gone.
    step_at: Option<Instant>,
    /// Its stop, where one is under way.
    ladder: Option<StopLadder>,
    /// Why it was stopped, where it was.
    cause: Option<BriefEnding>,
    gone: watch::Sender<bool>,
    /// Streams that are still read.
    captures: u8,
    outcome: BriefOutcome,
    /// For the task that asked; none where it has gone.
    answer: Option<oneshot::Sender<BriefOutcome>>,
}

/// The times of every stop here; stdin is closed from the start.
const STOP_TIMES: StopTimes = StopTimes { stdin: Duration::ZERO, term: BRIEF_TERM_WAIT };

pub(crate) struct Captured {
    generation: Generation,
    stream: LogStream,
    bytes: Vec<u8>,
    is_too_much: bool,
}

impl BriefRunner {
    /// Runs a command; none where the loop that would run it has ended.
    pub(crate) async fn run(&self, brief: Brief) -> Option<BriefOutcome> {
        let (sender, outcome) = oneshot::channel();
        self.0.send((brief, sender)).await.ok()?;
        outcome.await.ok()
    }
}

impl Briefs {
    pub(crate) fn new() -> Self {
        let (sender, requests) = mpsc::channel(BRIEFS_ASKED_MAX);
        Self {
            last: Generation::default(),
            all: BTreeMap::new(),
            captures: JoinSet::new(),
            writers: JoinSet::new(),
            requests,
            runner: BriefRunner(sender),
        }
    }

    pub(crate) fn runner(&self) -> BriefRunner {
        self.runner.clone()
    }

    /// Whether a report is about one of these commands, and belongs to [`hear`](Self::hear).
    pub(crate) fn are_meant(report: &Report) -> bool {
        match report {
            Report::Spawned { service, .. }
            | Report::SpawnFailed { service, .. }
            | Report::Exited { service, .. } => *service == BRIEFS,
            Report::Notice(_) => false,
        }
    }

    fn begin(
        &mut self,
        processes: &mut Processes,
        brief: Brief,
        answer: oneshot::Sender<BriefOutcome>,
    ) {
        self.last = self.last.next();
        let generation = self.last;
        let (gone, watch) = watch::channel(false);
        let start = Instant::now();
        let mut run = BriefRun {
            generation,
            start,
            step_at: Some(start + brief.time_max),
            ladder: None,
            cause: None,
            gone,
            captures: 0,
            outcome: BriefOutcome {
                ending: BriefEnding::TimedOut,
                stdout: Vec::new(),
                stderr: Vec::new(),
                remains: Remains::default(),
                took: Duration::ZERO,
            },
            answer: Some(answer),
        };
        match processes.spawn(BRIEFS, generation, &brief.command, OutputEnd::WhenClosed) {
            Ok(InstanceStdio { stdin, stdout, stderr }) => {
                let max = brief.output_bytes_max;
                for (stream, pipe) in [(LogStream::Stdout, stdout), (LogStream::Stderr, stderr)] {
                    let gone = watch.clone();
                    run.captures += 1;
                    self.captures.spawn(async move {
                        let (bytes, is_too_much) = capture(pipe, max, gone).await;
                        Captured { generation, stream, bytes, is_too_much }
                    });
                }
                if !brief.stdin.is_empty() {
                    self.writers.spawn(feed(stdin, brief.stdin, watch));
                }
            }
            Err(failure) => run.end(BriefEnding::SpawnFailed(failure)),
        }
        self.all.insert(generation, run);
    }

    /// What is to be done next. Cancel safe.
    pub(crate) async fn next(&mut self) -> BriefStep {
        let wakeup = self.all.values().filter_map(|run| run.step_at).min();
        let mut due = pin!(sleep_until(wakeup));
        let runs = &mut self.all;
        let mut abandoned = pin!(poll_fn(|context| {
            let gone = |run: &mut BriefRun| {
                let is_closed = run.answer.as_mut()?.poll_closed(context).is_ready();
                is_closed.then_some(run.generation)
            };
            runs.values_mut().find_map(gone).map_or(Poll::Pending, Poll::Ready)
        }));
        loop {
            tokio::select! {
                Some(request) = self.requests.recv() => {
                    return BriefStep::Requested(Box::new(request));
                }
                generation = &mut abandoned => return BriefStep::Abandoned(generation),
                Some(Ok(captured)) = self.captures.join_next() => {
                    return BriefStep::Captured(captured);
                }
                Some(_) = self.writers.join_next() => {}
                () = &mut due => return BriefStep::Due,
            }
        }
    }

    pub(crate) fn react(&mut self, processes: &mut Processes, step: BriefStep) {
        match step {
            BriefStep::Requested(request) => self.begin(processes, request.0, request.1),
            BriefStep::Abandoned(generation) => {
                if let Some(run) = self.all.get_mut(&generation) {
                    run.answer = None;
                    run.stop(processes, BriefEnding::TimedOut);
                }
            }
            BriefStep::Captured(captured) => self.keep(processes, captured),
            BriefStep::Due => self.wake(processes),
        }
        self.answer();
    }

    pub(crate) fn hear(&mut self, report: Report) {
        let (generation, ending, remains) = match report {
            Report::Spawned { .. } | Report::Notice(_) => return,
            Report::SpawnFailed { generation, failure, .. } => {
                (generation, BriefEnding::SpawnFailed(failure), Remains::default())
            }
            Report::Exited { generation, exit, remains, .. } => {
                (generation, BriefEnding::Exited(exit), remains)
            }
        };
        if let Some(run) = self.all.get_mut(&generation).filter(|run| run.step_at.is_some()) {
            run.outcome.remains = remains;
            run.end(ending);
        }
        self.answer();
    }

    fn keep(&mut self, processes: &mut Processes, captured: Captured) {
        let Some(run) = self.all.get_mut(&captured.generation) else { return };
        run.captures = run.captures.saturating_sub(1);
        match captured.stream {
            LogStream::Stdout => run.outcome.stdout = captured.bytes,
            LogStream::Stderr | LogStream::Afresh => run.outcome.stderr = captured.bytes,
        }
        if captured.is_too_much {
            run.stop(processes, BriefEnding::TooMuchOutput);
        }
    }

    /// Takes the steps that are due.
    fn wake(&mut self, processes: &mut Processes) {
        let now = Instant::now();
        let due = |run: &&mut BriefRun| run.step_at.is_some_and(|at| at <= now);
        for run in self.all.values_mut().filter(due) {
            run.cause.get_or_insert(BriefEnding::TimedOut);
            run.take_step(processes);
        }
    }

    /// Answers for those that are gone, with all that they said.
    fn answer(&mut self) {
        let done = |_: &Generation, run: &mut BriefRun| run.step_at.is_none() && run.captures == 0;
        for (_, run) in self.all.extract_if(.., done) {
            // The task that asked may have gone.
            run.answer.and_then(|answer| answer.send(run.outcome).ok());
        }
    }
}

impl BriefRun {
    /// Begins to end it, unless it is gone or being ended.
    fn stop(&mut self, processes: &mut Processes, cause: BriefEnding) {
        if self.step_at.is_some() && self.cause.is_none() {
            self.cause = Some(cause);
            self.take_step(processes);
        }
    }

    fn take_step(&mut self, processes: &mut Processes) {
        let now = Time::after_start(self.start.elapsed());
        let ladder = match self.ladder.take() {
            None => StopLadder::begin(now, StopStep::Terminate, STOP_TIMES),
            Some(ladder) if ladder.last_step() == StopStep::Abandon => {
                return self.end(BriefEnding::TimedOut);
            }
            Some(mut ladder) => {
                ladder.escalate(now, STOP_TIMES);
                ladder
            }
        };
        match ladder.last_step() {
            StopStep::CloseStdin => {}
            StopStep::Terminate => {
                processes.terminate(BRIEFS, self.generation, StopSignal::Terminate);
            }
            StopStep::Kill => processes.kill(BRIEFS, self.generation),
            StopStep::Abandon => processes.abandon(BRIEFS, self.generation),
        }
        self.step_at = Some(self.start + ladder.next_at().since_start());
        self.ladder = Some(ladder);
    }

    fn end(&mut self, ending: BriefEnding) {
        self.step_at = None;
        self.outcome.ending = self.cause.take().unwrap_or(ending);
        self.outcome.took = self.start.elapsed();
        self.gone.send_replace(true);
    }
}

/// Writes all of it, unless the process is gone before: it need not read.
async fn feed(mut stdin: PipeWriter, bytes: Vec<u8>, mut gone: watch::Receiver<bool>) {
    tokio::select! {
        // Whether it has read is its own affair.
        written = stdin.write_all(&bytes) => drop(written),
        _ = gone.wait_for(|gone| *gone) => {}
    }
}

/// Reads until the end of the pipe, the limit, or the end of the process with an empty pipe: one
/// that could not be ended may hold the other end for ever.
async fn capture(
    pipe: PipeReader,
    bytes_max: usize,
    mut gone: watch::Receiver<bool>,
) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    loop {
        let ended = *gone.borrow_and_update();
        match read_chunk(&pipe) {
            Ok(chunk) if chunk.is_empty() => return (bytes, false),
            Ok(chunk) => {
                bytes.extend_from_slice(&chunk);
                if bytes.len() > bytes_max {
                    bytes.truncate(bytes_max);
                    return (bytes, true);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !ended => {
                tokio::select! {
                    ready = pipe.readable() => if ready.is_err() { return (bytes, false) },
                    changed = gone.changed() => if changed.is_err() { return (bytes, false) },
                }
            }
            Err(_) => return (bytes, false),
        }
    }
}
