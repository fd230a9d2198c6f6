//! Runs commands that should end soon, and captures what they say.
//!
//! They go through the process layer like everything else: at a limit the whole tree is ended.

use std::collections::BTreeMap;
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
    let mut running = Briefs::default();
    let ids: Vec<ServiceId> = briefs.iter().map(|brief| running.begin(processes, brief)).collect();
    let mut outcomes = BTreeMap::new();
    loop {
        outcomes.extend(std::iter::from_fn(|| running.finished()));
        if outcomes.len() == ids.len() {
            return ids.iter().filter_map(|id| outcomes.remove(id)).collect();
        }
        tokio::select! {
            report = processes.next() => running.hear(report),
            word = running.next() => running.react(processes, word),
        }
    }
}

/// Commands that run briefly beside the services in the same processes. Each has an id out of a range
/// that no service has.
#[derive(Default)]
pub(crate) struct Briefs {
    runs: BTreeMap<ServiceId, Run>,
    captures: JoinSet<Captured>,
    /// Of the last one: whatever comes late of one before is known by it.
    generation: u64,
}

/// What [`Briefs::next`] brought.
pub(crate) enum Word {
    Captured(Captured),
    /// A step of an end is due.
    Due,
}

struct Run {
    generation: Generation,
    since: Instant,
    /// When the next step of its end is due; none when it is gone.
    step_at: Option<Instant>,
    step: Step,
    /// What ended it, when that was us.
    cause: Option<BriefEnding>,
    gone: watch::Sender<bool>,
    /// Streams that are still read.
    streams: usize,
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

pub(crate) struct Captured {
    id: ServiceId,
    generation: Generation,
    stream: Stream,
    bytes: Vec<u8>,
    is_too_much: bool,
}

/// Whether a report is about one that runs briefly.
pub(crate) fn is_brief(report: &Report) -> bool {
    match report {
        Report::Notice(_) => false,
        Report::Spawned { service, .. }
        | Report::SpawnFailed { service, .. }
        | Report::Exited { service, .. } => service.0 > u32::MAX / 2,
    }
}

impl Briefs {
    /// Starts one.
    pub(crate) fn begin(&mut self, processes: &mut Processes, brief: &Brief) -> ServiceId {
        self.generation += 1;
        let generation = Generation(self.generation);
        let mut ids = (0..u32::MAX / 2).map(|n| ServiceId(u32::MAX - n));
        let id = ids.find(|id| !self.runs.contains_key(id)).expect("fewer than 2^31 at once");
        let (gone, watch) = watch::channel(false);
        let mut run = Run {
            generation,
            since: Instant::now(),
            step_at: Some(Instant::now() + brief.time_max),
            step: Step::Kill,
            cause: None,
            gone,
            streams: 0,
            outcome: Outcome {
                ending: BriefEnding::TimedOut,
                stdout: Vec::new(),
                stderr: Vec::new(),
                remains: Remains::default(),
                took: Duration::ZERO,
            },
        };
        match processes.spawn(id, generation, &brief.command) {
            Ok(Stdio { stdout, stderr, .. }) => {
                let max = brief.output_bytes_max;
                for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
                    let gone = watch.clone();
                    run.streams += 1;
                    self.captures.spawn(async move {
                        let (bytes, is_too_much) = capture(pipe, max, gone).await;
                        Captured { id, generation, stream, bytes, is_too_much }
                    });
                }
            }
            Err(failure) => run.end(BriefEnding::SpawnFailed(failure)),
        }
        self.runs.insert(id, run);
        id
    }

    /// Ends one before its time.
    pub(crate) fn end(&mut self, processes: &mut Processes, id: ServiceId) {
        let run = self.runs.get_mut(&id);
        if let Some(run) = run.filter(|run| run.step_at.is_some() && run.cause.is_none()) {
            run.cause = Some(BriefEnding::TimedOut);
            run.take_step(processes, id);
        }
    }

    /// Waits for something to react to. Cancel safe.
    pub(crate) async fn next(&mut self) -> Word {
        let wakeup = self.runs.values().filter_map(|run| run.step_at).min();
        let due = async {
            match wakeup {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(Ok(captured)) = self.captures.join_next() => Word::Captured(captured),
            () = due => Word::Due,
        }
    }

    /// Acts on what `next` brought.
    pub(crate) fn react(&mut self, processes: &mut Processes, word: Word) {
        match word {
            Word::Captured(captured) => self.keep(processes, captured),
            Word::Due => {
                let now = Instant::now();
                let is_due = |run: &Run| run.step_at.is_some_and(|at| at <= now);
                for (id, run) in self.runs.iter_mut().filter(|(_, run)| is_due(run)) {
                    run.cause.get_or_insert(BriefEnding::TimedOut);
                    run.take_step(processes, *id);
                }
            }
        }
    }

    /// Takes a report that `is_brief`.
    pub(crate) fn hear(&mut self, report: Report) {
        let (id, generation, ending, remains) = match report {
            Report::Spawned { .. } | Report::Notice(_) => return,
            Report::SpawnFailed { service, generation, failure } => {
                (service, generation, BriefEnding::SpawnFailed(failure), Remains::default())
            }
            Report::Exited { service, generation, exit, remains } => {
                (service, generation, BriefEnding::Exited(exit), remains)
            }
        };
        let run = self.runs.get_mut(&id).filter(|run| run.generation == generation);
        if let Some(run) = run.filter(|run| run.step_at.is_some()) {
            run.outcome.remains = remains;
            run.end(ending);
        }
    }

    /// One that is gone, with all that it said.
    pub(crate) fn finished(&mut self) -> Option<(ServiceId, Outcome)> {
        let is_finished = |run: &Run| run.step_at.is_none() && run.streams == 0;
        let id = *self.runs.iter().find(|(_, run)| is_finished(run))?.0;
        Some((id, self.runs.remove(&id)?.outcome))
    }

    fn keep(&mut self, processes: &mut Processes, captured: Captured) {
        let Captured { id, generation, stream, bytes, is_too_much } = captured;
        let run = self.runs.get_mut(&id).filter(|run| run.generation == generation);
        let Some(run) = run else { return };
        run.streams -= 1;
        match stream {
            Stream::Stdout => run.outcome.stdout = bytes,
            Stream::Stderr => run.outcome.stderr = bytes,
        }
        if is_too_much && run.step_at.is_some() && run.cause.is_none() {
            run.cause = Some(BriefEnding::TooMuchOutput);
            run.take_step(processes, id);
        }
    }
}

impl Run {
    fn take_step(&mut self, processes: &mut Processes, id: ServiceId) {
        self.step = match self.step {
            Step::Kill => {
                processes.kill(id, self.generation);
                Step::Abandon
            }
            Step::Abandon => {
                processes.abandon(id, self.generation);
                Step::GiveUp
            }
            Step::GiveUp => return self.end(BriefEnding::TimedOut),
        };
        self.step_at = Some(Instant::now() + KILL_PATIENCE);
    }

    fn end(&mut self, ending: BriefEnding) {
        self.step_at = None;
        self.outcome.ending = self.cause.take().unwrap_or(ending);
        self.outcome.took = self.since.elapsed();
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
