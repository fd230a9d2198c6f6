//! `afresh keep`: its flags, among them those of health checks and of the restart policy. Never runs a check.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::config::{Flag, parse_size};
use afresh_core::definition::{LogLimits, Port};
use afresh_core::duration::parse_duration;
use afresh_core::health::{HealthCheck, Probe};
use afresh_core::hook::{HookDefinition, HookEvent, HookTarget, Shape};
use afresh_core::policy::{Policy, RestartMode};
use afresh_daemon::{Command, Keep};
use clap::Args;
use serde_json::Value;

use crate::cli::gateway::parse_listen;
use crate::environment::Environment;
use crate::error::{CommandResult, Exit};

/// Keep a command alive in the foreground
#[derive(Debug, Args)]
#[command(
    long_about = "Keeps a command alive in the foreground.\n\nThe command runs in its own process \
                  group, with our stdin, stdout and stderr passed through. When it crashes it is \
                  started again, with growing waits; when it exits with code 42 it is started \
                  again at once; when it exits with 0, afresh ends too. Whatever it started ends \
                  with it. Every word of afresh goes to stderr, every event to the trail \
                  (`afresh history`).\n\nCtrl+C and SIGTERM stop it in order, a second Ctrl+C at \
                  once. SIGUSR1 restarts it.",
    after_help = "Examples:\n  \
                  afresh keep -- node server.js\n  \
                  afresh keep --policy always --max-restarts 0 -- ./worker\n  \
                  afresh keep --delay 200ms --stop-timeout 30s --cwd api -- cargo run\n  \
                  afresh keep --health-http http://localhost:3000/health -- node server.js\n  \
                  afresh keep --copies 4 --name worker -- ./worker   (each finds its number in AFRESH_COPY)\n\n\
                  What is under Restarts can also be set in `afresh.toml` or by a variable: see `afresh config show`."
)]
pub(crate) struct KeepArgs {
    #[command(flatten)]
    command: CommandFlags,

    /// Give it none of our own environment, only what `--env` says (and PATH)
    #[arg(long)]
    clear_env: bool,

    #[command(flatten)]
    log: LogFlags,

    /// Run this many of it at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    copies: u32,

    /// Also serve the control API here: 127.0.0.1:PORT, localhost:PORT or a bare PORT; 0 takes any that is
    /// free. Who asks needs the token that the log names
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,

    /// Tell a hook everything: `json=URL`, `slack=URL`, `discord=URL`, `ntfy=URL`, `command=PROGRAM` or
    /// `desktop`. For tests, and for a look before it goes into the configuration
    #[arg(long = "hook", value_name = "KIND=TARGET", value_parser = parse_hook, hide = true)]
    hooks: Vec<HookTarget>,

    // Last, because their headings would also stand over what follows.
    #[command(flatten)]
    health: HealthFlags,

    #[command(flatten)]
    policy: PolicyFlags,
}

/// What is run, under which name, and where.
#[derive(Debug, Args)]
pub(crate) struct CommandFlags {
    /// The name in the log and in the trail [default: that of the command]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,

    /// Start it in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Set a variable for it; may be given more than once
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = |text: &str| parse_pair(text, "NAME=VALUE"))]
    pub(crate) variables: Vec<(String, String)>,

    /// The command and its arguments; `--` may stand in front of it
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl CommandFlags {
    /// The name in the log and in the trail.
    pub(crate) fn name(&self) -> String {
        let program = &self.command[0];
        let name =
            || Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(name)
    }

    /// The command as it is run here.
    pub(crate) fn command(self, environment: &Environment, clear_env: bool) -> Command {
        let kept = |(name, _): &&(OsString, OsString)| !clear_env || name == "PATH";
        let mut env: Vec<_> = environment.variables.iter().filter(kept).cloned().collect();
        for (name, value) in self.variables {
            env.retain(|(other, _)| *other != *name);
            env.push((name.into(), value.into()));
        }
        let cwd = self.cwd.map_or_else(|| environment.cwd.clone(), |cwd| environment.cwd.join(cwd));
        Command { argv: self.command, cwd: Some(cwd), env }
    }
}

/// What is kept of its output, and how much.
#[derive(Debug, Args)]
struct LogFlags {
    /// Also keep its output on disk, in `.afresh/logs/NAME.log`; `afresh logs` shows it
    #[arg(long)]
    log: bool,

    /// Begin a new file at this size [default: 16MiB]
    #[arg(long, value_name = "SIZE", requires = "log", value_parser = parse_log_size)]
    log_size: Option<u64>,

    /// Keep so many older files [default: 5]
    #[arg(long, value_name = "N", requires = "log", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    log_files: Option<u32>,
}

