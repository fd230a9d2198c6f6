//! The control socket of a running afresh: who may speak to it, and what nobody can do to it.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use afresh_tests::{Running, TestEnv, stop_short, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::{Pid, Uid};
use serde_json::{Value, json};

use crate::{AT_ONCE, HOSTILE, keep, stop};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

/// The only socket there, once it is there.
#[track_caller]
fn socket(env: &TestEnv) -> PathBuf {
    wait_for("a control socket", || env.sockets().len() == 1);
    env.sockets().remove(0)
}

/// The services that `afresh status --json` tells of.
#[track_caller]
fn status(env: &TestEnv) -> Vec<Value> {
    let told = env.run(&["status", "--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"))
}

/// Waits until the only service runs, and returns its status.
#[track_caller]
fn running(env: &TestEnv) -> Value {
    let mut found = Value::Null;
    wait_for("a running service", || {
        found = status(env).into_iter().next().unwrap_or_default();
        found["state"] == "running" || found["state"] == "ready"
    });
    found
}

/// Sends bytes, and returns all that comes back.
fn say(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    // It may hang up before it has heard all.
    stream.write_all(bytes).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the body of the answer to a request.
#[track_caller]
fn request(socket: &Path, line: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let text = format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = say(socket, text.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (code.expect("a status"), serde_json::from_str(body).expect("JSON"))
}

#[test]
fn the_socket_is_this_users_alone_and_goes_with_its_afresh() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    let socket = socket(&env);
    let folder = fs::metadata(env.runtime().join("afresh")).expect("a folder");
    assert_eq!(folder.permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o7777, 0o600);
    let one = running(&env);
    assert_eq!(one["name"], "hostile");
    assert_eq!(one["face"], "keep");
    assert_eq!(one["supervisor_pid"], afresh.pid());
    assert!(one["mechanism"].as_str().is_some_and(|text| text.contains("guardian")), "{one}");
    stop(&env, &mut afresh);
    assert!(env.sockets().is_empty(), "{:?}", env.sockets());
}

#[test]
fn a_restart_is_on_record_with_its_reason_and_answers_with_the_new_process() {
    // R2
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    let old = running(&env)["pid"].clone();
    let restart = env.run(&["restart", "hostile", "--reason", "new certificate"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
    let new = running(&env);
    assert_eq!(restart.stdout, format!("hostile: restarted (pid {old} → {})\n", new["pid"]));
    assert_eq!((&new["generation"], &new["restarts"]["total"]), (&json!(2), &json!(1)));
    assert_eq!(new["restarts"]["last"][0]["reason"], "new certificate");
    assert_eq!(new["last_exit"]["signal"], 15);
    let requested = env.events("server_restart_requested");
    assert_eq!(requested[0]["props"]["reason"], "new certificate");
    stop(&env, &mut afresh);
}

#[test]
fn a_server_behind_a_client_is_restarted_from_another_terminal() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["mcp", "--name", "tools", "--", SERVER]);
    let call = |id: u32| {
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "pid"}})
        )
    };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    afresh.write(&format!("{hello}\n"));
    afresh.wait_stdout("\n", 1);
    afresh.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    afresh.write(&call(2));
    afresh.wait_stdout("\n", 2);
    let before = running(&env);
    assert_eq!((&before["name"], &before["face"]), (&json!("tools"), &json!("mcp")));
    let restart = env.run(&["restart", "tools"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
    let after = running(&env);
    assert_ne!(before["pid"], after["pid"]);
    afresh.write(&call(3));
    afresh.wait_stdout("\n", 3);
    for status in [&before, &after] {
        afresh.wait_stdout(&format!("\"text\":\"{}\"", status["pid"]), 1);
    }
    let logs = env.run(&["logs", "tools"]);
    assert!(logs.stdout.contains("afresh tools started (pid "), "{logs:?}");
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
    assert!(env.sockets().is_empty());
}

#[test]
fn the_api_answers_in_json_whatever_is_asked() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--name", "a/b %"], &["idle"]);
    let name = "/v1/services/a%2Fb%20%25";
    let pid = running(&env)["pid"].clone();
    let socket = socket(&env);
    let ask = |line: &str, body: &str| request(&socket, line, body);
    assert_eq!(ask("GET /v1/services", "").1["services"][0]["pid"], pid);
    assert_eq!(ask(&format!("GET {name}"), "").1["pid"], pid);
    let (code, page) = ask(&format!("GET {name}/logs?lines=1"), "");
    assert_eq!((code, page["lines"].as_array().map(Vec::len)), (200, Some(1)), "{page}");
    for (line, body, wanted) in [
        ("GET /", "", 404),
        ("GET /v1/services/nobody", "", 404),
        ("GET /v1/services/nobody/logs?follow=true", "", 404),
        ("POST /v1/services/nobody/restart", "", 404),
        ("GET /v1/services/%ff", "", 400),
        ("POST /v1/services", "", 405),
        (&format!("GET {name}/restart"), "", 405),
        (&format!("DELETE {name}/logs"), "", 405),
        (&format!("GET {name}/logs?lines=many"), "", 400),
        (&format!("POST {name}/restart?wait=perhaps"), "", 400),
        (&format!("POST {name}/restart"), "nonsense", 400),
        (&format!("POST {name}/restart"), &" ".repeat(70_000), 413),
    ] {
        let (code, answer) = ask(line, body);
        assert_eq!(code, wanted, "{line}: {answer}");
        assert!(answer["error"]["what"].as_str().is_some_and(|what| !what.is_empty()), "{answer}");
    }
    assert_eq!(running(&env)["pid"], pid, "none of it has restarted anything");
    let (code, answer) = ask(&format!("POST {name}/restart"), r#"{"reason":"by hand"}"#);
    assert_eq!((code, &answer["outcome"], &answer["old_pid"]), (202, &json!("accepted"), &pid));
    afresh.wait_started(2);
    let (code, answer) = ask(&format!("POST {name}/restart?wait=true"), "");
    assert_eq!((code, &answer["outcome"]), (200, &json!("up")), "{answer}");
    stop(&env, &mut afresh);
}

#[test]
fn secrets_stay_out_of_what_is_told() {
    let env = TestEnv::new();
    let words = ["sh", "-c", "exec sleep 1000", "--token", "hunter2hunter2"];
    let mut afresh = env.start(&[&["keep", "--"], &words[..]].concat());
    running(&env);
    let reason = "the password=hunter2hunter2 is known";
    assert_eq!(env.run(&["restart", "sh", "--reason", reason]).code, Some(0));
    let one = running(&env);
    assert!(one["command"].as_str().is_some_and(|text| text.contains("exec sleep")), "{one}");
    for told in
        [one.to_string(), env.run(&["logs", "sh"]).stdout, env.run(&["status", "sh"]).stdout]
    {
        assert!(told.contains("[redacted]") && !told.contains("hunter2"), "{told}");
    }
    stop(&env, &mut afresh);
}

#[test]
fn a_restart_that_fails_says_why() {
    let env = TestEnv::new();
    let script = env.write("service", "#!/bin/sh\necho ready\nexec sleep 1000\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let mut afresh = env.start(&["keep", "--delay", "1h", "--max-delay", "1h", "--", "./service"]);
    running(&env);
    fs::remove_file(&script).expect("it is there");
    let restart = env.run(&["restart", "service"]);
    assert_eq!(restart.code, Some(1), "{restart:?}");
    assert!(restart.stdout.contains("service: the new instance is gone again: "), "{restart:?}");
    assert!(restart.stdout.contains("./service"), "{restart:?}");
    stop(&env, &mut afresh);
}

#[test]
fn a_runtime_folder_that_is_not_ours_is_refused_and_the_service_runs() {
    let lay_link = |path: &Path, env: &TestEnv| symlink(env.home(), path).expect("a link");
    let lay_open = |path: &Path, _: &TestEnv| {
        fs::create_dir(path).expect("a folder");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    let lay_foreign = |path: &Path, _: &TestEnv| {
        fs::create_dir(path).expect("a folder");
        std::os::unix::fs::chown(path, Some(65_534), None).expect("we are root");
    };
    let lay_file = |path: &Path, _: &TestEnv| fs::write(path, "").expect("a file");
    type Lay<'a> = &'a dyn Fn(&Path, &TestEnv);
    let mut cases: Vec<(Lay<'_>, &str)> = vec![
        (&lay_link, "is a link; remove it"),
        (&lay_open, "is open to other users; remove it"),
        (&lay_file, "is not a folder; remove it"),
    ];
    if Uid::effective().is_root() {
        cases.push((&lay_foreign, "belongs to another user; remove it"));
    }
    for (lay, said) in cases {
        let env = TestEnv::with_shared_sockets();
        lay(&env.runtime().join("afresh"), &env);
        let mut afresh = keep(&env, &[], &["idle"]);
        afresh.wait_stderr(said, 1);
        // The other folder will do.
        assert_eq!(running(&env)["supervisor_pid"], afresh.pid());
        assert_eq!(fs::read_dir(env.home()).expect("a folder").count(), 0, "nothing went there");
        assert_eq!(afresh.stderr().matches("runtime folder").count(), 1, "{}", afresh.stderr());
        stop(&env, &mut afresh);
    }
}

#[test]
fn paths_of_any_length_will_do() {
    let env = TestEnv::with_shared_sockets();
    let deep = (0..8).fold(env.work(), |path, _| path.join("a long name of a folder".repeat(2)));
    fs::create_dir_all(deep.join(".afresh")).expect("it can be made");
    let runtime = deep.join("run");
    fs::create_dir(&runtime).expect("it can be made");
    let name = "n".repeat(200);
    let at = |arguments: &[&str]| {
        let mut command = env.afresh(arguments);
        command.current_dir(&deep).env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    let mut afresh = Running::start(at(&["keep", "--name", &name, "--", HOSTILE, "idle"]));
    afresh.wait_stderr("is too long for a socket; the control socket is in `/tmp/afresh-", 1);
    afresh.wait_started(1);
    let status = at(&["status"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&status.stdout).contains(&name), "{status:?}");
    stop(&env, &mut afresh);
}

#[test]
fn sockets_of_the_dead_are_removed() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    let left = socket(&env);
    running(&env);
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();
    assert!(left.exists(), "nobody was there to remove it");
    assert!(status(&env).is_empty());
    assert!(env.sockets().is_empty(), "{:?}", env.sockets());

    // The next afresh removes them too, and leaves alone what is alive or no socket.
    let folder = env.runtime().join("afresh");
    drop(UnixListener::bind(&left).expect("a socket"));
    let alive = UnixListener::bind(folder.join("1-alive.sock")).expect("a socket");
    fs::write(folder.join("notes.txt"), "").expect("a file");
    let mut afresh = keep(&env, &[], &["idle"]);
    wait_for("the dead socket is gone", || !left.exists());
    assert!(folder.join("1-alive.sock").exists() && folder.join("notes.txt").exists());
    drop(alive);
    running(&env);
    assert_eq!(env.sockets().len(), 1);
    stop(&env, &mut afresh);
}

#[test]
fn an_afresh_that_does_not_answer_is_named_and_holds_nobody_up() {
    let env = TestEnv::new();
    let mut stuck = keep(&env, &["--name", "stuck"], &["idle"]);
    let mut well = keep(&env, &["--name", "well"], &["idle"]);
    wait_for("both", || status(&env).iter().filter(|one| one["state"] == "running").count() == 2);
    stop_short(stuck.pid());
    let told = env.run(&["status"]);
    assert_eq!(told.code, Some(0));
    assert!(told.stdout.contains("well") && !told.stdout.contains("stuck"), "{told:?}");
    assert!(told.stderr.contains(&format!("pid {} does not answer", stuck.pid())), "{told:?}");
    stuck.signal(Signal::SIGCONT);
    well.signal(Signal::SIGTERM);
    assert_eq!(well.wait().code(), Some(0));
    stop(&env, &mut stuck);
}

#[test]
fn a_stopped_process_with_the_pid_of_a_dead_afresh_is_not_named() {
    let env = TestEnv::new();
    let mut well = keep(&env, &["--name", "well"], &["idle"]);
    wait_for("it runs", || status(&env).iter().any(|one| one["state"] == "running"));
    let mut command = Command::new("sleep");
    env.furnish(command.arg("100"));
    let mut other = Running::start(command);
    stop_short(other.pid());
    let left = env.runtime().join("afresh").join(format!("{}-00000000.sock", other.pid()));
    drop(UnixListener::bind(&left).expect("the folder is there"));
    let told = env.run(&["status"]);
    assert!(told.stdout.contains("well") && told.stderr.is_empty(), "{told:?}");
    assert!(!left.exists(), "it is dead");
    other.signal(Signal::SIGKILL);
    other.wait();
    stop(&env, &mut well);
}

#[test]
fn hostile_clients_disturb_nothing() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &AT_ONCE, &["idle"]);
    let first = running(&env);
    let socket = socket(&env);
    let head = "POST /v1/services/hostile/restart HTTP/1.1\r\nhost: x\r\n";
    // Nonsense, a header without end, a body without end, one that is announced and never comes.
    say(&socket, &[0xff; 100_000]);
    say(&socket, b"\r\n\r\n\0\0\0 HTTP/9.9\r\n\r\n");
    say(&socket, format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(10_000_000)).as_bytes());
    say(&socket, "x: y\r\n".repeat(100_000).as_bytes());
    let large = format!("{head}content-length: 10000000\r\n\r\n{}", "z".repeat(10_000_000));
    assert!(say(&socket, large.as_bytes()).contains(" 413 "));
    let endless =
        format!("{head}transfer-encoding: chunked\r\n\r\n{}", "5\r\nzzzzz\r\n".repeat(50_000));
    assert!(say(&socket, endless.as_bytes()).contains(" 413 "));
    say(&socket, b"GET /v1/services HTTP/1.1\r\nhost: x");
    // Some that vanish in the middle.
    for text in [
        "",
        "GET ",
        "GET /v1/services HTTP/1.1\r\nhost: x\r\n\r\n",
        &format!("{head}content-length: 9\r\n\r\n{{"),
    ] {
        for _ in 0..50 {
            let mut stream = UnixStream::connect(&socket).expect("somebody listens");
            stream.write_all(text.as_bytes()).expect("it is read");
        }
    }
    // Many that say nothing, and some that follow and never read.
    let silent: Vec<UnixStream> =
        (0..200).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    let pid = Pid::from_raw(i32::try_from(first["pid"].as_i64().expect("a pid")).expect("a pid"));
    kill(pid, Signal::SIGKILL).expect("it runs");
    env.wait_for_pid("server_started", 2);
    let second = running(&env);
    assert_eq!(second["restarts"]["total"], 1, "only the one that was killed");
    assert_eq!(second["restarts"]["last"][0]["reason"], "it ended by signal 9 (SIGKILL): killed");
    drop(silent);
    stop(&env, &mut afresh);
}

