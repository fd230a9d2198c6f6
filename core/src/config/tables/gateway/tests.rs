//! `[server.NAME]`, `[gateway]` and its tokens as a whole: layers, variables, every error as it is said.

use std::time::Duration;

use super::*;
use crate::config::{Config, ConfigSource, load};
use crate::definition::HealthSettings;
use crate::gateway::access_patterns::Access;
use crate::gateway::backend::{
    Backend, Expose, HttpServer, Pin, Prefix, Share, StdioServer, Transport,
};
use crate::gateway::inherited_env::InheritedEnv;
use crate::gateway::settings::Token;
use crate::limits::{SERVERS_MAX, TOKENS_MAX};
use crate::policy::{Backoff, Policy, RestartMode};

fn source(kind: FileKind, text: &str) -> ConfigSource<'_> {
    ConfigSource { kind, path: "afresh.toml", bytes: text.as_bytes() }
}

fn load_text(text: &str) -> Result<Config, Vec<ConfigError>> {
    load(&[source(FileKind::Workspace, text)], &[], &[])
}

fn load_both(workspace: &str, user: &str) -> Result<Config, Vec<ConfigError>> {
    load(&[source(FileKind::Workspace, workspace), source(FileKind::User, user)], &[], &[])
}

fn env() -> Vec<(String, String)> {
    pairs(&[
        ("TOKEN", "hidden-value"),
        ("PORT", "3000"),
        ("LONG", "0123456789abcdef"),
        ("BAD", "a\nb"),
    ])
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn files() -> Vec<(PathBuf, Result<String, String>)> {
    vec![
        ("good".into(), Ok("fedcba9876543210\n".to_owned())),
        ("short".into(), Ok("short".to_owned())),
        ("none".into(), Err("no such file".to_owned())),
    ]
}

fn made(config: Result<Config, Vec<ConfigError>>) -> Result<Gateway, Vec<ConfigError>> {
    config?.gateway(&ExternalValues { env: &env(), files: &files() })
}

#[track_caller]
fn good(text: &str) -> Gateway {
    made(load_text(text)).unwrap_or_else(|errors| panic!("{text}\n{}", errors[0]))
}

/// Message and hint of the one error, and what the carets are under.
#[track_caller]
fn error(text: &str) -> (String, String) {
    let errors = made(load_text(text)).expect_err(text);
    let [error] = &errors[..] else { panic!("{text}\n{errors:#?}") };
    let under = error.excerpt.as_ref().map_or("no line".to_owned(), |excerpt| {
        excerpt.text.chars().skip(excerpt.indent).take(excerpt.carets).collect()
    });
    (format!("{under}: {}", error.message), error.hint.clone().unwrap_or_default())
}

#[track_caller]
fn says(text: &str, message: &str, hint: &str) {
    assert_eq!(error(text), (message.to_owned(), hint.to_owned()), "{text}");
}

fn strings(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

const FULL: &str = r#"
[server.files]
command = ["npx", "-y", "$HOME"]
args = ["--port=$PORT", "${NONE:-none}", "a$$b"]
cwd = "sub"
env = { KEY = "${env:TOKEN}", N = 3 }
inherit_env = "minimal"
env_file = ".env"
backoff = "stepped"
max_restarts = 0
stop_timeout = "2s"
restart_mode = "replace"
drain_timeout = "3s"
spare = true
wedge_timeout = "0s"
max_rss = "1GiB"
watch = ["src", "lib/x.js"]
watch_debounce = "1s"
tell_restarts = false
prefix = "fs_"
allow = ["read_*"]
deny = ["*_all"]
share = "per-client"
instances_max = 3
idle_after = "1m"
hide_when_down = true
call_timeout = "30s"
in_flight_max = 7
pin = "block"

[server.web]
url = "http://localhost:${PORT}/mcp"
headers = { Authorization = "Bearer $TOKEN" }
sse = true
prefix = ""

[server.plain]
command = ["plain"]
prefix = "none"

[server.off]
command = ["off"]
env = { X = "$UNSET" }
enabled = false

[gateway]
expose = "search"
tools = false
http = "[::1]:8808"
allowed_hosts = ["mcp.example.com"]
allowed_origins = ["https://example.com"]
clients_max = 5
body_max = "1MiB"
requests_per_second = 50
session_idle = "1h"
keep_alive = "30s"
otlp = "http://127.0.0.1:4318"

[gateway.token.ci]
token_env = "LONG"
servers = ["fil*"]
tools = ["*__read*"]

[gateway.token.ada]
token_file = "good"

[gateway.token.eve]
token = "sixteen-letters!"
"#;

#[test]
fn every_key_reaches_its_place() {
    let gateway = good(FULL);
    let files = Backend {
        name: "files".to_owned(),
        transport: Transport::Stdio(Box::new(StdioServer {
            command: strings(&["npx", "-y", "$HOME", "--port=3000", "none", "a$b"]),
            cwd: Some("sub".into()),
            env: pairs(&[("KEY", "hidden-value"), ("N", "3")]),
            inherit_env: InheritedEnv::Minimal,
            env_file: Some(".env".into()),
            policy: Policy {
                backoff: Backoff::Stepped,
                max_restarts: 0,
                stop_timeout: Duration::from_secs(2),
                restart_mode: RestartMode::Replace,
                drain_timeout: Duration::from_secs(3),
                spare: true,
                ..load_text("").unwrap().mcp_policy()
            },
            health: HealthSettings { memory_bytes_max: Some(1 << 30), wedge_timeout: None },
            spare: true,
            watch: vec!["src".into(), "lib/x.js".into()],
            watch_debounce: Duration::from_secs(1),
            tell_restarts: false,
        })),
        prefix: Prefix::Text("fs_".to_owned()),
        allow: Some(strings(&["read_*"])),
        deny: strings(&["*_all"]),
        share: Share::PerClient { instances_max: 3, idle_after: Duration::from_secs(60) },
        hide_when_down: true,
        call_timeout: Some(Duration::from_secs(30)),
        in_flight_max: 7,
        pin: Pin::Block,
    };
    assert_eq!(gateway.servers[0], files);
    let web = HttpServer {
        url: "http://localhost:3000/mcp".to_owned(),
        headers: pairs(&[("Authorization", "Bearer hidden-value")]),
        sse: Some(true),
    };
    assert_eq!(gateway.servers[1].transport, Transport::Http(web));
    assert_eq!(gateway.servers[1].prefix, Prefix::None);
    assert_eq!([1, 2].map(|at| gateway.servers[at].pin), [Pin::Warn, Pin::Off]);
    assert_eq!(gateway.servers[2].prefix, Prefix::None);
    assert_eq!(gateway.servers.len(), 3, "one is turned off");
    assert_eq!((gateway.expose, gateway.admin_tools), (Expose::Search, false));
    let front = FrontSettings {
        http: Some("[::1]:8808".parse().unwrap()),
        allowed_hosts: strings(&["mcp.example.com"]),
        allowed_origins: strings(&["https://example.com"]),
        clients_max: 5,
        body_bytes_max: 1 << 20,
        requests_per_second: Some(50),
        session_idle: Duration::from_secs(3600),
        keep_alive: Some(Duration::from_secs(30)),
        tokens: gateway.front.tokens.clone(),
        token_file: None,
    };
    assert_eq!(gateway.front, front);
    assert_eq!(gateway.otlp.as_deref(), Some("http://127.0.0.1:4318"));
    assert_eq!(gateway.own_variables, ["LONG", "AFRESH_GATEWAY_TOKEN"]);
    let ci = Token {
        secret: "0123456789abcdef".to_owned(),
        access: Access {
            name: "ci".to_owned(),
            servers: Some(strings(&["fil*"])),
            tools: Some(strings(&["*__read*"])),
        },
    };
    assert_eq!(gateway.front.tokens[0], ci);
    let others: Vec<&str> = gateway.front.tokens[1..].iter().map(|t| t.secret.as_str()).collect();
    assert_eq!(others, ["fedcba9876543210", "sixteen-letters!"]);
    let shown = format!("{gateway:?}");
    for secret in ["hidden-value", "0123456789abcdef", "fedcba9876543210", "sixteen-letters!"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let files: Vec<PathBuf> = vec!["good".into()];
    assert_eq!(load_text(FULL).unwrap().token_files(), files);
}

#[test]
fn a_server_is_by_default_as_afresh_mcp_is() {
    let gateway = good("[server.a]\ncommand = ['x']");
    let Transport::Stdio(stdio) = &gateway.servers[0].transport else { panic!("{gateway:?}") };
    assert!(stdio.policy.first_at_once && !stdio.spare);
    assert_eq!(stdio.policy.stdin_timeout, Duration::from_secs(1));
    assert_eq!(stdio.policy.restart_mode, RestartMode::Swap);
    assert_eq!(stdio.health.wedge_timeout, Some(crate::limits::WEDGE_TIMEOUT));
    assert_eq!(
        **stdio,
        StdioServer { command: strings(&["x"]), ..load_text("").unwrap().stdio_server() }
    );
    let rest = Backend { transport: Transport::Stdio(stdio.clone()), ..gateway.servers[0].clone() };
    let usual = Backend {
        name: "a".to_owned(),
        transport: Transport::Stdio(stdio.clone()),
        prefix: Prefix::Name,
        allow: None,
        deny: Vec::new(),
        share: Share::All,
        hide_when_down: false,
        call_timeout: None,
        in_flight_max: 256,
        pin: Pin::Off,
    };
    assert_eq!(rest, usual);
    // What `[defaults]` says holds.
    let text =
        "[defaults]\nstdin_timeout = '9s'\nrestart_mode = 'replace'\n[server.a]\ncommand = ['x']";
    let gateway = good(text);
    let Transport::Stdio(stdio) = &gateway.servers[0].transport else { panic!("{gateway:?}") };
    assert_eq!(stdio.policy.stdin_timeout, Duration::from_secs(9));
    assert_eq!(stdio.policy.restart_mode, RestartMode::Replace);
    assert_eq!(good("").front, FrontSettings::default());
    for (text, wanted) in [("0", None), ("10ms", Some(1)), ("1m", Some(60))] {
        let gateway = good(&format!("[gateway]\nkeep_alive = '{text}'"));
        assert_eq!(gateway.front.keep_alive, wanted.map(Duration::from_secs), "{text}");
    }
    assert_eq!(
        good("[server.a]\ncommand = ['x']\nshare = 'per-client'").servers[0].share,
        Share::PerClient { instances_max: 16, idle_after: Duration::from_secs(300) }
    );
}

#[test]
fn an_empty_list_is_nothing_and_no_list_is_everything() {
    let gateway = good(
        "[server.a]\ncommand = ['x']\nallow = []\n[server.b]\ncommand = ['x']\n\
         [gateway.token.none]\ntoken = 'none-0123456789abc'\nservers = []\ntools = []\n\
         [gateway.token.all]\ntoken = 'all-0123456789abcd'",
    );
    let allowed: Vec<_> = gateway.servers.iter().map(|server| server.allow.clone()).collect();
    assert_eq!(allowed, [Some(Vec::new()), None]);
    let [none, all] = &gateway.front.tokens[..] else { panic!("{gateway:?}") };
    assert!(!none.access.has_server("a", "a__") && !none.access.has_tool("a__x"), "{none:?}");
    assert!(all.access.has_server("a", "a__") && all.access.has_tool("a__x"), "{all:?}");
    // Empty in a person's own file, it holds against the project's.
    let project = "[server.a]\ncommand = ['x']\nallow = ['t']";
    let own = made(load_both(project, "[server.a]\nallow = []")).unwrap();
    assert_eq!(own.servers[0].allow, Some(Vec::new()));
}

#[test]
fn a_person_decides_over_a_project() {
    let project = "[server.a]\ncommand = ['x']\nargs = ['y']\nmax_restarts = 3\nallow = ['t']";
    let own = "[server.a]\nurl = 'http://a/'\n[server.elsewhere]\nallow = ['x']";
    let gateway = made(load_both(project, own)).unwrap();
    let [server] = &gateway.servers[..] else { panic!("{gateway:?}") };
    assert!(matches!(&server.transport, Transport::Http(http) if http.url == "http://a/"));
    assert_eq!(server.allow, Some(strings(&["t"])));
    let off = made(load_both(project, "[server.a]\nenabled = false")).unwrap();
    assert_eq!(off.servers, []);
    let share = "[server.a]\ncommand = ['x']\nshare = 'per-client'\ninstances_max = 3";
    let shared = made(load_both(share, "[server.a]\nshare = 'all'")).unwrap();
    assert_eq!(shared.servers[0].share, Share::All);
    let tokens = "[gateway.token.a]\ntoken_env = 'LONG'";
    let own = "[gateway.token.a]\ntoken_file = 'good'\nservers = ['unknown']";
    let gateway = made(load_both(&format!("{project}\n{tokens}"), own)).unwrap();
    assert_eq!(gateway.front.tokens[0].secret, "fedcba9876543210");
}

#[test]
fn other_commands_need_no_variables() {
    assert!(
        load_text("[server.a]\nurl = '$UNSET'\n[gateway.token.a]\ntoken_env = 'UNSET'").is_ok()
    );
}

#[test]
fn mistakes_in_servers_are_explained() {
    let one = |lines: &str| format!("[server.a]\n{lines}");
    says(
        "[server.a]\ncwd = 'x'",
        "a: server `a` has neither `command` nor `url`",
        "add `command = [\"program\", \"argument\"]` or `url = \"http://…\"`",
    );
    let both = one("command = ['x']\nurl = 'http://a/'");
    says(&both, "'http://a/': `command` and `url` exclude each other", "keep one of the two");
    says(
        &one("command = ['x']\nheaders = { A = 'b', C = 'd' }"),
        "'b': `headers` does not go with `command`",
        "it is for a server that is reached over HTTP: remove it",
    );
    for (line, under, key) in [
        ("max_restarts = 3", "3", "max_restarts"),
        ("spare = true", "true", "spare"),
        ("env = { A = 'b' }", "'b'", "env"),
        ("args = []", "[]", "args"),
        ("watch = ['a']", "['a']", "watch"),
    ] {
        says(
            &one(&format!("url = 'http://a/'\n{line}")),
            &format!("{under}: `{key}` does not go with `url`"),
            "it is for a server that afresh starts itself: remove it",
        );
    }
    says(
        &one("command = ['x']\nidle_after = '1m'"),
        "'1m': `idle_after` goes with `share = \"per-client\"`",
        "remove it, or add `share = \"per-client\"`",
    );
    says(
        &one("command = ['x']\nshare = 'client'"),
        "'client': `share` must be `all` or `per-client`, not `client`",
        "did you mean `per-client`?",
    );
}

#[test]
fn values_of_servers_that_are_not_taken_are_explained() {
    let one = |lines: &str| format!("[server.a]\n{lines}");
    says(
        &one("command = ['x']\nprefix = 'a b'"),
        "'a b': `prefix` must be a text of letters, digits, `_`, `-` and `.`, at most 64, or \"\", not \
         `a b`",
        "for example `prefix = \"gh_\"`",
    );
    says(
        &one("command = ['x']\nallow = ['']"),
        "'': `allow` does not take ``",
        "for example `allow = [\"get_*\", \"search\"]`",
    );
    says(
        &one("command = ['x']\nargs = 'a'"),
        "'a': `args` must be a list of strings, not a string",
        "for example `args = [\"--token\", \"${TOKEN}\"]`",
    );
    says(
        &one("url = 'localhost:3000'"),
        "'localhost:3000': `url` must be a URL that begins with `http://` or `https://`, not \
         `localhost:3000`",
        "write `http://localhost:3000`",
    );
    says(
        &one("command = ['x']\nallows = ['a']"),
        "allows: unknown key `allows` in `[server.a]`",
        "did you mean `allow`?",
    );
    says(
        &one("command = ['x']\nhttp = 'a'"),
        "http: unknown key `http` in `[server.a]`",
        "`http` belongs in `[gateway]`",
    );
    says(
        &one("command = ['x']\ntimeout = 3"),
        "timeout: unknown key `timeout` in `[server.a]`",
        "that is `call_timeout` here",
    );
    says(
        &one("command = ['x']\ndelay = '5m'"),
        "'5m': `max_delay` (1m) is shorter than `delay` (5m)",
        "`max_delay` comes from: default",
    );
    says(
        "server = 3",
        "server: `server` must be a table, not an integer",
        "begin each with `[server.NAME]`",
    );
    says(
        "[server]\nurl = 'http://a/'",
        "url: `[server]` needs a name for what it defines",
        "begin it with `[server.NAME]`",
    );
    says(
        "[servers.a]\nurl = 'http://a/'",
        "servers: unknown section `[servers]`",
        "did you mean `[server.NAME]`?",
    );
}

#[test]
fn names_of_servers_fit_into_names_of_tools() {
    let rule = "a name has letters, digits, `-` and `_`, at most 64, and does not begin with `-`";
    for name in ["a.b", "a b", "-a", ""] {
        let text = format!("[server.\"{name}\"]\ncommand = ['x']");
        says(&text, &format!("\"{name}\": `{name}` is no name for a server"), rule);
    }
    says(
        "[server.afresh]\ncommand = ['x']",
        "afresh: `afresh` is no name for a server",
        "`afresh` has tools of its own: take another name",
    );
    says(
        "[server.a]\ncommand = ['x']\n[server.A]\ncommand = ['x']",
        "A: `a` and `A` are the same but for large letters",
        "give one another name: `a` is at afresh.toml:1",
    );
}

#[test]
fn a_variable_that_is_missing_stops_one_server_alone() {
    let text = "[server.a]\ncommand = ['x']\nenv = { K = '${D}' }\n[server.b]\ncommand = ['x']";
    let gateway = made(load_text(text)).unwrap();
    let names: Vec<&str> = gateway.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["b"]);
    let why = "`env.K` of server `a` needs the variable `D`, which is not set; set `D` where `afresh gateway` is started, \
               or write `${D:-default}`";
    assert_eq!(gateway.left_out, [("a".to_owned(), why.to_owned())]);
}

#[test]
fn variables_that_are_missing_are_named_with_server_and_key() {
    let text = "[server.a]\ncommand = ['x']\nargs = ['$B', '${C}']\nenv = { K = '${env:D}' }";
    let errors = made(load_text(text)).unwrap_err();
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "`args` of server `a` needs the variable `B`, which is not set",
            "`args` of server `a` needs the variable `C`, which is not set",
            "`env.K` of server `a` needs the variable `D`, which is not set",
        ]
    );
    says(
        "[server.a]\nurl = 'http://$HOST/'",
        "'http://$HOST/': `url` of server `a` needs the variable `HOST`, which is not set",
        "set `HOST` where `afresh gateway` is started, or write `${HOST:-default}`",
    );
    says(
        "[server.a]\nurl = 'http://a/'\nheaders = { X = '${input:x}' }",
        "'${input:x}': `headers.X` of server `a` has `${input:x}`, which means nothing",
        "write `${NAME}` or `${NAME:-default}`; a `$` itself is `$$`",
    );
    says(
        "[server.a]\nurl = '$PORT'",
        "'$PORT': `url` of server `a` is no URL that begins with `http://` or `https://`, once its \
         variables are filled in",
        "look at the variables in it",
    );
    says(
        "[server.a]\nurl = 'http://a/'\nheaders = { X = '$BAD' }",
        "'$BAD': `headers.X` of server `a` has a character that it cannot have, once its variables are \
         filled in",
        "look at the variables in it",
    );
}

