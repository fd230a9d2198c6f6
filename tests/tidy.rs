//! The rules of the code base that no compiler knows.

use std::collections::{BTreeMap, BTreeSet};
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
    ("core/src/config/", &["crate::service", "crate::fleet"], "configuration knows no machine"),
    ("core/src/service/", &["crate::config", "crate::fleet"], "a service knows nothing above it"),
    (
        "core/src/audit/",
        &["crate::service", "crate::fleet", "crate::config"],
        "records know no machine",
    ),
    ("app/src/", &["nix::", "tokio::"], "the app shows; it does nothing itself"),
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

/// The text with comments, strings and characters blanked out, so that what is left is code.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let begins = |at: usize, what: &str| {
        what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c))
    };
    let find = |from: usize, what: &str| {
        (from..chars.len()).find(|at| begins(*at, what)).unwrap_or(chars.len())
    };
    let mut code = String::new();
    let mut at = 0;
    while at < chars.len() {
        let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
        let is_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
        let end = if begins(at, "//") {
            find(at, "\n")
        } else if begins(at, "/*") {
            find(at, "*/") + 2
        } else if chars[at] == 'r' && !is_word && begins(at + 1 + hashes, "\"") {
            find(at + 2 + hashes, &format!("\"{}", "#".repeat(hashes))) + 1 + hashes
        } else if chars[at] == '"' {
            let mut end = at + 1;
            while end < chars.len() && chars[end] != '"' {
                end += if chars[end] == '\\' { 2 } else { 1 };
            }
            end + 1
        } else if chars[at] == '\'' && begins(at + 1, "\\") {
            find(at + 3, "'") + 1
        } else if chars[at] == '\'' && begins(at + 2, "'") {
            at + 3
        } else {
            code.push(chars[at]);
            at += 1;
            continue;
        };
        let blanked = &chars[at..end.min(chars.len())];
        code.extend(blanked.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// The end of the block that begins with the first `{` of the code.
fn block_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

fn identifier(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    &code[..end]
}

/// The code of the three crates that ship, without its tests.
fn shipped() -> Vec<(String, String)> {
    let is_shipped = |path: &str| {
        ["app/src/", "core/src/", "daemon/src/"].iter().any(|home| path.starts_with(home))
            && !path.contains("/tests/")
            && !path.contains("/testing")
            && !is_test(path)
    };
    let sources = sources().into_iter().filter(|(path, _)| is_shipped(path));
    sources.map(|(path, text)| (path, code_of(without_tests(&text)))).collect()
}

/// The crate of a file, and its top-level module there.
fn module_of(path: &str) -> (&str, &str) {
    let (krate, rest) = path.split_once("/src/").unwrap_or_default();
    (krate, rest.split('/').next().unwrap_or_default().trim_end_matches(".rs"))
}

/// The names that follow a path such as `crate::`: one, or those of a list in braces.
fn names_after<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(identifier(rest));
            continue;
        };
        let mut depth = 0;
        let is_separator = |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        };
        let list = &list[..block_end(rest).saturating_sub(1)];
        names.extend(list.split(is_separator).map(|item| identifier(item.trim_start())));
    }
    names
}

/// Which top-level module of a crate names which other one.
fn module_graph(files: &[(String, String)]) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
    let is_root = |module: &str| ["lib", "main"].contains(&module);
    let mut exported = BTreeMap::new();
    for (path, code) in files {
        let (krate, module) = module_of(path);
        for export in code.split("pub use self::").skip(1).filter(|_| is_root(module)) {
            let statement = export.split(';').next().unwrap_or_default();
            let words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in words.skip(1).filter(|word| !word.is_empty()) {
                exported.insert((krate, word), identifier(statement));
            }
        }
    }
    let mut graph: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (path, code) in files {
        let (krate, module) = module_of(path);
        if is_root(module) {
            continue;
        }
        let is_single_file = path.matches('/').count() == 2;
        let above = if is_single_file { names_after(code, "super::") } else { Vec::new() };
        for name in names_after(code, "crate::").into_iter().chain(above) {
            let target = exported.get(&(krate, name)).copied().unwrap_or(name);
            let is_module = target.starts_with(|c: char| c.is_ascii_lowercase());
            if is_module && target != module && target != "super" {
                graph.entry((krate, module)).or_default().insert(target);
            }
        }
    }
    graph
}

