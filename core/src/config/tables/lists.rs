//! Owns the reading of entries that hold more than one value: commands, names, dependencies, ports, fields of JSON.
//! Part of [`FileReader`]. Never quotes a secret.

use serde_json::Value as Json;
use toml_edit::{Array, Item, Key, TableLike, Value as Toml};

use super::gateway::{SECRET_HINT, secret_flaw};
use super::read::is_name;
use crate::address::host_and_port;
use crate::audit::redact::redact_text;
use crate::config::file::{FileReader, entries, span, type_name, value_span};
use crate::config::key::Field;
use crate::config::kind::Kind;
use crate::config::value::Value;
use crate::definition::{Dependency, Port, Until};
use crate::limits::CONFIG_LIST_LEN_MAX;
use crate::report::ErrorKind;
use crate::suggest::nearest;
use crate::text::printable;

impl FileReader<'_> {
    /// Reads the value of a key in a table.
    pub(super) fn content(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Value> {
        match &field.kind {
            Kind::Command => self.command(field, key, item).map(Value::List),
            Kind::Names => {
                let items = self.list(field, "a list of names", key, item)?;
                self.each_is(field, item, items, is_name, |_| None).map(Value::List)
            }
            Kind::Words(words) => {
                let items = self.list(field, "a list of words", key, item)?;
                if items.is_empty() {
                    let message = format!("`{}` names nothing", field.key);
                    let hint = "leave it out for all of them".to_owned();
                    self.error(ErrorKind::BadValue, message, value_span(key, item), Some(hint));
                    return None;
                }
                let hint = |word: &str| nearest(word, words.iter().copied()).map(str::to_owned);
                self.each_is(field, item, items, |word| words.contains(&word), hint)
                    .map(Value::List)
            }
            Kind::Texts => self.list(field, "a list of strings", key, item).map(Value::List),
            Kind::Patterns => {
                let items = self.list(field, "a list of strings", key, item)?;
                let takes = |text: &str| !text.is_empty() && !text.contains(char::is_control);
                self.each_is(field, item, items, takes, |_| None).map(Value::List)
            }
            Kind::Secret => self.secret(field, key, item),
            Kind::Dependencies => self.dependencies(field, key, item),
            Kind::Port => self.port(field, key, item).map(Value::Port),
            Kind::JsonField => self.json_field(field, key, item),
            _ => self.value(field, key, item),
        }
    }

    /// A secret, of which nothing is quoted.
    fn secret(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Value> {
        let Some(text) = item.as_str() else {
            self.misfit(field, "a string", key, item);
            return None;
        };
        if let Some(flaw) = secret_flaw(text) {
            let message = format!("`{}` {flaw}", field.key);
            self.error(ErrorKind::BadValue, message, span(key), Some(SECRET_HINT.to_owned()));
            // Too short for what finds secrets in a line.
            if let Some(error) = self.read.errors.last_mut() {
                error.excerpt = None;
            }
            return None;
        }
        Some(Value::Text(text.to_owned()))
    }

    fn command(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Vec<String>> {
        if let Some(line) = item.as_str() {
            let message = format!("`{}` must be a list of strings, not a string", field.key);
            let hint = format!("write `{} = {}`", field.key, as_list(line));
            self.error(ErrorKind::WrongType, message, value_span(key, item), Some(hint));
            return None;
        }
        let items = self.list(field, "a list of strings", key, item)?;
        if items.first().is_none_or(String::is_empty) {
            let message = format!("`{}` has no program", field.key);
            let hint = format!("for example `{} = {}`", field.key, field.example());
            self.error(ErrorKind::BadValue, message, value_span(key, item), Some(hint));
            return None;
        }
        Some(items)
    }

    /// A list of strings without NUL bytes.
    fn list(&mut self, field: &Field, wanted: &str, key: &Key, item: &Item) -> Option<Vec<String>> {
        let Some(array) = item.as_value().and_then(Toml::as_array) else {
            self.misfit(field, wanted, key, item);
            return None;
        };
        if array.len() > CONFIG_LIST_LEN_MAX {
            self.too_long(field, key, item);
            return None;
        }
        self.strings(field, array)
    }

    fn strings(&mut self, field: &Field, array: &Array) -> Option<Vec<String>> {
        let mut strings = Vec::new();
        for item in array {
            let (message, hint) = match item.as_str() {
                Some(text) if !text.contains('\0') => {
                    strings.push(text.to_owned());
                    continue;
                }
                Some(_) => {
                    (format!("an item of `{}` has a NUL byte", field.key), "remove it".to_owned())
                }
                None => {
                    let found = type_name(&Item::Value(item.clone()));
                    let message =
                        format!("an item of `{}` must be a string, not {found}", field.key);
                    (
                        message,
                        format!("put it in quotes: `\"{}\"`", printable(item.to_string().trim())),
                    )
                }
            };
            let at = item.span().unwrap_or(0..0);
            self.error(ErrorKind::WrongType, message, at, Some(hint));
            return None;
        }
        Some(strings)
    }

    /// All items, where each is one that the field takes and none is there twice.
    fn each_is(
        &mut self,
        field: &Field,
        item: &Item,
        items: Vec<String>,
        takes: impl Fn(&str) -> bool,
        meant: impl Fn(&str) -> Option<String>,
    ) -> Option<Vec<String>> {
        let wrong = |(index, text): (usize, &String)| {
            (!takes(text) || items[..index].contains(text)).then_some(index)
        };
        let Some(index) = items.iter().enumerate().find_map(wrong) else { return Some(items) };
        let text = &items[index];
        let (message, hint) = if takes(text) {
            (format!("`{}` is twice in `{}`", printable(text), field.key), "remove one".to_owned())
        } else {
            let hint = match meant(text) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("for example `{} = {}`", field.key, field.example()),
            };
            (format!("`{}` does not take `{}`", field.key, printable(text)), hint)
        };
        let at =
            item.as_value().and_then(Toml::as_array).and_then(|array| array.get(index)?.span());
        self.error(ErrorKind::BadValue, message, at.unwrap_or(0..0), Some(hint));
        None
    }

    fn dependencies(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Value> {
        let Some(table) = item.as_table_like() else {
            let items = self.list(field, "a list of names or a table", key, item)?;
            let items = self.each_is(field, item, items, is_name, |_| None)?;
            let ready = |name| Dependency { name, until: Until::Ready };
            return Some(Value::Dependencies(items.into_iter().map(ready).collect()));
        };
        if table.len() > CONFIG_LIST_LEN_MAX {
            self.too_long(field, key, item);
            return None;
        }
        let mut all = Vec::new();
        for (key, item) in entries(table) {
            let name = key.get().to_owned();
            let until = [Until::Ready, Until::Started].into_iter();
            match until.into_iter().find(|until| item.as_str() == Some(until.name())) {
                Some(until) => all.push(Dependency { name, until }),
                None => {
                    let message =
                        format!("`depends_on.{}` must be `ready` or `started`", printable(&name));
                    let hint = "for example `depends_on = { db = \"ready\" }`".to_owned();
                    self.error(ErrorKind::BadValue, message, value_span(key, item), Some(hint));
                    return None;
                }
            }
        }
        Some(Value::Dependencies(all))
    }

    fn port(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Port> {
        let number = item.as_integer().and_then(|number| u16::try_from(number).ok());
        let found = match (number.filter(|port| *port > 0), item.as_str()) {
            (Some(port), _) => Some(Port { host: "localhost".to_owned(), port }),
            (None, Some(text)) => {
                host_and_port(text).map(|(host, port)| Port { host: host.to_owned(), port })
            }
            (None, None) => None,
        };
        if found.is_none() {
            self.misfit(field, "a port from 1 to 65535, or `\"host:port\"`", key, item);
        }
        found
    }

    /// `{ healthy = true }`, `{ "a.b" = 1 }` or `{ a.b = 1 }`.
    fn json_field(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Value> {
        let (mut path, mut at, mut item_at) = (String::new(), key.clone(), item);
        while let Some(table) = item_at.as_table_like() {
            let Some((key, inner)) = only_entry(table) else {
                self.misfit(field, "a table with one field", key, item);
                return None;
            };
            let dot = if path.is_empty() { "" } else { "." };
            path = format!("{path}{dot}{}", key.get());
            (at, item_at) = (key.clone(), inner);
        }
        let value = match item_at.as_value() {
            Some(Toml::String(text)) => Some(Json::from(text.value().as_str())),
            Some(Toml::Integer(number)) => Some(Json::from(*number.value())),
            Some(Toml::Float(number)) => {
                serde_json::Number::from_f64(*number.value()).map(Json::Number)
            }
            Some(Toml::Boolean(value)) => Some(Json::from(*value.value())),
            _ => None,
        };
        match value {
            Some(value) if !path.is_empty() => Some(Value::JsonField((path, value))),
            _ => {
                self.misfit(field, "a table with one field", &at, item_at);
                None
            }
        }
    }

    pub(super) fn misfit(&mut self, field: &Field, wanted: &str, key: &Key, item: &Item) {
        let (name, found) = (field.key, type_name(item));
        let message = format!("`{name}` must be {wanted}, not {found}");
        let hint = format!("for example `{name} = {}`", field.example());
        self.error(ErrorKind::WrongType, message, value_span(key, item), Some(hint));
    }

    pub(super) fn too_long(&mut self, field: &Field, key: &Key, item: &Item) {
        let message = format!("`{}` has more than {CONFIG_LIST_LEN_MAX} items", field.key);
        let at = if item.is_value() { value_span(key, item) } else { span(key) };
        let hint = "put them into a file or a script, and name that".to_owned();
        self.error(ErrorKind::TooMany, message, at, Some(hint));
    }
}

fn only_entry(table: &dyn TableLike) -> Option<(&Key, &Item)> {
    entries(table).next().filter(|(key, _)| table.len() == 1 && !key.get().is_empty())
}

/// A command line as the list that was meant; by a shell where it needs one.
fn as_list(line: &str) -> String {
    // No more of it would be shown.
    let start: String = line.chars().take(200).collect();
    let line = redact_text(start.trim());
    let needs_shell = line.contains(['"', '\'', '`', '$', '|', '&', ';', '<', '>', '*', '~', '\\']);
    let words: Vec<&str> = match &*line {
        line if needs_shell => vec!["sh", "-c", line],
        "" => vec!["program", "argument"],
        line => line.split_whitespace().collect(),
    };
    let quoted: Vec<String> =
        words.iter().map(|word| toml_edit::Value::from(*word).to_string()).collect();
    printable(&format!("[{}]", quoted.join(", ")))
}
