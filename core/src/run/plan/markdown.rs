//! Reads as much of Markdown as it takes to leave the rest of it alone: which lines of a file are headings, code or
//! comments, and where links and pieces of code stand within a line. Driven by `parse.rs` and `keys.rs`. Never knows a
//! phase.

use std::ops::Range;

use super::{PlanError, SourcePosition};
use crate::error_excerpt::LineIndex;
use crate::limits::PLAN_FILE_BYTES_MAX;
use crate::text::harmless;

/// A file, line by line.
pub(super) struct MarkdownPage<'a> {
    /// As it is named in errors.
    pub(super) path: String,
    lines: LineIndex<'a>,
    pub(super) rows: Vec<PageLine<'a>>,
    /// The line of a code block or a comment that nothing closes, and which of them it is.
    unclosed: Option<(usize, BlockState)>,
}

/// One line, without its end.
pub(super) struct PageLine<'a> {
    pub(super) start: usize,
    pub(super) text: &'a str,
    pub(super) kind: LineKind,
}

/// What sort of line it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Blank,
    /// With the range of what it says, in the line.
    Heading {
        level: usize,
        content: Range<usize>,
    },
    /// The first line of a code block.
    Open,
    /// A line in a code block.
    Code,
    /// The last line of a code block.
    Close,
    /// A line of a comment.
    Comment,
    Text,
}

/// The start of an item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bullet {
    /// How far in it stands.
    pub(super) indent: usize,
    /// Where what it says begins, in the line.
    pub(super) content: usize,
}

/// The text of a file, or what is wrong with its bytes.
pub(super) fn text_of<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a str, Box<PlanError>> {
    let path = harmless(path);
    if bytes.len() > PLAN_FILE_BYTES_MAX {
        let message = format!("the file is larger than {}KiB", PLAN_FILE_BYTES_MAX / 1024);
        let hint = "split it into files, and link them";
        let start = SourcePosition { path, line: 1, column: 1, excerpt: None };
        return Err(Box::new(start.error(message, hint)));
    }
    // Editors on Windows put the mark of UTF-8 at the start; it is no part of the text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let wrong = |at: usize, message: &str| {
        // Up to there, the text with its replacement marks is the same as the bytes.
        let text = String::from_utf8_lossy(bytes);
        let (line, column, excerpt) = LineIndex::new(&text).locate(&(at..at + 1));
        let place = SourcePosition { path: path.clone(), line, column, excerpt: Some(excerpt) };
        Box::new(place.error(message, "save it as UTF-8"))
    };
    match std::str::from_utf8(bytes) {
        Err(error) => Err(wrong(error.valid_up_to(), "the file is not UTF-8 text")),
        Ok(text) => match text.find('\0') {
            Some(at) => Err(wrong(at, "the file has a NUL in it, and is no text")),
            None => Ok(text),
        },
    }
}

impl<'a> MarkdownPage<'a> {
    pub(super) fn new(path: &str, text: &'a str) -> Self {
        let (path, lines) = (harmless(path), LineIndex::new(text));
        let mut page = Self { path, lines, rows: Vec::new(), unclosed: None };
        let mut start = 0;
        let mut within = BlockState::Prose;
        for line in text.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let bare = bare.strip_suffix('\r').unwrap_or(bare);
            let (kind, next) = classify(bare, within);
            let row = page.rows.len();
            page.unclosed = match next {
                BlockState::Prose => None,
                _ => page.unclosed.or(Some((row, next))),
            };
            within = next;
            page.rows.push(PageLine { start, text: bare, kind });
            start += line.len();
        }
        page
    }

    /// The place of a part of a line.
    pub(super) fn place(&self, row: usize, part: &Range<usize>) -> SourcePosition {
        let start = self.rows.get(row).map_or(0, |row| row.start);
        let (line, column, excerpt) = self.lines.locate(&(start + part.start..start + part.end));
        SourcePosition { path: self.path.clone(), line, column, excerpt: Some(excerpt) }
    }

    /// The place of what a line says.
    pub(super) fn place_of_row(&self, row: usize) -> SourcePosition {
        let text = self.rows.get(row).map_or("", |row| row.text);
        let indent = text.len() - text.trim_start().len();
        self.place(row, &(indent..text.trim_end().len().max(indent)))
    }

    /// What is wrong with the page as Markdown.
    pub(super) fn check(&self) -> Option<PlanError> {
        let (row, block) = self.unclosed?;
        let (what, hint) = match block {
            BlockState::Comment => ("comment", "end it with `-->`"),
            _ => ("code block", "end it with a line of the same signs"),
        };
        let message = format!("the {what} that begins here never ends");
        Some(self.place_of_row(row).error(message, hint))
    }

    /// What the lines say, without empty ones at both ends, and without two of them where lines between were
    /// taken out.
    pub(super) fn prose(&self, rows: &[usize]) -> String {
        let mut text = String::new();
        let mut last = None;
        let mut is_gap = false;
        for &at in rows {
            let row = &self.rows[at];
            is_gap = is_gap || last.is_some_and(|last: usize| last + 1 < at);
            last = Some(at);
            if row.kind != LineKind::Blank {
                is_gap = false;
            } else if text.is_empty() || is_gap && text.ends_with("\n\n") {
                continue;
            }
            text.push_str(row.text);
            text.push('\n');
        }
        text.trim_end().to_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    Prose,
    Code { sign: char, count: usize },
    Comment,
}

