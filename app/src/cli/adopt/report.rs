//! Prints for `afresh adopt`: the diff and lists on stdout, everything else on stderr. Never changes a file.

use afresh_core::adopt::{ClientServer, DiffMark, State, Wrapper};
use afresh_core::text::harmless;
use afresh_daemon::store::clients::FileOwner;
use serde_json::{Value, json};

use super::{AdoptArgs, AdoptPlan, ReadFile};
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};

pub(super) fn list(arguments: &AdoptArgs, seen: &[ReadFile]) -> Result<Exit, CommandError> {
    if arguments.json {
        json(seen, false)?;
    } else {
        if seen.is_empty() {
            output::remark("no MCP server is configured in the files that are known");
        }
        let paint = Paint::stdout();
        let mut text = String::new();
        for ReadFile { file, path, outcome } in seen {
            let Ok(plan) = outcome else { continue };
            let client = match file.client {
                "" => String::new(),
                client => paint.dim(&format!("  {client}, {}", whose(file.scope))),
            };
            text.push_str(&format!("{}{client}\n", paint.bold(&harmless(path))));
            let width = plan.servers.iter().map(|server| harmless(&server.name).chars().count());
            let width = width.max().unwrap_or(0);
            for server in &plan.servers {
                let (name, state) = (harmless(&server.name), state(server, paint));
                text.push_str(&format!("  {name:width$}  {state}\n"));
            }
        }
        output::print(&text)?;
        errors(seen);
    }
    let failed = seen.iter().find_map(|seen| seen.outcome.as_ref().err());
    Ok(failed.map_or(Exit::Success, |error| error.exit))
}

fn whose(whose: FileOwner) -> &'static str {
    match whose {
        FileOwner::Project => "project",
        FileOwner::User => "user",
        FileOwner::Named => "named",
    }
}

fn state(server: &ClientServer, paint: Paint) -> String {
    let mut text = match server.state() {
        State::Adopted => paint.green("adopted"),
        State::Plain => paint.yellow("not adopted"),
        State::Remote => "remote".to_owned(),
        State::Odd(why) => format!("left alone: {why}"),
    };
    if server.disabled {
        text.push_str(", disabled");
    }
    if let Some(project) = &server.project {
        text.push_str(&format!(", for {}", harmless(project)));
    }
    text
}

/// The changes, as a diff.
pub(super) fn diff(seen: &[ReadFile]) -> Result<(), CommandError> {
    let paint = Paint::stdout();
    let mut text = String::new();
    for ReadFile { path, outcome, .. } in seen {
        let Some(plan) = outcome.as_ref().ok().filter(|plan| !plan.diff.is_empty()) else {
            continue;
        };
        let path = harmless(path);
        text.push_str(&paint.bold(&format!("--- {path}\n+++ {path}")));
        text.push('\n');
        for line in &plan.diff {
            let whole = format!("{}{}", line.mark.sign(), line.text);
            text.push_str(&match line.mark {
                DiffMark::Place => paint.dim(&whole),
                DiffMark::Same => whole,
                DiffMark::Removed => paint.red(&whole),
                DiffMark::Added => paint.green(&whole),
            });
            text.push('\n');
        }
    }
    Ok(output::print(&text)?)
}

pub(super) fn errors(seen: &[ReadFile]) {
    for error in seen.iter().filter_map(|seen| seen.outcome.as_ref().err()) {
        output::report(error);
    }
}

