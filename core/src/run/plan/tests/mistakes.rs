//! Plans that are wrong, and what is said about each.

use super::super::*;
use crate::limits::{
    PLAN_COMMAND_BYTES_MAX, PLAN_ERRORS_MAX, PLAN_FILE_BYTES_MAX, PLAN_GATES_MAX,
    PLAN_NAME_CHARS_MAX, PLAN_PATTERNS_MAX, PLAN_PHASES_MAX, PLAN_TASK_BYTES_MAX,
};
use crate::report::Origin;

pub(super) fn read_bytes(bytes: &[u8]) -> Result<CheckedPlan, Vec<PlanError>> {
    let file = |path: &str, content: Result<&[u8], &str>| LinkedFile {
        path: path.to_owned(),
        content: content.map(<[u8]>::to_vec).map_err(str::to_owned),
    };
    let files = [
        file("a.md", Ok(b"# Phase: A\n\n## Phase: B\n\n- Gate: a\n")),
        file("f.md", Err("no such file")),
        file("g.md", Ok(b"Do.\n\xff\n")),
    ];
    read(&PlanFile { path: "PLAN.md", bytes }, &files)
}

pub(super) fn messages(read: Result<CheckedPlan, Vec<PlanError>>) -> Vec<PlanError> {
    match read {
        Ok(sound) => sound.warnings,
        Err(errors) => errors,
    }
}

/// Each error without its line: place, severity, message, hint.
fn told(read: Result<CheckedPlan, Vec<PlanError>>) -> String {
    let one = |error: PlanError| {
        let Origin::File { path, line, column } = &error.origin else { panic!("in a file") };
        let (word, hint) = (error.severity.word(), error.hint.unwrap_or_default());
        format!("{path}:{line}:{column}: {word}: {}\n  hint: {hint}", error.message)
    };
    messages(read).into_iter().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_mistake_is_told_with_its_place() {
    for (text, wanted) in MISTAKES {
        assert_eq!(told(read_bytes(text.as_bytes())), wanted, "{text}");
    }
}

#[test]
fn a_mistake_is_shown_in_its_line() {
    let text =
        "## Phase: API\nDo.\n- Gate: a\n\n## Phase: Docs\nDo.\n- Gate: a\n- Depends on: `AIP`\n";
    let errors = read_bytes(text.as_bytes()).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "error: the phase `Docs` depends on `AIP`, which is no phase\n \
         --> PLAN.md:8:15\n  \
         |\n\
         8 | - Depends on: `AIP`\n  \
         |               ^^^^^\n\
         hint: did you mean `API`?"
    );
    // A line with a secret in it is not quoted.
    let text = "## Phase: A\nDo.\n- Gate: `API_TOKEN=sesame-1234 make` too\n";
    let errors = read_bytes(text.as_bytes()).unwrap_err();
    assert!(!errors[0].to_string().contains("sesame"), "{}", errors[0]);
}