fn parse_log_size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).filter(|size| (4_096..=1 << 40).contains(size));
    size.ok_or_else(|| "write a size from 4KiB to 1024GiB, such as `16MiB`".to_owned())
}

/// The restart policy, as flags. Their values are read with those of the other layers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Restarts")]
pub(crate) struct PolicyFlags {
    /// Which ends are followed by a restart: always, on-crash or never [default: on-crash]
    #[arg(long, value_name = "POLICY", allow_hyphen_values = true)]
    policy: Option<String>,
    /// Also restart after a clean exit
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    restart_on_normal_exit: Option<String>,
    /// The exit code that asks for a restart [default: 42]
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    restart_code: Option<String>,
    /// How waits grow: exponential or stepped (1 s, 5 s, 10 s) [default: exponential]
    #[arg(long, value_name = "KIND", allow_hyphen_values = true)]
    backoff: Option<String>,
    /// The wait before the first restart [default: 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// By how much each wait is longer than the one before [default: 2]
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true)]
    factor: Option<String>,
    /// The longest wait [default: 1m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    max_delay: Option<String>,
    /// Up to this many percent are added to each wait at random [default: 50]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// The least time between two requested restarts [default: 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    throttle: Option<String>,
    /// So many crashes within the window are a crash loop; 0 for never [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    crash_loop_count: Option<String>,
    /// The window of the crash loop [default: 1m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    crash_loop_window: Option<String>,
    /// A run longer than this was fine, and the count begins anew [default: 1m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stable_after: Option<String>,
    /// Restarts in a row before giving up; 0 for never [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_restarts: Option<String>,
    /// A stop closes stdin, waits this long, then sends SIGTERM [default: 0s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stdin_timeout: Option<String>,
    /// The time between SIGTERM and SIGKILL [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stop_timeout: Option<String>,
}

impl PolicyFlags {
    /// The flags that were given, as a layer of the configuration.
    pub(crate) fn flags(&self) -> Vec<Flag<'_>> {
        [
            ("--policy", "defaults.policy", &self.policy),
            (
                "--restart-on-normal-exit",
                "defaults.restart_on_normal_exit",
                &self.restart_on_normal_exit,
            ),
            ("--restart-code", "defaults.restart_code", &self.restart_code),
            ("--backoff", "defaults.backoff", &self.backoff),
            ("--delay", "defaults.delay", &self.delay),
            ("--factor", "defaults.factor", &self.factor),
            ("--max-delay", "defaults.max_delay", &self.max_delay),
            ("--jitter", "defaults.jitter", &self.jitter),
            ("--throttle", "defaults.throttle", &self.throttle),
            ("--crash-loop-count", "defaults.crash_loop_count", &self.crash_loop_count),
            ("--crash-loop-window", "defaults.crash_loop_window", &self.crash_loop_window),
            ("--stable-after", "defaults.stable_after", &self.stable_after),
            ("--max-restarts", "defaults.max_restarts", &self.max_restarts),
            ("--stdin-timeout", "defaults.stdin_timeout", &self.stdin_timeout),
            ("--stop-timeout", "defaults.stop_timeout", &self.stop_timeout),
        ]
        .into_iter()
        .filter_map(|(name, setting, value)| Some(Flag { name, setting, value: value.as_deref()? }))
        .collect()
    }
}

/// The health check, as flags.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Health")]
struct HealthFlags {
    /// It is well when a GET of this URL is answered with a status from 200 to 299
    #[arg(long, value_name = "URL", group = "probe")]
    health_http: Option<String>,
    /// And the answer is JSON in which this field has this value, such as `healthy=true`; dots lead into
    /// objects and lists
    #[arg(long, value_name = "FIELD=VALUE", requires = "health_http", value_parser = parse_field)]
    health_json: Option<(String, Value)>,
    /// It is well when a connection to this address can be made. One that hangs still takes connections
    #[arg(long, value_name = "HOST:PORT", group = "probe")]
    health_tcp: Option<String>,
    /// It is well when this command exits with 0; its words are separated by spaces, no shell is involved
    #[arg(long, value_name = "CMD", group = "probe")]
    health_exec: Option<String>,
    /// It is well when it answers as an MCP server at this URL, over streamable HTTP
    #[arg(long, value_name = "URL", group = "probe")]
    health_mcp: Option<String>,
    /// The time between two checks, once it is ready [default: 10s]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    health_interval: Option<Duration>,
    /// An answer later than this is none [default: 10s]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    health_timeout: Option<Duration>,
    /// So many failures in a row count as a crash, and twice as many while its processes work
    /// [default: 3]
    #[arg(long, value_name = "N", requires = "probe", value_parser = clap::value_parser!(u32).range(1..))]
    health_failures: Option<u32>,
    /// One that is not ready this long after its start counts as crashed; 0s waits for ever
    /// [default: 1m]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    ready_timeout: Option<Duration>,
    /// The port that it must have for itself: it is not started while another program listens there
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_port)]
    port: Option<Port>,
}

