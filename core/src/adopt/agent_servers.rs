//! Owns the search for the MCP servers that an agent would start by itself, so that afresh can stand in front of
//! each. Driven by `afresh run`, with the texts of the agent's own files. Never changes one of them: its result is
//! laid over them when a session starts. Where it cannot be known what the agent would start, nothing is laid over:
//! a server that was turned off must not come back.

use super::value::read_value;
use super::wrap::{is_afresh, label};
use crate::agent::servers::{ConfigText, Layer, ProjectContext, ServerEntry};
use crate::agent::{AgentKind, AgentServer};
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
    let rules = query.agent.server_rules();
    let decides = |word: &&String| rules.flags.contains(&word.split('=').next().unwrap_or(word));
    if let Some(flag) = query.program.iter().find(decides) {
        let note = format!("`{}` of the agent's command says which there are", harmless(flag));
        return AgentServers { note: Some(note), ..AgentServers::default() };
    }
    let mut found = AgentServers::default();
    let mut values = Vec::new();
    for text in texts {
        match read_value(&text.path, &text.bytes, rules.syntax, HINT) {
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
    let entries = (rules.entries)(query.context, values);
    match entries {
        Ok(entries) => {
            let servers = entries.into_iter();
            found.servers = servers.filter_map(|entry| supervised(query, entry)).collect();
        }
        Err(note) => found.note = Some(note),
    }
    found
}

const HINT: &str = "correct it; the run goes on without standing in front of the servers there";

/// The entry of a server with afresh in front of it; none where it is to stay as it is.
fn supervised(query: &ServerQuery<'_>, entry: ServerEntry) -> Option<SupervisedServer> {
    let ServerEntry { name, value, from } = entry;
    let rules = query.agent.server_rules();
    let words = (rules.words)(&value)?;
    if words.first().is_none_or(String::is_empty) || is_behind_afresh(&words) {
        return None;
    }
    let ours = ["mcp".to_owned(), "--name".to_owned(), label(&name), "--".to_owned()];
    let command = [query.afresh.to_owned()].into_iter().chain(ours).chain(words).collect();
    Some(SupervisedServer {
        server: AgentServer { name, command, rest: (rules.rest)(value) },
        from,
    })
}

fn is_behind_afresh(words: &[String]) -> bool {
    words.windows(2).any(|two| is_afresh(&two[0]) && ["mcp", "gateway"].contains(&two[1].as_str()))
}

#[cfg(test)]
mod tests;
