//! The gateway as a whole: `[gateway]`, its tokens, and the servers.

use std::path::PathBuf;

use super::super::FileKind;
use super::super::kind::Value;
use super::super::resolve::Values;
use super::{Content, Entry, Errors, Table, TableKind, server};
use crate::gateway::access::{Access, fits_one};
use crate::gateway::backend::Expose;
use crate::gateway::settings::{Front, Gateway, Token};
use crate::gateway::variables::Scope;
use crate::limits::{CONFIG_ERRORS_MAX, FRONT_SIGN_MIN, TOKEN_CHARS_MAX, TOKEN_CHARS_MIN};
use crate::report::{ConfigError, ErrorKind};
use crate::suggest::nearest;
use crate::text::printable;

/// What the files do not say themselves.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
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
        let is_whole = table.entry("command").is_some() || table.entry("url").is_some();
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
    outside: &Outside<'_>,
) -> Result<Gateway, Vec<ConfigError>> {
    let mut all = Vec::new();
    let mut errors = Errors { all: &mut all, limit: CONFIG_ERRORS_MAX };
    let scope = Scope { env: outside.env, workspace: "" };
    let own = tables.iter().find(|table| table.kind == TableKind::Gateway);
    let wanted = servers(tables).filter(|table| server::is_enabled(table));
    let gateway = Gateway {
        servers: wanted
            .filter_map(|table| server::make(table, defaults, &scope, &mut errors))
            .collect(),
        expose: match own.and_then(|own| own.value("expose")) {
            Some(Value::Word("search")) => Expose::Search,
            _ => Expose::All,
        },
        admin_tools: own.and_then(|own| own.value("tools")) != Some(&Value::Bool(false)),
        front: own.map(front).unwrap_or_default(),
        tokens: make_tokens(tables, outside, &mut errors),
    };
    if all.is_empty() { Ok(gateway) } else { Err(all) }
}

/// The files that hold tokens.
pub(in super::super) fn token_files(tables: &[Table]) -> Vec<PathBuf> {
    tokens(tables).filter_map(|table| table.text("token_file")).map(PathBuf::from).collect()
}

fn front(table: &Table) -> Front {
    let usual = Front::default();
    let list = |path: &str| table.list(path).unwrap_or_default().to_vec();
    let number = |path: &str| match table.value(path) {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    };
    Front {
        http: table.text("http").and_then(|address| address.parse().ok()),
        allowed_hosts: list("allowed_hosts"),
        allowed_origins: list("allowed_origins"),
        clients_max: (number("clients_max").and_then(|number| usize::try_from(number).ok()))
            .unwrap_or(usual.clients_max),
        body_bytes_max: match table.value("body_max") {
            Some(Value::Size(bytes)) => *bytes,
            _ => usual.body_bytes_max,
        },
        requests_per_second: number("requests_per_second")
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| *number > 0),
        session_idle: match table.value("session_idle") {
            Some(Value::Duration(time)) => *time,
            _ => usual.session_idle,
        },
        keep_alive: match table.value("keep_alive") {
            Some(Value::Duration(time)) if !time.is_zero() => Some((*time).max(FRONT_SIGN_MIN)),
            _ => usual.keep_alive,
        },
    }
}

fn tokens(tables: &[Table]) -> impl Iterator<Item = &Table> {
    tables.iter().filter(|table| table.kind == TableKind::Token)
}

/// Where the secret of a token is.
fn secret_entry(table: &Table) -> Option<&Entry> {
    ["token", "token_env", "token_file"].into_iter().find_map(|key| table.entry(key))
}

fn check_token(table: &Table, servers: &[Table], errors: &mut Errors<'_>) {
    if secret_entry(table).is_none() {
        let message = format!("token `{}` has no secret", table.name);
        let hint = "add one of `token_env`, `token_file` and `token`";
        errors.push(table.missing(message, hint));
    }
    // Your own file may be about servers that only some projects have, and where there is none here,
    // they come from the file of another program.
    let entry = table.entry("servers").filter(|entry| entry.from == FileKind::Workspace);
    let Some(entry) = entry.filter(|_| !servers.is_empty()) else { return };
    let patterns = table.list("servers").unwrap_or_default().iter();
    for pattern in patterns {
        if servers.iter().any(|server| fits_one(pattern, &server.name)) {
            continue;
        }
        let shown = printable(pattern);
        let message = format!("token `{}` is for `{shown}`, which is no server", table.name);
        let hint = match nearest(pattern, servers.iter().map(|server| server.name.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define `[server.{shown}]`, or leave it out"),
        };
        errors.push(entry.place.error(ErrorKind::BadValue, message, hint));
    }
}

fn make_tokens(tables: &[Table], outside: &Outside<'_>, errors: &mut Errors<'_>) -> Vec<Token> {
    let mut made: Vec<Token> = Vec::new();
    for table in tokens(tables) {
        let Some(entry) = secret_entry(table) else { continue };
        let list = |path: &str| table.list(path).map(<[String]>::to_vec);
        let access =
            Access { name: table.name.clone(), servers: list("servers"), tools: list("tools") };
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
fn secret(table: &Table, entry: &Entry, outside: &Outside<'_>) -> Result<String, (String, String)> {
    let name = &table.name;
    let Content::One(value) = &entry.content else { return Ok(String::new()) };
    let value = value.to_string();
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
