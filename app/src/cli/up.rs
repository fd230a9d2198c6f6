//! `afresh up`, and `afresh up -d`: another process keeps the services, and this one waits until they are there.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use afresh_core::config::DaemonSettings;
use afresh_core::control::{Face, ServiceStatus, State};
use afresh_core::definition::ServiceDefinition;
use afresh_core::duration::parse_duration;
use afresh_core::limits::STATUSES_QUEUE_MAX;
use afresh_core::trust::untrusted_note;
use afresh_daemon::control::{self, Daemon};
use afresh_daemon::store::lock::{LockError, Sole};
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{Lines, Reload, Reloaded, Up, UpError, monotonic};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit, OrExit, harmless_lines};
use crate::output::{self, Paint};
use crate::running_services;
use crate::status_table;
use crate::up_screen::Screen;

/// Keeps all services of `afresh.toml` alive.
///
/// Each `[service.NAME]` is started when what it depends on is there, restarted when it crashes or its health
/// checks fail, and stopped in the opposite order. `[opencode]` is a ready-made one. On a terminal, lines of
/// all services scroll by and their states stand below; `-d` goes to the background instead. There is one
/// `afresh up` for a workspace.
///
/// Ctrl+C and SIGTERM stop everything in order, a second Ctrl+C at once.
#[derive(Debug, Args)]
#[command(
    about = "Keep all services of `afresh.toml` alive",
    after_help = "Examples:\n  \
                  afresh up                  all services, in the foreground\n  \
                  afresh up -d               in the background; `afresh status`, `logs`, `down`\n  \
                  afresh up api              only `api` and what it depends on\n\n\
                  afresh.toml:\n  \
                  [service.api]\n  \
                  command = [\"node\", \"server.js\"]\n  \
                  health.http = \"http://127.0.0.1:3000/health\"\n  \
                  [opencode]                 keeps `opencode serve` alive"
)]
pub(crate) struct UpArgs {
    /// Only these services, and what they depend on [default: all with autostart]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Go to the background when all services have been started
    #[arg(short, long)]
    detach: bool,

    /// With --detach: how long to wait for the services to be ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,

    /// Also serve the control API here: 127.0.0.1:PORT, localhost:PORT or a bare PORT; 0 takes any that is
    /// free. Who asks needs the token that the log names
    #[arg(long, value_name = "ADDRESS", value_parser = crate::cli::keep::parse_address)]
    listen: Option<SocketAddr>,

    /// Plain lines, also on a terminal
    #[arg(long)]
    plain: bool,

    /// Accept all that the project's files ask for, for this process alone: for CI; see `afresh trust`
    #[arg(long)]
    trust: bool,

    /// We are the background: tell on stdout how the services are, as long as it is read
    #[arg(long, hide = true)]
    in_background: bool,
}

/// The beginnings of the names of requests that are about `afresh up`.
const CONCERNS: [&str; 2] = ["hook.", "daemon."];

