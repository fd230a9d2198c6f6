//! Connections to one server that are kept while nobody uses them, and answers that are read as they come.
//!
//! Nobody drives a connection that is kept: it costs no task and no wake-up, and whether the other end has
//! hung up is seen when it is taken out again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use afresh_core::limits::{
    HTTP_OPEN_WAIT, IDLE_CONNECTION_MAX, IDLE_CONNECTION_NAMED_MAX, IDLE_CONNECTIONS_MAX,
};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use tokio::time::{Instant, timeout};

use super::wire::Wire;
use super::{Client, HttpError, Request, Target};

/// Makes requests to one server.
pub(crate) struct Pool {
    client: &'static Client,
    /// Where connections go; requests may have other paths.
    target: Target,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    wired: Wired,
    /// After this the other end may hang up at any moment.
    until: Instant,
}

/// A connection, with who drives it.
struct Wired {
    sender: http1::SendRequest<String>,
    /// None when it is over.
    connection: Option<Pin<Box<http1::Connection<Wire, String>>>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct NotSent {
    pub(crate) error: HttpError,
    /// The server may have seen the request all the same.
    pub(crate) was_sent: bool,
}

/// An answer whose body is still to come.
pub(crate) struct Streamed {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: Incoming,
    wired: Wired,
    place: String,
    is_over: bool,
}

impl Pool {
    pub(crate) fn new(client: &'static Client, url: &str) -> Result<Self, HttpError> {
        Ok(Self { client, target: Target::parse(url)?, idle: Mutex::default() })
    }

    /// Asks, and returns the head of what comes back, whatever its status. The URL has to be one of the
    /// same server.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Streamed, NotSent> {
        let not_sent = |error| NotSent { error, was_sent: false };
        let target = Target::parse(request.url).map_err(not_sent)?;
        let mut message = target.request(request).map_err(not_sent)?;
        let place = || self.target.place.clone();
        loop {
            let (mut wired, is_fresh) = match self.take().await {
                Some(wired) => (wired, false),
                None => (self.open().await.map_err(not_sent)?, true),
            };
            let sending = wired.sender.try_send_request(message);
            match drive(&mut wired.connection, sending).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let (status, headers) = (head.status.as_u16(), head.headers);
                    let place = place();
                    return Ok(Streamed { status, headers, body, wired, place, is_over: false });
                }
                Err(mut failed) => match failed.take_message() {
                    // The connection was over before it was needed.
                    Some(unsent) if !is_fresh => message = unsent,
                    unsent => {
                        let source = failed.into_error();
                        let error = HttpError::Broken { place: place(), source };
                        return Err(NotSent { error, was_sent: unsent.is_none() });
                    }
                },
            }
        }
    }

    /// A connection that was kept, and is still good.
    async fn take(&self) -> Option<Wired> {
        loop {
            let Idle { mut wired, until } = self.idle.lock().ok()?.pop()?;
            if until > Instant::now() && wired.is_ready().await {
                return Some(wired);
            }
        }
    }

    async fn open(&self) -> Result<Wired, HttpError> {
        match timeout(HTTP_OPEN_WAIT, self.client.open(&self.target)).await {
            Ok(opened) => {
                let (sender, connection) = opened?;
                Ok(Wired { sender, connection: Some(Box::pin(connection)) })
            }
            Err(_) => Err(HttpError::Silent { place: self.target.place.clone() }),
        }
    }

    /// Keeps the connection of an answer for the next request, if all of that has been read.
    pub(crate) async fn keep(&self, mut streamed: Streamed) {
        if !streamed.is_over || !streamed.wired.is_ready().await {
            return;
        }
        let until = Instant::now() + kept_for(streamed.header("keep-alive"));
        if let Ok(mut idle) = self.idle.lock() {
            // The last that was used is the first to be used again.
            if idle.len() >= IDLE_CONNECTIONS_MAX {
                idle.remove(0);
            }
            idle.push(Idle { wired: streamed.wired, until });
        }
    }
}

impl Wired {
    /// Whether a request can be sent over it, as far as is known now.
    async fn is_ready(&mut self) -> bool {
        poll_fn(|context| {
            let Some(connection) = &mut self.connection else { return Poll::Ready(false) };
            if connection.as_mut().poll(context).is_ready() {
                self.connection = None;
                return Poll::Ready(false);
            }
            Poll::Ready(self.sender.is_ready())
        })
        .await
    }
}

