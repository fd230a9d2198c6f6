//! Owns the task that sends the spans of calls. Driven by the loop, which hands spans over. Never makes the loop wait.
//!
//! ```text
//!   the loop ──handed over, never waits──▶ queue ──▶ sender: core's machine ──▶ one request at a time
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afresh_core::gateway::otlp_export::{
    Destination, Export, ExportEffect, ExportInput, ExportOutcome,
};
use afresh_core::gateway::spans::Span;
use afresh_core::limits::{
    SPANS_ANSWER_BYTES_MAX, SPANS_CLOSE_WAIT, SPANS_REQUEST_WAIT, SPANS_UNHEARD_MAX,
};
use afresh_core::time::{Stamp, Time};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{now, seed, sleep_until};
use crate::error_chain::chain;
use crate::http::{HttpClient, HttpError, Limits, Request};
use crate::os;
use crate::output::Output;

/// The loop's end. Without a destination it takes nothing.
#[derive(Default)]
pub(super) struct Spans {
    /// None where spans are not wanted, or no more come: what is left is sent then.
    pub(super) queue: Option<mpsc::Sender<(Box<Span>, Stamp)>>,
    /// Those that found no place in it.
    lost: Arc<AtomicU64>,
    sender: JoinSet<()>,
}

impl Spans {
    /// `certificates` is a file of root certificates that is used in place of the system's.
    pub(super) fn start(
        destination: Option<Destination>,
        version: &str,
        certificates: Option<PathBuf>,
        stderr: &Output,
    ) -> Self {
        let mut spans = Self::default();
        let Some(destination) = destination else { return spans };
        let seed = os::random_bytes().map_or_else(|_| u128::from(seed()), u128::from_ne_bytes);
        let (queue, inbox) = mpsc::channel(SPANS_UNHEARD_MAX);
        let export = Export::new(&destination, version, seed);
        let lost = Arc::clone(&spans.lost);
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(destination.headers);
        let (client, url) = (HttpClient::new(certificates), destination.url);
        let post = Arc::new(SpanSender { client, url, headers });
        let stderr = stderr.clone();
        let (start, under_way) = (Instant::now(), JoinSet::new());
        let sender = ExportTask { export, start, inbox, lost, post, under_way, stderr };
        spans.sender.spawn(sender.run());
        spans.queue = Some(queue);
        spans
    }

    /// Hands a span over that has just ended. Never waits.
    pub(super) fn take(&self, span: Box<Span>) {
        if let Some(queue) = &self.queue
            && queue.try_send((span, now())).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all is sent, or its time is over.
    pub(super) async fn finish(mut self) {
        self.queue = None;
        while self.sender.join_next().await.is_some() {}
    }
}

/// What requests are made with.
struct SpanSender {
    client: HttpClient,
    url: String,
    headers: Vec<(String, String)>,
}

impl SpanSender {
    async fn send(&self, body: String) -> ExportOutcome {
        let request = Request { method: "POST", url: &self.url, headers: &self.headers, body };
        let limits =
            Limits { time_max: SPANS_REQUEST_WAIT, body_bytes_max: SPANS_ANSWER_BYTES_MAX };
        match self.client.request(request, limits).await {
            Ok(answer) => {
                ExportOutcome::of_http(answer.status, answer.header("retry-after"), &answer.body)
            }
            Err(error) => {
                let again = !matches!(error, HttpError::Url(_) | HttpError::Header(_));
                ExportOutcome::Refused { why: chain(&error), again, after: None }
            }
        }
    }
}

/// Owns the machine, and does what it says.
struct ExportTask {
    export: Export,
    start: Instant,
    inbox: mpsc::Receiver<(Box<Span>, Stamp)>,
    lost: Arc<AtomicU64>,
    post: Arc<SpanSender>,
    /// One at most.
    under_way: JoinSet<ExportOutcome>,
    stderr: Output,
}

impl ExportTask {
    async fn run(mut self) {
        let mut ends_at: Option<Instant> = None;
        while !self.export.is_done() {
            let wakeup = self.export.next_wakeup().map(|at| self.start + at.since_start());
            let input = tokio::select! {
                span = self.inbox.recv(), if ends_at.is_none() => match span {
                    Some((span, at)) => ExportInput::Ended(span, at),
                    None => {
                        ends_at = Some(Instant::now() + SPANS_CLOSE_WAIT);
                        ExportInput::Close
                    }
                },
                Some(done) = self.under_way.join_next() => ExportInput::Answered(done.unwrap_or_else(|_| {
                    let why = "afresh itself failed; please report it".to_owned();
                    ExportOutcome::Refused { why, again: false, after: None }
                })),
                () = sleep_until(wakeup) => ExportInput::Wakeup,
                () = sleep_until(ends_at) => break,
            };
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.input(ExportInput::Lost(lost));
            }
            self.input(input);
        }
        self.under_way.shutdown().await;
        if let Some(text) = self.export.end() {
            self.stderr.log(&text);
        }
    }

    fn input(&mut self, input: ExportInput) {
        let now = Time::after_start(self.start.elapsed());
        for effect in self.export.handle(now, input) {
            match effect {
                ExportEffect::Send(body) => {
                    let post = Arc::clone(&self.post);
                    self.under_way.spawn(async move { post.send(body).await });
                }
                ExportEffect::Log(text) => self.stderr.log(&text),
            }
        }
    }
}
