//! Prints the events of a run as lines.

use std::path::Path;

use afresh_core::agent::AgentKind;
use afresh_core::run::plan::Plan;
use afresh_core::run::{Kind, PhaseEnd, RunEvent, View, shown_output};
use afresh_core::text::harmless;

use crate::output::{self, Lines, Paint};

/// How a line is meant; a colour, where those are welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Warning,
    Bad,
}

/// Prints what happens, a line each.
pub(super) struct ProgressPrinter {
    paint: Paint,
}

impl ProgressPrinter {
    pub(super) fn new() -> Self {
        Self { paint: Paint::stdout() }
    }

    pub(super) fn begins(&self, number: i64, plan: &Plan, kind: AgentKind, logs: &Path) {
        let title = self.paint.bold(&harmless(&plan.title));
        write([format!("{title} (run {number}, {})", kind.name())]);
        output::remark(&format!("the logs of its sessions are in {}", logs.display()));
    }

    pub(super) fn tell(&self, says: &[RunEvent], view: &View) {
        self.lines(says.iter().flat_map(|say| lines(say, view)));
    }

    /// Lines that are harmless.
    pub(super) fn lines(&self, lines: impl IntoIterator<Item = (Tone, String)>) {
        write(lines.into_iter().map(|(tone, line)| self.painted(tone, line)));
    }

    fn painted(&self, tone: Tone, line: String) -> String {
        let paint = self.paint;
        match tone {
            Tone::Plain => line,
            Tone::Dim => paint.dim(&line),
            Tone::Bold => paint.bold(&line),
            Tone::Good => paint.green(&line),
            Tone::Warning => paint.yellow(&line),
            Tone::Bad => paint.red(&line),
        }
    }
}

fn write(lines: impl IntoIterator<Item = String>) {
    let mut output = Lines::new();
    let mut lines = lines.into_iter();
    // A reader that has gone does not end the run.
    lines.try_for_each(|line| output.write(&line)).and_then(|()| output.flush()).ok();
}

/// What is said, as harmless lines; none where they would say nothing.
pub(super) fn lines(say: &RunEvent, view: &View) -> Vec<(Tone, String)> {
    let more = match say {
        RunEvent::GateEnds(_, end) if !end.passed => shown_output(&end.output),
        _ => Vec::new(),
    };
    let more = more.into_iter().map(|line| (Tone::Dim, format!("    {line}")));
    line(say, view).into_iter().chain(more).collect()
}

fn line(say: &RunEvent, view: &View) -> Option<(Tone, String)> {
    Some(match say {
        RunEvent::PhaseBegins { phase, number, of } => {
            (Tone::Bold, format!("phase {number} of {of}: {}", harmless(phase)))
        }
        RunEvent::AttemptBegins(attempt, kind) => {
            (Tone::Plain, format!("  session {}{}", attempt.0, kind_of(*kind)))
        }
        RunEvent::AgentReady { model } => match model {
            Some(model) => (Tone::Dim, format!("  the agent is ready ({})", harmless(model))),
            None => (Tone::Dim, "  the agent is ready".to_owned()),
        },
        RunEvent::Context(context, percent) => {
            let guess = if context.exact { "" } else { "about " };
            let used = match (percent, context.window) {
                (Some(percent), Some(window)) => {
                    format!("{guess}{percent:.0} % ({} of {} tokens)", context.used, window)
                }
                _ => format!("{guess}{} tokens", context.used),
            };
            (Tone::Dim, format!("  context: {used}"))
        }
        RunEvent::Moved => return None,
        RunEvent::Text(text) => (Tone::Plain, format!("  {}", harmless(first_line(text)))),
        RunEvent::Tool { name, detail } => {
            let line = format!("  > {} {}", harmless(name), harmless(first_line(detail)));
            (Tone::Dim, line)
        }
        RunEvent::Note(text, true) => (Tone::Warning, format!("  {}", harmless(text))),
        RunEvent::Note(text, false) => (Tone::Dim, format!("  {}", harmless(text))),
        RunEvent::GateBegins(name) => (Tone::Dim, format!("  gate: {}", harmless(name))),
        RunEvent::GateEnds(name, end) => {
            let (name, took) = (harmless(name), end.took.as_secs_f64());
            match end.passed {
                true => (Tone::Good, format!("  gate passed: {name} ({took:.1} s)")),
                false => {
                    (Tone::Bad, format!("  gate failed: {name} ({}, {took:.1} s)", end.ending))
                }
            }
        }
        RunEvent::Waits { why, until } => {
            (Tone::Warning, format!("  waiting until {until}: {}", harmless(why)))
        }
        RunEvent::PhaseEnds { phase, end, detail } => {
            let tokens = view.spent.shown_tokens();
            let cost = view.spent.dollars.map_or(String::new(), |cost| format!(", ${cost:.2}"));
            let used = format!("{tokens}{cost} so far");
            match end {
                PhaseEnd::Done => (Tone::Good, format!("done: {} ({used})", harmless(phase))),
                PhaseEnd::Skipped => (Tone::Warning, format!("skipped: {}", harmless(phase))),
                PhaseEnd::Failed => {
                    (Tone::Bad, format!("failed: {}: {}", harmless(phase), harmless(detail)))
                }
            }
        }
    })
}

/// What kind of session it is, after its number.
pub(super) fn kind_of(kind: Kind) -> String {
    match kind {
        Kind::First => String::new(),
        Kind::Restart(number) => format!(", restart {number}"),
        Kind::Remediation(number) => format!(", remediation {number}"),
        Kind::Resumed => ", goes on".to_owned(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}
