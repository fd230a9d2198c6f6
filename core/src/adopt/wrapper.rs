//! A server in the configuration of a client: how it is started, where that stands in the text, and the wrapper in
//! front of its command: put there and recognised; `undo.rs` takes it away.
//!
//! `--name NAME` as two words says that there was a list of arguments before, `--name=NAME` as one
//! word that there was none: so an undo knows whether to leave an empty list.

use std::ops::Range;

use super::Edit;
use super::entry_fields::{EntryField, EntryStyle};
use super::invocation::{Invocation, InvocationWords, newer_package};

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
        match (&self.launch, behind(&self.launch.words())) {
            (Launch::Remote, _) => State::Remote,
            (Launch::Odd(why), _) => State::Odd(why),
            _ if self.debugged => State::Odd("VS Code's `dev.debug` needs the command itself"),
            (_, Wrapped::Yes { .. }) => State::Adopted,
            (_, Wrapped::Broken) => State::Odd(BROKEN),
            (Launch::Split(Split { args: None, lead: None, .. }), Wrapped::No) => {
                State::Odd("its keys are dotted: write `args = []` below its command")
            }
            (Launch::Split(Split { args: None, command, .. }), _) if is_line(&command.text) => {
                State::Odd(LINE)
            }
            (Launch::Whole(list), Wrapped::No) if list.words.is_empty() => State::Odd(EMPTY),
            (Launch::Split(_) | Launch::Whole(_), Wrapped::No) => State::Plain,
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
        let (mut words, mut flags) = (self.launch.words(), Vec::new());
        loop {
            match behind(&words) {
                Wrapped::Yes { command, flags: first } => {
                    let own = words[first..command].iter().copied();
                    flags.extend(own.filter(|word| word.text != "--"));
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

    /// How it invokes afresh, where it does.
    pub fn invocation(&self) -> Option<Invocation<'_>> {
        let words = self.launch.words();
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let found = InvocationWords::find(&texts)?;
        let is_ours = |word: &&str| ["mcp", "gateway"].contains(word);
        let rest = texts[found.end..].iter().find(|word| **word != "--");
        rest.is_some_and(is_ours).then(|| found.read(&texts))
    }

    /// The flags that its invocation gives `afresh mcp`, where it does.
    pub fn mcp_flags(&self) -> Vec<&str> {
        let words = self.launch.words();
        let Wrapped::Yes { command, flags } = behind(&words) else { return Vec::new() };
        let flags = words[flags..command].iter().map(|word| word.text.as_str());
        flags.filter(|word| *word != "--").collect()
    }

    /// What the wrapper would change here.
    pub fn change(&self, wrapper: &Wrapper<'_>) -> Option<EntryChange> {
        match self.state() {
            State::Plain => Some(EntryChange::Wrap),
            State::Adopted if self.stale(wrapper).is_some() => Some(EntryChange::Update),
            State::Adopted if self.missing(wrapper).is_some() => Some(EntryChange::AddFlags),
            State::Adopted | State::Remote | State::Odd(_) => None,
        }
    }

    /// What in its invocation of afresh is out of date.
    fn stale(&self, wrapper: &Wrapper<'_>) -> Option<Stale<'_>> {
        let words = self.launch.words();
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let found = InvocationWords::find(&texts)?;
        if let Some(at) = found.package {
            let newer = newer_package(texts[at], wrapper.version?)?;
            return Some(Stale::Package(words[at], newer));
        }
        let is_gone = wrapper.gone.iter().any(|path| path == texts[0]);
        (found.program == 0 && is_gone).then_some(Stale::Path(words[0]))
    }

    /// The flags that its invocation of afresh lacks, and the word that they go behind. A flag that is there with another
    /// value stays, unless it may be given several times.
    fn missing<'a>(&self, wrapper: &Wrapper<'a>) -> Option<(&SpannedText, Vec<&'a str>)> {
        let words = self.launch.words();
        let Wrapped::Yes { command, flags } = behind(&words) else { return None };
        let own: Vec<&str> = words[flags..command].iter().map(|word| word.text.as_str()).collect();
        let own = FlagWords::all(&own);
        let with: Vec<&str> = wrapper.with.iter().map(String::as_str).collect();
        let is_there = |flag: &FlagWords<'_>| {
            let is_several = MCP_FLAGS_SEVERAL.contains(&flag.name);
            let is_it = |its: &FlagWords<'_>| {
                its.name == flag.name && (!is_several || its.value == flag.value)
            };
            own.iter().any(is_it)
        };
        let missing = FlagWords::all(&with).into_iter().filter(|flag| !is_there(flag));
        let missing: Vec<&str> =
            missing.flat_map(|flag| with[flag.words].iter().copied()).collect();
        let name = own.first().filter(|flag| flag.name == "--name");
        let before = flags + name.map_or(0, |name| name.words.len());
        (!missing.is_empty()).then(|| (words[before - 1], missing))
    }

    /// The changes that bring its invocation of afresh up to date, and add the flags that it lacks.
    fn update(&self, text: &str, wrapper: &Wrapper<'_>) -> Vec<Edit> {
        let mut edits = self.renew(text, wrapper);
        let list = match &self.launch {
            Launch::Whole(list) => Some(list),
            Launch::Split(split) => split.args.as_ref().map(|args| &args.list),
            Launch::Remote | Launch::Odd(_) => None,
        };
        if let Some((list, (word, missing))) = list.zip(self.missing(wrapper)) {
            let comma = comma(text, list);
            let flags = missing.into_iter().map(|flag| format!("{comma}{}", quote(flag)));
            edits.push(Edit { range: word.range.end..word.range.end, text: flags.collect() });
        }
        edits
    }

    /// The changes that bring its invocation of afresh up to date.
    fn renew(&self, text: &str, wrapper: &Wrapper<'_>) -> Vec<Edit> {
        let Some(stale) = self.stale(wrapper) else { return Vec::new() };
        let program = match stale {
            Stale::Package(word, newer) => {
                return vec![Edit { range: word.range.clone(), text: quote(&newer) }];
            }
            Stale::Path(program) => program.range.clone(),
        };
        let Some((first, rest)) = wrapper.invocation.split_first() else { return Vec::new() };
        let rest = rest.iter().map(|word| quote(word));
        match &self.launch {
            Launch::Whole(list) => {
                let all: Vec<String> = std::iter::once(quote(first)).chain(rest).collect();
                vec![Edit { range: program, text: all.join(comma(text, list)) }]
            }
            Launch::Split(Split { args: Some(args), .. }) => {
                let comma = comma(text, &args.list);
                let rest: Vec<String> = rest.collect();
                let own = Edit { range: program, text: quote(first) };
                let more = (!rest.is_empty())
                    .then(|| in_front(text, &args.list, &rest.join(comma), comma));
                std::iter::once(own).chain(more).collect()
            }
            Launch::Split(_) | Launch::Remote | Launch::Odd(_) => Vec::new(),
        }
    }

    /// The changes that put the wrapper in front of it, or bring the one that is there up to date.
    pub(super) fn wrap(&self, text: &str, wrapper: &Wrapper<'_>) -> Vec<Edit> {
        match self.change(wrapper) {
            Some(EntryChange::Wrap) => {}
            Some(EntryChange::Update | EntryChange::AddFlags) => return self.update(text, wrapper),
            None => return Vec::new(),
        }
        let Some(program) = wrapper.invocation.first() else { return Vec::new() };
        let (name, program) = (label(&self.name), quote(program));
        match &self.launch {
            Launch::Split(split) => {
                let command = &text[split.command.range.clone()];
                let Some(args) = &split.args else {
                    let lead = split.lead.as_deref().unwrap_or_default();
                    let comma = if lead.contains([' ', '\n']) { ", " } else { "," };
                    let front = words(&[&format!("--name={name}")], wrapper, comma);
                    let text = format!("{program}{lead}[{front}{comma}{command}]");
                    return vec![Edit { range: split.command.range.clone(), text }];
                };
                let comma = comma(text, &args.list);
                let front = words(&["--name", &name], wrapper, comma);
                vec![
                    Edit { range: split.command.range.clone(), text: program },
                    in_front(text, &args.list, &format!("{front}{comma}{command}"), comma),
                ]
            }
            Launch::Whole(list) => {
                let comma = comma(text, list);
                let front = words(&["--name", &name], wrapper, comma);
                vec![in_front(text, list, &format!("{program}{comma}{front}"), comma)]
            }
            Launch::Remote | Launch::Odd(_) => Vec::new(),
        }
    }
}

