//! Ten thousand instances leave no descriptor, no zombie and no memory behind.

use std::fs;

use afresh_tests::process::Process;
use afresh_tests::{TestEnv, wait_for};

use crate::{AT_ONCE, keep, stop};

#[test]
fn ten_thousand_spawns_leak_no_descriptor() {
    let env = TestEnv::new();
    let flags = [&AT_ONCE[..], &["--throttle", "0s"]].concat();
    let mut afresh = keep(&env, &flags, &["exit-at", "10000", "1"]);
    let names = ["afresh", "afresh-warden", "afresh-guardian"];
    // A child that has not become its program yet looks like its guardian.
    let ours = || {
        let mut all = env.alive();
        all.retain(|process| !process.command.contains("exit-at") || process.name == "afresh");
        names.map(|name| all.iter().find(|process| process.name == name).cloned())
    };
    wait_for("supervisor, warden and guardian run", || ours().iter().all(Option::is_some));
    afresh.wait_stdout_at_work("passed", 1);
    let before = ours();
    for thousands in 2..10 {
        afresh.wait_stdout_at_work("passed", thousands);
    }
    afresh.wait_stdout_at_work("arrived", 1);
    let after = ours();
    let pid = |process: &Option<Process>| process.as_ref().map(|process| process.pid);
    assert_eq!(before.each_ref().map(pid)[0], after.each_ref().map(pid)[0]);
    assert_eq!(before.each_ref().map(pid)[1], after.each_ref().map(pid)[1]);
    for process in after.iter().flatten() {
        let descriptors =
            || fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it lives").count();
        // Three pipes and a socket for the service; event loop, signals, stdio and trail.
        wait_for(&format!("few descriptors in {process:?}, not {}", descriptors()), || {
            descriptors() < 30
        });
        assert_eq!(afresh_tests::process::zombies_of(process.pid), 0, "{process:?}");
    }
    stop(&env, &mut afresh);
    assert_eq!(env.events("server_started").len(), 10_000);
}
