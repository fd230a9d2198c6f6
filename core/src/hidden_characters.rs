//! Owns which characters a reader does not see, though a model or a terminal reads them, and their visible form
//! `\u{202e}`: in what servers on other machines say about themselves, and, more strictly and with long runs of blanks,
//! in what `afresh trust` shows for acceptance; as escapes of JSON in what commands print for programs. Never changes any
//! other character.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::limits::{TRUST_BLANKS_MAX, TRUST_LINE_CHARS_MAX};

/// Whether a character is a control other than tab and newline, or is drawn as nothing, turns the direction of writing,
/// or has no meaning but what a font gives it. By the Unicode standard, 16.0: those of `Default_Ignorable_Code_Point`,
/// and of the categories Cf, Zl, Zp, Co and Cn the format characters, separators, private ones and noncharacters. Format
/// characters of `Prepended_Concatenation_Mark`, such as U+06DD, are drawn and are none. Two are drawn as blanks:
/// U+2800 and U+16FE4.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\t' | '\n' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{70f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{16fe4}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{f0000}'..='\u{10ffff}' => true,
        // The last two of each plane.
        _ => c.is_control() || u32::from(c) & 0xfffe == 0xfffe,
    }
}

/// The selector that makes an emoji of the character before it.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// Whether a character is hidden between these two. The selector of emoji is seen behind a character that it makes one:
/// of digits, `#` and `*` only in front of the sign of a key.
fn is_hidden_between(before: Option<char>, c: char, after: Option<char>) -> bool {
    match before {
        Some('0'..='9' | '#' | '*') if c == EMOJI_SELECTOR => after != Some('\u{20e3}'),
        Some(before) if c == EMOJI_SELECTOR => {
            before.is_ascii() || is_hidden(before) || String::from_iter([before, c]).width() != 2
        }
        _ => is_hidden(c),
    }
}

/// A text in which hidden characters stand as `\u{202e}`. The two characters that end a line on Windows stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let (mut before, mut rest) = (None, text.chars().peekable());
    while let Some(c) = rest.next() {
        let after = rest.peek().copied();
        match is_hidden_between(before, c, after) && !(c == '\r' && after == Some('\n')) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
        before = Some(c);
    }
    Cow::Owned(shown)
}

/// The same inside of the strings of a JSON text, where they may be written as escapes too. All other bytes stay.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let (mut shown, mut copied) = (String::new(), 0);
    let (mut at, mut is_string, mut before) = (0, false, None);
    while let Some((length, meant)) = character_of_json(&json[at..], is_string) {
        if meant == Some('"') {
            is_string = !is_string;
        }
        let after = || character_of_json(&json[at + length..], is_string)?.1;
        let is_hidden =
            |c: &char| is_string && is_hidden(*c) && is_hidden_between(before, *c, after());
        if let Some(hidden) = meant.filter(is_hidden) {
            shown.push_str(&json[copied..at]);
            shown.push('\\');
            shown.extend(hidden.escape_unicode());
            copied = at + length;
        }
        before = meant;
        at += length;
    }
    match copied {
        0 => Cow::Borrowed(json),
        _ => Cow::Owned(shown + &json[copied..]),
    }
}

/// The length of the character that a JSON text begins with, and what it stands for where that can be a hidden one.
fn character_of_json(json: &str, is_string: bool) -> Option<(usize, Option<char>)> {
    Some(match json.chars().next()? {
        '\\' if is_string => escape(json),
        c => (c.len_utf8(), Some(c)),
    })
}

/// A JSON text with hidden characters as escapes of JSON: the values are the same, and a terminal obeys nothing in it.
pub fn json_for_terminal(json: &str) -> Cow<'_, str> {
    if !json.contains(is_hidden) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_hidden(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                shown.push_str(&format!("\\u{unit:04x}"));
            }),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
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
    // Blanks of other widths look like none, or like the end of a word.
    let is_plain = !is_hidden(c) && !c.is_whitespace() && c.width().is_some_and(|cells| cells > 0);
    match is_plain {
        true => shown.push(c),
        false => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
    }
}

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

    /// One of each kind that is drawn as nothing, or as whatever a font likes.
    const UNSEEN: [char; 32] = [
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{115f}',
        '\u{17b4}',
        '\u{180e}',
        '\u{200b}',
        '\u{202e}',
        '\u{2064}',
        '\u{2069}',
        '\u{2800}',
        '\u{3164}',
        '\u{e000}',
        '\u{f8ff}',
        '\u{fdd0}',
        '\u{fe00}',
        '\u{feff}',
        '\u{ffa0}',
        '\u{fff0}',
        '\u{fff9}',
        '\u{fffe}',
        '\u{13430}',
        '\u{1343f}',
        '\u{16fe4}',
        '\u{1bca0}',
        '\u{1d173}',
        '\u{1d17a}',
        '\u{1ffff}',
        '\u{e0041}',
        '\u{e01ef}',
        '\u{f0000}',
        '\u{10fffd}',
    ];

    #[test]
    fn all_that_is_not_drawn_is_written_out_everywhere() {
        for c in UNSEEN {
            let written = format!("get\\u{{{:x}}}", u32::from(c));
            let text = format!("get{c}");
            assert_eq!(escaped(&text), written);
            assert_eq!(visible_lines(&text), [written.as_str()]);
            let json = escaped_json(&format!("\"{text}\"")).into_owned();
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), written);
        }
        // What is drawn stays, signs of Arabic in front of numbers too.
        for text in ["é 漢 ✅ 👩 \u{601} \u{6dd}12", "\u{fffd}", "e\u{301}"] {
            assert_eq!(escaped(text), text);
        }
    }

    #[test]
    fn the_selector_of_emoji_stays_behind_what_it_makes_one() {
        for text in ["✔\u{fe0f} ❤\u{fe0f}", "1\u{fe0f}\u{20e3}", "#\u{fe0f}\u{20e3}"] {
            assert_eq!(escaped(text), text);
            let json = format!("\"{text}\"");
            assert_eq!(escaped_json(&json), json);
            let json = format!("\"{}\"", text.replace('\u{fe0f}', "\\ufe0f"));
            assert_eq!(escaped_json(&json), json);
        }
        for (text, shown) in [
            ("get\u{fe0f}", "get\\u{fe0f}"),
            ("get1\u{fe0f}", "get1\\u{fe0f}"),
            ("\u{fe0f}get", "\\u{fe0f}get"),
            ("✔\u{fe0f}\u{fe0f}", "✔\u{fe0f}\\u{fe0f}"),
        ] {
            assert_eq!(escaped(text), shown);
            let json = escaped_json(&format!("\"{text}\"")).into_owned();
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), shown);
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
    fn json_for_a_terminal_is_the_same_value() {
        for text in ["é 漢 ✅", "a\u{1b}]0;x\u{7}\u{9b}\u{202e}\u{e0041}\u{fe0f}\r\n"] {
            let json = format!("{:#}", serde_json::json!({text: [text]}));
            let shown = json_for_terminal(&json);
            assert!(!shown.contains(is_hidden), "{shown}");
            let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            assert_eq!(value, serde_json::json!({text: [text]}));
        }
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