const BROKEN: &str = "`afresh mcp` has no command behind it";
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

/// What is put in front of a command.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper<'a> {
    /// How afresh is invoked: words that `InvocationWords` recognises.
    pub invocation: &'a [&'a str],
    /// Flags of `afresh mcp`, without `--`.
    pub with: &'a [String],
    /// The version that replaces older ones where a package runner is asked for one; none where they stay.
    pub version: Option<&'a str>,
    /// Paths of afresh that lead nowhere any more, and are replaced.
    pub gone: &'a [String],
}

/// What is done to a server's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// The wrapper is put in front of its command.
    Wrap,
    /// The version or the path of afresh in the wrapper is replaced.
    Update,
    /// Flags of `afresh mcp` that the wrapper lacks are added to it.
    AddFlags,
}

/// The part of an invocation that is out of date.
enum Stale<'a> {
    /// This word is a package; it becomes that one.
    Package(&'a SpannedText, String),
    /// This word is a path that leads nowhere.
    Path(&'a SpannedText),
}

/// The flags of `afresh mcp` that stand alone, or have their value behind a `=`. Each other one is followed by its value.
pub const MCP_FLAGS_ALONE: [&str; 3] = ["--restart-on-normal-exit", "--share", "--spare"];

/// The flags of `afresh mcp` that may be given several times.
pub const MCP_FLAGS_SEVERAL: [&str; 3] = ["--env", "--share-env", "--watch"];

/// A flag in a list of words.
struct FlagWords<'a> {
    name: &'a str,
    value: Option<&'a str>,
    /// The words that it consists of.
    words: Range<usize>,
}

