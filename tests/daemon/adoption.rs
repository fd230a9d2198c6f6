//! Services that outlive a killed supervisor, and the next one that takes them over.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use afresh_tests::process::Process;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;

use super::HOSTILE;

fn folder(env: &TestEnv) -> PathBuf {
    env.work().join(".afresh/run")
}

/// Starts a supervisor of these services, each as `NAME WORDS`, and waits until it runs.
fn supervisor(env: &TestEnv, on_death: &str, services: &[&str]) -> Running {
    let commands: Vec<(&str, Vec<&str>)> = services
        .iter()
        .map(|service| {
            let (name, words) = service.split_once(' ').expect("a name and words");
            (name, [HOSTILE].into_iter().chain(words.split(' ')).collect())
        })
        .collect();
    supervisor_of(env, on_death, &commands)
}

fn supervisor_of(env: &TestEnv, on_death: &str, services: &[(&str, Vec<&str>)]) -> Running {
    let mut text = format!(
        "[daemon]\non_supervisor_death = \"{on_death}\"\n[defaults]\ndelay = \"20ms\"\nfactor = 1.0\n\
         jitter = 0\ncrash_loop_count = 0\nmax_restarts = 0\nstop_timeout = \"500ms\"\n"
    );
    for (name, command) in services {
        text.push_str(&format!("[service.{name}]\ncommand = {command:?}\n"));
    }
    env.write("afresh.toml", &text);
    let running = env.start(&["up"]);
    running.wait_stderr("all services are set up", 1);
    running
}

/// Kills a supervisor, and collects what it had printed.
fn kill(mut supervisor: Running) -> String {
    supervisor.signal(Signal::SIGKILL);
    supervisor.wait_output()
}

#[track_caller]
fn stop(env: &TestEnv, mut supervisor: Running) {
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.wait().code(), Some(0), "{}", supervisor.stderr());
    env.assert_nothing_left();
    let left: Vec<_> = std::fs::read_dir(folder(env)).expect("it is there").flatten().collect();
    let names: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["warden.lock"], "nothing else stays");
}

/// The processes of the services.
fn hostile(env: &TestEnv) -> Vec<Process> {
    let mut all = env.alive();
    all.retain(|process| process.name == "hostile");
    all
}

