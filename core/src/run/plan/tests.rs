//! Plans that are right; `tests/` has those that are not.

mod hostile;
mod mistakes;

use std::time::Duration;

use super::*;

fn read_one(text: &str) -> Result<CheckedPlan, Vec<PlanError>> {
    read(&PlanFile { path: "PLAN.md", bytes: text.as_bytes() }, &[])
}

fn read_all(
    text: &str,
    files: &[(&str, Result<&str, &str>)],
) -> Result<CheckedPlan, Vec<PlanError>> {
    let linked: Vec<LinkedFile> = files
        .iter()
        .map(|(path, content)| LinkedFile {
            path: (*path).to_owned(),
            content: content.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned),
        })
        .collect();
    read(&PlanFile { path: "docs/PLAN.md", bytes: text.as_bytes() }, &linked)
}

/// All that is said about a plan.
fn said(read: &Result<CheckedPlan, Vec<PlanError>>) -> String {
    let errors = match read {
        Ok(sound) => &sound.warnings,
        Err(errors) => errors,
    };
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    all.join("\n\n")
}

/// A plan that is right, without a word about it.
fn sound(text: &str) -> Plan {
    let read = read_one(text);
    assert_eq!(said(&read), "", "{text}");
    read.unwrap().plan
}

/// The only phase of a plan, from what stands below its heading.
fn phase(body: &str) -> Phase {
    sound(&format!("## Phase: A\n{body}")).phases.remove(0)
}

fn commands(phase: &Phase) -> Vec<(&str, &str)> {
    phase.gates.iter().map(|gate| (gate.name.as_str(), gate.command.as_str())).collect()
}

#[test]
fn a_plan_is_read_as_it_is_written() {
    let plan = sound(EXAMPLE);
    assert_eq!(plan.title, "Guest list for the website");
    assert!(plan.preface.starts_with("A plan for `afresh run`"), "{}", plan.preface);
    assert!(plan.preface.ends_with("Add no dependency."), "{}", plan.preface);
    let names: Vec<&str> = plan.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["Store", "Page", "Manual"]);
    let page = &plan.phases[1];
    assert_eq!(
        page.task,
        "Show the guests at `/guests`, newest first, twenty on a page:\n\n\
         ```html\n<li><b>Ada</b> 14:05</li>\n```"
    );
    assert_eq!(page.depends_on, ["Store"]);
    assert_eq!(
        page.gates,
        [
            Gate {
                name: "unit".to_owned(),
                command: "python3 -m unittest".to_owned(),
                time_max: None
            },
            Gate {
                name: "style".to_owned(),
                command: "python3 -m compileall -q app".to_owned(),
                time_max: Some(Duration::from_secs(120)),
            },
        ]
    );
    assert_eq!((page.dollars_max, page.tokens_max), (Some(5.0), Some(2_000_000)));
    assert_eq!(plan.phases[0].time_max, Some(Duration::from_secs(1800)));
    assert_eq!(plan.phases[2].files, ["README.md", "docs/"]);
    assert!(plan.phases[2].gates.is_empty());
    assert!(plan.phases[2].task.starts_with("Describe in `README.md`"), "{}", plan.phases[2].task);
}

#[test]
fn gates_are_written_in_many_ways() {
    type Gates = &'static [(&'static str, &'static str)];
    let unnamed: Gates = &[("cargo test", "cargo test")];
    let two: Gates = &[("cargo test", "cargo test"), ("cargo fmt", "cargo fmt")];
    let lint: Gates = &[("lint", "cargo clippy -- -D warnings")];
    let cases: [(&str, Gates); 24] = [
        ("- Gate: cargo test", unnamed),
        ("Gate: cargo test", unnamed),
        ("* gate: `cargo test`", unnamed),
        ("+ **Gate:** cargo test", unnamed),
        ("- **Gate**: `cargo test`.", unnamed),
        ("- _Gate:_ cargo test", unnamed),
        ("- [ ] Gate: cargo test", unnamed),
        ("`Gate: cargo test`", unnamed),
        ("1. Gate: cargo test", unnamed),
        ("- Gate: cargo\n  test", unnamed),
        ("- Gates: `cargo test`, `cargo fmt`", two),
        ("- Gates: `cargo test` and `cargo fmt`.", two),
        ("Gates:\n- cargo test\n- `cargo fmt`", two),
        ("Gates:\n\n* cargo test\n\n* cargo fmt\n", two),
        ("- Gates:\n  - cargo test\n  - cargo fmt\n- Time limit: 5m", two),
        ("- Gates:\n  - Gate: cargo test\n  - Gate: cargo fmt", two),
        ("### Gates\n\n- cargo test\n- cargo fmt\n", two),
        ("Gates:\n```sh\n# all of it\ncargo test\n\ncargo fmt\n```", two),
        ("**Gates:**\n\n~~~console\n$ cargo test\nok\n$ cargo fmt\n~~~", two),
        ("- Gate (lint): cargo clippy -- -D warnings", lint),
        ("**Gate (lint):** cargo clippy -- -D warnings", lint),
        ("**Gate** (lint, 5 min): `cargo clippy -- -D warnings`", lint),
        ("Gates:\n- lint: `cargo clippy -- -D warnings`", lint),
        ("Gates:\n- lint: ``cargo clippy \\\n  -- -D warnings``", lint),
    ];
    for (body, wanted) in cases {
        let phase = phase(&format!("Do it.\n\n{body}\n\nAnd this.\n"));
        assert_eq!(commands(&phase), wanted, "{body}");
        assert_eq!(phase.task, "Do it.\n\nAnd this.", "{body}");
    }
    assert_eq!(
        commands(&phase("Do it.\n\nGates:\n```sh\nmake \\\n  all\n```\n")),
        [("make all", "make all")]
    );
    assert_eq!(
        commands(&phase("Do it.\n- Gate: `` echo `date` ``\n")),
        [("echo `date`", "echo `date`")]
    );
}

