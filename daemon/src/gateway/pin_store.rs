//! Owns what is stored of the pins of a gateway's servers: reads it at the start, notes what the hub reports, and looks for
//! changes that the user has accepted. Driven by the loop. Never makes the loop wait for a disk after the start.

use std::collections::BTreeMap;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::gateway::PinReport;
use afresh_core::gateway::backend::{Backend, Pin};
use afresh_core::gateway::pins::{
    Items, PinKey, PinUpdate, PinnedServer, Section, Sections, listed,
};
use afresh_core::limits::{PIN_UPDATES_MAX, PIN_USED_STEP, PINS_LOOK_INTERVAL};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::clock::sleep_until;
use crate::error_chain::chain;
use crate::store::pins::{PinsStamp, RepositoryPins, StoredPins, unix_seconds};
use crate::store::user_state::UserStateError;

/// The pins of a gateway's servers on disk.
pub(super) struct PinStore {
    /// None where there is no place for them, or they cannot be read.
    file: Option<RepositoryPins>,
    is_read: bool,
    /// As they were last read or written.
    stored: StoredPins,
    /// What was stored then; none where it has to be read again.
    stamp: Option<PinsStamp>,
    /// What is not written yet.
    updates: Vec<PinUpdate>,
    work: Option<JoinHandle<Work>>,
    /// When to look for what the user has accepted.
    look_at: Option<Instant>,
}

/// What a thread has done.
enum Work {
    Written(Result<StoredPins, UserStateError>),
    Read(Result<(StoredPins, PinsStamp), UserStateError>),
}

/// What the loop has to know.
pub(super) enum PinEvent {
    /// The user has changed what is stored.
    Stored(BTreeMap<PinKey, Sections>),
    /// It cannot be read or written, in words.
    Failed(String),
}

impl PinStore {
    pub(super) fn new(file: Option<RepositoryPins>) -> Self {
        Self {
            file,
            is_read: false,
            stored: StoredPins::new(),
            stamp: None,
            updates: Vec::new(),
            work: None,
            look_at: None,
        }
    }

    /// Prepares for servers that are to be configured: what is stored of them is read, once. Where it cannot be, all of a
    /// server with `pin = "block"` is withheld, because nothing can be compared, and the text says so.
    pub(super) fn prepare(&mut self, servers: &[Backend]) -> Option<String> {
        let pinned = || servers.iter().filter(|server| server.pin != Pin::Off);
        pinned().next()?;
        let mut failure = None;
        if !self.is_read {
            self.is_read = true;
            let read = match &self.file {
                Some(file) => file.read().map_err(|error| chain(&error)),
                None => Err(chain(&UserStateError::NoFolder)),
            };
            match read {
                Ok((stored, stamp)) => (self.stored, self.stamp) = (stored, Some(stamp)),
                Err(why) => {
                    self.file = None;
                    failure = Some(format!(
                        "tools are pinned only while this gateway runs, and all tools of servers with `pin = \"block\"` are withheld: {why}"
                    ));
                }
            }
        }
        let now = unix_seconds();
        let is_old = |key: &PinKey| {
            let stored = self.stored.get(key);
            stored.is_some_and(|its| its.unused_for(now) > PIN_USED_STEP.as_secs())
        };
        let used = pinned().map(Backend::pin_key).filter(is_old);
        self.updates.extend(used.map(|key| PinUpdate { key, change: None }));
        let blocked = servers.iter().filter(|server| server.pin == Pin::Block);
        for server in blocked.filter(|_| self.file.is_none()) {
            let its = self.stored.entry(server.pin_key()).or_default();
            its.pinned = Section::ALL.map(|section| (section, Items::new())).into();
        }
        failure
    }

    /// What is stored, for the hub.
    pub(super) fn sections(&self) -> BTreeMap<PinKey, Sections> {
        self.stored.iter().map(|(key, its)| (key.clone(), its.pinned.clone())).collect()
    }

