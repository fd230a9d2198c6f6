//! `afresh gateway`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use afresh_core::client_import::{self, Context, Import};
use afresh_core::config::{Config, ExternalValues};
use afresh_core::gateway::backend::{Backend, Transport};
use afresh_core::gateway::otlp_export::Destination;
use afresh_core::gateway::settings::{FrontAddress, Gateway as Wanted};
use afresh_core::limits::TOKEN_CHARS_MAX;
use afresh_core::text::harmless;
use afresh_core::trust::Accepts;
use afresh_daemon::store::catalogs::RepositoryCatalogs;
use afresh_daemon::store::trust::{Repository, TrustFile, TrustWatch};
use afresh_daemon::store::user_state::StateFile as _;
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{Gateway, ReloadGateway, git_tracks, guard_front, is_readable_by_others};
use clap::Args;

use super::{env_files, trust_pins};
use crate::environment::{Environment, read_bounded, read_config, read_project_config};
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output;
use crate::trust::Trust;

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
                  afresh gateway --http unix:gateway.sock     the same over a socket\n  \
                  afresh gateway --list                       which servers that would be\n\n\
                  In mcp.json: \"command\": \"afresh\", \"args\": [\"gateway\"]"
)]
pub(crate) struct GatewayArgs {
    /// Take the servers from this file of a client, as it is: mcpServers, servers or mcp in JSON, or
    /// mcp_servers in TOML
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Serve clients over HTTP here instead of on stdio: ADDRESS:PORT, a bare PORT of this machine, or unix:PATH, a
    /// socket for your own programs. Over a port clients send a token: one that is configured, or else the one in the
    /// file that the log names
    #[arg(long, value_name = "ADDRESS", value_parser = parse_front)]
    http: Option<FrontAddress>,

    /// Serve clients over a port of this machine without a token: every program of every user of this machine can
    /// then call all tools
    #[arg(long)]
    no_token: bool,

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

    /// Accept all that the project's files ask for, for this process alone: for CI; see `afresh trust`
    #[arg(long)]
    trust: bool,
}

pub(crate) fn run(arguments: GatewayArgs, environment: &Environment) -> CommandResult {
    let environment = &environment.with_trust(arguments.trust);
    let workspace = environment.workspace();
    let watch = environment.user_state().map(|state| TrustWatch::new(state.path(TrustFile::NAME)));
    environment.warn_of_passed_over(&workspace);
    let sources = Sources {
        environment: environment.clone(),
        workspace,
        from: arguments.from.map(|path| environment.cwd.join(path)),
        http: arguments.http.map(|address| match address {
            FrontAddress::Socket(path) => FrontAddress::Socket(environment.cwd.join(path)),
            port => port,
        }),
        no_token: arguments.no_token,
    };
    let trust = environment.trust(&sources.workspace);
    let (config, mut wanted, import) = sources.read(&trust)?;
    config.warnings.iter().for_each(|warning| output::warn(&warning.to_string()));
    warnings(&config, sources.root()).iter().for_each(|warning| output::warn(warning));
    import.notes.iter().for_each(|note| output::warn(&format!("note: {}", harmless(note))));
    let names = trust.say(&["server.", "gateway."], &wanted.untrusted);
    if wanted.servers.is_empty() && wanted.untrusted.is_empty() {
        return Err(none(environment, &sources.workspace));
    }
    if arguments.list {
        return list(&wanted);
    }
    trust.record_flag(&sources.workspace, &config.trail, &names);
    // OpenTelemetry's variables count only here: they may well be there for other programs.
    let variable = |name: &str| environment.variable(name).and_then(|value| value.to_str());
    let otlp = match arguments.otlp.as_ref().or(wanted.otlp.as_ref()) {
        Some(url) => {
            Destination::of(url, variable, env!("CARGO_PKG_VERSION")).or_exit(Exit::Usage)?
        }
        None => None,
    };
    // Nothing is made or said about it before this: `--list` only looks.
    sources.guard(&mut wanted)?;
    let bound = wanted.front.http.clone();
    let workspace = sources.workspace.clone();
    let base = workspace.root().unwrap_or(&environment.cwd).to_owned();
    let pins = trust_pins::pins_of(environment).ok();
    let catalogs = environment
        .user_state()
        .ok()
        .map(|state| RepositoryCatalogs::new(state, Repository::of(&base).identity, base.clone()));
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
        pins,
        catalogs,
        state: environment.user_state().ok(),
        log_file: arguments.log_file.map(place),
        reload: reload(sources, bound),
        trust: watch.ok(),
        started_by: environment.started_by,
        workspace,
    };
    Ok(Exit::Command(afresh_daemon::gateway(gateway)?))
}

