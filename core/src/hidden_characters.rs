//! Owns which characters a reader does not see, though a model or a terminal reads them, and their visible form
//! `\u{202e}`: in what servers on other machines say about themselves, and, more strictly and with long runs of blanks,
//! in what `afresh trust` shows for acceptance. Never changes any other character.

use std::borrow::Cow;

use crate::limits::{TRUST_BLANKS_MAX, TRUST_LINE_CHARS_MAX};
use crate::text::cell;

/// Whether a character is a control other than tab and newline, has no width, turns the direction of writing, or is a
/// tag.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\t' | '\n' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        // The last selector of a variant is in most emoji, and says nothing.
        | '\u{fe00}'..='\u{fe0e}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => c.is_control(),
    }
}

/// A text in which hidden characters stand as `\u{202e}`. The two characters that end a line on Windows stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match is_hidden(c) && !(c == '\r' && rest.peek() == Some(&'\n')) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// The same inside of the strings of a JSON text, where they may be written as escapes too. All other bytes stay.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let (mut shown, mut copied) = (String::new(), 0);
    let (mut at, mut is_string) = (0, false);
    while let Some(c) = json[at..].chars().next() {
        let (length, meant) = match c {
            '\\' if is_string => escape(&json[at..]),
            _ => (c.len_utf8(), Some(c)),
        };
        if meant == Some('"') {
            is_string = !is_string;
        }
        if let Some(hidden) = meant.filter(|c| is_string && is_hidden(*c)) {
            shown.push_str(&json[copied..at]);
            shown.push('\\');
            shown.extend(hidden.escape_unicode());
            copied = at + length;
        }
        at += length;
    }
    match copied {
        0 => Cow::Borrowed(json),
        _ => Cow::Owned(shown + &json[copied..]),
    }
}

/// The length of the escape sequence that a text begins with, and the character that it stands for where that can be
/// a hidden one.
fn escape(text: &str) -> (usize, Option<char>) {
    let code = |at: usize| {
        let hex = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u32::from_str_radix(hex, 16).ok()
    };
    match text.as_bytes().get(1) {
        Some(b'u') => match (code(0), code(6)) {
            (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                (12, char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)))
            }
            // Half a pair is no character. A quote that is written as an escape ends no string.
            (Some(code), _) => (6, char::from_u32(code).filter(|c| *c != '"')),
            (None, _) => (2, None),
        },
        Some(b'b') => (2, Some('\u{8}')),
        Some(b'f') => (2, Some('\u{c}')),
        Some(b'r') => (2, Some('\r').filter(|_| !text[2..].starts_with("\\n"))),
        Some(_) => (1 + text[1..].chars().next().map_or(0, char::len_utf8), None),
        None => (1, None),
    }
}

/// A line as a user can judge it: what is invisible, or turns the direction of writing, is written out, and so are
/// many blanks. It is broken into lines that fit a terminal, so that no part of it is out of sight.
pub fn visible_lines(line: &str) -> Vec<String> {
    let mut shown = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c != ' ' {
            push_visible(&mut shown, c);
            continue;
        }
        let mut blanks = 1;
        while rest.next_if_eq(&' ').is_some() {
            blanks += 1;
        }
        match blanks {
            0..=TRUST_BLANKS_MAX => shown.extend(std::iter::repeat_n(' ', blanks)),
            many => shown.push_str(&format!("\\u{{20}}({many} blanks)")),
        }
    }
    let chars: Vec<char> = shown.chars().collect();
    chars.chunks(TRUST_LINE_CHARS_MAX).map(|chunk| chunk.iter().collect()).collect()
}

fn push_visible(shown: &mut String, c: char) {
    let (mut drawn, cells) = cell(c);
    // Blanks of other widths look like none, or like the end of a word.
    let is_plain = drawn.next() == Some(c) && cells > 0 && !c.is_whitespace();
    match is_plain && !BLANK_LETTERS.contains(&c) {
        true => shown.push(c),
        false => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
    }
}

/// Letters that draw nothing: fillers of Hangul, the blank of Braille, the soft hyphen.
const BLANK_LETTERS: [char; 6] =
    ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}', '\u{2800}', '\u{ad}'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_written_out() {
        let tag = char::from_u32(0xe_0041).expect("a tag");
        for (text, shown) in [
            ("plain, \tä 👩 of\ntwo lines\r\n", "plain, \tä 👩 of\ntwo lines\r\n".to_owned()),
            ("a\u{202e}b", "a\\u{202e}b".to_owned()),
            ("a\u{1b}[2Jb\rc\u{7f}\u{9b}", "a\\u{1b}[2Jb\\u{d}c\\u{7f}\\u{9b}".to_owned()),
            ("\u{200b}\u{2066}\u{feff}", "\\u{200b}\\u{2066}\\u{feff}".to_owned()),
            (&format!("x{tag}"), "x\\u{e0041}".to_owned()),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn json_keeps_all_other_bytes() {
        for same in [
            "{\r\n\t\"a\" : [1, \"b\\n\\t\\\\u202e\\\"\\r\\n\", \"\\ud83d\\ude00 \\ud83d\"] }",
            "\"\\u0041\\/é\\u0022\"",
        ] {
            assert!(matches!(escaped_json(same), Cow::Borrowed(text) if text == same), "{same}");
        }
        let json = "{ \"a\u{202e}\":\"\\u202E\\udb40\\udc41 \\b\\f\\r.\\u0000 é\\n\\\"\u{200b}\" , \"n\":1.0}";
        let shown = escaped_json(json);
        assert_eq!(
            shown,
            "{ \"a\\\\u{202e}\":\"\\\\u{202e}\\\\u{e0041} \\\\u{8}\\\\u{c}\\\\u{d}.\\\\u{0} é\\n\\\"\\\\u{200b}\" , \"n\":1.0}"
        );
        let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(value["a\\u{202e}"].as_str().map(|text| text.contains(is_hidden)), Some(false));
    }

    #[test]
    fn what_hides_is_written_out() {
        for (text, wanted) in [
            ("curl é 漢 ✅", "curl é 漢 ✅"),
            ("a\u{1b}[2Kb\n\t\u{7f}", "a\\u{1b}[2Kb\\u{a}\\u{9}\\u{7f}"),
            ("\u{202e}fdp\u{200b}\u{feff}", "\\u{202e}fdp\\u{200b}\\u{feff}"),
            ("x\u{e0041}\u{fe0f}\u{301}", "x\\u{e0041}\\u{fe0f}\\u{301}"),
            ("a\u{a0}b\u{3164}c\u{ad}", "a\\u{a0}b\\u{3164}c\\u{ad}"),
            ("a   b", "a   b"),
        ] {
            assert_eq!(visible_lines(text), [wanted], "{text:?}");
        }
        let far = format!("ls{}; evil", " ".repeat(9_000));
        assert_eq!(visible_lines(&far), ["ls\\u{20}(9000 blanks); evil"]);
        let long = "x".repeat(TRUST_LINE_CHARS_MAX) + "; evil";
        assert_eq!(visible_lines(&long)[1], "; evil");
    }
}
