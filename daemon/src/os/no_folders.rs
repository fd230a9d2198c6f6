//! The same functions as `inotify.rs`, where the kernel is not asked: nothing is watched, and files are
//! polled.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use super::{FolderEvent, WatchExtent, WatchRefusal};

/// There are none.
pub(crate) struct FolderAlarm(Infallible);

/// Waits for ever.
pub(crate) struct FolderAlarms(Infallible);

impl FolderAlarms {
    pub(crate) async fn next(&self) -> io::Result<Vec<FolderAlarm>> {
        match self.0 {}
    }
}

/// Cannot be made.
pub(crate) struct Folders(Infallible);

/// Nothing is watched here.
pub(crate) fn watch_folders() -> Result<(FolderAlarms, Folders), WatchRefusal> {
    Err(WatchRefusal::Unsupported)
}

impl Folders {
    pub(crate) fn count(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn has(&self, _folder: &Path) -> bool {
        match self.0 {}
    }

    pub(crate) fn add(&mut self, _folder: &Path, _extent: WatchExtent) -> Result<(), WatchRefusal> {
        match self.0 {}
    }

    pub(crate) fn retain(&mut self, _keep: impl Fn(&Path) -> bool) {
        match self.0 {}
    }

    pub(crate) fn hear(&mut self, alarm: FolderAlarm) -> Vec<FolderEvent> {
        match alarm.0 {}
    }
}
