//! `afresh run`.

mod agent_mcp_servers;
mod flags;
mod progress_lines;
mod resume_choice;
mod screen;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use afresh_core::adopt::agent_mcp_servers::{AgentServers, SupervisedServer};
use afresh_core::agent::AgentKind;
use afresh_core::audit::redact::redact_args;
use afresh_core::config::{Config, RunSettings, ShownSetting};
use afresh_core::limits::SUMMARY_WRITE_MAX;
use afresh_core::run::plan::{Phase, Plan};
use afresh_core::run::{Exclude, Finish, Machine, ResumeState};
use afresh_core::text::harmless;
use afresh_core::time::Stamp;
use afresh_daemon::store::git_folder::git_folder;
use afresh_daemon::store::lock::{Lock, LockError, Sole};
use afresh_daemon::store::runs::Runs;
use afresh_daemon::{AgentSetup, ProcessMark, Run, RunError, RunUpdate, WritePath, program_in};
use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};

use self::agent_mcp_servers::OwnServers;
use self::flags::RunFlags;
use self::progress_lines::ProgressPrinter;
use self::resume_choice::PlanRuns;
use self::screen::{Facts, RunScreen};
use crate::cli::config::print_tables;
use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output;
use crate::plan_file;

/// Let a coding agent carry out a plan, with a fresh session before its context is full
#[derive(Debug, Args)]
#[command(
    long_about = "Lets a coding agent carry out a plan, phase by phase.\n\nEach phase gets a fresh session. Its \
                  use of the context window is followed: at the soft threshold the agent is asked to come to an \
                  end, at the hard one it is interrupted and writes a handoff; what it did is committed, and a \
                  new session goes on from there. When the agent says that it is done, the gates of the phase \
                  are run by afresh itself; where one fails, another session mends it.\n\nOn a terminal, a live view \
                  shows all of it, with keys to pause, steer, restart, skip and stop; `?` lists them. Ctrl+C ends \
                  in order; `--resume` goes on. `afresh plan new` writes an example of a plan.",
    after_help = "Examples:\n  \
                  afresh run PLAN.md                              with the first agent that is installed\n  \
                  afresh run PLAN.md --agent codex --max-restarts 5\n  \
                  afresh run PLAN.md --dry-run                    what would be done\n  \
                  afresh run --resume                             after Ctrl+C, a kill or a reboot\n\n\
                  What is under Settings can also be set in `[run]` of `afresh.toml` or by a variable: see \
                  `afresh config show`."
)]
pub(crate) struct RunArgs {
    /// The plan
    #[arg(value_name = "PLAN", default_value = PLAN, value_hint = ValueHint::FilePath)]
    plan: PathBuf,

    /// Go on with the last run of this plan that is not done
    #[arg(long)]
    resume: bool,

    /// Show what would be done and with which settings, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Plain lines, also on a terminal
    #[arg(long)]
    plain: bool,

    /// Accept all that the project's files ask for, for this process alone: for CI; see `afresh trust`
    #[arg(long)]
    trust: bool,

    /// With `--dry-run`: the same as one object
    #[arg(long, requires = "dry_run")]
    json: bool,

    // Last, because their heading would also stand over what follows.
    #[command(flatten)]
    flags: RunFlags,
}

/// The plan, where none is named.
const PLAN: &str = "PLAN.md";