#[test]
fn those_who_follow_and_never_read_hold_nothing_up() {
    let env = TestEnv::new();
    let mut afresh =
        env.start(&["keep", "--name", "loud", "--", "sh", "-c", "seq 200000; exec sleep 1000"]);
    running(&env);
    let socket = socket(&env);
    let follow = b"GET /v1/services/loud/logs?follow=true HTTP/1.1\r\nhost: x\r\n\r\n";
    let deaf: Vec<UnixStream> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).expect("somebody listens");
            stream.write_all(follow).expect("it is read");
            stream
        })
        .collect();
    afresh.wait_stdout("\n200000\n", 1);
    // The ring is bounded, and has the newest lines.
    let mut logs = String::new();
    wait_for("the last line", || {
        logs = env.run(&["logs", "loud"]).stdout;
        logs.lines().any(|line| line.ends_with(" stdout 200000"))
    });
    assert!(logs.lines().count() <= 2_000, "{}", logs.lines().count());
    // Some of the forty were too many. Whoever comes now may find room: those who do not read are cut off after a while.
    let is_refused = |stream: &UnixStream| {
        let mut head = [0; 1_000];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let read = recv(stream.as_raw_fd(), &mut head, flags).unwrap_or(0);
        String::from_utf8_lossy(&head[..read]).contains("32 others follow already")
    };
    wait_for("some are refused", || deaf.iter().any(is_refused));
    let resident = fs::read_to_string(format!("/proc/{}/status", afresh.pid())).expect("it runs");
    let resident = resident.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes < 40_000, "{kilobytes} kB");
    assert_eq!(running(&env)["restarts"]["total"], 0);
    stop(&env, &mut afresh);
    drop(deaf);
}

