//! Owns the debounce of watched files: touches come in, and changes go out once all is quiet.
//!
//! ```text
//!           Touched, Lost              quiet, or waited long enough
//!   Calm ──────────────────▶ PendingScan ──────────────────────────────▶ ScanCause
//!    ▲                          ▲                                      │
//!    │                          └───── touched meanwhile ──────────────┤
//!    └───────────────── Looked: what has changed is told ──────────────┘
//! ```
//!
//! A touch is only a hint: a scan of the files says what has changed, by their [`Fingerprints`]. [`is_noise`] knows
//! which names never matter, [`reason`] puts a change into words, and [`SelfChanges`] suspects a server that changes
//! watched files itself. Driven by the daemon's watcher, which scans. Never reads a file and owns no timer.

mod ignored_names;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::ignored_names::{is_noise, is_rules_file};
use crate::exponential_wait::ExponentialWait;
use crate::limits::{
    ECHO_DELAY, ECHO_DELAY_MAX, ECHO_WITHIN, ECHOES_MAX, WATCH_TOUCHED_MAX, WATCH_WAIT_MAX,
};
use crate::text::{harmless, tail};
use crate::time::{Stamp, Time};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These may have changed: files, folders, or what is gone.
    Touched(Vec<PathBuf>),
    /// Something may have changed, and it is not known what.
    Lost,
    /// Changes are not reported here, and it is time to scan.
    Due,
    /// The look that was asked for is over.
    Looked {
        /// What has changed since the look before.
        changed: Vec<PathBuf>,
    },
    /// The time of `next_wakeup` has come.
    Wakeup,
}

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look at these, and compare. The next one comes only after [`Input::Looked`].
    Look(ScanScope),
    /// Tell that these have changed.
    Tell(Vec<PathBuf>),
}

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanScope {
    /// These, with all that is in them.
    Paths(BTreeSet<PathBuf>),
    /// All that is watched.
    Everything,
}