fn warden(env: &TestEnv) -> Process {
    let mut all = env.alive();
    all.retain(|process| process.name == "afresh-warden");
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The process of the newest instance of a service that was told as started or taken over.
fn pid_of(env: &TestEnv, service: &str) -> i64 {
    let told = ["server_started", "server_adopted"];
    let mut pid = None;
    wait_for("it is told", || {
        let mut records = env.records();
        records.retain(|record| {
            let props = &record["props"];
            props["service"] == service && told.iter().any(|told| props["event_type"] == *told)
        });
        pid = records.last().and_then(|record| record["props"]["pid"].as_i64());
        pid.is_some()
    });
    pid.expect("just seen")
}

/// The numbers of the lines of a service.
fn numbers(printed: &str, service: &str) -> Vec<u64> {
    let prefix = format!("{service} | line ");
    printed.lines().filter_map(|line| line.strip_prefix(&prefix)?.parse().ok()).collect()
}

#[test]
fn services_outlive_their_supervisor_and_the_next_one_takes_them_over() {
    let env = TestEnv::new();
    let services = ["plain count 1", "stubborn count 1 ignores-term", "parent count 5 setsid"];
    let first = supervisor(&env, "keep", &services);
    for service in ["plain", "stubborn", "parent"] {
        first.wait_stdout(&format!("{service} | line 20"), 1);
    }
    let before = hostile(&env);
    assert_eq!(before.len(), 4);
    let pids = ["plain", "stubborn", "parent"].map(|service| pid_of(&env, service));
    let mut printed = kill(first);
    assert_eq!(hostile(&env), before, "they run on");

    let second = supervisor(&env, "keep", &services);
    let last = *numbers(&printed, "plain").last().expect("it has printed");
    second.wait_stdout(&format!("plain | line {}", last + 200), 1);
    wait_for("all are taken over", || env.events("server_adopted").len() == 3);
    assert_eq!(["plain", "stubborn", "parent"].map(|service| pid_of(&env, service)), pids);
    let pids_of = |all: Vec<Process>| all.into_iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(pids_of(hostile(&env)), pids_of(before));
    assert!(env.events("server_crashed").is_empty());
    printed.push_str(&second.stdout());
    for service in ["plain", "stubborn", "parent"] {
        let numbers = numbers(&printed, service);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{service}: in order, and none twice");
    }
    stop(&env, second);
    assert_eq!(env.events("server_exited").len(), 3, "{:?}", env.events("server_exited"));
}

#[test]
fn output_of_the_time_without_a_supervisor_is_complete() {
    let env = TestEnv::new();
    let file = |name: &str| env.work().join(name);
    let touch = |name: &str| std::fs::write(file(name), "").expect("the workspace is writable");
    let script = "echo ready; while [ ! -e start ]; do sleep 0.01; done; i=0; \
                  while [ $i -lt 20000 ]; do echo line $i; echo error $i >&2; i=$((i+1)); done; \
                  printf half; touch printed; while [ ! -e end ]; do sleep 0.01; done; \
                  echo ' a line'; exit 7";
    let script = env.write("printer.sh", script);
    let again = || {
        let script = script.display().to_string();
        supervisor_of(&env, "keep", &[("printer", vec!["sh", &script])])
    };
    let first = again();
    first.wait_stdout("printer | ready", 1);
    kill(first);
    // More than a pipe holds: it would wait for ever if nobody took it.
    touch("start");
    wait_for("it has printed all", || file("printed").exists());
    let second = again();
    second.wait_stdout("printer | line 19999\n", 1);
    std::fs::remove_file(file("start")).expect("the next one waits for it too");
    touch("end");
    second.wait_stdout("printer | half a line", 1);
    let numbers = numbers(&second.stdout(), "printer");
    assert_eq!(numbers, (0..20_000).collect::<Vec<_>>());
    wait_for("the other stream too", || {
        second.stderr().matches("printer | error ").count() == 20_000
    });
    wait_for("its own exit code", || {
        env.events("server_crashed").iter().any(|record| record["props"]["exit_code"] == 7)
    });
    stop(&env, second);
}

#[test]
fn an_end_while_nobody_was_there_is_told_with_its_code_and_the_policy_follows() {
    let env = TestEnv::new();
    let file = env.work().join("go");
    let service = format!("mortal waits {} 7", file.display());
    let first = supervisor(&env, "keep", &[&service]);
    first.wait_stdout("mortal | ready", 1);
    let pid = pid_of(&env, "mortal");
    kill(first);
    std::fs::write(&file, "").expect("the workspace is writable");
    wait_for("it ends", || hostile(&env).is_empty());
    std::fs::remove_file(&file).expect("it was just written");

    let second = supervisor(&env, "keep", &[&service]);
    second.wait_stdout("mortal | last words", 1);
    second.wait_stdout("mortal | ready", 1);
    wait_for("its end is told", || !env.events("server_crashed").is_empty());
    let crashed = env.events("server_crashed");
    assert_eq!(crashed.len(), 1);
    assert_eq!(crashed[0]["props"]["exit_code"], 7);
    assert_eq!(crashed[0]["props"]["pid"], pid);
    wait_for("the next one is told", || env.events("server_started").len() == 2);
    assert_eq!(env.events("server_started")[1]["props"]["generation"], 2);
    stop(&env, second);
}

#[test]
fn thirty_supervisors_in_a_row_are_killed_and_no_service_notices() {
    let env = TestEnv::new();
    let services = ["a count 1", "b count 1 setsid"];
    let mut supervisors = supervisor(&env, "keep", &services);
    supervisors.wait_stdout("a | line 5", 1);
    supervisors.wait_stdout("b | line 5", 1);
    let before = hostile(&env);
    let mut printed = Vec::new();
    for _ in 0..30 {
        printed.push(kill(supervisors));
        supervisors = supervisor(&env, "keep", &services);
    }
    let last = *numbers(&printed.concat(), "a").last().expect("it has printed");
    supervisors.wait_stdout(&format!("a | line {}", last + 100), 1);
    assert_eq!(hostile(&env), before);
    printed.push(supervisors.stdout());
    for service in ["a", "b"] {
        let parts: Vec<Vec<u64>> = printed.iter().map(|part| numbers(part, service)).collect();
        assert!(parts.iter().all(|part| part.is_sorted_by(|a, b| a < b)), "{parts:?}");
        // What a supervisor has read from a pipe and not yet written dies with it; what it was just
        // writing of the time before it may come twice. Both are a few milliseconds' worth.
        let all: BTreeSet<u64> = parts.iter().flatten().copied().collect();
        let missing = all.last().expect("some") + 1 - all.len() as u64;
        let twice = parts.iter().flatten().count() - all.len();
        assert!(missing < 300 && twice < 300, "{missing} are missing, {twice} come twice");
    }
    stop(&env, supervisors);
}

#[test]
fn a_stop_that_was_under_way_is_finished_by_the_next_supervisor() {
    let env = TestEnv::new();
    let services = ["a hears-term"];
    let first = supervisor(&env, "keep", &services);
    first.wait_stdout("a | ready", 1);
    let before = hostile(&env);
    first.signal(Signal::SIGUSR1);
    first.wait_stdout("a | heard", 1);
    kill(first);
    let second = supervisor(&env, "keep", &services);
    second.wait_stdout("a | ready", 1);
    assert!(hostile(&env).iter().all(|it| !before.contains(it)), "a new one");
    assert_eq!(hostile(&env).len(), 1);
    stop(&env, second);
}

#[test]
fn a_service_that_is_not_defined_any_more_is_stopped() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1", "b family setsid double-fork"]);
    first.wait_stdout("b | ready", 1);
    first.wait_stdout("a | ready", 1);
    kill(first);
    let second = supervisor(&env, "keep", &["a count 1"]);
    second.wait_stderr("does not have b any more", 1);
    wait_for("only the other one is left", || hostile(&env).len() == 1);
    stop(&env, second);
}

