//! Reads the entries of one server's lists (tools, prompts, resources, templates) and gives them the names that clients
//! see. Driven by the hub for each page of a list. Never knows a second server.

use std::borrow::Cow;

use super::access_patterns::{fits, fits_one};
use super::backend::Backend;
use super::exposed_names::exposed;
use crate::hidden_characters::{escaped, escaped_json};
use crate::limits::{CATALOG_DEPTH_MAX, CATALOG_NAME_CHARS_MAX};
use crate::mcp::{Kind, RESERVED_PREFIX, json};

/// One tool, prompt, resource or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// As the server calls it: a name, or a URI.
    pub own: String,
    /// As clients know it.
    pub exposed: String,
    /// All that is said about it, under that name.
    pub json: Vec<u8>,
}

/// Whether the backend's rules let a tool through; they say nothing of other things. None lets a name of afresh's through:
/// a call of it would restart the server, or read its log.
pub fn is_allowed(backend: &Backend, kind: Kind, own: &str) -> bool {
    kind != Kind::Tools
        || !own.starts_with(RESERVED_PREFIX)
            && fits(backend.allow.as_deref(), own)
            && !backend.deny.iter().any(|pattern| fits_one(pattern, own))
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogPage {
    /// Those that are proper, before the backend's rules are applied.
    pub entries: Vec<CatalogEntry>,
    /// How many others there are.
    pub improper: usize,
}

/// Reads one page of a list; none where it is no list.
pub fn read(backend: &Backend, kind: Kind, answer: &[u8]) -> Option<CatalogPage> {
    let (member, _) = kind.members();
    let list = json::get(answer, &["result", member])?;
    let elements = json::elements(list)?;
    let count = elements.len();
    let entries: Vec<CatalogEntry> =
        elements.into_iter().filter_map(|part| entry(backend, kind, &list[part])).collect();
    let improper = count - entries.len();
    Some(CatalogPage { entries, improper })
}

/// An entry that was read before as its server gave it, with the server's own name in it; none where it is no entry.
pub(super) fn under_own_name(kind: Kind, entry: &CatalogEntry) -> Option<String> {
    let text = str::from_utf8(&entry.json).ok()?;
    if entry.exposed == entry.own {
        return Some(text.to_owned());
    }
    let place = json::place(&entry.json, json::get(&entry.json, &[kind.members().1])?);
    let own = serde_json::to_string(&entry.own).ok()?;
    Some([&text[..place.start], &own, &text[place.end..]].concat())
}

/// One entry; none where it has no proper name, or is ambiguous JSON. It stands in one list with those of other servers,
/// and must not make that list unreadable.
pub(super) fn entry(backend: &Backend, kind: Kind, raw: &[u8]) -> Option<CatalogEntry> {
    if !json::is_sound(raw, CATALOG_DEPTH_MAX) {
        return None;
    }
    let (_, key) = kind.members();
    let (mut place, mut count) = (None, 0);
    json::each_member(raw, |member| {
        let found = &raw[member.key];
        if json::reads_as(found, key) {
            place = json::is_key(found, key).then_some(member.value);
            count += 1;
        }
    })?;
    let place = place.filter(|_| count == 1)?;
    let own = json::text(&raw[place.clone()])?;
    if own.is_empty() || own.chars().count() > CATALOG_NAME_CHARS_MAX {
        return None;
    }
    // Others than the user run it: what a person would not see is no part of a name, and is written out elsewhere.
    let is_remote = !backend.is_stdio();
    if is_remote && (own.contains('\r') || escaped(&own) != own) {
        return None;
    }
    let exposed = exposed(backend, kind, &own);
    let text = str::from_utf8(raw).ok()?;
    let name = match exposed == own {
        true => text[place.clone()].to_owned(),
        false => serde_json::to_string(&exposed).ok()?,
    };
    let rest = |part| if is_remote { escaped_json(part) } else { Cow::Borrowed(part) };
    let parts = [&rest(&text[..place.start]), name.as_str(), &rest(&text[place.end..])];
    let json = parts.concat().into_bytes();
    Some(CatalogEntry { own, exposed, json })
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

#[cfg(test)]
mod tests {
    use super::super::backend::{HttpServer, Pin, Prefix, Share, Transport};
    use super::*;

    fn backend() -> Backend {
        let url = "http://a.example".to_owned();
        Backend {
            name: "a".to_owned(),
            transport: Transport::Http(HttpServer { url, headers: Vec::new(), sse: None }),
            prefix: Prefix::Name,
            allow: None,
            deny: Vec::new(),
            share: Share::All,
            hide_when_down: false,
            call_timeout: None,
            in_flight_max: 1,
            pin: Pin::Off,
        }
    }

    fn page(tools: &[&[u8]]) -> CatalogPage {
        let answer = [br#"{"result":{"tools":["#, &tools.join(&b","[..])[..], b"]}}"].concat();
        read(&backend(), Kind::Tools, &answer).expect("a list")
    }

    #[test]
    fn what_not_everybody_reads_alike_is_left_out() {
        let nested = |depth: usize| {
            let (open, shut) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"name":"deep","x":{open}{shut}}}"#).into_bytes()
        };
        let fine: [&[u8]; 5] = [
            br#"{"name":"get"}"#,
            br#"{"n\u0061mes":1,"name":"\u0067et","title":"other"}"#,
            // Half a pair, as some cut their texts: most readers take it.
            br#"{"name":"get","description":"\ud83d"}"#,
            br#" { "inputSchema":{"properties":{"name":{}}} , "name" : "get" } "#,
            &nested(CATALOG_DEPTH_MAX - 1),
        ];
        for raw in fine {
            let page = page(&[raw]);
            assert_eq!((page.entries.len(), page.improper), (1, 0), "{raw:?}");
            assert!(["a__get", "a__deep"].contains(&page.entries[0].exposed.as_str()));
        }
        let bad: [&[u8]; 14] = [
            b"7",
            br#"{"title":"get"}"#,
            br#"{"name":""}"#,
            br#"{"name":7}"#,
            br#"{"name":"\ud800"}"#,
            br#"{"name":"get","x":[1 2]}"#,
            br#"{"name":"get","x":[}}"#,
            b"{\"name\":\"get\",\"x\":\"\xff\"}",
            // Two names: one for us, and another for a client that reads the other.
            br#"{"name":"get","name":"set"}"#,
            br#"{"name":"get","n\u0061me":"b__get"}"#,
            br#"{"n\u0061me":"b__get","name":"get"}"#,
            br#"{"name":"get","Name":"b__get"}"#,
            br#"{"Name":"get"}"#,
            &nested(CATALOG_DEPTH_MAX),
        ];
        for raw in bad {
            let page = page(&[raw, br#"{"name":"set"}"#]);
            assert_eq!((page.entries.len(), page.improper), (1, 1), "{raw:?}");
        }
        assert_eq!(read(&backend(), Kind::Tools, br#"{"result":{"tools":{}}}"#), None);
    }

    #[test]
    fn an_entry_is_the_same_after_it_was_stored() {
        let raw: &[u8] = br#" {"title":"\u202e", "name" : "get", "x":[1, 2]}"#;
        let first = page(&[raw]).entries.remove(0);
        let stored = under_own_name(Kind::Tools, &first).expect("an entry");
        assert!(stored.contains(r#""name" : "get""#), "{stored}");
        assert_eq!(entry(&backend(), Kind::Tools, stored.as_bytes()), Some(first));
    }

    #[test]
    fn hidden_characters_of_remote_servers_are_written_out() {
        let raw: &[u8] = br#"{ "name":"get","title":"\u202etitle", "inputSchema":{"a":{"description":"x\udb40\udc41"}}}"#;
        let plain: &[u8] = br#"{ "name":"set","description":"\u00e9\n"}"#;
        let found = page(&[raw, plain, "{\"name\":\"g\u{200b}et\"}".as_bytes()]);
        assert_eq!((found.entries.len(), found.improper), (2, 1));
        let text = |at: usize| String::from_utf8(found.entries[at].json.clone()).expect("text");
        assert_eq!(
            text(0),
            r#"{ "name":"a__get","title":"\\u{202e}title", "inputSchema":{"a":{"description":"x\\u{e0041}"}}}"#
        );
        assert_eq!(text(1), r#"{ "name":"a__set","description":"\u00e9\n"}"#);
    }
}