/// The machine of all that is watched for one service.
#[derive(Debug)]
pub struct Watcher {
    debounce: Duration,
    stirred: Option<PendingScan>,
    looking: Option<ScanCause>,
    /// Changes that were found before all was quiet.
    held: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct PendingScan {
    since: Time,
    last: Time,
    scope: ScanScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanCause {
    /// All was quiet before: what is found is told.
    AfterQuiet,
    /// It is only the time to: what is found may be half written.
    Due,
}

impl Watcher {
    /// Nothing has happened. What changes is told when all has been quiet for `debounce`, or after
    /// [`WATCH_WAIT_MAX`] where it never is.
    pub fn new(debounce: Duration) -> Self {
        Self { debounce, stirred: None, looking: None, held: BTreeSet::new() }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Touched(paths) if paths.is_empty() => {}
            Input::Touched(paths) => self.stir(now, ScanScope::Paths(paths.into_iter().collect())),
            Input::Lost => self.stir(now, ScanScope::Everything),
            Input::Due if self.looking.is_none() && self.stirred.is_none() => {
                self.looking = Some(ScanCause::Due);
                effects.push(Effect::Look(ScanScope::Everything));
            }
            // A look comes anyway.
            Input::Due => {}
            Input::Looked { changed } => self.looked(now, changed, &mut effects),
            Input::Wakeup => {}
        }
        if self.next_wakeup().is_some_and(|at| at <= now)
            && let Some(PendingScan { scope, .. }) = self.stirred.take()
        {
            self.looking = Some(ScanCause::AfterQuiet);
            effects.push(Effect::Look(scope));
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let stirred = self.stirred.as_ref().filter(|_| self.looking.is_none())?;
        let wait_max = WATCH_WAIT_MAX.max(self.debounce);
        Some((stirred.last + self.debounce).min(stirred.since + wait_max))
    }

    fn stir(&mut self, now: Time, more: ScanScope) {
        let Some(PendingScan { last, scope, .. }) = &mut self.stirred else {
            self.stirred = Some(PendingScan { since: now, last: now, scope: more });
            return;
        };
        *last = now;
        match (&mut *scope, more) {
            (ScanScope::Paths(all), ScanScope::Paths(more)) => all.extend(more),
            (_, ScanScope::Everything) => *scope = ScanScope::Everything,
            (ScanScope::Everything, ScanScope::Paths(_)) => {}
        }
        if matches!(scope, ScanScope::Paths(all) if all.len() > WATCH_TOUCHED_MAX) {
            *scope = ScanScope::Everything;
        }
    }

    fn looked(&mut self, now: Time, changed: Vec<PathBuf>, effects: &mut Vec<Effect>) {
        let Some(looking) = self.looking.take() else { return };
        let found = !changed.is_empty();
        self.held.extend(changed);
        match looking {
            // Looked at once more, when it had the time to be finished.
            ScanCause::Due if found => self.stir(now, ScanScope::Everything),
            ScanCause::Due | ScanCause::AfterQuiet => {
                let told = std::mem::take(&mut self.held);
                if !told.is_empty() {
                    effects.push(Effect::Tell(told.into_iter().collect()));
                }
            }
        }
    }
}

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

/// Longer paths are cut at their beginning: the end says more.
const CHARS_MAX: usize = 80;

/// `src/server.py changed`, `src/server.py and 3 more changed`; paths in `base` are shown from there.
pub fn reason(changed: &[PathBuf], base: &Path) -> String {
    let Some((first, more)) = changed.split_first() else {
        return "watched files changed".to_owned();
    };
    let first = shown(first, base);
    match more.len() {
        0 => format!("{first} changed"),
        more => format!("{first} and {more} more changed"),
    }
}

fn shown(path: &Path, base: &Path) -> String {
    let short = path.strip_prefix(base).ok().filter(|rest| !rest.as_os_str().is_empty());
    let text = harmless(&short.unwrap_or(path).to_string_lossy());
    match tail(&text, CHARS_MAX).len() == text.len() {
        true => text,
        false => format!("…{}", tail(&text, CHARS_MAX - 1)),
    }
}

/// The same files change right after each start: the server itself may write them, and each restart would
/// bring the next. Such restarts wait, longer and longer; none is left out.
#[derive(Debug, Default)]
pub struct SelfChanges {
    paths: Vec<PathBuf>,
    count: u32,
}

impl SelfChanges {
    /// How long the restart for this change is to wait. `uptime` is that of the instance that serves.
    pub fn next(&mut self, paths: Vec<PathBuf>, uptime: Duration) -> Duration {
        let is_echo = uptime < ECHO_WITHIN && self.paths == paths;
        self.count = if is_echo { self.count.saturating_add(1) } else { 0 };
        self.paths = paths;
        match self.count.checked_sub(ECHOES_MAX) {
            Some(more) => ExponentialWait::doubling(ECHO_DELAY, ECHO_DELAY_MAX).after(more),
            None => Duration::ZERO,
        }
    }

    /// Whether the last change was the first that has to wait.
    pub fn have_begun(&self) -> bool {
        self.count == ECHOES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::ffi::OsStr;

    use super::*;

    const DEBOUNCE: Duration = Duration::from_millis(200);

    fn at(millis: u64) -> Time {
        Time::after_start(Duration::from_millis(millis))
    }

    fn touched(path: &str) -> Input {
        Input::Touched(vec![path.into()])
    }

    fn looked(paths: &[&str]) -> Input {
        Input::Looked { changed: paths.iter().map(PathBuf::from).collect() }
    }

    fn look(paths: &[&str]) -> Vec<Effect> {
        vec![Effect::Look(ScanScope::Paths(paths.iter().map(PathBuf::from).collect()))]
    }

    fn look_at_everything() -> Vec<Effect> {
        vec![Effect::Look(ScanScope::Everything)]
    }

    fn tell(paths: &[&str]) -> Vec<Effect> {
        vec![Effect::Tell(paths.iter().map(PathBuf::from).collect())]
    }

    fn play(watcher: &mut Watcher, steps: Vec<(u64, Input, Vec<Effect>)>) {
        for (index, (millis, input, wanted)) in steps.into_iter().enumerate() {
            assert_eq!(watcher.handle(at(millis), input), wanted, "step {index} at {millis}");
        }
    }

    #[test]
    fn a_burst_is_one_change() {
        let mut watcher = Watcher::new(DEBOUNCE);
        assert_eq!(watcher.next_wakeup(), None);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (150, touched("b"), vec![]),
                (300, touched("a"), vec![]),
                (499, Input::Wakeup, vec![]),
                (500, Input::Wakeup, look(&["a", "b"])),
                (510, looked(&["b"]), tell(&["b"])),
                (9_000, Input::Wakeup, vec![]),
            ],
        );
        assert_eq!(watcher.next_wakeup(), None);
    }

    #[test]
    fn what_has_not_changed_is_not_told() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, Input::Touched(vec![]), vec![]),
                (1_000, touched("a"), vec![]),
                (1_200, Input::Wakeup, look(&["a"])),
                (1_210, looked(&[]), vec![]),
            ],
        );
        assert_eq!(watcher.next_wakeup(), None);
    }

    #[test]
    fn a_tree_that_is_never_quiet_is_told_all_the_same() {
        let mut watcher = Watcher::new(DEBOUNCE);
        let mut looks = Vec::new();
        for millis in (0..10_000).step_by(50) {
            for effect in watcher.handle(at(millis), touched("a")) {
                assert!(matches!(effect, Effect::Look(_)));
                looks.push(millis);
                assert_eq!(watcher.handle(at(millis), looked(&["a"])), tell(&["a"]));
            }
        }
        assert_eq!(looks, [2_000, 4_050, 6_100, 8_150]);
    }

    #[test]
    fn a_long_debounce_is_kept() {
        let mut watcher = Watcher::new(WATCH_WAIT_MAX * 2);
        watcher.handle(at(0), touched("a"));
        assert_eq!(watcher.next_wakeup(), Some(at(4_000)));
    }

    #[test]
    fn without_a_debounce_it_is_looked_at_once() {
        play(&mut Watcher::new(Duration::ZERO), vec![(0, touched("a"), look(&["a"]))]);
    }

    #[test]
    fn there_is_one_look_at_a_time() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (200, Input::Wakeup, look(&["a"])),
                (210, touched("b"), vec![]),
                (800, Input::Wakeup, vec![]),
                (800, Input::Due, vec![]),
                // What was touched meanwhile has been quiet for long enough.
                (900, looked(&["a"]), [tell(&["a"]), look(&["b"])].concat()),
                (910, looked(&[]), vec![]),
                // An answer to no question.
                (920, looked(&["x"]), vec![]),
            ],
        );
    }

    #[test]
    fn after_a_loss_everything_is_looked_at() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, touched("a"), vec![]),
                (10, Input::Lost, vec![]),
                (20, touched("b"), vec![]),
                (220, Input::Wakeup, look_at_everything()),
            ],
        );
    }

    #[test]
    fn too_many_names_are_everything() {
        let mut watcher = Watcher::new(DEBOUNCE);
        for number in 0..=WATCH_TOUCHED_MAX {
            watcher.handle(at(0), touched(&number.to_string()));
        }
        assert_eq!(watcher.handle(at(200), Input::Wakeup), look_at_everything());
    }

    #[test]
    fn what_is_found_by_chance_gets_the_time_to_be_finished() {
        let mut watcher = Watcher::new(DEBOUNCE);
        play(
            &mut watcher,
            vec![
                (0, Input::Due, look_at_everything()),
                (10, looked(&[]), vec![]),
                (2_000, Input::Due, look_at_everything()),
                (2_010, looked(&["a"]), vec![]),
                (2_210, Input::Wakeup, look_at_everything()),
                (2_220, looked(&["b"]), tell(&["a", "b"])),
                (4_000, Input::Due, look_at_everything()),
                (4_010, looked(&[]), vec![]),
            ],
        );
    }

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

    #[test]
    fn tools_and_editors_make_noise() {
        let noise = [
            ".git",
            ".afresh",
            "node_modules",
            "__pycache__",
            "a.py~",
            ".#a.py",
            "#a.py#",
            ".a.py.swp",
            "a.swp",
            ".a.swx",
            "4913",
        ];
        for name in noise {
            assert!(is_noise(OsStr::new(name)), "{name}");
        }
        let files = [
            "",
            "a.py",
            ".gitignore",
            ".env",
            "git",
            "target",
            "dist",
            "49130",
            "#",
            "a.swx",
            "~a",
        ];
        for name in files {
            assert!(!is_noise(OsStr::new(name)), "{name}");
        }
        assert!(is_rules_file(OsStr::new(".ignore")) && !is_rules_file(OsStr::new("ignore")));
    }

    #[test]
    fn a_change_is_said_in_a_few_words() {
        let say = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            reason(&paths, Path::new("/home/ada/project"))
        };
        assert_eq!(say(&["/home/ada/project/src/server.py"]), "src/server.py changed");
        assert_eq!(say(&["src/a.py", "b", "c", "d"]), "src/a.py and 3 more changed");
        assert_eq!(say(&["/etc/hosts"]), "/etc/hosts changed");
        assert_eq!(say(&["/home/ada/project"]), "/home/ada/project changed");
        assert_eq!(say(&["a\n\u{1b}[2J"]), "a␊␛[2J changed");
        assert_eq!(say(&[]), "watched files changed");
        let long = say(&[&format!("{}/end.py", "x".repeat(500))]);
        assert!(long.starts_with("…xxx") && long.ends_with("x/end.py changed"), "{long}");
        assert_eq!(long.chars().count(), CHARS_MAX + " changed".len());
    }

    #[test]
    fn a_server_that_writes_what_is_watched_is_restarted_more_and_more_slowly() {
        let mut echoes = SelfChanges::default();
        let paths = || vec![PathBuf::from("/p/gen")];
        let (soon, late) = (Duration::from_millis(300), Duration::from_secs(60));
        let waits: Vec<u64> = (0..9).map(|_| echoes.next(paths(), soon).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 2, 4, 8, 16, 30, 30]);
        // Others, and those that come later, are changes like any other.
        for _ in 0..20 {
            assert_eq!(echoes.next(paths(), late), Duration::ZERO);
        }
        for name in 0..20 {
            let other = vec![PathBuf::from(format!("/p/{name}"))];
            assert_eq!(echoes.next(other, soon), Duration::ZERO);
        }
    }
}
