//! Configurations as people have them, and broken ones.

use super::*;

const PLAIN: Wrapper<'static> =
    Wrapper { invocation: &["afresh"], with: &[], version: Some("0.2.0"), gone: &[] };
const NPX: Wrapper<'static> = Wrapper { invocation: &["npx", "-y", "afresh@0.2.0"], ..PLAIN };
const WINDOWS: Wrapper<'static> =
    Wrapper { invocation: &["cmd", "/c", "npx", "-y", "afresh@0.2.0"], ..PLAIN };
const UVX: Wrapper<'static> = Wrapper { invocation: &["uvx", "afresh@0.2.0"], ..PLAIN };

#[track_caller]
fn read<'a>(path: &str, text: &'a str) -> File<'a> {
    File::read(path, text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn adopted(path: &str, text: &str, wrapper: &Wrapper<'_>) -> String {
    let file = read(path, text);
    file.with(&file.adopt(wrapper, &|_| true))
}

fn undone(path: &str, text: &str) -> String {
    let file = read(path, text);
    file.with(&file.undo(&|_| true))
}

/// Adopts, and checks what always holds: the second time changes nothing, and an undo gives the
/// bytes back.
#[track_caller]
fn there_and_back(path: &str, text: &str) -> String {
    let with = ["--max-restarts".to_owned(), "0".to_owned()];
    let by_path = Wrapper { invocation: &["/opt/my tools/afresh"], with: &with, ..PLAIN };
    for wrapper in [PLAIN, by_path, NPX, WINDOWS, UVX] {
        let new = adopted(path, text, &wrapper);
        assert_eq!(adopted(path, &new, &PLAIN), new, "the second time changes nothing");
        assert_eq!(undone(path, &new), text, "undone from {new}");
        let (old, new) = (read(path, text), read(path, &new));
        let names = |file: &File<'_>| -> Vec<String> {
            file.servers.iter().map(|server| server.name.clone()).collect()
        };
        assert_eq!(names(&old), names(&new));
        let was_plain = old.servers.iter().map(|server| server.state() == State::Plain);
        for (was_plain, server) in was_plain.zip(new.servers) {
            assert_eq!(server.state() == State::Adopted, was_plain, "{}", server.name);
        }
    }
    adopted(path, text, &PLAIN)
}

impl ClientServer {
    fn launch_words(&self) -> Vec<&str> {
        self.launch.words().into_iter().map(|word| word.text.as_str()).collect()
    }
}

fn states(path: &str, text: &str) -> Vec<(String, State, bool)> {
    let of = |server: &ClientServer| (server.name.clone(), server.state(), server.disabled);
    read(path, text).servers.iter().map(of).collect()
}

#[test]
fn vs_code_keeps_its_comments() {
    let text = r#"{
	// servers of this project
	"inputs": [{ "type": "promptString", "id": "key", "password": true }],
	"servers": {
		"docs": { // the docs
			"type": "stdio",
			"command": "python", // not python2
			"args": ["-m", "docs_server"], /* no more */
			"env": { "KEY": "${input:key}" },
			"dev": { "watch": "src/**/*.py" },
		},
		"bare": {
			"command": "${workspaceFolder}/bin/server" // alone
		},
		"web": { "type": "http", "url": "https://example.com/mcp" },
	}
}
"#;
    let wanted = text
        .replace(r#""command": "python", //"#, r#""command": "afresh", //"#)
        .replace(
            r#"["-m", "docs_server"]"#,
            r#"["mcp", "--name", "docs", "--", "python", "-m", "docs_server"]"#,
        )
        .replace(
            r#""command": "${workspaceFolder}/bin/server" //"#,
            "\"command\": \"afresh\",\n\t\t\t\"args\": [\"mcp\", \"--name=bare\", \"--\", \"${workspaceFolder}/bin/server\"] //",
        );
    assert_eq!(there_and_back(".vscode/mcp.json", text), wanted);
}