fn list(wanted: &Wanted) -> CommandResult {
    let shown = |line: String| match output::is_terminal() {
        true => harmless(&line) + "\n",
        false => line + "\n",
    };
    let line = |server: &Backend| shown(format!("{}  {}", server.name, server.transport));
    let left = |(name, why): &(String, String)| shown(format!("{name}  left out: {why}"));
    let untrusted = |name: &String| {
        shown(format!("{}  not trusted: run `afresh trust`", name.trim_start_matches("server.")))
    };
    let lines = wanted.servers.iter().map(line).chain(wanted.left_out.iter().map(left));
    output::print(&lines.chain(wanted.untrusted.iter().map(untrusted)).collect::<String>())
}

/// Where the servers come from.
struct Sources {
    environment: Environment,
    workspace: Workspace,
    /// The file of a client that the user has named.
    from: Option<PathBuf>,
    /// Where to listen, by the command line.
    http: Option<FrontAddress>,
    no_token: bool,
}

impl Sources {
    /// What the configuration says, and what a person should know of it.
    fn read(&self, trust: &Trust) -> CommandResult<(Config, Wanted, Import)> {
        let Self { environment, workspace, from, .. } = self;
        let mut broken = None;
        let config = environment.trusted_config(workspace, &[], trust).or_else(|error| {
            // A project's file that is wrong does not take the user's own servers away.
            let own = environment.own_config(workspace).ok().filter(Config::has_servers);
            let text = error.to_string();
            broken = text.lines().next().map(|line| line.trim_start_matches("error: ").to_owned());
            own.ok_or(error)
        })?;
        let variables = environment.config_variables();
        let root = workspace.root().unwrap_or(&environment.cwd);
        let read = |path: PathBuf| {
            let file = root.join(&path);
            let text = match git_tracks(&file) {
                Ok(true) => Err("git tracks it, so that all who have the repository know it; run `git rm --cached` on it, \
                                 and write a new one"
                    .to_owned()),
                Ok(false) => read_token(&file),
                Err(why) => Err(format!(
                    "whether git tracks it is not known: {why}; move it out of the repository, or use `token_env`"
                )),
            };
            (path, text)
        };
        let tracked = config.tracked_tokens();
        if let Some(root) = workspace.root().filter(|_| !tracked.is_empty()) {
            match git_tracks(&root.join("afresh.toml")) {
                Ok(true) => return Err(tracked.into()),
                Ok(false) => {}
                Err(why) => {
                    let error = "`token` stands in a file that git may track";
                    return Err(CommandError::new(Exit::Config, error)
                        .hint(format!("whether it does is not known: {why}"))
                        .hint("use `token_file` with a file outside of the repository, or `token_env`"));
                }
            }
        }
        let files: Vec<_> = config.token_files().into_iter().map(read).collect();
        let outside = ExternalValues { env: &variables, files: &files };
        let mut wanted = config.gateway(&outside)?;
        let mut files_of_variables = config.project_env_files();
        let is_of_server = |name: &String| name.starts_with("server.");
        let has_none = |wanted: &Wanted| {
            let has_untrusted = wanted.untrusted.iter().any(is_of_server);
            wanted.servers.is_empty() && wanted.left_out.is_empty() && !has_untrusted
        };
        let mut import = match from {
            Some(path) => {
                // What the user has named is used instead.
                wanted.untrusted.retain(|name| !is_of_server(name));
                wanted.left_out.clear();
                named(environment, workspace, &config, path)?
            }
            None if has_none(&wanted) => {
                let import =
                    found(environment, workspace, &config, &|request| trust.accepts(request))?;
                files_of_variables = env_files_of(&import.servers);
                wanted
                    .untrusted
                    .extend(import.untrusted.iter().map(|request| request.name.clone()));
                import
            }
            None => Import::default(),
        };
        let left_out = wanted.left_out.iter();
        let said = left_out.map(|(name, why)| format!("server `{name}` is left out: {why}"));
        import.notes.extend(said);
        wanted.left_out.append(&mut import.left_out);
        if let Some(why) = broken {
            import.notes.push(format!("the project's `afresh.toml` is left out: {why}"));
            wanted.left_out.push(("afresh.toml".to_owned(), why));
        }
        if !import.servers.is_empty() {
            wanted.servers = std::mem::take(&mut import.servers);
        }
        if from.is_none() {
            import.notes.extend(env_files::settle(trust, &mut wanted, &files_of_variables, root));
        }
        wanted.front.http = self.http.clone().or(wanted.front.http);
        Ok((config, wanted, import))
    }

    /// The folder that paths of the configuration count from.
    fn root(&self) -> &Path {
        self.workspace.root().unwrap_or(&self.environment.cwd)
    }

    /// Makes a token where clients need one and none is configured, unless the user wants none.
    fn guard(&self, wanted: &mut Wanted) -> CommandResult<()> {
        if !self.no_token {
            let state = self.environment.user_state();
            return guard_front(&mut wanted.front, state).or_exit(Exit::Unavailable);
        }
        match wanted.front.tokens.is_empty() {
            true => Ok(()),
            false => Err(CommandError::new(Exit::Usage, "`--no-token`, and tokens are configured")
                .hint(
                    "leave the flag out, or remove `[gateway.token.NAME]` from the configuration",
                )),
        }
    }
}

