//! Draws the screen of a run as cells: what each part says, and where it stands. Every colour has words beside it. Driven
//! by the drawing thread. Never draws a control sequence.

use std::time::Duration;

use afresh_core::duration::show_duration;
use afresh_core::run::{GateState, PhaseEnd};
use afresh_core::text::{cells, cut_to_cells, harmless};
use afresh_core::time::Stamp;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::state::{Mode, Question, State};
use crate::cli::run::progress_lines::{Tone, kind_of};
use crate::line_wrap::wrap;
use crate::output::Paint;

/// Facts of the last drawing that the next one needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DrawFacts {
    /// Where the cursor is, where there is one.
    pub(super) cursor: Option<Position>,
    /// Columns and rows of what was said.
    pub(super) page: (usize, usize),
}

/// From this width on, phases stand beside what is said.
const COLUMNS_BESIDE: u16 = 80;

/// Draws everything.
pub(super) fn draw(
    state: &State,
    now: Stamp,
    paint: Paint,
    area: Rect,
    buffer: &mut Buffer,
) -> DrawFacts {
    let mut canvas = Canvas { paint, buffer };
    let mut drawn = DrawFacts::default();
    if area.is_empty() {
        return drawn;
    }
    let has_foot = area.height >= 3 || state.mode != Mode::Watching;
    let (above, foot) = split(area, area.height - u16::from(has_foot));
    if has_foot {
        drawn.cursor = draw_foot(state, foot, &mut canvas);
    }
    if state.mode == Mode::Help {
        canvas.rows(&help(), above);
        return drawn;
    }
    let head = head(state, now, above);
    let (top, body) = split(above, u16::try_from(head.len()).unwrap_or(above.height));
    canvas.rows(&head, top);
    drawn.page = draw_body(state, now, body, &mut canvas);
    drawn
}