pub(crate) fn run(arguments: &RunArgs, environment: &Environment) -> Result<Exit, CommandError> {
    let environment = &environment.with_trust(arguments.trust);
    let plan = read_plan(&arguments.plan, environment)?;
    let mut workspace = environment.workspace();
    let config = arguments.flags.config(environment, &workspace)?;
    warn_of_files(&plan, &config.run);
    let (kind, program) = agent(&config.run, environment)?;
    let servers = OwnServers::new(kind, &program, config.run.supervise_mcp, environment)?;
    let found = servers.find();
    agent_mcp_servers::warn(&found);
    if let Some(warning) = config.run.settings.unkept(&plan, kind) {
        output::warn(&harmless(&warning));
    }
    if arguments.dry_run {
        return show_dry_run(&plan, kind, &program, &config, &found, arguments.json);
    }
    let settings = config.run;
    installed(&program, environment)?;
    if let Some(notice) = workspace.prepare().map_err(unavailable)? {
        output::warn(&notice);
    }
    let _lock = Lock::take(&workspace.writable_state(), Sole::Run).map_err(unavailable)?;
    let _git_lock = lock_git(&environment.cwd, settings.settings.without_git)?;
    let mark = ProcessMark::of(&workspace.writable_state()).map_err(unavailable)?;
    let env = end_leftovers(&mark, environment.variables.clone())?;
    let runs = Runs::open(&workspace.writable_state())?;
    let (cwd, root) = (environment.cwd.as_path(), workspace.root());
    let of_plan = PlanRuns { runs: &runs, plan: &arguments.plan, cwd, root };
    let (number, past) = match arguments.resume {
        true => of_plan.resume()?,
        false => (of_plan.begin(&plan.title, kind)?, ResumeState::default()),
    };
    let logs = workspace.writable_state().join("runs").join(number.to_string());
    logs.make_folder().map_err(unavailable)?;
    let teller = ProgressPrinter::new();
    teller.begins(number, &plan, kind, logs.path());
    agent_mcp_servers::tell(&found);
    let (sender, requests) = afresh_daemon::user_requests();
    let is_drawn = !arguments.plain && screen::is_possible();
    let screen = is_drawn.then(|| RunScreen::start(Facts::new(&plan, number, kind), sender));
    let (events, display) = start_display(screen.transpose()?, teller)?;
    let finish = afresh_daemon::run(Run {
        machine: Machine::new(plan, settings.settings, past),
        agent: AgentSetup {
            kind,
            program,
            model: settings.model,
            permission: settings.permission,
            servers: Box::new(move || {
                servers.find().servers.into_iter().map(|it| it.server).collect()
            }),
            servers_file: workspace.writable_state().join("agent-servers.json"),
        },
        folder: environment.cwd.clone(),
        logs,
        env,
        mark,
        runs,
        number,
        workspace,
        control: Some(environment.runtime_folders()),
        version: env!("CARGO_PKG_VERSION"),
        branch: settings.branch,
        // Our own state is never committed.
        excludes: Exclude::parse(".afresh/").into_iter().chain(settings.excludes).collect(),
        events,
        requests,
        hears_jobs: is_drawn,
    });
    // The run is over, and with it the updates.
    let screen = display.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    end(screen.as_ref(), conclude(number, finish, &arguments.again()))
}

/// The plan, if it is sound. Says its warnings.
fn read_plan(file: &Path, environment: &Environment) -> Result<Plan, CommandError> {
    let read = plan_file::read(file, environment)?;
    let sound = read.result.map_err(|errors| CommandError::config(&errors))?;
    sound.warnings.iter().for_each(|warning| output::warn(&warning.to_string()));
    Ok(sound.plan)
}

/// Starts the thread that shows the updates of a run; it gives back the screen when they end.
fn start_display(
    screen: Option<RunScreen>,
    teller: ProgressPrinter,
) -> Result<(SyncSender<RunUpdate>, JoinHandle<Option<RunScreen>>), CommandError> {
    let (events, updates) = afresh_daemon::run_events();
    let thread = thread::Builder::new().name("display".to_owned());
    Ok((events, thread.spawn(move || display_updates(updates, screen, &teller))?))
}

/// Shows the updates of a run until they end: on the screen, or as lines where there is none any more.
fn display_updates(
    updates: Receiver<RunUpdate>,
    screen: Option<RunScreen>,
    teller: &ProgressPrinter,
) -> Option<RunScreen> {
    for update in updates {
        match (update, &screen) {
            (RunUpdate::Progress { says, view }, Some(screen)) if screen.show(&says, &view) => {}
            (RunUpdate::Progress { says, view }, _) => teller.tell(&says, &view),
            (RunUpdate::Job(job), Some(screen)) => screen.hear_job(job),
            (RunUpdate::Job(_), None) => {}
        }
    }
    screen
}

