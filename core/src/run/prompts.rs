//! Our words to the agent.

use super::plan::{Phase, Plan};

/// What stands at the beginning of a last message that is no end of the task…
pub(super) const HANDOFF: &str = "HANDOFF";
/// …and of one that is.
pub(super) const DONE: &str = "DONE";

/// The prompt of a phase, without a checkpoint.
pub(super) fn task(plan: &Plan, phase: &Phase) -> String {
    let mut out = format!("# {}\n", plan.title);
    if !plan.preface.trim().is_empty() {
        out.push_str(&format!("\n{}\n", plan.preface.trim()));
    }
    out.push_str(&format!("\n## {}\n\n{}\n", phase.name, phase.task.trim()));
    out.push_str("\n## How this is judged\n\n");
    if phase.gates.is_empty() {
        out.push_str("- There is no automatic check: be your own reviewer.\n");
    } else {
        out.push_str("- When you say that you are done, these commands are run, and must pass:\n");
        for gate in &phase.gates {
            out.push_str(&format!("  - `{}`\n", gate.command));
        }
    }
    if !phase.files.is_empty() {
        out.push_str(&format!("- Touch only files that match: {}\n", phase.files.join(", ")));
    }
    out.push_str(
        "- Your changes are committed for you: do not commit, push or reset anything, and stay on this branch.\n\
         - Nobody can answer questions: decide yourself, and say what you decided.\n\
         - When the task is complete, say so in a short last message.\n",
    );
    out
}

/// The context is filling up.
pub(super) fn steer(percent: Option<f64>) -> String {
    let used = percent.map_or(String::new(), |percent| format!(" ({percent:.0} % is used)"));
    format!(
        "Your context window is filling up{used}. Finish the step that you are at, begin nothing new, and then \
         stop. Your last message then begins with one of two words. {DONE}: the whole task is complete. {HANDOFF}: \
         anything is left; write on for a fresh session that continues: what is done, what is half done, what is \
         next, and what to watch out for."
    )
}

/// The session ends, and the next one needs to know.
pub(super) const ASK_HANDOFF: &str = "Stop working on the task now and use no tools. This session ends, and a fresh \
     one continues with the files as they are. Write the handoff for it, as short as is useful: what is done, \
     what is half done and where, what is next, what was tried and failed, and which commands to use. Reply with \
     the handoff only.";

/// After a pause.
pub(super) const GO_ON: &str = "Continue where you stopped.";
