//! Owns the lists of servers as they are stored between two runs of a gateway: clients are shown them while a server is
//! still starting. Filled by the hub with each list that was read; the daemon keeps [`CatalogFile`]. Never decides which
//! entries a client may see: `hub/last_lists.rs` does.
//!
//! A server is known by a digest of all that starts it, so that another command never gets the lists of this one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::catalog::{self, CatalogEntry};
use super::pins::Section;
use crate::limits::{STORED_CATALOGS_BYTES_MAX, STORED_ENTRY_BYTES, STORED_LIST_BYTES_MAX};
use crate::mcp::Kind;

/// Lists of a server, each entry as the server gave it. Resources are not kept: they change like files.
pub type StoredLists = BTreeMap<Section, Vec<String>>;

/// A list of a server that differs from what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogReport {
    /// The server's name in the configuration.
    pub server: String,
    /// Which list.
    pub section: Section,
    /// Its entries; none where nothing is to be stored of it.
    pub entries: Vec<String>,
}

/// The entries of a list as they are stored; none of a list that is too long for that.
pub(super) fn storable(kind: Kind, entries: &[CatalogEntry]) -> Vec<String> {
    let bytes: usize = entries.iter().map(|entry| entry.json.len() + STORED_ENTRY_BYTES).sum();
    if bytes > STORED_LIST_BYTES_MAX {
        return Vec::new();
    }
    entries.iter().filter_map(|entry| catalog::under_own_name(kind, entry)).collect()
}

/// All lists that are stored for a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogFile {
    servers: Vec<StoredCatalog>,
}

/// The lists of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCatalog {
    /// The digest of what starts it.
    key: String,
    /// When it was last used, in seconds since 1970.
    used: u64,
    /// The lists that are not empty.
    lists: StoredLists,
}

impl StoredCatalog {
    /// How long its last use is ago, in seconds.
    pub fn unused_for(&self, now: u64) -> u64 {
        now.saturating_sub(self.used)
    }

    /// Its lists.
    pub fn into_lists(self) -> StoredLists {
        self.lists
    }

    fn bytes(&self) -> usize {
        let entries = self.lists.values().flatten();
        entries.map(|entry| entry.len() + STORED_ENTRY_BYTES).sum::<usize>() + STORED_ENTRY_BYTES
    }
}

impl CatalogFile {
    /// Takes what is stored of a server out.
    pub fn take(&mut self, key: &str) -> Option<StoredCatalog> {
        let at = self.servers.iter().position(|its| its.key == key)?;
        Some(self.servers.swap_remove(at))
    }

    /// Notes that a server is used, and its lists that have changed.
    pub fn note(&mut self, key: &str, now: u64, changed: StoredLists) {
        let mut its = self
            .take(key)
            .unwrap_or_else(|| StoredCatalog { key: key.to_owned(), ..StoredCatalog::default() });
        its.used = now;
        its.lists.extend(changed);
        its.lists.retain(|_, entries| !entries.is_empty());
        if !its.lists.is_empty() {
            self.servers.push(its);
        }
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        let mut bytes: usize = self.servers.iter().map(StoredCatalog::bytes).sum();
        self.servers.sort_by_key(|its| std::cmp::Reverse(its.used));
        while bytes > STORED_CATALOGS_BYTES_MAX
            && let Some(oldest) = self.servers.pop()
        {
            bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(entries: &[&str]) -> StoredLists {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        StoredLists::from([(Section::Tools, entries)])
    }

    fn lists(file: &CatalogFile, key: &str) -> Option<StoredLists> {
        file.clone().take(key).map(StoredCatalog::into_lists)
    }

    #[test]
    fn lists_are_kept_by_what_starts_their_server() {
        let mut file = CatalogFile::default();
        file.note("k", 1, tools(&["{}"]));
        assert_eq!(lists(&file, "k"), Some(tools(&["{}"])));
        assert_eq!(lists(&file, "another command"), None);
        file.note("k", 5, StoredLists::new());
        assert_eq!(file.clone().take("k").map(|its| its.unused_for(7)), Some(2));
        file.note("k", 6, tools(&[]));
        assert_eq!(file, CatalogFile::default(), "nothing is left of a server without lists");
    }

    #[test]
    fn at_the_bound_the_servers_that_were_used_least_recently_are_forgotten() {
        let mut file = CatalogFile::default();
        let large = "x".repeat(STORED_LIST_BYTES_MAX - 2 * STORED_ENTRY_BYTES);
        let fits = STORED_CATALOGS_BYTES_MAX / STORED_LIST_BYTES_MAX;
        for number in 0..=fits {
            file.note(&number.to_string(), number as u64, tools(&[&large]));
        }
        assert_eq!(file.servers.len(), fits);
        assert_eq!((lists(&file, "0"), lists(&file, "1").is_some()), (None, true));
    }

    #[test]
    fn a_list_that_is_too_long_is_not_stored() {
        let entry = |bytes: usize| CatalogEntry {
            own: "get".to_owned(),
            exposed: "a__get".to_owned(),
            json: format!(r#"{{"name":"a__get","x":"{}"}}"#, "x".repeat(bytes)).into_bytes(),
        };
        assert_eq!(storable(Kind::Tools, &[entry(1)]), [r#"{"name":"get","x":"x"}"#]);
        assert_eq!(storable(Kind::Tools, &[entry(STORED_LIST_BYTES_MAX)]), [""; 0]);
    }
}
