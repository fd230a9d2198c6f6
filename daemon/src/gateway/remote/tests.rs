//! Against real listeners, which misbehave by script.

mod limits;

use std::sync::Mutex;
use std::time::Duration;

use afresh_core::mcp::json::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// One request that a server got.
#[derive(Debug)]
struct Got {
    /// The first line and the headers, in lower case.
    head: String,
    body: String,
    connection: usize,
}

impl Got {
    fn id(&self) -> String {
        String::from_utf8_lossy(get(self.body.as_bytes(), &["id"]).unwrap_or_default()).into_owned()
    }

    fn session(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "))
    }
}

/// What a server does with a request: the bytes that it answers, and whether it hangs up then.
type Script = fn(&Got, usize) -> (Vec<Vec<u8>>, bool);

struct Served {
    url: String,
    got: mpsc::Receiver<Got>,
    _tasks: JoinSet<()>,
}

/// Serves by a script, which gets each request and how many came before it.
async fn serve(script: Script) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (tell, got) = mpsc::channel(10_000);
    let mut tasks = JoinSet::new();
    let count = Arc::new(AtomicUsize::new(0));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            connections.spawn(answer(stream, number, script, tell.clone(), Arc::clone(&count)));
        }
    });
    Served { url, got, _tasks: tasks }
}

async fn answer(
    mut stream: TcpStream,
    connection: usize,
    script: Script,
    tell: mpsc::Sender<Got>,
    count: Arc<AtomicUsize>,
) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.unwrap();
        let got = Got { head, body: String::from_utf8(body).unwrap(), connection };
        let (pieces, hangs_up) = script(&got, count.fetch_add(1, Ordering::SeqCst));
        tell.send(got).await.ok();
        for piece in pieces {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
            stream.flush().await.ok();
        }
        if hangs_up {
            return;
        }
    }
}

fn http(status: &str, headers: &str, body: &str) -> Vec<Vec<u8>> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}");
    vec![head.into_bytes()]
}

fn json(headers: &str, body: &str) -> Vec<Vec<u8>> {
    http("200 OK", &format!("content-type: application/json\r\n{headers}"), body)
}

fn result(got: &Got) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-06-18"}}}}"#, got.id())
}

/// A good server, whose sessions are called by the number of the request that opened them.
fn good(got: &Got, number: usize) -> Vec<Vec<u8>> {
    if got.head.starts_with("get ") {
        return http("405 No", "", "");
    }
    if got.id().is_empty() {
        return http("202 Accepted", "", "");
    }
    let session = match got.body.contains("\"initialize\"") {
        true => format!("mcp-session-id: s{number}\r\n"),
        false => String::new(),
    };
    json(&session, &result(got))
}

/// A line of the server's.
struct Said {
    link: LinkId,
    line: Vec<u8>,
    about: Option<Id>,
}

