//! `afresh attach`.

use std::io::{self, BufRead, IsTerminal, Read};
use std::sync::mpsc::{SyncSender, sync_channel};

use afresh_core::control::{Face, LogLine, LogStream};
use afresh_core::limits::INPUT_BYTES_MAX;
use afresh_core::text::{harmless, harmless_but_colours};
use afresh_daemon::control::{
    self, AtEnd, ControlError, Follower, Parted, Reached, ServiceAddress,
};
use clap::Args;

use crate::cli::logs::tell_missing;
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Lines, Paint};
use crate::running_services::RunningServices;

/// See what a service writes, and type to its stdin
#[derive(Debug, Args)]
#[command(
    long_about = "Shows what a service of `afresh up` writes as it comes, and gives what you type to its \
                  stdin, line by line.\n\nCtrl+C or Ctrl+D detaches: the service goes on. Where it is \
                  restarted, the next line goes to the new instance. It has a pipe for its stdin, not a \
                  terminal. Whatever of its output a terminal would obey is shown, not obeyed, but for \
                  colours. `afresh logs -f` shows it with times, and types nothing.",
    after_help = "Examples:\n  \
                  afresh attach web                   until Ctrl+C\n  \
                  echo reload | afresh attach web -n 0"
)]
pub(crate) struct AttachArgs {
    /// The service: its name, as `afresh status` shows it
    #[arg(value_name = "NAME")]
    name: String,

    /// Begin with the last so many lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: usize,

    /// Also a service of another workspace
    #[arg(short, long)]
    all: bool,
}

/// What happens while we are attached.
enum AttachInput {
    Line(LogLine),
    /// A line that was typed was not taken; why.
    Refused(ControlError),
    /// There is nothing more to type.
    Typed,
    Ended(Result<Parted, ControlError>),
}

pub(crate) fn run(arguments: &AttachArgs, environment: &Environment) -> CommandResult {
    let running = RunningServices::find(environment, arguments.all)?;
    let reached = one(&running, &arguments.name)?;
    let (target, name) = (reached.target(), harmless(&reached.status.name));
    let page = control::logs(&target, Some(arguments.lines))?;
    let follower = Follower::new()?;
    let (mut lines, paint) = (Lines::new(), Paint::stdout());
    let mut last = page.newest;
    let is_typed = io::stdin().is_terminal();
    if is_typed {
        output::remark(&format!(
            "attached to `{name}`: what you type goes to its stdin; Ctrl+C or Ctrl+D detaches"
        ));
    }
    page.lines.iter().try_for_each(|line| print(line, &mut lines, paint))?;
    lines.flush()?;
    let (sender, news) = sync_channel(64);
    let (typed, following) = (sender.clone(), target.clone());
    std::thread::spawn(move || follow(follower, following, page.newest, &sender));
    std::thread::spawn(move || pass_typed(&target, &typed));
    for news in news {
        match news {
            AttachInput::Line(line) => {
                tell_missing(&line, &mut last);
                print(&line, &mut lines, paint)?;
                lines.flush()?;
            }
            AttachInput::Refused(error) if is_typed => output::warn(&format!("warning: {error}")),
            AttachInput::Refused(error) => return Err(error.into()),
            AttachInput::Typed | AttachInput::Ended(Ok(Parted::Told)) => {
                output::remark(&format!("detached from `{name}`, which goes on"));
                break;
            }
            AttachInput::Ended(Ok(Parted::Ended)) => {
                output::remark(&format!("the afresh that keeps `{name}` has ended"));
                break;
            }
            AttachInput::Ended(Err(ControlError::Print(_))) => break,
            AttachInput::Ended(Err(error)) => return Err(error.into()),
        }
    }
    Ok(Exit::Success)
}

/// The one service of this name whose stdin can be typed to.
fn one<'a>(running: &'a RunningServices, name: &str) -> CommandResult<&'a Reached> {
    let found = running.named(name)?;
    let [reached] = found[..] else {
        let names: Vec<String> =
            found.iter().map(|reached| harmless(&reached.status.name)).collect();
        let text = format!("{} services are called that: {}", names.len(), names.join(", "));
        return Err(CommandError::new(Exit::Usage, text).hint("choose one of them"));
    };
    let why = match reached.status.face {
        Face::Up => return Ok(reached),
        Face::Mcp | Face::Gateway => "its stdin belongs to its MCP client",
        Face::Run => "its agent is told what to do by its plan",
        Face::Keep => "its stdin is fed from that of its `afresh keep`",
    };
    let name = harmless(&reached.status.name);
    let text = format!("nothing can be typed to `{name}`: {why}");
    Err(CommandError::new(Exit::Failed, text).hint(format!("`afresh logs -f {name}` shows it")))
}

/// Hands on new lines.
fn follow(follower: Follower, target: ServiceAddress, since: u64, news: &SyncSender<AttachInput>) {
    let ended = follower.lines(vec![(target, since)], AtEnd::Leave, |_, line| {
        // The printing thread has ended, and this one ends with it.
        news.send(AttachInput::Line(line)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    });
    news.send(AttachInput::Ended(ended)).ok();
}

/// Gives what is typed to the service, a line at a time.
fn pass_typed(target: &ServiceAddress, news: &SyncSender<AttachInput>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        // A longer line goes in pieces.
        let read = stdin.by_ref().take(INPUT_BYTES_MAX as u64).read_until(b'\n', &mut line);
        if read.is_err() || line.is_empty() {
            news.send(AttachInput::Typed).ok();
            return;
        }
        if let Err(error) = control::input(target, &line)
            && news.send(AttachInput::Refused(error)).is_err()
        {
            return;
        }
    }
}

/// The service's own lines are printed as they are; ours are said beside them.
fn print(line: &LogLine, lines: &mut Lines, paint: Paint) -> io::Result<()> {
    let text = harmless_but_colours(&line.text, paint == Paint::Colours);
    match line.stream {
        LogStream::Stdout => lines.write(&text),
        LogStream::Stderr => lines.write(&paint.yellow(&text)),
        LogStream::Afresh => {
            lines.flush()?;
            output::remark(&format!("[afresh] {}", harmless(&line.text)));
            Ok(())
        }
    }
}
