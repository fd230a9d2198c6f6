//! A small supervisor of several services in one place, for tests of what becomes of them when it is
//! killed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::config::TrailSettings;
use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{TRAIL_FILE_BYTES_MAX, TRAIL_FILES_KEPT, TRAIL_SYNC_WAIT};
use afresh_core::policy::{Backoff, Policy};
use afresh_core::service::Input;
use tokio::task::JoinSet;

use crate::definition::Definition;
use crate::keep::{Keep, KeepError, block_on, output, surroundings};
use crate::os::{self, Asked, Signals};
use crate::pipe::Form;
use crate::process::{Command, Entered, Processes, ignore_in_supervisor};
use crate::store::workspace::Workspace;
use crate::supervise::{Supervise, seed};

/// What is supervised, and where.
#[derive(Debug)]
pub struct Drill {
    /// The workspace.
    pub workspace: Workspace,
    /// The place of the process layer.
    pub folder: PathBuf,
    /// What becomes of the services when we are killed.
    pub on_death: OnSupervisorDeath,
    /// Names and commands, and the counts of the supervisor before: generation and restarts.
    pub services: Vec<(String, Command, (u64, u64))>,
}

/// Supervises until SIGTERM. Each line of output has the name of its service in front.
pub fn drill(drill: Drill) -> Result<i32, KeepError> {
    block_on(run(drill))
}

async fn run(drill: Drill) -> Result<i32, KeepError> {
    let mut signals = Signals::listen().map_err(KeepError::Signals)?;
    ignore_in_supervisor().map_err(KeepError::Signals)?;
    let entered = Processes::enter(&drill.folder, drill.on_death).await?;
    let Entered { processes, instances, notices } = entered;
    let (stderr, stderr_thread) = output("stderr", os::stderr, |_| {})?;
    let (stdout, stdout_thread) = output("stdout", os::stdout, |_| {})?;
    let mut keep = Keep {
        name: "drill".to_owned(),
        command: Command::default(),
        policy: policy(),
        copies: 0,
        workspace: drill.workspace,
        trail: TrailSettings {
            audit_file: None,
            marker_file: None,
            file_bytes_max: TRAIL_FILE_BYTES_MAX,
            files_kept: TRAIL_FILES_KEPT,
        },
        version: env!("CARGO_PKG_VERSION"),
        control: None,
        stdin: false,
    };
    let around = surroundings(&mut keep, stdout, stderr, &mut JoinSet::new());
    let mut supervise = Supervise::new(processes, around);
    for notice in notices {
        supervise.log(&notice);
    }
    let mut defined: Vec<ServiceId> = Vec::new();
    for (name, command, (generation, restarts)) in drill.services {
        let service = supervise.add(definition(&name, command), seed());
        supervise.resume(service, Generation(generation), restarts);
        defined.push(service);
    }
    supervise.adopt(instances, |name| definition(name, Command::default())).await;
    for service in defined {
        supervise.input_to(service, Input::Start).await;
    }
    supervise.log("drill: begun");
    let mut stopping = false;
    while !stopping || !supervise.core().is_at_rest() {
        tokio::select! {
            happened = supervise.wait() => supervise.react(happened).await,
            asked = signals.next() => match asked {
                Asked::Restart(reason) => {
                    supervise.input(&Input::Restart { reason: reason.to_owned() }).await;
                }
                Asked::Stop(_) | Asked::Interrupt => {
                    stopping = true;
                    supervise.input(&Input::Shutdown { within: None }).await;
                }
            },
        }
    }
    supervise.finish().await;
    let (around, _) = supervise.shutdown().await;
    let closed = around.trail.close(TRAIL_SYNC_WAIT);
    drop(around);
    stdout_thread.done.await.ok();
    stderr_thread.done.await.ok();
    closed.map_err(|error| KeepError::Output(io::Error::other(error)))?;
    Ok(0)
}

fn policy() -> Policy {
    let base = Duration::from_millis(20);
    Policy {
        backoff: Backoff::Exponential { base, factor: 1.0, cap: base, jitter_percent: 0 },
        crash_loop_count: 0,
        max_restarts: 0,
        stop_timeout: Duration::from_millis(500),
        ..Policy::default()
    }
}

fn definition(name: &str, command: Command) -> Definition {
    Definition {
        name: name.to_owned(),
        title: name.to_owned(),
        command,
        policy: policy(),
        form: Form::Lines(format!("{name} | ")),
    }
}
