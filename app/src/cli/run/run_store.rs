//! What a run writes down, also where somebody takes its folder away: to an agent that tidies up with
//! `git clean -fdx`, our state is what is ignored.

use std::error::Error;
use std::path::PathBuf;

use afresh_core::run::Record;
use afresh_core::time::Stamp;
use afresh_daemon::Mark;
use afresh_daemon::error_chain::chain;
use afresh_daemon::store::runs::Runs;
use afresh_daemon::store::workspace::Workspace;

pub(super) struct Kept {
    pub(super) runs: Runs,
    pub(super) number: i64,
    pub(super) workspace: Workspace,
    pub(super) logs: PathBuf,
    pub(super) mark: Mark,
}

impl Kept {
    pub(super) fn record(&mut self, records: &[(Stamp, Record)]) -> Result<(), String> {
        if self.runs.is_gone() {
            self.put_back().map_err(|error| chain(&*error))?;
        }
        self.runs.record(self.number, records).map_err(|error| chain(&error))
    }

    fn put_back(&mut self) -> Result<(), Box<dyn Error>> {
        self.workspace.prepare()?;
        self.runs.put_back()?;
        self.mark.put_back(self.workspace.state())?;
        std::fs::create_dir_all(&self.logs)?;
        Ok(())
    }
}
