//! Changes to a text, as the lines that people read before they agree.

use std::ops::Range;

use super::wrapper::{ClientServer, SpannedText, quote};
use super::{Edit, apply};
use crate::audit::redact::{redact_args, redact_text};
use crate::limits::{ADOPT_DIFF_CHARS_MAX, ADOPT_DIFF_LINE_BYTES_MAX};
use crate::text::{cut, harmless};

/// Lines that are shown before and after a change.
const CONTEXT: usize = 3;

/// Characters of a long line that are shown before what changed in it.
const CHARS_BEFORE: usize = 40;

/// A line of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    /// What it is.
    pub mark: DiffMark,
    /// The line, safe to print.
    pub text: String,
}

/// What a line of a diff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffMark {
    /// Says which lines follow.
    Place,
    /// Stays.
    Same,
    /// Goes.
    Removed,
    /// Comes.
    Added,
}

impl DiffMark {
    /// What stands before the line.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Place => "",
            Self::Same => " ",
            Self::Removed => "-",
            Self::Added => "+",
        }
    }
}

/// The text with the secrets taken out of the command lines of all servers, and the same changes to
/// it. Names with secrets beside them are dealt with line by line.
pub(super) fn without_secrets(
    text: &str,
    servers: &[ClientServer],
    edits: &[Edit],
) -> (String, Vec<Edit>) {
    let mut masks: Vec<Edit> = servers.iter().flat_map(masks).collect();
    let is_apart = |mask: &Edit| {
        let next = edits.partition_point(|edit| edit.range.end <= mask.range.start);
        edits.get(next).is_none_or(|edit| mask.range.end <= edit.range.start)
    };
    masks.retain(is_apart);
    masks.sort_by_key(|mask| mask.range.start);
    masks.dedup();
    // The ends of the masks, before and after all masks up to there are in place.
    let mut ends = vec![(0, 0)];
    for mask in &masks {
        let (end, shown_end) = ends[ends.len() - 1];
        let shown_start = shown_end + mask.range.start - end;
        ends.push((mask.range.end, shown_start + mask.text.len()));
    }
    let place = |at: usize| {
        let (end, shown_end) = ends[ends.partition_point(|(end, _)| *end <= at) - 1];
        shown_end + at - end
    };
    let moved = |edit: &Edit| Edit {
        range: place(edit.range.start)..place(edit.range.end),
        text: edit.text.clone(),
    };
    (apply(text, &masks), edits.iter().map(moved).collect())
}

fn masks(server: &ClientServer) -> Vec<Edit> {
    let words: Vec<&SpannedText> = server.launch.words();
    let texts: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
    let pairs = words.into_iter().zip(texts.iter().zip(redact_args(&texts)));
    pairs
        .filter(|(_, (text, redacted))| *text != redacted)
        .map(|(word, (_, redacted))| Edit { range: word.range.clone(), text: quote(&redacted) })
        .collect()
}

/// Lines of the old text that change, and what they become.
struct Group {
    old: Range<usize>,
    new: Vec<String>,
}

pub(super) fn lines(text: &str, edits: &[Edit]) -> Vec<DiffLine> {
    let old: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
    let groups = groups(text, &old, edits);
    let mut shown = Vec::new();
    let (mut index, mut moved) = (0, 0_isize);
    while index < groups.len() {
        // Changes whose surroundings meet are shown together.
        let meets = |pair: &[Group]| pair[0].old.end + 2 * CONTEXT >= pair[1].old.start;
        let more = groups[index..].windows(2).take_while(|pair| meets(pair)).count();
        let hunk = &groups[index..=index + more];
        index += more + 1;
        let start = hunk[0].old.start.saturating_sub(CONTEXT);
        let end = (hunk[more].old.end + CONTEXT).min(old.len());
        let added: usize = hunk.iter().map(|group| group.new.len()).sum();
        let removed: usize = hunk.iter().map(|group| group.old.len()).sum();
        let (length, new_length) = (end - start, end - start + added - removed);
        let new_start = (start + 1).saturating_add_signed(moved);
        let place = format!("@@ -{},{length} +{new_start},{new_length} @@", start + 1);
        shown.push(DiffLine { mark: DiffMark::Place, text: place });
        let mut at = start;
        for group in hunk {
            shown.extend(old[at..group.old.start].iter().map(|line| same_line(line)));
            group.show(&old, &mut shown);
            at = group.old.end;
        }
        shown.extend(old[at..end].iter().map(|line| same_line(line)));
        moved += added.cast_signed() - removed.cast_signed();
    }
    shown
}

