//! Owns the state of the screen of a run: the run, its texts, and the input of the user. Driven by the run and by keys.
//! Never draws.

use std::collections::VecDeque;
use std::time::Duration;

use afresh_core::agent::AgentKind;
use afresh_core::duration::show_duration;
use afresh_core::limits::{SCREEN_LINES_MAX, STEER_CHARS_MAX};
use afresh_core::run::plan::Plan;
use afresh_core::run::{PhaseEnd, RunEvent, View};
use afresh_core::text::{cells, harmless};
use afresh_core::time::Stamp;

use crate::cli::run::progress_lines::{self, Tone};
use crate::line_wrap::wrap;

/// What never changes.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(super) title: String,
    pub(super) run: i64,
    pub(super) agent: AgentKind,
    /// The names of the phases, and of their gates.
    pub(super) phases: Vec<(String, Vec<String>)>,
}

impl Facts {
    pub(crate) fn new(plan: &Plan, run: i64, agent: AgentKind) -> Self {
        let gates = |phase: &afresh_core::run::plan::Phase| {
            phase.gates.iter().map(|gate| harmless(&gate.name)).collect()
        };
        let phases =
            plan.phases.iter().map(|phase| (harmless(&phase.name), gates(phase))).collect();
        Self { title: harmless(&plan.title), run, agent, phases }
    }
}

/// What keys mean at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Watching,
    /// A message to the agent is typed.
    Steering(Editor),
    /// A key needs a confirmation.
    Asking(Question),
    Help,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Of the phase that was seen then.
    Skip(usize),
    Stop,
}

/// All that is drawn.
pub(super) struct State {
    pub(super) facts: Facts,
    pub(super) view: View,
    pub(super) mode: Mode,
    /// What was said: harmless lines, the newest last.
    pub(super) lines: VecDeque<(Tone, String)>,
    /// How many rows of them are below what is seen.
    pub(super) up: usize,
    /// The columns and rows that they were drawn in last.
    pub(super) page: (usize, usize),
    /// What has to be said about the last key.
    pub(super) remark: Option<&'static str>,
    /// Whether the user wants the run to stop.
    pub(super) stops: bool,
    /// How phases ended: what stays when the screen is gone.
    pub(super) ends: Vec<(Tone, String)>,
}

impl State {
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            facts,
            view: View::default(),
            mode: Mode::default(),
            lines: VecDeque::new(),
            up: 0,
            page: (80, 10),
            remark: None,
            stops: false,
            ends: Vec::new(),
        }
    }

    /// Takes in what is said, and how the run is now.
    pub(super) fn tell(&mut self, say: &RunEvent, view: &View) {
        self.view.clone_from(view);
        match say {
            // The gauge and the list of gates have these.
            RunEvent::Context(..) | RunEvent::GateBegins(_) => {}
            RunEvent::Text(text) => {
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    self.push(Tone::Plain, format!("  {}", harmless(line.trim_end())));
                }
            }
            say => {
                for (tone, line) in progress_lines::lines(say, view) {
                    if let RunEvent::PhaseEnds { .. } = say {
                        self.ends.push((tone, line.clone()));
                    }
                    self.push(tone, line);
                }
            }
        }
    }

    fn push(&mut self, tone: Tone, line: String) {
        if self.lines.len() >= SCREEN_LINES_MAX {
            self.lines.pop_front();
        }
        if self.up > 0 {
            // A user who has scrolled up stays there.
            self.up += wrap(&line, self.page.0).len();
        }
        self.lines.push_back((tone, line));
    }

    /// Scrolls by so many rows, up where it is more than none.
    pub(super) fn scroll(&mut self, rows: isize) {
        let all: usize = self.lines.iter().map(|(_, line)| wrap(line, self.page.0).len()).sum();
        let most = all.saturating_sub(self.page.1);
        self.up = self.up.saturating_add_signed(rows).min(most);
    }

    /// Whether a clock is to be seen that goes.
    pub(super) fn counts(&self) -> bool {
        self.view.counts || self.view.wait.is_some()
    }

    /// How long was worked.
    pub(super) fn worked(&self, now: Stamp) -> Duration {
        let since = if self.view.counts { now.since(self.view.stamp) } else { Duration::ZERO };
        self.view.worked + since
    }

    /// What stays on the terminal when the screen is gone.
    pub(super) fn summary(&self, now: Stamp) -> Vec<(Tone, String)> {
        let is_done = |end: &&Option<PhaseEnd>| **end == Some(PhaseEnd::Done);
        let (done, all) = (self.view.ends.iter().filter(is_done).count(), self.facts.phases.len());
        let worked = Duration::from_secs(self.worked(now).as_secs());
        let last = format!("{done} of {all} phases are done, after {}", show_duration(worked));
        let mut lines = self.ends.clone();
        lines.push((Tone::Dim, last));
        lines
    }
}

