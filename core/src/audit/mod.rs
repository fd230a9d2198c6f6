//! The records of the trail: one JSON object a line, in a form that `jq` can select from.

mod event_types;
pub mod line;
pub mod marker;
pub mod recovery;
pub mod redact;
pub mod verify;

use serde_json::{Map, Value, json};

use crate::time::Stamp;

pub use self::event_types::EventType;

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
    /// The record as a line of the trail, newline included.
    pub fn to_line(&self, stamp: Stamp) -> String {
        format!("{}\n", self.to_value(stamp))
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            record.to_line(stamp),
            concat!(
                r#"{"timestamp":"1970-01-01T00:00:01.500Z","level":"INFO","logger":"afresh.keep","#,
                r#""message":"Server restart requested","props":{"event_type":"server_restart_requested","#,
                r#""reason":"two\nlines","pid":7}}"#,
                "\n"
            )
        );
    }
}
