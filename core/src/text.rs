//! Owns the cutting of texts and what of them a terminal is given. Driven by every module that keeps, sends
//! or shows texts of other programs. Never passes on a control sequence other than colours; `terminal_filter.rs` also passes
//! moves of the cursor.

mod terminal_filter;

use std::iter::{RepeatN, repeat_n};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

pub use self::terminal_filter::TerminalFilter;

/// The first characters of a text.
pub fn head(text: &str, chars_max: usize) -> &str {
    // No text has more characters than bytes, and most are short.
    match text.len() <= chars_max {
        true => text,
        false => text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end]),
    }
}

/// The last characters of a text.
pub fn tail(text: &str, chars_max: usize) -> &str {
    match (text.len() <= chars_max, chars_max.checked_sub(1)) {
        (true, _) => text,
        (false, None) => "",
        (false, Some(last)) => {
            text.char_indices().rev().nth(last).map_or(text, |(begin, _)| &text[begin..])
        }
    }
}

/// The first characters of a text; where that is not all, `…` follows them.
pub fn cut(text: &str, chars_max: usize) -> String {
    let kept = head(text, chars_max);
    if kept.len() == text.len() { text.to_owned() } else { format!("{kept}…") }
}

/// The same of bytes in which any may be.
pub fn cut_bytes(bytes: &[u8], chars_max: usize) -> String {
    // No character has more than four bytes.
    let enough = &bytes[..bytes.len().min(4 * (chars_max + 1))];
    cut(String::from_utf8_lossy(enough).trim(), chars_max)
}

/// The same as one line: every white space is one blank.
pub fn cut_to_line(text: &str, chars_max: usize) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        // The rest is cut off.
        if line.len() > chars_max * 4 {
            break;
        }
        line.push(' ');
        line.push_str(word);
    }
    cut(&line, chars_max)
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
    drawn(text).map(|(_, cells)| cells).sum()
}

/// The text without what a terminal would obey, cut so that it takes no more than so many cells. The cut is
/// shown by `…`.
pub fn cut_to_cells(text: &str, cells_max: usize) -> String {
    // A flood of combining marks takes no cell at all, so the length counts too.
    let chars_max = cells_max.saturating_mul(4);
    let (mut shown, mut used) = (String::new(), 0);
    // How much of it still leaves room for the sign of the cut.
    let mut before_cut = 0;
    for (count, (text, width)) in drawn(text).enumerate() {
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
    harmless(&cut(text, 60))
}

/// The characters of a text as they are shown, each with the cells that it adds.
fn drawn(text: &str) -> impl Iterator<Item = (RepeatN<char>, usize)> {
    let mut before = None;
    text.chars().map(move |c| {
        let (shown, mut cells) = cell(c);
        // This selector makes some narrow signs before it emoji, which are wide.
        if let ('\u{fe0f}', Some(before)) = (c, before) {
            let both = String::from_iter([before, c]);
            cells = both.width().saturating_sub(cell(before).1);
        }
        before = Some(c);
        (shown, cells)
    })
}

/// A character as it is shown, and the cells that takes. Emoji joined out of several count one by one.
pub(crate) fn cell(c: char) -> (RepeatN<char>, usize) {
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
        _ => (c, c.width().unwrap_or(0)),
    };
    (repeat_n(shown, 1), cells)
}

/// A text in which `%20` and the like are what they stand for; none where that is no text.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let hex = match first {
            b'%' => more.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit)),
            _ => None,
        };
        let hex = hex.and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_characters() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc…"),
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äöü…"),
            ("äöü", 0, "…"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, max), expected);
            assert_eq!(cut_bytes(text.as_bytes(), max), expected);
        }
        assert_eq!(cut_bytes(b"\xff\xfe", 9), "\u{fffd}\u{fffd}");
        assert_eq!(cut_to_line(" a\n  b\tc ", 10), "a b c");
        assert_eq!(cut_to_line(&"word ".repeat(100_000), 9), "word word…");
    }

    #[test]
    fn ends_of_texts_begin_at_characters() {
        for (text, max, expected) in
            [("äöü", 3, "äöü"), ("äöü", 2, "öü"), ("äöü", 0, ""), ("abcd", 1, "d"), ("", 0, "")]
        {
            assert_eq!(tail(text, max), expected);
        }
    }

    #[test]
    fn signs_that_agents_print_take_the_cells_that_terminals_give_them() {
        for (text, wanted) in [
            ("✅", 2),
            ("❌", 2),
            ("⭐", 2),
            ("🚀", 2),
            ("漢", 2),
            ("✓", 1),
            ("→", 1),
            ("…", 1),
            ("e\u{301}", 1),
            ("⚠", 1),
            ("⚠\u{fe0f}", 2),
            ("a\u{fe0f}", 1),
            ("\u{1b}", 1),
            ("\t", 4),
        ] {
            assert_eq!(cells(text), wanted, "{text:?}");
        }
        assert_eq!(cut_to_cells("✅ done", 5), "✅ d…");
        assert_eq!(cut_to_cells("⚠\u{fe0f}⚠\u{fe0f}", 3), "⚠\u{fe0f}…");
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
