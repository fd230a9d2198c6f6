//! Files with services and hooks that are made to be slow, deep, huge or broken.

use afresh_core::config::{Config, ConfigSource, FileKind, load};
use afresh_core::limits::{
    CONFIG_ERRORS_MAX, CONFIG_FILE_BYTES_MAX, CONFIG_LIST_LEN_MAX, HOOKS_MAX, SERVICES_MAX,
};
use afresh_core::report::{ConfigError, ErrorKind, Origin};

fn load_text(text: &str) -> Result<Config, Vec<ConfigError>> {
    let source =
        ConfigSource { kind: FileKind::Workspace, path: "afresh.toml", bytes: text.as_bytes() };
    load(&[source], &[], &[])
}

/// The same line for each number.
fn numbered(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        text.push_str(&line(number));
        text
    })
}

fn messages(errors: &[ConfigError]) -> Vec<&str> {
    errors.iter().map(|error| error.message.as_str()).collect()
}

#[test]
fn there_are_bounds() {
    let service = |number: usize| format!("[service.s{number}]\ncommand = ['x']\n");
    let many = numbered(SERVICES_MAX, service);
    assert_eq!(load_text(&many).unwrap().services.len(), SERVICES_MAX);
    let more = numbered(SERVICES_MAX + 1, service);
    assert_eq!(messages(&load_text(&more).unwrap_err()), ["there are more than 1000 services"]);
    // Also where they come from two files.
    let own =
        ConfigSource { kind: FileKind::User, path: "u", bytes: b"[service.u]\ncommand = ['x']" };
    let bytes = many.as_bytes();
    let all = ConfigSource { kind: FileKind::Workspace, path: "w", bytes };
    let errors = load(&[own, all], &[], &[]).unwrap_err();
    assert_eq!(messages(&errors), ["there are more than 1000 services"]);

    let hooks = numbered(HOOKS_MAX + 1, |n| format!("[hook.h{n}]\ndesktop = true\n"));
    assert_eq!(messages(&load_text(&hooks).unwrap_err()), ["there are more than 100 hooks"]);

    let variables = |count| {
        let all = numbered(count, |number| format!("V{number} = ''\n"));
        load_text(&format!("[service.a]\ncommand = ['x']\n[service.a.env]\n{all}"))
    };
    let most = variables(CONFIG_LIST_LEN_MAX).unwrap();
    assert_eq!(most.services[0].env.len(), CONFIG_LIST_LEN_MAX);
    let errors = variables(CONFIG_LIST_LEN_MAX + 1).unwrap_err();
    assert_eq!(messages(&errors), ["`env` has more than 1000 items"]);
    let arguments = "'x',".repeat(CONFIG_LIST_LEN_MAX + 1);
    let errors = load_text(&format!("[service.a]\ncommand = [{arguments}]")).unwrap_err();
    assert_eq!(messages(&errors), ["`command` has more than 1000 items"]);
}

