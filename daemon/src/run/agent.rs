//! Owns the process of one session: its pipes or its port, and the machine that speaks the agent's protocol. Driven by
//! [`Sessions`](super::session::Sessions). Never spawns or stops the process.

use std::time::Duration;

use afresh_core::agent::{
    AgentEvent, AgentKind, AgentSession, Effect, Input, Instruction, RequestId, Speaks,
};
use afresh_core::limits::{AGENT_ANSWER_WAIT, AGENT_LINE_BYTES_MAX, AGENT_STDIN_MAX};
use afresh_core::run::Attempt;
use afresh_core::service::Exit;
use afresh_core::sse::SseParser;
use afresh_core::stop_ladder::StopLadder;
use afresh_core::time::Stamp;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::agent_output::{AgentOutput, OutputBatch, read_lines};
use super::session_log::SessionLog;
use crate::http::{HttpClient, Limits, Pool, Request};
use crate::os::PipeWriter;
use crate::process::InstanceStdio;

/// A session whose process runs, or is about to.
pub(super) struct Agent {
    pub(super) attempt: Attempt,
    kind: AgentKind,
    machine: Box<dyn AgentSession + Send>,
    pub(super) speaks: Speaks,
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    tasks: JoinSet<()>,
    sender: mpsc::Sender<OutputBatch>,
    pub(super) log: SessionLog,
    /// Outputs that are not at their end.
    outputs: u8,
    /// How its process ended, while its last words are waited for.
    pub(super) exit: Option<(Exit, Instant)>,
    /// When the machine wants to be woken.
    pub(super) wake_at: Option<Instant>,
    /// The steps of its stop, once that has begun.
    pub(super) stop: Option<StopLadder>,
}

impl Agent {
    pub(super) fn new(
        attempt: Attempt,
        kind: AgentKind,
        machine: Box<dyn AgentSession + Send>,
        stdio: InstanceStdio,
        sender: mpsc::Sender<OutputBatch>,
        log: SessionLog,
    ) -> Self {
        let start = machine.start();
        let mut tasks = JoinSet::new();
        let (stdin, queue) = mpsc::channel(AGENT_STDIN_MAX);
        stdin.try_send(start.stdin).ok();
        tasks.spawn(feed(stdio.stdin, queue));
        let stdin = (start.speaks == Speaks::Lines).then_some(stdin);
        let is_log = matches!(start.speaks, Speaks::Http { .. });
        let log_of = |is_log: bool| if is_log { None } else { Some(kind) };
        tasks.spawn(read_lines(attempt, stdio.stdout, sender.clone(), log_of(is_log)));
        tasks.spawn(read_lines(attempt, stdio.stderr, sender.clone(), log_of(true)));
        Self {
            attempt,
            kind,
            machine,
            speaks: start.speaks,
            stdin,
            tasks,
            sender,
            log,
            outputs: 2,
            exit: None,
            wake_at: None,
            stop: None,
        }
    }

    /// Its process is gone: when its last words have come, or are late, it has ended.
    pub(super) fn exited(&mut self, exit: Exit) {
        self.exit = Some((exit, Instant::now() + LAST_WORDS));
    }

    /// Whether all is heard that there was to hear.
    pub(super) fn is_over(&self) -> bool {
        self.exit.as_ref().is_some_and(|(_, until)| self.outputs == 0 || *until <= Instant::now())
    }

