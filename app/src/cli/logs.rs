//! `afresh logs`.

mod print;
mod sources;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use afresh_core::control::{LogLine, LogStream};
use afresh_core::limits::LOGS_LINES_MAX;
use afresh_daemon::control::{self, AtEnd, ControlError, Follower, ServiceAddress};
use afresh_daemon::store::service_log::read::{LogFollower, LogReader, LoggedLine, Query};
use clap::{Args, ValueEnum};

use self::print::{LogPrinter, Shown};
use self::sources::Sources;
use crate::cli::history::{Since, parse_since};
use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output;
use crate::running::failed;

/// Show what services wrote, and follow it
#[derive(Debug, Args)]
#[command(
    long_about = "Shows what services wrote, and what afresh said about them; without names, all \
                  services of this workspace, by time.\n\nServices of `afresh up`, and those of \
                  `afresh keep --log`, have their logs on disk, in `.afresh/logs/`: they are shown \
                  also when nothing runs any more. Of others, the afresh that keeps them remembers the \
                  last 2,000 lines, up to 256 KiB, over all instances; they are gone when it ends. \
                  With `-f` new lines follow, across restarts, until Ctrl+C; those that are only \
                  remembered until the end of their afresh. Times are UTC. `afresh history` has what \
                  happened before.",
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

pub(crate) fn run(arguments: &LogsArgs, environment: &Environment) -> Result<Exit, CommandError> {
    let sources = Sources::find(environment, &arguments.names, arguments.all)?;
    let mut printer = LogPrinter::new(sources.labels(), arguments.json);
    let (mut remembered, newest) = past(arguments, &sources)?;
    let names = Some(sources.on_disk.clone());
    let cannot_read = |error: std::io::Error| {
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
            remembered.extend(on_disk.collect::<Result<Vec<Shown>, CommandError>>()?);
            arguments.print_last(remembered, &mut printer)?;
        }
        printer.flush()?;
        tell(&mut reader);
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
    printer.flush()?;
    tell(follower.files());
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
    fn print_last(
        &self,
        mut lines: Vec<Shown>,
        printer: &mut LogPrinter,
    ) -> Result<(), CommandError> {
        // Stable, so the lines of one service stay as they came.
        lines.sort_by(|one, other| one.time.cmp(&other.time));
        let lines_max = self.query().lines_max.unwrap_or(usize::MAX);
        for line in lines.split_off(lines.len().saturating_sub(lines_max)) {
            printer.print(&line)?;
        }
        Ok(())
    }
}

/// What is remembered of the services that have no log on disk, and the number of the last line of each.
fn past(arguments: &LogsArgs, sources: &Sources) -> Result<(Vec<Shown>, Vec<u64>), CommandError> {
    let (mut lines, mut newest) = (Vec::new(), Vec::new());
    let query = arguments.query();
    for (at, (target, _)) in sources.remembered.iter().enumerate() {
        let page = control::logs(target, None).map_err(failed)?;
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
    Ended(Result<(), CommandError>),
}

/// Prints new lines, from disk and from those who remember them, until it is told to end.
fn go_on(
    arguments: &LogsArgs,
    sources: Sources,
    newest: Vec<u64>,
    follower: LogFollower,
    mut printer: LogPrinter,
) -> Result<Exit, CommandError> {
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
                printer.note_missed_files(missed);
                printer.learn(line.service, name);
                printer.print(&line.into())?;
            }
            LogInput::Remembered(at, line) => {
                let missing = line.number.saturating_sub(last[at] + 1);
                printer.note_missed_lines(missing);
                last[at] = line.number;
                let line = Shown::remembered(at, line);
                if line.is_wanted(&query) {
                    printer.print(&line)?;
                }
            }
            LogInput::Ended(result) => return result.map(|()| Exit::Success),
        }
        printer.flush()?;
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
            news.send(LogInput::Remembered(at, line))
                .map_err(|_| std::io::ErrorKind::BrokenPipe.into())
        })
    });
    let ended = match ended {
        Err(ControlError::Print(_)) => Ok(()),
        ended => ended.map(|_| ()).map_err(failed),
    };
    news.send(LogInput::Ended(ended)).ok();
}

fn follow_files(mut follower: LogFollower, news: &SyncSender<LogInput>) {
    let ended = loop {
        match follower.next(None) {
            Ok(Some(line)) => {
                let reader = follower.files();
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

fn tell(reader: &mut LogReader) {
    match reader.damaged() {
        0 => {}
        1 => output::warn("warning: 1 line of the logs is damaged and was passed over"),
        lines => output::warn(&format!(
            "warning: {lines} lines of the logs are damaged and were passed over"
        )),
    }
}
