//! A server of the gateway out of its table and the defaults.

use super::super::kind::Value;
use super::super::resolve::Values;
use super::service::with_own;
use super::{Content, Entry, Errors, Table};
use crate::address::url_host;
use crate::gateway::backend::{Backend, Http, Prefix, Share, Stdio, Target};
use crate::gateway::variables::{Gap, Scope, Style};
use crate::limits::{SERVER_IDLE_AFTER, SERVER_IN_FLIGHT_MAX, SERVER_INSTANCES_MAX};
use crate::report::{ConfigError, ErrorKind};

/// Whether the server is wanted.
pub(super) fn is_enabled(table: &Table) -> bool {
    table.value("enabled") != Some(&Value::Bool(false))
}

/// Checks all but what variables stand for: these may be set where the gateway is started alone.
pub(super) fn check(table: &Table, defaults: &Values, errors: &mut Errors<'_>) {
    let name = &table.name;
    let Some(target) = ["command", "url"].into_iter().find_map(|key| table.entry(key)) else {
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
    let share = table.entry("share");
    if table.value("share") == Some(&Value::Word("per-client")) {
        return;
    }
    for entry in ["instances_max", "idle_after"].into_iter().filter_map(|key| table.entry(key)) {
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
    scope: &Scope<'_>,
    errors: &mut Errors<'_>,
) -> Option<Backend> {
    let texts = Texts { table, scope };
    let target = match table.list("command") {
        Some(command) => stdio(&texts, command, &with_own(table, defaults), errors)
            .map(Box::new)
            .map(Target::Stdio),
        None => http(&texts, errors).map(Target::Http),
    }?;
    let number = |path: &str, usual: usize| match table.value(path) {
        Some(Value::Integer(number)) => usize::try_from(*number).unwrap_or(usual),
        _ => usual,
    };
    let time = |path: &str| match table.value(path) {
        Some(Value::Duration(time)) => Some(*time).filter(|time| !time.is_zero()),
        _ => None,
    };
    let list = |path: &str| table.list(path).map(<[String]>::to_vec);
    Some(Backend {
        name: table.name.clone(),
        target,
        prefix: match table.text("prefix").as_deref() {
            None => Prefix::Name,
            Some("" | "none") => Prefix::None,
            Some(text) => Prefix::Text(text.to_owned()),
        },
        allow: list("allow"),
        deny: list("deny").unwrap_or_default(),
        share: match table.value("share") == Some(&Value::Word("per-client")) {
            true => Share::PerClient {
                instances_max: number("instances_max", SERVER_INSTANCES_MAX),
                idle_after: time("idle_after").unwrap_or(SERVER_IDLE_AFTER),
            },
            false => Share::All,
        },
        hide_when_down: table.value("hide_when_down") == Some(&Value::Bool(true)),
        call_timeout: time("call_timeout"),
        in_flight_max: number("in_flight_max", SERVER_IN_FLIGHT_MAX),
    })
}

fn stdio(
    texts: &Texts<'_>,
    command: &[String],
    values: &Values,
    errors: &mut Errors<'_>,
) -> Option<Stdio> {
    let table = texts.table;
    let args = texts.list("args", errors);
    let env = texts.below("env", errors);
    let usual = values.stdio();
    Some(Stdio {
        command: [command, &args?].concat(),
        cwd: table.text("cwd").map(Into::into),
        env: env?,
        env_file: table.text("env_file").map(Into::into),
        watch: table.list("watch").unwrap_or_default().iter().map(Into::into).collect(),
        ..usual
    })
}

fn http(texts: &Texts<'_>, errors: &mut Errors<'_>) -> Option<Http> {
    let headers = texts.below("headers", errors);
    let entry = texts.table.entry("url")?;
    let url = texts.fill(entry, &texts.table.text("url")?, errors)?;
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
    Some(Http {
        url,
        headers: headers?,
        sse: match texts.table.value("sse") {
            Some(Value::Bool(sse)) => Some(*sse),
            _ => None,
        },
    })
}

/// The texts of a table, with their variables filled in.
struct Texts<'a> {
    table: &'a Table,
    scope: &'a Scope<'a>,
}

impl Texts<'_> {
    fn fill(&self, entry: &Entry, text: &str, errors: &mut Errors<'_>) -> Option<String> {
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

    fn gap(&self, entry: &Entry, gap: &Gap) -> ConfigError {
        let message = format!("`{}` of server `{}` {gap}", entry.path, self.table.name);
        let hint = match gap {
            Gap::Unset(name) => format!("{}, or write `${{{name}:-default}}`", gap.hint()),
            _ => format!("{}; a `$` itself is `$$`", gap.hint()),
        };
        entry.place.error(ErrorKind::Missing, message, hint)
    }

    fn list(&self, path: &str, errors: &mut Errors<'_>) -> Option<Vec<String>> {
        let Some(entry) = self.table.entry(path) else { return Some(Vec::new()) };
        let items = self.table.list(path).unwrap_or_default().iter();
        let items: Vec<Option<String>> = items.map(|item| self.fill(entry, item, errors)).collect();
        items.into_iter().collect()
    }

    fn below(&self, path: &str, errors: &mut Errors<'_>) -> Option<Vec<(String, String)>> {
        let mut all = Vec::new();
        let mut is_whole = true;
        for entry in &self.table.entries {
            let name = entry.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'));
            let (Some(name), Content::One(value)) = (name, &entry.content) else { continue };
            match self.fill(entry, &value.to_string(), errors) {
                Some(value) => all.push((name.to_owned(), value)),
                None => is_whole = false,
            }
        }
        is_whole.then_some(all)
    }
}
