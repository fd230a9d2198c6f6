//! `afresh gateway`, as far as it starts nothing.

use afresh_tests::TestEnv;
use afresh_tests::terminal::OnTerminal;

#[test]
fn spans_need_a_url_to_go_to() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[server.a]\ncommand = [\"true\"]\n");
    let cases: [(&[&str], &str); 2] = [
        (&["gateway", "--otlp", "127.0.0.1:4318"], "begins with `http://`"),
        (&["gateway", "--otlp"], "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ];
    for (arguments, says) in cases {
        let refused = env.run(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}

#[test]
fn names_in_a_file_cannot_attack_the_terminal() {
    let env = TestEnv::new();
    let name = "a\u{1b}]0;title\u{7}\u{202e}b";
    let servers = serde_json::json!({"mcpServers": {
        name: {"command": format!("./{name}")},
        "c": {"command": "x", name: 1},
        "d": {"url": "ftp://\u{1b}[6n"},
    }});
    env.write("servers.json", &servers.to_string());
    let list = ["gateway", "--from", "servers.json", "--list"];
    let mut terminal = OnTerminal::start(env.afresh(&list), 200, 24);
    terminal.wait();
    let raw = terminal.raw();
    assert!(raw.contains("./a␛]0;title␇�b"), "{raw:?}");
    // Our own colours stay.
    for sequence in ["\u{1b}]", "\u{1b}[6n", "\u{7}", "\u{202e}"] {
        assert!(!raw.contains(sequence), "{sequence:?} in {raw:?}");
    }
    // A program gets them as they are.
    assert!(env.run(&list).stdout.contains(&format!("./{name}")));
}

#[test]
fn a_project_file_that_is_wrong_takes_no_server_of_the_user_away() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[gateway]\nhtpp = 1\n");
    let refused = env.run(&["gateway", "--list"]);
    assert_eq!(refused.code, Some(3), "there is nothing else: {refused:?}");
    let own = env.home().join(".config/afresh");
    std::fs::create_dir_all(&own).expect("ours");
    std::fs::write(own.join("config.toml"), "[server.mine]\ncommand = [\"x\"]\n").expect("ours");
    let listed = env.run(&["gateway", "--list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.starts_with("mine  x\nafresh.toml  left out: "), "{listed:?}");
    assert!(listed.stderr.contains("the project's `afresh.toml` is left out: "), "{listed:?}");
}