/// A text of one line, and where the cursor is in it. No more than a page is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Editor {
    text: Vec<char>,
    at: usize,
}

impl Editor {
    pub(super) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// Takes a character where the cursor is.
    pub(super) fn insert(&mut self, c: char) {
        if self.text.len() < STEER_CHARS_MAX && !c.is_control() {
            self.text.insert(self.at, c);
            self.at += 1;
        }
    }

    /// Takes a text that was pasted: its lines become one.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.trim_end_matches(['\r', '\n']).replace("\r\n", "\n");
        let room = STEER_CHARS_MAX - self.text.len();
        let one_line = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        let taken: Vec<char> = one_line.filter(|c| !c.is_control()).take(room).collect();
        let end = self.at + taken.len();
        self.text.splice(self.at..self.at, taken);
        self.at = end;
    }

    pub(super) fn backspace(&mut self) {
        if self.at > 0 {
            self.at -= 1;
            self.text.remove(self.at);
        }
    }

    pub(super) fn delete(&mut self) {
        if self.at < self.text.len() {
            self.text.remove(self.at);
        }
    }

    /// Moves the cursor by so many characters.
    pub(super) fn go(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.text.len());
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.at = 0;
    }

    /// The part of it that is seen in so many cells, and the cell that the cursor is in.
    pub(super) fn seen(&self, cells_max: usize) -> (String, usize) {
        let width = |c: &char| cells(c.encode_utf8(&mut [0; 4]));
        // The cursor stands behind what was typed, and needs a cell too.
        let room = cells_max.saturating_sub(1);
        let (mut from, mut before) = (self.at, 0);
        while from > 0 && before + width(&self.text[from - 1]) <= room {
            from -= 1;
            before += width(&self.text[from]);
        }
        let (mut to, mut used) = (self.at, before);
        while to < self.text.len() && used + width(&self.text[to]) <= cells_max {
            used += width(&self.text[to]);
            to += 1;
        }
        let seen: String = self.text[from..to].iter().collect();
        (harmless(&seen), before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_typed_mended_and_pasted() {
        let mut editor = Editor::default();
        "use tabs".chars().for_each(|c| editor.insert(c));
        editor.go(-4);
        editor.paste("no\n\ttwo \u{1b}[2J\r\n");
        assert_eq!(editor.text(), "use no  two [2Jtabs");
        editor.backspace();
        editor.delete();
        editor.insert('\u{7}');
        assert_eq!(editor.text(), "use no  two [2abs");
        editor.go(isize::MIN);
        editor.backspace();
        editor.delete();
        editor.go(isize::MAX);
        editor.delete();
        editor.insert('!');
        assert_eq!(editor.text(), "se no  two [2abs!");
        editor.clear();
        editor.backspace();
        assert_eq!(editor, Editor::default());
    }

    #[test]
    fn no_more_than_a_page_is_taken() {
        let mut editor = Editor::default();
        editor.paste(&"x".repeat(STEER_CHARS_MAX + 10));
        editor.insert('y');
        editor.paste("z");
        assert_eq!(editor.text(), "x".repeat(STEER_CHARS_MAX));
    }

    #[test]
    fn the_cursor_is_seen_wherever_it_is() {
        let mut editor = Editor::default();
        editor.paste("0123456789");
        assert_eq!(editor.seen(20), ("0123456789".to_owned(), 10));
        assert_eq!(editor.seen(5), ("6789".to_owned(), 4));
        editor.go(-8);
        assert_eq!(editor.seen(5), ("01234".to_owned(), 2));
        editor.go(isize::MIN);
        editor.paste("漢字");
        assert_eq!(editor.seen(4), ("字01".to_owned(), 2));
        for cells_max in 0..8 {
            let (seen, at) = editor.seen(cells_max);
            assert!(cells(&seen) <= cells_max && at <= cells_max, "{cells_max}: {seen} {at}");
        }
    }
}
