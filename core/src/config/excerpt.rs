//! The line of an error, quoted so that the carets stand under the right letters and no byte of a
//! hostile file reaches the terminal as a command.

use std::cell::Cell;
use std::iter::{RepeatN, repeat_n};
use std::ops::Range;

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
    pub(super) fn of(line: &str, span: Range<usize>) -> Self {
        let (before, from) = line.split_at(span.start.min(line.len()));
        let (mut lead, mut indent) = (Vec::new(), 0);
        for (shown, cells) in before.chars().rev().map(cell) {
            // The length counts too: a flood of combining marks takes no cell at all.
            if (indent + cells).max(lead.len()) > CELLS_BEFORE {
                lead.push(repeat_n('…', 1));
                indent += 1;
                break;
            }
            lead.push(shown);
            indent += cells;
        }
        let mut text: String = lead.into_iter().rev().flatten().collect();
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
pub(crate) struct Lines<'a> {
    pub(super) text: &'a str,
    starts: Vec<usize>,
    /// The last place that was located, with its column: the next one is often on the same line, and
    /// a file can be one line of a megabyte.
    last: Cell<(usize, usize)>,
}

impl<'a> Lines<'a> {
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
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// The text without what a terminal would obey.
pub fn harmless(text: &str) -> String {
    // Nearly all are.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    text.chars().flat_map(|c| cell(c).0).collect()
}

/// How many cells of a terminal a text takes that has nothing in it that a terminal would obey.
pub fn cells(text: &str) -> usize {
    text.chars().map(|c| cell(c).1).sum()
}

/// The text without what a terminal would obey, cut so that it takes no more than so many cells. The cut is
/// shown by `…`.
pub fn cut_to_cells(text: &str, cells_max: usize) -> String {
    // A flood of combining marks takes no cell at all, so the length counts too.
    let chars_max = cells_max.saturating_mul(4);
    let (mut shown, mut used) = (String::new(), 0);
    // How much of it still leaves room for the sign of the cut.
    let mut before_cut = 0;
    for (count, c) in text.chars().enumerate() {
        let (text, width) = cell(c);
        if used + width > cells_max || count >= chars_max {
            shown.truncate(before_cut);
            if cells_max > 0 {
                shown.push('…');
            }
            return shown;
        }
        shown.extend(text);
        used += width;
        if used < cells_max {
            before_cut = shown.len();
        }
    }
    shown
}

/// The text without what a terminal would obey but colours: those of `ESC [ … m` stay, and end where the text
/// does. Where no colours are wanted, they are left out.
pub fn harmless_but_colours(text: &str, wants_colours: bool) -> String {
    let (mut shown, mut rest, mut coloured) = (String::new(), text, false);
    while let Some(begin) = rest.find("\u{1b}[") {
        let after = &rest[begin + 2..];
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':');
        shown.extend(rest[..begin].chars().flat_map(|c| cell(c).0));
        match end.filter(|end| after[*end..].starts_with('m')) {
            Some(end) => {
                if wants_colours {
                    shown.push_str(&rest[begin..begin + 2 + end + 1]);
                    coloured = true;
                }
                rest = &after[end + 1..];
            }
            None => {
                shown.push_str("␛[");
                rest = after;
            }
        }
    }
    shown.extend(rest.chars().flat_map(|c| cell(c).0));
    if coloured {
        shown.push_str("\u{1b}[0m");
    }
    shown
}

/// Lines of a program as a terminal may be given them, each with its end: see [`harmless_but_colours`].
pub fn tame(bytes: &[u8], wants_colours: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut tamed = String::with_capacity(text.len());
    for line in text.lines() {
        tamed.push_str(&harmless_but_colours(line, wants_colours));
        tamed.push('\n');
    }
    tamed
}

/// The text without what a terminal would obey, cut to a length that fits in a sentence.
pub(crate) fn printable(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(|c| cell(c).0).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// How a character is shown, and how many cells that takes.
///
/// The ranges are those of UAX #11 (wide) and of the common combining marks: emoji that are joined
/// out of several are counted one by one.
fn cell(c: char) -> (RepeatN<char>, usize) {
    let (shown, cells) = match c {
        '\t' => return (repeat_n(' ', 4), 4),
        // Control pictures: U+2400 stands for NUL, and so on.
        '\0'..='\u{1f}' => (char::from_u32(0x2400 + u32::from(c)).unwrap_or('�'), 1),
        '\u{7f}' => ('␡', 1),
        // Other controls, and the marks that turn the direction of writing.
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200b}'
        | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => ('�', 1),
        '\u{300}'..='\u{36f}'
        | '\u{200c}'..='\u{200d}'
        | '\u{20d0}'..='\u{20ff}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' => (c, 0),
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{33ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{a000}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}' => (c, 2),
        _ => (c, 1),
    };
    (repeat_n(shown, 1), cells)
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
        let lines = Lines::new("ab\r\né = 1\n\nlast");
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
        assert_eq!(Lines::new("").locate(&(0..0)).1, 1);
    }

    #[test]
    fn texts_are_cut_to_the_cells_there_are() {
        for (text, max, wanted) in [
            ("plain", 5, "plain"),
            ("plain", 4, "pla…"),
            ("plain", 1, "…"),
            ("plain", 0, ""),
            ("", 0, ""),
            ("漢字", 4, "漢字"),
            ("漢字", 3, "漢…"),
            ("漢字", 2, "…"),
            ("a漢字", 3, "a…"),
            ("\u{1b}[2J", 4, "␛[2J"),
            ("e\u{301}e", 2, "e\u{301}e"),
        ] {
            let cut = cut_to_cells(text, max);
            assert_eq!(cut, wanted, "{text:?}");
            assert!(cells(&cut) <= max, "{text:?}");
        }
        let marks = format!("e{}", "\u{301}".repeat(100_000));
        assert!(cut_to_cells(&marks, 10).chars().count() <= 41);
    }

    #[test]
    fn only_colours_are_obeyed() {
        for (text, wanted) in [
            ("plain", "plain"),
            ("\u{1b}[31;1mred\u{1b}[0m!", "\u{1b}[31;1mred\u{1b}[0m!\u{1b}[0m"),
            ("\u{1b}[38:5:3mx", "\u{1b}[38:5:3mx\u{1b}[0m"),
            ("\u{1b}[2Jgone\u{1b}]0;title\u{7}", "␛[2Jgone␛]0;title␇"),
            ("\u{1b}[?25m", "␛[?25m"),
            ("\u{1b}\u{1b}[1mx", "␛\u{1b}[1mx\u{1b}[0m"),
            ("end\u{1b}[", "end␛["),
            ("\u{1b}[31", "␛[31"),
            ("\u{9b}2Ja\tb\rc", "�2Ja    b␍c"),
        ] {
            assert_eq!(harmless_but_colours(text, true), wanted, "{text:?}");
        }
        assert_eq!(harmless_but_colours("\u{1b}[31mred\u{1b}[2J", false), "red␛[2J");
    }

    #[test]
    fn texts_are_cut_and_made_harmless() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}"), "a␛]0;x␇");
        assert_eq!(printable(&"x".repeat(1000)).chars().count(), 61);
    }
}
