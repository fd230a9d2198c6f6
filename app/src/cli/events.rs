//! `afresh events`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use afresh_core::control::{EventPage, Gap, NumberedEvent, Position};
use afresh_core::text::harmless;
use afresh_core::time::Stamp;
use afresh_daemon::control::{self, Followed, Follower};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandResult, Exit};
use crate::output::{self, Lines, Paint};
use crate::running_services::RunningServices;
use crate::since::{Since, parse_since};

/// Shows what has happened under the afresh processes that run: starts, crashes, restarts, and why.
///
/// Each afresh remembers its last 2,000 events, up to 512 KiB, and numbers them from 1. With `-f` new ones
/// follow, until Ctrl+C or the end of all of them; a connection that breaks is made again and goes on where
/// it was, and what is missing is said. Times are UTC. `afresh history` has what happened before, also under
/// those that have ended.
#[derive(Debug, Args)]
#[command(
    about = "Show what happens under the afresh processes that run, and follow it",
    after_help = "Examples:\n  \
                  afresh events                       what is remembered\n  \
                  afresh events -f web                one service, as it happens\n  \
                  afresh events --since 10m           the last ten minutes\n  \
                  afresh events --since 41 --json     after event 41, for programs"
)]
pub(crate) struct EventsArgs {
    /// Only these services; all of the workspace without
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Go on with new events as they come, until Ctrl+C
    #[arg(short, long)]
    follow: bool,

    /// Only events after this number, or not older than this: a time such as 90s, 1h or 7d, or a stamp
    /// such as 2026-11-15T08:42:00Z [default: all that are remembered; the last 10 with -f]
    #[arg(long, value_name = "N|TIME", value_parser = parse_from)]
    since: Option<From>,

    /// Print the events as the control API gives them: one JSON object a line
    #[arg(long)]
    json: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

/// Where the events begin.
#[derive(Clone, Copy, Debug)]
enum From {
    Number(u64),
    Time(Since),
}

fn parse_from(text: &str) -> Result<From, String> {
    match text.parse() {
        Ok(number) => Ok(From::Number(number)),
        Err(_) => parse_since(text).map(From::Time),
    }
}

pub(crate) fn run(arguments: &EventsArgs, environment: &Environment) -> CommandResult {
    let running = RunningServices::find(environment, arguments.all)?;
    let chosen = match arguments.names.is_empty() {
        true => running.services.iter().collect(),
        false => running.all_named(&arguments.names)?,
    };
    if chosen.is_empty() {
        output::remark(&running.nothing_here());
        return Ok(Exit::Success);
    }
    // Those of one afresh come over one connection.
    let mut sockets: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for reached in chosen {
        let names = sockets.entry(reached.socket.clone()).or_default();
        if !arguments.names.is_empty() {
            names.push(reached.status.name.clone());
        }
    }
    let (sockets, names): (Vec<PathBuf>, Vec<_>) = sockets.into_iter().unzip();
    let mut printer =
        EventPrinter { lines: Lines::new(), paint: Paint::stdout(), json: arguments.json, names };
    let mut past: Vec<(usize, NumberedEvent)> = Vec::new();
    let mut from: Vec<(PathBuf, Position)> = Vec::new();
    for (at, socket) in sockets.into_iter().enumerate() {
        let page = arguments.page(&socket)?;
        from.push((socket, Position { run: Some(page.run), number: page.newest }));
        let wanted = page.events.into_iter().filter(|event| printer.wants(at, event));
        past.extend(wanted.map(|event| (at, event)));
    }
    // Stable, so the events of one afresh stay as they came.
    past.sort_by(|(_, one), (_, other)| one.timestamp.cmp(&other.timestamp));
    let last = arguments.follow && arguments.since.is_none();
    let skipped = if last { past.len().saturating_sub(10) } else { 0 };
    let follower = arguments.follow.then(Follower::new).transpose()?;
    for (_, event) in past.split_off(skipped) {
        printer.print(&event)?;
    }
    printer.lines.flush()?;
    let Some(follower) = follower else { return Ok(Exit::Success) };
    follower.events(from, |at, followed| {
        match followed {
            Followed::Gap(gap) => tell_gap(gap),
            Followed::Event(event) if printer.wants(at, &event) => {
                printer.print(&event)?;
                printer.lines.flush()?;
            }
            Followed::Event(_) => {}
        }
        Ok(())
    })?;
    Ok(Exit::Success)
}

impl EventsArgs {
    /// What one afresh remembers, of what is wanted.
    fn page(&self, socket: &Path) -> CommandResult<EventPage> {
        let number = match self.since {
            Some(From::Number(number)) => number,
            _ => 0,
        };
        let mut page = control::events(socket, &Position { run: None, number })?;
        match self.since {
            Some(From::Number(_)) => tell_gap(page.gap),
            Some(From::Time(since)) => {
                let begin = since.stamp();
                let is_new = |event: &NumberedEvent| {
                    Stamp::parse(&event.timestamp).is_none_or(|stamp| stamp >= begin)
                };
                page.events.retain(is_new);
            }
            None => {}
        }
        Ok(page)
    }
}

/// Says what is missing.
fn tell_gap(gap: Gap) {
    if gap.restarted {
        output::remark("[another afresh counts now: these are all events that it remembers]");
    } else if gap.missed > 0 {
        output::remark(&format!("[{} events are missing: see `afresh history`]", gap.missed));
    }
}

struct EventPrinter {
    lines: Lines,
    paint: Paint,
    json: bool,
    /// The services that are wanted of each afresh; none is all.
    names: Vec<Vec<String>>,
}

impl EventPrinter {
    fn wants(&self, at: usize, event: &NumberedEvent) -> bool {
        let names = &self.names[at];
        let is_named = |name: &str| names.iter().any(|wanted| wanted == name);
        names.is_empty() || event.service().is_some_and(is_named)
    }

    fn print(&mut self, event: &NumberedEvent) -> std::io::Result<()> {
        if self.json {
            return self.lines.write_json(event);
        }
        let time = event.timestamp.replace('T', " ").replace('Z', "");
        let level = format!("{:<7}", event.level);
        let level = match event.level.as_str() {
            "ERROR" => self.paint.red(&level),
            "WARNING" => self.paint.yellow(&level),
            _ => self.paint.dim(&level),
        };
        let head = self.paint.dim(&format!("{:>5} {time}", event.number));
        self.lines.write(&format!("{head} {level} {}", harmless(&event.message)))
    }
}