/// What has become of it, for people.
pub(super) fn conclude(
    arguments: &AdoptArgs,
    wrapper: &Wrapper<'_>,
    seen: &[ReadFile],
    due: bool,
    allowed: bool,
) {
    let read = || seen.iter().filter_map(|seen| seen.plan().map(|plan| (seen, plan)));
    for (seen, plan) in read() {
        for server in plan.servers.iter().filter(|_| !arguments.undo) {
            if let State::Odd(why) = server.state() {
                let (name, path) = (harmless(&server.name), harmless(&seen.path));
                output::remark(&format!("`{name}` in `{path}` is left alone: {why}"));
            }
        }
        if allowed && !plan.touched.is_empty() {
            let names: Vec<String> =
                plan.touched.iter().map(|name| format!("`{}`", harmless(name))).collect();
            let did = if arguments.undo { "undid" } else { "adopted" };
            let (names, path) = (names.join(", "), harmless(&seen.path));
            output::remark(&format!("{did} {names} in `{path}`"));
        }
    }
    let failed = seen.iter().any(|seen| seen.outcome.is_err());
    if !due && !failed {
        output::remark(match arguments.undo {
            true => "nothing to undo: afresh stands in front of none of these servers",
            false => "nothing to change: afresh stands in front of every server that it can",
        });
    } else if allowed && read().any(|(_, plan)| !plan.touched.is_empty()) {
        let back = if arguments.undo { "" } else { "; `afresh adopt --undo` takes it back" };
        output::remark(&format!("clients take it up when they start a server anew{back}"));
    } else if !arguments.dry_run {
        output::remark("nothing was changed: `--yes` makes these changes");
    }
    let shared = read().any(|(seen, plan)| {
        seen.file.scope == FileOwner::Project && !plan.touched.is_empty() && !arguments.undo
    });
    if shared && wrapper.program.contains(['/', '\\']) && arguments.afresh.is_none() {
        output::remark(&format!(
            "`{}` is a path of this machine, because `afresh` on PATH is not this program; \
             `--afresh afresh` writes the name alone",
            harmless(wrapper.program)
        ));
    }
}

/// Says which of the user's own files could be changed too.
pub(super) fn mention(arguments: &AdoptArgs, others: &[ReadFile]) {
    let (before, undo) = match arguments.undo {
        true => (State::Adopted, " --undo"),
        false => (State::Plain, ""),
    };
    let count = |plan: &AdoptPlan| plan.servers.iter().filter(|s| s.state() == before).count();
    let files: Vec<String> = others
        .iter()
        .filter_map(|seen| Some((seen, count(seen.plan()?))))
        .filter(|(_, count)| *count > 0)
        .map(|(seen, count)| format!("{count} in `{}`", harmless(&seen.path)))
        .collect();
    if !files.is_empty() {
        let files = files.join(", ");
        output::remark(&format!(
            "there are more servers in your own files: {files}; `afresh adopt --user{undo}` is for these"
        ));
    }
}

/// Everything, for programs.
pub(super) fn json(seen: &[ReadFile], changed: bool) -> Result<(), CommandError> {
    let files: Vec<Value> = seen.iter().map(|seen| file_to_json(seen, changed)).collect();
    let changed =
        seen.iter().filter_map(ReadFile::plan).any(|plan| changed && !plan.touched.is_empty());
    Ok(output::print(&format!("{:#}\n", json!({"changed": changed, "files": files})))?)
}

fn file_to_json(seen: &ReadFile, changed: bool) -> Value {
    let ReadFile { file, path, outcome } = seen;
    let client = Some(file.client).filter(|client| !client.is_empty());
    let mut all = json!({"path": path, "client": client, "whose": whose(file.scope)});
    match outcome {
        Ok(plan) => {
            let line =
                |line: &afresh_core::adopt::DiffLine| format!("{}{}", line.mark.sign(), line.text);
            all["changed"] = (changed && !plan.touched.is_empty()).into();
            all["servers"] = plan.servers.iter().map(server_to_json).collect();
            all["due"] = plan.touched.clone().into();
            all["diff"] = plan.diff.iter().map(line).collect();
        }
        Err(error) => all["error"] = error.to_string().into(),
    }
    all
}

/// The states are those before the change.
fn server_to_json(server: &ClientServer) -> Value {
    let (state, why) = match server.state() {
        State::Adopted => ("adopted", None),
        State::Plain => ("not_adopted", None),
        State::Remote => ("remote", None),
        State::Odd(why) => ("left_alone", Some(why)),
    };
    json!({
        "name": server.name,
        "project": server.project,
        "state": state,
        "why": why,
        "disabled": server.disabled,
    })
}
