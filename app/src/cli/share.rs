//! `afresh mcp --share`: what a shim is started with, and the hidden command of the hub. Never decides which sessions share a
//! server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::config::Flag;
use afresh_core::gateway::backend::{Backend, Pin, Prefix, Share, StdioServer, Transport};
use afresh_core::gateway::inherited_env::InheritedEnv;
use afresh_core::limits::CLIENT_FLIGHTS_MAX;
use afresh_core::share::SessionRequest;
use afresh_daemon::{HubPlace, ShareHub, SharedServer, ShimEnd, ShimSetup, run_shim, share_hub};

use crate::cli::keep::CommandFlags;
use crate::cli::mcp::tools_of;
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output;

/// The shim of a session. None where there is no place for a hub, or the session is not text: then it is said, and the
/// server runs unshared.
pub(super) fn setup(
    environment: &Environment,
    command: &CommandFlags,
    session: SessionRequest,
) -> Option<ShimSetup> {
    let session = with_command(environment, command, session).or_else(|| {
        output::warn("note: the server is not shared: its command or a variable is not UTF-8 text");
        None
    })?;
    let workspace = environment.workspace();
    let root = workspace.root().unwrap_or(&environment.cwd);
    let place = HubPlace::of(&environment.runtime_folders(), root).or_else(|| {
        output::warn("note: the server is not shared: there is no private folder for a socket");
        None
    })?;
    let mut unshared: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The command comes last, so the first of these words is ours.
    let flag = unshared.iter().position(|word| word == "--share")?;
    unshared.remove(flag);
    let started_by = environment.started_by;
    Some(ShimSetup { place, session, started_by, version: env!("CARGO_PKG_VERSION"), unshared })
}

fn with_command(
    environment: &Environment,
    flags: &CommandFlags,
    session: SessionRequest,
) -> Option<SessionRequest> {
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let mut env = BTreeMap::new();
    for (name, value) in &environment.variables {
        env.insert(text(name)?, text(value)?);
    }
    env.extend(flags.variables.iter().cloned());
    let cwd = flags.cwd.as_ref();
    let cwd = cwd.map_or_else(|| environment.cwd.clone(), |cwd| environment.cwd.join(cwd));
    Some(SessionRequest {
        name: flags.name(),
        command: flags.command.iter().map(text).collect::<Option<_>>()?,
        cwd: cwd.to_str()?.to_owned(),
        env,
        ..session
    })
}

/// Runs the shim until its client is gone.
pub(super) fn run(setup: ShimSetup) -> CommandResult {
    match run_shim(setup) {
        ShimEnd::Done => Ok(Exit::Success),
        ShimEnd::Failed(error) => {
            Err(CommandError::new(Exit::Unavailable, error).hint("start it without `--share`"))
        }
    }
}

/// Runs the hub that a shim has started.
pub(crate) fn run_hub(environment: &Environment) -> CommandResult {
    let socket = std::env::args_os().nth(2).map(PathBuf::from);
    let socket = socket.ok_or_else(|| CommandError::new(Exit::Usage, "the socket is missing"))?;
    let workspace = environment.workspace();
    let config = environment.quiet_config(&workspace, &[])?;
    let own = environment.clone();
    let hub = ShareHub {
        place: HubPlace::at(socket),
        trail: config.trail,
        version: env!("CARGO_PKG_VERSION"),
        control: environment.runtime_folders(),
        resolve: Box::new(move |session| resolve(&own, session).map_err(|error| error.to_string())),
        workspace,
    };
    Ok(Exit::Command(share_hub(hub)?))
}

/// The server of a session, by the configuration as it is now.
fn resolve(
    environment: &Environment,
    session: &SessionRequest,
) -> Result<SharedServer, CommandError> {
    let variables = session.env.iter().map(|(name, value)| (name.into(), value.into()));
    let environment = Environment { variables: variables.collect(), ..environment.clone() };
    let flags: Vec<Flag<'_>> =
        session.flags.iter().map(|(name, setting, value)| Flag { name, setting, value }).collect();
    let config = environment.quiet_config(&environment.workspace(), &flags)?;
    let policy = config.mcp_policy();
    let stdio = StdioServer {
        command: session.command.clone(),
        cwd: Some(PathBuf::from(&session.cwd)),
        env: session.env.clone().into_iter().collect(),
        inherit_env: InheritedEnv::Minimal,
        env_file: None,
        spare: policy.spare,
        policy,
        health: config.health,
        watch: session.watch.iter().map(PathBuf::from).collect(),
        watch_debounce: config.watch_debounce,
        tell_restarts: config.tell_restarts,
    };
    let backend = Backend {
        name: session.name.clone(),
        transport: Transport::Stdio(Box::new(stdio)),
        prefix: Prefix::None,
        allow: None,
        deny: Vec::new(),
        share: Share::All,
        hide_when_down: false,
        call_timeout: None,
        in_flight_max: CLIENT_FLIGHTS_MAX,
        pin: Pin::Off,
    };
    let (tools, tells_restarts) = (tools_of(session), config.tell_restarts);
    Ok(SharedServer { backend, tools, tells_restarts })
}
