//! Owns the gate that runs: a shell in the folder of the run. Driven by the loop of the run. Never judges a phase.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::GATE_OUTPUT_BYTES_MAX;
use afresh_core::run::GateEnd;
use afresh_core::service::Exit;
use tokio::task::JoinSet;

use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefRunner};

/// Runs gates, one at a time.
pub(super) struct GateRunner {
    pub(super) runner: BriefRunner,
    pub(super) folder: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) running: JoinSet<GateEnd>,
}

impl GateRunner {
    pub(super) fn run(&mut self, gate: usize, command: String, time_max: Duration) {
        let argv = ["sh", "-c", &command].map(OsString::from).to_vec();
        let command = Command { argv, cwd: Some(self.folder.clone()), env: self.env.clone() };
        let brief =
            Brief { command, stdin: Vec::new(), time_max, output_bytes_max: GATE_OUTPUT_BYTES_MAX };
        self.running.spawn(judge(self.runner.clone(), gate, brief));
    }
}

/// Runs a gate: it passes with exit code 0 and nothing else.
async fn judge(runner: BriefRunner, gate: usize, brief: Brief) -> GateEnd {
    let time_max = brief.time_max;
    let Some(outcome) = runner.run(brief).await else {
        let (ending, output) = ("afresh is ending".to_owned(), String::new());
        return GateEnd { gate, passed: false, ending, output, took: Duration::ZERO };
    };
    let (passed, ending) = match outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => (true, "exit code 0".to_owned()),
        BriefEnding::Exited(exit) => (false, exit.to_string()),
        BriefEnding::SpawnFailed(failure) => (false, failure.message),
        BriefEnding::TimedOut => (false, format!("not done after {} s", time_max.as_secs())),
        BriefEnding::TooMuchOutput => (false, "it printed too much".to_owned()),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output = format!("{}{}", text(&outcome.stdout), text(&outcome.stderr));
    GateEnd { gate, passed, ending, output, took: outcome.took }
}
