//! HTTP requests to somebody else: a webhook, a service that is asked how it is, an MCP server.
//!
//! HTTP/1.1, one connection for each request or, with `pool.rs`, some that are kept; no redirects, no
//! proxies, and a bound on everything. URLs can be
//! secrets (those of webhooks are), so no error has more of one than host and port.

mod pool;
mod tls;
mod wire;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::{HTTP_CONNECT_WAIT, HTTP_HEADER_BYTES_MAX};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

pub(crate) use self::pool::{NotSent, Pool, Streamed};
use self::tls::Tls;
pub(crate) use self::tls::TlsError;
use self::wire::{Stream, Wire, read_body};

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: String,
}

/// How much of our time and memory an answer may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From the look-up of the name to the end of the answer.
    pub(crate) time_max: Duration,
    /// A longer body is cut.
    pub(crate) body_bytes_max: usize,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    /// As much of it as is allowed.
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The URL is none, or not one for us.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The request cannot be made.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// The name leads nowhere.
    #[error("cannot look up `{host}`")]
    LookUp {
        host: String,
        #[source]
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot connect to `{place}`")]
    Connect {
        place: String,
        #[source]
        source: io::Error,
    },
    /// No connection that can be trusted.
    #[error("no secure connection to `{place}`")]
    Tls {
        place: String,
        #[source]
        source: TlsError,
    },
    /// The conversation broke off, or was no HTTP.
    #[error("`{place}` broke the connection off")]
    Broken {
        place: String,
        #[source]
        source: hyper::Error,
    },
    /// No answer in time.
    #[error("`{place}` did not answer in time")]
    Silent { place: String },
}

/// Makes requests. What `https` needs is read and made with the first of them.
#[derive(Debug)]
pub(crate) struct Client {
    tls: Tls,
}

impl Client {
    /// `certificates` is a file of root certificates that is used in place of the system's.
    pub(crate) fn new(certificates: Option<PathBuf>) -> Self {
        Self { tls: Tls::new(certificates) }
    }

    /// Asks, and returns what came back, whatever its status.
    pub(crate) async fn request(
        &self,
        request: Request<'_>,
        limits: Limits,
    ) -> Result<Answer, HttpError> {
        let target = Target::parse(request.url)?;
        let asked = self.ask(request, &target, limits.body_bytes_max);
        match timeout(limits.time_max, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(HttpError::Silent { place: target.place }),
        }
    }

    async fn ask(
        &self,
        request: Request<'_>,
        target: &Target,
        body_bytes_max: usize,
    ) -> Result<Answer, HttpError> {
        let mut request = target.request(request)?;
        request.headers_mut().insert("connection", HeaderValue::from_static("close"));
        let (mut sender, connection) = self.open(target).await?;
        let broken = |source| HttpError::Broken { place: target.place.clone(), source };
        let exchange = async {
            let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
            let body = read_body(body, body_bytes_max).await.map_err(broken)?;
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        let (mut exchange, connection) = (std::pin::pin!(exchange), std::pin::pin!(connection));
        tokio::select! {
            answer = &mut exchange => return answer,
            // What it has brought is with the exchange.
            _ = connection => {}
        }
        exchange.await
    }

    /// A connection, which somebody has to drive.
    async fn open(&self, target: &Target) -> Result<Opened, HttpError> {
        let place = || target.place.clone();
        let stream = connect(target).await?;
        let stream: Box<dyn Stream> = match target.is_secure {
            false => Box::new(stream),
            true => {
                let secured = self.tls.secure(&target.host, stream).await;
                Box::new(secured.map_err(|source| HttpError::Tls { place: place(), source })?)
            }
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HTTP_HEADER_BYTES_MAX);
        let opened = builder.handshake(Wire(stream)).await;
        opened.map_err(|source| HttpError::Broken { place: place(), source })
    }
}

/// Both ends of a connection: to ask by, and to drive.
type Opened = (http1::SendRequest<String>, http1::Connection<Wire, String>);

impl Answer {
    /// A header as text; none where it is missing or not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Where a URL leads.
#[derive(Debug)]
struct Target {
    is_secure: bool,
    /// Without the brackets of an address.
    host: String,
    port: u16,
    /// Host and port, as in the URL.
    place: String,
    path: String,
}

impl Target {
    fn parse(url: &str) -> Result<Self, HttpError> {
        let uri: Uri = url.parse().map_err(|_| HttpError::Url("is not one"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(HttpError::Url("does not begin with `http://` or `https://`")),
        };
        let authority = uri.authority().ok_or(HttpError::Url("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(HttpError::Url(
                "has a user in it; give an `authorization` header in its place",
            ));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(HttpError::Url("has no host"));
        }
        let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { is_secure, host, port, place: authority.as_str().to_owned(), path })
    }

    fn request(&self, request: Request<'_>) -> Result<hyper::Request<String>, HttpError> {
        let bad = |name: &str| HttpError::Header(name.to_owned());
        let mut built = hyper::Request::new(request.body);
        *built.method_mut() =
            Method::from_bytes(request.method.as_bytes()).map_err(|_| bad(request.method))?;
        *built.uri_mut() = self.path.parse().map_err(|_| HttpError::Url("is not one"))?;
        let headers = built.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&self.place).map_err(|_| bad("host"))?);
        headers.insert(USER_AGENT, HeaderValue::from_static("afresh"));
        for (name, value) in request.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?;
            // How a message is framed is not for its sender to say.
            if ["connection", "content-length", "transfer-encoding", "upgrade"]
                .contains(&known.as_str())
            {
                return Err(bad(name));
            }
            headers.insert(known, HeaderValue::from_str(value).map_err(|_| bad(name))?);
        }
        Ok(built)
    }
}

/// Connects to the first address that accepts.
async fn connect(target: &Target) -> Result<TcpStream, HttpError> {
    let Target { host, port, place, .. } = target;
    let addresses = lookup_host((host.as_str(), *port)).await;
    let addresses = addresses.map_err(|source| HttpError::LookUp { host: host.clone(), source })?;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(HTTP_CONNECT_WAIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small requests follow each other: none is to wait for the last one's receipt.
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(HttpError::Connect { place: place.clone(), source: failure })
}

#[cfg(test)]
mod tests;
