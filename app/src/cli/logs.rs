//! `afresh logs`.

use afresh_core::config::harmless;
use afresh_core::control::{LogLine, Stream};
use afresh_daemon::control::{self, Target};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Lines, Paint};
use crate::running::{Running, Scope, failed};

/// Show the last lines of a service, and follow them
#[derive(Debug, Args)]
#[command(
    long_about = "Shows the last lines of a service: what it wrote to stderr, under `afresh keep` \
                  also to stdout, and what afresh said about it.\n\nThe afresh that keeps the service \
                  remembers the last 2,000 lines, up to 256 KiB, over all of its instances; they are \
                  gone when it ends. With `-f` new lines follow, across restarts, until Ctrl+C or the \
                  end of that afresh. Times are UTC. `afresh history` has what happened before.",
    after_help = "Examples:\n  \
                  afresh logs web -n 50\n  \
                  afresh logs web -f --grep error"
)]
pub(crate) struct Arguments {
    /// The service: its name, as `afresh status` shows it
    #[arg(value_name = "NAME")]
    name: String,

    /// Go on with new lines as they come, until Ctrl+C
    #[arg(short, long)]
    follow: bool,

    /// Only the last so many lines [default: all that are remembered; 10 with -f]
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,

    /// Only lines that have this text in them
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,

    /// Print the lines as the control API gives them: one JSON object a line
    #[arg(long)]
    json: bool,

    /// Also services of other workspaces
    #[arg(short, long)]
    all: bool,
}

pub(crate) fn run(arguments: &Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let running = Running::find(environment, Scope::of(arguments.all))?;
    let chosen = running.named(&arguments.name)?;
    let targets: Vec<Target> = chosen.iter().map(|reached| reached.target()).collect();
    let several = chosen.len() > 1;
    let labels = chosen.iter().map(|reached| match several {
        true => format!("{} {} ", harmless(&reached.status.name), reached.status.supervisor_pid),
        false => String::new(),
    });
    let mut printer = Printer {
        lines: Lines::new(),
        paint: Paint::stdout(),
        json: arguments.json,
        labels: labels.collect(),
        newest: Vec::new(),
    };
    let mut past: Vec<(usize, LogLine)> = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        let page = control::logs(target, None).map_err(failed)?;
        printer.newest.push(page.newest);
        past.extend(page.lines.into_iter().map(|line| (at, line)));
    }
    past.retain(|(_, line)| arguments.wants(line));
    // Stable, so the lines of one service stay as they came.
    past.sort_by(|(_, one), (_, other)| one.time.cmp(&other.time));
    let lines_max = arguments.lines.or(arguments.follow.then_some(10)).unwrap_or(usize::MAX);
    for (at, line) in past.split_off(past.len().saturating_sub(lines_max)) {
        printer.print(at, &line)?;
    }
    printer.lines.flush()?;
    if !arguments.follow {
        return Ok(Exit::Success);
    }
    let from: Vec<(Target, u64)> = targets.into_iter().zip(printer.newest.clone()).collect();
    let ended = control::follow(from, |at, line| {
        printer.note_gap(at, line.number);
        if arguments.wants(&line) {
            printer.print(at, &line)?;
            printer.lines.flush()?;
        }
        Ok(())
    });
    ended.map_err(failed)?;
    Ok(Exit::Success)
}

impl Arguments {
    fn wants(&self, line: &LogLine) -> bool {
        self.grep.as_ref().is_none_or(|text| line.text.contains(text))
    }
}

struct Printer {
    lines: Lines,
    paint: Paint,
    json: bool,
    /// What stands in front of the lines of each service, where there are several.
    labels: Vec<String>,
    /// The number of the last line of each.
    newest: Vec<u64>,
}

impl Printer {
    fn print(&mut self, at: usize, line: &LogLine) -> std::io::Result<()> {
        if self.json {
            return self.lines.write(&serde_json::to_string(line)?);
        }
        let time = line.time.replace('T', " ").replace('Z', "");
        let head = format!("{time} {}{:<6} ", self.labels[at], line.stream.name());
        let text = harmless(&without_colours(&line.text));
        let text = match line.stream {
            Stream::Afresh => self.paint.bold(&text),
            Stream::Stdout | Stream::Stderr => text,
        };
        self.lines.write(&format!("{}{text}", self.paint.dim(&head)))
    }

    /// Says where lines were forgotten before we could take them.
    fn note_gap(&mut self, at: usize, number: u64) {
        let missing = number.saturating_sub(self.newest[at] + 1);
        if missing > 0 {
            output::remark(&format!("[{missing} lines are missing: they came too fast]"));
        }
        self.newest[at] = number;
    }
}

/// A line without the sequences that only colour it. What else a terminal would obey is shown, not
/// obeyed.
fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("\u{1b}[") {
        let after = &rest[begin + 2..];
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        match after[end..].strip_prefix('m') {
            Some(beyond) => {
                plain.push_str(&rest[..begin]);
                rest = beyond;
            }
            None => {
                plain.push_str(&rest[..begin + 2]);
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_the_rest_stays() {
        for (text, plain) in [
            ("plain", "plain"),
            ("\u{1b}[31;1mred\u{1b}[0m!", "red!"),
            ("\u{1b}[m\u{1b}[2Jgone", "\u{1b}[2Jgone"),
            ("end\u{1b}[", "end\u{1b}["),
            ("\u{1b}[31", "\u{1b}[31"),
        ] {
            assert_eq!(without_colours(text), plain, "{text:?}");
        }
    }
}
