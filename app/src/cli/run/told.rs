//! What a run tells, as lines.

use std::path::Path;

use afresh_core::agent::AgentKind;
use afresh_core::config::harmless;
use afresh_core::run::plan::Plan;
use afresh_core::run::{Kind, PhaseEnd, Say, View};

use crate::output::{self, Lines, Paint};

/// Prints what happens, a line each.
pub(super) struct Teller {
    paint: Paint,
}

impl Teller {
    pub(super) fn new() -> Self {
        Self { paint: Paint::stdout() }
    }

    pub(super) fn begins(&self, number: i64, plan: &Plan, kind: AgentKind, logs: &Path) {
        self.line(&format!(
            "{} (run {number}, {})",
            self.paint.bold(&harmless(&plan.title)),
            kind.name()
        ));
        output::remark(&format!("the logs of its sessions are in {}", logs.display()));
    }

    pub(super) fn tell(&self, say: &Say, view: &View) {
        let paint = self.paint;
        let line = match say {
            Say::PhaseBegins { phase, number, of } => {
                paint.bold(&format!("phase {number} of {of}: {}", harmless(phase)))
            }
            Say::AttemptBegins(attempt, kind) => {
                let kind = match kind {
                    Kind::First => String::new(),
                    Kind::Restart(number) => format!(", restart {number}"),
                    Kind::Remediation(number) => format!(", remediation {number}"),
                    Kind::Resumed => ", goes on".to_owned(),
                };
                format!("  session {}{kind}", attempt.0)
            }
            Say::AgentReady { model } => match model {
                Some(model) => paint.dim(&format!("  the agent is ready ({})", harmless(model))),
                None => paint.dim("  the agent is ready"),
            },
            Say::Context(context, percent) => {
                let guess = if context.exact { "" } else { "about " };
                let used = match (percent, context.window) {
                    (Some(percent), Some(window)) => {
                        format!("{guess}{percent:.0} % ({} of {} tokens)", context.used, window)
                    }
                    _ => format!("{guess}{} tokens", context.used),
                };
                paint.dim(&format!("  context: {used}"))
            }
            // It is in what is shown at the end of a phase.
            Say::Spent(_) => return,
            Say::Text(text) => format!("  {}", harmless(first_line(text))),
            Say::Tool { name, detail } => {
                paint.dim(&format!("  > {} {}", harmless(name), harmless(first_line(detail))))
            }
            Say::Note(text, true) => paint.yellow(&format!("  {}", harmless(text))),
            Say::Note(text, false) => paint.dim(&format!("  {}", harmless(text))),
            Say::GateBegins(name) => paint.dim(&format!("  gate: {}", harmless(name))),
            Say::GateEnds(name, end) => {
                let (name, took) = (harmless(name), end.took.as_secs_f64());
                match end.passed {
                    true => paint.green(&format!("  gate passed: {name} ({took:.1} s)")),
                    false => {
                        paint.red(&format!("  gate failed: {name} ({}, {took:.1} s)", end.ending))
                    }
                }
            }
            Say::Waits { why, until } => {
                paint.yellow(&format!("  waiting until {until}: {}", harmless(why)))
            }
            Say::PhaseEnds { phase, end, detail } => {
                let tokens = view.spent.input + view.spent.output;
                let cost = view.spent.dollars.map_or(String::new(), |cost| format!(", ${cost:.2}"));
                let used = format!("{tokens} tokens{cost} so far");
                match end {
                    PhaseEnd::Done => paint.green(&format!("done: {} ({used})", harmless(phase))),
                    PhaseEnd::Skipped => paint.yellow(&format!("skipped: {}", harmless(phase))),
                    PhaseEnd::Failed => {
                        paint.red(&format!("failed: {}: {}", harmless(phase), harmless(detail)))
                    }
                }
            }
        };
        self.line(&line);
    }

    fn line(&self, line: &str) {
        let mut lines = Lines::new();
        // A reader that has gone does not end the run.
        lines.write(line).and_then(|()| lines.flush()).ok();
    }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}
