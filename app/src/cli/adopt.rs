//! `afresh adopt`: chooses the files, and changes them. `report.rs` prints.

mod report;

use std::path::PathBuf;

use afresh_core::adopt::{ClientServer, DiffLine, Edit, File, State, Wrapper, is_afresh};
use afresh_core::suggest::nearest;
use afresh_core::text::harmless;
use afresh_daemon::HOME_VARIABLE;
use afresh_daemon::store::clients::{
    ClientFile, ClientText, FileOwner, ReadClientFileError, own_command,
};
use clap::{Args, Parser};

use crate::cli::Cli;
use crate::environment::Environment;
use crate::error::{CommandError, Exit, Text};
use crate::output;

/// Put `afresh mcp --` in front of the servers in the configurations of MCP clients
#[derive(Debug, Args)]
#[command(
    long_about = "Puts `afresh mcp --` in front of the servers in the configurations of MCP \
                  clients: VS Code, Claude Code and Desktop, Cursor, Codex, opencode, Copilot. \
                  Without FILE, those of the project are looked for, from this folder up to the \
                  project's root.\n\nThe changes are shown first. On a terminal you are asked; \
                  elsewhere nothing is changed without `--yes`. Comments and formatting stay, servers \
                  without a command (HTTP) are left alone, running it twice changes nothing, and \
                  `--undo` gives back the same bytes. Secrets are left out of what is shown.\n\nA \
                  client that was started from a desktop may have another PATH than your shell. So \
                  `afresh` is written by its name if that leads to this program, and otherwise by \
                  its whole path; `--afresh` decides otherwise.\n\nExits with 1 where changes are \
                  due and were not made, with 3 where a file cannot be understood, with 4 where \
                  there is none, with 5 where one cannot be read or changed.",
    after_help = "Examples:\n  \
                  afresh adopt                        the project's servers: shows, asks, changes\n  \
                  afresh adopt --list                 which files and servers there are\n  \
                  afresh adopt --user --only github   one server, in your own configurations\n  \
                  afresh adopt --yes .vscode/mcp.json just this file, without asking\n  \
                  afresh adopt --with=--max-restarts --with=0\n  \
                  afresh adopt --undo                 takes it back"
)]
pub(crate) struct AdoptArgs {
    /// Change just these; any file with `mcpServers`, `servers`, `mcp` or `mcp_servers` in it
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Change your own configurations instead of the project's
    #[arg(long, conflicts_with = "files")]
    user: bool,

    /// Take `afresh mcp --` away again
    #[arg(long)]
    undo: bool,

    /// Only list the files, their servers and the state of each
    #[arg(long, conflicts_with_all = ["undo", "yes", "dry_run"])]
    list: bool,

    /// Show the changes, and make none
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Make the changes without asking
    #[arg(short, long)]
    yes: bool,

    /// Only the server of this name; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// How afresh is called [default: `afresh` if that leads here, or else the whole path]
    #[arg(long, value_name = "COMMAND", conflicts_with = "undo")]
    afresh: Option<String>,

    /// A flag for `afresh mcp`; may be given more than once
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, conflicts_with = "undo")]
    with: Vec<String>,

    /// Print one JSON object, and do not ask
    #[arg(long)]
    json: bool,
}

/// A file, and what was made of it.
struct ReadFile {
    file: ClientFile,
    /// Its path, as people would write it here.
    path: String,
    outcome: Result<AdoptPlan, CommandError>,
}

/// What is in a file, and what is to be changed.
struct AdoptPlan {
    text: ClientText,
    servers: Vec<ClientServer>,
    /// The servers that change.
    touched: Vec<String>,
    new: String,
    diff: Vec<DiffLine>,
}

