//! Serves one request: hands it to the loop, and makes a response of the reply, whole or with events as they come.
//! Driven by `connections_and_bodies.rs` and hyper. Never keeps a session and never blocks the loop.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use afresh_core::audit::{Actor, Refusal};
use afresh_core::gateway::http::{
    Admitted, FrontRequest, Gate, Head, HttpExchange, HttpRefusal, ORIGIN_HEADERS, PostBody,
    RequestKind, SessionId,
};
use afresh_core::http_access::Caller;
use afresh_core::limits::{FRONT_UNREAD_BYTES_MAX, FRONT_UNREAD_MAX};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH,
    CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::connections_and_bodies::{Busy, Host, Limit};
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
    (address, peer): (IpAddr, &Actor),
    limit: Limit,
    host: &Host,
) -> Response<ResponseBody> {
    let (parts, mut body) = request.into_parts();
    let gate = Arc::clone(&host.gate.borrow());
    let mut response = match ask(&parts, &mut body, (address, limit), host, &gate).await {
        Ok(Ok(response)) => response,
        Ok(Err(refusal)) => {
            note_refusal(&parts, peer, &refusal, host, &gate);
            refused(&refusal)
        }
        Err(refusal) => {
            note_refusal(&parts, peer, &refusal, host, &gate);
            let rest = drain(&mut body, host.bounds.refused_bytes_max);
            timeout(host.bounds.refused_wait, rest).await.ok();
            refused(&refusal)
        }
    };
    share(&parts.headers, &mut response, &gate);
    response
}

/// Records a request without access, or for something that is not there.
fn note_refusal(parts: &Parts, peer: &Actor, refusal: &HttpRefusal, host: &Host, gate: &Gate) {
    if Refusal::is_refusal(refusal.status) {
        let token = gate.token_name(single_header(&parts.headers, &AUTHORIZATION));
        host.refusals.note(Refusal {
            by: token.map_or_else(|| peer.clone(), Actor::Token),
            status: Some(refusal.status),
            request: format!("{} {}", parts.method, parts.uri.path()),
            reason: refusal.message.clone(),
        });
    }
}

/// The response, or the loop's refusal. An error is a refusal before all of the body was read.
async fn ask(
    parts: &Parts,
    body: &mut Incoming,
    (peer, limit): (IpAddr, Limit),
    host: &Host,
    gate: &Gate,
) -> Result<Result<Response<ResponseBody>, HttpRefusal>, HttpRefusal> {
    let accept = accept_of(&parts.headers);
    let head = head_of(parts, accept.as_deref());
    let mut place = None;
    let (token, ask) = match gate.admit(&head)? {
        Admitted::Health => {
            return Ok(Ok(respond(200, "text/plain", ResponseBody::whole("ok"))));
        }
        Admitted::Preflight => return Ok(Ok(empty(204))),
        Admitted::Get(token) => {
            limit.note_client();
            (token, RequestKind::Get { last_event: head.last_event.map(str::to_owned) })
        }
        Admitted::Delete(token) => {
            limit.note_client();
            (token, RequestKind::Delete)
        }
        Admitted::Post(token) => {
            limit.note_client();
            let (mut line, its) = host.rooms.receive(body, gate).await?;
            place = Some(its);
            let post = PostBody::look(&head, &mut line)?;
            (token, RequestKind::Post { new: new_session(&post)?, line, post })
        }
    };
    let exchange = HttpExchange(host.exchanges.fetch_add(1, Ordering::Relaxed) + 1);
    let primes = head.version.is_some_and(|version| version >= PRIMES_FROM);
    let session = head.session.map(str::to_owned);
    let authorization = single_header(&parts.headers, &AUTHORIZATION);
    // The id is signed for what the client says now.
    let signed = match &ask {
        RequestKind::Post { line, post: PostBody::Initialize(_), new } => {
            Some(host.signer.sign(*new, line, authorization))
        }
        _ => None,
    };
    let (issued, resumes) = (signed.clone(), None);
    let asked =
        Box::new(FrontRequest { exchange, token, peer, session, issued, resumes, primes, ask });
    let authorization = authorization.filter(|_| asked.session.is_some()).map(str::to_owned);
    let closing = || HttpRefusal::new(503, "the gateway ends");
    let turn = host.turns.wait(token).await.ok_or_else(closing)?;
    let word = host.letters.clone().reserve_owned().await.map_err(|_| closing())?;
    let presence = Presence { exchange, word: Some(word) };
    let (sender, reply) = oneshot::channel();
    let outlet = Outlet { way: OutletKind::Reply(sender), token, limit };
    let letter =
        ConnectionEvent::Request { asked, authorization, _turn: turn, _place: place, outlet };
    host.letters.send(letter).await.map_err(|_| closing())?;
    let (reply, end) = reply.await.map_err(|_| closing())?;
    if let Some(end) = end {
        end.stored().await;
    }
    Ok(answer(reply, presence, signed))
}

