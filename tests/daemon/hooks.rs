//! Hooks: real receivers and real commands, and services that do not wait for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use afresh_tests::receiver::Receiver;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::{AT_ONCE, HOSTILE, keep, stop};

fn hook(kind: &str, target: &str) -> String {
    format!("--hook={kind}={target}")
}

/// A command for a hook, which is a script.
fn script(env: &TestEnv, name: &str, text: &str) -> String {
    let path = env.write(name, &format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    path.display().to_string()
}

#[test]
fn a_webhook_is_told_how_a_service_fails() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("204 None"));
    let flags = [
        &hook("json", &receiver.url("/hook?key=1")),
        "--name=web",
        "--delay=10ms",
        "--max-restarts=2",
        "--crash-loop-count=2",
    ];
    let mut afresh = keep(&env, &flags, &["exit", "3"]);
    assert_eq!(afresh.wait().code(), Some(3));
    let crashes = receiver.events("crash");
    // The first at once, the others together.
    assert_eq!(crashes.len(), 2, "{crashes:?}");
    assert_eq!((&crashes[0]["count"], &crashes[1]["count"]), (&1.into(), &2.into()));
    assert_eq!(crashes[0]["service"], "web");
    assert_eq!(crashes[0]["exit"]["code"], 3);
    assert_eq!(crashes[0]["workspace"], env.work().display().to_string());
    assert_eq!(crashes[0]["version"], env!("CARGO_PKG_VERSION"));
    assert!(crashes[0]["pid"].as_i64().is_some_and(|pid| pid > 1), "{}", crashes[0]);
    let gave_up = receiver.events("gave_up");
    assert_eq!((receiver.events("crash_loop").len(), gave_up.len()), (1, 1));
    assert_eq!(gave_up[0]["restarts"], 2);
    let first = &receiver.received()[0];
    assert_eq!(first.line, "POST /hook?key=1 HTTP/1.1");
    assert_eq!(first.header("content-type"), "application/json");
    assert!(env.events("hook_failed").is_empty());
    env.assert_nothing_left();
}

#[test]
fn a_restart_and_its_reason_are_told() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let mut afresh = keep(&env, &[&hook("json", &receiver.url("/"))], &["idle"]);
    afresh.wait_started(1);
    afresh.signal(Signal::SIGUSR1);
    receiver.wait(1);
    let told = receiver.events("restarted");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["reason"], "SIGUSR1");
    assert_eq!(told[0]["pid"], env.wait_for_pid("server_started", 2));
    stop(&env, &mut afresh);
}

#[test]
fn a_command_finds_the_event_on_its_stdin() {
    let env = TestEnv::new();
    let text = "cat >told.json; echo \"$AFRESH_EVENT $AFRESH_SERVICE\" >told.env";
    let command = script(&env, "hook.sh", text);
    let flags = [&hook("command", &command), "--name=web", "--policy=never"];
    let mut afresh = keep(&env, &flags, &["exit", "3"]);
    assert_eq!(afresh.wait().code(), Some(3));
    let told = fs::read_to_string(env.work().join("told.json")).expect("it was run");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["event"], &told["exit"]["code"]), (&"crash".into(), &3.into()));
    assert_eq!(
        fs::read_to_string(env.work().join("told.env")).ok().as_deref(),
        Some("crash web\n")
    );
    env.assert_nothing_left();
}

#[test]
fn hooks_that_hang_delay_nothing() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| None);
    let command = script(&env, "hook.sh", "echo $$ >hook.pid; sleep 1000 & wait");
    let flags = [&hook("json", &receiver.url("/")), &hook("command", &command)];
    let flags: Vec<&str> = flags.iter().map(|flag| flag.as_str()).chain(AT_ONCE).collect();
    let mut afresh = keep(&env, &flags, &["exit-at", "50", "1"]);
    receiver.wait(1);
    wait_for("the command runs", || env.work().join("hook.pid").exists());
    afresh.wait_stdout("arrived", 1);
    // All of it happened while both of them hung: the first delivery of each is still the only one.
    wait_for("all are on record", || env.events("server_crashed").len() == 49);
    assert_eq!(receiver.received().len(), 1);
    assert!(env.alive().iter().any(|process| process.command.contains("sleep 1000")));
    assert!(env.events("hook_failed").is_empty());
    // The end waits for them a bounded time, and says what they were not told.
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    for hook in ["hook 1", "hook 2"] {
        let text = format!("hook `{hook}` is never told of 49 events: afresh ends");
        assert!(afresh.stderr().contains(&text), "{}", afresh.stderr());
    }
    assert_eq!(env.events("hook_event_lost").len(), 2);
    env.assert_nothing_left();
}

