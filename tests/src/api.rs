//! A client of the control API that says just what it is told to, over a port or a socket.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::{PATIENCE, Running, TestEnv};

/// A connection.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// Where an afresh can be asked.
#[derive(Clone, Debug)]
pub enum Api {
    /// Over its port, with a token.
    Port {
        /// The port, on 127.0.0.1.
        port: u16,
        /// The token.
        token: String,
    },
    /// Over its socket.
    Socket(PathBuf),
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The lines of the header, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Api {
    /// The port of an afresh that was started with `--listen`, as its log says.
    #[track_caller]
    pub fn of(env: &TestEnv, afresh: &Running) -> Self {
        afresh.wait_stderr("the control API is at http://127.0.0.1:", 1);
        let log = afresh.stderr();
        let rest = log.split("http://127.0.0.1:").nth(1).expect("just seen");
        let port = rest.split(',').next().and_then(|port| port.parse().ok()).expect("a port");
        let token =
            fs::read_to_string(env.home().join(".local/state/afresh/private/control.token"))
                .expect("a token");
        Self::Port { port, token: token.trim().to_owned() }
    }

    /// The headers that a well-behaved client sends.
    pub fn headers(&self) -> Vec<String> {
        match self {
            Self::Port { port, token } => {
                vec![format!("host: 127.0.0.1:{port}"), format!("authorization: Bearer {token}")]
            }
            Self::Socket(_) => vec!["host: afresh".to_owned()],
        }
    }

    /// A connection.
    pub fn connect(&self) -> Box<dyn Stream> {
        match self {
            Self::Port { port, .. } => {
                let stream = TcpStream::connect(("127.0.0.1", *port)).expect("somebody listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                Box::new(stream)
            }
            Self::Socket(path) => {
                let stream = UnixStream::connect(path).expect("somebody listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                Box::new(stream)
            }
        }
    }

    /// Asks as a well-behaved client: `GET /v1/services`, say.
    #[track_caller]
    pub fn ask(&self, line: &str, body: &str) -> Answer {
        self.ask_with(line, &self.headers(), body)
    }

    /// Asks with these headers and no others.
    #[track_caller]
    pub fn ask_with(&self, line: &str, headers: &[String], body: &str) -> Answer {
        self.say(request(line, headers, body).as_bytes())
    }

    /// Sends bytes, and reads what comes back to its end.
    #[track_caller]
    pub fn say(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // It may hang up before it has heard all.
        stream.write_all(bytes).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.unwrap_or_default(),
            head: head.to_ascii_lowercase().replace('\r', ""),
            body: body.to_owned(),
        }
    }

    /// Follows, with more headers than usual.
    pub fn follow(&self, path: &str, more: &[String]) -> Events {
        let mut stream = self.connect();
        let headers = [self.headers(), more.to_vec()].concat();
        let text = request(&format!("GET {path}"), &headers, "");
        stream.write_all(text.as_bytes()).expect("it is read");
        Events(BufReader::new(stream))
    }
}

fn request(line: &str, headers: &[String], body: &str) -> String {
    let mut text = format!("{line} HTTP/1.1\r\n");
    for header in headers {
        write!(text, "{header}\r\n").expect("a string grows");
    }
    if !body.is_empty() {
        write!(text, "content-length: {}\r\n", body.len()).expect("a string grows");
    }
    format!("{text}\r\n{body}")
}

/// Server-sent events as they come.
pub struct Events(BufReader<Box<dyn Stream>>);

impl Iterator for Events {
    /// The kind of an event, its id, its data.
    type Item = (String, String, Value);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut kind, mut id) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // What chunks are made of, and the header, are no fields of ours.
            match line.trim_end().split_once(": ") {
                Some(("event", word)) => kind = word.to_owned(),
                Some(("id", word)) => id = word.to_owned(),
                Some(("data", data)) => {
                    return Some((kind, id, serde_json::from_str(data).expect("JSON")));
                }
                _ => {}
            }
        }
    }
}