/// The kinds that a request accepts, which may stand in several headers.
fn accept_of(headers: &HeaderMap) -> Option<String> {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(ACCEPT).then(|| accepts.collect::<Vec<&str>>().join(","))
}

/// Whether a request is let in by its head and, where it brings one, its body. For the fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn admit_request(parts: &Parts, gate: &Gate, body: &[u8]) -> Result<Admitted, HttpRefusal> {
    let accept = accept_of(&parts.headers);
    let head = head_of(parts, accept.as_deref());
    let admitted = gate.admit(&head)?;
    if matches!(admitted, Admitted::Post(_)) {
        PostBody::look(&head, &mut body.to_vec())?;
    }
    Ok(admitted)
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

/// A name for the session that a message opens; any where it opens none.
fn new_session(post: &PostBody) -> Result<SessionId, HttpRefusal> {
    if !matches!(post, PostBody::Initialize(_)) {
        return Ok(SessionId([0; 16]));
    }
    let no_session = |error| HttpRefusal::new(500, format!("no session: {error}"));
    os::random_bytes().map(SessionId).map_err(no_session)
}

/// Tells the loop when a connection is gone before its exchange is over.
struct Presence {
    exchange: HttpExchange,
    /// A place in the queue for that; none once the loop need not be told.
    word: Option<mpsc::OwnedPermit<ConnectionEvent>>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            word.send(ConnectionEvent::Gone(self.exchange));
        }
    }
}

fn answer(
    reply: FrontReply,
    mut presence: Presence,
    signed: Option<String>,
) -> Result<Response<ResponseBody>, HttpRefusal> {
    let (session, mut response) = match reply {
        FrontReply::Stream { session, events } => {
            let content = Content::Events(Box::new((events, presence)));
            let body = ResponseBody { content, _busy: None };
            let mut response = respond(200, "text/event-stream", body);
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
            headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
            (session, response)
        }
        FrontReply::Whole { status, session, body } => {
            presence.word = None;
            let response = match body {
                Some(body) => respond(status, "application/json", ResponseBody::whole(body)),
                None => empty(status),
            };
            (session, response)
        }
        FrontReply::Refused(refusal) => {
            presence.word = None;
            return Err(refusal);
        }
    };
    let session = session.map(|name| signed.unwrap_or_else(|| name.to_string()));
    if let Some(Ok(session)) = session.map(|name| HeaderValue::from_str(&name)) {
        response.headers_mut().insert(SESSION, session);
    }
    Ok(response)
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
        single_header(headers, &ORIGIN).filter(|origin| gate.callers.is_origin(origin))
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

/// What both ends of a stream know.
#[derive(Default)]
pub(super) struct Written {
    pub(super) unread_bytes: AtomicUsize,
    /// It is over when all is read, and was not just broken off.
    pub(super) has_ended: AtomicBool,
}

impl Written {
    /// Whether so much more may wait; a single event always may.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        unread == 0 || unread + bytes <= FRONT_UNREAD_BYTES_MAX
    }
}

/// The end of a stream that is read from.
pub(super) struct Events {
    events: mpsc::Receiver<Bytes>,
    written: Arc<Written>,
}

impl Events {
    /// Both ends.
    pub(super) fn new() -> (mpsc::Sender<Bytes>, Arc<Written>, Self) {
        let (sender, events) = mpsc::channel(FRONT_UNREAD_MAX);
        let written = Arc::new(Written::default());
        (sender, Arc::clone(&written), Self { events, written })
    }
}

/// A body; while it is there, its connection is busy.
pub(super) struct ResponseBody {
    content: Content,
    _busy: Option<Busy>,
}

enum Content {
    Whole(Bytes),
    /// Events, and the word that the connection is gone.
    Events(Box<(Events, Presence)>),
}

impl ResponseBody {
    fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), _busy: None }
    }

    pub(super) fn holding(self, busy: Busy) -> Self {
        Self { _busy: Some(busy), ..self }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => std::mem::take(bytes),
            Content::Events(both) => {
                let (events, presence) = &mut **both;
                match ready!(events.events.poll_recv(context)) {
                    Some(bytes) => {
                        events.written.unread_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                        bytes
                    }
                    None if events.written.has_ended.load(Ordering::Relaxed) => {
                        presence.word = None;
                        return Poll::Ready(None);
                    }
                    None => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
                }
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
