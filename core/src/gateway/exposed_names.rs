//! Owns the names under which clients see the tools and prompts of a server: its prefix and the server's own name. Used by
//! the catalog and the hub. Never knows a second server: names that clash are in `hub/name_index.rs`.

use super::backend::{Backend, Prefix};
use crate::mcp::Kind;

/// What a server's tool or prompt is called; resources keep their URIs.
pub(super) fn exposed(backend: &Backend, kind: Kind, own: &str) -> String {
    match kind {
        Kind::Tools | Kind::Prompts => format!("{}{own}", prefix(backend)),
        Kind::Resources | Kind::Templates => own.to_owned(),
    }
}

/// What the server calls it; none where the name is not one of its own.
pub(super) fn own<'a>(backend: &Backend, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(&prefix(backend)).filter(|own| !own.is_empty())
}

/// What stands in front of the names of a server's tools and prompts.
pub(super) fn prefix(backend: &Backend) -> String {
    match &backend.prefix {
        Prefix::Name => format!("{}__", backend.name),
        Prefix::Text(text) => text.clone(),
        Prefix::None => String::new(),
    }
}
