//! Owns the making of a server of the gateway from its table and the defaults. Driven by `gateway::make`. Never
//! connects.

use super::service::with_own;
use super::{Errors, Table, TableEntry};
use crate::address::url_host;
use crate::config::key::{Key, Pairs};
use crate::config::keys::server::{
    ALLOW, ARGS, CALL_TIMEOUT, COMMAND, CWD, DENY, ENV, ENV_FILE, HEADERS, HIDE_WHEN_DOWN,
    IDLE_AFTER, IN_FLIGHT_MAX, INSTANCES_MAX, PREFIX, SHARE, SSE, ShareKind, URL, WATCH,
};
use crate::config::resolve::Values;
use crate::gateway::backend::{Backend, HttpServer, Prefix, Share, StdioServer, Transport};
use crate::gateway::variables::{ExpansionError, Style, VariableScope};
use crate::report::{ConfigError, ErrorKind};

/// Checks all but what variables stand for: these may be set where the gateway is started alone.
pub(super) fn check(table: &Table, defaults: &Values, errors: &mut Errors<'_>) {
    let name = &table.name;
    let targets = [COMMAND.field(), URL.field()];
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
fn check_share(table: &Table, errors: &mut Errors<'_>) {
    let share = table.entry(SHARE.field());
    if SHARE.get(table) == ShareKind::PerClient {
        return;
    }
    let companions = [INSTANCES_MAX.field(), IDLE_AFTER.field()];
    for entry in companions.into_iter().filter_map(|key| table.entry(key)) {
        if share.is_none_or(|share| share.from == entry.from) {
            let message = format!("`{}` goes with `share = \"per-client\"`", entry.path);
            let hint = "remove it, or add `share = \"per-client\"`".to_owned();
            errors.push(entry.place.error(ErrorKind::Conflict, message, hint));
        }
    }
}

/// Makes a server that was checked; none where a variable is missing, which is added to the errors.
pub(super) fn make(
    table: &Table,
    defaults: &Values,
    scope: &VariableScope<'_>,
    errors: &mut Errors<'_>,
) -> Option<Backend> {
    let texts = Texts { table, scope };
    let target = match COMMAND.find(table) {
        Some(command) => stdio(&texts, command, &with_own(table, defaults), errors)
            .map(Box::new)
            .map(Transport::Stdio),
        None => http(&texts, errors).map(Transport::Http),
    }?;
    Some(Backend {
        name: table.name.clone(),
        target,
        prefix: match PREFIX.find(table).as_deref() {
            None => Prefix::Name,
            Some("" | "none") => Prefix::None,
            Some(text) => Prefix::Text(text.to_owned()),
        },
        allow: ALLOW.find(table),
        deny: DENY.find(table).unwrap_or_default(),
        share: match SHARE.get(table) {
            ShareKind::All => Share::All,
            ShareKind::PerClient => Share::PerClient {
                instances_max: INSTANCES_MAX.get(table),
                idle_after: IDLE_AFTER.get(table),
            },
        },
        hide_when_down: HIDE_WHEN_DOWN.get(table),
        call_timeout: CALL_TIMEOUT.get(table),
        in_flight_max: IN_FLIGHT_MAX.get(table),
    })
}

fn stdio(
    texts: &Texts<'_>,
    command: Vec<String>,
    values: &Values,
    errors: &mut Errors<'_>,
) -> Option<StdioServer> {
    let table = texts.table;
    let args = texts.list(&ARGS, errors);
    let env = texts.below(&ENV, errors);
    let usual = values.stdio();
    Some(StdioServer {
        command: [command, args?].concat(),
        cwd: CWD.find(table),
        env: env?,
        env_file: ENV_FILE.find(table),
        watch: WATCH.find(table).unwrap_or_default().into_iter().map(Into::into).collect(),
        ..usual
    })
}

fn http(texts: &Texts<'_>, errors: &mut Errors<'_>) -> Option<HttpServer> {
    let headers = texts.below(&HEADERS, errors);
    let entry = texts.table.entry(URL.field())?;
    let url = texts.fill(entry, &entry.value.to_string(), errors)?;
    if url_host(&url).is_none() {
        let message = format!(
            "`url` of server `{}` is no URL that begins with `http://` or `https://`, once its \
             variables are filled in",
            texts.table.name
        );
        let hint = "look at the variables in it".to_owned();
        errors.push(entry.place.error(ErrorKind::BadValue, message, hint));
        return None;
    }
    Some(HttpServer { url, headers: headers?, sse: SSE.find(texts.table) })
}

/// The texts of a table, with their variables filled in.
struct Texts<'a> {
    table: &'a Table,
    scope: &'a VariableScope<'a>,
}

impl Texts<'_> {
    fn fill(&self, entry: &TableEntry, text: &str, errors: &mut Errors<'_>) -> Option<String> {
        let is_bad = |full: &str| match entry.path.starts_with("headers.") {
            true => full.contains(char::is_control),
            false => full.contains('\0'),
        };
        match self.scope.expand(text, Style::Ours) {
            Ok(full) if is_bad(&full) => {
                let message = format!(
                    "`{}` of server `{}` has a character that it cannot have, once its variables are \
                     filled in",
                    entry.path, self.table.name
                );
                let hint = "look at the variables in it".to_owned();
                errors.push(entry.place.error(ErrorKind::BadValue, message, hint));
                None
            }
            Ok(full) => Some(full),
            Err(gap) => {
                errors.push(self.gap(entry, &gap));
                None
            }
        }
    }

    fn gap(&self, entry: &TableEntry, gap: &ExpansionError) -> ConfigError {
        let message = format!("`{}` of server `{}` {gap}", entry.path, self.table.name);
        let hint = match gap {
            ExpansionError::Unset(name) => {
                format!("{}, or write `${{{name}:-default}}`", gap.hint())
            }
            _ => format!("{}; a `$` itself is `$$`", gap.hint()),
        };
        entry.place.error(ErrorKind::Missing, message, hint)
    }

    fn list(&self, key: &Key<Vec<String>>, errors: &mut Errors<'_>) -> Option<Vec<String>> {
        let Some(entry) = self.table.entry(key.field()) else { return Some(Vec::new()) };
        let items = key.find(self.table).unwrap_or_default();
        let items: Vec<_> = items.iter().map(|item| self.fill(entry, item, errors)).collect();
        items.into_iter().collect()
    }

    fn below(&self, key: &Key<Pairs>, errors: &mut Errors<'_>) -> Option<Vec<(String, String)>> {
        let fill = |(name, entry): (&str, &TableEntry)| {
            Some((name.to_owned(), self.fill(entry, &entry.value.to_string(), errors)?))
        };
        // Each of them is filled in, so that every error is reported.
        let all: Vec<Option<(String, String)>> = self.table.below(key).map(fill).collect();
        all.into_iter().collect()
    }
}
