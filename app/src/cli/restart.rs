//! `afresh restart`.

use afresh_core::control::Change;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::running::ServiceScope;
use crate::service_commands::ServiceCommand;

/// Restart services, on record and with a reason
#[derive(Debug, Args)]
#[command(
    long_about = "Replaces the instances of services by new ones.\n\nThe restart and its reason are \
                  in the trail before anything stops. Where several services have the name, such as \
                  the same server in two editors, all of them are restarted. It waits until the new \
                  instances are up, a minute at most, and exits with 1 where one is not.\n\nSeveral \
                  services of `afresh up` are restarted in their order: one that depends on another of \
                  them when that one is up. What is not named goes on as it is; it says which of those \
                  depend on what was restarted.",
    after_help = "Examples:\n  \
                  afresh restart web --reason 'new certificate'\n  \
                  afresh restart web worker           several of them\n  \
                  afresh restart web --no-wait        and go on at once"
)]
pub(crate) struct RestartArgs {
    /// The services: their names, as `afresh status` shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Why, for the trail
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh restart`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not wait for the new instances
    #[arg(long)]
    no_wait: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(
    arguments: &RestartArgs,
    environment: &Environment,
) -> Result<Exit, CommandError> {
    let RestartArgs { names, reason, no_wait, all } = arguments;
    ServiceCommand {
        what: Change::Restart,
        names,
        reason,
        waits: !no_wait,
        scope: ServiceScope::of(*all),
    }
    .carry_out(environment)
}
