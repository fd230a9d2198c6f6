//! `afresh history`.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::audit::{EventType, Level, actor};
use afresh_core::hidden_characters::json_for_terminal;
use afresh_core::suggest::nearest;
use afresh_core::text::harmless;
use afresh_daemon::WritePath;
use afresh_daemon::store::history::{Filter, History, HistoryEntry, TrailFollower};
use afresh_daemon::store::workspace::{TrailFiles, Workspace};
use clap::{Args, ValueEnum};

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Lines, Paint};
use crate::since::{Since, parse_since};

/// Shows what happened: restarts, crashes, and why.
///
/// Reads the trail of the workspace, its rotated files included, oldest first. Times are UTC.
#[derive(Debug, Args)]
#[command(
    about = "Show what happened: restarts, crashes, and why",
    after_help = "Examples:\n  \
                  afresh history --since 1h                      the last hour\n  \
                  afresh history --level warning --limit 20      the last 20 mishaps\n  \
                  afresh history --service web -f                follow one service\n  \
                  afresh history --json | jq .props.event_type   for programs"
)]
pub(crate) struct HistoryArgs {
    /// Only what is not older: a time such as 90s, 1h or 7d, or a stamp such as
    /// 2026-11-15T08:42:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,

    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,

    /// Only events of this type, such as `server_crashed`
    #[arg(long, value_name = "TYPE")]
    event: Option<String>,

    /// Only what is at least this grave
    #[arg(long, value_name = "LEVEL")]
    level: Option<LevelName>,

    /// Only the last so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Print the records as they are in the trail: one JSON object a line
    #[arg(long)]
    json: bool,

    /// Go on with new records as they come, until Ctrl+C
    #[arg(short, long)]
    follow: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LevelName {
    Info,
    #[value(alias = "warn")]
    Warning,
    Error,
}

pub(crate) fn run(arguments: &HistoryArgs, environment: &Environment) -> CommandResult {
    let path = trail(environment)?;
    if !path.exists() {
        let path = environment.shown(&path);
        output::remark(&format!(
            "nothing has happened here yet: there is no trail at `{path}`; `afresh keep -- CMD` begins one"
        ));
    }
    let failed = |error: io::Error| {
        let path = environment.shown(&path);
        CommandError::new(Exit::Unavailable, format!("cannot read the trail `{path}`: {error}"))
            .hint("run `afresh doctor`")
    };
    let (lines, paint) = (Lines::new(), Paint::stdout());
    let mut printer = HistoryPrinter { lines, paint, json: arguments.json, service_width: 0 };
    if arguments.follow {
        let mut follow = TrailFollower::open(&path, arguments.filter()).map_err(failed)?;
        follow.end_with_stdout();
        let existing = std::iter::from_fn(|| follow.next(Some(Duration::ZERO)).transpose());
        for entry in last(existing, arguments.limit).map_err(failed)? {
            printer.print(&entry)?;
        }
        printer.lines.flush()?;
        tell_damaged(follow.files.damaged(), "the trail");
        while let Some(entry) = follow.next(None).map_err(failed)? {
            printer.print(&entry)?;
            printer.lines.flush()?;
        }
        return Ok(Exit::Success);
    }
    let mut history = History::open(&path, arguments.filter()).map_err(failed)?;
    let mut found = false;
    // However many, they are printed as they are read; with a limit, the last are kept until all are read.
    let entries: Box<dyn Iterator<Item = io::Result<HistoryEntry>>> = match arguments.limit {
        None => Box::new(history.by_ref()),
        limit => Box::new(last(history.by_ref(), limit).map_err(failed)?.into_iter().map(Ok)),
    };
    for entry in entries {
        found = true;
        printer.print(&entry.map_err(failed)?)?;
    }
    printer.lines.flush()?;
    if !found && path.exists() && arguments.limit != Some(0) {
        arguments.tell_nothing_found(&path);
    }
    tell_damaged(history.damaged(), "the trail");
    Ok(Exit::Success)
}

impl HistoryArgs {
    fn filter(&self) -> Filter {
        Filter {
            since: self.since.map(Since::stamp),
            service: self.service.clone(),
            event_type: self.event.clone(),
            level_min: self.level.map(|level| match level {
                LevelName::Info => Level::Info,
                LevelName::Warning => Level::Warning,
                LevelName::Error => Level::Error,
            }),
        }
    }

