//! A server in the configuration of a client: how it is started, and where that stands in the text.

use std::ops::Range;

use super::client_entry::{EntryField, EntryStyle};
use super::wrap::{Wrapped, behind, wrapped};

/// A server as a configuration has it.
#[derive(Clone, Debug)]
pub struct ClientServer {
    /// Its name.
    pub name: String,
    /// The project that it is for, in a file for several of them.
    pub project: Option<String>,
    /// Whether the client is told not to start it.
    pub disabled: bool,
    /// Whose way of writing it is.
    pub(crate) client: EntryStyle,
    /// Where it stands.
    pub(crate) at: Range<usize>,
    /// All that its entry says.
    pub(crate) given: Vec<EntryField>,
    /// Whether VS Code's debugger comes between the command and its first argument.
    pub(super) debugged: bool,
    pub(super) launch: Launch,
}

/// How a server is started without afresh in front of it.
#[derive(Debug)]
pub(crate) enum Start<'a> {
    /// By these words.
    Command {
        words: Vec<&'a SpannedText>,
        /// What `afresh mcp` was told, where that stood in front of it.
        flags: Vec<&'a SpannedText>,
    },
    /// Not at all: it is reached over the network.
    Remote,
    /// This is wrong with it.
    Odd(&'static str),
}

/// What can be done with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// afresh stands in front of it.
    Adopted,
    /// It is started by a command of its own.
    Plain,
    /// It is reached over the network: nothing is started, and nothing can be restarted.
    Remote,
    /// It is left as it is, for this reason.
    Odd(&'static str),
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(super) enum Launch {
    /// By a command and a list of its arguments.
    Split(Split),
    /// By one list that begins with the command.
    Whole(List),
    Remote,
    Odd(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Split {
    pub(super) command: SpannedText,
    pub(super) args: Option<Args>,
    /// What would come between the command and a list of arguments; none where there is a list, or
    /// no place for one.
    pub(super) lead: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Args {
    pub(super) key: Range<usize>,
    pub(super) list: List,
}

#[derive(Clone, Debug)]
pub(super) struct List {
    /// With its brackets.
    pub(super) range: Range<usize>,
    pub(super) words: Vec<SpannedText>,
    /// Whether a comma follows the last word.
    pub(super) ends_with_comma: bool,
}

/// A value in the text.
#[derive(Clone, Debug)]
pub(crate) struct SpannedText {
    /// With its quotes.
    pub(crate) range: Range<usize>,
    /// What it means; nothing where it is no text.
    pub(crate) text: String,
}

impl ClientServer {
    /// What can be done with it.
    pub fn state(&self) -> State {
        match (&self.launch, wrapped(&self.launch)) {
            (Launch::Remote, _) => State::Remote,
            (Launch::Odd(why), _) => State::Odd(why),
            _ if self.debugged => State::Odd("VS Code's `dev.debug` needs the command itself"),
            (_, Wrapped::Yes { .. }) => State::Adopted,
            (_, Wrapped::Broken) => State::Odd(BROKEN),
            (Launch::Split(split), Wrapped::No) => {
                if split.args.is_none() && split.lead.is_none() {
                    return State::Odd("its keys are dotted: write `args = []` below its command");
                }
                match split.args.is_none() && is_line(&split.command.text) {
                    true => State::Odd(LINE),
                    false => State::Plain,
                }
            }
            (Launch::Whole(list), Wrapped::No) => match list.words.is_empty() {
                true => State::Odd(EMPTY),
                false => State::Plain,
            },
        }
    }

    /// How it is started without afresh in front of it, however often that is there.
    pub(crate) fn start(&self) -> Start<'_> {
        match &self.launch {
            Launch::Remote => return Start::Remote,
            Launch::Odd(why) => return Start::Odd(why),
            Launch::Split(Split { command, args: None, .. }) if is_line(&command.text) => {
                return Start::Odd(LINE);
            }
            Launch::Split(_) | Launch::Whole(_) => {}
        }
        let (mut words, mut flags) = (self.words(), Vec::new());
        loop {
            match behind(&words) {
                Wrapped::Yes { command } => {
                    flags.extend(words[2..command - 1].iter().copied());
                    words.drain(..command);
                }
                Wrapped::Broken => return Start::Odd(BROKEN),
                Wrapped::No if words.first().is_none_or(|word| word.text.is_empty()) => {
                    return Start::Odd(EMPTY);
                }
                Wrapped::No => return Start::Command { words, flags },
            }
        }
    }

    /// The words of its command line.
    pub(super) fn words(&self) -> Vec<&SpannedText> {
        self.launch.words()
    }
}

const BROKEN: &str = "`afresh mcp` has no command after `--`";
const LINE: &str = "its command is a line: write the words after it as `args`";
const EMPTY: &str = "its command is empty";

impl Launch {
    /// The words of the command line.
    pub(super) fn words(&self) -> Vec<&SpannedText> {
        match self {
            Self::Split(split) => {
                let args = split.args.iter().flat_map(|args| &args.list.words);
                std::iter::once(&split.command).chain(args).collect()
            }
            Self::Whole(list) => list.words.iter().collect(),
            Self::Remote | Self::Odd(_) => Vec::new(),
        }
    }
}

/// Whether a command looks like a whole line for a shell: some clients split it, and it would be one
/// word after `--`. A path may have blanks in it.
fn is_line(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next().is_some_and(|first| !first.contains(['/', '\\'])) && words.next().is_some()
}
