//! The configuration as a whole: layers, every form of error as full text, hostile files.

use std::time::Duration;

use super::*;
use crate::definition::OnSupervisorDeath;
use crate::limits::{CONFIG_ERRORS_MAX, CONFIG_FILE_BYTES_MAX};
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

/// The full text of all errors.
fn report(text: &str) -> String {
    joined(&load_text(text).expect_err(text))
}

fn joined(errors: &[ConfigError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("\n\n")
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn without_files_the_defaults_are_those_of_the_policy() {
    let config = load(&[], &[], &[]).unwrap();
    let policy = Policy {
        restart: Restart::OnCrash,
        restart_on_normal_exit: false,
        restart_on_term: false,
        restart_code: 42,
        backoff: Backoff::Exponential {
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(60),
            jitter_percent: 50,
        },
        first_at_once: false,
        throttle: Duration::from_secs(1),
        crash_loop_count: 3,
        crash_loop_window: Duration::from_secs(60),
        stable_after: Duration::from_secs(60),
        max_restarts: 5,
        stdin_timeout: Duration::ZERO,
        stop_timeout: Duration::from_secs(5),
        restart_mode: RestartMode::Replace,
        drain_timeout: Duration::from_secs(10),
        spare: false,
    };
    assert_eq!((&config.policy, &policy), (&policy, &Policy::default()));
    let trail = TrailSettings {
        audit_file: None,
        marker_file: None,
        file_bytes_max: crate::limits::TRAIL_FILE_BYTES_MAX,
        files_kept: crate::limits::TRAIL_FILES_KEPT,
    };
    assert_eq!(config.trail, trail);
    let health = HealthSettings {
        memory_bytes_max: None,
        wedge_timeout: Some(crate::limits::WEDGE_TIMEOUT),
    };
    assert_eq!(config.health, health);
    assert_eq!(config.watch_debounce, crate::limits::WATCH_DEBOUNCE);
    assert!(config.tell_restarts);
    let daemon = DaemonSettings { on_supervisor_death: OnSupervisorDeath::Kill, listen: None };
    assert_eq!(config.daemon, daemon);
    assert!(config.services.is_empty() && config.hooks.is_empty());
    assert!(config.shown().all(|shown| shown.origin == Origin::Default));
    assert_eq!(config.shown().count(), keys::settings().count());
}

#[test]
fn a_project_names_no_file_outside_of_itself() {
    for path in ["/etc/passwd", "../other", "a/../../b", ".git/hooks/x", "sub/.GIT/x"] {
        let text = format!("[trail]\naudit_file = \"{path}\"");
        let [error] = &load_text(&text).unwrap_err()[..] else { panic!("one error") };
        assert_eq!(error.message, "`audit_file` of a project leads out of the project");
        assert!(load(&[file(FileKind::User, &text)], &[], &[]).is_ok(), "the user may");
        let variable = env(&[("AFRESH_TRAIL_AUDIT_FILE", path)]);
        assert!(load(&[], &variable, &[]).is_ok(), "the user may");
    }
}

#[test]
fn files_that_only_the_project_names_are_listed() {
    let project = file(
        FileKind::Workspace,
        "[trail]\naudit_file = \"a\"\nmarker_file = \"m\"\n[service.s]\ncommand = [\"x\"]\ncwd = \"w\"\n\
         env_file = \"e\"\n[gateway.token.t]\ntoken_file = \"t\"\n",
    );
    let listed = |config: &Config| -> Vec<(String, bool)> {
        let files = config.project_files().into_iter();
        files.map(|file| (file.path.display().to_string(), file.is_written)).collect()
    };
    let all = [("a", true), ("m", true), ("e", false), ("t", false)];
    let all = all.map(|(path, is_written)| (path.to_owned(), is_written));
    let config = load(&[project], &[], &[]).unwrap();
    assert_eq!(listed(&config), all);
    assert!(config.trail.audit_file.is_some_and(|file| file.is_project));

    let own = file(FileKind::User, "[trail]\naudit_file = \"o\"\n[service.s]\nenv_file = \"p\"\n");
    let variable = env(&[("AFRESH_TRAIL_MARKER_FILE", "v")]);
    let config = load(&[project, own], &variable, &[]).unwrap();
    assert_eq!(listed(&config), all[3..], "the user's layers are the user's");
    assert!(config.trail.audit_file.is_some_and(|file| !file.is_project));
}

const FULL: &str = r#"# Everything, other than by default.
[defaults]
policy = "always"
restart_on_normal_exit = true
restart_code = 75
backoff = "exponential"
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
restart_mode = "swap"
drain_timeout = "3s"
spare = true
wedge_timeout = "0"
max_rss = "512MiB"
watch_debounce = "1s"
tell_restarts = false

[trail]
audit_file = "logs/audit.jsonl"
marker_file = 'marker.json'
max_size = "1GiB"
keep = 3

[daemon]
on_supervisor_death = "keep"
listen = "[::1]:7070"

[run]
agent = "codex"
agent_command = "npx codex"
model = "large"
permission_mode = "plan"
context_threshold = 72.5
soft_threshold = 60
context_window = 100000
tool_call_threshold = 0
max_restarts = 7
max_remediations = 1
restart_delay = "2s"
handoff_timeout = "1m"
silence = "5m"
limit_wait = "30s"
max_wait = "6h"
gate_timeout = "1h"
max_cost = 12.5
max_tokens = 2000000
max_time = "8h"
max_total_restarts = 20
branch = "work"
commit_prefix = "wip:"
dirty = "refuse"
exclude = ["*.log", "out/**"]
no_git = true
supervise_mcp = false
"#;

#[test]
fn every_setting_reaches_its_place() {
    let seconds = Duration::from_secs;
    let config = load_text(FULL).unwrap();
    let policy = Policy {
        restart: Restart::Always,
        restart_on_normal_exit: true,
        restart_on_term: false,
        restart_code: 75,
        backoff: Backoff::Exponential {
            base: Duration::from_millis(250),
            factor: 3.0,
            cap: seconds(120),
            jitter_percent: 10,
        },
        first_at_once: false,
        throttle: seconds(5),
        crash_loop_count: 0,
        crash_loop_window: seconds(3600),
        stable_after: seconds(600),
        max_restarts: 0,
        stdin_timeout: seconds(2),
        stop_timeout: seconds(90),
        restart_mode: RestartMode::Swap,
        drain_timeout: seconds(3),
        spare: true,
    };
    assert_eq!(config.policy, policy);
    let project = |path: &str| ConfiguredPath { path: path.into(), is_project: true };
    let trail = TrailSettings {
        audit_file: Some(project("logs/audit.jsonl")),
        marker_file: Some(project("marker.json")),
        file_bytes_max: 1 << 30,
        files_kept: 3,
    };
    assert_eq!(config.trail, trail);
    let health = HealthSettings { memory_bytes_max: Some(512 << 20), wedge_timeout: None };
    assert_eq!(config.health, health);
    assert_eq!((config.watch_debounce, config.tell_restarts), (seconds(1), false));
    let daemon = DaemonSettings {
        on_supervisor_death: OnSupervisorDeath::Keep,
        listen: Some("[::1]:7070".parse().unwrap()),
    };
    assert_eq!(config.daemon, daemon);
    assert!(config.shown().all(|shown| shown.origin != Origin::Default));
    // What is shown can be written into a file again.
    let lines = keys::settings().map(|setting| {
        let (section, key) = (setting.section, setting.key);
        format!("{section}.{key} = {}\n", config.values.given(setting).value.to_toml())
    });
    let again = load_text(&lines.collect::<String>()).unwrap();
    assert_eq!((again.policy, again.trail, again.run), (config.policy, config.trail, config.run));

    let words = load_text("[defaults]\npolicy = 'never'\nbackoff = 'stepped'").unwrap();
    assert_eq!(words.policy.restart, Restart::Never);
    assert_eq!(words.policy.backoff, Backoff::Stepped);
}

#[test]
fn each_layer_wins_over_the_ones_below() {
    let workspace = "[defaults]\n\nmax_restarts = 11";
    let user = "[defaults]\nmax_restarts = 12";
    let env = env(&[("AFRESH_MAX_RESTARTS", "13")]);
    let flag = Flag { name: "--max-restarts", setting: "defaults.max_restarts", value: "14" };
    // The user's file comes first: the order in which they are given means nothing.
    let files = [file(FileKind::User, user), file(FileKind::Workspace, workspace)];
    let cases = [
        (load(&[], &[], &[]), 5, "default"),
        (load(&files[1..], &[], &[]), 11, "afresh.toml:3"),
        (load(&files, &[], &[]), 12, "/home/ada/.config/afresh/config.toml:2"),
        (load(&files, &env, &[]), 13, "env AFRESH_MAX_RESTARTS"),
        (load(&files, &env, &[flag]), 14, "flag --max-restarts"),
    ];
    for (config, wanted, origin) in cases {
        let config = config.unwrap();
        assert_eq!(config.policy.max_restarts, wanted);
        let shown = config.shown().find(|shown| shown.key == "max_restarts");
        let shown = shown.unwrap();
        assert_eq!(shown.value.to_string(), wanted.to_string());
        assert_eq!(shown.origin.to_string(), origin);
    }
    // A layer that says nothing about a key leaves it alone.
    let other = file(FileKind::User, "[trail]\nkeep = 2");
    let config = load(&[files[1], other], &[], &[]).unwrap();
    assert_eq!((config.policy.max_restarts, config.trail.files_kept), (11, 2));
}

#[test]
fn all_ways_to_write_a_table_are_read() {
    for text in [
        "[defaults]\ndelay = '2s'\n[trail]\nkeep = 4",
        "defaults.delay = '2s'\ntrail.keep = 4",
        "defaults = { delay = '2s' }\ntrail = { keep = 4 }",
        "[\"defaults\"]\n'delay' = \"2s\"\n[ trail ]\nkeep = 0x4",
        "\u{feff}[defaults]\r\ndelay = '2s'\r\n[trail]\r\nkeep = 4\r\n",
    ] {
        let config = load_text(text).unwrap();
        let Backoff::Exponential { base, .. } = config.policy.backoff else {
            panic!("{text}");
        };
        assert_eq!((base, config.trail.files_kept), (Duration::from_secs(2), 4));
    }
    for text in ["", "\n\n", "\u{feff}", "# nothing", "[defaults]"] {
        assert!(load_text(text).is_ok(), "{text:?}");
    }
}

#[test]
fn unknown_names_are_shown_with_the_nearest_known_one() {
    let text =
        "[defaults]\ndelay = \"1s\"\nmax_restart = 5\n\tkeep = 1\nwat = 1\n[trial]\n[xyzzy.web]\n";
    assert_eq!(
        report(text),
        "\
error: unknown key `max_restart` in `[defaults]`
 --> afresh.toml:3:1
  |
3 | max_restart = 5
  | ^^^^^^^^^^^
hint: did you mean `max_restarts`?

error: unknown key `keep` in `[defaults]`
 --> afresh.toml:4:2
  |
4 |     keep = 1
  |     ^^^^
hint: `keep` belongs in `[trail]`

error: unknown key `wat` in `[defaults]`
 --> afresh.toml:5:1
  |
5 | wat = 1
  | ^^^
hint: run `afresh config show` for every key

error: unknown section `[trial]`
 --> afresh.toml:6:2
  |
6 | [trial]
  |  ^^^^^
hint: did you mean `[trail]`?

error: unknown section `[xyzzy]`
 --> afresh.toml:7:2
  |
7 | [xyzzy.web]
  |  ^^^^^
hint: the sections are `[defaults]`, `[trail]`, `[daemon]`, `[run]`, `[service.NAME]`, `[opencode]`, `[hook.NAME]`, `[server.NAME]`, `[gateway]` and `[gateway.token.NAME]`"
    );
    let text = "delay = \"1s\"\ndelays = 1\n";
    assert_eq!(
        report(text),
        "\
error: unknown key `delay` outside of a section
 --> afresh.toml:1:1
  |
1 | delay = \"1s\"
  | ^^^^^
hint: put it under `[defaults]`

error: unknown key `delays` outside of a section
 --> afresh.toml:2:1
  |
2 | delays = 1
  | ^^^^^^
hint: did you mean `delay`?"
    );
}

/// Message and hint of the one error of a line in `[defaults]`, and what the carets are under.
fn defaults_error(line: &str) -> (ErrorKind, String, String) {
    let errors = load_text(&format!("[defaults]\n{line}\n")).expect_err(line);
    let [error] = &errors[..] else {
        panic!("{}", joined(&errors));
    };
    let excerpt = error.excerpt.as_ref().unwrap();
    let under = excerpt.text.chars().skip(excerpt.indent);
    let under: String = under.take(excerpt.carets).collect();
    let hint = error.hint.clone().unwrap();
    (error.kind, format!("{under}: {}", error.message), hint)
}

#[test]
fn wrong_types_come_with_the_right_form() {
    let cases = [
        (
            "delay = 5",
            "5: `delay` must be a duration of at most 365d, not an integer",
            "write `delay = \"5s\"`",
        ),
        (
            "max_restarts = \"7\"",
            "\"7\": `max_restarts` must be an integer from 0 to 1000000, not a string",
            "write `max_restarts = 7`",
        ),
        (
            "max_restarts = 'many'",
            "'many': `max_restarts` must be an integer from 0 to 1000000, not a string",
            "for example `max_restarts = 5`",
        ),
        (
            "restart_on_normal_exit = 1",
            "1: `restart_on_normal_exit` must be `true` or `false`, not an integer",
            "write `restart_on_normal_exit = true`",
        ),
        (
            "factor = [2.0]",
            "[2.0]: `factor` must be a number from 1.0 to 10.0, not an array",
            "for example `factor = 2.0`",
        ),
        (
            "policy = true",
            "true: `policy` must be `always`, `on-crash` or `never`, not a boolean",
            "for example `policy = \"on-crash\"`",
        ),
        (
            "jitter = { percent = 5 }",
            "{ percent = 5 }: `jitter` must be a percentage from 0 to 50, not an inline table",
            "for example `jitter = 50`",
        ),
        (
            "delay.seconds = 5",
            "delay: `delay` must be a duration of at most 365d, not a table",
            "for example `delay = \"1s\"`",
        ),
        (
            "[[defaults.delay]]",
            "delay: `delay` must be a duration of at most 365d, not an array of tables",
            "for example `delay = \"1s\"`",
        ),
    ];
    for (line, message, hint) in cases {
        let found = defaults_error(line);
        assert_eq!((found.1.as_str(), found.2.as_str()), (message, hint));
        assert_eq!(found.0, ErrorKind::WrongType, "{line}");
    }
}

#[test]
fn bad_values_come_with_a_good_one() {
    let cases = [
        (
            "delay = \"5\"",
            "\"5\": `delay` must be a duration of at most 365d, not `5`",
            "write `delay = \"5s\"`",
        ),
        (
            "delay = \"366d\"",
            "\"366d\": `delay` must be a duration of at most 365d, not `366d`",
            "for example `delay = \"1s\"`",
        ),
        (
            "restart_code = 0",
            "0: `restart_code` must be an integer from 1 to 255, not `0`",
            "for example `restart_code = 42`",
        ),
        (
            "factor = nan",
            "nan: `factor` must be a number from 1.0 to 10.0, not `nan`",
            "for example `factor = 2.0`",
        ),
        (
            "jitter = 51",
            "51: `jitter` must be a percentage from 0 to 50, not `51`",
            "for example `jitter = 50`",
        ),
        (
            "policy = \"on_crash\"",
            "\"on_crash\": `policy` must be `always`, `on-crash` or `never`, not `on_crash`",
            "did you mean `on-crash`?",
        ),
        (
            "backoff = \"\"",
            "\"\": `backoff` must be `exponential` or `stepped`, not ``",
            "for example `backoff = \"exponential\"`",
        ),
    ];
    for (line, message, hint) in cases {
        let found = defaults_error(line);
        assert_eq!((found.1.as_str(), found.2.as_str()), (message, hint));
        assert_eq!(found.0, ErrorKind::BadValue, "{line}");
    }
    let size = report("[trail]\nmax_size = \"8192\"");
    assert!(size.contains("must be a size from 4KiB to 1024GiB, not `8192`"));
    assert!(size.contains("hint: write `max_size = \"8KiB\"`"), "{size}");
}

#[test]
fn a_section_must_be_a_table() {
    for (text, found) in [
        ("[[defaults]]\ndelay = 5", "an array of tables"),
        ("defaults = 5", "an integer"),
        ("defaults = [{ delay = '1s' }]", "an array"),
    ] {
        let report = report(text);
        let message = format!("error: `defaults` must be a table, not {found}\n");
        assert!(report.starts_with(&message), "{report}");
        assert!(report.ends_with("hint: begin the section with `[defaults]`"));
    }
}

#[test]
fn syntax_errors_show_the_place() {
    assert_eq!(
        report("[defaults]\ndelay = 5s\n"),
        "\
error: invalid TOML: the value is not TOML
 --> afresh.toml:2:9
  |
2 | delay = 5s
  |         ^^
hint: put text in quotes, such as `delay = \"5s\"`"
    );
    assert_eq!(
        report("[defaults]\r\ndelay = \"1s\"\r\ndelay = \"2s\"\r\n"),
        "\
error: invalid TOML: duplicate key `delay`
 --> afresh.toml:3:1
  |
3 | delay = \"2s\"
  | ^^^^^
hint: remove one of the two"
    );
    let cases = [
        ("[defaults", "1:10", "unclosed table, expected `]`"),
        ("[trail]\n[trail]\n", "2:2", "duplicate key `trail`"),
        ("trail.keep = 1\n[trail]", "2:2", "duplicate key `trail`"),
        ("a =\n", "1:4", "the value is missing"),
        ("a", "1:2", "key with no value, expected `=`"),
        ("a = \"x\n", "1:7", "invalid basic string, expected `\"`"),
        ("k\0 = 1", "1:2", "invalid unquoted key, expected letters, numbers, `-`, `_`"),
    ];
    for (text, place, message) in cases {
        let report = report(text);
        let start = format!("error: invalid TOML: {message}\n --> afresh.toml:{place}\n");
        assert!(report.starts_with(&start), "{report}");
    }
}

#[test]
fn carets_align_under_tabs_and_wide_letters() {
    assert_eq!(
        report("defaults = {\t\"漢字\" = 1, wät = 2 }"),
        "\
error: invalid TOML: invalid unquoted key, expected letters, numbers, `-`, `_`
 --> afresh.toml:1:25
  |
1 | defaults = {    \"漢字\" = 1, wät = 2 }
  |                              ^"
    );
    let mut lines = "\n".repeat(98) + "defaults = {\t\"漢字\" = 1, factor = 'é' }";
    lines.push_str("\r\n");
    assert_eq!(
        report(&lines),
        "\
error: unknown key `漢字` in `[defaults]`
  --> afresh.toml:99:14
   |
99 | defaults = {    \"漢字\" = 1, factor = 'é' }
   |                 ^^^^^^
hint: run `afresh config show` for every key

error: `factor` must be a number from 1.0 to 10.0, not a string
  --> afresh.toml:99:33
   |
99 | defaults = {    \"漢字\" = 1, factor = 'é' }
   |                                      ^^^
hint: for example `factor = 2.0`"
    );
}

#[test]
fn variables_and_flags_are_named_in_their_errors() {
    let env = env(&[
        ("AFRESH_DELAY", "5"),
        ("AFRESH_POLICY", "alwys"),
        ("AFRESH_TRAIL_MAX_SIZE", "lots\u{1b}[2J"),
        ("AFRESH_JITTER", ""),
    ]);
    let flags = [
        Flag { name: "--max-restarts", setting: "defaults.max_restarts", value: "-1" },
        Flag { name: "--speed", setting: "defaults.speed", value: "1" },
    ];
    assert_eq!(
        joined(&load(&[], &env, &flags).unwrap_err()),
        "\
error: `AFRESH_DELAY` must be a duration of at most 365d, not `5`
 --> env AFRESH_DELAY
  |
  | AFRESH_DELAY=5
  |              ^
hint: write `AFRESH_DELAY=5s`

error: `AFRESH_POLICY` must be `always`, `on-crash` or `never`, not `alwys`
 --> env AFRESH_POLICY
  |
  | AFRESH_POLICY=alwys
  |               ^^^^^
hint: did you mean `always`?

error: `AFRESH_TRAIL_MAX_SIZE` must be a size from 4KiB to 1024GiB, not `lots␛[2J`
 --> env AFRESH_TRAIL_MAX_SIZE
  |
  | AFRESH_TRAIL_MAX_SIZE=lots␛[2J
  |                       ^^^^^^^^
hint: for example `AFRESH_TRAIL_MAX_SIZE=16MiB`

error: `--max-restarts` must be an integer from 0 to 1000000, not `-1`
 --> flag --max-restarts
  |
  | --max-restarts=-1
  |                ^^
hint: for example `--max-restarts=5`

error: unknown setting `defaults.speed`
 --> flag --speed
hint: run `afresh config show` for every key"
    );
}

#[test]
fn unknown_variables_are_warnings() {
    let env = env(&[
        ("AFRESH_DELYA", "5s"),
        ("AFRESH_MAX_SIZE", "5"),
        ("AFRESH_XYZZY\u{7}", "1"),
        ("AFRESH_COPY", "1"),
        ("AFRESH_RUN_MARK", "x"),
        ("AFRESH_SERVICE", "web"),
        ("AFRESH_GENERATION", "2"),
        ("AFRESH_RUNTIME_DIR", "/run/x"),
        ("AFRESH_GATEWAY_TOKEN", "x"),
        ("AFRESH_TEST_ANYTHING", "x"),
        ("PATH", "/bin"),
    ]);
    let config = load(&[], &env, &[]).unwrap();
    assert_eq!(config.policy, Policy::default());
    assert_eq!(
        joined(&config.warnings),
        "\
warning: unknown variable `AFRESH_DELYA` is ignored
 --> env AFRESH_DELYA
hint: did you mean `AFRESH_DELAY`?

warning: unknown variable `AFRESH_MAX_SIZE` is ignored
 --> env AFRESH_MAX_SIZE
hint: did you mean `AFRESH_TRAIL_MAX_SIZE`?

warning: unknown variable `AFRESH_XYZZY␇` is ignored
 --> env AFRESH_XYZZY␇"
    );
}

#[test]
fn the_longest_wait_is_no_shorter_than_the_first() {
    let same = load_text("[defaults]\ndelay = '90s'\nmax_delay = '90s'");
    assert!(same.is_ok());
    assert_eq!(
        report("[defaults]\ndelay = '90s'"),
        "\
error: `max_delay` (1m) is shorter than `delay` (90s)
 --> afresh.toml:2:9
  |
2 | delay = '90s'
  |         ^^^^^
hint: `max_delay` comes from: default"
    );
    let file = file(FileKind::Workspace, "[defaults]\ndelay = '5s'");
    let env = env(&[("AFRESH_MAX_DELAY", "1s")]);
    assert_eq!(
        joined(&load(&[file], &env, &[]).unwrap_err()),
        "\
error: `max_delay` (1s) is shorter than `delay` (5s)
 --> env AFRESH_MAX_DELAY
  |
  | AFRESH_MAX_DELAY=1s
  |                  ^^
hint: `delay` comes from: afresh.toml:2"
    );
}

#[test]
fn errors_of_all_layers_come_together() {
    let files =
        [file(FileKind::User, "[trail]\nkeep = 0"), file(FileKind::Workspace, "[defaults\n")];
    let errors = load(&files, &env(&[("AFRESH_DELAY", "x")]), &[]).unwrap_err();
    let kinds: Vec<ErrorKind> = errors.iter().map(|error| error.kind).collect();
    let wanted = [ErrorKind::Syntax, ErrorKind::BadValue, ErrorKind::BadValue];
    assert_eq!(kinds, wanted);
}

#[test]
fn binary_files_are_refused_with_the_place() {
    let source =
        |bytes| ConfigSource { kind: FileKind::Workspace, path: "a\u{1b}[31m.toml", bytes };
    let errors = load(&[source(b"# \xc3\xa9\n[trail]\nkeep\xff\xfe = 1")], &[], &[]);
    assert_eq!(
        joined(&errors.unwrap_err()),
        "\
error: the file is not UTF-8 text
 --> a␛[31m.toml:3:5
  |
3 | keep�� = 1
  |     ^
hint: save it as UTF-8"
    );
    let large = vec![b'#'; CONFIG_FILE_BYTES_MAX + 1];
    assert!(load(&[source(&large[1..])], &[], &[]).is_ok());
    assert_eq!(
        joined(&load(&[source(&large)], &[], &[]).unwrap_err()),
        "error: the file is larger than 1024KiB\n --> a␛[31m.toml:1:1"
    );
}

#[test]
fn files_made_to_be_slow_or_deep_are_not() {
    let many = |line: &str| line.repeat(CONFIG_FILE_BYTES_MAX / line.len());
    let numbered: String = (0..60_000).map(|n| format!("k{n} = 1\n")).collect();
    let inline: String = (0..60_000).map(|n| format!("k{n} = 1,")).collect();
    let texts = [
        many("a."),
        format!("[{}]", many("a.").trim_end_matches('.')),
        format!("a = {}", many("[")),
        format!("a = {}", many("{a=")),
        many("[[a]]\n"),
        many("["),
        many("\""),
        many("\u{301}"),
        format!("[defaults]\n{numbered}"),
        format!("defaults = {{{inline}}}"),
        format!("defaults.{} = 1", many("x")),
        format!("defaults.policy = '{}'", many("x")),
    ];
    for text in texts {
        let text = &text[..text.len().min(CONFIG_FILE_BYTES_MAX)];
        let errors = load_text(text).unwrap_err();
        assert!(errors.len() <= CONFIG_ERRORS_MAX + 1);
        assert!(errors.iter().all(|error| error.to_string().len() < 2_000));
    }
    let errors = load_text(&numbered).unwrap_err();
    assert_eq!(errors.len(), CONFIG_ERRORS_MAX + 1);
    assert_eq!(errors.last().unwrap().kind, ErrorKind::TooMany);
}

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
            b"\r\n",
            b"\r",
            b"\t",
            b"\0",
            b"\"",
            b"'''",
            b"[[",
            b"]",
            b"{",
            b"=",
            b".",
            b"\xff\xfe",
            b"\xef\xbb\xbf",
            "漢é".as_bytes(),
            b"9999999999",
        ];
        let at = self.below(bytes.len() + 1);
        let to = (at + self.below(12)).min(bytes.len());
        let piece = match self.below(4) {
            0 => Vec::new(),
            1 => bytes[at..to].repeat(2),
            2 => PIECES[self.below(PIECES.len())].to_vec(),
            _ => {
                let from = self.below(bytes.len() + 1);
                bytes[from..(from + self.below(40)).min(bytes.len())].to_vec()
            }
        };
        let to = if self.below(2) == 0 { at } else { to };
        bytes.splice(at..to, piece);
    }
}

#[test]
fn mutated_files_never_panic_and_errors_lie_inside() {
    let mut failed = 0;
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let mut bytes = FULL.as_bytes().to_vec();
        for _ in 0..=random.below(8) {
            random.mutate(&mut bytes);
        }
        let source = ConfigSource { kind: FileKind::Workspace, path: "afresh.toml", bytes: &bytes };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.split('\n').collect();
        for error in load(&[source], &[], &[]).err().unwrap_or_default() {
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
    assert!(failed > 1_000, "the mutations hit nothing: {failed}");
}
