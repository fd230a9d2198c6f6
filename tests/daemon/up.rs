//! `afresh up`: services of a configuration, in their order, over changes of it and over the death of
//! the supervisor.

use afresh_tests::{Finished, Running, TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::{HOSTILE, stop};

/// A service that does nothing, with more lines of its table.
pub(crate) fn idle(name: &str, more: &str) -> String {
    service(name, &["idle"], more)
}

/// A service that the hostile program plays.
pub(crate) fn service(name: &str, words: &[&str], more: &str) -> String {
    let command: Vec<String> =
        [&[HOSTILE], words].concat().iter().map(|word| format!("{word:?}")).collect();
    let delay = if more.contains("delay") { "" } else { "delay = \"0s\"\n" };
    format!("[service.{name}]\ncommand = [{}]\n{delay}{more}\n", command.join(", "))
}

/// Writes the configuration of the workspace.
pub(crate) fn define(env: &TestEnv, services: &[String]) {
    env.write("afresh.toml", &services.concat());
}

/// What `afresh status --json` tells of a service.
#[track_caller]
pub(crate) fn status(env: &TestEnv, name: &str) -> Value {
    let told = env.run(&["status", "--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let all: Vec<Value> = serde_json::from_str(&told.stdout).expect("JSON");
    all.into_iter().find(|status| status["name"] == name).unwrap_or_default()
}

#[track_caller]
pub(crate) fn wait_state(env: &TestEnv, name: &str, state: &str) -> Value {
    let mut found = Value::Null;
    wait_for(&format!("`{name}` is {state}"), || {
        found = status(env, name);
        found["state"] == state
    });
    found
}

/// Waits until it runs, and returns its process.
#[track_caller]
pub(crate) fn wait_up(env: &TestEnv, name: &str) -> i32 {
    let mut found = Value::Null;
    wait_for(&format!("`{name}` is up"), || {
        found = status(env, name);
        found["state"] == "running" || found["state"] == "ready"
    });
    i32::try_from(found["pid"].as_i64().expect("a pid")).expect("a pid")
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

#[track_caller]
pub(crate) fn fails(finished: &Finished, code: i32, words: &[&str]) {
    assert_eq!(finished.code, Some(code), "{finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "no `{word}`: {finished:?}");
    }
}

/// Names of services in the order in which they were told to have done something.
pub(crate) fn order(env: &TestEnv, event_type: &str) -> Vec<String> {
    let name = |record: &Value| record["props"]["service"].as_str().unwrap_or("").to_owned();
    env.events(event_type).iter().map(name).collect()
}

#[test]
fn services_come_in_their_order_and_go_in_the_opposite_one() {
    let env = TestEnv::new();
    let services = [
        idle("web", "depends_on = [\"api\"]"),
        idle("api", "depends_on = { db = \"ready\", cache = \"started\" }"),
        idle("cache", ""),
        idle("db", ""),
        idle("extra", "autostart = false"),
    ];
    define(&env, &services);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "web");
    wait_for("all starts are on record", || order(&env, "server_started").len() == 4);
    let started = order(&env, "server_started");
    let at = |name: &str| started.iter().position(|other| other == name).expect("it is started");
    assert!(
        at("db") < at("api") && at("cache") < at("api") && at("api") < at("web"),
        "{started:?}"
    );
    assert_eq!(status(&env, "extra")["state"], "stopped");
    assert!(afresh.stdout().contains("web | ready"), "{}", afresh.stdout());
    stop(&env, &mut afresh);
    let ended = order(&env, "server_stopped");
    let at = |name: &str| ended.iter().position(|other| other == name).expect("it is stopped");
    assert!(at("web") < at("api") && at("api") < at("db") && at("api") < at("cache"), "{ended:?}");
}

#[test]
fn one_that_is_chosen_brings_what_it_needs_and_no_more() {
    let env = TestEnv::new();
    define(&env, &[idle("api", "depends_on = [\"db\"]"), idle("db", ""), idle("other", "")]);
    let mut afresh = env.start(&["up", "api"]);
    wait_up(&env, "api");
    assert_eq!(status(&env, "other")["state"], "stopped");
    let unknown = env.run(&["up", "apo"]);
    fails(&unknown, 4, &["there is no service `apo`", "did you mean `api`?"]);
    let second = env.run(&["up"]);
    fails(&second, 5, &["up already", &afresh.pid().to_string(), "afresh down"]);
    stop(&env, &mut afresh);
}

#[test]
fn one_that_waits_says_for_what() {
    let env = TestEnv::new();
    // Nobody listens there.
    let never = "health.tcp = \"127.0.0.1:1\"\nhealth.ready_timeout = \"1h\"";
    define(&env, &[idle("api", "depends_on = [\"db\"]"), idle("db", never)]);
    let mut afresh = env.start(&["up"]);
    wait_state(&env, "db", "starting");
    wait_for("a process", || !status(&env, "db")["pid"].is_null());
    assert_eq!(status(&env, "api")["waits_for"], serde_json::json!(["db"]));
    let table = env.run(&["status"]);
    assert!(table.stdout.contains("waiting for db"), "{}", table.stdout);
    stop(&env, &mut afresh);
    assert!(env.events("server_started").iter().all(|record| record["props"]["service"] == "db"));
}

#[test]
fn a_changed_configuration_touches_only_what_changed() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", ""), idle("c", "")]);
    let mut afresh = env.start(&["up"]);
    let old = ["a", "b", "c"].map(|name| wait_up(&env, name));
    let path = env.write("afresh.toml", "[service.a]\ncommand = 7\n");
    let bad = env.run(&["reload"]);
    fails(&bad, 1, &["afresh.toml:2", "command"]);
    let all = ["a", "b", "c"].map(|name| wait_up(&env, name));
    assert_eq!(all, old, "a bad file changes nothing");
    define(&env, &[idle("a", ""), idle("b", "env = { MODE = \"new\" }"), idle("d", "")]);
    let reloaded = env.run(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    wait_up(&env, "d");
    wait_for("a new instance of b", || wait_up(&env, "b") != old[1]);
    wait_for("c is gone", || status(&env, "c").is_null());
    assert_eq!(wait_up(&env, "a"), old[0]);
    assert_eq!(order(&env, "server_restart_requested"), ["b"]);
    assert!(path.exists());
    stop(&env, &mut afresh);
}

#[test]
fn the_background_is_there_until_down() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", "depends_on = [\"a\"]")]);
    let up = env.run(&["up", "-d"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    assert!(up.stdout.contains("a  ") && up.stdout.contains("b  "), "{up:?}");
    let pid = wait_up(&env, "b");
    let stopped = env.run(&["stop", "b"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    wait_state(&env, "b", "stopped");
    let started = env.run(&["start", "b"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    assert_ne!(wait_up(&env, "b"), pid);
    let down = env.run(&["down"]);
    assert_eq!(down.code, Some(0), "{down:?}");
    env.assert_nothing_left();
    fails(&env.run(&["down"]), 4, &["nothing is up here"]);
    let up = env.run(&["up", "-d"]);
    assert_eq!(up.code, Some(0), "it can be started again at once: {up:?}");
    assert_eq!(env.run(&["down"]).code, Some(0));
    env.assert_nothing_left();
}

#[test]
fn a_background_that_cannot_begin_says_why() {
    let env = TestEnv::new();
    fails(&env.run(&["up"]), 3, &["no services", "[service.web]"]);
    define(&env, &[idle("a", "")]);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "a");
    fails(&env.run(&["up", "-d"]), 5, &["up already"]);
    stop(&env, &mut afresh);
}

/// Kills a supervisor, and waits until all that it kept is gone with it.
fn murder(env: &TestEnv, afresh: Running) {
    afresh.signal(Signal::SIGKILL);
    drop(afresh);
    env.assert_nothing_left();
}

#[test]
fn after_the_death_of_the_supervisor_the_next_one_goes_on() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", "")]);
    let afresh = env.start(&["up"]);
    let pid = wait_up(&env, "a");
    send(pid, Signal::SIGKILL);
    // A restart counts when it is ordered; the next supervisor knows only what is on record.
    wait_for("a restart on record", || {
        order(&env, "server_started").iter().filter(|name| *name == "a").count() == 2
    });
    assert_eq!(status(&env, "a")["restarts"]["total"], 1);
    wait_up(&env, "b");
    assert_eq!(env.run(&["stop", "b"]).code, Some(0));
    wait_state(&env, "b", "stopped");
    murder(&env, afresh);

    let mut afresh = env.start(&["up"]);
    wait_up(&env, "a");
    let a = status(&env, "a");
    assert_eq!((&a["generation"], &a["restarts"]["total"]), (&3.into(), &2.into()), "{a}");
    assert_eq!(status(&env, "b")["state"], "stopped", "a person had stopped it");
    stop(&env, &mut afresh);

    let mut afresh = env.start(&["up"]);
    let b = wait_state(&env, "b", "ready");
    assert_eq!(b["restarts"]["total"], 0, "a person has begun anew: {b}");
    stop(&env, &mut afresh);
}

#[test]
fn variables_come_from_the_file_at_each_start() {
    let env = TestEnv::new();
    let shell = "[service.a]\ncommand = [\"sh\", \"-c\", \"echo mode=$MODE own=$OWN; exec sleep 1000\"]\n\
                 env_file = \"vars\"\nenv = { OWN = \"given\" }\n";
    env.write("afresh.toml", shell);
    env.write("vars", "MODE=one\nOWN=file\n");
    let mut afresh = env.start(&["up"]);
    afresh.wait_stdout("mode=one own=given", 1);
    env.write("vars", "MODE=two\n");
    assert_eq!(env.run(&["restart", "a"]).code, Some(0));
    afresh.wait_stdout("mode=two own=given", 1);
    env.write("vars", "MODE = \"open\n");
    env.run(&["restart", "a"]);
    afresh.wait_stderr("cannot read its variables from", 1);
    stop(&env, &mut afresh);
}

#[test]
fn a_service_is_stopped_by_its_own_signal() {
    let env = TestEnv::new();
    let script =
        "trap 'echo interrupted; exit 0' INT; trap '' TERM; echo set; while :; do sleep 0.01; done";
    let text = format!(
        "[service.a]\ncommand = [\"sh\", \"-c\", {script:?}]\nstop_signal = \"int\"\nstop_timeout = \"1h\"\n"
    );
    env.write("afresh.toml", &text);
    let mut afresh = env.start(&["up"]);
    afresh.wait_stdout("a | set", 1);
    stop(&env, &mut afresh);
    assert!(afresh.stdout().contains("a | interrupted"), "{}", afresh.stdout());
}

#[test]
fn a_service_that_holds_too_much_memory_is_restarted() {
    let env = TestEnv::new();
    let script =
        "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo full; while :; do sleep 1; done";
    let text =
        format!("[service.a]\ncommand = [\"sh\", \"-c\", {script:?}]\nmax_rss = \"20MiB\"\n");
    env.write("afresh.toml", &text);
    let mut afresh = env.start(&["up"]);
    afresh.wait_stderr("more than the 20 MiB that they may", 1);
    wait_for("it is on record", || !env.events("server_restart_requested").is_empty());
    let requested = env.events("server_restart_requested");
    assert!(requested[0]["props"]["reason"].as_str().unwrap_or("").contains("20 MiB"));
    stop(&env, &mut afresh);
}

#[test]
fn whoever_does_not_read_our_output_stops_no_service() {
    let env = TestEnv::new();
    define(&env, &[service("a", &["burst", "200000"], "")]);
    // Nobody ever reads the pipe.
    let mut command = env.afresh(&["up"]);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::null());
    let mut afresh = command.spawn().expect("afresh runs");
    wait_state(&env, "a", "finished");
    send(afresh.id().cast_signed(), Signal::SIGTERM);
    assert_eq!(afresh.wait().expect("it ends").code(), Some(0));
    let log = std::fs::read_to_string(env.work().join(".afresh/logs/a.log")).expect("a log");
    assert!(log.contains("199999 INFO"), "all of it is in the log");
    env.assert_nothing_left();
}

#[test]
fn one_whose_state_was_removed_is_still_the_only_one() {
    let env = TestEnv::new();
    define(&env, &[idle("a", "")]);
    let mut afresh = env.start(&["up"]);
    let pid = wait_up(&env, "a");
    std::fs::remove_dir_all(env.work().join(".afresh")).expect("it is there");
    fails(&env.run(&["up", "-d"]), 5, &["up already", &afresh.pid().to_string()]);
    assert_eq!(wait_up(&env, "a"), pid);
    assert_eq!(env.run(&["down"]).code, Some(0));
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn a_configuration_without_services_changes_nothing() {
    let env = TestEnv::new();
    define(&env, &[idle("a", "")]);
    let mut afresh = env.start(&["up"]);
    let pid = wait_up(&env, "a");
    define(&env, &[]);
    fails(&env.run(&["reload"]), 1, &["stays as it was", "no services", "afresh down"]);
    std::fs::remove_file(env.work().join("afresh.toml")).expect("it is there");
    fails(&env.run(&["reload"]), 1, &["no services"]);
    assert_eq!(wait_up(&env, "a"), pid);
    define(&env, &[idle("a", ""), "[daemon]\non_supervisor_death = \"keep\"\n".to_owned()]);
    let reloaded = env.run(&["reload"]);
    assert!(reloaded.stdout.contains("counts from the next `afresh up` on"), "{reloaded:?}");
    stop(&env, &mut afresh);
}

#[test]
fn what_waits_for_one_that_has_failed_is_told_at_once() {
    let env = TestEnv::new();
    let missing = "[service.db]\ncommand = [\"/no/such/program\"]\n".to_owned();
    define(&env, &[idle("api", "depends_on = [\"db\"]"), missing]);
    // Not only after the half minute that it would wait for them.
    let up = env.run(&["up", "-d", "--wait", "1h"]);
    assert_eq!(up.code, Some(1), "{up:?}");
    assert!(up.stdout.contains("waiting for db"), "{up:?}");
    assert_eq!(status(&env, "api")["state"], "waiting");
    assert_eq!(env.run(&["down"]).code, Some(0));
    env.assert_nothing_left();
}

#[test]
fn services_that_run_on_alone_are_seen() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), "[daemon]\non_supervisor_death = \"keep\"\n".to_owned()]);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "a");
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    let seen = env.run(&["status"]);
    assert!(seen.stderr.contains("1 service of an afresh that was killed run"), "{seen:?}");
    fails(&env.run(&["down"]), 4, &["`afresh up` takes them over"]);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "a");
    stop(&env, &mut afresh);
}
