//! Owns the making of hooks from their tables: whom they tell, and the shape of a webhook's body by its host. Driven by
//! `tables::make`. Never sends anything.

use super::Table;
use crate::address::url_host;
use crate::config::FileKind;
use crate::config::keys::hook;
use crate::hook::{HookDefinition, HookEvent, HookTarget, Shape};
use crate::report::{ConfigError, ErrorKind};
use crate::suggest::nearest;
use crate::text::printable;

/// Makes a hook that is about some of these services.
pub(super) fn make_hook(
    table: &Table,
    services: &[Table],
) -> Result<HookDefinition, Box<ConfigError>> {
    let words = hook::ON.find(table).unwrap_or(HookEvent::NAMES.map(str::to_owned).to_vec());
    let is_named = |event: &HookEvent| words.iter().any(|word| word == event.name());
    check_hook_services(table, services)?;
    Ok(HookDefinition {
        name: table.name.clone(),
        events: HookEvent::ALL.into_iter().filter(is_named).collect(),
        services: hook::SERVICES.find(table).unwrap_or_default(),
        target: hook_target(table)?,
    })
}

/// Your own file may be about services that only some projects have.
fn check_hook_services(table: &Table, services: &[Table]) -> Result<(), Box<ConfigError>> {
    let entry = table.entry(&hook::SERVICES.field);
    let Some(entry) = entry.filter(|entry| entry.from == FileKind::Workspace) else {
        return Ok(());
    };
    let is_known = |name: &String| services.iter().any(|service| service.name == *name);
    let names = hook::SERVICES.find(table).unwrap_or_default();
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

fn hook_target(table: &Table) -> Result<HookTarget, Box<ConfigError>> {
    if let Some(command) = hook::COMMAND.find(table) {
        return Ok(HookTarget::Command(command));
    }
    if let Some(url) = hook::WEBHOOK.find(table) {
        let shape = hook::SHAPE.find(table).unwrap_or_else(|| shape_of_host(&url));
        return Ok(HookTarget::Webhook { url, shape, headers: table.pairs(&hook::HEADERS) });
    }
    let message = format!("hook `{}` has no receiver", table.name);
    Err(match table.entry(&hook::DESKTOP.field) {
        Some(_) if hook::DESKTOP.find(table) == Some(true) => return Ok(HookTarget::Desktop),
        Some(entry) => {
            let hint = "write `desktop = true`, or remove the hook".to_owned();
            entry.place.error(ErrorKind::BadValue, message, hint).into()
        }
        None => table.missing(message, "add one of `command`, `webhook` and `desktop`").into(),
    })
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
