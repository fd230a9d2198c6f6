//! A real HTTP receiver on loopback: it keeps what it is sent, and answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::wait_for;

/// A request that came in.
#[derive(Clone, Debug)]
pub struct Received {
    /// The first line.
    pub line: String,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Received {
    /// The value of a header; empty where there is none.
    pub fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("the body is JSON")
    }
}

/// The receiver. Its threads end with the test.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Answers the n-th request, counted from 0, with what `answer` gives: status line and headers, such
    /// as `200 OK` or `429 Slow\r\nretry-after: 1`. `None` is never an answer.
    pub fn start(answer: impl Fn(usize) -> Option<&'static str> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&received), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &kept, &*answer));
            }
        });
        Self { address, received }
    }

    /// The URL of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What has come so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no thread panics").clone()
    }

    /// The JSON bodies of those that tell of this event.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let all = self.received().into_iter().map(|received| received.json());
        all.filter(|body| body["event"] == event).collect()
    }

    /// Waits for so many requests.
    #[track_caller]
    pub fn wait(&self, requests: usize) -> Vec<Received> {
        wait_for(&format!("{requests} requests"), || self.received().len() >= requests);
        self.received()
    }
}

fn serve(
    stream: TcpStream,
    kept: &Mutex<Vec<Received>>,
    answer: &dyn Fn(usize) -> Option<&'static str>,
) {
    let mut reader = BufReader::new(&stream);
    let Some(received) = read(&mut reader) else { return };
    let number = {
        let mut kept = kept.lock().expect("no thread panics");
        kept.push(received);
        kept.len() - 1
    };
    match answer(number) {
        Some(head) => {
            let text = format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\nok");
            // Whoever asked may have gone.
            (&stream).write_all(text.as_bytes()).ok();
        }
        // Holds the connection until the other end lets go.
        None => drop(reader.read_to_end(&mut Vec::new())),
    }
}

fn read(reader: &mut impl BufRead) -> Option<Received> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Received { line: line.trim_end().to_owned(), headers, body })
}