#[test]
fn mistakes_in_the_gateway_are_explained() {
    says(
        "[gateway]\nhttp = '8808'",
        "'8808': `http` must be an address such as `127.0.0.1:8808`, not `8808`",
        "write an address with its port, such as `127.0.0.1:8808`",
    );
    says(
        "[gateway]\nexpose = 'al'",
        "'al': `expose` must be `all` or `search`, not `al`",
        "did you mean `all`?",
    );
    says(
        "[gateway]\nallow = ['x']",
        "allow: unknown key `allow` in `[gateway]`",
        "`allow` belongs in `[server.NAME]`",
    );
    says(
        "[gateway]\nlisten = 'x'",
        "listen: unknown key `listen` in `[gateway]`",
        "that is `http` here",
    );
    says(
        "gateway = 3",
        "gateway: `gateway` must be a table, not an integer",
        "begin it with `[gateway]`",
    );
    says(
        "[gateway]\nbody_max = '1GiB'",
        "'1GiB': `body_max` must be a size from 1KiB to 64MiB, not `1GiB`",
        "for example `body_max = \"64MiB\"`",
    );
    says(
        "['gateway.token'.a]",
        "'gateway.token': unknown section `[gateway.token]`",
        "did you mean `[gateway.token.NAME]`?",
    );
}

