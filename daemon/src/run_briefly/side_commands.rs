//! Owns the queue of commands that run beside services, in the same process layer. Driven by the supervisor's
//! loop; any task may ask for one.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use afresh_core::id::Generation;
use afresh_core::limits::BRIEFS_ASKED_MAX;
use tokio::sync::{mpsc, oneshot};

use super::{BRIEFS, Brief, BriefOutcome, BriefRuns, Captured};
use crate::process::{Processes, Report};

/// Commands that are run beside services, in the same process layer.
pub(crate) struct Briefs {
    runs: BriefRuns,
    requests: mpsc::Receiver<BriefRequest>,
    runner: BriefRunner,
    answers: BTreeMap<Generation, oneshot::Sender<BriefOutcome>>,
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

impl BriefRunner {
    /// BriefRuns a command; none where the loop that would run it has ended.
    pub(crate) async fn run(&self, brief: Brief) -> Option<BriefOutcome> {
        let (sender, outcome) = oneshot::channel();
        self.0.send((brief, sender)).await.ok()?;
        outcome.await.ok()
    }
}

impl Briefs {
    pub(crate) fn new() -> Self {
        let (sender, requests) = mpsc::channel(BRIEFS_ASKED_MAX);
        let runner = BriefRunner(sender);
        Self { runs: BriefRuns::default(), requests, runner, answers: BTreeMap::new() }
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

    /// What is to be done next. Cancel safe.
    pub(crate) async fn next(&mut self) -> BriefStep {
        let answers = &mut self.answers;
        let abandoned = poll_fn(|context| {
            let gone = |(generation, answer): (&Generation, &mut oneshot::Sender<BriefOutcome>)| {
                answer.poll_closed(context).is_ready().then_some(*generation)
            };
            match answers.iter_mut().find_map(gone) {
                Some(generation) => Poll::Ready(generation),
                None => Poll::Pending,
            }
        });
        tokio::select! {
            Some(request) = self.requests.recv() => BriefStep::Requested(Box::new(request)),
            generation = abandoned => BriefStep::Abandoned(generation),
            step = self.runs.next() => step,
        }
    }

    pub(crate) fn react(&mut self, processes: &mut Processes, step: BriefStep) {
        match step {
            BriefStep::Requested(request) => {
                let (brief, answer) = *request;
                let generation = self.runs.begin(processes, brief);
                self.answers.insert(generation, answer);
            }
            BriefStep::Abandoned(generation) => {
                self.answers.remove(&generation);
                self.runs.end(processes, generation);
            }
            step => self.runs.react(processes, step),
        }
        self.answer();
    }

    pub(crate) fn hear(&mut self, report: Report) {
        self.runs.hear(report);
        self.answer();
    }

    fn answer(&mut self) {
        for (generation, outcome) in self.runs.take_done() {
            if let Some(answer) = self.answers.remove(&generation) {
                // The task that asked may have gone.
                answer.send(outcome).ok();
            }
        }
    }
}
