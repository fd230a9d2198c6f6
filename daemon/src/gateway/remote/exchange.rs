//! Performs one exchange: a request and its response, passed to the link as it comes. Driven by the link. Never
//! retries.

use std::sync::Arc;
use std::time::Duration;

use afresh_core::gateway::remote::{
    ExchangeFailure, ExchangeId, HttpReply, HttpRequest, Method, RemoteInput,
};
use afresh_core::limits::{MESSAGE_BYTES_MAX, REFUSAL_BYTES_MAX, STREAM_LINGER};
use afresh_core::sse::SseParser;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::error_chain::chain;
use crate::http::{HttpError, Pool, Request, SendError, StreamedResponse};

/// Carries an exchange out. Who hears nothing any more says so by `finished`: what is left is read for a
/// while, so that the connection can be used again.
pub(super) async fn run(
    pool: Arc<Pool>,
    headers: Arc<Vec<(String, String)>>,
    exchange: ExchangeId,
    ask: HttpRequest,
    news: mpsc::Sender<RemoteInput>,
    mut finished: oneshot::Receiver<()>,
) {
    let carried_out = async {
        let mut answer = match send(&pool, &headers, &ask).await {
            Ok(answer) => answer,
            Err(SendError { error, was_sent }) => {
                return Err(failed(exchange, was_sent, &error));
            }
        };
        drop(ask);
        let last = match is_stream(&answer) {
            true => listen(&mut answer, exchange, &news, &mut finished).await?,
            false => Some(read(&mut answer, exchange).await?),
        };
        Ok((answer, last))
    };
    let last = match carried_out.await {
        Err(last) => Some(last),
        Ok((answer, last)) => {
            pool.keep(answer).await;
            last
        }
    };
    if let Some(last) = last {
        news.send(last).await.ok();
    }
}

/// Sends a request, with the headers of the configuration and those of its kind.
pub(super) async fn send(
    pool: &Pool,
    configured: &[(String, String)],
    ask: &HttpRequest,
) -> Result<StreamedResponse, SendError> {
    let (method, own): (&str, &[(&str, &str)]) = match ask.method {
        Method::Post => (
            "POST",
            &[
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ],
        ),
        Method::Get => ("GET", &[("accept", "text/event-stream")]),
        Method::Delete => ("DELETE", &[]),
    };
    let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let asked = ask.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let headers: Vec<(String, String)> =
        configured.iter().cloned().chain(own).chain(asked).collect();
    let body = String::from_utf8_lossy(&ask.body).into_owned();
    pool.send(Request { method, url: &ask.url, headers: &headers, body }).await
}

fn is_stream(answer: &StreamedResponse) -> bool {
    let kind = answer.header("content-type").unwrap_or_default().trim_start();
    let wanted = "text/event-stream";
    answer.status() == 200
        && kind.get(..wanted.len()).is_some_and(|it| it.eq_ignore_ascii_case(wanted))
}

/// Passes on the events of a stream. Returns its end, unless the link has finished it.
async fn listen(
    answer: &mut StreamedResponse,
    exchange: ExchangeId,
    news: &mpsc::Sender<RemoteInput>,
    finished: &mut oneshot::Receiver<()>,
) -> Result<Option<RemoteInput>, RemoteInput> {
    let session = answer.header("mcp-session-id").map(str::to_owned);
    news.send(RemoteInput::Opened { exchange, session }).await.ok();
    let mut stream = SseParser::new(MESSAGE_BYTES_MAX);
    loop {
        let piece = tokio::select! {
            piece = answer.next() => piece,
            _ = &mut *finished => {
                timeout(STREAM_LINGER, async { while let Some(Ok(_)) = answer.next().await {} }).await.ok();
                return Ok(None);
            }
        };
        let Some(piece) = piece else { return Ok(Some(RemoteInput::Ended { exchange })) };
        let piece = piece.map_err(|error| failed(exchange, true, &error))?;
        for event in stream.push(&piece) {
            if news.send(RemoteInput::Event { exchange, event }).await.is_err() {
                return Ok(None);
            }
        }
    }
}

/// Reads an answer that is no stream.
async fn read(
    answer: &mut StreamedResponse,
    exchange: ExchangeId,
) -> Result<RemoteInput, RemoteInput> {
    let bytes_max = if answer.status() < 300 { MESSAGE_BYTES_MAX } else { REFUSAL_BYTES_MAX };
    let (mut body, mut is_too_long) = (Vec::new(), false);
    while let Some(piece) = answer.next().await {
        let piece = piece.map_err(|error| failed(exchange, true, &error))?;
        if body.len() + piece.len() > bytes_max {
            is_too_long = true;
            break;
        }
        body.extend_from_slice(&piece);
    }
    let header = |name| answer.header(name).map(str::to_owned);
    let reply = HttpReply {
        status: answer.status(),
        session: header("mcp-session-id"),
        retry_after: header("retry-after")
            .and_then(|text| text.trim().parse().map(Duration::from_secs).ok()),
        location: header("location"),
        body,
        is_too_long,
    };
    Ok(RemoteInput::Replied { exchange, reply })
}

fn failed(exchange: ExchangeId, was_sent: bool, error: &HttpError) -> RemoteInput {
    RemoteInput::Failed { exchange, failure: ExchangeFailure { was_sent, why: chain(error) } }
}