pub(crate) fn run(arguments: &AdoptArgs, environment: &Environment) -> Result<Exit, CommandError> {
    let program = program(arguments, environment)?;
    check_flags(&arguments.with)?;
    let wrapper = Wrapper { program: &program, with: &arguments.with };
    let (mut seen, others) = look(arguments, environment, &wrapper);
    if seen.is_empty() && !arguments.list {
        return Err(nothing_found(arguments, &others));
    }
    check_names(arguments, &seen)?;
    if arguments.list {
        return report::list(arguments, &seen);
    }
    if !arguments.json {
        report::diff(&seen)?;
        report::errors(&seen);
    }
    let due = seen.iter().filter_map(ReadFile::plan).any(|plan| !plan.touched.is_empty());
    let allowed = due && !arguments.dry_run && (arguments.yes || asked(arguments));
    if allowed {
        make(arguments, &mut seen);
    }
    if arguments.json {
        report::json(&seen, allowed)?;
    } else {
        report::conclude(arguments, &wrapper, &seen, due, allowed);
        report::mention(arguments, &others);
    }
    let failed = seen.iter().find_map(|seen| seen.outcome.as_ref().err()).map(|error| error.exit);
    Ok(match failed {
        Some(exit) => exit,
        None if due && !allowed && !arguments.dry_run => Exit::Failed,
        None => Exit::Success,
    })
}

/// How afresh is called in the files.
fn program(arguments: &AdoptArgs, environment: &Environment) -> Result<String, CommandError> {
    let program = match &arguments.afresh {
        Some(program) => program.clone(),
        // It is not written.
        None if arguments.undo || arguments.list => "afresh".to_owned(),
        None => {
            let path = own_command(environment.variable("PATH").map(std::ffi::OsString::as_os_str))
                .map_err(|error| CommandError::new(Exit::Unavailable, error))?;
            path.display().to_string()
        }
    };
    if is_afresh(&program) {
        return Ok(program);
    }
    let problem =
        format!("`{}` is not called afresh: nobody would know it again", harmless(&program));
    Err(CommandError::new(Exit::Usage, problem).hint("give the name or the path with `--afresh`"))
}

