//! Commands that are run beside services: their loop drives them, and any task may ask for them.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use afresh_core::id::Generation;
use afresh_core::limits::BRIEFS_ASKED_MAX;
use tokio::sync::{mpsc, oneshot};

use super::{BRIEFS, Brief, Captured, Outcome, Runs};
use crate::process::{Processes, Report};

/// Commands that are run beside services, in the same process layer.
pub(crate) struct Briefs {
    runs: Runs,
    asked: mpsc::Receiver<Question>,
    runner: BriefRunner,
    answers: BTreeMap<Generation, oneshot::Sender<Outcome>>,
}

/// Asks for commands to be run, from any task.
#[derive(Clone, Debug)]
pub(crate) struct BriefRunner(mpsc::Sender<Question>);

type Question = (Brief, oneshot::Sender<Outcome>);

/// What the loop has to hand back to [`Briefs::react`].
pub(crate) enum BriefStep {
    Asked(Box<Question>),
    /// Whoever asked has gone: it is ended.
    Forsaken(Generation),
    Captured(Captured),
    Due,
}

impl BriefRunner {
    /// Runs a command; none where the loop that would run it has ended.
    pub(crate) async fn run(&self, brief: Brief) -> Option<Outcome> {
        let (sender, outcome) = oneshot::channel();
        self.0.send((brief, sender)).await.ok()?;
        outcome.await.ok()
    }
}

impl Briefs {
    pub(crate) fn new() -> Self {
        let (sender, asked) = mpsc::channel(BRIEFS_ASKED_MAX);
        let runner = BriefRunner(sender);
        Self { runs: Runs::default(), asked, runner, answers: BTreeMap::new() }
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
        let forsaken = poll_fn(|context| {
            let gone = |(generation, answer): (&Generation, &mut oneshot::Sender<Outcome>)| {
                answer.poll_closed(context).is_ready().then_some(*generation)
            };
            match answers.iter_mut().find_map(gone) {
                Some(generation) => Poll::Ready(generation),
                None => Poll::Pending,
            }
        });
        tokio::select! {
            Some(question) = self.asked.recv() => BriefStep::Asked(Box::new(question)),
            generation = forsaken => BriefStep::Forsaken(generation),
            step = self.runs.next() => step,
        }
    }

    pub(crate) fn react(&mut self, processes: &mut Processes, step: BriefStep) {
        match step {
            BriefStep::Asked(question) => {
                let (brief, answer) = *question;
                let generation = self.runs.begin(processes, brief);
                self.answers.insert(generation, answer);
            }
            BriefStep::Forsaken(generation) => {
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
                // Whoever asked may have gone.
                answer.send(outcome).ok();
            }
        }
    }
}
