//! Owns the export of spans: the receiver, from `--otlp`, `[gateway] otlp` and OpenTelemetry's variables, which alone
//! send nothing; and the spans that wait: batches, one request at a time, retries after failures. Driven by the command
//! line and the daemon's export task. Never makes a request itself.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::spans::{ENDING, Ids, Span, beginning, encode};
use crate::audit::redact::excerpt;
use crate::exponential_wait::{ExponentialWait, spread};
use crate::limits::{
    SPAN_BATCH_MAX, SPAN_BATCH_WAIT, SPANS_LOST_QUIET, SPANS_RETRY_DELAY, SPANS_RETRY_DELAY_MAX,
    SPANS_TRIES_MAX, SPANS_WAITING_MAX,
};
use crate::mcp::json as raw;
use crate::random::Random;
use crate::text::percent_decoded;
use crate::time::{Stamp, Time};

/// Something that happened.
#[derive(Debug)]
pub enum ExportInput {
    /// A span is over.
    Ended(Box<Span>, Stamp),
    /// So many found no place on their way.
    Lost(u64),
    /// What became of the request.
    Answered(ExportOutcome),
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
    /// Nothing more comes: what is left goes now, and is tried once.
    Close,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportOutcome {
    /// It was taken.
    Taken {
        /// But for so many spans.
        rejected: u64,
        /// Why, in the receiver's words.
        why: String,
    },
    /// It was not.
    Refused {
        /// In words.
        why: String,
        /// Whether another try may end otherwise.
        again: bool,
        /// When to try again, as the receiver says.
        after: Option<Duration>,
    },
}

/// Something that must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportEffect {
    /// Send this, and say what became of it.
    Send(String),
    /// A person should know this.
    Log(String),
}

/// The machine.
#[derive(Debug)]
pub struct Export {
    ids: Ids,
    jitter: Random,
    beginning: String,
    /// In the words that they are sent in, each with the moment when it came.
    waiting: VecDeque<(Time, String)>,
    batch: Option<Batch>,
    /// How many requests in a row have failed.
    failures: u32,
    /// Nothing is sent before.
    not_before: Option<Time>,
    /// Spans that were lost, and not said yet.
    lost: u64,
    lost_said: Option<Time>,
    is_closing: bool,
    effects: Vec<ExportEffect>,
}

/// What is being sent, or sent again.
#[derive(Debug)]
struct Batch {
    body: String,
    spans: usize,
    tries: u32,
    is_under_way: bool,
}

impl ExportOutcome {
    /// What an answer means. `retry_after` is the header of that name.
    pub fn of_http(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let again = match status {
            200..=299 => {
                let part = |key| raw::get(body, &["partialSuccess", key]);
                // A number of 64 bits is a text in this encoding; some write it as a number.
                let count = part("rejectedSpans").map(|raw| String::from_utf8_lossy(raw));
                let count = count.and_then(|text| text.trim_matches('"').parse().ok());
                let why = part("errorMessage").and_then(raw::text).unwrap_or_default();
                return Self::Taken { rejected: count.unwrap_or(0), why: excerpt(why.as_bytes()) };
            }
            // OTLP names these, and says of all others that they stay as they are.
            429 | 502 | 503 | 504 => true,
            _ => false,
        };
        let said = excerpt(body);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let after = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        Self::Refused { why: format!("it answered with {status}{said}"), again, after }
    }
}

