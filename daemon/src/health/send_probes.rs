//! Owns the probes of health checks: connections, requests over HTTP/1.1 on a connection of their own, questions to MCP
//! servers, and commands. Redirects are not followed: where they lead is not the service. Driven by `Checks`. Has no
//! timeout of its own, and starts no process: the loop does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use afresh_core::duration::show_duration;
use afresh_core::health::mcp::{
    Manner, Question, ServerReply, discover, initialize, initialized, read,
};
use afresh_core::health::{Verdict, judge_http};
use afresh_core::limits::{
    HEALTH_ADDRESSES_MAX, HEALTH_BODY_BYTES_MAX, HEALTH_HEADER_BYTES_MAX, HEALTH_OUTPUT_BYTES_MAX,
    HEALTH_SHOWN_CHARS_MAX,
};
use afresh_core::service::Exit;
use afresh_core::sse::SseParser;
use hyper::http::request;
use hyper::{Request, Uri};
use serde_json::Value;
use tokio::net::{TcpStream, lookup_host};

use super::{CheckEvent, ProbeId};
use crate::error_chain::chain;
use crate::http::{self, Connection, HttpClient, Limits, MessageBody, Response, WriteTimeout};
use crate::output::presentable;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner};

/// Connects to the first address of a host that takes the connection. As long as the system takes:
/// the caller has a timeout.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Verdict> {
    let ill = |why: String| Verdict::Ill(why);
    let addresses = addresses(host, port)
        .await
        .map_err(|error| ill(format!("the address of `{host}` is not found: {error}")))?;
    let mut why = format!("`{host}` has no address");
    let mut is_refused = false;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => is_refused = true,
            Err(error) => why = format!("cannot connect to {host}:{port}: {error}"),
        }
    }
    // A machine may have only one of the addresses: what is refused says more.
    Err(ill(if is_refused { format!("no process listens on {host}:{port}") } else { why }))
}

/// The addresses of a host. `localhost` is both of its addresses, for all that the system's files say:
/// services listen on one of them or on both.
pub(super) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.eq_ignore_ascii_case("localhost") {
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Ok(both.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    Ok(lookup_host((bare, port)).await?.take(HEALTH_ADDRESSES_MAX).collect())
}

/// The host and the port of `host:port`.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

/// Runs a command and says what its end means.
pub(super) async fn run_command(
    briefs: BriefRunner,
    probe: ProbeId,
    command: Command,
    time_max: Duration,
) -> CheckEvent {
    let brief =
        Brief { command, stdin: Vec::new(), time_max, output_bytes_max: HEALTH_OUTPUT_BYTES_MAX };
    let verdict = match briefs.run(brief).await {
        Some(outcome) => judged(&outcome),
        None => Verdict::Silent("afresh is ending".to_owned()),
    };
    CheckEvent::Probed { probe, verdict, manner: None }
}

/// What the end of a command that checks says.
fn judged(outcome: &BriefOutcome) -> Verdict {
    let quoted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let short: String = last.trim().chars().take(HEALTH_SHOWN_CHARS_MAX).collect();
        presentable(&short)
    };
    let took = show_duration(outcome.took);
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => Verdict::Well(outcome.took),
        // It may have failed because the service is busy: a command does not say.
        BriefEnding::Exited(exit) => {
            Verdict::Silent(match [quoted(&outcome.stderr), quoted(&outcome.stdout)] {
                [said, _] | [_, said] if !said.is_empty() => format!("the check {exit}: {said}"),
                _ => format!("the check {exit}"),
            })
        }
        BriefEnding::SpawnFailed(failure) => {
            Verdict::Ill(format!("the check could not be started: {}", failure.message))
        }
        BriefEnding::TimedOut => {
            Verdict::Silent(format!("the check had not ended after {took}, and was killed"))
        }
        BriefEnding::TooMuchOutput => {
            let why = format!("the check printed more than {HEALTH_OUTPUT_BYTES_MAX} bytes");
            Verdict::Ill(why)
        }
    }
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    /// What stands in the header `host`.
    authority: String,
    path: String,
}

impl Target {
    /// Reads a URL.
    fn of(url: &str) -> Result<Self, Verdict> {
        let wrong = |why: String| Verdict::Ill(why);
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
    fn request(&self, method: &str) -> request::Builder {
        Request::builder()
            .method(method)
            .uri(&self.path)
            .header("host", &self.authority)
            .header("user-agent", concat!("afresh/", env!("CARGO_PKG_VERSION")))
            .header("connection", "close")
    }

    /// Sends a request on a connection of its own.
    async fn send(&self, request: Request<MessageBody>) -> Result<Response, Verdict> {
        let stream = connect(&self.host, self.port).await?;
        let stream = Box::new(WriteTimeout::new(stream));
        let opened = Connection::open(stream, Some(HEALTH_HEADER_BYTES_MAX)).await;
        let connection = opened.map_err(|error| broken(&error))?;
        connection.send(request).await.map_err(|error| broken(&error.source))
    }
}

/// A `GET`, and what the answer must be like.
pub(super) async fn probe_http(
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
        let wrong = || Verdict::Ill(format!("the header `{name}` of the check cannot be sent"));
        let name = name.parse::<hyper::header::HeaderName>().map_err(|_| wrong())?;
        let value = value.parse::<hyper::header::HeaderValue>().map_err(|_| wrong())?;
        if let Ok(request) = &mut request {
            request.headers_mut().insert(name, value);
        }
    }
    let request = request.map_err(|error| Verdict::Ill(error.to_string()))?;
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
    let answer = answer.map_err(|error| Verdict::Ill(chain(&error)))?;
    judge_http(status, wanted, answer.status, &answer.body)
}

