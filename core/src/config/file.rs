//! Owns the reading of one configuration file: the values that it gives, and every error in it. Driven by `load`. Never
//! merges layers.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike, TomlError, Value as Toml};

use super::key::Field;
use super::keys::{SECTIONS, Section, settings};
use super::kind::{Value, value_hint};
use super::resolve::SourcedValue;
use super::tables::{Table, TableKind};
use super::{ConfigSource, FileKind};
use crate::audit::redact::redact_text;
use crate::excerpt::LineIndex;
use crate::limits::{CONFIG_ERRORS_MAX, CONFIG_FILE_BYTES_MAX};
use crate::report::{ConfigError, ErrorKind, Location, Origin};
use crate::suggest::nearest;
use crate::text::{harmless, printable};

/// What a file gives: values by their place in the table of settings, tables, and its errors in the
/// order of their lines.
pub(super) struct Read {
    pub(super) given: Vec<(&'static Field, SourcedValue)>,
    pub(super) tables: Vec<Table>,
    pub(super) errors: Vec<ConfigError>,
}

pub(super) fn read(source: &ConfigSource<'_>) -> Read {
    let too_large = source.bytes.len() > CONFIG_FILE_BYTES_MAX;
    let bytes = if too_large { b"" } else { source.bytes };
    // Editors on Windows put the mark of UTF-8 at the start; it is no part of the text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let mut reader = FileReader {
        path: harmless(source.path),
        kind: source.kind,
        lines: LineIndex::new(&text),
        read: Read { given: Vec::new(), tables: Vec::new(), errors: Vec::new() },
    };
    if too_large {
        let kib = CONFIG_FILE_BYTES_MAX / 1024;
        let message = format!("the file is larger than {kib}KiB");
        reader.error(ErrorKind::TooLarge, message, 0..0, None);
        // No line of it says more.
        reader.read.errors[0].excerpt = None;
    } else if let Err(error) = std::str::from_utf8(bytes) {
        // Up to there, the text with its replacement marks is the same as the bytes.
        let start = error.valid_up_to();
        let message = "the file is not UTF-8 text".to_owned();
        let hint = Some("save it as UTF-8".to_owned());
        reader.error(ErrorKind::Encoding, message, start..start + 1, hint);
    } else {
        match Document::parse(text.as_ref()) {
            Ok(document) => reader.root(document.as_table()),
            Err(error) => reader.syntax_error(&error),
        }
    }
    let mut read = reader.read;
    read.errors.sort_by_key(|error| match error.origin {
        Origin::File { line, column, .. } => (line, column),
        _ => (usize::MAX, 0),
    });
    read
}

pub(super) struct FileReader<'a> {
    path: String,
    /// Whose file it is.
    pub(super) kind: FileKind,
    lines: LineIndex<'a>,
    pub(super) read: Read,
}

