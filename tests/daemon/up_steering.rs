//! What a person is told who starts, stops, restarts and reloads services of `afresh up`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use afresh_tests::api::Api;
use afresh_tests::{TestEnv, reaches, stop_short, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::stop;
use crate::up::{define, fails, idle, order, service, status, wait_up};

/// A service whose program is not there.
fn missing(name: &str) -> String {
    format!("[service.{name}]\ncommand = [\"/no/such/program\"]\n")
}

/// What the trail says of the ends of services: of instances, and for good.
/// Waits until these, and no others, are on record both as ends and as stops.
#[track_caller]
fn wait_endings(env: &TestEnv, wanted: &[&str]) {
    reaches(|| endings(env).iter().all(|all| all.len() >= wanted.len()));
    assert_eq!(endings(env), [wanted; 2]);
}

fn endings(env: &TestEnv) -> [Vec<Value>; 2] {
    [("server_exited", "ending"), ("server_stopped", "reason")].map(|(event_type, key)| {
        env.events(event_type).iter().map(|record| record["props"][key].clone()).collect()
    })
}

#[test]
fn a_client_of_the_api_restarts_a_service_with_its_dependents_in_their_order() {
    let env = TestEnv::new();
    let services = [
        idle("api", "depends_on = [\"db\"]"),
        idle("db", ""),
        idle("web", "depends_on = [\"api\"]"),
        idle("job", "depends_on = [\"db\"]\nautostart = false"),
    ];
    define(&env, &services);
    let mut afresh = env.start(&["up", "--plain", "--listen", "0"]);
    let api = Api::of(&env, &afresh);
    let old = ["db", "api", "web"].map(|name| wait_up(&env, name));
    let answer = api.ask("POST /v1/services/db/restart_all?wait=true", "").json();
    let outcomes = answer["outcomes"].as_array().expect("a list");
    let names: Vec<&Value> = outcomes.iter().map(|outcome| &outcome["name"]).collect();
    assert_eq!(names, ["db", "api", "web"], "{answer}");
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "up"), "{answer}");
    assert_eq!(order(&env, "server_restart_requested"), ["db", "api", "web"]);
    for (name, old) in ["db", "api", "web"].into_iter().zip(old) {
        assert_ne!(wait_up(&env, name), old);
    }
    let alone = api.ask("POST /v1/services/web/restart_all", "");
    assert_eq!(alone.status, 202, "{alone:?}");
    assert_eq!(alone.json()["outcomes"][0]["outcome"], "accepted");
    assert_eq!(api.ask("POST /v1/services/nothing/restart_all", "").status, 404);
    stop(&env, &mut afresh);
}

#[test]
fn a_dependent_that_cannot_be_restarted_any_more_is_told_beside_the_others() {
    let env = TestEnv::new();
    let sign = env.write("sign", "");
    let db = idle("db", &format!("health.exec = [\"test\", \"-e\", {sign:?}]"));
    let api = idle("api", "depends_on = [\"db\"]");
    define(&env, &[db.clone(), api]);
    let mut afresh = env.start(&["up", "--plain", "--listen", "0"]);
    let remote = Api::of(&env, &afresh);
    wait_up(&env, "api");
    fs::remove_file(&sign).expect("it is there");
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| remote.ask("POST /v1/services/db/restart_all?wait=true", ""));
        // While `db` is not ready, its dependent goes out of the configuration.
        wait_for("the restart is on record", || {
            !order(&env, "server_restart_requested").is_empty()
        });
        define(&env, &[db]);
        assert_eq!(env.run(&["reload", "--no-wait"]).code, Some(0));
        env.write("sign", "");
        asked.join().expect("an answer").json()
    });
    let told =
        |at: usize| ["name", "outcome", "detail"].map(|key| answer["outcomes"][at][key].clone());
    assert_eq!(told(0)[..2], ["db", "up"], "{answer}");
    assert_eq!(told(1), ["api", "failed", "there is no service `api`"], "{answer}");
    stop(&env, &mut afresh);
}

