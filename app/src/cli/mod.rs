//! The command line: one file for each command.

pub(crate) mod adopt;
pub(crate) mod attach;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
mod env_files;
pub(crate) mod events;
pub(crate) mod exit_codes;
pub(crate) mod gateway;
pub(crate) mod history;
pub(crate) mod hooks;
pub(crate) mod install;
pub(crate) mod keep;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod share;
pub(crate) mod start_stop_restart;
pub(crate) mod status;
pub(crate) mod trust;
pub(crate) mod trust_pins;
pub(crate) mod up;

use clap::{Parser, Subcommand};

/// Makes restarts around AI coding agents invisible.
///
/// afresh keeps the processes around your agents alive: it restarts what crashes, backs off from crash loops,
/// leaves no process behind, and keeps a trail of all of it.
#[derive(Debug, Parser)]
#[command(
    name = "afresh",
    version,
    after_help = "Examples:\n  \
                  afresh demo                                see what it does, in some seconds\n  \
                  afresh mcp -- python -m my_server          an MCP server that may crash and change\n  \
                  afresh gateway                             many MCP servers, one connection\n  \
                  afresh keep -- node server.js              keep a server alive\n  \
                  afresh up                                  keep all services of afresh.toml alive
  \
                  afresh run PLAN.md                         let an agent carry out a plan\n  \
                  afresh adopt                               put it in front of your MCP servers\n  \
                  afresh trust                               accept what a project's files start\n  \
                  afresh status                              what runs here\n  \
                  afresh history --since 1h                  what happened in the last hour\n  \
                  afresh doctor                              what this machine allows\n\n\
                  `afresh help COMMAND` explains a command, `afresh exit-codes` its exit codes.\n\
                  `afresh --version --verbose` names the commit, the profile and the target of this binary.",
    arg_required_else_help = true,
    propagate_version = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What afresh can do. Each command describes itself where its arguments are: a comment here would
/// take the place of its long help.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mcp(Box<mcp::McpArgs>),
    Gateway(gateway::GatewayArgs),
    Run(Box<run::RunArgs>),
    Runs(runs::RunsArgs),
    Adopt(adopt::AdoptArgs),
    Keep(Box<keep::KeepArgs>),
    Up(up::UpArgs),
    Down(down::DownArgs),
    Reload(reload::ReloadArgs),
    Status(status::StatusArgs),
    #[command(flatten)]
    Lifecycle(start_stop_restart::LifecycleCommand),
    Logs(logs::LogsArgs),
    Attach(attach::AttachArgs),
    Events(events::EventsArgs),
    Metrics(metrics::MetricsArgs),
    History(history::HistoryArgs),
    Config(config::ConfigArgs),
    Plan(plan::PlanArgs),
    Hooks(hooks::HooksArgs),
    Install(install::InstallArgs),
    Trust(trust::TrustArgs),
    Doctor(doctor::DoctorArgs),
    Demo(demo::DemoArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(visible_alias = "codes")]
    ExitCodes(exit_codes::ExitCodesArgs),
    /// The names of the services here, one a line, for the completion of shells
    #[command(name = "__services", hide = true)]
    Services,
    /// The server that `demo` calls
    #[command(name = "__demo-server", hide = true)]
    DemoServer(demo::DemoServerArgs),
}
