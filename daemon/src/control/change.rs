//! Starts, stops and restarts: asked of the loop, and waited for where somebody wants to.

use afresh_core::control::{Change, ChangeAnswer, ChangeOutcome, ServiceStatus, State};
use afresh_core::id::Generation;
use afresh_core::limits::RESTART_WAIT_MAX;
use hyper::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::answer::{Ask, Begun, NotBegun};
use super::route::{Refusing, reply, status};
use super::server::Host;
use super::wire::Answer;

pub(super) async fn change(
    host: &Host,
    name: String,
    what: Change,
    reason: String,
    waits: bool,
) -> Refusing<Response<Answer>> {
    let asked = name.clone();
    let begun = host.ask(|answer| Ask::Change { name: asked, what, reason, answer }).await?;
    let mut begun = begun.map_err(|refused| {
        let status = match refused {
            NotBegun::NoSuchService { .. } => StatusCode::NOT_FOUND,
            NotBegun::Stopping | NotBegun::HasClient => StatusCode::CONFLICT,
        };
        (status, refused.refusal(&name, what))
    })?;
    // The loop does not wait for a disk that hangs, and neither do we.
    (&mut begun.recorded).await.ok();
    if !waits {
        let answer = ChangeAnswer::accepted(name, begun.old_pid);
        return Ok(reply(StatusCode::ACCEPTED, &answer));
    }
    Ok(reply(StatusCode::OK, &wait(host, name, what, begun).await?))
}

/// Looks at the service whenever something was told, until it is as it was to be, or cannot be.
async fn wait(host: &Host, name: String, what: Change, begun: Begun) -> Refusing<ChangeAnswer> {
    let Begun { old_pid, old, swap_failed, mut changes, .. } = begun;
    let deadline = Instant::now() + RESTART_WAIT_MAX;
    loop {
        let status = status(host, &name).await?;
        let swap_has_failed = what == Change::Restart && status.swap_failed != swap_failed;
        let known = match swap_has_failed {
            false => known_outcome(what, &status, old),
            true => Some(ChangeOutcome::Failed),
        };
        let late = match known {
            None => timeout_at(deadline, changes.changed()).await.is_err(),
            Some(_) => false,
        };
        let outcome = match known {
            Some(outcome) => outcome,
            None if late => ChangeOutcome::StillWaiting,
            None => continue,
        };
        let new_pid = status.pid.filter(|_| outcome == ChangeOutcome::Up);
        let detail = match outcome {
            ChangeOutcome::Up | ChangeOutcome::Down | ChangeOutcome::Accepted => None,
            ChangeOutcome::Failed | ChangeOutcome::StillWaiting => {
                let why = match swap_has_failed {
                    false => why(what, status, outcome),
                    true => status.swap_failed.map_or_else(String::new, |note| note.reason),
                };
                Some(with_last_words(host, &name, old, why).await?)
            }
        };
        return Ok(ChangeAnswer { name, outcome, old_pid, new_pid, detail });
    }
}

/// What became of the change since this generation, once that is known.
fn known_outcome(what: Change, status: &ServiceStatus, old: Generation) -> Option<ChangeOutcome> {
    let is_new = status.generation > old.0;
    let is_up = match status.state {
        State::Ready | State::Degraded { .. } => true,
        // Nobody says when a plain command is ready.
        State::Running => !status.says_ready,
        _ => false,
    };
    let is_down = matches!(status.state, State::Stopped | State::Finished | State::Failed { .. });
    let is_waiting = matches!(status.state, State::BackingOff { .. } | State::CrashLoop { .. });
    match what {
        Change::Stop if is_down => Some(ChangeOutcome::Down),
        // Somebody else wants it up.
        Change::Stop if is_new => Some(ChangeOutcome::Failed),
        Change::Stop => None,
        Change::Start if is_up => Some(ChangeOutcome::Up),
        Change::Restart if is_up && is_new => Some(ChangeOutcome::Up),
        // It is started when those it needs are there.
        Change::Start if !status.waits_for.is_empty() => None,
        Change::Start | Change::Restart => {
            (is_down || (is_waiting && is_new)).then_some(ChangeOutcome::Failed)
        }
    }
}

/// Why it is not as it was to be.
fn why(what: Change, status: ServiceStatus, outcome: ChangeOutcome) -> String {
    if what == Change::Stop && outcome == ChangeOutcome::Failed {
        return "somebody has started it again".to_owned();
    }
    let before = match status.state {
        State::BackingOff { .. } | State::CrashLoop { .. } => {
            status.restarts.last.into_iter().next_back().map(|note| note.reason)
        }
        State::Finished => status.last_exit.map(|exit| format!("it {}", exit.text)),
        _ => None,
    };
    let told: Vec<String> = before.into_iter().chain([status.state.to_string()]).collect();
    told.join("; ")
}

/// Adds what instances newer than this one wrote to their stderr.
async fn with_last_words(
    host: &Host,
    name: &str,
    old: Generation,
    why: String,
) -> Refusing<String> {
    let name = name.to_owned();
    let logs = host.ask(|answer| Ask::Logs { name, answer }).await?;
    let words = logs.map(|logs| logs.last_words(|its| its > old)).unwrap_or_default();
    Ok(match words.is_empty() {
        true => why,
        false => format!("{why}; the last lines of its stderr:\n{}", words.join("\n")),
    })
}
