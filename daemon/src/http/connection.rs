//! Owns one HTTP/1.1 client connection over any stream: TCP, TLS or a Unix socket. Driven by the future that
//! waits for its response, so an idle connection costs no task and no wake-up. Never reconnects or redirects.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::{MessageBody, all_bytes, next_bytes};

/// A stream that is read from and written to.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type Driver = Pin<Box<http1::Connection<TokioIo<Box<dyn Duplex>>, MessageBody>>>;

/// A connection that carries one exchange at a time.
pub(crate) struct Connection {
    sender: http1::SendRequest<MessageBody>,
    /// None once the connection is closed.
    driver: Option<Driver>,
}

/// A request without a response.
pub(crate) struct ExchangeError {
    pub(crate) source: hyper::Error,
    /// The request, where no byte of it was sent.
    pub(crate) unsent: Option<Request<MessageBody>>,
}

/// A response whose body is still to be read.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: Connection,
    is_over: bool,
}

impl Connection {
    /// `header_bytes_max` bounds the head of a response; without it hyper's bound holds.
    pub(crate) async fn open(
        stream: Box<dyn Duplex>,
        header_bytes_max: Option<usize>,
    ) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        if let Some(max) = header_bytes_max {
            builder.max_buf_size(max);
        }
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Sends a request and returns the head of the response.
    pub(crate) async fn send(
        mut self,
        request: Request<MessageBody>,
    ) -> Result<Response, ExchangeError> {
        let sending = self.sender.try_send_request(request);
        match drive(&mut self.driver, sending).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let (status, headers) = (head.status.as_u16(), head.headers);
                Ok(Response { status, headers, body, connection: self, is_over: false })
            }
            Err(mut error) => {
                let unsent = error.take_message();
                Err(ExchangeError { source: error.into_error(), unsent })
            }
        }
    }

    /// Whether a request can be sent, as far as is known now.
    pub(super) async fn is_ready(&mut self) -> bool {
        poll_fn(|context| {
            let Some(driver) = &mut self.driver else { return Poll::Ready(false) };
            if driver.as_mut().poll(context).is_ready() {
                self.driver = None;
                return Poll::Ready(false);
            }
            Poll::Ready(self.sender.is_ready())
        })
        .await
    }
}

impl Response {
    /// A header as text; none where it is missing or not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The next piece of the body; none when it is over.
    pub(crate) async fn next(&mut self) -> Option<hyper::Result<Bytes>> {
        let next = drive(&mut self.connection.driver, next_bytes(&mut self.body)).await;
        self.is_over |= next.is_none();
        next
    }

    /// All of the body; `None` where it is longer than allowed.
    pub(crate) async fn all(&mut self, bytes_max: usize) -> hyper::Result<Option<Vec<u8>>> {
        drive(&mut self.connection.driver, all_bytes(&mut self.body, bytes_max)).await
    }

    /// The body up to `bytes_max` bytes; the rest is left unread.
    pub(crate) async fn beginning(&mut self, bytes_max: usize) -> hyper::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < bytes_max {
            let Some(bytes) = self.next().await.transpose()? else { break };
            all.extend_from_slice(&bytes[..bytes.len().min(bytes_max - all.len())]);
        }
        Ok(all)
    }

    /// The connection, if all of the body has been read and another request may follow.
    pub(super) async fn into_connection(mut self) -> Option<Connection> {
        (self.is_over && self.connection.is_ready().await).then_some(self.connection)
    }
}

/// Waits for a future that the connection brings forward.
async fn drive<T>(driver: &mut Option<Driver>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    poll_fn(|context| {
        if let Some(driven) = driver
            && driven.as_mut().poll(context).is_ready()
        {
            // Bytes that it has read are already with the future.
            *driver = None;
        }
        future.as_mut().poll(context)
    })
    .await
}
