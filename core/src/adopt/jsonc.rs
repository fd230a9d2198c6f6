//! JSON with comments and trailing commas, as ranges of the text: everything stays where it is.
//!
//! Allocates only for the members that are asked for: a file of megabytes costs one pass.

use std::ops::Range;

use crate::limits::ADOPT_DEPTH_MAX;

/// What is wrong with a text, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) at: usize,
    pub(super) message: &'static str,
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The key, decoded.
    pub(super) key: String,
    /// The key with its quotes.
    pub(super) key_range: Range<usize>,
    /// The value.
    pub(super) value: Range<usize>,
}

/// Checks a whole text, and finds its value; none where there are only blanks and comments.
pub(super) fn root(text: &str) -> Result<Option<Range<usize>>, SyntaxError> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut scanner = Scanner { bytes: text.as_bytes(), at: start };
    scanner.blank()?;
    if scanner.at == scanner.bytes.len() {
        return Ok(None);
    }
    let value = scanner.value(0)?;
    scanner.blank()?;
    match scanner.at == scanner.bytes.len() {
        true => Ok(Some(value)),
        false => Err(scanner.error("the file should end here")),
    }
}

/// The members of the object in a text that [`root`] has checked; none where the value is no object.
pub(super) fn members(text: &str, value: &Range<usize>) -> Vec<Member> {
    let mut found = Vec::new();
    if text.as_bytes().get(value.start) == Some(&b'{') {
        let mut scanner = Scanner { bytes: text.as_bytes(), at: value.start };
        let visited = scanner.children(0, &mut |key_range, value| {
            let key = string(text, &key_range).unwrap_or_default();
            found.push(Member { key, key_range, value });
        });
        debug_assert!(visited.is_ok(), "the text was checked");
    }
    found
}

/// The elements of the list in a text that [`root`] has checked, and whether a comma follows the last
/// one; none where the value is no list.
pub(super) fn elements(text: &str, value: &Range<usize>) -> Option<(Vec<Range<usize>>, bool)> {
    if text.as_bytes().get(value.start) != Some(&b'[') {
        return None;
    }
    let mut found = Vec::new();
    let mut scanner = Scanner { bytes: text.as_bytes(), at: value.start };
    scanner.children(0, &mut |_, value| found.push(value)).ok()?;
    let Some(last) = found.last() else { return Some((found, false)) };
    scanner.at = last.end;
    scanner.blank().ok()?;
    let ends_with_comma = scanner.peek() == Some(b',');
    Some((found, ends_with_comma))
}

