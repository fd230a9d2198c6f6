//! Owns the reading of tables in one file. Part of [`FileReader`]. Never looks at other files.

use toml_edit::{Item, Key, TableLike, Value as Toml};

use super::{Table, TableEntry, TableKind, is_under};
use crate::address::is_header_name;
use crate::config::file::{FileReader, entries, span, type_name, unknown_hint, value_span};
use crate::config::key::Field;
use crate::config::keys::{OTHER_WORDS, settings};
use crate::config::kind::Kind;
use crate::config::value::Value;
use crate::config::{FileKind, leads_outside, outside_error};
use crate::gateway::OWN_NAME;
use crate::limits::{CONFIG_LIST_LEN_MAX, NAME_CHARS_MAX};
use crate::report::ErrorKind;
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
