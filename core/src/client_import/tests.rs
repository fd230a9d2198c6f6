//! Configurations of other programs, as people have them, and what is said about those that cannot be
//! taken.

use std::time::Duration;

use super::*;
use crate::definition::HealthSettings;
use crate::policy::Policy;
use crate::report::Origin;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with<T>(run: impl FnOnce(&Context<'_>) -> T) -> T {
    let env =
        pairs(&[("TOKEN", "t0"), ("INPUT_key", "k0"), ("HOME", "/home/ada"), ("BAD", "a\nb")]);
    let usual = usual();
    run(&Context { env: &env, workspace: "/work/shop", usual: &usual, accepts: &|_| true })
}

fn usual() -> StdioServer {
    StdioServer {
        command: Vec::new(),
        cwd: None,
        env: Vec::new(),
        inherit_env: Default::default(),
        env_file: None,
        policy: Policy { max_restarts: 77, ..Policy::default() },
        health: HealthSettings { memory_bytes_max: None, wedge_timeout: None },
        spare: false,
        watch: Vec::new(),
        watch_debounce: Duration::from_millis(1),
        tell_restarts: true,
    }
}

#[track_caller]
fn good(path: &str, text: &str) -> Import {
    with(|context| read(path, text.as_bytes(), context))
        .unwrap_or_else(|errors| panic!("{}\n{text}", errors[0]))
}

/// Where, what and the hint of the one error.
#[track_caller]
fn says(path: &str, text: &str, wanted: &str, hint: &str) {
    let errors = with(|context| read(path, text.as_bytes(), context)).expect_err(text);
    let [error] = &errors[..] else { panic!("{errors:#?}\n{text}") };
    let Origin::File { line, column, .. } = &error.origin else { panic!("{error}") };
    assert_eq!(format!("{line}:{column} {}", error.message), wanted, "{text}");
    assert_eq!(error.hint.as_deref(), Some(hint), "{text}");
}

fn stdio(server: &Backend) -> &StdioServer {
    match &server.transport {
        Transport::Stdio(stdio) => stdio,
        Transport::Http(http) => panic!("{http:?}"),
    }
}

fn http(server: &Backend) -> &HttpServer {
    match &server.transport {
        Transport::Http(http) => http,
        Transport::Stdio(stdio) => panic!("{stdio:?}"),
    }
}

fn names(import: &Import) -> Vec<&str> {
    import.servers.iter().map(|server| server.name.as_str()).collect()
}

#[test]
fn claude_and_cursor() {
    let import = good(
        ".mcp.json",
        r#"{
  "mcpServers": {
    "files": {
      "type": "stdio", "command": "${HOME}/bin/files", "args": ["--key=${TOKEN}", "${X:-y}", "$TOKEN", ""],
      "env": { "KEY": "${TOKEN}", "N": 3, "B": true, "NOTHING": null }, "cwd": "${workspaceFolder}/sub",
      "autoApprove": ["x"], "disabledTools": ["rm"]
    },
    "web": { "type": "http", "url": "https://a/${TOKEN}", "headers": { "Authorization": "Bearer ${TOKEN}" } },
    "old": { "type": "sse", "url": "http://a/sse" },
    "surf": { "serverUrl": "http://b/mcp" },
    "off": { "command": "x", "disabled": true, "env": { "K": "${UNSET}" } }
  }
}"#,
    );
    assert_eq!(names(&import), ["files", "web", "old", "surf"]);
    let wanted = StdioServer {
        command: ["/home/ada/bin/files", "--key=t0", "y", "$TOKEN", ""].map(str::to_owned).to_vec(),
        env: pairs(&[("KEY", "t0"), ("N", "3"), ("B", "true")]),
        cwd: Some("/work/shop/sub".into()),
        ..usual()
    };
    assert_eq!(*stdio(&import.servers[0]), wanted);
    assert_eq!(import.servers[0].deny, ["rm"]);
    let headers = pairs(&[("Authorization", "Bearer t0")]);
    let web = HttpServer { url: "https://a/t0".to_owned(), headers, sse: None };
    assert_eq!(*http(&import.servers[1]), web);
    assert_eq!(http(&import.servers[2]).sse, Some(true));
    assert_eq!(http(&import.servers[3]).url, "http://b/mcp");
    assert_eq!(import.notes, ["server `off` is turned off there and left out"]);
    assert!(!format!("{import:?}").contains("t0"), "{import:?}");
}

