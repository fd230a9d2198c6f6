//! Splits the lines of a phase into its task and its keys. Driven by `read.rs`. Never parses a value.

use std::ops::Range;

use super::error::{PlanError, SourcePosition};
use super::key::{Key, KeyLine, KeyMatch, is_gates_heading, look};
use super::page::{LineKind, MarkdownPage, bullet, indent};
use crate::text::printable;

/// What was read of some lines.
pub(super) struct Body {
    /// The lines without those that have a key.
    pub(super) prose: String,
    pub(super) notes: Vec<KeyNote>,
}

/// What one key says.
pub(super) struct KeyNote {
    pub(super) key: Key,
    pub(super) place: SourcePosition,
    /// What stands in parentheses behind the key.
    pub(super) label: Option<(String, SourcePosition)>,
    pub(super) values: Vec<KeyValue>,
}

/// One value of a key.
pub(super) struct KeyValue {
    pub(super) text: String,
    pub(super) place: SourcePosition,
    pub(super) form: ValueForm,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// Behind the colon.
    Inline,
    /// As an item of a list.
    Item,
    /// As a line of a code block.
    Script,
}

/// How some lines are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionRules {
    /// Headings from this level on are part of the phase.
    pub(super) level_min: usize,
    /// A line with a key is not further in than that.
    pub(super) indent_max: usize,
}

impl SectionRules {
    /// Below a heading: a line that is further in is code.
    pub(super) const SECTION: Self = Self { level_min: 3, indent_max: 3 };
    /// Below an item of a list.
    pub(super) const ITEM: Self = Self { level_min: 3, indent_max: 7 };
    /// In a file of its own.
    pub(super) const FILE: Self = Self { level_min: 2, indent_max: 3 };
}

/// Reads the lines of a phase.
pub(super) fn read(
    page: &MarkdownPage<'_>,
    rows: Range<usize>,
    manner: SectionRules,
    errors: &mut Vec<PlanError>,
) -> Body {
    let mut reader = BodyReader { page, end: rows.end, manner, notes: Vec::new(), errors };
    let mut kept = Vec::new();
    let mut at = rows.start;
    // Whether a line without a bullet can begin something here: within a paragraph it goes on with that.
    let mut is_fresh = true;
    while at < rows.end {
        let next = reader.note(at, is_fresh);
        if let Some(next) = next {
            (at, is_fresh) = (next, true);
            continue;
        }
        let kind = &page.rows[at].kind;
        is_fresh = *kind != LineKind::Text;
        if *kind != LineKind::Comment {
            kept.push(at);
        }
        at += 1;
    }
    Body { prose: page.prose(&kept), notes: reader.notes }
}

struct BodyReader<'a, 'b> {
    page: &'a MarkdownPage<'a>,
    end: usize,
    manner: SectionRules,
    notes: Vec<KeyNote>,
    errors: &'b mut Vec<PlanError>,
}

impl BodyReader<'_, '_> {
    /// Reads what a key says that stands in this line, and where it ends; none where there is no key.
    fn note(&mut self, at: usize, is_fresh: bool) -> Option<usize> {
        let row = &self.page.rows[at];
        match &row.kind {
            LineKind::Text => {}
            LineKind::Heading { level, content } if *level >= self.manner.level_min => {
                let is_gates = is_gates_heading(&row.text[content.clone()]);
                return is_gates.then(|| self.below_heading(at, content));
            }
            _ => return None,
        }
        let is_begun = !is_fresh && bullet(row.text).is_none();
        match look(row.text, self.manner.indent_max)? {
            KeyMatch::Key(line) if is_begun => {
                self.warn_of_key_within(at, &line);
                None
            }
            KeyMatch::Key(line) => Some(self.key_line(at, &line)),
            KeyMatch::Near(..) if is_begun => None,
            KeyMatch::Near(word, meant) => {
                let written = printable(&row.text[word.clone()]);
                let message = format!("`{written}` is no key, so this line is part of the task");
                let place = self.page.place(at, &word);
                self.errors.push(place.warning(message, format!("did you mean `{meant}`?")));
                None
            }
        }
    }

    /// A key in the middle of a paragraph can be the end of a sentence, unless it looks like the start of one.
    fn warn_of_key_within(&mut self, at: usize, line: &KeyLine) {
        let word = &self.page.rows[at].text[line.word.clone()];
        if word.starts_with(char::is_uppercase) {
            let message =
                format!("`{word}` stands within a paragraph, so this line is part of the task");
            let hint = format!("put an empty line before it, or write `- {word}: …`");
            self.errors.push(self.page.place(at, &line.word).warning(message, hint));
        }
    }

    fn below_heading(&mut self, at: usize, content: &Range<usize>) -> usize {
        let (values, next) = self.below(at + 1, Key::Gates, None);
        self.add(Key::Gates, self.page.place(at, content), None, values);
        next
    }

