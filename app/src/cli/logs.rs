//! `afresh logs`: finds the lines of services, on disk or with the afresh that remembers them, and prints them.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use afresh_core::control::{LogLine, LogStream};
use afresh_core::limits::LOGS_LINES_MAX;
use afresh_core::text::{harmless, harmless_but_colours};
use afresh_daemon::control::{self, AtEnd, ControlError, Follower, Reached, ServiceAddress};
use afresh_daemon::store::service_log;
use afresh_daemon::store::service_log::read::{LogFollower, LogReader, LoggedLine, Query};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::history::refuse_link;
use crate::cli::history::tell_damaged;
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Lines, Paint};
use crate::running_services::{RunningServices, first_names, is_called, workspace};
use crate::since::{Since, parse_since};

/// Shows what services wrote, and what afresh said about them; without names, all services of this workspace,
/// by time.
///
/// Services of `afresh up`, and those of `afresh keep --log`, have their logs on disk, in `.afresh/logs/`:
/// they are shown also when nothing runs any more. Of others, the afresh that keeps them remembers the last
/// 2,000 lines, up to 256 KiB, over all instances; they are gone when it ends. With `-f` new lines follow,
/// across restarts, until Ctrl+C; those that are only remembered until the end of their afresh. Times are
/// UTC. `afresh history` has what happened before.
#[derive(Debug, Args)]
#[command(
    about = "Show what services wrote, and follow it",
    after_help = "Examples:\n  \
                  afresh logs -f                      all services, as it comes\n  \
                  afresh logs web -n 50\n  \
                  afresh logs web api --since 10m --stream stderr\n  \
                  afresh logs web -f --grep error\n  \
                  afresh logs --json | jq .text       for programs"
)]
pub(crate) struct LogsArgs {
    /// The services: their names, as `afresh status` shows them
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Go on with new lines as they come, until Ctrl+C
    #[arg(short, long)]
    follow: bool,

    /// Only the last so many lines [default: 2000, 10 with -f; all of them with --since or --grep]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,

    /// Only what is not older: a time such as 90s, 1h or 7d, or a stamp such as
    /// 2026-11-15T08:42:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,

    /// Only lines that have this text in them
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,

    /// Only what was written there
    #[arg(long, value_name = "STREAM")]
    stream: Option<StreamName>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,

    /// Also services of other workspaces that run now
    #[arg(short, long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StreamName {
    /// What it wrote to its stdout
    Stdout,
    /// What it wrote to its stderr
    Stderr,
    /// What afresh said about it
    Afresh,
}

pub(crate) fn run(arguments: &LogsArgs, environment: &Environment) -> CommandResult {
    let sources = Sources::find(environment, &arguments.names, arguments.all)?;
    let mut printer = LogPrinter::new(&sources, arguments.json);
    let (mut remembered, newest) = past(arguments, &sources)?;
    let names = Some(sources.on_disk.clone());
    let cannot_read = |error: io::Error| {
        let folder = environment.shown(&sources.folder);
        CommandError::new(Exit::Unavailable, format!("cannot read the logs in `{folder}`: {error}"))
    };
    if !arguments.follow {
        let mut reader =
            LogReader::open(&sources.folder, names, arguments.query()).map_err(cannot_read)?;
        let on_disk = std::iter::from_fn(|| reader.next_line().map_err(cannot_read).transpose());
        let on_disk = on_disk.map(|line| line.map(Shown::from));
        if remembered.is_empty() {
            // However many, they are printed as they are read.
            for line in on_disk {
                printer.print(&line?)?;
            }
        } else {
            remembered.extend(on_disk.collect::<CommandResult<Vec<Shown>>>()?);
            arguments.print_last(remembered, &mut printer)?;
        }
        printer.lines.flush()?;
        tell_damaged(reader.damaged(), "the logs");
        return Ok(Exit::Success);
    }
    // Where all is wanted, services that come later belong to it.
    let names = names.filter(|_| !arguments.names.is_empty() || !sources.remembered.is_empty());
    let mut follower =
        LogFollower::open(&sources.folder, names, arguments.query()).map_err(cannot_read)?;
    follower.end_with_stdout();
    while let Some(line) = follower.next(Some(Duration::ZERO)).map_err(cannot_read)? {
        remembered.push(line.into());
    }
    arguments.print_last(remembered, &mut printer)?;
    printer.lines.flush()?;
    tell_damaged(follower.files.damaged(), "the logs");
    go_on(arguments, sources, newest, follower, printer)
}

