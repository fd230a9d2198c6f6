//! Services, hooks and `[opencode]` as a whole: layers, every form of error as full text, hostile
//! files.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::config::{Config, ConfigSource, FileKind, Flag, load};
use crate::definition::{Dependency, LogLimits, OnSupervisorDeath, Port, StopSignal, Until};
use crate::health::{HealthCheck, Probe};
use crate::hook::{HookEvent, HookTarget, Shape};
use crate::policy::{Backoff, Policy, Restart, RestartMode};

fn file(kind: FileKind, text: &str) -> ConfigSource<'_> {
    let path = match kind {
        FileKind::Workspace => "afresh.toml",
        FileKind::User => "/home/ada/.config/afresh/config.toml",
    };
    ConfigSource { kind, path, bytes: text.as_bytes() }
}

fn load_text(text: &str) -> Result<Config, Vec<ConfigError>> {
    load(&[file(FileKind::Workspace, text)], &[], &[])
}

fn load_both(workspace: &str, user: &str) -> Result<Config, Vec<ConfigError>> {
    load(&[file(FileKind::Workspace, workspace), file(FileKind::User, user)], &[], &[])
}

fn good(text: &str) -> Config {
    load_text(text).unwrap_or_else(|errors| panic!("{text}\n{}", joined(&errors)))
}

