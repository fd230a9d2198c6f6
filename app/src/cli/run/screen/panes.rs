//! Formats the parts of the screen as rows of text. Every colour has words beside it. Never writes to the terminal.

use std::time::Duration;

use afresh_core::run::{GateState, PhaseEnd};
use afresh_core::text::{cells, cut_to_cells, harmless};
use afresh_core::time::{Stamp, show_duration};

use super::state::State;
use crate::cli::run::progress_lines::{Tone, kind_of};

/// A row: harmless texts, and how each is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneRow {
    pub(super) parts: Vec<(Tone, String)>,
}

impl PaneRow {
    pub(super) fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self { parts: vec![(tone, text.into())] }
    }

    pub(super) fn push(&mut self, tone: Tone, text: impl Into<String>) {
        self.parts.push((tone, text.into()));
    }
}

/// The plan on the left, who carries it out on the right.
pub(super) fn title(state: &State, columns: usize) -> PaneRow {
    let facts = &state.facts;
    let model = state
        .view
        .model
        .as_deref()
        .map_or_else(String::new, |model| format!(" · {}", harmless(model)));
    let who = format!("run {} · {}{model}", facts.run, facts.agent.name());
    // The name of the plan tells several of these screens apart.
    let room = columns.saturating_sub(cells(&who) + 2).max(columns / 2);
    let title = cut_to_cells(&facts.title, room);
    let gap = columns.saturating_sub(cells(&title) + cells(&who)).max(2);
    let mut row = PaneRow::of(Tone::Bold, title);
    row.push(Tone::Dim, format!("{}{who}", " ".repeat(gap)));
    row
}

/// What is done now.
pub(super) fn doing(state: &State) -> PaneRow {
    let view = &state.view;
    let tone = match view.doing {
        "working" | "running gates" => Tone::Good,
        "paused" | "pausing" => Tone::Warning,
        _ if view.wait.is_some() => Tone::Warning,
        _ => Tone::Bold,
    };
    let mut row = PaneRow::of(tone, if view.doing.is_empty() { "beginning" } else { view.doing });
    let (number, of) = ((view.current + 1).min(state.facts.phases.len()), state.facts.phases.len());
    row.push(Tone::Plain, format!(" · phase {number} of {of}"));
    if let Some(kind) = view.kind {
        row.push(Tone::Plain, format!(" · session {}{}", view.attempt.0, kind_of(kind)));
    }
    row
}

/// Until when nothing is done, and why.
pub(super) fn wait(state: &State, now: Stamp) -> Option<PaneRow> {
    let wait = state.view.wait.as_ref()?;
    let left = Duration::from_secs(wait.until.since(now).as_secs_f64().ceil() as u64);
    let until = wait.until.to_string();
    // From 2026-11-15T08:01:00.000Z.
    let time = until.get(11..16).unwrap_or_default();
    let what = if wait.is_limit { "limited" } else { "waits" };
    let left = show_duration(left);
    let text = format!("{what} until {time} UTC ({left} left), because {}", harmless(&wait.why));
    Some(PaneRow::of(Tone::Warning, text))
}

/// How full the context is, with marks where the agent is asked to end and where it is made to.
pub(super) fn gauge(state: &State, columns: usize) -> PaneRow {
    let view = &state.view;
    let Some(context) = view.context else {
        return PaneRow::of(Tone::Dim, "context: nothing is known yet");
    };
    let about = if context.exact { "" } else { "about " };
    let (Some(percent), Some(window)) = (view.percent, context.window) else {
        let used = thousands(context.used);
        return PaneRow::of(Tone::Plain, format!("context: {about}{used} tokens"));
    };
    let (used, window) = (thousands(context.used), thousands(window));
    let long = format!(" {about}{percent:.0} % ({used} of {window})");
    let short = format!(" {about}{percent:.0} %");
    let label = if columns >= 40 { "context " } else { "" };
    let text = if columns >= cells(label) + cells(&long) + 20 { long } else { short };
    let bar = columns.saturating_sub(cells(label) + cells(&text)).min(60);
    let place = |percent: f64| ((percent / 100.0 * bar as f64) as usize).min(bar.saturating_sub(1));
    let reached = |mark: Option<f64>| mark.is_some_and(|mark| percent >= mark);
    let tone = match () {
        () if reached(view.hard) => Tone::Bad,
        () if reached(view.soft) => Tone::Warning,
        () => Tone::Good,
    };
    let filled = ((percent / 100.0 * bar as f64).round() as usize).min(bar);
    let (soft, hard) = (view.soft.map(place), view.hard.map(place));
    let mut row = PaneRow::of(Tone::Plain, label);
    for at in 0..bar {
        let (tone, cell) = match at {
            _ if hard == Some(at) => (Tone::Bold, "┃"),
            _ if soft == Some(at) => (Tone::Bold, "│"),
            _ if at < filled => (tone, "█"),
            _ => (Tone::Dim, "░"),
        };
        match row.parts.last_mut() {
            Some((last, text)) if *last == tone && at > 0 => text.push_str(cell),
            _ => row.push(tone, cell),
        }
    }
    row.push(tone, text);
    row
}

/// What was used.
pub(super) fn numbers(state: &State, now: Stamp) -> PaneRow {
    let view = &state.view;
    let guess = if view.spent.guessed { "about " } else { "" };
    let tokens = thousands(view.spent.tokens());
    let cost = view.spent.dollars.map_or_else(String::new, |cost| format!(" · ${cost:.2}"));
    PaneRow::of(
        Tone::Plain,
        format!(
            "{} · {guess}{tokens} tokens{cost} · restarts {} of {} · remediations {} of {}",
            clock(state.worked(now)),
            view.restarts,
            view.restarts_max,
            view.remediations,
            view.remediations_max
        ),
    )
}

