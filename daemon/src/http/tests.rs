//! Requests to real listeners on loopback, good and bad ones.
//!
//! `testing/` has a root certificate of nobody, and a server's that it signed, with its key: good for
//! `localhost`, trusted by these tests alone.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::error_chain::chain;
use crate::store::testing::TempDir;

const LIMITS: Limits = Limits { time_max: Duration::from_secs(30), body_bytes_max: 10 };

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/testing/root.pem");

fn acceptor() -> TlsAcceptor {
    let pem = include_bytes!("testing/server.pem");
    let chain = CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Answers each connection with these bytes, once it has got the head of a request. Returns its port, and
/// the task that has to be held.
async fn serve(answer: &'static [u8], tls: Option<TlsAcceptor>) -> (u16, JoinSet<()>) {
    serve_at("127.0.0.1:0", answer, tls).await
}

async fn serve_at(
    address: &str,
    answer: &'static [u8],
    tls: Option<TlsAcceptor>,
) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let mut stream: Box<dyn Duplex> = match &tls {
                None => Box::new(stream),
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => Box::new(stream),
                    // The other end does not trust us.
                    Err(_) => continue,
                },
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer).await.ok();
            stream.flush().await.ok();
        }
    });
    (port, tasks)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

async fn get(
    client: &HttpClient,
    url: &str,
    headers: &[(String, String)],
) -> Result<BufferedResponse, String> {
    let request = Request { method: "GET", url, headers, body: String::new() };
    client.request(request, LIMITS).await.map_err(|error| chain(&error))
}

#[test]
fn an_answer_is_read_up_to_its_bound() {
    run(async {
        let answer =
            b"HTTP/1.1 418 Tea\r\nretry-after: 7\r\ncontent-length: 20\r\n\r\n01234567890123456789";
        let (port, _tasks) = serve(answer, None).await;
        let client = HttpClient::new(None);
        for host in ["127.0.0.1", "localhost"] {
            let answer = get(&client, &format!("http://{host}:{port}/x"), &[]).await.unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (418, &b"0123456789"[..]));
            assert_eq!(answer.header("retry-after"), Some("7"));
            assert_eq!(answer.header("location"), None);
        }
    });
}

#[test]
fn what_is_no_answer_is_an_error_without_the_path() {
    run(async {
        let cases: [(&'static [u8], &str); 3] = [
            (b"HTTP/1.1 200 OK\r\n", "broke the connection off"),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "broke the connection off"),
            (b"", "broke the connection off"),
        ];
        let client = HttpClient::new(None);
        for (answer, said) in cases {
            let (port, _tasks) = serve(answer, None).await;
            let error =
                get(&client, &format!("http://127.0.0.1:{port}/s3cr3t?k=s3cr3t"), &[]).await;
            let error = error.unwrap_err();
            assert!(error.contains(said) && !error.contains("s3cr3t"), "{error}");
        }
        // A head without end.
        let head: &'static [u8] =
            [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &[b'x'; 100_000]].concat().leak();
        let (port, _tasks) = serve(head, None).await;
        assert!(get(&client, &format!("http://127.0.0.1:{port}/"), &[]).await.is_err());
        // Nobody there, and nobody who answers.
        let error = get(&client, "http://127.0.0.1:1/s3cr3t", &[]).await.unwrap_err();
        assert!(error.starts_with("cannot connect to `127.0.0.1:1`"), "{error}");
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let request = Request { method: "GET", url: &url, headers: &[], body: String::new() };
        let limits = Limits { time_max: Duration::from_millis(50), ..LIMITS };
        let error = client.request(request, limits).await.unwrap_err();
        assert!(matches!(error, HttpError::Silent { .. }), "{error}");
    });
}

#[test]
fn urls_and_headers_that_cannot_be_meant_are_refused() {
    run(async {
        let client = HttpClient::new(None);
        for (url, said) in [
            ("", "is not one"),
            ("/path", "does not begin with"),
            ("ftp://host/", "does not begin with"),
            ("http://", "is not one"),
            ("http://user:s3cr3t@host/", "has a user in it"),
            ("http://ho st/", "is not one"),
            ("http://:80/", "has no host"),
        ] {
            let error = get(&client, url, &[]).await.unwrap_err();
            assert!(error.contains(said) && !error.contains("s3cr3t"), "{url}: {error}");
        }
        for (name, value) in [
            ("content-length", "0"),
            ("Transfer-Encoding", "chunked"),
            ("x y", "1"),
            ("x", "a\r\nb: c"),
            ("", "1"),
        ] {
            let headers = [(name.to_owned(), value.to_owned())];
            let error = get(&client, "http://127.0.0.1:1/", &headers).await.unwrap_err();
            assert!(error.contains("cannot be sent"), "{name}: {error}");
        }
    });
}

#[test]
fn a_secure_connection_needs_somebody_who_is_trusted() {
    run(async {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let (port, _tasks) = serve(answer, Some(acceptor())).await;
        let url = |host: &str| format!("https://{host}:{port}/");
        let client = HttpClient::new(Some(ROOT.into()));
        for host in ["localhost", "127.0.0.1"] {
            assert_eq!(get(&client, &url(host), &[]).await.unwrap().body, b"ok");
        }
        // The certificate is for another name.
        let (elsewhere, _elsewhere) = serve_at("127.0.0.2:0", answer, Some(acceptor())).await;
        let other_name = format!("https://127.0.0.2:{elsewhere}/");
        let error = get(&client, &other_name, &[]).await.unwrap_err();
        assert!(error.starts_with("no secure connection to"), "{error}");
        // Nobody has signed it that we trust.
        let dir = TempDir::new();
        let other = dir.join("other.pem");
        let server = include_str!("testing/server.pem").split("-----BEGIN PRIVATE").next().unwrap();
        std::fs::write(&other, server).unwrap();
        let error = get(&HttpClient::new(Some(other)), &url("localhost"), &[]).await.unwrap_err();
        assert!(error.contains("the handshake failed"), "{error}");
        // No certificates at all.
        std::fs::write(dir.join("empty.pem"), "nothing").unwrap();
        let client = HttpClient::new(Some(dir.join("empty.pem")));
        let error = get(&client, &url("localhost"), &[]).await.unwrap_err();
        assert!(error.contains("no root certificates were found"), "{error}");
        let error = get(&HttpClient::new(Some(dir.join("gone"))), &url("localhost"), &[]).await;
        assert!(error.unwrap_err().contains("cannot read the root certificates in"));
    });
}
