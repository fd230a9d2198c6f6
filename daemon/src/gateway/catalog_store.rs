//! Owns what is stored of the servers' lists between two runs: reads it at the start, and stores the lists that the hub
//! reports. Driven by the loop. Never makes the loop wait for a disk after the start.

use std::collections::BTreeMap;
use std::future::pending;

use afresh_core::gateway::backend::Backend;
use afresh_core::gateway::stored_catalogs::{CatalogReport, StoredCatalog, StoredLists};
use afresh_core::limits::PIN_USED_STEP;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error_chain::chain;
use crate::store::catalogs::{CatalogChanges, RepositoryCatalogs};
use crate::store::pins::unix_seconds;
use crate::store::user_state::UserStateError;

/// The lists of a gateway's servers on disk.
pub(super) struct CatalogStore {
    /// None where there is no place for them, or they cannot be read.
    file: Option<RepositoryCatalogs>,
    /// The keys of the servers, by their names.
    keys: BTreeMap<String, String>,
    /// What is not stored yet. There are three lists of a server, and each is there once.
    changes: CatalogChanges,
    work: Option<JoinHandle<Result<(), UserStateError>>>,
}

impl CatalogStore {
    pub(super) fn new(file: Option<RepositoryCatalogs>) -> Self {
        let (keys, changes) = (BTreeMap::new(), CatalogChanges::new());
        Self { file, keys, changes, work: None }
    }

    /// The servers are these now.
    pub(super) fn configure(&mut self, servers: &[Backend]) {
        let Some(file) = &self.file else { return };
        self.keys = servers.iter().map(|its| (its.name.clone(), file.key(its))).collect();
    }

    /// Reads the lists of the servers that are configured, by their names. Where that fails, nothing is stored either, and
    /// the text says why.
    pub(super) fn read(&mut self) -> Result<BTreeMap<String, StoredLists>, String> {
        let Some(file) = &self.file else { return Ok(BTreeMap::new()) };
        let mut stored = file.read(self.keys.values().map(String::as_str)).map_err(|error| {
            let why = chain(&error);
            self.file = None;
            format!("servers that are still starting have no tools of the last run: {why}")
        })?;
        let now = unix_seconds();
        let mut lists = BTreeMap::new();
        for (name, key) in &self.keys {
            let Some(its) = stored.remove(key) else { continue };
            if its.unused_for(now) > PIN_USED_STEP.as_secs() {
                self.changes.insert(key.clone(), StoredLists::new());
            }
            lists.insert(name.clone(), StoredCatalog::into_lists(its));
        }
        Ok(lists)
    }

    /// Takes a list that the hub has read, to be stored soon.
    pub(super) fn take(&mut self, report: CatalogReport) {
        if let Some(key) = self.keys.get(&report.server).filter(|_| self.file.is_some()) {
            let lists = self.changes.entry(key.clone()).or_default();
            lists.insert(report.section, report.entries);
        }
    }

    /// Stores what has changed. Returns why that is not possible. Cancel safe.
    pub(super) async fn next(&mut self) -> String {
        loop {
            if let Some(work) = &mut self.work {
                let done = work.await;
                self.work = None;
                let why = match done {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => chain(&error),
                    Err(error) => error.to_string(),
                };
                // The next list would fail in the same way.
                self.file = None;
                return format!("lists of servers are not stored for the next run: {why}");
            }
            match self.file.clone().filter(|_| !self.changes.is_empty()) {
                Some(file) => {
                    let changes = std::mem::take(&mut self.changes);
                    self.work = Some(spawn_blocking(move || file.note(changes)));
                }
                None => pending().await,
            }
        }
    }

    /// Stores what is left.
    pub(super) async fn finish(mut self) {
        if let Some(work) = self.work.take() {
            work.await.ok();
        }
        if let Some(file) = self.file.filter(|_| !self.changes.is_empty()) {
            spawn_blocking(move || file.note(self.changes)).await.ok();
        }
    }
}
