//! Owns the tokens of the gateway: where the secret of each is (`token`, `token_env`, `token_file`), and which are
//! refused. Driven by `gateway.rs`. Never quotes a secret.

use super::gateway::ExternalValues;
use super::{Table, TableEntry};
use crate::config::keys::{TableKind, token};
use crate::config::{Errors, FileKind};
use crate::gateway::access_patterns::{Access, fits_one};
use crate::gateway::settings::Token;
use crate::limits::{TOKEN_CHARS_MAX, TOKEN_CHARS_MIN};
use crate::report::ErrorKind;
use crate::suggest::nearest;
use crate::text::printable;

pub(super) fn tokens(tables: &[Table]) -> impl Iterator<Item = &Table> {
    tables.iter().filter(|table| table.kind == TableKind::Token)
}

/// Where the secret of a token is.
pub(super) fn secret_entry(table: &Table) -> Option<&TableEntry> {
    let keys = [&token::TOKEN.field, &token::TOKEN_ENV.field, &token::TOKEN_FILE.field];
    keys.into_iter().find_map(|key| table.entry(key))
}

pub(super) fn check_token(table: &Table, servers: &[Table], errors: &mut Errors) {
    if secret_entry(table).is_none() {
        let message = format!("token `{}` has no secret", table.name);
        let hint = "add one of `token_env`, `token_file` and `token`";
        errors.push(table.missing(message, hint));
    }
    // Your own file may be about servers that only some projects have, and where there is none here,
    // they come from the file of another program.
    let entry =
        table.entry(&token::SERVERS.field).filter(|entry| entry.from == FileKind::Workspace);
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

pub(super) fn make_tokens(
    tables: &[Table],
    outside: &ExternalValues<'_>,
    errors: &mut Errors,
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
