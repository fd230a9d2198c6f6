//! Runs commands that should end soon, all at once, and captures what they say.
//!
//! They go through the process layer like everything else: at a limit the whole tree is ended.

use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::KILL_PATIENCE;
use afresh_core::service::{Exit, SpawnFailure};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::os::PipeReader;
use crate::pipe::read_chunk;
use crate::process::{Command, Processes, Remains, Report, Stdio};

/// A command, and how much of our time and memory it may have. Its stdin is closed.
#[derive(Clone, Debug)]
pub(crate) struct Brief {
    pub(crate) command: Command,
    pub(crate) time_max: Duration,
    /// Of stdout and of stderr, each.
    pub(crate) output_bytes_max: usize,
}

/// What came of it. The tree is gone, or its survivors are named.
#[derive(Debug)]
pub(crate) struct Outcome {
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
/// processes meanwhile. Takes at most the longest of the times and three times
/// [`KILL_PATIENCE`].
pub(crate) async fn run_briefly(processes: &mut Processes, briefs: &[Brief]) -> Vec<Outcome> {
    let mut runs = Runs { start: Instant::now(), all: Vec::new(), captures: JoinSet::new() };
    for (index, brief) in briefs.iter().enumerate() {
        runs.begin(processes, index, brief);
    }
    while let Some(wakeup) = runs.next_wakeup() {
        tokio::select! {
            report = processes.next() => runs.hear(report),
            Some(Ok(captured)) = runs.captures.join_next() => runs.keep(processes, captured),
            () = sleep_until(wakeup) => runs.wake(processes),
        }
    }
    while let Some(captured) = runs.captures.join_next().await {
        if let Ok(captured) = captured {
            runs.keep(processes, captured);
        }
    }
    runs.all.into_iter().map(|run| run.outcome).collect()
}

struct Runs {
    start: Instant,
    all: Vec<Run>,
    captures: JoinSet<Captured>,
}

struct Run {
    service: ServiceId,
    /// When the next step of its end is due; none when it is gone.
    step_at: Option<Instant>,
    step: Step,
    /// What ended it, when that was us.
    cause: Option<BriefEnding>,
    gone: watch::Sender<bool>,
    outcome: Outcome,
}

/// What is done next when it is still there.
#[derive(Clone, Copy)]
enum Step {
    Kill,
    Abandon,
    GiveUp,
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

struct Captured {
    index: usize,
    stream: Stream,
    bytes: Vec<u8>,
    is_too_much: bool,
}

/// Every brief run is the first of its kind.
const GENERATION: Generation = Generation(1);

impl Runs {
    fn begin(&mut self, processes: &mut Processes, index: usize, brief: &Brief) {
        let service = ServiceId(u32::try_from(index).unwrap_or(u32::MAX));
        let (gone, watch) = watch::channel(false);
        let mut run = Run {
            service,
            step_at: Some(self.start + brief.time_max),
            step: Step::Kill,
            cause: None,
            gone,
            outcome: Outcome {
                ending: BriefEnding::TimedOut,
                stdout: Vec::new(),
                stderr: Vec::new(),
                remains: Remains::default(),
                took: Duration::ZERO,
            },
        };
        match processes.spawn(service, GENERATION, &brief.command) {
            Ok(Stdio { stdout, stderr, .. }) => {
                let max = brief.output_bytes_max;
                for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
                    let gone = watch.clone();
                    self.captures.spawn(async move {
                        let (bytes, is_too_much) = capture(pipe, max, gone).await;
                        Captured { index, stream, bytes, is_too_much }
                    });
                }
            }
            Err(failure) => run.end(self.start, BriefEnding::SpawnFailed(failure)),
        }
        self.all.push(run);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.all.iter().filter_map(|run| run.step_at).min()
    }

    fn hear(&mut self, report: Report) {
        let (service, ending, remains) = match report {
            Report::Spawned { .. } | Report::Notice(_) => return,
            Report::SpawnFailed { service, failure, .. } => {
                (service, BriefEnding::SpawnFailed(failure), Remains::default())
            }
            Report::Exited { service, exit, remains, .. } => {
                (service, BriefEnding::Exited(exit), remains)
            }
        };
        let start = self.start;
        let run = self.all.iter_mut().find(|run| run.service == service);
        if let Some(run) = run.filter(|run| run.step_at.is_some()) {
            run.outcome.remains = remains;
            run.end(start, ending);
        }
    }

    fn keep(&mut self, processes: &mut Processes, captured: Captured) {
        let run = &mut self.all[captured.index];
        match captured.stream {
            Stream::Stdout => run.outcome.stdout = captured.bytes,
            Stream::Stderr => run.outcome.stderr = captured.bytes,
        }
        if captured.is_too_much && run.step_at.is_some() && run.cause.is_none() {
            run.cause = Some(BriefEnding::TooMuchOutput);
            run.take_step(self.start, processes);
        }
    }

    /// Takes the steps that are due.
    fn wake(&mut self, processes: &mut Processes) {
        let now = Instant::now();
        let start = self.start;
        let due = |run: &&mut Run| run.step_at.is_some_and(|at| at <= now);
        for run in self.all.iter_mut().filter(due) {
            run.cause.get_or_insert(BriefEnding::TimedOut);
            run.take_step(start, processes);
        }
    }
}

impl Run {
    fn take_step(&mut self, start: Instant, processes: &mut Processes) {
        self.step = match self.step {
            Step::Kill => {
                processes.kill(self.service, GENERATION);
                Step::Abandon
            }
            Step::Abandon => {
                processes.abandon(self.service, GENERATION);
                Step::GiveUp
            }
            Step::GiveUp => return self.end(start, BriefEnding::TimedOut),
        };
        self.step_at = Some(Instant::now() + KILL_PATIENCE);
    }

    fn end(&mut self, start: Instant, ending: BriefEnding) {
        self.step_at = None;
        self.outcome.ending = self.cause.take().unwrap_or(ending);
        self.outcome.took = start.elapsed();
        self.gone.send_replace(true);
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