#[test]
fn files_made_to_be_slow_or_deep_are_not() {
    let many = |line: &str| line.repeat(CONFIG_FILE_BYTES_MAX / line.len() - 64);
    let needs = |number: usize| format!("s{number} = {{command = ['x'], depends_on = ['n']}},");
    let texts = [
        format!("service.{}", many("a.")),
        format!("service.a.{} = 1", many("health.")),
        format!("[service.a]\ncommand = {}", many("[")),
        format!("[service.a]\nhealth.json = {}", many("{a=")),
        format!("[service.a]\ncommand = '{}'", many("x ")),
        format!("[service.a]\ncommand = [{}]", many("'',")),
        format!("[service.{}]", many("x")),
        format!("[service.a]\n{} = 1", many("x")),
        format!("[service.a]\ncommand = ['x']\nhealth.http = '{}'", many("http://")),
        format!("[service.a]\ncommand = ['x']\ndepends_on = [{}]", many("'b',")),
        numbered(60_000, |number| format!("[service.s{number}]\n")),
        format!("[service.a]\n{}", numbered(60_000, |number| format!("k{number} = 1\n"))),
        // All on one line, each with an error of its own.
        format!("service = {{{}}}", numbered(900, needs)),
        format!("service.a.env = {{{}}}", numbered(900, |number| format!("k{number} = [],"))),
        numbered(20_000, |number| format!("[hook.h{number}]\nservices = ['x']\n")),
    ];
    for text in texts {
        let mut end = text.len().min(CONFIG_FILE_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let shown: String = text.chars().take(40).collect();
        let errors = load_text(&text[..end]).expect_err(&shown);
        assert!(errors.len() <= CONFIG_ERRORS_MAX + 1, "{shown}: {}", errors.len());
        assert!(errors.iter().all(|error| error.to_string().len() < 2_000), "{shown}");
    }
    // A good file that is one long line.
    let service = |number: usize| {
        let variables = numbered(80, |number| format!("V{number} = '',"));
        format!("s{number} = {{command = ['x'], env = {{{variables}}}}},")
    };
    let text = format!("service = {{{}}}", numbered(300, service));
    assert_eq!(load_text(&text).unwrap().services.len(), 300);
    // Everybody needs everybody.
    let names = numbered(300, |number| format!("'s{number}',"));
    let ring =
        |number: usize| format!("[service.s{number}]\ncommand = ['x']\ndepends_on = [{names}]\n");
    let errors = load_text(&numbered(300, ring)).unwrap_err();
    assert_eq!(errors.last().unwrap().kind, ErrorKind::TooMany);
}

const FULL: &str = r#"
[opencode]
serve_port = 5000
serve_hostname = "::1"
serve_command = ["opencode", "serve", "--port", "{port}"]
auto_restart = true
env = { OPENCODE_SERVER_PASSWORD = "sesame" }

[service.api]
command = ["node", "server.js"]
env_file = ".env"
env.PORT = 3000
stop_signal = "SIGINT"
depends_on = { db = "started", opencode = "ready" }
health.http = "http://127.0.0.1:3000/health"
health.status = 200
health.json = { state.db = "up" }
health.headers = { Accept = "application/json" }
health.ready_timeout = "0"
log = { max_size = "1MiB", keep = 2, max_age = "7d" }
port = "127.0.0.1:3000"
max_rss = "512MiB"

[service.db]
command = ["postgres"]
health.exec = ["pg_isready"]

[hook.slack]
on = ["crash", "gave_up"]
services = ["api"]
webhook = "https://hooks.slack.com/services/T/B/x"
shape = "slack"

[daemon]
on_supervisor_death = "keep"
listen = "127.0.0.1:7070"
"#;

/// SplitMix64: seeded, so that a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const PIECES: [&[u8]; 16] = [
            b"\n",
            b"\t",
            b"\\u0000",
            b"\"",
            b"''",
            b"[[",
            b"]",
            b"{",
            b"}",
            b"=",
            b".",
            b"\xff",
            "漢é".as_bytes(),
            b"0",
            b"-",
            b"opencode",
        ];
        let at = self.below(bytes.len() + 1);
        let to = (at + self.below(12)).min(bytes.len());
        let piece = match self.below(4) {
            0 => Vec::new(),
            1 => bytes[at..to].repeat(2),
            2 => PIECES[self.below(PIECES.len())].to_vec(),
            // A line from elsewhere: keys get into tables that are not theirs.
            _ => {
                let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                lines[self.below(lines.len())].to_vec()
            }
        };
        let to = if self.below(2) == 0 { at } else { to };
        bytes.splice(at..to, piece);
    }
}

#[test]
fn mutated_files_never_panic_and_errors_lie_inside() {
    assert_eq!(load_text(FULL).unwrap().services.len(), 3);
    let (mut failed, mut loaded) = (0, 0);
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let mut bytes = FULL.as_bytes().to_vec();
        for _ in 0..=random.below(6) {
            random.mutate(&mut bytes);
        }
        let source = ConfigSource { kind: FileKind::Workspace, path: "afresh.toml", bytes: &bytes };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.split('\n').collect();
        let errors = match load(&[source], &[], &[]) {
            Ok(config) => {
                loaded += 1;
                check(&config, seed);
                continue;
            }
            Err(errors) => errors,
        };
        for error in errors {
            failed += 1;
            let Origin::File { line, column, .. } = error.origin else {
                panic!("seed {seed}: {error}");
            };
            assert!((1..=lines.len()).contains(&line), "seed {seed}: {error}");
            // One past the last character is the end of the line.
            let end = lines[line - 1].chars().count() + 1;
            assert!((1..=end).contains(&column), "seed {seed}: {error}");
            let printed = error.to_string();
            let hostile = printed.chars().any(|c| c.is_control() && c != '\n');
            assert!(!hostile, "seed {seed}: {error}");
        }
    }
    assert!(failed > 1_000 && loaded > 100, "{failed} errors, {loaded} good files");
}

/// What holds of every configuration that is taken.
fn check(config: &Config, seed: u64) {
    let is_service = |name: &String| config.services.iter().any(|service| service.name == *name);
    for service in &config.services {
        assert!(service.command.first().is_some_and(|program| !program.is_empty()), "seed {seed}");
        let texts = service.command.iter().chain(service.env.iter().map(|(_, value)| value));
        assert!(texts.into_iter().all(|text| !text.contains('\0')), "seed {seed}");
        assert!(service.depends_on.iter().all(|need| is_service(&need.name)), "seed {seed}");
        let count = config.services.iter().filter(|other| other.name == service.name).count();
        assert_eq!(count, 1, "seed {seed}");
    }
    assert!(config.hooks.iter().all(|hook| hook.services.iter().all(is_service)), "seed {seed}");
    // What is shown can be written into a file again, but for secrets.
    let mut text = String::new();
    for table in config.shown_tables() {
        text.push_str(&format!("[{}]\n", table.heading));
        for entry in table.entries {
            text.push_str(&format!("{} = {}\n", entry.key, entry.toml));
        }
    }
    let again = load_text(&text).unwrap_or_else(|e| panic!("seed {seed}:\n{text}\n{}", e[0]));
    let names = |config: &Config| -> Vec<String> {
        config.services.iter().map(|service| service.name.clone()).collect()
    };
    let (mut before, mut after) = (names(config), names(&again));
    before.sort();
    after.sort();
    assert_eq!(before, after, "seed {seed}:\n{text}");
}
