//! One request over HTTP/1.1, on a connection of its own. Redirects are not followed: where they lead
//! is not the service.

use std::sync::OnceLock;
use std::time::Duration;

use afresh_core::health::{Verdict, judge_http};
use afresh_core::limits::{HEALTH_BODY_BYTES_MAX, HEALTH_HEADER_BYTES_MAX};
use hyper::http::request;
use hyper::{Request, Uri};
use serde_json::Value;

use super::connect::connect;
use crate::error_chain::chain;
use crate::http::{self, Connection, HttpClient, Limits, MessageBody, Response, WriteTimeout};

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: String,
    port: u16,
    /// What stands in the header `host`.
    authority: String,
    path: String,
}

impl Target {
    /// Reads a URL.
    pub(super) fn of(url: &str) -> Result<Self, Verdict> {
        let wrong = |why: String| Verdict::Ill { why };
        let bad = |what: &str| wrong(format!("the URL of the check {what}"));
        let uri: Uri = url.parse().map_err(|_| bad("is none: write `http://host:port/path`"))?;
        let authority = uri.authority().ok_or_else(|| bad("has no host"))?;
        match uri.scheme_str() {
            Some("http") => {}
            // `http` checks do, by another way.
            Some("https") => return Err(bad("is one of HTTPS, which this check does not speak")),
            _ => return Err(bad("is none of HTTP: write `http://host:port/path`")),
        }
        if authority.as_str().contains('@') {
            return Err(bad("has a password in it: use the header `authorization`"));
        }
        Ok(Self {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// The beginning of a request to it.
    pub(super) fn request(&self, method: &str) -> request::Builder {
        Request::builder()
            .method(method)
            .uri(&self.path)
            .header("host", &self.authority)
            .header("user-agent", concat!("afresh/", env!("CARGO_PKG_VERSION")))
            .header("connection", "close")
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn send(&self, request: Request<MessageBody>) -> Result<Response, Verdict> {
        let stream = connect(&self.host, self.port).await?;
        let stream = Box::new(WriteTimeout::new(stream));
        let opened = Connection::open(stream, Some(HEALTH_HEADER_BYTES_MAX)).await;
        let connection = opened.map_err(|error| broken(&error))?;
        connection.send(request).await.map_err(|error| broken(&error.source))
    }
}

/// A `GET`, and what the answer must be like.
pub(super) async fn probe(
    url: &str,
    status: Option<u16>,
    wanted: Option<&(String, Value)>,
    headers: &[(String, String)],
) -> Result<(), Verdict> {
    if url.starts_with("https://") {
        return probe_securely(url, status, wanted, headers).await;
    }
    let target = Target::of(url)?;
    let mut request = target.request("GET").header("accept", "*/*").body(MessageBody::from(""));
    for (name, value) in headers {
        let wrong =
            || Verdict::Ill { why: format!("the header `{name}` of the check cannot be sent") };
        let name = name.parse::<hyper::header::HeaderName>().map_err(|_| wrong())?;
        let value = value.parse::<hyper::header::HeaderValue>().map_err(|_| wrong())?;
        if let Ok(request) = &mut request {
            request.headers_mut().insert(name, value);
        }
    }
    let request = request.map_err(|error| Verdict::Ill { why: error.to_string() })?;
    let mut response = target.send(request).await?;
    // The body is read only where the verdict depends on it.
    let body = match judge_http(status, None, response.status, &[]) {
        Ok(()) if wanted.is_some() => body(&mut response).await?,
        _ => Vec::new(),
    };
    judge_http(status, wanted, response.status, &body)
}

/// The same over TLS; the certificate has to be one that this machine trusts.
async fn probe_securely(
    url: &str,
    status: Option<u16>,
    wanted: Option<&(String, Value)>,
    headers: &[(String, String)],
) -> Result<(), Verdict> {
    static CLIENT: OnceLock<HttpClient> = OnceLock::new();
    let client = CLIENT.get_or_init(|| HttpClient::new(None));
    let request = http::Request { method: "GET", url, headers, body: String::new() };
    // The caller has a timeout of its own.
    let limits = Limits { time_max: Duration::MAX, body_bytes_max: HEALTH_BODY_BYTES_MAX };
    let answer = client.request(request, limits).await;
    let answer = answer.map_err(|error| Verdict::Ill { why: chain(&error) })?;
    judge_http(status, wanted, answer.status, &answer.body)
}

/// All of a body, up to the limit.
pub(super) async fn body(response: &mut Response) -> Result<Vec<u8>, Verdict> {
    let body = response.all(HEALTH_BODY_BYTES_MAX).await;
    body.map_err(|error| broken(&error))?.ok_or_else(too_long)
}

pub(super) fn too_long() -> Verdict {
    Verdict::Ill { why: format!("its answer is longer than {HEALTH_BODY_BYTES_MAX} bytes") }
}

pub(super) fn broken(error: &hyper::Error) -> Verdict {
    let why = match error.is_parse() {
        true => "it answered with something that is not HTTP".to_owned(),
        false => format!("it broke the connection off: {error}"),
    };
    Verdict::Ill { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused() {
        let target = Target::of("http://localhost:4096/global/health?full=1#top").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("localhost", 4096));
        assert_eq!(target.path, "/global/health?full=1");
        let plain = Target::of("http://[::1]").unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.path.as_str()), ("[::1]", 80, "/"));
        let refused = [
            ("https://localhost/", "HTTPS"),
            ("ftp://localhost/", "none of HTTP"),
            ("localhost:80", "none of HTTP"),
            ("/health", "no host"),
            ("http://", "none"),
            ("http://me:secret@localhost/", "authorization"),
            ("http://local host/", "none"),
        ];
        for (url, why) in refused {
            let Err(Verdict::Ill { why: found }) = Target::of(url) else { panic!("{url}") };
            assert!(found.contains(why) && !found.contains("secret"), "{url}: {found}");
        }
    }
}
