//! What the service prints and reads.

use std::process::Stdio;

use afresh_tests::terminal::OnTerminal;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::{AT_ONCE, HOSTILE, keep, stop};

const LINES: usize = 100_000;

fn assert_complete(text: &str) {
    let numbers = text.lines().filter_map(|line| line.strip_prefix("line "));
    let numbers: Vec<usize> = numbers.map(|n| n.parse().expect("a whole line")).collect();
    assert_eq!(numbers.len(), LINES);
    assert!(numbers.iter().enumerate().all(|(n, number)| n == *number), "in order");
}

#[test]
fn a_flood_on_stdout_arrives_whole_and_in_order_though_its_writer_is_killed() {
    let env = TestEnv::new();
    let done = env.run(&["keep", "--policy", "never", "--", HOSTILE, "flood", "stdout", "100000"]);
    assert_eq!(done.code, Some(137));
    assert_complete(&done.stdout);
    env.assert_nothing_left();
}

#[test]
fn a_flood_on_stderr_arrives_whole_and_the_log_stays_readable() {
    let env = TestEnv::new();
    let done = env.run(&["keep", "--policy", "never", "--", HOSTILE, "flood", "stderr", "100000"]);
    assert_eq!(done.code, Some(137));
    assert_complete(&done.stderr);
    let log: Vec<&str> = done.stderr.lines().filter(|line| !line.starts_with("line ")).collect();
    assert!(log.iter().all(|line| line.contains("[SUPERVISOR]")), "{log:?}");
    assert!(log[2].contains("ended by signal 9"), "its last words come before the log: {log:?}");
    env.assert_nothing_left();
}

#[test]
fn a_flood_that_nobody_reads_holds_up_nobody_but_its_writer() {
    let env = TestEnv::new();
    let arguments = ["keep", "--stop-timeout", "200ms", "--", HOSTILE, "flood", "stderr", "100000"];
    let mut command = env.afresh(&arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut afresh = command.spawn().expect("it starts");
    wait_for("it runs", || !env.events("server_started").is_empty());
    // Nothing is read from its stderr, and still it stops.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(afresh.id().cast_signed()), Signal::SIGTERM)
        .expect("it runs");
    let mut status = None;
    wait_for("it ends", || {
        status = afresh.try_wait().expect("our child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(0));
    env.assert_nothing_left();
}

#[test]
fn half_a_line_does_not_swallow_the_log() {
    let env = TestEnv::new();
    let done = env.run(&["keep", "--policy", "never", "--", HOSTILE, "half-line"]);
    assert!(done.stderr.contains("\nhalf a line\n["), "{}", done.stderr);
    env.assert_nothing_left();
}

#[test]
fn stdin_reaches_the_instance_of_the_moment() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &AT_ONCE, &["echo-once"]);
    for round in 1..=5 {
        afresh.wait_stdout("ready", round);
        afresh.write(&format!("hello {round}\n"));
        afresh.wait_stdout(&format!("{round}: hello {round}"), 1);
    }
    stop(&env, &mut afresh);
}

#[test]
fn the_end_of_our_input_is_the_end_of_theirs() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["echo"]);
    afresh.write("one\ntwo\n");
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(afresh.stdout().contains("1: one\n1: two\nend of input"), "{}", afresh.stdout());
    env.assert_nothing_left();
}

#[test]
fn a_reader_who_leaves_ends_it_quietly() {
    let env = TestEnv::new();
    let mut shell = std::process::Command::new("sh");
    let afresh = afresh_tests::afresh_binary().display();
    let script = format!("{afresh} keep -- {HOSTILE} flood stdout 100000000 | head -n 1");
    shell.args(["-c", &script]);
    env.furnish(&mut shell);
    let mut shell = Running::start(shell);
    assert_eq!(shell.wait().code(), Some(0));
    env.assert_nothing_left();
    assert_eq!(shell.stdout(), "line 0\n");
}

#[test]
fn five_hundred_copies_start_and_stop_together() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--copies", "500"], &["idle"]);
    afresh.wait_stdout("ready", 500);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert_eq!(env.events("server_started").len(), 500);
    env.assert_nothing_left();
}

#[test]
fn copies_mark_their_lines() {
    let env = TestEnv::new();
    let flags = ["--copies", "3", "--name", "worker"];
    let mut afresh = keep(&env, &flags, &["idle"]);
    afresh.wait_stdout("ready", 3);
    for copy in 0..3 {
        assert!(
            afresh.stdout().contains(&format!("worker-{copy} | ready ")),
            "{}",
            afresh.stdout()
        );
    }
    stop(&env, &mut afresh);
}