/// The text of a string, decoded; none where the value is no string, or no Unicode.
pub(super) fn string(text: &str, value: &Range<usize>) -> Option<String> {
    serde_json::from_str(&text[value.clone()]).ok()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn error(&self, message: &'static str) -> SyntaxError {
        SyntaxError { at: self.at, message }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), SyntaxError> {
        if self.peek() != Some(byte) {
            return Err(self.error(message));
        }
        self.at += 1;
        Ok(())
    }

    /// Passes over blanks and comments.
    fn blank(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = &self.bytes[self.at..];
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [b'/', b'/', ..] => {
                    self.at += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                }
                [b'/', b'*', inner @ ..] => match memchr::memmem::find(inner, b"*/") {
                    Some(length) => self.at += length + 4,
                    None => return Err(self.error("this comment has no end")),
                },
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Range<usize>, SyntaxError> {
        if depth > ADOPT_DEPTH_MAX {
            return Err(self.error("this is nested too deep"));
        }
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'{' | b'[') => self.children(depth, &mut |_, _| {})?,
            _ => self.word()?,
        }
        Ok(start..self.at)
    }

    /// Passes over an object or a list, whose first byte is next. Visits each key, which is empty in a list, with
    /// its value.
    fn children(
        &mut self,
        depth: usize,
        visit: &mut dyn FnMut(Range<usize>, Range<usize>),
    ) -> Result<(), SyntaxError> {
        let is_object = self.peek() == Some(b'{');
        let (end, no_comma) = match is_object {
            true => (b'}', "a `,` or `}` is expected here"),
            false => (b']', "a `,` or `]` is expected here"),
        };
        self.at += 1;
        loop {
            self.blank()?;
            if self.peek() == Some(end) {
                self.at += 1;
                return Ok(());
            }
            let mut key = self.at..self.at;
            if is_object {
                if self.peek() != Some(b'"') {
                    return Err(self.error("a key in double quotes is expected here, or `}`"));
                }
                self.string()?;
                key.end = self.at;
                self.blank()?;
                self.expect(b':', "a `:` is expected here")?;
                self.blank()?;
            }
            visit(key, self.value(depth + 1)?);
            self.blank()?;
            if self.peek() != Some(end) {
                self.expect(b',', no_comma)?;
            }
        }
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(byte) if byte >= b' ' => self.at += 1,
                Some(b'\n' | b'\r') | None => {
                    self.at = start;
                    return Err(self.error("this string has no end on its line"));
                }
                Some(_) => return Err(self.error("a control character must be escaped")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.bytes[self.at + 1..];
        let length = match rest {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_hexdigit()) => 6,
            _ => return Err(self.error("this is no escape")),
        };
        self.at += length;
        Ok(())
    }

    /// A number, `true`, `false` or `null`. Numbers are not looked into: they stay as they are.
    fn word(&mut self) -> Result<(), SyntaxError> {
        let rest = &self.bytes[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let word = &rest[..length];
        let is_number =
            word.strip_prefix(b"-").unwrap_or(word).first().is_some_and(u8::is_ascii_digit);
        if !is_number && !matches!(word, b"true" | b"false" | b"null") {
            return Err(self.error("a value is expected here"));
        }
        self.at += length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, &'static str) {
        let error = root(text).unwrap_err();
        (error.at, error.message)
    }

    #[test]
    fn members_are_found_among_comments() {
        let text = "\u{feff}// a\n{ /* b */ \"a\\u0062\" /*:*/ : [1, /*]*/ {\"x\": \"]}\"},], // }\n \"c\":-1.5e3 ,}\n/**/";
        let value = root(text).unwrap().unwrap();
        let all = members(text, &value);
        let shown: Vec<(&str, &str)> =
            all.iter().map(|member| (member.key.as_str(), &text[member.value.clone()])).collect();
        assert_eq!(shown, [("ab", "[1, /*]*/ {\"x\": \"]}\"},]"), ("c", "-1.5e3")]);
        let (list, ends_with_comma) = elements(text, &all[0].value).unwrap();
        assert!(ends_with_comma);
        let list: Vec<&str> = list.into_iter().map(|value| &text[value]).collect();
        assert_eq!(list, ["1", "{\"x\": \"]}\"}"]);
        assert_eq!(elements(text, &all[1].value), None);
        assert_eq!(members(text, &all[1].value), []);
    }

    #[test]
    fn a_file_without_a_value_is_no_mistake() {
        for text in ["", "\u{feff}", " \r\n\t", "// nothing", "/* nothing */\n"] {
            assert_eq!(root(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn mistakes_have_their_place() {
        assert_eq!(wrong("{"), (1, "a key in double quotes is expected here, or `}`"));
        assert_eq!(wrong("{a: 1}"), (1, "a key in double quotes is expected here, or `}`"));
        assert_eq!(wrong("{,}"), (1, "a key in double quotes is expected here, or `}`"));
        assert_eq!(wrong("{\"a\" 1}"), (5, "a `:` is expected here"));
        assert_eq!(wrong("{\"a\": }"), (6, "a value is expected here"));
        assert_eq!(wrong("{\"a\": 1 \"b\": 2}"), (8, "a `,` or `}` is expected here"));
        assert_eq!(wrong("[1 2]"), (3, "a `,` or `]` is expected here"));
        assert_eq!(wrong("[,]"), (1, "a value is expected here"));
        assert_eq!(wrong("[\"a\n\"]"), (1, "this string has no end on its line"));
        assert_eq!(wrong("[\"a\\"), (3, "this is no escape"));
        assert_eq!(wrong("[\"\\u12g4\"]"), (2, "this is no escape"));
        assert_eq!(wrong("[\"\t\"]"), (2, "a control character must be escaped"));
        assert_eq!(wrong("{} x"), (3, "the file should end here"));
        assert_eq!(wrong("{} /*"), (3, "this comment has no end"));
        assert_eq!(wrong("nul"), (0, "a value is expected here"));
        assert_eq!(wrong("<<<<<<< HEAD"), (0, "a value is expected here"));
        assert_eq!(wrong(&"[".repeat(1_000_000)).1, "this is nested too deep");
        assert_eq!(wrong(&"{\"a\":".repeat(100_000)).1, "this is nested too deep");
    }

    #[test]
    fn no_cut_of_a_text_is_trouble() {
        let text =
            "{ // a\n\"mcpServers\": {\"a\\\"é\": {\"args\": [\"\\u00e9\", 1, null,], /* x */}}}";
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(root(&text[..end]).is_err() || text[..end].trim().is_empty(), "{end}");
        }
        assert!(root(text).is_ok());
    }
}
