//! A value of a setting, and how it is written.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

#[cfg(doc)]
use super::kind::Kind;
use super::kind::SIZE_UNITS;
use crate::audit::redact::redact_text;
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
    Path(Cow<'static, str>),
    /// Of [`Kind::Size`].
    Size(u64),
    /// Of [`Kind::Patterns`].
    List(Vec<String>),
    /// Of all others.
    Text(Cow<'static, str>),
}

impl Value {
    /// As it may be shown: a command can have a key in it.
    pub(super) fn without_secrets(&self) -> Self {
        match self {
            Self::Text(text) => Self::Text(Cow::Owned(redact_text(text).into_owned())),
            other => other.clone(),
        }
    }

    /// The value as JSON: a number, a boolean, or the text of the other forms.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Integer(number) => (*number).into(),
            Self::Percent(number) => (*number).into(),
            Self::Float(number) => (*number).into(),
            Self::Bool(value) => (*value).into(),
            Self::List(items) => items.clone().into(),
            Self::Duration(_) | Self::Word(_) | Self::Path(_) | Self::Size(_) | Self::Text(_) => {
                self.to_string().into()
            }
        }
    }

    /// The value as it is written in a file.
    pub fn to_toml(&self) -> String {
        match self {
            Self::Integer(_) | Self::Percent(_) | Self::Float(_) | Self::Bool(_) => {
                self.to_string()
            }
            Self::Duration(_) | Self::Word(_) | Self::Path(_) | Self::Size(_) | Self::Text(_) => {
                toml_edit::Value::from(self.to_string()).to_string()
            }
            Self::List(items) => items.iter().collect::<toml_edit::Array>().to_string(),
        }
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
