//! Finds the servers in the TOML file of Codex: `[mcp_servers.NAME]`.

use toml_edit::{Array, Document, Item, Key, TableLike, TomlError, Value};

use super::entry_fields::{self, EntryStyle};
use super::wrapper::{Args, ClientServer, Launch, List, SpannedText, Split, line_break};

pub(super) fn servers(text: &str) -> Result<Vec<ClientServer>, TomlError> {
    let document = Document::parse(text)?;
    let all = document.get("mcp_servers").and_then(Item::as_table_like);
    let server = |(name, item): (&str, &Item)| {
        let entry = item.as_table_like();
        let launch = match entry {
            Some(entry) => launch(text, entry, item.is_inline_table())
                .unwrap_or(Launch::Odd("its place cannot be told")),
            None => Launch::Odd("it is no table"),
        };
        let enabled = entry.and_then(|entry| entry.get("enabled"));
        ClientServer {
            name: name.to_owned(),
            project: None,
            disabled: enabled.and_then(Item::as_bool) == Some(false),
            client: EntryStyle::Codex,
            at: all.and_then(|all| all.key(name)?.span()).unwrap_or(0..0),
            given: entry.map(entry_fields::of_toml).unwrap_or_default(),
            debugged: false,
            launch,
        }
    };
    Ok(all.map(|all| all.iter().map(server).collect()).unwrap_or_default())
}

/// None where the parser says no place, which it does for all that stands in a file.
fn launch(text: &str, entry: &dyn TableLike, is_inline: bool) -> Option<Launch> {
    let Some((key, command)) = entry.get_key_value("command") else {
        return Some(match entry.contains_key("url") {
            true => Launch::Remote,
            false => Launch::Odd("it has neither a command nor an address"),
        });
    };
    let Some(program) = command.as_str() else {
        return Some(Launch::Odd("its command is no text"));
    };
    let args = match entry.get_key_value("args") {
        None => None,
        Some((key, args)) => match args.as_array() {
            Some(array) => Some(Args { key: key.span()?, list: list(array)? }),
            None => return Some(Launch::Odd("its `args` are no list")),
        },
    };
    let lead = match args.is_none() && !entry.is_dotted() {
        true => lead(text, key, command, is_inline),
        false => None,
    };
    let command = SpannedText { range: command.span()?, text: program.to_owned() };
    Some(Launch::Split(Split { command, args, lead }))
}

fn list(array: &Array) -> Option<List> {
    let word = |value: &Value| {
        let text = value.as_str().unwrap_or_default().to_owned();
        Some(SpannedText { range: value.span()?, text })
    };
    let words = array.iter().map(word).collect::<Option<Vec<SpannedText>>>()?;
    Some(List { range: array.span()?, words, ends_with_comma: array.trailing_comma() })
}

/// The key of a list of arguments after the command, written as the command is: on a line of its
/// own in a table, behind a comma in an inline one.
fn lead(text: &str, key: &Key, command: &Item, is_inline: bool) -> Option<String> {
    let (key, value) = (key.span()?, command.span()?);
    let equals = &text[key.end..value.start];
    let comma = if is_inline { "," } else { "" };
    let space = match line_break(&text[..key.start]) {
        Some(line_break) => line_break,
        None if is_inline => " ",
        None => return None,
    };
    Some(format!("{comma}{space}args{equals}"))
}