/// What a line is, and what the next one is within.
fn classify(line: &str, within: BlockState) -> (LineKind, BlockState) {
    let trimmed = line.trim();
    match within {
        BlockState::Code { sign, count } => {
            let run = trimmed.chars().take_while(|c| *c == sign).count();
            match run >= count && trimmed.len() == run {
                true => (LineKind::Close, BlockState::Prose),
                false => (LineKind::Code, within),
            }
        }
        BlockState::Comment => match trimmed.find("-->") {
            None => (LineKind::Comment, within),
            // What comes behind a comment is no comment: it must not be lost.
            Some(at) if at + 3 < trimmed.len() => (LineKind::Text, BlockState::Prose),
            Some(_) => (LineKind::Comment, BlockState::Prose),
        },
        BlockState::Prose => begin(line, trimmed),
    }
}

fn begin(line: &str, trimmed: &str) -> (LineKind, BlockState) {
    if trimmed.is_empty() {
        return (LineKind::Blank, BlockState::Prose);
    }
    let content = bullet(line).map_or(trimmed, |bullet| line[bullet.content..].trim());
    for sign in ['`', '~'] {
        let count = content.chars().take_while(|c| *c == sign).count();
        // A line with more of the signs behind is a piece of code in a sentence.
        if count >= 3 && !(sign == '`' && content[count..].contains(sign)) {
            return (LineKind::Open, BlockState::Code { sign, count });
        }
    }
    if let Some(rest) = trimmed.strip_prefix("<!--") {
        return match rest.find("-->") {
            None => (LineKind::Comment, BlockState::Comment),
            Some(at) if at + 3 < rest.len() => (LineKind::Text, BlockState::Prose),
            Some(_) => (LineKind::Comment, BlockState::Prose),
        };
    }
    match heading(line) {
        Some((level, content)) => (LineKind::Heading { level, content }, BlockState::Prose),
        None => (LineKind::Text, BlockState::Prose),
    }
}

/// The level of a heading, and the range of what it says.
fn heading(line: &str) -> Option<(usize, Range<usize>)> {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let level = line[indent..].chars().take_while(|c| *c == '#').count();
    let after = &line[indent + level..];
    if indent > 3
        || !(1..=6).contains(&level)
        || !(after.is_empty() || after.starts_with([' ', '\t']))
    {
        return None;
    }
    let mut text = after.trim();
    // Signs at the end close a heading, where a space is before them.
    let open = text.trim_end_matches('#');
    if open.is_empty() || open.ends_with([' ', '\t']) {
        text = open.trim_end();
    }
    let start = line.len() - after.trim_start().len();
    Some((level, start..start + text.len()))
}

/// How far in a line begins.
pub(super) fn indent(line: &str) -> usize {
    let blanks = line.chars().take_while(|c| matches!(c, ' ' | '\t'));
    blanks.map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

/// The start of an item: `-`, `*`, `+`, `1.` or `1)`, with a box to tick or without.
pub(super) fn bullet(line: &str) -> Option<Bullet> {
    let body = line.trim_start_matches([' ', '\t']);
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    let sign = match body.as_bytes().get(digits)? {
        b'-' | b'*' | b'+' if digits == 0 => 1,
        b'.' | b')' if (1..=9).contains(&digits) => digits + 1,
        _ => return None,
    };
    let after = &body[sign..];
    if !after.is_empty() && !after.starts_with([' ', '\t']) {
        return None;
    }
    let said = after.trim_start();
    let boxed = ["[ ] ", "[x] ", "[X] "].iter().find_map(|tick| said.strip_prefix(tick));
    let said = boxed.map_or(said, str::trim_start);
    Some(Bullet { indent: indent(line), content: line.len() - said.len() })
}

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
        let before = text[..middle].char_indices().rev();
        let Some(open) = unmatched(before, ']', '[') else { continue };
        let behind = text[from..].char_indices();
        let Some(length) = unmatched(behind, '(', ')') else { continue };
        if text[..open].ends_with('!') {
            continue;
        }
        let inner = &text[from..from + length];
        // A title behind the target, and pointed brackets around it.
        let target = match inner.trim().strip_prefix('<') {
            Some(rest) => rest.split('>').next().unwrap_or_default(),
            None => inner.split_whitespace().next().unwrap_or_default(),
        };
        let start = from + inner.find(target).unwrap_or(0);
        return Some(Link {
            span: open..from + length + 1,
            text: open + 1..middle,
            target: start..start + target.len(),
        });
    }
    None
}

/// The first `wanted` sign that belongs to none of the other kind before it.
fn unmatched(
    signs: impl Iterator<Item = (usize, char)>,
    other: char,
    wanted: char,
) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in signs {
        if c == other {
            depth += 1;
        } else if c == wanted && depth == 0 {
            return Some(at);
        } else if c == wanted {
            depth -= 1;
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
        // The blank on each side keeps its own signs apart.
        let code = &inner[..end];
        let unpadded = code.strip_prefix(' ').and_then(|code| code.strip_suffix(' '));
        codes.push(unpadded.unwrap_or(code));
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
