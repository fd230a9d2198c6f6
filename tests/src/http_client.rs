//! A client of `afresh gateway --http` that holds one connection, and says just what it is told to.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::connection::MODERN_META;
use crate::{PATIENCE, Running};

/// One client.
#[derive(Debug)]
pub struct HttpClient {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
    /// Its session, once it has one.
    pub session: Option<String>,
    /// A bearer token.
    pub token: Option<String>,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The session, where one is named.
    pub session: Option<String>,
    /// The body, or each event of it.
    pub messages: Vec<Value>,
}

impl Reply {
    /// The answer: what comes last.
    #[track_caller]
    pub fn answer(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("no answer: {self:?}"))
    }

    /// What the answer says to a model.
    #[track_caller]
    pub fn text(&self) -> &str {
        let text = self.answer()["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// The port of a gateway, as its log says.
#[track_caller]
pub fn port_of(gateway: &Running) -> u16 {
    gateway.wait_stderr("clients are served at http://127.0.0.1:", 1);
    let log = gateway.stderr();
    let rest = log.split("http://127.0.0.1:").nth(1).expect("just seen");
    rest.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
}

impl HttpClient {
    /// One that has said nothing yet.
    pub fn new(port: u16) -> Self {
        Self { port, stream: None, session: None, token: None }
    }

    /// One with a session of the legacy era.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        let mut client = Self::new(port);
        client.open();
        client
    }

    /// Opens a session of the legacy era.
    #[track_caller]
    pub fn open(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let reply = self.ask("0", "initialize", &params);
        assert_eq!(reply.answer()["result"]["protocolVersion"], "2025-11-25", "{reply:?}");
        self.session = Some(reply.session.expect("a session"));
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&told.to_string()).status, 202);
    }

    /// Asks; the id is raw JSON.
    #[track_caller]
    pub fn ask(&mut self, id: &str, method: &str, params: &Value) -> Reply {
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}"
        );
        self.post(&body)
    }

    /// Asks as a client of the modern era, without a session; the id is raw JSON.
    #[track_caller]
    pub fn ask_modern(&mut self, id: &str, method: &str, params: &Value) -> Reply {
        let mut params = params.clone();
        params["_meta"] = serde_json::from_str(MODERN_META).expect("JSON");
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let body = format!("{{\"id\":{id},{}", &body[1..]);
        let name = params["name"]
            .as_str()
            .map_or_else(String::new, |name| format!("mcp-name: {name}\r\n"));
        let more = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}");
        self.request("POST", &more, &body)
    }

    /// Calls a tool.
    #[track_caller]
    pub fn call(&mut self, id: &str, name: &str, arguments: &Value) -> Reply {
        self.ask(id, "tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Posts a body.
    #[track_caller]
    pub fn post(&mut self, body: &str) -> Reply {
        self.request("POST", "", body)
    }

    /// Ends its session.
    #[track_caller]
    pub fn delete(&mut self) -> u16 {
        self.request("DELETE", "", "").status
    }

    /// Asks for what it is told beside its requests; that comes for as long as somebody reads.
    #[track_caller]
    pub fn listen(&mut self) -> Told {
        let mut other = Self::new(self.port);
        (other.session, other.token) = (self.session.clone(), self.token.clone());
        other.send("GET", "", "");
        let mut stream = other.stream.expect("just used");
        let (status, _, _, _) = head(&mut stream);
        assert_eq!(status, 200);
        Told(stream)
    }

    /// Sends a request without waiting for what comes back; [`Self::hear`] has it.
    #[track_caller]
    pub fn send(&mut self, method: &str, more: &str, body: &str) {
        let port = self.port;
        let stream = self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream.set_nodelay(true).expect("an option");
            BufReader::new(stream)
        });
        let mut text = format!("{method} /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n");
        text.push_str("accept: application/json, text/event-stream\r\n");
        if let Some(session) = &self.session {
            write!(text, "mcp-session-id: {session}\r\n").expect("a string grows");
        }
        if let Some(token) = &self.token {
            write!(text, "authorization: Bearer {token}\r\n").expect("a string grows");
        }
        if !body.is_empty() {
            let length = body.len();
            write!(text, "content-type: application/json\r\ncontent-length: {length}\r\n")
                .expect("a string grows");
        }
        write!(text, "{more}\r\n{body}").expect("a string grows");
        stream.get_mut().write_all(text.as_bytes()).expect("it is read");
    }

    /// What came back.
    #[track_caller]
    pub fn hear(&mut self) -> Reply {
        let (status, session, text, is_stream) = self.receive();
        let mut reply = Reply { status, session, messages: Vec::new() };
        if is_stream {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            reply.messages.extend(data.filter_map(|data| serde_json::from_str(data).ok()));
        } else {
            reply.messages.extend(serde_json::from_str::<Value>(&text));
        }
        reply
    }

    /// What came back, if it is no longer than this; the rest of a longer one is left.
    #[track_caller]
    pub fn hear_short(&mut self, bytes_max: usize) -> Option<String> {
        let stream = self.stream.as_mut().expect("something was sent");
        let (_, _, length, _) = head(stream);
        if let Some(length) = length {
            let mut body = vec![0; length.min(bytes_max)];
            stream.read_exact(&mut body).expect("a body");
            return (length <= bytes_max).then(|| String::from_utf8_lossy(&body).into_owned());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a length");
            let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
            let mut bytes = vec![0; (length + 2).min(bytes_max)];
            stream.read_exact(&mut bytes).expect("a chunk");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if length > bytes_max || length == 0 {
                return None;
            }
            if text.contains("data: {") {
                return Some(text);
            }
        }
    }

    /// The body that came back, as it is: JSON or events.
    #[track_caller]
    pub fn hear_raw(&mut self) -> String {
        self.receive().2
    }

    /// The status, the session, the body, and whether that is a stream.
    #[track_caller]
    fn receive(&mut self) -> (u16, Option<String>, String, bool) {
        let stream = self.stream.as_mut().expect("something was sent");
        let (status, session, length, is_stream) = head(stream);
        let mut text = String::new();
        match length {
            Some(length) => {
                let mut body = vec![0; length];
                stream.read_exact(&mut body).expect("a whole body");
                text.push_str(&String::from_utf8_lossy(&body));
            }
            None if is_stream => {
                while let Some(chunk) = chunk(stream) {
                    text.push_str(&chunk);
                }
            }
            None => {}
        }
        (status, session, text, length.is_none() && is_stream)
    }

    #[track_caller]
    fn request(&mut self, method: &str, more: &str, body: &str) -> Reply {
        self.send(method, more, body);
        self.hear()
    }
}

