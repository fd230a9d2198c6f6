//! The runs of a workspace, in SQLite: what happened, record by record, and views that make tables of it.
//!
//! A record is in the file when it is written: a run that was killed goes on where it was. What something follows from
//! is on the disk itself.

use afresh_core::limits::{
    PLAN_FILE_BYTES_MAX, RUNS_BUSY_WAIT, RUNS_READ_BYTES_MAX, RUNS_READ_MAX,
};
use afresh_core::run::{Finish, Record};
use afresh_core::text::{cut, harmless};
use afresh_core::time::Stamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, params};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

mod limited_reads;

use self::limited_reads::{ReadBudget, ReadDeadline, foreign_entry};
use crate::os;
use crate::write_path::WritePath;

/// The name of the file in the state folder.
const FILE: &str = "runs.db";

/// The version of the tables; a newer afresh makes others.
const VERSION: i64 = 3;

const TABLES: &str = "
    CREATE TABLE runs (
        run INTEGER PRIMARY KEY,
        plan TEXT NOT NULL,
        title TEXT NOT NULL,
        agent TEXT NOT NULL,
        began TEXT NOT NULL,
        ended TEXT,
        finish TEXT,
        folder TEXT
    );
";

/// A record is appended behind all others, which touches the fewest pages of SQLite: `id` is made of run
/// and number. Until version 3 these were the key.
const RECORDS: &str = "
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs(run),
        number INTEGER NOT NULL,
        at TEXT NOT NULL,
        record TEXT NOT NULL
    );
";

/// Records as tables. Sessions that were followed by a restart are `restarts`, as the run counts them.
const VIEWS: &str = "
    CREATE VIEW phases AS SELECT run, at, record->>'phase' AS phase, record->>'end' AS end,
        record->>'detail' AS detail FROM records WHERE record->>'record' = 'phase_ended';
    CREATE VIEW sessions AS SELECT run, at, record->>'attempt' AS attempt, record->>'cause' AS cause,
        record->>'detail' AS detail, record->>'handoff' AS handoff
        FROM records WHERE record->>'record' = 'attempt_ended';
    CREATE VIEW usage AS SELECT run, at, record->>'attempt' AS attempt, record->>'used' AS used,
        record->>'window' AS window, record->>'exact' AS exact
        FROM records WHERE record->>'record' = 'sampled';
    CREATE VIEW gates AS SELECT run, at, record->>'phase' AS phase, record->>'gate' AS gate,
        record->>'passed' AS passed, record->>'ending' AS ending, record->>'took_ms' AS took_ms
        FROM records WHERE record->>'record' = 'gate_ended';
    CREATE VIEW progress AS SELECT run, at, record->>'attempt' AS attempt, record->>'text' AS text
        FROM records WHERE record->>'record' = 'progress';
    CREATE VIEW restarts AS SELECT ended.run AS run, began.at AS at, ended.attempt AS attempt,
        ended.cause AS cause, ended.detail AS detail, began.record->>'phase' AS phase
        FROM records AS began JOIN sessions AS ended
        ON ended.run = began.run AND ended.attempt = (began.record->>'attempt') - 1
        WHERE began.record->>'record' = 'attempt_began'
        AND began.record->'kind'->>'restart' IS NOT NULL;
";

/// From the tables of versions 1 and 2 to those of 3, before the views are made. Until version 2 `restarts` had all
/// sessions that were not done, and until 3 the folder of a run was not stored.
const MOVED: &str = "
    DROP VIEW phases; DROP VIEW sessions; DROP VIEW usage; DROP VIEW gates; DROP VIEW progress; DROP VIEW restarts;
    ALTER TABLE runs ADD COLUMN folder TEXT;
    ALTER TABLE records RENAME TO records_before;
";
const COPIED: &str = "
    INSERT INTO records SELECT (run << 32) + number, run, number, at, record FROM records_before;
    DROP TABLE records_before;
";

