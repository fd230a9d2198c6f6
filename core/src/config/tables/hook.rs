//! Owns the making of a hook from its table. Driven by `tables::make`. Never runs one.

use super::Table;
use crate::address::url_host;
use crate::config::FileKind;
use crate::config::keys::hook::{COMMAND, DESKTOP, HEADERS, ON, SERVICES, SHAPE, WEBHOOK};
use crate::hook::{HookDefinition, HookEvent, HookTarget, Shape};
use crate::report::{ConfigError, ErrorKind};
use crate::suggest::nearest;
use crate::text::printable;

/// Makes a hook that is about some of these services.
pub(super) fn make(table: &Table, services: &[Table]) -> Result<HookDefinition, Box<ConfigError>> {
    let events = match ON.find(table) {
        Some(words) => {
            let is_named = |event: &HookEvent| words.iter().any(|word| word == event.name());
            HookEvent::ALL.into_iter().filter(is_named).collect()
        }
        None => HookEvent::ALL.to_vec(),
    };
    check_services(table, services)?;
    Ok(HookDefinition {
        name: table.name.clone(),
        events,
        services: SERVICES.find(table).unwrap_or_default(),
        target: target(table)?,
    })
}

/// Your own file may be about services that only some projects have.
fn check_services(table: &Table, services: &[Table]) -> Result<(), Box<ConfigError>> {
    let entry = table.entry(&SERVICES.field);
    let Some(entry) = entry.filter(|entry| entry.from == FileKind::Workspace) else {
        return Ok(());
    };
    let is_known = |name: &String| services.iter().any(|service| service.name == *name);
    let names = SERVICES.find(table).unwrap_or_default();
    let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let message =
        format!("hook `{}` is about `{}`, which is no service", table.name, printable(unknown));
    let near = nearest(unknown, services.iter().map(|service| service.name.as_str()));
    let hint = match near {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("define `[service.{}]`, or leave it out", printable(unknown)),
    };
    Err(entry.place.error(ErrorKind::BadValue, message, hint).into())
}

fn target(table: &Table) -> Result<HookTarget, Box<ConfigError>> {
    if let Some(command) = COMMAND.find(table) {
        return Ok(HookTarget::Command(command));
    }
    if let Some(url) = WEBHOOK.find(table) {
        let shape = SHAPE.find(table).unwrap_or_else(|| shape_of_host(&url));
        return Ok(HookTarget::Webhook { url, shape, headers: table.pairs(&HEADERS) });
    }
    match table.entry(&DESKTOP.field) {
        Some(_) if DESKTOP.find(table) == Some(true) => Ok(HookTarget::Desktop),
        Some(entry) => {
            let message = format!("hook `{}` tells nobody", table.name);
            let hint = "write `desktop = true`, or remove the hook".to_owned();
            Err(entry.place.error(ErrorKind::BadValue, message, hint).into())
        }
        None => {
            let message = format!("hook `{}` tells nobody", table.name);
            Err(table.missing(message, "add one of `command`, `webhook` and `desktop`").into())
        }
    }
}

/// The form that the host of a URL takes, where it is a known one.
fn shape_of_host(url: &str) -> Shape {
    let host = url_host(url).unwrap_or_default().to_ascii_lowercase();
    match host.as_str() {
        "hooks.slack.com" => Shape::Slack,
        "discord.com" | "discordapp.com" | "canary.discord.com" | "ptb.discord.com" => {
            Shape::Discord
        }
        "ntfy.sh" => Shape::Ntfy,
        _ => Shape::Json,
    }
}
