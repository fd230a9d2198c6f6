//! Nothing outlives its service, and nothing outlives afresh.

use afresh_tests::process::Process;
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;

use crate::{AT_ONCE, HOSTILE, keep, stop};

const SHAPES: [&str; 5] = ["plain", "ignores-term", "setsid", "double-fork", "zombie"];

/// Living processes of the fixture.
fn hostile(env: &TestEnv) -> Vec<Process> {
    env.alive().into_iter().filter(|process| process.command.starts_with(HOSTILE)).collect()
}

fn named(env: &TestEnv, name: &str) -> Process {
    let mut found = None;
    wait_for(name, || {
        found = env.alive().into_iter().find(|process| process.name == name);
        found.is_some()
    });
    found.expect("just seen")
}

fn family(env: &TestEnv) -> afresh_tests::Running {
    let flags = [&AT_ONCE[..], &["--stop-timeout", "300ms"]].concat();
    let afresh = keep(env, &flags, &[&["family"], &SHAPES[..]].concat());
    afresh.wait_stdout("ready", 1);
    // The leader, and one for each shape; the double fork's middle is gone.
    wait_for("the family is complete", || hostile(env).len() == 1 + SHAPES.len());
    afresh
}

#[test]
fn a_stop_ends_the_whole_tree() {
    let env = TestEnv::new();
    let mut afresh = family(&env);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(env.alive().is_empty(), "all is gone when afresh is: {:?}", env.alive());
}

#[test]
fn sigkill_of_afresh_ends_the_whole_tree() {
    let env = TestEnv::new();
    let mut afresh = family(&env);
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();
}

#[test]
fn sigkill_of_the_service_ends_what_it_had_started_before_the_next_one_runs() {
    // G5
    let env = TestEnv::new();
    let mut afresh = family(&env);
    let before = hostile(&env);
    let leader = env.wait_for_pid("server_started", 1);
    before.iter().find(|p| p.pid == leader).expect("it runs").signal(Signal::SIGKILL);
    afresh.wait_stdout("ready", 2);
    wait_for("the second family is complete", || hostile(&env).len() == 1 + SHAPES.len());
    let old: Vec<_> = hostile(&env).into_iter().filter(|p| before.contains(p)).collect();
    assert!(old.is_empty(), "{old:?}");
    afresh.wait_stderr("processes behind", 1);
    stop(&env, &mut afresh);
}

#[test]
fn a_killed_guardian_is_replaced_and_its_tree_swept() {
    let env = TestEnv::new();
    let mut afresh = family(&env);
    let before = hostile(&env);
    named(&env, "afresh-guardian").signal(Signal::SIGKILL);
    afresh.wait_stdout("ready", 2);
    let old: Vec<_> = hostile(&env).into_iter().filter(|p| before.contains(p)).collect();
    assert!(old.is_empty(), "{old:?}");
    afresh.wait_stderr("guardian was lost", 1);
    stop(&env, &mut afresh);
}

#[test]
fn a_killed_warden_disturbs_no_service_and_the_next_loss_is_swept_without_it() {
    let env = TestEnv::new();
    let mut afresh = family(&env);
    let before = hostile(&env);
    named(&env, "afresh-warden").signal(Signal::SIGKILL);
    afresh.wait_stderr("the warden was killed", 1);
    assert_eq!(hostile(&env).len(), before.len());
    // The guardian is ours now, and so is what it leaves.
    named(&env, "afresh-guardian").signal(Signal::SIGKILL);
    afresh.wait_stdout("ready", 2);
    let old: Vec<_> = hostile(&env).into_iter().filter(|p| before.contains(p)).collect();
    assert!(old.is_empty(), "{old:?}");
    stop(&env, &mut afresh);
}

