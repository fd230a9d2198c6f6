//! What the control API refuses over its port, one by one, and that nothing has happened then.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use afresh_tests::api::Api;
use afresh_tests::{Running, TestEnv};

use crate::{HOSTILE, stop};

/// Starts `afresh keep --listen 0 --name web -- hostile idle`.
fn listening(env: &TestEnv) -> (Running, Api) {
    let afresh = env.start(&["keep", "--listen", "0", "--name", "web", "--", HOSTILE, "idle"]);
    let api = Api::of(env, &afresh);
    afresh.wait_started(1);
    (afresh, api)
}

fn port_of(api: &Api) -> u16 {
    match api {
        Api::Port { port, .. } => *port,
        Api::Socket(_) => panic!("it has a port"),
    }
}

/// The headers of a well-behaved client, one of them otherwise.
fn but(api: &Api, name: &str, value: Option<&str>) -> Vec<String> {
    let mut headers = api.headers();
    headers.retain(|header| !header.starts_with(&format!("{name}: ")));
    headers.extend(value.map(|value| format!("{name}: {value}")));
    headers
}

/// All of these are refused so, in JSON, without a header that lets other pages read it; and the service
/// has not noticed.
#[track_caller]
fn refused(wanted: u16, cases: impl FnOnce(&Api) -> Vec<(String, Vec<String>, String)>) {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env);
    let pid = api.ask("GET /v1/services/web", "").json()["pid"].clone();
    for (line, headers, body) in cases(&api) {
        let answer = api.ask_with(&line, &headers, &body);
        assert_eq!(answer.status, wanted, "{line} {headers:?}: {answer:?}");
        let what = answer.json()["error"]["what"].as_str().map(str::len);
        assert!(what.is_some_and(|length| length > 5), "{line}: {answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        assert_eq!(answer.header("www-authenticate").is_some(), wanted == 401, "{answer:?}");
        assert_eq!(answer.header("allow").is_some(), wanted == 405, "{answer:?}");
    }
    assert_eq!(api.ask("GET /v1/services/web", "").json()["pid"], pid);
    assert_eq!(env.events("server_restart_requested").len(), 0);
    stop(&env, &mut afresh);
}

/// The same request with different headers.
fn with(line: &str, headers: Vec<Vec<String>>) -> Vec<(String, Vec<String>, String)> {
    headers.into_iter().map(|headers| (line.to_owned(), headers, String::new())).collect()
}

#[test]
fn without_the_token() {
    refused(401, |api| {
        let token = "0".repeat(64);
        let values = [None, Some(""), Some("Bearer"), Some("Basic eDp5"), Some(token.as_str())];
        let mut all: Vec<Vec<String>> =
            values.iter().map(|value| but(api, "authorization", *value)).collect();
        all.push(but(api, "authorization", Some(&format!("Bearer {token}"))));
        // Two are none.
        all.push([api.headers(), vec![format!("authorization: Bearer {token}")]].concat());
        let mut cases = with("POST /v1/services/web/restart", all.clone());
        // Who has no token does not learn what there is.
        for line in ["GET /metrics", "GET /v1/openapi.json", "GET /nothing", "DELETE /v1/services"]
        {
            cases.extend(with(line, all.clone()));
        }
        cases
    });
}

#[test]
fn another_host() {
    refused(403, |api| {
        let port = port_of(api);
        let names =
            ["evil.example", "localhost", "0.0.0.0", "127.0.0.1:1", "localhost.evil.example"];
        let mut all: Vec<Vec<String>> =
            names.iter().map(|name| but(api, "host", Some(name))).collect();
        all.push(but(api, "host", Some(&format!("evil.example:{port}"))));
        all.push(but(api, "host", None));
        all.push([api.headers(), vec![format!("host: evil.example:{port}")]].concat());
        with("POST /v1/services/web/restart", all)
    });
}

