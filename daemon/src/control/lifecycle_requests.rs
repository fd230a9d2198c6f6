//! Serves the requests for starts, stops, restarts and reloads: hands them to the loop, and waits for the
//! outcome where the client wants it. Driven by `request_handlers.rs`. The order of restarts is planned in core.

use std::collections::BTreeMap;

use afresh_core::control::{
    Change, ChangeAnswer, ChangeOutcome, RestartAnswer, ServiceStatus, State,
};
use afresh_core::fleet::{RestartPlan, RestartStep};
use afresh_core::id::Generation;
use afresh_core::limits::RESTART_WAIT_MAX;
use hyper::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::connections::Host;
use super::loop_requests::{ChangeRefused, LoopRequest, Reloading, StateBefore};
use super::request_handlers::{Refusing, conflict, reply, status};
use crate::http::MessageBody;

pub(super) async fn change(
    host: &Host,
    name: String,
    what: Change,
    reason: String,
    waits: bool,
) -> Refusing<Response<MessageBody>> {
    let before = begin(host, &name, what, reason).await?;
    if !waits {
        return Ok(reply(StatusCode::ACCEPTED, &ChangeAnswer::accepted(name, before.old_pid)));
    }
    let deadline = Instant::now() + RESTART_WAIT_MAX;
    Ok(reply(StatusCode::OK, &wait(host, name, what, before, deadline).await?))
}

/// Hands a change to the loop. Returns when it is on record.
async fn begin(host: &Host, name: &str, what: Change, reason: String) -> Refusing<StateBefore> {
    let (service, by) = (name.to_owned(), host.caller());
    let begun =
        host.ask(|answer| LoopRequest::Change { name: service, what, reason, by, answer }).await?;
    let begun = begun.map_err(|refused| {
        let status = match refused {
            ChangeRefused::NoSuchService { .. } => StatusCode::NOT_FOUND,
            ChangeRefused::Stopping | ChangeRefused::HasClient | ChangeRefused::NotNow(_) => {
                StatusCode::CONFLICT
            }
        };
        (status, refused.refusal(name, what))
    })?;
    // The loop does not wait for a disk that hangs, and neither does this.
    begun.recorded.await.ok();
    Ok(begun.before)
}

