//! `afresh status`.

use std::time::Duration;

use afresh_core::config::harmless;
use afresh_core::control::{HealthState, HealthStatus, ServiceStatus, State};
use afresh_core::time::show_duration;
use afresh_daemon::control::Reached;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines, Paint};
use crate::running::{Running, Scope};

/// Show what runs: state, process, restarts
#[derive(Debug, Args)]
#[command(
    long_about = "Shows what runs under afresh: state, process, uptime, restarts, and how the last \
                  instance ended.\n\nEvery `afresh keep` and `afresh mcp` of this user is asked over \
                  its control socket; no daemon is needed. Without `--all`, only the services of the \
                  workspace that you are in are shown. With a name, all that is known of it.",
    after_help = "Examples:\n  \
                  afresh status                       what runs in this workspace\n  \
                  afresh status --all                 on this machine\n  \
                  afresh status web                   one service, in full\n  \
                  afresh status --json | jq '.[].pid' for programs"
)]
pub(crate) struct Arguments {
    /// Only the services of this name, in full
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Those of all workspaces
    #[arg(short, long)]
    all: bool,

    /// Print a JSON array, as the control API gives the services
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let running = Running::find(environment, Scope::of(arguments.all))?;
    let chosen: Vec<&Reached> = match &arguments.name {
        Some(name) => running.named(name)?,
        None => running.services.iter().collect(),
    };
    if arguments.json {
        let all: Vec<&ServiceStatus> = chosen.iter().map(|reached| &reached.status).collect();
        let text = serde_json::to_string_pretty(&all).map_err(|error| {
            CommandError::new(Exit::Internal, format!("the status is no JSON: {error}"))
        })?;
        output::print(&format!("{text}\n"))?;
        return Ok(Exit::Success);
    }
    if chosen.is_empty() {
        output::remark(&running.nothing_here());
        return Ok(Exit::Success);
    }
    let mut lines = Lines::new();
    let paint = Paint::stdout();
    match arguments.name {
        Some(_) => {
            for (at, reached) in chosen.iter().enumerate() {
                if at > 0 {
                    lines.write("")?;
                }
                for line in in_full(&reached.status, paint) {
                    lines.write(&line)?;
                }
            }
        }
        None => {
            let statuses: Vec<&ServiceStatus> =
                chosen.iter().map(|reached| &reached.status).collect();
            for line in table(&statuses, arguments.all, paint) {
                lines.write(&line)?;
            }
        }
    }
    lines.flush()?;
    Ok(Exit::Success)
}

