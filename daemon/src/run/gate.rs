//! A gate of a phase, run by a shell in the folder of the run.

use std::ffi::OsString;
use std::time::Duration;

use afresh_core::limits::GATE_OUTPUT_BYTES_MAX;
use afresh_core::run::GateEnd;
use afresh_core::service::Exit;

use super::Driver;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefRunner};

impl Driver {
    pub(super) fn run_gate(&mut self, gate: usize, command: String, time_max: Duration) {
        let argv = ["sh", "-c", &command].map(OsString::from).to_vec();
        let command =
            Command { argv, cwd: Some(self.run.folder.clone()), env: self.run.env.clone() };
        let brief =
            Brief { command, stdin: Vec::new(), time_max, output_bytes_max: GATE_OUTPUT_BYTES_MAX };
        self.gate.spawn(judge(self.briefs.runner(), gate, brief));
    }
}

/// Runs a gate: it passes with exit code 0 and nothing else.
async fn judge(runner: BriefRunner, gate: usize, brief: Brief) -> GateEnd {
    let time_max = brief.time_max;
    let Some(outcome) = runner.run(brief).await else {
        let ending = "afresh is ending".to_owned();
        return GateEnd {
            gate,
            passed: false,
            ending,
            output: String::new(),
            took: Duration::ZERO,
        };
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
