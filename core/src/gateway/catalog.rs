//! What one server offers, under the names that clients know it by.

use super::access::{fits, fits_one};
use super::backend::{Backend, Prefix};
use crate::limits::CATALOG_NAME_CHARS_MAX;
use crate::mcp::envelope::splice;
use crate::mcp::{Kind, json};

/// One tool, prompt, resource or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As the server calls it: a name, or a URI.
    pub own: String,
    /// As clients know it.
    pub exposed: String,
    /// All that is said about it, under that name.
    pub json: Vec<u8>,
}

/// What a server's tool or prompt is called; resources keep their URIs.
pub fn exposed(backend: &Backend, kind: Kind, own: &str) -> String {
    match kind {
        Kind::Tools | Kind::Prompts => format!("{}{own}", prefix(backend)),
        Kind::Resources | Kind::Templates => own.to_owned(),
    }
}

/// What the server calls it; none where the name is not one of its own.
pub fn own<'a>(backend: &Backend, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(&prefix(backend)).filter(|own| !own.is_empty())
}

/// What stands in front of the names of a server's tools and prompts.
pub fn prefix(backend: &Backend) -> String {
    match &backend.prefix {
        Prefix::Name => format!("{}__", backend.name),
        Prefix::Text(text) => text.clone(),
        Prefix::None => String::new(),
    }
}

/// Reads one page of a list: each entry that the backend's rules let through.
pub fn read(backend: &Backend, kind: Kind, answer: &[u8]) -> Option<Vec<Entry>> {
    let (member, key) = kind.members();
    let entries = json::get(answer, &["result", member])?;
    let entry = |raw: &[u8]| -> Option<Entry> {
        let value = json::get(raw, &[key])?;
        let own = json::text(value)?;
        let is_allowed = kind != Kind::Tools
            || fits(backend.allow.as_deref(), &own)
                && !backend.deny.iter().any(|pattern| fits_one(pattern, &own));
        if !is_allowed || own.is_empty() || own.chars().count() > CATALOG_NAME_CHARS_MAX {
            return None;
        }
        let exposed = exposed(backend, kind, &own);
        let at = value.as_ptr() as usize - raw.as_ptr() as usize;
        let name = serde_json::to_string(&exposed).ok()?;
        let json = match exposed == own {
            true => raw.to_vec(),
            false => splice(raw, at..at + value.len(), name.as_bytes()),
        };
        Some(Entry { own, exposed, json })
    };
    Some(json::elements(entries)?.into_iter().filter_map(|part| entry(&entries[part])).collect())
}

/// Whether a URI can come of a template: what stands in braces can be anything.
pub fn is_of_template(template: &str, uri: &str) -> bool {
    let mut pattern = String::new();
    let mut depth = 0_u32;
    for letter in template.chars() {
        match letter {
            '{' => {
                depth += 1;
                pattern.push('*');
            }
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => pattern.push(letter),
            _ => {}
        }
    }
    fits_one(&pattern, uri)
}

/// How well an entry fits what somebody looks for; none where no word of it does. Words in the name count
/// more than those in the description.
pub fn score(entry: &Entry, words: &[String]) -> Option<usize> {
    let name = entry.exposed.to_lowercase();
    let about = json::get(&entry.json, &["description"]).and_then(json::text).unwrap_or_default();
    let about = about.to_lowercase();
    let of = |word: &String| match (name.contains(word), about.contains(word)) {
        (true, true) => 5,
        (true, false) => 4,
        (false, true) => 1,
        (false, false) => 0,
    };
    let score: usize = words.iter().map(of).sum();
    (words.is_empty() || score > 0).then_some(score)
}
