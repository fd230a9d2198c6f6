//! Who may use `afresh gateway --http`: the token that it makes, the socket of one user, and what its servers do not
//! get to know.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use afresh_tests::http_client::{HttpClient, port_of};
use afresh_tests::{PATIENCE, Running, TestEnv, wait_for};
use serde_json::json;

use crate::gateway::server;
use crate::gateway_http::pid;
use crate::stop;

const HTTP: [&str; 3] = ["gateway", "--http", "127.0.0.1:0"];

/// The file of the token that is made.
fn token_file(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/afresh/private/gateway.token")
}

fn token(env: &TestEnv) -> String {
    fs::read_to_string(token_file(env)).expect("a token").trim().to_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn a_port_of_this_machine_needs_the_token_of_a_private_file() {
    let env = TestEnv::new();
    env.write("afresh.toml", &server(&env, "a", "", ""));
    let mut gateway = env.start(&HTTP);
    let port = port_of(&gateway);
    gateway.wait_stderr(&format!("the token in `{}`", token_file(&env).display()), 1);
    let token = token(&env);
    assert_eq!(mode(&token_file(&env)), 0o600);
    assert_eq!(mode(token_file(&env).parent().expect("a folder")), 0o700);
    let mut stranger = HttpClient::new(port);
    assert_eq!(stranger.ask("1", "initialize", &json!({})).status, 401);
    stranger.token = Some("0".repeat(64));
    assert_eq!(stranger.ask("1", "initialize", &json!({})).status, 401);
    let mut client = HttpClient::new(port);
    client.token = Some(token.clone());
    client.open();
    pid(&mut client, "a");
    // It holds on through a reload.
    assert_eq!(env.run(&["reload"]).code, Some(0));
    pid(&mut client, "a");
    assert_eq!(HttpClient::new(port).ask("1", "initialize", &json!({})).status, 401);
    let words = fs::read(format!("/proc/{}/cmdline", gateway.pid())).expect("it runs");
    assert!(!String::from_utf8_lossy(&words).contains(&token));
    stop(&env, &mut gateway);
    for text in [gateway.stderr(), fs::read_to_string(env.audit_file()).expect("a trail")] {
        assert!(!text.contains(&token), "{text}");
    }
    // The next gateway has the same: clients know it.
    let mut gateway = env.start(&HTTP);
    client = HttpClient::new(port_of(&gateway));
    client.token = Some(token);
    client.open();
    stop(&env, &mut gateway);
}

#[test]
fn a_reload_does_not_take_the_token_off_a_bound_port() {
    let env = TestEnv::new();
    let entry = server(&env, "a", "", "");
    env.write("afresh.toml", &format!("[gateway]\nhttp = \"127.0.0.1:0\"\n{entry}"));
    let mut gateway = env.start(&["gateway"]);
    let port = port_of(&gateway);
    let mut client = HttpClient::new(port);
    client.token = Some(token(&env));
    client.open();
    // The address goes, or is another one: it counts from the next start on.
    for address in ["", "[gateway]\nhttp = \"192.0.2.1:1\"\n"] {
        env.write("afresh.toml", &format!("{address}{entry}"));
        assert_eq!(env.run(&["reload"]).code, Some(0));
        assert_eq!(HttpClient::new(port).ask("1", "initialize", &json!({})).status, 401);
        pid(&mut client, "a");
    }
    stop(&env, &mut gateway);
}

#[test]
fn a_port_without_a_token_is_said_to_be_open() {
    let env = TestEnv::new();
    let entry = server(&env, "a", "", "");
    env.write("afresh.toml", &entry);
    let mut gateway = env.start(&[&HTTP[..], &["--no-token"]].concat());
    let mut client = HttpClient::connect(port_of(&gateway));
    pid(&mut client, "a");
    gateway.wait_stderr("no token is needed: every program of every user of this machine", 1);
    assert!(!token_file(&env).exists());
    stop(&env, &mut gateway);
    let configured = "[gateway.token.ci]\ntoken = \"ci-0123456789abcdef\"\n";
    env.write("afresh.toml", &[&entry, configured].concat());
    let refused = env.run(&[&HTTP[..], &["--no-token"]].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("tokens are configured"), "{refused:?}");
}

#[test]
fn a_token_of_a_private_folder_that_is_not_private_is_refused() {
    let env = TestEnv::new();
    env.write("afresh.toml", &server(&env, "a", "", ""));
    let folder = token_file(&env).parent().expect("a folder").to_owned();
    fs::create_dir_all(&folder).expect("the home is writable");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let refused = env.run(&HTTP);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("is open to other users"), "{refused:?}");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("it is ours");
    fs::write(token_file(&env), format!("{}\n", "ab".repeat(32))).expect("it is writable");
    fs::set_permissions(token_file(&env), PermissionsExt::from_mode(0o644)).expect("it is ours");
    let refused = env.run(&HTTP);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("is open to other users; remove it"), "{refused:?}");
}

/// Opens a session over a socket, and returns the head and the body of the answer.
fn initialize(socket: &Path) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let body = body.to_string();
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                accept: application/json, text/event-stream\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn on_socket(env: &TestEnv, name: &str) -> Running {
    let gateway = env.start(&["gateway", "--http", &format!("unix:{name}")]);
    gateway.wait_stderr("only programs of this user are served", 1);
    gateway
}