impl Streamed {
    /// A header as text; none where it is missing or not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece of the body; none when it is over.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, HttpError>> {
        let Self { body, wired, place, is_over, .. } = self;
        loop {
            let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            match drive(&mut wired.connection, frame).await.map(|frame| frame.map(Frame::into_data))
            {
                Some(Ok(Ok(bytes))) => return Some(Ok(bytes)),
                // Trailers say nothing to us.
                Some(Ok(Err(_))) => {}
                Some(Err(source)) => {
                    return Some(Err(HttpError::Broken { place: place.clone(), source }));
                }
                None => {
                    *is_over = true;
                    return None;
                }
            }
        }
    }
}

/// Waits for something that the connection brings.
async fn drive<T>(
    connection: &mut Option<Pin<Box<http1::Connection<Wire, String>>>>,
    what: impl Future<Output = T>,
) -> T {
    let mut what = std::pin::pin!(what);
    poll_fn(|context| {
        if let Some(driven) = connection
            && driven.as_mut().poll(context).is_ready()
        {
            // What it has brought is with those who wait for it.
            *connection = None;
        }
        what.as_mut().poll(context)
    })
    .await
}

/// For how long a connection is good, by what the server says of it.
fn kept_for(header: Option<&str>) -> Duration {
    let named = header.and_then(|text| {
        let seconds = text.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.parse().map(Duration::from_secs).ok()
    });
    // The moment of hanging up is not to be met.
    let safe = |named: Duration| named.saturating_sub(Duration::from_secs(1));
    named.map_or(IDLE_CONNECTION_MAX, |named| safe(named).min(IDLE_CONNECTION_NAMED_MAX))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    fn client() -> &'static Client {
        Box::leak(Box::new(Client::new(None)))
    }

    /// Answers each request with the number of its connection.
    async fn serve() -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                connections.spawn(async move {
                    let mut head = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        head.push(byte);
                        if head.ends_with(b"\r\n\r\n") {
                            let answer = format!("HTTP/1.1 200 OK\r\nx: {number}\r\n");
                            let answer = format!("{answer}content-length: 0\r\n\r\n");
                            stream.write_all(answer.as_bytes()).await.ok();
                            head.clear();
                        }
                    }
                });
            }
        });
        (url, tasks)
    }

    /// The answer to one request, all of it.
    async fn ask(pool: &Pool, url: &str) -> Streamed {
        let request = Request { method: "GET", url, headers: &[], body: String::new() };
        let mut answer = pool.send(request).await.ok().unwrap();
        while answer.next().await.is_some() {}
        answer
    }

    #[tokio::test]
    async fn so_many_connections_are_kept_for_so_long() {
        let (url, _tasks) = serve().await;
        let pool = Pool::new(client(), &url).unwrap();
        let mut answers = Vec::new();
        for _ in 0..IDLE_CONNECTIONS_MAX + 2 {
            answers.push(ask(&pool, &url).await);
        }
        let count = answers.len().to_string();
        for answer in answers {
            pool.keep(answer).await;
        }
        assert_eq!(pool.idle.lock().unwrap().len(), IDLE_CONNECTIONS_MAX);
        // The last that was used is used again, and those that were there first are not there any more.
        let again = ask(&pool, &url).await;
        assert_eq!(again.header("x").unwrap(), (IDLE_CONNECTIONS_MAX + 1).to_string());
        pool.keep(again).await;
        for idle in pool.idle.lock().unwrap().iter_mut() {
            let left = idle.until.duration_since(Instant::now());
            assert!(left <= IDLE_CONNECTION_MAX && !left.is_zero(), "{left:?}");
            idle.until = Instant::now();
        }
        // All of them have been there for too long: the other end may be about to hang up.
        assert_eq!(ask(&pool, &url).await.header("x"), Some(count.as_str()));
        assert_eq!(pool.idle.lock().unwrap().len(), 0);
    }

    #[test]
    fn a_server_says_how_long_a_connection_is_good() {
        assert_eq!(kept_for(None), IDLE_CONNECTION_MAX);
        assert_eq!(kept_for(Some("timeout=soon")), IDLE_CONNECTION_MAX);
        assert_eq!(kept_for(Some("max=7, timeout=61")), Duration::from_secs(60));
        assert_eq!(kept_for(Some("timeout=0")), Duration::ZERO);
        // There is no such moment.
        let most = format!("timeout={}", u64::MAX);
        assert_eq!(kept_for(Some(&most)), IDLE_CONNECTION_NAMED_MAX);
    }

    #[tokio::test]
    async fn a_connection_that_does_not_come_is_not_waited_for() {
        // Somebody listens, and says nothing of what would make it secure.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let pool = Pool::new(client(), &url).unwrap();
        let begun = Instant::now();
        let request = Request { method: "GET", url: &url, headers: &[], body: String::new() };
        let failed = pool.send(request).await.err().unwrap();
        assert!(matches!(failed.error, HttpError::Silent { .. }) && !failed.was_sent);
        assert!(begun.elapsed() >= HTTP_OPEN_WAIT);
    }
}