impl Export {
    /// `seed` has to be unique: all ids come from it.
    pub fn new(destination: &Destination, version: &str, seed: u128) -> Self {
        Self {
            ids: Ids::new(seed),
            jitter: Random::new(seed as u64),
            beginning: beginning(&destination.resource, version),
            waiting: VecDeque::new(),
            batch: None,
            failures: 0,
            not_before: None,
            lost: 0,
            lost_said: None,
            is_closing: false,
            effects: Vec::new(),
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: ExportInput) -> Vec<ExportEffect> {
        match input {
            ExportInput::Ended(span, at) => self.ended(now, &span, at),
            ExportInput::Lost(count) => self.lost += count,
            ExportInput::Answered(answer) => self.answered(now, answer),
            ExportInput::Wakeup => {}
            ExportInput::Close => (self.is_closing, self.not_before) = (true, None),
        }
        self.send(now);
        self.tell_lost(now);
        std::mem::take(&mut self.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let due = match &self.batch {
            Some(batch) if batch.is_under_way => return None,
            Some(_) => Time::ZERO,
            None if self.waiting.len() >= SPAN_BATCH_MAX => Time::ZERO,
            None => self.waiting.front()?.0 + SPAN_BATCH_WAIT,
        };
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    /// Whether all is sent, or given up.
    pub fn is_done(&self) -> bool {
        self.is_closing && self.batch.is_none() && self.waiting.is_empty()
    }

    /// What there is to say when there is no time for more.
    pub fn end(self) -> Option<String> {
        let under_way = self.batch.map_or(0, |batch| batch.spans);
        let left = self.lost + (under_way + self.waiting.len()) as u64;
        (left > 0).then(|| lost_text(left))
    }

    fn ended(&mut self, now: Time, span: &Span, at: Stamp) {
        if self.waiting.len() >= SPANS_WAITING_MAX {
            self.lost += 1;
            return;
        }
        // Here, and not when they are sent: hundreds at once would hold up others.
        self.waiting.push_back((now, encode(span, at, &mut self.ids)));
    }

    fn send(&mut self, now: Time) {
        if self.batch.is_none() {
            let is_due = |(came, _): &(Time, String)| *came + SPAN_BATCH_WAIT <= now;
            let is_full = self.waiting.len() >= SPAN_BATCH_MAX;
            let is_due =
                self.waiting.front().is_some_and(|oldest| is_due(oldest) || self.is_closing);
            if !is_full && !is_due {
                return;
            }
        }
        if self.not_before.is_some_and(|at| at > now) {
            return;
        }
        let batch = match self.batch.take() {
            Some(batch) if batch.is_under_way => return self.batch = Some(batch),
            Some(batch) => Batch { is_under_way: true, tries: batch.tries + 1, ..batch },
            None => {
                let spans = self.waiting.len().min(SPAN_BATCH_MAX);
                let words: Vec<String> =
                    self.waiting.drain(..spans).map(|(_, span)| span).collect();
                let body = [&self.beginning, words.join(",").as_str(), ENDING].concat();
                Batch { body, spans, tries: 1, is_under_way: true }
            }
        };
        self.effects.push(ExportEffect::Send(batch.body.clone()));
        self.batch = Some(batch);
    }

    fn answered(&mut self, now: Time, answer: ExportOutcome) {
        let Some(mut batch) = self.batch.take() else { return };
        match answer {
            ExportOutcome::Taken { rejected, why } => {
                if rejected > 0 {
                    self.lost += rejected.min(batch.spans as u64);
                    self.effects.push(ExportEffect::Log(format!(
                        "OpenTelemetry: the receiver has not taken {rejected} spans: {why}"
                    )));
                }
                if std::mem::take(&mut self.failures) > 0 {
                    let text = "OpenTelemetry: the receiver takes spans again".to_owned();
                    self.effects.push(ExportEffect::Log(text));
                }
                self.not_before = None;
            }
            ExportOutcome::Refused { why, again, after } => {
                self.failures += 1;
                if self.failures == 1 {
                    let then = if again { "; it is tried again" } else { "" };
                    let text = format!("OpenTelemetry: spans cannot be sent: {why}{then}");
                    self.effects.push(ExportEffect::Log(text));
                }
                if !self.is_closing {
                    self.not_before = Some(now + self.delay(after));
                }
                if again && batch.tries < SPANS_TRIES_MAX && !self.is_closing {
                    batch.is_under_way = false;
                    self.batch = Some(batch);
                } else {
                    self.lost += batch.spans as u64;
                }
            }
        }
    }

    fn delay(&mut self, after: Option<Duration>) -> Duration {
        let waits = ExponentialWait::doubling(SPANS_RETRY_DELAY, SPANS_RETRY_DELAY_MAX);
        // A receiver may ask for any time: it is bounded before it is multiplied.
        let wait = waits.after(self.failures - 1).max(after.unwrap_or_default());
        spread(wait.min(SPANS_RETRY_DELAY_MAX), 0.25, self.jitter.unit()).min(SPANS_RETRY_DELAY_MAX)
    }

    fn tell_lost(&mut self, now: Time) {
        let is_quiet = self.lost_said.is_some_and(|said| now.since(said) < SPANS_LOST_QUIET);
        if self.lost > 0 && (!is_quiet || self.is_done()) {
            self.lost_said = Some(now);
            let text = lost_text(std::mem::take(&mut self.lost));
            self.effects.push(ExportEffect::Log(text));
        }
    }
}

fn lost_text(count: u64) -> String {
    match count {
        1 => "OpenTelemetry: 1 span is lost".to_owned(),
        count => format!("OpenTelemetry: {count} spans are lost"),
    }
}

/// The receiver of spans, and the resource that they are of.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    /// The whole URL.
    pub url: String,
    /// Headers of each request; they can be secrets.
    pub headers: Vec<(String, String)>,
    /// The attributes of the resource: `service.name` and so on.
    pub resource: Vec<(String, String)>,
}

impl fmt::Debug for Destination {
    /// Without URL and headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Why there is no receiver although one is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// The URL is invalid. It may be secret.
    #[error(
        "spans can only be sent to a URL that begins with `http://` or `https://`, such as \
         `http://127.0.0.1:4318`"
    )]
    Url,
    /// Neither the flag nor a variable has a URL.
    #[error(
        "`--otlp` has no URL, and `{ENDPOINT}` is not set: write `--otlp http://127.0.0.1:4318`"
    )]
    Missing,
    /// A variable has not the form `name=value,name=value`. Its value may be secret.
    #[error("`{0}` is not of the form `name=value,name=value`")]
    List(&'static str),
    /// Another protocol is asked for.
    #[error(
        "`{0}` is `{1}`, but spans are sent over HTTP only, as JSON: set it to `http/json`, with the \
         port of the receiver that takes HTTP (usually 4318)"
    )]
    Protocol(&'static str, String),
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The path below the base URL, by the protocol.
const PATH: &str = "/v1/traces";

impl Destination {
    /// The receiver at a URL, or, where that is empty, the one that the variables name. None where the variables
    /// turn it off.
    pub fn of<'a>(
        given: &str,
        variable: impl Fn(&str) -> Option<&'a str>,
        version: &str,
    ) -> Result<Option<Self>, DestinationError> {
        // An empty one counts as none.
        let variable = |name: &str| variable(name).map(str::trim).filter(|text| !text.is_empty());
        let is_off = variable("OTEL_SDK_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|names| names == "none");
        let url = match given {
            "" if is_off => return Ok(None),
            "" => match (variable(TRACES_ENDPOINT), variable(ENDPOINT)) {
                // By the specification that one has the path already.
                (Some(whole), _) => whole.to_owned(),
                (None, Some(base)) => below(base),
                (None, None) => return Err(DestinationError::Missing),
            },
            base => below(base),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(DestinationError::Url);
        }
        let first =
            |one, other| [one, other].into_iter().find_map(|name| Some((name, variable(name)?)));
        if let Some((name, value @ "grpc")) =
            first(TRACES_PROTOCOL, PROTOCOL).filter(|_| given.is_empty())
        {
            return Err(DestinationError::Protocol(name, value.to_owned()));
        }
        let headers = match first(TRACES_HEADERS, HEADERS) {
            Some((name, value)) => list(name, value)?,
            None => Vec::new(),
        };
        let mut resource = match variable(RESOURCE) {
            Some(value) => list(RESOURCE, value)?,
            None => Vec::new(),
        };
        let named = variable("OTEL_SERVICE_NAME");
        if named.is_some() {
            resource.retain(|(key, _)| key != "service.name");
        }
        for (key, value) in
            [("service.name", named.unwrap_or("afresh-gateway")), ("service.version", version)]
        {
            if !resource.iter().any(|(known, _)| known == key) {
                resource.push((key.to_owned(), value.to_owned()));
            }
        }
        Ok(Some(Self { url, headers, resource }))
    }
}

fn below(base: &str) -> String {
    let base = base.trim_end_matches('/');
    match base.ends_with(PATH) {
        true => base.to_owned(),
        false => format!("{base}{PATH}"),
    }
}

/// Reads `name=value,name=value`, in which `%20` stands for a blank.
fn list(name: &'static str, text: &str) -> Result<Vec<(String, String)>, DestinationError> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| Some((key.to_owned(), percent_decoded(value.trim())?)))?
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| pair(part).ok_or(DestinationError::List(name))).collect()
}