    /// Takes what the hub has seen, to be written soon. Returns a record where the user has to know of it.
    pub(super) fn take(&mut self, report: PinReport) -> Option<Record> {
        let PinReport { update, pin, changed } = report;
        let server = update.key.server.clone();
        // What is being written may be undone by this.
        let is_unwritten = self.work.is_some() || !self.updates.is_empty();
        let is_news = update.change.as_ref().is_some_and(|(section, change)| {
            let new = PinnedServer::default();
            self.stored.get(&update.key).unwrap_or(&new).is_changed_by(*section, change)
        });
        if (is_news || is_unwritten) && self.file.is_some() {
            if self.updates.len() >= PIN_UPDATES_MAX {
                self.updates.remove(0);
            }
            self.updates.push(update);
        }
        (!changed.is_empty()).then(|| tools_changed(&server, pin, changed))
    }

    /// Waits until the loop has to know something. Cancel safe.
    pub(super) async fn next(&mut self) -> PinEvent {
        loop {
            if let Some(work) = &mut self.work {
                let done = work.await;
                self.work = None;
                match done {
                    Ok(done) => {
                        if let Some(event) = self.finished(done) {
                            return event;
                        }
                    }
                    Err(error) => return PinEvent::Failed(error.to_string()),
                }
            } else if let Some(file) = self.file.clone().filter(|_| !self.updates.is_empty()) {
                let updates = std::mem::take(&mut self.updates);
                self.work = Some(spawn_blocking(move || Work::Written(file.note(updates))));
            } else {
                sleep_until(self.look_at.filter(|_| self.file.is_some())).await;
                self.look_at = Some(Instant::now() + PINS_LOOK_INTERVAL);
                let Some(file) = self.file.clone() else { continue };
                if self.stamp != Some(file.stamp()) {
                    self.work = Some(spawn_blocking(move || Work::Read(file.read())));
                }
            }
        }
    }

    fn finished(&mut self, work: Work) -> Option<PinEvent> {
        let failed =
            |error| Some(PinEvent::Failed(format!("tools are not pinned: {}", chain(&error))));
        match work {
            Work::Written(Ok(stored)) => {
                // What another process has written meanwhile is read with the next look.
                (self.stored, self.stamp) = (stored, None);
                None
            }
            Work::Read(Ok((stored, stamp))) => {
                (self.stored, self.stamp) = (stored, Some(stamp));
                Some(PinEvent::Stored(self.sections()))
            }
            Work::Written(Err(error)) => failed(error),
            Work::Read(Err(error)) => {
                // It is not read again until it changes.
                self.stamp = self.file.as_ref().map(RepositoryPins::stamp);
                failed(error)
            }
        }
    }

    /// Looks for changes that the user has accepted from now on, or not any more.
    pub(super) fn look(&mut self, is_wanted: bool) {
        match is_wanted {
            true => drop(self.look_at.get_or_insert_with(|| Instant::now() + PINS_LOOK_INTERVAL)),
            false => self.look_at = None,
        }
    }

    /// Writes what is left.
    pub(super) async fn finish(mut self) {
        if let Some(work) = self.work.take()
            && let Ok(done) = work.await
        {
            self.finished(done);
        }
        if let Some(file) = self.file.filter(|_| !self.updates.is_empty()) {
            spawn_blocking(move || file.note(self.updates)).await.ok();
        }
    }
}

fn tools_changed(server: &str, pin: Pin, changed: Vec<String>) -> Record {
    let consequence = match pin {
        Pin::Block => "they are withheld until `afresh trust",
        Pin::Off | Pin::Warn => "look at them with `afresh trust",
    };
    let end = if pin == Pin::Block { "` accepts them" } else { "`" };
    Record {
        level: Level::Warning,
        logger: "afresh.gateway".to_owned(),
        message: format!(
            "tools of the server `{server}` changed since they were pinned: {}; {consequence} {server}{end}",
            listed(&changed)
        ),
        event_type: EventType::ToolsChanged,
        props: vec![
            ("server", server.into()),
            ("pin", pin.word().into()),
            ("changed", changed.into()),
        ],
    }
}