/// What `afresh mcp` would refuse is refused here, and not by the client weeks later.
fn check_flags(flags: &[String]) -> Result<(), CommandError> {
    let line = ["afresh", "mcp"].into_iter().chain(flags.iter().map(String::as_str));
    let parsed = Cli::try_parse_from(line.chain(["--", "command"]));
    let problem = match parsed {
        _ if flags.iter().any(|flag| flag == "--") => "`--` is written anyway".to_owned(),
        Ok(_) => return Ok(()),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    Err(CommandError::new(Exit::Usage, format!("`afresh mcp` does not take this: {problem}"))
        .hint("`afresh help mcp` has its flags; give each word by a `--with` of its own"))
}

/// Reads the files that are meant, and the user's where these are not.
fn look(
    arguments: &AdoptArgs,
    environment: &Environment,
    wrapper: &Wrapper<'_>,
) -> (Vec<ReadFile>, Vec<ReadFile>) {
    let see = |file: ClientFile| {
        let outcome = plan(&file, arguments, environment, wrapper);
        ReadFile { path: environment.shown(&file.path), file, outcome }
    };
    if !arguments.files.is_empty() {
        let named =
            arguments.files.iter().map(|path| ClientFile::named(environment.cwd.join(path)));
        return (once_each(named.map(see).collect()), Vec::new());
    }
    let workspace = environment.workspace();
    let home = environment.folder(HOME_VARIABLE);
    let variable = |name: &str| environment.folder(name);
    let found = ClientFile::find(&environment.cwd, workspace.root(), home.as_deref(), &variable);
    let (user, project): (Vec<ClientFile>, Vec<ClientFile>) =
        found.into_iter().partition(|file| file.scope == FileOwner::User);
    let all = |files: Vec<ClientFile>| files.into_iter().map(see).collect::<Vec<ReadFile>>();
    match (arguments.user, arguments.list) {
        (true, _) => (without_other(all(user)), Vec::new()),
        (false, true) => {
            (without_other(all(project).into_iter().chain(all(user)).collect()), Vec::new())
        }
        (false, false) => (without_other(all(project)), all(user)),
    }
}

/// Some of the places are for other settings too: without a server there, they are none of ours.
fn without_other(mut seen: Vec<ReadFile>) -> Vec<ReadFile> {
    seen.retain(|seen| seen.plan().is_none_or(|plan| !plan.servers.is_empty()));
    once_each(seen)
}

/// Of several names of one file, the first counts.
fn once_each(all: Vec<ReadFile>) -> Vec<ReadFile> {
    let mut kept: Vec<ReadFile> = Vec::new();
    for seen in all {
        let is_same = |other: &ReadFile| match (seen.plan(), other.plan()) {
            (Some(plan), Some(other)) => plan.text.is_same_file(&other.text),
            _ => seen.path == other.path,
        };
        if !kept.iter().any(is_same) {
            kept.push(seen);
        }
    }
    kept
}

fn plan(
    file: &ClientFile,
    arguments: &AdoptArgs,
    environment: &Environment,
    wrapper: &Wrapper<'_>,
) -> Result<AdoptPlan, CommandError> {
    let text = file.read().map_err(|error| {
        let exit = match &error {
            ReadClientFileError::Missing { .. } => Exit::NotFound,
            _ => Exit::Unavailable,
        };
        CommandError::new(exit, error)
    })?;
    let read = File::read(&environment.shown(&file.path), &text.bytes).map_err(|error| {
        let text = Text::Ready(error.to_string());
        CommandError { exit: Exit::Config, text, hints: Vec::new() }
    })?;
    let wanted =
        |server: &ClientServer| arguments.only.is_empty() || arguments.only.contains(&server.name);
    let (edits, before): (Vec<Edit>, State) = match arguments.undo {
        true => (read.undo(&wanted), State::Adopted),
        false => (read.adopt(wrapper, &wanted), State::Plain),
    };
    let touched = read.servers().iter().filter(|s| wanted(s) && s.state() == before);
    let touched = touched.map(|server| server.name.clone()).collect();
    let (servers, new, diff) = (read.servers().to_vec(), read.with(&edits), read.diff(&edits));
    Ok(AdoptPlan { servers, touched, new, diff, text })
}

impl ReadFile {
    fn plan(&self) -> Option<&AdoptPlan> {
        self.outcome.as_ref().ok()
    }
}

fn nothing_found(arguments: &AdoptArgs, others: &[ReadFile]) -> CommandError {
    let place = if arguments.user { "yours" } else { "this project" };
    let error = CommandError::new(
        Exit::NotFound,
        format!("no MCP server is configured in the files of {place} that are known"),
    );
    let error = match others.iter().filter_map(ReadFile::plan).any(|plan| !plan.servers.is_empty())
    {
        true => error.hint("there are some in your own files: `afresh adopt --user`"),
        false => error,
    };
    error.hint("name the file, if there is one: `afresh adopt FILE`")
}

fn check_names(arguments: &AdoptArgs, seen: &[ReadFile]) -> Result<(), CommandError> {
    let servers = || seen.iter().filter_map(ReadFile::plan).flat_map(|plan| &plan.servers);
    for name in &arguments.only {
        if servers().any(|server| server.name == *name) {
            continue;
        }
        let error =
            CommandError::new(Exit::NotFound, format!("there is no server `{}`", harmless(name)));
        return Err(match nearest(name, servers().map(|server| server.name.as_str())) {
            Some(near) => error.hint(format!("did you mean `{}`?", harmless(near))),
            None => error.hint("`afresh adopt --list` shows what there is"),
        });
    }
    Ok(())
}

fn asked(arguments: &AdoptArgs) -> bool {
    !arguments.json && output::ask("make these changes?")
}

/// Makes the changes; what cannot be changed is an error afterwards.
fn make(arguments: &AdoptArgs, seen: &mut [ReadFile]) {
    for seen in seen {
        let Some(plan) = seen.plan().filter(|plan| !plan.touched.is_empty()) else {
            continue;
        };
        if let Err(error) = plan.text.replace(&plan.new) {
            let error = CommandError::new(Exit::Unavailable, error);
            if !arguments.json {
                output::report(&error);
            }
            seen.outcome = Err(error);
        }
    }
}
