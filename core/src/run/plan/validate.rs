//! Checks the phases of a plan together: what each says, whether their names and dependencies fit, and in which order
//! they come. Driven by `parse.rs`. Never reads a line.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use super::keys::{Key, KeyNote, KeyValue};
use super::parse::{Heading, heading};
use super::value::{self, folded};
use super::{Gate, Phase, PlanError, SourcePosition};
use crate::dependency_cycles::{rings, told};
use crate::limits::{
    PLAN_GATES_MAX, PLAN_NAME_CHARS_MAX, PLAN_PATTERNS_MAX, PLAN_PHASES_MAX, PLAN_TASK_BYTES_MAX,
};
use crate::suggest::nearest;
use crate::text::printable;

/// A phase that is being read.
#[derive(Default)]
pub(super) struct PhaseDraft {
    pub(super) name: String,
    /// What it is called elsewhere: the text of the link to its file.
    pub(super) alias: Option<String>,
    pub(super) number: Option<String>,
    pub(super) place: SourcePosition,
    /// The heading behind it, where that begins something for all phases.
    pub(super) before: Option<String>,
    /// Whether its file could not be read, so that nothing can be said about what is missing.
    pub(super) is_unread: bool,
    /// Whether a gate of it is wrong: then it is not missing.
    pub(super) has_bad_gate: bool,
    pub(super) task: String,
    pub(super) depends_on: Vec<KeyValue>,
    pub(super) gates: Vec<Gate>,
    /// Where it says that it has no gates.
    pub(super) ungated: Option<SourcePosition>,
    pub(super) files: Vec<String>,
    pub(super) time_max: Option<(Duration, SourcePosition)>,
    pub(super) dollars_max: Option<(f64, SourcePosition)>,
    pub(super) tokens_max: Option<(u64, SourcePosition)>,
}

impl PhaseDraft {
    /// Adds what stands in another place about it.
    pub(super) fn add(&mut self, prose: &str, notes: Vec<KeyNote>, errors: &mut Vec<PlanError>) {
        if !self.task.is_empty() && !prose.is_empty() {
            self.task.push_str("\n\n");
        }
        self.task.push_str(prose);
        for note in notes {
            match note.key {
                Key::DependsOn => self.depends_on.extend(note.values),
                Key::Gates => self.add_gates(&note, errors),
                Key::Files => self.add_files(&note, errors),
                Key::TimeLimit => limit(&mut self.time_max, &note, value::duration, errors),
                Key::CostLimit => limit(&mut self.dollars_max, &note, value::dollars, errors),
                Key::TokenLimit => limit(&mut self.tokens_max, &note, value::tokens, errors),
            }
        }
    }

    fn add_gates(&mut self, note: &KeyNote, errors: &mut Vec<PlanError>) {
        let mut gates = Vec::new();
        self.has_bad_gate |= note.values.is_empty();
        for value in &note.values {
            if value::is_none(&value.text) {
                self.ungated = Some(value.place.clone());
                continue;
            }
            match value::commands(value) {
                Ok(found) => gates.extend(found.into_iter().map(|gate| (gate, &value.place))),
                Err(error) => {
                    errors.push(*error);
                    self.has_bad_gate = true;
                }
            }
        }
        if let Some((label, place)) = &note.label {
            match value::label(label) {
                Err(message) => {
                    errors.push(
                        place.error(message, "for example `- Gate (lint, 5m): cargo clippy`"),
                    );
                }
                Ok((Some(_), _)) if gates.len() > 1 => {
                    let message = format!("one name is given to {} commands", gates.len());
                    errors.push(place.error(message, "write a line for each of them"));
                }
                Ok((name, time_max)) => {
                    for (gate, _) in &mut gates {
                        gate.time_max = time_max;
                        gate.name = name.clone().unwrap_or(gate.name.clone());
                    }
                }
            }
        }
        for (gate, place) in gates {
            if self.gates.iter().any(|other| other.name == gate.name) {
                let message = format!("the gate `{}` stands here twice", printable(&gate.name));
                errors.push(place.error(message, "take one of them out, or name it otherwise"));
            } else if self.gates.len() == PLAN_GATES_MAX {
                let message = format!("the phase has more than {PLAN_GATES_MAX} gates");
                errors.push(place.error(message, "put some of them into a script"));
                return;
            } else {
                self.gates.push(gate);
            }
        }
    }

