//! Owns the values of keys and how they are written. Made by the readers. Never holds where a value comes from.

use std::fmt;
use std::time::Duration;

use serde_json::{Value as Json, json};

#[cfg(doc)]
use super::kind::Kind;
use super::kind::SIZE_UNITS;
use crate::address;
use crate::audit::redact::redact_text;
use crate::definition::{Dependency, Port, Until};
use crate::time::write_duration;

/// A value of a setting. Its `Display` is the form of environment variables and flags.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Duration`] and [`Kind::Interval`].
    Duration(Duration),
    /// Of [`Kind::Integer`].
    Integer(i64),
    /// Of [`Kind::Percent`].
    Percent(u8),
    /// Of [`Kind::Float`].
    Float(f64),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Word`] and [`Kind::Signal`].
    Word(&'static str),
    /// Of [`Kind::Path`].
    Path(String),
    /// Of [`Kind::Size`].
    Size(u64),
    /// Of [`Kind::Patterns`], [`Kind::Command`], [`Kind::Names`], [`Kind::Words`] and [`Kind::Texts`].
    List(Vec<String>),
    /// Of [`Kind::Dependencies`].
    Dependencies(Vec<Dependency>),
    /// Of [`Kind::Port`].
    Port(Port),
    /// Of [`Kind::JsonField`]: a path with dots, and the value there.
    JsonField((String, Json)),
    /// Of all others.
    Text(String),
}

impl Value {
    /// As it may be shown: a command can have a key in it.
    pub(super) fn without_secrets(&self) -> Self {
        match self {
            Self::Text(text) => Self::Text(redact_text(text).into_owned()),
            other => other.clone(),
        }
    }

    /// The value as JSON: a number, a boolean, a list, a table, or the text of the other forms.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Integer(number) => (*number).into(),
            Self::Percent(number) => (*number).into(),
            Self::Float(number) => (*number).into(),
            Self::Bool(value) => (*value).into(),
            Self::List(items) => items.clone().into(),
            Self::Dependencies(all) if all.iter().all(|one| one.until == Until::Ready) => {
                all.iter().map(|one| json!(one.name)).collect()
            }
            Self::Dependencies(all) => {
                let pair = |one: &Dependency| (one.name.clone(), json!(one.until.name()));
                Json::Object(all.iter().map(pair).collect())
            }
            Self::Port(Port { host, port }) => json!(address::join(host, *port)),
            Self::JsonField((path, value)) => json!({ path: value }),
            Self::Duration(_) | Self::Word(_) | Self::Path(_) | Self::Size(_) | Self::Text(_) => {
                self.to_string().into()
            }
        }
    }

    /// The value as it is written in a file.
    pub fn to_toml(&self) -> String {
        json_to_toml(&self.to_json())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(duration) => f.write_str(&write_duration(*duration)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Percent(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Word(word) => f.write_str(word),
            Self::Path(text) | Self::Text(text) => f.write_str(text),
            Self::Dependencies(_) | Self::Port(_) | Self::JsonField(_) => {
                f.write_str(&self.to_toml())
            }
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Size(0) => f.write_str("0B"),
            Self::Size(bytes) => {
                let unit = SIZE_UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
                let (name, unit) = unit.unwrap_or(&("B", 1));
                write!(f, "{}{name}", bytes / unit)
            }
        }
    }
}

/// A JSON value as TOML on one line.
pub(super) fn json_to_toml(json: &Json) -> String {
    let text = |text: &str| toml_edit::Value::from(text).to_string();
    match json {
        Json::String(value) => text(value),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(json_to_toml).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| {
                format!("{} = {}", toml_edit::Key::new(name), json_to_toml(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        // TOML has no null, and nothing here gives one.
        Json::Null | Json::Bool(_) | Json::Number(_) => json.to_string(),
    }
}