#[test]
fn without_supervisor_and_warden_nothing_is_left() {
    let env = TestEnv::new();
    let services = ["a count 1 setsid", "b ignores-term-family", "c count 1 double-fork"];
    let first = supervisor(&env, "keep", &services);
    first.wait_stdout("| ready", 3);
    let warden = warden(&env);
    kill(first);
    wait_for("the warden is alone", || {
        afresh_daemon::abandoned_warden(&folder(&env)).is_some_and(|it| it.instances == 3)
    });
    warden.signal(Signal::SIGKILL);
    env.assert_nothing_left();
    assert_eq!(afresh_daemon::abandoned_warden(&folder(&env)), None);
    let second = supervisor(&env, "keep", &services);
    second.wait_stdout("| ready", 3);
    stop(&env, second);
}

#[test]
fn a_guardian_that_is_killed_while_nobody_is_there_leaves_nothing() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1 setsid"]);
    first.wait_stdout("a | ready", 1);
    let mut guardians = env.alive();
    kill(first);
    guardians.retain(|process| process.name == "afresh-guardian");
    guardians.iter().for_each(|guardian| guardian.signal(Signal::SIGKILL));
    env.assert_nothing_left();
    let second = supervisor(&env, "keep", &["a count 1 setsid"]);
    second.wait_stdout("a | ready", 1);
    stop(&env, second);
}

#[test]
fn an_adopted_warden_that_is_killed_disturbs_no_service() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1"]);
    first.wait_stdout("a | ready", 1);
    kill(first);
    let second = supervisor(&env, "keep", &["a count 1"]);
    second.wait_stdout("a | line", 1);
    let before = hostile(&env);
    warden(&env).signal(Signal::SIGKILL);
    second.wait_stderr("the warden was killed", 1);
    let printed = numbers(&second.stdout(), "a").len();
    wait_for("it prints on", || numbers(&second.stdout(), "a").len() > printed + 50);
    let pids = |all: Vec<Process>| all.into_iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(pids(hostile(&env)), pids(before));
    stop(&env, second);
}

