//! Scans all that is watched, or a part of it: which files there are, and which have changed. Driven by
//! [`Watch`](super::Watch).
//!
//! Blocks, so it runs on a thread of its own and owns what it needs meanwhile. A folder is watched
//! before it is read: what is written into it later is told by the kernel, what was there is found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afresh_core::limits::{
    WATCH_DEPTH_MAX, WATCH_FILES_MAX, WATCH_FOLDERS_MAX, WATCH_READ_BYTES_MAX,
};
use afresh_core::time::Stamp;
use afresh_core::watch::{
    ContentHash, FileFingerprint, Fingerprints, ScanScope, is_noise, is_rules_file,
};

use super::WatchNotice;
use super::gitignore::Rules;
use crate::os::{
    FileKind, FolderEvent, Folders, WatchExtent, WatchRefusal, file_kind, open_to_read,
};

/// The state of all that is watched.
#[derive(Default)]
pub(super) struct Scanner {
    roots: Vec<WatchedRoot>,
    /// The folder that we work in, without links.
    base: PathBuf,
    /// None where the kernel watches nothing for us.
    pub(super) folders: Option<Folders>,
    /// Folders in the trees that are watched, by their real paths.
    trees: BTreeMap<PathBuf, WatchedTree>,
    /// Names outside of the trees that matter.
    signs: BTreeSet<(PathBuf, OsString)>,
    /// Folders that the ways to the trees lead through.
    ways: BTreeSet<PathBuf>,
    prints: Fingerprints,
    /// The kernel does not tell of all of it.
    must_poll: bool,
    /// The first look only learns; but what was changed after this moment is a change.
    began: Option<Stamp>,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// One path that was named to be watched.
struct WatchedRoot {
    named: PathBuf,
    /// Its end at the last scan.
    end: Option<PathBuf>,
}

#[derive(Clone)]
struct WatchedTree {
    /// The path by which people know it.
    shown: PathBuf,
    depth: usize,
    rules: Arc<Rules>,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct ScanOutcome {
    pub(super) changed: Vec<PathBuf>,
    pub(super) notices: Vec<WatchNotice>,
    /// Something is not watched by the kernel: it has to be looked at again and again.
    pub(super) must_poll: bool,
    seen: BTreeSet<PathBuf>,
    /// Folders that could not be read.
    unread: Vec<PathBuf>,
}

impl ScanOutcome {
    /// Keeps one notice of each kind: there can be one for each folder.
    fn note(&mut self, notice: WatchNotice) {
        if !self.notices.iter().any(|noted| noted.is_like(&notice)) {
            self.notices.push(notice);
        }
    }
}

impl Scanner {
    pub(super) fn new(
        paths: Vec<PathBuf>,
        base: PathBuf,
        folders: Option<Folders>,
        began: Option<Stamp>,
    ) -> Self {
        let roots = paths.into_iter().map(|named| WatchedRoot { named, end: None }).collect();
        let base = base.canonicalize().unwrap_or(base);
        Self { roots, base, folders, began, ..Self::default() }
    }

    /// The paths that an event may have changed; none is everything.
    pub(super) fn touched(&self, event: FolderEvent) -> Option<Vec<PathBuf>> {
        match event {
            FolderEvent::Lost => None,
            // The paths below it may lead elsewhere now.
            FolderEvent::Folder(folder) if self.ways.contains(&folder) => None,
            FolderEvent::Folder(folder) if self.trees.contains_key(&folder) => Some(vec![folder]),
            FolderEvent::Folder(_) => Some(vec![]),
            FolderEvent::Entry { folder, name, is_folder } => {
                let path = folder.join(&name);
                if self.signs.contains(&(folder.clone(), name.clone())) {
                    return Some(vec![path]);
                }
                let Some(tree) = self.trees.get(&folder).filter(|_| !is_noise(&name)) else {
                    return Some(vec![]);
                };
                if is_rules_file(&name) {
                    return None;
                }
                let is_ignored = tree.rules.ignores(&path, is_folder);
                Some(if is_ignored { vec![] } else { vec![path] })
            }
        }
    }