#[test]
fn a_receiver_in_trouble_is_tried_again_and_it_is_said_once() {
    let env = TestEnv::new();
    let answers = |n| match n {
        0 => Some("503 Busy"),
        1 => Some("429 Slow\r\nretry-after: 1"),
        _ => Some("200 OK"),
    };
    let receiver = Receiver::start(answers);
    let mut afresh = keep(&env, &[&hook("json", &receiver.url("/"))], &["idle"]);
    afresh.wait_started(1);
    afresh.signal(Signal::SIGUSR1);
    let received = receiver.wait(3);
    assert!(received.windows(2).all(|pair| pair[0].body == pair[1].body), "{received:?}");
    afresh.wait_stderr("hook `hook 1` works again", 1);
    let said = "was not told of `restarted` of hostile: it answered with 503: ok; trying again in";
    afresh.wait_stderr(said, 1);
    stop(&env, &mut afresh);
    // The log may be ahead of the trail, until the end.
    assert_eq!(env.events("hook_failed").len(), 1);
    assert_eq!(env.events("hook_recovered").len(), 1);
    assert_eq!(receiver.received().len(), 3);
}

#[test]
fn what_will_not_be_taken_is_not_sent_again_and_secrets_stay_secret() {
    for (answer, said) in [
        ("404 No", "it answered with 404; there is no such webhook"),
        ("308 Moved\r\nlocation: http://127.0.0.1:1/", "redirects are not followed"),
    ] {
        let env = TestEnv::new();
        let receiver = Receiver::start(move |_| Some(answer));
        let flags = [&hook("slack", &receiver.url("/services/T0/B0/s3cr3t")), "--policy=never"];
        let mut afresh = keep(&env, &flags, &["exit", "3"]);
        assert_eq!(afresh.wait().code(), Some(3));
        assert_eq!(receiver.received().len(), 1);
        assert!(afresh.stderr().contains(said), "{}", afresh.stderr());
        assert_eq!(env.events("hook_event_lost").len(), 1);
        let trail = fs::read_to_string(env.audit_file()).expect("written");
        assert!(!afresh.stderr().contains("s3cr3t") && !trail.contains("s3cr3t"), "{trail}");
        env.assert_nothing_left();
    }
}

#[test]
fn chats_are_told_in_their_own_form_and_nobody_is_called() {
    let env = TestEnv::new();
    let receiver = Receiver::start(|_| Some("200 OK"));
    let urls = ["slack", "discord", "ntfy"].map(|it| hook(it, &receiver.url(&format!("/{it}"))));
    let name = "--name=<!channel> @everyone é";
    let flags =
        [urls.each_ref().map(String::as_str).as_slice(), &[name, "--policy=never"]].concat();
    let mut afresh = keep(&env, &flags, &["exit", "3"]);
    assert_eq!(afresh.wait().code(), Some(3));
    let received = receiver.wait(3);
    let to = |path: &str| {
        received.iter().find(|received| received.line.contains(path)).expect("it was told")
    };
    let slack = to("/slack").json();
    let text = slack["text"].as_str().expect("text");
    assert!(text.starts_with("&lt;!channel&gt; @everyone é (pid "), "{text}");
    let discord = to("/discord").json();
    assert_eq!(discord["allowed_mentions"]["parse"], serde_json::json!([]));
    let text = discord["content"].as_str().expect("text");
    assert!(text.starts_with(r"\<!channel\> \@everyone é \(pid "), "{text}");
    let ntfy = to("/ntfy");
    assert_eq!(ntfy.header("title"), "afresh: <!channel> @everyone ? crash");
    assert_eq!((ntfy.header("priority"), ntfy.header("tags")), ("3".into(), "warning".into()));
    assert!(ntfy.body.contains("exited with code 3"), "{}", ntfy.body);
    env.assert_nothing_left();
}

#[test]
fn a_command_that_fails_is_quoted_in_the_log() {
    let env = TestEnv::new();
    let command = script(&env, "hook.sh", "echo 'no route to the moon' >&2; exit 7");
    let missing = env.work().join("missing").display().to_string();
    let flags = [&hook("command", &command), &hook("command", &missing), "--policy=never"];
    let mut afresh = keep(&env, &flags.map(|flag| flag as &str), &["exit", "3"]);
    assert_eq!(afresh.wait().code(), Some(3));
    let log = afresh.stderr();
    assert!(log.contains("its command exited with code 7: no route to the moon"), "{log}");
    assert!(log.contains("no such file: `") && log.contains("; not trying again"), "{log}");
    env.assert_nothing_left();
}

#[test]
fn a_notification_gets_its_words_as_arguments() {
    let env = TestEnv::new();
    script(&env, "notify-send", "for word; do echo \"[$word]\"; done >told");
    let path = format!("{}:{}", env.work().display(), std::env::var("PATH").unwrap_or_default());
    let name = "--name=<b>$(touch evil)</b>";
    let flags = ["keep", "--hook=desktop", name, "--policy=never", "--", HOSTILE, "exit", "3"];
    let mut command = env.afresh(&flags);
    command.env("PATH", path);
    let mut afresh = Running::start(command);
    assert_eq!(afresh.wait().code(), Some(3));
    let told = fs::read_to_string(env.work().join("told")).expect("it was run");
    assert!(told.contains("\n[--]\n[afresh: <b>$(touch evil)</b> crash]\n[&lt;b&gt;$("), "{told}");
    assert!(!env.work().join("evil").exists());
    env.assert_nothing_left();
}
