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
        let outside = &self.phase.looked.outside;
        let passed = outside.is_empty();
        if passed && (!self.has_git || self.this_phase().files.is_empty()) {
            return None;
        }
        let mut output = String::new();
        let mut ending = "no other was touched".to_owned();
        if !passed {
            ending = format!("may not be touched: {}", named(outside.iter().map(String::as_str)));
            output =
                format!("these files may not be touched in this phase:\n{}", outside.join("\n"));
        }
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
            ending,
            output: end.output.clone(),
            took_ms: 0,
        });
        self.say(Say::GateEnds(NAME.to_owned(), end));
        (!passed).then(|| (NAME.to_owned(), output))
    }
}