    /// Looks, and learns what is there now.
    pub(super) fn look(&mut self, scope: &ScanScope) -> ScanOutcome {
        let mut outcome = ScanOutcome::default();
        match scope {
            ScanScope::Everything => self.look_at_everything(&mut outcome),
            ScanScope::Paths(paths) => {
                let is_sign = |path: &PathBuf| {
                    let sign = path.parent().zip(path.file_name());
                    sign.is_some_and(|(folder, name)| {
                        self.signs.contains(&(folder.to_owned(), name.to_owned()))
                    })
                };
                let may_lead_elsewhere = paths.iter().any(is_sign);
                if may_lead_elsewhere {
                    self.look_at_everything(&mut outcome);
                }
                // After that, only what is in touched files is left to be read.
                for path in paths.iter().filter(|path| !may_lead_elsewhere || !path.is_dir()) {
                    self.look_at_one(path, &mut outcome);
                }
            }
        }
        self.began = None;
        outcome.must_poll = self.must_poll;
        outcome.changed.sort();
        outcome.changed.dedup();
        outcome
    }

    fn look_at_everything(&mut self, outcome: &mut ScanOutcome) {
        self.must_poll = false;
        self.trees.clear();
        self.signs.clear();
        self.ways.clear();
        let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
        for index in 0..self.roots.len() {
            let named = self.roots[index].named.clone();
            // What is gone is being replaced: what has changed is said when it is there again.
            if let Some(end) = self.follow(&named, outcome) {
                self.roots[index].end = Some(end.clone());
                found.push((end, named));
            }
        }
        // One that lies in another comes first: its own rules hold for it.
        found.sort_by_key(|(end, _)| std::cmp::Reverse(end.components().count()));
        for (end, named) in found {
            if end.is_dir() {
                let rules = Rules::of_named(&end, &self.base);
                let tree = WatchedTree { shown: named.clone(), depth: 0, rules };
                self.walk(&end, tree, FileReading::IfNew, outcome);
            } else {
                self.look_at_file(&end, &named, FileReading::IfNew, outcome);
            }
            self.forget_unseen(&named, &end, outcome);
        }
        let (trees, ways) = (&self.trees, &self.ways);
        if let Some(folders) = &mut self.folders {
            folders.retain(|path| trees.contains_key(path) || ways.contains(path));
        }
    }

    /// Follows the way to a path, and has it watched: again, while it changes meanwhile.
    fn follow(&mut self, named: &Path, outcome: &mut ScanOutcome) -> Option<PathBuf> {
        const TRIES_MAX: usize = 10;
        let mut route = Route::to(named);
        for _ in 0..TRIES_MAX {
            for folder in &route.folders {
                let decides = route.signs.iter().any(|(place, _)| place == folder);
                let extent = if decides { WatchExtent::Entries } else { WatchExtent::Itself };
                self.watch(folder, extent, outcome);
                self.ways.insert(folder.clone());
            }
            self.signs.extend(route.signs.iter().cloned());
            let before = std::mem::replace(&mut route, Route::to(named));
            if route == before {
                return route.end;
            }
        }
        // It never rests.
        self.must_poll = true;
        route.end
    }

    fn look_at_one(&mut self, path: &Path, outcome: &mut ScanOutcome) {
        if let Some(tree) = path.parent().and_then(|folder| self.trees.get(folder)).cloned() {
            let Some(name) = path.file_name() else { return };
            let shown = tree.shown.join(name);
            let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
            if is_noise(name) || tree.rules.ignores(path, is_folder) {
                return;
            }
            if is_folder {
                let rules = Rules::of_child(&tree.rules, path);
                let tree = WatchedTree { shown: shown.clone(), depth: tree.depth + 1, rules };
                self.walk(path, tree, FileReading::Always, outcome);
            } else {
                self.leave(path);
                self.look_at_file(path, &shown, FileReading::Always, outcome);
            }
            self.forget_unseen(&shown, path, outcome);
            return;
        }
        // A file that was named itself; a way that changed was followed before.
        let root = self.roots.iter().find(|root| root.end.as_deref() == Some(path));
        if let Some(named) = root.filter(|_| path.is_file()).map(|root| root.named.clone()) {
            self.look_at_file(path, &named, FileReading::Always, outcome);
        }
    }

