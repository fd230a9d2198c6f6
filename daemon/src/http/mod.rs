//! Owns the HTTP/1.1 client: `connection.rs` speaks over TCP, TLS and Unix sockets, [`HttpClient`] makes single
//! requests to URLs, and `pool.rs` reuses connections to one server. Bodies, the timeout of writes and `listeners.rs`, where
//! connections come in, are shared with the servers. Driven by hooks, health checks, control commands, agents and the gateway.
//!
//! Never follows redirects or uses proxies. URLs can be secrets (those of webhooks are), so no error has
//! more of one than host and port.

mod connection;
mod listeners;
mod pool;
mod tls;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::{DESCRIPTORS_KEPT, HTTP_CONNECT_WAIT, HTTP_HEADER_BYTES_MAX};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio::time::timeout;

pub(crate) use self::connection::{
    Connection, Duplex, MessageBody, NextPieces, Pieces, Response, WriteTimeout, all_bytes, drain,
    next_bytes, single_header,
};
pub(crate) use self::listeners::{Door, Entered, Foreign, Port};
pub(crate) use self::pool::{Pool, SendError};
use self::tls::Tls;
pub(crate) use self::tls::TlsError;
use crate::os;

/// A request to a URL.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: String,
}

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From the name lookup to the end of the response.
    pub(crate) time_max: Duration,
    /// A longer body is cut.
    pub(crate) body_bytes_max: usize,
}

/// A response that was read, its body up to the bound.
#[derive(Debug)]
pub(crate) struct BufferedResponse {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The URL is invalid or not supported.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The request cannot be made.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// The name cannot be resolved.
    #[error("cannot look up `{host}`")]
    LookUp {
        host: String,
        #[source]
        source: io::Error,
    },
    /// No address accepted the connection.
    #[error("cannot connect to `{place}`")]
    Connect {
        place: String,
        #[source]
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to `{place}`")]
    Tls {
        place: String,
        #[source]
        source: TlsError,
    },
    /// The connection broke, or the peer does not speak HTTP.
    #[error("`{place}` broke the connection off")]
    Broken {
        place: String,
        #[source]
        source: hyper::Error,
    },
    /// No response in time.
    #[error("`{place}` did not answer in time")]
    Silent { place: String },
}

/// Makes requests. The TLS configuration is loaded with the first one that needs it.
#[derive(Debug)]
pub(crate) struct HttpClient {
    tls: Tls,
}

impl HttpClient {
    /// `certificates` is a file of root certificates that is used in place of the system's.
    pub(crate) fn new(certificates: Option<PathBuf>) -> Self {
        Self { tls: Tls { certificates, config: OnceCell::new() } }
    }

    /// Sends a request on a connection of its own, and returns the response, of any status.
    pub(crate) async fn request(
        &self,
        request: Request<'_>,
        limits: Limits,
    ) -> Result<BufferedResponse, HttpError> {
        let endpoint = Endpoint::parse(request.url)?;
        let mut message = endpoint.request(request)?;
        message.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let exchange = async {
            let broken = |source| endpoint.broken(source);
            let connection = self.open(&endpoint).await?;
            let sent = connection.send(message).await;
            let mut response = sent.map_err(|error| broken(error.source))?;
            let body = response.beginning(limits.body_bytes_max).await.map_err(broken)?;
            Ok(BufferedResponse { status: response.status, headers: response.headers, body })
        };
        match timeout(limits.time_max, exchange).await {
            Ok(response) => response,
            Err(_) => Err(HttpError::Silent { place: endpoint.place.clone() }),
        }
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Connection, HttpError> {
        let stream = connect(endpoint).await?;
        let stream: Box<dyn Duplex> = match endpoint.is_secure {
            false => Box::new(stream),
            true => {
                let secured = self.tls.secure(&endpoint.host, stream).await;
                let place = || endpoint.place.clone();
                Box::new(secured.map_err(|source| HttpError::Tls { place: place(), source })?)
            }
        };
        let opened = Connection::open(stream, Some(HTTP_HEADER_BYTES_MAX)).await;
        opened.map_err(|source| endpoint.broken(source))
    }
}

impl BufferedResponse {
    /// A header as text; none where it is missing or not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The server and path of a URL.
#[derive(Debug)]
struct Endpoint {
    is_secure: bool,
    /// Without the brackets of an address.
    host: String,
    port: u16,
    /// Host and port, as in the URL.
    place: String,
    path: String,
}

impl Endpoint {
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

    fn broken(&self, source: hyper::Error) -> HttpError {
        HttpError::Broken { place: self.place.clone(), source }
    }

    fn request(&self, request: Request<'_>) -> Result<hyper::Request<MessageBody>, HttpError> {
        let bad = |name: &str| HttpError::Header(name.to_owned());
        let mut built = hyper::Request::new(request.body.into());
        *built.method_mut() =
            Method::from_bytes(request.method.as_bytes()).map_err(|_| bad(request.method))?;
        *built.uri_mut() = self.path.parse().map_err(|_| HttpError::Url("is not one"))?;
        let headers = built.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&self.place).map_err(|_| bad("host"))?);
        headers.insert(USER_AGENT, HeaderValue::from_static("afresh"));
        for (name, value) in request.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?;
            // The client decides the framing.
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
async fn connect(endpoint: &Endpoint) -> Result<TcpStream, HttpError> {
    let Endpoint { host, port, place, .. } = endpoint;
    let addresses = lookup_host((host.as_str(), *port)).await;
    let addresses = addresses.map_err(|source| HttpError::LookUp { host: host.clone(), source })?;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(HTTP_CONNECT_WAIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if os::is_kept_back(&stream, DESCRIPTORS_KEPT) => {
                failure = os::too_many_files();
            }
            Ok(Ok(stream)) => {
                // Small requests follow each other; none waits for an acknowledgement.
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
