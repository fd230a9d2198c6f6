//! `afresh history`.

use std::fs::OpenOptions;
use std::io::Write;

use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::run_into_closed_pipe;

/// Three records of two services, and their text.
const LINES: [&str; 3] = [
    r#"{"timestamp":"2026-11-15T08:42:00.123Z","level":"INFO","logger":"afresh.keep","message":"web started (pid 7, restart 0)","props":{"event_type":"server_started","service":"web","pid":7}}"#,
    r#"{"timestamp":"2026-11-15T08:43:00.000Z","level":"WARNING","logger":"afresh.keep","message":"worker (pid 8) exited with code 3","props":{"event_type":"server_crashed","service":"worker"}}"#,
    r#"{"timestamp":"2026-11-15T08:44:00.000Z","level":"ERROR","logger":"afresh.keep","message":"Server restart requested","props":{"event_type":"server_restart_requested","service":"web","reason":"code\u001b[31m changed"}}"#,
];

const TEXT: &str = "\
2026-11-15 08:42:00.123         web  web started (pid 7, restart 0)
2026-11-15 08:43:00.000 WARNING worker  worker (pid 8) exited with code 3
2026-11-15 08:44:00.000 ERROR   web     Server restart requested (code␛[31m changed)
";

fn filled() -> TestEnv {
    let env = TestEnv::new();
    env.write(".afresh/audit.jsonl", &(LINES.join("\n") + "\n"));
    env
}

fn append(env: &TestEnv, line: &str) {
    let mut file = OpenOptions::new().append(true).open(env.audit_file()).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
fn every_record_is_one_line_for_people() {
    let env = filled();
    let history = env.run(&["history"]);
    assert_eq!((history.code, history.stdout.as_str()), (Some(0), TEXT), "{history:?}");
    assert_eq!(history.stderr, "");
}

#[test]
fn who_did_it_is_shown_unless_afresh_did() {
    let env = TestEnv::new();
    let record = |by: &str| {
        format!(
            r#"{{"timestamp":"2026-11-15T08:42:00.123Z","level":"INFO","message":"m","props":{{"service":"web","by":{by}}}}}"#
        )
    };
    let by = [
        r#"{"uid":1000,"pid":4711}"#,
        r#"{"client":"a\u001b[31mb","token":"ci","tool":"restart_server"}"#,
        r#"{"afresh":"watch"}"#,
        "7",
    ];
    let lines: Vec<String> = by.iter().map(|by| record(by)).collect();
    env.write(".afresh/audit.jsonl", &(lines.join("\n") + "\n"));
    let history = env.run(&["history"]);
    let ends: Vec<&str> =
        history.stdout.lines().map(|line| line.split("web  ").nth(1).unwrap_or(line)).collect();
    let client = "m [by client a␛[31mb, token ci, tool restart_server]";
    assert_eq!(ends, ["m [by uid 1000, pid 4711]", client, "m", "m"], "{history:?}");
}

#[test]
fn json_is_what_the_file_has() {
    let env = filled();
    let history = env.run(&["history", "--json"]);
    assert_eq!(history.stdout, LINES.join("\n") + "\n");
}

#[test]
fn filters_select() {
    let env = filled();
    let cases: [(&[&str], &[usize]); 10] = [
        (&["--service", "web"], &[0, 2]),
        (&["--event", "server_crashed"], &[1]),
        (&["--level", "warning"], &[1, 2]),
        (&["--level", "warn", "--service", "web"], &[2]),
        (&["--level", "error"], &[2]),
        (&["--limit", "1"], &[2]),
        (&["--limit", "2", "--service", "web"], &[0, 2]),
        (&["--since", "2026-11-15T08:43:00Z"], &[1, 2]),
        (&["--since", "2026-11-15T10:44:00+02:00"], &[2]),
        (&["--since", "2026-11-15"], &[0, 1, 2]),
    ];
    for (filter, wanted) in cases {
        let arguments = [&["history", "--json"], filter].concat();
        let history = env.run(&arguments);
        let wanted: Vec<&str> = wanted.iter().map(|index| LINES[*index]).collect();
        let found: Vec<&str> = history.stdout.lines().collect();
        assert_eq!(found, wanted, "{filter:?}");
    }
}

#[test]
fn what_was_kept_alive_is_in_it() {
    let env = TestEnv::new();
    let kept = env.run(&["keep", "--policy", "never", "--", "sh", "-c", "exit 3"]);
    assert_eq!(kept.code, Some(3), "{}", kept.stderr);
    let history = env.run(&["history", "--since", "1h", "--event", "server_crashed"]);
    assert_eq!(history.stdout.lines().count(), 1, "{history:?}");
    assert!(history.stdout.contains("exited with code 3"), "{}", history.stdout);
    let older = env.run(&["history", "--since", "0"]);
    assert_eq!((older.code, older.stdout.as_str()), (Some(0), ""), "{older:?}");
    env.assert_nothing_left();
}

#[test]
fn no_trail_is_no_error() {
    let env = TestEnv::new();
    let history = env.run(&["history"]);
    assert_eq!((history.code, history.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        history.stderr,
        "nothing has happened here yet: there is no trail at `.afresh/audit.jsonl`; \
         `afresh keep -- CMD` begins one\n"
    );
}

#[test]
fn damaged_lines_are_counted() {
    let env = filled();
    append(&env, "{\"half");
    append(&env, "\u{0}\u{0}");
    let history = env.run(&["history"]);
    assert_eq!((history.code, history.stdout.as_str()), (Some(0), TEXT));
    assert_eq!(history.stderr, "warning: 2 lines of the trail are damaged and were passed over\n");
}

#[test]
fn unknown_names_get_hints() {
    let env = filled();
    let history = env.run(&["history", "--event", "server_crash"]);
    assert_eq!((history.code, history.stdout.as_str()), (Some(0), ""));
    assert!(
        history.stderr.contains("hint: did you mean `server_crashed`? The types are "),
        "{}",
        history.stderr
    );
    let history = env.run(&["history", "--service", "wbe"]);
    assert_eq!(
        history.stderr,
        "no record of the trail matches\nhint: services in the trail: web, worker\n"
    );
    // Types that are known, but have not happened.
    for event_type in ["server_gave_up", "server_restart_verified"] {
        let history = env.run(&["history", "--event", event_type]);
        assert_eq!(history.stderr, "no record of the trail matches\n");
    }
}

#[test]
fn wrong_values_are_explained() {
    let env = TestEnv::new();
    for (flag, value, text) in [
        ("--since", "yesterday", "write a time such as `90s`, `1h`"),
        ("--level", "loud", "[possible values: info, warning, error]"),
        ("--limit", "ten", "invalid digit found in string"),
    ] {
        let history = env.run(&["history", flag, value]);
        assert_eq!(history.code, Some(2), "{flag} {value}");
        assert!(history.stderr.contains(text), "{}", history.stderr);
    }
}

#[test]
fn a_followed_trail_shows_new_records_until_ctrl_c() {
    let env = filled();
    let mut history = env.start(&["history", "-f", "--limit", "1", "--service", "web"]);
    history.wait_stdout("Server restart requested", 1);
    append(&env, &LINES[1].replace("worker", "other"));
    append(&env, &LINES[0].replace("started", "started anew"));
    history.wait_stdout("started anew", 1);
    assert!(!history.stdout().contains("other"), "{}", history.stdout());
    assert_eq!(history.stdout().lines().count(), 2);
    history.signal(Signal::SIGINT);
    history.wait();
    assert_eq!(history.stderr(), "");
}

#[test]
fn a_trail_can_be_followed_before_it_exists() {
    let env = TestEnv::new();
    let mut history = env.start(&["history", "--follow", "--json"]);
    history.wait_stderr("nothing has happened here yet", 1);
    env.write(".afresh/audit.jsonl", &format!("{}\n", LINES[0]));
    history.wait_stdout(LINES[0], 1);
    history.signal(Signal::SIGINT);
    history.wait();
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let env = filled();
    for arguments in [&["history"][..], &["history", "--json"], &["history", "-f"]] {
        let history = run_into_closed_pipe(env.afresh(arguments));
        assert_eq!((history.code, history.stderr.as_str()), (Some(0), ""));
    }
    // The reader goes while nothing happens.
    let binary = afresh_tests::afresh_binary().display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("'{binary}' history -f --json | head -1")]);
    env.furnish(&mut shell);
    let mut shell = Running::start(shell);
    assert!(shell.wait().success());
    wait_for("its line", || shell.stdout() == format!("{}\n", LINES[0]));
    env.assert_nothing_left();
}

#[test]
fn a_project_that_cannot_be_written_has_its_history_with_the_user() {
    let env = TestEnv::new();
    // A file where the folder should be fails for root too.
    std::fs::remove_dir(env.work().join(".afresh")).unwrap();
    env.write(".afresh", "");
    std::fs::create_dir(env.work().join(".git")).unwrap();
    let kept = env.run(&["keep", "--policy", "never", "--name", "web", "--", "true"]);
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    let history = env.run(&["history", "--event", "server_started"]);
    assert_eq!(history.stdout.lines().count(), 1, "{history:?}");
    env.assert_nothing_left();
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let env = filled();
    // Only Linux has a device that is always full.
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        return;
    };
    let history = env.afresh(&["history"]).stdout(full).output().unwrap();
    assert_eq!(history.status.code(), Some(5));
    let stderr = String::from_utf8_lossy(&history.stderr);
    assert!(stderr.starts_with("error: cannot print: "), "{stderr}");
}