#[test]
fn another_user_gets_no_answer() {
    if !Uid::effective().is_root() {
        return;
    }
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    running(&env);
    let socket = socket(&env);
    // As if somebody had opened folder and socket to all: the kernel still says who calls.
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    for path in socket.ancestors().take(4) {
        assert_eq!(fs::metadata(path).expect("it is there").uid(), 0);
        open(path).expect("it is ours");
    }
    let script = format!(
        "import os,socket\nos.setuid(65534)\ns=socket.socket(socket.AF_UNIX)\ns.connect({:?})\n\
         s.sendall(b'GET /v1/services HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n')\nprint('got',s.recv(99))",
        socket.display().to_string()
    );
    let told = Command::new("python3").args(["-c", &script]).output();
    // A machine without Python cannot tell.
    if let Ok(told) = told {
        let text = String::from_utf8_lossy(&told.stdout).into_owned()
            + &String::from_utf8_lossy(&told.stderr);
        assert!(!text.contains("200 OK"), "{text}");
        assert!(
            text.contains("got b''") || text.contains("reset") || text.contains("Broken"),
            "{text}"
        );
        wait_for("it is on record", || !env.events("request_refused").is_empty());
        let refused = env.events("request_refused").remove(0);
        assert_eq!(refused["props"]["by"]["uid"], 65534, "{refused}");
    }
    stop(&env, &mut afresh);
}
