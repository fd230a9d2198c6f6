//! The logs of services on disk.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use afresh_core::control::LogStream;
use afresh_core::log_line::{LogHead, parse_file_head};
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::{HOSTILE, stop};

/// Small files, all of which are kept.
const SMALL: [&str; 5] = ["--log", "--log-size", "64KiB", "--log-files", "1000"];

fn keep_log(name: &str, flags: &[&str], command: &[&str]) -> Vec<String> {
    let words = [&["keep", "--name", name, "--policy", "never"], flags, &["--"], command].concat();
    words.into_iter().map(str::to_owned).collect()
}

fn run(env: &TestEnv, name: &str, flags: &[&str], command: &[&str]) -> afresh_tests::Finished {
    let words = keep_log(name, flags, command);
    env.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn start(env: &TestEnv, name: &str, flags: &[&str], command: &[&str]) -> Running {
    let words = keep_log(name, flags, command);
    env.start(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn log(env: &TestEnv, name: &str) -> PathBuf {
    env.work().join(format!(".afresh/logs/{name}.log"))
}

/// The files of a log, oldest first.
fn files(env: &TestEnv, name: &str) -> Vec<PathBuf> {
    let newest = log(env, name);
    let rotated = (1..).map(|n| PathBuf::from(format!("{}.{n}", newest.display())));
    let mut files: Vec<PathBuf> = rotated.take_while(|path| path.exists()).collect();
    files.reverse();
    files.push(newest);
    files
}

/// Every line of a log. Panics at one that is torn or none, and where a file is missing.
fn lines(env: &TestEnv, name: &str) -> Vec<(LogHead, Vec<u8>)> {
    let mut found = Vec::new();
    for (number, path) in (1..).zip(files(env, name)) {
        let bytes = fs::read(&path).expect("a file of the log");
        assert_eq!(bytes.last(), Some(&b'\n'), "{path:?}");
        let mut lines = bytes[..bytes.len() - 1].split(|byte| *byte == b'\n');
        assert_eq!(lines.next().and_then(parse_file_head), Some(number), "{path:?}");
        found.extend(lines.map(|line| {
            let (head, text) = LogHead::parse(line).expect("a line of the log");
            (head, text.to_vec())
        }));
    }
    found
}

/// What was written to a stream.
fn written(env: &TestEnv, name: &str, stream: LogStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (head, text) in lines(env, name) {
        if head.stream == stream {
            bytes.extend_from_slice(&text);
            bytes.extend(if head.continues { None } else { Some(b'\n') });
        }
    }
    bytes
}

fn flood(lines: u32) -> String {
    (0..lines).map(|line| format!("line {line}\n")).collect()
}

#[test]
fn a_burst_that_ends_in_sigkill_is_whole_and_in_order_over_rotations() {
    let env = TestEnv::new();
    let command = [HOSTILE, "flood", "stdout", "100000"];
    let done = run(&env, "web", &SMALL, &command);
    assert_eq!(done.code, Some(137), "{}", done.stderr);
    assert!(written(&env, "web", LogStream::Stdout) == flood(100_000).as_bytes());
    assert!(files(&env, "web").len() > 20);
    let own: Vec<String> = lines(&env, "web")
        .into_iter()
        .filter(|(head, _)| head.stream == LogStream::Afresh)
        .map(|(_, text)| String::from_utf8(text).expect("text"))
        .collect();
    assert!(own[0].starts_with("web started (pid "), "{own:?}");
    assert!(own[1].contains("ended by signal 9"), "its last words come before: {own:?}");
    env.assert_nothing_left();
}

#[test]
fn what_was_written_before_a_kill_from_outside_is_in_the_log() {
    let env = TestEnv::new();
    let mut afresh = start(&env, "web", &SMALL, &[HOSTILE, "flood", "stdout", "100000000"]);
    let pid = env.wait_for_pid("server_started", 1);
    wait_for("some rotations", || files(&env, "web").len() > 5);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
    assert_eq!(afresh.wait().code(), Some(137));
    env.assert_nothing_left();
    let mut log = written(&env, "web", LogStream::Stdout);
    // A last line that the kill cut in two has an end in the log.
    if !afresh.stdout().ends_with('\n') {
        assert_eq!(log.pop(), Some(b'\n'));
    }
    let passed = afresh.stdout();
    assert!(log == passed.as_bytes(), "{} bytes, not {}", log.len(), passed.len());
    assert!(flood(10_000).starts_with(&String::from_utf8_lossy(&log[..10_000]).into_owned()));
}

#[test]
fn both_streams_binary_and_endless_lines_are_kept_exactly() {
    let env = TestEnv::new();
    let script = r#"
        "$0" flood stderr 20000 &
        printf '\377\000\001\r\n\n'
        head -c 1048576 /dev/zero | tr '\0' x; echo
        head -c 300000 /dev/urandom > random; cat random; printf '\nend'
        wait"#;
    let done = run(&env, "web", &SMALL, &["sh", "-c", script, HOSTILE]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let random = fs::read(env.work().join("random")).expect("the script made it");
    let wanted =
        [b"\xff\x00\x01\r\n\n", &vec![b'x'; 1 << 20][..], b"\n", &random, b"\nend\n"].concat();
    assert!(written(&env, "web", LogStream::Stdout) == wanted);
    assert!(written(&env, "web", LogStream::Stderr) == flood(20_000).as_bytes());
    assert!(lines(&env, "web").iter().all(|(_, text)| text.len() <= 64 * 1024));
    env.assert_nothing_left();
}

#[test]
fn a_full_disk_stops_nothing_and_is_said_in_the_log() {
    let env = TestEnv::new();
    // No file may be larger than 32 KiB, as if the disk were full then. Nothing of the kind holds for the
    // trail, which stays small.
    let afresh = afresh_tests::afresh_binary().display();
    let service = r#"i=0; while [ ! -e full ]; do echo "a line of some length, $i"; i=$((i+1)); done
        while [ ! -e done ]; do echo more; sleep 0.05; done; echo last"#;
    env.write("service", service);
    let script = format!(
        "trap '' XFSZ; ulimit -S -f 64; exec {afresh} keep --log --policy never --name web -- sh service"
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]);
    env.furnish(&mut shell);
    let mut afresh = Running::start(shell);
    afresh.wait_stderr("web.log` cannot be written: cannot append to it: File too large", 1);
    env.write("full", "");
    afresh.wait_stdout("more", 3);
    let pid = afresh.pid().to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
    assert!(raised.expect("util-linux has it").success());
    afresh.wait_stderr("is written again, and lacks", 1);
    env.write("done", "");
    assert_eq!(afresh.wait().code(), Some(0));
    assert_eq!(afresh.stderr().matches("cannot be written").count(), 1, "{}", afresh.stderr());

    let found = lines(&env, "web");
    let texts: Vec<String> =
        found.iter().map(|(_, text)| String::from_utf8_lossy(text).into_owned()).collect();
    let note = texts.iter().find_map(|text| text.strip_prefix('[')).expect("a note");
    let lost: usize = note.split(' ').next().and_then(|n| n.parse().ok()).expect("a count");
    let passed = afresh.stdout();
    let kept = found.iter().filter(|(head, _)| head.stream == LogStream::Stdout).count();
    // What afresh says about the service may be lost too.
    let total = passed.lines().count();
    assert!(kept + lost >= total && kept + lost <= total + 3, "{kept} + {lost}, of {total}");
    assert!(texts.contains(&"last".to_owned()), "{note}");
    env.assert_nothing_left();
}

#[test]
fn a_folder_that_is_removed_is_made_again_and_nothing_is_said() {
    let env = TestEnv::new();
    let script = "while read line; do echo \"got $line\"; done";
    let mut afresh = start(&env, "web", &["--log"], &["sh", "-c", script]);
    for round in 0..3 {
        afresh.write(&format!("{round}\n"));
        let text = format!(" stdout 1 got {round}\n");
        wait_for("the line is in the log", || {
            fs::read_to_string(log(&env, "web")).is_ok_and(|log| log.contains(&text))
        });
        fs::remove_dir_all(env.work().join(".afresh/logs")).expect("it is ours");
    }
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(!afresh.stderr().contains("log:"), "{}", afresh.stderr());
    assert!(env.run(&["logs", "web"]).stdout.contains("has finished"));
    env.assert_nothing_left();
}

#[test]
fn two_readers_follow_over_rotations_and_a_kill_of_afresh() {
    const LINES: u32 = 30_000;
    let env = TestEnv::new();
    let script = format!("echo ready; read go; seq 0 {}; read end", LINES - 1);
    let mut afresh = start(&env, "web", &SMALL, &["sh", "-c", &script]);
    wait_for("the log begins", || log(&env, "web").exists());
    let mut readers = [
        env.start(&["logs", "-f", "--stream", "stdout", "--json"]),
        env.start(&["logs", "web", "-f"]),
    ];
    // Whoever begins later gets only the last lines.
    readers.iter().for_each(|reader| reader.wait_stdout("ready", 1));
    afresh.write("go\n");
    let last = format!("{}", LINES - 1);
    readers[0].wait_stdout(&format!("\"text\":\"{last}\""), 1);
    readers[1].wait_stdout(&format!(" stdout {last}\n"), 1);
    let numbers = |text: String, number: &dyn Fn(&str) -> Option<u32>| {
        text.lines().filter_map(number).collect::<Vec<u32>>()
    };
    let as_json = numbers(readers[0].stdout(), &|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["text"].as_str()?.parse().ok()
    });
    let as_text = numbers(readers[1].stdout(), &|line| {
        line.split_once(" stdout ").and_then(|(_, number)| number.parse().ok())
    });
    for seen in [as_json, as_text] {
        let first = seen.iter().zip(0..).find(|(seen, number)| *seen != number);
        assert!(seen.iter().copied().eq(0..LINES), "{} lines; wrong: {first:?}", seen.len());
    }
    assert!(files(&env, "web").len() > 5);

    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    readers.iter().for_each(|reader| reader.signal(Signal::SIGINT));
    for reader in &mut readers {
        reader.wait();
    }
    env.assert_nothing_left();
    // After the end of it all, the log is still there.
    let dead = env.run(&["logs", "--since", "1h", "--grep", "started (pid"]);
    assert_eq!((dead.code, dead.stdout.lines().count()), (Some(0), 1), "{dead:?}");
    // The next one goes on with the same log, also after a line that was torn.
    let newest = log(&env, "web");
    let mut torn = fs::read(&newest).expect("it is there");
    torn.extend_from_slice(b"2026-01-01T00:00:00.000Z stdout 1 to");
    fs::write(&newest, torn).expect("it is ours");
    run(&env, "web", &SMALL, &["echo", "next"]);
    let text = fs::read_to_string(&newest).expect("text");
    assert!(text.contains(" stdout 1 to\n") && text.contains("was torn"), "{text}");
    assert!(text.contains(" stdout 1 next\n"), "{text}");
    env.assert_nothing_left();
}

#[test]
fn a_second_afresh_leaves_the_log_to_the_first() {
    let env = TestEnv::new();
    let mut first = start(&env, "web", &["--log"], &[HOSTILE, "idle"]);
    first.wait_stdout("ready", 1);
    wait_for("the log begins", || {
        fs::read_to_string(log(&env, "web")).is_ok_and(|log| log.contains("ready"))
    });
    let second = run(&env, "web", &["--log"], &["echo", "me too"]);
    assert_eq!((second.code, second.stdout.as_str()), (Some(0), "me too\n"));
    assert!(second.stderr.contains("another afresh writes it"), "{}", second.stderr);
    assert!(!env.run(&["logs", "web"]).stdout.contains("me too"));
    stop(&env, &mut first);
}

#[test]
fn what_is_on_disk_and_what_is_remembered_are_shown_together() {
    let env = TestEnv::new();
    let mut on_disk = start(&env, "disk", &["--log"], &[HOSTILE, "idle"]);
    let mut remembered = start(&env, "memory", &[], &[HOSTILE, "idle"]);
    on_disk.wait_stdout("ready", 1);
    remembered.wait_stdout("ready", 1);
    let mut all = String::new();
    wait_for("both are shown", || {
        all = env.run(&["logs", "--stream", "stdout"]).stdout;
        all.contains(" disk   stdout ready ") && all.contains(" memory stdout ready ")
    });
    let mut follow = env.start(&["logs", "-f"]);
    follow.wait_stdout("ready", 2);
    assert_eq!(env.run(&["restart", "disk"]).code, Some(0));
    assert_eq!(env.run(&["restart", "memory"]).code, Some(0));
    follow.wait_stdout(" disk   stdout ready ", 2);
    follow.wait_stdout(" memory stdout ready ", 2);
    // The end of one that is only remembered does not end the other.
    remembered.signal(Signal::SIGTERM);
    remembered.wait();
    assert_eq!(env.run(&["restart", "disk"]).code, Some(0));
    follow.wait_stdout(" disk   stdout ready ", 3);
    follow.signal(Signal::SIGINT);
    assert_eq!(follow.wait().code(), Some(0), "{}", follow.stderr());
    stop(&env, &mut on_disk);
}
