//! The gate that a phase has by the files that it may touch.

use super::super::checkpoint::tail;
use super::super::named;
use super::*;
use crate::limits::GATE_TAIL_CHARS_MAX;

/// Its name.
const NAME: &str = "files of the phase";

impl Machine {
    /// Asks git what has happened in the phase.
    pub(super) fn look(&mut self, cause: Cause, until: Option<Stamp>) {
        let (since, files) = (self.phase.base.clone(), self.this_phase().files.clone());
        self.step = Step::Looking { cause, until };
        self.git(GitAsk::Look { since, files, beside: self.phase.beside.clone() });
    }

    /// Takes what git has seen.
    pub(super) fn saw(&mut self, looked: Looked) {
        if let Some(commit) =
            looked.head.clone().filter(|head| Some(head) != self.phase.seen.as_ref())
        {
            self.record(Record::Seen { commit });
        }
        self.phase.seen.clone_from(&looked.head);
        self.phase.looked = looked;
    }

    /// From what was seen last until now it was not the agent who worked.
    pub(super) fn others_worked(&mut self) {
        let (Some(from), Some(to)) = (self.phase.seen.clone(), self.stand.commit.clone()) else {
            return;
        };
        if from != to {
            self.record(Record::Beside { from: from.clone(), to: to.clone() });
            self.phase.seen = Some(to.clone());
            self.phase.beside.push((from, to));
        }
    }

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
