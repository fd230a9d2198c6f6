//! Marks within a line of Markdown: emphasis, pieces of code, links.

use std::ops::Range;

/// A link to something. Ranges are in the text that it was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// All of it.
    pub(super) span: Range<usize>,
    /// What is shown.
    pub(super) text: Range<usize>,
    /// Where it leads.
    pub(super) target: Range<usize>,
}

/// The first link in a text that is no picture. It is near the beginning.
pub(super) fn link(text: &str) -> Option<Link> {
    const BYTES_MAX: usize = 4_000;
    let end = (0..=BYTES_MAX.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let text = &text[..end];
    let mut from = 0;
    // A `](` that is not part of a link is passed over, so each is looked at once.
    while let Some(middle) = text[from..].find("](").map(|at| from + at) {
        from = middle + 2;
        let Some(open) = opening(&text[..middle]) else { continue };
        let Some(length) = closing(&text[middle + 2..]) else { continue };
        if text[..open].ends_with('!') {
            continue;
        }
        let inner = &text[middle + 2..middle + 2 + length];
        // A title behind the target, and pointed brackets around it.
        let target = match inner.trim().strip_prefix('<') {
            Some(rest) => rest.split('>').next().unwrap_or_default(),
            None => inner.split_whitespace().next().unwrap_or_default(),
        };
        let start = middle + 2 + inner.find(target).unwrap_or(0);
        return Some(Link {
            span: open..middle + 2 + length + 1,
            text: open + 1..middle,
            target: start..start + target.len(),
        });
    }
    None
}

/// The `[` that belongs to the `]` behind the text.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices().rev() {
        match c {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the `)` is that belongs to the `(` before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The range of a text without what is around it as a whole: blanks, emphasis, code.
pub(super) fn bare(text: &str) -> Range<usize> {
    let mut range = trimmed(text, 0..text.len());
    for marks in ["***", "**", "__", "*", "_", "``", "`"] {
        let inner = &text[range.clone()];
        let is_around = inner.len() > marks.len() * 2
            && inner.starts_with(marks)
            && inner.ends_with(marks)
            && !inner[marks.len()..inner.len() - marks.len()].contains(marks);
        if is_around {
            range = trimmed(text, range.start + marks.len()..range.end - marks.len());
        }
    }
    range
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let inner = &text[range.clone()];
    let start = range.start + (inner.len() - inner.trim_start().len());
    start..(range.start + inner.trim_end().len()).max(start)
}

/// A text that is nothing but pieces of code with commas or `and` between them; none where there is anything else.
pub(super) fn codes(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.trim();
    let mut codes = Vec::new();
    while !rest.is_empty() {
        let count = rest.bytes().take_while(|byte| *byte == b'`').count();
        if count == 0 {
            return None;
        }
        let inner = &rest[count..];
        let end = closing_run(inner, count)?;
        codes.push(unpadded(&inner[..end]));
        rest = inner[end + count..].trim_start();
        if let Some(after) = rest.strip_prefix([',', ';', '.']) {
            rest = after.trim_start();
        }
        rest = rest.strip_prefix("and ").map_or(rest, str::trim_start);
    }
    (!codes.is_empty()).then_some(codes)
}

/// Where a run of exactly so many signs of code begins.
fn closing_run(text: &str, count: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let run = text[at + found..].bytes().take_while(|byte| *byte == b'`').count();
        if run == count {
            return Some(at + found);
        }
        at += found + run;
    }
    None
}

/// Code without the blank on each side that keeps its own signs apart.
fn unpadded(code: &str) -> &str {
    code.strip_prefix(' ').and_then(|code| code.strip_suffix(' ')).unwrap_or(code)
}
