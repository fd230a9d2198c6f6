//! Turns requests into asks for the loop, and its answers into responses. Which requests there are, the
//! table of routes in core says.

use std::sync::Arc;

use afresh_core::audit::Refusal;
use afresh_core::control::metrics::Metrics;
use afresh_core::control::route_table::{NoRoute, Operation, Route, find, paths};
use afresh_core::control::{
    ChangeRequest, ErrorAnswer, InputAnswer, ServiceList, ServiceStatus, UsageStatus, Words,
    document,
};
use afresh_core::http_access::{AccessDenied, Caller};
use afresh_core::limits::{
    CONTROL_BODY_BYTES_MAX, CONTROL_FOLLOWERS_MAX, CONTROL_HEADER_WAIT, CONTROL_PATH_BYTES_MAX,
    CONTROL_REFUSED_BYTES_MAX, INPUT_BYTES_MAX, RESTART_REASON_CHARS_MAX,
};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::connections::Host;
use super::event_streams::{FollowSource, Following};
use super::json;
use super::lifecycle_requests::{change, reload, restart_all};
use super::log_and_event_requests::{events, logs};
use super::loop_requests::LoopRequest;
use crate::http::{MessageBody, all_bytes, drain, single_header};
use crate::process::{own_usage, usage_of_trees};

pub(super) type Refusing<T> = Result<T, (StatusCode, ErrorAnswer)>;

/// Answers one request, and says whether the answer has an end.
pub(super) async fn route(
    request: Request<Incoming>,
    host: &Host,
) -> (Response<MessageBody>, bool) {
    let asked = format!("{} {}", request.method(), request.uri().path());
    match admit_and_serve(request, host).await {
        Ok(response) => {
            let has_end = matches!(response.body(), MessageBody::Whole(_));
            (response, has_end)
        }
        Err((status, refusal)) => {
            note_refusal(host, status, asked, &refusal);
            (reply(status, &refusal), true)
        }
    }
}

async fn admit_and_serve(
    request: Request<Incoming>,
    host: &Host,
) -> Refusing<Response<MessageBody>> {
    admit(&request, host)?;
    let (route, name) = match find(request.method().as_str(), request.uri().path()) {
        Ok(found) => found,
        Err(NoRoute::Method(allowed)) => return Ok(not_allowed(&allowed)),
        Err(NoRoute::Path) => {
            let refusal = ErrorAnswer::new("there is nothing at this path");
            return Err((StatusCode::NOT_FOUND, refusal.hint(format!("there is {}", paths()))));
        }
        Err(NoRoute::Name) => {
            return Err(bad("the name in the path is not UTF-8 with %-escapes".to_owned()));
        }
    };
    serve(request, host, route, name.unwrap_or_default()).await
}

/// Records a request without access, or for something that is not there.
fn note_refusal(host: &Host, status: StatusCode, request: String, refusal: &ErrorAnswer) {
    let status = status.as_u16();
    if Refusal::is_refusal(status) {
        // Of a client that was not admitted only its address is known.
        let by = if status == 404 { host.caller() } else { host.peer.clone() };
        let reason = refusal.error.what.clone();
        host.refusals.note(Refusal { by, status: Some(status), request, reason });
    }
}

