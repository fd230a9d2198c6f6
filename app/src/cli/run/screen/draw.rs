//! Draws the screen of a run as cells. Driven by the drawing thread. Never draws a control sequence.

use afresh_core::text::{cells, cut_to_cells};
use afresh_core::time::Stamp;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::panes::{self, PaneRow};
use super::state::{Mode, Question, State, wrap};
use crate::cli::run::progress_lines::Tone;
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
        canvas.rows(&panes::help(), above);
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
    let mut rows = vec![(3, panes::title(state, columns)), (0, panes::doing(state))];
    rows.extend(panes::wait(state, now).map(|row| (2, row)));
    rows.push((1, panes::gauge(state, columns)));
    rows.push((4, panes::numbers(state, now)));
    rows.push((5, panes::tool(state)));
    // What is below has as much of a small screen, and more of a large one.
    let rows_max = above.height - above.height / 2;
    rows.retain(|(rank, _)| *rank < rows_max.max(1));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Phases, gates and what was said; returns the place that the last has.
fn draw_body(state: &State, now: Stamp, body: Rect, canvas: &mut Canvas<'_>) -> (usize, usize) {
    let columns = usize::from(body.width);
    let (phases, gates) = (panes::phases(state, columns), panes::gates(state, now, columns));
    let current = state.view.current.min(phases.len().saturating_sub(1));
    let active = panes::running_gate(state);
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
        seen.extend(wrap(line, columns).into_iter().rev().map(|row| PaneRow::of(*tone, row)));
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
    let question = match &state.mode {
        Mode::Steering(editor) => {
            let prompt =
                if columns >= 50 { "to the agent (Enter sends, Esc gives up): " } else { "> " };
            let width = cells(prompt).min(columns);
            let (text, at) = editor.seen(columns - width);
            let mut row = PaneRow::of(Tone::Bold, prompt);
            row.push(Tone::Plain, text);
            canvas.rows(&[row], foot);
            let x = foot.x + u16::try_from(width + at).unwrap_or(0);
            return Some(Position { x: x.min(foot.right().saturating_sub(1)), y: foot.y });
        }
        Mode::Asking(Question::Skip(_)) => {
            "leave this phase as it is, and go on with the next? (y/n)"
        }
        Mode::Asking(Question::Stop) => "stop the run? it can be resumed (y/n)",
        Mode::Help => "any key: back",
        Mode::Watching => {
            let row = match state.remark {
                Some(remark) => PaneRow::of(Tone::Warning, remark),
                None => panes::keys(state, columns),
            };
            canvas.rows(&[row], foot);
            return None;
        }
    };
    canvas.rows(&[PaneRow::of(Tone::Warning, question)], foot);
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
            for (tone, text) in &row.parts {
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
        self.rows(&[PaneRow::of(Tone::Dim, format!("── {name} {line}"))], area);
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