#[test]
fn limits_and_files_are_written_in_many_ways() {
    for (text, minutes) in [
        ("30m", 30),
        ("30 min", 30),
        ("1h30m", 90),
        ("1 h 30 m", 90),
        ("2 hours", 120),
        ("**90 Minutes**", 90),
        ("1 day", 1440),
    ] {
        let phase = phase(&format!("- Time limit: {text}\n- Gates: none\n\nDo it.\n"));
        assert_eq!(phase.time_max, Some(Duration::from_secs(minutes * 60)), "{text}");
    }
    for (text, dollars) in
        [("$5", 5.0), ("5$", 5.0), ("0.50 USD", 0.5), ("US$ 1,000", 1000.0), ("`20`", 20.0)]
    {
        let phase = phase(&format!("Cost limit: {text}\nGates: none\nDo it.\n"));
        assert_eq!(phase.dollars_max, Some(dollars), "{text}");
    }
    for (text, tokens) in
        [("2M", 2_000_000), ("1.5m tokens", 1_500_000), ("200,000", 200_000), ("500k", 500_000)]
    {
        let phase = phase(&format!("* Token limit: {text}\n* Gate: none\n\nDo it.\n"));
        assert_eq!(phase.tokens_max, Some(tokens), "{text}");
    }
    let cases: [(&str, &[&str]); 5] = [
        ("src/**, docs/", &["src/**", "docs/"]),
        ("`src/**`, `my file`", &["src/**", "my file"]),
        ("src/{a,b}.rs, ./c", &["src/{a,b}.rs", "c"]),
        ("\n  - src/**\n  - `docs/`", &["src/**", "docs/"]),
        ("src/**,\n  docs/", &["src/**", "docs/"]),
    ];
    for (text, files) in cases {
        assert_eq!(phase(&format!("- Files: {text}\n- Gates: none\n\nDo it.")).files, files);
    }
}

#[test]
fn prose_is_left_alone() {
    let task = "Write the parser.\n\n```md\n## Phase: not one\n- Gate: not one\n```\n\n    Gate: code\n\n\n\
                It knows these\nfiles: a, b.\n\n### Details\n\n1. Depends: see below\u{20}\n> Gate: no";
    let task = task.replace("1. Depends: see below\u{20}", "1. Rate: see below, at 10:30");
    let plan = format!(
        "# T\r\n\r\n## PHASE 1.2 — Parser ##\r\n\r\n{}\r\n\r\n- Gate: make\r\n",
        task.replace('\n', "\r\n")
    );
    let read = read_one(&plan);
    let plan = read.unwrap().plan;
    assert_eq!(plan.phases[0].task, task);
    assert_eq!(plan.phases[0].name, "Parser");
    assert_eq!(commands(&plan.phases[0]), [("make", "make")]);

    // What is in a comment is for nobody, and what comes behind one is not in it.
    let plan = sound(
        "\u{feff}<!-- note -->\nFor all.\n\n## Phase: A\nDo it.\n<!--\n## Phase: B\nLater.\n-->\n\
         - Gate: a\n<!-- x --> This too.\n\n## Notes\n\nFor all, too.\n\n## Phase: C\nDo.\n- Gate: c",
    );
    assert_eq!(plan.title, "PLAN");
    assert_eq!(plan.preface, "For all.\n\n## Notes\n\nFor all, too.");
    let tasks: Vec<&str> = plan.phases.iter().map(|phase| phase.task.as_str()).collect();
    assert_eq!(tasks, ["Do it.\n<!-- x --> This too.", "Do."]);
}