impl<'a> FlagWords<'a> {
    /// All flags up to the command.
    fn all(words: &[&'a str]) -> Vec<Self> {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && **word != "--")
        {
            let (name, value, len) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value), 1),
                None if MCP_FLAGS_ALONE.contains(word) => (*word, None, 1),
                None => (*word, words.get(at + 1).copied(), 2),
            };
            all.push(Self { name, value, words: at..(at + len).min(words.len()) });
            at += len;
        }
        all
    }
}

/// Whether afresh stands in front of a command.
pub(super) enum Wrapped {
    No,
    /// It does.
    Yes {
        /// The first word of the command.
        command: usize,
        /// The first word behind `mcp`.
        flags: usize,
    },
    /// It does, in front of nothing.
    Broken,
}

/// Whether the first of these words is afresh in front of a command, and which word that is.
pub(super) fn behind(words: &[&SpannedText]) -> Wrapped {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let Some(found) = InvocationWords::find(&texts) else { return Wrapped::No };
    // `npm exec` takes a `--` of its own.
    let separators = usize::from(found.package.is_some() && texts.get(found.end) == Some(&"--"));
    let mcp = found.end + separators;
    if texts.get(mcp) != Some(&"mcp") {
        return Wrapped::No;
    }
    let flags = mcp + 1;
    let mut at = flags;
    while let Some(word) = words.get(at) {
        match word.text.as_str() {
            "--" if at + 1 < words.len() => return Wrapped::Yes { command: at + 1, flags },
            "--" => return Wrapped::Broken,
            text if !text.starts_with('-') => return Wrapped::Yes { command: at, flags },
            text if text.contains('=') || MCP_FLAGS_ALONE.contains(&text) => at += 1,
            _ => at += 2,
        }
    }
    Wrapped::Broken
}

/// The words between the program and the command, quoted.
fn words(name: &[&str], wrapper: &Wrapper<'_>, comma: &str) -> String {
    let with = wrapper.with.iter().map(String::as_str);
    let rest = wrapper.invocation.iter().skip(1).copied().chain(["mcp"]);
    let all = rest.chain(name.iter().copied()).chain(with).chain(["--"]);
    all.map(quote).collect::<Vec<_>>().join(comma)
}

/// Puts words at the start of a list; what is there begins where it did, be it on a line of its own.
fn in_front(text: &str, list: &List, words: &str, comma: &str) -> Edit {
    let Some(first) = list.words.first() else {
        let at = list.range.start + 1;
        return Edit { range: at..at, text: words.to_owned() };
    };
    let at = first.range.start;
    let separator = match line_break(&text[..at]) {
        Some(line_break) => format!(",{line_break}"),
        None => comma.to_owned(),
    };
    Edit { range: at..at, text: format!("{words}{separator}") }
}

/// The line break and the indentation that a text ends with.
pub(super) fn line_break(before: &str) -> Option<&str> {
    let indented = before.trim_end_matches([' ', '\t']);
    let line = indented.strip_suffix('\n')?;
    Some(&before[line.strip_suffix('\r').unwrap_or(line).len()..])
}

/// How a list separates its words on one line.
fn comma(text: &str, list: &List) -> &'static str {
    match &list.words[..] {
        [first, second, ..] if &text[first.range.end..second.range.start] == "," => ",",
        [] | [_] if text[..list.range.start].ends_with([':', '=']) => ",",
        _ => ", ",
    }
}

/// The name by which afresh knows the server. It must be no flag, and nothing that a process cannot
/// be given.
pub(crate) fn label(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control()).collect();
    match plain.trim_start_matches('-') {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// A string that JSON and TOML read alike.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
