//! The `afresh` binary: parse, one match, exit code.

mod cli;
mod environment;
mod error;
mod line_wrap;
mod output;
mod plan_file;
mod running_services;
mod since;
mod status_table;
mod trust;
mod up_screen;
mod version;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult};

fn main() -> ExitCode {
    // The warden starts a thousand times a day and knows no flags: it goes before all parsing.
    let word = std::env::args_os().nth(1).unwrap_or_default();
    if word == afresh_daemon::WARDEN_COMMAND {
        return ExitCode::from(u8::from(afresh_daemon::warden().is_err()));
    }
    if word == afresh_daemon::SELF_TEST_COMMAND {
        return ExitCode::from(u8::from(afresh_daemon::self_test_process().is_err()));
    }
    if word == afresh_daemon::SHARE_HUB_COMMAND {
        return Environment::read()
            .and_then(|environment| cli::share::run_hub(&environment))
            .unwrap_or_else(|error| output::report(&error))
            .into();
    }
    let result = match version::is_verbose() {
        true => output::print(&version::verbose()),
        false => Cli::try_parse().map_err(CommandError::from).and_then(run),
    };
    result.unwrap_or_else(|error| output::report(&error)).into()
}

fn run(cli: Cli) -> CommandResult {
    let environment = Environment::read()?;
    match cli.command {
        Command::Mcp(arguments) => cli::mcp::run(*arguments, &environment),
        Command::Gateway(arguments) => cli::gateway::run(arguments, &environment),
        Command::Run(arguments) => cli::run::run(&arguments, &environment),
        Command::Runs(arguments) => cli::runs::run(&arguments, &environment),
        Command::Adopt(arguments) => cli::adopt::run(&arguments, &environment),
        Command::Keep(arguments) => cli::keep::run(*arguments, &environment),
        Command::Up(arguments) => cli::up::run(arguments, environment),
        Command::Down(arguments) => cli::down::run(&arguments, &environment),
        Command::Reload(arguments) => cli::reload::run(&arguments, &environment),
        Command::Status(arguments) => cli::status::run(&arguments, &environment),
        Command::Lifecycle(command) => cli::start_stop_restart::run(&command, &environment),
        Command::Logs(arguments) => cli::logs::run(&arguments, &environment),
        Command::Attach(arguments) => cli::attach::run(&arguments, &environment),
        Command::Events(arguments) => cli::events::run(&arguments, &environment),
        Command::Metrics(arguments) => cli::metrics::run(&arguments, &environment),
        Command::History(arguments) => cli::history::run(&arguments, &environment),
        Command::Config(arguments) => cli::config::run(&arguments, &environment),
        Command::Plan(arguments) => cli::plan::run(&arguments, &environment),
        Command::Hooks(arguments) => cli::hooks::run(&arguments, &environment),
        Command::Install(arguments) => cli::install::run(&arguments, &environment),
        Command::Trust(arguments) => cli::trust::run(&arguments, &environment),
        Command::Doctor(arguments) => cli::doctor::run(&arguments, &environment),
        Command::Demo(arguments) => cli::demo::run(&arguments),
        Command::Completions(arguments) => cli::completions::run(&arguments),
        Command::Man(arguments) => cli::man::run(&arguments),
        Command::ExitCodes(arguments) => cli::exit_codes::run(&arguments),
        Command::Services => cli::completions::services(&environment),
        Command::DemoServer(arguments) => cli::demo::serve(&arguments),
    }
}
