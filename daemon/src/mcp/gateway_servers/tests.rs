//! Tests servers over real pipes, whose other ends are in the hands of the test.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use afresh_core::control::Face;
use afresh_core::id::Generation;
use afresh_core::limits::{HANDSHAKE_MAX, QUEUE_WAIT};
use afresh_core::mcp::{AddedTools, Conversation, Effect, EndCause, Input, Settings};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::*;
use crate::control::About;
use crate::mcp::fast_path::FastPath;
use crate::mcp::restart_triggers::RestartTriggers;
use crate::store::workspace::Workspace;
use crate::wires::InstancePipes;
use crate::wires::{InstanceEnd, WireEvent, Wires};

const DEADLINE: Duration = Duration::from_secs(60);
const GENERATION: Generation = Generation(1);

/// What a server process would hold.
struct Peer {
    stdin: BufReader<pipe::Receiver>,
    stdout: pipe::Sender,
}

impl Peer {
    async fn hears(&mut self) -> String {
        let mut line = String::new();
        self.stdin.read_line(&mut line).await.expect("the pipe holds");
        line
    }

    async fn says(&mut self, line: &str) {
        self.stdout.write_all(format!("{line}\n").as_bytes()).await.expect("the pipe holds");
    }
}

fn server(service: ServiceId) -> (Server, Peer) {
    let settings = Settings {
        server: "a".to_owned(),
        patience: QUEUE_WAIT,
        tools: AddedTools::default(),
        tell_restarts: true.into(),
        wedge_timeout: None,
    };
    let lane = FastPath::new(Conversation::new(&settings), Wires::without_client(), None);
    let triggers = RestartTriggers::new(&[], Path::new("/"), Duration::ZERO, Vec::new(), |_| {});
    let about = About::new(Face::Mcp, None, &Workspace::find(Path::new("/"), None, None), "0");
    let mut server = Server::new(lane, service, triggers.expect("nothing is watched"), about);
    let (their_stdout, stdout) = pipe::pipe().expect("there is room for a pipe");
    let (stdin, their_stdin) = pipe::pipe().expect("there is room for a pipe");
    let generation = GENERATION;
    server.lane.wires.welcome(InstancePipes { generation, stdin, stdout });
    server.lane.wires.begin(generation);
    for effect in server.lane.handle(Input::Started { generation, pid: 1 }) {
        if let Effect::ToServer { generation, line } = effect {
            server.lane.tell_server(generation, line);
        }
    }
    (server, Peer { stdin: BufReader::new(their_stdin), stdout: their_stdout })
}

