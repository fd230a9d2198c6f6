//! `afresh metrics`.

use afresh_core::control::metrics::joined;
use afresh_daemon::control;
use clap::Args;

use crate::environment::Environment;
use crate::error::CommandResult;
use crate::output;
use crate::running_services::{RunningServices, workspace};

/// Prints the metrics of what runs under afresh: states, uptimes, restarts and their reasons, memory, CPU, in
/// the text format of Prometheus.
///
/// It is what `GET /metrics` of the control API gives. Without `--all`, each afresh of the workspace that you
/// are in is asked. Where there are several, each sample has a label `supervisor_pid`.
#[derive(Debug, Args)]
#[command(
    about = "Print the metrics of what runs, as Prometheus reads them",
    after_help = "Examples:\n  \
                  afresh metrics                      of this workspace\n  \
                  afresh metrics --all                of this machine\n  \
                  afresh metrics | grep restarts      how often, and why"
)]
pub(crate) struct MetricsArgs {
    /// Those of all workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &MetricsArgs, environment: &Environment) -> CommandResult {
    let mut daemons = control::daemons(&environment.runtime_folders())?;
    let here = workspace(environment);
    daemons.retain(|daemon| arguments.all || daemon.version.workspace == here);
    daemons.sort_by_key(|daemon| daemon.version.pid);
    let pages = control::metrics(&daemons)?;
    if pages.is_empty() {
        // Those that do not answer are named there.
        let running = RunningServices::find(environment, arguments.all)?;
        output::remark(&running.nothing_here());
    }
    output::print(&joined(&pages))
}