/// The lines above, those that matter most where not all fit.
fn head(state: &State, now: Stamp, above: Rect) -> Vec<PaneRow> {
    let columns = usize::from(above.width);
    let mut rows = vec![(3, title(state, columns)), (0, doing(state))];
    rows.extend(wait(state, now).map(|row| (2, row)));
    rows.push((1, gauge(state, columns)));
    rows.push((4, numbers(state, now)));
    rows.push((5, tool(state)));
    // What is below has as much of a small screen, and more of a large one.
    let rows_max = above.height - above.height / 2;
    rows.retain(|(rank, _)| *rank < rows_max.max(1));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Phases, gates and what was said; returns the place that the last has.
fn draw_body(state: &State, now: Stamp, body: Rect, canvas: &mut Canvas<'_>) -> (usize, usize) {
    let columns = usize::from(body.width);
    let (phases, gates) = (phases(state, columns), gates(state, now, columns));
    let current = state.view.current.min(phases.len().saturating_sub(1));
    let active = running_gate(state);
    if body.width >= COLUMNS_BESIDE && body.height >= 6 {
        let columns = (body.width * 2 / 5).clamp(30, 50);
        let left = Rect { width: columns, ..body };
        let right = Rect { x: body.x + columns + 1, width: body.width - columns - 1, ..body };
        let gate_rows = rows_of(&gates).min(left.height / 2);
        let (left_top, left_bottom) = split(left, left.height - gate_rows);
        canvas.block("phases", &phases, current, left_top);
        canvas.block("gates", &gates, active, left_bottom);
        return draw_said(state, right, true, canvas);
    }
    let wants_titles = body.height >= 9;
    let part = |rows: &[PaneRow], share: u16| {
        let titled = if wants_titles { rows_of(rows) } else { rows_of(rows).saturating_sub(1) };
        titled.min(share)
    };
    let phase_rows = part(&phases, (body.height / 3).max(1));
    let gate_rows = part(&gates, body.height / 4);
    let (top, rest) = split(body, phase_rows);
    let (middle, bottom) = split(rest, gate_rows);
    if wants_titles {
        canvas.block("phases", &phases, current, top);
        canvas.block("gates", &gates, active, middle);
    } else {
        canvas.window(&phases, current, top);
        canvas.window(&gates, active, middle);
    }
    draw_said(state, bottom, wants_titles, canvas)
}

/// With the line above them.
fn rows_of(rows: &[PaneRow]) -> u16 {
    if rows.is_empty() { 0 } else { u16::try_from(rows.len() + 1).unwrap_or(u16::MAX) }
}

/// The last of what was said, or what stands so many rows above it.
fn draw_said(
    state: &State,
    area: Rect,
    is_titled: bool,
    canvas: &mut Canvas<'_>,
) -> (usize, usize) {
    let (title, area) = split(area, u16::from(is_titled && area.height > 1));
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    if columns == 0 || rows == 0 {
        return (columns, rows);
    }
    // From the end, as many as are needed.
    let mut seen: Vec<PaneRow> = Vec::new();
    for (tone, line) in state.lines.iter().rev() {
        seen.extend(wrap(line, columns).into_iter().rev().map(|row| row_of(*tone, row)));
        if seen.len() >= rows.saturating_add(state.up) {
            break;
        }
    }
    let up = state.up.min(seen.len().saturating_sub(rows));
    let mut shown: Vec<PaneRow> = seen.into_iter().skip(up).take(rows).collect();
    shown.reverse();
    let said = match up {
        0 => "log".to_owned(),
        _ => format!("log, {up} rows above its end"),
    };
    canvas.rule(&said, title);
    canvas.rows(&shown, area);
    (columns, rows)
}

/// The last line: what keys do now.
fn draw_foot(state: &State, foot: Rect, canvas: &mut Canvas<'_>) -> Option<Position> {
    let columns = usize::from(foot.width);
    let row = match &state.mode {
        Mode::Steering(editor) => {
            let prompt =
                if columns >= 50 { "to the agent (Enter sends, Esc gives up): " } else { "> " };
            let width = cells(prompt).min(columns);
            let (text, at) = editor.seen(columns - width);
            let row = vec![(Tone::Bold, prompt.to_owned()), (Tone::Plain, text)];
            canvas.rows(&[row], foot);
            let x = foot.x + u16::try_from(width + at).unwrap_or(0);
            return Some(Position { x: x.min(foot.right().saturating_sub(1)), y: foot.y });
        }
        Mode::Asking(Question::Skip(_)) => {
            row_of(Tone::Warning, "leave this phase as it is, and go on with the next? (y/n)")
        }
        Mode::Asking(Question::Stop) => {
            row_of(Tone::Warning, "stop the run? it can be resumed (y/n)")
        }
        Mode::Help => row_of(Tone::Warning, "any key: back"),
        Mode::Watching => match state.remark {
            Some(remark) => row_of(Tone::Warning, remark),
            None => keys(state, columns),
        },
    };
    canvas.rows(&[row], foot);
    None
}

/// The first so many rows, and the rest.
fn split(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let rest = Rect { y: area.y + rows, height: area.height - rows, ..area };
    (Rect { height: rows, ..area }, rest)
}

/// Cells that can be drawn on.
struct Canvas<'a> {
    paint: Paint,
    buffer: &'a mut Buffer,
}

