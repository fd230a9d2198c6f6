//! Owns the quoted line of an error, with carets under the right cells. Driven by the readers of files.
//! Never shows a control character of the file as it is.

use std::cell::Cell;
use std::ops::Range;

use crate::text::{cell, cells, harmless};

/// Cells of the line shown before the span, and from its start on; the rest is cut.
const CELLS_BEFORE: usize = 40;
const CELLS_AFTER: usize = 60;

/// A quoted line and the place of the carets below it, in cells of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The line, safe to print; where it is long, its part around the carets.
    pub text: String,
    /// How far in the carets begin.
    pub indent: usize,
    /// How many there are; at least one.
    pub carets: usize,
}

impl Excerpt {
    /// Quotes a line. The span is in bytes, on borders of characters; what of it lies outside of the
    /// line is left out.
    pub(crate) fn of(line: &str, span: Range<usize>) -> Self {
        let (before, from) = line.split_at(span.start.min(line.len()));
        let (mut start, mut used) = (before.len(), 0);
        for (count, (offset, c)) in before.char_indices().rev().enumerate() {
            used += cell(c).1;
            // The count bounds a flood of combining marks, which take no cell.
            if used.max(count) > CELLS_BEFORE {
                break;
            }
            start = offset;
        }
        let lead = if start > 0 { "…" } else { "" };
        let mut text = format!("{lead}{}", harmless(&before[start..]));
        let indent = cells(&text);
        let (mut carets, mut after) = (0, 0);
        for (count, (offset, c)) in from.char_indices().enumerate() {
            let (shown, cells) = cell(c);
            if (after + cells).max(count) > CELLS_AFTER {
                text.push('…');
                break;
            }
            text.extend(shown);
            after += cells;
            if before.len() + offset < span.end {
                carets += cells;
            }
        }
        Self { text, indent, carets: carets.max(1) }
    }
}

/// A text with the starts of its lines.
pub(crate) struct LineIndex<'a> {
    pub(crate) text: &'a str,
    starts: Vec<usize>,
    /// The last place that was located, with its column: the next one is often on the same line, and
    /// a file can be one line of a megabyte.
    last: Cell<(usize, usize)>,
}

impl<'a> LineIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(starts).collect();
        Self { text, starts, last: Cell::new((0, 1)) }
    }

    /// The line and column (in characters) where the span begins, both from 1, and the line quoted.
    pub(crate) fn locate(&self, span: &Range<usize>) -> (usize, usize, Excerpt) {
        let start = self.border(span.start);
        let line = self.starts.partition_point(|at| *at <= start);
        let begin = self.starts[line - 1];
        let end = self.starts.get(line).map_or(self.text.len(), |next| next - 1);
        let text = &self.text[begin..end];
        let text = text.strip_suffix('\r').unwrap_or(text);
        let start = (start - begin).min(text.len());
        let end = self.border(span.end).saturating_sub(begin);
        let column = self.column(begin, begin + start);
        (line, column, Excerpt::of(text, start..end.max(start)))
    }

    /// The column of an offset in the line that begins there.
    fn column(&self, begin: usize, offset: usize) -> usize {
        let (from, column) = match self.last.get() {
            (last, column) if (begin..=offset).contains(&last) => (last, column),
            _ => (begin, 1),
        };
        let column = column + self.text[from..offset].chars().count();
        self.last.set((offset, column));
        column
    }

    /// The border of a character at or before the offset.
    fn border(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, part: &str) -> String {
        let start = text.find(part).unwrap();
        let excerpt = Excerpt::of(text, start..start + part.len());
        let carets = "^".repeat(excerpt.carets);
        format!("{}\n{}{carets}", excerpt.text, " ".repeat(excerpt.indent))
    }

    #[test]
    fn carets_stand_under_the_span() {
        let cases = [
            ("a = 1", "1", "a = 1\n    ^"),
            ("\ta = 1", "a", "    a = 1\n    ^"),
            ("a = \"\tx\"", "\"\tx\"", "a = \"    x\"\n    ^^^^^^^"),
            ("\"漢字\" = 12", "12", "\"漢字\" = 12\n         ^^"),
            ("\"e\u{301}\" = 1", "1", "\"e\u{301}\" = 1\n      ^"),
            ("é = 1", "é", "é = 1\n^"),
            ("a\0\u{1b}[31m = 2", "2", "a␀␛[31m = 2\n          ^"),
            ("\u{202e}a = 1", "a", "�a = 1\n ^"),
        ];
        for (text, part, wanted) in cases {
            assert_eq!(drawn(text, part), wanted, "{text:?}");
        }
    }

    #[test]
    fn long_lines_are_cut_around_the_carets() {
        let line = format!("{}HERE{}", "a".repeat(100_000), "b".repeat(100_000));
        let before = "a".repeat(40);
        let after = "b".repeat(56);
        let wanted = format!("…{before}HERE{after}…\n{}^^^^", " ".repeat(41));
        assert_eq!(drawn(&line, "HERE"), wanted);
        assert_eq!(Excerpt::of(&line, 0..line.len()).carets, 60);
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let lines = LineIndex::new("ab\r\né = 1\n\nlast");
        let at = |span: Range<usize>| {
            let (line, column, excerpt) = lines.locate(&span);
            (line, column, excerpt.text, excerpt.carets)
        };
        assert_eq!(at(0..1), (1, 1, "ab".to_owned(), 1));
        assert_eq!(at(2..3), (1, 3, "ab".to_owned(), 1));
        assert_eq!(at(4..6), (2, 1, "é = 1".to_owned(), 1));
        // Within the two bytes of the é.
        assert_eq!(at(5..6), (2, 1, "é = 1".to_owned(), 1));
        assert_eq!(at(9..10), (2, 5, "é = 1".to_owned(), 1));
        // Over the end of the line, and of the text.
        assert_eq!(at(9..14), (2, 5, "é = 1".to_owned(), 1));
        assert_eq!(at(11..11), (3, 1, String::new(), 1));
        assert_eq!(at(16..99), (4, 5, "last".to_owned(), 1));
        assert_eq!(at(99..99), (4, 5, "last".to_owned(), 1));
        assert_eq!(LineIndex::new("").locate(&(0..0)).1, 1);
    }
}
