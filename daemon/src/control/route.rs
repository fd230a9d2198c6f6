//! Turns requests into asks for the loop, and its answers into responses.

use std::sync::Arc;

use afresh_core::control::{
    Face, LogPage, Refusal, RestartAnswer, RestartAsked, RestartOutcome, ServiceList,
    ServiceStatus, State,
};
use afresh_core::id::Generation;
use afresh_core::limits::{
    CONTROL_BODY_BYTES_MAX, CONTROL_FOLLOWERS_MAX, CONTROL_HEADER_WAIT, LOGS_LINES_MAX,
    RESTART_REASON_CHARS_MAX, RESTART_WAIT_MAX,
};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{Ask, Begun, NotBegun};
use super::follow::Following;
use super::server::Host;
use super::wire::{Answer, all_bytes, json, unescape};
use crate::logs::Logs;

type Refusing<T> = Result<T, (StatusCode, Refusal)>;

/// Answers one request, and says whether the answer has an end.
pub(super) async fn route(request: Request<Incoming>, host: &Host) -> (Response<Answer>, bool) {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let answered = match parts[..] {
        ["v1", "services"] => match *request.method() {
            Method::GET => list(host).await,
            _ => return (not_allowed("GET"), true),
        },
        ["v1", "services", name] => match *request.method() {
            Method::GET => one(host, name).await,
            _ => return (not_allowed("GET"), true),
        },
        ["v1", "services", name, "restart"] => match *request.method() {
            Method::POST => restart(host, name, request).await,
            _ => return (not_allowed("POST"), true),
        },
        ["v1", "services", name, "logs"] => match *request.method() {
            Method::GET => match logs(host, name, request.uri().query()).await {
                Ok(Lines::Page(page)) => Ok(reply(StatusCode::OK, &page)),
                Ok(Lines::Follow(following)) => return (events(following), false),
                Err(refused) => Err(refused),
            },
            _ => return (not_allowed("GET"), true),
        },
        _ => Err((StatusCode::NOT_FOUND, no_such_path())),
    };
    (answered.unwrap_or_else(|(status, refusal)| reply(status, &refusal)), true)
}

async fn list(host: &Host) -> Refusing<Response<Answer>> {
    let services = host.ask(|answer| Ask::Status { name: None, answer }).await?;
    Ok(reply(StatusCode::OK, &ServiceList { services }))
}

async fn one(host: &Host, name: &str) -> Refusing<Response<Answer>> {
    let name = name_of(name)?;
    let status = status(host, &name).await?;
    Ok(reply(StatusCode::OK, &status))
}

async fn status(host: &Host, name: &str) -> Refusing<ServiceStatus> {
    let name = name.to_owned();
    let asked = name.clone();
    let found = host.ask(|answer| Ask::Status { name: Some(asked), answer }).await?;
    found.into_iter().next().ok_or_else(|| no_service(&name))
}

async fn restart(
    host: &Host,
    name: &str,
    request: Request<Incoming>,
) -> Refusing<Response<Answer>> {
    let name = name_of(name)?;
    let waits = flag(request.uri().query(), "wait")?;
    let reason = reason(request).await?;
    let asked = name.clone();
    let begun = host.ask(|answer| Ask::Restart { name: asked, reason, answer }).await?;
    let begun = begun.map_err(|refused| {
        let status = match refused {
            NotBegun::NoSuchService { .. } => StatusCode::NOT_FOUND,
            NotBegun::Stopping => StatusCode::CONFLICT,
        };
        (status, refused.refusal(&name))
    })?;
    let begun = on_record(begun).await;
    if !waits {
        let answer = RestartAnswer {
            name,
            outcome: RestartOutcome::Accepted,
            old_pid: begun.old_pid,
            new_pid: None,
            detail: None,
        };
        return Ok(reply(StatusCode::ACCEPTED, &answer));
    }
    Ok(reply(StatusCode::OK, &wait_for_restart(host, name, begun).await?))
}

/// Waits until the request is on disk; the loop does not wait for a disk that hangs, and neither do we.
async fn on_record(mut begun: Begun) -> Begun {
    (&mut begun.recorded).await.ok();
    begun
}

