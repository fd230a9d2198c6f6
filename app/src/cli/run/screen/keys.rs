//! Maps keys to changes of the state and requests to the run. Driven by the thread that reads keys. Never draws.

use afresh_core::agent::AgentKind;
use afresh_core::run::UserRequest;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Editor, Mode, Question, State};

/// What has to be done about a key, beside what it changes on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Ask(UserRequest),
    /// Stop until the shell lets us go on.
    Suspend,
    /// Draw everything anew.
    Redraw,
}

/// Takes a key, or a text that was pasted.
pub(super) fn press(state: &mut State, event: &Event) -> Option<Action> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_pressed(state, *key),
        Event::Paste(text) => {
            // Elsewhere, its letters would be keys.
            if let Mode::Steering(editor) = &mut state.mode {
                editor.paste(text);
            }
            None
        }
        _ => None,
    }
}

fn key_pressed(state: &mut State, key: KeyEvent) -> Option<Action> {
    state.remark = None;
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match (key.code, &mut state.mode) {
            (KeyCode::Char('c'), _) => return Some(stop(state)),
            (KeyCode::Char('z'), _) => return Some(Action::Suspend),
            (KeyCode::Char('l'), _) => return Some(Action::Redraw),
            (KeyCode::Char('a'), Mode::Steering(editor)) => editor.go(isize::MIN),
            (KeyCode::Char('e'), Mode::Steering(editor)) => editor.go(isize::MAX),
            (KeyCode::Char('u'), Mode::Steering(editor)) => editor.clear(),
            _ => {}
        }
        return None;
    }
    // None of these is a key of ours: they have keys with them that are.
    if key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SUPER | KeyModifiers::META) {
        return None;
    }
    match std::mem::take(&mut state.mode) {
        Mode::Watching => watching(state, key.code),
        Mode::Steering(editor) if key.code == KeyCode::Enter => {
            let text = editor.text().trim().to_owned();
            (!text.is_empty()).then_some(Action::Ask(UserRequest::Steer(text)))
        }
        Mode::Steering(mut editor) => {
            if key.code != KeyCode::Esc {
                edit(&mut editor, key.code);
                state.mode = Mode::Steering(editor);
            }
            None
        }
        Mode::Asking(question) => {
            let is_meant = matches!(key.code, KeyCode::Char('y' | 'Y'));
            is_meant.then(|| match question {
                Question::Skip(phase) => Action::Ask(UserRequest::Skip(phase)),
                Question::Stop => stop(state),
            })
        }
        Mode::Help => None,
    }
}

fn watching(state: &mut State, code: KeyCode) -> Option<Action> {
    let page = isize::try_from(state.page.1.saturating_sub(1).max(1)).unwrap_or(1);
    match code {
        KeyCode::Char('p') if state.view.paused => return Some(Action::Ask(UserRequest::Resume)),
        KeyCode::Char('p') => return Some(Action::Ask(UserRequest::Pause)),
        KeyCode::Char('r') => return Some(Action::Ask(UserRequest::Restart)),
        KeyCode::Char('s') if state.facts.agent == AgentKind::Command => {
            state.remark = Some("a command cannot be told anything while it works");
        }
        KeyCode::Char('s') => state.mode = Mode::Steering(Editor::default()),
        KeyCode::Char('k') => state.mode = Mode::Asking(Question::Skip(state.view.current)),
        KeyCode::Char('q') => state.mode = Mode::Asking(Question::Stop),
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => state.mode = Mode::Help,
        KeyCode::PageUp => state.scroll(page),
        KeyCode::PageDown => state.scroll(-page),
        KeyCode::Up => state.scroll(1),
        KeyCode::Down => state.scroll(-1),
        KeyCode::Home => state.scroll(isize::MAX),
        KeyCode::End | KeyCode::Esc => state.scroll(isize::MIN),
        _ => {}
    }
    None
}

/// In order, and faster each time that it is wanted again.
fn stop(state: &mut State) -> Action {
    state.stops = true;
    Action::Ask(UserRequest::Stop)
}