const HEADER: [&str; 7] = ["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "LAST EXIT", "WORKSPACE"];

fn table(statuses: &[&ServiceStatus], with_workspace: bool, paint: Paint) -> Vec<String> {
    let columns = if with_workspace { HEADER.len() } else { HEADER.len() - 1 };
    let rows: Vec<[String; 7]> = statuses.iter().map(|status| row(status)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADER[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let pad = |text: &str, column: usize| match column + 1 < columns {
        true => format!("{text:<width$}  ", width = widths[column]),
        false => text.to_owned(),
    };
    let header: String = (0..columns).map(|column| pad(HEADER[column], column)).collect();
    let mut lines = vec![paint.bold(&header)];
    for (status, row) in statuses.iter().zip(&rows) {
        let cell = |column: usize| {
            let padded = pad(&row[column], column);
            if column == 1 { colour(&status.state, &padded, paint) } else { padded }
        };
        lines.push((0..columns).map(cell).collect::<String>().trim_end().to_owned());
    }
    lines
}

fn row(status: &ServiceStatus) -> [String; 7] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        harmless(&status.name),
        state_of(status),
        or_dash(status.pid.map(|pid| pid.to_string())),
        or_dash(status.uptime_ms.map(|millis| show_duration(rounded(millis)))),
        status.restarts.total.to_string(),
        or_dash(status.last_exit.as_ref().map(|exit| harmless(&exit.text))),
        or_dash(status.workspace.as_deref().map(harmless)),
    ]
}

/// A line for each service, none longer than a terminal is wide.
pub(crate) fn lines_of(statuses: &[&ServiceStatus], columns: usize, paint: Paint) -> Vec<String> {
    let width = statuses.iter().map(|status| status.name.chars().count()).max().unwrap_or(0);
    let line = |status: &&ServiceStatus| {
        let name = format!("{:<width$}  ", harmless(&status.name));
        let state = state_of(status);
        let mut rest = String::new();
        if let Some(pid) = status.pid {
            rest.push_str(&format!("  pid {pid}"));
        }
        if status.restarts.total > 0 {
            rest.push_str(&format!("  restarts {}", status.restarts.total));
        }
        if let Some(exit) = status.last_exit.as_ref() {
            rest.push_str(&format!("  last: {}", harmless(&exit.text)));
        }
        let cut = |text: &str, used: usize| -> String {
            text.chars().take(columns.saturating_sub(used)).collect()
        };
        let name = cut(&name, 0);
        let state = cut(&state, name.chars().count());
        let rest = cut(&rest, name.chars().count() + state.chars().count());
        format!("{name}{}{}", colour(&status.state, &state, paint), paint.dim(&rest))
    };
    statuses.iter().map(line).collect()
}

/// The state in a word, and what it waits for.
fn state_of(status: &ServiceStatus) -> String {
    match &status.state {
        _ if !status.waits_for.is_empty() => {
            format!("waiting for {}", harmless(&status.waits_for.join(", ")))
        }
        // Why is a sentence, and stands below.
        State::Failed { .. } => "failed".to_owned(),
        State::Degraded { .. } => "degraded".to_owned(),
        state => harmless(&state.to_string()),
    }
}

/// Nobody looks at tenths of a second of something that has run for a minute.
fn rounded(millis: u64) -> Duration {
    if millis < 1_000 { Duration::from_millis(millis) } else { Duration::from_secs(millis / 1_000) }
}

fn colour(state: &State, text: &str, paint: Paint) -> String {
    match state {
        State::Ready | State::Running => paint.green(text),
        State::Starting
        | State::Degraded { .. }
        | State::Restarting
        | State::BackingOff { .. }
        | State::Stopping => paint.yellow(text),
        State::CrashLoop { .. } | State::Failed { .. } => paint.red(text),
        State::Stopped | State::Finished => paint.dim(text),
    }
}

fn health_in_words(health: &HealthStatus) -> String {
    let state = match health.state {
        HealthState::Unknown => "unknown",
        HealthState::Starting => "not ready yet",
        HealthState::Healthy => "healthy",
        HealthState::Degraded => "degraded",
        HealthState::Unhealthy => "unhealthy, it is being restarted",
    };
    let failures = match health.failures {
        0 => String::new(),
        1 => ", 1 check failed".to_owned(),
        count => format!(", {count} checks in a row failed"),
    };
    let last = match (&health.last_error, health.latency_ms) {
        (Some(error), _) => format!(": {error}"),
        (None, Some(millis)) => format!(", answered in {millis} ms"),
        (None, None) => String::new(),
    };
    let when = health.checked_at.as_ref().map_or_else(String::new, |at| format!(" ({at})"));
    format!("{state}{failures}{last}{when}")
}

fn in_full(status: &ServiceStatus, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |what: &str, text: String| {
        lines.push(format!("{} {}", paint.dim(&format!("{what:<11}")), harmless(&text)));
    };
    say("name", status.name.clone());
    say("state", status.state.to_string());
    say(
        "kept by",
        format!("afresh {} {} (pid {})", status.face.name(), status.version, status.supervisor_pid),
    );
    if let Some(pid) = status.pid {
        say("pid", pid.to_string());
    }
    for (what, pid) in [("candidate", status.candidate_pid), ("spare", status.spare_pid)] {
        if let Some(pid) = pid {
            say(what, format!("pid {pid}"));
        }
    }
    if let (Some(at), Some(millis)) = (&status.started_at, status.uptime_ms) {
        say("up since", format!("{at}, {}", show_duration(rounded(millis))));
    }
    say("instance", status.generation.to_string());
    if let Some(health) = &status.health {
        say("health", health_in_words(health));
    }
    if let Some(exit) = &status.last_exit {
        say("last exit", exit.text.clone());
    }
    if let Some(note) = &status.swap_failed {
        say("swap failed", format!("{} {}", note.time, note.reason));
    }
    say("restarts", status.restarts.total.to_string());
    for note in status.restarts.last.iter().rev() {
        say("", format!("{} {}", note.time, note.reason));
    }
    if let Some(workspace) = &status.workspace {
        say("workspace", workspace.clone());
    }
    say("command", status.command.clone());
    say("mechanism", status.mechanism.clone());
    lines
}