/// Looks at the service whenever something was told, until its new instance is up or gone.
async fn wait_for_restart(host: &Host, name: String, begun: Begun) -> Refusing<RestartAnswer> {
    let Begun { old_pid, old, swap_failed, mut changes, .. } = begun;
    let deadline = Instant::now() + RESTART_WAIT_MAX;
    loop {
        let status = status(host, &name).await?;
        let known = match status.swap_failed == swap_failed {
            true => known_outcome(&status, old),
            false => Some(RestartOutcome::Failed),
        };
        let late = match known {
            None => timeout_at(deadline, changes.changed()).await.is_err(),
            Some(_) => false,
        };
        let outcome = match known {
            Some(outcome) => outcome,
            None if late => RestartOutcome::StillWaiting,
            None => continue,
        };
        let new_pid = status.pid.filter(|_| outcome == RestartOutcome::Up);
        let detail = match outcome {
            RestartOutcome::Up => None,
            _ => {
                let why = match status.swap_failed == swap_failed {
                    true => why(status),
                    false => status.swap_failed.map_or_else(String::new, |note| note.reason),
                };
                Some(with_last_words(host, &name, old, why).await?)
            }
        };
        return Ok(RestartAnswer { name, outcome, old_pid, new_pid, detail });
    }
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

/// Why there is no new instance.
fn why(status: ServiceStatus) -> String {
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

/// What became of the restart of this generation, once that is known.
fn known_outcome(status: &ServiceStatus, old: Generation) -> Option<RestartOutcome> {
    let is_new = status.generation > old.0;
    match status.state {
        State::Ready | State::Degraded { .. } if is_new => Some(RestartOutcome::Up),
        // Nobody says when a plain command is ready.
        State::Running if is_new && status.face == Face::Keep => Some(RestartOutcome::Up),
        State::BackingOff { .. } | State::CrashLoop { .. } if is_new => {
            Some(RestartOutcome::Failed)
        }
        State::Stopped | State::Finished | State::Failed { .. } => Some(RestartOutcome::Failed),
        _ => None,
    }
}

async fn reason(request: Request<Incoming>) -> Refusing<String> {
    let bad = |what: String| (StatusCode::BAD_REQUEST, Refusal::new(what));
    let body = timeout(CONTROL_HEADER_WAIT, all_bytes(request.into_body(), CONTROL_BODY_BYTES_MAX))
        .await
        .map_err(|_| (StatusCode::REQUEST_TIMEOUT, Refusal::new("the body takes too long")))?
        .map_err(|error| bad(format!("the body cannot be read: {error}")))?;
    let Some(body) = body else {
        let what = format!("the body is longer than {CONTROL_BODY_BYTES_MAX} bytes");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, Refusal::new(what)));
    };
    let asked = match body.is_empty() {
        true => RestartAsked::default(),
        false => serde_json::from_slice(&body).map_err(|error| {
            let (status, refusal) = bad(format!("the body is not what it should be: {error}"));
            (status, refusal.hint(r#"send {"reason": "why"}"#))
        })?,
    };
    let reason = asked.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.unwrap_or_else(|| "asked over the control socket".to_owned());
    Ok(reason.chars().take(RESTART_REASON_CHARS_MAX).collect())
}

enum Lines {
    Page(LogPage),
    Follow(Following),
}

async fn logs(host: &Host, name: &str, query: Option<&str>) -> Refusing<Lines> {
    let name = name_of(name)?;
    let lines_max = number(query, "lines")?.unwrap_or(LOGS_LINES_MAX as u64);
    let lines_max = usize::try_from(lines_max).unwrap_or(usize::MAX);
    let (since, follows) = (number(query, "since")?, flag(query, "follow")?);
    let asked = name.clone();
    let found = host.ask(|answer| Ask::Logs { name: asked, answer }).await?;
    let logs: Logs = found.ok_or_else(|| no_service(&name))?;
    if !follows {
        let newest = *logs.follow().borrow();
        let lines = match since {
            Some(since) => logs.since(since, lines_max),
            None => logs.tail(lines_max),
        };
        let newest = lines.last().map_or(newest, |line| line.number);
        return Ok(Lines::Page(LogPage { lines, newest }));
    }
    let place = Arc::clone(&host.followers).try_acquire_owned().map_err(|_| {
        let what = format!("{CONTROL_FOLLOWERS_MAX} others follow already");
        (StatusCode::SERVICE_UNAVAILABLE, Refusal::new(what).hint("end one of them"))
    })?;
    let at = since.unwrap_or_else(|| {
        let newest = *logs.follow().borrow();
        logs.tail(lines_max).first().map_or(newest, |line| line.number - 1)
    });
    Ok(Lines::Follow(Following { logs, at, closing: host.closing.clone(), _place: place }))
}

impl Host {
    /// Asks the loop.
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Refusing<T> {
        let ending = || (StatusCode::SERVICE_UNAVAILABLE, Refusal::new("afresh is ending"));
        let (sender, answer) = oneshot::channel();
        self.asks.send(ask(sender)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())
    }
}

/// The value of one word of a query.
fn word<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let pairs = query.unwrap_or_default().split('&');
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn number(query: Option<&str>, name: &str) -> Refusing<Option<u64>> {
    let parse = |text: &str| text.parse().map_err(|_| bad_word(name, "a number"));
    word(query, name).map(parse).transpose()
}

fn flag(query: Option<&str>, name: &str) -> Refusing<bool> {
    match word(query, name) {
        Some("true" | "1" | "") => Ok(true),
        None | Some("false" | "0") => Ok(false),
        Some(_) => Err(bad_word(name, "`true` or `false`")),
    }
}

fn bad_word(name: &str, wanted: &str) -> (StatusCode, Refusal) {
    (StatusCode::BAD_REQUEST, Refusal::new(format!("`{name}` has to be {wanted}")))
}

fn name_of(part: &str) -> Refusing<String> {
    unescape(part).ok_or_else(|| {
        (StatusCode::BAD_REQUEST, Refusal::new("the name in the path is not UTF-8 with %-escapes"))
    })
}

fn no_service(name: &str) -> (StatusCode, Refusal) {
    let refusal = Refusal::new(format!("there is no service `{name}`"));
    (StatusCode::NOT_FOUND, refusal.hint("see /v1/services"))
}

fn no_such_path() -> Refusal {
    let paths =
        "/v1/services, /v1/services/NAME, /v1/services/NAME/restart and /v1/services/NAME/logs";
    Refusal::new("there is nothing at this path").hint(format!("there is {paths}"))
}

fn not_allowed(method: &'static str) -> Response<Answer> {
    let refusal = Refusal::new(format!("this path is for {method}"));
    let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, &refusal);
    response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static(method));
    response
}

fn reply(status: StatusCode, value: &impl Serialize) -> Response<Answer> {
    respond(status, "application/json", Answer::Whole(Bytes::from(json(value))))
}

fn events(following: Following) -> Response<Answer> {
    respond(StatusCode::OK, "text/event-stream", Answer::Pieces(following.pieces()))
}

fn respond(status: StatusCode, kind: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
