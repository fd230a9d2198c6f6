//! Owns the making of the gateway: `[gateway]` and its servers. Driven by `Config::gateway`. Never quotes a
//! secret.

use std::path::PathBuf;

use super::services::with_own;
use super::tokens::{check_token, make_tokens, tokens};
use super::{Table, TableEntry};
use crate::address::url_host;
use crate::config::key::{Key, Pairs};
use crate::config::keys::server::ShareKind;
use crate::config::keys::{TableKind, gateway, server, token};
use crate::config::settings::Values;
use crate::config::{Config, Errors, FileKind};
use crate::gateway::backend::{Backend, HttpServer, Prefix, Share, StdioServer, Transport};
use crate::gateway::settings::{FrontAddress, FrontSettings, Gateway};
use crate::gateway::variables::{ExpansionError, Style, VariableScope};
use crate::limits::FRONT_SIGN_MIN;
use crate::report::{ConfigError, ErrorKind};

/// Where clients on this machine have the token of a gateway: no server needs it.
const CLIENT_TOKEN_VARIABLE: &str = "AFRESH_GATEWAY_TOKEN";

/// What the files do not say themselves.
#[derive(Clone, Copy)]
pub struct ExternalValues<'a> {
    /// The environment.
    pub env: &'a [(String, String)],
    /// What is in each of [`Config::token_files`], or why it cannot be
    /// read.
    pub files: &'a [(PathBuf, Result<String, String>)],
}

/// The servers that count.
pub(super) fn servers(tables: &[Table]) -> impl Iterator<Item = &Table> {
    let of_kind = tables.iter().filter(|table| table.kind == TableKind::Server);
    of_kind.filter(|table| {
        let is_whole = [&server::COMMAND.field, &server::URL.field]
            .iter()
            .any(|key| table.entry(key).is_some());
        // Part of a server of some other project: in this one there is nothing to be changed.
        table.from == FileKind::Workspace || is_whole
    })
}

/// Checks all that can be without the environment.
pub(super) fn check_gateway(tables: &[Table], defaults: &Values, errors: &mut Errors) {
    let all: Vec<Table> = servers(tables).cloned().collect();
    super::check_names(&all, errors);
    for table in &all {
        check_server(table, defaults, errors);
    }
    for table in tokens(tables) {
        check_token(table, &all, errors);
    }
}

impl Config {
    /// From `[gateway]` and each `[server.NAME]` that is not turned off, with variables filled in. On
    /// failure, every error is returned.
    pub fn gateway(&self, outside: &ExternalValues<'_>) -> Result<Gateway, Vec<ConfigError>> {
        let mut errors = Errors::default();
        let scope = VariableScope { env: outside.env, workspace: "" };
        let own = self.tables.iter().find(|table| table.kind == TableKind::Gateway);
        let wanted = servers(&self.tables).filter(|table| server::ENABLED.get(*table));
        let untrusted = self.untrusted_names(&["server.", "gateway."]);
        let (mut servers, mut left_out, mut left) = (Vec::new(), Vec::new(), Errors::default());
        for table in wanted {
            let mut errors = Errors::default();
            match (ServerMaker { table, scope: &scope, errors: &mut errors }).backend(&self.values)
            {
                Some(server) => servers.push(server),
                None => left_out.extend(errors.reason().map(|why| (table.name.clone(), why))),
            }
            errors.0.into_iter().for_each(|error| left.push(error));
        }
        // One that cannot be used does not take the others with it.
        if servers.is_empty() && untrusted.is_empty() {
            left.0.into_iter().for_each(|error| errors.push(error));
        }
        let gateway = Gateway {
            servers,
            left_out,
            expose: gateway::EXPOSE.get(&own),
            admin_tools: gateway::TOOLS.get(&own),
            start_wait: gateway::START_WAIT.get(&own),
            era: gateway::ERA.get(&own),
            front: FrontSettings {
                tokens: make_tokens(&self.tables, outside, &mut errors),
                ..front(own)
            },
            otlp: gateway::OTLP.find(&own),
            own_variables: self.token_variables(),
            untrusted,
        };
        errors.or(gateway)
    }

    /// The names of what is not trusted and begins with one of these.
    pub fn untrusted_names(&self, beginnings: &[&str]) -> Vec<String> {
        let is_meant = |name: &String| beginnings.iter().any(|begin| name.starts_with(begin));
        self.untrusted.iter().map(|request| request.name.clone()).filter(is_meant).collect()
    }

    /// Whether there is a server that is not turned off.
    pub fn has_servers(&self) -> bool {
        servers(&self.tables).any(|table| server::ENABLED.get(table))
    }

