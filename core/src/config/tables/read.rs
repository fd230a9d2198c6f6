//! Owns the reading of tables in one file, entry by entry: commands, lists, names, dependencies, ports. Part of
//! [`FileReader`]. Never looks at other files, and never quotes a secret.

use serde_json::Value as Json;
use toml_edit::{Array, Item, Key, TableLike, Value as Toml};

use super::gateway::{SECRET_HINT, secret_flaw};
use super::{Table, TableEntry, TableKind, is_under};
use crate::address::{host_and_port, is_header_name};
use crate::audit::redact::redact_text;
use crate::config::file::{FileReader, entries, span, type_name, unknown_hint, value_span};
use crate::config::key::Field;
use crate::config::keys::{OTHER_WORDS, settings};
use crate::config::kind::Kind;
use crate::config::kind::Value;
use crate::config::{FileKind, leads_outside, outside_error};
use crate::definition::{Dependency, Port, Until};
use crate::gateway::OWN_NAME;
use crate::limits::{CONFIG_LIST_LEN_MAX, NAME_CHARS_MAX};
use crate::report::ErrorKind;
use crate::suggest::nearest;
use crate::text::printable;

impl FileReader<'_> {
    /// `[service]`, `[hook]`, `[server]` or `[gateway.token]`, with everything in it.
    pub(in super::super) fn tables(&mut self, kind: TableKind, key: &Key, item: &Item) {
        let (section, heading) = (kind.section(), kind.heading());
        let Some(tables) = item.as_table_like() else {
            let message = format!("`{section}` must be a table, not {}", type_name(item));
            let hint = format!("begin each with `[{heading}]`");
            return self.error(ErrorKind::WrongType, message, span(key), Some(hint));
        };
        for (count, (key, item)) in entries(tables).enumerate() {
            // One more than there may be is enough to say so.
            if self.is_full() || count > kind.count_max() {
                return;
            }
            self.table(kind, key, item);
        }
    }

    /// One table, which the key names.
    pub(in super::super) fn table(&mut self, kind: TableKind, key: &Key, item: &Item) {
        let name = key.get();
        let Some(content) = item.as_table_like() else {
            let section = kind.section();
            let message = match kind.is_single() {
                true => format!("`{section}` must be a table, not {}", type_name(item)),
                false => format!("`[{section}]` needs a name for what it defines"),
            };
            let hint = format!("begin it with `[{}]`", kind.heading());
            return self.error(ErrorKind::WrongType, message, span(key), Some(hint));
        };
        let is_own = kind == TableKind::Server && name.eq_ignore_ascii_case(OWN_NAME);
        let has_dot = kind == TableKind::Server && name.contains('.');
        if !is_name(name) || is_own || has_dot {
            let message = format!("`{}` is no name for a {}", printable(name), kind.noun());
            let hint = match kind {
                _ if is_own => format!("`{OWN_NAME}` has tools of its own: take another name"),
                TableKind::Server => format!(
                    "a name has letters, digits, `-` and `_`, at most {NAME_CHARS_MAX}, and does not \
                     begin with `-`"
                ),
                _ => format!(
                    "a name has letters, digits, `-`, `_` and `.`, at most {NAME_CHARS_MAX}, and \
                     begins with none of `-` and `.`"
                ),
            };
            return self.error(ErrorKind::BadValue, message, span(key), Some(hint));
        }
        let mut table = Table {
            kind,
            name: name.to_owned(),
            place: self.place(span(key)),
            from: self.kind,
            entries: Vec::new(),
        };
        self.keys(&mut table, "", content);
        self.check_rivals(&table);
        self.read.tables.push(table);
    }

    fn keys(&mut self, table: &mut Table, prefix: &str, content: &dyn TableLike) {
        for (key, item) in entries(content) {
            if self.is_full() {
                return;
            }
            // A dot within quotes is part of a name, and no name here has one.
            if key.get().contains('.') {
                self.unknown_entry(table, prefix, key);
                continue;
            }
            let path = format!("{prefix}{}", key.get());
            if table.kind == TableKind::Gateway && path == "token" {
                self.tables(TableKind::Token, key, item);
                continue;
            }
            let mut fields = table.kind.fields();
            let settings = &mut table.kind.settings();
            if let Some(field) = fields.find(|field| field.key == path) {
                self.field(table, field, key, item);
            } else if let Some(setting) = settings.find(|setting| setting.key == path) {
                let value = self.value(setting, key, item);
                self.put(table, path, key, item, value);
            } else if table.kind.fields().any(|field| is_under(field.key, &path)) {
                match item.as_table_like() {
                    Some(inner) => self.keys(table, &format!("{path}."), inner),
                    None => self.no_table(table.kind, &path, key, item),
                }
            } else {
                self.unknown_entry(table, prefix, key);
            }
        }
    }

    fn put(
        &mut self,
        table: &mut Table,
        path: String,
        key: &Key,
        item: &Item,
        value: Option<Value>,
    ) {
        let Some(value) = value else { return };
        let place = self.place(value_span(key, item));
        table.entries.push(TableEntry { path, value, place, from: self.kind });
    }

    fn field(&mut self, table: &mut Table, field: &Field, key: &Key, item: &Item) {
        if matches!(field.kind, Kind::Variables | Kind::Headers) {
            return self.texts(table, field, key, item);
        }
        let value = self.content(field, key, item);
        if self.kind == FileKind::Workspace && value.as_ref().is_some_and(leads_outside) {
            let place = self.place(value_span(key, item));
            if !self.is_full() {
                self.read.errors.push(outside_error(field.key, &place, ""));
            }
            return;
        }
        self.put(table, field.key.to_owned(), key, item, value);
    }

    /// A table of variables or headers, as one entry for each.
    fn texts(&mut self, table: &mut Table, field: &Field, key: &Key, item: &Item) {
        let Some(texts) = item.as_table_like() else {
            return self.misfit(field, "a table", key, item);
        };
        if texts.len() > CONFIG_LIST_LEN_MAX {
            return self.too_long(field, key, item);
        }
        for (key, item) in entries(texts) {
            let name = key.get();
            let path = format!("{}.{name}", field.key);
            let shown = printable(&path);
            let text = match item.as_value() {
                Some(Toml::String(text)) => Some(text.value().clone()),
                Some(Toml::Integer(number)) => Some(number.value().to_string()),
                Some(Toml::Float(number)) => Some(format!("{:?}", number.value())),
                Some(Toml::Boolean(value)) => Some(value.value().to_string()),
                _ => None,
            };
            let is_header = field.kind == Kind::Headers;
            // No value is quoted: it may be a secret.
            let (kind, message, at) = match &text {
                _ if is_header && !is_header_name(name) => {
                    let message = format!("`{shown}` is no name of a header");
                    (ErrorKind::BadValue, message, span(key))
                }
                _ if name.is_empty() || name.contains(['=', '\0']) => {
                    let message = format!("`{shown}` is no name of a variable");
                    (ErrorKind::BadValue, message, span(key))
                }
                None => {
                    let message = format!("`{shown}` must be a string, not {}", type_name(item));
                    (ErrorKind::WrongType, message, value_span(key, item))
                }
                Some(text)
                    if text.contains('\0') || is_header && text.contains(char::is_control) =>
                {
                    let message = format!("`{shown}` has a character that it cannot have");
                    (ErrorKind::BadValue, message, value_span(key, item))
                }
                Some(text) => {
                    self.put(table, path, key, item, Some(Value::Text(text.clone())));
                    continue;
                }
            };
            let hint = format!("for example `{} = {}`", field.key, field.example());
            self.error(kind, message, at, Some(hint));
        }
    }

    /// At most one of the keys that exclude each other.
    fn check_rivals(&mut self, table: &Table) {
        for group in table.kind.rivals() {
            let mut given = table.entries.iter().filter(|e| group.contains(&e.path.as_str()));
            let Some(first) = given.next() else { continue };
            for second in given {
                let message = format!("`{}` and `{}` exclude each other", first.path, second.path);
                let hint = "keep one of the two".to_owned();
                if !self.is_full() {
                    self.read.errors.push(second.place.error(ErrorKind::Conflict, message, hint));
                }
            }
        }
    }

    fn no_table(&mut self, kind: TableKind, path: &str, key: &Key, item: &Item) {
        let example = kind.fields().find(|field| is_under(field.key, path));
        let hint =
            example.map(|field| format!("for example `{} = {}`", field.key, field.example()));
        let message = format!("`{path}` must be a table, not {}", type_name(item));
        self.error(ErrorKind::WrongType, message, value_span(key, item), hint);
    }

    fn unknown_entry(&mut self, table: &Table, prefix: &str, key: &Key) {
        let (kind, name) = (table.kind, key.get());
        let heading = match kind.is_single() {
            true => format!("[{}]", kind.section()),
            false => format!("[{}.{}]", kind.section(), table.name),
        };
        let inside = match prefix.strip_suffix('.') {
            Some(prefix) => format!("`{prefix}` of `{heading}`"),
            None => format!("`{heading}`"),
        };
        // A name with a dot is never a key.
        let path = if name.contains('.') { String::new() } else { format!("{prefix}{name}") };
        let setting = settings().find(|setting| setting.key == path);
        let is_key = |known: &str| {
            kind.fields().any(|field| is_under(field.key, known))
                || kind.settings().any(|setting| setting.key == known)
        };
        let deeper = kind.fields().find(|f| f.key.split_once('.').is_some_and(|(_, k)| k == name));
        let other = OTHER_WORDS.iter().find(|(word, ours)| *word == name && is_key(ours));
        let hint = match (kind.replaced_by(&path), setting, deeper, other) {
            (Some(here), ..) => format!("in `{heading}` this is `{here}`"),
            (_, Some(setting), ..) if setting.is_mcp && kind.settings().next().is_some() => {
                format!(
                    "`{path}` is for `afresh mcp`: put it into `[defaults]`, where that reads it"
                )
            }
            (_, _, Some(field), _) => format!("write `{}`", field.key),
            _ if kind == TableKind::Gateway && takes(TableKind::Server, &path) => {
                format!("`{path}` belongs in `[server.NAME]`")
            }
            _ if kind == TableKind::Server && takes(TableKind::Gateway, &path) => {
                format!("`{path}` belongs in `[gateway]`")
            }
            (_, _, _, Some((_, ours))) => format!("that is `{ours}` here"),
            (_, Some(setting), ..) if setting.section != "defaults" => {
                format!("`{path}` belongs in `[{}]`", setting.section)
            }
            _ => {
                let part = |key: &'static str| key.strip_prefix(prefix)?.split('.').next();
                let settings = kind.settings().map(|setting| setting.key);
                let keys = kind.fields().map(|field| field.key).chain(settings);
                unknown_hint(name, keys.filter_map(part))
            }
        };
        let message = format!("unknown key `{}` in {inside}", printable(name));
        self.error(ErrorKind::UnknownKey, message, span(key), Some(hint));
    }
}

/// Whether a table has such a key.
fn takes(kind: TableKind, path: &str) -> bool {
    kind.fields().any(|field| field.key == path)
        || kind.settings().any(|setting| setting.key == path)
}

/// Letters and digits with something between them: it becomes part of file names and of URLs.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_files_and_urls() {
        for name in ["a", "api", "My_api-2.0", "0", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", ".a", "..", "a b", "a/b", "é", "a\0", "a\n", &"x".repeat(65)] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
