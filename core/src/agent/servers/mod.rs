//! The MCP servers that an agent would start by itself, so that afresh can stand in front of each.
//!
//! Reads what the agent's own files say, in the agent's own order, and changes none of them: what comes out is
//! laid over them when a session starts. Where it cannot be known what the agent would start, nothing is laid
//! over: a server that somebody has turned off must not come back by way of us.

mod claude;
mod config_files;

use std::path::Path;

use serde_json::{Map, Value};

pub use self::config_files::{Layer, Place, Source, repository_of_worktree, sources};
use super::{AgentKind, Server};
use crate::adopt::{Written, is_afresh, label, read_value};
use crate::report::ConfigError;
use crate::text::harmless;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Text {
    /// What it is to the agent.
    pub layer: Layer,
    /// Where it is, as people would write it.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose servers.
    pub agent: AgentKind,
    /// The program of the agent, and arguments that come before ours.
    pub program: &'a [String],
    /// Where it works.
    pub place: &'a Place<'a>,
    /// How afresh is called.
    pub afresh: &'a str,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The servers that afresh will stand in front of, by name.
    pub servers: Vec<Supervised>,
    /// Why none is, where that is not what the files say.
    pub note: Option<String>,
    /// Files that cannot be understood.
    pub mistakes: Vec<Box<ConfigError>>,
}

/// A server that afresh will stand in front of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervised {
    /// What the agent is told.
    pub server: Server,
    /// The file that says how it is started.
    pub from: String,
}

/// Finds the servers in the texts of those [`sources`] that exist, which are in the same order.
pub fn find(wanted: &Wanted<'_>, texts: &[Text]) -> Found {
    if let Some(flag) = wanted.program.iter().find(|word| decides(wanted.agent, word)) {
        let note = format!("`{}` of the agent's command says which there are", harmless(flag));
        return Found { note: Some(note), ..Found::default() };
    }
    let mut found = Found::default();
    let mut values = Vec::new();
    for text in texts {
        match read_value(&text.path, &text.bytes, written(text.layer), HINT) {
            Ok(value) => values.push((text, value)),
            Err(mistake) => {
                found.mistakes.push(mistake);
                // Servers can be turned off there.
                if text.layer != Layer::ClaudeProject {
                    found.note = Some(format!("`{}` cannot be understood", harmless(&text.path)));
                }
            }
        }
    }
    if found.note.is_some() {
        return found;
    }
    let entries = match wanted.agent {
        AgentKind::Claude => claude::entries(wanted.place, values),
        AgentKind::Codex => codex(wanted.place, values),
        AgentKind::Opencode => Ok(merged(values, "mcp")),
        AgentKind::Command => Ok(Vec::new()),
    };
    match entries {
        Ok(entries) => {
            let servers = entries.into_iter();
            found.servers = servers.filter_map(|entry| supervised(wanted, entry)).collect();
        }
        Err(note) => found.note = Some(note),
    }
    found
}

const HINT: &str = "correct it; the run goes on without standing in front of the servers there";

fn written(layer: Layer) -> Written {
    match layer {
        Layer::ClaudeOwn | Layer::ClaudeProject | Layer::ClaudeSettings | Layer::ClaudeManaged => {
            Written::Json
        }
        Layer::Codex | Layer::CodexProject => Written::Toml,
        Layer::Opencode => Written::Jsonc,
    }
}

/// Whether a word of the agent's command changes which servers there are.
fn decides(agent: AgentKind, word: &str) -> bool {
    let flags: &[&str] = match agent {
        AgentKind::Claude => {
            &["--mcp-config", "--strict-mcp-config", "--setting-sources", "--bare", "--safe-mode"]
        }
        AgentKind::Codex => &["-c", "--config", "-p", "--profile"],
        AgentKind::Opencode | AgentKind::Command => &[],
    };
    flags.contains(&word.split('=').next().unwrap_or(word))
}

/// The entry of a server, as all files together have it.
struct Entry {
    name: String,
    value: Map<String, Value>,
    /// The file that its command is from.
    from: String,
}