/// Servers whose session is open.
async fn serving(count: u32) -> (Servers, Vec<Peer>) {
    let mut servers = Servers::start().expect("there is room for a thread");
    let mut peers = Vec::new();
    for service in (1..=count).map(ServiceId) {
        let (server, mut peer) = server(service);
        servers.insert(server);
        servers.say(service, INITIALIZE.into());
        assert!(heard(&mut servers, &mut peer).await.contains("initialize"));
        peer.says(INITIALIZED).await;
        assert!(lines_of(&mut servers, service).await[0].contains("serverInfo"));
        servers.say(service, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into());
        assert!(heard(&mut servers, &mut peer).await.contains("initialized"));
        peers.push(peer);
    }
    (servers, peers)
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;
const NOTE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;

/// What the peer reads next, while the servers do their work; what comes for clients is dropped.
async fn heard(servers: &mut Servers, peer: &mut Peer) -> String {
    let both = async {
        let mut line = std::pin::pin!(peer.hears());
        loop {
            tokio::select! {
                line = &mut line => return line,
                (whose, _) = servers.next() => drop(servers.take_outbox(whose)),
            }
        }
    };
    timeout(DEADLINE, both).await.expect("it is told in time")
}

/// What comes for the client of one server; that of the others is taken and dropped.
async fn lines_of(servers: &mut Servers, service: ServiceId) -> Vec<String> {
    timeout(DEADLINE, async {
        loop {
            let (whose, _) = servers.next().await;
            let lines = servers.take_outbox(whose);
            if whose == service && !lines.is_empty() {
                return lines.iter().map(|line| String::from_utf8_lossy(line).into()).collect();
            }
        }
    })
    .await
    .expect("it comes in time")
}

#[tokio::test]
async fn neither_a_flood_nor_one_that_hangs_holds_up_another() {
    let (mut servers, mut peers) = serving(3).await;
    let [floods, hangs, answers] = [1, 2, 3].map(ServiceId);
    let (mut third, second, first) = (peers.remove(2), peers.remove(1), peers.remove(0));
    let Peer { stdin, stdout } = first;
    let mut stdout = std::fs::File::from(stdout.into_blocking_fd().expect("a pipe"));
    let flood = std::thread::spawn(move || {
        let long = format!(r#""data":"{}""#, "x".repeat(8_000));
        let notes = format!("{}\n", NOTE.replace(r#""data":1"#, &long)).repeat(10);
        // Until nobody reads it any more.
        while stdout.write_all(notes.as_bytes()).is_ok() {}
    });
    servers.say(hangs, CALL.into());
    let mut came = 0;
    for _ in 0..10 {
        assert!(lines_of(&mut servers, floods).await[0].contains("notifications/message"));
        servers.say(answers, CALL.into());
        assert!(heard(&mut servers, &mut third).await.contains("tools/call"));
        third.says(ANSWER).await;
        let mut others = 0;
        timeout(DEADLINE, async {
            loop {
                let (whose, _) = servers.next().await;
                let lines = servers.take_outbox(whose);
                if whose == answers && !lines.is_empty() {
                    assert_eq!(lines, [ANSWER.as_bytes()]);
                    break;
                }
                others += 1;
                assert!(others <= 4, "the flood comes first again and again");
            }
        })
        .await
        .expect("it is answered");
        came += others;
    }
    assert!(came > 0, "nothing was flooded meanwhile");
    drop((servers, stdin, second));
    flood.join().expect("it ends when nobody reads");
}

#[tokio::test]
async fn a_message_has_only_its_own_server_polled() {
    let (mut servers, mut peers) = serving(100).await;
    // All that the beginning has brought is dealt with.
    let idle = poll_fn(|context| match servers.poll_next(context) {
        Poll::Ready((service, _)) => {
            servers.take_outbox(service);
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending if servers.is_round => Poll::Pending,
        Poll::Pending => Poll::Ready(()),
    });
    timeout(DEADLINE, idle).await.expect("it comes to rest");
    let service = ServiceId(42);
    let polled = |servers: &mut Servers| {
        let task = Waker::noop();
        servers.ready.take(task, &mut servers.round);
        servers.round.iter().copied().collect::<Vec<_>>()
    };
    servers.say(service, CALL.into());
    assert_eq!(polled(&mut servers), [service]);
    assert!(heard(&mut servers, &mut peers[41]).await.contains("tools/call"));
    peers[41].says(ANSWER).await;
    // Ready when a server was woken.
    let woken = poll_fn(|context| {
        servers.ready.take(context.waker(), &mut servers.round);
        if servers.round.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    });
    timeout(DEADLINE, woken).await.expect("the pipe wakes it");
    assert_eq!(polled(&mut servers), [service]);
    assert_eq!(lines_of(&mut servers, service).await, [ANSWER]);
    assert_eq!(polled(&mut servers), []);
}

#[tokio::test]
async fn who_does_not_take_its_outbox_has_its_server_wait() {
    let (mut servers, mut peers) = serving(1).await;
    let service = ServiceId(1);
    let note = format!("{NOTE}\n").repeat(100);
    let peer = peers.remove(0);
    let mut written = 0;
    // Ends when the pipe is full, and nobody reads it.
    timeout(DEADLINE, async {
        let is_full = |servers: &Servers| {
            servers.servers[&service].server.lane.wires.client_waiting() >= OUTBOX_BYTES_MAX
        };
        loop {
            tokio::select! {
                biased;
                _ = servers.next() => {}
                writable = peer.stdout.writable() => writable.expect("the pipe holds"),
            }
            match peer.stdout.try_write(&note.as_bytes()[written % note.len()..]) {
                Ok(length) => written += length,
                Err(_) if is_full(&servers) => break,
                Err(_) => {}
            }
        }
    })
    .await
    .expect("it is held up");
    assert!(written > OUTBOX_BYTES_MAX);
    let (mut taken, mut most) = (0, 0);
    timeout(DEADLINE, async {
        while taken < written - NOTE.len() {
            let lines = servers.take_outbox(service);
            // Others have their turn between them.
            assert!(lines.len() <= LINES_IN_A_ROW_MAX, "{}", lines.len());
            most = most.max(lines.len());
            taken += lines.iter().map(|line| line.len() + 1).sum::<usize>();
            if lines.is_empty() {
                servers.next().await;
            }
        }
    })
    .await
    .expect("the rest comes when it is taken");
    assert_eq!(most, LINES_IN_A_ROW_MAX);
}

#[tokio::test]
async fn moments_come_and_the_ends_of_instances_are_heard_of() {
    let (mut servers, peers) = serving(3).await;
    let [due, ends, late] = [1, 2, 3].map(ServiceId);
    let now = Instant::now();
    let soon = now + Duration::from_millis(20);
    for (service, at) in [(due, soon), (late, now + HANDSHAKE_MAX * 100)] {
        let polled = servers.servers.get_mut(&service).expect("it is there");
        polled.server.instances.expect(GENERATION, at - now, "it is late");
        polled.flag.set_other();
    }
    let (whose, came) = timeout(DEADLINE, servers.next()).await.expect("its moment comes");
    assert!(whose == due && matches!(came, ServerPoll::Due) && Instant::now() >= soon);
    servers.remove(due).expect("it is there");
    let polled = servers.servers.get_mut(&ends).expect("it is there");
    polled.flag.set_other();
    let end = InstanceEnd { how: "exited with code 3".to_owned(), cause: EndCause::ByItself };
    assert!(polled.server.lane.wires.process_ended(GENERATION, end).is_none());
    drop(peers);
    let (whose, came) = timeout(DEADLINE, servers.next()).await.expect("its end is heard of");
    assert_eq!(whose, ends);
    let ServerPoll::Interruption(Interruption::News(WireEvent::InstanceGone { end, .. })) = came
    else {
        panic!("its end is no other news")
    };
    assert_eq!(end.how, "exited with code 3");
    assert!(servers.deadlines.iter().all(|(_, service)| *service == late));
}
