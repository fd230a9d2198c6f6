//! `afresh start`.

use afresh_core::control::Change;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::running::ServiceScope;
use crate::service_commands::ServiceCommand;

/// Start services that were stopped, have finished or have failed
#[derive(Debug, Args)]
#[command(
    long_about = "Starts services that are down under a running afresh: stopped by `afresh stop`, \
                  finished, or given up.\n\nThe start and its reason are in the trail. It waits until \
                  the services are up, a minute at most, and exits with 1 where one is not. One that \
                  runs is left alone.",
    after_help = "Examples:\n  \
                  afresh start web\n  \
                  afresh start web worker --reason 'back from lunch'"
)]
pub(crate) struct StartArgs {
    /// The services: their names, as `afresh status` shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Why, for the trail
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh start`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// Do not wait until they are up
    #[arg(long)]
    no_wait: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &StartArgs, environment: &Environment) -> Result<Exit, CommandError> {
    let StartArgs { names, reason, no_wait, all } = arguments;
    ServiceCommand {
        what: Change::Start,
        names,
        reason,
        waits: !no_wait,
        scope: ServiceScope::of(*all),
    }
    .carry_out(environment)
}
