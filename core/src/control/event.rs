//! Owns the events of the API: the records of the trail, numbered, and the ring that remembers the last of them.
//! Driven by the writer of the trail. Never reads the trail.
//!
//! The numbers count from 1 in each afresh process: records in the trail have none, and several
//! processes write to the same trail. A [`Position`] says of which process its number is.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::audit::Record;
use crate::limits::{EVENTS_BYTES_MAX, EVENTS_MAX};
use crate::time::Stamp;

/// Something that has happened: a record of the trail, with a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumberedEvent {
    /// Counted from 1 in each afresh process.
    pub number: u64,
    /// When, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub timestamp: String,
    /// How grave it is: `INFO`, `WARNING` or `ERROR`.
    #[schemars(extend("enum" = ["INFO", "WARNING", "ERROR"]))]
    pub level: String,
    /// Which part of afresh says so.
    pub logger: String,
    /// As a sentence.
    pub message: String,
    /// What happened (`event_type`), to which `service`, and the details.
    #[schemars(extend("required" = ["event_type"]))]
    pub props: Map<String, Value>,
}

impl NumberedEvent {
    /// What happened, in one word.
    pub fn event_type(&self) -> &str {
        self.props.get("event_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The service that it is about.
    pub fn service(&self) -> Option<&str> {
        self.props.get("service").and_then(Value::as_str)
    }
}

/// What is remembered of what has happened: `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The afresh process whose numbers these are.
    pub run: String,
    /// Oldest first.
    pub events: Vec<NumberedEvent>,
    /// The number of the newest event there is; `since` with it goes on from there.
    pub newest: u64,
    /// What lies between `since` and these.
    #[serde(flatten)]
    pub gap: Gap,
}

/// The events that a client that resumes from a position does not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Events after the position that are forgotten.
    pub missed: u64,
    /// The position is of another afresh process: what it had told last is not known here.
    pub restarted: bool,
}

impl Gap {
    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The last event that a client has: `7`, or `RUN-7` as in the `id` of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The afresh process that counted; the one that is asked where none is said.
    pub run: Option<String>,
    /// The last event that is known.
    pub number: u64,
}

