//! The lists that a client gets: the entries of all its servers in one list, page by page. Called for each
//! `*/list` request. Never reads a list from a server.

use super::client_view::ClientView;
use crate::gateway::backend::Expose;
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::mcp::envelope::{Id, param};
use crate::mcp::{Kind, json as raw};

impl ClientView<'_> {
    /// Whether it sees the entry of this name of a server that it may use.
    pub(super) fn is_shown(self, kind: Kind, name: &str) -> bool {
        kind != Kind::Tools || self.session.access().has_tool(name) && self.is_revealed(name)
    }

    /// Whether it sees a tool that it may use: all, or those that it has found.
    fn is_revealed(self, name: &str) -> bool {
        self.tools.expose() == Expose::All || self.session.is_revealed(name)
    }

    /// The response to a request for a list; none where its cursor is not one of ours.
    pub(super) fn list(self, id: &Id, kind: Kind, line: &[u8]) -> Option<Vec<u8>> {
        let cursor = param(line, &["cursor"]).filter(|raw| *raw != b"null").map(raw::text);
        let begin = match cursor {
            None => 0,
            Some(cursor) => cursor?.strip_prefix('p')?.parse().ok()?,
        };
        let own = if kind == Kind::Tools { self.own_definitions() } else { Vec::new() };
        let mut entries = self.usable(kind);
        entries.retain(|entry| kind != Kind::Tools || self.is_revealed(&entry.exposed));
        let all = entries.iter().map(|entry| entry.json.as_slice());
        let all: Vec<&[u8]> = all.chain(own.iter().map(String::as_bytes)).collect();
        let mut page = Vec::new();
        let mut end = begin;
        for json in all.iter().skip(begin) {
            let is_full = page.len() + json.len() > PAGE_BYTES_MAX && !page.is_empty();
            if is_full || end - begin == PAGE_ENTRIES_MAX {
                break;
            }
            page.extend_from_slice(if page.is_empty() { b"" } else { b"," });
            page.extend_from_slice(json);
            end += 1;
        }
        let next = match end < all.len() {
            true => format!(r#","nextCursor":"p{end}""#),
            false => String::new(),
        };
        let more = match self.session.is_modern() {
            true => r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#,
            false => "",
        };
        let mut response = br#"{"jsonrpc":"2.0","id":"#.to_vec();
        response.extend_from_slice(id.raw());
        response.extend_from_slice(format!(r#","result":{{"{}":["#, kind.members().0).as_bytes());
        response.extend_from_slice(&page);
        response.extend_from_slice(format!("]{next}{more}}}}}").as_bytes());
        Some(response)
    }
}