#[test]
fn a_slow_reader_gets_everything() {
    let env = TestEnv::new();
    // As much as pipes and queue hold in any case, however small the pieces are in which it comes.
    let arguments = ["keep", "--", "seq", "1", "40000"];
    let mut command = env.afresh(&arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut afresh = command.spawn().expect("it starts");
    // Nothing is read before the command itself is long gone.
    wait_for("the command has ended", || !env.events("server_stopped").is_empty());
    let mut text = String::new();
    let mut stdout = afresh.stdout.take().expect("it is piped");
    std::io::Read::read_to_string(&mut stdout, &mut text).expect("text");
    assert_eq!(text.lines().count(), 40_000);
    assert!(afresh.wait().expect("our child").success());
    env.assert_nothing_left();
}

#[test]
fn output_that_cannot_be_written_is_said_and_stops_nothing() {
    let env = TestEnv::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let arguments = ["keep", "--policy", "never", "--", "sh", "-c", "echo x; sleep 0.1; exit 3"];
    let mut command = env.afresh(&arguments);
    command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let done = command.output().expect("it runs");
    let log = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{log}");
    assert!(log.contains("2 bytes of output could not be written: No space left"), "{log}");
    env.assert_nothing_left();
}

#[test]
fn a_stdin_that_does_not_block_is_read_all_the_same() {
    let env = TestEnv::new();
    let (reader, mut writer) = std::io::pipe().expect("a pipe can be made");
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(&reader, flags).expect("it is ours");
    let mut command = env.afresh(&["keep", "--", "cat"]);
    command.stdin(reader).stdout(Stdio::piped()).stderr(Stdio::null());
    let afresh = command.spawn().expect("it starts");
    wait_for("it runs", || !env.events("server_started").is_empty());
    std::io::Write::write_all(&mut writer, b"hello\n").expect("somebody reads");
    drop((writer, command));
    let done = afresh.wait_with_output().expect("our child");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "hello\n");
    env.assert_nothing_left();
}

/// Sets a title, asks for a report, writes to the clipboard, turns the direction of writing; and colours a word.
const HOSTILE_LINE: &str = "printf 'A\\033]0;title\\007B\\033[6nC\\033]52;c;eA==\\033\\\\D\\302\\2332JE\\342\\200\\256F \\033[31mred\\033[0m\\n'";
const AS_TEXT: &str = "␛]0;titleXB␛[6nC␛]52;c;eA==␛\\D�2JE�F \u{1b}[31mred\u{1b}[0m";

/// The line as it is seen, up to the bell.
fn assert_harmless(raw: &str, bell: &str) {
    let wanted = AS_TEXT.replace('X', bell);
    assert!(raw.contains(&wanted), "{raw:?}");
    for sequence in ["\u{1b}]", "\u{1b}[6n", "\u{9b}", "\u{202e}"] {
        assert!(!raw.contains(sequence), "{sequence:?} in {raw:?}");
    }
}

#[test]
fn a_kept_command_cannot_attack_the_terminal_and_keeps_colours_and_moves() {
    let env = TestEnv::new();
    // Both streams; a move, and a prompt without an end, which is seen at once.
    let script = format!(
        "{HOSTILE_LINE}; {HOSTILE_LINE} >&2; printf '1 %%\\r\\033[2K2 %%\\033[1A\\nname? '; read name"
    );
    let keep = ["keep", "--policy", "never", "--", "sh", "-c", &script];
    let mut terminal = OnTerminal::start(env.afresh(&keep), 80, 24);
    wait_for("it asks", || terminal.raw().contains("name? "));
    terminal.press("x\n");
    assert_eq!(terminal.wait().code(), Some(0), "{:?}", terminal.raw());
    let raw = terminal.raw();
    assert_harmless(&raw, "\u{7}");
    assert_eq!(raw.matches("␛]0;title").count(), 2, "{raw:?}");
    assert!(raw.contains("1 %\r\u{1b}[2K2 %\u{1b}[1A"), "{raw:?}");
    env.assert_nothing_left();
    // Copies share it by lines.
    let keep = ["keep", "--policy", "never", "--copies", "2", "--", "sh", "-c", HOSTILE_LINE];
    let mut terminal = OnTerminal::start(env.afresh(&keep), 80, 24);
    assert_eq!(terminal.wait().code(), Some(0), "{:?}", terminal.raw());
    assert_harmless(&terminal.raw(), "␇");
    env.assert_nothing_left();
}

#[test]
fn a_pipe_gets_the_bytes_of_a_kept_command_as_they_are() {
    let env = TestEnv::new();
    let script = format!("{HOSTILE_LINE}; {HOSTILE_LINE} >&2");
    let done = env.run(&["keep", "--policy", "never", "--", "sh", "-c", &script]);
    let line = "A\u{1b}]0;title\u{7}B\u{1b}[6nC\u{1b}]52;c;eA==\u{1b}\\D\u{9b}2JE\u{202e}F \u{1b}[31mred\u{1b}[0m\n";
    assert_eq!(done.stdout, line);
    assert!(done.stderr.contains(line), "{:?}", done.stderr);
}

#[test]
fn mcp_servers_cannot_attack_the_terminal() {
    let env = TestEnv::new();
    let script = format!("{HOSTILE_LINE} >&2; exec cat > /dev/null");
    let servers =
        serde_json::json!({"mcpServers": {"evil": {"command": "sh", "args": ["-c", script]}}});
    let file = env.write("servers.json", &servers.to_string());
    let file = file.to_str().expect("a path of ours");
    for arguments in [&["mcp", "--", "sh", "-c", &script][..], &["gateway", "--from", file]] {
        let mut terminal = OnTerminal::start(env.afresh(arguments), 80, 24);
        wait_for("the line is seen", || terminal.raw().contains("red"));
        terminal.signal(Signal::SIGTERM);
        terminal.wait();
        assert_harmless(&terminal.raw(), "␇");
        env.assert_nothing_left();
    }
}