    fn add_files(&mut self, note: &KeyNote, errors: &mut Vec<PlanError>) {
        for value in &note.values {
            match value::patterns(value) {
                Ok(patterns) => self.files.extend(patterns),
                Err(error) => errors.push(*error),
            }
        }
        if self.files.len() > PLAN_PATTERNS_MAX {
            let message = format!("the phase has more than {PLAN_PATTERNS_MAX} patterns of files");
            errors.push(note.place.error(message, "name folders instead"));
        }
    }

    /// What is wrong with the phase by itself.
    fn check(&self, errors: &mut Vec<PlanError>) {
        let shown = printable(&self.name);
        let mut wrong = |message: String, hint: &str| errors.push(self.place.error(message, hint));
        if self.name.chars().count() > PLAN_NAME_CHARS_MAX {
            let message = format!("the name is longer than {PLAN_NAME_CHARS_MAX} characters");
            wrong(message, "shorten it; the task can say the rest");
        }
        if self.name.chars().any(char::is_control) {
            wrong("the name has a control character in it".to_owned(), "write it anew");
        }
        if self.task.len() > PLAN_TASK_BYTES_MAX {
            let kib = PLAN_TASK_BYTES_MAX / 1024;
            let message = format!("the task of the phase `{shown}` is longer than {kib}KiB");
            wrong(message, "split it, or name a file that the agent can read");
        }
        if let Some(place) = self.ungated.as_ref().filter(|_| !self.gates.is_empty()) {
            let message = format!("the phase `{shown}` has gates, and says that it has none");
            errors.push(place.error(message, "take this line out, or the gates"));
            return;
        }
        if self.is_unread {
            return;
        }
        if self.task.is_empty() {
            let message = format!("the phase `{shown}` has no task");
            let hint = match &self.before {
                Some(heading) => {
                    let heading = printable(heading);
                    format!(
                        "`{heading}` begins something that is for all phases: write `### {heading}`"
                    )
                }
                None => "write below its heading what is to be done".to_owned(),
            };
            wrong(message, &hint);
        }
        if self.gates.is_empty() && self.ungated.is_none() && !self.has_bad_gate {
            let message = format!("the phase `{shown}` has no gate");
            wrong(
                message,
                "add the command that shows that it is done, such as `- Gate: cargo test`, \
                 or write `- Gates: none`",
            );
        }
    }

    /// A name leads to no phase.
    fn unknown(&self, part: &str, place: &SourcePosition, all: &[Self]) -> PlanError {
        let (name, part) = (printable(&self.name), value::shown_name(part));
        let shown = printable(&part);
        let message = format!("the phase `{name}` depends on `{shown}`, which is no phase");
        let others =
            all.iter().map(|other| other.name.as_str()).filter(|other| *other != self.name);
        // One letter is near to every other.
        let near = nearest(&part, others).filter(|near| near.len().min(part.len()) > 1);
        let hint = match near {
            Some(near) => format!("did you mean `{}`?", printable(near)),
            None => "write the name of a phase, or say it in a sentence if it is not about phases"
                .to_owned(),
        };
        place.error(message, hint)
    }

    fn into_phase(self, depends_on: Vec<String>) -> Phase {
        Phase {
            name: self.name,
            task: self.task,
            depends_on,
            gates: self.gates,
            files: self.files,
            time_max: self.time_max.map(|(time, _)| time),
            dollars_max: self.dollars_max.map(|(dollars, _)| dollars),
            tokens_max: self.tokens_max.map(|(tokens, _)| tokens),
        }
    }
}

/// Takes a limit, of which there is one.
fn limit<T>(
    slot: &mut Option<(T, SourcePosition)>,
    note: &KeyNote,
    read: impl Fn(&str) -> Result<T, String>,
    errors: &mut Vec<PlanError>,
) {
    let key = note.key;
    for value in &note.values {
        match read(&value.text) {
            Err(message) => {
                errors.push(value.place.error(message, format!("for example `{}`", key.example())));
            }
            Ok(_) if slot.is_some() => {
                let first = slot.as_ref().map(|(_, place)| place.to_string()).unwrap_or_default();
                let message = format!("the phase has two of `{}`", key.name());
                errors
                    .push(note.place.error(message, format!("the first is at {first}: keep one")));
            }
            Ok(limit) => *slot = Some((limit, note.place.clone())),
        }
    }
}

