//! Finds the servers in the JSON files of clients: Claude, Cursor, VS Code, Zed, Cline, opencode, and others like them.

use std::ops::Range;

use super::entry_fields::{self, EntryField, EntryStyle};
use super::jsonc::{self, Member, SyntaxError};
use super::wrapper::{Args, ClientServer, Launch, List, SpannedText, Split, line_break};

/// Where servers are kept; `*` is any key, and the last one the name.
const PLACES: [&[&str]; 6] = [
    // Claude Code and Desktop, Cursor, Copilot, Gemini, Cline, and most others.
    &["mcpServers", "*"],
    // Claude Code, for one project.
    &["projects", "*", "mcpServers", "*"],
    // VS Code's mcp.json.
    &["servers", "*"],
    // VS Code's settings.json, and the next opencode.
    &["mcp", "servers", "*"],
    // Zed.
    &["context_servers", "*"],
    // opencode.
    OPENCODE,
];

const OPENCODE: &[&str] = &["mcp", "*"];

/// Types of servers that no command starts.
const REMOTE_TYPES: [&str; 7] =
    ["http", "sse", "remote", "ws", "streamable-http", "streamableHttp", "streamable_http"];

pub(super) fn servers(text: &str) -> Result<Vec<ClientServer>, SyntaxError> {
    let mut found = Vec::new();
    if let Some(root) = jsonc::root(text)? {
        for place in PLACES {
            visit(text, &root, place, &mut Vec::new(), &mut |keys, entry| {
                found.extend(server(text, place, keys, entry).map(|server| (entry.start, server)));
            });
        }
    }
    found.sort_by_key(|(start, _)| *start);
    Ok(found.into_iter().map(|(_, server)| server).collect())
}

/// Goes to all values of a place, with the keys that `*` stood for.
fn visit(
    text: &str,
    value: &Range<usize>,
    place: &[&str],
    keys: &mut Vec<String>,
    found: &mut dyn FnMut(&[String], &Range<usize>),
) {
    let Some((step, rest)) = place.split_first() else {
        return found(keys, value);
    };
    for member in jsonc::members(text, value) {
        if *step == "*" {
            keys.push(member.key);
            visit(text, &member.value, rest, keys, found);
            keys.pop();
        } else if *step == member.key {
            visit(text, &member.value, rest, keys, found);
        }
    }
}

fn server(
    text: &str,
    place: &[&str],
    keys: &[String],
    entry: &Range<usize>,
) -> Option<ClientServer> {
    let (name, above) = keys.split_last()?;
    let is_object = text[entry.clone()].starts_with('{');
    let fields = Fields { text, members: jsonc::members(text, entry) };
    let launch = match is_object {
        true => fields.launch(),
        false => Launch::Odd("it is no object"),
    };
    // Beside opencode's servers are other things.
    let is_server = !matches!(launch, Launch::Odd(_)) || fields.is_started();
    let disabled = fields.is("disabled", "true") || fields.is("enabled", "false");
    (is_server || place != OPENCODE).then(|| ClientServer {
        name: name.clone(),
        project: above.first().cloned(),
        disabled,
        client: if place == OPENCODE { EntryStyle::Opencode } else { EntryStyle::Editor },
        at: entry.start..entry.start + 1,
        given: fields.given(entry),
        debugged: fields.is_debugged(),
        launch,
    })
}

struct Fields<'a> {
    text: &'a str,
    members: Vec<Member>,
}

impl Fields<'_> {
    /// Where a key stands twice, the last counts, as it does for the clients.
    fn get(&self, key: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    fn text_of(&self, key: &str) -> Option<String> {
        jsonc::string(self.text, &self.get(key)?.value)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.get(key).is_some_and(|member| &self.text[member.value.clone()] == value)
    }

    /// The object that a key is.
    fn object(&self, key: &str) -> Option<(Range<usize>, Fields<'_>)> {
        let value = self.get(key)?.value.clone();
        let is_object = self.text[value.clone()].starts_with('{');
        let members = is_object.then(|| jsonc::members(self.text, &value))?;
        Some((value, Fields { text: self.text, members }))
    }

    /// All that the entry says. Cline writes how a server is reached as an object of its own.
    fn given(&self, entry: &Range<usize>) -> Vec<EntryField> {
        let mut given = entry_fields::of_json(self.text, entry);
        if let Some((transport, _)) = self.object("transport") {
            given.retain(|field| field.key != "transport");
            given.extend(entry_fields::of_json(self.text, &transport));
        }
        given
    }

    /// Whether there is a command, be it one that we can't read.
    fn is_started(&self) -> bool {
        let is_value = |member: &Member| self.text[member.value.clone()].starts_with(['"', '[']);
        self.get("command").is_some_and(is_value)
    }

    /// Whether VS Code puts the debugger between the command and its first argument.
    fn is_debugged(&self) -> bool {
        let dev = self.get("dev").map(|dev| jsonc::members(self.text, &dev.value));
        dev.is_some_and(|dev| dev.iter().any(|member| member.key == "debug"))
    }

    fn launch(&self) -> Launch {
        if let Some((_, transport)) = self.object("transport") {
            return transport.launch();
        }
        let is_remote_type =
            self.text_of("type").is_some_and(|kind| REMOTE_TYPES.contains(&kind.as_str()));
        let is_remote = ["url", "serverUrl", "httpUrl"].iter().any(|key| self.get(key).is_some());
        let Some(command) = self.get("command").filter(|_| !is_remote_type) else {
            return match is_remote || is_remote_type {
                true => Launch::Remote,
                false => Launch::Odd("it has neither a command nor an address"),
            };
        };
        if let Some(list) = self.list(&command.value) {
            return Launch::Whole(list);
        }
        // An older Zed's.
        if let Some((_, command)) = self.object("command") {
            return command.split("path");
        }
        self.split("command")
    }

    /// A program under a key, and its arguments under `args`.
    fn split(&self, key: &str) -> Launch {
        let program = self
            .get(key)
            .and_then(|command| Some((command, jsonc::string(self.text, &command.value)?)));
        let Some((command, program)) = program else {
            return Launch::Odd("its command is no text");
        };
        let args = match self.get("args") {
            None => None,
            Some(args) => match self.list(&args.value) {
                Some(list) => Some(Args { key: args.key_range.clone(), list }),
                None => return Launch::Odd("its `args` are no list"),
            },
        };
        let lead = args.is_none().then(|| self.lead(command));
        let command = SpannedText { range: command.value.clone(), text: program };
        Launch::Split(Split { command, args, lead })
    }

    fn list(&self, value: &Range<usize>) -> Option<List> {
        let word = |range: Range<usize>| {
            let text = jsonc::string(self.text, &range).unwrap_or_default();
            SpannedText { range, text }
        };
        let (elements, ends_with_comma) = jsonc::elements(self.text, value)?;
        let words = elements.into_iter().map(word).collect();
        Some(List { range: value.clone(), words, ends_with_comma })
    }

    /// The key of a list of arguments after the command, written as the command is.
    fn lead(&self, command: &Member) -> String {
        let between = &self.text[command.key_range.end..command.value.start];
        let is_plain = between.chars().all(|c| c == ':' || c == ' ');
        let colon = if is_plain { between } else { ": " };
        let space = match line_break(&self.text[..command.key_range.start]) {
            Some(line_break) => line_break,
            None if colon == ":" => "",
            None => " ",
        };
        format!(",{space}\"args\"{colon}")
    }
}
