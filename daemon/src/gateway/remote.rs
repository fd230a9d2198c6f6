//! Owns the task of a link to a server over HTTP, which performs the effects of the machine in core. Driven by the
//! lines of the hub and the exchanges. Never decides about a message, and never retries.
//!
//! Each exchange is a task too, in the set of the link: it ends with the link. Where the hub does not read, the link
//! waits, its exchanges wait for it, and the server for them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use afresh_core::gateway::remote::{
    self as core, ExchangeId, HttpReply, HttpRequest, Method, RemoteEffect, RemoteInput,
};
use afresh_core::gateway::{Input, LinkId, backend};
use afresh_core::limits::{
    FLIGHTS_MAX, LINK_FAREWELL_WAIT, LINK_NEWS_MAX, LINK_QUEUE_BYTES_MAX, LINK_QUEUE_LEN_MAX,
    MESSAGE_BYTES_MAX, REFUSAL_BYTES_MAX, STREAM_LINGER,
};
use afresh_core::mcp::envelope::{Id, Message, look};
use afresh_core::service::State;
use afresh_core::sse::SseParser;
use afresh_core::time::Time;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::clock::sleep_until;
use crate::error_chain::chain;
use crate::http::{HttpClient, HttpError, Pool, Request, Response, SendError};

/// A link that runs. It ends when this is dropped; the session is ended then, if that is quick.
pub(crate) struct Remote {
    lines: mpsc::Sender<Vec<u8>>,
    /// Requests that found no place among the lines.
    refused: mpsc::Sender<(Id, String)>,
    /// What both ends know of the lines.
    queue: Arc<LineQueue>,
    _alive: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct LineQueue {
    bytes: AtomicUsize,
    /// Notifications that found no room, and were not logged yet.
    dropped: AtomicUsize,
}

impl Remote {
    pub(crate) fn start(
        link: LinkId,
        http: &backend::HttpServer,
        words: mpsc::Sender<Input>,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (lines, lines_told) = mpsc::channel(LINK_QUEUE_LEN_MAX);
        let (refused, refused_told) = mpsc::channel(FLIGHTS_MAX);
        let (news, news_told) = mpsc::channel(LINK_NEWS_MAX);
        let (alive, gone) = oneshot::channel();
        let queue = Arc::new(LineQueue::default());
        // Links to one server must not all wait equally long.
        let seed = u64::from(crate::monotonic().subsec_nanos()) ^ link.0.rotate_left(32);
        let pool = Pool::new(client(), &http.url).map(Arc::new).map_err(|error| chain(&error));
        let driver = LinkDriver {
            link,
            machine: core::Remote::new(http, seed),
            pool,
            headers: Arc::new(http.headers.clone()),
            words,
            news,
            exchanges: BTreeMap::new(),
            tasks: JoinSet::new(),
            start: Instant::now(),
            log: Box::new(log),
        };
        let heard = LinkInputs { lines: lines_told, refused: refused_told, news: news_told, gone };
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.drive(heard, Arc::clone(&queue)));
        Self { lines, refused, queue, _alive: alive, tasks }
    }

    /// Hands over a line of the hub's; never waits. A request that finds no place is answered with an
    /// error, and anything else is dropped, and said.
    pub(crate) fn tell(&mut self, line: Vec<u8>) {
        let length = line.len();
        let before = self.queue.bytes.fetch_add(length, Ordering::Relaxed);
        let line = match before > 0 && before + length > LINK_QUEUE_BYTES_MAX {
            true => Some(line),
            false => self.lines.try_send(line).err().map(mpsc::error::TrySendError::into_inner),
        };
        let Some(line) = line else { return };
        self.queue.bytes.fetch_sub(length, Ordering::Relaxed);
        if let Some(Message::Request { id, method, .. }) = look(&line) {
            // The hub has no more requests under way than fit here.
            self.refused.try_send((id, method)).ok();
        } else {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The task ends by itself, soon: it sees that we are gone.
        self.tasks.detach_all();
    }
}

/// One for all links: the certificates of a system take memory.
fn client() -> &'static HttpClient {
    static CLIENT: OnceLock<HttpClient> = OnceLock::new();
    CLIENT.get_or_init(|| HttpClient::new(None))
}

/// What the link's task waits for.
struct LinkInputs {
    lines: mpsc::Receiver<Vec<u8>>,
    refused: mpsc::Receiver<(Id, String)>,
    news: mpsc::Receiver<RemoteInput>,
    gone: oneshot::Receiver<()>,
}

