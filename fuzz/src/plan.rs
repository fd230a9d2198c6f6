//! Fuzzes plans: a plan that is sound has an order and tasks, mistakes are in lines that exist, and no link leads
//! outside of the folder.

use std::path::{Component, Path};

use afresh_core::report::Origin;
use afresh_core::run::plan::{LinkedFile, PlanFile, links, read};

use crate::is_planted;

pub fn check(data: &[u8]) {
    // What stands behind a zero is the text of every file that the plan links.
    let zero = data.iter().position(|byte| *byte == 0);
    let (bytes, linked) = data.split_at(zero.unwrap_or(data.len()));
    let linked = linked.get(1..).unwrap_or_default();
    let source = PlanFile { path: "PLAN.md", bytes };
    let paths = links(&source);
    for path in &paths {
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        assert!(Path::new(path).components().all(is_plain), "a link leads outside: {path}");
    }
    let files = paths.into_iter().map(|path| LinkedFile { path, content: Ok(linked.to_vec()) });
    let text = String::from_utf8_lossy(bytes);
    let errors = match read(&source, &files.collect::<Vec<_>>()) {
        Err(errors) => {
            assert!(!errors.is_empty());
            errors
        }
        Ok(mut checked) => {
            let gates = checked.plan.phases.iter_mut().flat_map(|phase| &mut phase.gates);
            for gate in gates.filter(|gate| is_planted() && gate.command.contains('~')) {
                gate.command.clear();
            }
            let phases = &checked.plan.phases;
            assert!(!phases.is_empty());
            for (at, phase) in phases.iter().enumerate() {
                assert!(!phase.name.is_empty() && !phase.task.is_empty());
                for need in &phase.depends_on {
                    assert!(phases[..at].iter().any(|before| before.name == *need), "{need}");
                }
                for gate in &phase.gates {
                    assert!(!gate.command.trim().is_empty() && !gate.name.is_empty());
                }
            }
            checked.warnings
        }
    };
    for error in errors {
        let Origin::File { path, line, column } = &error.origin else { panic!("not in a file") };
        let shown = error.to_string();
        assert!(!shown.contains('\u{1b}'), "an error is safe to print: {shown}");
        if path == "PLAN.md" {
            let row = text.split('\n').nth(line - 1).expect("the line is there");
            assert!(*column <= row.chars().count() + 1, "{shown}");
        }
    }
}