#[test]
fn warden_and_guardian_killed_together_leave_nothing() {
    for also in ["afresh-guardian", "supervisor"] {
        let env = TestEnv::new();
        let mut afresh = family(&env);
        let before = hostile(&env);
        let warden = named(&env, "afresh-warden");
        let other = named(&env, "afresh-guardian");
        warden.signal(Signal::SIGKILL);
        if also == "supervisor" {
            afresh.signal(Signal::SIGKILL);
            afresh.wait();
        } else {
            other.signal(Signal::SIGKILL);
            afresh.wait_stdout("ready", 2);
            let old: Vec<_> = hostile(&env).into_iter().filter(|p| before.contains(p)).collect();
            assert!(old.is_empty(), "{old:?}");
            stop(&env, &mut afresh);
        }
        env.assert_nothing_left();
    }
}

#[test]
fn supervisor_and_guardian_killed_together_leave_nothing() {
    let env = TestEnv::new();
    let mut afresh = family(&env);
    named(&env, "afresh-guardian").signal(Signal::SIGKILL);
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();
}

#[test]
fn a_process_that_is_a_new_one_every_moment_is_caught() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "100ms"], &["hydra"]);
    afresh.wait_stdout("ready", 1);
    stop(&env, &mut afresh);
}

#[test]
fn a_stopped_process_is_stopped_for_good() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    afresh.wait_stdout("ready", 1);
    hostile(&env)[0].signal(Signal::SIGSTOP);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(!afresh.stderr().contains("SIGKILL"), "SIGTERM was enough: {}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn a_guardian_that_hangs_is_replaced() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "100ms"], &["ignores-term"]);
    afresh.wait_stdout("ready", 1);
    let Some(cgroup) = cgroup_of(named(&env, "afresh-guardian").pid) else {
        // Nothing else can freeze a guardian for good: a stopped one is woken by the warden.
        return stop(&env, &mut afresh);
    };
    std::fs::write(cgroup.join("cgroup.freeze"), "1").expect("it is a cgroup of afresh's own");
    afresh.signal(Signal::SIGTERM);
    afresh.wait_stderr("replacing its guardian", 1);
    assert_eq!(afresh.wait().code(), Some(0));
    env.assert_nothing_left();
    wait_for("its cgroup is removed", || !cgroup.exists());
}

/// The cgroup of a guardian, where it has one of its own.
fn cgroup_of(pid: i32) -> Option<std::path::PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let inside = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = std::path::Path::new(mount.split(' ').nth(1)?).join(inside);
    path.file_name()?.to_str()?.starts_with("afresh-").then_some(path)
}

#[test]
fn what_a_massacre_leaves_is_ended_by_the_next_start() {
    let env = TestEnv::new();
    let afresh = family(&env);
    let has_cgroup = cgroup_of(named(&env, "afresh-guardian").pid).is_some();
    // All of ours in one stroke: then nobody is left to sweep.
    for process in env.alive().into_iter().filter(Process::is_ours) {
        process.signal(Signal::SIGKILL);
    }
    drop(afresh);
    assert_eq!(env.run(&["keep", "--", "true"]).code, Some(0));
    if has_cgroup {
        env.assert_nothing_left();
    } else {
        // Without a cgroup there is no telling whose they were.
        hostile(&env).iter().for_each(|process| process.signal(Signal::SIGKILL));
    }
}

#[test]
fn children_that_were_there_before_us_are_left_alone() {
    let env = TestEnv::new();
    let afresh = afresh_tests::afresh_binary().display();
    // The shell starts a process and then becomes afresh, which inherits it as a child.
    // One of them loses its own parent meanwhile.
    let script =
        format!("( {HOSTILE} idle & ) ; {HOSTILE} idle & exec {afresh} keep -- {HOSTILE} exit 0");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    env.furnish(&mut command);
    let mut shell = afresh_tests::Running::start(command);
    shell.wait_stdout("ready", 2);
    assert_eq!(shell.wait().code(), Some(0));
    let left = env.alive();
    assert_eq!(left.len(), 2, "{left:?}");
    left.iter().for_each(|process| process.signal(Signal::SIGKILL));
    env.assert_nothing_left();
}
