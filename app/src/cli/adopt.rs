//! `afresh adopt`: chooses the files, changes them, and prints: the diff and lists on stdout, everything else on
//! stderr.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use afresh_core::adopt::{
    Audience, ClientServer, DiffLine, DiffMark, EntryChange, File, OwnProgram, PackageRunner,
    State, Wrapper, is_afresh, is_yaml, yaml_snippet,
};
use afresh_core::client_file_paths::project_files;
use afresh_core::text::harmless;
use afresh_daemon::store::client_files::{
    ClientFile, ClientText, FileOwner, OwnPaths, ReadClientFileError, is_in_path,
};
use afresh_daemon::{HAS_SCRIPT_RUNNERS, HOME_VARIABLE};
use clap::{Args, Parser};
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output::{self, Paint};

/// Puts `afresh mcp --` in front of the servers in the configurations of MCP clients: VS Code, Claude Code
/// and Desktop, Cursor, Codex, opencode, Copilot, Gemini CLI, Qwen Code, Zed, Windsurf, Cline, Roo Code, Kiro,
/// LM Studio, Amazon Q. Without FILE, those of the project are looked for, from this folder up to the
/// project's root. For files in YAML, as Continue and Goose have them, it prints what to write.
///
/// The changes are shown first. On a terminal you are asked; elsewhere nothing is changed without `--yes`.
/// Comments and formatting stay, servers without a command (HTTP) are left alone, running it twice changes
/// nothing, and `--undo` gives back the same bytes. Secrets are left out of what is shown.
///
/// Into your own configurations it writes afresh's whole path, since a client that was started from a desktop may have
/// another PATH than your shell. Into a project's, which others share, it writes `afresh` if that leads to this
/// program, or else `npx -y afresh@VERSION` (or `uvx`). Where npx or uvx runs it, it writes that. `--afresh` decides
/// otherwise. An older version that stands there is replaced by this one, and so is a path that is gone. Servers that were
/// adopted before get the flags of `--share` and `--with` that they lack; those that they have stay as they are.
///
/// Exits with 1 where changes are due and were not made, with 3 where a file cannot be understood, with 4
/// where there is none, with 5 where one cannot be read or changed.
#[derive(Debug, Args)]
#[command(
    about = "Put `afresh mcp --` in front of the servers in the configurations of MCP clients",
    after_help = "Examples:\n  \
                  afresh adopt                        the project's servers: shows, asks, changes\n  \
                  afresh adopt --list                 which files and servers there are\n  \
                  afresh adopt --user --only github   one server, in your own configurations\n  \
                  afresh adopt --yes .vscode/mcp.json just this file, without asking\n  \
                  afresh adopt --share                one process of each server for all clients\n  \
                  afresh adopt --with=--max-restarts --with=0\n  \
                  afresh adopt --undo                 takes it back"
)]
pub(crate) struct AdoptArgs {
    /// Change just these; any file with `mcpServers`, `servers`, `mcp`, `context_servers` or `mcp_servers` in it
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

    /// How afresh is called: a name, a path, or `npx`, `uvx`, `bunx` [default: what fits the installation]
    #[arg(long, value_name = "COMMAND", conflicts_with = "undo")]
    afresh: Option<String>,

    /// Have clients share one process of each server: `afresh mcp --share`
    #[arg(long, conflicts_with = "undo")]
    share: bool,

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
    outcome: CommandResult<AdoptPlan>,
}

/// What is in a file, and what is to be changed.
struct AdoptPlan {
    text: ClientText,
    servers: Vec<ClientServer>,
    /// The servers that change, and how.
    touched: Vec<(String, EntryChange)>,
    new: String,
    diff: Vec<DiffLine>,
    /// What a person puts into it, where it is YAML.
    snippet: Option<String>,
}

impl AdoptPlan {
    /// Whether something in it is for us.
    fn has_servers(&self) -> bool {
        !self.servers.is_empty() || self.snippet.is_some()
    }
}