impl LogsArgs {
    fn query(&self) -> Query {
        let selects = self.since.is_some() || self.grep.is_some();
        let usual = match (self.follow, selects) {
            (true, _) if self.since.is_none() => Some(10),
            (_, true) => None,
            (_, false) => Some(LOGS_LINES_MAX),
        };
        Query {
            since: self.since.map(Since::stamp),
            grep: self.grep.clone(),
            stream: self.stream.map(|stream| match stream {
                StreamName::Stdout => LogStream::Stdout,
                StreamName::Stderr => LogStream::Stderr,
                StreamName::Afresh => LogStream::Afresh,
            }),
            lines_max: self.lines.or(usual),
        }
    }

    /// Prints the last of them by time.
    fn print_last(&self, mut lines: Vec<Shown>, printer: &mut LogPrinter) -> io::Result<()> {
        // Stable, so the lines of one service stay as they came.
        lines.sort_by(|one, other| one.line.time.cmp(&other.line.time));
        let lines_max = self.query().lines_max.unwrap_or(usize::MAX);
        let last = lines.split_off(lines.len().saturating_sub(lines_max));
        last.iter().try_for_each(|line| printer.print(line))
    }
}

/// What is remembered of the services that have no log on disk, and the number of the last line of each.
fn past(arguments: &LogsArgs, sources: &Sources) -> CommandResult<(Vec<Shown>, Vec<u64>)> {
    let (mut lines, mut newest) = (Vec::new(), Vec::new());
    let query = arguments.query();
    for (at, (target, _)) in sources.remembered.iter().enumerate() {
        let page = control::logs(target, None)?;
        newest.push(page.newest);
        let shown = page.lines.into_iter().map(|line| Shown::remembered(at, line));
        lines.extend(shown.filter(|line| line.is_wanted(&query)));
    }
    Ok((lines, newest))
}

/// Something from one of the followers.
enum LogInput {
    OnDisk(LoggedLine, u64, Option<String>),
    Remembered(usize, LogLine),
    Ended(CommandResult<()>),
}

/// Prints new lines, from disk and from those who remember them, until it is told to end.
fn go_on(
    arguments: &LogsArgs,
    sources: Sources,
    newest: Vec<u64>,
    follower: LogFollower,
    mut printer: LogPrinter,
) -> CommandResult {
    let (sender, news) = sync_channel(64);
    let has_files = sources.remembered.is_empty() || !sources.on_disk.is_empty();
    let targets: Vec<ServiceAddress> =
        sources.remembered.into_iter().map(|(target, _)| target).collect();
    let mut last = newest.clone();
    if !targets.is_empty() {
        let (sender, from) = (sender.clone(), targets.into_iter().zip(newest).collect());
        std::thread::spawn(move || follow_remembered(from, has_files, &sender));
    }
    if has_files {
        let sender = sender.clone();
        std::thread::spawn(move || follow_files(follower, &sender));
    }
    drop(sender);
    let query = arguments.query();
    for news in news {
        match news {
            LogInput::OnDisk(line, missed, name) => {
                if missed > 0 {
                    output::remark(&format!(
                        "[lines are missing: they came too fast, and {missed} files of them are gone]"
                    ));
                }
                printer.learn(line.service, name);
                printer.print(&line.into())?;
            }
            LogInput::Remembered(at, line) => {
                tell_missing(&line, &mut last[at]);
                let line = Shown::remembered(at, line);
                if line.is_wanted(&query) {
                    printer.print(&line)?;
                }
            }
            LogInput::Ended(result) => return result.map(|()| Exit::Success),
        }
        printer.lines.flush()?;
    }
    Ok(Exit::Success)
}

fn follow_remembered(
    from: Vec<(ServiceAddress, u64)>,
    has_files: bool,
    news: &SyncSender<LogInput>,
) {
    let at_end = if has_files { AtEnd::Stay } else { AtEnd::Leave };
    let ended = Follower::new().and_then(|follower| {
        follower.lines(from, at_end, |at, line| {
            // The printing thread has ended, and this one ends with it.
            news.send(LogInput::Remembered(at, line)).map_err(|_| io::ErrorKind::BrokenPipe.into())
        })
    });
    let ended = match ended {
        Ok(_) | Err(ControlError::Print(_)) => Ok(()),
        Err(error) => Err(error.into()),
    };
    news.send(LogInput::Ended(ended)).ok();
}

