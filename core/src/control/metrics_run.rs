//! Owns the counters of a run of a plan. Driven by its records. Never reads the run.

use std::collections::BTreeMap;

use super::metrics::{MetricsText, ServiceMetrics};
use crate::agent::Spent;
use crate::run::{Cause, Kind, Record};

/// What is counted of a run, since this process began with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMetrics {
    /// Sessions that have ended, by why.
    sessions: BTreeMap<String, u64>,
    /// Restarts, by why the session before had ended.
    restarts: BTreeMap<String, u64>,
    remediations: u64,
    gates_passed: u64,
    gates_failed: u64,
    last: Option<Cause>,
    /// What was used in all, by this process and those before it.
    pub spent: Spent,
    /// How full the context is, from 0 to 1.
    pub context: Option<f64>,
}

impl RunMetrics {
    /// Counts what is written down.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::AttemptEnded { cause, .. } => {
                *self.sessions.entry(cause.to_string()).or_default() += 1;
                self.last = Some(*cause);
            }
            Record::AttemptBegan { kind: Kind::Restart(_), .. } => {
                let cause =
                    self.last.map_or_else(|| "unknown".to_owned(), |cause| cause.to_string());
                *self.restarts.entry(cause).or_default() += 1;
            }
            Record::AttemptBegan { kind: Kind::Remediation(_), .. } => self.remediations += 1,
            Record::GateEnded { passed: true, .. } => self.gates_passed += 1,
            Record::GateEnded { passed: false, .. } => self.gates_failed += 1,
            _ => {}
        }
    }
}

/// A family of samples: its name, kind and help, and each value with its label.
type Family = (&'static str, &'static str, &'static str, fn(&RunMetrics) -> Vec<Sample<'_>>);

type Sample<'a> = (Option<(&'static str, &'a str)>, f64);

const FAMILIES: [Family; 7] = [
    (
        "afresh_run_sessions_total",
        "counter",
        "Sessions of an agent that have ended, by why.",
        |run| by_cause(&run.sessions),
    ),
    (
        "afresh_run_restarts_total",
        "counter",
        "Restarts, by why the session before had ended.",
        |run| by_cause(&run.restarts),
    ),
    (
        "afresh_run_remediations_total",
        "counter",
        "Sessions to mend what made a gate fail.",
        |run| vec![(None, run.remediations as f64)],
    ),
    ("afresh_run_gates_total", "counter", "Gates that were run.", |run| {
        let label = |word| Some(("result", word));
        vec![(label("passed"), run.gates_passed as f64), (label("failed"), run.gates_failed as f64)]
    }),
    (
        "afresh_run_tokens_total",
        "counter",
        "Tokens; those from a cache are also counted as input.",
        |run| {
            let label = |word| Some(("kind", word));
            vec![
                (label("input"), run.spent.input as f64),
                (label("cached"), run.spent.cached as f64),
                (label("output"), run.spent.output as f64),
            ]
        },
    ),
    (
        "afresh_run_cost_dollars_total",
        "counter",
        "What was spent, as far as the agent says.",
        |run| run.spent.dollars.into_iter().map(|dollars| (None, dollars)).collect(),
    ),
    ("afresh_run_context_ratio", "gauge", "How full the context of the agent is.", |run| {
        run.context.into_iter().map(|context| (None, context)).collect()
    }),
];

fn by_cause(counts: &BTreeMap<String, u64>) -> Vec<Sample<'_>> {
    counts.iter().map(|(cause, count)| (Some(("cause", cause.as_str())), *count as f64)).collect()
}

/// Writes what was counted, where one of these is a run.
pub(super) fn write(services: &[ServiceMetrics], page: &mut MetricsText) {
    let runs = || services.iter().filter_map(|one| Some((one.name.as_str(), one.run.as_ref()?)));
    if runs().next().is_none() {
        return;
    }
    for (name, kind, help, samples) in FAMILIES {
        page.family(name, kind, help);
        for (service, run) in runs() {
            for (label, value) in samples(run) {
                let labels: Vec<(&str, &str)> =
                    [("service", service)].into_iter().chain(label).collect();
                page.sample(name, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Attempt;

    #[test]
    fn restarts_are_counted_by_what_they_followed() {
        // S9
        let mut run = RunMetrics::default();
        let began =
            |kind| Record::AttemptBegan { attempt: Attempt(1), phase: "A".to_owned(), kind };
        let ended = |cause| Record::AttemptEnded {
            attempt: Attempt(1),
            cause,
            handoff: None,
            detail: String::new(),
        };
        for record in [
            began(Kind::First),
            ended(Cause::ContextLimitRestart),
            began(Kind::Restart(1)),
            ended(Cause::Done),
            began(Kind::Remediation(1)),
            ended(Cause::Stopped),
        ] {
            run.note(&record);
        }
        assert_eq!(run.restarts, BTreeMap::from([("CONTEXT_LIMIT_RESTART".to_owned(), 1)]));
        assert_eq!((run.sessions.len(), run.sessions["DONE"], run.remediations), (3, 1, 1));
    }
}