pub(crate) fn run(arguments: &AdoptArgs, environment: &Environment) -> CommandResult {
    let invocations = Invocations::choose(arguments, environment)?;
    let share = arguments.share.then(|| "--share".to_owned());
    let with: Vec<String> = share.into_iter().chain(arguments.with.iter().cloned()).collect();
    check_flags(&with)?;
    let (mut seen, others) = look(arguments, environment, &invocations, &with);
    if seen.is_empty() && !arguments.list {
        return Err(nothing_found(arguments, &others));
    }
    check_names(arguments, &seen)?;
    if arguments.list {
        return list(arguments, &seen);
    }
    if !arguments.json {
        diff(&seen)?;
        errors(&seen);
    }
    let due = seen.iter().filter_map(ReadFile::plan).any(|plan| !plan.touched.is_empty());
    let asked = || !arguments.json && output::ask("make these changes?");
    let allowed = due && !arguments.dry_run && (arguments.yes || asked());
    if allowed {
        make(arguments, &mut seen);
    }
    if arguments.json {
        print_json(&seen, allowed)?;
    } else {
        conclude(arguments, &invocations, &seen, due, allowed);
        mention(arguments, &others);
    }
    Ok(match exit_of(&seen) {
        Exit::Success if due && !allowed && !arguments.dry_run => Exit::Failed,
        exit => exit,
    })
}

/// The exit of the first file that failed.
fn exit_of(seen: &[ReadFile]) -> Exit {
    let failed = seen.iter().find_map(|seen| seen.outcome.as_ref().err());
    failed.map_or(Exit::Success, |error| error.exit)
}

/// How afresh is called in the files.
struct Invocations {
    team: Vec<String>,
    user: Vec<String>,
    /// The user's folder.
    home: Option<PathBuf>,
    /// The caller has said it.
    is_given: bool,
}

impl Invocations {
    fn choose(arguments: &AdoptArgs, environment: &Environment) -> CommandResult<Self> {
        let home = environment.folder(HOME_VARIABLE);
        let runner = |word: &str| PackageRunner::ALL.into_iter().find(|it| it.program() == word);
        let given = |words: &dyn Fn(Audience) -> Vec<String>| Self {
            team: words(Audience::Team),
            user: words(Audience::User),
            home: home.clone(),
            is_given: true,
        };
        let all = match &arguments.afresh {
            Some(word) => match runner(word) {
                Some(it) => given(&|who| it.invocation(VERSION, who, HAS_SCRIPT_RUNNERS)),
                None => given(&|_| vec![word.clone()]),
            },
            // It is not written.
            None if arguments.undo || arguments.list => given(&|_| vec!["afresh".to_owned()]),
            None => {
                let path = environment.variable("PATH").map(OsString::as_os_str);
                let own = OwnPaths::find(path).or_exit(Exit::Unavailable)?;
                let in_path = |runner: &PackageRunner| is_in_path(path, runner.program());
                let runners: Vec<PackageRunner> =
                    PackageRunner::ALL.into_iter().filter(in_path).collect();
                let text = |path: &Path| path.display().to_string();
                let (own, on_path) = (text(&own.path), own.on_path.as_deref().map(text));
                let virtual_env = environment.folder("VIRTUAL_ENV").as_deref().map(text);
                let own = OwnProgram {
                    path: &own,
                    on_path: on_path.as_deref(),
                    virtual_env: virtual_env.as_deref(),
                    version: VERSION,
                    runners: &runners,
                    has_script_runners: HAS_SCRIPT_RUNNERS,
                };
                let (team, user) = (own.invocation(Audience::Team), own.invocation(Audience::User));
                Self { team, user, home, is_given: false }
            }
        };
        let is_odd = |words: &&Vec<String>| words.len() == 1 && !is_afresh(&words[0]);
        let Some(odd) = [&all.team, &all.user].into_iter().find(is_odd) else { return Ok(all) };
        let program = harmless(&odd[0]);
        let problem =
            format!("`{program}` is not called afresh: `adopt --undo` would not recognize it");
        Err(CommandError::new(Exit::Usage, problem)
            .hint("give the name or the path with `--afresh`"))
    }