#[test]
fn another_origin() {
    refused(403, |api| {
        let origins = ["null", "http://evil.example", "http://localhost:3000", "https://127.0.0.1"];
        let all = origins.map(|origin| but(api, "origin", Some(origin))).to_vec();
        let mut cases = with("POST /v1/services/web/restart", all.clone());
        // What a browser asks first.
        cases.extend(with("OPTIONS /v1/services/web/restart", all));
        cases
    });
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env);
    let own = format!("http://127.0.0.1:{}", port_of(&api));
    let answer = api.ask_with("GET /v1/services", &but(&api, "origin", Some(&own)), "");
    assert_eq!(answer.status, 200, "a page of ours may: {answer:?}");
    assert!(!answer.head.contains("access-control"), "{answer:?}");
    stop(&env, &mut afresh);
}

#[test]
fn methods_that_a_path_does_not_know() {
    refused(405, |api| {
        let lines = [
            "POST /v1/services",
            "PUT /v1/services/web",
            "GET /v1/services/web/restart",
            "DELETE /v1/services/web/logs",
            "PATCH /v1/events",
            "GET /v1/shutdown",
            "OPTIONS /metrics",
            "BREW /v1/version",
        ];
        lines.iter().map(|line| ((*line).to_owned(), api.headers(), String::new())).collect()
    });
}

#[test]
fn bodies_that_say_something_else() {
    refused(400, |api| {
        let bodies = [
            r#"{"later":1}"#,
            r#"{"reason":"x","later":1}"#,
            r#"{"reason":1}"#,
            r#"{"reason":"a","reason":"b"}"#,
            r#"["x"]"#,
            "null",
            "nonsense",
            "reason=x",
            "\0",
        ];
        let line = "POST /v1/services/web/restart".to_owned();
        bodies.iter().map(|body| (line.clone(), api.headers(), (*body).to_owned())).collect()
    });
}

#[test]
fn bodies_that_are_too_long() {
    refused(413, |api| {
        let body = format!(r#"{{"reason":"{}"}}"#, "x".repeat(100_000));
        let paths = ["services/web/restart", "services/web/stop", "reload", "shutdown"];
        paths.iter().map(|path| (format!("POST /v1/{path}"), api.headers(), body.clone())).collect()
    });
}

#[test]
fn words_of_a_query_that_nobody_knows() {
    refused(400, |api| {
        let lines = [
            "GET /v1/services?x",
            "GET /v1/services/web?follow=true",
            "POST /v1/services/web/restart?wait=true&force=true",
            "POST /v1/services/web/restart?wait=perhaps",
            "POST /v1/services/web/restart?wait=true&wait=false",
            "GET /v1/services/web/logs?lines=many",
            "GET /v1/services/web/logs?lines=-1",
            "GET /v1/services/web/logs?stream=stdin",
            "GET /v1/services/web/logs?grep=%ff",
            "GET /v1/events?since=x",
            "GET /v1/events?since=zz-1",
            "GET /metrics?name=x",
        ];
        lines.iter().map(|line| ((*line).to_owned(), api.headers(), String::new())).collect()
    });
}

#[test]
fn paths_that_lead_elsewhere() {
    refused(404, |api| {
        let paths = [
            "/",
            "//v1/services",
            "/v1//services",
            "/v1/services/",
            "/v1/services/..",
            "/v1/services/%2e%2e",
            "/v1/services/web/../web",
            "/v1/services/web/%2e%2e/web",
            "/v1/services/../../etc/passwd",
            "/v1/services/nobody",
            "/v2/services",
            "/.afresh/token",
            "/favicon.ico",
        ];
        paths.iter().map(|path| (format!("GET {path}"), api.headers(), String::new())).collect()
    });
}

#[test]
fn paths_that_are_none() {
    refused(400, |api| {
        let long = format!("/v1/services/{}", "n".repeat(5_000));
        let query = format!("/v1/events?since={}", "1".repeat(5_000));
        let other = format!("http://127.0.0.1:{}/v1/services", port_of(api));
        let paths = ["/v1/services/%00", "/v1/services/web%00", "/v1/services/%ff", &other];
        let paths =
            paths.into_iter().chain(["/v1/services/%c0%ae%c0%ae", "/v1/services/%", &long, &query]);
        paths.map(|path| (format!("GET {path}"), api.headers(), String::new())).collect()
    });
}

#[test]
fn what_is_no_request_at_all() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env);
    // A header that is too long, too many of them, a byte that has no place there, another protocol.
    let long = format!("GET /v1/services HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let many = format!("GET /v1/services HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    for (text, statuses) in [
        (long.as_str(), &[431][..]),
        (many.as_str(), &[431]),
        ("GET /v1/ser\0vices HTTP/1.1\r\n\r\n", &[400]),
        ("GET /v1/services HTTP/9.9\r\n\r\n", &[400, 505, 0]),
        ("\x16\x03\x01\x02", &[400, 0]),
        ("", &[0]),
    ] {
        let answer = api.say(text.as_bytes());
        assert!(statuses.contains(&answer.status), "{:?}: {answer:?}", &text[..text.len().min(40)]);
    }
    // One that never ends what it says is left alone after a second.
    let mut slow = api.connect();
    slow.write_all(b"GET /v1/services HTTP/1.1\r\nhost: ").expect("it is read");
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).ok();
    // As many as are served at once, and more, who say nothing: the socket is another door.
    let silent: Vec<_> = (0..100).map(|_| api.connect()).collect();
    let told = env.run(&["status", "web"]);
    assert!(told.stdout.contains("running"), "{told:?}");
    drop(silent);
    assert_eq!(api.ask("GET /v1/services", "").status, 200);
    stop(&env, &mut afresh);
}