/// Gives the terminal back, and says how it ended.
fn end(
    screen: Option<&RunScreen>,
    conclusion: Result<String, CommandError>,
) -> Result<Exit, CommandError> {
    let exit = conclusion.as_ref().map_or_else(|error| error.exit, |_| Exit::Success);
    let Some(lines) = screen.map(RunScreen::end) else {
        output::remark(&conclusion?);
        return Ok(exit);
    };
    if let Some(lines) = lines {
        let say = move || {
            ProgressPrinter::new().lines(lines);
            match conclusion {
                Ok(words) => output::remark(&words),
                Err(error) => drop(output::report(&error)),
            }
        };
        // A terminal that does not read would hold us up for ever.
        output::say_in_time(say, SUMMARY_WRITE_MAX);
    }
    Ok(exit)
}

/// Two runs that commit to one repository would take each other's work for theirs.
fn lock_git(folder: &Path, is_unused: bool) -> Result<Option<Lock>, CommandError> {
    if is_unused {
        return Ok(None);
    }
    let git = git_folder(folder).map_err(|error| {
        let hint = format!("if both are yours, run `{}`", harmless(&error.remedy()));
        CommandError::new(Exit::Config, harmless(&error.to_string()))
            .hint(hint)
            .hint("`--no-git` runs the plan without git")
    })?;
    let Some(git) = git else { return Ok(None) };
    match Lock::take(&WritePath::beneath(&git, ""), Sole::RunInGit) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Taken { .. }) => Err(unavailable(error)),
        // A folder that cannot be written cannot be committed to either, which git reports.
        Err(LockError::File { .. }) => Ok(None),
    }
}

/// It is said before anything is begun.
fn installed(program: &[String], environment: &Environment) -> Result<(), CommandError> {
    let Some(name) = program.first() else { return Ok(()) };
    let is_path = Path::new(name).components().count() > 1;
    let is_there =
        if is_path { environment.cwd.join(name).is_file() } else { on_path(name, environment) };
    if is_there {
        return Ok(());
    }
    let place = if is_path { "is no file" } else { "is not on the PATH" };
    let text = format!("the agent cannot be started: `{}` {place}", harmless(name));
    let hint = "install it, or say with --agent-command how it is started";
    Err(CommandError::new(Exit::NotFound, text).hint(hint))
}

/// Without git, which files are touched is not checked.
fn warn_of_files(plan: &Plan, settings: &RunSettings) {
    if settings.settings.without_git && plan.phases.iter().any(|phase| !phase.files.is_empty()) {
        output::warn("the `Files:` of the plan are not checked: only git knows what was touched");
    }
}

/// Ends what a run has left that was killed, and marks what this one starts.
fn end_leftovers(
    mark: &ProcessMark,
    mut variables: Vec<(OsString, OsString)>,
) -> Result<Vec<(OsString, OsString)>, CommandError> {
    match mark.end_leftovers(&variables) {
        Ok(0) => {}
        Ok(1) => output::warn("1 process of a run that was killed was still at work: ended"),
        Ok(count) => output::warn(&format!(
            "{count} processes of a run that was killed were still at work: ended"
        )),
        Err(pids) => {
            let text = format!("processes of a run that was killed cannot be ended: {pids:?}");
            return Err(CommandError::new(Exit::Unavailable, text).hint("end them, and try again"));
        }
    }
    mark.put(&mut variables);
    Ok(variables)
}

/// Says how it ended, and what to do about it.
fn conclude(
    number: i64,
    finish: Result<Finish, RunError>,
    again: &str,
) -> Result<String, CommandError> {
    let finish = finish.map_err(|error| {
        unavailable(error).hint(format!("when that is mended, `{again}` goes on"))
    })?;
    match finish {
        Finish::Done => Ok(format!("run {number} is done; `afresh runs show {number}` tells more")),
        Finish::Skipped { why } => {
            let text = format!("run {number} is over, but not done: {why}");
            let hint = format!("`{again}` takes up what was skipped");
            Err(CommandError::new(Exit::Failed, text).hint(hint))
        }
        Finish::Stopped { why } => {
            let text = format!("run {number} has stopped: {why}");
            Err(CommandError::new(Exit::Failed, text).hint(format!("`{again}` goes on")))
        }
        Finish::Failed { why } => {
            let text = format!("run {number} has failed: {why}");
            let hint = format!(
                "`afresh runs show {number}` tells what happened; `{again}` tries that phase again"
            );
            Err(CommandError::new(Exit::Failed, text).hint(hint))
        }
        Finish::Refused { why, hint } => Err(CommandError::new(Exit::Unavailable, why).hint(hint)),
    }
}

