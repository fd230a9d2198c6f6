//! The screen at several sizes, with all that agents and plans may have in their texts.

use std::time::Duration;

use afresh_core::limits::PLAN_PHASES_MAX;
use afresh_core::run::{GateState, PhaseEnd, RunEvent, Wait};
use afresh_core::time::Stamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode};
use ratatui::layout::Position;
use ratatui::style::Color;

use super::draw::{DrawFacts, draw};
use super::keys::press;
use super::state::{Mode, Question, State};
use super::testing::{now, state};
use crate::output::Paint;

/// What is seen on a terminal of this size: its rows, without spaces at their ends.
fn seen(state: &State, columns: u16, rows: u16) -> (Vec<String>, DrawFacts) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let mut drawn = DrawFacts::default();
    terminal
        .draw(|frame| drawn = draw(state, now(), Paint::Colours, frame.area(), frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| {
        let cells = (0..columns).map(|x| buffer.cell(Position { x, y }).unwrap().symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    ((0..rows).map(row).collect(), drawn)
}

#[test]
fn everything_is_seen_on_a_usual_terminal() {
    let (rows, drawn) = seen(&state(), 78, 20);
    let wanted = [
        "Guest list                                              run 7 · claude · large",
        "working · phase 2 of 5 · session 3, restart 1",
        "context ███████████████████░░░░░░░░░░│░░░░░░┃░░░░░░░░ 42 % (84,000 of 200,000)",
        "1:02:05 · 1,102,110 tokens · $3.31 · restarts 1 of 3 · remediations 0 of 2",
        "tool 12: Bash cargo test",
        "── phases ────────────────────────────────────────────────────────────────────",
        "✓ done     Store",
        "▶ at work  Page",
        "· waiting  Style",
        "── gates ─────────────────────────────────────────────────────────────────────",
        "✗ failed   unit  3.2 s",
        "· waiting  style",
        "── log ───────────────────────────────────────────────────────────────────────",
        "  I will write the page.",
        "  > Bash cargo test",
        "",
        "",
        "",
        "",
        "? help   p pause   s steer   r restart   k skip   q stop   PgUp scroll",
    ];
    assert_eq!(rows, wanted, "\n{}", rows.join("\n"));
    assert_eq!((drawn.cursor, drawn.page), (None, (78, 6)));
}

#[test]
fn phases_stand_beside_what_is_said_where_there_is_room() {
    let (rows, drawn) = seen(&state(), 100, 16);
    assert_eq!(
        rows[5],
        format!("── phases {} ── log {}", "─".repeat(30), "─".repeat(52)),
        "{rows:#?}"
    );
    assert_eq!(rows[6], format!("✓ done     Store{}I will write the page.", " ".repeat(27)));
    assert_eq!(rows[12], "── gates ───────────────────────────────");
    assert_eq!(drawn.page.0, 59);
}

#[test]
fn what_matters_most_is_seen_on_a_small_one() {
    let (rows, _) = seen(&state(), 20, 5);
    let wanted = ["working · phase 2 o…", "█████│░┃░░ 42 %", "▶ Page", "  > Bash cargo test"];
    assert_eq!(rows[0], wanted[0], "{rows:#?}");
    assert!(
        rows[1].ends_with(" 42 %") && rows[1].contains('│') && rows[1].contains('┃'),
        "{rows:#?}"
    );
    assert_eq!(rows[2..4], wanted[2..], "{rows:#?}");
    assert_eq!(rows[4], "? help   p pause");
    assert_eq!(seen(&state(), 9, 1).0, ["working …"]);
}

#[test]
fn no_size_and_no_state_makes_it_fail() {
    let hostile = "\u{1b}[2J\u{7}漢字\u{202e}e\u{301}\u{301}\u{200b}👩\u{200d}👩 \t x\u{9b}31m";
    let mut modes = vec![Mode::Watching, Mode::Help, Mode::Asking(Question::Skip(0))];
    modes.push(Mode::Asking(Question::Stop));
    let mut steering = state();
    press(&mut steering, &Event::Key(KeyCode::Char('s').into()));
    press(&mut steering, &Event::Paste(hostile.repeat(9)));
    modes.push(steering.mode);
    for mode in modes {
        let mut state = state();
        state.mode = mode;
        state.facts.phases[1].0 = afresh_core::text::harmless(hostile);
        let view = state.view.clone();
        state.tell(&RunEvent::Text(hostile.repeat(20)), &view);
        state.tell(&RunEvent::Note(hostile.to_owned(), true), &view);
        state.view.tool = Some((hostile.to_owned(), hostile.to_owned()));
        state.view.model = Some(hostile.to_owned());
        let until = Stamp::parse("2026-11-15T09:00:00Z").unwrap();
        state.view.wait = Some(Wait { until, why: hostile.to_owned(), is_limit: true });
        state.up = 7;
        let sizes = (0..30).flat_map(|columns| (0..14).map(move |rows| (columns, rows)));
        for (columns, rows) in sizes.chain([(80, 24), (300, 100), (1, 100), (300, 1)]) {
            let (seen, drawn) = seen(&state, columns, rows);
            let controls = seen.iter().flat_map(|row| row.chars()).filter(|c| c.is_control());
            assert_eq!(controls.count(), 0, "{columns}×{rows}: {seen:?}");
            if let Some(Position { x, y }) = drawn.cursor {
                assert!(x < columns.max(1) && y < rows, "{columns}×{rows}: {x} {y}");
            }
        }
    }
}

#[test]
fn the_phase_at_work_is_seen_among_hundreds() {
    let mut state = state();
    let phases = (0..PLAN_PHASES_MAX).map(|at| (format!("number {at}"), Vec::new()));
    state.facts.phases = phases.collect();
    state.view.ends = vec![Some(PhaseEnd::Done); PLAN_PHASES_MAX];
    for current in [0, 1, 250, PLAN_PHASES_MAX - 1, PLAN_PHASES_MAX] {
        state.view.current = current;
        state.view.ends.iter_mut().skip(current).for_each(|end| *end = None);
        for (columns, rows) in [(60, 20), (120, 30), (20, 5)] {
            let (seen, _) = seen(&state, columns, rows);
            let name = format!("number {}", current.min(PLAN_PHASES_MAX - 1));
            assert!(seen.iter().any(|row| row.contains(&name)), "{current}: {seen:#?}");
        }
        state.view.ends = vec![Some(PhaseEnd::Done); PLAN_PHASES_MAX];
    }
    let ends = [PhaseEnd::Done, PhaseEnd::Skipped, PhaseEnd::Failed].map(Some);
    state.view.ends[..3].copy_from_slice(&ends);
    state.view.current = 2;
    let (seen, _) = seen(&state, 60, 30);
    for row in ["✓ done     number 0", "– skipped  number 1", "✗ failed   number 2"] {
        assert!(seen.iter().any(|seen| seen == row), "{row}: {seen:#?}");
    }
}

#[test]
fn a_guess_is_called_one_and_an_unknown_window_is_not_guessed() {
    let mut state = state();
    let mut context = state.view.context.unwrap();
    context.exact = false;
    state.view.context = Some(context);
    assert!(seen(&state, 78, 20).0[2].ends_with(" about 42 % (84,000 of 200,000)"));
    context.window = None;
    (state.view.context, state.view.percent) = (Some(context), None);
    assert_eq!(seen(&state, 78, 20).0[2], "context: about 84,000 tokens");
    state.view.context = None;
    assert_eq!(seen(&state, 78, 20).0[2], "context: nothing is known yet");
}

#[test]
fn waits_and_gates_are_counted() {
    let mut state = state();
    state.view.doing = "waiting for a limit to end";
    let until = Stamp::parse("2026-11-15T08:01:10.400Z").unwrap();
    let why = "the usage limit is reached".to_owned();
    state.view.wait = Some(Wait { until, why, is_limit: true });
    let wanted = "limited until 08:01 UTC (1 m 6 s left), because the usage limit is reached";
    assert_eq!(seen(&state, 80, 24).0[2], wanted);
    state.view.counts = false;
    assert!(state.counts(), "the wait counts");
    state.view.wait = None;
    assert!(!state.counts(), "nothing does");
    assert_eq!(state.worked(now()), Duration::from_secs(3_720));
    let since = Stamp::parse("2026-11-15T07:58:00Z").unwrap();
    state.view.gates =
        vec![GateState::Passed(Duration::from_millis(40)), GateState::Running(since)];
    let (seen, _) = seen(&state, 78, 20);
    for row in ["✓ passed   unit  0.0 s", "▶ runs     style  2:05"] {
        assert!(seen.iter().any(|seen| seen == row), "{row}: {seen:#?}");
    }
}

#[test]
fn a_message_is_typed_in_the_last_row() {
    let mut state = state();
    press(&mut state, &Event::Key(KeyCode::Char('s').into()));
    "use tabs".chars().for_each(|c| drop(press(&mut state, &Event::Key(KeyCode::Char(c).into()))));
    let (rows, drawn) = seen(&state, 78, 20);
    assert_eq!(rows[19], "to the agent (Enter sends, Esc gives up): use tabs");
    assert_eq!(drawn.cursor, Some(Position { x: 50, y: 19 }));
    state.mode = Mode::Asking(Question::Stop);
    assert!(seen(&state, 78, 20).0[19].contains("(y/n)"));
    state.mode = Mode::Watching;
    state.stops = true;
    assert!(seen(&state, 78, 20).0[19].contains("Ctrl+C again"));
    state.mode = Mode::Help;
    assert!(seen(&state, 78, 20).0.iter().any(|row| row.starts_with("Ctrl+Z")));
}

#[test]
fn colours_are_only_there_where_they_are_welcome() {
    let state = state();
    for (paint, wanted) in [(Paint::Colours, true), (Paint::Plain, false)] {
        let mut terminal = Terminal::new(TestBackend::new(78, 20)).unwrap();
        terminal
            .draw(|frame| {
                draw(&state, now(), paint, frame.area(), frame.buffer_mut());
            })
            .unwrap();
        let cells = &terminal.backend().buffer().content;
        let is_painted =
            |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || !cell.modifier.is_empty();
        assert_eq!(cells.iter().any(is_painted), wanted);
    }
}

#[test]
fn what_was_done_stays_when_the_screen_is_gone() {
    let mut state = state();
    let view = state.view.clone();
    let (phase, end, detail) = ("Store\u{1b}[2J".to_owned(), PhaseEnd::Done, String::new());
    state.tell(&RunEvent::PhaseEnds { phase, end, detail }, &view);
    let lines: Vec<String> = state.summary(now()).into_iter().map(|(_, line)| line).collect();
    assert_eq!(
        lines,
        ["done: Store␛[2J (1102110 tokens, $3.31 so far)", "1 of 5 phases are done, after 1 h 2 m"]
    );
}