#[test]
fn mistakes_in_tokens_are_explained_and_show_no_secret() {
    let hint = "make one with `openssl rand -hex 32`";
    let one = |lines: &str| format!("[gateway.token.a]\n{lines}");
    says(
        &one(""),
        "a: token `a` has no secret",
        "add one of `token_env`, `token_file` and `token`",
    );
    says(&one("token = 'tooshort'"), "no line: `token` is shorter than 16 characters", hint);
    says(
        &one("token = 'with a blank inside'"),
        "no line: `token` has a character that a header cannot have",
        hint,
    );
    let long = format!("token = '{}'", "x".repeat(4097));
    says(&one(&long), "no line: `token` is longer than 4096 characters", hint);
    says(
        &one("token = 3"),
        "no line: `token` must be a string, not an integer",
        "for example `token = \"0123456789abcdef\"`",
    );
    let both = one("token_env = 'LONG'\ntoken_file = 'good'");
    says(&both, "'good': `token_env` and `token_file` exclude each other", "keep one of the two");
    says(
        &one("token_env = 'UNSET'"),
        "no line: token `a` needs the variable `UNSET`, which is not set",
        "set `UNSET` where `afresh gateway` is started",
    );
    says(
        &one("token_env = '$LONG'"),
        "no line: `token_env` must be the name of a variable, not `$LONG`",
        "for example `token_env = \"GATEWAY_TOKEN\"`",
    );
    says(&one("token_env = 'TOKEN'"), "no line: token `a` is shorter than 16 characters", hint);
    says(&one("token_file = 'short'"), "'short': token `a` is shorter than 16 characters", hint);
    says(
        &one("token_file = 'none'"),
        "'none': token `a` cannot be read from `none`",
        "no such file",
    );
    says(
        &one("token_file = 'other'"),
        "'other': token `a` cannot be read from `other`",
        "it is not there",
    );
    says(
        &one("token_env = 'LONG'\n[gateway.token.b]\ntoken = '0123456789abcdef'"),
        "no line: tokens `a` and `b` are the same",
        "give each its own, or remove one",
    );
    says(
        &one("token_env = 'LONG'\nservers = ['giz']\n[server.git]\ncommand = ['x']"),
        "['giz']: token `a` is for `giz`, which is no server",
        "did you mean `git`?",
    );
    says(
        &one("token_env = 'LONG'\nservers = ['x*']\n[server.git]\ncommand = ['x']"),
        "['x*']: token `a` is for `x*`, which is no server",
        "define `[server.x*]`, or leave it out",
    );
    says(
        &one("token_env = 'LONG'\nserver = ['x']"),
        "server: unknown key `server` in `[gateway.token.a]`",
        "did you mean `servers`?",
    );
    says(
        "[gateway.token.'a b']\ntoken_env = 'LONG'",
        "'a b': `a b` is no name for a token",
        "a name has letters, digits, `-`, `_` and `.`, at most 64, and begins with none of `-` and `.`",
    );
    says(
        "[gateway]\ntoken = 'abc'",
        "no line: `gateway.token` must be a table, not a string",
        "begin each with `[gateway.token.NAME]`",
    );
}

