//! The commands as a user runs them; one file for each.

#![expect(
    clippy::unwrap_used,
    reason = "what the tests share is a test too, but clippy does not see it"
)]

mod adopt;
mod config;
mod demo;
mod doctor;
mod gateway;
mod help;
mod history;
mod install;
mod plan;
mod run;
mod running;
mod runs;
mod trust;

use std::process::{Command, Stdio};

use afresh_tests::Finished;

/// Runs a command with a stdout that nobody reads.
fn run_into_closed_pipe(mut command: Command) -> Finished {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let output = command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("the command runs");
    Finished {
        code: output.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
