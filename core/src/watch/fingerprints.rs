//! Owns the fingerprints of watched files as of the last scan.
//!
//! Driven by the daemon's scan, which reads the files. Never reads one itself.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::time::Stamp;

/// A file as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFingerprint {
    /// Its length.
    pub bytes: u64,
    /// When it was changed last, as far as the file system says.
    pub modified: Option<Stamp>,
    /// What is in it.
    pub content: ContentHash,
    /// It was changed so short a time before it was read that another change could leave no trace in
    /// its time.
    pub is_fresh: bool,
}

/// What is in a file, or how it is told without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentHash {
    /// The hash of all of it.
    Content(u64),
    /// It was not read, as it is large or may not be read: length and time stand for it.
    Unread,
}

/// The files that are known, by their paths.
#[derive(Debug, Default)]
pub struct Fingerprints {
    files: BTreeMap<PathBuf, FileFingerprint>,
}

impl Fingerprints {
    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether a file is known.
    pub fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// What is known of a file whose length and time are still the same, so that it need not be read.
    pub fn unchanged(
        &self,
        path: &Path,
        bytes: u64,
        modified: Option<Stamp>,
    ) -> Option<FileFingerprint> {
        let known = self.files.get(path)?;
        let is_same = known.bytes == bytes && known.modified == modified && modified.is_some();
        (is_same && !known.is_fresh).then_some(*known)
    }

    /// Remembers a file as it is now. Whether it is new, or something else is in it.
    pub fn learn(&mut self, path: &Path, found: FileFingerprint) -> bool {
        let Some(known) = self.files.get_mut(path) else {
            self.files.insert(path.to_owned(), found);
            return true;
        };
        let before = std::mem::replace(known, found);
        match (before.content, found.content) {
            (ContentHash::Content(before), ContentHash::Content(now)) => before != now,
            _ => (before.bytes, before.modified) != (found.bytes, found.modified),
        }
    }

    /// Forgets a file. Whether it was known.
    pub fn forget(&mut self, path: &Path) -> bool {
        self.files.remove(path).is_some()
    }

    /// The files that are known at a path or below it.
    pub fn below(&self, path: &Path) -> Vec<PathBuf> {
        let from = self.files.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        // Paths are ordered part by part, so that all that begin with one stand together.
        from.map(|(known, _)| known).take_while(|known| known.starts_with(path)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn file(bytes: u64, second: u64, content: ContentHash) -> FileFingerprint {
        let modified = Some(Stamp::since_unix_epoch(Duration::from_secs(second)));
        FileFingerprint { bytes, modified, content, is_fresh: false }
    }

    #[test]
    fn only_another_content_is_a_change() {
        use ContentHash::{Content, Unread};
        let cases = [
            // Touched, and saved without a change.
            (file(1, 1, Content(7)), file(1, 2, Content(7)), false),
            (file(1, 1, Content(7)), file(1, 1, Content(8)), true),
            (file(1, 1, Content(7)), file(2, 2, Content(8)), true),
            // Too large to be read.
            (file(9, 1, Unread), file(9, 1, Unread), false),
            (file(9, 1, Unread), file(9, 2, Unread), true),
            (file(1, 1, Content(7)), file(9, 1, Unread), true),
            // It may be read again, and nothing else says that it changed.
            (file(1, 1, Unread), file(1, 1, Content(7)), false),
        ];
        for (before, after, changed) in cases {
            let mut prints = Fingerprints::default();
            assert!(prints.learn(Path::new("a"), before), "a new file is a change");
            assert_eq!(prints.learn(Path::new("a"), after), changed, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_file_is_read_again_only_where_it_may_differ() {
        let mut prints = Fingerprints::default();
        let known = file(5, 100, ContentHash::Content(1));
        prints.learn(Path::new("old"), known);
        prints.learn(Path::new("new"), FileFingerprint { is_fresh: true, ..known });
        prints.learn(Path::new("timeless"), FileFingerprint { modified: None, ..known });
        assert_eq!(prints.unchanged(Path::new("old"), 5, known.modified), Some(known));
        assert_eq!(prints.unchanged(Path::new("old"), 6, known.modified), None);
        assert_eq!(prints.unchanged(Path::new("old"), 5, None), None);
        assert_eq!(prints.unchanged(Path::new("new"), 5, known.modified), None);
        assert_eq!(prints.unchanged(Path::new("timeless"), 5, None), None);
    }

    #[test]
    fn what_is_below_a_folder_is_found() {
        let mut prints = Fingerprints::default();
        for path in ["a", "a/b", "a/b/c", "a/bb", "a.b", "a!", "b"] {
            prints.learn(Path::new(path), file(1, 1, ContentHash::Unread));
        }
        let below = |path: &str| prints.below(Path::new(path));
        assert_eq!(below("a"), ["a", "a/b", "a/b/c", "a/bb"].map(PathBuf::from));
        assert_eq!(below("a/b"), ["a/b", "a/b/c"].map(PathBuf::from));
        assert_eq!(below("c"), [] as [PathBuf; 0]);
        assert!(prints.forget(Path::new("a")) && !prints.forget(Path::new("a")));
        assert!(prints.has(Path::new("a/b")) && prints.len() == 6 && !prints.is_empty());
    }
}
