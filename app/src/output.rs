//! The only file that prints: data on stdout, everything else on stderr.

use std::io::{self, BufRead, BufWriter, IsTerminal, Read, StdoutLock, Write};
use std::time::Duration;

use afresh_core::hidden_characters::json_for_terminal;
use afresh_core::limits::ANSWER_BYTES_MAX;
use serde::Serialize;
use serde_json::Value;

use crate::error::{CommandError, CommandResult, Exit, Text};

/// Writes data to stdout. A command that only prints ends with it.
pub(crate) fn print(text: &str) -> CommandResult {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(Exit::Success)
}

/// Writes a value to stdout, for programs.
pub(crate) fn print_json(value: &Value) -> CommandResult {
    print(&format!("{}\n", json_for_terminal(&format!("{value:#}"))))
}

/// Many lines for stdout, written together.
pub(crate) struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Takes a line, which gets its newline here.
    pub(crate) fn write(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(line.as_bytes())?;
        self.0.write_all(b"\n")
    }

    /// Takes a value, for programs, as a line.
    pub(crate) fn write_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.write(&json_for_terminal(&serde_json::to_string(value)?))
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.0.get_mut().flush()
    }
}

/// So many things, in words.
pub(crate) fn counted(count: impl TryInto<u64>, name: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

/// Writes to stderr. A failure cannot be reported anywhere.
pub(crate) fn remark(text: &str) {
    writeln!(io::stderr(), "{text}").ok();
}

/// Says something on a terminal that may not read, and waits no longer for it than this.
pub(crate) fn say_in_time(say: impl FnOnce() + Send + 'static, wait_max: Duration) {
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    let say = move || {
        say();
        done.send(()).ok();
    };
    // Without a thread the wait could not be bounded, and nothing is written.
    if std::thread::Builder::new().name("summary".to_owned()).spawn(say).is_ok() {
        is_done.recv_timeout(wait_max).ok();
    }
}

/// Whether there is a person to ask.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a person; no where there is none, or where the answer is not yes.
pub(crate) fn ask(question: &str) -> bool {
    if !can_ask() {
        return false;
    }
    write!(io::stderr(), "{question} [y/N] ").ok();
    let mut answer = String::new();
    let read = io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Tells why a command failed, and gives its exit code.
pub(crate) fn report(error: &CommandError) -> Exit {
    match &error.text {
        Text::Silent => {}
        // Help goes to stdout, errors to stderr, both with colours where they are welcome.
        Text::Clap(clap) => {
            if let Err(failure) = clap.print() {
                let failure = CommandError::from(failure);
                return if failure.exit == Exit::Success { error.exit } else { failure.exit };
            }
            error.hints.iter().for_each(|hint| warn(&format!("hint: {hint}")));
        }
        Text::Chain(_) | Text::Ready(_) => warn(&error.to_string()),
    }
    error.exit
}

/// Colours, where the reader is a terminal and has not said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colours,
}

/// Whether stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether stdout is a terminal on which lines can be drawn anew.
pub(crate) fn can_draw() -> bool {
    is_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl Paint {
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if stream.is_terminal() && !refused && !is_dumb() { Self::Colours } else { Self::Plain }
    }

    pub(crate) fn stdout() -> Self {
        Self::for_stream(&io::stdout())
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31;1", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// A name among others: each has a colour of its own, by turns.
    pub(crate) fn name(self, at: usize, text: &str) -> String {
        const COLOURS: [&str; 10] = ["36", "33", "32", "35", "34", "96", "93", "92", "95", "94"];
        self.wrap(COLOURS[at % COLOURS.len()], text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colours => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// Writes to stderr, with colours for the first word of each line that has a meaning of its own.
pub(crate) fn warn(text: &str) {
    remark(&paint_report(text, Paint::for_stream(&io::stderr())));
}

fn paint_report(text: &str, paint: Paint) -> String {
    let words = [("error:", "31;1"), ("warning:", "33"), ("hint:", "32")];
    let line = |line: &str| {
        let found =
            words.iter().find_map(|(word, code)| Some((word, code, line.strip_prefix(word)?)));
        found.map_or_else(|| line.to_owned(), |(word, code, rest)| paint.wrap(code, word) + rest)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
