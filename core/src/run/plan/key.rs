//! A line that says something about a phase: `- Depends on: A`, `**Gate (lint):** cargo clippy`.

use std::ops::Range;

use super::page::{bullet, indent};
use crate::suggest::nearest;

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

/// Each word for a key, as the guide writes it and as people do.
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
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DependsOn => "Depends on",
            Self::Gates => "Gate",
            Self::Files => "Files",
            Self::TimeLimit => "Time limit",
            Self::CostLimit => "Cost limit",
            Self::TokenLimit => "Token limit",
        }
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
pub(super) fn is_gates_heading(text: &str) -> bool {
    let said = plain(text.trim_end_matches(':'));
    said.eq_ignore_ascii_case("gates") || said.eq_ignore_ascii_case("gate")
}
