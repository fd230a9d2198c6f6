//! `afresh stop`.

use afresh_core::control::Change;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::running::ServiceScope;
use crate::service_commands::ServiceCommand;

/// Stop services, until they are started again
#[derive(Debug, Args)]
#[command(
    long_about = "Stops services and leaves them down, until `afresh start` or `afresh \
                  restart`.\n\nThe stop and its reason are in the trail before anything stops. The \
                  afresh that keeps them stays. It waits until they are down, a minute at most. A \
                  server of `afresh mcp` cannot be stopped: its client would lose it.",
    after_help = "Examples:\n  \
                  afresh stop web\n  \
                  afresh stop web worker --reason 'the port is needed'"
)]
pub(crate) struct StopArgs {
    /// The services: their names, as `afresh status` shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Why, for the trail
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh stop`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not wait until they are down
    #[arg(long)]
    no_wait: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &StopArgs, environment: &Environment) -> Result<Exit, CommandError> {
    let StopArgs { names, reason, no_wait, all } = arguments;
    ServiceCommand {
        what: Change::Stop,
        names,
        reason,
        waits: !no_wait,
        scope: ServiceScope::of(*all),
    }
    .carry_out(environment)
}