    fn key_line(&mut self, at: usize, line: &KeyLine) -> usize {
        let text = self.page.rows[at].text;
        let label = line
            .label
            .clone()
            .map(|range| (text[range.clone()].trim().to_owned(), self.page.place(at, &range)));
        let place = self.page.place(at, &line.word);
        if line.value.is_empty() {
            let bound = line.is_item.then_some(line.indent);
            let (values, next) = self.below(at + 1, line.key, bound);
            // A list of lines that each have the key again.
            let is_opened = values.is_empty() && self.is_key_below(next, line);
            if !is_opened {
                self.add(line.key, place, label, values);
            }
            return next;
        }
        let (text, next) = match line.is_item {
            true => self.joined(at, line.value.clone(), line.indent),
            false => (text[line.value.clone()].to_owned(), at + 1),
        };
        let place_of_value = self.page.place(at, &line.value);
        let value = KeyValue { text, place: place_of_value, form: ValueForm::Inline };
        self.add(line.key, place, label, vec![value]);
        next
    }

    fn add(
        &mut self,
        key: Key,
        place: SourcePosition,
        label: Option<(String, SourcePosition)>,
        values: Vec<KeyValue>,
    ) {
        if let Some((_, place)) = label.as_ref().filter(|_| key != Key::Gates) {
            let message = format!("`{}` has nothing in parentheses", key.name());
            self.errors.push(place.error(message, format!("write `{}`", key.example())));
        }
        if values.is_empty() {
            let message = format!("nothing stands behind `{}`", key.name());
            self.errors.push(place.error(message, format!("for example `{}`", key.example())));
        }
        self.notes.push(KeyNote { key, place, label, values });
    }

    fn is_key_below(&self, at: usize, above: &KeyLine) -> bool {
        let below = (at..self.end).find(|at| self.page.rows[*at].kind != LineKind::Blank);
        let looks = below.and_then(|at| look(self.page.rows[at].text, self.manner.indent_max));
        matches!(looks, Some(KeyMatch::Key(line)) if line.key == above.key && line.is_item)
    }

    /// The values in a list or a code block from this line on, and where that ends. Items of a list that is itself
    /// in an item are further in than that one.
    fn below(&self, from: usize, key: Key, bound: Option<usize>) -> (Vec<KeyValue>, usize) {
        let mut values = Vec::new();
        let mut next = from;
        let mut at = from;
        while at < self.end {
            let row = &self.page.rows[at];
            match row.kind {
                LineKind::Blank | LineKind::Comment => {
                    at += 1;
                    continue;
                }
                LineKind::Open if key == Key::Gates && values.is_empty() => {
                    return self.script(at);
                }
                LineKind::Text => {}
                _ => break,
            }
            let Some(item) = bullet(row.text) else { break };
            let is_key = matches!(look(row.text, self.manner.indent_max), Some(KeyMatch::Key(_)));
            if is_key || bound.is_some_and(|bound| item.indent <= bound) {
                break;
            }
            let said = item.content..row.text.trim_end().len().max(item.content);
            let place = self.page.place(at, &said);
            let (text, end) = self.joined(at, said, item.indent);
            values.push(KeyValue { text, place, form: ValueForm::Item });
            (at, next) = (end, end);
        }
        (values, next)
    }

    /// A part of a line, with the lines that go on with it: those that are further in.
    fn joined(&self, at: usize, part: Range<usize>, bound: usize) -> (String, usize) {
        let mut text = self.page.rows[at].text[part].trim().to_owned();
        let mut next = at + 1;
        while let Some(row) = self.page.rows[..self.end].get(next) {
            let goes_on = row.kind == LineKind::Text
                && indent(row.text) > bound
                && bullet(row.text).is_none();
            if !goes_on {
                break;
            }
            let begun = text.strip_suffix('\\').unwrap_or(&text).trim_end().len();
            text.truncate(begun);
            text.push(' ');
            text.push_str(row.text.trim());
            next += 1;
        }
        (text, next)
    }

    /// The commands of a code block, one a line.
    fn script(&self, open: usize) -> (Vec<KeyValue>, usize) {
        let info = self.page.rows[open].text.trim().trim_start_matches(['`', '~']).trim();
        // In a record of a terminal, what was typed stands behind a prompt.
        let is_record = ["console", "shell-session", "shellsession"].contains(&info);
        let mut values: Vec<KeyValue> = Vec::new();
        let mut is_open = false;
        let mut at = open + 1;
        while let Some(row) = self.page.rows[..self.end].get(at) {
            at += 1;
            if row.kind != LineKind::Code {
                break;
            }
            let mut line = row.text.trim();
            if is_record && !is_open {
                line = line.strip_prefix("$ ").unwrap_or_default().trim();
            }
            if let Some(last) = values.last_mut().filter(|_| is_open) {
                last.text.push_str(line.strip_suffix('\\').unwrap_or(line));
            } else if line.is_empty() || line.starts_with('#') {
                continue;
            } else {
                let text = line.strip_suffix('\\').unwrap_or(line).to_owned();
                let place = self.page.place_of_row(at - 1);
                values.push(KeyValue { text, place, form: ValueForm::Script });
            }
            is_open = line.ends_with('\\');
        }
        (values, at)
    }
}