#[test]
fn there_are_bounds() {
    let many = |line: &dyn Fn(usize) -> String, count| (0..count).map(line).collect::<String>();
    let server = |n: usize| format!("[server.s{n}]\ncommand = ['x']\n");
    assert_eq!(good(&many(&server, SERVERS_MAX)).servers.len(), SERVERS_MAX);
    let (message, hint) = error(&many(&server, SERVERS_MAX + 1));
    assert_eq!(message, "s500: there are more than 500 servers");
    assert_eq!(hint, "start several `afresh gateway`, each in its own workspace");
    let token = |n: usize| format!("[gateway.token.t{n}]\ntoken = 'sixteen-letters-{n}'\n");
    let errors = load_text(&many(&token, TOKENS_MAX + 1)).unwrap_err();
    assert_eq!(errors[0].message, "there are more than 1000 tokens");
}

#[test]
fn shown_values_have_no_secrets() {
    let shown = load_text(FULL).unwrap().shown_tables();
    let find = |heading: &str, key: &str| {
        let table = shown.iter().find(|table| table.heading == heading).unwrap();
        table.entries.iter().find(|entry| entry.key == key).unwrap().toml.clone()
    };
    assert_eq!(find("gateway.token.eve", "token"), "\"[redacted]\"");
    assert_eq!(find("gateway.token.ci", "token_env"), "\"LONG\"");
    assert_eq!(find("gateway.token.ada", "token_file"), "\"good\"");
    assert_eq!(find("server.web", "headers.Authorization"), "\"[redacted]\"");
    assert_eq!(find("gateway", "http"), "\"[::1]:8808\"");
}