struct LinkDriver {
    link: LinkId,
    machine: core::Remote,
    /// Or why there cannot be one.
    pool: Result<Arc<Pool>, String>,
    headers: Arc<Vec<(String, String)>>,
    /// To the loop.
    words: mpsc::Sender<Input>,
    news: mpsc::Sender<RemoteInput>,
    exchanges: BTreeMap<ExchangeId, RunningExchange>,
    tasks: JoinSet<()>,
    start: Instant,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

struct RunningExchange {
    task: AbortHandle,
    finish: oneshot::Sender<()>,
}

impl LinkDriver {
    async fn drive(mut self, mut heard: LinkInputs, queue: Arc<LineQueue>) {
        loop {
            let wakeup = self.machine.next_wakeup().map(|at| self.start + at.since_start());
            let input = tokio::select! {
                _ = &mut heard.gone => break,
                Some(input) = heard.news.recv() => input,
                Some(line) = heard.lines.recv() => {
                    queue.bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    RemoteInput::Line(line)
                }
                Some((id, method)) = heard.refused.recv() => RemoteInput::Refused { id, method },
                () = sleep_until(wakeup) => RemoteInput::Wakeup,
                Some(_) = self.tasks.join_next() => continue,
            };
            let dropped = queue.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                (self.log)(&format!("too much waits for it: {dropped} notifications were dropped"));
            }
            if let RemoteInput::Ended { exchange }
            | RemoteInput::Replied { exchange, .. }
            | RemoteInput::Failed { exchange, .. } = &input
            {
                // It has said its last word.
                self.exchanges.remove(exchange);
            }
            let now = Time::after_start(self.start.elapsed());
            for effect in self.machine.handle(now, input) {
                let said = tokio::select! {
                    biased;
                    is_heard = self.perform(effect) => is_heard,
                    _ = &mut heard.gone => false,
                };
                if !said {
                    return self.leave().await;
                }
            }
        }
        self.leave().await;
    }

    /// Returns whether the hub still listens.
    async fn perform(&mut self, effect: RemoteEffect) -> bool {
        match effect {
            RemoteEffect::Send { exchange, request: ask } => self.ask(exchange, ask),
            RemoteEffect::Finish(exchange) => {
                if let Some(running) = self.exchanges.remove(&exchange) {
                    running.finish.send(()).ok();
                }
            }
            RemoteEffect::Drop(exchange) => {
                if let Some(running) = self.exchanges.remove(&exchange) {
                    running.task.abort();
                }
            }
            RemoteEffect::Tell { line, about } => {
                let input = Input::Link { link: self.link, line, about };
                return self.words.send(input).await.is_ok();
            }
            RemoteEffect::Serves(how) => {
                let state = how.map_or_else(|why| State::Failed { why }, |()| State::Ready);
                let input = Input::Serves { link: self.link, state };
                return self.words.send(input).await.is_ok();
            }
            RemoteEffect::Log(line) => (self.log)(&line),
        }
        true
    }

    fn ask(&mut self, exchange: ExchangeId, ask: HttpRequest) {
        let (finish, finished) = oneshot::channel();
        let (news, headers) = (self.news.clone(), Arc::clone(&self.headers));
        let task = match self.pool.clone() {
            Ok(pool) => self.tasks.spawn(carry_out(pool, headers, exchange, ask, news, finished)),
            Err(why) => self.tasks.spawn(async move {
                let was_sent = false;
                news.send(RemoteInput::Failed { exchange, was_sent, why }).await.ok();
            }),
        };
        self.exchanges.insert(exchange, RunningExchange { task, finish });
    }

    /// Everything ends; the server hears of it, if it listens now.
    async fn leave(mut self) {
        self.tasks.shutdown().await;
        if let (Some(ask), Ok(pool)) = (self.machine.farewell(), &self.pool) {
            let farewell = send(pool, &self.headers, &ask);
            // Whether it went well changes nothing any more.
            timeout(LINK_FAREWELL_WAIT, farewell).await.ok();
        }
    }
}