    /// Says that nothing matched, and what a name may have been meant to be.
    fn tell_nothing_found(&self, path: &Path) {
        output::remark("no record of the trail matches");
        let types: Vec<&str> = EventType::ALL.iter().map(|event| event.name()).collect();
        if let Some(event) = &self.event
            && !types.contains(&event.as_str())
        {
            let hint = match nearest(event, types.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? The types are"),
                None => "the types are".to_owned(),
            };
            let known = types.join(", ");
            output::warn(&format!(
                "warning: afresh writes no event type `{}`\nhint: {hint} {known}",
                harmless(event)
            ));
        }
        let Some(service) = &self.service else { return };
        let services = services(path);
        if !services.contains(service) && !services.is_empty() {
            let names: Vec<String> = services.iter().map(|name| harmless(name)).collect();
            output::warn(&format!("hint: services in the trail: {}", names.join(", ")));
        }
    }
}

/// The trail that is written here. Where the project has none, it may be with the user's state: a
/// project that cannot be written has its trail there.
fn trail(environment: &Environment) -> CommandResult<PathBuf> {
    let workspace = environment.workspace();
    let config = environment.config(&workspace, &[])?;
    let audit_in = |workspace: &Workspace| TrailFiles::of(workspace, &config.trail).audit;
    let audit = audit_in(&workspace);
    let audit = match audit.path().exists() && audit.link().is_none() {
        true => audit,
        false => audit_in(&environment.located_workspace()),
    };
    refuse_link(&audit)?;
    Ok(audit.path().to_owned())
}

/// A project that was merely cloned can have links to files of others.
pub(crate) fn refuse_link(path: &WritePath) -> CommandResult<()> {
    let Some(error) = path.link_error() else { return Ok(()) };
    Err(CommandError::new(Exit::Unavailable, error.to_string()).hint("remove it"))
}

/// The last so many; all of them where there is no limit.
fn last(
    entries: impl Iterator<Item = io::Result<HistoryEntry>>,
    limit: Option<usize>,
) -> io::Result<VecDeque<HistoryEntry>> {
    let mut kept = VecDeque::new();
    for entry in entries {
        kept.push_back(entry?);
        if limit.is_some_and(|limit| kept.len() > limit) {
            kept.pop_front();
        }
    }
    Ok(kept)
}

fn services(path: &Path) -> BTreeSet<String> {
    let entries = History::open(path, Filter::default()).into_iter().flatten();
    let mut names = BTreeSet::new();
    for entry in entries.flatten() {
        if names.len() < SERVICES_SHOWN_MAX {
            names.extend(entry.service().map(str::to_owned));
        }
    }
    names
}

/// A hint with more names than this is not read.
const SERVICES_SHOWN_MAX: usize = 20;

/// Says that lines of a file could not be understood.
pub(super) fn tell_damaged(lines: u64, whole: &str) {
    let what = match lines {
        0 => return,
        1 => format!("1 line of {whole} is damaged and was"),
        lines => format!("{lines} lines of {whole} are damaged and were"),
    };
    output::warn(&format!("warning: {what} passed over"));
}

/// Writes records to stdout.
struct HistoryPrinter {
    lines: Lines,
    paint: Paint,
    json: bool,
    /// The widest name so far, so that messages stay in one column.
    service_width: usize,
}

impl HistoryPrinter {
    /// Time, level, service, message, reason and actor.
    fn print(&mut self, entry: &HistoryEntry) -> io::Result<()> {
        if self.json {
            return self.lines.write(&json_for_terminal(&entry.line));
        }
        let time = match entry.stamp {
            Some(stamp) => stamp.to_string().replace('T', " ").replace('Z', ""),
            None => "(no time)".to_owned(),
        };
        let level = match entry.level {
            Some(Level::Info) => format!("{:7}", ""),
            None => format!("{:7}", "?"),
            Some(Level::Warning) => self.paint.yellow(Level::Warning.name()),
            Some(Level::Error) => self.paint.red(&format!("{:7}", Level::Error.name())),
        };
        let service = harmless(entry.service().unwrap_or("-"));
        let width = service.chars().count();
        self.service_width = self.service_width.max(width.min(SERVICE_WIDTH_MAX));
        let padding = " ".repeat(self.service_width.saturating_sub(width));
        let message = entry.message().unwrap_or("(no message)");
        let reason = match entry.value["props"]["reason"].as_str() {
            Some(reason) if !says(message, reason) => format!(" ({})", harmless(reason)),
            _ => String::new(),
        };
        let by = actor::shown(&entry.value["props"]["by"]);
        let by = by.map_or_else(String::new, |by| format!(" [by {}]", harmless(&by)));
        let time = self.paint.dim(&format!("{time:<23}"));
        let service = self.paint.bold(&service);
        let message = harmless(message);
        self.lines.write(&format!("{time} {level} {service}{padding}  {message}{reason}{by}"))
    }
}

/// A longer name stands out of its column.
const SERVICE_WIDTH_MAX: usize = 20;

/// Whether the message has the reason in it already, as words or as a key.
fn says(message: &str, reason: &str) -> bool {
    reason.is_empty() || message.contains(reason) || message.contains(&reason.replace('_', " "))
}