pub(crate) fn run(arguments: UpArgs, environment: Environment) -> CommandResult {
    let environment = environment.with_trust(arguments.trust);
    let workspace = environment.workspace();
    let config = environment.config_for(&workspace, &[], &CONCERNS)?;
    if config.services.is_empty() {
        return Err(none_defined(&environment));
    }
    check_names(&arguments.names, &config.services)?;
    if let [other, ..] = &daemons(&environment, &[Face::Up])?[..] {
        // The state of its lock does not matter.
        let pid = Some(other.version.pid);
        return Err(failed(UpError::Lock(LockError::Taken { sole: Sole::Up, pid })));
    }
    if arguments.detach && !arguments.in_background {
        return start_background(&arguments, &environment, &workspace);
    }
    let base = workspace.root().unwrap_or(&environment.cwd).to_owned();
    let is_drawn = output::can_draw() && !arguments.plain && !arguments.in_background;
    let (sender, statuses) = sync_channel(STATUSES_QUEUE_MAX);
    let mut screen = None;
    let lines = if arguments.in_background {
        // No terminal's end is the end of the background.
        afresh_daemon::leave_session().or_exit(Exit::Unavailable)?;
        print_statuses(statuses).or_exit(Exit::Unavailable)?;
        Lines::File
    } else if is_drawn {
        let screen = screen.insert(Screen::new(statuses)?);
        Lines::Drawn(Box::new(screen.clone()))
    } else {
        drop(statuses);
        Lines::Plain { wants_colours: Paint::stdout() == Paint::Colours }
    };
    let up = Up {
        services: config.services,
        defaults: config.policy,
        hooks: environment.hook_setup(config.hooks),
        chosen: arguments.names,
        trail: config.trail,
        version: env!("CARGO_PKG_VERSION"),
        control: environment.runtime_folders(),
        on_supervisor_death: config.daemon.on_supervisor_death,
        listen: environment.control_port(arguments.listen.or(config.daemon.listen))?,
        environment: environment.variables.clone(),
        base,
        lines,
        colours: screen.is_some() && Paint::stdout() == Paint::Colours,
        statuses: Some(sender),
        reload: reload(environment.clone(), workspace.clone(), config.daemon),
        workspace,
    };
    let code = afresh_daemon::up(up).map_err(failed);
    if let Some(screen) = screen {
        screen.end();
    }
    Ok(Exit::Command(code?))
}

/// Reads the configuration again. One without services is more likely a mistake than a wish.
fn reload(environment: Environment, workspace: Workspace, daemon: DaemonSettings) -> Reload {
    Box::new(move || {
        // Hooks go on where it is not known what is trusted.
        let trust = environment.trust(&workspace);
        if let Some(problem) = trust.problem.filter(|_| !trust.is_all) {
            return Err(format!("error: {problem}"));
        }
        let config =
            environment.quiet_config(&workspace, &[]).map_err(|error| error.to_string())?;
        if config.services.is_empty() {
            return Err(
                "error: there are no services in it\nhint: `afresh down` ends all of them".into()
            );
        }
        let is_other = config.daemon != daemon;
        let note = "`[daemon]` has changed: that counts from the next `afresh up` on".to_owned();
        let untrusted = untrusted_note(&config.untrusted_names(&CONCERNS));
        Ok(Reloaded {
            services: config.services,
            hooks: config.hooks,
            notes: is_other.then_some(note).into_iter().chain(untrusted).collect(),
        })
    })
}

/// The running afresh of these kinds in this workspace. There is one `afresh up` at most.
pub(crate) fn daemons(environment: &Environment, faces: &[Face]) -> CommandResult<Vec<Daemon>> {
    let here = running_services::workspace(environment);
    let mut all = control::daemons(&environment.runtime_folders())?;
    all.retain(|daemon| faces.contains(&daemon.version.face) && daemon.version.workspace == here);
    Ok(all)
}

fn none_defined(environment: &Environment) -> CommandError {
    let place = environment.main_config_file(&environment.workspace());
    CommandError::new(Exit::Config, "there are no services to keep alive")
        .hint(format!(
            "write some into `{place}`, such as:\n\n  [service.web]\n  command = [\"node\", \"server.js\"]\n"
        ))
        .hint("`afresh keep -- CMD` keeps a single command alive, without any file")
}

fn check_names(names: &[String], services: &[ServiceDefinition]) -> CommandResult<()> {
    let known = || services.iter().map(|service| service.name.as_str());
    let Some(name) = names.iter().find(|name| !known().any(|known| known == **name)) else {
        return Ok(());
    };
    let error = CommandError::new(Exit::NotFound, format!("there is no service `{name}`"));
    let all = format!("there is: {}", known().collect::<Vec<_>>().join(", "));
    Err(error.did_you_mean(name, known(), &all))
}

fn failed(error: UpError) -> CommandError {
    match error {
        UpError::Lock(error @ LockError::Taken { .. }) => {
            let hint = "see `afresh status`; `afresh reload` applies a changed configuration, \
                        `afresh down` ends them";
            CommandError::new(Exit::Unavailable, error).hint(hint)
        }
        error => CommandError::new(Exit::Unavailable, error).hint("run `afresh doctor`"),
    }
}

