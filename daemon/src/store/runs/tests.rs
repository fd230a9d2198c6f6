//! The runs in SQLite, written and read.

use std::time::Duration;

use afresh_core::run::{Attempt, Cause, Kind, PhaseEnd};

use super::*;
use crate::store::TempDir;

#[test]
fn restarts_are_restarts_only_also_in_a_file_of_an_older_afresh() {
    // S9
    let dir = TempDir::new();
    let at = Stamp::since_unix_epoch(Duration::from_secs(1));
    let runs = Runs::open(&WritePath::named(dir.join("."))).unwrap();
    let run = runs.begin(at, ("PLAN.md", ""), "A plan", "claude").unwrap();
    let sessions = [
        (Kind::First, Cause::ContextLimitRestart),
        (Kind::Restart(1), Cause::Done),
        (Kind::Remediation(1), Cause::Stopped),
        (Kind::Resumed, Cause::Crashed),
        (Kind::Restart(2), Cause::RestartAsked),
        (Kind::Resumed, Cause::Limited),
        (Kind::Resumed, Cause::TimedOut),
    ];
    for (number, (kind, cause)) in (1..).zip(sessions) {
        let (attempt, phase) = (Attempt(number), "A".to_owned());
        let (handoff, detail) = (None, String::new());
        let began = Record::AttemptBegan { attempt, phase, kind };
        let ended = Record::AttemptEnded { attempt, cause, handoff, detail };
        runs.record(run, &[(at, began), (at, ended)]).unwrap();
    }
    let causes = |runs: &Runs| {
        let words = "SELECT attempt || ' ' || cause FROM restarts ORDER BY attempt";
        let mut select = runs.connection.prepare(words).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<Vec<String>, _>>().unwrap()
    };
    assert_eq!(causes(&runs), ["1 CONTEXT_LIMIT_RESTART", "4 CRASHED"]);
    let old = "DROP VIEW restarts; CREATE VIEW restarts AS SELECT * FROM sessions;
        CREATE TABLE old (run INTEGER NOT NULL, number INTEGER NOT NULL, at TEXT NOT NULL,
            record TEXT NOT NULL, PRIMARY KEY (run, number)) WITHOUT ROWID;
        INSERT INTO old SELECT run, number, at, record FROM records;
        PRAGMA legacy_alter_table = ON;
        DROP TABLE records; ALTER TABLE old RENAME TO records;
        ALTER TABLE runs DROP COLUMN folder; PRAGMA user_version = 1;";
    runs.connection.execute_batch(old).unwrap();
    drop(runs);
    let runs = Runs::open(&WritePath::named(dir.join("."))).unwrap();
    assert_eq!(causes(&runs).len(), 2);
    assert_eq!(runs.records(run).unwrap().len(), 2 * sessions.len());
    runs.record(run, &[(at, Record::RunEnded { finish: Finish::Done })]).unwrap();
    assert!(matches!(runs.records(run).unwrap().last(), Some((_, Record::RunEnded { .. }))));
}

#[test]
fn a_file_that_cannot_be_used_is_told_in_few_words_with_what_to_do() {
    let dir = TempDir::new();
    let state = dir.join(".");
    std::fs::write(Runs::path_in(&state), "this is no database, it is a text about one").unwrap();
    let error = Runs::open(&WritePath::named(&state)).unwrap_err();
    assert!(error.to_string().ends_with("runs.db`: file is not a database"), "{error}");
    assert!(error.hint().contains("move the file away"));
    std::fs::remove_file(Runs::path_in(&state)).unwrap();
    let other = Connection::open(Runs::path_in(&state)).unwrap();
    other.execute_batch("CREATE TABLE runs (something)").unwrap();
    let error = Runs::open(&WritePath::named(&state)).unwrap_err();
    assert!(error.to_string().ends_with("runs.db`: table runs already exists"), "{error}");
}

