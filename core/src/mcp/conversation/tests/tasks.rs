//! Tasks of an instance that is gone.

use super::*;

const CALL_FOR_TASK: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","task":{}}}"#;
const TASK: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"task":{"taskId":"k","status":"working","createdAt":"2026-01-02T03:04:05Z","ttl":60000}}}"#;
const UNKNOWN: &str =
    r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32602,"message":"Task not found"}}"#;

/// The last message that the client was told, after a server's answer.
fn told(bench: &mut Bench, generation: u64, answer: &str) -> serde_json::Value {
    let done = bench.server(generation, answer);
    let Some(Done::Client(line)) = done.last() else { panic!("{done:?}") };
    serde_json::from_str(line).expect("JSON")
}

/// A session whose instance 1 has created a task and was killed; instance 2 serves.
fn after_death() -> Bench {
    let mut bench = Bench::legacy();
    bench.client(CALL_FOR_TASK);
    assert_eq!(bench.server(1, TASK), [Done::Client(TASK.to_owned())]);
    bench.handle(Input::Ended {
        generation: Generation(1),
        read: None,
        how: "was killed by SIGKILL".to_owned(),
        cause: EndCause::ByItself,
    });
    bench.revive(2);
    bench
}

#[test]
fn a_task_of_an_instance_that_is_gone_has_failed_and_says_why() {
    let mut bench = after_death();
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    let got = told(&mut bench, 2, UNKNOWN)["result"].take();
    assert_eq!((&got["taskId"], &got["status"]), (&"k".into(), &"failed".into()));
    assert_eq!((&got["createdAt"], &got["ttl"]), (&"2026-01-02T03:04:05Z".into(), &60_000.into()));
    assert!(got["lastUpdatedAt"].is_string() && got["resultType"].is_null(), "{got}");
    let why = got["statusMessage"].as_str().expect("words");
    assert!(why.contains("was killed by SIGKILL"), "{why}");
    bench.client(&request(8, "tasks/result", r#"{"taskId":"k"}"#));
    let got = told(&mut bench, 2, UNKNOWN)["result"].take();
    assert_eq!(got["isError"], true);
    assert!(got["content"][0]["text"].as_str().expect("words").contains("SIGKILL"), "{got}");
    bench.client(&request(8, "tasks/cancel", r#"{"taskId":"k"}"#));
    let got = told(&mut bench, 2, UNKNOWN)["error"].take();
    assert_eq!(got["code"], -32602);
    assert!(got["message"].as_str().expect("words").contains("SIGKILL"), "{got}");
}

#[test]
fn a_server_that_keeps_tasks_elsewhere_answers_itself() {
    let mut bench = after_death();
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    let kept = r#"{"jsonrpc":"2.0","id":8,"result":{"taskId":"k","status":"working"}}"#;
    assert_eq!(bench.server(2, kept), [Done::Client(kept.to_owned())]);
    // So it does for a task that nobody has seen, and for one of its own.
    bench.client(&request(8, "tasks/get", r#"{"taskId":"x"}"#));
    assert_eq!(bench.server(2, UNKNOWN), [Done::Client(UNKNOWN.to_owned())]);
    bench.client(CALL_FOR_TASK);
    bench.server(2, TASK);
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    assert_eq!(bench.server(2, UNKNOWN), [Done::Client(UNKNOWN.to_owned())]);
}

#[test]
fn a_poll_that_was_under_way_gets_the_same_answer() {
    let mut bench = Bench::legacy();
    bench.client(CALL_FOR_TASK);
    bench.server(1, TASK);
    bench.client(&request(8, "tasks/result", r#"{"taskId":"k"}"#));
    bench.end(1);
    bench.revive(2);
    assert_eq!(told(&mut bench, 2, UNKNOWN)["result"]["isError"], true);
}

#[test]
fn the_newer_protocol_has_a_shape_of_its_own() {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    let mut bench = Bench::new();
    bench.start(1);
    bench.client(&request(7, "tools/call", &format!(r#"{{"name":"t",{meta}}}"#)));
    let task = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"task","taskId":"k","status":"working","ttlMs":5}}"#;
    bench.server(1, task);
    bench.end(1);
    bench.revive(2);
    bench.client(&request(8, "tasks/get", &format!(r#"{{"taskId":"k",{meta}}}"#)));
    let got = told(&mut bench, 2, UNKNOWN)["result"].take();
    assert_eq!(
        (&got["resultType"], &got["status"], &got["ttlMs"]),
        (&"complete".into(), &"failed".into(), &5.into())
    );
    assert_eq!(got["error"]["code"], -32603);
}

#[test]
fn a_status_that_the_client_was_told_is_final() {
    for status in ["completed", "failed", "cancelled"] {
        let task = format!(
            r#"{{"taskId":"k","status":"{status}","statusMessage":"so it was","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:09Z","ttl":60000}}"#
        );
        let answered = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{task}}}"#);
        for way in ["tasks/get", "tasks/cancel", "tasks/list", "notifications/tasks/status"] {
            let mut bench = Bench::legacy();
            bench.client(CALL_FOR_TASK);
            bench.server(1, TASK);
            match way {
                "notifications/tasks/status" => {
                    bench.server(
                        1,
                        &format!(r#"{{"jsonrpc":"2.0","method":"{way}","params":{task}}}"#),
                    );
                }
                "tasks/list" => {
                    bench.client(&request(8, way, "{}"));
                    bench.server(
                        1,
                        &format!(r#"{{"jsonrpc":"2.0","id":8,"result":{{"tasks":[{task}]}}}}"#),
                    );
                }
                _ => {
                    bench.client(&request(8, way, r#"{"taskId":"k"}"#));
                    bench.server(1, &answered(8));
                }
            }
            bench.end(1);
            bench.revive(2);
            bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
            let got = told(&mut bench, 2, UNKNOWN)["result"].take();
            let wanted: serde_json::Value = serde_json::from_str(&task).expect("JSON");
            assert_eq!(got, wanted, "{way}");
            bench.client(&request(8, "tasks/cancel", r#"{"taskId":"k"}"#));
            let got = told(&mut bench, 2, UNKNOWN)["error"].take();
            assert!(got["message"].as_str().expect("words").contains(status), "{got}");
            bench.client(&request(8, "tasks/result", r#"{"taskId":"k"}"#));
            let got = told(&mut bench, 2, UNKNOWN)["result"].take();
            let why = got["content"][0]["text"].as_str().expect("words");
            assert!(got["isError"] == true && why.contains(status), "{got}");
            assert!(!why.contains("outcome is unknown"), "{why}");
        }
    }
    // Its result says that it is done, too.
    let mut bench = Bench::legacy();
    bench.client(CALL_FOR_TASK);
    bench.server(1, TASK);
    bench.client(&request(8, "tasks/result", r#"{"taskId":"k"}"#));
    bench.server(1, r#"{"jsonrpc":"2.0","id":8,"result":{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"k"}}}}"#);
    bench.end(1);
    bench.revive(2);
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    assert_eq!(told(&mut bench, 2, UNKNOWN)["result"]["status"], "completed");
}

#[test]
fn a_restart_that_ends_a_task_is_named() {
    let mut bench = Bench::legacy();
    bench.client(CALL_FOR_TASK);
    bench.server(1, TASK);
    bench.handle(Input::Ended {
        generation: Generation(1),
        read: None,
        how: "exited with code 0".to_owned(),
        cause: EndCause::Superseded,
    });
    bench.revive(2);
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    let got = told(&mut bench, 2, UNKNOWN)["result"].take();
    let why = got["statusMessage"].as_str().expect("words");
    assert!(got["status"] == "failed" && why.contains("restart"), "{got}");
    assert!(!why.contains("exited with code 0"), "{why}");
}

#[test]
fn while_the_old_instance_still_ends_a_task_has_failed_already() {
    let mut bench = Bench::legacy();
    bench.client(CALL_FOR_TASK);
    bench.server(1, TASK);
    bench.revive(2);
    bench.client(&request(8, "tasks/get", r#"{"taskId":"k"}"#));
    let got = told(&mut bench, 2, UNKNOWN)["result"].take();
    let why = got["statusMessage"].as_str().expect("words");
    assert!(got["status"] == "failed" && why.contains("restart"), "{got}");
}
