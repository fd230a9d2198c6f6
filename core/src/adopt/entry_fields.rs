//! Owns the fields of a server's entry, key by key. Driven by the readers of files, for the gateway that starts the
//! server in the client's place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml_edit::{Item, TableLike, Value as Toml};

use super::jsonc;

/// Whose way of writing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryStyle {
    /// Claude, Cursor, Windsurf, VS Code, and others like them.
    Editor,
    Opencode,
    Codex,
}

/// One value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryField {
    pub(crate) key: String,
    /// The key within the object that `key` is, where it is one.
    pub(crate) name: Option<String>,
    pub(crate) value: EntryValue,
    /// Where the value stands.
    pub(crate) at: Range<usize>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryValue {
    /// A text; numbers and booleans as they are written.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// Something else.
    Other,
}

/// Where a key stands twice, the last counts, as it does for the clients.
fn last_of_each(all: Vec<EntryField>) -> Vec<EntryField> {
    let keys = all.iter().enumerate().map(|(index, given)| ((&given.key, &given.name), index));
    let last: BTreeSet<usize> = keys.collect::<BTreeMap<_, _>>().into_values().collect();
    let is_last = |(index, _): &(usize, EntryField)| last.contains(index);
    all.into_iter().enumerate().filter(is_last).map(|(_, given)| given).collect()
}

/// The values of an object in a text that [`jsonc::root`] has checked.
pub(super) fn of_json(text: &str, entry: &Range<usize>) -> Vec<EntryField> {
    let mut all = Vec::new();
    for member in jsonc::members(text, entry) {
        if !text[member.value.clone()].starts_with('{') {
            if let Some(value) = json_value(text, &member.value) {
                all.push(EntryField { key: member.key, name: None, value, at: member.value });
            }
            continue;
        }
        for inner in jsonc::members(text, &member.value) {
            let Some(value) = json_value(text, &inner.value) else { continue };
            let (key, name) = (member.key.clone(), Some(inner.key));
            all.push(EntryField { key, name, value, at: inner.value });
        }
    }
    last_of_each(all)
}

/// None where it is `null`, which says nothing.
fn json_value(text: &str, value: &Range<usize>) -> Option<EntryValue> {
    let written = &text[value.clone()];
    Some(match written.as_bytes().first() {
        Some(b'"') => jsonc::string(text, value).map_or(EntryValue::Other, EntryValue::Text),
        Some(b'[') => {
            let elements = jsonc::elements(text, value).map(|(elements, _)| elements);
            let texts = elements.unwrap_or_default().into_iter();
            let texts: Option<Vec<String>> = texts.map(|one| jsonc::string(text, &one)).collect();
            texts.map_or(EntryValue::Other, EntryValue::List)
        }
        Some(b'{') | None => EntryValue::Other,
        Some(_) if written == "null" => return None,
        Some(_) => EntryValue::Text(written.to_owned()),
    })
}

/// The values of a table.
pub(super) fn of_toml(entry: &dyn TableLike) -> Vec<EntryField> {
    let mut all = Vec::new();
    for (key, item) in entry.iter() {
        let Some(table) = item.as_table_like() else {
            all.push(toml_given(key, None, item));
            continue;
        };
        for (name, item) in table.iter() {
            all.push(toml_given(key, Some(name.to_owned()), item));
        }
    }
    all
}

fn toml_given(key: &str, name: Option<String>, item: &Item) -> EntryField {
    let value = match item.as_value() {
        Some(Toml::String(text)) => EntryValue::Text(text.value().clone()),
        Some(value @ (Toml::Integer(_) | Toml::Float(_) | Toml::Boolean(_))) => {
            EntryValue::Text(value.to_string().trim().to_owned())
        }
        Some(Toml::Array(array)) => {
            let texts: Option<Vec<String>> =
                array.iter().map(|one| one.as_str().map(str::to_owned)).collect();
            texts.map_or(EntryValue::Other, EntryValue::List)
        }
        _ => EntryValue::Other,
    };
    EntryField { key: key.to_owned(), name, value, at: item.span().unwrap_or(0..0) }
}