/// The groups of modules that name each other in a circle: the crate, and its modules.
fn module_cycles(files: &[(String, String)]) -> BTreeSet<(String, Vec<String>)> {
    let graph = module_graph(files);
    let reached = |krate: &str, from: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(module) = next.pop() {
            for target in graph.get(&(krate, module.as_str())).into_iter().flatten() {
                if seen.insert((*target).to_owned()) {
                    next.push((*target).to_owned());
                }
            }
        }
        seen
    };
    let mut cycles = BTreeSet::new();
    for (krate, module) in graph.keys() {
        let is_mutual = |other: &String| reached(krate, other).contains(*module);
        let group: Vec<String> = reached(krate, module).into_iter().filter(is_mutual).collect();
        if !group.is_empty() {
            cycles.insert(((*krate).to_owned(), group));
        }
    }
    cycles
}

#[test]
fn modules_form_no_cycle() {
    let cycles = module_cycles(&shipped()).into_iter();
    let broken: Vec<String> =
        cycles.map(|(krate, group)| format!("{krate}: {}", group.join(" <-> "))).collect();
    fail_with("the top-level modules of a crate form no cycle", &broken);
}

#[test]
fn a_cycle_of_modules_is_found() {
    let file = |path: &str, code: &str| (path.to_owned(), code.to_owned());
    let mut files = vec![
        file("x/src/lib.rs", "mod a; mod b; mod c; pub use self::c::{Third, third};"),
        file("x/src/a/deep.rs", "use crate::{b::{Some, Other}, d};"),
        file("x/src/b.rs", "fn f() { crate::third() }"),
        file("x/src/c.rs", "use super::d::D;"),
        file("y/src/c.rs", "use crate::a::A;"),
    ];
    assert!(module_cycles(&files).is_empty());
    files.push(file("x/src/d.rs", "use crate::b::B;"));
    let group = ["b", "c", "d"].map(str::to_owned).to_vec();
    assert_eq!(module_cycles(&files), BTreeSet::from([("x".to_owned(), group)]));
}

#[derive(Debug, Default, PartialEq)]
struct TypeSize {
    /// Methods, and functions that take it first.
    functions: usize,
    files: BTreeSet<String>,
}

/// The signature behind `fn `, where a line begins a function.
fn signature(line: &str) -> Option<&str> {
    let mut rest = line;
    loop {
        if let Some(signature) = rest.strip_prefix("fn ") {
            return Some(signature);
        }
        let word = rest.split(' ').next()?;
        let is_modifier = ["const", "async", "unsafe"].contains(&word) || word.starts_with("pub");
        rest = is_modifier.then(|| rest[word.len()..].trim_start())?;
    }
}

/// What the first parameter of a function refers to.
fn first_parameter(signature: &str) -> Option<&str> {
    let parameters = signature.split_once('(')?.1.trim_start();
    let (name, referred) = parameters.split_once(": &")?;
    let referred = referred.strip_prefix("mut ").unwrap_or(referred);
    let end = referred.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')?;
    (name == identifier(name)).then(|| referred[..end].rsplit("::").next().unwrap_or_default())
}

/// What an `impl` is for, by the code behind that word.
fn implementor(code: &str) -> &str {
    let mut head = code.split('{').next().unwrap_or_default();
    if head.starts_with('<') {
        let mut depth = 0;
        let end = head.char_indices().find(|(at, c)| {
            depth += i32::from(*c == '<') - i32::from(*c == '>' && !head[..*at].ends_with('-'));
            depth == 0
        });
        head = end.map_or(head, |(at, _)| &head[at + 1..]);
    }
    let head = head.split("where").next().unwrap_or_default();
    let target = head.rsplit(" for ").next().unwrap_or_default().trim();
    let end = target.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    target[..end.unwrap_or(target.len())].rsplit("::").next().unwrap_or_default()
}

/// How large each type is: by its top-level module, and its name.
fn type_sizes(files: &[(String, String)]) -> BTreeMap<(String, String), TypeSize> {
    let mut sizes: BTreeMap<(String, String), TypeSize> = BTreeMap::new();
    for (path, code) in files {
        let (krate, module) = module_of(path);
        let owner = format!("{krate}/src/{module}");
        let mut at = 0;
        for line in code.split_inclusive('\n') {
            let rest = &code[at..];
            at += line.len();
            if let Some(of) = line.strip_prefix("impl").filter(|of| of.starts_with([' ', '<'])) {
                let name = implementor(&rest[line.len() - of.len()..]).to_owned();
                let block = &rest[..block_end(rest)];
                let inner = block.lines().filter_map(|line| line.strip_prefix("    "));
                let size = sizes.entry((owner.clone(), name)).or_default();
                size.functions += inner.filter(|line| signature(line).is_some()).count();
                size.files.insert(path.clone());
            } else if signature(line).is_some()
                && let Some(name) = first_parameter(rest)
            {
                sizes.entry((owner.clone(), name.to_owned())).or_default().functions += 1;
            }
        }
    }
    sizes
}

