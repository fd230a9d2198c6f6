//! A hub that answers a few words, and clients that speak HTTP by hand.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use afresh_core::gateway::settings::FrontSettings;
use afresh_core::gateway::{ClientId, Input};
use afresh_core::mcp::envelope::{Id, Message, look};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Bounds;
use super::super::signed_sessions::EndedSessions;
use super::super::{BoundFront, HttpFront, bind};
use crate::output::Output;
use crate::refusals::Refusals;

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

pub(super) fn settings() -> FrontSettings {
    FrontSettings {
        http: Some("127.0.0.1:0".parse().unwrap()),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        tokens: Vec::new(),
        token_file: None,
        clients_max: 100,
        body_bytes_max: 4 * 1024 * 1024,
        requests_per_second: None,
        session_idle: Duration::from_secs(600),
        keep_alive: None,
    }
}

pub(super) fn call(id: u32, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

enum Order {
    Tell(ClientId, Vec<u8>, Option<Id>),
    /// The same line so often, without a moment between in which anything else could happen.
    TellOften(ClientId, Vec<u8>, usize),
    /// Whether the front is looked after from now on.
    Serve(bool),
    /// How many letters wait for the loop, and for how many there is room.
    Queue(SyncSender<(usize, usize)>),
    Close,
}

/// A front with a hub in a thread of its own.
pub(super) struct Stand {
    pub(super) address: SocketAddr,
    orders: mpsc::Sender<Order>,
    words: Receiver<Input>,
    joined: RefCell<u64>,
    log: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<Duration>,
    thread: Option<JoinHandle<()>>,
}

impl Stand {
    pub(super) fn start(change: impl FnOnce(&mut FrontSettings)) -> Self {
        Self::start_with(|_| {}, change)
    }

    /// The same with other bounds.
    pub(super) fn start_with(
        bound: impl FnOnce(&mut Bounds),
        change: impl FnOnce(&mut FrontSettings),
    ) -> Self {
        let (mut settings, mut bounds) = (settings(), Bounds::default());
        change(&mut settings);
        bound(&mut bounds);
        let bound = bind(&settings, settings.http.as_ref().unwrap()).unwrap();
        let address = port_of(&bound);
        let (orders, mut inbox) = mpsc::channel(10_000);
        let (said, words) = sync_channel(100_000);
        let (end, ended) = sync_channel(1);
        let log = Arc::new(Mutex::new(Vec::new()));
        let (output, _) = Output::start("log", BodyBudget(Arc::clone(&log)), |_| {}).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut front = HttpFront::start(bound, &settings, bounds, (output, no_refusals()), EndedSessions::open(None, None).0).unwrap();
                let mut serves = true;
                loop {
                    tokio::select! {
                        word = front.next(), if serves => hub(&mut front, word, &said),
                        order = inbox.recv() => match order {
                            Some(Order::Tell(client, line, about)) => front.tell(client, line, about),
                            Some(Order::TellOften(client, line, count)) => {
                                (0..count).for_each(|_| front.tell(client, line.clone(), None));
                            }
                            Some(Order::Serve(is_wanted)) => serves = is_wanted,
                            Some(Order::Queue(answer)) => {
                                answer.send((front.letters.len(), front.letters.capacity())).unwrap();
                            }
                            Some(Order::Close) | None => break,
                        },
                    }
                }
                let begun = Instant::now();
                front.close().await;
                end.send(begun.elapsed()).unwrap();
            });
        });
        let joined = RefCell::new(0);
        Self { address, orders, words, joined, log, ended, thread: Some(thread) }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer_at(self.address)
    }

    /// A client at another address of the port.
    pub(super) fn peer_at(&self, address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, host: format!("127.0.0.1:{}", self.address.port()), rest: Vec::new() }
    }

    pub(super) fn tell(&self, client: ClientId, line: &str, about: Option<u32>) {
        let about = about.map(|id| Id::new(id.to_string().as_bytes()));
        let order = Order::Tell(client, line.as_bytes().to_vec(), about);
        self.orders.blocking_send(order).ok().unwrap();
    }

    /// The next word of the front.
    pub(super) fn word(&self) -> Input {
        self.words.recv_timeout(PATIENCE).expect("a word")
    }

    /// Whether there is no other; whoever is served after this request would have been heard before it.
    pub(super) fn is_silent(&self) -> bool {
        self.peer().ask("GET /health", &[], "");
        self.words.try_recv().is_err()
    }

    /// The next that joins.
    pub(super) fn joined(&self) -> ClientId {
        loop {
            if let Input::Joined { client, .. } = self.word() {
                *self.joined.borrow_mut() = client.0;
                return client;
            }
        }
    }

    /// Who will join next, where one that was answered and one that was refused by the hub came before.
    pub(super) fn next_joined(&self) -> ClientId {
        let mut last = self.joined.borrow_mut();
        *last += if *last == 1 { 2 } else { 1 };
        ClientId(*last)
    }

    /// What a client says first.
    pub(super) fn wait_joined(&self, wanted: ClientId) -> Input {
        while self.joined() != wanted {}
        self.word()
    }

    /// Waits until it has said so much since it was last looked at.
    pub(super) fn wait_said(&self, wanted: ClientId, count: usize) {
        let mut said = 0;
        while said < count {
            if matches!(self.word(), Input::Client { client, .. } if client == wanted) {
                said += 1;
            }
        }
    }

    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// Tells a client the same so often, before its connection can write any of it.
    pub(super) fn tell_often(&self, client: ClientId, line: &str, count: usize) {
        let order = Order::TellOften(client, line.as_bytes().to_vec(), count);
        self.orders.blocking_send(order).ok().unwrap();
    }

    /// Whether anybody looks after what connections ask.
    pub(super) fn serve(&self, is_wanted: bool) {
        self.orders.blocking_send(Order::Serve(is_wanted)).ok().unwrap();
    }

    /// How many letters wait for the loop, and for how many there is room.
    pub(super) fn queue(&self) -> (usize, usize) {
        let (answer, queue) = sync_channel(1);
        self.orders.blocking_send(Order::Queue(answer)).ok().unwrap();
        queue.recv_timeout(PATIENCE).expect("it is looked at")
    }

    /// Ends it, and says how long that took.
    pub(super) fn close(mut self) -> Duration {
        self.orders.blocking_send(Order::Close).ok().unwrap();
        let took = self.ended.recv_timeout(PATIENCE).expect("it ends");
        self.thread.take().unwrap().join().unwrap();
        took
    }
}

