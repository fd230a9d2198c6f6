//! The client of the bench: it calls the tool `echo`, over pipes or over connections that stay open, and
//! looks at no more of an answer than it needs to.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use afresh_tests::mcp::Peer;
use afresh_tests::{PATIENCE, wait_for};

/// What a call says.
pub(crate) const ARGUMENTS: &str = r#"{"message":"xxxxxxxxxxxxxxxxxxxx"}"#;

/// The newest version that all of the gateways know.
const VERSION: &str = "2025-06-18";

/// Somebody who calls, with several calls at once where that is wanted.
pub(crate) enum Client {
    Stdio {
        peer: Peer,
        tools: Vec<String>,
    },
    /// Servers without a gateway; one of them was asked.
    Each {
        peers: Vec<Peer>,
        tool: String,
        asked: usize,
    },
    Http(Session),
}

impl Client {
    /// Opens the session over pipes.
    pub(crate) fn stdio(mut peer: Peer) -> Self {
        peer.initialize();
        let mut tools = Vec::new();
        wait_for("its tools are listed", || {
            let line = peer.request("tools/list", "{}");
            peer.send(&line);
            tools = echoes(peer.hear().as_bytes());
            !tools.is_empty()
        });
        Self::Stdio { peer, tools }
    }

    /// Opens a session with each of these servers, over pipes.
    pub(crate) fn each(peers: Vec<Peer>) -> Self {
        let mut tool = String::new();
        let open = |peer| match Self::stdio(peer) {
            Self::Stdio { peer, tools } => {
                tool.clone_from(&tools[0]);
                peer
            }
            _ => unreachable!("it is over pipes"),
        };
        let peers = peers.into_iter().map(open).collect();
        Self::Each { peers, tool, asked: 0 }
    }

    /// How many servers it can call.
    pub(crate) fn servers(&self) -> usize {
        match self {
            Self::Stdio { tools, .. } => tools.len(),
            Self::Each { peers, .. } => peers.len(),
            Self::Http(session) => session.tools.len().max(1),
        }
    }

    /// Opens the connections anew that the gateway has closed, as some do after seconds without a request.
    pub(crate) fn refresh(&mut self) {
        let Self::Http(session) = self else { return };
        let closed = session.connections.iter_mut().filter(|connection| connection.is_closed());
        closed.for_each(|connection| {
            *connection = Connection::open(session.port).expect("the gateway listens");
        });
    }

    /// Asks one server for an echo, over one of the connections.
    pub(crate) fn send(&mut self, connection: usize, server: usize) {
        match self {
            Self::Stdio { peer, tools } => {
                let line = peer.call_line(&tools[server], ARGUMENTS);
                peer.send(&line);
            }
            Self::Each { peers, tool, asked } => {
                let line = peers[server].call_line(tool, ARGUMENTS);
                peers[server].send(&line);
                *asked = server;
            }
            Self::Http(session) => session.send(connection, server),
        }
    }

    /// Waits for an answer over one of the connections.
    pub(crate) fn hear(&mut self, connection: usize) {
        match self {
            Self::Stdio { peer, .. } => peer.skip(),
            Self::Each { peers, asked, .. } => peers[*asked].skip(),
            Self::Http(session) => session.hear(connection),
        }
    }
}