    /// When something is to be done, if nothing happens before.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        match &self.exit {
            Some((_, until)) => Some(*until),
            None => self.wake_at,
        }
    }

    pub(super) fn tell(&mut self, now: Stamp, told: &Instruction) -> Vec<AgentEvent> {
        self.log.told(now, told);
        self.give(now, Input::Told(told))
    }

    pub(super) fn wake(&mut self, now: Stamp) -> Vec<AgentEvent> {
        self.wake_at = None;
        self.give(now, Input::Wakeup)
    }

    pub(super) fn take(&mut self, now: Stamp, said: AgentOutput) -> Vec<AgentEvent> {
        match said {
            // It comes again whole.
            AgentOutput::Piece => Vec::new(),
            AgentOutput::Line(line) => {
                self.log.line(now, &line);
                self.give(now, Input::Line(&line))
            }
            AgentOutput::Closed => {
                self.outputs = self.outputs.saturating_sub(1);
                Vec::new()
            }
            AgentOutput::Log(line) => {
                self.log.line(now, &line);
                Vec::new()
            }
            AgentOutput::TooLong(bytes) => {
                let text = format!("a line of {bytes} bytes, which is passed over");
                self.log.note(now, &text);
                vec![AgentEvent::Strange(text)]
            }
            AgentOutput::Event(data) => {
                self.log.line(now, &data);
                self.give(now, Input::Event(&data))
            }
            AgentOutput::Answer { request, status, body } => {
                self.give(now, Input::Answer { request, status, body: &body })
            }
            AgentOutput::Failed { request, why } => {
                self.give(now, Input::Failed { request, why: &why })
            }
        }
    }

    /// Lets the machine decide, and does what it says. Returns what was heard.
    pub(super) fn give(&mut self, now: Stamp, input: Input<'_>) -> Vec<AgentEvent> {
        let mut heard = Vec::new();
        for effect in self.machine.handle(now, input) {
            match effect {
                Effect::Write(bytes) => {
                    if let Some(stdin) = &self.stdin {
                        // One that does not read is silent too, and ended for that.
                        stdin.try_send(bytes).ok();
                    }
                }
                Effect::CloseStdin => self.stdin = None,
                Effect::Request { request, method, path, body } => {
                    self.request(request, method, &path, body);
                }
                Effect::Listen { path } => self.listen(&path),
                Effect::WakeAfter(time) => self.wake_at = Some(Instant::now() + time),
                Effect::Heard(it) => heard.push(it),
            }
        }
        heard
    }

    /// The address of a server, and the headers of each request to it.
    fn server(&self, path: &str) -> (String, Vec<(String, String)>) {
        let (port, secret) = match &self.speaks {
            Speaks::Http { port, authorization } => (*port, authorization.clone()),
            Speaks::Lines | Speaks::Output => (0, None),
        };
        let header = secret.map(|secret| ("authorization".to_owned(), secret));
        (format!("http://127.0.0.1:{port}{path}"), header.into_iter().collect())
    }

    fn request(&mut self, request: RequestId, method: &'static str, path: &str, body: Vec<u8>) {
        let (url, mut headers) = self.server(path);
        let (attempt, sender) = (self.attempt, self.sender.clone());
        self.tasks.spawn(async move {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            let body = String::from_utf8_lossy(&body).into_owned();
            let asked = Request { method, url: &url, headers: &headers, body };
            let limits =
                Limits { time_max: AGENT_ANSWER_WAIT, body_bytes_max: AGENT_LINE_BYTES_MAX };
            let said = match client().request(asked, limits).await {
                Ok(answer) => {
                    AgentOutput::Answer { request, status: answer.status, body: answer.body }
                }
                Err(error) => AgentOutput::Failed {
                    request: Some(request),
                    why: crate::error_chain::chain(&error),
                },
            };
            sender.send(OutputBatch { attempt, outputs: vec![said] }).await.ok();
        });
        while self.tasks.try_join_next().is_some() {}
    }

    fn listen(&mut self, path: &str) {
        let (url, headers) = self.server(path);
        let (attempt, kind, sender) = (self.attempt, self.kind, self.sender.clone());
        self.tasks.spawn(async move {
            let why = follow(&url, headers, (attempt, kind), &sender).await;
            let said = AgentOutput::Failed { request: None, why };
            sender.send(OutputBatch { attempt, outputs: vec![said] }).await.ok();
        });
    }
}

/// What `https` needs is never made: all of this is on this machine.
fn client() -> &'static HttpClient {
    static CLIENT: std::sync::OnceLock<HttpClient> = std::sync::OnceLock::new();
    CLIENT.get_or_init(|| HttpClient::new(None))
}

/// Hands on the events of a server, and returns why there are no more.
async fn follow(
    url: &str,
    mut headers: Vec<(String, String)>,
    (attempt, kind): (Attempt, AgentKind),
    sender: &mpsc::Sender<OutputBatch>,
) -> String {
    let pool = match Pool::new(client(), url) {
        Ok(pool) => pool,
        Err(error) => return error.to_string(),
    };
    headers.push(("accept".to_owned(), "text/event-stream".to_owned()));
    let asked = Request { method: "GET", url, headers: &headers, body: String::new() };
    let mut streamed = match timeout(AGENT_ANSWER_WAIT, pool.send(asked)).await {
        Ok(Ok(streamed)) if streamed.status == 200 => streamed,
        Ok(Ok(streamed)) => return format!("it answered with status {}", streamed.status),
        Ok(Err(not_sent)) => return not_sent.error.to_string(),
        Err(_) => return "it did not answer in time".to_owned(),
    };
    let mut stream = SseParser::new(AGENT_LINE_BYTES_MAX);
    while let Some(bytes) = streamed.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return pool.broken(error).to_string(),
        };
        let said = stream.push(&bytes).into_iter().map(|event| match event.is_too_long {
            true => AgentOutput::TooLong(AGENT_LINE_BYTES_MAX),
            false if kind.is_delta(&event.data) => AgentOutput::Piece,
            false => AgentOutput::Event(event.data),
        });
        let said: Vec<AgentOutput> = said.collect();
        if !said.is_empty() && sender.send(OutputBatch { attempt, outputs: said }).await.is_err() {
            return "afresh no longer reads its output".to_owned();
        }
    }
    "it has ended".to_owned()
}

/// Writes what is to be said; the pipe is closed with the queue.
async fn feed(mut stdin: PipeWriter, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = queue.recv().await {
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// How long words of a session that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);
