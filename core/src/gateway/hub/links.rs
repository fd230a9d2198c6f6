//! All links, and when each of them wants to be looked after.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::super::{ClientId, LinkId};
use super::Hub;
use super::link::Link;
use crate::time::Time;

/// The links by their ids. What is asked of all of them with each message stands beside them, so that it does not
/// cost more where there are more servers.
#[derive(Debug, Default)]
pub(super) struct Links {
    all: BTreeMap<LinkId, Link>,
    /// When something has to be done about one.
    moments: BTreeSet<(Time, LinkId)>,
    /// Those for which requests wait.
    awaited: BTreeSet<LinkId>,
    /// Those that something may have happened to since these were noted.
    touched: Vec<LinkId>,
}

impl Links {
    pub(super) fn get_mut(&mut self, id: &LinkId) -> Option<&mut Link> {
        if self.touched.last() != Some(id) {
            self.touched.push(*id);
        }
        self.all.get_mut(id)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.touched.extend(self.all.keys());
        self.all.values_mut()
    }

    pub(super) fn insert(&mut self, id: LinkId, link: Link) {
        self.touched.push(id);
        self.all.insert(id, link);
    }

    pub(super) fn remove(&mut self, id: &LinkId) -> Option<Link> {
        let link = self.all.remove(id)?;
        if let Some(moment) = link.moment {
            self.moments.remove(&(moment, *id));
        }
        self.awaited.remove(id);
        Some(link)
    }

    /// The earliest moment of all, as it was last noted.
    pub(super) fn next_moment(&self) -> Option<Time> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Those whose moments have come.
    pub(super) fn due(&self, now: Time) -> Vec<LinkId> {
        self.moments.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// All requests that wait for a link to open, and whose they are.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &(ClientId, Vec<u8>)> {
        let links = self.awaited.iter().chain(&self.touched).filter_map(|id| self.all.get(id));
        links.flat_map(|link| &link.waiting)
    }

    fn note(&mut self, id: LinkId, moment: Option<Time>) {
        let Some(link) = self.all.get_mut(&id) else { return };
        if !link.waiting.is_empty() {
            self.awaited.insert(id);
        } else if !self.awaited.is_empty() {
            self.awaited.remove(&id);
        }
        if link.moment == moment {
            return;
        }
        let before = std::mem::replace(&mut link.moment, moment);
        before.map(|before| self.moments.remove(&(before, id)));
        self.moments.extend(moment.map(|moment| (moment, id)));
    }
}

impl Deref for Links {
    type Target = BTreeMap<LinkId, Link>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Hub {
    /// Notes how it is with the links that something may have happened to.
    pub(super) fn note_links(&mut self) {
        let mut touched = std::mem::take(&mut self.links.touched);
        for id in touched.drain(..) {
            let moment = self.links.get(&id).and_then(|link| self.link_wakeup(link));
            self.links.note(id, moment);
        }
        self.links.touched = touched;
        debug_assert!(
            self.links.values().all(|link| link.moment == self.link_wakeup(link)),
            "a moment is not noted"
        );
    }

    /// What the moments of links depend on may have changed.
    pub(super) fn touch_links(&mut self) {
        self.links.touched.extend(self.links.all.keys());
    }
}