#[test]
fn claude_knows_servers_of_several_projects() {
    let import = good(
        "/home/ada/.claude.json",
        r#"{
  "projects": {
    "/work/shop": { "mcpServers": { "a": { "command": "of-project" } } },
    "/work/other": { "mcpServers": { "b": { "command": "other", "env": { "X": "${UNSET}" } } } }
  },
  "mcpServers": { "a": { "command": "of-user" }, "c": { "command": "c" } }
}"#,
    );
    assert_eq!(names(&import), ["a", "c"]);
    assert_eq!(stdio(&import.servers[0]).command, ["of-project"]);
}

#[test]
fn vs_code() {
    let text = r#"{
	// comments stay comments
	"inputs": [{ "type": "promptString", "id": "key" }],
	"servers": {
		"docs": {
			"type": "stdio", "command": "python", "args": ["-m", "docs", "${userHome}"],
			"env": { "KEY": "${input:key}", "T": "${env:TOKEN}" }, "envFile": "${workspaceFolder}/.env",
			"dev": { "watch": "src/**", "debug": { "type": "debugpy" } },
		},
		"web": { "type": "http", "url": "https://example.com/mcp" },
	},
}"#;
    let import = good(".vscode/mcp.json", text);
    assert_eq!(names(&import), ["docs", "web"]);
    let docs = stdio(&import.servers[0]);
    assert_eq!(docs.command, ["python", "-m", "docs", "/home/ada"]);
    assert_eq!(docs.env, pairs(&[("KEY", "k0"), ("T", "t0")]));
    assert_eq!(docs.env_file, Some("/work/shop/.env".into()));
    assert_eq!(import.notes, ["server `docs` has `dev`, which is passed over"]);
    let import = good(".vscode/mcp.json", &text.replace("input:key", "input:api-key"));
    assert_eq!(names(&import), ["web"]);
    let why = "`env.KEY` of server `docs` needs `${input:api-key}`, which is not known; afresh cannot prompt for it: \
               set `INPUT_api_key` where `afresh gateway` is started";
    assert_eq!(import.left_out, pairs(&[("docs", why)]));
}

#[test]
fn opencode() {
    let import = good(
        "opencode.json",
        r#"{ "mcp": {
  "a": { "type": "local", "command": ["npx", "-y", "{env:TOKEN}", "${TOKEN}"], "environment": { "K": "{env:TOKEN}" } },
  "b": { "type": "remote", "url": "http://b/mcp", "headers": { "X": "y" }, "timeout": 3000 },
  "c": { "type": "local", "command": ["c"], "enabled": false }
} }"#,
    );
    assert_eq!(names(&import), ["a", "b"]);
    assert_eq!(stdio(&import.servers[0]).command, ["npx", "-y", "t0", "${TOKEN}"]);
    assert_eq!(stdio(&import.servers[0]).env, pairs(&[("K", "t0")]));
    assert_eq!(http(&import.servers[1]).headers, pairs(&[("X", "y")]));
    assert_eq!(
        import.notes,
        [
            "server `b` has `timeout`, which is passed over",
            "server `c` is turned off there and left out",
        ]
    );
    says(
        "opencode.json",
        r#"{ "mcp": { "a": { "type": "local", "command": ["x", "{file:key}"] } } }"#,
        "1:53 `command` of server `a` needs a file, by `{file:…}`, which is not read here",
        "put the value into a variable, and write `{env:NAME}`",
    );
}