    fn walk(
        &mut self,
        folder: &Path,
        tree: WatchedTree,
        reading: FileReading,
        outcome: &mut ScanOutcome,
    ) {
        if self.cancelled.load(Ordering::Relaxed) {
            return;
        }
        // It was named itself, or by another name.
        if reading == FileReading::IfNew && self.trees.contains_key(folder) {
            return;
        }
        if tree.depth > WATCH_DEPTH_MAX {
            outcome.note(WatchNotice::TooDeep);
            return;
        }
        self.watch(folder, WatchExtent::Entries, outcome);
        self.trees.insert(folder.to_owned(), tree.clone());
        let Ok(entries) = fs::read_dir(folder) else {
            outcome.unread.push(tree.shown);
            return;
        };
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let Ok(kind) = entry.file_type() else { continue };
            if is_noise(&name) || tree.rules.ignores(&path, kind.is_dir()) {
                continue;
            }
            let shown = tree.shown.join(&name);
            if kind.is_dir() {
                let rules = Rules::of_child(&tree.rules, &path);
                let child = WatchedTree { shown, depth: tree.depth + 1, rules };
                self.walk(&path, child, reading, outcome);
            } else if !is_rules_file(&name) {
                self.look_at_file(&path, &shown, reading, outcome);
            }
        }
    }

    fn watch(&mut self, folder: &Path, extent: WatchExtent, outcome: &mut ScanOutcome) {
        let Some(folders) = &mut self.folders else {
            self.must_poll = true;
            return;
        };
        if !folders.has_room_for(folder, WATCH_FOLDERS_MAX) {
            self.must_poll = true;
            outcome.note(WatchNotice::TooManyFolders);
            return;
        }
        match folders.add(folder, extent) {
            Ok(()) | Err(WatchRefusal::Gone) => {}
            // It says only when a folder above is moved; not every folder may be read.
            Err(WatchRefusal::Failed(_)) if extent == WatchExtent::Itself => {}
            Err(refusal) => {
                self.must_poll = true;
                let refused = WatchNotice::refused(folder, &refusal);
                refused.into_iter().for_each(|notice| outcome.note(notice));
            }
        }
    }

    /// A path is no folder any more.
    fn leave(&mut self, path: &Path) {
        if !self.trees.contains_key(path) {
            return;
        }
        self.trees.retain(|folder, _| !folder.starts_with(path));
        let (trees, ways) = (&self.trees, &self.ways);
        if let Some(folders) = &mut self.folders {
            folders.retain(|folder| trees.contains_key(folder) || ways.contains(folder));
        }
    }

    /// Looks at a file. None where it is gone, or neither a file nor a link.
    fn look_at(&self, real: &Path, shown: &Path, reading: FileReading) -> Option<FileFingerprint> {
        let own = fs::symlink_metadata(real).ok()?;
        let metadata = match own.is_symlink() {
            // What a link leads to counts if it is a file; otherwise where it leads to.
            true => match fs::metadata(real) {
                Ok(target) if target.is_file() => target,
                _ => return of_link(real),
            },
            false => own,
        };
        if !metadata.is_file() {
            return None;
        }
        let (bytes, modified) = (metadata.len(), metadata.modified().ok());
        let stamp = modified.and_then(stamp);
        if reading == FileReading::IfNew
            && let Some(known) = self.prints.unchanged(shown, bytes, stamp)
        {
            return Some(known);
        }
        let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        let is_fresh = age.is_none_or(|age| age < TIME_GRAIN);
        let content = match bytes {
            0..=WATCH_READ_BYTES_MAX => match hash(real, &self.cancelled) {
                Ok(content) => content,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(_) => ContentHash::Unread,
            },
            _ => ContentHash::Unread,
        };
        Some(FileFingerprint { bytes, modified: stamp, content, is_fresh })
    }

    fn look_at_file(
        &mut self,
        real: &Path,
        shown: &Path,
        reading: FileReading,
        outcome: &mut ScanOutcome,
    ) {
        if self.cancelled.load(Ordering::Relaxed) {
            return;
        }
        let Some(found) = self.look_at(real, shown, reading) else {
            return;
        };
        if self.prints.len() >= WATCH_FILES_MAX && !self.prints.has(shown) {
            outcome.note(WatchNotice::TooManyFiles);
            return;
        }
        let is_change = match self.began {
            None => true,
            // It was changed while we began: a server that was started before may know the old one.
            Some(began) => found.is_fresh && found.modified > Some(began),
        };
        if self.prints.learn(shown, found) && is_change {
            outcome.changed.push(shown.to_owned());
        }
        outcome.seen.insert(shown.to_owned());
    }