impl Position {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        let (run, number) = match text.split_once('-') {
            Some((run, number)) => (Some(run), number),
            None => (None, text),
        };
        let is_number =
            (1..=15).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_run = |run: &str| (1..=32).contains(&run.len()) && run.bytes().all(is_digit);
        let number = Some(number).filter(|_| is_number && run.is_none_or(is_run))?.parse().ok()?;
        Some(Self { run: run.map(str::to_owned), number })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.run {
            Some(run) => write!(f, "{run}-{}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

/// The last events of one afresh process; the oldest go when there are too many.
#[derive(Debug)]
pub struct EventRing {
    /// The process that counts here.
    pub run: String,
    kept: VecDeque<RememberedEvent>,
    bytes: usize,
    newest: u64,
}

#[derive(Debug)]
struct RememberedEvent {
    number: u64,
    service: Option<Box<str>>,
    json: Arc<str>,
}

/// Some events after a position.
#[derive(Clone, Debug, PartialEq)]
pub struct EventBatch {
    /// What is missing before them.
    pub gap: Gap,
    /// The events as JSON, each with its number.
    pub events: Vec<(u64, Arc<str>)>,
    /// Up to where has been looked: go on from there.
    pub at: u64,
}

impl EventRing {
    /// Nothing has happened in this process yet.
    pub fn new(run: String) -> Self {
        Self { run, kept: VecDeque::new(), bytes: 0, newest: 0 }
    }

    /// Remembers a record, without what looks like a secret, and gives it its number.
    pub fn push(&mut self, record: &Record, stamp: Stamp) -> u64 {
        self.newest += 1;
        let line = record.to_safe_line(stamp);
        let rest = line.trim_end().strip_prefix('{').unwrap_or("}");
        let json = format!("{{\"number\":{},{rest}", self.newest);
        let of = |(name, value): &(&str, Value)| match (*name, value) {
            ("service", Value::String(name)) => Some(name.as_str().into()),
            _ => None,
        };
        let service: Option<Box<str>> = record.props.iter().find_map(of);
        self.bytes += json.len();
        self.kept.push_back(RememberedEvent { number: self.newest, service, json: json.into() });
        while self.kept.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.json.len();
        }
        self.newest
    }

    /// The events after a position, of one service or of all.
    pub fn after(
        &self,
        position: &Position,
        service: Option<&str>,
        events_max: usize,
    ) -> EventBatch {
        let is_other = position.run.as_ref().is_some_and(|run| *run != self.run);
        // No number of this process is that high.
        let restarted = is_other || position.number > self.newest;
        let known = if restarted { 0 } else { position.number };
        let oldest = self.kept.front().map_or(self.newest + 1, |kept| kept.number);
        let missed = (oldest - 1).saturating_sub(known);
        let mut at = known.max(oldest - 1);
        let mut events = Vec::new();
        let skipped = usize::try_from(at + 1 - oldest).unwrap_or(usize::MAX);
        for kept in self.kept.iter().skip(skipped) {
            if events.len() == events_max {
                break;
            }
            at = kept.number;
            if service.is_none() || kept.service.as_deref() == service {
                events.push((kept.number, Arc::clone(&kept.json)));
            }
        }
        EventBatch { gap: Gap { missed, restarted }, events, at }
    }

    /// All of them after a position, as an [`EventPage`] in JSON.
    pub fn page(&self, position: &Position, service: Option<&str>) -> String {
        let EventBatch { gap, events, .. } = self.after(position, service, usize::MAX);
        let events: Vec<&str> = events.iter().map(|(_, json)| &**json).collect();
        format!(
            r#"{{"run":"{}","events":[{}],"newest":{},"missed":{},"restarted":{}}}"#,
            self.run,
            events.join(","),
            self.newest,
            gap.missed,
            gap.restarted
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{EventType, Level};

    fn record(service: &str, message: &str) -> Record {
        Record {
            level: Level::Info,
            logger: "afresh.keep".to_owned(),
            message: message.to_owned(),
            event_type: EventType::ServerStarted,
            props: vec![("service", service.into())],
        }
    }

    fn ring(events: usize) -> EventRing {
        let mut ring = EventRing::new("a1".to_owned());
        for n in 1..=events {
            let service = if n % 2 == 0 { "even" } else { "odd" };
            ring.push(&record(service, &format!("event {n}")), Stamp::default());
        }
        ring
    }

    fn page(ring: &EventRing, since: &str, service: Option<&str>) -> EventPage {
        let position = Position::parse(since).unwrap();
        serde_json::from_str(&ring.page(&position, service)).unwrap()
    }

    fn numbers(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended() {
        let ring = ring(5);
        let first = page(&ring, "0", None);
        assert_eq!((numbers(&first), first.newest), (vec![1, 2, 3, 4, 5], 5));
        assert_eq!(first.events[4].message, "event 5");
        assert_eq!(first.events[1].service(), Some("even"));
        assert_eq!(first.events[1].event_type(), "server_started");
        assert_eq!(numbers(&page(&ring, "3", None)), [4, 5]);
        assert_eq!(numbers(&page(&ring, "a1-3", Some("even"))), [4]);
        assert_eq!(numbers(&page(&ring, "5", None)), [0; 0]);
        assert!(page(&ring, "5", None).gap.is_none());
        assert_eq!(page(&EventRing::new("b".to_owned()), "0", None).events, []);
    }

    #[test]
    fn what_is_missing_is_said() {
        let ring = ring(EVENTS_MAX + 10);
        let all = page(&ring, "0", None);
        assert_eq!((all.events.len(), all.events[0].number), (EVENTS_MAX, 11));
        assert_eq!(all.gap, Gap { missed: 10, restarted: false });
        assert_eq!(page(&ring, "4", None).gap.missed, 6);
        assert!(page(&ring, "10", None).gap.is_none());
        // Another process counted that, or this one cannot have.
        for since in ["b2-4", "1000000"] {
            let other = page(&ring, since, None);
            assert_eq!(other.gap, Gap { missed: 10, restarted: true }, "{since}");
            assert_eq!(other.events.len(), EVENTS_MAX);
        }
    }

    #[test]
    fn events_are_taken_in_portions() {
        let ring = ring(9);
        let mut position = Position { run: None, number: 0 };
        let mut seen = Vec::new();
        loop {
            let taken = ring.after(&position, Some("odd"), 2);
            seen.extend(taken.events.iter().map(|(number, _)| *number));
            if taken.at == position.number {
                break;
            }
            position.number = taken.at;
        }
        assert_eq!((seen, position.number), (vec![1, 3, 5, 7, 9], 9));
    }

    #[test]
    fn long_events_are_fewer_and_have_no_secrets() {
        let mut ring = EventRing::new("a".to_owned());
        for _ in 0..40 {
            ring.push(
                &record("web", &format!("--token=abc {}", "x".repeat(20_000))),
                Stamp::default(),
            );
        }
        assert!(ring.bytes <= EVENTS_BYTES_MAX && !ring.kept.is_empty());
        assert_eq!(ring.bytes, ring.kept.iter().map(|kept| kept.json.len()).sum::<usize>());
        assert!(!ring.page(&Position::default(), None).contains("abc"));
    }

    #[test]
    fn positions_are_read_and_written() {
        for text in ["0", "7", "19a0c-7", "999999999999999"] {
            assert_eq!(Position::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "-", "x", "-7", "7-", "a-b-7", "zz-7", "+7", " 7", "A1-7", "1000000000000000"]
        {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}
