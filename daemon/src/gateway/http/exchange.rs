//! Serves one request: hands it to the loop, and makes a response of the reply. Driven by `server.rs`. Never keeps a
//! session.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use afresh_core::gateway::http::{
    Admitted, FrontRequest, Gate, Head, HttpExchange, HttpRefusal, ORIGIN_HEADERS, PostBody,
    RequestKind, SessionId,
};
use afresh_core::http_access::Caller;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH,
    CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::body::ResponseBody;
use super::server::{Host, Limit};
use super::{ConnectionEvent, FrontReply, Outlet, OutletKind};
use crate::http::{drain, single_header};
use crate::os;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The first version whose clients know events without a message.
const PRIMES_FROM: &str = "2025-11-25";

/// Serves one request.
pub(super) async fn exchange(
    request: Request<Incoming>,
    peer: IpAddr,
    limit: Limit,
    host: &Host,
) -> Response<ResponseBody> {
    let (parts, mut body) = request.into_parts();
    let gate = Arc::clone(&host.gate.borrow());
    let mut response = match ask(&parts, &mut body, (peer, limit), host, &gate).await {
        Ok(response) => response,
        Err(refusal) => {
            let rest = drain(&mut body, host.bounds.refused_bytes_max);
            timeout(host.bounds.refused_wait, rest).await.ok();
            refused(&refusal)
        }
    };
    share(&parts.headers, &mut response, &gate);
    response
}

async fn ask(
    parts: &Parts,
    body: &mut Incoming,
    (peer, limit): (IpAddr, Limit),
    host: &Host,
    gate: &Gate,
) -> Result<Response<ResponseBody>, HttpRefusal> {
    let accept = every(&parts.headers, &ACCEPT);
    let head = head_of(parts, accept.as_deref());
    let mut place = None;
    let (token, ask) = match gate.admit(&head)? {
        Admitted::Health => return Ok(respond(200, "text/plain", ResponseBody::whole("ok"))),
        Admitted::Preflight => return Ok(empty(204)),
        Admitted::Get(token) => {
            (token, RequestKind::Get { last_event: head.last_event.map(str::to_owned) })
        }
        Admitted::Delete(token) => (token, RequestKind::Delete),
        Admitted::Post(token) => {
            let (mut line, its) = host.rooms.receive(body, gate).await?;
            place = Some(its);
            let post = PostBody::look(&head, &mut line)?;
            (token, RequestKind::Post { new: new_session(&post)?, line, post })
        }
    };
    let exchange = HttpExchange(host.exchanges.fetch_add(1, Ordering::Relaxed) + 1);
    let primes = head.version.is_some_and(|version| version >= PRIMES_FROM);
    let session = head.session.map(str::to_owned);
    let asked = Box::new(FrontRequest { exchange, token, peer, session, primes, ask });
    let closing = |_| HttpRefusal::new(503, "the gateway ends");
    let turn = Arc::clone(&host.turns).acquire_owned().await.map_err(|_| closing(()))?;
    let presence = Presence::new(host, exchange).await.map_err(closing)?;
    let (sender, reply) = oneshot::channel();
    let outlet = Outlet { way: OutletKind::Reply(sender), limit };
    let letter = ConnectionEvent::Request { asked, _turn: turn, _place: place, outlet };
    host.letters.send(letter).await.map_err(|_| closing(()))?;
    let reply = reply.await.map_err(|_| closing(()))?;
    Ok(answer(reply, presence))
}

/// The head of a request, for those who decide.
fn head_of<'a>(parts: &'a Parts, accept: Option<&'a str>) -> Head<'a> {
    let headers = &parts.headers;
    // A request to a proxy names its host in its target: that is then the one that counts.
    let host = parts.uri.authority().map(|authority| authority.as_str());
    Head {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        caller: Caller {
            host: host.or_else(|| single_header(headers, &HOST)),
            origin: headers.contains_key(ORIGIN).then(|| single_header(headers, &ORIGIN)),
            authorization: single_header(headers, &AUTHORIZATION),
        },
        content_type: single_header(headers, &CONTENT_TYPE),
        content_length: single_header(headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok()),
        accept,
        session: single_header(headers, &SESSION),
        version: single_header(headers, &VERSION),
        last_event: single_header(headers, &LAST_EVENT_ID),
        mcp_method: single_header(headers, &MCP_METHOD),
        mcp_name: single_header(headers, &MCP_NAME),
    }
}

/// All values of a header that may be there several times.
fn every(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values: Vec<&str> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    headers.contains_key(name).then(|| values.join(","))
}

/// A name for the session that a message opens; any where it opens none.
fn new_session(post: &PostBody) -> Result<SessionId, HttpRefusal> {
    match post {
        PostBody::Initialize(_) => {
            let bytes = os::random_bytes();
            bytes
                .map(SessionId)
                .map_err(|error| HttpRefusal::new(500, format!("no session: {error}")))
        }
        PostBody::Modern(_) | PostBody::Nothing | PostBody::Session { .. } => {
            Ok(SessionId([0; 16]))
        }
    }
}

/// Tells the loop when a connection is gone before its exchange is over.
pub(super) struct Presence {
    exchange: HttpExchange,
    /// A place in the queue for that word.
    place: Option<mpsc::OwnedPermit<ConnectionEvent>>,
}

impl Presence {
    async fn new(host: &Host, exchange: HttpExchange) -> Result<Self, ()> {
        let place = host.letters.clone().reserve_owned().await.map_err(|_| ())?;
        Ok(Self { exchange, place: Some(place) })
    }

    /// The loop need not be told.
    pub(super) fn is_over(&mut self) {
        self.place = None;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.send(ConnectionEvent::Gone(self.exchange));
        }
    }
}

fn answer(reply: FrontReply, mut presence: Presence) -> Response<ResponseBody> {
    let (session, mut response) = match reply {
        FrontReply::Stream { session, events } => {
            let mut response =
                respond(200, "text/event-stream", ResponseBody::events(events, presence));
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
            headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
            (session, response)
        }
        FrontReply::Whole { status, session, body } => {
            presence.is_over();
            let response = match body {
                Some(body) => respond(status, "application/json", ResponseBody::whole(body)),
                None => empty(status),
            };
            (session, response)
        }
        FrontReply::Refused(refusal) => {
            presence.is_over();
            (None, refused(&refusal))
        }
    };
    if let Some(Ok(session)) = session.map(|name| HeaderValue::from_str(&name.to_string())) {
        response.headers_mut().insert(SESSION, session);
    }
    response
}

fn refused(refusal: &HttpRefusal) -> Response<ResponseBody> {
    let body = ResponseBody::whole(refusal.body());
    let mut response = respond(refusal.status, "application/json", body);
    let headers = response.headers_mut();
    if let Some(allow) = refusal.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if refusal.status == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if refusal.is_passing() {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Lets a page of another origin read the answer, where it may.
fn share(headers: &HeaderMap, response: &mut Response<ResponseBody>, gate: &Gate) {
    let Some(origin) =
        single_header(headers, &ORIGIN).filter(|origin| gate.is_allowed_origin(origin))
    else {
        return;
    };
    let Ok(origin) = HeaderValue::from_str(origin) else { return };
    let into = response.headers_mut();
    into.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    into.insert(VARY, HeaderValue::from_static("Origin"));
    for (name, value) in ORIGIN_HEADERS {
        into.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

fn respond(status: u16, kind: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = empty(status);
    *response.body_mut() = body;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn empty(status: u16) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(""));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response
}