/// Restarts a service, and after it the running services that depend on it. All of it is waited for no
/// longer than one change.
pub(super) async fn restart_all(
    host: &Host,
    name: String,
    reason: String,
    waits: bool,
) -> Refusing<Response<MessageBody>> {
    let all = host.ask(|answer| LoopRequest::Status { name: None, answer }).await?;
    let depends_on: BTreeMap<String, Vec<String>> =
        all.iter().map(|one| (one.name.clone(), one.depends_on.clone())).collect();
    let known = RestartPlan::new(&[], &depends_on);
    let is_dependent = |one: &&ServiceStatus| one.pid.is_some() && known.depends(&one.name, &name);
    let dependents = all.iter().filter(is_dependent).map(|one| one.name.clone());
    let chosen: Vec<String> = std::iter::once(name.clone()).chain(dependents).collect();
    let mut plan = RestartPlan::new(&chosen, &depends_on);
    let deadline = Instant::now() + RESTART_WAIT_MAX;
    let mut outcomes = Vec::new();
    while let Some(step) = plan.next_step() {
        let mut begun = Vec::new();
        for step in step {
            match step {
                RestartStep::Restart(service) => {
                    match begin(host, &service, Change::Restart, reason.clone()).await {
                        Ok(before) => begun.push((service, before)),
                        // Nothing was changed yet.
                        Err(refused) if service == name => return Err(refused),
                        Err((_, refusal)) => {
                            plan.done(service.clone(), false);
                            outcomes.push(failed(service, refusal.error.what));
                        }
                    }
                }
                RestartStep::Skip { service, needed } => {
                    let why = format!("it depends on {needed}, which is not up");
                    outcomes.push(failed(service, why));
                }
            }
        }
        for (service, before) in begun {
            let outcome = match waits {
                true => wait(host, service.clone(), Change::Restart, before, deadline).await?,
                false => ChangeAnswer::accepted(service.clone(), before.old_pid),
            };
            let is_up = matches!(outcome.outcome, ChangeOutcome::Up | ChangeOutcome::Accepted);
            plan.done(service, is_up);
            outcomes.push(outcome);
        }
    }
    let status = if waits { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(reply(status, &RestartAnswer { outcomes }))
}

/// The outcome of a restart that was not begun.
fn failed(name: String, why: String) -> ChangeAnswer {
    let accepted = ChangeAnswer::accepted(name, None);
    ChangeAnswer { outcome: ChangeOutcome::Failed, detail: Some(why), ..accepted }
}

/// Lets the configuration be read again. All that this begins is waited for no longer than one change.
pub(super) async fn reload(
    host: &Host,
    reason: String,
    waits: bool,
) -> Refusing<Response<MessageBody>> {
    let by = host.caller();
    let reloading = host.ask(|answer| LoopRequest::Reload { reason, by, answer }).await?;
    let Reloading { mut answer, begun } = reloading.map_err(conflict)?;
    let deadline = Instant::now() + RESTART_WAIT_MAX;
    for (name, what, before) in begun.into_iter().filter(|_| waits) {
        let old_pid = before.old_pid;
        let outcome = match wait(host, name.clone(), what, before, deadline).await {
            Err((StatusCode::NOT_FOUND, _)) => {
                ChangeAnswer { old_pid, ..failed(name, "it is not defined any more".to_owned()) }
            }
            outcome => outcome?,
        };
        answer.outcomes.push(outcome);
    }
    Ok(reply(StatusCode::OK, &answer))
}

/// Looks at the service whenever something was told, until it is as it was to be, or cannot be.
async fn wait(
    host: &Host,
    name: String,
    what: Change,
    before: StateBefore,
    deadline: Instant,
) -> Refusing<ChangeAnswer> {
    let StateBefore { old_pid, old, swap_failed, mut changes } = before;
    loop {
        let status = match status(host, &name).await {
            // One that is not defined any more is forgotten when it is down.
            Err((StatusCode::NOT_FOUND, _)) if what == Change::Stop => {
                let outcome = ChangeOutcome::Down;
                return Ok(ChangeAnswer { name, outcome, old_pid, new_pid: None, detail: None });
            }
            status => status?,
        };
        let swap_has_failed = what == Change::Restart && status.swap_failed != swap_failed;
        let waits = waits_of(host, &status).await?;
        let waits_in_vain = what == Change::Start && matches!(waits, Some((_, true)));
        let known = match swap_has_failed || waits_in_vain {
            true => Some(ChangeOutcome::Failed),
            false => known_outcome(what, &status, old),
        };
        let outcome = match known {
            Some(outcome) => outcome,
            None if timeout_at(deadline, changes.changed()).await.is_err() => {
                ChangeOutcome::StillWaiting
            }
            None => continue,
        };
        let new_pid = status.pid.filter(|_| outcome == ChangeOutcome::Up);
        let detail = match outcome {
            ChangeOutcome::Up | ChangeOutcome::Down | ChangeOutcome::Accepted => None,
            ChangeOutcome::Failed | ChangeOutcome::StillWaiting => {
                let why = match waits {
                    _ if swap_has_failed => {
                        status.swap_failed.map_or_else(String::new, |note| note.reason)
                    }
                    Some((told, _)) if what != Change::Stop => told,
                    _ => why(what, status, outcome),
                };
                Some(with_last_words(host, &name, old, why).await?)
            }
        };
        return Ok(ChangeAnswer { name, outcome, old_pid, new_pid, detail });
    }
}

/// What a service waits for, if it does, and whether one of those will not come by itself.
async fn waits_of(host: &Host, status: &ServiceStatus) -> Refusing<Option<(String, bool)>> {
    if status.waits_for.is_empty() {
        return Ok(None);
    }
    let all = host.ask(|answer| LoopRequest::Status { name: None, answer }).await?;
    let needed = status.waits_among(&all);
    let is_lost =
        |one: &&ServiceStatus| matches!(one.state, State::Failed { .. } | State::Finished);
    let shown: Vec<String> =
        needed.iter().map(|one| format!("{} ({})", one.name, one.state)).collect();
    let told = format!("it waits for {}", shown.join(", "));
    Ok(Some((told, needed.iter().any(is_lost))))
}

/// What became of the change since this generation, once that is known.
fn known_outcome(what: Change, status: &ServiceStatus, old: Generation) -> Option<ChangeOutcome> {
    let is_new = status.generation > old.0;
    let is_up = match status.state {
        State::Ready | State::Degraded { .. } => true,
        // It is not known when a plain command is ready.
        State::Running => !status.says_ready,
        _ => false,
    };
    let is_down = matches!(status.state, State::Stopped | State::Finished | State::Failed { .. });
    let is_waiting = matches!(status.state, State::BackingOff { .. } | State::CrashLoop { .. });
    match what {
        Change::Stop if is_down => Some(ChangeOutcome::Down),
        // Another client wants it up.
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
        return "it was started again meanwhile".to_owned();
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
    let logs = host.ask(|answer| LoopRequest::Logs { name, answer }).await?;
    let words = logs.map(|logs| logs.last_words(|its| its > old)).unwrap_or_default();
    Ok(match words.is_empty() {
        true => why,
        false => format!("{why}; the last lines of its stderr:\n{}", words.join("\n")),
    })
}