fn edit(editor: &mut Editor, code: KeyCode) {
    match code {
        KeyCode::Char(c) => editor.insert(c),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        KeyCode::Left => editor.go(-1),
        KeyCode::Right => editor.go(1),
        KeyCode::Home => editor.go(isize::MIN),
        KeyCode::End => editor.go(isize::MAX),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use afresh_core::run::RunEvent;

    use super::*;
    use crate::cli::run::screen::testing;

    fn key(state: &mut State, code: KeyCode) -> Option<Action> {
        press(state, &Event::Key(code.into()))
    }

    fn keys(state: &mut State, text: &str) -> Option<Action> {
        text.chars().map(|c| key(state, KeyCode::Char(c))).last().flatten()
    }

    fn control(state: &mut State, c: char) -> Option<Action> {
        press(state, &Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    const fn ask(asked: UserRequest) -> Option<Action> {
        Some(Action::Ask(asked))
    }

    #[test]
    fn each_key_asks_for_one_thing() {
        let mut state = testing::state();
        assert_eq!(keys(&mut state, "p"), ask(UserRequest::Pause));
        state.view.paused = true;
        assert_eq!(keys(&mut state, "p"), ask(UserRequest::Resume));
        assert_eq!(keys(&mut state, "r"), ask(UserRequest::Restart));
        assert_eq!(keys(&mut state, "x"), None);
        // Only who says yes has meant it.
        let seen = state.view.current;
        assert_eq!(keys(&mut state, "ky"), ask(UserRequest::Skip(seen)));
        assert_eq!(keys(&mut state, "k"), None);
        state.view.current += 1;
        assert_eq!(keys(&mut state, "y"), ask(UserRequest::Skip(seen)), "the one that was seen");
        state.view.current = seen;
        assert_eq!(keys(&mut state, "kn"), None);
        assert_eq!(keys(&mut state, "ykr"), None);
        assert_eq!(state.mode, Mode::Watching);
        assert_eq!((keys(&mut state, "q"), state.stops), (None, false));
        assert_eq!((keys(&mut state, "y"), state.stops), (ask(UserRequest::Stop), true));
        assert_eq!(keys(&mut state, "?p"), None, "any key ends the help");
        assert_eq!(control(&mut state, 'z'), Some(Action::Suspend));
        assert_eq!(control(&mut state, 'l'), Some(Action::Redraw));
        assert_eq!(control(&mut state, 'p'), None);
        let alt = KeyEvent::new(KeyCode::Char('r'), KeyModifiers::ALT);
        assert_eq!(press(&mut state, &Event::Key(alt)), None);
        let mut release = KeyEvent::from(KeyCode::Char('r'));
        release.kind = KeyEventKind::Release;
        assert_eq!(press(&mut state, &Event::Key(release)), None);
    }

    #[test]
    fn ctrl_c_stops_at_once_whatever_is_open() {
        for before in ["", "s", "sq", "k", "q", "?"] {
            let mut state = testing::state();
            keys(&mut state, before);
            assert_eq!(control(&mut state, 'c'), ask(UserRequest::Stop), "after {before:?}");
            assert!(state.stops);
            assert_eq!(control(&mut state, 'c'), ask(UserRequest::Stop), "and again");
        }
    }

    #[test]
    fn what_is_typed_is_told_to_the_agent() {
        let mut state = testing::state();
        keys(&mut state, "suse taxs");
        key(&mut state, KeyCode::Left);
        key(&mut state, KeyCode::Backspace);
        keys(&mut state, "b");
        press(&mut state, &Event::Paste(", please\n".to_owned()));
        key(&mut state, KeyCode::End);
        assert_eq!(
            key(&mut state, KeyCode::Enter),
            ask(UserRequest::Steer("use tab, pleases".to_owned()))
        );
        assert_eq!(state.mode, Mode::Watching);
        // Who gives up, or has nothing to say, says nothing.
        keys(&mut state, "sq");
        assert_eq!(key(&mut state, KeyCode::Esc), None);
        keys(&mut state, "s  ");
        assert_eq!((key(&mut state, KeyCode::Enter), &state.mode), (None, &Mode::Watching));
        // What is pasted elsewhere is no key.
        assert_eq!(press(&mut state, &Event::Paste("qy".to_owned())), None);
        assert_eq!(state.mode, Mode::Watching);
        keys(&mut state, "sabc");
        control(&mut state, 'u');
        keys(&mut state, "b");
        control(&mut state, 'a');
        keys(&mut state, "a");
        control(&mut state, 'e');
        keys(&mut state, "c");
        assert_eq!(key(&mut state, KeyCode::Enter), ask(UserRequest::Steer("abc".to_owned())));
        state.facts.agent = AgentKind::Command;
        keys(&mut state, "s");
        assert!(state.mode == Mode::Watching && state.remark.is_some());
        keys(&mut state, "x");
        assert_eq!(state.remark, None);
    }

    #[test]
    fn who_reads_what_is_above_goes_on_reading_it() {
        let mut state = testing::state();
        let view = state.view.clone();
        let text =
            |state: &mut State, text: &str| state.tell(&RunEvent::Text(text.to_owned()), &view);
        state.lines.clear();
        (0..30).for_each(|at| text(&mut state, &format!("line {at}")));
        state.page = (20, 10);
        key(&mut state, KeyCode::PageUp);
        assert_eq!(state.up, 9);
        text(&mut state, "another one\n\nthat is longer than the page is wide");
        assert_eq!(state.up, 9 + 4);
        key(&mut state, KeyCode::Home);
        assert_eq!(state.up, 24);
        key(&mut state, KeyCode::PageDown);
        key(&mut state, KeyCode::Down);
        key(&mut state, KeyCode::Up);
        assert_eq!(state.up, 15);
        key(&mut state, KeyCode::End);
        assert_eq!(state.up, 0);
        (0..3_000).for_each(|at| text(&mut state, &format!("line {at}")));
        assert_eq!(state.lines.len(), afresh_core::limits::SCREEN_LINES_MAX);
    }
}