#[test]
fn phases_come_after_those_that_they_depend_on() {
    let order = |phases: &[(&str, &str)]| {
        let one = |(name, depends_on): &(&str, &str)| {
            format!("## Phase {name}\nDo.\n- Gate: x\n- Depends on: {depends_on}\n")
        };
        let plan = sound(&phases.iter().map(one).collect::<String>());
        let names: Vec<String> = plan.phases.iter().map(|phase| phase.name.clone()).collect();
        let needs: Vec<Vec<String>> = plan.phases.into_iter().map(|p| p.depends_on).collect();
        (names.join(" "), needs)
    };
    let none = || Vec::<String>::new();
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        order(&[("1: a", "nothing"), ("2: b", "4"), ("3: c", "Phase 1"), ("4: d", "c, *A*")]),
        ("a c d b".to_owned(), vec![none(), all(&["a"]), all(&["c", "a"]), all(&["d"])])
    );
    assert_eq!(
        order(&[
            (": Salt, and pepper", "none."),
            ("2", "-"),
            (": c", "`Salt,  and Pepper`"),
            (": d", "phase 2 and c."),
            (": e", "Phase: d, and [c](#c)"),
        ])
        .1,
        [none(), none(), all(&["Salt, and pepper"]), all(&["Phase 2", "c"]), all(&["d", "c"])]
    );
}

#[test]
fn a_plan_can_link_its_phases() {
    let text = "# All\n\nBe brief.\n\n## Phases\n\nIn this order:\n\n\
                1. [Phase 1: Store](phases/one.md): it keeps\n   - Time limit: 5m\n\
                2. [ ] [Page](<./phases/the%20page.md> \"title\") shows\n\n   Use no script.\n\n\
                All of them need tests.\n\n\
                ## Phase: Manual\nWrite it.\n- Depends on: Page, 1\n- Gates: none\n";
    let source = PlanFile { path: "docs/PLAN.md", bytes: text.as_bytes() };
    assert_eq!(links(&source), ["phases/one.md", "phases/the page.md"]);
    let files = [
        ("phases/one.md", Ok("# Phase: Storage\n\n## Task\n\nStore.\n\n## Gates\n\n- make\n")),
        ("phases/the page.md", Ok("Show.\n- Depends on: Store\n- Gate: make page\n")),
    ];
    let read = read_all(text, &files);
    assert_eq!(said(&read), "");
    let plan = read.unwrap().plan;
    assert_eq!(plan.preface, "Be brief.\n\nIn this order:\n\nAll of them need tests.");
    let all: Vec<(&str, &str)> =
        plan.phases.iter().map(|phase| (phase.name.as_str(), phase.task.as_str())).collect();
    assert_eq!(
        all,
        [
            ("Storage", "## Task\n\nStore."),
            ("Page", "   Use no script.\n\nShow."),
            ("Manual", "Write it.")
        ]
    );
    assert_eq!(plan.phases[0].time_max, Some(Duration::from_secs(300)));
    assert_eq!(plan.phases[1].depends_on, ["Storage"]);
    assert_eq!(plan.phases[2].depends_on, ["Page", "Storage"]);

    // As sections, with something below them.
    let text = "## Phases:\n\n### [Phase 1: A](a.md)\n\nQuickly.\n\n- Gate: make a\n\n### [B](b.md)\n\n\
                ## Phase 3: [C](c.md)\n";
    let files = [
        ("a.md", Ok("# A\nDo a.\n")),
        ("b.md", Ok("# B\nDo b.\n- Gate: b\n")),
        ("c.md", Ok("Do c.\n- Gate: c\n")),
    ];
    let plan = read_all(text, &files).unwrap().plan;
    let tasks: Vec<&str> = plan.phases.iter().map(|phase| phase.task.as_str()).collect();
    assert_eq!(tasks, ["Quickly.\n\nDo a.", "Do b.", "Do c."]);

    // A link without words: the file has the name, or there is none.
    let text = "## Phases\n\n1. [](a.md)\n2. [** **](b.md)\n";
    let named = [("a.md", Ok("# A\nDo a.\n- Gate: a\n")), ("b.md", Ok("# B\nDo b.\n- Gate: b\n"))];
    let plan = read_all(text, &named).unwrap().plan;
    assert_eq!((plan.phases[0].name.as_str(), plan.phases[1].name.as_str()), ("A", "B"));
    let nameless = [named[0], ("b.md", Ok("Do b.\n- Gate: b\n"))];
    let error = said(&read_all(text, &nameless));
    let hint = "hint: write `[NAME](FILE.md)`, or begin the file with `# NAME`";
    assert!(error.starts_with("error: the phase has no name\n --> docs/PLAN.md:4:4"), "{error}");
    assert!(error.ends_with(hint), "{error}");

    // A table of contents links no files.
    let text = "## Phases\n\n- [A](#a)\n\n## Phase: A\nDo.\n- Gate: a\n";
    assert_eq!(links(&PlanFile { path: "PLAN.md", bytes: text.as_bytes() }), [""; 0]);
    assert_eq!(sound(text).phases.len(), 1);
}
