//! One configuration file: its text to the values that it gives, or to every error in it.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike, TomlError, Value as Toml};

use super::error::{ConfigError, ErrorKind, Origin, value_hint};
use super::excerpt::{Lines, harmless, printable};
use super::settings::{SECTIONS, SETTINGS, Section, Setting, of_section, position};
use super::suggest::nearest;
use super::{Given, Source};
use crate::limits::{CONFIG_ERRORS_MAX, CONFIG_FILE_BYTES_MAX};

/// What a file gives: values by their place in the table of settings, and its errors in the order of
/// their lines.
pub(super) struct Read {
    pub(super) given: Vec<(usize, Given)>,
    pub(super) errors: Vec<ConfigError>,
}

pub(super) fn read(source: &Source<'_>) -> Read {
    let too_large = source.bytes.len() > CONFIG_FILE_BYTES_MAX;
    let bytes = if too_large { b"" } else { source.bytes };
    // Editors on Windows put the mark of UTF-8 at the start; it is no part of the text.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader {
        path: harmless(source.path),
        lines: Lines::new(&text),
        read: Read { given: Vec::new(), errors: Vec::new() },
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

struct Reader<'a> {
    path: String,
    lines: Lines<'a>,
    read: Read,
}

impl Reader<'_> {
    fn root(&mut self, root: &dyn TableLike) {
        for (key, item) in entries(root) {
            if self.read.errors.len() > CONFIG_ERRORS_MAX {
                return;
            }
            let name = key.get();
            match SECTIONS.iter().find(|section| section.name == name) {
                Some(section) => self.section(section, key, item),
                None if item.is_value() && !item.is_inline_table() => {
                    let message = format!("unknown key `{}` outside of a section", printable(name));
                    let home = SETTINGS.iter().find(|setting| setting.key == name);
                    let hint = match home {
                        Some(home) => format!("put it under `[{}]`", home.section),
                        None => unknown_hint(name, SETTINGS.iter().map(|setting| setting.key)),
                    };
                    self.error(ErrorKind::UnknownKey, message, span(key), Some(hint));
                }
                None => {
                    let message = format!("unknown section `[{}]`", printable(name));
                    let hint = match nearest(name, SECTIONS.iter().map(|section| section.name)) {
                        Some(section) => format!("did you mean `[{section}]`?"),
                        None => {
                            let names = SECTIONS.each_ref().map(|s| format!("`[{}]`", s.name));
                            format!("the sections are {}", names.join(" and "))
                        }
                    };
                    self.error(ErrorKind::UnknownSection, message, span(key), Some(hint));
                }
            }
        }
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
            // The search for what was meant takes its time.
            if self.read.errors.len() > CONFIG_ERRORS_MAX {
                return;
            }
            match position(name, key.get()) {
                Some(index) => self.setting(index, key, item),
                None => self.unknown_key(name, key),
            }
        }
    }

    fn setting(&mut self, index: usize, key: &Key, item: &Item) {
        let setting = &SETTINGS[index];
        // A table has no span of its own where it is made of dotted keys.
        let value_span = match item.as_value() {
            Some(value) => value.span().unwrap_or_else(|| span(key)),
            None => span(key),
        };
        match setting.kind.read_toml(item) {
            Ok(value) => {
                let (line, column, excerpt) = self.lines.locate(&value_span);
                let origin = Origin::File { path: self.path.clone(), line, column };
                let excerpt = Some(excerpt);
                self.read.given.push((index, Given { value, origin, excerpt }));
            }
            Err(kind) => {
                let (message, hint) = misfit(setting, kind, item);
                self.error(kind, message, value_span, Some(hint));
            }
        }
    }

    fn unknown_key(&mut self, section: &str, key: &Key) {
        let name = key.get();
        let message = format!("unknown key `{}` in `[{section}]`", printable(name));
        let elsewhere = SETTINGS.iter().find(|setting| setting.key == name);
        let hint = match elsewhere {
            Some(setting) => format!("`{name}` belongs in `[{}]`", setting.section),
            None => unknown_hint(name, of_section(section).map(|setting| setting.key)),
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

    fn error(&mut self, kind: ErrorKind, message: String, at: Range<usize>, hint: Option<String>) {
        let (kind, message, hint) = match self.read.errors.len() {
            CONFIG_ERRORS_MAX => (
                ErrorKind::TooMany,
                "too many errors: those from here on are not shown".to_owned(),
                None,
            ),
            0..CONFIG_ERRORS_MAX => (kind, message, hint),
            _ => return,
        };
        let (line, column, excerpt) = self.lines.locate(&at);
        self.read.errors.push(ConfigError {
            kind,
            message,
            origin: Origin::File { path: self.path.clone(), line, column },
            excerpt: Some(excerpt),
            hint,
        });
    }
}

fn misfit(setting: &Setting, kind: ErrorKind, item: &Item) -> (String, String) {
    let written = match item.as_value() {
        Some(Toml::String(text)) => text.value().clone(),
        Some(value @ (Toml::Integer(_) | Toml::Float(_) | Toml::Boolean(_))) => {
            value.to_string().trim().to_owned()
        }
        _ => String::new(),
    };
    let found = match kind {
        ErrorKind::WrongType => type_name(item),
        _ => format!("`{}`", printable(&written)),
    };
    let (key, wanted) = (setting.key, &setting.kind);
    let hint = value_hint(setting, &written, |value| format!("{key} = {}", value.to_toml()));
    (format!("`{key}` must be {wanted}, not {found}"), hint)
}

fn unknown_hint(name: &str, keys: impl Iterator<Item = &'static str>) -> String {
    match nearest(name, keys) {
        Some(key) => format!("did you mean `{key}`?"),
        None => "run `afresh config show` for every key".to_owned(),
    }
}

fn entries(table: &dyn TableLike) -> impl Iterator<Item = (&Key, &Item)> {
    let names = table.iter().map(|(name, _)| name);
    names.filter_map(|name| table.get_key_value(name))
}

fn span(key: &Key) -> Range<usize> {
    key.span().unwrap_or(0..0)
}

fn type_name(item: &Item) -> String {
    let name = item.type_name();
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}
