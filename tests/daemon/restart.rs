//! Restarts that are asked for: by the process, by a signal; on record before they happen.

use std::fs;

use afresh_tests::TestEnv;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{keep, stop};

fn types(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["props"]["event_type"].as_str()).collect()
}

#[test]
fn exit_42_is_recorded_marked_and_restarted() {
    // R3 R4 R5 R8 W2
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["exit-at", "2", "42"]);
    afresh.wait_started(2);
    stop(&env, &mut afresh);

    let records = env.records();
    assert_eq!(
        types(&records),
        [
            "supervisor_started",
            "server_started",
            "server_exited",
            "server_restart_requested",
            "restart_marker_written",
            "server_exiting_for_restart",
            "server_started",
            "server_exited",
            "server_stopped",
            "supervisor_stopped"
        ]
    );
    let requested = &records[3];
    assert_eq!(requested["message"], "Server restart requested");
    assert_eq!(requested["props"]["pid"], records[1]["props"]["pid"]);
    assert_eq!(requested["props"]["reason"], "the process exited with code 42");
    assert_eq!(records[5]["props"]["exit_code"], 42);
    assert_ne!(records[6]["props"]["pid"], records[1]["props"]["pid"]);
    for record in &records {
        let keys: Vec<&String> = record.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["timestamp", "level", "logger", "message", "props"]);
    }

    let text = fs::read_to_string(env.work().join(".afresh/restart_marker.json")).expect("marked");
    let marker: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(marker["pid"], records[1]["props"]["pid"]);
    assert_eq!(marker["reason"], requested["props"]["reason"]);
    assert!(marker["timestamp"].as_f64().is_some_and(|seconds| seconds > 1.7e9), "{marker}");
    assert!(marker["iso_time"].as_str().is_some_and(|time| time.ends_with('Z')), "{marker}");
    assert_eq!(records[4]["props"]["content"], marker);
    let ignored = fs::read_to_string(env.work().join(".afresh/.gitignore")).expect("written");
    assert_eq!(ignored, "*\n");
    env.assert_nothing_left();
}

#[test]
fn sigusr1_restarts_and_the_record_comes_before_the_stop() {
    // R2 R4 W3
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    afresh.wait_started(1);
    afresh.signal(Signal::SIGUSR1);
    afresh.wait_started(2);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert_eq!(
        types(&env.records())[2..7],
        [
            "server_restart_requested",
            "restart_marker_written",
            "server_exiting_for_restart",
            "server_exited",
            "server_started"
        ]
    );
    for line in afresh.stderr().lines() {
        let (time, rest) = line.split_at(26);
        assert!(time.starts_with('[') && time.ends_with("Z]"), "{line}");
        assert!(rest.starts_with(" [SUPERVISOR] "), "{line}");
    }
    env.assert_nothing_left();
}

#[test]
fn requested_restarts_are_throttled() {
    // W4 W12
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--throttle", "300ms"], &["restarts"]);
    afresh.wait_stdout("up", 5);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    let throttled = env.events("server_restart_throttled");
    assert!(throttled.len() >= 3, "{throttled:?}");
    for record in &throttled {
        let delay = record["props"]["delay_ms"].as_u64().expect("a number");
        assert!((1..=300).contains(&delay), "{record}");
    }
    assert!(afresh.stderr().contains("restart throttled"), "{}", afresh.stderr());
    env.assert_nothing_left();
}
