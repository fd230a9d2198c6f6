//! `afresh status`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::control::{HealthState, HealthStatus, RunStatus, ServiceStatus};
use afresh_core::duration::{parse_duration, show_duration};
use afresh_core::hidden_characters::json_for_terminal;
use afresh_core::text::harmless;
use afresh_daemon::control::{Reached, Watcher, Woken};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Paint};
use crate::running_services::RunningServices;
use crate::status_table::{
    Load, Row, average, cut, memory, percent, redraw, rounded, table, terminal_size,
};

/// Shows what runs under afresh: state, process, uptime, restarts, how the last instance ended, health, CPU
/// and memory.
///
/// Every afresh of this user is asked over its control socket. Without `--all`, only the services of the
/// workspace that you are in are shown. With a name, all that is known of it.
///
/// CPU is the average since the start of the process, as `ps` has it, with `--watch` that since the last
/// look; memory is what is resident. Both are of the process and all that it has started. 100 % is one
/// processor. Columns that would be empty are left out.
#[derive(Debug, Args)]
#[command(
    about = "Show what runs: state, process, restarts",
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

pub(crate) fn run(arguments: &StatusArgs, environment: &Environment) -> CommandResult {
    if let Some(interval) = arguments.watch {
        return watch(arguments, environment, interval);
    }
    let running = RunningServices::find(environment, arguments.all)?;
    let chosen: Vec<&Reached> = match &arguments.name {
        Some(name) => running.named(name)?,
        None => running.services.iter().collect(),
    };
    if arguments.json {
        let all: Vec<&ServiceStatus> = chosen.iter().map(|reached| &reached.status).collect();
        let text = serde_json::to_string_pretty(&all).map_err(|error| {
            CommandError::new(Exit::Internal, format!("the status is no JSON: {error}"))
        })?;
        return output::print(&format!("{}\n", json_for_terminal(&text)));
    }
    if chosen.is_empty() {
        output::remark(&running.nothing_here());
        return Ok(Exit::Success);
    }
    // A program that reads it gets names as they are.
    let columns = if output::is_terminal() { terminal_size().0 } else { usize::MAX };
    output::print(&text(&rows(arguments, &chosen, &average, columns, Paint::stdout())))
}

fn text(rows: &[Row]) -> String {
    rows.iter().map(|row| format!("{}\n", row.text)).collect()
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
        let mut row = Row::default();
        row.push(&format!("{what:<11} "), |what| paint.dim(what));
        row.push(&harmless(&text), str::to_owned);
        lines.push(row);
    };
    say("name", status.name.clone());
    say("state", status.state.to_string());
    for (what, text) in status.run.iter().flat_map(of_run) {
        say(what, text);
    }
    let (face, version) = (status.face.name(), &status.version);
    say("kept by", format!("afresh {face} {version} (pid {})", status.supervisor_pid));
    let pids = [("pid", "", status.pid), ("candidate", "pid ", status.candidate_pid)];
    for (what, word, pid) in pids.into_iter().chain([("spare", "pid ", status.spare_pid)]) {
        if let Some(pid) = pid {
            say(what, format!("{word}{pid}"));
        }
    }
    if let (Some(at), Some(millis)) = (&status.started_at, status.uptime_ms) {
        say("up since", format!("{at}, {}", show_duration(rounded(millis))));
    }
    for (what, names) in [("waits for", &status.waits_for), ("depends on", &status.depends_on)] {
        if !names.is_empty() {
            say(what, names.join(", "));
        }
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
    if let Some(shared) = &status.shared {
        say("clients", shared.clients.to_string());
        for apart in &shared.apart {
            say("", apart.clone());
        }
    }
    if let Some(workspace) = &status.workspace {
        say("workspace", workspace.clone());
    }
    say("command", status.command.clone());
    say("mechanism", status.mechanism.clone());
    lines
}

