//! Reads members of the lines of Codex without copying them: a picture in a tool's result makes lines of
//! megabytes, of which a few short members matter. A member of another shape than expected is treated as missing.

use std::borrow::Cow;

use crate::mcp::json;
use crate::text::cut;

/// An object in a line.
#[derive(Clone, Debug, Default)]
pub(super) struct Object<'a> {
    members: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Object<'a> {
    /// `None` where the bytes are no object.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let members = json::members(bytes)?;
        let slices = members.into_iter().map(|member| (&bytes[member.key], &bytes[member.value]));
        Some(Self { members: slices.collect() })
    }

    /// A member as raw JSON; none where it is null.
    pub(super) fn raw(&self, key: &str) -> Option<&'a [u8]> {
        let is_key = |raw: &[u8]| raw.get(1..raw.len() - 1) == Some(key.as_bytes());
        // Where a key stands twice, the last counts.
        let (_, value) = self.members.iter().rev().find(|(raw, _)| is_key(raw))?;
        (*value != b"null").then_some(value)
    }

    /// A member that is a text.
    pub(super) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.raw(key).and_then(json::read_text)
    }

    /// The beginning of a member that is a text.
    pub(super) fn cut_text(&self, key: &str, chars_max: usize) -> Option<String> {
        let raw = self.raw(key)?;
        Some(cut(&beginning(raw, chars_max)?, chars_max))
    }

    /// A member that is a number, and not below zero.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let text = std::str::from_utf8(self.raw(key)?).ok()?;
        // A number of another kind is near enough; one that is too large becomes the largest.
        text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as u64))
    }

    /// A member that is an object; an empty one where it is none.
    pub(super) fn object(&self, key: &str) -> Self {
        self.raw(key).and_then(Self::read).unwrap_or_default()
    }

    /// The objects in a member that is an array.
    pub(super) fn objects(&self, key: &str) -> Vec<Self> {
        let Some(raw) = self.raw(key) else { return Vec::new() };
        let elements = json::elements(raw).unwrap_or_default();
        elements.into_iter().filter_map(|range| Self::read(&raw[range])).collect()
    }

    /// The key of its first member, for values that are told apart by it.
    pub(super) fn first_key(&self) -> Option<Cow<'a, str>> {
        self.members.first().and_then(|(raw, _)| json::read_text(raw))
    }
}

/// Enough of a string value that it has more than this many characters, if it has them at all: a text of
/// megabytes with escapes in it is not decoded for its first words.
fn beginning(raw: &[u8], chars_max: usize) -> Option<Cow<'_, str>> {
    let enough = ESCAPED_CHAR_BYTES_MAX * (chars_max + 2);
    if raw.len() <= enough || raw.first() != Some(&b'"') {
        return json::read_text(raw);
    }
    // The cut may have gone through a character or an escape: it is looked for a bit before.
    (0..ESCAPED_CHAR_BYTES_MAX).find_map(|back| {
        let mut part = raw[..enough - back].to_vec();
        part.push(b'"');
        json::text(&part).map(Cow::Owned)
    })
}

/// The longest form of a character in a string of JSON: two escapes of UTF-16.
const ESCAPED_CHAR_BYTES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_another_shape_is_not_there() {
        let line = br#"{"a":"x","b":null,"c":[1],"d":{"e":7},"f":1e3,"g":-4,"a":"y"}"#;
        let object = Object::read(line).expect("an object");
        assert_eq!(object.text("a").as_deref(), Some("y"), "the last of two counts");
        assert_eq!((object.raw("b"), object.text("c"), object.number("a")), (None, None, None));
        assert_eq!(object.object("d").number("e"), Some(7));
        assert_eq!(object.object("c").number("e"), None);
        assert_eq!((object.number("f"), object.number("g")), (Some(1000), Some(0)));
        assert!(Object::read(b"[]").is_none());
    }

    #[test]
    fn the_beginning_of_a_long_text_is_enough() {
        for unit in ["a", "\\n", "\u{e4}", "\\ud83d\\ude00", "\u{1f600}", "\\\\", "\\u00e4b"] {
            for chars_max in [1, 2, 7, 200] {
                let text = format!(r#"{{"t":"{}"}}"#, unit.repeat(5000));
                let object = Object::read(text.as_bytes()).expect("an object");
                let whole = object.text("t").expect("a text");
                let expected: String = whole.chars().take(chars_max).chain(['…']).collect();
                assert_eq!(object.cut_text("t", chars_max), Some(expected), "{unit} {chars_max}");
            }
        }
    }
}
