//! Owns the records and events that are not written yet, and the database that they go to. Driven by the loop of the
//! run. Never shows anything: events leave it only after the records before them are on disk.

use std::error::Error;

use afresh_core::audit::redact::redact_text;
use afresh_core::limits::{DOWN_LOOK_INTERVAL, STATE_PUT_BACK_TRIES_MAX};
use afresh_core::run::{Record, RunEvent};
use afresh_core::time::Stamp;

use super::ProcessMark;
use crate::error_chain::chain;
use crate::store::runs::Runs;
use crate::store::workspace::Workspace;
use crate::write_path::WritePath;

/// Records and events of one run in the order in which they came.
pub(super) struct Journal {
    pub(super) runs: Runs,
    pub(super) number: i64,
    pub(super) workspace: Workspace,
    pub(super) logs: WritePath,
    pub(super) mark: ProcessMark,
    pub(super) records: Vec<(Stamp, Record)>,
    pub(super) says: Vec<RunEvent>,
}

impl Journal {
    /// Takes a record. Of several totals of a session that are written together, the last one counts.
    pub(super) fn record(&mut self, at: Stamp, record: Record) {
        if let Record::Spent { .. } = &record {
            self.records.retain(|(_, earlier)| !matches!(earlier, Record::Spent { .. }));
        }
        self.records.push((at, record));
    }

    /// Takes an event. Of those that only tell a state, the last one counts. What was left in for prompts is redacted as in
    /// a log.
    pub(super) fn say(&mut self, mut say: RunEvent) {
        match &mut say {
            RunEvent::Text(text) => *text = redact_text(text).into_owned(),
            RunEvent::GateEnds(_, end) => end.output = redact_text(&end.output).into_owned(),
            _ => {}
        }
        if matches!(say, RunEvent::Context(..) | RunEvent::Moved) {
            let kind = std::mem::discriminant(&say);
            self.says.retain(|earlier| std::mem::discriminant(earlier) != kind);
        }
        self.says.push(say);
    }

    /// Writes all records, in one transaction.
    pub(super) fn write(&mut self) -> Result<(), String> {
        let records = std::mem::take(&mut self.records);
        if records.is_empty() {
            return Ok(());
        }
        if self.runs.is_gone() {
            let mut tries = STATE_PUT_BACK_TRIES_MAX;
            // A try that failed can have made the file: all of it has to be back.
            while let Err(error) = self.put_back() {
                tries -= 1;
                if tries == 0 {
                    return Err(chain(&*error));
                }
                std::thread::sleep(DOWN_LOOK_INTERVAL);
            }
        }
        self.runs.record(self.number, &records).map_err(|error| chain(&error))
    }

    /// An agent that tidies up with `git clean -fdx` deletes the state folder, which is ignored by git: it is put back.
    /// Fails while the folder is still being deleted.
    fn put_back(&mut self) -> Result<(), Box<dyn Error>> {
        self.workspace.restore()?;
        self.runs.put_back()?;
        self.mark.put_back(&self.workspace.writable_state())?;
        self.logs.make_folder()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use afresh_core::agent::Spent;
    use afresh_core::run::{Attempt, ResumeState};

    use super::*;
    use crate::clock::now;
    use crate::store::testing::TempDir;

    fn journal(folder: &TempDir) -> Journal {
        std::fs::create_dir(folder.join(".git")).unwrap();
        let mut workspace = Workspace::find(&folder.join("."), None, None);
        workspace.prepare().unwrap();
        let runs = Runs::open(&workspace.writable_state()).unwrap();
        let number = runs.begin(now(), ("PLAN.md", "."), "A plan", "command").unwrap();
        let mark = ProcessMark::of(&workspace.writable_state()).unwrap();
        let logs = workspace.writable_state().join("runs");
        let (records, says) = (Vec::new(), Vec::new());
        Journal { runs, number, workspace, logs, mark, records, says }
    }

    #[test]
    fn of_several_totals_the_last_is_written_and_of_several_states_the_last_is_shown() {
        let folder = TempDir::new();
        let mut journal = journal(&folder);
        let attempt = Attempt(1);
        for input in [10, 20] {
            let spent = Spent { input, ..Spent::default() };
            journal.record(now(), Record::Spent { attempt, spent });
            journal.say(RunEvent::Moved);
        }
        journal.write().unwrap();
        assert_eq!(journal.says.len(), 1);
        let records = journal.runs.records(journal.number).unwrap();
        assert_eq!(ResumeState::of(records.iter().map(|(_, record)| record)).spent.input, 20);
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn a_state_folder_that_was_deleted_is_put_back_with_all_records() {
        let folder = TempDir::new();
        let mut journal = journal(&folder);
        journal.record(now(), Record::Worked { run_ms: 1, phase_ms: 1 });
        journal.write().unwrap();
        std::fs::remove_dir_all(journal.workspace.state()).unwrap();
        journal.record(now(), Record::Worked { run_ms: 2, phase_ms: 2 });
        journal.write().unwrap();
        let number = journal.number;
        let again = Runs::open(&journal.workspace.writable_state()).unwrap();
        assert_eq!(again.records(number).unwrap().len(), 2);
    }

    #[test]
    fn records_outlive_a_deletion_that_is_still_going_on() {
        const DELETIONS: u32 = 300;
        let folder = TempDir::new();
        let mut journal = journal(&folder);
        let state = journal.workspace.state().to_owned();
        let deleter = std::thread::spawn(move || {
            for _ in 0..DELETIONS {
                // Something new may be in it meanwhile, as for `git clean`.
                std::fs::remove_dir_all(&state).ok();
                std::thread::yield_now();
            }
        });
        let mut written = 0;
        while !deleter.is_finished() {
            written += 1;
            journal.record(now(), Record::Worked { run_ms: written, phase_ms: written });
            journal.write().unwrap();
        }
        deleter.join().unwrap();
        journal.record(now(), Record::Worked { run_ms: 0, phase_ms: 0 });
        journal.write().unwrap();
        let again = Runs::open(&journal.workspace.writable_state()).unwrap();
        assert_eq!(again.records(journal.number).unwrap().len() as u64, written + 1);
    }
}
