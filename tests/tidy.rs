//! The rules of the code base that no compiler knows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that may be longer than the budget, and why.
const LONG_FILES: [(&str, &str); 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every file of the repository, by its path from the root: tracked, or new and not ignored.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let all: Vec<String> =
        text.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect();
    assert!(all.len() > 50, "git lists the repository");
    all
}

fn sources() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|path| path.ends_with(".rs"));
    rust.map(|path| {
        let text = read(&path);
        (path, text)
    })
    .collect()
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(root().join(path)).expect("a file of ours")).into_owned()
}

/// The part of a file before its tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.starts_with("core/tests/") || path.ends_with("/tests.rs")
}

fn fail_with(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn every_file_says_what_it_is() {
    let broken: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    fail_with("a source file opens with `//!`: what it owns, and what it never does", &broken);
}

#[test]
fn files_stay_within_their_budget() {
    let too_long = |(path, text): (String, String)| {
        if LONG_FILES.iter().any(|(long, _)| *long == path) {
            return None;
        }
        let (own, whole) = (without_tests(&text).lines().count(), text.lines().count());
        let budget = if is_test(&path) { 900 } else { 700 };
        (own > budget || whole > 1_100).then(|| format!("{path}: {own} lines, {whole} with tests"))
    };
    let broken: Vec<String> = sources().into_iter().filter_map(too_long).collect();
    fail_with("a file has at most 700 lines without its tests, and 1,100 with them", &broken);
}

#[test]
fn main_is_a_story_of_one_page() {
    assert!(read("app/src/main.rs").lines().count() <= 100);
}

#[test]
fn modules_are_at_most_three_deep() {
    let deep = |path: &String| {
        path.split_once("src/").is_some_and(|(_, in_crate)| in_crate.matches('/').count() > 3)
    };
    let broken: Vec<String> = sources().into_iter().map(|(path, _)| path).filter(deep).collect();
    fail_with("modules are at most three deep", &broken);
}

/// Which crate or module may not name which, and why.
const DIRECTIONS: [(&str, &[&str], &str); 6] = [
    (
        "core/src/",
        &[
            "afresh_daemon",
            "tokio::",
            "std::fs",
            "std::process",
            "std::thread",
            "std::env",
            "std::net",
        ],
        "core decides, and does nothing",
    ),
    ("daemon/src/", &["afresh::", "clap"], "the daemon knows no command line"),
    (
        "core/src/config/",
        &["crate::service", "crate::supervisor"],
        "configuration knows no machine",
    ),
    (
        "core/src/service/",
        &["crate::config", "crate::supervisor"],
        "a service knows nothing above it",
    ),
    (
        "core/src/audit/",
        &["crate::service", "crate::supervisor", "crate::config"],
        "records know no machine",
    ),
    ("app/src/", &["use nix", "use tokio"], "the app shows; it does nothing itself"),
];

#[test]
fn knowledge_goes_one_way() {
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_test(path)) {
        for (place, forbidden, why) in DIRECTIONS {
            if !path.starts_with(place) {
                continue;
            }
            let code =
                without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                if let Some(name) = forbidden.iter().find(|name| line.contains(**name)) {
                    broken.push(format!("{path} names `{name}`: {why}"));
                }
            }
        }
    }
    fail_with("app → daemon → core, and no other way", &broken);
}

/// Names that only code for one system has.
const SYSTEM_NAMES: [&str; 8] = [
    "nix::",
    "os::fd",
    "os::windows",
    "windows_sys",
    "tokio::net::windows",
    "target_os",
    "cfg(unix)",
    "cfg(windows)",
];

#[test]
fn only_two_folders_know_the_system() {
    // W10
    let homes = ["daemon/src/os/", "daemon/src/process/"];
    let is_outside = |path: &str| {
        (path.starts_with("daemon/src/") || path.starts_with("app/src/"))
            && !homes.iter().any(|home| path.starts_with(home))
    };
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| is_outside(path)) {
        let named = SYSTEM_NAMES.iter().filter(|name| without_tests(&text).contains(**name));
        if !is_test(&path) {
            broken.extend(named.map(|name| format!("{path} names `{name}`")));
        }
    }
    fail_with("what differs between systems stands in daemon/src/os/ and process/", &broken);
}