impl FileReader<'_> {
    fn root(&mut self, root: &dyn TableLike) {
        for (key, item) in entries(root) {
            if self.is_full() {
                return;
            }
            let name = key.get();
            if let Some(section) = SECTIONS.iter().find(|section| section.name == name) {
                self.section(section, key, item);
            } else if let Some(kind) = table_kind(name) {
                match kind.is_single() {
                    true => self.table(kind, key, item),
                    false => self.tables(kind, key, item),
                }
            } else if item.is_value() && !item.is_inline_table() {
                let message = format!("unknown key `{}` outside of a section", printable(name));
                let home = settings().find(|setting| setting.key == name);
                let hint = match home {
                    Some(home) => format!("put it under `[{}]`", home.section),
                    None => unknown_hint(name, settings().map(|setting| setting.key)),
                };
                self.error(ErrorKind::UnknownKey, message, span(key), Some(hint));
            } else {
                let message = format!("unknown section `[{}]`", printable(name));
                self.error(
                    ErrorKind::UnknownSection,
                    message,
                    span(key),
                    Some(section_hint(name, item)),
                );
            }
        }
    }

    /// Whether there are more errors than are shown. The search for what was meant takes its time.
    pub(super) fn is_full(&self) -> bool {
        self.read.errors.len() > CONFIG_ERRORS_MAX
    }

    fn section(&mut self, section: &Section, key: &Key, item: &Item) {
        let name = section.name;
        let Some(table) = item.as_table_like() else {
            let found = type_name(item);
            let message = format!("`{name}` must be a table, not {found}");
            let hint = Some(format!("begin the section with `[{name}]`"));
            return self.error(ErrorKind::WrongType, message, span(key), hint);
        };
        for (key, item) in entries(table) {
            if self.is_full() {
                return;
            }
            match section.fields.iter().find(|field| field.key == key.get()) {
                Some(field) => self.setting(field, key, item),
                None => self.unknown_key(section, key),
            }
        }
    }

    fn setting(&mut self, field: &'static Field, key: &Key, item: &Item) {
        if let Some(value) = self.value(field, key, item) {
            let place = self.place(value_span(key, item));
            self.read.given.push((field, SourcedValue { value, place }));
        }
    }

    /// Reads the one value of a key.
    pub(super) fn value(&mut self, field: &Field, key: &Key, item: &Item) -> Option<Value> {
        let (name, kind) = (field.key, &field.kind);
        let error = match kind.read_toml(item) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let written = match item.as_value() {
            Some(Toml::String(text)) => text.value().clone(),
            Some(value @ (Toml::Integer(_) | Toml::Float(_) | Toml::Boolean(_))) => {
                value.to_string().trim().to_owned()
            }
            _ => String::new(),
        };
        let found = match error {
            ErrorKind::WrongType => type_name(item),
            _ => format!("`{}`", printable(&redact_text(&written))),
        };
        let form = |value: &Value| format!("{name} = {}", value.to_toml());
        let example = format!("{name} = {}", field.example());
        let hint = value_hint(kind, &written, form, &example);
        let message = format!("`{name}` must be {kind}, not {found}");
        self.error(error, message, value_span(key, item), Some(hint));
        None
    }

    fn unknown_key(&mut self, section: &Section, key: &Key) {
        let name = key.get();
        let message = format!("unknown key `{}` in `[{}]`", printable(name), section.name);
        let elsewhere = settings().find(|setting| setting.key == name);
        let hint = match elsewhere {
            Some(setting) => format!("`{name}` belongs in `[{}]`", setting.section),
            None => unknown_hint(name, section.fields.iter().map(|field| field.key)),
        };
        self.error(ErrorKind::UnknownKey, message, span(key), Some(hint));
    }

    fn syntax_error(&mut self, error: &TomlError) {
        let span = error.span().unwrap_or(0..0);
        let (message, hint) = match error.message() {
            "duplicate key" => {
                let key = self.lines.text.get(span.clone()).unwrap_or_default();
                let message = format!("duplicate key `{}`", printable(key));
                (message, Some("remove one of the two"))
            }
            // The parser takes a missing value for a string without quotes.
            message if message.starts_with("string values must be quoted") => match span.len() {
                0 => ("the value is missing".to_owned(), None),
                _ => (
                    "the value is not TOML".to_owned(),
                    Some("put text in quotes, such as `delay = \"5s\"`"),
                ),
            },
            message => (message.to_owned(), None),
        };
        let hint = hint.map(str::to_owned);
        self.error(ErrorKind::Syntax, format!("invalid TOML: {message}"), span, hint);
    }

    pub(super) fn error(
        &mut self,
        kind: ErrorKind,
        message: String,
        at: Range<usize>,
        hint: Option<String>,
    ) {
        let (kind, message, hint) = match self.read.errors.len() {
            CONFIG_ERRORS_MAX => (
                ErrorKind::TooMany,
                "too many errors: those from here on are not shown".to_owned(),
                None,
            ),
            0..CONFIG_ERRORS_MAX => (kind, message, hint),
            _ => return,
        };
        self.read.errors.push(self.place(at).error(kind, message, hint));
    }

    pub(super) fn place(&self, at: Range<usize>) -> Location {
        let (line, column, excerpt) = self.lines.locate(&at);
        let origin = Origin::File { path: self.path.clone(), line, column };
        Location { origin, excerpt: Some(excerpt) }
    }
}

/// The kind of table that begins with this key. Tokens stand within `[gateway]`.
fn table_kind(name: &str) -> Option<TableKind> {
    let mut outer = TableKind::ALL.into_iter().filter(|kind| *kind != TableKind::Token);
    outer.find(|kind| kind.section() == name)
}

/// What to write instead of a section that there is not.
fn section_hint(name: &str, item: &Item) -> String {
    let is_service = item.as_table_like().is_some_and(|table| table.contains_key("command"));
    let tables = TableKind::ALL.map(|kind| (kind.section(), kind.heading()));
    let known = SECTIONS.iter().map(|section| (section.name, section.name)).chain(tables);
    let near = nearest(name, known.clone().map(|(section, _)| section));
    match known.clone().find(|(section, _)| Some(*section) == near) {
        Some((_, heading)) => format!("did you mean `[{heading}]`?"),
        None if is_service => format!("did you mean `[service.{}]`?", printable(name)),
        None => {
            let names: Vec<String> = known.map(|(_, heading)| format!("`[{heading}]`")).collect();
            let (last, others) = names.split_last().map_or(("", &[][..]), |(l, o)| (l.as_str(), o));
            format!("the sections are {} and {last}", others.join(", "))
        }
    }
}

pub(super) fn unknown_hint(name: &str, keys: impl Iterator<Item = &'static str>) -> String {
    match nearest(name, keys) {
        Some(key) => format!("did you mean `{key}`?"),
        None => "run `afresh config show` for every key".to_owned(),
    }
}

pub(super) fn entries(table: &dyn TableLike) -> impl Iterator<Item = (&Key, &Item)> {
    let names = table.iter().map(|(name, _)| name);
    names.filter_map(|name| table.get_key_value(name))
}

pub(super) fn span(key: &Key) -> Range<usize> {
    key.span().unwrap_or(0..0)
}

/// The place of a value; of its key where it has none, as a table that is made of dotted keys.
pub(super) fn value_span(key: &Key, item: &Item) -> Range<usize> {
    item.as_value().and_then(Toml::span).unwrap_or_else(|| span(key))
}

pub(super) fn type_name(item: &Item) -> String {
    let name = item.type_name();
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}