/// Shows it again and again.
fn watch(arguments: &StatusArgs, environment: &Environment, interval: Duration) -> CommandResult {
    let mut watcher = Watcher::new()?;
    let (draws, paint) = (output::can_draw(), Paint::stdout());
    let (mut drawn, mut before) = (Vec::new(), Before::default());
    // A name that never was is a mistake; one that goes may come back.
    let mut was_there = arguments.name.is_none();
    loop {
        let (running, warnings) = RunningServices::look(environment, arguments.all)?;
        let chosen: Vec<&Reached> = match &arguments.name {
            None => running.services.iter().collect(),
            Some(name) => match running.named(name) {
                Ok(named) => named,
                Err(error) if !was_there => return Err(error),
                Err(_) => Vec::new(),
            },
        };
        was_there = true;
        let mut lines: Vec<Row> = warnings.iter().map(|warning| Row::plain(warning)).collect();
        if chosen.is_empty() {
            lines.push(Row::plain(&match &arguments.name {
                Some(_) => "it does not run any more".to_owned(),
                None => running.nothing_here(),
            }));
        } else {
            let columns = if draws { terminal_size().0 } else { usize::MAX };
            let load = |status: &ServiceStatus| before.load(status);
            lines.extend(rows(arguments, &chosen, &load, columns, paint));
        }
        before.take(&chosen);
        if draws {
            let size = terminal_size();
            let lines = cut(lines, size);
            output::print(&redraw("", &drawn, &lines, size))?;
            drawn = lines;
        } else {
            output::print(&format!("{}\n", text(&lines)))?;
        }
        let sockets: Vec<PathBuf> =
            running.services.iter().map(|reached| reached.socket.clone()).collect();
        if watcher.wait(&sockets, interval) == Woken::End {
            return Ok(Exit::Success);
        }
    }
}

/// What was seen at the last look, by process: the processor time, the age, and what that came to.
#[derive(Default)]
struct Before(BTreeMap<u32, (u64, u64, Option<f64>)>);

impl Before {
    /// How much of a processor a service has used since the last look.
    fn load(&self, status: &ServiceStatus) -> Option<f64> {
        let (usage, uptime_ms) = (status.usage?, status.uptime_ms?);
        match self.0.get(&status.pid?) {
            Some((_, then_ms, load)) if uptime_ms < then_ms + SHORTEST_MS => *load,
            Some((cpu_ms, then_ms, _)) => {
                let used = usage.cpu_ms.saturating_sub(*cpu_ms) as f64;
                Some(used * 100.0 / (uptime_ms - then_ms) as f64)
            }
            None => average(status),
        }
    }

    fn take(&mut self, chosen: &[&Reached]) {
        let seen = chosen.iter().filter_map(|Reached { status, .. }| {
            let (pid, usage, uptime_ms) = (status.pid?, status.usage?, status.uptime_ms?);
            let fresh =
                self.0.get(&pid).filter(|(_, then_ms, _)| uptime_ms < then_ms + SHORTEST_MS);
            Some((pid, fresh.copied().unwrap_or((usage.cpu_ms, uptime_ms, self.load(status)))))
        });
        self.0 = seen.collect();
    }
}

/// The kernel counts in hundredths of a second: a load over less than this would jump.
const SHORTEST_MS: u64 = 500;

#[cfg(test)]
mod tests {
    use afresh_core::control::{State, UsageStatus};

    use super::*;
    use crate::status_table::testing::service;

    fn at(pid: u32, uptime_ms: u64, cpu_ms: u64) -> Reached {
        let mut status = service("web", State::Running);
        status.pid = Some(pid);
        status.uptime_ms = Some(uptime_ms);
        status.usage = Some(UsageStatus { memory_bytes: 0, cpu_ms });
        Reached { socket: PathBuf::new(), status }
    }

    #[test]
    fn the_load_is_that_since_the_last_look() {
        let mut before = Before::default();
        let mut look = |reached: Reached| {
            let load = before.load(&reached.status);
            before.take(&[&reached]);
            load
        };
        assert_eq!(look(at(7, 10_000, 1_000)), Some(10.0), "at first the average");
        assert_eq!(look(at(7, 12_000, 2_000)), Some(50.0));
        assert_eq!(look(at(7, 12_100, 2_100)), Some(50.0), "too soon to tell");
        assert_eq!(look(at(7, 14_000, 2_000)), Some(0.0));
        assert_eq!(look(at(8, 1_000, 1_000)), Some(100.0), "another process");
    }
}
