//! `afresh down`.

use std::time::Duration;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::control::Face;
use afresh_core::limits::{DOWN_LOOK_INTERVAL, DOWN_WAIT_MAX};
use afresh_core::service::State;
use afresh_daemon::store::lock::up_holder;
use afresh_daemon::store::trail::Trail;
use afresh_daemon::{
    abandoned_warden, control, end_lost_services, monotonic, own_actor, process_is_alive,
};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output;
use crate::running_services::{RunningServices, first_names};

/// Ends the `afresh up` of this workspace, be it in the background or on another terminal.
///
/// Its services are stopped in the opposite order of their start: each is asked by its stop signal, and
/// killed with all that it has started when its time is over. This command waits until all are gone. Services that
/// outlived an `afresh up` that was killed, and that no other one can take over, are ended as well.
#[derive(Debug, Args)]
#[command(
    about = "End `afresh up` of this workspace, with all of its services",
    after_help = "Examples:\n  \
                  afresh down\n  \
                  afresh down --reason 'the machine is going to sleep'"
)]
pub(crate) struct DownArgs {
    /// Why, for the log
    #[arg(long, value_name = "TEXT", default_value = "asked by `afresh down`", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,
}

pub(crate) fn run(arguments: &DownArgs, environment: &Environment) -> CommandResult {
    let daemons = super::up::daemons(environment, &[Face::Up])?;
    let [daemon, ..] = &daemons[..] else {
        return end_lost(environment, &arguments.reason);
    };
    let pid = daemon.version.pid;
    control::shutdown(&daemon.socket, &arguments.reason)?;
    let begin = monotonic();
    let mut said = begin;
    while process_is_alive(pid) {
        if monotonic() - begin > DOWN_WAIT_MAX {
            let text = format!("the afresh with pid {pid} has not ended within {DOWN_WAIT_MAX:?}");
            return Err(CommandError::new(Exit::Failed, text).hint("see `afresh status`"));
        }
        if monotonic() - said > Duration::from_secs(5) {
            said = monotonic();
            output::remark(&format!("still stopping: {}", first_names(&left(environment), 10)));
        }
        std::thread::park_timeout(DOWN_LOOK_INTERVAL);
    }
    output::print("all services are down\n")
}

/// Ends services whose `afresh up` was killed, and whose warden has lost its socket, as by `git clean -fdx`: nothing
/// else reaches them. An error where there are none.
fn end_lost(environment: &Environment, reason: &str) -> CommandResult {
    let mut workspace = environment.located_workspace();
    let folder = workspace.state().join("run");
    if up_holder(workspace.state()).is_some() || abandoned_warden(&folder).is_some() {
        return Err(not_there(environment));
    }
    match end_lost_services(&folder) {
        Ok(0) => Err(not_there(environment)),
        Ok(count) => {
            let services = output::counted(count as u64, "service");
            let record = Record {
                level: Level::Info,
                logger: "afresh.down".to_owned(),
                message: format!("{services} of an afresh that was killed: ended"),
                event_type: EventType::ServerStopped,
                props: vec![
                    ("instances", count.into()),
                    ("reason", reason.into()),
                    ("by", own_actor().to_json()),
                ],
            };
            // They have ended, whatever the configuration is like.
            let written = match environment.quiet_config(&workspace, &[]) {
                Ok(config) => Trail::write_one(&mut workspace, &config.trail, record)
                    .map_err(|why| why.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = written {
                output::warn(&format!("warning: this is not in the trail: {why}"));
            }
            output::print(&format!("{services} of an afresh that was killed: ended\n"))
        }
        Err(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let text = "services of an afresh that was killed do not end";
            let hint = format!("end them by `kill -9 {}`", pids.join(" "));
            Err(CommandError::new(Exit::Failed, text).hint(hint))
        }
    }
}

/// The error where no `afresh up` runs here.
pub(super) fn not_there(environment: &Environment) -> CommandError {
    let workspace = environment.located_workspace();
    let state = workspace.state();
    if let Some(pid) = up_holder(state) {
        let text =
            format!("the afresh with pid {pid} does not answer: it is stopped, or very busy");
        return CommandError::new(Exit::Unavailable, text).hint(format!("end it by `kill {pid}`"));
    }
    let error = CommandError::new(Exit::NotFound, "nothing is up here");
    match abandoned_warden(&state.join("run")) {
        Some(left) => error.hint(format!(
            "{} of an afresh that was killed run on; `afresh up` takes them over, then `afresh down` ends \
             them",
            output::counted(left.instances, "service")
        )),
        None => error.hint(
            "`afresh status --all` shows what runs elsewhere; `afresh keep` and `afresh mcp` end with \
             the process that started them",
        ),
    }
}

/// The services that are not down yet.
fn left(environment: &Environment) -> Vec<String> {
    let running = RunningServices::find(environment, false).unwrap_or_default();
    let ours = running.services.iter().map(|reached| &reached.status);
    ours.filter(|status| status.face == Face::Up)
        .filter(|status| {
            !matches!(status.state, State::Stopped | State::Finished | State::Failed { .. })
        })
        .map(|status| match status.pid {
            Some(pid) => format!("{} (pid {pid})", status.name),
            None => status.name.clone(),
        })
        .collect()
}
