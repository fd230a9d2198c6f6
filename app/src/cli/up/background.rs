//! `afresh up -d`: another process keeps the services; this one waits until they are there.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use afresh_core::control::{ServiceStatus, State};
use afresh_core::limits::STATUSES_QUEUE_MAX;
use afresh_daemon::monotonic;
use afresh_daemon::store::workspace::Workspace;

use super::UpArgs;
use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};
use crate::running::harmless_lines;
use crate::status_table;

/// Starts the background, and tells how the services are until all of them are settled.
pub(super) fn start(
    arguments: &UpArgs,
    environment: &Environment,
    workspace: &Workspace,
) -> Result<Exit, CommandError> {
    let failed = |error: io::Error| CommandError::new(Exit::Unavailable, error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["up", "--in-background"]).args(&arguments.names);
    command.current_dir(&environment.cwd);
    if let Some(listen) = arguments.listen {
        command.arg("--listen").arg(listen.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
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
    output::print(&format!("{}\n", lines.join("\n")))?;
    if !is_settled {
        output::remark("not all of them are ready yet; they are kept in the background");
    }
    output::remark(&format!(
        "in the background (pid {}): `afresh status`, `afresh logs -f`, `afresh down`",
        child.id()
    ));
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

/// Puts this process into a session of its own: no terminal's end is its end.
pub(super) fn leave_terminal() -> Result<(), CommandError> {
    afresh_daemon::leave_session().map_err(|error| CommandError::new(Exit::Unavailable, error))
}

/// Prints the states for the process that started us, as long as it reads them.
pub(super) fn print_statuses(statuses: Receiver<Vec<ServiceStatus>>) -> Result<(), CommandError> {
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
    let started = thread.spawn(print).map(drop);
    started.map_err(|error| CommandError::new(Exit::Unavailable, error))
}
