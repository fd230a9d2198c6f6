//! Owns the comparison of what a server says with what is pinned, as lines that a person reads before accepting it.
//! Hidden characters are written out. Never leaves a part of a change away.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Items, Section, Sections};
use crate::hidden_characters::escaped;

/// How an item differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It was not there.
    Added,
    /// It has another text.
    Changed,
}

/// An item that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemDifference {
    /// What it is called.
    pub item: String,
    /// How it differs.
    pub difference: Difference,
    /// The lines that are gone, each with `- ` in front, and those that are new, with `+ `, below the member that
    /// they are in.
    pub lines: Vec<String>,
}

/// All that differs in the sections that a server has otherwise now. What is gone stays pinned, and is not among it.
pub fn differences(pinned: &Sections, pending: &Sections) -> Vec<ItemDifference> {
    let none = Items::new();
    let mut all = Vec::new();
    for (section, new) in pending {
        let old = pinned.get(section).unwrap_or(&none);
        all.extend(new.keys().filter_map(|name| item(*section, name, old, new)));
    }
    all
}

fn item(section: Section, name: &str, old: &Items, new: &Items) -> Option<ItemDifference> {
    let (old, new) = (old.get(name), new.get(name));
    let difference = match (old, new) {
        (Some(old), Some(new)) if old == new => return None,
        (Some(_), Some(_)) => Difference::Changed,
        (Some(_), None) => return None,
        (None, _) => Difference::Added,
    };
    let (old_members, new_members) = (members(old), members(new));
    let keys: BTreeSet<&String> = old_members.keys().chain(new_members.keys()).collect();
    let mut lines = Vec::new();
    for key in keys {
        let (old, new) = (old_members.get(key), new_members.get(key));
        if old != new {
            lines.extend(Some(format!("{}:", escaped(key))).filter(|_| !key.is_empty()));
            lines.extend(changed_lines(old, new));
        }
    }
    // A key that is there twice has two values, of which one was compared.
    if lines.is_empty() {
        lines = changed_lines(old, new);
    }
    Some(ItemDifference { item: escaped(&section.item(name)).into_owned(), difference, lines })
}

/// The members of an item; a text without members is one member without a key.
fn members(text: Option<&String>) -> BTreeMap<String, String> {
    let Some(text) = text else { return BTreeMap::new() };
    let shown = |value: Value| match value {
        Value::String(text) => text,
        value => format!("{value:#}"),
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => {
            members.into_iter().map(|(key, value)| (key, shown(value))).collect()
        }
        _ => BTreeMap::from([(String::new(), text.clone())]),
    }
}

/// The lines between the first and the last one that differ.
fn changed_lines(old: Option<&String>, new: Option<&String>) -> Vec<String> {
    let lines = |text: Option<&String>| -> Vec<String> {
        let lines = text.into_iter().flat_map(|text| text.split('\n'));
        lines.map(|line| escaped(line).into_owned()).collect()
    };
    let (old, new) = (lines(old), lines(new));
    let equal = |(old, new): &(&String, &String)| old == new;
    let start = old.iter().zip(&new).take_while(equal).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(equal).count();
    let gone = old[start..old.len() - end].iter().map(|line| format!("- {line}"));
    gone.chain(new[start..new.len() - end].iter().map(|line| format!("+ {line}"))).collect()
}
