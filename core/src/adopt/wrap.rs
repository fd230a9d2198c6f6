//! The wrapper in front of a server's command: put there, recognised, and taken away.
//!
//! `--name NAME` as two words says that there was a list of arguments before, `--name=NAME` as one
//! word that there was none: so an undo knows whether to leave an empty list.

use super::Edit;
use super::server::{ClientServer, Launch, List, SpannedText, Split, State};

/// What is put in front of a command.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper<'a> {
    /// How afresh is called: a name, or a path whose last part is one that [`is_afresh`] knows.
    pub program: &'a str,
    /// Flags of `afresh mcp`, without `--`.
    pub with: &'a [String],
}

/// Whether a command is afresh, wherever it is installed.
pub fn is_afresh(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    name == "afresh" || name.eq_ignore_ascii_case("afresh.exe")
}

/// Whether afresh stands in front of a command.
pub(super) enum Wrapped {
    No,
    /// The command is this word of the list.
    Yes {
        command: usize,
    },
    /// It does, in front of nothing.
    Broken,
}

pub(super) fn wrapped(launch: &Launch) -> Wrapped {
    match (launch, behind(&launch.words())) {
        // The list begins behind the program.
        (Launch::Split(_), Wrapped::Yes { command }) => Wrapped::Yes { command: command - 1 },
        (_, wrapped) => wrapped,
    }
}

/// Whether the first of these words is afresh in front of a command, and which word that is.
pub(super) fn behind(words: &[&SpannedText]) -> Wrapped {
    match words {
        [program, mcp, ..] if is_afresh(&program.text) && mcp.text == "mcp" => {}
        _ => return Wrapped::No,
    }
    match words.iter().position(|word| word.text == "--") {
        Some(dashes) if dashes + 1 < words.len() => Wrapped::Yes { command: dashes + 1 },
        _ => Wrapped::Broken,
    }
}

pub(super) fn wrap(text: &str, server: &ClientServer, wrapper: &Wrapper<'_>) -> Vec<Edit> {
    if server.state() != State::Plain {
        return Vec::new();
    }
    let name = label(&server.name);
    let program = quote(wrapper.program);
    match &server.launch {
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

pub(super) fn unwrap(text: &str, server: &ClientServer) -> Vec<Edit> {
    let Wrapped::Yes { command } = wrapped(&server.launch) else {
        return Vec::new();
    };
    let delete = |range| Edit { range, text: String::new() };
    match &server.launch {
        Launch::Whole(list) => {
            vec![delete(list.words[0].range.start..list.words[command].range.start)]
        }
        Launch::Split(Split { command: program, args: Some(args), .. }) => {
            let words = &args.list.words;
            let own = &words[command].range;
            let original = text[own.clone()].to_owned();
            let restored = |range| Edit { range, text: original.clone() };
            if let Some(next) = words.get(command + 1) {
                let front = delete(words[0].range.start..next.range.start);
                return vec![restored(program.range.clone()), front];
            }
            let (start, end) = (program.range.end, args.key.start);
            let is_ours = words[1].text.starts_with("--name=")
                && start <= end
                && text[start..end].chars().all(|c| c == ',' || c.is_ascii_whitespace());
            if is_ours {
                return vec![restored(program.range.start..args.list.range.end)];
            }
            let emptied = match args.list.ends_with_comma {
                // A comma after the last word can't stay without it.
                true => Edit { range: args.list.range.clone(), text: "[]".to_owned() },
                false => delete(words[0].range.start..own.end),
            };
            vec![restored(program.range.clone()), emptied]
        }
        Launch::Split(_) | Launch::Remote | Launch::Odd(_) => Vec::new(),
    }
}

/// The words between `afresh` and the command, quoted.
fn words(name: &[&str], wrapper: &Wrapper<'_>, comma: &str) -> String {
    let with = wrapper.with.iter().map(String::as_str);
    let all = std::iter::once("mcp").chain(name.iter().copied()).chain(with).chain(["--"]);
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
