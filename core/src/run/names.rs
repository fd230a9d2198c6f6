//! Names of files, for a line that people read.

use crate::limits::GIT_NAMED_MAX;

/// The first of some names, and how many more there are.
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> =
        names.by_ref().take(GIT_NAMED_MAX).map(|name| format!("`{name}`")).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
