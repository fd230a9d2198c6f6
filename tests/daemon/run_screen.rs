//! The live view of `afresh run`, on a real terminal, with scripts for agents.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use afresh_tests::terminal::OnTerminal;
use afresh_tests::{TestEnv, wait_for};
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, Termios};

const PLAN: &str = "# A \u{1b}[2J plan\n\n## Phase: One\n\nWrite one.\n\n- Gate: test -f one\n\n## Phase: Two\n\nWrite two.\n\n\
                    - Gates: none\n";

/// An agent that speaks as Claude Code does, works until it is told `finish`, and notes what it is told.
const CLAUDE: &str = r#"
while read -r line; do
    case $line in
        *get_context_usage*)
            answer='{"model":"fake-model","totalTokens":84000,"maxTokens":200000}'
            echo '{"type":"control_response","response":{"subtype":"success","request_id":"get_context_usage-1","response":'"$answer"'}}' ;;
        *'"subtype":"interrupt"'*)
            echo interrupted >> told
            echo '{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}' ;;
        *'"type":"user"'*)
            printf '%s\n' "$line" >> told
            echo '{"type":"assistant","message":{"id":"m","model":"fake-model","content":[{"type":"text","text":"I \u001b[2J work \u6f22"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"make all"}}]}}'
            case $line in *finish*)
                touch one
                echo '{"type":"result","subtype":"success","is_error":false,"result":"All done."}' ;;
            esac ;;
    esac
done
"#;

fn prepare() -> TestEnv {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    env.write("claude.sh", CLAUDE);
    env
}

fn run(env: &TestEnv, further: &[&str]) -> Command {
    let words = ["run", "--no-git", "--agent", "claude", "--agent-command", "sh claude.sh"];
    let mut command = env.afresh(&[&words, further].concat());
    command.env("TERM", "xterm");
    command
}

fn told(env: &TestEnv) -> String {
    fs::read_to_string(env.work().join("told")).unwrap_or_default()
}

/// Whether what is typed comes line by line, and is seen, as a shell wants it.
fn is_usual(modes: &Termios) -> bool {
    modes.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
}

/// Nothing of the view is left on the terminal.
#[track_caller]
fn assert_restored(terminal: &OnTerminal) {
    // Only the cursor is shown.
    let is_left = || terminal.grid().modes.iter().eq(["25"]);
    wait_for("the view is gone", || is_usual(&terminal.modes()) && is_left());
}

#[test]
fn a_run_is_seen_and_keys_steer_it() {
    let env = prepare();
    let mut terminal = OnTerminal::start(run(&env, &[]), 100, 30);
    for text in [
        "A ␛[2J plan",
        "run 1 · claude · fake-model",
        "working · phase 1 of 2 · session 1",
        "42 % (84,000 of 200,000)",
        "▶ at work  One",
        "· waiting  Two",
        "· waiting  test -f one",
        "tool 1: Bash make all",
        "I ␛[2J work 漢",
        "p pause",
    ] {
        terminal.wait_drawn(text);
    }
    assert!(!is_usual(&terminal.modes()), "keys come as they are pressed");
    terminal.press("suse tapX\u{7f}\u{1b}[D\u{1b}[3~bs");
    terminal.wait_drawn("use tabs");
    // What is pasted is one line, and no key.
    terminal.press("\u{1b}[200~, please\rq\u{1b}[201~");
    terminal.wait_drawn("use tabs, please q");
    terminal.press("\r");
    wait_for("the agent is told", || told(&env).contains("\"use tabs, please q\""));
    terminal.wait_drawn("the agent is told: use tabs");
    terminal.press("p");
    terminal.wait_drawn("paused · phase 1 of 2");
    assert!(told(&env).contains("interrupted"));
    terminal.press("p");
    terminal.wait_drawn("working · phase 1");
    // Who gives up says nothing, and who does not mean it skips nothing.
    terminal.press("snot this");
    terminal.wait_drawn("not this");
    terminal.press("\u{1b}");
    terminal.wait_drawn("p pause");
    terminal.press("k");
    terminal.wait_drawn("(y/n)");
    terminal.press("n");
    terminal.wait_drawn("p pause");
    terminal.press("sfinish\r");
    terminal.wait_drawn("✓ done     One");
    terminal.wait_drawn("working · phase 2 of 2 · session 2");
    terminal.press("k");
    terminal.wait_drawn("go on with the next? (y/n)");
    terminal.press("y");
    assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
    assert_restored(&terminal);
    let usual = terminal.grid().usual;
    let over = "run 1 is over, but not done: 1 of 2 phases done, 1 skipped";
    for line in ["done: One (", "skipped: Two", "1 of 2 phases are done", over] {
        assert!(usual.contains(line), "no `{line}` is left:\n{usual}");
    }
    assert!(!told(&env).contains("not this"));
    let runs = env.afresh(&["runs"]).output().unwrap();
    assert!(String::from_utf8_lossy(&runs.stdout).contains(" skipped "), "{runs:?}");
    env.assert_nothing_left();
}