struct BodyBudget(Arc<Mutex<Vec<u8>>>);

impl Write for BodyBudget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers what is asked, by its method.
fn hub(front: &mut HttpFront, word: Input, said: &SyncSender<Input>) {
    if let Input::Client { client, line } = &word {
        let single = [line.clone()];
        let lines = match serde_json::from_slice::<Vec<serde_json::Value>>(line) {
            Ok(batch) => batch.iter().map(|one| one.to_string().into_bytes()).collect(),
            Err(_) => single.to_vec(),
        };
        for line in lines {
            if let Some(Message::Request { id, method, .. }) = look(&line) {
                answer(front, *client, &id, &method);
            }
        }
    }
    said.send(word).ok();
}

fn answer(front: &mut HttpFront, client: ClientId, id: &Id, method: &str) {
    let raw = String::from_utf8_lossy(id.raw()).into_owned();
    let body = match method {
        "hold" => return,
        "unknown" => r#""error":{"code":-32601,"message":"?"}"#,
        _ => r#""result":{}"#,
    };
    if method == "notes" {
        for _ in 0..3 {
            front.tell(client, super::PROGRESS.as_bytes().to_vec(), Some(id.clone()));
        }
    }
    let line = format!(r#"{{"jsonrpc":"2.0","id":{raw},{body}}}"#);
    front.tell(client, line.into_bytes(), Some(id.clone()));
}

/// A client.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    host: String,
    /// What was read and not yet looked at.
    rest: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct ResponseBody {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl ResponseBody {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Peer {
    /// Opens a session, and returns its name.
    pub(super) fn open(&mut self) -> String {
        let answer = self.ask("POST /mcp", &[], &call(0, "initialize"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("mcp-session-id").expect("a session").to_owned()
    }

    pub(super) fn post(&mut self, session: &str, body: &str) -> ResponseBody {
        self.send_post(session, body);
        self.answer()
    }

    pub(super) fn send_post(&mut self, session: &str, body: &str) {
        self.send("POST /mcp", &[("mcp-session-id", session)], body);
    }

    pub(super) fn ask(&mut self, line: &str, headers: &[(&str, &str)], body: &str) -> ResponseBody {
        self.send(line, headers, body);
        self.answer()
    }

    pub(super) fn send(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let text = self.request(line, headers, body);
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn request(&self, line: &str, headers: &[(&str, &str)], body: &str) -> String {
        let length = body.len().to_string();
        let all = [headers, &[("content-length", length.as_str())]].concat();
        self.head_text(line, &all) + body
    }

    /// The head of a request: those headers that a good client has, unless they are given.
    pub(super) fn head_text(&self, line: &str, headers: &[(&str, &str)]) -> String {
        let usual = [
            ("host", self.host.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        let usual = usual.iter().filter(|(name, _)| !is_given(name));
        let lines: String =
            usual.chain(headers).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{line} HTTP/1.1\r\n{lines}\r\n")
    }

    /// Bytes up to a mark, which goes.
    fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.rest.windows(mark.len()).position(|part| part == mark) {
                let rest = self.rest.split_off(at + mark.len());
                let mut found = std::mem::replace(&mut self.rest, rest);
                found.truncate(at);
                return found;
            }
            self.read();
        }
    }

    fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.rest.len() < count {
            self.read();
        }
        let rest = self.rest.split_off(count);
        std::mem::replace(&mut self.rest, rest)
    }

    fn read(&mut self) {
        let mut bytes = [0; 64 * 1024];
        // A signal to the process of the tests interrupts reads of sockets with a timeout.
        let count = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.expect("an answer"),
            }
        };
        assert!(count > 0, "it ends after {:?}", String::from_utf8_lossy(&self.rest));
        self.rest.extend_from_slice(&bytes[..count]);
    }

    /// The head of an answer.
    pub(super) fn head(&mut self) -> ResponseBody {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a status");
        ResponseBody { status, head, body: String::new() }
    }

    /// The next chunk of a body; nothing at its end.
    fn chunk(&mut self) -> String {
        let length = String::from_utf8(self.until(b"\r\n")).unwrap();
        let bytes = self.exactly(usize::from_str_radix(&length, 16).unwrap());
        assert_eq!(self.until(b"\r\n"), b"");
        String::from_utf8(bytes).unwrap()
    }

    /// The next event of a stream; each is a chunk. Nothing at its end.
    pub(super) fn event(&mut self) -> String {
        self.chunk().trim_end_matches('\n').to_owned()
    }

    /// An answer with all of its body.
    pub(super) fn answer(&mut self) -> ResponseBody {
        let mut answer = self.head();
        if let Some(length) = answer.header("content-length") {
            let length = length.parse().unwrap();
            answer.body = String::from_utf8(self.exactly(length)).unwrap();
        } else if answer.header("transfer-encoding").is_some() {
            loop {
                match self.chunk() {
                    end if end.is_empty() => break,
                    more => answer.body.push_str(&more),
                }
            }
        }
        answer
    }
}

/// The port of a front that listens on one.
pub(super) fn port_of(bound: &BoundFront) -> SocketAddr {
    match bound {
        BoundFront::Port(port) => port.address,
        BoundFront::Socket(..) => panic!("it is a socket"),
    }
}

fn no_refusals() -> Refusals {
    Refusals::new("test", drop)
}
