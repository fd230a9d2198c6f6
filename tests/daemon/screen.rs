//! What a person sees on a terminal.

use std::process::Command;

use afresh_tests::terminal::OnTerminal;
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::HOSTILE;

/// Services that behave, and one that tells the terminal to clear itself.
fn define(env: &TestEnv) {
    let hostile = r"printf '\\033[2J\\033[9Agone \\033[31mred\\n'; exec sleep 600";
    env.write(
        "afresh.toml",
        &format!(
            "[service.web]\ncommand = [{HOSTILE:?}, \"idle\"]\n\
             [service.long-name]\ncommand = [{HOSTILE:?}, \"idle\"]\n\
             [service.hostile]\ncommand = [\"sh\", \"-c\", \"{hostile}\"]\n\
             [service.later]\ncommand = [{HOSTILE:?}, \"idle\"]\nautostart = false\n"
        ),
    );
}

fn up(env: &TestEnv, variables: &[(&str, &str)]) -> Command {
    let mut command = env.afresh(&["up"]);
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command
}

fn end(env: &TestEnv, mut terminal: OnTerminal) -> OnTerminal {
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.wait().code(), Some(0), "{}", terminal.raw());
    env.assert_nothing_left();
    terminal
}

#[test]
fn lines_scroll_by_and_states_stand_below() {
    let env = TestEnv::new();
    define(&env);
    let terminal = OnTerminal::start(up(&env, &[]), 60, 24);
    terminal.wait_seen("␛[2J␛[9Agone red");
    let at_bottom = || {
        let seen = terminal.seen();
        let rule = seen.iter().rposition(|line| line.starts_with('─'))?;
        Some(seen[rule + 1..].to_vec())
    };
    wait_for("the states", || {
        let states = at_bottom().unwrap_or_default();
        states.len() == 5
            && states[0].starts_with("web        ready  pid ")
            && states[1].starts_with("long-name  ready  pid ")
            && states[2].starts_with("hostile    ready  pid ")
            && states[3] == "later      stopped"
    });
    let seen = terminal.seen();
    assert_eq!(seen.iter().filter(|line| line.starts_with('─')).count(), 1, "{seen:?}");
    assert!(terminal.raw().contains("\u{1b}[31mred\u{1b}[0m"), "colours stay, and end");
    // All of it goes at the end, and the lines stay.
    let terminal = end(&env, terminal);
    let seen = terminal.seen();
    assert!(!seen.iter().any(|line| line.starts_with('─')), "{seen:?}");
    assert!(seen.iter().any(|line| line.contains("web") && line.contains("| ready ")), "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some(""), "the prompt begins on a line of its own");
}

#[test]
fn who_wants_no_colours_gets_none_and_a_dumb_terminal_only_lines() {
    for (variable, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let env = TestEnv::new();
        define(&env);
        let terminal = OnTerminal::start(up(&env, &[(variable, value)]), 60, 24);
        wait_for("all are started", || env.events("server_started").len() == 3);
        wait_for("a line", || terminal.raw().contains("| ready "));
        if variable == "TERM" {
            terminal.wait_seen("hostile | ␛[2J␛[9Agone red");
            let raw = terminal.raw();
            assert!(!raw.contains('\u{1b}') && !raw.contains('─'), "{raw:?}");
            env.run(&["down"]);
        } else {
            terminal.wait_seen("␛[2J␛[9Agone red");
            for colour in ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m"] {
                assert!(!terminal.raw().contains(colour), "{:?}", terminal.raw());
            }
        }
        end(&env, terminal);
    }
}

#[test]
fn status_is_drawn_anew_when_something_happens() {
    let env = TestEnv::new();
    define(&env);
    let up = env.start(&["up"]);
    wait_for("all are started", || env.events("server_started").len() == 3);
    let mut command = env.afresh(&["status", "--watch", "60"]);
    command.env("TERM", "xterm");
    let mut terminal = OnTerminal::start(command, 60, 24);
    terminal.wait_seen("later      stopped");
    assert_eq!(env.run(&["start", "later"]).code, Some(0));
    terminal.wait_seen("later      ready");
    let tables = terminal.seen().iter().filter(|line| line.starts_with("NAME")).count();
    assert_eq!(tables, 1, "in place: {:?}", terminal.seen());
    for line in terminal.seen() {
        assert!(line.chars().count() <= 60, "{line}");
    }
    // Where nobody can draw, one table follows the other.
    let mut plain = env.start(&["status", "web", "--watch", "0.1"]);
    plain.wait_stdout("name        web", 2);
    terminal.signal(Signal::SIGINT);
    plain.signal(Signal::SIGINT);
    assert_eq!((terminal.wait().code(), plain.wait().code()), (Some(0), Some(0)));
    up.signal(Signal::SIGTERM);
    env.assert_nothing_left();
}

#[test]
fn a_terminal_that_is_paused_holds_nothing_up() {
    let env = TestEnv::new();
    env.write(
        "afresh.toml",
        &format!(
            "[service.web]\ncommand = [{HOSTILE:?}, \"idle\"]\ndelay = \"0s\"\n\
             [service.noise]\ncommand = [{HOSTILE:?}, \"count\", \"1\"]\n"
        ),
    );
    let mut terminal = OnTerminal::start(up(&env, &[]), 60, 24);
    terminal.wait_seen("web    ready");
    // Ctrl+S: nothing is taken from us any more.
    terminal.press("\u{13}");
    let pid = || {
        let told = env.run(&["status", "web", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&told.stdout).unwrap_or_default();
        all[0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    };
    for _ in 0..3 {
        let old = pid().expect("it answers, and it runs");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(old), Signal::SIGKILL).expect("it runs");
        wait_for("a new one", || pid().is_some_and(|new| new != old));
    }
    end(&env, terminal);
}

#[test]
fn plain_lines_are_not_obeyed_on_a_terminal_and_left_alone_in_a_pipe() {
    let env = TestEnv::new();
    define(&env);
    let mut command = env.afresh(&["up", "--plain"]);
    command.env("TERM", "xterm");
    let terminal = OnTerminal::start(command, 60, 24);
    terminal.wait_seen("hostile | ␛[2J␛[9Agone red");
    assert!(terminal.raw().contains("\u{1b}[31mred\u{1b}[0m"), "colours stay, and end");
    end(&env, terminal);
    let mut piped = env.start(&["up"]);
    piped.wait_stdout("hostile | \u{1b}[2J\u{1b}[9Agone \u{1b}[31mred\n", 1);
    crate::stop(&env, &mut piped);
}

#[test]
fn states_are_seen_beside_long_names_on_a_narrow_terminal() {
    let env = TestEnv::new();
    let name = "twenty-letters-long-";
    env.write("afresh.toml", &format!("[service.{name}]\ncommand = [{HOSTILE:?}, \"idle\"]\n"));
    let terminal = OnTerminal::start(up(&env, &[]), 20, 24);
    terminal.wait_seen("twenty-lette…  ready");
    let mut command = env.afresh(&["status"]);
    command.env("TERM", "xterm");
    let mut status = OnTerminal::start(command, 20, 24);
    assert_eq!(status.wait().code(), Some(0));
    assert!(status.raw().contains("twenty-lette…  "), "{:?}", status.raw());
    assert!(env.run(&["status"]).stdout.contains(name), "in a pipe names are whole");
    end(&env, terminal);
}
