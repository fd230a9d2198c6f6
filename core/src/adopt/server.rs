//! A server in the configuration of a client: how it is started, and where that stands in the text.

use std::ops::Range;

use super::wrap::{Wrapped, wrapped};

/// A server as a configuration has it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// The project that it is for, in a file for several of them.
    pub project: Option<String>,
    /// Whether the client is told not to start it.
    pub disabled: bool,
    pub(super) launch: Launch,
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
    pub(super) command: Word,
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
    pub(super) words: Vec<Word>,
    /// Whether a comma follows the last word.
    pub(super) ends_with_comma: bool,
}

/// A value in the text.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// With its quotes.
    pub(super) range: Range<usize>,
    /// What it means; nothing where it is no text.
    pub(super) text: String,
}

impl Server {
    /// What can be done with it.
    pub fn state(&self) -> State {
        match (&self.launch, wrapped(&self.launch)) {
            (Launch::Remote, _) => State::Remote,
            (Launch::Odd(why), _) => State::Odd(why),
            (_, Wrapped::Yes { .. }) => State::Adopted,
            (_, Wrapped::Broken) => State::Odd("`afresh mcp` has no command after `--`"),
            (Launch::Split(split), Wrapped::No) => {
                if split.args.is_none() && split.lead.is_none() {
                    return State::Odd("its keys are dotted: write `args = []` below its command");
                }
                match split.args.is_none() && is_line(&split.command.text) {
                    true => State::Odd("its command is a line: write the words after it as `args`"),
                    false => State::Plain,
                }
            }
            (Launch::Whole(list), Wrapped::No) => match list.words.is_empty() {
                true => State::Odd("its command is empty"),
                false => State::Plain,
            },
        }
    }

    /// The words of its command line.
    pub(super) fn words(&self) -> Vec<&Word> {
        match &self.launch {
            Launch::Split(split) => {
                let args = split.args.iter().flat_map(|args| &args.list.words);
                std::iter::once(&split.command).chain(args).collect()
            }
            Launch::Whole(list) => list.words.iter().collect(),
            Launch::Remote | Launch::Odd(_) => Vec::new(),
        }
    }
}

/// Whether a command looks like a whole line for a shell: some clients split it, and it would be one
/// word after `--`. A path may have blanks in it.
fn is_line(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next().is_some_and(|first| !first.contains(['/', '\\'])) && words.next().is_some()
}