/// Carries an exchange out. Who hears nothing any more says so by `finished`: what is left is read for a
/// while, so that the connection can be used again.
async fn carry_out(
    pool: Arc<Pool>,
    headers: Arc<Vec<(String, String)>>,
    exchange: ExchangeId,
    ask: HttpRequest,
    news: mpsc::Sender<RemoteInput>,
    mut finished: oneshot::Receiver<()>,
) {
    let carried_out = async {
        let mut answer = match send(&pool, &headers, &ask).await {
            Ok(answer) => answer,
            Err(SendError { error, was_sent }) => {
                return Err(failed(exchange, was_sent, &error));
            }
        };
        drop(ask);
        let last = match is_stream(&answer) {
            true => listen(&pool, &mut answer, exchange, &news, &mut finished).await?,
            false => Some(read(&pool, &mut answer, exchange).await?),
        };
        Ok((answer, last))
    };
    let last = match carried_out.await {
        Err(last) => Some(last),
        Ok((answer, last)) => {
            pool.keep(answer).await;
            last
        }
    };
    if let Some(last) = last {
        news.send(last).await.ok();
    }
}

/// Sends a request, with the headers of the configuration and those of its kind.
async fn send(
    pool: &Pool,
    configured: &[(String, String)],
    ask: &HttpRequest,
) -> Result<Response, SendError> {
    let (method, own): (&str, &[(&str, &str)]) = match ask.method {
        Method::Post => (
            "POST",
            &[
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ],
        ),
        Method::Get => ("GET", &[("accept", "text/event-stream")]),
        Method::Delete => ("DELETE", &[]),
    };
    let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let asked = ask.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let headers: Vec<(String, String)> =
        configured.iter().cloned().chain(own).chain(asked).collect();
    let body = String::from_utf8_lossy(&ask.body).into_owned();
    pool.send(Request { method, url: &ask.url, headers: &headers, body }).await
}

fn is_stream(answer: &Response) -> bool {
    let kind = answer.header("content-type").unwrap_or_default().trim_start();
    let wanted = "text/event-stream";
    answer.status == 200
        && kind.get(..wanted.len()).is_some_and(|it| it.eq_ignore_ascii_case(wanted))
}

/// Passes on the events of a stream. Returns its end, unless the link has finished it.
async fn listen(
    pool: &Pool,
    answer: &mut Response,
    exchange: ExchangeId,
    news: &mpsc::Sender<RemoteInput>,
    finished: &mut oneshot::Receiver<()>,
) -> Result<Option<RemoteInput>, RemoteInput> {
    let session = answer.header("mcp-session-id").map(str::to_owned);
    news.send(RemoteInput::Opened { exchange, session }).await.ok();
    let mut stream = SseParser::new(MESSAGE_BYTES_MAX);
    loop {
        let piece = tokio::select! {
            piece = answer.next() => piece,
            _ = &mut *finished => {
                timeout(STREAM_LINGER, async { while let Some(Ok(_)) = answer.next().await {} }).await.ok();
                return Ok(None);
            }
        };
        let Some(piece) = piece else { return Ok(Some(RemoteInput::Ended { exchange })) };
        let piece = piece.map_err(|error| failed(exchange, true, &pool.broken(error)))?;
        for event in stream.push(&piece) {
            if news.send(RemoteInput::Event { exchange, event }).await.is_err() {
                return Ok(None);
            }
        }
    }
}

/// Reads an answer that is no stream.
async fn read(
    pool: &Pool,
    answer: &mut Response,
    exchange: ExchangeId,
) -> Result<RemoteInput, RemoteInput> {
    let bytes_max = if answer.status < 300 { MESSAGE_BYTES_MAX } else { REFUSAL_BYTES_MAX };
    let (mut body, mut is_too_long) = (Vec::new(), false);
    while let Some(piece) = answer.next().await {
        let piece = piece.map_err(|error| failed(exchange, true, &pool.broken(error)))?;
        if body.len() + piece.len() > bytes_max {
            is_too_long = true;
            break;
        }
        body.extend_from_slice(&piece);
    }
    let header = |name| answer.header(name).map(str::to_owned);
    let reply = HttpReply {
        status: answer.status,
        session: header("mcp-session-id"),
        retry_after: header("retry-after")
            .and_then(|text| text.trim().parse().map(Duration::from_secs).ok()),
        location: header("location"),
        body,
        is_too_long,
    };
    Ok(RemoteInput::Replied { exchange, reply })
}

fn failed(exchange: ExchangeId, was_sent: bool, error: &HttpError) -> RemoteInput {
    RemoteInput::Failed { exchange, was_sent, why: chain(error) }
}