#[test]
fn a_restart_says_who_depends_on_it_and_several_go_in_their_order() {
    let env = TestEnv::new();
    let services = [
        idle("api", "depends_on = [\"db\"]"),
        idle("db", ""),
        idle("web", "depends_on = [\"api\"]"),
        idle("job", "depends_on = [\"db\"]\nautostart = false"),
    ];
    define(&env, &services);
    let mut afresh = env.start(&["up"]);
    let old = ["api", "db", "web"].map(|name| wait_up(&env, name));
    let api = env.run(&["restart", "api"]);
    let told =
        "web depends on api; it was not restarted; `afresh restart api web` restarts both in order";
    assert!(api.code == Some(0) && api.stderr.contains(told), "{api:?}");
    let db = env.run(&["restart", "db"]);
    let told = "api and web depend on db; they were not restarted; `afresh restart db api web` restarts all";
    assert!(db.code == Some(0) && db.stderr.contains(told), "{db:?}");
    assert_eq!(wait_up(&env, "web"), old[2], "what is not named goes on");
    let all = env.run(&["restart", "web", "api", "db"]);
    assert!(all.code == Some(0) && !all.stderr.contains("depend"), "{all:?}");
    assert_eq!(order(&env, "server_restart_requested"), ["api", "db", "db", "api", "web"]);
    // The answer may be ahead of the trail.
    wait_for("all starts are on record", || order(&env, "server_started").len() == 3 + 2 + 3);
    assert_eq!(order(&env, "server_started")[3 + 2..], ["db", "api", "web"]);
    // One that does not come up takes no other with it.
    let old = wait_up(&env, "api");
    define(&env, &[services[0].clone(), services[2].clone(), missing("db")]);
    assert_eq!(env.run(&["reload", "--no-wait"]).code, Some(0), "nobody waits for it");
    let failed = env.run(&["restart", "db", "api"]);
    let told = "api: not restarted: it depends on db, which is not up";
    assert!(failed.code == Some(1) && failed.stdout.contains(told), "{failed:?}");
    assert_eq!(wait_up(&env, "api"), old);
    fails(&env.run(&["restart", "dp"]), 4, &["did you mean `db`?"]);
    stop(&env, &mut afresh);
}

