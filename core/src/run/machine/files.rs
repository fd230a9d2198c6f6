//! The gate that a phase has by the files that it may touch.

use super::super::checkpoint::tail;
use super::super::named;
use super::*;
use crate::limits::GATE_TAIL_CHARS_MAX;

/// Its name.
const NAME: &str = "files of the phase";

impl Machine {
    /// Judges by what git has seen, and gives the gate where it failed: its name, and why.
    pub(super) fn judge_files(&mut self) -> Option<(String, String)> {
        let Looked { outside, unknown, .. } = &self.phase.looked;
        let is_asked = self.has_git && !self.this_phase().files.is_empty();
        let (passed, ending, output) = match unknown {
            // What nobody has looked at is not allowed.
            Some(why) if is_asked => {
                (false, format!("git cannot say which were touched: {why}"), String::new())
            }
            _ if !outside.is_empty() => {
                let names = named(outside.iter().map(String::as_str));
                let all = format!(
                    "these files may not be touched in this phase:\n{}",
                    outside.join("\n")
                );
                (false, format!("may not be touched: {names}"), all)
            }
            _ if is_asked => (true, "no other was touched".to_owned(), String::new()),
            _ => return None,
        };
        let end = GateEnd {
            // It has none of the places of the plan.
            gate: self.this_phase().gates.len(),
            passed,
            ending: ending.clone(),
            output: tail(&output, GATE_TAIL_CHARS_MAX),
            took: Duration::ZERO,
        };
        self.record(Record::GateEnded {
            phase: self.this_phase().name.clone(),
            gate: NAME.to_owned(),
            passed,
            ending: ending.clone(),
            output: end.output.clone(),
            took_ms: 0,
        });
        self.say(Say::GateEnds(NAME.to_owned(), end));
        let why = if output.is_empty() { ending } else { output };
        (!passed).then(|| (NAME.to_owned(), why))
    }
}
