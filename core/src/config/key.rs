//! Owns the declaration of a key: its name, type, default, example and help, and the typed reading of its value. The
//! tables under `keys` declare them; readers, `config show`, schema and reference derive from that. Never holds a value.

use core::net::SocketAddr;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use super::value_syntax::{Kind, Value};
use crate::definition::{Dependency, Port, StopSignal};

/// One key, without the Rust type of its value.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// The name of its section, or of its kind of table.
    pub(super) section: &'static str,
    /// The key, with dots where it stands in a table within the table.
    pub(super) key: &'static str,
    /// Which values it takes.
    pub(super) kind: Kind,
    /// What holds without it.
    pub(super) fallback: Fallback,
    /// What it does, in one sentence.
    pub(super) help: &'static str,
    /// Whether only `afresh mcp` and servers of the gateway heed it.
    pub(super) is_mcp: bool,
    example: &'static str,
}

/// What holds where a key is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fallback {
    /// A value, in the form of variables and flags.
    Default(&'static str),
    /// As TOML or in words, for the reference; empty where that is nothing.
    Words(&'static str),
}

impl Field {
    /// The default; none where there is none.
    pub(super) fn default(&self) -> Option<Value> {
        match self.fallback {
            Fallback::Default(text) => self.kind.parse(text),
            Fallback::Words(_) => None,
        }
    }

    /// A value that it takes, as TOML.
    pub(super) fn example(&self) -> String {
        match self.default() {
            Some(default) if self.example.is_empty() => default.to_toml(),
            _ => self.example.to_owned(),
        }
    }

    /// The environment variable that sets it, where it stands in a section.
    pub(super) fn env(&self) -> String {
        let key = self.key.to_ascii_uppercase();
        match self.section {
            "defaults" => format!("AFRESH_{key}"),
            section => format!("AFRESH_{}_{key}", section.to_ascii_uppercase()),
        }
    }
}

/// A key whose value is a `T`; there may be none.
pub(super) struct Key<T: 'static> {
    pub(super) field: Field,
    value: PhantomData<fn() -> T>,
}

/// A key with a default: there is always a value.
pub(super) struct Setting<T: 'static> {
    pub(super) field: Field,
    value: PhantomData<fn() -> T>,
}

/// Declares a key.
pub(super) const fn key<T>(key: &'static str, kind: Kind) -> Key<T> {
    let fallback = Fallback::Words("");
    let field = Field { section: "", key, kind, fallback, help: "", is_mcp: false, example: "" };
    Key { field, value: PhantomData }
}

impl<T> Key<T> {
    /// A value that it takes, as TOML.
    pub(super) const fn example(mut self, toml: &'static str) -> Self {
        self.field.example = toml;
        self
    }

    /// What holds without it, in words.
    pub(super) const fn or(mut self, words: &'static str) -> Self {
        self.field.fallback = Fallback::Words(words);
        self
    }

    /// Only `afresh mcp` and servers of the gateway heed it.
    pub(super) const fn mcp(mut self) -> Self {
        self.field.is_mcp = true;
        self
    }

    /// The value that holds without it.
    pub(super) const fn default(mut self, text: &'static str) -> Setting<T> {
        self.field.fallback = Fallback::Default(text);
        Setting { field: self.field, value: self.value }
    }
}

impl<T: FromValue> Key<T> {
    /// The value, where one is given.
    pub(super) fn find(&self, source: &impl Lookup) -> Option<T> {
        source.value(&self.field).and_then(T::from_value)
    }
}

impl<T: FromValue> Setting<T> {
    /// The value that is given, or the default.
    pub(super) fn get(&self, source: &impl Lookup) -> T {
        let given = source.value(&self.field).and_then(T::from_value);
        let default = || T::from_value(&self.field.default()?);
        given.or_else(default).expect("a test reads the default of every key")
    }
}

/// Values by their keys.
pub(super) trait Lookup {
    /// The value of a key, where one is given.
    fn value(&self, field: &Field) -> Option<&Value>;
}

impl<L: Lookup> Lookup for Option<&L> {
    fn value(&self, field: &Field) -> Option<&Value> {
        self.and_then(|lookup| lookup.value(field))
    }
}

/// One of the words of an enum.
pub(super) const fn word<T: WordEnum>() -> Kind {
    Kind::Word(T::WORDS)
}

/// An enum whose variants are words in the configuration.
pub(super) trait WordEnum: Sized {
    /// The words, in the order in which they are shown.
    const WORDS: &'static [&'static str];
}

/// Names and texts; each is an entry of its own.
pub(super) struct Pairs;

/// A field of a JSON answer, as a path with dots, and its value.
pub(super) type JsonField = (String, serde_json::Value);

/// A type that values of the configuration become.
pub(super) trait FromValue: Sized {
    /// None where the value is of another kind: the type of a key has to fit its [`Kind`].
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty)+) => { $(
        impl FromValue for $integer {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Integer(number) => Self::try_from(*number).ok(),
                    Value::Percent(number) => Self::try_from(*number).ok(),
                    Value::Size(bytes) => Self::try_from(*bytes).ok(),
                    _ => None,
                }
            }
        }
    )+ };
}

integers!(u8 u16 u32 u64 usize i32);

/// Reads a variant of [`Value`] as it is.
macro_rules! variants {
    ($($variant:ident: $type:ty;)+) => { $(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value.clone()),
                    _ => None,
                }
            }
        }
    )+ };
}

variants! {
    Duration: Duration;
    Float: f64;
    Bool: bool;
    List: Vec<String>;
    Dependencies: Vec<Dependency>;
    Port: Port;
    JsonField: JsonField;
}

/// Reads the text of a value.
macro_rules! texts {
    ($($type:ty)+) => { $(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                value.to_string().parse().ok()
            }
        }
    )+ };
}

texts!(String PathBuf SocketAddr StopSignal);

/// Nothing and 0 are none.
impl<T: FromValue + Default + PartialEq> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        T::from_value(value).map(|value| Some(value).filter(|value| *value != T::default()))
    }
}

/// Declares the words of an enum.
macro_rules! words {
    ($($type:ty { $($word:literal => $variant:ident,)+ })+) => { $(
        impl $crate::config::key::WordEnum for $type {
            const WORDS: &'static [&'static str] = &[$($word,)+];
        }

        impl $crate::config::key::FromValue for $type {
            fn from_value(value: &$crate::config::value_syntax::Value) -> Option<Self> {
                match value {
                    $($crate::config::value_syntax::Value::Word($word) => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    )+ };
}

/// Declares the keys of a section or a kind of table; the comments are their help.
macro_rules! keys {
    ($list:ident of $section:literal; $(
        $(#[doc = $help:literal])+
        $name:ident: $type:ty = $key:expr;
    )+) => {
        $(
            $(#[doc = $help])+
            pub(in crate::config) static $name: $type = {
                let mut key = $key;
                key.field.section = $section;
                key.field.help = concat!($($help),+).trim_ascii_start();
                key
            };
        )+

        /// All of them, in the order in which they are shown.
        pub(in crate::config) static $list: &[&$crate::config::key::Field] = &[$(&$name.field,)+];
    };
}

pub(super) use {keys, words};