#[test]
fn codex() {
    let import = good(
        ".codex/config.toml",
        r#"
model = "x"
[mcp_servers.a]
command = "npx"
args = ["-y", "${TOKEN}"]
cwd = "sub"
startup_timeout_sec = 20
tool_timeout_sec = 1.5
enabled_tools = ["one", "two"]
disabled_tools = ["two"]
[mcp_servers.a.env]
K = "v"
[mcp_servers.b]
url = "https://b/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { X = "y" }
env_http_headers = { Z = "INPUT_key" }
"#,
    );
    assert_eq!(names(&import), ["a", "b"]);
    assert_eq!(stdio(&import.servers[0]).command, ["npx", "-y", "${TOKEN}"]);
    assert_eq!(stdio(&import.servers[0]).env, pairs(&[("K", "v")]));
    assert_eq!(import.servers[0].call_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(import.servers[0].allow, Some(vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!(import.servers[1].allow, None);
    let none = "[mcp_servers.a]\ncommand = 'x'\nenabled_tools = []";
    assert_eq!(good("config.toml", none).servers[0].allow, Some(Vec::new()));
    assert_eq!(import.servers[0].deny, ["two"]);
    let headers = pairs(&[("X", "y"), ("Z", "k0"), ("Authorization", "Bearer t0")]);
    assert_eq!(http(&import.servers[1]).headers, headers);
    assert_eq!(import.notes, ["server `a` has `startup_timeout_sec`, which is passed over"]);
    says(
        "config.toml",
        "[mcp_servers.b]\nurl = 'https://b/mcp'\nbearer_token_env_var = 'NONE'",
        "3:24 `bearer_token_env_var` of server `b` needs the variable `NONE`, which is not set",
        "set `NONE` where `afresh gateway` is started",
    );
    says(
        "config.toml",
        "[mcp_servers.b]\ncommand = 'x'\ntool_timeout_sec = 'soon'",
        "3:20 `tool_timeout_sec` of server `b` must be a number of seconds",
        "correct it, or remove it",
    );
}

#[test]
fn afresh_itself_is_taken_away() {
    let import = good(
        ".mcp.json",
        r#"{ "mcpServers": {
  "a": { "command": "afresh", "args": ["mcp", "--name", "a", "--", "node", "gateway"] },
  "b": { "command": "/opt/afresh", "args": ["mcp", "--name=b", "--spare", "--env", "API_KEY=secret12345", "--", "afresh", "mcp", "--", "x", "--", "y"] },
  "c": { "command": "afresh", "args": ["gateway", "--from", "x"] },
  "d": { "command": "npx", "args": ["-y", "afresh", "--verbose", "gateway"] },
  "e": { "command": "afresh", "args": ["mcp", "--", "afresh", "gateway"] },
  "f": { "command": "npx", "args": ["-y", "afresh@0.2.0", "mcp", "--name", "f", "--", "node", "f.js"] },
  "g": { "command": "cmd", "args": ["/c", "npx", "-y", "afresh@0.2.0", "mcp", "--", "uvx", "afresh@0.1.0", "mcp", "g"] },
  "h": { "command": "uvx", "args": ["afresh@0.2.0", "gateway", "--from", "x"] },
  "i": { "command": "npm", "args": ["exec", "-y", "afresh@0.2.0", "--", "gateway"] }
} }"#,
    );
    assert_eq!(names(&import), ["a", "b", "f", "g"]);
    assert_eq!(stdio(&import.servers[0]).command, ["node", "gateway"]);
    assert_eq!(stdio(&import.servers[1]).command, ["x", "--", "y"]);
    assert_eq!(stdio(&import.servers[2]).command, ["node", "f.js"]);
    assert_eq!(stdio(&import.servers[3]).command, ["g"]);
    assert_eq!(
        import.notes,
        [
            "server `b` is behind `afresh mcp` there, whose `--spare --env API_KEY=[redacted]` is not \
             taken over: say it in `[server.NAME]`",
            "server `c` is `afresh gateway` itself and left out",
            "server `d` is `afresh gateway` itself and left out",
            "server `e` is `afresh gateway` itself and left out",
            "server `h` is `afresh gateway` itself and left out",
            "server `i` is `afresh gateway` itself and left out",
        ]
    );
}

#[test]
fn names_are_made_to_fit() {
    let import = good(
        ".mcp.json",
        r#"{ "mcpServers": { "a b.é": { "command": "x" }, "-c": { "command": "x" }, "afresh": { "command": "x" } } }"#,
    );
    assert_eq!(names(&import), ["a_b__", "_c", "afresh_"]);
    assert_eq!(
        import.notes,
        [
            "server `a b.é` is called `a_b__` here",
            "server `-c` is called `_c` here",
            "server `afresh` is called `afresh_` here",
        ]
    );
    let both = good(
        ".mcp.json",
        "{ \"mcpServers\": {\n\"a b\": { \"command\": \"x\" },\n\"a_b\": { \"command\": \"y\" } } }",
    );
    assert_eq!(stdio(&both.servers[0]).command, ["x"]);
    let why = "`a b` and `a_b` are both `a_b` here; give one another name";
    assert_eq!(both.left_out, pairs(&[("a_b", why)]));
    let name = "x".repeat(65);
    says(
        ".mcp.json",
        &format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#),
        &format!("1:88 `{name}` is no name for a server"),
        "a name has at least one character, and at most 64",
    );
}

#[test]
fn what_cannot_be_taken_is_explained() {
    let one = |fields: &str| format!("{{ \"mcpServers\": {{ \"a\": {{ {fields} }} }} }}");
    let odd = "correct it, or turn it off";
    let cases = [
        ("", "1:24 server `a` cannot be taken: it has neither a command nor an address", odd),
        (r#""command": 3"#, "1:24 server `a` cannot be taken: its command is no text", odd),
        (r#""command": """#, "1:24 server `a` cannot be taken: its command is empty", odd),
        (
            r#""command": "x", "args": "y""#,
            "1:24 server `a` cannot be taken: its `args` are no list",
            odd,
        ),
        (
            r#""command": "npx -y x""#,
            "1:24 server `a` cannot be taken: its command is a line: write the words after it as `args`",
            odd,
        ),
        (
            r#""command": "afresh", "args": ["mcp", "--"]"#,
            "1:24 server `a` cannot be taken: `afresh mcp` has no command behind it",
            odd,
        ),
        (
            r#""command": "x", "args": [3]"#,
            "1:51 an argument of server `a` is no text",
            "put it in quotes",
        ),
        (
            r#""command": "x", "args": ["${B}"]"#,
            "1:51 `args` of server `a` needs the variable `B`, which is not set",
            "set `B` where `afresh gateway` is started",
        ),
        (
            r#""command": "x", "env": { "K": "${command:x}" }"#,
            "1:56 `env.K` of server `a` has `${command:x}`, which means nothing",
            "write `${NAME}` or `${NAME:-default}`",
        ),
        (
            r#""command": "x", "env": []"#,
            "1:49 `env` of server `a` must be an object of texts",
            "correct it, or remove it",
        ),
        (
            r#""command": "x", "cwd": {"a": 1}"#,
            "1:55 `cwd` of server `a` must be a text",
            "correct it, or remove it",
        ),
        (
            r#""command": "x", "disabledTools": "y""#,
            "1:59 `disabledTools` of server `a` must be a list of texts",
            "correct it, or remove it",
        ),
        (
            r#""command": "x", "args": ["\u0000"]"#,
            "1:51 `args` of server `a` has a NUL byte",
            "remove it",
        ),
        (
            r#""url": "localhost:3000""#,
            "1:33 server `a` has no URL that begins with `http://` or `https://`",
            "add `url`, without a name or password in it",
        ),
        (
            r#""url": "http://${HOST}/""#,
            "1:33 `url` of server `a` needs the variable `HOST`, which is not set",
            "set `HOST` where `afresh gateway` is started",
        ),
        (
            r#""url": "http://a/", "headers": { "X": "${BAD}" }"#,
            "1:24 server `a` has a header that cannot be sent",
            "look at its headers, and at the variables in them",
        ),
    ];
    for (fields, wanted, hint) in cases {
        says(".mcp.json", &one(fields), wanted, hint);
    }
}

#[test]
fn one_that_cannot_be_taken_does_not_take_the_others_with_it() {
    let import = good(
        ".mcp.json",
        r#"{ "mcpServers": {
  "good": { "command": "x", "gallery": "y", "dev": { "watch": "z" } },
  "unset": { "command": "x", "args": ["${B}"] }, "empty": {}, "ws": { "url": "ws://a/" },
  "five": 5, "none": null, "text": "x", "good": { "command": "last", "gallery": "y", "dev": { "watch": "z" } } } }"#,
    );
    assert_eq!(stdio(&import.servers[0]).command, ["last"]);
    let no_object = |name: &str| {
        format!("server `{name}` cannot be taken: it is no object; correct it, or turn it off")
    };
    let left = [
        (
            "unset",
            "`args` of server `unset` needs the variable `B`, which is not set; set `B` where `afresh \
             gateway` is started"
                .to_owned(),
        ),
        (
            "empty",
            "server `empty` cannot be taken: it has neither a command nor an address; correct it, or \
             turn it off"
                .to_owned(),
        ),
        (
            "ws",
            "server `ws` has no URL that begins with `http://` or `https://`; add `url`, without a \
             name or password in it"
                .to_owned(),
        ),
        ("five", no_object("five")),
        ("none", no_object("none")),
        ("text", no_object("text")),
    ];
    assert_eq!(import.left_out, left.clone().map(|(name, why)| (name.to_owned(), why)));
    let mut notes = vec!["server `good` stands there twice: the last one counts".to_owned()];
    notes.push("server `good` has `gallery`, which is passed over".to_owned());
    notes.push("server `good` has `dev`, which is passed over".to_owned());
    notes.extend(left.map(|(name, why)| format!("server `{name}` is left out: {why}")));
    assert_eq!(import.notes, notes);
    let codex = good("config.toml", "mcp_servers.a = 5\n[mcp_servers.b]\ncommand = 'x'");
    assert_eq!(codex.left_out[0].0, "a");
    // Where all are so, it is an error, of each.
    let none = r#"{ "mcpServers": { "a": 5, "b": {} } }"#;
    let errors = with(|context| read(".mcp.json", none.as_bytes(), context)).unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:#?}");
}

#[test]
fn a_file_without_servers_is_explained() {
    says(
        ".mcp.json",
        "{\n  \"mcpServers\": [}",
        "2:18 a value is expected here",
        "correct it, or name another file with `--from`",
    );
    let hint = "name a file with `mcpServers`, `servers`, `mcp` or `[mcp_servers.NAME]`";
    says("package.json", "{ \"name\": \"x\" }", "1:1 there are no MCP servers in this file", hint);
    says(
        ".mcp.json",
        r#"{ "mcpServers": { "a": { "command": "afresh", "args": ["gateway"] } } }"#,
        "1:1 no server is left of this file: server `a` is `afresh gateway` itself and left out",
        hint,
    );
}

#[test]
fn a_line_with_a_secret_is_not_quoted() {
    let text = r#"{ "mcpServers": { "a": { "command": "x", "env": { "K": "${B}", "API_KEY": "sk-live-0123456789" } } } }"#;
    let errors = with(|context| read("a.json", text.as_bytes(), context)).unwrap_err();
    assert!(!errors[0].to_string().contains("0123456789"), "{}", errors[0]);
}

#[test]
fn there_are_bounds() {
    let many = |count: usize| {
        let all: Vec<String> =
            (0..count).map(|n| format!("\"s{n}\": {{\"command\": \"x\"}}")).collect();
        format!("{{\"mcpServers\": {{{}}}}}", all.join(",\n"))
    };
    assert_eq!(good("a.json", &many(SERVERS_MAX)).servers.len(), SERVERS_MAX);
    let wanted = "501:9 there are more than 500 servers";
    says("a.json", &many(SERVERS_MAX + 1), wanted, "remove some");
}

#[test]
fn the_first_file_with_servers_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.as_bytes().to_vec());
    let own = r#"{ "mcpServers": { "a": { "command": "afresh", "args": ["gateway"] } } }"#;
    let files = [
        file(".mcp.json", own),
        file(".vscode/mcp.json", "{}"),
        file(".cursor/mcp.json", r#"{ "mcpServers": { "b": { "command": "b" } } }"#),
        file("opencode.json", r#"{ "mcp": { "c": { "type": "local", "command": ["c"] } } }"#),
    ];
    let (path, import) = with(|context| find(&files, context).unwrap().unwrap());
    assert_eq!((path, names(&import)), (".cursor/mcp.json", vec!["b"]));
    assert_eq!(with(|context| find(&files[..2], context)).unwrap(), None);
    let broken = [file(".mcp.json", "{"), files[2].clone()];
    let errors = with(|context| find(&broken, context)).unwrap_err();
    assert_eq!(errors[0].message, "a key in double quotes is expected here, or `}`");
}

#[test]
fn a_server_that_is_not_accepted_is_left_alone_with_its_variables() {
    let text = r#"{ "mcpServers": {
  "bad": { "command": "sh", "args": ["-c", "evil ${UNSET}"], "env": { "T": "${TOKEN}" }, "cwd": "/x", "envFile": ".env" },
  "far": { "url": "https://evil.example/${TOKEN}", "headers": { "Authorization": "Bearer ${TOKEN}" } },
  "good": { "command": "good" },
  "itself": { "command": "afresh", "args": ["gateway"] }
} }"#;
    let usual = usual();
    let accepts = |request: &TrustRequest| request.name == "server.good";
    let context = Context { env: &[], workspace: "/w", usual: &usual, accepts: &accepts };
    let files = [(".mcp.json".to_owned(), text.as_bytes().to_vec())];
    let (path, import) = find(&files, &context).unwrap().unwrap();
    assert_eq!((path, names(&import)), (".mcp.json", vec!["good"]));
    let [bad, far] = &import.untrusted[..] else { panic!("{:?}", import.untrusted) };
    assert_eq!(
        bad.text(),
        "[server.bad] of .mcp.json\ncommand = [\"sh\",\"-c\",\"evil ${UNSET}\"]\n\
         env.T = \"${TOKEN}\"\ncwd = \"/x\"\nenvFile = \".env\""
    );
    assert!(far.text().contains("headers.Authorization = \"Bearer ${TOKEN}\""), "{far:?}");
    // One file alone is asked for, also where none of its servers is accepted.
    let none = Context { accepts: &|_| false, ..context };
    let files = [files[0].clone(), (".cursor/mcp.json".to_owned(), text.as_bytes().to_vec())];
    let (path, import) = find(&files, &none).unwrap().unwrap();
    assert_eq!((path, import.servers.len(), import.untrusted.len()), (".mcp.json", 0, 3));
}