/// All of a body, up to the limit.
async fn body(response: &mut Response) -> Result<Vec<u8>, Verdict> {
    let body = response.all(HEALTH_BODY_BYTES_MAX).await;
    body.map_err(|error| broken(&error))?.ok_or_else(too_long)
}

fn too_long() -> Verdict {
    Verdict::Ill(format!("its answer is longer than {HEALTH_BODY_BYTES_MAX} bytes"))
}

fn broken(error: &hyper::Error) -> Verdict {
    let why = match error.is_parse() {
        true => "it answered with something that is not HTTP".to_owned(),
        false => format!("it broke the connection off: {error}"),
    };
    Verdict::Ill(why)
}

/// What came back.
struct Reply {
    status: u16,
    session: Option<String>,
    /// None where nothing of it was an answer to the question.
    said: Option<ServerReply>,
}

/// Asks an instance; `manner` is how it wants to be asked, where that is known, and is learned
/// otherwise.
pub(super) async fn probe_mcp(url: &str, manner: &mut Option<Manner>) -> Result<(), Verdict> {
    let target = Target::of(url)?;
    let was_known = manner.is_some();
    let mut asked = match manner.clone() {
        Some(known) => known,
        None => open(&target).await?,
    };
    let mut reply = ask(&target, &asked.question()).await?;
    if was_known && reply.status == 404 {
        // It has forgotten the session, as it may.
        asked = open(&target).await?;
        reply = ask(&target, &asked.question()).await?;
    }
    let is_answered = match (&asked, &reply.said) {
        // It need not know `ping` to be alive.
        (Manner::Ping { .. }, Some(_)) => reply.status < 500,
        (Manner::Discover, said) => matches!(said, Some(ServerReply::Result(_))),
        (Manner::Ping { .. }, None) => false,
    };
    *manner = is_answered.then_some(asked);
    if is_answered { Ok(()) } else { Err(failure(&reply)) }
}

/// Finds out how a server wants to be asked.
async fn open(target: &Target) -> Result<Manner, Verdict> {
    let opened = ask(target, &initialize(env!("CARGO_PKG_VERSION"))).await?;
    if let Some(ServerReply::Result(result)) = &opened.said
        && let Some(manner) = Manner::after_initialize(result, opened.session.clone())
    {
        if let Manner::Ping { version, session } = &manner {
            ask(target, &initialized(version, session.clone())).await?;
        }
        return Ok(manner);
    }
    // It knows no `initialize`, perhaps: in any case, the next request tells.
    match ask(target, &discover()).await?.said {
        Some(ServerReply::Result(_)) => Ok(Manner::Discover),
        _ => Err(failure(&opened)),
    }
}

fn failure(reply: &Reply) -> Verdict {
    match (judge_http(None, None, reply.status, &[]), &reply.said) {
        (Err(verdict), _) => verdict,
        (Ok(()), Some(ServerReply::Error(why))) => Verdict::Ill(why.clone()),
        (Ok(()), _) => {
            let why = format!("it answered with status {}, but not as MCP", reply.status);
            Verdict::Ill(why)
        }
    }
}

async fn ask(target: &Target, question: &Question) -> Result<Reply, Verdict> {
    let mut request = target
        .request("POST")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in [
        ("mcp-protocol-version", question.version.as_deref()),
        ("mcp-session-id", question.session.as_deref()),
        ("mcp-method", question.method_header()),
    ] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let request = request
        .body(MessageBody::from(question.body.clone()))
        .map_err(|error| Verdict::Ill(error.to_string()))?;
    answer(target.send(request).await?, question.id).await
}

async fn answer(mut response: Response, id: Option<&str>) -> Result<Reply, Verdict> {
    let status = response.status;
    let session = response.header("mcp-session-id").map(str::to_owned);
    let kind = response.header("content-type");
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    let said = match id {
        None => None,
        Some(id) if is_stream => first_said(response, id).await?,
        Some(id) => read(&body(&mut response).await?, id),
    };
    Ok(Reply { status, session, said })
}

/// The answer in an event stream, which may go on after it.
async fn first_said(mut response: Response, id: &str) -> Result<Option<ServerReply>, Verdict> {
    let mut stream = SseParser::new(HEALTH_BODY_BYTES_MAX);
    let mut length = 0;
    while let Some(bytes) = response.next().await {
        let bytes = bytes.map_err(|error| broken(&error))?;
        length += bytes.len();
        if length > HEALTH_BODY_BYTES_MAX {
            return Err(too_long());
        }
        if let Some(said) = stream.push(&bytes).iter().find_map(|event| read(&event.data, id)) {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        assert_eq!(host_and_port("localhost:4096"), Some(("localhost", 4096)));
        assert_eq!(host_and_port("[::1]:80"), Some(("[::1]", 80)));
        for wrong in ["localhost", ":80", "localhost:", "localhost:70000", "localhost:http", ""] {
            assert_eq!(host_and_port(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn localhost_is_both_of_its_addresses() {
        let shown = async |host: &str| {
            let found = addresses(host, 80).await.unwrap();
            found.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("localhost").await, "127.0.0.1:80 [::1]:80");
        assert_eq!(shown("LocalHost").await, "127.0.0.1:80 [::1]:80");
        assert_eq!(shown("[::1]").await, "[::1]:80");
        assert_eq!(shown("10.0.0.1").await, "10.0.0.1:80");
    }

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
            let Err(Verdict::Ill(found)) = Target::of(url) else { panic!("{url}") };
            assert!(found.contains(why) && !found.contains("secret"), "{url}: {found}");
        }
    }
}