    /// Forgets the files that were known at a path and are not there any more. One that is there, and
    /// is ignored now, has not changed.
    fn forget_unseen(&mut self, shown: &Path, real: &Path, outcome: &mut ScanOutcome) {
        if self.cancelled.load(Ordering::Relaxed) {
            return;
        }
        for known in self.prints.below(shown) {
            if outcome.seen.contains(&known) {
                continue;
            }
            let inside = known.strip_prefix(shown).unwrap_or(Path::new(""));
            let place = inside.components().fold(real.to_owned(), |place, part| place.join(part));
            let is_gone = fs::symlink_metadata(place).is_err();
            // What cannot be read now may be the same as before.
            if !is_gone && outcome.unread.iter().any(|folder| known.starts_with(folder)) {
                continue;
            }
            self.prints.forget(&known);
            if is_gone {
                outcome.changed.push(known);
            }
        }
    }
}

/// Some file systems know only every second one.
const TIME_GRAIN: Duration = Duration::from_secs(2);

/// Whether a file is read even though its length and time are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileReading {
    Always,
    IfNew,
}

fn of_link(real: &Path) -> Option<FileFingerprint> {
    let target = fs::read_link(real).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(target.as_os_str().as_encoded_bytes());
    let content = ContentHash::Content(hasher.finish());
    Some(FileFingerprint { bytes: 0, modified: None, content, is_fresh: true })
}

/// The hash of what is in a file: fast, and the same in every process.
fn hash(path: &Path, cancelled: &AtomicBool) -> io::Result<ContentHash> {
    let file = open_to_read(path)?;
    if file_kind(&file)? != FileKind::Regular {
        return Ok(ContentHash::Unread);
    }
    let mut hasher = DefaultHasher::new();
    let mut chunk = vec![0; 64 * 1024];
    // It may grow while it is read.
    let mut file = file.take(WATCH_READ_BYTES_MAX + 1);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(ContentHash::Content(hasher.finish())),
            Ok(length) => hasher.write(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if cancelled.load(Ordering::Relaxed) {
            return Ok(ContentHash::Unread);
        }
    }
}

pub(super) fn stamp(time: SystemTime) -> Option<Stamp> {
    time.duration_since(UNIX_EPOCH).ok().map(Stamp::since_unix_epoch)
}

/// As many links in a row as the kernel follows.
const LINKS_MAX: usize = 40;

/// The way to a path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Route {
    /// The folders that it leads through, without links.
    folders: Vec<PathBuf>,
    /// The names that decide where it ends, each with its folder: links, the last one, or the first
    /// that is not there.
    signs: Vec<(PathBuf, OsString)>,
    /// Its end; none where there is no file.
    end: Option<PathBuf>,
}

impl Route {
    /// Follows an absolute path.
    fn to(path: &Path) -> Self {
        let mut route = Self::default();
        let mut place = PathBuf::new();
        let mut links = 0;
        let mut parts: VecDeque<OsString> = split(path).collect();
        while let Some(part) = parts.pop_front() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let next = place.join(name);
                    let found = fs::symlink_metadata(&next);
                    let is_link = found.as_ref().is_ok_and(Metadata::is_symlink);
                    route.pass(&place, name, is_link || found.is_err() || parts.is_empty());
                    if found.is_err() {
                        return route;
                    }
                    if !is_link {
                        place = next;
                        continue;
                    }
                    links += 1;
                    let Ok(target) = fs::read_link(&next) else { return route };
                    if links > LINKS_MAX {
                        return route;
                    }
                    for part in split(&target).collect::<Vec<_>>().into_iter().rev() {
                        parts.push_front(part);
                    }
                }
                Some(Component::ParentDir) => {
                    place.pop();
                }
                Some(Component::CurDir) | None => {}
                // A root or a drive: what came before does not count.
                Some(start) => place.push(start),
            }
        }
        route.end = Some(place);
        route
    }

    fn pass(&mut self, folder: &Path, name: &OsStr, decides: bool) {
        if !self.folders.iter().any(|known| known == folder) {
            self.folders.push(folder.to_owned());
        }
        if decides {
            self.signs.push((folder.to_owned(), name.to_owned()));
        }
    }
}

fn split(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}
