//! Owns the file of servers' lists of the last run, `catalogs.json` in the user's private folder. Called from threads that
//! may wait for a disk. Never shows a list: the hub does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use afresh_core::gateway::backend::{Backend, Transport};
use afresh_core::gateway::inherited_env::InheritedEnv;
use afresh_core::gateway::stored_catalogs::{CatalogFile, StoredCatalog, StoredLists};
use serde_json::json;

use super::digest::sha256;
use super::pins::unix_seconds;
use super::user_state::{StateFile, UserState, UserStateError};

impl StateFile for CatalogFile {
    const NAME: &'static str = "catalogs.json";
    const VERSION: u64 = 1;
}

/// The lists of a repository's servers.
#[derive(Clone, Debug)]
pub struct RepositoryCatalogs {
    state: UserState,
    repository: String,
    /// The folder that the servers' paths count from.
    base: PathBuf,
}

/// What is to be stored: the lists that have changed, by the keys of their servers.
pub type CatalogChanges = BTreeMap<String, StoredLists>;

impl RepositoryCatalogs {
    /// The lists of a repository, by its identity.
    pub fn new(state: UserState, repository: String, base: PathBuf) -> Self {
        Self { state, repository, base }
    }

    /// The key of a server: the digest of all that starts it. Values of variables can be secret, so nothing of it is
    /// stored as it is.
    pub fn key(&self, server: &Backend) -> String {
        let path = |path: &Path| self.base.join(path).to_string_lossy().into_owned();
        let how = match &server.transport {
            Transport::Stdio(stdio) => json!({
                "command": stdio.command,
                "cwd": path(stdio.cwd.as_deref().unwrap_or(Path::new(""))),
                "env": stdio.env,
                "env_file": stdio.env_file.as_deref().map(path),
                "has_all_variables": stdio.inherit_env == InheritedEnv::All,
            }),
            Transport::Http(http) => json!({"url": http.url, "headers": http.headers}),
        };
        sha256(json!([self.repository, server.name, how]).to_string().as_bytes())
    }

    /// Reads the lists of these servers, by their keys.
    pub fn read<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, StoredCatalog>, UserStateError> {
        let mut file: CatalogFile = self.state.read()?;
        Ok(keys.filter_map(|key| Some((key.to_owned(), file.take(key)?))).collect())
    }

    /// Notes that these servers are used, and the lists that have changed.
    pub fn note(&self, changes: CatalogChanges) -> Result<(), UserStateError> {
        self.state.change(|file: &mut CatalogFile| {
            for (key, lists) in changes {
                file.note(&key, unix_seconds(), lists);
            }
        })
    }
}