/// The text of a file with a token: neither a FIFO nor a long file holds up the gateway.
fn read_token(file: &Path) -> Result<String, String> {
    let bytes_max = TOKEN_CHARS_MAX * char::MAX.len_utf8();
    let bytes = read_bounded(file, bytes_max).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or("it is not there")?;
    if bytes.len() > bytes_max {
        return Err(format!("it is longer than {bytes_max} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// Warns of files with tokens that other users can read.
fn warnings(config: &Config, root: &Path) -> Vec<String> {
    let is_open = |path: &PathBuf| {
        std::fs::metadata(root.join(path)).is_ok_and(|metadata| is_readable_by_others(&metadata))
    };
    let files = config.token_files().into_iter().filter(is_open);
    let warning = |path: PathBuf| {
        let path = harmless(&path.display().to_string());
        format!(
            "warning: other users of this machine can read the token in `{path}`\n\
             hint: run `chmod 600 {path}`"
        )
    };
    files.map(warning).collect()
}

/// The files of variables of servers, with their names.
pub(super) fn env_files_of(servers: &[Backend]) -> Vec<(String, PathBuf)> {
    let file = |server: &Backend| match &server.transport {
        Transport::Stdio(stdio) => Some((server.name.clone(), stdio.env_file.clone()?)),
        Transport::Http(_) => None,
    };
    servers.iter().filter_map(file).collect()
}

/// Does something with what an import needs.
fn with_context<T>(
    environment: &Environment,
    workspace: &Workspace,
    config: &Config,
    accepts: Accepts<'_>,
    import: impl FnOnce(&Context<'_>) -> T,
) -> T {
    let root = workspace.root().unwrap_or(&environment.cwd);
    let (usual, name) = (config.stdio_server(), root.display().to_string());
    let env = environment.config_variables();
    import(&Context { env: &env, workspace: &name, usual: &usual, accepts })
}

/// The servers of a client's file that the user has named.
fn named(
    environment: &Environment,
    workspace: &Workspace,
    config: &Config,
    path: &Path,
) -> CommandResult<Import> {
    let shown = environment.shown(path);
    let missing = || format!("there is no file `{shown}`");
    let bytes = read_config(path)?.ok_or_else(missing).or_exit(Exit::Config)?;
    let read = |context: &Context<'_>| client_import::read(&shown, &bytes, context);
    Ok(with_context(environment, workspace, config, &|_| true, read)?)
}

/// The files of clients that are in a workspace: their paths and contents.
pub(super) fn client_files(
    environment: &Environment,
    root: &Path,
) -> CommandResult<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in afresh_core::client_file_paths::import_candidates() {
        let path = root.join(name);
        if let Some(bytes) = read_project_config(root, &path)? {
            files.push((environment.shown(&path), bytes));
        }
    }
    Ok(files)
}

/// The servers of a client's file that is already there.
pub(super) fn found(
    environment: &Environment,
    workspace: &Workspace,
    config: &Config,
    accepts: Accepts<'_>,
) -> CommandResult<Import> {
    let files = client_files(environment, workspace.root().unwrap_or(&environment.cwd))?;
    let find = |context: &Context<'_>| client_import::find(&files, context);
    let Some((path, mut import)) = with_context(environment, workspace, config, accepts, find)?
    else {
        return Ok(Import::default());
    };
    import.notes.insert(0, format!("the servers are those of `{path}`"));
    Ok(import)
}

/// Reads the configuration again. One without servers is more likely a mistake than a wish.
/// What it says about the address counts from the next start on: a token is made for the one that is `bound`.
fn reload(sources: Sources, bound: Option<FrontAddress>) -> ReloadGateway {
    Box::new(move || {
        let trust = sources.environment.trust(&sources.workspace);
        // What is served goes on where it is not known what is trusted.
        if let Some(problem) = trust.problem.as_ref().filter(|_| !trust.is_all) {
            return Err(format!("error: {problem}"));
        }
        let read = sources.read(&trust);
        let (config, mut wanted, import) = read.map_err(|error| error.to_string())?;
        let configured = std::mem::replace(&mut wanted.front.http, bound.clone());
        sources.guard(&mut wanted).map_err(|error| error.to_string())?;
        wanted.front.http = configured;
        let warnings = warnings(&config, sources.root());
        match wanted.servers.is_empty() && wanted.untrusted.is_empty() {
            true => Err("error: there are no servers in it".to_owned()),
            false => Ok((wanted, warnings.into_iter().chain(import.notes).collect())),
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

/// A socket, an address, or a port of this machine.
fn parse_front(text: &str) -> Result<FrontAddress, String> {
    match text.starts_with("unix:") {
        true => text.parse().map_err(|_| "the path of the socket is missing".to_owned()),
        false => parse_listen(text).map(FrontAddress::Port),
    }
}

/// An address, or a port of this machine.
pub(super) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| format!("`{text}` is not of the form 127.0.0.1:PORT")),
    }
}
