//! Reads a whole configuration as one value, as its client does. Driven by `agent_servers`. Never changes a text.

use std::ops::Range;

use serde_json::{Map, Value};
use toml_edit::{Document, Item, Value as Toml};

use super::{checked_text, error_at, jsonc};
use crate::client_files::FileSyntax;
use crate::report::{ConfigError, ErrorKind};
use crate::text::harmless;

/// Reads a configuration; one without anything in it is an empty object.
pub(crate) fn read_value(
    path: &str,
    bytes: &[u8],
    syntax: FileSyntax,
    hint: &str,
) -> Result<Value, Box<ConfigError>> {
    let text = checked_text(path, bytes, hint)?;
    let error = |message: String, span: Range<usize>| {
        let excerpt_of = Some((text, span));
        Box::new(error_at(path, ErrorKind::Syntax, message, excerpt_of, hint.to_owned()))
    };
    match syntax {
        FileSyntax::Toml => match Document::parse(text) {
            Ok(document) => Ok(of_item(document.as_item())),
            Err(wrong) => {
                let message = harmless(wrong.message()).replace('\n', "; ");
                Err(error(message, wrong.span().unwrap_or(0..0)))
            }
        },
        FileSyntax::Json | FileSyntax::Jsonc => {
            let root = jsonc::root(text)
                .map_err(|wrong| error(wrong.message.to_owned(), wrong.at..wrong.at + 1))?;
            let Some(root) = root else { return Ok(Value::Object(Map::new())) };
            match syntax {
                FileSyntax::Json => serde_json::from_str(text).map_err(|_| {
                    error(
                        "this is JSON with comments or commas that its reader does not take"
                            .to_owned(),
                        0..0,
                    )
                }),
                FileSyntax::Jsonc | FileSyntax::Toml => Ok(of_json(text, &root)),
            }
        }
    }
}

/// The value of a range in a text that [`jsonc::root`] has checked. Where a key stands twice, the last counts.
fn of_json(text: &str, range: &Range<usize>) -> Value {
    match text.as_bytes().get(range.start) {
        Some(b'{') => {
            let members = jsonc::members(text, range).into_iter();
            Value::Object(members.map(|it| (it.key, of_json(text, &it.value))).collect())
        }
        Some(b'[') => {
            let elements = jsonc::elements(text, range).map(|(all, _)| all).unwrap_or_default();
            Value::Array(elements.iter().map(|element| of_json(text, element)).collect())
        }
        _ => serde_json::from_str(&text[range.clone()]).unwrap_or(Value::Null),
    }
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_toml(value),
        Item::Table(table) => {
            table.iter().map(|(key, item)| (key.to_owned(), of_item(item))).collect()
        }
        Item::ArrayOfTables(tables) => {
            let table = |table: &toml_edit::Table| {
                table.iter().map(|(key, item)| (key.to_owned(), of_item(item))).collect::<Value>()
            };
            tables.iter().map(table).collect()
        }
    }
}

/// Dates become texts: nothing that is looked at here is one.
fn of_toml(value: &Toml) -> Value {
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(is) => Value::from(*is.value()),
        Toml::Datetime(date) => Value::from(date.value().to_string()),
        Toml::Array(array) => array.iter().map(of_toml).collect(),
        Toml::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), of_toml(value))).collect()
        }
    }
}
