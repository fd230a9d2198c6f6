//! Owns the file of the pins, `pins.json` in the user's private folder: reads it, and notes in it what gateways have seen
//! and the user has accepted. Called from threads that may wait for a disk. Never compares two lists.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use afresh_core::gateway::pins::{PinFile, PinKey, PinUpdate, PinnedServer};

use super::user_state::{StateFile, UserState, UserStateError};
use crate::clock::now;

impl StateFile for PinFile {
    const NAME: &'static str = "pins.json";
    const VERSION: u64 = 1;
}

/// The pins of one repository.
#[derive(Clone, Debug)]
pub struct RepositoryPins {
    state: UserState,
    repository: String,
}

/// The pins of a repository's servers, as they are stored.
pub type StoredPins = BTreeMap<PinKey, PinnedServer>;

/// What tells one content of the file from the next.
pub type PinsStamp = Option<(SystemTime, u64)>;

impl RepositoryPins {
    /// The pins of a repository, by its identity.
    pub fn new(state: UserState, repository: String) -> Self {
        Self { state, repository }
    }

    /// Reads them. The stamp is of before: a later change is noticed by it.
    pub fn read(&self) -> Result<(StoredPins, PinsStamp), UserStateError> {
        let stamp = self.stamp();
        Ok((self.stored(&self.state.read()?), stamp))
    }

    /// Notes what was seen. Returns what is stored then.
    pub fn note(&self, updates: Vec<PinUpdate>) -> Result<StoredPins, UserStateError> {
        self.state.change(|file: &mut PinFile| {
            file.apply(&self.repository, unix_seconds(), updates);
            self.stored(file)
        })
    }

    /// Accepts what was shown of a server; false where that is not what it says now.
    pub fn accept(&self, shown: &PinnedServer) -> Result<bool, UserStateError> {
        self.state.change(|file: &mut PinFile| file.accept(&self.repository, shown))
    }

    /// The stamp of the file as it is now.
    pub fn stamp(&self) -> PinsStamp {
        let metadata = fs::symlink_metadata(self.state.path(PinFile::NAME)).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    fn stored(&self, file: &PinFile) -> StoredPins {
        let servers = file.servers_of(&self.repository).cloned();
        let key = |its: &PinnedServer| PinKey {
            server: its.server.clone(),
            address: its.address.clone(),
        };
        servers.map(|its| (key(&its), its)).collect()
    }
}

/// The time by the wall clock.
pub(crate) fn unix_seconds() -> u64 {
    now().unix_seconds() as u64
}
