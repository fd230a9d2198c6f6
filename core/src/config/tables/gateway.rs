//! Owns the making of the gateway: `[gateway]`, its tokens and its servers. Driven by `Config::gateway`. Never quotes a
//! secret.

use std::path::PathBuf;

use super::{Errors, Table, TableEntry, TableKind, server};
use crate::config::FileKind;
use crate::config::keys::gateway::{
    ALLOWED_HOSTS, ALLOWED_ORIGINS, BODY_MAX, CLIENTS_MAX, EXPOSE, HTTP, KEEP_ALIVE, OTLP,
    REQUESTS_PER_SECOND, SESSION_IDLE, TOOLS,
};
use crate::config::keys::server::{COMMAND, ENABLED, URL};
use crate::config::keys::token;
use crate::config::resolve::Values;
use crate::gateway::access::{Access, fits_one};
use crate::gateway::settings::{FrontSettings, Gateway, Token};
use crate::gateway::variables::VariableScope;
use crate::limits::{CONFIG_ERRORS_MAX, FRONT_SIGN_MIN, TOKEN_CHARS_MAX, TOKEN_CHARS_MIN};
use crate::report::{ConfigError, ErrorKind};
use crate::suggest::nearest;
use crate::text::printable;

/// What the files do not say themselves.
#[derive(Clone, Copy)]
pub struct ExternalValues<'a> {
    /// The environment.
    pub env: &'a [(String, String)],
    /// What is in each of [`Config::token_files`](crate::config::Config::token_files), or why it cannot be
    /// read.
    pub files: &'a [(PathBuf, Result<String, String>)],
}

/// The servers that count.
pub(super) fn servers(tables: &[Table]) -> impl Iterator<Item = &Table> {
    let of_kind = tables.iter().filter(|table| table.kind == TableKind::Server);
    of_kind.filter(|table| {
        let is_whole = [COMMAND.field(), URL.field()].iter().any(|key| table.entry(key).is_some());
        // Part of a server of some other project: in this one there is nothing to be changed.
        table.from == FileKind::Workspace || is_whole
    })
}

/// Checks all that can be without the environment.
pub(super) fn check(tables: &[Table], defaults: &Values, errors: &mut Errors<'_>) {
    let all: Vec<Table> = servers(tables).cloned().collect();
    super::check_names(&all, errors);
    for table in &all {
        server::check(table, defaults, errors);
    }
    for table in tokens(tables) {
        check_token(table, &all, errors);
    }
}

/// Makes the gateway.
pub(in super::super) fn make(
    tables: &[Table],
    defaults: &Values,
    outside: &ExternalValues<'_>,
) -> Result<Gateway, Vec<ConfigError>> {
    let mut all = Vec::new();
    let mut errors = Errors { all: &mut all, limit: CONFIG_ERRORS_MAX };
    let scope = VariableScope { env: outside.env, workspace: "" };
    let own = tables.iter().find(|table| table.kind == TableKind::Gateway);
    let wanted = servers(tables).filter(|table| ENABLED.get(*table));
    let gateway = Gateway {
        servers: wanted
            .filter_map(|table| server::make(table, defaults, &scope, &mut errors))
            .collect(),
        expose: EXPOSE.get(&own),
        admin_tools: TOOLS.get(&own),
        front: front(own),
        otlp: OTLP.find(&own),
        tokens: make_tokens(tables, outside, &mut errors),
    };
    if all.is_empty() { Ok(gateway) } else { Err(all) }
}

/// The files that hold tokens.
pub(in super::super) fn token_files(tables: &[Table]) -> Vec<PathBuf> {
    tokens(tables).filter_map(|table| token::TOKEN_FILE.find(table)).collect()
}

fn front(table: Option<&Table>) -> FrontSettings {
    FrontSettings {
        http: HTTP.find(&table),
        allowed_hosts: ALLOWED_HOSTS.find(&table).unwrap_or_default(),
        allowed_origins: ALLOWED_ORIGINS.find(&table).unwrap_or_default(),
        clients_max: CLIENTS_MAX.get(&table),
        body_bytes_max: BODY_MAX.get(&table),
        requests_per_second: REQUESTS_PER_SECOND.get(&table),
        session_idle: SESSION_IDLE.get(&table),
        keep_alive: KEEP_ALIVE.find(&table).flatten().map(|time| time.max(FRONT_SIGN_MIN)),
    }
}