struct Link {
    remote: Remote,
    words: mpsc::Receiver<Input>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Link {
    async fn open(url: &str, sse: Option<bool>) -> Self {
        let mut link = Self::start(url, sse);
        link.remote.tell(INITIALIZE.into());
        assert_eq!(link.answer("i").await, r#"{"protocolVersion":"2025-06-18"}"#);
        link.remote.tell(INITIALIZED.into());
        link
    }

    fn start(url: &str, sse: Option<bool>) -> Self {
        let (words_told, words) = mpsc::channel(8);
        let headers = vec![("Authorization".to_owned(), "Bearer t0k3n".to_owned())];
        let http = backend::HttpServer { url: url.to_owned(), headers, sse };
        let log = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&log);
        let say = move |text: &str| said.lock().unwrap().push(text.to_owned());
        let remote = Remote::start(LinkId(3), &http, words_told, say);
        Self { remote, words, log }
    }

    fn ask(&mut self, id: &str, method: &str) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{"name":"t"}}}}"#
        );
        self.remote.tell(line.into_bytes());
    }

    /// The next line; what else is told before it is skipped.
    async fn next(&mut self) -> Said {
        loop {
            let word = timeout(Duration::from_secs(60), self.words.recv()).await;
            if let Input::Link { link, line, about } =
                word.expect("in time").expect("the link runs")
            {
                return Said { link, line, about };
            }
        }
    }

    /// The result or error that is the answer to a request; what else comes before it is skipped.
    async fn answer(&mut self, id: &str) -> String {
        loop {
            let word = self.next().await;
            assert_eq!(word.link, LinkId(3));
            if get(&word.line, &["id"]) == Some(format!("\"{id}\"").as_bytes()) {
                assert_eq!(word.about, Some(Id::new(format!("\"{id}\"").as_bytes())));
                let found = get(&word.line, &["result"]).or(get(&word.line, &["error"]));
                return String::from_utf8(found.unwrap().to_vec()).unwrap();
            }
        }
    }

    async fn call(&mut self, id: &str) -> String {
        self.ask(id, "tools/call");
        self.answer(id).await
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

const FINE: &str = r#"{"protocolVersion":"2025-06-18"}"#;

#[test]
fn one_connection_serves_many_requests_and_the_session_is_ended() {
    run(async {
        let mut served = serve(|got, number| (good(got, number), false)).await;
        let mut link = Link::open(&served.url, None).await;
        for number in 0..20 {
            assert_eq!(link.call(&format!("r{number}")).await, FINE);
        }
        drop(link);
        let mut connections = 0;
        loop {
            let got = served.got.recv().await.unwrap();
            assert!(got.head.contains("authorization: bearer t0k3n"), "{got:?}");
            connections = connections.max(got.connection + 1);
            if got.head.starts_with("delete ") {
                assert_eq!(got.session(), Some("s0"));
                break;
            }
        }
        // One, and one more for what is not waited for.
        assert!(connections <= 3, "{connections}");
    });
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_not_used() {
    run(async {
        // Each answer looks as if the connection stayed.
        let served = serve(|got, number| (good(got, number), true)).await;
        let mut link = Link::open(&served.url, None).await;
        for number in 0..20 {
            assert_eq!(link.call(&format!("r{number}")).await, FINE);
        }
    });
}

#[test]
fn a_forgotten_session_is_opened_anew() {
    run(async {
        let served = serve(|got, number| {
            let is_old = got.session() == Some("s0") && got.body.contains("tools/");
            (if is_old { http("404 Not Found", "", "") } else { good(got, number) }, false)
        });
        let served = served.await;
        let mut link = Link::open(&served.url, None).await;
        link.ask("a", "tools/call");
        let mut told = Vec::new();
        loop {
            let word = link.next().await;
            match get(&word.line, &["method"]) {
                Some(method) => told.push(String::from_utf8_lossy(method).into_owned()),
                None => break assert_eq!(get(&word.line, &["result"]), Some(FINE.as_bytes())),
            }
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("tools/list_changed"));
    });
}

fn stream(text: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    format!("{head}transfer-encoding: chunked\r\n\r\n{text}").into_bytes()
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

#[test]
fn a_stream_comes_in_single_bytes() {
    run(async {
        let served = serve(|got, number| {
            if !got.body.contains("tools/call") {
                return (good(got, number), false);
            }
            let text = format!(
                ": hi\n\ndata: {}\n\ndata: {}\n\n",
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                result(got)
            );
            let bytes = text.bytes().flat_map(|byte| chunk(&char::from(byte).to_string()));
            let all: Vec<u8> = stream("").into_iter().chain(bytes).chain(*b"0\r\n\r\n").collect();
            (all.chunks(1).map(<[u8]>::to_vec).collect(), false)
        });
        let served = served.await;
        let mut link = Link::open(&served.url, None).await;
        link.ask("a", "tools/call");
        let word = link.next().await;
        assert_eq!(word.about, Some(Id::new(b"\"a\"")));
        assert_eq!(link.answer("a").await, FINE);
        assert_eq!(link.call("b").await, FINE);
    });
}

#[test]
fn a_stream_that_breaks_is_taken_up_where_it_was() {
    run(async {
        let served = serve(|got, number| {
            if got.head.contains("last-event-id: e1") {
                let answer = r#"{"jsonrpc":"2.0","id":"a","result":"resumed"}"#;
                return (vec![stream(""), chunk(&format!("data: {answer}\n\n"))], false);
            }
            if got.body.contains("tools/call") {
                return (vec![stream(""), chunk("id: e1\nretry: 1\ndata:\n\n")], true);
            }
            // Without an id there is nothing to go back to: safe ones are asked again, once.
            if got.body.contains("tools/list") {
                return (vec![stream(""), chunk(": nothing\n\n")], true);
            }
            (good(got, number), false)
        });
        let served = served.await;
        let mut link = Link::open(&served.url, None).await;
        assert_eq!(link.call("a").await, r#""resumed""#);
        link.ask("l", "tools/list");
        let said = link.answer("l").await;
        assert!(said.contains("connection_broken") && said.contains("http://127.0.0.1"), "{said}");
    });
}

#[test]
fn what_is_no_answer_becomes_an_error() {
    run(async {
        let served = serve(|got, number| {
            let html = "<html>Hello</html>";
            let answer = match got.id().as_str() {
                "\"html\"" => http("200 OK", "content-type: text/html\r\n", html),
                "\"wrong\"" => json("", r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
                "\"denied\"" => http("401 Unauthorized", "", ""),
                "\"ssh\"" => vec![b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()],
                "\"cut\"" => vec![b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec()],
                "\"away\"" => http("302 Found", "location: https://login/\r\n", ""),
                _ => good(got, number),
            };
            let hangs_up = ["\"ssh\"", "\"cut\""].contains(&got.id().as_str());
            (answer, hangs_up)
        });
        let served = served.await;
        let mut link = Link::open(&served.url, None).await;
        for (id, text) in [
            ("html", "no MCP: <html>Hello</html>"),
            ("wrong", "with something else"),
            ("denied", "set a token in `headers`"),
            ("ssh", "outcome is unknown"),
            ("cut", "outcome is unknown"),
            ("away", "redirects to `https://login`"),
        ] {
            let said = link.call(id).await;
            assert!(said.contains(text) && said.contains("\"isError\":true"), "{id}: {said}");
            // And the next one is fine.
            assert_eq!(link.call(&format!("{id}-next")).await, FINE);
        }
    });
}

#[test]
fn a_flood_is_cut_and_a_silent_call_can_be_cancelled() {
    run(async {
        let served = serve(|got, number| match got.id().as_str() {
            "\"flood\"" => {
                let mut pieces = vec![stream(""), chunk("data: ")];
                pieces.extend(std::iter::repeat_n(chunk(&"x".repeat(1 << 20)), 70));
                pieces.push(chunk("\n\n"));
                (pieces, false)
            }
            "\"silent\"" => (Vec::new(), false),
            _ => (good(got, number), false),
        });
        let mut served = served.await;
        let mut link = Link::open(&served.url, None).await;
        let said = link.call("flood").await;
        assert!(said.contains("longer than the limit"), "{said}");
        link.ask("silent", "tools/call");
        while served.got.recv().await.unwrap().id() != "\"silent\"" {}
        // Nothing of it holds up the others.
        assert_eq!(link.call("b").await, FINE);
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"silent"}}"#;
        link.remote.tell(cancel.into());
        while !served.got.recv().await.unwrap().body.contains("cancelled") {}
        assert_eq!(link.call("c").await, FINE);
    });
}

#[test]
fn the_old_transport_is_found_out() {
    run(async {
        for sse in [None, Some(true)] {
            let (told, said) = tokio::sync::watch::channel(Vec::<String>::new());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/sse", listener.local_addr().unwrap());
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                let mut connections = JoinSet::new();
                let told = Arc::new(told);
                loop {
                    let Ok((stream, _)) = listener.accept().await else { return };
                    connections.spawn(old(stream, Arc::clone(&told), said.clone()));
                }
            });
            let mut link = Link::open(&url, sse).await;
            assert_eq!(link.call("a").await, FINE);
            assert_eq!(link.call("b").await, FINE);
        }
    });
}

/// A connection of a server that speaks HTTP with server-sent events: what is posted on one is answered
/// on the other.
async fn old(
    mut connection: TcpStream,
    told: Arc<tokio::sync::watch::Sender<Vec<String>>>,
    mut said: tokio::sync::watch::Receiver<Vec<String>>,
) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = connection.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        connection.read_exact(&mut body).await.unwrap();
        let got = Got { head, body: String::from_utf8(body).unwrap(), connection: 0 };
        if got.head.starts_with("get ") {
            let first = chunk("event: endpoint\ndata: /messages?s=1\n\n");
            connection.write_all(&[stream(""), first].concat()).await.unwrap();
            let mut sent = 0;
            while said.wait_for(|lines| lines.len() > sent).await.is_ok() {
                let line = said.borrow()[sent].clone();
                connection.write_all(&chunk(&format!("data: {line}\n\n"))).await.ok();
                sent += 1;
            }
            return;
        }
        let is_there = got.head.starts_with("post /messages?s=1 ");
        if is_there && !got.id().is_empty() {
            told.send_modify(|lines| lines.push(result(&got)));
        }
        let status = if is_there { "202 Accepted" } else { "405 Method Not Allowed" };
        connection.write_all(&http(status, "", "").concat()).await.unwrap();
    }
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    run(async {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        drop(taken);
        let mut link = Link::start(&format!("http://{address}/mcp"), None);
        link.remote.tell(INITIALIZE.into());
        // Two tries go by; then it is there.
        let (listener, mut connections) =
            (TcpListener::bind(address).await.unwrap(), JoinSet::new());
        let (tell, _got) = mpsc::channel(100);
        let script: Script = |got, number| (good(got, number), false);
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(answer(stream, 0, script, tell.clone(), Arc::default()));
            }
        };
        tokio::select! {
            () = serving => {}
            said = link.answer("i") => assert_eq!(said, FINE),
        }
    });
}

#[test]
fn more_than_fits_is_refused_and_nobody_waits() {
    run(async {
        let served = serve(|got, number| (good(got, number), false)).await;
        let mut link = Link::open(&served.url, None).await;
        // Nothing else runs meanwhile: the queue fills.
        for number in 0..LINK_QUEUE_LEN_MAX + 5 {
            link.ask(&format!("r{number}"), "tools/call");
        }
        let mut refused = 0;
        for _ in 0..LINK_QUEUE_LEN_MAX + 5 {
            let word = link.next().await;
            refused += usize::from(String::from_utf8_lossy(&word.line).contains("too many"));
        }
        assert!((5..=6).contains(&refused), "{refused}");
        assert_eq!(link.log.lock().unwrap()[..], [""; 0]);
        // Who does not want an answer gets none, but somebody may look at the log.
        for _ in 0..LINK_QUEUE_LEN_MAX + 5 {
            link.remote.tell(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.into());
        }
        let mut number = 0;
        while link.call(&format!("last{number}")).await != FINE {
            number += 1;
        }
        let log = link.log.lock().unwrap().join("\n");
        assert!(log.contains("too much waits for it: 5 notifications were dropped"), "{log}");
    });
}
