//! `afresh trust`: shows what the project's files ask for, and keeps what the user accepts. Never starts any of it.

use std::cell::RefCell;

use afresh_core::audit::EventType;
use afresh_core::client_import;
use afresh_core::config::{self, Config, ConfigSource};
use afresh_core::gateway::pins::PinnedServer;
use afresh_core::hidden_characters::escaped;
use afresh_core::hidden_characters::visible_lines;
use afresh_core::text::harmless;
use afresh_core::trust::{TrustRequest, changed_lines};
use afresh_daemon::store::trust::{TrustFile, TrustedRequest};
use afresh_daemon::store::workspace::Workspace;
use clap::Args;

use super::trust_pins;
use crate::environment::{ConfigText, Environment};
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output::{self, Paint, counted};
use crate::trust::Trust;

/// Shows what this project's files ask for, and lets you accept it.
///
/// What a project's files start, listen on, open or send out counts only after you have accepted it: MCP servers for
/// `afresh gateway`, its addresses and tokens, hooks, `agent_command`, `[daemon] listen` and the receivers of
/// telemetry. It is accepted as it is: after a change you are asked again, and see what has changed. All worktrees of
/// a repository share it. Your own files, and what you name on the command line, need none of this.
#[derive(Debug, Args)]
#[command(
    about = "Show and accept what this project's files start, open or send",
    after_help = "Examples:\n  \
                  afresh trust                    look at all of it, and be asked once\n  \
                  afresh trust files              only the server `files`\n  \
                  afresh trust --list             what is accepted, and what is not\n  \
                  afresh trust --revoke files     no more\n  \
                  afresh gateway --trust          all of it, for this process alone: for CI"
)]
pub(crate) struct TrustArgs {
    /// Only these: `files` or `server.files` [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Show what is accepted here and what is not, and change nothing
    #[arg(long, conflicts_with_all = ["revoke", "yes"])]
    list: bool,

    /// Take back what was accepted: the names, or all with --all
    #[arg(long)]
    revoke: bool,

    /// With --revoke: all that was accepted for this repository
    #[arg(long, requires = "revoke", conflicts_with = "names")]
    all: bool,

    /// Accept without a question
    #[arg(long, short, conflicts_with = "revoke")]
    yes: bool,
}

/// A request of this project, and how the user stands to it.
struct Reviewed {
    request: TrustRequest,
    standing: Standing,
}

enum Standing {
    Accepted(TrustedRequest),
    /// Another content was accepted.
    Changed(TrustedRequest),
    New,
}

pub(crate) fn run(arguments: &TrustArgs, environment: &Environment) -> CommandResult {
    let command = TrustCommand::load(environment)?;
    if arguments.revoke {
        return command.revoke(&arguments.names, arguments.all);
    }
    let pending = trust_pins::pending(environment, &arguments.names)?;
    let is_request = |name: &&String| !pending.iter().any(|its| trust_pins::is_called(its, name));
    command.check_names(arguments.names.iter().filter(is_request))?;
    let reviewed = command.review(&arguments.names);
    match arguments.list {
        true => command.list(&reviewed, &pending, arguments.names.is_empty()),
        false => command.accept(reviewed, &pending, arguments.yes),
    }
}

/// The command, with what it needs.
struct TrustCommand<'a> {
    environment: &'a Environment,
    workspace: Workspace,
    config: Config,
    trust: Trust,
    requests: Vec<TrustRequest>,
}

impl<'a> TrustCommand<'a> {
    fn load(environment: &'a Environment) -> CommandResult<Self> {
        let workspace = environment.workspace();
        environment.warn_of_passed_over(&workspace);
        let trust = environment.trust(&workspace);
        if let Some(problem) = &trust.problem {
            return Err(CommandError::new(Exit::Unavailable, problem.clone()));
        }
        let (config, mut requests) = requests(environment, &workspace)?;
        for request in &mut requests {
            *request = trust.located(request);
        }
        Ok(Self { environment, workspace, config, trust, requests })
    }

