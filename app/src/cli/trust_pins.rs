//! The part of `afresh trust NAME` about tools: shows what a server of the gateway says otherwise than when it was pinned,
//! and accepts it. Never contacts a server: gateways note what they have seen.

use afresh_core::gateway::pins::{Difference, PinnedServer, differences};
use afresh_core::hidden_characters::escaped;
use afresh_core::hidden_characters::visible_lines;
use afresh_core::trust::TrustRequest;
use afresh_daemon::store::pins::RepositoryPins;
use afresh_daemon::store::trust::Repository;

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output::counted;

/// The pins of the repository here.
pub(crate) fn pins_of(environment: &Environment) -> CommandResult<RepositoryPins> {
    let state = environment.user_state().or_exit(Exit::Unavailable)?;
    let workspace = environment.workspace();
    let root = workspace.root().unwrap_or(&environment.cwd);
    Ok(RepositoryPins::new(state, Repository::of(root).identity))
}

/// The servers here that say something else than when they were pinned; of these names, where some are given.
pub(crate) fn pending(
    environment: &Environment,
    names: &[String],
) -> CommandResult<Vec<PinnedServer>> {
    let (stored, _) = pins_of(environment)?.read().or_exit(Exit::Unavailable)?;
    let is_wanted =
        |its: &PinnedServer| names.is_empty() || names.iter().any(|name| is_called(its, name));
    let mut servers: Vec<PinnedServer> = stored.into_values().collect();
    servers.retain(|its| !its.pending.is_empty() && is_wanted(its));
    Ok(servers)
}

/// Whether a name on the command line means this server.
pub(crate) fn is_called(server: &PinnedServer, name: &str) -> bool {
    TrustRequest::is_called(&format!("server.{}", server.server), name)
}

/// Accepts what a server says otherwise, as it was shown.
pub(crate) fn accept(environment: &Environment, server: &PinnedServer) -> CommandResult<()> {
    if pins_of(environment)?.accept(server).or_exit(Exit::Unavailable)? {
        return Ok(());
    }
    let error = format!("`{}` has changed once more, and is not accepted", escaped(&server.server));
    let hint = format!("look at it again: `afresh trust {}`", escaped(&server.server));
    Err(CommandError::new(Exit::Failed, error).hint(hint))
}

/// What a server says otherwise, in full.
pub(crate) fn shown(server: &PinnedServer) -> String {
    let all = differences(&server.pinned, &server.pending);
    let mut text = format!(
        "server {} ({}) differs from what was pinned in {}:\n",
        escaped(&server.server),
        escaped(&server.address),
        counted(all.len(), "item")
    );
    for its in all {
        let how = match its.difference {
            Difference::Added => "new",
            Difference::Changed => "changed",
        };
        text.push_str(&format!("\n  {how}: {}\n", its.item));
        let lines = its.lines.iter().flat_map(|line| visible_lines(line));
        lines.for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text.push('\n');
    text
}
