//! Owns what a database may do to a command that reads it: it can have come with a clone. Its entries have to be tables
//! as afresh makes them, its texts have a bound, and so have the time and the bytes of a read. Driven by `Runs`. Never
//! writes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afresh_core::limits::{
    RUNS_CELL_BYTES_MAX, RUNS_READ_BYTES_MAX, RUNS_READ_MAX, RUNS_STEPS_UNWATCHED,
};
use rusqlite::config::DbConfig;
use rusqlite::ffi::{Error, SQLITE_TOOBIG};
use rusqlite::limits::Limit;
use rusqlite::{Connection, params};

use crate::monotonic;

/// The time that SQLite may take, which it asks for while it works.
#[derive(Clone, Debug)]
pub(super) struct ReadDeadline {
    /// In milliseconds of the monotonic clock; the largest number where there is none.
    at: Arc<AtomicU64>,
}

impl ReadDeadline {
    /// Restricts what statements and stored expressions may do on a connection, and gives it a deadline, which runs.
    pub(super) fn restrict(connection: &mut Connection) -> rusqlite::Result<Self> {
        let deadline = Self { at: Arc::default() };
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, RUNS_CELL_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        deadline.begin();
        let asked = deadline.clone();
        connection.progress_handler(RUNS_STEPS_UNWATCHED, Some(move || asked.is_over()))?;
        Ok(deadline)
    }

    /// Does something that ends in time.
    pub(super) fn within<T>(&self, read: impl FnOnce() -> T) -> T {
        self.begin();
        let result = read();
        self.end();
        result
    }

    fn begin(&self) {
        let end = monotonic() + RUNS_READ_MAX;
        self.at.store(millis(end), Ordering::Relaxed);
    }

    /// What is done from now on may take its time.
    pub(super) fn end(&self) {
        self.at.store(u64::MAX, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        millis(monotonic()) > self.at.load(Ordering::Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The first entry of a database by which it could do anything else than keep rows: a trigger, an index with an
/// expression, or something else than a plain table in the place of one of ours.
pub(super) fn foreign_entry(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let words = "SELECT name, type, COALESCE(sql, '') FROM sqlite_schema
        WHERE type = 'trigger' OR (type = 'index' AND sql IS NOT NULL)
        OR name COLLATE NOCASE IN ('runs', 'records', 'records_before')";
    let mut entries = connection.prepare(words)?;
    let mut rows = entries.query([])?;
    while let Some(row) = rows.next()? {
        let (name, kind, sql): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if kind != "table" || !sql.starts_with("CREATE TABLE") {
            return Ok(Some(name));
        }
        let words = "SELECT COUNT(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
        let computed: i64 = connection.query_row(words, params![name], |row| row.get(0))?;
        if computed > 0 {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// How much may still be read at once.
#[derive(Debug)]
pub(super) struct ReadBudget(Cell<usize>);

impl Default for ReadBudget {
    fn default() -> Self {
        Self(Cell::new(RUNS_READ_BYTES_MAX))
    }
}

impl ReadBudget {
    /// Takes a text that may have so many bytes.
    pub(super) fn take(&self, text: String, bytes_max: usize) -> rusqlite::Result<String> {
        if text.len() > bytes_max {
            return Err(too_big(format!("a text in it has more than {bytes_max} bytes")));
        }
        match self.0.get().checked_sub(text.len()) {
            Some(left) => {
                self.0.set(left);
                Ok(text)
            }
            None => Err(too_big(format!("what is read has more than {RUNS_READ_BYTES_MAX} bytes"))),
        }
    }
}

fn too_big(words: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(Error::new(SQLITE_TOOBIG), Some(words))
}

#[cfg(test)]
mod tests {
    use rusqlite::ErrorCode;

    use super::*;

    #[test]
    fn a_read_without_an_end_ends_in_time() {
        let mut connection = Connection::open_in_memory().unwrap();
        let deadline = ReadDeadline::restrict(&mut connection).unwrap();
        deadline.at.store(0, Ordering::Relaxed);
        let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
            SELECT COUNT(*) FROM c";
        let ended = connection.query_row(endless, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(ended.sqlite_error_code(), Some(ErrorCode::OperationInterrupted));
        let short = || connection.query_row("SELECT 7", [], |row| row.get::<_, i64>(0));
        assert_eq!(deadline.within(short), Ok(7));
    }

    #[test]
    fn what_is_read_at_once_has_a_bound() {
        let budget = ReadBudget::default();
        let text = "x".repeat(RUNS_READ_BYTES_MAX / 2);
        budget.take(text.clone(), 1).unwrap_err();
        budget.take(text.clone(), RUNS_READ_BYTES_MAX).unwrap();
        budget.take(text.clone(), RUNS_READ_BYTES_MAX).unwrap();
        budget.take("x".to_owned(), RUNS_READ_BYTES_MAX).unwrap_err();
    }
}
