//! Ten thousand instances leave no descriptor, no zombie and no memory behind.

use std::fs;

use afresh_tests::{TestEnv, wait_for};

use crate::{AT_ONCE, keep, stop};

#[test]
fn ten_thousand_spawns_leak_no_descriptor() {
    let env = TestEnv::new();
    let flags = [&AT_ONCE[..], &["--throttle", "0s"]].concat();
    let mut afresh = keep(&env, &flags, &["exit-at", "10000", "1"]);
    let ours = |env: &TestEnv| {
        let mut all: Vec<_> = env.alive().into_iter().filter(|p| p.is_ours()).collect();
        all.sort_by_key(|process| process.pid);
        all
    };
    wait_for("supervisor, warden and guardian run", || ours(&env).len() == 3);
    let before = ours(&env);
    for thousands in 1..10 {
        afresh.wait_stdout("passed", thousands);
    }
    afresh.wait_stdout("arrived", 1);
    let after = ours(&env);
    assert_eq!(before, after, "the same three processes all along");
    for process in &after {
        let descriptors =
            || fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it lives").count();
        // Three pipes and a socket for the service; event loop, signals, stdio and trail.
        wait_for(&format!("few descriptors in {process:?}, not {}", descriptors()), || {
            descriptors() < 30
        });
        assert_eq!(afresh_tests::process::zombies_of(process.pid), 0);
    }
    assert_eq!(env.events("server_started").len(), 10_000);
    stop(&env, &mut afresh);
}
