//! `afresh up`.

mod background;

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use afresh_core::config::DaemonSettings;
use afresh_core::control::Face;
use afresh_core::definition::ServiceDefinition;
use afresh_core::limits::STATUSES_QUEUE_MAX;
use afresh_core::suggest::nearest;
use afresh_core::time::parse_duration;
use afresh_daemon::control::{self, Daemon};
use afresh_daemon::store::lock::{LockError, Sole};
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{Lines, Reload, Reloaded, Up, UpError};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};
use crate::running;
use crate::screen::Screen;

/// Keep all services of `afresh.toml` alive
#[derive(Debug, Args)]
#[command(
    long_about = "Keeps all services of `afresh.toml` alive.\n\nEach `[service.NAME]` is started when \
                  what it depends on is there, restarted when it crashes or its health checks fail, \
                  and stopped in the opposite order. `[opencode]` is a ready-made one. On a terminal, \
                  lines of all services scroll by and their states stand below; `-d` goes to the \
                  background instead. There is one `afresh up` for a workspace.\n\nCtrl+C and SIGTERM \
                  stop everything in order, a second Ctrl+C at once.",
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
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_wait)]
    wait: Duration,

    /// Also serve the control API here: 127.0.0.1:PORT, localhost:PORT or a bare PORT; 0 takes any that is
    /// free. Who asks needs the token that the log names
    #[arg(long, value_name = "ADDRESS", value_parser = crate::cli::keep::parse_address)]
    listen: Option<SocketAddr>,

    /// Plain lines, also on a terminal
    #[arg(long)]
    plain: bool,

    /// We are the background: tell on stdout how the services are, as long as it is read
    #[arg(long, hide = true)]
    in_background: bool,
}

pub(crate) fn run(arguments: UpArgs, environment: Environment) -> Result<Exit, CommandError> {
    let workspace = environment.workspace();
    let config = environment.config(&workspace, &[])?;
    if config.services.is_empty() {
        return Err(none_defined(&environment));
    }
    check_names(&arguments.names, &config.services)?;
    if let Some(other) = daemon(&environment)? {
        // The state of its lock does not matter.
        return Err(failed(UpError::Lock(LockError::Taken {
            sole: Sole::Up,
            pid: Some(other.version.pid),
        })));
    }
    if arguments.detach && !arguments.in_background {
        return background::start(&arguments, &environment, &workspace);
    }
    let base = workspace.root().unwrap_or(&environment.cwd).to_owned();
    let is_drawn = output::can_draw() && !arguments.plain && !arguments.in_background;
    let (sender, statuses) = sync_channel(STATUSES_QUEUE_MAX);
    let mut screen = None;
    let lines = if arguments.in_background {
        background::leave_terminal()?;
        background::print_statuses(statuses)?;
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
        listen: arguments.listen.or(config.daemon.listen),
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
    Ok(match code? {
        0 => Exit::Success,
        code => Exit::Command(code),
    })
}

/// Reads the configuration again. One without services is more likely a mistake than a wish.
fn reload(environment: Environment, workspace: Workspace, daemon: DaemonSettings) -> Reload {
    Box::new(move || {
        let config =
            environment.quiet_config(&workspace, &[]).map_err(|error| error.to_string())?;
        if config.services.is_empty() {
            return Err(
                "error: there are no services in it\nhint: `afresh down` ends all of them".into()
            );
        }
        let is_other = config.daemon != daemon;
        let note = "`[daemon]` has changed: that counts from the next `afresh up` on".to_owned();
        Ok(Reloaded {
            services: config.services,
            hooks: config.hooks,
            notes: is_other.then_some(note).into_iter().collect(),
        })
    })
}

/// The `afresh up` of this workspace, where there is one.
pub(crate) fn daemon(environment: &Environment) -> Result<Option<Daemon>, CommandError> {
    Ok(daemons(environment, &[Face::Up])?.into_iter().next())
}

/// All of some kinds in this workspace.
pub(crate) fn daemons(
    environment: &Environment,
    faces: &[Face],
) -> Result<Vec<Daemon>, CommandError> {
    let here = running::workspace(environment);
    let mut all = control::daemons(&environment.runtime_folders()).map_err(running::failed)?;
    all.retain(|daemon| faces.contains(&daemon.version.face) && daemon.version.workspace == here);
    Ok(all)
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn none_defined(environment: &Environment) -> CommandError {
    let files = environment.config_files(&environment.workspace());
    let place =
        files.first().map_or_else(|| "afresh.toml".to_owned(), |(_, path)| environment.shown(path));
    CommandError::new(Exit::Config, "there are no services to keep alive")
        .hint(format!(
            "write some into `{place}`, such as:\n\n  [service.web]\n  command = [\"node\", \"server.js\"]\n"
        ))
        .hint("`afresh keep -- CMD` keeps a single command alive, without any file")
}

fn check_names(names: &[String], services: &[ServiceDefinition]) -> Result<(), CommandError> {
    let known = || services.iter().map(|service| service.name.as_str());
    let Some(name) = names.iter().find(|name| !known().any(|known| known == **name)) else {
        return Ok(());
    };
    let error = CommandError::new(Exit::NotFound, format!("there is no service `{name}`"));
    Err(match nearest(name, known()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("there is: {}", known().collect::<Vec<_>>().join(", "))),
    })
}

fn failed(error: UpError) -> CommandError {
    match error {
        UpError::Lock(error @ LockError::Taken { .. }) => CommandError::new(
            Exit::Unavailable,
            error,
        )
        .hint(
            "see `afresh status`; `afresh reload` applies a changed configuration, `afresh down` \
                 ends them",
        ),
        error => CommandError::new(Exit::Unavailable, error).hint("run `afresh doctor`"),
    }
}
