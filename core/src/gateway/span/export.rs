//! Owns the spans that wait to be sent: batches, one request at a time, retries after failures. Driven by the daemon's
//! export task. Never makes a request itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Destination, Span, otlp};
use crate::audit::redact::excerpt;
use crate::backoff::{ExponentialWait, spread};
use crate::limits::{
    SPAN_BATCH_MAX, SPAN_BATCH_WAIT, SPANS_LOST_QUIET, SPANS_RETRY_DELAY, SPANS_RETRY_DELAY_MAX,
    SPANS_TRIES_MAX, SPANS_WAITING_MAX,
};
use crate::mcp::json as raw;
use crate::random::Random;
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
    ids: otlp::Ids,
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
            ids: otlp::Ids::new(seed),
            jitter: Random::new(seed as u64),
            beginning: otlp::beginning(&destination.resource, version),
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
        self.waiting.push_back((now, otlp::span(span, at, &mut self.ids)));
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
                let body = [&self.beginning, words.join(",").as_str(), otlp::ENDING].concat();
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