/// Why the runs cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// The file cannot be used. The words of SQLite are in ours, without what we have asked it.
    #[error("cannot use the runs in `{path}`: {why}", path = .0.display(), why = why(.1))]
    File(PathBuf, #[source] Box<rusqlite::Error>),
    /// It cannot be opened or replaced.
    #[error("cannot open the runs in `{0}`")]
    Open(PathBuf, #[source] io::Error),
    /// A newer afresh made it, with tables of this version.
    #[error("`{0}` was made by a newer afresh (version {1} of its tables)")]
    Newer(PathBuf, i64),
    /// It has something that afresh does not make, and that could hold up or change what is read.
    #[error("`{}` is no table of afresh, in `{}`", harmless(&cut(.1, 60)), .0.display())]
    Foreign(PathBuf, String),
    /// Something that is written there is none of ours.
    #[error("record {number} of run {run} in `{}` cannot be understood", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// The run.
        run: i64,
        /// The record.
        number: i64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

fn why(error: &rusqlite::Error) -> String {
    match error {
        error if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            format!("it is not read within {} s", RUNS_READ_MAX.as_secs())
        }
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(words)) => words.clone(),
        other => other.to_string(),
    }
}

impl RunsError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        let code = match self {
            Self::Newer(..) => return "use that one, or a newer one",
            Self::Open(..) => return "make it a file of your own, or remove it",
            Self::Strange { .. } | Self::Foreign(..) => None,
            Self::File(_, source) => source.sqlite_error_code(),
        };
        match code {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "another program has it open and writes: try again when that has ended"
            }
            Some(ErrorCode::DiskFull) => "make room, and try again",
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure,
            ) => "see whether the file and its folder can be read and written",
            _ => {
                "move the file away to begin with a new one: what is in it is lost to `afresh runs` then"
            }
        }
    }
}

/// The runs of a workspace.
#[derive(Debug)]
pub struct Runs {
    connection: Connection,
    deadline: ReadDeadline,
    path: PathBuf,
    file: WritePath,
    /// Whether each write waits for the disk.
    on_disk: Cell<bool>,
    /// The run that was written to last, and the number of its last record.
    last: Cell<Option<(i64, i64)>>,
}

/// One run, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its number.
    pub run: i64,
    /// The file of its plan.
    pub plan: String,
    /// The title of that.
    pub title: String,
    /// The folder it works in, from the root of the workspace; none where that is not known.
    pub folder: Option<String>,
    /// The agent.
    pub agent: String,
    /// When it began.
    pub began: String,
    /// When it ended; none while it runs, or when it was killed.
    pub ended: Option<String>,
    /// How it ended.
    pub finish: Option<Finish>,
}

impl Runs {
    /// The file of a state folder.
    pub fn path_in(state: &Path) -> PathBuf {
        state.join(FILE)
    }

    /// Opens the runs of a state folder, and makes the file where there is none.
    pub fn open(state: &WritePath) -> Result<Self, RunsError> {
        Self::open_file(state.join(FILE))
    }

