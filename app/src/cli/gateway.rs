//! `afresh gateway`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use afresh_core::client_import::{self, Context, Import};
use afresh_core::config::{Config, ExternalValues};
use afresh_core::gateway::backend::Backend;
use afresh_core::gateway::otlp_export::Destination;
use afresh_core::gateway::settings::Gateway as Wanted;
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{Gateway, ReloadGateway};
use clap::Args;

use crate::environment::{Environment, read_config};
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output;

/// Stands in front of many MCP servers, on stdio or over HTTP.
///
/// The servers are those of `[server.NAME]` in `afresh.toml`; where there is none, those of the client's file
/// that is already there (.mcp.json, .vscode/mcp.json, .cursor/mcp.json, opencode.json, .codex/config.toml),
/// or of --from. Each has all that `afresh mcp` has: it may crash, hang, be restarted or be swapped for new
/// code, and no client notices. Tools and prompts are called SERVER__NAME.
///
/// Without --http the client is who started it; when it hangs up, all servers end within a second.
#[derive(Debug, Args)]
#[command(
    about = "Stand in front of many MCP servers: one connection, none of them able to hurt the others",
    after_help = "Examples:\n  \
                  afresh gateway                              the servers of this workspace, on stdio\n  \
                  afresh gateway --from ~/.cursor/mcp.json    those of another file\n  \
                  afresh gateway --http 127.0.0.1:8808        many clients, at http://127.0.0.1:8808/mcp\n  \
                  afresh gateway --list                       which servers that would be\n\n\
                  In mcp.json: \"command\": \"afresh\", \"args\": [\"gateway\"]"
)]
pub(crate) struct GatewayArgs {
    /// Take the servers from this file of a client, as it is: mcpServers, servers or mcp in JSON, or
    /// mcp_servers in TOML
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Serve clients over HTTP here instead of on stdio: ADDRESS:PORT or a bare PORT of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    http: Option<SocketAddr>,

    /// Show which servers there would be, and start none
    #[arg(long)]
    list: bool,

    /// Record all traffic with the servers in this file, as JSON lines with times, secrets left out where
    /// known
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Send a span of each call to this OpenTelemetry receiver, such as http://127.0.0.1:4318; without a URL,
    /// to the one that OTEL_EXPORTER_OTLP_ENDPOINT names
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    otlp: Option<String>,

    /// Write the log to this file too
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

pub(crate) fn run(arguments: GatewayArgs, environment: &Environment) -> CommandResult {
    let workspace = environment.workspace();
    let config = environment.config(&workspace, &[])?;
    let from = arguments.from.map(|path| environment.cwd.join(path));
    let (mut wanted, import) = wanted(environment, &workspace, &config, from.as_deref())?;
    import.notes.iter().for_each(|note| output::warn(&format!("note: {note}")));
    if wanted.servers.is_empty() {
        return Err(none(environment, &workspace));
    }
    if arguments.list {
        let line = |server: &Backend| format!("{}  {}\n", server.name, server.transport);
        let left = |(name, why): &(String, String)| format!("{name}  left out: {why}\n");
        let lines = wanted.servers.iter().map(line).chain(import.left_out.iter().map(left));
        return output::print(&lines.collect::<String>());
    }
    // OpenTelemetry's variables count only here: they may well be there for other programs.
    let variable = |name: &str| environment.variable(name).and_then(|value| value.to_str());
    let otlp = match arguments.otlp.as_ref().or(wanted.otlp.as_ref()) {
        Some(url) => {
            Destination::of(url, variable, env!("CARGO_PKG_VERSION")).or_exit(Exit::Usage)?
        }
        None => None,
    };
    wanted.front.http = arguments.http.or(wanted.front.http);
    let base = workspace.root().unwrap_or(&environment.cwd).to_owned();
    let place = |path: PathBuf| environment.cwd.join(path);
    let gateway = Gateway {
        wanted,
        trail: config.trail.clone(),
        version: env!("CARGO_PKG_VERSION"),
        control: environment.runtime_folders(),
        environment: environment.variables.clone(),
        base,
        trace: arguments.trace.map(place),
        otlp,
        certificates: environment.folder("SSL_CERT_FILE"),
        log_file: arguments.log_file.map(place),
        reload: reload(environment.clone(), workspace.clone(), from, arguments.http),
        workspace,
    };
    Ok(Exit::Command(afresh_daemon::gateway(gateway)?))
}

/// What the configuration says, and what a person should know of it.
fn wanted(
    environment: &Environment,
    workspace: &Workspace,
    config: &Config,
    from: Option<&Path>,
) -> CommandResult<(Wanted, Import)> {
    let variables = environment.config_variables();
    let read = |path| {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        (path, text)
    };
    let files: Vec<_> = config.token_files().into_iter().map(read).collect();
    let outside = ExternalValues { env: &variables, files: &files };
    let mut wanted = config.gateway(&outside)?;
    let root = workspace.root().unwrap_or(&environment.cwd);
    let usual = config.stdio_server();
    let name = root.display().to_string();
    let context = Context { env: &variables, workspace: &name, usual: &usual };
    let mut import = match from {
        Some(path) => {
            let shown = environment.shown(path);
            let missing = || format!("there is no file `{shown}`");
            let bytes = read_config(path)?.ok_or_else(missing).or_exit(Exit::Config)?;
            client_import::read(&shown, &bytes, &context)?
        }
        None if wanted.servers.is_empty() => found(environment, root, &context)?,
        None => Import::default(),
    };
    if !import.servers.is_empty() {
        wanted.servers = std::mem::take(&mut import.servers);
    }
    Ok((wanted, import))
}

/// The servers of a client's file that is already there.
fn found(environment: &Environment, root: &Path, context: &Context<'_>) -> CommandResult<Import> {
    let mut files = Vec::new();
    for name in afresh_core::client_file_paths::import_candidates() {
        let path = root.join(name);
        if let Some(bytes) = read_config(&path)? {
            files.push((environment.shown(&path), bytes));
        }
    }
    let Some((path, mut import)) = client_import::find(&files, context)? else {
        return Ok(Import::default());
    };
    import.notes.insert(0, format!("the servers are those of `{path}`"));
    Ok(import)
}

/// Reads the configuration again. One without servers is more likely a mistake than a wish.
fn reload(
    environment: Environment,
    workspace: Workspace,
    from: Option<PathBuf>,
    http: Option<SocketAddr>,
) -> ReloadGateway {
    Box::new(move || {
        let read = environment
            .quiet_config(&workspace, &[])
            .and_then(|config| wanted(&environment, &workspace, &config, from.as_deref()));
        let (mut wanted, import) = read.map_err(|error| error.to_string())?;
        wanted.front.http = http.or(wanted.front.http);
        match wanted.servers.is_empty() {
            true => Err("error: there are no servers in it".to_owned()),
            false => Ok((wanted, import.notes)),
        }
    })
}

fn none(environment: &Environment, workspace: &Workspace) -> CommandError {
    let place = environment.main_config_file(workspace);
    CommandError::new(Exit::Config, "there are no servers to stand in front of")
        .hint(format!(
            "write some into `{place}`, such as:\n\n  [server.files]\n  command = [\"npx\", \"-y\", \
             \"@modelcontextprotocol/server-filesystem\", \".\"]\n"
        ))
        .hint("or name the file of a client that has some: `afresh gateway --from FILE`")
        .hint("`afresh mcp -- CMD` stands in front of a single server, without any file")
}

/// An address, or a port of this machine.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| format!("`{text}` is not of the form 127.0.0.1:PORT")),
    }
}
