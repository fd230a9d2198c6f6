//! Owns the lists of a server (tools, prompts, resources) by name and hash, and the difference of two.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::json;

/// A list that a server can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Templates of resources; told together with the resources.
    Templates,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    pub(crate) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The notification that it has changed.
    pub(crate) const fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// The member of a listen request's filter that asks for the notification.
    pub(crate) const fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
        }
    }

    /// The member of the answer that holds it, and the member of an entry that names it.
    pub(crate) const fn members(self) -> (&'static str, &'static str) {
        match self {
            Self::Tools => ("tools", "name"),
            Self::Prompts => ("prompts", "name"),
            Self::Resources => ("resources", "uri"),
            Self::Templates => ("resourceTemplates", "uriTemplate"),
        }
    }
}

/// A whole list: each entry's name, and a hash of the rest. Order does not matter, nor does the
/// order of members: some servers keep neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedList(BTreeMap<String, u64>);

impl NamedList {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What has to happen to the older list to become this one.
    pub(super) fn changes_since(&self, old: &Self) -> Changes {
        let missing_in = |there: &Self, here: &Self| -> Vec<String> {
            here.0.keys().filter(|name| !there.0.contains_key(*name)).cloned().collect()
        };
        let differs = |name: &&String| old.0.get(*name).is_some_and(|hash| hash != &self.0[*name]);
        Changes {
            added: missing_in(old, self),
            removed: missing_in(self, old),
            changed: self.0.keys().filter(differs).cloned().collect(),
        }
    }
}

/// How two lists differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only in the new one.
    pub added: Vec<String>,
    /// Only in the old one.
    pub removed: Vec<String>,
    /// In both, and not the same.
    pub changed: Vec<String>,
}

impl Changes {
    /// Whether they are the same.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// A list that comes page by page.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    list: NamedList,
    /// The raw cursor of the page that comes next.
    pub(super) next: Option<Vec<u8>>,
    pub(super) count: usize,
}

impl Pages {
    /// Takes the answer that holds the next page. Returns the list when it is whole.
    pub(super) fn add(&mut self, kind: Kind, answer: &[u8]) -> Option<NamedList> {
        let (member, name) = kind.members();
        let entries = json::get(answer, &["result", member])?;
        for entry in json::elements(entries)? {
            let Ok(value) = serde_json::from_slice::<Value>(&entries[entry]) else { continue };
            let Some(name) = value[name].as_str() else { continue };
            let mut hasher = DefaultHasher::new();
            hash(&value, &mut hasher);
            self.list.0.insert(name.to_owned(), hasher.finish());
        }
        self.count += 1;
        self.next = next_cursor(answer).map(<[u8]>::to_vec);
        self.next.is_none().then(|| std::mem::take(&mut self.list))
    }
}

/// The raw cursor of the page after this one.
pub(crate) fn next_cursor(answer: &[u8]) -> Option<&[u8]> {
    json::get(answer, &["result", "nextCursor"]).filter(|cursor| *cursor != b"null")
}

fn hash(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            members.len().hash(hasher);
            for (key, value) in members {
                key.hash(hasher);
                hash(value, hasher);
            }
        }
        Value::Array(elements) => {
            elements.len().hash(hasher);
            elements.iter().for_each(|element| hash(element, hasher));
        }
        other => other.to_string().hash(hasher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tools: &str) -> NamedList {
        let answer = format!(r#"{{"id":1,"result":{{"tools":{tools}}}}}"#);
        Pages::default().add(Kind::Tools, answer.as_bytes()).expect("a whole list")
    }

    #[test]
    fn lists_are_compared_by_what_they_say() {
        let old = list(r#"[{"name":"a","x":{"p":1,"q":2}},{"name":"b"},{"name":"c"}]"#);
        let same = list(r#"[ {"name":"c"}, {"x":{"q":2, "p":1},"name":"a"},{"name":"b"}]"#);
        assert!(same.changes_since(&old).is_empty());
        let new = list(r#"[{"name":"a","x":{"p":1,"q":3}},{"name":"c"},{"name":"d"}]"#);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            new.changes_since(&old),
            Changes { added: names(&["d"]), removed: names(&["b"]), changed: names(&["a"]) }
        );
    }

    #[test]
    fn a_list_is_whole_with_its_last_page() {
        let mut pages = Pages::default();
        let first = br#"{"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}"#;
        assert_eq!(pages.add(Kind::Tools, first), None);
        assert_eq!(pages.next.as_deref(), Some(&b"\"x\""[..]));
        let last = br#"{"result":{"tools":[{"name":"b"}, 7, {}],"nextCursor":null}}"#;
        let whole = pages.add(Kind::Tools, last).expect("it is whole");
        assert_eq!(whole.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Pages::default().add(Kind::Tools, b"{\"result\":{}}"), None);
    }
}