fn groups(text: &str, old: &[&str], edits: &[Edit]) -> Vec<Group> {
    let starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line_of = |at: usize| starts.partition_point(|start| *start <= at) - 1;
    let mut touched: Vec<(Range<usize>, Vec<Edit>)> = Vec::new();
    for edit in edits {
        let range = line_of(edit.range.start)..line_of(edit.range.end) + 1;
        match touched.last_mut() {
            Some((last, edits)) if range.start < last.end => {
                last.end = last.end.max(range.end);
                edits.push(edit.clone());
            }
            _ => touched.push((range, vec![edit.clone()])),
        }
    }
    let group = |(range, edits): (Range<usize>, Vec<Edit>)| {
        let start = starts[range.start];
        let end = starts.get(range.end).map_or(text.len(), |next| next - 1);
        let inside = |edit: &Edit| Edit {
            range: edit.range.start - start..edit.range.end - start,
            text: edit.text.clone(),
        };
        let edits: Vec<Edit> = edits.iter().map(inside).collect();
        let changed = apply(&text[start..end], &edits);
        let mut new: Vec<String> = changed.split('\n').map(str::to_owned).collect();
        let mut range = range.start..range.end.min(old.len());
        // An edit that begins at the end of a line leaves that line as it was.
        while range.len() > 1 && new.len() > 1 && new[0] == old[range.start] {
            new.remove(0);
            range.start += 1;
        }
        while range.len() > 1 && new.len() > 1 && new[new.len() - 1] == old[range.end - 1] {
            new.pop();
            range.end -= 1;
        }
        Group { old: range, new }
    };
    touched.into_iter().map(group).collect()
}

impl Group {
    fn show(&self, old: &[&str], shown: &mut Vec<DiffLine>) {
        let removed = &old[self.old.clone()];
        let (before, after) = (removed.first().copied(), self.new.first().map(String::as_str));
        let same = same_start(before.unwrap_or_default(), after.unwrap_or_default());
        let removed: Vec<String> = removed.iter().map(|line| safe(line, same)).collect();
        let added: Vec<String> = self.new.iter().map(|line| safe(line, same)).collect();
        // What is shown of a line begins shortly before its change.
        let (before, after) = (removed.first().map(String::as_str), added.first());
        let same = same_start(before.unwrap_or_default(), after.map_or("", String::as_str));
        let start = before.unwrap_or_default().get(..same).unwrap_or_default();
        let from = start.chars().count().saturating_sub(CHARS_BEFORE);
        let last = |lines: &[String]| lines.last().cloned().unwrap_or_default();
        let after = same_end(&last(&removed), &last(&added)).saturating_sub(CHARS_BEFORE);
        let parts = |mark, lines: &[String]| -> Vec<DiffLine> {
            let part = |line: &String| changed_part(mark, line, from, after);
            lines.iter().flat_map(part).collect()
        };
        shown.extend(parts(DiffMark::Removed, &removed));
        shown.extend(parts(DiffMark::Added, &added));
    }
}

/// How many bytes two lines have in common at their start, to the border of a character.
fn same_start(a: &str, b: &str) -> usize {
    let pairs = a.char_indices().zip(b.chars());
    pairs.take_while(|((_, a), b)| a == b).last().map_or(0, |((at, c), _)| at + c.len_utf8())
}

/// How many characters two lines have in common at their end.
fn same_end(a: &str, b: &str) -> usize {
    a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).count()
}

/// A line that changes. Of a long one, all but the first and last of so many characters, in lines that fit: who agrees to
/// a change has seen the whole of it.
fn changed_part(mark: DiffMark, text: &str, from: usize, after: usize) -> Vec<DiffLine> {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= ADOPT_DIFF_CHARS_MAX {
        return vec![DiffLine { mark, text: text.to_owned() }];
    }
    let end = chars.len().saturating_sub(after).max((from + ADOPT_DIFF_CHARS_MAX).min(chars.len()));
    let start = from.min(end.saturating_sub(ADOPT_DIFF_CHARS_MAX));
    let mut lines: Vec<String> =
        chars[start..end].chunks(ADOPT_DIFF_CHARS_MAX).map(|line| line.iter().collect()).collect();
    if let Some(first) = lines.first_mut().filter(|_| start > 0) {
        first.insert(0, '…');
    }
    if let Some(last) = lines.last_mut().filter(|_| end < chars.len()) {
        last.push('…');
    }
    lines.into_iter().map(|text| DiffLine { mark, text }).collect()
}

/// A line that stays.
fn same_line(line: &str) -> DiffLine {
    DiffLine { mark: DiffMark::Same, text: cut(&safe(line, 0), ADOPT_DIFF_CHARS_MAX) }
}

/// A line without its secrets, and without what a terminal would obey. Of a huge one, only what is
/// around the place is looked at.
fn safe(line: &str, place: usize) -> String {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() <= ADOPT_DIFF_LINE_BYTES_MAX {
        return harmless(&redact_text(line));
    }
    let start = line.floor_char_boundary(place.saturating_sub(ADOPT_DIFF_LINE_BYTES_MAX / 2));
    let end = line.floor_char_boundary(start + ADOPT_DIFF_LINE_BYTES_MAX);
    let (before, after) =
        (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", harmless(&redact_text(&line[start..end])))
}