/// What the agent uses at this moment.
pub(super) fn tool(state: &State) -> PaneRow {
    let calls = state.view.tool_calls;
    match &state.view.tool {
        Some((name, detail)) => {
            let detail = detail.lines().next().unwrap_or_default();
            PaneRow::of(
                Tone::Plain,
                format!("tool {calls}: {} {}", harmless(name), harmless(detail)),
            )
        }
        None => PaneRow::of(Tone::Dim, format!("tools used: {calls}")),
    }
}

/// A sign and its word; only the sign where there is no room for both.
fn marked(tone: Tone, sign: &str, word: &str, columns: usize) -> PaneRow {
    match columns {
        ..30 => PaneRow::of(tone, format!("{sign} ")),
        _ => PaneRow::of(tone, format!("{sign} {word:<7}  ")),
    }
}

/// All phases, in their order.
pub(super) fn phases(state: &State, columns: usize) -> Vec<PaneRow> {
    let row = |(at, (name, _)): (usize, &(String, Vec<String>))| {
        let end = state.view.ends.get(at).copied().flatten();
        let (tone, sign, word) = match end {
            Some(PhaseEnd::Done) => (Tone::Good, "✓", "done"),
            Some(PhaseEnd::Skipped) => (Tone::Warning, "–", "skipped"),
            Some(PhaseEnd::Failed) => (Tone::Bad, "✗", "failed"),
            None if at == state.view.current => (Tone::Bold, "▶", "at work"),
            None => (Tone::Dim, "·", "waiting"),
        };
        let mut row = marked(tone, sign, word, columns);
        row.push(if end.is_none() { tone } else { Tone::Plain }, name.clone());
        row
    };
    state.facts.phases.iter().enumerate().map(row).collect()
}

/// The gates of this phase.
pub(super) fn gates(state: &State, now: Stamp, columns: usize) -> Vec<PaneRow> {
    let names = state.facts.phases.get(state.view.current).map_or(&[][..], |(_, gates)| gates);
    let row = |(name, gate): (&String, &GateState)| {
        let (tone, sign, word, took) = match gate {
            GateState::Waiting => (Tone::Dim, "·", "waiting", None),
            GateState::Running(since) => (Tone::Bold, "▶", "runs", Some(now.since(*since))),
            GateState::Passed(took) => (Tone::Good, "✓", "passed", Some(*took)),
            GateState::Failed(took) => (Tone::Bad, "✗", "failed", Some(*took)),
        };
        let took = match (took, gate) {
            (None, _) => String::new(),
            // One that runs is looked at once a second.
            (Some(took), GateState::Running(_)) => clock(took),
            (Some(took), _) => format!("{:.1} s", took.as_secs_f64()),
        };
        let mut row = marked(tone, sign, word, columns);
        row.push(Tone::Plain, name.clone());
        row.push(Tone::Dim, if took.is_empty() { took } else { format!("  {took}") });
        row
    };
    names.iter().zip(&state.view.gates).map(row).collect()
}

/// The gate that has to be seen.
pub(super) fn running_gate(state: &State) -> usize {
    let gates = &state.view.gates;
    let is_over = |gate: &GateState| matches!(gate, GateState::Passed(_) | GateState::Failed(_));
    gates.iter().position(|gate| !is_over(gate)).unwrap_or(gates.len().saturating_sub(1))
}

/// What keys do, as many as fit.
pub(super) fn keys(state: &State, columns: usize) -> PaneRow {
    if state.stops {
        let text = "stopping in order: Ctrl+C again is faster";
        return PaneRow::of(Tone::Warning, text);
    }
    let pause = if state.view.paused { "resume" } else { "pause" };
    let keys = [
        ("?", "help"),
        ("p", pause),
        ("s", "steer"),
        ("r", "restart"),
        ("k", "skip"),
        ("q", "stop"),
        ("PgUp", "scroll"),
    ];
    let (mut row, mut used) = (PaneRow::default(), 0);
    for (key, word) in keys {
        let text = format!(" {word}   ");
        used += cells(key) + cells(&text);
        if used > columns + 3 {
            break;
        }
        row.push(Tone::Bold, key);
        row.push(Tone::Dim, text);
    }
    row
}

/// All keys, at length.
pub(super) fn help() -> Vec<PaneRow> {
    let keys = [
        ("p", "pause, or resume: the agent stops its turn, what has begun comes to its end"),
        ("s", "steer: type a message, which the agent gets at its next step"),
        ("r", "restart: a handoff, and a new session; during a wait: end the wait"),
        ("k", "skip: leave this phase as it is, and go on with the next"),
        ("q", "stop the run in order; `afresh run --resume` goes on"),
        ("Ctrl+C", "the same without a question; each further one is faster"),
        ("Ctrl+Z", "leave the terminal to the shell; `fg` comes back"),
        ("PgUp PgDn", "scroll what was said; also the arrows, Home and End"),
        ("Ctrl+L", "draw the screen anew"),
    ];
    let row = |(key, text): (&str, &str)| {
        let mut row = PaneRow::of(Tone::Bold, format!("{key:<9}  "));
        row.push(Tone::Plain, text);
        row
    };
    keys.into_iter().map(row).collect()
}

/// `4:05`, or `1:02:03`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
