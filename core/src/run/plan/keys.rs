//! Splits the lines of a phase into its task and its keys: `- Depends on: A`, `**Gate (lint):** cargo clippy`. Driven by
//! `parse.rs`. Never parses a value.

use std::ops::Range;

use super::markdown::{LineKind, MarkdownPage, bullet, indent};
use super::{PlanError, SourcePosition};
use crate::suggest::nearest;
use crate::text::printable;

/// What a line can say about a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    DependsOn,
    Gates,
    Files,
    TimeLimit,
    CostLimit,
    TokenLimit,
}

/// Each word for a key; the first one of each is as the guide writes it.
const WORDS: [(&str, Key); 10] = [
    ("Depends on", Key::DependsOn),
    ("Gate", Key::Gates),
    ("Gates", Key::Gates),
    ("Files", Key::Files),
    ("Time limit", Key::TimeLimit),
    ("Cost limit", Key::CostLimit),
    ("Token limit", Key::TokenLimit),
    ("Depends", Key::DependsOn),
    ("Dependency", Key::DependsOn),
    ("Dependencies", Key::DependsOn),
];

impl Key {
    /// Its name, as the guide writes it.
    pub(super) fn name(self) -> &'static str {
        WORDS.iter().find(|(_, key)| *key == self).map_or("", |(word, _)| word)
    }

    /// A line that is right.
    pub(super) const fn example(self) -> &'static str {
        match self {
            Self::DependsOn => "- Depends on: NAME",
            Self::Gates => "- Gate: cargo test",
            Self::Files => "- Files: src/**, docs/",
            Self::TimeLimit => "- Time limit: 30m",
            Self::CostLimit => "- Cost limit: $5",
            Self::TokenLimit => "- Token limit: 2M",
        }
    }
}

/// A line with a key. Ranges are in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyLine {
    pub(super) key: Key,
    /// The key as it is written.
    pub(super) word: Range<usize>,
    /// What stands in parentheses behind it.
    pub(super) label: Option<Range<usize>>,
    /// What comes behind the colon; empty where it is below.
    pub(super) value: Range<usize>,
    /// How far in the line begins.
    pub(super) indent: usize,
    /// Whether it is an item of a list.
    pub(super) is_item: bool,
}

/// What a line looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyMatch {
    Key(KeyLine),
    /// Like a key that is written wrong: where, and what was meant.
    Near(Range<usize>, &'static str),
}

/// A key with a label is not longer.
const HEAD_BYTES_MAX: usize = 120;

/// The signs of bold, of italics and of code.
const MARKS: [char; 3] = ['*', '_', '`'];

/// KeyMatch at a line that is neither code nor heading. One that is further in than that is code, or belongs to
/// something else.
pub(super) fn look(line: &str, indent_max: usize) -> Option<KeyMatch> {
    let indent = indent(line);
    if indent > indent_max {
        return None;
    }
    let item = bullet(line);
    let start = item.map_or(line.len() - line.trim_start().len(), |item| item.content);
    let content = &line[start..];
    let begin = content.len() - content.trim_start_matches(MARKS).len();
    let marks = &content[..begin];
    let colon = colon(content)?;
    let head = content.get(begin..colon)?;
    let (name, label) = split_label(head)?;
    let word = start + begin..start + begin + name.trim_end().trim_end_matches(MARKS).len();
    let said = plain(name);
    let known = WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(&said));
    let Some((_, key)) = known else {
        return near(&said).map(|meant| KeyMatch::Near(word, meant));
    };
    let mut value = colon + 1..content.trim_end().len();
    // What was opened before the key is closed before the colon, behind it, or at the end of the line.
    if !marks.is_empty() && !head.contains(marks) {
        let rest = &content[value.clone()];
        if rest.starts_with(marks) {
            value.start += marks.len();
        } else if rest.ends_with(marks) {
            value.end -= marks.len();
        }
    }
    let rest = &content[value.clone()];
    let from = start + value.start + (rest.len() - rest.trim_start().len());
    let to = (start + value.start + rest.trim_end().len()).max(from);
    Some(KeyMatch::Key(KeyLine {
        key: *key,
        word,
        label: label.map(|label| start + begin + label.start..start + begin + label.end),
        value: from..to,
        indent,
        is_item: item.is_some(),
    }))
}

/// Where the colon behind the key is; one in parentheses is part of a label.
fn colon(content: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in content.char_indices().take_while(|(at, _)| *at < HEAD_BYTES_MAX) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// The key, and the range of what stands in parentheses behind it.
fn split_label(head: &str) -> Option<(&str, Option<Range<usize>>)> {
    let Some(open) = head.find('(') else { return Some((head, None)) };
    let end = head.trim_end().trim_end_matches(MARKS).trim_end();
    let close = end.strip_suffix(')')?.len();
    Some((&head[..open], Some(open + 1..close)))
}

/// A key without its marks, with single spaces.
fn plain(name: &str) -> String {
    let words = name.replace(['*', '`'], "").replace(['_', '-'], " ");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn near(said: &str) -> Option<&'static str> {
    const WORDS_MAX: usize = 3;
    if said.split(' ').count() > WORDS_MAX {
        return None;
    }
    let joined = |word: &str| word.replace(' ', "_");
    let words: Vec<String> = WORDS.iter().map(|(word, _)| joined(word)).collect();
    let meant = nearest(&joined(said), words.iter().map(String::as_str))?;
    let at = words.iter().position(|word| word == meant)?;
    Some(WORDS[at].0)
}

/// Whether a heading says that gates are below.
fn is_gates_heading(text: &str) -> bool {
    let said = plain(text.trim_end_matches(':'));
    said.eq_ignore_ascii_case("gates") || said.eq_ignore_ascii_case("gate")
}

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
pub(super) fn read_body(
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
        if let Some(next) = reader.note(at, is_fresh) {
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
                if !is_gates_heading(&row.text[content.clone()]) {
                    return None;
                }
                let (values, next) = self.below(at + 1, Key::Gates, None);
                let place = self.page.place(at, content);
                self.add(KeyNote { key: Key::Gates, place, label: None, values });
                return Some(next);
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
                self.add(KeyNote { key: line.key, place, label, values });
            }
            return next;
        }
        let (text, next) = match line.is_item {
            true => self.joined(at, line.value.clone(), line.indent),
            false => (text[line.value.clone()].to_owned(), at + 1),
        };
        let values = vec![KeyValue {
            text,
            place: self.page.place(at, &line.value),
            form: ValueForm::Inline,
        }];
        self.add(KeyNote { key: line.key, place, label, values });
        next
    }

    fn add(&mut self, note: KeyNote) {
        let KeyNote { key, place, label, values } = &note;
        if let Some((_, place)) = label.as_ref().filter(|_| *key != Key::Gates) {
            let message = format!("`{}` has nothing in parentheses", key.name());
            self.errors.push(place.error(message, format!("write `{}`", key.example())));
        }
        if values.is_empty() {
            let message = format!("nothing stands behind `{}`", key.name());
            self.errors.push(place.error(message, format!("for example `{}`", key.example())));
        }
        self.notes.push(note);
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