/// How a gateway is spoken to over HTTP.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// Streamable HTTP, at this path.
    Mcp(&'static str),
    /// Not MCP: a POST of this body to this path.
    Plain { path: &'static str, body: String },
}

/// A session over HTTP, with its connections.
pub(crate) struct Session {
    port: u16,
    form: Form,
    connections: Vec<Connection>,
    /// The first lines of each request, up to the length of its body.
    head: String,
    tools: Vec<String>,
    next_id: u64,
    request: String,
}

impl Session {
    /// Opens one as soon as the gateway answers, and its tools are there.
    pub(crate) fn open(port: u16, form: Form, connections: usize) -> Self {
        let mut opened = None;
        wait_for("the gateway serves", || {
            opened = Self::try_open(port, form.clone());
            opened.is_some()
        });
        let mut session = opened.expect("just opened");
        while session.connections.len() < connections {
            session.connections.push(Connection::open(port).expect("the gateway listens"));
        }
        session
    }

    fn try_open(port: u16, form: Form) -> Option<Self> {
        let mut connection = Connection::open(port)?;
        let path = match form {
            Form::Mcp(path) | Form::Plain { path, .. } => path,
        };
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n"
        );
        let mut tools = Vec::new();
        if let Form::Plain { body, .. } = &form {
            connection.ask(&head, body);
            connection.try_hear().filter(|answer| answer.status == 200)?;
        } else {
            let params = format!(
                r#"{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}"#
            );
            connection.ask(&head, &request(1, "initialize", &params));
            let answer = connection.try_hear().filter(|answer| answer.status == 200)?;
            if let Some(session) = answer.session {
                write!(head, "Mcp-Session-Id: {session}\r\n").expect("memory is there");
            }
            write!(head, "MCP-Protocol-Version: {VERSION}\r\n").expect("memory is there");
            let line = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            connection.ask(&head, line);
            connection.try_hear()?;
            connection.ask(&head, &request(2, "tools/list", "{}"));
            connection.try_hear()?;
            tools = echoes(connection.body());
            if tools.is_empty() {
                return None;
            }
        }
        let connections = vec![connection];
        Some(Self { port, form, connections, head, tools, next_id: 3, request: String::new() })
    }

    fn send(&mut self, connection: usize, server: usize) {
        self.next_id += 1;
        let plain;
        let body = match &self.form {
            Form::Plain { body, .. } => body,
            Form::Mcp(_) => {
                let name = &self.tools[server];
                let params = format!(r#"{{"name":"{name}","arguments":{ARGUMENTS}}}"#);
                plain = request(self.next_id, "tools/call", &params);
                &plain
            }
        };
        self.request.clear();
        write!(self.request, "{}Content-Length: {}\r\n\r\n{body}", self.head, body.len())
            .expect("memory is there");
        self.connections[connection].write(self.request.as_bytes());
    }

    fn hear(&mut self, connection: usize) {
        let connection = &mut self.connections[connection];
        let answer = connection.try_hear().expect("an answer");
        let body = connection.body();
        let text = || String::from_utf8_lossy(body);
        assert!(answer.status == 200 && has(body, b"xxxxxxxx"), "{}: {}", answer.status, text());
    }

    /// Opens the stream of the session in place of its first connection.
    pub(crate) fn listen(&mut self) {
        let head = self.head.replacen("POST", "GET", 1);
        let mut connection = Connection::open(self.port).expect("the gateway listens");
        connection.write(format!("{head}\r\n").as_bytes());
        let mut beginning = [0; 12];
        connection.stream.read_exact(&mut beginning).expect("an answer");
        assert_eq!(&beginning, b"HTTP/1.1 200");
        self.connections[0] = connection;
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    /// What was read and not taken.
    read: Vec<u8>,
    body: Vec<u8>,
}

/// The head of an answer.
struct Answer {
    status: u16,
    session: Option<String>,
}

impl Connection {
    fn open(port: u16) -> Option<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_nodelay(true).expect("it is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        Some(Self { stream, read: Vec::new(), body: Vec::new() })
    }

    fn is_closed(&self) -> bool {
        self.stream.set_nonblocking(true).expect("it is ours");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("it is ours");
        !peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn ask(&mut self, head: &str, body: &str) {
        let length = body.len();
        self.write(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
    }

    /// Whoever has hung up is noticed when its answer is read.
    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).ok();
    }

    /// What the last answer said.
    fn body(&self) -> &[u8] {
        &self.body
    }

    /// Reads an answer with its body; none where the connection is closed before.
    fn try_hear(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end);
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        self.body.clear();
        if field("transfer-encoding") == Some("chunked") {
            while self.chunk()? {}
        } else {
            let length = field("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            self.take(length)?;
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, session: field("mcp-session-id").map(str::to_owned) })
    }

    /// Takes one chunk; false at the last one.
    fn chunk(&mut self) -> Option<bool> {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n") {
                break end;
            }
            self.more()?;
        };
        let length = usize::from_str_radix(str::from_utf8(&self.read[..end]).ok()?, 16).ok()?;
        self.read.drain(..end + 2);
        self.take(length)?;
        while self.read.len() < 2 {
            self.more()?;
        }
        self.read.drain(..2);
        Some(length > 0)
    }

    fn take(&mut self, length: usize) -> Option<()> {
        while self.read.len() < length {
            self.more()?;
        }
        self.body.extend(self.read.drain(..length));
        Some(())
    }

    fn more(&mut self) -> Option<()> {
        let mut bytes = [0; 16 * 1024];
        let length = self.stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        self.read.extend_from_slice(&bytes[..length]);
        Some(())
    }
}

fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// The tools of an answer, or of the events around it, that are called `echo` behind their prefix.
fn echoes(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer);
    let json = text.lines().find_map(|line| {
        let line = line.strip_prefix("data:").unwrap_or(line);
        let value: serde_json::Value = serde_json::from_str(line.trim()).ok()?;
        value["result"]["tools"].as_array().cloned()
    });
    let names =
        json.into_iter().flatten().filter_map(|tool| tool["name"].as_str().map(str::to_owned));
    names.filter(|name| name == "echo" || name.ends_with("_echo")).collect()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    find(bytes, what).is_some()
}