#[test]
fn the_terminal_is_as_it_was_however_the_run_ends() {
    let signals = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT].map(Some);
    let ends = [("qy", None), ("\u{3}", None)].into_iter().chain(signals.map(|it| ("", it)));
    for (keys, signal) in ends {
        let env = prepare();
        let mut terminal = OnTerminal::start(run(&env, &[]), 80, 24);
        terminal.wait_drawn("working · phase 1");
        terminal.press(keys);
        signal.into_iter().for_each(|signal| terminal.signal(signal));
        assert_eq!(terminal.wait().code(), Some(1), "{keys:?} {signal:?}: {}", terminal.raw());
        assert_restored(&terminal);
        let usual = terminal.grid().usual;
        for line in ["0 of 2 phases are done", "run 1 has stopped", " --resume` goes on"] {
            assert!(usual.contains(line), "no `{line}` is left:\n{usual}");
        }
        env.assert_nothing_left();
    }
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let env = prepare();
    // It hears neither that it should end nor SIGTERM.
    env.write("claude.sh", &format!("trap '' TERM\n{CLAUDE}\nwhile :; do sleep 1000 & wait; done"));
    let mut terminal = OnTerminal::start(run(&env, &[]), 80, 24);
    terminal.wait_drawn("working · phase 1");
    terminal.press("\u{3}");
    terminal.wait_drawn("Ctrl+C again is faster");
    terminal.press("\u{3}\u{3}");
    assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
    assert_restored(&terminal);
    env.assert_nothing_left();
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_takes_it_again() {
    let env = prepare();
    let mut command = run(&env, &[]);
    // As a shell starts jobs.
    command.process_group(0);
    let mut terminal = OnTerminal::start(command, 80, 24);
    terminal.wait_drawn("working · phase 1");
    for by_key in [true, false] {
        if by_key {
            terminal.press("\u{1a}");
        } else {
            terminal.signal(Signal::SIGTSTP);
        }
        terminal.wait_stopped();
        assert_restored(&terminal);
        let group = nix::unistd::Pid::from_raw(terminal.pid());
        nix::sys::signal::killpg(group, Signal::SIGCONT).expect("it is stopped");
        terminal.wait_drawn("working · phase 1");
        wait_for("keys come as they are pressed", || !is_usual(&terminal.modes()));
    }
    terminal.press("sfinish\r");
    terminal.wait_drawn("✓ done     One");
    terminal.press("qy");
    assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
    assert_restored(&terminal);
    env.assert_nothing_left();
}

/// Starts a command on a terminal that nobody reads from, and that no other process holds.
fn on_unread_terminal(mut command: Command) -> (Child, PtyMaster) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let terminal = posix_openpt(flags).expect("a terminal can be made");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it is ours");
    let name = ptsname_r(&terminal).expect("it has a name");
    let stream = || {
        let flags = OFlag::O_NOCTTY.bits();
        File::options().read(true).write(true).custom_flags(flags).open(&name).expect("it is there")
    };
    let sized = Command::new("stty").args(["cols", "200", "rows", "50"]).stdin(stream()).status();
    assert!(sized.expect("stty is there").success());
    command.stdin(stream()).stdout(stream()).stderr(stream());
    (command.spawn().expect("it starts"), terminal)
}