#[test]
fn a_reload_waits_for_what_it_begins_and_says_what_has_failed() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", "")]);
    let mut afresh = env.start(&["up"]);
    let old = ["a", "b"].map(|name| wait_up(&env, name));
    define(&env, &[idle("a", "env = { MODE = \"new\" }"), idle("c", "")]);
    let reloaded = env.run(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    // All of it is so when the command has ended.
    let (a, c) = (status(&env, "a"), status(&env, "c"));
    assert!(a["state"] == "ready" && a["pid"] != old[0], "{a}");
    assert!(c["state"] == "ready" && status(&env, "b").is_null(), "{c}");
    define(&env, &[idle("a", "env = { MODE = \"new\" }"), missing("d"), idle("c", "")]);
    let failed = env.run(&["reload"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stdout.contains("new: d\n2 services are as they were\n"), "{failed:?}");
    assert!(failed.stdout.contains("d: it has failed: failed: "), "{failed:?}");
    assert!(failed.stdout.contains("/no/such/program"), "{failed:?}");
    stop(&env, &mut afresh);
}

#[test]
fn services_that_afresh_ends_are_not_said_to_be_stopped_by_the_user() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", ""), idle("c", "")]);
    let mut afresh = env.start(&["up"]);
    for name in ["a", "b", "c"] {
        wait_up(&env, name);
    }
    define(&env, &[idle("a", ""), idle("b", "")]);
    assert_eq!(env.run(&["reload"]).code, Some(0));
    afresh.wait_stderr("c stopped, the configuration does not have it any more", 1);
    wait_endings(&env, &["retired"]);
    assert_eq!(env.run(&["stop", "b"]).code, Some(0));
    wait_endings(&env, &["retired", "stopped_by_user"]);
    let restarted = env.run(&["restart", "b"]);
    assert!(restarted.stdout.starts_with("b: started (pid "), "{restarted:?}");
    assert!(restarted.stdout.ends_with("); it was down\n"), "{restarted:?}");
    assert_eq!(env.run(&["down"]).code, Some(0));
    assert_eq!(afresh.wait().code(), Some(0));
    wait_endings(&env, &["retired", "stopped_by_user", "shutdown", "shutdown"]);
    assert_eq!(afresh.stderr().matches("stopped by user").count(), 2, "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn requests_that_are_merged_are_counted_once_everywhere() {
    let env = TestEnv::new();
    define(&env, &[idle("a", "")]);
    let mut afresh = env.start(&["up", "--listen", "0"]);
    let pid = wait_up(&env, "a");
    let api = Api::of(&env, &afresh);
    // The first is done at once; the others wait for their second, and are one.
    for _ in 0..3 {
        assert_eq!(env.run(&["restart", "a", "--no-wait"]).code, Some(0));
    }
    assert_eq!(env.run(&["restart", "a"]).code, Some(0));
    wait_for("it runs", || wait_up(&env, "a") != pid);
    // The last one may still be under way when the first of both is read.
    wait_for("status and metrics agree", || {
        let total = status(&env, "a")["restarts"]["total"].clone();
        assert!(total.as_u64() < Some(4), "some are merged: {total}");
        let sample = format!(
            "afresh_service_restarts_total{{service=\"a\",reason=\"requested\"}} {total}\n"
        );
        api.ask("GET /metrics", "").body.contains(&sample)
    });
    stop(&env, &mut afresh);
}

#[test]
fn what_is_not_defined_any_more_is_stopped_by_the_defaults() {
    let env = TestEnv::new();
    let keep = "[daemon]\non_supervisor_death = \"keep\"\n[defaults]\nstop_timeout = \"50ms\"\n";
    let keep = keep.to_owned();
    define(&env, &[idle("a", ""), service("b", &["ignores-term"], ""), keep.clone()]);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "a");
    wait_up(&env, "b");
    afresh.wait_stdout("b | ready", 1);
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    define(&env, &[idle("a", ""), keep]);
    let mut afresh = env.start(&["up"]);
    wait_for("it is killed", || !env.events("server_stop_escalated").is_empty());
    // With the built-in time it is at least that.
    let waited = env.events("server_stop_escalated")[0]["props"]["waited_ms"].clone();
    assert!(waited.as_u64() < Some(5_000), "{waited}: {}", afresh.stderr());
    stop(&env, &mut afresh);
}

#[test]
fn a_configuration_that_another_user_could_have_made_is_named() {
    let env = TestEnv::new();
    define(&env, &[idle("a", "")]);
    fs::set_permissions(env.work(), Permissions::from_mode(0o1777)).expect("it is ours");
    let up = env.run(&["up"]);
    let words = ["afresh.toml` does not count", "every user can create files", "chmod o-w"];
    fails(&up, 3, &words);
    let check = env.run(&["config", "check"]);
    assert!(words.iter().all(|word| check.stderr.contains(word)), "{check:?}");
    fs::set_permissions(env.work(), Permissions::from_mode(0o755)).expect("it is ours");
    assert_eq!(env.run(&["config", "check"]).stderr, "");
}

#[test]
fn a_start_that_waits_in_vain_says_for_what() {
    let env = TestEnv::new();
    let services = [
        idle("web", "depends_on = [\"api\"]"),
        idle("api", "depends_on = [\"db\"]"),
        missing("db"),
        idle("other", ""),
    ];
    define(&env, &services);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "other");
    let started = env.run(&["start", "web"]);
    assert_eq!(started.code, Some(1), "{started:?}");
    let told = "web: not up: it waits for api (waiting), db (failed: ";
    assert!(started.stdout.contains(told), "{started:?}");
    assert!(started.stdout.contains("/no/such/program"), "{started:?}");
    stop(&env, &mut afresh);
}

#[test]
fn an_afresh_that_does_not_answer_is_not_taken_for_none() {
    let env = TestEnv::new();
    define(&env, &[idle("e", "")]);
    let mut afresh = env.start(&["up"]);
    wait_up(&env, "e");
    stop_short(afresh.pid());
    let told = format!("the afresh with pid {} does not answer", afresh.pid());
    fails(&env.run(&["stop", "e"]), 5, &[&told, "kill -CONT"]);
    fails(&env.run(&["reload"]), 5, &[&told]);
    afresh.signal(Signal::SIGCONT);
    stop(&env, &mut afresh);
}