    /// That of this file.
    fn of(&self, file: &ClientFile) -> &[String] {
        // A file that is named is a project's where projects have one of that name.
        let is_users =
            |path: &str| self.home.as_ref().is_some_and(|home| file.is_at(&home.join(path)));
        let is_projects = |path: &Path| {
            project_files().any(|known| path.ends_with(known.path) && !is_users(known.path))
        };
        match file.scope {
            FileOwner::Project => &self.team,
            FileOwner::Named if is_projects(&file.path) => &self.team,
            FileOwner::User | FileOwner::Named => &self.user,
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The paths of afresh in a file that lead nowhere.
fn gone_paths(servers: &[ClientServer]) -> Vec<String> {
    let path = |server: &ClientServer| server.invocation()?.local_path().map(str::to_owned);
    let is_gone = |path: &String| {
        let path = Path::new(path);
        // What cannot be looked at may be there.
        path.is_absolute() && !path.try_exists().unwrap_or(true)
    };
    servers.iter().filter_map(path).filter(is_gone).collect()
}

/// What `afresh mcp` would refuse is refused here, and not by the client weeks later.
fn check_flags(flags: &[String]) -> CommandResult<()> {
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

/// Flags that were added to others must go together with these, or the client could not start its server any more.
fn check_added_flags(
    path: &str,
    new: &str,
    touched: &[(String, EntryChange)],
) -> CommandResult<()> {
    let read = File::read(path, new.as_bytes())
        .map_err(|error| CommandError::ready(Exit::Config, error.to_string()))?;
    let has_added = |server: &ClientServer| {
        touched.iter().any(|(name, change)| *name == server.name && *change != EntryChange::Wrap)
    };
    for server in read.servers.iter().filter(|server| has_added(server)) {
        let flags: Vec<String> = server.mcp_flags().into_iter().map(str::to_owned).collect();
        check_flags(&flags).map_err(|error| {
            let name = harmless(&server.name);
            error.hint(format!("`{name}` in `{}` has other flags already", harmless(path)))
        })?;
    }
    Ok(())
}

/// Reads the files that are meant, and the user's where these are not.
fn look(
    arguments: &AdoptArgs,
    environment: &Environment,
    invocations: &Invocations,
    with: &[String],
) -> (Vec<ReadFile>, Vec<ReadFile>) {
    let see = |file: ClientFile| {
        let words: Vec<&str> = invocations.of(&file).iter().map(String::as_str).collect();
        let wrapper = Wrapper { invocation: &words, with, version: Some(VERSION), gone: &[] };
        let outcome = plan(&file, arguments, environment, &wrapper);
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
    let (meant, others) = match (arguments.user, arguments.list) {
        (true, _) => (user, Vec::new()),
        (false, true) => (project.into_iter().chain(user).collect(), Vec::new()),
        (false, false) => (project, user),
    };
    let all = |files: Vec<ClientFile>| files.into_iter().map(see).collect::<Vec<ReadFile>>();
    let mut meant = all(meant);
    // Some of the places are for other settings too: without a server there, they are none of ours.
    meant.retain(|seen| seen.plan().is_none_or(AdoptPlan::has_servers));
    (once_each(meant), all(others))
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
) -> CommandResult<AdoptPlan> {
    let text = file.read().map_err(|error| {
        let exit = match &error {
            ReadClientFileError::Missing { .. } => Exit::NotFound,
            _ => Exit::Unavailable,
        };
        CommandError::new(exit, error)
    })?;
    let path = environment.shown(&file.path);
    if is_yaml(&path) {
        let says = |key: &str| text.bytes.windows(key.len()).any(|part| part == key.as_bytes());
        let is_ours = file.scope == FileOwner::Named || says("command:") || says("cmd:");
        let words = String::from_utf8_lossy(&text.bytes);
        let snippet = is_ours.then(|| yaml_snippet(file.client, &words, wrapper));
        let (servers, touched, diff) = (Vec::new(), Vec::new(), Vec::new());
        return Ok(AdoptPlan { text, servers, touched, new: String::new(), diff, snippet });
    }
    let read = File::read(&path, &text.bytes)
        .map_err(|error| CommandError::ready(Exit::Config, error.to_string()))?;
    let wanted =
        |server: &ClientServer| arguments.only.is_empty() || arguments.only.contains(&server.name);
    let gone = gone_paths(&read.servers);
    let wrapper = &Wrapper { gone: &gone, ..*wrapper };
    let edits = match arguments.undo {
        true => read.undo(&wanted),
        false => read.adopt(wrapper, &wanted),
    };
    let change = |server: &ClientServer| match arguments.undo {
        true => (server.state() == State::Adopted).then_some(EntryChange::Wrap),
        false => server.change(wrapper),
    };
    let touched = read.servers.iter().filter(|server| wanted(server));
    let touched: Vec<(String, EntryChange)> =
        touched.filter_map(|server| Some((server.name.clone(), change(server)?))).collect();
    let (servers, new, diff) = (read.servers.clone(), read.with(&edits), read.diff(&edits));
    if !wrapper.with.is_empty() {
        check_added_flags(&path, &new, &touched)?;
    }
    let is_empty = servers.is_empty() && file.scope == FileOwner::Named;
    if is_empty {
        let problem = format!("no MCP server was found in `{}`", harmless(&path));
        let hint = "servers are known below `mcpServers`, `servers`, `mcp`, `context_servers` and `mcp_servers`; \
                    for another file, write `afresh mcp --name NAME --` in front of the command yourself";
        return Err(CommandError::new(Exit::NotFound, problem).hint(hint));
    }
    Ok(AdoptPlan { servers, touched, new, diff, text, snippet: None })
}

impl ReadFile {
    fn plan(&self) -> Option<&AdoptPlan> {
        self.outcome.as_ref().ok()
    }
}

fn nothing_found(arguments: &AdoptArgs, others: &[ReadFile]) -> CommandError {
    let place = if arguments.user { "yours" } else { "this project" };
    let text = format!("no MCP server is configured in the files of {place} that are known");
    let mut error = CommandError::new(Exit::NotFound, text);
    if others.iter().filter_map(ReadFile::plan).any(|plan| !plan.servers.is_empty()) {
        error = error.hint("there are some in your own files: `afresh adopt --user`");
    }
    error.hint("name the file, if there is one: `afresh adopt FILE`")
}

fn check_names(arguments: &AdoptArgs, seen: &[ReadFile]) -> CommandResult<()> {
    let servers = || seen.iter().filter_map(ReadFile::plan).flat_map(|plan| &plan.servers);
    let known = || servers().map(|server| server.name.as_str());
    let Some(name) = arguments.only.iter().find(|name| !known().any(|known| known == **name))
    else {
        return Ok(());
    };
    let text = format!("there is no server `{}`", harmless(name));
    let error = CommandError::new(Exit::NotFound, text);
    Err(error.did_you_mean(name, known(), "`afresh adopt --list` shows what there is"))
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

fn list(arguments: &AdoptArgs, seen: &[ReadFile]) -> CommandResult {
    if arguments.json {
        print_json(seen, false)?;
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
    Ok(exit_of(seen))
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
fn diff(seen: &[ReadFile]) -> CommandResult {
    let paint = Paint::stdout();
    let mut text = String::new();
    for ReadFile { path, outcome, .. } in seen {
        let Some(plan) = outcome.as_ref().ok().filter(|plan| !plan.diff.is_empty()) else {
            continue;
        };
        let path = harmless(path);
        text += &(paint.bold(&format!("--- {path}\n+++ {path}")) + "\n");
        for line in &plan.diff {
            let whole = format!("{}{}", line.mark.sign(), line.text);
            let painted = match line.mark {
                DiffMark::Place => paint.dim(&whole),
                DiffMark::Same => whole,
                DiffMark::Removed => paint.red(&whole),
                DiffMark::Added => paint.green(&whole),
            };
            text += &(painted + "\n");
        }
    }
    output::print(&text)
}

fn errors(seen: &[ReadFile]) {
    for error in seen.iter().filter_map(|seen| seen.outcome.as_ref().err()) {
        output::report(error);
    }
}

/// What has become of it, for people.
fn conclude(
    arguments: &AdoptArgs,
    invocations: &Invocations,
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
        if let Some(snippet) = plan.snippet.as_ref().filter(|_| !arguments.undo) {
            output::remark(&format!(
                "`{}` is YAML, which afresh does not change; write its servers so, and keep their other keys:\n{}",
                harmless(&seen.path),
                snippet.trim_end()
            ));
        }
        if allowed {
            name_changes(&seen.path, plan, arguments.undo);
        }
    }
    let failed = seen.iter().any(|seen| seen.outcome.is_err());
    let is_odd = |server: &ClientServer| matches!(server.state(), State::Odd(_));
    let has_left =
        read().any(|(_, plan)| plan.snippet.is_some() || plan.servers.iter().any(is_odd));
    if !due && !failed {
        output::remark(match arguments.undo {
            true => "nothing to undo: afresh stands in front of none of these servers",
            false if has_left => "nothing was changed: what is left alone is for you to write",
            false => "nothing to change: afresh stands in front of every server with a command",
        });
    } else if allowed && read().any(|(_, plan)| !plan.touched.is_empty()) {
        let back = if arguments.undo { "" } else { "; `afresh adopt --undo` takes it back" };
        output::remark(&format!("clients take it up when they start a server anew{back}"));
    } else if due && !allowed && !arguments.dry_run {
        output::remark("nothing was changed: `--yes` makes these changes");
    }
    let shared = read().any(|(seen, plan)| {
        seen.file.scope == FileOwner::Project && !plan.touched.is_empty() && !arguments.undo
    });
    if shared && !invocations.is_given {
        explain(&invocations.team);
    }
}

/// Names the servers of a file that have changed.
fn name_changes(path: &str, plan: &AdoptPlan, is_undo: bool) {
    let wrapped = if is_undo { "undid" } else { "adopted" };
    for (which, did) in [
        (EntryChange::Wrap, wrapped),
        (EntryChange::Update, "updated"),
        (EntryChange::AddFlags, "added flags to"),
    ] {
        let names = plan.touched.iter().filter(|(_, change)| *change == which);
        let names: Vec<String> = names.map(|(name, _)| format!("`{}`", harmless(name))).collect();
        if !names.is_empty() {
            output::remark(&format!("{did} {} in `{}`", names.join(", "), harmless(path)));
        }
    }
}

/// Says why a project's file invokes afresh as it does, where the name alone does not do.
fn explain(team: &[String]) {
    match team {
        [path] if path.contains(['/', '\\']) => output::remark(&format!(
            "`{}` is a path of this machine, because `afresh` on PATH is not this program; \
             `--afresh afresh` writes the name alone, `--afresh npx` a version that npx fetches",
            harmless(path)
        )),
        [_] => {}
        words => output::remark(&format!(
            "`{}` works for all who share the project and fetches that version; `--afresh afresh` writes \
             the name alone",
            words.join(" ")
        )),
    }
}

/// Says which of the user's own files could be changed too.
fn mention(arguments: &AdoptArgs, others: &[ReadFile]) {
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
fn print_json(seen: &[ReadFile], changed: bool) -> CommandResult {
    let files: Vec<Value> = seen.iter().map(|seen| file_to_json(seen, changed)).collect();
    let changed =
        seen.iter().filter_map(ReadFile::plan).any(|plan| changed && !plan.touched.is_empty());
    output::print_json(&json!({"changed": changed, "files": files}))
}

fn file_to_json(seen: &ReadFile, changed: bool) -> Value {
    let ReadFile { file, path, outcome } = seen;
    let client = Some(file.client).filter(|client| !client.is_empty());
    let mut all = json!({"path": path, "client": client, "whose": whose(file.scope)});
    match outcome {
        Ok(plan) => {
            let line = |line: &DiffLine| format!("{}{}", line.mark.sign(), line.text);
            all["changed"] = (changed && !plan.touched.is_empty()).into();
            all["servers"] = plan.servers.iter().map(server_to_json).collect();
            if let Some(snippet) = &plan.snippet {
                all["snippet"] = snippet.as_str().into();
            }
            all["due"] = plan.touched.iter().map(|(name, _)| name.as_str()).collect();
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
    let ClientServer { name, project, disabled, .. } = server;
    json!({"name": name, "project": project, "state": state, "why": why, "disabled": disabled})
}
