//! Fuzzes the parser of server-sent events: pieces of any size give the same events as the whole, and these are the
//! events of the specification.

use std::time::Duration;

use afresh_core::limits::{HEADER_VALUE_BYTES_MAX, STREAM_RETRY_MAX};
use afresh_core::sse::{SseEvent, SseParser};

use crate::input::{first, pieces};
use crate::is_planted;

/// More than any input has, so that the bound itself is checked apart.
const NO_BOUND: usize = 1 << 30;

pub fn check(data: &[u8]) {
    let Some((seed, bytes)) = first(data) else { return };
    let whole = SseParser::new(NO_BOUND).push(bytes);
    let mut parser = SseParser::new(NO_BOUND);
    let mut events = Vec::new();
    for piece in pieces(seed, bytes) {
        events.extend(parser.push(piece));
        // The planted mistake: all is forgotten at a carriage return behind an event with a long name.
        if is_planted()
            && piece.ends_with(b"\r")
            && events.last().is_some_and(|e| e.name.len() > 12)
        {
            parser = SseParser::new(NO_BOUND);
        }
    }
    assert_eq!(events, whole, "the size of pieces does not matter");
    assert_eq!(whole, specified(bytes));
    let bound = usize::from(seed);
    for event in SseParser::new(bound).push(bytes) {
        assert!(event.data.len() <= bound, "an event has no more data than its bound");
        assert!(!event.is_too_long || event.data.is_empty());
    }
}

/// The events as the HTML standard has them, with the two rules of the parser: values of `id` are header values, and
/// an event without data counts where it has another field.
fn specified(bytes: &[u8]) -> Vec<SseEvent> {
    let (mut events, mut event, mut data) = (Vec::new(), SseEvent::default(), Vec::new());
    let mut has_fields = false;
    for (number, line) in lines(bytes).into_iter().enumerate() {
        let is_blank = line.is_empty();
        let line = match number {
            0 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            _ => line,
        };
        if is_blank {
            event.data = data.join(&b'\n');
            data.clear();
            let ended = std::mem::take(&mut event);
            events.extend(std::mem::take(&mut has_fields).then_some(ended));
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8(value.to_vec()).unwrap_or_default();
        match &line[..colon] {
            b"data" => data.push(value.to_vec()),
            b"event" => event.name = text,
            b"id" => {
                let is_value = !value.is_empty()
                    && value.len() <= HEADER_VALUE_BYTES_MAX
                    && value.iter().all(u8::is_ascii_graphic);
                event.id = is_value.then_some(text);
            }
            b"retry" => {
                let wait = text.parse().ok().map(Duration::from_millis);
                event.retry = wait.map(|wait| wait.min(STREAM_RETRY_MAX));
            }
            _ => continue,
        }
        has_fields = true;
    }
    events
}

/// The lines that have ended: by a carriage return, a line feed, or both.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut start, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let ends = match &bytes[at..] {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => {
                at += 1;
                continue;
            }
        };
        lines.push(&bytes[start..at]);
        at += ends;
        start = at;
    }
    lines
}
