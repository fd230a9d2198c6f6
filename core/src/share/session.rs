//! Owns what a session needs of a server, and what keeps two sessions apart. Made by the shim, compared by the hub. Never
//! shows the value of a variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::is_of_session;

/// The server that a shim's client needs.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionRequest {
    /// What it is called in the log, in commands, and in front of afresh's tools.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The folder that it starts in.
    pub cwd: String,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Variables of the session that count all the same: `--share-env`.
    #[serde(default)]
    pub share_env: Vec<String>,
    /// The flags of `afresh mcp` that give settings: name, setting, value.
    #[serde(default)]
    pub flags: Vec<(String, String, String)>,
    /// Which tools of afresh stand beside the server's: `all`, `restart` or `none`.
    pub tools: String,
    /// What their names begin with.
    #[serde(default)]
    pub tool_prefix: Option<String>,
    /// Files and folders whose changes restart it.
    #[serde(default)]
    pub watch: Vec<String>,
    /// How long the server runs on after its last client.
    #[serde(default)]
    pub idle_timeout_ms: Option<u64>,
    /// The client's roots, once they are known.
    #[serde(default)]
    pub roots: Option<Roots>,
}

/// The roots of a client.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Roots {
    /// It cannot be asked for any.
    #[default]
    Unsupported,
    /// Their URIs, in order.
    Uris(Vec<String>),
}

/// What two sessions must have in common to share a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity(SessionRequest);

impl SessionRequest {
    /// What another session must have in common with it.
    pub fn identity(&self) -> Identity {
        let mut own = self.clone();
        let counts = |name: &String| !is_of_session(name) || self.share_env.contains(name);
        own.env.retain(|name, _| counts(name));
        own.share_env.clear();
        // The last session says how long.
        own.idle_timeout_ms = None;
        // These are compared apart: they come later.
        own.roots = None;
        Identity(own)
    }
}

impl Identity {
    /// What keeps two sessions apart, in words.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let (Self(own), Self(other)) = (self, other);
        let parts = [
            ("command", own.command != other.command),
            ("folder", own.cwd != other.cwd),
            ("flags", own.flags != other.flags || own.watch != other.watch),
            (
                "tools of afresh",
                (&own.tools, &own.tool_prefix) != (&other.tools, &other.tool_prefix),
            ),
            ("name", own.name != other.name),
        ];
        let parts = parts.into_iter().filter(|(_, differs)| *differs);
        let mut all: Vec<String> = parts.map(|(what, _)| what.to_owned()).collect();
        let names: BTreeSet<&String> = own.env.keys().chain(other.env.keys()).collect();
        let differs = |name: &&String| own.env.get(*name) != other.env.get(*name);
        all.extend(names.into_iter().filter(differs).map(|name| format!("variable {name}")));
        all
    }

    /// The name that the server is to have.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both start the same program, for the question what keeps them apart.
    pub fn is_same_program(&self, other: &Self) -> bool {
        self.0.name == other.0.name || self.0.command == other.0.command
    }
}

impl fmt::Debug for SessionRequest {
    /// Without arguments and values: they hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(env: &[(&str, &str)]) -> SessionRequest {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        SessionRequest {
            name: "docs".to_owned(),
            command: vec!["node".to_owned()],
            env: env.iter().map(own).collect(),
            ..SessionRequest::default()
        }
    }

    #[test]
    fn variables_of_a_session_count_only_where_that_is_said() {
        let one = request(&[("PATH", "/bin"), ("SSH_TTY", "1")]);
        let other = request(&[("PATH", "/bin"), ("WINDOWID", "2")]);
        assert!(one.identity() == other.identity());
        let strict = |request: &SessionRequest| {
            let share_env = vec!["SSH_TTY".to_owned()];
            SessionRequest { share_env, ..request.clone() }.identity()
        };
        assert!(strict(&one) != strict(&other));
        assert_eq!(strict(&one).differences(&strict(&other)), ["variable SSH_TTY"]);
    }

    #[test]
    fn what_keeps_sessions_apart_is_said_without_values() {
        let one = request(&[("TOKEN", "secret-1")]);
        let mut other = request(&[("TOKEN", "secret-2"), ("B", "x")]);
        (other.cwd, other.tools) = ("/other".to_owned(), "none".to_owned());
        let told = one.identity().differences(&other.identity());
        assert_eq!(told, ["folder", "tools of afresh", "variable B", "variable TOKEN"]);
        assert!(!format!("{other:?} {:?}", other.identity()).contains("secret"));
        let patient = SessionRequest { idle_timeout_ms: Some(1), ..one.clone() };
        assert!(patient.identity() == one.identity());
    }
}