#[test]
fn with_kill_the_next_supervisor_begins_when_all_is_gone() {
    let env = TestEnv::new();
    let services = ["a count 1 setsid", "b ignores-term-family", "c count 1 ignores-term"];
    let mut first = supervisor(&env, "kill", &services);
    first.wait_stdout("| ready", 3);
    for _ in 0..5 {
        let before = hostile(&env);
        kill(first);
        first = supervisor(&env, "kill", &services);
        // It has begun, so nothing of the one before is there.
        let now = hostile(&env);
        assert!(before.iter().all(|old| !now.contains(old)), "{now:?}");
        first.wait_stdout("| ready", 3);
    }
    assert!(env.events("server_adopted").is_empty());
    stop(&env, first);
}

#[test]
fn counts_go_on_where_they_were() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1"]);
    first.wait_stdout("a | line", 1);
    let end = |pid: i64| {
        let pid = i32::try_from(pid).expect("a pid");
        let all = hostile(&env);
        all.iter().find(|it| it.pid == pid).expect("it runs").signal(Signal::SIGKILL);
    };
    end(pid_of(&env, "a"));
    wait_for("the next one is told", || env.events("server_started").len() == 2);
    let pid = pid_of(&env, "a");
    kill(first);
    let second = supervisor(&env, "keep", &["a count 1"]);
    assert_eq!(pid_of(&env, "a"), pid);
    wait_for("it is taken over", || env.events("server_adopted").len() == 1);
    assert_eq!(env.events("server_adopted")[0]["props"]["generation"], 2);
    end(pid);
    wait_for("the next one is told", || env.events("server_started").len() == 3);
    let started = &env.events("server_started")[2]["props"];
    assert_eq!((&started["generation"], &started["restarts"]), (&3.into(), &2.into()));
    stop(&env, second);
}

#[test]
fn what_was_kept_goes_with_a_supervisor_that_does_not_keep() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1 setsid"]);
    first.wait_stdout("a | ready", 1);
    let before = hostile(&env);
    kill(first);
    let second = supervisor(&env, "kill", &["a count 1 setsid"]);
    second.wait_stdout("a | line", 1);
    let pids = |all: Vec<Process>| all.into_iter().map(|it| it.pid).collect::<Vec<_>>();
    assert_eq!(pids(hostile(&env)), pids(before), "taken over all the same");
    kill(second);
    env.assert_nothing_left();
}

#[test]
fn a_second_supervisor_is_refused_while_there_is_one() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1"]);
    first.wait_stdout("a | ready", 1);
    // Even one that sees neither the lock of the workspace nor the control socket.
    std::fs::remove_file(env.work().join(".afresh/up.lock")).expect("it is there");
    let mut command = env.afresh(&["up"]);
    command.env("AFRESH_RUNTIME_DIR", env.home().join("sockets"));
    let mut second = Running::start(command);
    assert_eq!(second.wait().code(), Some(5), "{}", second.stderr());
    second.wait_stderr("have a supervisor", 1);
    assert_eq!(hostile(&env).len(), 1);
    stop(&env, first);
}

/// Visits the warden, and hears its greeting.
fn visit(env: &TestEnv) -> UnixStream {
    let mut socket = UnixStream::connect(folder(env).join("warden.sock")).expect("it listens");
    let mut greeting = [0; 12];
    socket.read_exact(&mut greeting).expect("it greets");
    assert_eq!(&greeting[4..], b"afresh\0k");
    socket
}