    /// The files of variables that the project's file gives to servers, with the name of each server.
    pub fn project_env_files(&self) -> Vec<(String, PathBuf)> {
        let file = |table: &Table| {
            let entry = table.entry(&server::ENV_FILE.field)?;
            let path = server::ENV_FILE.find(table)?;
            (entry.from == FileKind::Workspace).then(|| (table.name.clone(), path))
        };
        servers(&self.tables).filter(|table| server::ENABLED.get(*table)).filter_map(file).collect()
    }

    /// The files that hold tokens of the gateway, as they are written; a relative path counts from the
    /// workspace.
    pub fn token_files(&self) -> Vec<PathBuf> {
        tokens(&self.tables).filter_map(|table| token::TOKEN_FILE.find(table)).collect()
    }

    /// The variables that hold tokens of the gateway. Those of tables that are not trusted do not count: a clone could
    /// take `PATH` from the servers.
    fn token_variables(&self) -> Vec<String> {
        let own = tokens(&self.tables).filter_map(|table| token::TOKEN_ENV.find(table));
        own.chain([CLIENT_TOKEN_VARIABLE.to_owned()]).collect()
    }

    /// What is wrong where git tracks the project's file: each token that stands in it.
    pub fn tracked_tokens(&self) -> Vec<ConfigError> {
        let given = tokens(&self.tables).filter_map(|table| table.entry(&token::TOKEN.field));
        let given = given.filter(|entry| entry.from == FileKind::Workspace);
        let error = |entry: &TableEntry| {
            let message = "`token` stands in a file that git tracks, so that all who have the repository know it";
            let hint = "write a new one into a file that git ignores, and name that by `token_file`, or use `token_env`";
            entry.place.error(ErrorKind::BadValue, message.to_owned(), hint.to_owned())
        };
        given.map(error).collect()
    }
}

fn front(table: Option<&Table>) -> FrontSettings {
    FrontSettings {
        http: gateway::HTTP.find(&table).map(FrontAddress::Port),
        allowed_hosts: gateway::ALLOWED_HOSTS.find(&table).unwrap_or_default(),
        allowed_origins: gateway::ALLOWED_ORIGINS.find(&table).unwrap_or_default(),
        clients_max: gateway::CLIENTS_MAX.get(&table),
        body_bytes_max: gateway::BODY_MAX.get(&table),
        requests_per_second: gateway::REQUESTS_PER_SECOND.get(&table),
        session_idle: gateway::SESSION_IDLE.get(&table),
        keep_alive: gateway::KEEP_ALIVE.find(&table).flatten().map(|time| time.max(FRONT_SIGN_MIN)),
        tokens: Vec::new(),
        token_file: None,
    }
}

#[cfg(test)]
mod tests;

/// Checks all but what variables stand for: these may be set where the gateway is started alone.
fn check_server(table: &Table, defaults: &Values, errors: &mut Errors) {
    let name = &table.name;
    let targets = [&server::COMMAND.field, &server::URL.field];
    let Some(target) = targets.into_iter().find_map(|key| table.entry(key)) else {
        let message = format!("server `{name}` has neither `command` nor `url`");
        let hint = "add `command = [\"program\", \"argument\"]` or `url = \"http://…\"`";
        return errors.push(table.missing(message, hint));
    };
    let mut said: Vec<&str> = Vec::new();
    for entry in &table.entries {
        let key = entry.path.split('.').next().unwrap_or_default();
        let of = table.kind.belongs_to(&entry.path);
        if of.is_none_or(|of| of == target.path) || said.contains(&key) {
            continue;
        }
        said.push(key);
        let message = format!("`{key}` does not go with `{}`", target.path);
        let hint = match of {
            Some("url") => "it is for a server that is reached over HTTP: remove it",
            _ => "it is for a server that afresh starts itself: remove it",
        };
        errors.push(entry.place.error(ErrorKind::Conflict, message, hint.to_owned()));
    }
    check_share(table, errors);
    if let Err(error) = with_own(table, defaults).check_delays() {
        errors.push(*error);
    }
}

/// Your own file may say `share = "all"` about a server of which a project says more.
fn check_share(table: &Table, errors: &mut Errors) {
    let share = table.entry(&server::SHARE.field);
    if server::SHARE.get(table) == ShareKind::PerClient {
        return;
    }
    let companions = [&server::INSTANCES_MAX.field, &server::IDLE_AFTER.field];
    for entry in companions.into_iter().filter_map(|key| table.entry(key)) {
        if share.is_none_or(|share| share.from == entry.from) {
            let message = format!("`{}` goes with `share = \"per-client\"`", entry.path);
            let hint = "remove it, or add `share = \"per-client\"`".to_owned();
            errors.push(entry.place.error(ErrorKind::Conflict, message, hint));
        }
    }
}

