//! `afresh status`, `afresh restart` and `afresh logs`, as a user sees them.

use afresh_core::limits::CONTROL_ANSWER_WAIT;
use afresh_daemon::monotonic;
use afresh_tests::{Running, TestEnv, stop_short, wait_for};
use nix::sys::signal::Signal;

const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile");

/// Starts `afresh keep --name NAME -- hostile WORDS`, and waits until `status` sees it run.
fn keep(env: &TestEnv, name: &str, words: &[&str]) -> Running {
    let before = env.run(&["status"]).stdout.matches("running").count();
    let afresh = env.start(&[&["keep", "--name", name, "--", HOSTILE], words].concat());
    wait_for("it runs", || env.run(&["status"]).stdout.matches("running").count() > before);
    afresh
}

fn stop(env: &TestEnv, afresh: Running) {
    stop_all(env, vec![afresh]);
}

fn stop_all(env: &TestEnv, mut all: Vec<Running>) {
    all.iter().for_each(|afresh| afresh.signal(Signal::SIGTERM));
    for afresh in &mut all {
        assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    }
    env.assert_nothing_left();
}

#[test]
fn status_is_a_table_and_says_so_when_nothing_runs() {
    let env = TestEnv::new();
    let nothing = env.run(&["status"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(nothing.stderr.starts_with("nothing runs under afresh"), "{nothing:?}");
    assert_eq!(env.run(&["status", "--json"]).stdout, "[]\n");
    let unknown = env.run(&["status", "web"]);
    assert_eq!(unknown.code, Some(4));
    assert!(
        unknown.stderr.contains("error: no service `web` runs in this workspace"),
        "{unknown:?}"
    );

    let afresh = keep(&env, "web", &["idle"]);
    let table = env.run(&["status"]).stdout;
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    // Nobody has ended or is checked yet, so there are no columns for it.
    assert_eq!(lines[0], ["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "CPU", "MEMORY"]);
    assert_eq!(lines[1][..2], ["web", "running"]);
    assert_eq!([lines[1][lines[1].len() - 3], lines[1][lines[1].len() - 1]], ["%", "MiB"]);
    let full = env.run(&["status", "web"]).stdout;
    for word in [
        "name        web",
        "state       running",
        "mechanism   ",
        "workspace   /",
        " idle",
        "memory      ",
        "cpu         ",
    ] {
        assert!(full.contains(word), "{word}: {full}");
    }
    stop(&env, afresh);
}

#[test]
fn other_workspaces_are_seen_with_all() {
    let env = TestEnv::new();
    let afresh = keep(&env, "web", &["idle"]);
    std::fs::create_dir_all(env.home().join("other/.afresh")).unwrap();
    let there = |arguments: &[&str]| {
        let mut command = env.afresh(arguments);
        command.current_dir(env.home().join("other"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, stdout, stderr) = there(&["status"]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(stderr.contains("one service runs elsewhere"), "{stderr}");
    let (_, stdout, _) = there(&["status", "--all"]);
    assert!(stdout.contains("WORKSPACE") && stdout.contains("/work\n"), "{stdout}");
    let (code, _, stderr) = there(&["restart", "web"]);
    assert_eq!(code, Some(4));
    assert!(stderr.contains("add `--all`"), "{stderr}");
    let (code, stdout, _) = there(&["restart", "web", "--all"]);
    assert_eq!(code, Some(0), "{stdout}");
    stop(&env, afresh);
}

#[test]
fn an_unknown_name_is_guessed_and_nothing_is_restarted() {
    let env = TestEnv::new();
    let afresh = keep(&env, "worker", &["idle"]);
    let other = keep(&env, "web", &["idle"]);
    for command in [&["restart", "web", "wroker"][..], &["logs", "wroker"], &["status", "wroker"]] {
        let mistake = env.run(command);
        assert_eq!((mistake.code, mistake.stdout.as_str()), (Some(4), ""), "{mistake:?}");
        assert!(mistake.stderr.contains("hint: did you mean `worker`?"), "{mistake:?}");
        assert!(mistake.stderr.contains("hint: here run: web, worker"), "{mistake:?}");
    }
    assert_eq!(env.events("server_restart_requested").len(), 0);
    stop_all(&env, vec![afresh, other]);
}

#[test]
fn all_services_of_a_name_are_restarted() {
    let env = TestEnv::new();
    let all = vec![keep(&env, "same", &["idle"]), keep(&env, "same", &["idle"])];
    let restart = env.run(&["restart", "same", "--reason", "both"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
    assert_eq!(restart.stdout.matches("same: restarted (pid ").count(), 2, "{restart:?}");
    assert!(restart.stderr.contains("2 services are called that: restarting all"), "{restart:?}");
    assert_eq!(env.events("server_restart_requested").len(), 2);
    let logs = env.run(&["logs", "same"]).stdout;
    for afresh in &all {
        assert!(logs.contains(&format!(" same {} stdout ready ", afresh.pid())), "{logs}");
    }
    let again = env.run(&["restart", "same", "--no-wait"]);
    assert_eq!(again.stdout, "same: the restart is on record\n".repeat(2));
    stop_all(&env, all);
}

#[test]
fn copies_are_restarted_one_by_one_or_all_at_once() {
    let env = TestEnv::new();
    let flags = ["keep", "--copies", "3", "--name", "worker", "--", HOSTILE, "idle"];
    let afresh = env.start(&flags);
    wait_for("all", || env.run(&["status"]).stdout.matches("running").count() == 3);
    let one = env.run(&["restart", "worker-1"]);
    assert_eq!(one.stdout.matches("restarted").count(), 1, "{one:?}");
    let all = env.run(&["restart", "worker"]);
    assert_eq!(all.stdout.matches("restarted").count(), 3, "{all:?}");
    stop(&env, afresh);
}

#[test]
fn logs_follow_across_restarts_until_afresh_ends() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, "web", &["idle"]);
    let mut follow = env.start(&["logs", "web", "-f"]);
    follow.wait_stdout(" stdout ready ", 1);
    let mut greps = env.start(&["logs", "web", "-f", "--grep", "ready"]);
    greps.wait_stdout("ready", 1);
    let mut json = env.start(&["logs", "web", "-f", "--json"]);
    json.wait_stdout("\"stream\":\"stdout\"", 1);
    assert_eq!(env.run(&["restart", "web"]).code, Some(0));
    follow.wait_stdout(" stdout ready ", 2);
    greps.wait_stdout("ready", 2);
    json.wait_stdout("\"generation\":2", 1);
    // Ctrl+C ends one of them, the end of afresh the others.
    greps.signal(Signal::SIGINT);
    assert_eq!(greps.wait().code(), Some(0));
    assert_eq!(greps.stdout().lines().filter(|line| !line.contains("ready")).count(), 0);
    afresh.signal(Signal::SIGTERM);
    afresh.wait();
    for one in [&mut follow, &mut json] {
        assert_eq!(one.wait().code(), Some(0), "{}", one.stderr());
    }
    follow.wait_stdout("web stopped, afresh is shutting down", 1);
    assert_eq!(follow.stderr(), "");
    env.assert_nothing_left();
}

#[test]
fn following_ends_when_afresh_is_killed_and_when_nobody_reads() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, "web", &["idle"]);
    let mut follow = env.start(&["logs", "web", "-f"]);
    follow.wait_stdout(" stdout ready ", 1);
    let unread = crate::run_into_closed_pipe(env.afresh(&["logs", "web", "-f"]));
    assert_eq!((unread.code, unread.stderr.as_str()), (Some(0), ""));
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    assert_eq!(follow.wait().code(), Some(0), "{}", follow.stderr());
    env.assert_nothing_left();
}

#[test]
fn logs_obey_no_service() {
    let env = TestEnv::new();
    let script =
        r"printf '\033[31mred\033[0m \033[2Jclear\n'; printf 'last\r\n' >&2; exec sleep 1000";
    let mut afresh = env.start(&["keep", "--name", "web", "--", "sh", "-c", script]);
    let mut logs = String::new();
    wait_for("its lines", || {
        logs = env.run(&["logs", "web"]).stdout;
        logs.contains("last") && logs.contains("red")
    });
    assert!(logs.contains(" stdout red ␛[2Jclear\n") && logs.contains(" stderr last\n"), "{logs}");
    let last = env.run(&["logs", "web", "-n", "1", "--grep", "red"]).stdout;
    assert_eq!(last.lines().count(), 1, "{last}");
    afresh.signal(Signal::SIGTERM);
    afresh.wait();
    env.assert_nothing_left();
}

#[test]
fn shells_complete_the_names_of_services() {
    let env = TestEnv::new();
    let afresh = keep(&env, "web", &["idle"]);
    let odd = keep(&env, "$(touch oops)", &["idle"]);
    assert_eq!(env.run(&["__services"]).stdout, "web\n");
    let script = env.write("completion", &env.run(&["completions", "bash"]).stdout);
    let complete = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let binary = afresh_tests::afresh_binary().display();
        let text = format!(
            "source {}; COMP_WORDS=({binary} {}); COMP_CWORD={}; \
             _afresh_services {binary} \"${{COMP_WORDS[COMP_CWORD]}}\" x; echo \"${{COMPREPLY[*]}}\"",
            script.display(),
            words.join(" "),
            words.len()
        );
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &text]);
        env.furnish(&mut command);
        let output = command.output().expect("there is a bash");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for word in ["status", "start", "stop", "restart", "logs", "events"] {
        assert!(complete(&[word, "w"]).split_whitespace().any(|found| found == "web"), "{word}");
    }
    assert!(complete(&["re"]).contains("restart") && !complete(&["doctor", "w"]).contains("web"));
    assert!(!env.work().join("oops").exists());
    stop_all(&env, vec![afresh, odd]);
}

#[test]
fn metrics_are_those_of_all_that_runs_here() {
    let env = TestEnv::new();
    let nothing = env.run(&["metrics"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(nothing.stderr.starts_with("nothing runs under afresh"), "{nothing:?}");
    let one = keep(&env, "web", &["idle"]);
    let metrics = env.run(&["metrics"]);
    assert_eq!(metrics.code, Some(0), "{metrics:?}");
    let running = "afresh_service_state{service=\"web\",state=\"running\"} 1\n";
    assert!(metrics.stdout.contains(running), "{metrics:?}");
    let other = keep(&env, "api", &["idle"]);
    for words in [&["metrics"][..], &["metrics", "--all"]] {
        let both = env.run(words).stdout;
        assert_eq!(both.matches("# TYPE afresh_service_state gauge\n").count(), 1, "{both}");
        for (name, pid) in [("web", one.pid()), ("api", other.pid())] {
            let labels = format!("supervisor_pid=\"{pid}\",service=\"{name}\",state=\"running\"");
            let sample = format!("afresh_service_state{{{labels}}} 1\n");
            assert!(both.contains(&sample), "{sample}: {both}");
        }
    }
    stop_all(&env, vec![one, other]);
}

#[test]
fn an_afresh_that_is_stopped_delays_no_command() {
    let (here, elsewhere) = (TestEnv::new(), TestEnv::new());
    // Both workspaces are of one user.
    let in_sight = |arguments: &[&str]| {
        let mut command = here.afresh(arguments);
        command.env("AFRESH_RUNTIME_DIR", elsewhere.runtime().join("afresh"));
        command.output().expect("afresh runs")
    };
    let other = keep(&elsewhere, "web", &["idle"]);
    stop_short(other.pid());
    here.write("afresh.toml", &format!("[service.a]\ncommand = [{HOSTILE:?}, \"idle\"]\n"));
    for arguments in [&["status"][..], &["status", "--all"], &["down"], &["up", "-d"], &["down"]] {
        let begin = monotonic();
        in_sight(arguments);
        // The wait for an answer is never begun.
        let took = monotonic() - begin;
        assert!(took < CONTROL_ANSWER_WAIT, "{arguments:?}: {took:?}");
    }
    let status = in_sight(&["status", "--all"]);
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(said.contains(&format!("afresh with pid {} does not answer", other.pid())), "{said}");
    other.signal(Signal::SIGCONT);
    stop(&elsewhere, other);
    here.assert_nothing_left();
}

#[test]
fn a_squatted_runtime_folder_is_named_by_up_in_the_background() {
    let env = TestEnv::with_shared_sockets();
    std::fs::write(env.runtime().join("afresh"), "").expect("ours");
    env.write("afresh.toml", &format!("[service.a]\ncommand = [{HOSTILE:?}, \"idle\"]\n"));
    let up = env.run(&["up", "-d"]);
    assert_eq!(up.code, Some(0), "{up:?}");
    let said = "run/afresh` is not a folder; remove it; the control socket is in `";
    assert!(
        up.stderr.contains("warning: the runtime folder") && up.stderr.contains(said),
        "{up:?}"
    );
    assert!(env.run(&["status"]).stdout.contains("ready"));
    assert_eq!(env.run(&["down"]).code, Some(0));
    env.assert_nothing_left();
}
