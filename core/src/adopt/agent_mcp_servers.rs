//! Owns the search for the MCP servers that an agent would start by itself, so that afresh can stand in front of
//! each; reads their files as one value, as the agent does. Driven by `afresh run`. Never changes one of them: its result is
//! laid over them when a session starts. Where it cannot be known what the agent would start, nothing is laid over:
//! a server that was turned off must not come back.

use std::ops::Range;

use serde_json::{Map, Value};
use toml_edit::{Document, Item, Table, Value as Toml};

use super::invocation::names_afresh;
use super::wrapper::label;
use super::{SourceText, jsonc};
use crate::agent::mcp_servers::{ConfigText, Layer, ProjectContext, ServerEntry};
use crate::agent::{AgentKind, AgentServer};
use crate::client_file_paths::FileSyntax;
use crate::report::ConfigError;
use crate::text::harmless;

/// The agent whose servers are searched.
#[derive(Clone, Copy, Debug)]
pub struct ServerQuery<'a> {
    /// The agent.
    pub agent: AgentKind,
    /// The program of the agent, and arguments that come before ours.
    pub program: &'a [String],
    /// The project that it works in.
    pub context: &'a ProjectContext<'a>,
    /// The command of afresh.
    pub afresh: &'a str,
}

/// The servers of an agent.
#[derive(Debug, Default)]
pub struct AgentServers {
    /// The servers that afresh will stand in front of, by name.
    pub servers: Vec<SupervisedServer>,
    /// Why none is, where that is not what the files say.
    pub note: Option<String>,
    /// Files that cannot be understood.
    pub mistakes: Vec<Box<ConfigError>>,
    /// Servers of the project that the user has not accepted, by the names of their requests: whether they are
    /// started is for the agent alone to say.
    pub untrusted: Vec<String>,
}

/// A server that afresh will stand in front of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisedServer {
    /// Its entry for the agent.
    pub server: AgentServer,
    /// The file that says how it is started.
    pub from: String,
}

/// Finds the servers in the texts of those [`AgentKind::config_files`] that exist, which are in the same order.
pub fn find(query: &ServerQuery<'_>, texts: &[ConfigText]) -> AgentServers {
    let rules = &query.agent.profile().servers;
    let supervise = |entry| supervised(query, entry);
    let decides = |word: &&String| rules.flags.contains(&word.split('=').next().unwrap_or(word));
    if let Some(flag) = query.program.iter().find(decides) {
        let note = format!("`{}` of the agent's command says which there are", harmless(flag));
        return AgentServers { note: Some(note), ..AgentServers::default() };
    }
    let mut found = AgentServers::default();
    let mut values = Vec::new();
    for text in texts {
        match read_value(text, rules.syntax) {
            Ok(value) => values.push((text, value)),
            Err(mistake) => {
                found.mistakes.push(mistake);
                // Servers can be turned off there.
                if text.layer != Layer::Additions {
                    found.note = Some(format!("`{}` cannot be understood", harmless(&text.path)));
                }
            }
        }
    }
    if found.note.is_some() {
        return found;
    }
    match (rules.entries)(query.context, values) {
        Ok(entries) => found.servers = entries.into_iter().filter_map(supervise).collect(),
        Err(note) => found.note = Some(note),
    }
    found
}

const HINT: &str = "correct it; the run goes on without standing in front of the servers there";

/// The entry of a server with afresh in front of it; none where it is to stay as it is.
fn supervised(query: &ServerQuery<'_>, entry: ServerEntry) -> Option<SupervisedServer> {
    let ServerEntry { name, value, from } = entry;
    let rules = &query.agent.profile().servers;
    let words = (rules.words)(&value)?;
    let is_ours =
        |two: &[String]| names_afresh(&two[0]) && ["mcp", "gateway"].contains(&two[1].as_str());
    if words.first().is_none_or(String::is_empty) || words.windows(2).any(is_ours) {
        return None;
    }
    let ours = ["mcp".to_owned(), "--name".to_owned(), label(&name), "--".to_owned()];
    let command = [query.afresh.to_owned()].into_iter().chain(ours).chain(words).collect();
    let server = AgentServer { name, command, rest: (rules.rest)(value) };
    Some(SupervisedServer { server, from })
}

/// Reads a configuration; one without anything in it is an empty object.
fn read_value(text: &ConfigText, syntax: FileSyntax) -> Result<Value, Box<ConfigError>> {
    let source = SourceText::check(&text.path, &text.bytes, HINT)?;
    if syntax == FileSyntax::Toml {
        let document = Document::parse(source.text).map_err(|wrong| source.toml_error(&wrong))?;
        return Ok(of_item(document.as_item()));
    }
    let root = jsonc::root(source.text).map_err(|wrong| source.json_error(wrong))?;
    let Some(root) = root else { return Ok(Value::Object(Map::new())) };
    if syntax == FileSyntax::Jsonc {
        return Ok(of_json(source.text, &root));
    }
    serde_json::from_str(source.text).map_err(|_| {
        let message = "this is JSON with comments or commas that its reader does not take";
        source.error(message.to_owned(), 0..0)
    })
}

/// The value of a range in a text that [`jsonc::root`] has checked. Where a key stands twice, the last counts.
fn of_json(text: &str, range: &Range<usize>) -> Value {
    match text.as_bytes().get(range.start) {
        Some(b'{') => {
            let members = jsonc::members(text, range).into_iter();
            Value::Object(members.map(|it| (it.key, of_json(text, &it.value))).collect())
        }
        Some(b'[') => {
            let elements = jsonc::elements(text, range).map(|(all, _)| all).unwrap_or_default();
            Value::Array(elements.iter().map(|element| of_json(text, element)).collect())
        }
        _ => serde_json::from_str(&text[range.clone()]).unwrap_or(Value::Null),
    }
}

fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => of_toml(value),
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(of_table).collect(),
    }
}

fn of_table(table: &Table) -> Value {
    table.iter().map(|(key, item)| (key.to_owned(), of_item(item))).collect()
}

/// Dates become texts: nothing that is looked at here is one.
fn of_toml(value: &Toml) -> Value {
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(is) => Value::from(*is.value()),
        Toml::Datetime(date) => Value::from(date.value().to_string()),
        Toml::Array(array) => array.iter().map(of_toml).collect(),
        Toml::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), of_toml(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests;