/// Checks the phases together, and gives them in an order in which each comes after those that it depends on.
pub(super) fn phases(drafts: Vec<PhaseDraft>, errors: &mut Vec<PlanError>) -> Vec<Phase> {
    let mut index = Index::default();
    for (at, draft) in drafts.iter().enumerate() {
        draft.check(errors);
        if let Some(first) = index.add(at, draft) {
            let first: &PhaseDraft = &drafts[first];
            let message = format!("there are two phases `{}`", printable(&draft.name));
            let hint = format!("the first is at {}: give one of them another name", first.place);
            errors.push(draft.place.error(message, hint));
        }
    }
    let mut needs: Vec<Vec<usize>> = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let mut own = Vec::new();
        for value in draft.depends_on.iter().filter(|value| !value::is_none(&value.text)) {
            for part in index.parts(&value.text).into_iter().take(PLAN_PHASES_MAX) {
                match *index.find(part) {
                    [need] if need == at => {
                        let message =
                            format!("the phase `{}` depends on itself", printable(&draft.name));
                        errors.push(value.place.error(message, "take it out of the line"));
                    }
                    [need] if own.contains(&need) => {}
                    [need] => own.push(need),
                    [] => errors.push(draft.unknown(part, &value.place, &drafts)),
                    _ => {
                        let shown = printable(&value::shown_name(part));
                        let message = format!("`{shown}` is the number of two phases");
                        let hint = "write the name of the one that is meant";
                        errors.push(value.place.error(message, hint));
                    }
                }
            }
        }
        needs.push(own);
    }
    for ring in rings(&needs) {
        let names: Vec<String> = ring.iter().map(|at| printable(&drafts[*at].name)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!("phases depend on each other in a ring: {}", told(&names));
        let first = &drafts[ring[0]];
        let place = first.depends_on.first().map_or(&first.place, |value| &value.place);
        errors.push(place.error(message, "take one of them out of a `Depends on`"));
    }
    ordered(drafts, &needs)
}

/// The phases as they are written, except that each waits for those that it depends on.
fn ordered(drafts: Vec<PhaseDraft>, needs: &[Vec<usize>]) -> Vec<Phase> {
    let names: Vec<String> = drafts.iter().map(|draft| draft.name.clone()).collect();
    let mut left: Vec<(usize, PhaseDraft)> = drafts.into_iter().enumerate().collect();
    let mut is_done = vec![false; left.len()];
    let mut phases = Vec::new();
    while !left.is_empty() {
        let is_next = |(at, _): &(usize, PhaseDraft)| needs[*at].iter().all(|need| is_done[*need]);
        // In a ring no phase is next; then the plan is refused anyway.
        let next = left.iter().position(is_next).unwrap_or(0);
        let (at, draft) = left.remove(next);
        is_done[at] = true;
        let depends_on = needs[at].iter().map(|need| names[*need].clone()).collect();
        phases.push(draft.into_phase(depends_on));
    }
    phases
}

/// Phases by what they are called.
#[derive(Default)]
struct Index {
    names: BTreeMap<String, usize>,
    aliases: BTreeMap<String, usize>,
    numbers: BTreeMap<String, Vec<usize>>,
}

impl Index {
    /// Adds a phase; gives the one that has its name already.
    fn add(&mut self, at: usize, draft: &PhaseDraft) -> Option<usize> {
        if let Some(number) = &draft.number {
            self.numbers.entry(number.clone()).or_default().push(at);
        }
        if let Some(alias) = &draft.alias {
            self.aliases.entry(folded(alias)).or_insert(at);
        }
        let first = *self.names.entry(folded(&draft.name)).or_insert(at);
        (first != at).then_some(first)
    }

    /// The phase of this name or number; several where they have one number.
    fn find(&self, text: &str) -> &[usize] {
        let name = folded(text);
        if let Some(at) = self.names.get(&name).or_else(|| self.aliases.get(&name)) {
            return slice::from_ref(at);
        }
        let number = match heading(&name) {
            Heading::Phase { name, number } => match self.names.get(&folded(&name)) {
                Some(at) => return slice::from_ref(at),
                None => number.filter(|number| name == format!("Phase {number}")),
            },
            _ => Some(name),
        };
        number.and_then(|number| self.numbers.get(&number)).map_or(&[], Vec::as_slice)
    }

    /// The names in a value. One with a comma or an `and` in it is taken as a whole where there is such a phase.
    fn parts<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let is_known = |part: &str| self.find(part).len() == 1;
        if is_known(text) {
            return vec![text];
        }
        let parts = text.split([',', ';']).flat_map(|part| match is_known(part) {
            true => vec![part],
            false => part.split(" and ").collect(),
        });
        let parts = parts.map(|part| part.trim().trim_start_matches("and ").trim_end_matches('.'));
        parts.filter(|part| !part.trim().is_empty()).collect()
    }
}
