//! Stopping, in every state and with every kind of resistance.

use afresh_tests::TestEnv;
use nix::sys::signal::Signal;

use crate::{keep, stop};

#[test]
fn a_child_that_ignores_sigterm_is_killed_and_that_is_said() {
    // W9
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "200ms"], &["ignores-term"]);
    afresh.wait_stdout("ready", 1);
    afresh.signal(Signal::SIGINT);
    assert_eq!(afresh.wait().code(), Some(0));
    let log = afresh.stderr();
    assert!(log.contains("has not ended within") && log.contains("now sending SIGKILL"), "{log}");
    assert!(log.contains("ended by signal 9 (SIGKILL)"), "{log}");
    env.assert_nothing_left();
}

#[test]
fn a_second_ctrl_c_waits_for_nothing() {
    // W9
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "1h"], &["ignores-term"]);
    afresh.wait_stdout("ready", 1);
    afresh.wait_started(1);
    // Two that come at the same moment are one: it is asked until it has heard the second.
    afresh_tests::wait_for("it ends", || {
        afresh.signal(Signal::SIGINT);
        afresh.stderr().contains("afresh exits")
    });
    assert_eq!(afresh.wait().code(), Some(0));
    env.assert_nothing_left();
}

#[test]
fn several_signals_for_one_stop_leave_the_grace_alone() {
    // A terminal that closes sends two hangups, `timeout` sends SIGTERM twice.
    let env = TestEnv::new();
    let script =
        "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut afresh = env.start(&["keep", "--", "sh", "-c", script]);
    afresh.wait_stdout("ready", 1);
    afresh.wait_started(1);
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM]
    {
        afresh.signal(signal);
    }
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(afresh.stdout().contains("cleaned"), "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn ctrl_c_in_a_backoff_ends_at_once() {
    // G6
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--delay", "1h", "--max-delay", "2h"], &["exit", "1"]);
    afresh.wait_stderr("Restarting", 1);
    afresh.signal(Signal::SIGINT);
    assert_eq!(afresh.wait().code(), Some(0));
    assert_eq!(env.events("server_started").len(), 1, "nothing is started in a shutdown");
    env.assert_nothing_left();
}

#[test]
fn ctrl_c_in_a_throttled_restart_ends_at_once() {
    // G6
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--throttle", "1h"], &["restarts"]);
    afresh.wait_stderr("restart throttled", 1);
    stop(&env, &mut afresh);
}

#[test]
fn ctrl_c_while_it_starts_leaves_nothing() {
    // G6: as early as can be, and a little later each time.
    for round in 0..20_u32 {
        let env = TestEnv::new();
        let mut afresh = keep(&env, &["--stop-timeout", "100ms"], &["family", "setsid"]);
        for _ in 0..round {
            std::thread::yield_now();
            afresh_tests::process::all();
        }
        afresh.signal(Signal::SIGTERM);
        let status = afresh.wait();
        // Before it listens for signals, SIGTERM simply ends it.
        let ended = status.code() == Some(0)
            || std::os::unix::process::ExitStatusExt::signal(&status) == Some(15);
        assert!(ended, "{status:?}");
        env.assert_nothing_left();
    }
}

#[test]
fn the_end_of_the_terminal_is_a_stop() {
    // W9
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "100ms"], &["family", "setsid"]);
    afresh.wait_stdout("ready", 1);
    afresh.signal(Signal::SIGHUP);
    assert_eq!(afresh.wait().code(), Some(0));
    env.assert_nothing_left();
}

#[test]
fn sigterm_from_outside_is_the_users_stop_and_sigkill_is_not() {
    // O3
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--delay", "10ms"], &["idle"]);
    let pid = |n: usize| nix::unistd::Pid::from_raw(env.wait_for_pid("server_started", n));
    afresh.wait_stdout("ready", 1);
    nix::sys::signal::kill(pid(1), Signal::SIGKILL).expect("it runs");
    afresh.wait_stdout("ready", 2);
    nix::sys::signal::kill(pid(2), Signal::SIGTERM).expect("it runs");
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(afresh.stderr().contains("hostile stopped by user, not restarting"));
    assert_eq!(env.events("server_started").len(), 2);
    env.assert_nothing_left();
}

#[test]
fn stdin_closes_first_where_that_is_configured() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stdin-timeout", "1h"], &["echo"]);
    afresh.wait_stdout("ready", 1);
    afresh.signal(Signal::SIGTERM);
    // An hour would pass before SIGTERM: only the end of its input ends it.
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(afresh.stdout().contains("end of input"), "{}", afresh.stdout());
    env.assert_nothing_left();
}

#[test]
fn under_nohup_the_end_of_the_terminal_is_nothing() {
    let env = TestEnv::new();
    let afresh = afresh_tests::afresh_binary().display();
    let script = format!("trap '' HUP; exec {afresh} keep -- {} idle", crate::HOSTILE);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    env.furnish(&mut command);
    let mut afresh = afresh_tests::Running::start(command);
    afresh.wait_started(1);
    afresh.signal(Signal::SIGHUP);
    // Signals are heard in the order of their numbers: the restart comes after the hangup.
    afresh.signal(Signal::SIGUSR1);
    afresh.wait_started(2);
    stop(&env, &mut afresh);
}