/// Starts the background, and tells how the services are until all of them are settled.
fn start_background(
    arguments: &UpArgs,
    environment: &Environment,
    workspace: &Workspace,
) -> CommandResult {
    let mut command = Command::new(std::env::current_exe().or_exit(Exit::Unavailable)?);
    command.args(["up", "--in-background"]).args(&arguments.names);
    command.current_dir(&environment.cwd);
    if arguments.trust {
        command.arg("--trust");
    }
    if let Some(listen) = arguments.listen {
        command.arg("--listen").arg(listen.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().or_exit(Exit::Unavailable)?;
    let Some(stdout) = child.stdout.take() else { unreachable!("it is piped") };
    let (sender, told) = sync_channel(STATUSES_QUEUE_MAX);
    // It ends with the pipe: when the background closes it, or we end.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(all) = serde_json::from_str::<Vec<ServiceStatus>>(&line) else { return };
            if sender.send(all).is_err() {
                return;
            }
        }
    });
    let deadline = monotonic() + arguments.wait;
    let mut last: Option<Vec<ServiceStatus>> = None;
    let is_settled = loop {
        match told.recv_timeout(deadline.saturating_sub(monotonic())) {
            Ok(all) => {
                let is_settled = all.iter().all(|status| is_settled(status, &all));
                last = Some(all);
                if is_settled {
                    break true;
                }
            }
            Err(RecvTimeoutError::Timeout) => break false,
            Err(RecvTimeoutError::Disconnected) => return Err(died(child, workspace)),
        }
    };
    let all = last.unwrap_or_default();
    let lines =
        status_table::lines_of(&all.iter().collect::<Vec<_>>(), usize::MAX, Paint::stdout());
    let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    output::print(&(lines.join("\n") + "\n"))?;
    if !is_settled {
        output::remark("not all of them are ready yet; they are kept in the background");
    }
    output::remark(&format!(
        "in the background (pid {}): `afresh status`, `afresh logs -f`, `afresh down`",
        child.id()
    ));
    if let Some(warning) = environment.runtime_folders().warning() {
        output::warn(&format!("warning: {warning}"));
    }
    let has_failed = all.iter().any(|status| matches!(status.state, State::Failed { .. }));
    Ok(if has_failed { Exit::Failed } else { Exit::Success })
}

/// Whether no news are expected of a service.
fn is_settled(status: &ServiceStatus, all: &[ServiceStatus]) -> bool {
    match status.state {
        State::Starting | State::Restarting | State::Stopping => false,
        // It waits for others; one that has failed keeps it waiting.
        State::Stopped | State::Waiting => {
            let is_lost = |name: &String| {
                let needed = all.iter().find(|other| other.name == *name);
                needed.is_some_and(|needed| {
                    matches!(needed.state, State::Failed { .. } | State::Finished)
                })
            };
            status.waits_for.is_empty() || status.waits_for.iter().any(is_lost)
        }
        _ => true,
    }
}

/// The background ended before it had begun: says why.
fn died(mut child: Child, workspace: &Workspace) -> CommandError {
    let code = child.wait().ok().and_then(|status| status.code());
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(64 * 1024).read_to_string(&mut text).ok();
    }
    let text = text.trim_start_matches("error: ").trim_end().to_owned();
    let exit = code.map_or(Exit::Unavailable, Exit::Command);
    match text.is_empty() {
        true => CommandError::new(exit, "the background ended at once")
            .hint(format!("see `{}`", workspace.state().join("up.log").display())),
        false => CommandError::new(exit, harmless_lines(&text)),
    }
}

/// Prints the states for the process that started us, as long as it reads them.
fn print_statuses(statuses: Receiver<Vec<ServiceStatus>>) -> io::Result<()> {
    let print = move || {
        let mut stdout = io::stdout();
        for all in statuses {
            let line = serde_json::to_string(&all).unwrap_or_default();
            if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("statuses".to_owned()).stack_size(64 * 1024);
    thread.spawn(print).map(drop)
}
