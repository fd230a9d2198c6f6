//! Each bound of a link, where it is reached.

use afresh_core::limits::{
    LINK_FAREWELL_WAIT, LINK_QUEUE_BYTES_MAX, REFUSAL_BYTES_MAX, STREAM_LINGER,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a server says to the request that is looked for.
struct Ending {
    first: String,
    /// Then this, again and again, so often or until nobody has taken any of it for a while.
    flood: (Vec<u8>, usize),
}

impl Ending {
    fn new(first: &str) -> Self {
        Self { first: first.to_owned(), flood: (Vec::new(), 0) }
    }
}

/// How it went: how often the flood was taken, and how long it took the other end to hang up after that.
type End = (usize, Duration);

/// A good server until somebody asks for this.
async fn serve_until(
    wanted: &'static str,
    ending: Ending,
) -> (String, mpsc::Receiver<End>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (tell, ends) = mpsc::channel(2);
    let ending = Arc::new(ending);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            connections.spawn(converse(stream, wanted, Arc::clone(&ending), tell.clone()));
        }
    });
    (url, ends, tasks)
}

async fn converse(
    mut stream: TcpStream,
    wanted: &'static str,
    ending: Arc<Ending>,
    tell: mpsc::Sender<End>,
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
        let got = Got { head, body: String::from_utf8(body).unwrap(), connection: 0 };
        if got.head.starts_with(wanted) || got.body.contains(wanted) {
            break end(&mut stream, &ending, &tell).await;
        }
        stream.write_all(&good(&got, 0).concat()).await.ok();
    }
}

async fn end(stream: &mut TcpStream, ending: &Ending, tell: &mpsc::Sender<End>) {
    stream.write_all(ending.first.as_bytes()).await.unwrap();
    let (piece, most) = &ending.flood;
    let (mut count, a_while) = (0, Duration::from_secs(2));
    while count < *most
        && let Ok(Ok(())) = timeout(a_while, stream.write_all(piece)).await
    {
        count += 1;
    }
    if *most > 0 {
        tell.send((count, Duration::ZERO)).await.ok();
    }
    let begun = Instant::now();
    let over = stream.read(&mut [0]).await;
    assert!(matches!(over, Ok(0) | Err(_)), "nothing else is said: {over:?}");
    tell.send((count, begun.elapsed())).await.ok();
}

async fn next(ends: &mut mpsc::Receiver<End>) -> End {
    timeout(PATIENCE, ends.recv()).await.expect("in time").expect("it says so")
}

#[test]
fn more_bytes_than_fit_are_refused() {
    run(async {
        let served = serve(|got, number| (good(got, number), false)).await;
        let mut link = Link::open(&served.url, None).await;
        let line = |id: &str, bytes: usize| {
            let long = "x".repeat(bytes);
            let params = format!(r#"{{"name":"t","arguments":"{long}"}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{params}}}"#)
        };
        // Nothing else runs meanwhile: the queue fills.
        for id in ["a", "b", "c", "d"] {
            link.remote.tell(line(id, LINK_QUEUE_BYTES_MAX / 3 - 1_000).into());
        }
        let (mut fine, mut refused) = (0, String::new());
        for _ in 0..4 {
            let said = String::from_utf8(link.next().await.line).unwrap();
            match said.contains("too many requests") {
                true => refused += &said,
                false => fine += 1,
            }
        }
        assert_eq!((fine, refused.contains(r#""id":"d""#)), (3, true), "{refused}");
        // There is room again, and one alone may have any length.
        link.remote.tell(line("e", LINK_QUEUE_BYTES_MAX).into());
        assert_eq!(link.answer("e").await, FINE);
    });
}

#[test]
fn a_server_is_read_from_at_the_pace_of_the_hub() {
    run(async {
        let long = "x".repeat(64 * 1024);
        let event =
            format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{long}\"}}\n\n");
        // Far more than our queues and both kernels hold.
        let most = 2_000;
        let first = String::from_utf8(stream("")).unwrap();
        let ending = Ending { first, flood: (chunk(&event), most) };
        let (url, mut ends, _tasks) = serve_until("tools/call", ending).await;
        let mut link = Link::open(&url, None).await;
        link.ask("a", "tools/call");
        let (count, _) = next(&mut ends).await;
        assert!(count < most / 2, "{count}");
        // Nothing of it is lost.
        for _ in 0..count {
            assert_eq!(link.next().await.about, Some(Id::new(b"\"a\"")));
        }
    });
}

#[test]
fn a_server_that_does_not_say_goodbye_is_not_waited_for() {
    run(async {
        let (url, mut ends, _tasks) = serve_until("delete ", Ending::new("")).await;
        let link = Link::open(&url, None).await;
        drop(link);
        let (_, took) = next(&mut ends).await;
        assert!(took >= LINK_FAREWELL_WAIT / 2, "{took:?}");
    });
}

#[test]
fn a_stream_that_does_not_end_after_its_answer_is_let_go() {
    run(async {
        let answer = r#"{"jsonrpc":"2.0","id":"a","result":{"protocolVersion":"2025-06-18"}}"#;
        let first = [stream(""), chunk(&format!("data: {answer}\n\n"))].concat();
        let first = String::from_utf8(first).unwrap();
        let (url, mut ends, _tasks) = serve_until("tools/call", Ending::new(&first)).await;
        let mut link = Link::open(&url, None).await;
        assert_eq!(link.call("a").await, FINE);
        let (_, took) = next(&mut ends).await;
        assert!(took >= STREAM_LINGER / 2, "{took:?}");
    });
}

#[test]
fn of_a_refusal_without_end_only_the_beginning_is_read() {
    run(async {
        let head =
            "HTTP/1.1 500 No\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
        let piece = chunk(&"no ".repeat(REFUSAL_BYTES_MAX / 8));
        let ending = Ending { first: head.to_owned(), flood: (piece, 10_000) };
        let (url, mut ends, _tasks) = serve_until("tools/call", ending).await;
        let mut link = Link::open(&url, None).await;
        let said = link.call("a").await;
        assert!(said.contains("status 500: no no no"), "{said}");
        let (count, _) = next(&mut ends).await;
        assert!(count < 10_000, "the connection is closed");
    });
}