fn tokens(tables: &[Table]) -> impl Iterator<Item = &Table> {
    tables.iter().filter(|table| table.kind == TableKind::Token)
}

/// Where the secret of a token is.
fn secret_entry(table: &Table) -> Option<&TableEntry> {
    let keys = [token::TOKEN.field(), token::TOKEN_ENV.field(), token::TOKEN_FILE.field()];
    keys.into_iter().find_map(|key| table.entry(key))
}

fn check_token(table: &Table, servers: &[Table], errors: &mut Errors<'_>) {
    if secret_entry(table).is_none() {
        let message = format!("token `{}` has no secret", table.name);
        let hint = "add one of `token_env`, `token_file` and `token`";
        errors.push(table.missing(message, hint));
    }
    // Your own file may be about servers that only some projects have, and where there is none here,
    // they come from the file of another program.
    let entry =
        table.entry(token::SERVERS.field()).filter(|entry| entry.from == FileKind::Workspace);
    let Some(entry) = entry.filter(|_| !servers.is_empty()) else { return };
    for pattern in token::SERVERS.find(table).unwrap_or_default() {
        if servers.iter().any(|server| fits_one(&pattern, &server.name)) {
            continue;
        }
        let shown = printable(&pattern);
        let message = format!("token `{}` is for `{shown}`, which is no server", table.name);
        let hint = match nearest(&pattern, servers.iter().map(|server| server.name.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define `[server.{shown}]`, or leave it out"),
        };
        errors.push(entry.place.error(ErrorKind::BadValue, message, hint));
    }
}

fn make_tokens(
    tables: &[Table],
    outside: &ExternalValues<'_>,
    errors: &mut Errors<'_>,
) -> Vec<Token> {
    let mut made: Vec<Token> = Vec::new();
    for table in tokens(tables) {
        let Some(entry) = secret_entry(table) else { continue };
        let access = Access {
            name: table.name.clone(),
            servers: token::SERVERS.find(table),
            tools: token::TOOLS.find(table),
        };
        let secret = match secret(table, entry, outside) {
            Ok(secret) => secret,
            Err((message, hint)) => {
                errors.push(entry.place.error(ErrorKind::Missing, message, hint));
                continue;
            }
        };
        if let Some(twin) = made.iter().find(|token| token.secret == secret) {
            let message =
                format!("tokens `{}` and `{}` are the same", twin.access.name, table.name);
            let hint = "give each its own, or remove one".to_owned();
            errors.push(entry.place.error(ErrorKind::Conflict, message, hint));
            continue;
        }
        made.push(Token { secret, access });
    }
    made
}

/// The secret, or a message and a hint that do not show it.
fn secret(
    table: &Table,
    entry: &TableEntry,
    outside: &ExternalValues<'_>,
) -> Result<String, (String, String)> {
    let name = &table.name;
    let value = entry.value.to_string();
    let text = match entry.path.as_str() {
        "token_env" => match outside.env.iter().find(|(known, _)| *known == value) {
            Some((_, text)) => text.clone(),
            None => {
                let message =
                    format!("token `{name}` needs the variable `{value}`, which is not set");
                let hint = format!("set `{value}` where `afresh gateway` is started");
                return Err((message, hint));
            }
        },
        "token_file" => {
            let file = outside.files.iter().find(|(path, _)| path.as_os_str() == value.as_str());
            match file.map(|(_, text)| text.clone()) {
                Some(Ok(text)) => text,
                other => {
                    let why = other.and_then(Result::err).unwrap_or("it is not there".to_owned());
                    let message =
                        format!("token `{name}` cannot be read from `{}`", printable(&value));
                    return Err((message, why));
                }
            }
        }
        _ => value,
    };
    let text = text.trim();
    match secret_flaw(text) {
        None => Ok(text.to_owned()),
        Some(flaw) => Err((format!("token `{name}` {flaw}"), SECRET_HINT.to_owned())),
    }
}

/// What is wrong with a secret.
pub(super) fn secret_flaw(text: &str) -> Option<String> {
    let length = text.chars().count();
    if length < TOKEN_CHARS_MIN {
        return Some(format!("is shorter than {TOKEN_CHARS_MIN} characters"));
    }
    if length > TOKEN_CHARS_MAX {
        return Some(format!("is longer than {TOKEN_CHARS_MAX} characters"));
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_plain).then(|| "has a character that a header cannot have".to_owned())
}

pub(super) const SECRET_HINT: &str = "make one with `openssl rand -hex 32`";

#[cfg(test)]
mod tests;