/// What a client is told beside its requests.
#[derive(Debug)]
pub struct Told(BufReader<TcpStream>);

impl Iterator for Told {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // The chunk that ends it; the connection may stay.
            if line == "0\r\n" {
                return None;
            }
            // Each event is a chunk of its own: whatever else there is are lengths and empty lines.
            let message = line.strip_prefix("data: ").map(serde_json::from_str);
            if let Some(Ok(message)) = message {
                return Some(message);
            }
        }
    }
}

/// The status, the session, the length of the body where it is given, and whether it comes in chunks.
#[track_caller]
fn head(stream: &mut BufReader<TcpStream>) -> (u16, Option<String>, Option<usize>, bool) {
    let (mut status, mut session, mut length, mut is_stream) = (0, None, None, false);
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("a head");
        assert!(read > 0, "the connection is closed");
        let line = line.trim_end();
        let Some((name, value)) = line.split_once(": ") else {
            if line.is_empty() {
                return (status, session, length, is_stream);
            }
            status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
            continue;
        };
        match (name.to_ascii_lowercase().as_str(), value) {
            ("mcp-session-id", value) => session = Some(value.to_owned()),
            ("content-length", value) => length = value.parse().ok(),
            ("transfer-encoding", "chunked") => is_stream = true,
            _ => {}
        }
    }
}

/// One chunk of a body; none at its end.
#[track_caller]
fn chunk(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).expect("a length");
    let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes).expect("a whole chunk");
    bytes.truncate(length);
    (length > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