/// Which agent, and its program.
fn agent(
    settings: &RunSettings,
    environment: &Environment,
) -> Result<(AgentKind, Vec<String>), CommandError> {
    let command = settings.command.clone();
    let own = |kind: AgentKind| vec![kind.name().to_owned()];
    match settings.agent {
        Some(AgentKind::Command) if command.is_empty() => {
            Err(CommandError::new(Exit::Usage, "the agent `command` needs a command")
                .hint("add --agent-command 'my-agent --prompt {prompt}'"))
        }
        Some(kind) => Ok((kind, if command.is_empty() { own(kind) } else { command })),
        None if !command.is_empty() => {
            Err(CommandError::new(Exit::Usage, "which agent is `--agent-command`?")
                .hint("add --agent claude, codex, opencode or command"))
        }
        None => {
            // Some systems have a program that is called `command`.
            let mut known = AgentKind::ALL.into_iter().filter(|kind| *kind != AgentKind::Command);
            let found = known.find(|kind| on_path(kind.name(), environment));
            let kind = found.ok_or_else(|| {
                CommandError::new(
                    Exit::NotFound,
                    "no agent is installed: none of claude, codex and opencode is on the PATH",
                )
                .hint("install one of them, or pass --agent command --agent-command …")
            })?;
            Ok((kind, own(kind)))
        }
    }
}

fn on_path(name: &str, environment: &Environment) -> bool {
    let path = environment.variable("PATH").cloned().unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| program_in(&environment.cwd.join(folder), name).is_some())
}

fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> CommandError {
    CommandError::new(Exit::Unavailable, error)
}

fn now() -> Stamp {
    Stamp::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Shows the phases in their order, and the settings with where they come from.
fn show_dry_run(
    plan: &Plan,
    kind: AgentKind,
    program: &[String],
    config: &Config,
    found: &AgentServers,
    json: bool,
) -> Result<Exit, CommandError> {
    let settings: Vec<ShownSetting> =
        config.shown().filter(|shown| shown.section == "run").collect();
    let program = redact_args(program);
    if json {
        let settings: Map<String, Value> =
            settings.iter().map(|shown| (shown.key.to_owned(), shown.value.to_json())).collect();
        let phase = |phase: &Phase| {
            let gates: Vec<&str> = phase.gates.iter().map(|gate| gate.command.as_str()).collect();
            json!({"name": phase.name, "gates": gates})
        };
        let server = |it: &SupervisedServer| json!({"name": it.server.name, "from": it.from});
        let all = json!({
            "title": plan.title,
            "agent": kind.name(),
            "program": program,
            "phases": plan.phases.iter().map(phase).collect::<Vec<_>>(),
            "supervised_servers": found.servers.iter().map(server).collect::<Vec<_>>(),
            "settings": settings,
        });
        return output::print_json(&all);
    }
    let (title, program) = (harmless(&plan.title), harmless(&program.join(" ")));
    let mut text = format!("{title}\nagent: {} ({program})\n", kind.name());
    for server in &found.servers {
        let (name, from) = (harmless(&server.server.name), harmless(&server.from));
        text.push_str(&format!("MCP server behind afresh: {name} (from {from})\n"));
    }
    for (at, phase) in plan.phases.iter().enumerate() {
        text.push_str(&format!("{}. {}\n", at + 1, harmless(&phase.name)));
        for gate in &phase.gates {
            text.push_str(&format!("   gate: {}\n", harmless(&gate.command)));
        }
    }
    text.push('\n');
    output::print(&text)?;
    print_tables(&settings, &[])?;
    Ok(Exit::Success)
}