#[test]
fn a_server_is_accepted_by_its_very_command_and_with_all_others_of_its_name() {
    let words = |command: &str| vec![command.to_owned()];
    let file = |text: &str| requests(".mcp.json", text.as_bytes(), "/work");
    // Sections that other programs read, and names that become the same.
    for text in [
        r#"{"mcpServers":{"x":{"command":"evil"}},"servers":{"x":{"command":"good"}}}"#,
        r#"{"mcpServers":{"x":{"command":"evil","disabled":true}},"servers":{"x":{"command":"good"}}}"#,
        r#"{"mcpServers":{"x":{"command":"good"}},"projects":{"/work":{"mcpServers":{"x":{"command":"evil"}}}}}"#,
    ] {
        let all = file(text);
        assert_eq!(all.len(), 2, "{text}");
        let knows_good = |request: &TrustRequest| !request.text().contains("evil");
        for command in ["evil", "good"] {
            assert!(!accepts_command(&all, "x", &words(command), &knows_good), "{text}");
            assert!(accepts_command(&all, "x", &words(command), &|_| true), "{text}");
        }
        assert!(!accepts_command(&all, "x", &words("other"), &|_| true), "{text}");
    }
    let all = file(r#"{"mcpServers":{"a_b":{"command":"good"},"a.b":{"command":"evil"}}}"#);
    let knows_good = |request: &TrustRequest| !request.text().contains("evil");
    assert!(!accepts_command(&all, "a.b", &words("evil"), &knows_good));
    assert!(all[1].lines.contains(&"name = \"a.b\"".to_owned()), "{:?}", all[1]);
    assert!(!accepts_command(&[], "x", &words("good"), &|_| true));
}

#[test]
fn lists_of_tools_and_transports_of_other_clients_count() {
    let import = good(
        "mcp-config.json",
        r#"{ "mcpServers": {
  "copilot": { "command": "a", "args": [], "tools": ["get", "set_*"] },
  "all": { "command": "a", "tools": ["*"], "includeTools": ["x"] },
  "cline": { "transport": { "type": "stdio", "command": "b", "args": ["c"], "env": { "K": "v" } } }
} }"#,
    );
    let allowed = |at: usize| import.servers[at].allow.clone().unwrap_or_default();
    assert_eq!(
        (allowed(0), allowed(1)),
        (vec!["get".into(), "set_*".into()], vec!["x".into(), "*".into()])
    );
    let cline = stdio(&import.servers[2]);
    assert_eq!(cline.command, ["b", "c"]);
    assert_eq!(cline.env, [("K".to_owned(), "v".to_owned())]);
    assert_eq!(import.notes, [""; 0]);
}

#[test]
fn a_request_has_all_that_an_entry_says_and_none_is_left_unseen() {
    let of = |more: &str| {
        let text = format!(r#"{{"mcpServers": {{"a": {{"command": "npm"{more}}}}}}}"#);
        requests(".mcp.json", text.as_bytes(), "")
    };
    let plain = of("");
    assert_eq!(plain.len(), 1);
    for more in [r#", "x": {"y": {"z": "1"}}"#, r#", "list": ["a", 1]"#] {
        assert_ne!(of(more), plain, "{more}");
    }
    // The last one is another `a`, which some programs take.
    let many: String =
        (0..SERVERS_MAX).map(|n| format!(r#""s{n}": {{"command": "x"}}, "#)).collect();
    let text = format!(
        r#"{{"mcpServers": {{"a": {{"command": "npm"}}, {many}"a": {{"command": "npm", "cwd": "b"}}}}}}"#
    );
    assert_eq!(requests(".mcp.json", text.as_bytes(), ""), []);
}
