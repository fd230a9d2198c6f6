//! Owns the records of the trail: one JSON object a line, in a form that `jq` can select from, without secrets, and no
//! longer than a line may be. Never writes one.

use serde_json::{Map, Value, json};

use super::EventType;
use super::redact::redact_value;
use crate::limits::TRAIL_LINE_BYTES_MAX;
use crate::time::Stamp;

/// One record of the trail, still without its time: the writer stamps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// How grave it is.
    pub level: Level,
    /// Which part of afresh speaks, such as `afresh.keep`.
    pub logger: String,
    /// A sentence for people.
    pub message: String,
    /// What happened, for programs.
    pub event_type: EventType,
    /// The details, in the order in which they are written.
    pub props: Vec<(&'static str, Value)>,
}

/// How grave a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Info,
    /// Something failed, and is being dealt with.
    Warning,
    /// Something failed for good.
    Error,
}

impl Level {
    /// The word in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
        }
    }
}

impl Record {
    fn to_value(&self, stamp: Stamp) -> Value {
        let mut props = Map::new();
        props.insert("event_type".to_owned(), Value::from(self.event_type.name()));
        for (name, value) in &self.props {
            props.insert((*name).to_owned(), value.clone());
        }
        json!({
            "timestamp": stamp.to_string(),
            "level": self.level.name(),
            "logger": self.logger,
            "message": self.message,
            "props": props,
        })
    }
}

/// Strings are not cut below this: what is left must still say something.
const STRING_BYTES_MIN: usize = 64;

impl Record {
    /// The record as a line, newline included, without secrets and cut to
    /// [`TRAIL_LINE_BYTES_MAX`].
    ///
    /// Secrets go first: half a secret would no longer be recognised. What is too long twice over
    /// is not even looked at.
    pub fn to_safe_line(&self, stamp: Stamp) -> String {
        let mut value = self.to_value(stamp);
        while let Some(longest) =
            longest_string(&mut value).filter(|text| text.len() > 2 * TRAIL_LINE_BYTES_MAX)
        {
            let excess = longest.len() - 2 * TRAIL_LINE_BYTES_MAX;
            cut(longest, excess);
        }
        redact_value(&mut value["message"]);
        // The name of a token is no secret.
        let by =
            |value: &mut Value| value["props"].get_mut("by")?.get_mut("token").map(Value::take);
        let token_name = by(&mut value);
        redact_value(&mut value["props"]);
        if let Some(name) = token_name {
            value["props"]["by"]["token"] = name;
        }
        let mut line = format!("{value}\n");
        while line.len() > TRAIL_LINE_BYTES_MAX {
            let excess = line.len() - TRAIL_LINE_BYTES_MAX;
            match longest_string(&mut value) {
                Some(longest) if longest.len() > STRING_BYTES_MIN => cut(longest, excess),
                // Not a few long strings but very many short ones.
                _ => {
                    value["props"] = json!({
                        "event_type": self.event_type.name(),
                        "cut": format!("…[cut {} bytes]", line.len()),
                    });
                }
            }
            line = format!("{value}\n");
        }
        line
    }
}

fn longest_string(value: &mut Value) -> Option<&mut String> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(items) => longest(items.iter_mut()),
        Value::Object(fields) => longest(fields.values_mut()),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn longest<'a>(values: impl Iterator<Item = &'a mut Value>) -> Option<&'a mut String> {
    values.filter_map(longest_string).max_by_key(|text| text.len())
}

/// Takes `excess` bytes and room for the mark off the end, half of the text at most: what is escaped
/// in JSON is longer there than here, so that `excess` may be far too much.
fn cut(text: &mut String, excess: usize) {
    let before = text.len();
    let mut keep = before.saturating_sub(excess + 40).max(before / 2);
    while !text.is_char_boundary(keep) {
        keep -= 1;
    }
    text.truncate(keep);
    text.push_str(&format!("…[cut {} bytes]", before - keep));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audit::Actor;

    #[test]
    fn a_record_is_one_line_in_a_fixed_order() {
        // R4
        let record = Record {
            level: Level::Info,
            logger: "afresh.keep".to_owned(),
            message: "Server restart requested".to_owned(),
            event_type: EventType::ServerRestartRequested,
            props: vec![("reason", "two\nlines".into()), ("pid", 7.into())],
        };
        let stamp = Stamp::since_unix_epoch(Duration::from_millis(1_500));
        assert_eq!(
            record.to_safe_line(stamp),
            concat!(
                r#"{"timestamp":"1970-01-01T00:00:01.500Z","level":"INFO","logger":"afresh.keep","#,
                r#""message":"Server restart requested","props":{"event_type":"server_restart_requested","#,
                r#""reason":"two\nlines","pid":7}}"#,
                "\n"
            )
        );
    }

    fn record(props: Vec<(&'static str, Value)>) -> Record {
        Record {
            level: Level::Info,
            logger: "afresh.test".to_owned(),
            message: "Something happened, with --token=abc".to_owned(),
            event_type: EventType::HookFailed,
            props,
        }
    }

    #[test]
    fn no_secret_gets_into_a_line() {
        let line = record(vec![
            ("args", json!(["serve", "--password", "hunter2"])),
            ("deep", json!({"list": [{"url": "http://me:pass@host/"}], "api_key": "x"})),
        ])
        .to_safe_line(Stamp::default());
        for secret in ["abc", "hunter2", "pass@", "\"x\""] {
            assert!(!line.contains(secret), "{line}");
        }
    }

    #[test]
    fn the_name_of_an_actors_token_stays() {
        let by = Actor::Client {
            name: Some("--token=abc".to_owned()),
            token: Some("ci".to_owned()),
            tool: "restart_server",
        };
        let line = record(vec![("by", by.to_json()), ("token", "abc".into())]);
        let line = line.to_safe_line(Stamp::default());
        assert!(line.contains(r#""token":"ci","tool":"restart_server"}"#), "{line}");
        assert!(!line.contains("abc"), "{line}");
    }

    #[test]
    fn a_long_record_is_cut_to_a_line_that_is_json() {
        let long = TRAIL_LINE_BYTES_MAX;
        let cases = [
            vec![("a", "é".repeat(long).into()), ("b", "kept".into())],
            // Each of these takes six bytes in JSON.
            vec![("a", "\u{1}".repeat(long).into()), ("b", "kept".into())],
            vec![
                ("a", "x y ".repeat(long).into()),
                ("c", "z ".repeat(long).into()),
                ("b", "kept".into()),
            ],
        ];
        for props in cases {
            let line = record(props).to_safe_line(Stamp::default());
            assert!(line.len() <= TRAIL_LINE_BYTES_MAX && line.len() > TRAIL_LINE_BYTES_MAX / 4);
            let value: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(value["props"]["b"], "kept");
            assert!(value["props"]["a"].as_str().unwrap().contains("…[cut "));
        }
    }

    #[test]
    fn very_many_short_strings_are_left_out() {
        let line = record(vec![("a", json!(vec!["short"; TRAIL_LINE_BYTES_MAX]))])
            .to_safe_line(Stamp::default());
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["props"]["event_type"], "hook_failed");
        assert!(value["props"]["cut"].is_string());
    }
}