async fn serve(
    request: Request<Incoming>,
    host: &Host,
    route: &Route,
    name: String,
) -> Refusing<Response<MessageBody>> {
    let known: Vec<&str> = route.words.iter().map(|word| word.name).collect();
    let words = Words::parse(request.uri().query().unwrap_or_default(), &known).map_err(bad)?;
    // False where the route does not know it.
    let waits = words.flag("wait").map_err(bad)?;
    match route.operation {
        Operation::Services => {
            let services = host.ask(|answer| LoopRequest::Status { name: None, answer }).await?;
            Ok(reply(StatusCode::OK, &ServiceList { services: measured(services).await }))
        }
        Operation::Service => {
            let found = measured(vec![status(host, &name).await?]).await;
            Ok(reply(StatusCode::OK, &found[0]))
        }
        Operation::Change(what) => change(host, name, what, reason(request).await?, waits).await,
        Operation::RestartAll => restart_all(host, name, reason(request).await?, waits).await,
        Operation::Input => input(host, name, request).await,
        Operation::Logs => logs(host, &name, &words).await,
        Operation::Events => events(host, &words, request.headers()).await,
        Operation::Metrics => {
            let text = MessageBody::from(metrics(host).await?.to_text());
            Ok(respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        Operation::Reload => reload(host, reason(request).await?, waits).await,
        Operation::Shutdown => {
            let reason = reason(request).await?;
            let by = host.caller();
            let answer = host.ask(|answer| LoopRequest::Shutdown { reason, by, answer }).await?;
            Ok(reply(StatusCode::ACCEPTED, &answer.map_err(conflict)?))
        }
        Operation::OpenApi => Ok(reply(StatusCode::OK, &document())),
        Operation::Version => Ok(reply(StatusCode::OK, &*host.version)),
    }
}

/// Whether a request may be looked at: over TCP, only from this machine and with the token.
fn admit(request: &Request<Incoming>, host: &Host) -> Refusing<()> {
    let refused = |status: StatusCode, what: &str, hint: &str| {
        Err((status, ErrorAnswer::new(what).hint(hint)))
    };
    let target = request.uri();
    if target.authority().is_some() {
        return refused(StatusCode::BAD_REQUEST, "this is no proxy", "ask for a path");
    }
    let length = target.path_and_query().map_or(0, |path| path.as_str().len());
    if length > CONTROL_PATH_BYTES_MAX {
        let what = format!("the path is longer than {CONTROL_PATH_BYTES_MAX} bytes");
        return refused(StatusCode::BAD_REQUEST, &what, "names are words");
    }
    let Some(guard) = &host.guard else { return Ok(()) };
    let headers = request.headers();
    let caller = Caller {
        host: single_header(headers, &HOST),
        origin: headers.contains_key(ORIGIN).then(|| single_header(headers, &ORIGIN)),
        authorization: single_header(headers, &AUTHORIZATION),
    };
    match guard.admits(caller) {
        Ok(()) => Ok(()),
        Err(AccessDenied::Host) => refused(
            StatusCode::FORBIDDEN,
            "`Host` is not this machine and port",
            "ask for 127.0.0.1, localhost or [::1]",
        ),
        Err(AccessDenied::Origin) => refused(
            StatusCode::FORBIDDEN,
            "pages of other origins get no answer",
            "ask from a program, or from a page of this address",
        ),
        Err(denied) => {
            let what = match denied {
                AccessDenied::Token => "this is not the token",
                _ => "the token is missing",
            };
            let hint = "send `Authorization: Bearer TOKEN`; the log says in which file it is";
            refused(StatusCode::UNAUTHORIZED, what, hint)
        }
    }
}

pub(super) async fn status(host: &Host, name: &str) -> Refusing<ServiceStatus> {
    let name = name.to_owned();
    let asked = name.clone();
    let found = host.ask(|answer| LoopRequest::Status { name: Some(asked), answer }).await?;
    found.into_iter().next().ok_or_else(|| no_service(&name))
}

async fn input(
    host: &Host,
    name: String,
    request: Request<Incoming>,
) -> Refusing<Response<MessageBody>> {
    let bytes = body(request, INPUT_BYTES_MAX).await?;
    if bytes.is_empty() {
        return Err(bad("the body is empty: it is what is written".to_owned()));
    }
    let (asked, length) = (name.clone(), bytes.len() as u64);
    let taken = host.ask(|answer| LoopRequest::Input { name: asked, bytes, answer }).await?;
    let pid = taken.ok_or_else(|| no_service(&name))?.map_err(conflict)?;
    Ok(reply(StatusCode::OK, &InputAnswer { name, pid, bytes: length }))
}

/// All of a body.
async fn body(request: Request<Incoming>, bytes_max: usize) -> Refusing<Vec<u8>> {
    let mut body = request.into_body();
    let read = timeout(CONTROL_HEADER_WAIT, all_bytes(&mut body, bytes_max))
        .await
        .map_err(|_| (StatusCode::REQUEST_TIMEOUT, ErrorAnswer::new("the body takes too long")))?
        .map_err(|error| bad(format!("the body cannot be read: {error}")))?;
    if let Some(read) = read {
        return Ok(read);
    }
    timeout(CONTROL_HEADER_WAIT, drain(&mut body, CONTROL_REFUSED_BYTES_MAX)).await.ok();
    let what = format!("the body is longer than {bytes_max} bytes");
    Err((StatusCode::PAYLOAD_TOO_LARGE, ErrorAnswer::new(what)))
}

/// What a body says about why.
async fn reason(request: Request<Incoming>) -> Refusing<String> {
    let body = body(request, CONTROL_BODY_BYTES_MAX).await?;
    let asked = ChangeRequest::parse(&body).map_err(|error| {
        let (status, refusal) = bad(format!("the body is not what it should be: {error}"));
        (status, refusal.hint(r#"send {"reason": "why"}"#))
    })?;
    let reason = asked.reason.filter(|reason| !reason.trim().is_empty());
    let reason = reason.unwrap_or_else(|| "asked over the control API".to_owned());
    Ok(reason.chars().take(RESTART_REASON_CHARS_MAX).collect())
}

/// The services with what they use: one look for all of them.
async fn measured(mut services: Vec<ServiceStatus>) -> Vec<ServiceStatus> {
    let pids = services.iter().map(|service| service.pid).collect();
    for (service, usage) in services.iter_mut().zip(usages(pids).await) {
        service.usage = usage;
    }
    services
}

/// All numbers of this afresh.
async fn metrics(host: &Host) -> Refusing<Metrics> {
    let mut services = host.ask(|answer| LoopRequest::Metrics { answer }).await?;
    let pids = services.iter().map(|service| service.pid).collect();
    for (service, usage) in services.iter_mut().zip(usages(pids).await) {
        service.usage = usage;
    }
    let usage = own_usage();
    Ok(Metrics {
        version: host.version.version.clone(),
        face: host.version.face,
        events: *host.events.newest().borrow(),
        memory_bytes: usage.map(|usage| usage.memory_bytes),
        cpu_time: usage.map(|usage| usage.cpu_time),
        services,
    })
}

/// What each of these processes uses, where there is one.
async fn usages(pids: Vec<Option<u32>>) -> Vec<Option<UsageStatus>> {
    let running: Vec<u32> = pids.iter().copied().flatten().collect();
    if running.is_empty() {
        return vec![None; pids.len()];
    }
    // A look that has failed has found nothing.
    let found = spawn_blocking(move || usage_of_trees(&running)).await.unwrap_or_default();
    let mut found = found.into_iter();
    let status = |pid: Option<u32>| {
        let usage = pid.and_then(|_| found.next().flatten())?;
        let cpu_ms = u64::try_from(usage.cpu_time.as_millis()).unwrap_or(u64::MAX);
        Some(UsageStatus { memory_bytes: usage.memory_bytes, cpu_ms })
    };
    pids.into_iter().map(status).collect()
}

impl Host {
    /// Asks the loop.
    pub(super) async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<T>) -> LoopRequest,
    ) -> Refusing<T> {
        let ending = || (StatusCode::SERVICE_UNAVAILABLE, ErrorAnswer::new("afresh is ending"));
        let (sender, answer) = oneshot::channel();
        self.asks.send(ask(sender)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())
    }

    /// Lets a client follow, where there is a place left.
    pub(super) fn follow(&self, source: impl FollowSource) -> Refusing<Response<MessageBody>> {
        let _place: OwnedSemaphorePermit =
            Arc::clone(&self.followers).try_acquire_owned().map_err(|_| {
                let what = format!("{CONTROL_FOLLOWERS_MAX} others follow already");
                (StatusCode::SERVICE_UNAVAILABLE, ErrorAnswer::new(what).hint("end one of them"))
            })?;
        let following = Following { source, closing: self.closing.clone(), _place };
        Ok(respond(StatusCode::OK, "text/event-stream", MessageBody::Pieces(following.pieces())))
    }
}

pub(super) fn bad(what: String) -> (StatusCode, ErrorAnswer) {
    (StatusCode::BAD_REQUEST, ErrorAnswer::new(what))
}

pub(super) fn conflict(refusal: ErrorAnswer) -> (StatusCode, ErrorAnswer) {
    (StatusCode::CONFLICT, refusal)
}

pub(super) fn no_service(name: &str) -> (StatusCode, ErrorAnswer) {
    let refusal = ErrorAnswer::new(format!("there is no service `{name}`"));
    (StatusCode::NOT_FOUND, refusal.hint("see /v1/services"))
}

fn not_allowed(allowed: &str) -> Response<MessageBody> {
    let refusal = ErrorAnswer::new(format!("this path is for {allowed}"));
    let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, &refusal);
    // Made of words of ours.
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

pub(super) fn reply(status: StatusCode, value: &impl Serialize) -> Response<MessageBody> {
    let mut response = respond(status, "application/json", MessageBody::from(json(value)));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(super) fn respond(
    status: StatusCode,
    kind: &'static str,
    body: MessageBody,
) -> Response<MessageBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