fn joined(errors: &[ConfigError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("\n\n")
}

/// The full text of all errors.
fn report(text: &str) -> String {
    joined(&load_text(text).expect_err(text))
}

/// Message and hint of the one error, and what the carets are under.
fn error(text: &str) -> (String, String) {
    let errors = load_text(text).expect_err(text);
    let [error] = &errors[..] else { panic!("{text}\n{}", joined(&errors)) };
    let excerpt = error.excerpt.as_ref().unwrap_or_else(|| panic!("{error}"));
    let under = excerpt.text.chars().skip(excerpt.indent);
    let under: String = under.take(excerpt.carets).collect();
    (format!("{under}: {}", error.message), error.hint.clone().unwrap_or_default())
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

const FULL: &str = r#"
[service.api]
command = ["node", "server.js", "--port={port}"]
title = "The API"
cwd = "server"
env = { PORT = 3000, DEBUG = true, RATIO = 0.5, "A.B" = "c d" }
env_file = "server/.env"
policy = "always"
restart_on_normal_exit = true
restart_code = 75
delay = "250ms"
factor = 3
max_delay = "2m"
jitter = "10%"
throttle = "5s"
crash_loop_count = 0
crash_loop_window = "1h"
stable_after = "10m"
max_restarts = 0
stdin_timeout = "2s"
stop_timeout = "1m30s"
max_rss = "512MiB"
stop_signal = "int"
depends_on = { db = "ready", cache = "started" }
autostart = false
health.http = "http://127.0.0.1:3000/health"
health.status = 204
health.json = { state.db = "up" }
health.headers = { Accept = "application/json" }
health.interval = "1m"
health.ready_interval = "50ms"
health.timeout = "3s"
health.failures = 5
health.ready_timeout = "0"
log = { max_size = "1MiB", keep = 2, max_age = "7d" }
port = "127.0.0.1:3000"

[service.db]
command = ["postgres"]
backoff = "stepped"
port = 5432
health.tcp = "[::1]:5432"

[service.cache]
command = ["redis-server"]
depends_on = ["db"]
[service.cache.health]
exec = ["redis-cli", "ping"]

[service.tools]
command = ["tools"]
health.mcp = "https://localhost/mcp"
"#;

#[test]
fn every_key_reaches_its_place() {
    let seconds = Duration::from_secs;
    let config = good(FULL);
    let names: Vec<&str> = config.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["api", "db", "cache", "tools"]);
    let api = ServiceDefinition {
        name: "api".to_owned(),
        title: "The API".to_owned(),
        command: strings(&["node", "server.js", "--port={port}"]),
        cwd: Some("server".into()),
        env: [("PORT", "3000"), ("DEBUG", "true"), ("RATIO", "0.5"), ("A.B", "c d")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        env_file: Some("server/.env".into()),
        policy: Policy {
            restart: Restart::Always,
            restart_on_normal_exit: true,
            restart_code: 75,
            backoff: Backoff::Exponential {
                base: Duration::from_millis(250),
                factor: 3.0,
                cap: seconds(120),
                jitter_percent: 10,
            },
            throttle: seconds(5),
            crash_loop_count: 0,
            crash_loop_window: seconds(3600),
            stable_after: seconds(600),
            max_restarts: 0,
            stdin_timeout: seconds(2),
            stop_timeout: seconds(90),
            ..Policy::default()
        },
        stop_signal: StopSignal::Interrupt,
        depends_on: vec![
            Dependency { name: "db".to_owned(), until: Until::Ready },
            Dependency { name: "cache".to_owned(), until: Until::Started },
        ],
        health: Some(HealthCheck {
            interval: seconds(60),
            ready_interval: Duration::from_millis(50),
            timeout: seconds(3),
            failures_max: 5,
            ready_timeout: None,
            ..HealthCheck::new(Probe::Http {
                url: "http://127.0.0.1:3000/health".to_owned(),
                status: Some(204),
                json: Some(("state.db".to_owned(), json!("up"))),
                headers: vec![("Accept".to_owned(), "application/json".to_owned())],
            })
        }),
        memory_bytes_max: Some(512 << 20),
        autostart: false,
        log: LogLimits {
            file_bytes_max: 1 << 20,
            files_kept: 2,
            age_max: Some(seconds(7 * 86_400)),
        },
        port: Some(Port { host: "127.0.0.1".to_owned(), port: 3000 }),
    };
    assert_eq!(config.services[0], api);
    let probe = |index: usize| config.services[index].health.clone().map(|health| health.probe);
    assert_eq!(probe(1), Some(Probe::Tcp { address: "[::1]:5432".to_owned() }));
    assert_eq!(probe(2), Some(Probe::Exec { command: strings(&["redis-cli", "ping"]) }));
    assert_eq!(probe(3), Some(Probe::Mcp { url: "https://localhost/mcp".to_owned() }));
    assert_eq!(config.services[1].policy.backoff, Backoff::Stepped);
    assert_eq!(config.services[1].port, Some(Port { host: "localhost".to_owned(), port: 5432 }));
    assert_eq!(config.services[2].depends_on[0].until, Until::Ready);
}

#[test]
fn a_command_is_enough() {
    let config = good("[service.web]\ncommand = ['true']");
    let [web] = &config.services[..] else { panic!("one service") };
    let usual = ServiceDefinition {
        name: "web".to_owned(),
        title: "web".to_owned(),
        command: strings(&["true"]),
        cwd: None,
        env: Vec::new(),
        env_file: None,
        policy: Policy::default(),
        stop_signal: StopSignal::Terminate,
        depends_on: Vec::new(),
        health: None,
        memory_bytes_max: None,
        autostart: true,
        log: LogLimits::default(),
        port: None,
    };
    assert_eq!(*web, usual);
}

#[test]
fn all_ways_to_write_a_service_are_read() {
    for text in [
        "[service.a]\ncommand = ['x']\nhealth.tcp = 'h:1'",
        "[service.a]\ncommand = ['x']\nhealth = { tcp = 'h:1' }",
        "[service.a]\ncommand = ['x']\n[service.a.health]\ntcp = 'h:1'",
        "service.a.command = ['x']\nservice.a.health.tcp = 'h:1'",
        "service = { a = { command = ['x'], health = { tcp = 'h:1' } } }",
        "[service.\"a\"]\n'command' = ['x']\nhealth.'tcp' = 'h:1'",
    ] {
        let config = good(text);
        assert_eq!(config.services.len(), 1, "{text}");
        let health = config.services[0].health.as_ref().map(|health| &health.probe);
        assert_eq!(health, Some(&Probe::Tcp { address: "h:1".to_owned() }), "{text}");
    }
    assert!(good("[service]").services.is_empty());
    assert!(good("[hook]").hooks.is_empty());
}

#[test]
fn what_a_service_does_not_say_is_as_the_defaults_are() {
    let text = "[defaults]\nmax_restarts = 7\nstop_timeout = '9s'\nmax_rss = '1GiB'\n\
                restart_mode = 'swap'\nspare = true\n\
                [service.a]\ncommand = ['x']\n[service.b]\ncommand = ['x']\nmax_restarts = 8";
    let flag = Flag { name: "--stop-timeout", setting: "defaults.stop_timeout", value: "3s" };
    let env = [("AFRESH_MAX_RESTARTS".to_owned(), "9".to_owned())];
    let config = load(&[file(FileKind::Workspace, text)], &env, &[flag]).unwrap();
    let [a, b] = &config.services[..] else { panic!("two services") };
    // Variables and flags set defaults: they do not override what a service says itself.
    assert_eq!((a.policy.max_restarts, b.policy.max_restarts), (9, 8));
    assert_eq!(a.policy.stop_timeout, Duration::from_secs(3));
    assert_eq!(a.memory_bytes_max, Some(1 << 30));
    // These two are for `afresh mcp`.
    assert_eq!((a.policy.restart_mode, a.policy.spare), (RestartMode::Replace, false));
}

#[test]
fn the_users_file_wins_key_by_key() {
    let workspace = "[service.a]\ncommand = ['x']\nenv = { A = '1', B = '2' }\n\
                     health.http = 'http://h/'\nhealth.status = 201\nhealth.timeout = '1s'\n\
                     depends_on = ['b']\n[service.b]\ncommand = ['y']";
    let user = "[service.b]\nautostart = false\n[service.a]\nenv.B = '3'\nhealth.tcp = 'h:1'\n\
                depends_on = []\n[service.mine]\ncommand = ['z']\ncwd = '/home/ada'\n\
                [service.elsewhere]\nautostart = false";
    let config = load_both(workspace, user).unwrap();
    let names: Vec<&str> = config.services.iter().map(|service| service.name.as_str()).collect();
    // What is part of a service of another project is no service here.
    assert_eq!(names, ["a", "b", "mine"]);
    let [a, b, mine] = &config.services[..] else { panic!("three services") };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(a.env, [pair("A", "1"), pair("B", "3")]);
    let health = a.health.clone().unwrap();
    // Another probe takes along what was said about the first one, and nothing else.
    assert_eq!(health.probe, Probe::Tcp { address: "h:1".to_owned() });
    assert_eq!(health.timeout, Duration::from_secs(1));
    assert!(a.depends_on.is_empty() && !b.autostart);
    assert_eq!(mine.cwd, Some("/home/ada".into()));
}

#[test]
fn opencode_is_ready_made() {
    // O7, O8
    let config = good("[service.a]\ncommand = ['x']\ndepends_on = ['opencode']\n[opencode]");
    let [opencode, _] = &config.services[..] else { panic!("two services") };
    assert_eq!((opencode.name.as_str(), opencode.title.as_str()), ("opencode", "OpenCode"));
    let command = ["opencode", "serve", "--port", "4096", "--hostname", "localhost"];
    assert_eq!(opencode.command, strings(&command));
    assert_eq!(opencode.port, Some(Port { host: "localhost".to_owned(), port: 4096 }));
    assert_eq!(opencode.policy, Policy::default());
    let health = opencode.health.clone().unwrap();
    let probe = Probe::Http {
        url: "http://localhost:4096/global/health".to_owned(),
        status: None,
        json: Some(("healthy".to_owned(), json!(true))),
        headers: Vec::new(),
    };
    assert_eq!(health.probe, probe);
    assert!(health.is_opencode);
    assert!(health.timeout >= Duration::from_secs(10) && health.failures_max == 3);
}

#[test]
fn opencode_has_words_of_its_own() {
    // O4
    let config = good(
        "[opencode]\nserve_port = 5000\nserve_hostname = '::'\nauto_restart = false\n\
         restart_delay_ms = 250\nmax_restart_attempts = 9\nrestart_on_normal_exit = true\n\
         serve_command = ['oc', '-p{port}', '-h', '{hostname}']\ntitle = 'Mine'\nenv.A = 1\n\
         health.timeout = '20s'\nhealth.headers.X = 'y'\nlog.keep = 1",
    );
    let [opencode] = &config.services[..] else { panic!("one service") };
    assert_eq!(opencode.command, strings(&["oc", "-p5000", "-h", "::"]));
    assert_eq!(opencode.port, Some(Port { host: "::".to_owned(), port: 5000 }));
    assert_eq!(opencode.policy.restart, Restart::Never);
    assert_eq!(opencode.policy.max_restarts, 9);
    assert!(opencode.policy.restart_on_normal_exit);
    let Backoff::Exponential { base, .. } = opencode.policy.backoff else { panic!("waits grow") };
    assert_eq!(base, Duration::from_millis(250));
    assert_eq!((opencode.title.as_str(), opencode.log.files_kept), ("Mine", 1));
    let health = opencode.health.clone().unwrap();
    let Probe::Http { url, headers, .. } = &health.probe else { panic!("asked over HTTP") };
    assert_eq!(url, "http://[::1]:5000/global/health");
    assert_eq!((headers.len(), health.timeout), (1, Duration::from_secs(20)));

    let own = good("[opencode]\nhealth.tcp = 'localhost:4096'\npolicy = 'always'");
    let health = own.services[0].health.clone().unwrap();
    assert_eq!((health.is_opencode, own.services[0].policy.restart), (false, Restart::Always));
    // What is shown of it can be pasted, and is the same.
    let own = good("[opencode]\nhealth.http = 'http://localhost:4096/global/health'");
    assert!(own.services[0].health.clone().unwrap().is_opencode);
    let off = load_both("[opencode]\nserve_port = 5000", "[opencode]\nenabled = false").unwrap();
    assert!(off.services.is_empty());
    // One word of the user's stands for the other of the project's.
    let both = load_both("[opencode]\nauto_restart = true", "[opencode]\npolicy = 'never'");
    assert_eq!(both.unwrap().services[0].policy.restart, Restart::Never);
}

#[test]
fn hooks_are_read() {
    let config = good(
        "[service.api]\ncommand = ['x']\n\
         [hook.script]\non = ['gave_up', 'crash']\nservices = ['api']\ncommand = ['./tell.sh']\n\
         [hook.slack]\nwebhook = 'https://hooks.slack.com/services/T/B/x'\n\
         [hook.own]\nwebhook = 'http://localhost:8080/'\nheaders = { X-Key = 'k' }\n\
         [hook.discord]\nwebhook = 'https://discord.com/api/webhooks/1/x'\nshape = 'slack'\n\
         [hook.ntfy]\nwebhook = 'https://NTFY.sh/topic'\n\
         [hook.screen]\ndesktop = true",
    );
    let names: Vec<&str> = config.hooks.iter().map(|hook| hook.name.as_str()).collect();
    assert_eq!(names, ["script", "slack", "own", "discord", "ntfy", "screen"]);
    assert_eq!(config.hooks[0].events, [HookEvent::Crash, HookEvent::GaveUp]);
    assert_eq!(config.hooks[0].services, ["api"]);
    assert_eq!(config.hooks[0].target, HookTarget::Command(strings(&["./tell.sh"])));
    assert_eq!(config.hooks[1].events, HookEvent::ALL);
    let shapes = [Shape::Slack, Shape::Json, Shape::Slack, Shape::Ntfy];
    for (hook, wanted) in config.hooks[1..5].iter().zip(shapes) {
        let HookTarget::Webhook { shape, headers, .. } = &hook.target else { panic!("a webhook") };
        assert_eq!((*shape, headers.len()), (wanted, usize::from(hook.name == "own")));
    }
    assert_eq!(config.hooks[5].target, HookTarget::Desktop);
    // The user's own hooks may be about services that only some projects have.
    let user = "[hook.mine]\nservices = ['nowhere']\ndesktop = true";
    assert_eq!(load_both("", user).unwrap().hooks.len(), 1);
}

#[test]
fn the_daemon_listens_on_this_machine_only() {
    let config = good("[daemon]\non_supervisor_death = 'keep'\nlisten = '127.0.0.1:7070'");
    assert_eq!(config.daemon.on_supervisor_death, OnSupervisorDeath::Keep);
    assert_eq!(config.daemon.listen, Some("127.0.0.1:7070".parse().unwrap()));
    let (message, hint) = error("[daemon]\nlisten = '0.0.0.0:7070'");
    let wanted = "must be an address of this machine such as `127.0.0.1:7070`, or \"\"";
    assert_eq!(message, format!("'0.0.0.0:7070': `listen` {wanted}, not `0.0.0.0:7070`"));
    assert!(
        hint.starts_with("who reaches this address can stop and start your services"),
        "{hint}"
    );
    let (_, hint) = error("[daemon]\nlisten = 'localhost:7070'");
    assert_eq!(hint, "write an address, such as `127.0.0.1:7070`");
    let env = [("AFRESH_DAEMON_LISTEN".to_owned(), "192.168.0.1:80".to_owned())];
    let errors = load(&[], &env, &[]).unwrap_err();
    assert!(joined(&errors).contains("use `127.0.0.1:PORT`"), "{}", joined(&errors));
}

#[test]
fn errors_show_the_place_and_what_to_write() {
    let text = "\
[service.api]
command = \"node server.js\"
helth.http = \"x\"
[service.web]
command = [\"x\"]
spare = true
restart = \"always\"
timeout = \"5s\"
keep = 5
";
    assert_eq!(
        report(text),
        "\
error: `command` must be a list of strings, not a string
 --> afresh.toml:2:11
  |
2 | command = \"node server.js\"
  |           ^^^^^^^^^^^^^^^^
hint: write `command = [\"node\", \"server.js\"]`

error: unknown key `helth` in `[service.api]`
 --> afresh.toml:3:1
  |
3 | helth.http = \"x\"
  | ^^^^^
hint: did you mean `health`?

error: unknown key `spare` in `[service.web]`
 --> afresh.toml:6:1
  |
6 | spare = true
  | ^^^^^
hint: `spare` is for `afresh mcp`: put it into `[defaults]`, where that reads it

error: unknown key `restart` in `[service.web]`
 --> afresh.toml:7:1
  |
7 | restart = \"always\"
  | ^^^^^^^
hint: that is `policy` here

error: unknown key `timeout` in `[service.web]`
 --> afresh.toml:8:1
  |
8 | timeout = \"5s\"
  | ^^^^^^^
hint: write `health.timeout`

error: unknown key `keep` in `[service.web]`
 --> afresh.toml:9:1
  |
9 | keep = 5
  | ^^^^
hint: write `log.keep`"
    );
    assert_eq!(
        report("[service.a]\ncwd = 'x'\n\n[service.b]\ncommand = ['x']\ndepends_on = ['aa']"),
        "\
error: service `a` has no `command`
 --> afresh.toml:1:10
  |
1 | [service.a]
  |          ^
hint: add `command = [\"program\", \"argument\"]`

error: service `b` needs `aa`, which is no service
 --> afresh.toml:6:14
  |
6 | depends_on = ['aa']
  |              ^^^^^^
hint: did you mean `a`?"
    );
}

/// One wrong line in a service: what the carets are under with the message, and the hint.
const WRONG_LINES: [(&str, &str, &str); 32] = [
    (
        "command = []",
        "[]: `command` has no program",
        "for example `command = [\"node\", \"server.js\"]`",
    ),
    (
        "command = ['']",
        "['']: `command` has no program",
        "for example `command = [\"node\", \"server.js\"]`",
    ),
    (
        "command = ['a', 1]",
        "1: an item of `command` must be a string, not an integer",
        "put it in quotes: `\"1\"`",
    ),
    ("command = [\"a\\u0000\"]", "\"a\\u0000\": an item of `command` has a NUL byte", "remove it"),
    (
        "command = 'a | b'",
        "'a | b': `command` must be a list of strings, not a string",
        "write `command = [\"sh\", \"-c\", \"a | b\"]`",
    ),
    (
        "command = { a = 1 }",
        "{ a = 1 }: `command` must be a list of strings, not an inline table",
        "for example `command = [\"node\", \"server.js\"]`",
    ),
    (
        "cwd = '/etc'",
        "'/etc': `cwd` of a project leads out of the project",
        "name one inside, not in `.git`, or set it in your own configuration",
    ),
    (
        "env_file = '../x'",
        "'../x': `env_file` of a project leads out of the project",
        "name one inside, not in `.git`, or set it in your own configuration",
    ),
    ("cwd = ''", "'': `cwd` must be a path, not ``", "for example `cwd = \"server\"`"),
    (
        "env = ['A=1']",
        "['A=1']: `env` must be a table, not an array",
        "for example `env = { PORT = \"3000\" }`",
    ),
    (
        "env = { A = [1] }",
        "[1]: `env.A` must be a string, not an array",
        "for example `env = { PORT = \"3000\" }`",
    ),
    (
        "env = { 'A=B' = '1' }",
        "'A=B': `env.A=B` is no name of a variable",
        "for example `env = { PORT = \"3000\" }`",
    ),
    (
        "env = { A = \"\\u0000\" }",
        "\"\\u0000\": `env.A` has a character that it cannot have",
        "for example `env = { PORT = \"3000\" }`",
    ),
    (
        "stop_signal = 'SIGKILL'",
        "'SIGKILL': `stop_signal` must be `SIGTERM`, `SIGINT`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` or `SIGUSR2`, not `SIGKILL`",
        "for example `stop_signal = \"SIGTERM\"`",
    ),
    (
        "stop_signal = 'SIGTERMM'",
        "'SIGTERMM': `stop_signal` must be `SIGTERM`, `SIGINT`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` or `SIGUSR2`, not `SIGTERMM`",
        "did you mean `SIGTERM`?",
    ),
    (
        "depends_on = 'b'",
        "'b': `depends_on` must be a list of names or a table, not a string",
        "for example `depends_on = [\"db\"]`",
    ),
    (
        "depends_on = { b = 'up' }",
        "'up': `depends_on.b` must be `ready` or `started`",
        "for example `depends_on = { db = \"ready\" }`",
    ),
    ("depends_on = ['b', 'b']", "'b': `b` is twice in `depends_on`", "remove one"),
    ("depends_on = ['s']", "['s']: service `s` needs itself", "remove it from `depends_on`"),
    (
        "port = 0",
        "0: `port` must be a port from 1 to 65535, or `\"host:port\"`, not an integer",
        "for example `port = 3000`",
    ),
    (
        "port = 'x'",
        "'x': `port` must be a port from 1 to 65535, or `\"host:port\"`, not a string",
        "for example `port = 3000`",
    ),
    (
        "health = 'http://h/'",
        "'http://h/': `health` must be a table, not a string",
        "for example `health.http = \"http://127.0.0.1:3000/health\"`",
    ),
    (
        "health.http = 'localhost:3000/x'",
        "'localhost:3000/x': `health.http` must be a URL that begins with `http://` or `https://`, not `localhost:3000/x`",
        "write `http://localhost:3000/x`",
    ),
    (
        "health.http = 'ftp://h/'",
        "'ftp://h/': `health.http` must be a URL that begins with `http://` or `https://`, not `ftp://h/`",
        "for example `health.http = \"http://127.0.0.1:3000/health\"`",
    ),
    (
        "health = { http = 'http://h/', tcp = 'h:1' }",
        "'h:1': `health.http` and `health.tcp` exclude each other",
        "keep one of the two",
    ),
    (
        "health.timeout = '5s'",
        "'5s': the health of `s` has nothing that is asked",
        "add one of `health.http`, `health.tcp`, `health.exec` and `health.mcp`",
    ),
    (
        "health = { tcp = 'h:1', status = 200 }",
        "200: `health.status` goes with `health.http`, which is not given",
        "remove it, or add `health.http`",
    ),
    (
        "health = { http = 'http://h/', json = { a = 1, b = 2 } }",
        "{ a = 1, b = 2 }: `health.json` must be a table with one field, not an inline table",
        "for example `health.json = { healthy = true }`",
    ),
    (
        "health = { http = 'http://h/', interval = '0' }",
        "'0': `health.interval` must be a duration from 10ms to 365d, not `0`",
        "for example `health.interval = \"10s\"`",
    ),
    (
        "health = { http = 'http://h/', headers = { A = \"x\\ny\" } }",
        "\"x\\ny\": `health.headers.A` has a character that it cannot have",
        "for example `health.headers = { Accept = \"application/json\" }`",
    ),
    (
        "delay = '2m'",
        "'2m': `max_delay` (1m) is shorter than `delay` (2m)",
        "`max_delay` comes from: default",
    ),
    (
        "'health.tcp' = 'h:1'",
        "'health.tcp': unknown key `health.tcp` in `[service.s]`",
        "run `afresh config show` for every key",
    ),
];

#[test]
fn wrong_values_come_with_a_good_one() {
    for (line, message, hint) in WRONG_LINES {
        let command = if line.starts_with("command") { "" } else { "command = ['x']\n" };
        let text = format!("[service.b]\ncommand = ['y']\n[service.s]\n{command}{line}\n");
        assert_eq!(error(&text), (message.to_owned(), hint.to_owned()), "{line}");
    }
}

/// One wrong table, in the same form.
const WRONG_TABLES: [(&str, &str, &str); 20] = [
    (
        "[service.api]\ncommand = ['x']\n[service.API]\ncommand = ['x']",
        "API: `api` and `API` are the same but for large letters",
        "give one another name: `api` is at afresh.toml:1",
    ),
    (
        "[defaults]\ndelay = '2m'\n[service.a]\ncommand = ['x']\n[service.b]\ncommand = ['x']",
        "'2m': `max_delay` (1m) is shorter than `delay` (2m)",
        "`max_delay` comes from: default",
    ),
    (
        "[service]\ncommand = ['x']",
        "command: `[service]` needs a name for what it defines",
        "begin it with `[service.NAME]`",
    ),
    (
        "[[service]]\ncommand = ['x']",
        "service: `service` must be a table, not an array of tables",
        "begin each with `[service.NAME]`",
    ),
    ("[api]\ncommand = ['x']", "api: unknown section `[api]`", "did you mean `[service.api]`?"),
    ("[servce.a]", "servce: unknown section `[servce]`", "did you mean `[service.NAME]`?"),
    (
        "[service.'a b']\ncommand = ['x']",
        "'a b': `a b` is no name for a service",
        "a name has letters, digits, `-`, `_` and `.`, at most 64, and begins with none of `-` \
     and `.`",
    ),
    (
        "[opencode]\n[service.opencode]\ncommand = ['x']",
        "opencode: `opencode` is defined twice",
        "keep `[opencode]` or `[service.opencode]`: the other is at afresh.toml:1",
    ),
    (
        "opencode = true",
        "opencode: `opencode` must be a table, not a boolean",
        "begin it with `[opencode]`",
    ),
    (
        "[opencode]\nport = 1",
        "port: unknown key `port` in `[opencode]`",
        "in `[opencode]` this is `serve_port`",
    ),
    (
        "[opencode]\nserve_hostname = '-h'",
        "'-h': `serve_hostname` must be the name or address of a host, not `-h`",
        "for example `serve_hostname = \"localhost\"`",
    ),
    (
        "[opencode]\ndelay = '1s'\nrestart_delay_ms = 5",
        "5: `delay` and `restart_delay_ms` exclude each other",
        "keep one of the two",
    ),
    (
        "[opencode]\nenabled = false\n[service.a]\ncommand = ['x']\ndepends_on = ['opencode']",
        "['opencode']: service `a` needs `opencode`, which is no service",
        "`enabled = false` in `[opencode]` turns it off",
    ),
    (
        "[hook.a]\non = ['crash']",
        "a: hook `a` has no receiver",
        "add one of `command`, `webhook` and `desktop`",
    ),
    (
        "[hook.a]\ndesktop = false",
        "false: hook `a` has no receiver",
        "write `desktop = true`, or remove the hook",
    ),
    (
        "[hook.a]\ndesktop = true\non = ['crashed']",
        "'crashed': `on` does not take `crashed`",
        "did you mean `crash`?",
    ),
    ("[hook.a]\ndesktop = true\non = []", "[]: `on` names nothing", "leave it out for all of them"),
    (
        "[hook.a]\ndesktop = true\nservices = ['api']",
        "['api']: hook `a` is about `api`, which is no service",
        "define `[service.api]`, or leave it out",
    ),
    (
        "[hook.a]\ndesktop = true\ncommand = ['x']",
        "['x']: `desktop` and `command` exclude each other",
        "keep one of the two",
    ),
    (
        "[hook.a]\ndesktop = true\nshape = 'json'",
        "'json': `shape` goes with `webhook`, which is not given",
        "remove it, or add `webhook`",
    ),
];

#[test]
fn wrong_tables_are_named() {
    for (text, message, hint) in WRONG_TABLES {
        assert_eq!(error(text), (message.to_owned(), hint.to_owned()), "{text}");
    }
}

#[test]
fn a_ring_of_needs_is_named() {
    let service = |name: &str, needs: &str| {
        format!("[service.{name}]\ncommand = ['x']\ndepends_on = ['{needs}']\n")
    };
    let text =
        [service("z", "a"), service("a", "b"), service("b", "c"), service("c", "a")].concat();
    let (message, hint) = error(&text);
    assert_eq!(message, "['b']: services need each other in a ring: `a` → `b` → `c` → `a`");
    assert_eq!(hint, "take one of them out of a `depends_on`");
}

#[test]
fn secrets_are_neither_quoted_nor_shown() {
    let text = "[service.a]\ncommand = ['x', '--token', 'hunter2']\n\
                env = { API_KEY = 'hunter2', PORT = 80, X = [1] }";
    assert!(!report(text).contains("hunter2"), "{}", report(text));
    let text = "[service.a]\ncommand = 'x --password hunter2'";
    assert!(!report(text).contains("hunter2"), "{}", report(text));
    let text = "[service.a]\ncommand = ['x', '--token', 'hunter2']\n\
                env = { API_KEY = 'hunter2', PORT = 80, 'A.B' = 'c' }\n\
                health.http = 'http://h/?token=hunter2'\n\
                health.headers = { Authorization = 'Bearer hunter2' }\n\
                depends_on = { b = 'started' }\nmax_restarts = 3\n\
                [service.b]\ncommand = ['y']\nhealth.http = 'http://h/'\nhealth.json.a.b = 1\n\
                [hook.h]\nwebhook = 'https://hooks.slack.com/services/hunter2'";
    let shown = good(text).shown_tables();
    let lines: Vec<String> = (shown.iter())
        .flat_map(|table| {
            let line =
                |entry: &ShownEntry| format!("{} = {} # {}", entry.key, entry.toml, entry.origin);
            let heading = format!("[{}] # {}", table.heading, table.origin);
            std::iter::once(heading).chain(table.entries.iter().map(line)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        lines,
        [
            "[service.a] # afresh.toml:1",
            "command = [\"x\", \"--token\", \"[redacted]\"] # afresh.toml:2",
            "env.API_KEY = \"[redacted]\" # afresh.toml:3",
            "env.PORT = \"80\" # afresh.toml:3",
            "env.\"A.B\" = \"c\" # afresh.toml:3",
            "health.http = \"http://h/?token=[redacted]\" # afresh.toml:4",
            "health.headers.Authorization = \"[redacted]\" # afresh.toml:5",
            "depends_on = { b = \"started\" } # afresh.toml:6",
            "max_restarts = 3 # afresh.toml:7",
            "[service.b] # afresh.toml:8",
            "command = [\"y\"] # afresh.toml:9",
            "health.http = \"http://h/\" # afresh.toml:10",
            "health.json = { \"a.b\" = 1 } # afresh.toml:11",
            "[hook.h] # afresh.toml:12",
            "webhook = \"https://hooks.slack.com/[redacted]\" # afresh.toml:13",
        ]
    );
}