#[test]
fn claude_has_servers_for_each_project() {
    let text = r#"{
  "numStartups": 7,
  "mcpServers": {
    "all": {
      "type": "stdio",
      "command": "npx",
      "args": [
        "-y",
        "server"
      ],
      "env": {}
    }
  },
  "projects": {
    "/home/ada/shop": {
      "history": [{"display": "{\"mcpServers\": {\"x\": {\"command\": \"y\"}}}"}],
      "mcpServers": {"own": {"command": "./server", "args": []}}
    }
  }
}"#;
    let wanted = text
        .replace(r#""command": "npx""#, r#""command": "afresh""#)
        .replace(
            "        \"-y\",",
            "        \"mcp\", \"--name\", \"all\", \"--\", \"npx\",\n        \"-y\",",
        )
        .replace(
            r#"{"command": "./server", "args": []}"#,
            r#"{"command": "afresh", "args": ["mcp", "--name", "own", "--", "./server"]}"#,
        );
    assert_eq!(there_and_back(".claude.json", text), wanted);
    let projects: Vec<Option<String>> =
        read("x.json", text).servers.iter().map(|server| server.project.clone()).collect();
    assert_eq!(projects, [None, Some("/home/ada/shop".to_owned())]);
}

#[test]
fn opencode_has_one_list() {
    let text = r#"{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "timeout": 5000,
    "local": { "type": "local", "command": ["bun", "x", "server"], "enabled": false },
    "far": { "type": "remote", "url": "https://example.com" },
    "override": { "enabled": true },
    "servers": { "next": { "type": "local", "command": [ "npx" ] } },
  },
}
"#;
    let wanted = text
        .replace(r#"["bun", "#, r#"["afresh", "mcp", "--name", "local", "--", "bun", "#)
        .replace(r#"[ "npx" ]"#, r#"[ "afresh", "mcp", "--name", "next", "--", "npx" ]"#);
    assert_eq!(there_and_back("opencode.jsonc", text), wanted);
    assert_eq!(
        states("opencode.json", text),
        [
            ("local".to_owned(), State::Plain, true),
            ("far".to_owned(), State::Remote, false),
            ("next".to_owned(), State::Plain, false),
        ]
    );
}

#[test]
fn codex_has_toml() {
    let text = r#"model = "x" # the best

[mcp_servers.docs]
command = 'npx'   # literally
args = [
    "-y", # yes
    "docs",
]
env = { "KEY" = "v" }

[mcp_servers."bare one"]
  command = "server" # alone
startup_timeout_sec = 20

[mcp_servers.far]
url = "https://example.com/mcp"
enabled = false

[mcp_servers]
inline = { command = "a", env = {} }
empty = {command="a",args=[]}
"#;
    let wanted = text
        .replace("command = 'npx'", "command = \"afresh\"")
        .replace(
            "    \"-y\", #",
            "    \"mcp\", \"--name\", \"docs\", \"--\", 'npx',\n    \"-y\", #",
        )
        .replace(
            "  command = \"server\" #",
            "  command = \"afresh\"\n  args = [\"mcp\", \"--name=bare one\", \"--\", \"server\"] #",
        )
        .replace(
            "{ command = \"a\", env",
            "{ command = \"afresh\", args = [\"mcp\", \"--name=inline\", \"--\", \"a\"], env",
        )
        .replace(
            "{command=\"a\",args=[]}",
            "{command=\"afresh\",args=[\"mcp\",\"--name\",\"empty\",\"--\",\"a\"]}",
        );
    assert_eq!(there_and_back("config.toml", text), wanted);
    there_and_back("config.toml", &text.replace('\n', "\r\n"));
    there_and_back("config.toml", &format!("\u{feff}{text}"));
}

#[test]
fn dotted_keys_need_a_list() {
    let odd = State::Odd("its keys are dotted: write `args = []` below its command");
    let text = "mcp_servers.a.command = \"x\"\n[mcp_servers.b]\ncommand = \"y\"\n";
    assert_eq!(states("a.toml", text)[0].1, odd);
    there_and_back("a.toml", text);
    let text = "mcp_servers.a.command = \"x\"\nmcp_servers.a.args = []\n";
    assert!(there_and_back("a.toml", text).contains("args = [\"mcp\", \"--name\", \"a\""));
}

#[test]
fn what_is_odd_is_left_alone() {
    let odd = |entry: &str| {
        let text = format!("{{\"mcpServers\": {{\"a\": {entry}}}}}");
        assert_eq!(there_and_back("a.json", &text), text);
        match states("a.json", &text)[..] {
            [(_, State::Odd(why), _)] => why,
            ref other => panic!("{entry}: {other:?}"),
        }
    };
    assert_eq!(odd("{}"), "it has neither a command nor an address");
    assert_eq!(odd(r#"{"command": 7}"#), "its command is no text");
    assert_eq!(odd(r#"{"command": null, "args": []}"#), "its command is no text");
    assert_eq!(odd(r#"{"command": []}"#), "its command is empty");
    assert_eq!(odd(r#"{"command": "x", "args": "y"}"#), "its `args` are no list");
    assert_eq!(odd(r#"{"command": "x", "args": null}"#), "its `args` are no list");
    assert_eq!(
        odd(r#"{"command": "npx -y server"}"#),
        "its command is a line: write the words after it as `args`"
    );
    assert_eq!(
        odd(r#"{"command": "node", "dev": {"debug": {"type": "node"}}}"#),
        "VS Code's `dev.debug` needs the command itself"
    );
    for broken in [r#"["mcp"]"#, r#"["mcp", "--"]"#, r#"["mcp", "--name", "x"]"#] {
        let entry = format!("{{\"command\": \"afresh\", \"args\": {broken}}}");
        assert_eq!(odd(&entry), "`afresh mcp` has no command behind it");
    }
    // Paths have blanks, and are no lines.
    let path = r#"{"servers": {"a": {"command": "C:\\Program Files\\node.exe"}}}"#;
    assert_eq!(states("a.json", path)[0].1, State::Plain);
    assert_eq!(states("a.json", "[]"), []);
    assert_eq!(states("a.json", "// nothing\n"), []);
    assert_eq!(odd("1"), "it is no object");
    assert_eq!(states("a.json", r#"{"mcpServers": 1, "servers": [], "mcp": {"a": 1}}"#), []);
    assert_eq!(states("a.toml", "mcp_servers = 1\n"), []);
    assert_eq!(states("a.toml", "mcp_servers.a = 1\n")[0].1, State::Odd("it is no table"));
}

#[test]
fn a_wrapper_by_hand_is_recognised_and_undone() {
    let undo = |entry: &str| {
        let text = format!("{{\"mcpServers\": {{\"a\": {entry}}}}}");
        assert_eq!(states("a.json", &text)[0].1, State::Adopted);
        assert_eq!(adopted("a.json", &text, &PLAIN), text);
        let old = undone("a.json", &text);
        old["{\"mcpServers\": {\"a\": ".len()..old.len() - 2].to_owned()
    };
    let one = r#"{"command": "/usr/bin/afresh", "args": ["mcp", "--", "py", "x"]}"#;
    assert_eq!(undo(one), r#"{"command": "py", "args": ["x"]}"#);
    let one =
        r#"{"args": ["mcp", "--cwd", "a", "--", "py", "--", "x"], "command": "C:\\b\\Afresh.EXE"}"#;
    assert_eq!(undo(one), r#"{"args": ["--", "x"], "command": "py"}"#);
    let one = r#"{"command": "afresh", "args": ["mcp", "--spare", "--name=b", "--cwd", "a", "py", "--", "x"]}"#;
    assert_eq!(undo(one), r#"{"command": "py", "args": ["--", "x"]}"#);
    let one = r#"{"command": "afresh", "args": ["mcp", "--", "py" , ]}"#;
    assert_eq!(undo(one), r#"{"command": "py", "args": []}"#);
    let one = r#"{"command": ["afresh", "mcp", "--", "py"]}"#;
    assert_eq!(undo(one), r#"{"command": ["py"]}"#);
    // What the user has added since then stays.
    let one = r#"{"command": "afresh", "args": ["mcp", "--name=a", "--", "py", "-v"]}"#;
    assert_eq!(undo(one), r#"{"command": "py", "args": ["-v"]}"#);
    let one = r#"{"command": "afresh", "env": {}, "args": ["mcp", "--name=a", "--", "py"]}"#;
    assert_eq!(undo(one), r#"{"command": "py", "env": {}, "args": []}"#);
}

#[test]
fn an_older_version_is_replaced_in_place_and_no_other() {
    for (line, newer) in [
        (r#""npx", "args": ["-y", "afresh@0.1.0", "mcp", "--name", "a", "--", "x"]"#, true),
        (r#""cmd", "args": ["/c", "npx", "-y", "afresh@0.1.9", "mcp", "--", "x"]"#, true),
        (r#""uvx", "args": ["--from", "afresh==0.1.0", "afresh", "mcp", "--", "x"]"#, true),
        (r#""npx", "args": ["-y", "afresh@0.2.0", "mcp", "--", "x"]"#, false),
        (r#""npx", "args": ["-y", "afresh@0.3.0", "mcp", "--", "x"]"#, false),
        (r#""npx", "args": ["-y", "afresh@latest", "mcp", "--", "x"]"#, false),
        (r#""npx", "args": ["-y", "afresh", "mcp", "--", "x"]"#, false),
        (r#""npx", "args": ["-y", "other@0.1.0", "mcp", "--", "afresh@0.1.0"]"#, false),
    ] {
        let text = format!("{{ // mine\n \"servers\": {{\"a\": {{ \"command\": {line} }} }} }}\n");
        let file = read("a.json", &text);
        let new = file.with(&file.adopt(&PLAIN, &|_| true));
        match newer {
            true => {
                let wanted = text.replace("0.1.0", "0.2.0").replace("0.1.9", "0.2.0");
                assert_eq!(file.servers[0].change(&PLAIN), Some(EntryChange::Update), "{line}");
                assert_eq!(new, wanted);
            }
            false if line.contains("other") => {
                assert_eq!(file.servers[0].change(&PLAIN), Some(EntryChange::Wrap), "{line}");
            }
            false => assert_eq!(new, text),
        }
    }
}

#[test]
fn flags_that_are_missing_are_added_to_what_was_adopted_before() {
    let share = ["--share".to_owned()];
    let both = ["--share".to_owned(), "--max-restarts".to_owned(), "0".to_owned()];
    for (path, text) in [
        (
            "x.json",
            r#"{"mcpServers":{"a":{"command":"npx","args":["-y","s"]},"b":{"command":"./b"}}}"#,
        ),
        (
            "x.json",
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"s\"\n      ]\n    }\n  }\n}",
        ),
        (
            "opencode.json",
            r#"{ "mcp": { "a": { "type": "local", "command": ["bun", "x", "s"] } } }"#,
        ),
        (
            "config.toml",
            "[mcp_servers.a]\ncommand = \"uvx\"\nargs = [\"s\"]\n\n[mcp_servers.b]\ncommand = \"s\"\n",
        ),
    ] {
        for plain in [PLAIN, NPX, UVX] {
            let before = adopted(path, text, &plain);
            for with in [&share[..], &both[..]] {
                let wrapper = Wrapper { with, ..plain };
                let change = read(path, &before).servers[0].change(&wrapper);
                assert_eq!(change, Some(EntryChange::AddFlags));
                let new = adopted(path, &before, &wrapper);
                assert_eq!(new, adopted(path, text, &wrapper), "as if it was adopted with them");
                assert_eq!(adopted(path, &new, &wrapper), new, "they are there once");
                assert_eq!(undone(path, &new), text, "undone from {new}");
            }
            // A part of them is there, and another value of one is left.
            let some = adopted(path, text, &Wrapper { with: &both[1..], ..plain });
            let new = adopted(path, &some, &Wrapper { with: &both, ..plain });
            assert_eq!(new.matches("--share").count(), read(path, text).servers.len(), "{new}");
            assert_eq!(new.matches("--max-restarts").count(), read(path, text).servers.len());
            let other = ["--max-restarts=5".to_owned()];
            assert_eq!(adopted(path, &some, &Wrapper { with: &other, ..plain }), some);
            assert_eq!(undone(path, &new), text);
        }
    }
    // A version is brought up to date at the same time.
    let text =
        r#"{"mcpServers":{"a":{"command":"npx","args":["-y","afresh@0.1.0","mcp","--","s"]}}}"#;
    let new = r#"{"mcpServers":{"a":{"command":"npx","args":["-y","afresh@0.2.0","mcp","--share","--","s"]}}}"#;
    assert_eq!(adopted("x.json", text, &Wrapper { with: &share, ..NPX }), new);
    // Those that may be given several times are added where their value is another.
    let watch = |path: &str| ["--watch".to_owned(), path.to_owned()];
    let text =
        r#"{"mcpServers":{"a":{"command":"afresh","args":["mcp","--watch","src","--","s"]}}}"#;
    assert_eq!(adopted("x.json", text, &Wrapper { with: &watch("src"), ..PLAIN }), text);
    let new = r#"{"mcpServers":{"a":{"command":"afresh","args":["mcp","--watch","lib","--watch","src","--","s"]}}}"#;
    assert_eq!(adopted("x.json", text, &Wrapper { with: &watch("lib"), ..PLAIN }), new);
}

#[test]
fn a_path_that_is_gone_gives_way_to_the_invocation_of_today() {
    let gone = ["/old/afresh".to_owned()];
    let flat = r#"{"servers": {"a": {"command": "/old/afresh", "args": ["mcp", "--name", "a", "--", "x", "y"]}}}"#;
    let bare = r#"{"servers":{"a":{"command":"/old/afresh","args":["mcp","--name=a","--","x"]}}}"#;
    let lines = "{\n  \"servers\": {\n    \"a\": {\n      \"command\": \"/old/afresh\",\n      \"args\": [\n        \"mcp\", \"--name\", \"a\", \"--\", \"x\",\n        \"y\"\n      ]\n    }\n  }\n}\n";
    let whole = r#"{"mcp": {"a": {"command": ["/old/afresh", "mcp", "--name", "a", "--", "x"]}}}"#;
    let toml = "[mcp_servers.a]\ncommand = \"/old/afresh\" # it\nargs = [\"mcp\", \"--name=a\", \"--\", \"x\"]\n";
    for (path, text) in
        [("a.json", flat), ("a.json", bare), ("a.json", lines), ("a.json", whole), ("a.toml", toml)]
    {
        for wrapper in [PLAIN, NPX, WINDOWS, UVX] {
            let wrapper = Wrapper { gone: &gone, ..wrapper };
            let new = adopted(path, text, &wrapper);
            assert!(!new.contains("/old"), "{new}");
            let server = &read(path, &new).servers[0];
            let words: Vec<&str> =
                server.launch_words().into_iter().take(wrapper.invocation.len()).collect();
            assert_eq!(words, wrapper.invocation, "{new}");
            assert_eq!(undone(path, &new), undone(path, text), "an undo gives the same bytes");
            assert_eq!(adopted(path, &new, &wrapper), new, "the second time changes nothing");
            // Nothing else is out of date.
            assert_eq!(adopted(path, text, &Wrapper { gone: &[], ..wrapper }), text);
        }
    }
}

#[test]
fn what_the_entries_say_of_afresh_can_be_read() {
    let text = r#"{"servers": {
        "a": {"command": "/opt/afresh", "args": ["mcp", "--", "x"]},
        "b": {"command": "npx", "args": ["-y", "afresh@0.1.0", "mcp", "--", "x"]},
        "c": {"command": "npm", "args": ["exec", "afresh", "--", "gateway"]},
        "d": {"command": "npx", "args": ["-y", "server", "--", "afresh", "mcp"]},
        "e": {"command": "afresh", "args": ["keep", "--", "mcp"]},
        "f": {"url": "http://127.0.0.1/"}
    }}"#;
    let file = read("a.json", text);
    let found: Vec<Option<Invocation<'_>>> =
        file.servers.iter().map(ClientServer::invocation).collect();
    let package = |runner, version| Some(Invocation::Package { runner, version });
    assert_eq!(
        found,
        [
            Some(Invocation::Program("/opt/afresh")),
            package("npx", Some("0.1.0")),
            package("npm", None),
            None,
            None,
            None
        ]
    );
}

#[test]
fn others_of_a_similar_name_are_not_afresh() {
    for (command, is) in [
        ("afresh", true),
        ("./afresh", true),
        ("C:\\tools\\afresh.exe", true),
        ("afresh2", false),
        ("refresh", false),
        ("/afresh/python", false),
        ("", false),
    ] {
        assert_eq!(is_afresh(command), is, "{command}");
    }
    let keep = r#"{"servers": {"a": {"command": "afresh", "args": ["keep", "--", "x"]}}}"#;
    assert_eq!(states("a.json", keep)[0].1, State::Plain);
}

#[test]
fn names_are_no_flags() {
    for (name, label) in [
        ("--", "server"),
        ("", "server"),
        ("-x", "x"),
        ("a\\u0000b\\n", "ab"),
        ("my server", "my server"),
        ("\\\"é漢\\u007f", "\\\"é漢"),
    ] {
        let text = format!("{{\"servers\": {{\"{name}\": {{\"command\": \"x\", \"args\": []}}}}}}");
        let new = there_and_back("a.json", &text);
        assert!(new.contains(&format!("\"--name\", \"{label}\", \"--\"")), "{new}");
        there_and_back("a.json", &text.replace(", \"args\": []", ""));
    }
}

#[test]
fn only_what_is_wanted_changes() {
    let text = r#"{"servers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;
    let file = read("a.json", text);
    let new = file.with(&file.adopt(&PLAIN, &|server| server.name == "b"));
    assert!(new.starts_with(r#"{"servers": {"a": {"command": "x"}, "b": {"command": "afresh""#));
    let file = read("a.json", &new);
    assert_eq!(file.undo(&|server| server.name == "a"), []);
    assert_eq!(file.with(&file.undo(&|server| server.name == "b")), text);
}

#[test]
fn mistakes_are_quoted_unless_they_are_secret() {
    let report = |path: &str, bytes: &[u8]| File::read(path, bytes).unwrap_err().to_string();
    assert_eq!(
        report("a\u{1b}.json", b"{\n  \"servers\": {\"a\" 1}\n}"),
        "error: a `:` is expected here\n --> a␛.json:2:19\n  |\n2 |   \"servers\": {\"a\" 1}\n  |                   ^\n\
         hint: correct it, or name the other files; this one is as it was"
    );
    let secret = report("a.json", b"{\"API_TOKEN\": \"s3cr3t\" \"b\": 1}");
    assert!(secret.contains("a.json:1:24") && !secret.contains("s3cr3t"), "{secret}");
    let secret = report("a.toml", b"[x]\nAPI_TOKEN = \"s3cr3t\" oops\n");
    assert!(secret.contains("a.toml:2:") && !secret.contains("s3cr3t"), "{secret}");
    assert!(report("a.json", b"{\"a\": \"\xff\"}").contains("not UTF-8 text from here on"));
    assert!(report("a.json", b"\xff\xfe{\0}\0").contains(" --> a.json:1:1"));
    let large = vec![b' '; ADOPT_FILE_BYTES_MAX + 1];
    assert!(report("a.json", &large).contains("larger than 32MiB"));
}

fn shown(path: &str, text: &str) -> String {
    let file = read(path, text);
    let lines = file.diff(&file.adopt(&PLAIN, &|_| true));
    lines.iter().map(|line| format!("{}{}\n", line.mark.sign(), line.text)).collect()
}

#[test]
fn a_diff_shows_what_changes_and_no_secret() {
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\",\n      \"args\": [\n        \"--api-key\",\n        \"hunter2\",\n        \"x\"\n      ],\n      \"env\": {\"GITHUB_TOKEN\": \"hunter3\"}\n    },\r\n    \"b\": {\"command\": \"y\\u001b\", \"env\": {\"A\": \"\u{1b}[31m\"}}\n  }\n}\n"
        .replace('\u{1b}', "\\u001b");
    assert_eq!(
        shown("a.json", &text),
        r#"@@ -1,14 +1,15 @@
 {
   "mcpServers": {
     "a": {
-      "command": "npx",
+      "command": "afresh",
       "args": [
-        "--api-key",
+        "mcp", "--name", "a", "--", "npx",
+        "--api-key",
         "[redacted]",
         "x"
       ],
       "env": {"GITHUB_TOKEN": "[redacted]"}
     },
-    "b": {"command": "y\u001b", "env": {"A": "\u001b[31m"}}
+    "b": {"command": "afresh", "args": ["mcp", "--name=b", "--", "y\u001b"], "env": {"A": "\u001b[31m"}}
   }
 }
"#
    );
}

#[test]
fn a_diff_of_one_long_line_shows_every_change_in_it_in_full() {
    let entry = |at: usize| {
        let arguments = format!("\"{}\",\"-{at}-end\"", "long ".repeat(100));
        format!("\"s{at}\":{{\"command\":\"node{at}\",\"args\":[{arguments}]}}")
    };
    let entries: Vec<String> = (0..8).map(entry).collect();
    let text =
        format!("{{\"x\":\"{}\",\"mcpServers\":{{{}}}}}", "y".repeat(900), entries.join(","));
    let file = File::read("a.json", text.as_bytes()).unwrap();
    let lines = file.diff(&file.adopt(&PLAIN, &|_| true));
    let all = |mark: DiffMark| -> String {
        lines.iter().filter(|line| line.mark == mark).map(|line| line.text.as_str()).collect()
    };
    let (removed, added) = (all(DiffMark::Removed), all(DiffMark::Added));
    for at in 0..8 {
        assert!(removed.contains(&format!("\"command\":\"node{at}\"")), "{removed}");
        assert!(added.contains(&format!("\"--\",\"node{at}\"")), "{added}");
    }
    assert!(!added.contains(&"y".repeat(100)), "what stays before it is left out");
}

#[test]
fn a_diff_of_one_long_line_shows_its_change() {
    let filler = "x".repeat(100_000);
    let text = format!(
        "{{\"history\":\"{filler}\",\"mcpServers\":{{\"a\":{{\"command\":\"y\"}}}},\"z\":\"{filler}\"}}"
    );
    let diff = shown("a.json", &text);
    assert!(diff.contains("\"command\":\"afresh\",\"args\":[\"mcp\",\"--name=a\",\"--\",\"y\"]"));
    assert!(diff.len() < 1_000, "{}", diff.len());
    // Far apart, two changes are two places.
    let far: String = (0..100).map(|n| format!("  \"{n}\": 0,\n")).collect();
    let entry = "{\"a\": {\"command\": \"y\"}}";
    let text = format!("{{\n\"servers\": {entry},\n{far}\"mcpServers\": {entry}\n}}");
    let diff = shown("a.json", &text);
    assert!(diff.contains("@@ -1,5 +1,5 @@") && diff.contains("@@ -100,5 +100,5 @@"), "{diff}");
}

/// Numbers that look random, and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Blanks and comments, as a JSON file may have them anywhere.
    fn gap(&mut self) -> String {
        let parts =
            ["", "", " ", "\n", "\r\n\t", "    ", "/* , ] } \" */", "// , \"x\" ]\n", "\n\n  "];
        (0..self.below(3)).map(|_| self.pick(&parts)).collect()
    }

    fn word(&mut self) -> &'static str {
        self.pick(&[
            "\"x\"",
            "\"--\"",
            "\"mcp\"",
            "\"\\u00e9\\\"\\\\\"",
            "\"\"",
            "\"a b\"",
            "\"--name=q\"",
            "\"漢\"",
            "\"/usr/bin/node\"",
            "\"\\ud800\"",
        ])
    }

    fn list(&mut self) -> String {
        let mut list = format!("[{}", self.gap());
        let count = self.below(4);
        for index in 0..count {
            list += self
                .pick(&["1", "null", "{\"a\":[]}"][..])
                .repeat(usize::from(self.below(9) == 0))
                .as_str();
            if !list.ends_with(['1', 'l', '}']) {
                list += self.word();
            }
            list += &self.gap();
            if index + 1 < count || self.below(3) == 0 {
                list += ",";
                list += &self.gap();
            }
        }
        list + "]"
    }

    fn entry(&mut self) -> String {
        let mut entry = format!("{{{}", self.gap());
        for _ in 0..self.below(5) {
            let key = self.pick(&["command", "command", "args", "env", "type", "comm\\u0061nd"]);
            let value = match key {
                "args" => self.list(),
                "env" => "{\"A\": \"args\"}".to_owned(),
                "type" => self.pick(&["\"stdio\"", "\"local\"", "\"http\""]).to_owned(),
                _ if self.below(5) == 0 => self.list(),
                _ => self.word().to_owned(),
            };
            let (a, b, c) = (self.gap(), self.gap(), self.gap());
            entry += &format!("\"{key}\"{a}:{b}{value}{c},{}", self.gap());
        }
        entry + "}"
    }

    fn file(&mut self) -> String {
        let mut file = self.pick(&["", "\u{feff}", "// first\n"]).to_owned() + "{";
        for _ in 0..1 + self.below(2) {
            let section = self.pick(&["mcpServers", "servers", "mcp"]);
            file += &format!("{}\"{section}\":{}{{", self.gap(), self.gap());
            for _ in 0..self.below(4) {
                let name = self.pick(&["a", "b", "a", "--", "s p", "\\u0061", ""]);
                let entry = self.entry();
                file += &format!("{}\"{name}\":{}{entry}{},", self.gap(), self.gap(), self.gap());
            }
            file += &format!("}}{},", self.gap());
        }
        file + "}" + self.pick(&["", "\n", "\r\n", "\n// last"])
    }
}

#[test]
fn any_file_comes_back_as_it_was() {
    let mut changed = 0;
    for seed in 0..3_000 {
        let text = Random(seed).file();
        let new = there_and_back("a.json", &text);
        changed += usize::from(new != text);
    }
    assert!(changed > 1_000, "most files have something to adopt: {changed}");
}

#[test]
fn no_damage_makes_it_panic_or_lose_a_byte() {
    for seed in 0..5_000 {
        let mut random = Random(seed);
        let mut bytes = random.file().into_bytes();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            let byte = b"\"{}[],:/*\\\n\xff x"[random.below(14)];
            match random.below(3) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(file) = File::read("a.json", &bytes) {
            let edits = file.adopt(&PLAIN, &|_| true);
            let new = file.with(&edits);
            file.diff(&edits);
            assert!(File::read("a.json", new.as_bytes()).is_ok(), "{new}");
        }
        drop(File::read("a.toml", &bytes));
    }
}

#[test]
fn servers_of_zed_and_cline_are_found() {
    let zed = r#"{
  // Zed
  "context_servers": {
    "new": { "source": "custom", "command": "npx", "args": ["-y", "x"], "env": {} },
    "old": { "command": { "path": "node", "args": ["old.js"], "env": {} }, "settings": {} },
    "extension": { "settings": { "key": 1 } }
  }
}"#;
    let states_of = states("settings.json", zed);
    assert_eq!(
        states_of.iter().map(|state| &state.1).filter(|state| **state == State::Plain).count(),
        2
    );
    let wrapped = there_and_back("settings.json", zed);
    for args in [
        r#""command": "afresh", "args": ["mcp", "--name", "new", "--", "npx", "-y", "x"]"#,
        r#""path": "afresh", "args": ["mcp", "--name", "old", "--", "node", "old.js"]"#,
    ] {
        assert!(wrapped.contains(args), "{wrapped}");
    }
    let cline = r#"{"mcpServers": {
  "a": {"transport": {"type": "stdio", "command": "node", "args": ["a.js"], "env": {"K": "v"}}, "disabled": true},
  "b": {"transport": {"type": "streamableHttp", "url": "http://b.example"}}
}}"#;
    let found = states("cline_mcp_settings.json", cline);
    assert_eq!((&found[0].1, &found[1].1), (&State::Plain, &State::Remote));
    let wrapped = there_and_back("cline_mcp_settings.json", cline);
    assert!(
        wrapped.contains(r#""args": ["mcp", "--name", "a", "--", "node", "a.js"]"#),
        "{wrapped}"
    );
}
