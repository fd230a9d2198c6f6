//! What a user of `afresh keep` meets: mistakes, crashes, full disks.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use afresh_tests::{Running, TestEnv, records_of};
use nix::sys::signal::Signal;

use crate::{HOSTILE, keep, stop};

#[test]
fn what_cannot_be_started_is_explained() {
    let env = TestEnv::new();
    env.write("script.sh", "echo hi\n");
    let orphan = env.write("orphan.sh", "#!/no/such/interpreter\n");
    fs::set_permissions(&orphan, fs::Permissions::from_mode(0o755)).expect("ours");
    let windows = env.write("windows.sh", "#!/bin/sh\r\necho hi\r\n");
    fs::set_permissions(&windows, fs::Permissions::from_mode(0o755)).expect("ours");
    let cases: [(&[&str], i32, &str, &str); 8] = [
        (&["--", "no-such-command"], 127, "command not found: `no-such-command`", "check PATH"),
        (
            &["--", "node server.js"],
            127,
            "command not found: `node server.js`",
            "leave out the quotes",
        ),
        (&["--", "./nothing"], 127, "no such file: `./nothing`", "check the path"),
        (&["--", "./script.sh"], 126, "`./script.sh` is not executable", "chmod +x"),
        (&["--", "./orphan.sh"], 127, "needs `/no/such/interpreter`", "install"),
        (&["--", "./windows.sh"], 127, "needs `/bin/sh\\r`", "change the first line"),
        (&["--", "."], 126, "`.` is a folder", "name a program inside"),
        (&["--cwd", "gone", "--", "sh"], 125, "does not exist", "--cwd"),
    ];
    for (arguments, code, message, hint) in cases {
        let done = env.run(&[&["keep"], arguments].concat());
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(message), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(hint), "{arguments:?}: {}", done.stderr);
    }
    env.assert_nothing_left();
}

#[test]
fn a_command_that_vanishes_later_is_tried_again() {
    let env = TestEnv::new();
    let script = env.write("server.sh", "#!/bin/sh\necho up\nread line\nexit 1\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let flags = [
        "keep",
        "--delay",
        "20ms",
        "--max-delay",
        "20ms",
        "--max-restarts",
        "0",
        "--crash-loop-count",
        "0",
    ];
    let mut afresh = env.start(&[&flags[..], &["--", "./server.sh"]].concat());
    afresh.wait_stdout("up", 1);
    let aside = env.work().join("aside");
    fs::rename(&script, &aside).expect("ours");
    afresh.write("go\n");
    afresh.wait_stderr("no such file", 3);
    fs::rename(&aside, &script).expect("ours");
    afresh.wait_stdout("up", 2);
    stop(&env, &mut afresh);
}

#[test]
fn a_child_that_exits_at_once_forever_is_given_up() {
    // O5 O6 W5
    let env = TestEnv::new();
    let flags = ["--delay", "1ms", "--max-delay", "5ms", "--max-restarts", "4"];
    let mut afresh = keep(&env, &flags, &["exit", "7"]);
    assert_eq!(afresh.wait().code(), Some(7));
    let log = afresh.stderr();
    assert!(
        log.contains("hostile crash loop detected, backing off (3 crashes within 1 m"),
        "{log}"
    );
    assert!(log.contains("hostile failed: gave up after 4 restarts; last: crash"), "{log}");
    assert_eq!(env.events("server_started").len(), 5);
    assert_eq!(env.events("server_crash_loop").len(), 1);
    assert_eq!(env.events("server_gave_up").len(), 1);
    env.assert_nothing_left();
}