#[test]
fn nobody_pauses_the_clock_of_real_processes() {
    // A paused clock lets every timeout fire at once while a real child is still starting.
    let names = ["start_paused", "time::pause("];
    let broken: Vec<String> = sources()
        .into_iter()
        .filter(|(path, text)| {
            path != "tests/tidy.rs" && names.iter().any(|name| text.contains(name))
        })
        .map(|(path, _)| path)
        .collect();
    fail_with("no paused clock where real processes run", &broken);
}

#[test]
fn tests_wait_for_states() {
    let broken: Vec<String> = sources()
        .into_iter()
        // What only the benches use may let time pass.
        .filter(|(path, _)| !["tests/tidy.rs", "tests/src/measure.rs"].contains(&path.as_str()))
        .filter(|(path, _)| is_test(path))
        .filter(|(_, text)| text.contains("thread::sleep") || text.contains("time::sleep"))
        .map(|(path, _)| path)
        .collect();
    fail_with("a test waits for a state with a deadline, and never sleeps", &broken);
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "TODO", "#[ignore", "dbg!("];
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for mark in marks.iter().filter(|mark| path != "tests/tidy.rs" && text.contains(**mark)) {
            broken.push(format!("{path}: {mark}"));
        }
    }
    fail_with("what is here is finished", &broken);
}

#[test]
fn modules_have_names_of_the_domain() {
    let banned =
        ["utils", "util", "helpers", "helper", "common", "manager", "imp", "misc", "types"];
    let bad = |path: &String| {
        let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.is_some_and(|stem| banned.contains(&stem.as_str()))
    };
    let broken: Vec<String> = sources().into_iter().map(|(path, _)| path).filter(bad).collect();
    fail_with("a module is named after what it is about", &broken);
}

/// Requirement ids that a test or a comment in a test names.
fn ids_named_in_tests() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (path, text) in sources() {
        let tests =
            if is_test(&path) { text.as_str() } else { &text[without_tests(&text).len()..] };
        for line in tests.lines().filter_map(|line| line.trim_start().strip_prefix("// ")) {
            for word in line.split(|c: char| !c.is_ascii_alphanumeric()) {
                named.insert(word.to_owned());
            }
        }
    }
    named
}

#[test]
fn every_requirement_that_is_done_has_a_test_that_names_it() {
    let named = ids_named_in_tests();
    let text = read("docs/requirements.md");
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let mut done = 0;
    let mut broken = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [id, state, ..] = cells[..] else { continue };
        if state != "done" {
            continue;
        }
        done += 1;
        if !named.contains(id) {
            broken.push(format!("{id} is marked done, and no test has `// {id}`"));
        }
    }
    assert!(done >= 20, "the table is read: {done}");
    fail_with("docs/requirements.md says what the tests hold", &broken);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for path in files().into_iter().filter(|path| path.ends_with(".md")) {
        let folder = root().join(&path).parent().expect("a folder").to_owned();
        for link in read(&path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://") || target.contains(' ');
            if !outside && !folder.join(target).exists() {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    fail_with("a link leads to a file", &broken);
}

#[test]
fn dependencies_stay_few() {
    // Raise it with a reason in the commit: each crate is code that we answer for. 23 of them came with
    // `https`, and ten of those are only for Windows; seven came with SQLite, three of them to build it; 51 with the
    // screen of a run, 28 of which are only for other systems or only there to build it; 27 with the rest of ratatui
    // and the crates for Markdown, JSONC, schemas and time zones.
    const CRATES_MAX: usize = 188;
    let lock = read("Cargo.lock");
    let count = lock.matches("[[package]]").count();
    assert!(count <= CRATES_MAX, "{count} crates in Cargo.lock");
}
