//! Owns what the streams of all agents have in common: members of a JSON line, tools that run, ids that were seen,
//! times. Used by the module of each agent. Never keeps more than its bounds.
//!
//! Members are read without parsing or copying the whole line: a picture in a tool's result makes lines of megabytes,
//! of which a few short members matter. A member of another shape than expected is treated as missing, so that no
//! line is lost for one member.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::{AgentEvent, Effect};
use crate::limits::{AGENT_CALLS_MAX, AGENT_SECONDS_MAX, AGENT_TOOLS_MAX};
use crate::mcp::json;
use crate::text::cut;
use crate::time::Stamp;

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
        // Where a key stands twice, the last counts.
        let (_, value) = self.members.iter().rev().find(|(raw, _)| json::is_key(raw, key))?;
        (*value != b"null").then_some(value)
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.raw(key) == Some(b"true")
    }

    /// A member that is a text.
    pub(super) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.raw(key).and_then(json::read_text)
    }

    /// The beginning of a member that is a text.
    pub(super) fn cut_text(&self, key: &str, chars_max: usize) -> Option<String> {
        Some(cut(&beginning(self.raw(key)?, chars_max)?, chars_max))
    }

    /// A member that is a number, and not below zero. Another program may well write 1e6, or count in fractions; a
    /// number that is too large becomes the largest.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let text = std::str::from_utf8(self.raw(key)?).ok()?;
        text.parse().ok().or_else(|| Some(text.parse::<f64>().ok().filter(|n| *n >= 0.0)? as u64))
    }

    /// A member that is an object; an empty one where it is none.
    pub(super) fn object(&self, key: &str) -> Self {
        self.raw(key).and_then(Self::read).unwrap_or_default()
    }

    /// The elements of a member that is an array, as raw JSON.
    pub(super) fn elements(&self, key: &str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let raw = self.raw(key).unwrap_or_default();
        json::elements(raw).unwrap_or_default().into_iter().map(|range| &raw[range])
    }

    /// The objects in a member that is an array.
    pub(super) fn objects(&self, key: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.elements(key).filter_map(Self::read)
    }

    /// The members that are objects, by their keys.
    pub(super) fn each_object(&self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        let read =
            |(key, value): &(&'a [u8], &'a [u8])| Some((json::read_text(key)?, Self::read(value)?));
        self.members.iter().filter_map(read)
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

/// Writes a line of JSON to the agent's stdin.
pub(super) fn write(message: &Value) -> Effect {
    Effect::Write(format!("{message}\n").into_bytes())
}

/// Tools that have begun and not ended, the oldest first; of too many the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct RunningTools(pub(super) VecDeque<String>);

impl RunningTools {
    /// Tells of a tool, unless it is known already.
    pub(super) fn begin(&mut self, id: String, name: String, detail: String) -> Option<Effect> {
        if self.0.contains(&id) {
            return None;
        }
        if self.0.len() >= AGENT_TOOLS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(id.clone());
        Some(Effect::Heard(AgentEvent::ToolBegan { id, name, detail }))
    }

    pub(super) fn end(&mut self, id: String, succeeded: bool) -> Option<Effect> {
        let place = self.0.iter().position(|open| *open == id)?;
        self.0.remove(place);
        Some(Effect::Heard(AgentEvent::ToolEnded { id, succeeded }))
    }

    /// Ends the tools whose end was not told: it will not be any more.
    pub(super) fn fail_all(&mut self) -> impl Iterator<Item = Effect> {
        let failed = |id| Effect::Heard(AgentEvent::ToolEnded { id, succeeded: false });
        std::mem::take(&mut self.0).into_iter().map(failed)
    }
}

/// Ids that were dealt with; of too many the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct SeenIds {
    pub(super) ids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl SeenIds {
    /// Whether this id is new. It is not, from then on.
    pub(super) fn is_new(&mut self, id: &str) -> bool {
        if !self.ids.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > AGENT_CALLS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

/// The end of what a calendar with four digits for the year has room for: what is later was no time.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The time so many seconds after 1970.
pub(super) fn at_second(second: u64) -> Stamp {
    Stamp::since_unix_epoch(Duration::from_secs(second.min(SECONDS_MAX)))
}

/// A time since 1970 as agents write it. A number so high is in milliseconds: as seconds it would be in thousands of
/// years.
pub(super) fn told_time(at: u64) -> Stamp {
    at_second(if at > AGENT_SECONDS_MAX { at / 1_000 } else { at })
}

/// The time this much later.
pub(super) fn later(now: Stamp, by: Duration) -> Stamp {
    let at = now.since(Stamp::default()).saturating_add(by);
    Stamp::since_unix_epoch(at.min(Duration::from_secs(SECONDS_MAX)))
}

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
        assert_eq!((object.number("f"), object.number("g")), (Some(1000), None));
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