impl Canvas<'_> {
    /// Rows from the top, as many as there is room for.
    fn rows(&mut self, rows: &[PaneRow], area: Rect) {
        for (row, y) in rows.iter().zip(area.top()..area.bottom()) {
            let mut x = area.x;
            for (tone, text) in row {
                let room = area.right().saturating_sub(x);
                if room == 0 {
                    break;
                }
                let text = cut_to_cells(text, room.into());
                x = self.buffer.set_stringn(x, y, text, room.into(), self.style(*tone)).0;
            }
        }
    }

    /// So many of these as fit, one of them for certain.
    fn window(&mut self, rows: &[PaneRow], seen: usize, area: Rect) {
        let height = usize::from(area.height);
        let first = seen.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
        self.rows(&rows[first..], area);
    }

    /// The same below a line with a name.
    fn block(&mut self, name: &str, rows: &[PaneRow], seen: usize, area: Rect) {
        if rows.is_empty() {
            return;
        }
        let (title, below) = split(area, 1);
        self.rule(name, title);
        self.window(rows, seen, below);
    }

    fn rule(&mut self, name: &str, area: Rect) {
        let columns = usize::from(area.width);
        let line = "─".repeat(columns.saturating_sub(cells(name) + 4));
        self.rows(&[row_of(Tone::Dim, format!("── {name} {line}"))], area);
    }

    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        match (self.paint, tone) {
            (Paint::Plain, _) | (_, Tone::Plain) => style,
            (_, Tone::Dim) => style.add_modifier(Modifier::DIM),
            (_, Tone::Bold) => style.add_modifier(Modifier::BOLD),
            (_, Tone::Good) => style.fg(Color::Green),
            (_, Tone::Warning) => style.fg(Color::Yellow),
            (_, Tone::Bad) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Harmless texts, and how each is meant.
type PaneRow = Vec<(Tone, String)>;

fn row_of(tone: Tone, text: impl Into<String>) -> PaneRow {
    vec![(tone, text.into())]
}

/// The plan on the left, who carries it out on the right.
fn title(state: &State, columns: usize) -> PaneRow {
    let facts = &state.facts;
    let model = state.view.model.as_ref().map(|model| format!(" · {}", harmless(model)));
    let model = model.unwrap_or_default();
    let who = format!("run {} · {}{model}", facts.run, facts.agent.name());
    // The name of the plan tells several of these screens apart.
    let room = columns.saturating_sub(cells(&who) + 2).max(columns / 2);
    let title = cut_to_cells(&facts.title, room);
    let gap = columns.saturating_sub(cells(&title) + cells(&who)).max(2);
    vec![(Tone::Bold, title), (Tone::Dim, format!("{}{who}", " ".repeat(gap)))]
}

/// What is done now.
fn doing(state: &State) -> PaneRow {
    let view = &state.view;
    let tone = match view.doing {
        "working" | "running gates" => Tone::Good,
        "paused" | "pausing" => Tone::Warning,
        _ if view.wait.is_some() => Tone::Warning,
        _ => Tone::Bold,
    };
    let mut row = row_of(tone, if view.doing.is_empty() { "beginning" } else { view.doing });
    let (number, of) = ((view.current + 1).min(state.facts.phases.len()), state.facts.phases.len());
    row.push((Tone::Plain, format!(" · phase {number} of {of}")));
    if let Some(kind) = view.kind {
        row.push((Tone::Plain, format!(" · session {}{}", view.attempt.0, kind_of(kind))));
    }
    row
}

/// Until when nothing is done, and why.
fn wait(state: &State, now: Stamp) -> Option<PaneRow> {
    let wait = state.view.wait.as_ref()?;
    let left = Duration::from_secs(wait.until.since(now).as_secs_f64().ceil() as u64);
    let until = wait.until.to_string();
    // From 2026-11-15T08:01:00.000Z.
    let time = until.get(11..16).unwrap_or_default();
    let what = if wait.is_limit { "limited" } else { "waits" };
    let left = show_duration(left);
    let text = format!("{what} until {time} UTC ({left} left), because {}", harmless(&wait.why));
    Some(row_of(Tone::Warning, text))
}

/// How full the context is, with marks where the agent is asked to end and where it is made to.
fn gauge(state: &State, columns: usize) -> PaneRow {
    let view = &state.view;
    let Some(context) = view.context else {
        return row_of(Tone::Dim, "context: nothing is known yet");
    };
    let about = if context.exact { "" } else { "about " };
    let (Some(percent), Some(window)) = (view.percent, context.window) else {
        let used = thousands(context.used);
        return row_of(Tone::Plain, format!("context: {about}{used} tokens"));
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
    let mut row = row_of(Tone::Plain, label);
    for at in 0..bar {
        let (tone, cell) = match at {
            _ if hard == Some(at) => (Tone::Bold, "┃"),
            _ if soft == Some(at) => (Tone::Bold, "│"),
            _ if at < filled => (tone, "█"),
            _ => (Tone::Dim, "░"),
        };
        match row.last_mut() {
            Some((last, text)) if *last == tone && at > 0 => text.push_str(cell),
            _ => row.push((tone, cell.to_owned())),
        }
    }
    row.push((tone, text));
    row
}

/// What was used.
fn numbers(state: &State, now: Stamp) -> PaneRow {
    let view = &state.view;
    let guess = if view.spent.guessed { "about " } else { "" };
    let tokens = thousands(view.spent.tokens());
    let cost = view.spent.dollars.map_or_else(String::new, |cost| format!(" · ${cost:.2}"));
    row_of(
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
fn tool(state: &State) -> PaneRow {
    let calls = state.view.tool_calls;
    match &state.view.tool {
        Some((name, detail)) => {
            let detail = detail.lines().next().unwrap_or_default();
            row_of(Tone::Plain, format!("tool {calls}: {} {}", harmless(name), harmless(detail)))
        }
        None => row_of(Tone::Dim, format!("tools used: {calls}")),
    }
}

/// A sign and its word; only the sign where there is no room for both.
fn marked(tone: Tone, sign: &str, word: &str, columns: usize) -> PaneRow {
    match columns {
        ..30 => row_of(tone, format!("{sign} ")),
        _ => row_of(tone, format!("{sign} {word:<7}  ")),
    }
}

/// All phases, in their order.
fn phases(state: &State, columns: usize) -> Vec<PaneRow> {
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
        row.push((if end.is_none() { tone } else { Tone::Plain }, name.clone()));
        row
    };
    state.facts.phases.iter().enumerate().map(row).collect()
}

/// The gates of this phase.
fn gates(state: &State, now: Stamp, columns: usize) -> Vec<PaneRow> {
    let names = state.facts.phases.get(state.view.current).map_or(&[][..], |(_, gates)| gates);
    let row = |(name, gate): (&String, &GateState)| {
        let seconds = |took: &Duration| format!("  {:.1} s", took.as_secs_f64());
        let (tone, sign, word, took) = match gate {
            GateState::Waiting => (Tone::Dim, "·", "waiting", String::new()),
            // One that runs is looked at once a second.
            GateState::Running(since) => {
                (Tone::Bold, "▶", "runs", format!("  {}", clock(now.since(*since))))
            }
            GateState::Passed(took) => (Tone::Good, "✓", "passed", seconds(took)),
            GateState::Failed(took) => (Tone::Bad, "✗", "failed", seconds(took)),
        };
        let mut row = marked(tone, sign, word, columns);
        row.push((Tone::Plain, name.clone()));
        row.push((Tone::Dim, took));
        row
    };
    names.iter().zip(&state.view.gates).map(row).collect()
}

/// The gate that has to be seen.
fn running_gate(state: &State) -> usize {
    let gates = &state.view.gates;
    let is_over = |gate: &GateState| matches!(gate, GateState::Passed(_) | GateState::Failed(_));
    gates.iter().position(|gate| !is_over(gate)).unwrap_or(gates.len().saturating_sub(1))
}

/// What keys do, as many as fit.
fn keys(state: &State, columns: usize) -> PaneRow {
    if state.stops {
        let text = "stopping in order: Ctrl+C again is faster";
        return row_of(Tone::Warning, text);
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
    let (mut row, mut used) = (PaneRow::new(), 0);
    for (key, word) in keys {
        let text = format!(" {word}   ");
        used += cells(key) + cells(&text);
        if used > columns + 3 {
            break;
        }
        row.push((Tone::Bold, key.to_owned()));
        row.push((Tone::Dim, text));
    }
    row
}

/// All keys, at length.
fn help() -> Vec<PaneRow> {
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
        vec![(Tone::Bold, format!("{key:<9}  ")), (Tone::Plain, text.to_owned())]
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
