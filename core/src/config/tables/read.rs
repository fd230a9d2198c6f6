//! Owns the reading of tables in one file, entry by entry: commands, lists, names, dependencies, ports. Part of
//! [`FileReader`]. Never looks at other files, and never quotes a secret.

use serde_json::Value as Json;
use toml_edit::{TableLike, Value as Toml};

use super::tokens::{SECRET_HINT, secret_flaw};
use super::{Table, TableEntry, is_under};
use crate::address::{host_and_port, is_header_name};
use crate::audit::redact::redact_text;
use crate::config::file::{FileEntry, FileReader, entries, type_name, unknown_hint};
use crate::config::key::Field;
use crate::config::keys::{OTHER_WORDS, TableKind, settings};
use crate::config::value_syntax::{Kind, Value};
use crate::config::{FileKind, leads_outside, outside_error};
use crate::definition::{Dependency, Port, Until};
use crate::gateway::OWN_NAME;
use crate::limits::{CONFIG_LIST_LEN_MAX, NAME_CHARS_MAX};
use crate::report::ErrorKind;
use crate::suggest::nearest;
use crate::text::printable;

impl FileReader<'_> {
    /// `[service]`, `[hook]`, `[server]` or `[gateway.token]`, with everything in it.
    pub(in super::super) fn tables(&mut self, kind: TableKind, entry: FileEntry<'_>) {
        let Some(tables) = entry.item.as_table_like() else {
            let hint = format!("begin each with `[{}]`", kind.declared().heading);
            return self.no_table(kind.section(), entry, hint);
        };
        for (count, entry) in entries(tables).enumerate() {
            // One more than there may be is enough to say so.
            if self.read.errors.is_full() || count > kind.declared().count_max {
                return;
            }
            self.table(kind, entry);
        }
    }

    /// One table, which the key names.
    pub(in super::super) fn table(&mut self, kind: TableKind, entry: FileEntry<'_>) {
        let name = entry.name();
        let Some(content) = entry.item.as_table_like() else {
            let hint = format!("begin it with `[{}]`", kind.declared().heading);
            if kind.is_single() {
                return self.no_table(name, entry, hint);
            }
            let message = format!("`[{}]` needs a name for what it defines", kind.section());
            return self.error(ErrorKind::WrongType, message, entry.key_span(), hint);
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
            return self.error(ErrorKind::BadValue, message, entry.key_span(), hint);
        }
        let place = self.place(entry.key_span());
        let (name, from, entries) = (name.to_owned(), self.kind, Vec::new());
        let mut table = Table { kind, name, place, from, entries };
        self.keys(&mut table, "", content);
        self.check_rivals(&table);
        self.read.tables.push(table);
    }

    fn keys(&mut self, table: &mut Table, prefix: &str, content: &dyn TableLike) {
        let kind = table.kind;
        for entry in entries(content) {
            if self.read.errors.is_full() {
                return;
            }
            let path = format!("{prefix}{}", entry.name());
            // A dot within quotes is part of a name, and no name here has one.
            if entry.name().contains('.') {
                self.unknown_entry(table, prefix, entry);
            } else if kind == TableKind::Gateway && path == "token" {
                self.tables(TableKind::Token, entry);
            } else if let Some(field) = kind.key(&path) {
                self.field(table, field, entry);
            } else if let Some(field) = kind.fields().find(|field| is_under(field.key, &path)) {
                match entry.item.as_table_like() {
                    Some(inner) => self.keys(table, &format!("{path}."), inner),
                    None => {
                        let message =
                            format!("`{path}` must be a table, not {}", entry.type_name());
                        let hint = example_hint(field);
                        self.error(ErrorKind::WrongType, message, entry.span(), hint);
                    }
                }
            } else {
                self.unknown_entry(table, prefix, entry);
            }
        }
    }

    fn put(&mut self, table: &mut Table, path: String, entry: FileEntry<'_>, value: Value) {
        let place = self.place(entry.span());
        table.entries.push(TableEntry { path, value, place, from: self.kind });
    }

    fn field(&mut self, table: &mut Table, field: &Field, entry: FileEntry<'_>) {
        if matches!(field.kind, Kind::Variables | Kind::Headers) {
            return self.texts(table, field, entry);
        }
        let Some(value) = self.content(field, entry) else { return };
        if self.kind == FileKind::Workspace && leads_outside(&value) {
            let place = self.place(entry.span());
            return self.read.errors.push(outside_error(field.key, &place, ""));
        }
        self.put(table, field.key.to_owned(), entry, value);
    }

    /// A table of variables or headers, as one entry for each.
    fn texts(&mut self, table: &mut Table, field: &Field, entry: FileEntry<'_>) {
        let Some(texts) = entry.item.as_table_like() else {
            self.misfit::<()>(field, "a table", entry);
            return;
        };
        if texts.len() > CONFIG_LIST_LEN_MAX {
            return self.too_long(field, entry);
        }
        for entry in entries(texts) {
            let name = entry.name();
            let path = format!("{}.{name}", field.key);
            let shown = printable(&path);
            let text = match entry.item.as_value() {
                Some(Toml::String(text)) => Some(text.value().clone()),
                Some(Toml::Integer(number)) => Some(number.value().to_string()),
                Some(Toml::Float(number)) => Some(format!("{:?}", number.value())),
                Some(Toml::Boolean(value)) => Some(value.value().to_string()),
                _ => None,
            };
            let is_header = field.kind == Kind::Headers;
            let is_bad =
                |text: &str| text.contains('\0') || is_header && text.contains(char::is_control);
            // No value is quoted: it may be a secret.
            let (kind, message, at) = match text {
                _ if is_header && !is_header_name(name) => {
                    let message = format!("`{shown}` is no name of a header");
                    (ErrorKind::BadValue, message, entry.key_span())
                }
                _ if name.is_empty() || name.contains(['=', '\0']) => {
                    let message = format!("`{shown}` is no name of a variable");
                    (ErrorKind::BadValue, message, entry.key_span())
                }
                None => {
                    let message = format!("`{shown}` must be a string, not {}", entry.type_name());
                    (ErrorKind::WrongType, message, entry.span())
                }
                Some(text) if is_bad(&text) => {
                    let message = format!("`{shown}` has a character that it cannot have");
                    (ErrorKind::BadValue, message, entry.span())
                }
                Some(text) => {
                    self.put(table, path, entry, Value::Text(text));
                    continue;
                }
            };
            self.error(kind, message, at, example_hint(field));
        }
    }

    /// At most one of the keys that exclude each other.
    fn check_rivals(&mut self, table: &Table) {
        for group in table.kind.declared().rivals {
            let mut given = table.entries.iter().filter(|e| group.contains(&e.path.as_str()));
            let Some(first) = given.next() else { continue };
            for second in given {
                let message = format!("`{}` and `{}` exclude each other", first.path, second.path);
                let hint = "keep one of the two".to_owned();
                self.read.errors.push(second.place.error(ErrorKind::Conflict, message, hint));
            }
        }
    }

    fn unknown_entry(&mut self, table: &Table, prefix: &str, entry: FileEntry<'_>) {
        let (kind, name) = (table.kind, entry.name());
        let heading = format!("[{}]", kind.heading_of(&table.name));
        let inside = match prefix.strip_suffix('.') {
            Some(prefix) => format!("`{prefix}` of `{heading}`"),
            None => format!("`{heading}`"),
        };
        // A name with a dot is never a key.
        let path = if name.contains('.') { String::new() } else { format!("{prefix}{name}") };
        let setting = settings().find(|setting| setting.key == path);
        let is_key = |known: &str| kind.keys().any(|field| is_under(field.key, known));
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
            _ if kind == TableKind::Gateway && TableKind::Server.key(&path).is_some() => {
                format!("`{path}` belongs in `[server.NAME]`")
            }
            _ if kind == TableKind::Server && TableKind::Gateway.key(&path).is_some() => {
                format!("`{path}` belongs in `[gateway]`")
            }
            (_, _, _, Some((_, ours))) => format!("that is `{ours}` here"),
            (_, Some(setting), ..) if setting.section != "defaults" => {
                format!("`{path}` belongs in `[{}]`", setting.section)
            }
            _ => {
                let part =
                    |field: &'static Field| field.key.strip_prefix(prefix)?.split('.').next();
                unknown_hint(name, kind.keys().filter_map(part))
            }
        };
        let message = format!("unknown key `{}` in {inside}", printable(name));
        self.error(ErrorKind::UnknownKey, message, entry.key_span(), hint);
    }

    /// Reads the value of a key in a table.
    fn content(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        match &field.kind {
            Kind::Command => self.command(field, entry),
            Kind::Names => {
                let items = self.list(field, "a list of names", entry)?;
                self.each_is(field, entry, items, is_name, &[]).map(Value::List)
            }
            Kind::Words(words) => {
                let items = self.list(field, "a list of words", entry)?;
                if items.is_empty() {
                    let message = format!("`{}` names nothing", field.key);
                    let hint = "leave it out for all of them";
                    return self.refuse(ErrorKind::BadValue, message, entry.span(), hint);
                }
                let takes = |word: &str| words.contains(&word);
                self.each_is(field, entry, items, takes, words).map(Value::List)
            }
            Kind::Texts => self.list(field, "a list of strings", entry).map(Value::List),
            Kind::Patterns => {
                let items = self.list(field, "a list of strings", entry)?;
                let takes = |text: &str| !text.is_empty() && !text.contains(char::is_control);
                self.each_is(field, entry, items, takes, &[]).map(Value::List)
            }
            Kind::Secret => self.secret(field, entry),
            Kind::Dependencies => self.dependencies(field, entry),
            Kind::Port => self.port(field, entry),
            Kind::JsonField => self.json_field(field, entry),
            _ => self.value(field, entry),
        }
    }

    /// A secret, of which nothing is quoted.
    fn secret(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        let Some(text) = entry.item.as_str() else {
            return self.misfit(field, "a string", entry);
        };
        let Some(flaw) = secret_flaw(text) else { return Some(Value::Text(text.to_owned())) };
        let message = format!("`{}` {flaw}", field.key);
        self.error(ErrorKind::BadValue, message, entry.key_span(), SECRET_HINT);
        // Too short for what finds secrets in a line.
        if let Some(error) = self.read.errors.0.last_mut() {
            error.excerpt = None;
        }
        None
    }

    fn command(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        if let Some(line) = entry.item.as_str() {
            let message = format!("`{}` must be a list of strings, not a string", field.key);
            let hint = format!("write `{} = {}`", field.key, as_list(line));
            return self.refuse(ErrorKind::WrongType, message, entry.span(), hint);
        }
        let items = self.list(field, "a list of strings", entry)?;
        if items.first().is_none_or(String::is_empty) {
            let message = format!("`{}` has no program", field.key);
            return self.refuse(ErrorKind::BadValue, message, entry.span(), example_hint(field));
        }
        Some(Value::List(items))
    }

    /// A list of strings without NUL bytes.
    fn list(&mut self, field: &Field, wanted: &str, entry: FileEntry<'_>) -> Option<Vec<String>> {
        let Some(array) = entry.item.as_value().and_then(Toml::as_array) else {
            return self.misfit(field, wanted, entry);
        };
        if array.len() > CONFIG_LIST_LEN_MAX {
            self.too_long(field, entry);
            return None;
        }
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
                None => (
                    format!(
                        "an item of `{}` must be a string, not {}",
                        field.key,
                        type_name(item.type_name())
                    ),
                    format!("put it in quotes: `\"{}\"`", printable(item.to_string().trim())),
                ),
            };
            return self.refuse(ErrorKind::WrongType, message, item.span().unwrap_or(0..0), hint);
        }
        Some(strings)
    }

    /// All items, where each is one that the field takes and none is there twice. One of `words` may be meant.
    fn each_is(
        &mut self,
        field: &Field,
        entry: FileEntry<'_>,
        items: Vec<String>,
        takes: impl Fn(&str) -> bool,
        words: &[&'static str],
    ) -> Option<Vec<String>> {
        let is_wrong =
            |index: &usize| !takes(&items[*index]) || items[..*index].contains(&items[*index]);
        let Some(index) = (0..items.len()).find(is_wrong) else { return Some(items) };
        let text = &items[index];
        let (message, hint) = if takes(text) {
            (format!("`{}` is twice in `{}`", printable(text), field.key), "remove one".to_owned())
        } else {
            let hint = match nearest(text, words.iter().copied()) {
                Some(word) => format!("did you mean `{word}`?"),
                None => example_hint(field),
            };
            (format!("`{}` does not take `{}`", field.key, printable(text)), hint)
        };
        let array = entry.item.as_value().and_then(Toml::as_array);
        let at = array.and_then(|array| array.get(index)?.span()).unwrap_or(0..0);
        self.refuse(ErrorKind::BadValue, message, at, hint)
    }

    fn dependencies(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        let Some(table) = entry.item.as_table_like() else {
            let items = self.list(field, "a list of names or a table", entry)?;
            let items = self.each_is(field, entry, items, is_name, &[])?;
            let ready = |name| Dependency { name, until: Until::Ready };
            return Some(Value::Dependencies(items.into_iter().map(ready).collect()));
        };
        if table.len() > CONFIG_LIST_LEN_MAX {
            self.too_long(field, entry);
            return None;
        }
        let mut all = Vec::new();
        for entry in entries(table) {
            let name = entry.name().to_owned();
            let mut until = [Until::Ready, Until::Started].into_iter();
            let Some(until) = until.find(|until| entry.item.as_str() == Some(until.name())) else {
                let message =
                    format!("`depends_on.{}` must be `ready` or `started`", printable(&name));
                let hint = "for example `depends_on = { db = \"ready\" }`";
                return self.refuse(ErrorKind::BadValue, message, entry.span(), hint);
            };
            all.push(Dependency { name, until });
        }
        Some(Value::Dependencies(all))
    }

    fn port(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        let number = entry.item.as_integer().and_then(|number| u16::try_from(number).ok());
        let number = number.filter(|port| *port > 0).map(|port| ("localhost", port));
        let Some((host, port)) = number.or_else(|| host_and_port(entry.item.as_str()?)) else {
            return self.misfit(field, "a port from 1 to 65535, or `\"host:port\"`", entry);
        };
        Some(Value::Port(Port { host: host.to_owned(), port }))
    }

    /// `{ healthy = true }`, `{ "a.b" = 1 }` or `{ a.b = 1 }`.
    fn json_field(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        let (mut path, mut at) = (String::new(), entry);
        while let Some(table) = at.item.as_table_like() {
            let only = entries(table).next().filter(|it| table.len() == 1 && !it.name().is_empty());
            let Some(inner) = only else {
                return self.misfit(field, "a table with one field", entry);
            };
            let dot = if path.is_empty() { "" } else { "." };
            path = format!("{path}{dot}{}", inner.name());
            at = inner;
        }
        let value = match at.item.as_value() {
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
            _ => self.misfit(field, "a table with one field", at),
        }
    }

    fn misfit<T>(&mut self, field: &Field, wanted: &str, entry: FileEntry<'_>) -> Option<T> {
        let message = format!("`{}` must be {wanted}, not {}", field.key, entry.type_name());
        self.refuse(ErrorKind::WrongType, message, entry.span(), example_hint(field))
    }

    fn too_long(&mut self, field: &Field, entry: FileEntry<'_>) {
        let message = format!("`{}` has more than {CONFIG_LIST_LEN_MAX} items", field.key);
        let hint = "put them into a file or a script, and name that";
        self.error(ErrorKind::TooMany, message, entry.span(), hint);
    }
}

fn example_hint(field: &Field) -> String {
    format!("for example `{} = {}`", field.key, field.example())
}

/// Letters and digits with something between them: it becomes part of file names and of URLs.
fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
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
