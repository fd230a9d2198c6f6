//! What the command line says about itself.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use afresh_tests::TestEnv;

use crate::run_into_closed_pipe;

#[test]
fn the_reference_is_current() {
    let env = TestEnv::new();
    let mut page = String::from(
        "# Commands\n\n<!-- Generated from the help of each command: \
         `AFRESH_TEST_BLESS=1 cargo test -p afresh-tests --test cli help`. -->\n",
    );
    describe(&env, &[], &mut page);
    let codes = env.run(&["exit-codes"]).stdout;
    page.push_str(&format!("\n## Exit codes\n\n```text\n{codes}```\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    if std::env::var("AFRESH_TEST_BLESS").is_ok() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "`docs/reference/cli.md` is out of date: \
         run `AFRESH_TEST_BLESS=1 cargo test -p afresh-tests --test cli help` and commit it"
    );
}

/// Adds the help of a command, and of those below it.
fn describe(env: &TestEnv, words: &[&str], page: &mut String) {
    let help = env.run(&[words, &["--help"]].concat());
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{words:?}");
    let name = [&["afresh"], words].concat().join(" ");
    let text: Vec<&str> = help.stdout.lines().map(str::trim_end).collect();
    let text = text.join("\n");
    page.push_str(&format!("\n## {name}\n\n```text\n{text}\n```\n"));
    let commands = help.stdout.lines().skip_while(|line| *line != "Commands:");
    for line in commands.skip(1).take_while(|line| !line.is_empty()) {
        let indented = line.starts_with("  ") && !line.starts_with("   ");
        let word = line.split_whitespace().next().unwrap();
        if indented && word != "help" {
            describe(env, &[words, &[word]].concat(), page);
        }
    }
}

#[test]
fn no_command_shows_the_help() {
    let env = TestEnv::new();
    let bare = env.run(&[]);
    assert_eq!((bare.code, bare.stdout.as_str()), (Some(2), ""));
    assert!(bare.stderr.contains("Usage: afresh <COMMAND>"), "{}", bare.stderr);
    assert!(!bare.stderr.contains("__"), "hidden: {}", bare.stderr);
    let version = env.run(&["--version"]);
    assert_eq!(version.code, Some(0));
    assert_eq!(version.stdout, concat!("afresh ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_verbose_version_names_commit_profile_and_target() {
    let env = TestEnv::new();
    let verbose = env.run(&["--version", "--verbose"]);
    assert_eq!(verbose.code, Some(0), "{}", verbose.stderr);
    let facts: Vec<_> = verbose.stdout.lines().filter_map(|line| line.split_once(": ")).collect();
    let [("commit", commit), ("profile", profile), ("target", target)] = facts[..] else {
        panic!("{}", verbose.stdout);
    };
    // A tree without git has no commit.
    let is_commit = commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    assert_eq!(profile, if cfg!(debug_assertions) { "dev" } else { "release" });
    assert!(target.starts_with(std::env::consts::ARCH), "{target}");
    for words in [["--verbose", "--version"], ["-V", "--verbose"]] {
        assert_eq!(env.run(&words).stdout, verbose.stdout);
    }
    assert_eq!(env.run(&["--verbose", "status"]).code, Some(2));
    let of_command = env.run(&["keep", "--", "echo", "--version", "--verbose"]);
    assert_eq!(of_command.stdout, "--version --verbose\n");
}

#[test]
fn a_mistyped_command_is_guessed() {
    let env = TestEnv::new();
    for (typed, meant) in [
        (&["histroy"][..], "'history'"),
        (&["kep"], "'keep'"),
        (&["config", "chek"], "'check'"),
        (&["history", "--folow"], "'--follow'"),
    ] {
        let mistake = env.run(typed);
        assert_eq!((mistake.code, mistake.stdout.as_str()), (Some(2), ""));
        assert!(mistake.stderr.contains(meant), "{}", mistake.stderr);
    }
}

#[test]
fn completions_exist_for_every_shell() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = env.run(&["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""));
        assert!(script.stdout.contains("history"), "{shell}");
        if shell == "bash" {
            assert_bash_reads(&script.stdout);
        }
    }
    let closed = run_into_closed_pipe(env.afresh(&["completions", "bash"]));
    assert_eq!((closed.code, closed.stderr.as_str()), (Some(0), ""));
    assert_eq!(env.run(&["completions", "cobol"]).code, Some(2));
}

fn assert_bash_reads(script: &str) {
    let bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // A machine without bash cannot tell.
    let Ok(mut bash) = bash else { return };
    let mut stdin = bash.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    let output = bash.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn manual_pages_are_roff() {
    let env = TestEnv::new();
    let page = env.run(&["man"]);
    assert_eq!(page.code, Some(0));
    assert!(page.stdout.contains(".TH afresh 1"), "{}", page.stdout);
    let folder = env.work().join("share/man1");
    let written = env.run(&["man", "--into", "share/man1"]);
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""));
    for name in ["afresh.1", "afresh-keep.1", "afresh-history.1"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.contains(".TH "), "{name}");
    }
    env.write("file", "");
    let failed = env.run(&["man", "--into", "file"]);
    assert_eq!(failed.code, Some(5));
    assert!(
        failed.stderr.starts_with("error: cannot write the pages to `file`: "),
        "{}",
        failed.stderr
    );
}

#[test]
fn exit_codes_are_listed() {
    let env = TestEnv::new();
    let codes = env.run(&["exit-codes"]).stdout;
    for code in ["0", "1", "2", "3", "4", "5", "70", "126", "127", "128+N"] {
        let listed = codes.lines().any(|line| line.trim_start().starts_with(&format!("{code}  ")));
        assert!(listed, "{code} is not in\n{codes}");
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[default]\n");
    for arguments in [&["--help"][..], &["config", "check"], &["histroy"]] {
        let plain = env.run(arguments);
        assert!(!(plain.stdout + &plain.stderr).contains('\u{1b}'), "{arguments:?}");
    }
    if !on_terminal_works() {
        return;
    }
    // No colours where they are refused, and some where they are not.
    assert!(!on_terminal(&env, "NO_COLOR=1").contains("\u{1b}["));
    assert!(!on_terminal(&env, "TERM=dumb").contains("\u{1b}["));
    assert!(on_terminal(&env, "TERM=xterm").contains("\u{1b}[31;1merror:"));
}

/// What a broken configuration looks like on a terminal.
fn on_terminal(env: &TestEnv, variable: &str) -> String {
    let binary = afresh_tests::afresh_binary().display();
    let mut script = Command::new("script");
    env.furnish(&mut script);
    script
        .args(["-qec", &format!("{variable} '{binary}' config check"), "/dev/null"])
        .stdin(Stdio::null());
    let output = script.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("error:"), "{text}");
    text
}

/// Not every machine has `script`, and it takes other flags on some.
fn on_terminal_works() -> bool {
    let script = Command::new("script")
        .args(["-qec", "true", "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    script.is_ok_and(|status| status.success())
}