/// The entries below a key of all files: an object is merged, all else is replaced by what comes later.
fn merged(values: Vec<(&Text, Value)>, key: &str) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for (text, mut value) in values {
        let Some(Value::Object(servers)) = value.get_mut(key).map(Value::take) else { continue };
        for (name, value) in servers {
            let Value::Object(value) = value else { continue };
            let at = all.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
                all.push(Entry { name, value: Map::new(), from: text.path.clone() });
                all.len() - 1
            });
            if value.contains_key("command") {
                all[at].from = text.path.clone();
            }
            merge(&mut all[at].value, value);
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// The entries of Codex. A project's file counts where the user has said that the project is trusted.
fn codex(place: &Place<'_>, mut values: Vec<(&Text, Value)>) -> Result<Vec<Entry>, String> {
    let mut trusted = false;
    for (text, value) in values.iter().filter(|(text, _)| text.layer == Layer::Codex) {
        if value.get("project_root_markers").is_some() {
            // Which files are the project's is then for nobody else to say.
            return Err(format!("`{}` has `project_root_markers`", harmless(&text.path)));
        }
        let level = |folder: &Path| {
            let project = value.get("projects")?.get(folder.to_str()?)?;
            project.get("trust_level").and_then(Value::as_str)
        };
        let folders = [Some(place.folder), place.repository, place.project];
        let level = folders.into_iter().flatten().find_map(level);
        trusted = level.map_or(trusted, |level| level == "trusted");
    }
    values.retain(|(text, _)| trusted || text.layer == Layer::Codex);
    Ok(merged(values, "mcp_servers"))
}

/// What the agent is told of a server; none where it is to stay as it is.
fn supervised(wanted: &Wanted<'_>, entry: Entry) -> Option<Supervised> {
    let Entry { name, mut value, from } = entry;
    let words = match wanted.agent {
        AgentKind::Opencode => {
            let is_local = value.get("type").and_then(Value::as_str) == Some("local");
            let is_on = value.get("enabled") != Some(&Value::Bool(false));
            texts(value.get("command")?).filter(|_| is_local && is_on)?
        }
        AgentKind::Codex => {
            let is_on = value.get("enabled") != Some(&Value::Bool(false));
            let is_here = value.get("environment_id").is_none_or(|id| id == "local");
            let is_stdio = value.get("url").is_none();
            split_words(&value).filter(|_| is_on && is_here && is_stdio)?
        }
        AgentKind::Claude | AgentKind::Command => {
            let is_stdio = value.get("type").is_none_or(|kind| kind == "stdio");
            split_words(&value).filter(|_| is_stdio)?
        }
    };
    // A path that is relative to the file would be relative to something else.
    let is_moved =
        wanted.agent == AgentKind::Opencode && words.iter().any(|word| word.contains("{file:"));
    if is_moved || words.first().is_none_or(String::is_empty) || is_behind_afresh(&words) {
        return None;
    }
    let ours = ["mcp".to_owned(), "--name".to_owned(), label(&name), "--".to_owned()];
    let command = [wanted.afresh.to_owned()].into_iter().chain(ours).chain(words).collect();
    // Claude Code takes one entry or the other; the others lay one over the other.
    match wanted.agent {
        AgentKind::Claude => drop((value.remove("command"), value.remove("args"))),
        AgentKind::Codex | AgentKind::Opencode | AgentKind::Command => value.clear(),
    }
    Some(Supervised { server: Server { name, command, rest: value }, from })
}

/// The words of a command with a list of arguments.
fn split_words(entry: &Map<String, Value>) -> Option<Vec<String>> {
    let command = entry.get("command")?.as_str()?.to_owned();
    let arguments = entry.get("args").map_or(Some(Vec::new()), texts)?;
    Some([command].into_iter().chain(arguments).collect())
}

fn texts(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

fn is_behind_afresh(words: &[String]) -> bool {
    words.windows(2).any(|two| is_afresh(&two[0]) && ["mcp", "gateway"].contains(&two[1].as_str()))
}

#[cfg(test)]
mod tests;