    fn open_file(file: WritePath) -> Result<Self, RunsError> {
        let path = file.path().to_owned();
        // Prompts and answers are private. A file that exists keeps its mode. SQLite follows no link in the path that
        // it gets; here it is said which one is in the way.
        let made = file.create_private().map(drop).or_else(|error| match error.kind() {
            // It is not opened: the locks of another connection in this process would go with our descriptor.
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        let real = made.and_then(|()| file.resolved());
        let real = real.and_then(|real| os::restrict_sqlite().map(|()| real));
        let real = real.map_err(|source| RunsError::Open(path.clone(), source))?;
        // SQLite makes none: it would do so wherever the path leads by then.
        let opened = connect(real.path(), &path)?;
        let Connected { connection, deadline } = opened;
        let (on_disk, last) = (Cell::new(true), Cell::new(None));
        Ok(Self { connection, deadline, path, file, on_disk, last })
    }

    /// Writes down that a run of a plan begins in a folder, and gives it a number.
    pub fn begin(
        &self,
        at: Stamp,
        (plan, folder): (&str, &str),
        title: &str,
        agent: &str,
    ) -> Result<i64, RunsError> {
        let words =
            "INSERT INTO runs (plan, title, agent, began, folder) VALUES (?1, ?2, ?3, ?4, ?5)";
        let values = params![plan, title, agent, at.to_string(), folder];
        self.sql(self.connection.execute(words, values))?;
        Ok(self.connection.last_insert_rowid())
    }

    /// A run that had ended goes on.
    pub fn resume(&self, run: i64) -> Result<(), RunsError> {
        let words = "UPDATE runs SET ended = NULL, finish = NULL WHERE run = ?1";
        self.sql(self.connection.execute(words, params![run])).map(drop)
    }

    /// Whether the file was deleted, as `git clean -fdx` does with all that is ignored.
    pub fn is_gone(&self) -> bool {
        !self.path.exists()
    }

    /// Puts the file back where it was, with all that is in it: as long as we have it open, it is there. On failure
    /// the open one stays, for another try: what deletes the folder may not be done with it.
    pub fn put_back(&mut self) -> Result<(), RunsError> {
        let fresh = self.file.suffixed(".new");
        let failed = |source| RunsError::Open(self.path.clone(), source);
        // One that could not be finished.
        fresh.remove().ok();
        fresh.create_private().map_err(failed)?;
        let real = fresh.resolved().map_err(failed)?;
        let name = real.path().to_string_lossy();
        self.sql(self.connection.execute("VACUUM INTO ?1", params![name]))?;
        fresh.rename(&self.file).map_err(failed)?;
        let real = self.file.resolved().map_err(failed)?;
        let Connected { connection, deadline } = connect(real.path(), &self.path)?;
        (self.connection, self.deadline) = (connection, deadline);
        self.on_disk.set(true);
        Ok(())
    }

    /// Writes records down, all or none. When this returns they outlive us; what only tells how a session goes
    /// may be lost when the machine itself loses its power.
    pub fn record(&self, run: i64, records: &[(Stamp, Record)]) -> Result<(), RunsError> {
        self.sql(self.bring_to_disk(records.iter().any(|(_, record)| decides(record))))?;
        self.sql(self.execute("BEGIN IMMEDIATE"))?;
        let written = self.insert(run, records).and_then(|last| {
            self.execute("COMMIT")?;
            Ok(last)
        });
        if written.is_err() {
            // Nothing of it is there: SQLite may have said so already.
            self.execute("ROLLBACK").ok();
        }
        self.last.set(written.as_ref().ok().map(|last| (run, *last)));
        self.sql(written.map(drop))
    }

    /// What is done many times a second is not read anew each time.
    fn execute(&self, words: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(words)?.execute([]).map(drop)
    }

    /// Whether what is written next is waited for until it is on the disk itself.
    fn bring_to_disk(&self, wanted: bool) -> rusqlite::Result<()> {
        if self.on_disk.replace(wanted) != wanted {
            let level = if wanted { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
        }
        Ok(())
    }

    /// Returns the number of the last one.
    fn insert(&self, run: i64, records: &[(Stamp, Record)]) -> rusqlite::Result<i64> {
        let mut number = self.last_number(run)?;
        let words = "INSERT INTO records (id, run, number, at, record) VALUES
            ((?1 << 32) + ?2, ?1, ?2, ?3, ?4)";
        let mut insert = self.connection.prepare_cached(words)?;
        for (at, record) in records {
            number += 1;
            let text = serde_json::to_string(record).unwrap_or_default();
            insert.execute(params![run, number, at.to_string(), text])?;
            if let Record::RunEnded { finish } = record {
                let finish = serde_json::to_string(finish).unwrap_or_default();
                let words = "UPDATE runs SET ended = ?2, finish = ?3 WHERE run = ?1";
                self.connection.execute(words, params![run, at.to_string(), finish])?;
            }
        }
        Ok(number)
    }

    fn last_number(&self, run: i64) -> rusqlite::Result<i64> {
        if let Some((_, number)) = self.last.get().filter(|(of, _)| *of == run) {
            return Ok(number);
        }
        let words = "SELECT COALESCE(MAX(id) - (?1 << 32), 0) FROM records
            WHERE id BETWEEN ?1 << 32 AND (?1 + 1) << 32";
        self.connection.query_row(words, params![run], |row| row.get(0))
    }

    /// What is written down of a run.
    pub fn records(&self, run: i64) -> Result<Vec<(String, Record)>, RunsError> {
        let words = "SELECT number, at, record FROM records
            WHERE id BETWEEN ?1 << 32 AND (?1 + 1) << 32 ORDER BY id";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let budget = ReadBudget::default();
        let mut select = self.sql(self.connection.prepare(words))?;
        let rows = self.sql(select.query_map(params![run], read))?;
        let record = |row: rusqlite::Result<(i64, String, String)>| {
            let take = |text| budget.take(text, RUNS_READ_BYTES_MAX);
            let (number, at, text) =
                self.sql(row.and_then(|(number, at, text)| Ok((number, take(at)?, take(text)?))))?;
            let record = serde_json::from_str(&text).map_err(|source| {
                let path = self.path.clone();
                RunsError::Strange { path, run, number, source }
            })?;
            Ok((at, record))
        };
        self.deadline.within(|| rows.map(record).collect())
    }

    /// The newest runs, newest first.
    pub fn list(&self, runs_max: usize) -> Result<Vec<RunRow>, RunsError> {
        let words = "SELECT run, plan, title, agent, began, ended, finish, folder FROM runs
            ORDER BY run DESC LIMIT ?1";
        let mut select = self.sql(self.connection.prepare(words))?;
        let runs_max = i64::try_from(runs_max).unwrap_or(i64::MAX);
        let budget = ReadBudget::default();
        let rows = self.sql(select.query_map(params![runs_max], |it| row(it, &budget)))?;
        self.sql(self.deadline.within(|| rows.collect()))
    }

    /// One run.
    pub fn one(&self, run: i64) -> Result<Option<RunRow>, RunsError> {
        let words =
            "SELECT run, plan, title, agent, began, ended, finish, folder FROM runs WHERE run = ?1";
        let read = |it: &Row<'_>| row(it, &ReadBudget::default());
        let query = || self.connection.query_row(words, params![run], read).optional();
        self.sql(self.deadline.within(query))
    }

    /// The result of something that SQLite was asked.
    fn sql<T>(&self, result: rusqlite::Result<T>) -> Result<T, RunsError> {
        result.map_err(|source| RunsError::File(self.path.clone(), Box::new(source)))
    }
}

/// A database of ours.
struct Connected {
    connection: Connection,
    deadline: ReadDeadline,
}

/// Opens a file that is there, and brings older tables to our version. An empty one gets them all.
fn connect(real: &Path, path: &Path) -> Result<Connected, RunsError> {
    let failed = |source| RunsError::File(path.to_owned(), Box::new(source));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let open = || {
        let mut connection = Connection::open_with_flags(real, flags)?;
        connection.busy_timeout(RUNS_BUSY_WAIT)?;
        // A temporary file would be beside those of other users.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let deadline = ReadDeadline::restrict(&mut connection)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((connection, deadline, version))
    };
    let (connection, deadline, version) = open().map_err(failed)?;
    if !(0..=VERSION).contains(&version) {
        return Err(RunsError::Newer(path.to_owned(), version));
    }
    if let Some(name) = foreign_entry(&connection).map_err(failed)? {
        return Err(RunsError::Foreign(path.to_owned(), name));
    }
    bring_up_to_date(&connection, version).map_err(failed)?;
    deadline.end();
    Ok(Connected { connection, deadline })
}

fn bring_up_to_date(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Opens the journal, which SQLite could not make any more once the file is deleted: what is in it is to be copied then.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let missing = match version {
        0 => format!("{TABLES} {RECORDS} {VIEWS}"),
        1 | 2 => format!("{MOVED} {RECORDS} {COPIED} {VIEWS}"),
        _ => return Ok(()),
    };
    connection.execute_batch(&format!("BEGIN; {missing} PRAGMA user_version = {VERSION}; COMMIT;"))
}

/// Whether something is done because of it: it must not be done twice. The rest comes many times a second.
const fn decides(record: &Record) -> bool {
    !matches!(
        record,
        Record::Sampled { .. }
            | Record::Spent { .. }
            | Record::Progress { .. }
            | Record::SessionNamed { .. }
    )
}

fn row(row: &Row<'_>, budget: &ReadBudget) -> rusqlite::Result<RunRow> {
    // The longest is a title, of one line.
    let text = |at: usize| budget.take(row.get(at)?, PLAN_FILE_BYTES_MAX);
    let maybe = |at: usize| {
        let text: Option<String> = row.get(at)?;
        text.map(|text| budget.take(text, PLAN_FILE_BYTES_MAX)).transpose()
    };
    Ok(RunRow {
        run: row.get(0)?,
        plan: text(1)?,
        title: text(2)?,
        agent: text(3)?,
        began: text(4)?,
        ended: maybe(5)?,
        finish: maybe(6)?.and_then(|finish| serde_json::from_str(&finish).ok()),
        folder: maybe(7)?,
    })
}

#[cfg(test)]
mod tests;
