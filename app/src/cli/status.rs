//! `afresh status`.

mod watch;

use std::time::Duration;

use afresh_core::control::{HealthState, HealthStatus, RunStatus, ServiceStatus};
use afresh_core::text::harmless;
use afresh_core::time::{parse_duration, show_duration};
use afresh_daemon::control::Reached;
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines, Paint};
use crate::row::{Row, terminal_size};
use crate::running::{RunningServices, ServiceScope};
use crate::status_table::{Load, average, memory, percent, rounded, table};

/// Show what runs: state, process, restarts
#[derive(Debug, Args)]
#[command(
    long_about = "Shows what runs under afresh: state, process, uptime, restarts, how the last instance \
                  ended, health, CPU and memory.\n\nEvery afresh of this user is asked over its control \
                  socket. Without `--all`, only the services of the \
                  workspace that you are in are shown. With a name, all that is known of it.\n\nCPU is \
                  the average since the start of the process, as `ps` has it, with `--watch` that since \
                  the last look; memory is what is resident. Both are of the process and all that it \
                  has started. 100 % is one processor. Columns that would be empty are left out.",
    after_help = "Examples:\n  \
                  afresh status                       what runs in this workspace\n  \
                  afresh status --all                 on this machine\n  \
                  afresh status web                   one service, in full\n  \
                  afresh status --watch               again and again, until Ctrl+C\n  \
                  afresh status --json | jq '.[].pid' for programs"
)]
pub(crate) struct StatusArgs {
    /// Only the services of this name, in full
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Those of all workspaces
    #[arg(short, long)]
    all: bool,

    /// Print a JSON array, as the control API gives the services
    #[arg(long)]
    json: bool,

    /// Show it again whenever something happens, and after so many seconds at most, until Ctrl+C
    /// [default: 2]
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = parse_seconds,
        conflicts_with = "json"
    )]
    watch: Option<Duration>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let unit =
        if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') { "s" } else { "" };
    match parse_duration(&format!("{text}{unit}")) {
        Ok(time) if time >= WATCH_SECONDS_MIN => Ok(time),
        Ok(_) => Err(format!("at least {}", show_duration(WATCH_SECONDS_MIN))),
        Err(_) => {
            Err("a number of seconds; the name of a service goes before `--watch`".to_owned())
        }
    }
}

/// A look costs a question to every afresh.
const WATCH_SECONDS_MIN: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &StatusArgs, environment: &Environment) -> Result<Exit, CommandError> {
    if let Some(interval) = arguments.watch {
        return watch::run(arguments, environment, interval);
    }
    let running = RunningServices::find(environment, ServiceScope::of(arguments.all))?;
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
    // A program that reads it gets names as they are.
    let columns = if output::is_terminal() { terminal_size().0 } else { usize::MAX };
    for row in rows(arguments, &chosen, &average, columns, Paint::stdout()) {
        lines.write(&row.text)?;
    }
    lines.flush()?;
    Ok(Exit::Success)
}

/// The services as they were asked for: as a table, or in full.
fn rows(
    arguments: &StatusArgs,
    chosen: &[&Reached],
    load: Load<'_>,
    columns: usize,
    paint: Paint,
) -> Vec<Row> {
    let statuses: Vec<&ServiceStatus> = chosen.iter().map(|reached| &reached.status).collect();
    if arguments.name.is_none() {
        return table(&statuses, arguments.all, load, columns, paint);
    }
    let all = statuses.iter().map(|status| in_full(status, load, paint));
    all.collect::<Vec<_>>().join(&Row::default())
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

/// How far a run is.
fn of_run(run: &RunStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("plan", format!("{} (run {})", run.plan, run.number)),
        ("phase", format!("{} ({} of {})", run.phase, run.phase_number, run.phases)),
        ("doing", run.doing.clone()),
    ];
    if let Some(tokens) = run.context_tokens {
        let about = if run.context_exact { "" } else { "about " };
        let window = run.context_window.map_or_else(String::new, |window| format!(" of {window}"));
        let percent = run.context_percent.map_or_else(String::new, |part| format!("{part:.0} %, "));
        lines.push(("context", format!("{about}{percent}{tokens}{window} tokens")));
    }
    let cost = run.dollars.map_or_else(String::new, |dollars| format!(", ${dollars:.2}"));
    let (input, output) = (run.input_tokens, run.output_tokens);
    lines.push(("used", format!("{input} tokens in, {output} out{cost}")));
    lines.extend(run.waits_until.clone().map(|until| ("waits until", until)));
    lines
}

fn in_full(status: &ServiceStatus, load: Load<'_>, paint: Paint) -> Vec<Row> {
    let mut lines = Vec::new();
    let mut say = |what: &str, text: String| {
        let (what, text) = (format!("{what:<11} "), harmless(&text));
        let mut row = Row::default();
        row.push(&what, |what| paint.dim(what));
        row.push(&text, str::to_owned);
        lines.push(row);
    };
    say("name", status.name.clone());
    say("state", status.state.to_string());
    if let Some(run) = &status.run {
        for (what, text) in of_run(run) {
            say(what, text);
        }
    }
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
    if !status.waits_for.is_empty() {
        say("waits for", status.waits_for.join(", "));
    }
    if !status.depends_on.is_empty() {
        say("depends on", status.depends_on.join(", "));
    }
    say("instance", status.generation.to_string());
    if let Some(usage) = status.usage {
        say("memory", memory(usage.memory_bytes));
        let used = show_duration(rounded(usage.cpu_ms));
        let load = load(status).map_or_else(String::new, |load| format!(", {}", percent(load)));
        say("cpu", format!("{used}{load}"));
    }
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