    /// A name that no file has is a mistake.
    fn check_names<'n>(&self, names: impl Iterator<Item = &'n String>) -> CommandResult<()> {
        for name in names {
            if !self.requests.iter().any(|request| TrustRequest::is_called(&request.name, name)) {
                let text = format!("no file of this project asks for `{name}`");
                let known = self.requests.iter().map(|request| request.name.as_str());
                let error = CommandError::new(Exit::NotFound, text);
                return Err(error.did_you_mean(name, known, "`afresh trust --list` shows all"));
            }
        }
        Ok(())
    }

    /// How the user stands to all requests, or to those that are named.
    fn review(&self, names: &[String]) -> Vec<Reviewed> {
        let (known, repository) = (&self.trust.known, &self.trust.repository.identity);
        let reviewed = |request: &TrustRequest| {
            let accepted = known.accepted(repository, request).cloned().map(Standing::Accepted);
            let changed = || known.last_of(repository, &request.name).cloned();
            let standing = accepted.or_else(|| changed().map(Standing::Changed));
            let standing = standing.unwrap_or(Standing::New);
            Reviewed { request: request.clone(), standing }
        };
        let is_wanted = |request: &&TrustRequest| {
            names.is_empty()
                || names.iter().any(|name| TrustRequest::is_called(&request.name, name))
        };
        self.requests.iter().filter(is_wanted).map(reviewed).collect()
    }

    fn list(
        &self,
        reviewed: &[Reviewed],
        pending: &[PinnedServer],
        with_stale: bool,
    ) -> CommandResult {
        let mut lines = String::new();
        for Reviewed { request, standing } in reviewed {
            let word = match standing {
                Standing::Accepted(known) => format!("trusted since {} by {}", known.at, known.by),
                Standing::Changed(known) => {
                    format!("changed since it was trusted ({}): not trusted", known.at)
                }
                Standing::New => "not trusted".to_owned(),
            };
            lines.push_str(&shown(&format!("{} of {}: {word}", request.name, request.file)));
        }
        let known = self.trust.known.of(&self.trust.repository.identity);
        let is_asked = |known: &&TrustedRequest| {
            !self.requests.iter().any(|request| request.name == known.name)
        };
        for known in known.iter().filter(is_asked).filter(|_| with_stale) {
            let line =
                format!("{}: trusted since {}, and no file asks for it", known.name, known.at);
            lines.push_str(&shown(&line));
        }
        for server in pending {
            lines.push_str(&shown(&format!("{}: not accepted", tools_of(server))));
        }
        if lines.is_empty() {
            output::remark("the files of this project ask for nothing that needs trust");
        }
        output::print(&lines)
    }

    fn accept(
        mut self,
        mut reviewed: Vec<Reviewed>,
        pending: &[PinnedServer],
        is_sure: bool,
    ) -> CommandResult {
        reviewed.retain(|one| !matches!(one.standing, Standing::Accepted(_)));
        if reviewed.is_empty() && pending.is_empty() {
            output::remark(
                "there is nothing to accept: `afresh trust --list` shows what is trusted",
            );
            return Ok(Exit::Success);
        }
        let paint = Paint::stdout();
        output::print(&reviewed.iter().map(|one| one.shown(paint)).collect::<String>())?;
        output::print(&pending.iter().map(trust_pins::shown).collect::<String>())?;
        let count = counted(reviewed.len() + pending.len(), "request");
        let folder = self.trust.repository.top.display().to_string();
        let requests = reviewed.iter().map(|one| one.request.name.clone());
        let names: Vec<String> = requests.chain(pending.iter().map(tools_of)).collect();
        let question = format!("Accept {count} of `{}`?", visible_lines(&folder).join(""));
        let can_ask = output::is_terminal() && output::can_ask();
        if !(is_sure || can_ask) {
            let text = format!("cannot ask about {count}: there is no terminal");
            return Err(CommandError::new(Exit::Failed, text)
                .hint("run `afresh trust` on a terminal")
                .hint("`afresh trust --yes` accepts what is shown above; `--trust` of `gateway`, `up` and `run` accepts for one process"));
        }
        if !is_sure && !output::ask(&question) {
            self.record(EventType::TrustRefused, "the user did not accept", &names);
            output::remark("nothing was accepted");
            return Ok(Exit::Failed);
        }
        let by = self.environment.user_name();
        let repository = &self.trust.repository.identity;
        let state = self.environment.user_state().or_exit(Exit::Unavailable)?;
        let grant = |file: &mut TrustFile| {
            reviewed.iter().for_each(|one| file.grant(repository, &one.request, &by));
        };
        if !reviewed.is_empty() {
            state.change(grant).or_exit(Exit::Unavailable)?;
        }
        let mut accepted = reviewed.len();
        let mut failure = None;
        for server in pending {
            match trust_pins::accept(self.environment, server) {
                Ok(()) => accepted += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if accepted > 0 {
            self.record(EventType::TrustGranted, "the user accepted", &names[..accepted]);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        output::remark(&format!("accepted: {}", escaped(&names.join(", "))));
        Ok(Exit::Success)
    }

    fn revoke(mut self, names: &[String], all: bool) -> CommandResult {
        if names.is_empty() && !all {
            return Err(CommandError::new(Exit::Usage, "`--revoke` needs names, or `--all`")
                .hint("`afresh trust --list` shows what is trusted"));
        }
        let repository = &self.trust.repository.identity;
        let state = self.environment.user_state().or_exit(Exit::Unavailable)?;
        let is_revoked = |known: &TrustedRequest| {
            all || names.iter().any(|name| TrustRequest::is_called(&known.name, name))
        };
        let revoke = |file: &mut TrustFile| file.revoke(repository, is_revoked);
        let revoked = state.change(revoke).or_exit(Exit::Unavailable)?;
        if revoked.is_empty() {
            return Err(CommandError::new(Exit::NotFound, "none of these is trusted here")
                .hint("`afresh trust --list` shows what is trusted"));
        }
        self.record(EventType::TrustRevoked, "the user took back", &revoked);
        output::remark(&format!("not trusted any more: {}", harmless(&revoked.join(", "))));
        output::remark("what runs goes on until `afresh reload` or its end");
        Ok(Exit::Success)
    }

    /// Puts a decision on record.
    fn record(&mut self, event_type: EventType, what: &str, names: &[String]) {
        let (workspace, trail) = (&mut self.workspace, &self.config.trail);
        self.trust.record(workspace, trail, (event_type, what), names);
    }
}

impl Reviewed {
    /// All of a request, or what has changed in it.
    fn shown(&self, paint: Paint) -> String {
        let Self { request, standing } = self;
        let word = match standing {
            Standing::Changed(_) => "has changed since it was trusted",
            _ => "is new",
        };
        let heading = format!("[{}] of {} {word}:", request.name, request.file);
        let mut text = paint.bold(&visible_lines(&heading).join("\n")) + "\n";
        for line in &request.lines {
            text.push_str(&shown(line));
        }
        if let Standing::Changed(last) = standing {
            text.push_str("  The change:\n");
            for line in changed_lines(&last.text, &request.text()) {
                let line = shown(&line);
                text.push_str(&if line.starts_with("  +") {
                    paint.green(&line)
                } else {
                    paint.red(&line)
                });
            }
        }
        text + "\n"
    }
}

/// The name of what a server says otherwise than when it was pinned.
fn tools_of(server: &PinnedServer) -> String {
    format!("changed tools of {}", server.server)
}

/// A line of a project's file, in which nothing hides.
fn shown(line: &str) -> String {
    let lines = visible_lines(line);
    lines.iter().map(|line| format!("  {line}\n")).collect::<Vec<_>>().join("    ↳")
}

/// All that the files of this project ask for, whether it is accepted or not.
fn requests(
    environment: &Environment,
    workspace: &Workspace,
) -> CommandResult<(Config, Vec<TrustRequest>)> {
    let found = RefCell::new(Vec::new());
    let note = |request: &TrustRequest| found.borrow_mut().push(request.clone());
    let texts = environment.config_texts(workspace)?;
    let sources: Vec<ConfigSource<'_>> = texts.iter().map(ConfigText::source).collect();
    let config =
        config::load_trusted(&sources, &environment.config_variables(), &[], &|request| {
            note(request);
            true
        })?;
    let root = workspace.root().unwrap_or(&environment.cwd);
    let name = root.display().to_string();
    for (path, bytes) in super::gateway::client_files(environment, root)? {
        client_import::requests(&path, &bytes, &name).iter().for_each(note);
    }
    let mut files = config.project_env_files();
    if !config.has_servers() {
        // Variables that are not set here leave a server out.
        if let Ok(import) = super::gateway::found(environment, workspace, &config, &|_| true) {
            files.extend(super::gateway::env_files_of(&import.servers));
        }
    }
    for (server, path) in files {
        match super::env_files::request(&server, &path, root) {
            Ok((request, _)) => note(&request),
            Err(why) => {
                let (server, why) = (harmless(&server), harmless(&why));
                output::warn(&format!("note: server `{server}`: {why}"));
            }
        }
    }
    Ok((config, found.into_inner()))
}