#[test]
fn addresses_that_others_could_reach() {
    let env = TestEnv::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80", "nonsense"] {
        let refused = env.run(&["keep", "--listen", address, "--", HOSTILE, "idle"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = env.run(&["keep", "--listen", &address, "--", HOSTILE, "idle"]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    let whom = format!("`{address}` is in use by `");
    assert!(refused.stderr.contains(&whom), "{refused:?}");
    assert!(refused.stderr.contains(&format!("(pid {})", std::process::id())), "{refused:?}");
    assert!(env.events("server_started").is_empty(), "nothing was started");
    env.assert_nothing_left();
}

#[test]
fn a_token_that_others_may_know() {
    let env = TestEnv::new();
    let (mut afresh, api) = listening(&env);
    let file = env.home().join(".local/state/afresh/private/control.token");
    let metadata = fs::metadata(&file).expect("a token");
    assert_eq!((metadata.mode() & 0o7777, metadata.len()), (0o600, 65));
    stop(&env, &mut afresh);
    // It stays, and so do those who know it.
    let (mut afresh, again) = listening(&env);
    assert_eq!(api.headers()[1], again.headers()[1]);
    assert!(
        !afresh.stderr().contains(again.headers()[1].trim_start_matches("authorization: Bearer "))
    );
    stop(&env, &mut afresh);

    let token = fs::read_to_string(&file).expect("a token");
    let open =
        || fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let short = || fs::write(&file, "abc\n").expect("it is ours");
    let link = || {
        fs::write(env.home().join("token"), &token).expect("it is ours");
        fs::remove_file(&file).expect("it is there");
        symlink(env.home().join("token"), &file).expect("a link");
    };
    let cases: [(&dyn Fn(), &str); 3] = [
        (&short, "has no token in it; remove it"),
        (&open, "is open to other users; remove it"),
        (&link, "is a link; remove it"),
    ];
    for (spoil, said) in cases {
        spoil();
        let refused = env.run(&["keep", "--listen", "0", "--", HOSTILE, "idle"]);
        assert_eq!(refused.code, Some(5), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    env.assert_nothing_left();
}