#[test]
fn a_socket_is_for_its_user_and_needs_no_token() {
    let env = TestEnv::new();
    env.write("afresh.toml", &server(&env, "a", "", ""));
    let mut gateway = on_socket(&env, "gateway.sock");
    let socket = env.work().join("gateway.sock");
    assert_eq!(mode(&socket), 0o600);
    let answer = initialize(&socket);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("2025-11-25"), "{answer}");
    assert!(!token_file(&env).exists());
    // Another one does not take it away.
    let second = env.run(&["gateway", "--http", "unix:gateway.sock"]);
    assert_ne!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("is in use by another process"), "{second:?}");
    assert!(initialize(&socket).starts_with("HTTP/1.1 200"));
    stop(&env, &mut gateway);
    assert!(!socket.exists(), "it goes with its gateway");
}

#[test]
fn a_socket_replaces_only_the_socket_of_a_process_that_has_ended() {
    let env = TestEnv::new();
    env.write("afresh.toml", &server(&env, "a", "", ""));
    let precious = env.write("precious", "text");
    let refused = env.run(&["gateway", "--http", "unix:precious"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("is not a socket"), "{refused:?}");
    assert_eq!(fs::read_to_string(precious).expect("it is there"), "text");
    let socket = env.work().join("left.sock");
    drop(UnixListener::bind(&socket).expect("a socket"));
    let mut gateway = on_socket(&env, "left.sock");
    assert!(initialize(&socket).starts_with("HTTP/1.1 200"));
    stop(&env, &mut gateway);
}

#[test]
fn another_user_is_not_served_over_the_socket_and_that_is_on_record() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let env = TestEnv::new();
    env.write("afresh.toml", &server(&env, "a", "", ""));
    let mut gateway = on_socket(&env, "gateway.sock");
    let socket = env.work().join("gateway.sock");
    // As if its user had opened it to all.
    fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).expect("it is ours");
    let script = format!(
        "import os,socket\nos.setuid(65534)\ns=socket.socket(socket.AF_UNIX)\ns.connect({:?})\n\
         print(s.recv(10))",
        socket.display().to_string()
    );
    let mut python = std::process::Command::new("python3");
    env.furnish(&mut python);
    let heard = python.args(["-c", &script]).output().expect("python runs");
    assert_eq!(String::from_utf8_lossy(&heard.stdout).trim(), "b''", "{heard:?}");
    wait_for("it is on record", || !env.events("request_refused").is_empty());
    let refused = env.events("request_refused").remove(0);
    assert_eq!(refused["props"]["by"]["uid"], 65534, "{refused}");
    assert!(refused["props"]["by"]["pid"].is_u64(), "{refused}");
    stop(&env, &mut gateway);
}

/// The variables that a process was started with.
fn environment(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split('\0').map(|pair| pair.split('=').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn servers_do_not_get_the_gateways_variables_nor_more_than_they_are_to_have() {
    let env = TestEnv::new();
    let minimal = "inherit_env = \"minimal\"\n\
                   env = { AFRESH_TEST_MARK = \"${AFRESH_TEST_MARK}\", OWN = \"1\" }\n";
    let tokens = "[gateway.token.ci]\ntoken_env = \"GATEWAY_TOKEN\"\n";
    let entries =
        [server(&env, "all", "", ""), server(&env, "less", "", minimal), tokens.to_owned()];
    env.write("afresh.toml", &entries.concat());
    let mut command = env.afresh(&HTTP);
    command.env("GATEWAY_TOKEN", "ci-0123456789abcdef").env("OTHER_SECRET", "x");
    command.env("LC_ALL", "C").env("XDG_DATA_HOME", "/nowhere");
    let mut gateway = Running::start(command);
    let mut client = HttpClient::new(port_of(&gateway));
    client.token = Some("ci-0123456789abcdef".to_owned());
    client.open();
    let [all, less] = ["all", "less"].map(|name| environment(pid(&mut client, name)));
    let has = |names: &[String], name: &str| names.iter().any(|its| its == name);
    for name in ["PATH", "HOME", "LC_ALL", "XDG_DATA_HOME", "AFRESH_SERVICE"] {
        assert!(has(&all, name) && has(&less, name), "{name}: {all:?}; {less:?}");
    }
    assert!(has(&all, "OTHER_SECRET") && !has(&less, "OTHER_SECRET"), "{all:?}; {less:?}");
    assert!(has(&less, "OWN"), "{less:?}");
    assert!(!has(&all, "GATEWAY_TOKEN") && !has(&less, "GATEWAY_TOKEN"), "{all:?}; {less:?}");
    stop(&env, &mut gateway);
}

#[test]
fn a_token_file_that_others_can_read_is_a_warning() {
    let env = TestEnv::new();
    let tokens = "[gateway.token.ci]\ntoken_file = \"ci.token\"\n";
    env.write("afresh.toml", &[server(&env, "a", "", ""), tokens.to_owned()].concat());
    let file = env.write("ci.token", "ci-0123456789abcdef\n");
    let says = |mode: u32| {
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("it is ours");
        let listed = env.run(&["gateway", "--list"]);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        listed.stderr.contains("other users of this machine can read the token in")
            && listed.stderr.contains("hint: run `chmod 600 ")
    };
    assert!(says(0o644) && says(0o640) && says(0o604));
    assert!(!says(0o600) && !says(0o400));
}
