//! Owns the reading of one configuration file: the values that it gives, and every error in it. Driven by `load`. Never
//! merges layers.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike, TomlError, Value as Toml};

use super::key::Field;
use super::keys::{SECTIONS, Section, TableKind, settings};
use super::settings::SourcedValue;
use super::tables::Table;
use super::value_syntax::{Value, value_hint};
use super::{ConfigSource, Errors, FileKind};
use crate::audit::redact::redact_text;
use crate::error_excerpt::LineIndex;
use crate::limits::CONFIG_FILE_BYTES_MAX;
use crate::report::{ErrorKind, Location, Origin};
use crate::suggest::nearest;
use crate::text::{harmless, printable};

/// What a file gives: values by their place in the table of settings, tables, and its errors in the
/// order of their lines.
#[derive(Default)]
pub(super) struct Read {
    pub(super) given: Vec<(&'static Field, SourcedValue)>,
    pub(super) tables: Vec<Table>,
    pub(super) errors: Errors,
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
        read: Read::default(),
    };
    if too_large {
        let message = format!("the file is larger than {}KiB", CONFIG_FILE_BYTES_MAX / 1024);
        reader.error(ErrorKind::TooLarge, message, 0..0, "");
        // No line of it says more.
        reader.read.errors.0[0].excerpt = None;
    } else if let Err(error) = std::str::from_utf8(bytes) {
        // Up to there, the text with its replacement marks is the same as the bytes.
        let start = error.valid_up_to();
        let message = "the file is not UTF-8 text".to_owned();
        reader.error(ErrorKind::Encoding, message, start..start + 1, "save it as UTF-8");
    } else {
        match Document::parse(text.as_ref()) {
            Ok(document) => reader.root(document.as_table()),
            Err(error) => reader.syntax_error(&error),
        }
    }
    let mut read = reader.read;
    read.errors.0.sort_by_key(|error| match error.origin {
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
        for entry in entries(root) {
            if self.read.errors.is_full() {
                return;
            }
            let name = entry.name();
            // Tokens stand within `[gateway]`.
            let mut kinds = TableKind::ALL.into_iter().filter(|kind| *kind != TableKind::Token);
            if let Some(section) = SECTIONS.iter().find(|section| section.heading == name) {
                self.section(section, entry);
            } else if let Some(kind) = kinds.find(|kind| kind.section() == name) {
                match kind.is_single() {
                    true => self.table(kind, entry),
                    false => self.tables(kind, entry),
                }
            } else if entry.item.is_value() && !entry.item.is_inline_table() {
                let message = format!("unknown key `{}` outside of a section", printable(name));
                let hint = match settings().find(|setting| setting.key == name) {
                    Some(home) => format!("put it under `[{}]`", home.section),
                    None => unknown_hint(name, settings().map(|setting| setting.key)),
                };
                self.error(ErrorKind::UnknownKey, message, entry.key_span(), hint);
            } else {
                let message = format!("unknown section `[{}]`", printable(name));
                let hint = section_hint(entry);
                self.error(ErrorKind::UnknownSection, message, entry.key_span(), hint);
            }
        }
    }

    fn section(&mut self, section: &Section, entry: FileEntry<'_>) {
        let name = section.heading;
        let Some(table) = entry.item.as_table_like() else {
            return self.no_table(name, entry, format!("begin the section with `[{name}]`"));
        };
        for entry in entries(table) {
            // The search for what was meant takes its time.
            if self.read.errors.is_full() {
                return;
            }
            let Some(field) = section.fields.iter().find(|field| field.key == entry.name()) else {
                self.unknown_key(section, entry);
                continue;
            };
            if let Some(value) = self.value(field, entry) {
                let place = self.place(entry.span());
                let from = Some(self.kind);
                self.read.given.push((field, SourcedValue { value, place, from }));
            }
        }
    }

    pub(super) fn no_table(&mut self, name: &str, entry: FileEntry<'_>, hint: String) {
        let message = format!("`{name}` must be a table, not {}", entry.type_name());
        self.error(ErrorKind::WrongType, message, entry.key_span(), hint);
    }

    /// Reads the one value of a key.
    pub(super) fn value(&mut self, field: &Field, entry: FileEntry<'_>) -> Option<Value> {
        let (name, kind) = (field.key, &field.kind);
        let error = match kind.read_toml(entry.item) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let written = match entry.item.as_value() {
            Some(Toml::String(text)) => text.value().clone(),
            Some(value @ (Toml::Integer(_) | Toml::Float(_) | Toml::Boolean(_))) => {
                value.to_string().trim().to_owned()
            }
            _ => String::new(),
        };
        let found = match error {
            ErrorKind::WrongType => entry.type_name(),
            _ => format!("`{}`", printable(&redact_text(&written))),
        };
        let form = |value: &Value| format!("{name} = {}", value.to_toml());
        let example = format!("{name} = {}", field.example());
        let hint = value_hint(kind, &written, form, &example);
        self.refuse(error, format!("`{name}` must be {kind}, not {found}"), entry.span(), hint)
    }

    fn unknown_key(&mut self, section: &Section, entry: FileEntry<'_>) {
        let name = entry.name();
        let message = format!("unknown key `{}` in `[{}]`", printable(name), section.heading);
        let hint = match settings().find(|setting| setting.key == name) {
            Some(setting) => format!("`{name}` belongs in `[{}]`", setting.section),
            None => unknown_hint(name, section.fields.iter().map(|field| field.key)),
        };
        self.error(ErrorKind::UnknownKey, message, entry.key_span(), hint);
    }

    fn syntax_error(&mut self, error: &TomlError) {
        let span = error.span().unwrap_or(0..0);
        let (message, hint) = match error.message() {
            "duplicate key" => {
                let key = self.lines.text.get(span.clone()).unwrap_or_default();
                (format!("duplicate key `{}`", printable(key)), "remove one of the two")
            }
            // The parser takes a missing value for a string without quotes.
            message if message.starts_with("string values must be quoted") => match span.len() {
                0 => ("the value is missing".to_owned(), ""),
                _ => (
                    "the value is not TOML".to_owned(),
                    "put text in quotes, such as `delay = \"5s\"`",
                ),
            },
            message => (message.to_owned(), ""),
        };
        self.error(ErrorKind::Syntax, format!("invalid TOML: {message}"), span, hint);
    }

    /// Adds an error; an empty hint is none.
    pub(super) fn error(
        &mut self,
        kind: ErrorKind,
        message: String,
        at: Range<usize>,
        hint: impl Into<String>,
    ) {
        if !self.read.errors.is_full() {
            let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
            self.read.errors.push(self.place(at).error(kind, message, hint));
        }
    }

    /// The same in place of a value.
    pub(super) fn refuse<T>(
        &mut self,
        kind: ErrorKind,
        message: String,
        at: Range<usize>,
        hint: impl Into<String>,
    ) -> Option<T> {
        self.error(kind, message, at, hint);
        None
    }

    pub(super) fn place(&self, at: Range<usize>) -> Location {
        let (line, column, excerpt) = self.lines.locate(&at);
        let origin = Origin::File { path: self.path.clone(), line, column };
        Location { origin, excerpt: Some(excerpt) }
    }
}

/// What to write instead of a section that there is not.
fn section_hint(entry: FileEntry<'_>) -> String {
    let name = entry.name();
    let is_service = entry.item.as_table_like().is_some_and(|table| table.contains_key("command"));
    let tables = TableKind::ALL.map(|kind| (kind.section(), kind.declared().heading));
    let known = SECTIONS.iter().map(|section| (section.heading, section.heading)).chain(tables);
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

/// A key in a file, and what it is given.
#[derive(Clone, Copy)]
pub(super) struct FileEntry<'a> {
    key: &'a Key,
    pub(super) item: &'a Item,
}

pub(super) fn entries(table: &dyn TableLike) -> impl Iterator<Item = FileEntry<'_>> {
    let names = table.iter().map(|(name, _)| name);
    names.filter_map(|name| table.get_key_value(name)).map(|(key, item)| FileEntry { key, item })
}

impl<'a> FileEntry<'a> {
    pub(super) fn name(self) -> &'a str {
        self.key.get()
    }

    pub(super) fn key_span(self) -> Range<usize> {
        self.key.span().unwrap_or(0..0)
    }

    /// The place of a value; of its key where it has none, as a table that is made of dotted keys.
    pub(super) fn span(self) -> Range<usize> {
        self.item.as_value().and_then(Toml::span).unwrap_or_else(|| self.key_span())
    }

    pub(super) fn type_name(self) -> String {
        type_name(self.item.type_name())
    }
}

/// The name of a type with its article.
pub(super) fn type_name(name: &str) -> String {
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}
