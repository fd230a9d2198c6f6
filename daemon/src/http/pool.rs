//! Owns idle connections to one server, and responses that are read as they arrive. Driven by the tasks that
//! exchange requests; a connection that the server closed is noticed when it is taken out again.

use std::sync::Mutex;
use std::time::Duration;

use afresh_core::limits::{
    HTTP_OPEN_WAIT, IDLE_CONNECTION_MAX, IDLE_CONNECTION_NAMED_MAX, IDLE_CONNECTIONS_MAX,
};
use tokio::time::{Instant, timeout};

use super::connection::{Connection, ExchangeError, Response};
use super::{Endpoint, HttpClient, HttpError, Request};

/// Makes requests to one server.
pub(crate) struct Pool {
    client: &'static HttpClient,
    /// The server of all connections; requests may have other paths.
    endpoint: Endpoint,
    idle: Mutex<Vec<IdleConnection>>,
}

struct IdleConnection {
    connection: Connection,
    /// After this the server may close it at any moment.
    until: Instant,
}

/// A request without a response.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) error: HttpError,
    /// The server may have received the request all the same.
    pub(crate) was_sent: bool,
}

impl Pool {
    pub(crate) fn new(client: &'static HttpClient, url: &str) -> Result<Self, HttpError> {
        Ok(Self { client, endpoint: Endpoint::parse(url)?, idle: Mutex::default() })
    }

    /// Sends a request and returns the head of the response of any status. The URL has to be one of
    /// the same server.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Response, SendError> {
        let not_sent = |error| SendError { error, was_sent: false };
        let endpoint = Endpoint::parse(request.url).map_err(not_sent)?;
        let mut message = endpoint.request(request).map_err(not_sent)?;
        loop {
            let (connection, is_fresh) = match self.take().await {
                Some(connection) => (connection, false),
                None => (self.open().await.map_err(not_sent)?, true),
            };
            match connection.send(message).await {
                Ok(response) => return Ok(response),
                // The connection was closed before it was needed.
                Err(ExchangeError { unsent: Some(unsent), .. }) if !is_fresh => message = unsent,
                Err(ExchangeError { source, unsent }) => {
                    let error = self.endpoint.broken(source);
                    return Err(SendError { error, was_sent: unsent.is_none() });
                }
            }
        }
    }

    /// An idle connection that is still open.
    async fn take(&self) -> Option<Connection> {
        loop {
            let IdleConnection { mut connection, until } = self.idle.lock().ok()?.pop()?;
            if until > Instant::now() && connection.is_ready().await {
                return Some(connection);
            }
        }
    }

    async fn open(&self) -> Result<Connection, HttpError> {
        match timeout(HTTP_OPEN_WAIT, self.client.open(&self.endpoint)).await {
            Ok(opened) => opened,
            Err(_) => Err(HttpError::Silent { place: self.endpoint.place.clone() }),
        }
    }

    /// The error of a response that broke off.
    pub(crate) fn broken(&self, source: hyper::Error) -> HttpError {
        self.endpoint.broken(source)
    }

    /// Keeps the connection of a response for the next request, if its body has been read to the end.
    pub(crate) async fn keep(&self, response: Response) {
        let until = Instant::now() + kept_for(response.header("keep-alive"));
        let Some(connection) = response.into_connection().await else { return };
        if let Ok(mut idle) = self.idle.lock() {
            // The connection used last is reused first.
            if idle.len() >= IDLE_CONNECTIONS_MAX {
                idle.remove(0);
            }
            idle.push(IdleConnection { connection, until });
        }
    }
}

/// How long an idle connection is kept, by the server's `keep-alive` header.
fn kept_for(header: Option<&str>) -> Duration {
    let named = header.and_then(|text| {
        let seconds = text.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.parse().map(Duration::from_secs).ok()
    });
    // The connection is given up before the server closes it.
    let safe = |named: Duration| named.saturating_sub(Duration::from_secs(1));
    named.map_or(IDLE_CONNECTION_MAX, |named| safe(named).min(IDLE_CONNECTION_NAMED_MAX))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    fn client() -> &'static HttpClient {
        Box::leak(Box::new(HttpClient::new(None)))
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
    async fn ask(pool: &Pool, url: &str) -> Response {
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