#[test]
fn an_afresh_of_another_version_can_have_all_ended() {
    let env = TestEnv::new();
    let services = ["a count 1 setsid", "b count 1 ignores-term"];
    let first = supervisor(&env, "keep", &services);
    first.wait_stdout("| ready", 2);
    kill(first);
    wait_for("the warden is alone", || afresh_daemon::abandoned_warden(&folder(&env)).is_some());
    let mut socket = visit(&env);
    // All versions have to understand this: 9 bytes, of which the first says to end all, in 300 ms.
    let end = [9, 0, 0, 0, 2, 0x2c, 1, 0, 0, 0, 0, 0, 0];
    socket.write_all(&end).expect("it listens");
    env.assert_nothing_left();
    stop(&env, supervisor(&env, "keep", &["a count 1"]));
}

#[test]
fn a_visitor_that_says_nothing_or_nonsense_keeps_nobody_out() {
    let env = TestEnv::new();
    let first = supervisor(&env, "keep", &["a count 1"]);
    first.wait_stdout("a | ready", 1);
    let before = hostile(&env);
    kill(first);
    wait_for("the warden is alone", || afresh_daemon::abandoned_warden(&folder(&env)).is_some());
    let mut nonsense = visit(&env);
    nonsense.write_all(&[0xff; 64]).expect("it listens");
    let silent = visit(&env);
    let second = supervisor(&env, "keep", &["a count 1"]);
    drop(silent);
    assert_eq!(hostile(&env), before);
    stop(&env, second);
}

#[test]
fn services_that_neither_a_supervisor_nor_a_socket_reaches_are_ended_by_down() {
    for lost in ["warden.sock", ""] {
        let env = TestEnv::new();
        let supervisor = supervisor(&env, "keep", &["one idle", "two ignores-term"]);
        pid_of(&env, "one");
        pid_of(&env, "two");
        kill(supervisor);
        assert_eq!(hostile(&env).len(), 2, "they outlive it");
        // As `git clean -fdx` does, in part or as a whole.
        match lost {
            "" => std::fs::remove_dir_all(folder(&env)).expect("it is there"),
            name => std::fs::remove_file(folder(&env).join(name)).expect("it is there"),
        }
        let down = env.run(&["down"]);
        assert_eq!(down.code, Some(0), "{down:?}");
        assert_eq!(down.stdout, "2 services of an afresh that was killed: ended\n");
        let stopped = env.events("server_stopped");
        assert_eq!(stopped.len(), 1, "{stopped:?}");
        assert_eq!(stopped[0]["props"]["instances"], 2, "{stopped:?}");
        assert!(stopped[0]["props"]["by"]["pid"].is_u64(), "{stopped:?}");
        env.assert_nothing_left();
        let nothing = env.run(&["down"]);
        assert_eq!(nothing.code, Some(4), "{nothing:?}");
    }
}

#[test]
fn a_link_in_a_clone_does_not_lead_down_to_services_of_another_workspace() {
    let (env, clone) = (TestEnv::new(), TestEnv::new());
    let supervisor = supervisor(&env, "keep", &["one idle"]);
    pid_of(&env, "one");
    kill(supervisor);
    symlink(folder(&env), folder(&clone)).expect("ours");
    for is_lost in [false, true] {
        if is_lost {
            std::fs::remove_file(folder(&env).join("warden.sock")).expect("it is there");
        }
        let down = clone.run(&["down"]);
        assert_eq!(down.code, Some(4), "{down:?}");
        assert!(!down.stderr.contains("takes them over"), "{down:?}");
        assert_eq!(hostile(&env).len(), 1, "they are not this workspace's");
    }
    assert_eq!(env.run(&["down"]).code, Some(0));
    env.assert_nothing_left();
}

#[test]
fn down_leaves_services_alone_that_have_a_supervisor_or_can_be_taken_over() {
    let env = TestEnv::new();
    let supervisor = supervisor(&env, "keep", &["one idle"]);
    pid_of(&env, "one");
    kill(supervisor);
    let down = env.run(&["down"]);
    assert_eq!(down.code, Some(4), "{down:?}");
    assert!(down.stderr.contains("`afresh up` takes them over"), "{down:?}");
    assert_eq!(hostile(&env).len(), 1);
    let next = env.start(&["up"]);
    next.wait_stderr("all services are set up", 1);
    stop(&env, next);
}