impl HealthFlags {
    /// The check; none where none is asked for.
    fn check(&self) -> Option<HealthCheck> {
        let http = self.health_http.clone().map(|url| Probe::Http {
            url,
            status: None,
            json: self.health_json.clone(),
            headers: Vec::new(),
        });
        let tcp = self.health_tcp.clone().map(|address| Probe::Tcp { address });
        let exec = self.health_exec.as_deref().map(|command| Probe::Exec {
            command: command.split_whitespace().map(str::to_owned).collect(),
        });
        let mcp = self.health_mcp.clone().map(|url| Probe::Mcp { url });
        let usual = HealthCheck::new(http.or(tcp).or(exec).or(mcp)?);
        let interval = self.health_interval.unwrap_or(usual.interval);
        Some(HealthCheck {
            interval,
            ready_interval: usual.ready_interval.min(interval),
            timeout: self.health_timeout.unwrap_or(usual.timeout),
            failures_max: self.health_failures.unwrap_or(usual.failures_max),
            ready_timeout: self
                .ready_timeout
                .or(usual.ready_timeout)
                .filter(|time| !time.is_zero()),
            ..usual
        })
    }
}

/// A value that is no JSON is a text.
fn parse_field(text: &str) -> Result<(String, Value), String> {
    let (field, value) = parse_pair(text, "FIELD=VALUE")?;
    Ok((field, serde_json::from_str(&value).unwrap_or_else(|_| value.into())))
}

fn parse_port(text: &str) -> Result<Port, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok(Port { host: host.to_owned(), port }),
        _ => Err(format!("`{text}` is not of the form PORT or HOST:PORT")),
    }
}

pub(crate) fn run(arguments: KeepArgs, environment: &Environment) -> CommandResult {
    let workspace = environment.workspace();
    let config = environment.config(&workspace, &arguments.policy.flags())?;
    let hook = |(at, target): (usize, HookTarget)| HookDefinition {
        name: format!("hook {}", at + 1),
        events: HookEvent::ALL.to_vec(),
        services: Vec::new(),
        target,
    };
    let hooks = arguments.hooks.into_iter().enumerate().map(hook).collect();
    let usual = LogLimits::default();
    let keep = Keep {
        name: arguments.command.name(),
        hooks: environment.hook_setup(hooks),
        command: arguments.command.command(environment, arguments.clear_env),
        policy: Policy {
            // A command does not say when it is ready, or has nothing left to do.
            restart_mode: RestartMode::Replace,
            spare: false,
            ..config.policy
        },
        copies: arguments.copies,
        workspace,
        trail: config.trail,
        version: env!("CARGO_PKG_VERSION"),
        control: Some(environment.runtime_folders()),
        listen: environment.control_port(arguments.listen)?,
        stdin: arguments.copies == 1,
        health: arguments.health.check(),
        port: arguments.health.port,
        log: arguments.log.log.then(|| LogLimits {
            file_bytes_max: arguments.log.log_size.unwrap_or(usual.file_bytes_max),
            files_kept: arguments.log.log_files.unwrap_or(usual.files_kept),
            ..usual
        }),
    };
    Ok(Exit::Command(afresh_daemon::keep(keep)?))
}

fn parse_hook(text: &str) -> Result<HookTarget, String> {
    let webhook = |url: &str, shape| {
        Ok(HookTarget::Webhook { url: url.to_owned(), shape, headers: Vec::new() })
    };
    match text.split_once('=') {
        Some(("json", url)) => webhook(url, Shape::Json),
        Some(("slack", url)) => webhook(url, Shape::Slack),
        Some(("discord", url)) => webhook(url, Shape::Discord),
        Some(("ntfy", url)) => webhook(url, Shape::Ntfy),
        Some(("command", program)) => Ok(HookTarget::Command(vec![program.to_owned()])),
        None if text == "desktop" => Ok(HookTarget::Desktop),
        _ => Err(format!("`{text}` is not of the form KIND=TARGET")),
    }
}

/// An address of this machine alone.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = parse_listen(text)?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err("others could reach it: only 127.0.0.1, [::1] and localhost are allowed".into())
        }
    }
}

fn parse_pair(text: &str, form: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form {form}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        for (text, address) in [
            ("8900", "127.0.0.1:8900"),
            ("localhost:0", "127.0.0.1:0"),
            ("127.0.0.1:8900", "127.0.0.1:8900"),
            ("[::1]:8900", "[::1]:8900"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), address);
        }
        for text in [
            "0.0.0.0:1",
            "[::]:1",
            "192.168.0.1:1",
            "example.com:1",
            "",
            "localhost",
            "1.2",
            "99999",
        ] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