/// The making of a server that was checked, with its variables filled in. What is missing is added to the errors.
struct ServerMaker<'a> {
    table: &'a Table,
    scope: &'a VariableScope<'a>,
    errors: &'a mut Errors,
}

impl ServerMaker<'_> {
    fn backend(&mut self, defaults: &Values) -> Option<Backend> {
        let table = self.table;
        let transport = match server::COMMAND.find(table) {
            Some(command) => Transport::Stdio(Box::new(self.stdio(command, defaults)?)),
            None => Transport::Http(self.http()?),
        };
        Some(Backend {
            name: table.name.clone(),
            pin: server::PIN.find(table).unwrap_or_else(|| transport.usual_pin()),
            transport,
            prefix: match server::PREFIX.find(table).as_deref() {
                None => Prefix::Name,
                Some("" | "none") => Prefix::None,
                Some(text) => Prefix::Text(text.to_owned()),
            },
            allow: server::ALLOW.find(table),
            deny: server::DENY.find(table).unwrap_or_default(),
            share: match server::SHARE.get(table) {
                ShareKind::All => Share::All,
                ShareKind::PerClient => Share::PerClient {
                    instances_max: server::INSTANCES_MAX.get(table),
                    idle_after: server::IDLE_AFTER.get(table),
                },
            },
            hide_when_down: server::HIDE_WHEN_DOWN.get(table),
            call_timeout: server::CALL_TIMEOUT.get(table),
            in_flight_max: server::IN_FLIGHT_MAX.get(table),
        })
    }

    fn stdio(&mut self, command: Vec<String>, defaults: &Values) -> Option<StdioServer> {
        let (args, env) = (self.list(&server::ARGS), self.below(&server::ENV));
        let watch = server::WATCH.find(self.table).unwrap_or_default();
        Some(StdioServer {
            command: [command, args?].concat(),
            cwd: server::CWD.find(self.table),
            env: env?,
            inherit_env: server::INHERIT_ENV.get(self.table),
            env_file: server::ENV_FILE.find(self.table),
            watch: watch.into_iter().map(Into::into).collect(),
            ..with_own(self.table, defaults).stdio()
        })
    }

    fn http(&mut self) -> Option<HttpServer> {
        let headers = self.below(&server::HEADERS);
        let entry = self.table.entry(&server::URL.field)?;
        let url = self.fill(entry, &entry.value.to_string())?;
        if url_host(&url).is_none() {
            return self.bad_text(entry, "is no URL that begins with `http://` or `https://`");
        }
        Some(HttpServer { url, headers: headers?, sse: server::SSE.find(self.table) })
    }

    fn fill(&mut self, entry: &TableEntry, text: &str) -> Option<String> {
        let is_bad = |full: &str| match entry.path.starts_with("headers.") {
            true => full.contains(char::is_control),
            false => full.contains('\0'),
        };
        let gap = match self.scope.expand(text, Style::Ours) {
            Ok(full) if is_bad(&full) => {
                return self.bad_text(entry, "has a character that it cannot have");
            }
            Ok(full) => return Some(full),
            Err(gap) => gap,
        };
        let message = format!("`{}` of server `{}` {gap}", entry.path, self.table.name);
        let hint = match &gap {
            ExpansionError::Unset(name) => {
                format!("{}, or write `${{{name}:-default}}`", gap.hint())
            }
            _ => format!("{}; a `$` itself is `$$`", gap.hint()),
        };
        self.errors.push(entry.place.error(ErrorKind::Missing, message, hint));
        None
    }

    fn bad_text<T>(&mut self, entry: &TableEntry, what: &str) -> Option<T> {
        let message = format!(
            "`{}` of server `{}` {what}, once its variables are filled in",
            entry.path, self.table.name
        );
        let hint = "look at the variables in it".to_owned();
        self.errors.push(entry.place.error(ErrorKind::BadValue, message, hint));
        None
    }

    fn list(&mut self, key: &Key<Vec<String>>) -> Option<Vec<String>> {
        let Some(entry) = self.table.entry(&key.field) else { return Some(Vec::new()) };
        let items = key.find(self.table).unwrap_or_default();
        let items: Vec<_> = items.iter().map(|item| self.fill(entry, item)).collect();
        items.into_iter().collect()
    }

    fn below(&mut self, key: &Key<Pairs>) -> Option<Vec<(String, String)>> {
        let given = self.table.below(key);
        let fill = |(name, entry): (&str, &TableEntry)| {
            Some((name.to_owned(), self.fill(entry, &entry.value.to_string())?))
        };
        // Each of them is filled in, so that every error is reported.
        let all: Vec<Option<(String, String)>> = given.map(fill).collect();
        all.into_iter().collect()
    }
}