#[test]
fn bounds_are_told() {
    let phase = "Do.\n- Gate: a\n";
    let many = |count: usize| -> String {
        (0..count).map(|at| format!("## Phase: P{at}\n{phase}")).collect()
    };
    let gates: String = (0..=PLAN_GATES_MAX).map(|at| format!("- Gate: g{at}\n")).collect();
    let patterns = "a,".repeat(PLAN_PATTERNS_MAX + 1);
    let cases = [
        (
            " ".repeat(PLAN_FILE_BYTES_MAX + 1).into_bytes(),
            "PLAN.md:1:1: error: the file is larger than 1024KiB\n  hint: split it into files, and link them",
        ),
        (
            b"ok\n\xc3\xa9\xff".to_vec(),
            "PLAN.md:2:2: error: the file is not UTF-8 text\n  hint: save it as UTF-8",
        ),
        (
            b"ok\0".to_vec(),
            "PLAN.md:1:3: error: the file has a NUL in it, and is no text\n  hint: save it as UTF-8",
        ),
        (
            many(PLAN_PHASES_MAX + 1).into_bytes(),
            "PLAN.md:1501:4: error: the plan has more than 500 phases\n  hint: split it into several plans",
        ),
        (
            format!("## Phase: A\n{}\n- Gate: a\n", "x".repeat(PLAN_TASK_BYTES_MAX + 1))
                .into_bytes(),
            "PLAN.md:1:4: error: the task of the phase `A` is longer than 256KiB\n  \
             hint: split it, or name a file that the agent can read",
        ),
        (
            format!("{}\n## Phase: A\n{phase}", "x".repeat(PLAN_TASK_BYTES_MAX + 1)).into_bytes(),
            "PLAN.md:1:1: error: what is for all phases is longer than 256KiB\n  \
             hint: shorten it, or name a file that agents can read",
        ),
        (
            format!("## Phase: {}\n{phase}", "x".repeat(PLAN_NAME_CHARS_MAX + 1)).into_bytes(),
            "PLAN.md:1:4: error: the name is longer than 100 characters\n  \
             hint: shorten it; the task can say the rest",
        ),
        (
            format!("## Phase: A\u{7}\n{phase}").into_bytes(),
            "PLAN.md:1:4: error: the name has a control character in it\n  hint: write it anew",
        ),
        (
            format!("## Phase: A\nDo.\n{gates}").into_bytes(),
            "PLAN.md:53:9: error: the phase has more than 50 gates\n  hint: put some of them into a script",
        ),
        (
            format!("## Phase: A\nDo.\n- Gate: {}\n", "x".repeat(PLAN_COMMAND_BYTES_MAX + 1))
                .into_bytes(),
            "PLAN.md:3:9: error: the command is longer than 8192 bytes\n  \
             hint: put it into a script, and run that",
        ),
        (
            format!("## Phase: A\n{phase}- Files: {patterns}\n").into_bytes(),
            "PLAN.md:4:3: error: the phase has more than 200 patterns of files\n  hint: name folders instead",
        ),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(told(read_bytes(&bytes)), wanted);
    }
    let errors = read_bytes("## Phase:\n".repeat(1_000).as_bytes()).unwrap_err();
    assert_eq!(errors.len(), PLAN_ERRORS_MAX + 1);
    assert_eq!(errors[PLAN_ERRORS_MAX].message, "there are 900 more");
    assert_eq!(read_bytes(many(PLAN_PHASES_MAX).as_bytes()).unwrap().plan.phases.len(), 500);
}

