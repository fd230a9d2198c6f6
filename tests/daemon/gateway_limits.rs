//! Bounds of `afresh gateway` that only show with real connections and pipes.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use afresh_tests::connection::Connection;
use afresh_tests::{PATIENCE, TestEnv};
use serde_json::{Value, json};

use crate::gateway::server;

/// Messages of a flood, far more than all queues and both kernels hold…
const FLOOD: usize = 1_000;

/// …when each is so long.
const BYTES: usize = 64 * 1024;

/// Says how many messages of its flood were taken when nobody took any more for a while.
fn serve_flood() -> (String, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("a port"));
    let (tell, stalls) = sync_channel(1);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let tell = tell.clone();
            thread::spawn(move || serve(stream.expect("a connection"), &tell));
        }
    });
    (url, stalls)
}

fn serve(stream: TcpStream, tell: &SyncSender<usize>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a connection"));
    let mut writer = stream;
    loop {
        let (mut first, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            length = line
                .strip_prefix("content-length: ")
                .map_or(length, |it| it.parse().expect("a number"));
            match (first.is_empty(), line.is_empty()) {
                (true, _) => first = line,
                (false, true) => break,
                (false, false) => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        if first.starts_with("get ") {
            return pour(&mut writer, tell);
        }
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = match message["id"].is_null() {
            true => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
            false => {
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "f", "version": "1"}});
                let body =
                    json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                format!("{head}mcp-session-id: s\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
        };
        writer.write_all(answer.as_bytes()).ok();
    }
}

/// The stream of what belongs to no request.
fn pour(writer: &mut TcpStream, tell: &SyncSender<usize>) {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    writer.write_all(head.as_bytes()).expect("somebody listens");
    let line =
        json!({"jsonrpc": "2.0", "method": "notifications/flood", "params": "x".repeat(BYTES)});
    let event = format!("data: {line}\n\n");
    let piece = format!("{:x}\r\n{event}\r\n", event.len()).into_bytes();
    writer.set_write_timeout(Some(Duration::from_secs(3))).expect("a timeout");
    for count in 0..FLOOD {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            match writer.write(rest) {
                Ok(taken) => rest = &rest[taken..],
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) =>
                {
                    // Once is enough.
                    tell.try_send(count).ok();
                }
                Err(_) => return,
            }
        }
    }
    tell.try_send(FLOOD).ok();
    // It stays open until somebody hangs up.
    writer.set_read_timeout(None).ok();
    writer.read_exact(&mut [0]).ok();
}

#[test]
fn a_client_that_does_not_read_holds_up_its_servers_and_goes_on_when_it_does() {
    let env = TestEnv::new();
    let (url, stalls) = serve_flood();
    let entries = [format!("[server.far]\nurl = {url:?}\n"), server(&env, "near", "", "")];
    env.write("afresh.toml", &entries.concat());
    let (mut client, stdout) = Connection::start_deaf_as(&env, &["gateway"]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    client.send("1", "initialize", &params);
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    let taken = stalls.recv_timeout(PATIENCE).expect("it stalls, or is taken as a whole");
    assert!(taken < FLOOD / 2, "{taken} messages of {BYTES} bytes wait for who does not read");
    let resident = client.resident();
    assert!(resident < 100 * 1024, "{resident} kB");
    // Nothing is lost.
    let (hear, heard) = sync_channel(1_000);
    let reader = thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.map(|line| hear.send(line)).take_while(Result::is_ok).count()
    });
    let mut count = 0;
    while count < FLOOD {
        let line = heard.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("it stops at {count}: {}", client.log()));
        count += usize::from(line.contains("notifications/flood"));
    }
    drop(heard);
    client.hang_up(&env);
    reader.join().expect("it has ended");
}
