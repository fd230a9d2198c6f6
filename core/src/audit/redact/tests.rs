//! Tables of what is redacted and what is kept.

mod formats;

use super::*;

fn args(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn secrets_in_arguments_are_redacted() {
    let cases = [
        ("serve --token abc", "serve --token [redacted]"),
        ("serve --token=abc --port 80", "serve --token=[redacted] --port 80"),
        ("serve --API-Key abc x", "serve --API-Key [redacted] x"),
        ("serve -password abc", "serve -password [redacted]"),
        (
            "serve --pass=abc --db-pass x --pw y",
            "serve --pass=[redacted] --db-pass [redacted] --pw [redacted]",
        ),
        ("clone https://abcdef123456@host/x", "clone https://[redacted]@host/x"),
        (
            "clone https://git@host/x ssh://git@host2/y",
            "clone https://git@host/x ssh://git@host2/y",
        ),
        ("serve --auth abc", "serve --auth [redacted]"),
        ("serve --token -dash-first", "serve --token [redacted]"),
        ("env GH_TOKEN=abc node x.js", "env GH_TOKEN=[redacted] node x.js"),
        ("env DB_PASSWORD=a=b&c,d node", "env DB_PASSWORD=[redacted] node"),
        ("x --clientSecret a", "x --clientSecret [redacted]"),
        ("x --access-key=A --private_key B", "x --access-key=[redacted] --private_key [redacted]"),
        ("x --db postgres://u:p@h/d", "x --db postgres://u:[redacted]@h/d"),
        ("x --db=postgres://u:p/w@h/d", "x --db=postgres://u:[redacted]@h/d"),
        ("x http://h/?api_key=a&b=c", "x http://h/?api_key=[redacted]&b=c"),
        ("sshpass -p abc ssh h", "sshpass -p [redacted] ssh h"),
        ("/usr/bin/mysql -u root -pabc shop", "/usr/bin/mysql -u root -p[redacted] shop"),
        ("docker login -u me -p abc host", "docker login -u me -p [redacted] host"),
        ("docker run -p 8080 img", "docker run -p 8080 img"),
        ("htpasswd -b users me abc", "htpasswd -b users me [redacted]"),
    ];
    for (line, redacted) in cases {
        assert_eq!(redact_args(&args(line)).join(" "), redacted);
    }
    let header = ["-H".to_owned(), "Authorization: Bearer abc def".to_owned()];
    assert_eq!(redact_args(&header)[1], "Authorization: [redacted]");
    let shell = ["-c".to_owned(), "cd d; TOKEN=abc node x --secret 'a b' -v".to_owned()];
    assert_eq!(redact_args(&shell)[1], "cd d; TOKEN=[redacted] node x --secret '[redacted]' -v");
}

#[test]
fn plain_arguments_are_kept() {
    for line in [
        "npx -y @modelcontextprotocol/server-filesystem /home/me/projects",
        "serve --port 4096 --hostname localhost",
        "claude --max-tokens 4096 --max_token=100",
        "x --no-auth server.js",
        "x --token --verbose",
        "x --author Bob --authority=ca",
        "x --token-file /run/secrets/token",
        "x --tokenizer cl100k",
        "x --auth-type basic",
        "x --auth=true",
        "env PWD=/home/me OLDPWD=/tmp ls",
        "git checkout 8f14e45fceea167a5a36dedd4bea2543f1e2d3c4",
        "docker run img@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "x -p 8080",
        "user@host:/path",
        "http://localhost:8080/a@b",
        "https://github.com/org/repo.git",
    ] {
        assert_eq!(redact_args(&args(line)).join(" "), line);
    }
}

#[test]
fn keys_without_a_digit_attached_passwords_and_cookies_of_sessions_are_redacted() {
    for (text, redacted) in [
        ("a sq0atp-AbCdEfGhIjKlMnOpQrStUv b", "a [redacted] b"),
        ("a rk_live_AbCdEfGhIjKlMnOp b", "a [redacted] b"),
        ("curl -uadmin:hunter22 x", "curl -uadmin:[redacted] x"),
        ("curl -sSu admin:hunter22 x", "curl -sSu admin:[redacted] x"),
        ("_session_id=0a1b2c3d4e; a", "_session_id=[redacted] a"),
        ("curl -b sid=abcdefghij x", "curl -b sid=[redacted] x"),
        ("session=abcdefghij", "session=[redacted]"),
        ("wordpress_logged_in_0a1b=abcdefghij", "wordpress_logged_in_0a1b=[redacted]"),
        (
            "https://hooks.slack-gov.com/services/T00/B00/abcdefgh",
            "https://hooks.slack-gov.com/services/[redacted]",
        ),
    ] {
        assert_eq!(redact_text(text), redacted);
    }
    for plain in
        ["docker run -u 1000:1000 x", "tar -xzu a.tar", "chmod -u x", "session=1", "-ubuntu 22"]
    {
        assert_eq!(redact_text(plain), plain);
    }
}

#[test]
fn secrets_in_text_are_redacted() {
    let hidden = [
        "sk-abcdefghij0123456789",
        "sk-ant-api03-abcdefghijklmnop",
        "sk-proj-abc_def-ghi0jklmnop",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11ABCDEFG0abcdefghijkl_mnop",
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "npm_0123456789abcdefghijABCDEFGHIJ012345",
        "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3ODkwMTIzNDU2Nzg5",
        "hf_abcdefghij0123456789ABCDEFGHIJklmn",
        "ya29.a0AfH6SMBx0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        "wJ4lrXUtn7EMI/K7MD3NG/bPx9fiCYq2Lm8vTz0a1",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "0cc175b9c0f1b6a831c399e269772661",
    ];
    for secret in hidden {
        for text in [
            secret.to_owned(),
            format!("failed with {secret}"),
            format!("(\"{secret}\""),
            format!("x={secret}"),
        ] {
            let redacted = redact_text(&text);
            assert_eq!(redacted, text.replace(secret, MARK));
            assert_eq!(redact_text(&redacted), redacted, "a second time changes nothing");
        }
    }
}

#[test]
fn named_values_in_text_are_redacted() {
    let cases = [
        ("password: hunter", "password: [redacted]"),
        ("max_tokens=1#max_tokensé", "max_tokens=[redacted]"),
        ("ACCOUNT_PASSWORD=1qaz2wsx", "ACCOUNT_PASSWORD=[redacted]"),
        ("the token: abc1 is bad", "the token: [redacted] is bad"),
        (r#"{"token": "a b", "x": 1}"#, r#"{"token": "[redacted]", "x": 1}"#),
        (r#"{"secret":"a\"b","x":"y"}"#, r#"{"secret":"[redacted]","x":"y"}"#),
        (r#"{\"secret\":\"a b\",\"x\":\"y\"}"#, r#"{\"secret\":\"[redacted]\",\"x\":\"y\"}"#),
        ("API_TOKEN = \"a b\" # x", "API_TOKEN = \"[redacted]\" # x"),
        ("run `x --token abc`", "run `x --token [redacted]`"),
        ("Authorization: Basic dTpw\nHost: h", "Authorization: [redacted]\nHost: h"),
        ("sent Bearer abc123def", "sent Bearer [redacted]"),
        ("Cookie: a=b; c=d", "Cookie: [redacted]"),
        ("é password=é é", "é password=[redacted] é"),
        ("redis://:p@h and amqp://u:q@h", "redis://:[redacted]@h and amqp://u:[redacted]@h"),
        ("token=", "token="),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn", "[redacted]"),
        ("<db><password>hunter22</password></db>", "<db><password>[redacted]</password></db>"),
        ("sshpass -phunter22 ssh x", "sshpass -p[redacted] ssh x"),
        ("sshpass -p 'a b' ssh x; ls -p c", "sshpass -p '[redacted]' ssh x; ls -p c"),
    ];
    for (text, redacted) in cases {
        assert_eq!(redact_text(text), redacted);
    }
}

#[test]
fn plain_text_is_kept() {
    for text in [
        "",
        "code changes",
        "invalid token: unexpected end of input",
        "bearer authentication failed",
        "context used: 81234 tokens, max_tokens=4096",
        "550e8400-e29b-41d4-a716-446655440000",
        "commit 8f14e45fceea167a5a36dedd4bea2543f1e2d3c4",
        "afresh-8f14e45fceea167a5a36dedd4bea2543f1e2d3c4",
        "/nix/store/0c5b2rkjvvhsa2b1ipmw0l6h1k3v6d8a-nodejs-22.1.0/bin/node",
        "PATH=/usr/bin:/nix/store/0c5b2rkjvvhsa2b1ipmw0l6h1k3v6d8a-x/bin",
        "target/debug/deps/afresh_daemon-0123456789abcdef",
        r"C:\Users\me\AppData\Local\Programs\Python\Python312\python.exe",
        "claude-3-5-sonnet-20241022-v2-and-a-longer-name-1",
        "x86_64-unknown-linux-gnu-toolchain-nightly-2026-11-15",
        "AbstractSingletonProxyFactoryBean2Configuration1Builder",
        "pneumonoultramicroscopicsilicovolcanoconiosis",
        "sha512-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "server_exiting_for_restart",
        "task-runner-with-a-long-name-2",
        "2026-11-15T08:42:00.123Z",
        "author: Bob2 <bob@example.org>",
        "the password is wrong, the secret is required, and password is 8 characters",
        "password is too short; passwd file, secret santa, secret \"sauce\", api key: missing",
        "a password of 128 bits is derived, the passphrase was changed",
        "docker run -p 8080:80 img && mysql -u root -p shop && ssh -p 2222 host",
        "curl -b jar.txt -p x; docker login registry.example.org; htpasswd -c users me",
        "npm:react2@example.com mailto:me2you@example.org git@host:22 img:v1@sha256:0a",
        "at 12:30 me@example.org; user:name@example.org; node:18@latest; pkg@1.2.3",
        "IDENTIFIED BY a name, <p>x</p> <author>Bob2</author>, a%3Db, 50%3D",
        "PATH=/usr/bin pat=ab12cd34 x => y1, \u{1b}[1mname\u{1b}[0m=x1",
        "-p x1y2z3a4 as-is ak-47 BSAFoo pk_live",
        "://",
        "Bearer",
        "-----BEGIN CERTIFICATE-----",
    ] {
        assert_eq!(redact_text(text), text);
    }
}

#[test]
fn random_strings_are_found_nearly_always() {
    let alphabets = [
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_",
        "0123456789abcdefghijklmnopqrstuvwxyz",
        "0123456789abcdef",
    ];
    let mut seed = 1_u64;
    for alphabet in alphabets {
        let missed = (0..1000).filter(|_| {
            let text: String = (0..36)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = usize::try_from(seed >> 33).unwrap() % alphabet.len();
                    char::from(alphabet.as_bytes()[at])
                })
                .collect();
            redact_text(&format!("key {text}.")).contains(&text)
        });
        let missed = missed.count();
        assert!(missed < 50, "{missed} of 1000 over {alphabet}");
    }
}

#[test]
fn texts_made_to_be_slow_are_not() {
    for part in [
        "cookie:",
        "token=",
        "token: a ",
        "://",
        "://a:b/",
        "://a:b@",
        "-----BEGIN ",
        "eyJ-",
        "eyJ.a-",
        "-----BEGIN PRIVATE KEY-----",
        "sk-",
        "\"token\":\"",
        "token\\",
        "bearer ",
        "--token ",
        "a1/",
        "12345678:AA",
        "8Q~",
        "a.atlasv1.",
        "-us1",
        "MMMMMMMMMMMMMMMMMMMMMMMM.abcdef.",
        "[31;1msk-",
        "-u a:b ",
        "https://hooks.slack.com/services/a",
        "-----BEGIN PRIVATE KEY-----\"",
        "-u=",
        "token%3D",
        "a_secret%3D%41",
    ] {
        // What looks at the rest of the text from every place in it would take minutes.
        let text = part.repeat(300_000 / part.len());
        let redacted = redact_text(&text);
        assert!(redacted.len() <= text.len() * 12);
    }
}

#[test]
fn values_of_secret_variables_are_found_wherever_they_stand() {
    let known = KnownSecrets::of([
        ("MY_API_KEY", "correct horse"),
        ("LONG_TOKEN", "correct horse battery"),
        ("DB_PASSWORD", "a\"b\\c-long"),
        ("HOME", "/home/somebody"),
        ("SHORT_TOKEN", "abc"),
        ("PWD", "/home/somebody"),
    ]);
    let redact = |text: &str| known.redact(text, Redaction::Records).into_owned();
    assert_eq!(redact("it says correct horse battery!"), "it says [redacted]!");
    assert_eq!(redact("it says correct horse!"), "it says [redacted]!");
    assert_eq!(redact(r#"{"x":"a\"b\\c-long"}"#), r#"{"x":"[redacted]"}"#);
    assert_eq!(redact("abc in /home/somebody"), "abc in /home/somebody");
    assert_eq!(redact("--token hunter2hunter2"), "--token [redacted]", "as elsewhere");
    assert!(matches!(known.redact("plain", Redaction::Records), Cow::Borrowed("plain")));
    assert_eq!(format!("{known:?}"), "KnownSecrets(5)");
}