#[test]
fn clean_exits_and_policies() {
    // W2 O2 O4 O10
    let env = TestEnv::new();
    let cases: [(&[&str], &str, i32, usize); 6] = [
        (&[], "0", 0, 1),
        (&["--policy", "never"], "3", 3, 1),
        (&["--policy", "on-crash"], "0", 0, 1),
        (&["--policy", "always", "--max-restarts", "2"], "0", 1, 3),
        (&["--restart-on-normal-exit", "--max-restarts", "2"], "0", 1, 3),
        (&["--policy", "on-crash", "--max-restarts", "2"], "3", 3, 3),
    ];
    for (n, (flags, exit, code, starts)) in cases.into_iter().enumerate() {
        let name = format!("case-{n}");
        let quick = ["--delay", "1ms", "--max-delay", "2ms", "--name", &name];
        let mut afresh = keep(&env, &[flags, &quick].concat(), &["exit", exit]);
        assert_eq!(afresh.wait().code(), Some(code), "{flags:?}\n{}", afresh.stderr());
        let mut started = env.events("server_started");
        started.retain(|record| record["props"]["service"] == name);
        assert_eq!(started.len(), starts, "{flags:?}");
    }
    env.assert_nothing_left();
}

#[test]
fn a_full_disk_stops_no_supervision_and_is_said() {
    let env = TestEnv::new();
    // What the user names may be a link to a device.
    let trail = env.home().join("audit.jsonl");
    symlink("/dev/full", &trail).expect("the folder is ours");
    let words = ["keep", "--delay", "1ms", "--", HOSTILE, "exit-at", "3", "1"];
    let mut command = env.afresh(&words);
    command.env("AFRESH_TRAIL_AUDIT_FILE", &trail);
    let mut afresh = Running::start(command);
    afresh.wait_stdout("arrived", 1);
    afresh.wait_stderr("could not be written", 1);
    assert!(afresh.stderr().contains("No space left on device"), "{}", afresh.stderr());
    // Room again: the loss itself is on record.
    fs::remove_file(&trail).expect("ours");
    afresh.signal(Signal::SIGUSR1);
    afresh.wait_stdout("arrived", 2);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    let mut lost = records_of(&trail);
    lost.retain(|record| record["props"]["event_type"] == "trail_records_lost");
    let count: u64 = lost.iter().filter_map(|record| record["props"]["count"].as_u64()).sum();
    assert!(count >= 4, "{lost:?}");
    env.assert_nothing_left();
}

#[test]
fn a_marker_that_cannot_be_written_is_said_and_holds_up_nothing() {
    let env = TestEnv::new();
    fs::create_dir(env.work().join(".afresh/restart_marker.json")).expect("ours");
    let mut afresh = keep(&env, &[], &["exit-at", "2", "42"]);
    afresh.wait_stdout("arrived", 1);
    assert!(
        afresh.stderr().contains("restart_marker.json` could not be written"),
        "{}",
        afresh.stderr()
    );
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert_eq!(env.events("restart_marker_failed").len(), 1);
    env.assert_nothing_left();
}

#[test]
fn secrets_stay_out_of_log_and_trail() {
    let env = TestEnv::new();
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let variable = format!("API_TOKEN={token}");
    let arguments = [
        "keep",
        "--env",
        &variable,
        "--",
        HOSTILE,
        "exit",
        "0",
        "--token",
        "hunter2hunter2",
        token,
    ];
    let done = env.run(&arguments);
    let trail = fs::read_to_string(env.audit_file()).expect("written");
    for text in [&done.stderr, &trail] {
        assert!(!text.contains(token) && !text.contains("hunter2"), "{text}");
        assert!(text.contains("--token [redacted]"), "{text}");
    }
    env.assert_nothing_left();
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let env = TestEnv::new();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["keep"], 2, "<CMD>"),
        (&["keep", "--polcy", "never", "--", "true"], 2, "--policy"),
        (&["keep", "--policy", "nevr", "--", "true"], 3, "did you mean `never`"),
        (&["keep", "--delay", "5", "--", "true"], 3, "--delay=5s"),
        (&["keep", "--env", "X", "--", "true"], 2, "NAME=VALUE"),
        (&["keep", "--polcy", "never", "true"], 2, "--policy"),
        (&["keep", "--delay", "-1s", "--", "true"], 3, "must be a duration"),
        (&["keep", "--name", "", "--", "true"], 2, "--name"),
    ];
    for (arguments, code, text) in cases {
        let done = env.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(text), "{arguments:?}: {}", done.stderr);
    }
    assert!(env.records().is_empty(), "nothing was started");
    env.assert_nothing_left();
}