fn follow_files(mut follower: LogFollower, news: &SyncSender<LogInput>) {
    let ended = loop {
        match follower.next(None) {
            Ok(Some(line)) => {
                let reader = &mut follower.files;
                let name = reader.services().get(line.service).cloned();
                let missed = reader.take_missed();
                if news.send(LogInput::OnDisk(line, missed, name)).is_err() {
                    return;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => {
                let text = format!("cannot read the logs: {error}");
                break Err(CommandError::new(Exit::Unavailable, text));
            }
        }
    };
    news.send(LogInput::Ended(ended)).ok();
}

/// Says where lines were forgotten before we could take them.
pub(super) fn tell_missing(line: &LogLine, last: &mut u64) {
    let missing = line.number.saturating_sub(*last + 1);
    if missing > 0 {
        output::remark(&format!("[{missing} lines are missing: they came too fast]"));
    }
    *last = line.number;
}

/// What is to be shown.
struct Sources {
    /// Where logs are on disk.
    folder: PathBuf,
    /// The services that have theirs there.
    on_disk: Vec<String>,
    /// The others, with the name for people.
    remembered: Vec<(ServiceAddress, String)>,
}

impl Sources {
    /// Finds the logs of these services, or of all in scope.
    fn find(environment: &Environment, names: &[String], all: bool) -> CommandResult<Self> {
        let logs = environment.workspace().writable_logs();
        // Those of a project that cannot be written are with the user's state.
        let logs = match logs.path().exists() && logs.link().is_none() {
            true => logs,
            false => environment.located_workspace().writable_logs(),
        };
        refuse_link(&logs)?;
        let folder = logs.path().to_owned();
        let files = service_log::services(&folder);
        let running = match RunningServices::find(environment, all) {
            // Files can be read without a running afresh.
            Err(_) if !files.is_empty() => RunningServices::default(),
            found => found?,
        };
        let here = workspace(environment);
        let is_here = |reached: &Reached| reached.status.workspace == here;
        let has_file = |reached: &Reached| {
            let name = &reached.status.name;
            is_here(reached)
                && files.contains(name)
                && service_log::is_written(&service_log::file_of(&folder, name))
        };
        let remembered: Vec<&Reached> =
            running.services.iter().filter(|reached| !has_file(reached)).collect();
        // An old file of a service that runs now without one is not its log.
        let is_old = |name: &String| {
            remembered.iter().any(|reached| is_here(reached) && reached.status.name == *name)
        };
        let mut on_disk: Vec<String> = files.iter().filter(|name| !is_old(name)).cloned().collect();
        let mut chosen = remembered.clone();
        if names.is_empty() {
            if on_disk.is_empty() && chosen.is_empty() {
                output::remark(&running.nothing_here());
            }
        } else {
            for name in names {
                let is_known = on_disk.iter().any(|file| is_file_of(file, name))
                    || remembered.iter().any(|reached| is_called(&reached.status, name));
                if !is_known {
                    return Err(unknown(&running, name, &on_disk));
                }
            }
            on_disk.retain(|file| names.iter().any(|name| is_file_of(file, name)));
            chosen.retain(|reached| names.iter().any(|name| is_called(&reached.status, name)));
        }
        Ok(Self { folder, on_disk, remembered: named(&chosen) })
    }
}

/// Those that are remembered, each with a label that no other has.
fn named(chosen: &[&Reached]) -> Vec<(ServiceAddress, String)> {
    let label = |reached: &Reached| {
        let (name, pid) = (harmless(&reached.status.name), reached.status.supervisor_pid);
        let same = chosen.iter().filter(|other| other.status.name == reached.status.name);
        if same.count() > 1 { format!("{name} {pid}") } else { name }
    };
    chosen.iter().map(|reached| (reached.target(), label(reached))).collect()
}

/// Whether a file is of a service of this name, or of one of its copies.
fn is_file_of(file: &str, name: &str) -> bool {
    let copy = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    file == name
        || copy.is_some_and(|copy| !copy.is_empty() && copy.bytes().all(|b| b.is_ascii_digit()))
}

fn unknown(running: &RunningServices, name: &str, on_disk: &[String]) -> CommandError {
    let Err(error) = running.named(name) else {
        // It runs, and writes a file that is not there any more.
        let text = format!("the log of `{}` is gone", harmless(name));
        return CommandError::new(Exit::NotFound, text);
    };
    match on_disk.is_empty() {
        true => error,
        false => error.hint(format!("logs on disk: {}", first_names(on_disk, 20))),
    }
}

/// A line, wherever it was.
struct Shown {
    source: LogSource,
    /// It goes on in the next one.
    continues: bool,
    /// One from disk has no number.
    line: LogLine,
}

/// A service: a place among those on disk, or among the others.
#[derive(Clone, Copy)]
enum LogSource {
    OnDisk(usize),
    Remembered(usize),
}

impl Shown {
    fn remembered(at: usize, line: LogLine) -> Self {
        Self { source: LogSource::Remembered(at), continues: false, line }
    }

    fn is_wanted(&self, query: &Query) -> bool {
        let LogLine { time, stream, text, .. } = &self.line;
        query.grep.as_ref().is_none_or(|wanted| text.contains(wanted))
            && query.stream.is_none_or(|wanted| *stream == wanted)
            && query.since.is_none_or(|since| *time >= since.to_string())
    }
}

impl From<LoggedLine> for Shown {
    fn from(line: LoggedLine) -> Self {
        let LoggedLine { service, head, text } = line;
        let text = String::from_utf8_lossy(text.strip_suffix(b"\r").unwrap_or(&text)).into_owned();
        let (time, generation, stream) = (head.time.to_string(), head.generation, head.stream);
        let line = LogLine { number: 0, time, generation, stream, text };
        Self { source: LogSource::OnDisk(service), continues: head.continues, line }
    }
}

/// Writes lines to stdout.
struct LogPrinter {
    lines: Lines,
    paint: Paint,
    json: bool,
    on_disk: Vec<String>,
    remembered: Vec<String>,
    /// The widest name, where there are several services.
    width: usize,
}

impl LogPrinter {
    fn new(sources: &Sources, json: bool) -> Self {
        let on_disk = sources.on_disk.iter().map(|name| harmless(name)).collect();
        let remembered = sources.remembered.iter().map(|(_, label)| label.clone()).collect();
        let (lines, paint) = (Lines::new(), Paint::stdout());
        let mut printer = Self { lines, paint, json, on_disk, remembered, width: 0 };
        printer.measure();
        printer
    }

    fn measure(&mut self) {
        let names = self.on_disk.iter().chain(&self.remembered);
        let widest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let several = self.on_disk.len() + self.remembered.len() > 1;
        self.width = if several { widest } else { 0 };
    }

    /// A service that came later has a name too.
    fn learn(&mut self, service: usize, name: Option<String>) {
        if service >= self.on_disk.len() {
            self.on_disk.resize(service, String::new());
            self.on_disk.push(harmless(&name.unwrap_or_default()));
            self.measure();
        }
    }

    fn print(&mut self, shown: &Shown) -> io::Result<()> {
        let Shown { source, continues, line } = shown;
        let (at, name) = match *source {
            LogSource::OnDisk(at) => (at, self.on_disk.get(at)),
            LogSource::Remembered(at) => (self.on_disk.len() + at, self.remembered.get(at)),
        };
        let name = name.map_or("", String::as_str);
        if self.json {
            let mut object = json!({
                "time": line.time, "generation": line.generation, "stream": line.stream.name(),
                "text": line.text, "service": name,
            });
            if let LogSource::Remembered(_) = source {
                object["number"] = line.number.into();
            }
            if *continues {
                object["continues"] = true.into();
            }
            return self.lines.write_json(&object);
        }
        let time = line.time.replace('T', " ").replace('Z', "");
        let label = match self.width {
            0 => String::new(),
            width => self.paint.name(at, &format!("{name:<width$} ")),
        };
        let stream = format!("{}{}", line.stream.name(), if *continues { "+" } else { "" });
        let text = harmless_but_colours(&line.text, false);
        let text = match line.stream {
            LogStream::Afresh => self.paint.bold(&text),
            LogStream::Stdout | LogStream::Stderr => text,
        };
        let time = self.paint.dim(&format!("{time} "));
        let stream = self.paint.dim(&format!("{stream:<6} "));
        self.lines.write(&format!("{time}{label}{stream}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_belong_to_their_name() {
        for (file, name, belongs) in [
            ("web", "web", true),
            ("web-12", "web", true),
            ("web-12", "web-12", true),
            ("web-", "web", false),
            ("web-x1", "web", false),
            ("website", "web", false),
            ("web", "web-1", false),
        ] {
            assert_eq!(is_file_of(file, name), belongs, "{file} {name}");
        }
    }
}
