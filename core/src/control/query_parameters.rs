//! Owns the words that queries of the API may have, such as `stream=stdout` of logs, and the reading of queries and of
//! names in paths. The routes of `route_table.rs` name them. Never answers a request.

use std::collections::BTreeMap;

use crate::limits::{CONTROL_NUMBER_MAX, CONTROL_TEXT_CHARS_MAX};

/// A word of a query.
#[derive(Debug)]
pub struct QueryParameter {
    /// The word.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What it means.
    pub about: &'static str,
}

/// What the value of a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number, from 0.
    Number,
    /// Any text.
    Text,
    /// One of these.
    One(&'static [&'static str]),
    /// A number, or the `id` of an event.
    Position,
}

const fn word(name: &'static str, kind: Kind, about: &'static str) -> QueryParameter {
    QueryParameter { name, kind, about }
}

pub(super) const WAIT: QueryParameter =
    word("wait", Kind::Flag, "Answer only when it is done, a minute later at most.");

/// Of the lines of a service.
pub(super) const OF_LOGS: [QueryParameter; 5] = [
    word("lines", Kind::Number, "At most so many, the last ones."),
    word("since", Kind::Number, "Only lines with a higher number, the first ones."),
    word("follow", Kind::Flag, "Go on with new lines, as server-sent events."),
    word(
        "stream",
        Kind::One(&["stdout", "stderr", "afresh"]),
        "Only lines that were written there.",
    ),
    word("grep", Kind::Text, "Only lines that have this text in them."),
];

/// Of events.
pub(super) const OF_EVENTS: [QueryParameter; 3] = [
    word(
        "since",
        Kind::Position,
        "Only events after this number, or after the event of this `id`.",
    ),
    word("follow", Kind::Flag, "Go on with new events, as server-sent events."),
    word("service", Kind::Text, "Only events of this service."),
];

/// A name as one part of a path, or as the value of a word.
pub fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let part = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(part).collect()
}

/// The name that one part of a path stands for; `None` where it stands for none.
pub fn unescape(part: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok().filter(|name| !name.contains('\0'))
}

/// The words of a query and their values. Only what the route knows is there, and each word once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(BTreeMap<String, String>);

impl Words {
    /// Reads a query, of which these words are known; otherwise what is wrong with it.
    pub fn parse(query: &str, known: &[&str]) -> Result<Self, String> {
        let mut words = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // Forms write a blank as a plus.
            let read = |text: &str| unescape(&text.replace('+', "%20"));
            let (Some(name), Some(value)) = (read(name), read(value)) else {
                return Err("the query is not UTF-8 with %-escapes".to_owned());
            };
            if !known.contains(&name.as_str()) {
                return Err(match known {
                    [] => format!("there is no `{name}` here: this path takes no query"),
                    _ => format!("there is no `{name}` here; there is {}", known.join(", ")),
                });
            }
            if value.chars().count() > CONTROL_TEXT_CHARS_MAX {
                return Err(format!("`{name}` is longer than {CONTROL_TEXT_CHARS_MAX} characters"));
            }
            if words.insert(name.clone(), value).is_some() {
                return Err(format!("`{name}` is there twice"));
            }
        }
        Ok(Self(words))
    }

    /// The value of a word.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a word that is a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let parse = |text: &str| {
            let number = Some(text).filter(digits).and_then(|text| text.parse().ok());
            let number = number.filter(|number| *number <= CONTROL_NUMBER_MAX);
            number
                .ok_or_else(|| format!("`{name}` has to be a number, {CONTROL_NUMBER_MAX} at most"))
        };
        self.text(name).map(parse).transpose()
    }

    /// The value of a word that is true or false; false where it is not there.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            Some("true") => Ok(true),
            None | Some("false") => Ok(false),
            Some(_) => Err(format!("`{name}` has to be `true` or `false`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_a_path() {
        for name in ["web", "a/b", "50%", "ü ö", "", "..", "a?b#c", "%2F", "\u{7f}\n", "a+b&c=d"]
        {
            let part = escape(name);
            assert!(!part.contains(['/', '?', '#', ' ', '\n', '&', '=', '+']), "{part}");
            assert_eq!(unescape(&part).as_deref(), Some(name));
            let query = format!("grep={part}");
            let words = Words::parse(&query, &["grep"]).unwrap();
            assert_eq!(words.text("grep"), Some(name));
        }
        // Broken, half, negative, not UTF-8, a dot in two bytes too many, and no byte at all.
        for broken in ["%", "%2", "%zz", "%+1", "%ff", "%c0%ae", "%00", "a%00b"] {
            assert_eq!(unescape(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_query_has_known_words_each_once() {
        let words = Words::parse("wait=true&&lines=7", &["wait", "lines"]).unwrap();
        assert_eq!((words.flag("wait"), words.number("lines")), (Ok(true), Ok(Some(7))));
        assert_eq!((words.flag("follow"), words.number("since")), (Ok(false), Ok(None)));
        for (query, said) in [
            ("later=1", "there is no `later` here; there is wait, lines"),
            ("wait=true&wait=true", "`wait` is there twice"),
            ("%77ait=true&wait=true", "`wait` is there twice"),
            ("lines=%ff", "not UTF-8"),
            (&format!("wait={}", "x".repeat(257)), "longer than 256"),
        ] {
            let error = Words::parse(query, &["wait", "lines"]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(Words::parse("x", &[]).unwrap_err().contains("takes no query"));
        for bad in ["", "1", "yes", "TRUE"] {
            let words = Words::parse(&format!("wait={bad}"), &["wait"]).unwrap();
            assert!(words.flag("wait").is_err(), "{bad}");
        }
        for bad in ["", "-1", "+1", "1.5", "x", "9007199254740992", "18446744073709551616"] {
            let words = Words::parse(&format!("lines={}", escape(bad)), &["lines"]).unwrap();
            assert!(words.number("lines").is_err(), "{bad}");
        }
    }
}