#[test]
fn types_stay_small_and_in_one_place() {
    // Not ours, or one that each command has.
    let foreign = ["str", "Path", "Value", "Arguments"];
    let mut broken = Vec::new();
    for ((owner, name), size) in type_sizes(&shipped()) {
        if !foreign.contains(&name.as_str()) && (size.functions > 40 || size.files.len() > 3) {
            broken.push(format!(
                "{owner} {name}: {} in {} files",
                size.functions,
                size.files.len()
            ));
        }
    }
    fail_with("a type has at most 40 methods and functions on it, in at most 3 files", &broken);
}

#[test]
fn the_size_of_a_type_is_counted() {
    let code = "impl<F: Fn() -> u8> Trait<F> for deep::Big<F> {\n    fn a() {}\n}\n\
                impl Big {\n    pub(super) async fn b(&self) {\n        fn inner() {}\n    }\n}\n\
                pub fn c(\n    big: &mut super::Big,\n) {}\nfn d(other: &Other<Big>) {}\n";
    let file = |name: &str, code: &str| (format!("x/src/m/{name}.rs"), code.to_owned());
    let sizes = type_sizes(&[file("a", code), file("b", "impl Big {\n    const fn e() {}\n}\n")]);
    let big = &sizes[&("x/src/m".to_owned(), "Big".to_owned())];
    assert_eq!((big.functions, big.files.len()), (4, 2));
    assert_eq!(sizes[&("x/src/m".to_owned(), "Other".to_owned())].functions, 1);
    let blanked = code_of("let a = \"{\"; // }\nlet c = '{'; fn f<'a>(s: &'a str) { r#\"}\"# }\n");
    assert_eq!(blanked.matches('{').count(), 1, "{blanked}");
    assert!(blanked.contains("fn f<'a>(s: &'a str) {"), "{blanked}");
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
fn the_readme_is_short_and_its_pictures_stand_alone() {
    const LINES_MAX: usize = 90;
    const SVG_BYTES_MAX: usize = 150_000;
    let text = read("README.md");
    let mut broken = Vec::new();
    if text.lines().count() > LINES_MAX {
        broken.push(format!(
            "README.md has more than {LINES_MAX} lines: move the rest to docs/guide"
        ));
    }
    for command in
        ["cargo run --release -- demo", "cargo test --workspace", "npx afresh", "uvx afresh"]
    {
        if !text.lines().any(|line| line.trim_start().starts_with(command)) {
            broken.push(format!("README.md lacks `{command}`"));
        }
    }
    let pictures: Vec<String> = files()
        .into_iter()
        .filter(|path| path.starts_with("docs/media/") && path.ends_with(".svg"))
        .collect();
    for path in &pictures {
        let svg = read(path);
        if !text.contains(path.as_str()) {
            broken.push(format!("{path} is not shown in README.md"));
        }
        if svg.len() > SVG_BYTES_MAX {
            broken.push(format!("{path} is larger than {SVG_BYTES_MAX} bytes"));
        }
        // The name of the language, which every SVG has, is no address that is fetched.
        let rest = svg.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["<script", "://", "@import", "url(http", "href", "<image", "<foreignObject"]
        {
            if rest.contains(foreign) {
                broken.push(format!(
                    "{path} has `{foreign}`: scripts and foreign resources are not shown"
                ));
            }
        }
        if !rest.contains("prefers-color-scheme: dark") {
            broken.push(format!("{path} has no dark colours"));
        }
    }
    assert!(pictures.len() >= 2, "the recording and the plot are found: {pictures:?}");
    fail_with("the README is one that people read", &broken);
}

#[test]
fn every_guide_is_in_the_list_of_guides() {
    let list = read("docs/guide/README.md");
    let is_guide = |path: &String| {
        let reference = path.starts_with("docs/reference/") || path.starts_with("docs/design/");
        reference || (path.starts_with("docs/guide/") && !path.ends_with("/README.md"))
    };
    let missing: Vec<String> = files()
        .into_iter()
        .filter(is_guide)
        .filter(|path| {
            let name = path.strip_prefix("docs/guide/").unwrap_or(path);
            let name =
                name.strip_prefix("docs/").map_or(name.to_owned(), |rest| format!("../{rest}"));
            !list.contains(&format!("]({name})"))
        })
        .collect();
    fail_with("docs/guide/README.md lists every guide, reference and design record", &missing);
}

#[test]
fn files_that_are_named_exist() {
    let sources = sources();
    let mut broken = Vec::new();
    let documents =
        files().into_iter().filter(|path| path.ends_with(".md") && path != "CHANGELOG.md");
    let documents = documents.map(|path| (path.clone(), read(&path)));
    for (path, text) in documents.chain(sources.iter().cloned()) {
        for named in text.split('`').filter(|word| word.ends_with(".rs") && word.len() > 3) {
            let is_path = named.chars().all(|c| c.is_ascii_alphanumeric() || "_/.".contains(c));
            let ends = |known: &str| known == named || known.ends_with(&format!("/{named}"));
            if is_path && !sources.iter().any(|(known, _)| ends(known)) {
                broken.push(format!("{path}: `{named}`"));
            }
        }
    }
    fail_with("a file that a document or a comment names is there", &broken);
}

/// Links would be files of one line in a checkout on Windows, where a wheel is built.
#[test]
fn each_package_has_the_whole_licence() {
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let text = read(licence);
        for folder in ["core", "daemon", "app", "packaging/pypi"] {
            assert!(read(&format!("{folder}/{licence}")) == text, "{folder}/{licence} differs");
        }
    }
}