#[test]
fn a_link_to_somebody_elses_file_is_left_alone() {
    let env = TestEnv::new();
    let theirs = env.home().join("authorized_keys");
    fs::write(&theirs, "ssh-ed25519 AAAA\nssh-ed25519 BBBB").expect("ours");
    symlink(&theirs, env.audit_file()).expect("the folder is ours");
    let done = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
    assert_eq!(done.code, Some(0));
    assert!(
        done.stderr.contains("audit.jsonl` is a symbolic link, and none is followed"),
        "{}",
        done.stderr
    );
    let text = fs::read_to_string(&theirs).expect("it is there");
    assert_eq!(text, "ssh-ed25519 AAAA\nssh-ed25519 BBBB");
    env.assert_nothing_left();
}

#[test]
fn a_state_folder_that_is_a_link_is_not_used() {
    let env = TestEnv::new();
    let elsewhere = env.home().join("elsewhere");
    fs::create_dir(&elsewhere).expect("ours");
    fs::remove_dir(env.work().join(".afresh")).expect("it is empty");
    symlink(&elsewhere, env.work().join(".afresh")).expect("ours");
    let done = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
    assert!(done.stderr.contains("is a link"), "{}", done.stderr);
    assert_eq!(fs::read_dir(&elsewhere).expect("it is there").count(), 0);
    env.assert_nothing_left();
}

#[test]
fn a_state_folder_that_was_removed_comes_back_ignored_by_git() {
    let env = TestEnv::new();
    // Removed when nothing is being written: a record in the middle of it would make the folder stay.
    let script =
        "until grep -q server_started .afresh/audit.jsonl; do :; done; rm -rf .afresh; exit 3";
    env.run(&["keep", "--policy", "never", "--", "sh", "-c", script]);
    let ignored = fs::read_to_string(env.work().join(".afresh/.gitignore"));
    assert_eq!(ignored.ok().as_deref(), Some("*\n"));
    env.assert_nothing_left();
}

#[test]
fn a_state_folder_among_those_of_other_users_is_not_followed_elsewhere() {
    let env = TestEnv::new();
    let (place, elsewhere) = (env.home().join("place"), env.home().join("elsewhere"));
    fs::create_dir(&place).and_then(|()| fs::create_dir(&elsewhere)).expect("ours");
    // Without a home, the state is in a folder with the user's number, which others could make after a clean-up.
    let script = "state=$TMPDIR/afresh-$(id -u); [ -d $state ] || exit 4
        rm -rf $state; ln -s $ELSEWHERE $state; exit 3";
    let mut command = env.afresh(&["keep", "--policy", "never", "--", "sh", "-c", script]);
    command.current_dir(&place).env_remove("HOME").env("ELSEWHERE", &elsewhere);
    let mut afresh = Running::start(command);
    assert_eq!(afresh.wait().code(), Some(3));
    assert_eq!(fs::read_dir(&elsewhere).expect("it is there").count(), 0);
    env.assert_nothing_left();
}

#[test]
fn a_configuration_that_is_no_file_is_an_error_and_no_wait() {
    let env = TestEnv::new();
    nix::unistd::mkfifo(&env.work().join("afresh.toml"), nix::sys::stat::Mode::S_IRWXU)
        .expect("ours");
    let done = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
    assert_eq!(done.code, Some(3));
    assert!(done.stderr.contains("afresh.toml` is not a file"), "{}", done.stderr);
    env.assert_nothing_left();
}

#[test]
fn a_trail_that_was_overwritten_is_put_aside() {
    let env = TestEnv::new();
    fs::write(env.audit_file(), [0; 100]).expect("ours");
    assert_eq!(env.run(&["keep", "--", HOSTILE, "exit", "0"]).code, Some(0));
    assert_eq!(env.events("server_started").len(), 1);
    let aside = env.work().join(".afresh/audit.jsonl.damaged");
    assert_eq!(fs::read(aside).expect("it is kept"), [0; 100]);
    env.assert_nothing_left();
}