/// Plans, and what is said about them.
const MISTAKES: [(&str, &str); 26] = [
    (
        "",
        "PLAN.md:1:1: error: the plan has no phase\n\
         \x20 hint: write `## Phase: NAME` and below it what is to be done; `afresh plan new` writes an example",
    ),
    (
        "# Only a title\n\nAnd words.\n",
        "PLAN.md:1:1: error: the plan has no phase\n\
         \x20 hint: write `## Phase: NAME` and below it what is to be done; `afresh plan new` writes an example",
    ),
    (
        "## Phase:\nDo.\n- Gate: a\n",
        "PLAN.md:1:1: error: the phase has no name\n\
         \x20 hint: write `## Phase: NAME`",
    ),
    (
        "## Phase API\nDo.\n- Gate: a\n\n## Phse: B\nDo.\n- Gate: b\n",
        "PLAN.md:1:4: error: the heading `Phase API` is not that of a phase\n\
         \x20 hint: did you mean `## Phase: API`? If not, give it other words\n\
         PLAN.md:5:4: error: the heading `Phse: B` is not that of a phase\n\
         \x20 hint: did you mean `## Phase: B`? If not, give it other words",
    ),
    (
        "### Phase: A\nDo.\n",
        "PLAN.md:1:1: warning: `### Phase: A` begins no phase: it is of a lower level\n\
         \x20 hint: write `## Phase: A` if it is one\n\
         PLAN.md:1:1: error: the plan has no phase\n\
         \x20 hint: write `## Phase: NAME` and below it what is to be done; `afresh plan new` writes an example",
    ),
    (
        "- Gate: make\n\n## Phase: A\nDo.\n- Gate: a\n### Phase 2: B\n",
        "PLAN.md:1:3: warning: `Gate` stands outside of all phases\n\
         \x20 hint: write it below each phase that it is for\n\
         PLAN.md:6:1: warning: `### Phase 2: B` begins no phase: it is of a lower level\n\
         \x20 hint: write `## Phase 2: B` if it is one",
    ),
    (
        "## Phase: A\n- Gate: a\n",
        "PLAN.md:1:4: error: the phase `A` has no task\n\
         \x20 hint: write below its heading what is to be done",
    ),
    (
        "## Phase: A\n- Gate: a\n\n## Task\nDo.\n",
        "PLAN.md:1:4: error: the phase `A` has no task\n\
         \x20 hint: `Task` begins something that is for all phases: write `### Task`",
    ),
    (
        "## Phase: A\nDo.\n",
        "PLAN.md:1:4: error: the phase `A` has no gate\n\
         \x20 hint: add the command that shows that it is done, such as `- Gate: cargo test`, or write `- Gates: none`",
    ),
    (
        "## Phase: A\nDo.\n- Gates: none\n- Gate: a\n",
        "PLAN.md:3:10: error: the phase `A` has gates, and says that it has none\n\
         \x20 hint: take this line out, or the gates",
    ),
    (
        "## Phase: A\nDo.\n- Gate:\n\n## Phase: B\nDo.\nGates:\nwords\n",
        "PLAN.md:3:3: error: nothing stands behind `Gate`\n\
         \x20 hint: for example `- Gate: cargo test`\n\
         PLAN.md:5:4: error: the phase `B` has no gate\n\
         \x20 hint: add the command that shows that it is done, such as `- Gate: cargo test`, or write `- Gates: none`\n\
         PLAN.md:7:1: warning: `Gates` stands within a paragraph, so this line is part of the task\n\
         \x20 hint: put an empty line before it, or write `- Gates: …`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: `make` must pass\n",
        "PLAN.md:3:9: error: there is text beside the command\n\
         \x20 hint: write the command alone; what it is for can stand in the task",
    ),
    (
        "## Phase: A\nDo.\n- Gate (a, b): make\n- Gate (x): `a`, `b`\n- Gate: make\n- Gate: ``\n",
        "PLAN.md:3:9: error: there are two names in the parentheses\n\
         \x20 hint: for example `- Gate (lint, 5m): cargo clippy`\n\
         PLAN.md:4:9: error: one name is given to 2 commands\n\
         \x20 hint: write a line for each of them\n\
         PLAN.md:5:9: error: the gate `make` stands here twice\n\
         \x20 hint: take one of them out, or name it otherwise\n\
         PLAN.md:6:9: error: there is text beside the command\n\
         \x20 hint: write the command alone; what it is for can stand in the task",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Depends on: Bee, C and D\n\n## Phase: Beee\nDo.\n- Gate: a\n- Depends on: Beee\n",
        "PLAN.md:4:15: error: the phase `A` depends on `Bee`, which is no phase\n\
         \x20 hint: did you mean `Beee`?\n\
         PLAN.md:4:15: error: the phase `A` depends on `C`, which is no phase\n\
         \x20 hint: write the name of a phase, or say it in a sentence if it is not about phases\n\
         PLAN.md:4:15: error: the phase `A` depends on `D`, which is no phase\n\
         \x20 hint: write the name of a phase, or say it in a sentence if it is not about phases\n\
         PLAN.md:9:15: error: the phase `Beee` depends on itself\n\
         \x20 hint: take it out of the line",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Depends on: C\n\n## Phase: B\nDo.\n- Gate: a\n- Depends on: A\n\n## Phase: C\nDo.\n- Gate: a\n- Depends on: B\n",
        "PLAN.md:4:15: error: phases depend on each other in a ring: `A` → `C` → `B` → `A`\n\
         \x20 hint: take one of them out of a `Depends on`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n\n## Phase 2: **a**\nDo.\n- Gate: a\n",
        "PLAN.md:5:4: error: there are two phases `a`\n\
         \x20 hint: the first is at PLAN.md:1: give one of them another name",
    ),
    (
        "## Phase 1: A\nDo.\n- Gate: a\n\n## Phase 1: B\nDo.\n- Gate: a\n\n## Phase: C\nDo.\n- Gate: a\n- Depends on: 1\n",
        "PLAN.md:12:15: error: `1` is the number of two phases\n\
         \x20 hint: write the name of the one that is meant",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Time limit: soon\n- Cost limit: 5 €\n- Token limit: many\n",
        "PLAN.md:4:15: error: `soon` is not a duration\n\
         \x20 hint: for example `- Time limit: 30m`\n\
         PLAN.md:5:15: error: `5 €` is not an amount of US dollars\n\
         \x20 hint: for example `- Cost limit: $5`\n\
         PLAN.md:6:16: error: `many` is not a number of tokens\n\
         \x20 hint: for example `- Token limit: 2M`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Time limit: 0s\n- Cost limit: $0\n- Token limit: 0\n",
        "PLAN.md:4:15: error: `0s` is no time at all\n\
         \x20 hint: for example `- Time limit: 30m`\n\
         PLAN.md:5:15: error: `$0` is no money at all\n\
         \x20 hint: for example `- Cost limit: $5`\n\
         PLAN.md:6:16: error: `0` is less than one token\n\
         \x20 hint: for example `- Token limit: 2M`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Time limit: 400d\n- Cost limit: $1,5\n- Token limit: 5000B\n",
        "PLAN.md:4:15: error: `400d` is more than 365d\n\
         \x20 hint: for example `- Time limit: 30m`\n\
         PLAN.md:5:15: error: `$1,5` is not an amount of US dollars\n\
         \x20 hint: for example `- Cost limit: $5`\n\
         PLAN.md:6:16: error: `5000B` is more than 1000000000000 tokens\n\
         \x20 hint: for example `- Token limit: 2M`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Time limit: 5m\n- Time limit: 6m\n- Files (new): src\n",
        "PLAN.md:5:3: error: the phase has two of `Time limit`\n\
         \x20 hint: the first is at PLAN.md:4: keep one\n\
         PLAN.md:6:10: error: `Files` has nothing in parentheses\n\
         \x20 hint: write `- Files: src/**, docs/`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Files: a, /etc\n- Files: ../x\n- Files: a b\n- Files: a,,b\n",
        "PLAN.md:4:10: error: `/etc` leads out of the folder of the run\n\
         \x20 hint: patterns count from the folder of the run, for example `src/**`\n\
         PLAN.md:5:10: error: `../x` leads out of the folder of the run\n\
         \x20 hint: patterns count from the folder of the run, for example `src/**`\n\
         PLAN.md:6:10: error: the pattern `a b` has a space in it\n\
         \x20 hint: put commas between patterns, and backticks around one with a space\n\
         PLAN.md:7:10: error: a pattern is empty\n\
         \x20 hint: for example `- Files: src/**, docs/`",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n- Dependson: B\n- Gats: b\n- Timelimit: 5m\n",
        "PLAN.md:4:3: warning: `Dependson` is no key, so this line is part of the task\n\
         \x20 hint: did you mean `Depends on`?\n\
         PLAN.md:5:3: warning: `Gats` is no key, so this line is part of the task\n\
         \x20 hint: did you mean `Gate`?\n\
         PLAN.md:6:3: warning: `Timelimit` is no key, so this line is part of the task\n\
         \x20 hint: did you mean `Time limit`?",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n```sh\n## Phase: B\n",
        "PLAN.md:4:1: error: the code block that begins here never ends\n\
         \x20 hint: end it with a line of the same signs",
    ),
    (
        "## Phase: A\nDo.\n- Gate: a\n<!-- x\n## Phase: B\n",
        "PLAN.md:4:1: error: the comment that begins here never ends\n\
         \x20 hint: end it with `-->`",
    ),
    (
        "## Phases\n- [A](a.md)\n- [B](../b.md)\n- [C](https://x.y/c.md)\n- [D](/d.md)\n- words\n- [A](./a.md)\n- [E](C:/x.md)\n- [F](f.md)\n- [G](g.md)\n",
        "PLAN.md:3:7: error: `../b.md` leads out of the folder of the plan\n\
         \x20 hint: link a file in the folder of the plan, such as `phases/one.md`\n\
         PLAN.md:4:7: error: `https://x.y/c.md` is no file\n\
         \x20 hint: link a file in the folder of the plan, such as `phases/one.md`\n\
         PLAN.md:5:7: error: `/d.md` leads out of the folder of the plan\n\
         \x20 hint: link a file in the folder of the plan, such as `phases/one.md`\n\
         PLAN.md:6:1: error: this item of the list of phases has no link\n\
         \x20 hint: write `[NAME](FILE.md)`, or describe the phase below `## Phase: NAME`\n\
         PLAN.md:7:7: error: `a.md` is linked twice\n\
         \x20 hint: the first link is at PLAN.md:2: each file is one phase\n\
         PLAN.md:8:7: error: `C:/x.md` leads out of the folder of the plan\n\
         \x20 hint: link a file in the folder of the plan, such as `phases/one.md`\n\
         PLAN.md:9:7: error: cannot read `f.md`: no such file\n\
         \x20 hint: write the file, or correct the link\n\
         a.md:3:4: error: a phase begins within the file of a phase\n\
         \x20 hint: each file that is linked is one phase: move it, and link both\n\
         g.md:2:1: error: the file is not UTF-8 text\n\
         \x20 hint: save it as UTF-8",
    ),
];