/// `README.md` for registries, which show it far from the files that it links: a link that leads somewhere there, too.
fn readme_of_packages() -> String {
    let manifest = read("Cargo.toml");
    let url = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    let url = url.expect("the workspace names its repository").trim_matches('"');
    let mut text = "<!-- README.md with whole links: `AFRESH_TEST_BLESS=1 cargo test -p afresh-tests --test tidy` \
                    writes it. -->\n"
        .to_owned();
    for (index, part) in read("README.md").split("](").enumerate() {
        if index > 0 {
            let is_picture = text.rfind('[').is_some_and(|at| text[..at].ends_with('!'));
            let is_whole = part.starts_with("http") || part.starts_with('#');
            let kind = if is_picture { "raw" } else { "blob" };
            let base = if is_whole { String::new() } else { format!("{url}/{kind}/HEAD/") };
            text += &format!("]({base}");
        }
        text += part;
    }
    text
}

#[test]
fn the_readme_of_packages_is_the_readme_with_whole_links() {
    const PATH: &str = "app/README.md";
    let wanted = readme_of_packages();
    if std::env::var("AFRESH_TEST_BLESS").is_ok() {
        fs::write(root().join(PATH), &wanted).expect("it can be written");
    }
    let is_whole = |rest: &str| rest.starts_with("http") || rest.starts_with('#');
    assert!(wanted.split("](").skip(1).all(is_whole), "a link of {PATH} leads nowhere");
    assert!(
        read(PATH) == wanted,
        "{PATH} is old: run `AFRESH_TEST_BLESS=1 cargo test -p afresh-tests --test tidy` and commit it"
    );
    for (folder, named) in
        [("app", "README.md"), ("core", "../app/README.md"), ("daemon", "../app/README.md")]
    {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        assert!(
            manifest.contains(&format!("readme = \"{named}\"\n")),
            "{folder} has another README"
        );
    }
}

#[test]
fn packages_are_published_by_what_the_tests_run() {
    let workflow = read(".github/workflows/release.yml");
    let tried = read("tests/packages/registries");
    for text in [&workflow, &tried] {
        assert!(text.contains("packaging/publish-npm"));
    }
    // A file name without a folder before it is a repository of GitHub for npm.
    assert!(!workflow.contains("npm publish"), "the workflow publishes by packaging/publish-npm");
    assert!(
        workflow.contains("NODE_AUTH_TOKEN"),
        "the first publication of a package needs a token"
    );
    let at = |step: &str| workflow.find(step).unwrap_or_else(|| panic!("no step with `{step}`"));
    let registries = ["packaging/publish-npm", "gh-action-pypi-publish", "cargo publish"].map(at);
    assert!(
        registries.iter().all(|step| *step < at("gh release create")),
        "the release comes last"
    );
    assert!(workflow.contains("gh release view"), "a second try finds the release of the first");
    assert!(workflow.contains("skip-existing: true"), "a second try finds wheels of the first");
}

#[test]
fn dependencies_stay_few() {
    // Raise it with a reason in the commit: each crate is code that we answer for. 23 of them came with
    // `https`, and ten of those are only for Windows; seven came with SQLite, three of them to build it; 51 with the
    // screen of a run, 28 of which are only for other systems or only there to build it; 24 with the rest of ratatui
    // and the crates for schemas and RFC 3339; one for the stems of words.
    const CRATES_MAX: usize = 186;
    let lock = read("Cargo.lock");
    let count = lock.matches("[[package]]").count();
    assert!(count <= CRATES_MAX, "{count} crates in Cargo.lock");
}