#[test]
fn a_file_that_was_taken_away_is_put_back_with_all_that_was_in_it() {
    let dir = TempDir::new();
    let at = Stamp::since_unix_epoch(Duration::from_secs(1));
    // What leads to the project may be a link.
    std::fs::create_dir(dir.join("real")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("real", dir.join("project")).unwrap();
    #[cfg(windows)]
    std::fs::create_dir(dir.join("project")).unwrap();
    let state = dir.join("project/state");
    std::fs::create_dir(&state).unwrap();
    let mut runs = Runs::open(&WritePath::beneath(&dir.join("project"), "state")).unwrap();
    let run = runs.begin(at, ("PLAN.md", "sub"), "A plan", "claude").unwrap();
    let began =
        |name: &str| Record::PhaseBegan { phase: name.to_owned(), base: None, stashes: Vec::new() };
    runs.record(run, &[(at, began("A"))]).unwrap();
    assert!(!runs.is_gone());
    std::fs::remove_dir_all(&state).unwrap();
    assert!(runs.is_gone());
    std::fs::create_dir(&state).unwrap();
    runs.put_back().unwrap();
    assert!(!runs.is_gone());
    runs.record(run, &[(at, began("B"))]).unwrap();
    drop(runs);
    let runs = Runs::open(&WritePath::named(&state)).unwrap();
    let phases: Vec<Record> =
        runs.records(run).unwrap().into_iter().map(|(_, record)| record).collect();
    assert_eq!(phases, [began("A"), began("B")]);
    assert_eq!(runs.one(run).unwrap().unwrap().folder.as_deref(), Some("sub"));
}

/// The folder is a link in every other moment while the runs are opened: what somebody does who can write to the clone.
#[cfg(target_os = "linux")]
#[test]
fn no_file_of_the_runs_is_opened_through_a_link_that_takes_the_folders_place() {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::sync::atomic::{AtomicBool, Ordering};

    const OPENED: usize = 200;
    const TRIES_MAX: usize = 50_000;
    let dir = TempDir::new();
    let folder = |name: &str| dir.join(name);
    for name in [".afresh", "outside"] {
        std::fs::create_dir(folder(name)).unwrap();
        Runs::open(&WritePath::named(folder(name))).unwrap();
    }
    std::os::unix::fs::symlink("outside", folder("link")).unwrap();
    let (state, link) = (folder(".afresh"), folder("link"));
    let exchange =
        || renameat2(AT_FDCWD, &state, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
    let is_over = AtomicBool::new(false);
    let opened = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange();
            }
        });
        let state = WritePath::beneath(&dir.join(""), ".afresh");
        let at = Stamp::since_unix_epoch(Duration::from_secs(1));
        let open = || Runs::open(&state)?.begin(at, ("PLAN.md", ""), "A plan", "claude");
        let opened = (0..TRIES_MAX).filter(|_| open().is_ok()).take(OPENED).count();
        is_over.store(true, Ordering::Relaxed);
        opened
    });
    assert!(opened > 0, "it is there in between");
    let outside = Runs::open(&WritePath::named(folder("outside"))).unwrap();
    assert_eq!(outside.list(10).unwrap(), [], "nothing was written through the link");
}

#[test]
fn what_is_written_is_read_again_by_another_process() {
    let dir = TempDir::new();
    let at = Stamp::since_unix_epoch(Duration::from_secs(1));
    let records = [
        Record::PhaseBegan {
            phase: "A".to_owned(),
            base: Some("c".to_owned()),
            stashes: Vec::new(),
        },
        Record::Sampled { attempt: Attempt(1), used: 5, window: Some(10), exact: true },
        Record::PhaseEnded { phase: "A".to_owned(), end: PhaseEnd::Done, detail: String::new() },
        Record::RunEnded { finish: Finish::Done },
    ];
    let runs = Runs::open(&WritePath::named(dir.join("."))).unwrap();
    let run = runs.begin(at, ("PLAN.md", ""), "A plan", "claude").unwrap();
    assert_eq!(runs.one(run).unwrap().unwrap().finish, None);
    let (first, rest) = records.split_at(2);
    for some in [first, rest] {
        let some: Vec<_> = some.iter().map(|record| (at, record.clone())).collect();
        runs.record(run, &some).unwrap();
    }
    drop(runs);
    let runs = Runs::open(&WritePath::named(dir.join("."))).unwrap();
    let read: Vec<Record> =
        runs.records(run).unwrap().into_iter().map(|(_, record)| record).collect();
    assert_eq!(read, records);
    let row = runs.list(10).unwrap().remove(0);
    assert_eq!((row.run, row.finish), (run, Some(Finish::Done)));
    let used: i64 = runs
        .connection
        .query_row("SELECT used FROM usage WHERE run = ?1", params![run], |row| row.get(0))
        .unwrap();
    assert_eq!(used, 5);
    runs.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(runs);
    assert!(matches!(Runs::open(&WritePath::named(dir.join("."))), Err(RunsError::Newer(_, 99))));
}
