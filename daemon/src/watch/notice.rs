//! The notices to the user when not all can be watched. Each is given once.

use std::path::Path;

use afresh_core::limits::{
    WATCH_DEPTH_MAX, WATCH_FILES_MAX, WATCH_FOLDERS_MAX, WATCH_POLL_INTERVAL,
};
use afresh_core::text::harmless;
use afresh_core::time::show_duration;

use crate::os::WatchRefusal;

/// Something is not watched, or not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchNotice {
    TooManyFiles,
    TooManyFolders,
    TooDeep,
    /// What the system says, and what to do.
    Refused(String),
}

impl WatchNotice {
    pub(super) fn refused(folder: &Path, refusal: &WatchRefusal) -> Self {
        Self::Refused(match refusal {
            WatchRefusal::Limit { what, hint } => format!("{what}: {hint}"),
            WatchRefusal::Failed(error) => {
                format!("`{}` cannot be watched: {error}", harmless(&folder.to_string_lossy()))
            }
            WatchRefusal::Gone | WatchRefusal::Unsupported => return Self::Refused(String::new()),
        })
    }

    /// Whether two are the same for the user: one folder that is refused stands for all.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Empty where there is nothing to say: the system never watches anything.
    pub(super) fn text(&self) -> String {
        let instead = format!(
            "all watched files are looked at every {} instead",
            show_duration(WATCH_POLL_INTERVAL)
        );
        match self {
            Self::TooManyFiles => format!(
                "more than {WATCH_FILES_MAX} files are to be watched: changes of the others are not \
                 seen; watch a smaller folder, or add to `.ignore` what does not matter"
            ),
            Self::TooManyFolders => format!(
                "more than {WATCH_FOLDERS_MAX} folders are to be watched: {instead}; watch a smaller \
                 folder, or add to `.ignore` what does not matter"
            ),
            Self::TooDeep => format!(
                "folders more than {WATCH_DEPTH_MAX} deep are not watched; watch one of them itself"
            ),
            Self::Refused(why) if why.is_empty() => String::new(),
            Self::Refused(why) => format!("{instead}: {why}"),
        }
    }
}