#[test]
fn a_terminal_that_does_not_read_holds_nothing_up() {
    let env = prepare();
    // More than any terminal takes unread, and long enough for many drawings.
    let agent = "cat > /dev/null\nfor i in 1 2 3 4 5 6 7 8 9; do\n  seq -f \"$i%0120g\" 60\n  \
                 sleep 0.15\ndone\ntouch one";
    env.write("agent.sh", agent);
    let words = ["run", "--no-git", "--agent", "command", "--agent-command", "sh agent.sh"];
    let mut command = env.afresh(&words);
    command.env("TERM", "xterm");
    let (mut child, terminal) = on_unread_terminal(command);
    let mut status = None;
    wait_for("the run ends", || {
        status = child.try_wait().expect("our child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    let modes = nix::sys::termios::tcgetattr(&terminal).expect("a terminal");
    assert!(is_usual(&modes), "{modes:?}");
    assert!(env.run(&["runs", "show"]).stdout.contains("done"), "all was done");
    env.assert_nothing_left();
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_is_gone_is_left_alone_and_the_run_goes_on() {
    let env = prepare();
    env.write(
        "agent.sh",
        "cat > /dev/null\ntouch begun one\nwhile [ ! -e go ]; do sleep 0.1; done\necho done",
    );
    let words = ["run", "--no-git", "--agent", "command", "--agent-command", "sh agent.sh"];
    let mut command = env.afresh(&words);
    command.env("TERM", "xterm");
    let (mut child, terminal) = on_unread_terminal(command);
    wait_for("the agent works", || env.work().join("begun").exists());
    drop(terminal);
    // One that reads from it all the same would find nothing, again and again.
    let tasks = format!("/proc/{}/task", child.id());
    let has_thread = |name: &str| {
        let tasks = fs::read_dir(&tasks).expect("it runs").flatten();
        let names =
            tasks.map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
        names.into_iter().any(|thread| thread.trim_end() == name)
    };
    wait_for("nobody listens for keys", || !has_thread("keys"));
    wait_for("nobody draws", || !has_thread("screen"));
    env.write("go", "");
    assert_eq!(child.wait().expect("our child").code(), Some(0));
    assert!(env.run(&["runs"]).stdout.contains("done"), "all was done");
    env.assert_nothing_left();
}

#[cfg(target_os = "linux")]
#[test]
fn more_than_anybody_types_at_once_leaves_the_keys_as_they_were() {
    let env = prepare();
    let mut terminal = OnTerminal::start(run(&env, &[]), 80, 24);
    terminal.wait_drawn("working · phase 1");
    terminal.press("s");
    // More than a terminal holds, and more than is read from it at once.
    terminal.press(&"x".repeat(5_000));
    terminal.press("\u{1b}");
    terminal.wait_drawn("p pause");
    let stat = fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).expect("it runs");
    let ticks = afresh_tests::measure::ticks(&stat);
    assert!(ticks < 200, "it has used {ticks} ticks of a processor");
    terminal.press("\u{3}");
    assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
    assert_restored(&terminal);
    env.assert_nothing_left();
}

#[test]
fn a_terminal_of_any_size_will_do_and_may_change_it() {
    let env = prepare();
    for (columns, rows) in [(20, 5), (1, 1), (3, 2)] {
        let mut terminal = OnTerminal::start(run(&env, &[]), columns, rows);
        wait_for("the agent is told", || told(&env).contains("Write one"));
        wait_for("something is drawn", || terminal.grid().is_drawn());
        if columns == 20 {
            terminal.wait_drawn("▶ One");
            terminal.resize(100, 30);
            terminal.wait_drawn("run 1 · claude · fake-model");
            terminal.resize(2, 1);
            terminal.resize(80, 24);
            terminal.wait_drawn("▶ at work  One");
        }
        terminal.signal(Signal::SIGTERM);
        assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
        assert_restored(&terminal);
        fs::remove_file(env.work().join("told")).expect("it was told");
    }
    env.assert_nothing_left();
}

#[test]
fn who_wants_plain_lines_gets_them_and_who_wants_no_colours_none() {
    for (further, variable) in [(&["--plain"][..], ("X", "")), (&[], ("TERM", "dumb"))] {
        let env = prepare();
        let mut command = run(&env, further);
        command.env(variable.0, variable.1);
        let mut terminal = OnTerminal::start(command, 80, 24);
        wait_for("a line", || terminal.raw().contains("> Bash make all"));
        assert!(is_usual(&terminal.modes()) && !terminal.raw().contains("\u{1b}[?"));
        terminal.press("\u{3}");
        terminal.signal(Signal::SIGINT);
        assert_eq!(terminal.wait().code(), Some(1), "{}", terminal.raw());
    }
    let env = prepare();
    let mut command = run(&env, &[]);
    command.env("NO_COLOR", "1");
    let mut terminal = OnTerminal::start(command, 80, 24);
    terminal.wait_drawn("▶ at work  One");
    terminal.signal(Signal::SIGTERM);
    terminal.wait();
    let raw = terminal.raw();
    for colour in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[32m", "\u{1b}[38;5;2m"] {
        assert!(!raw.contains(colour), "{raw:?}");
    }
}
