//! Owns the parser of server-sent events (`text/event-stream`), fed with pieces of any size. Driven by the
//! readers of HTTP bodies in the daemon. Never keeps more of an event than its bound.

use std::time::Duration;

use crate::limits::{HEADER_VALUE_BYTES_MAX, STREAM_RETRY_MAX};

/// One event; fields that were not sent are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The field `event`.
    pub name: String,
    /// The lines of `data`, joined by line feeds.
    pub data: Vec<u8>,
    /// The position for `Last-Event-ID`; dropped where it cannot be a header's value.
    pub id: Option<String>,
    /// The wait before a reconnect, capped at [`STREAM_RETRY_MAX`].
    pub retry: Option<Duration>,
    /// It was longer than allowed, and its data was dropped.
    pub is_too_long: bool,
}

/// Splits bytes into events.
#[derive(Debug, Default)]
pub struct SseParser {
    bytes_max: usize,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// That line is not empty, though its bytes may have been dropped.
    line_has_bytes: bool,
    /// The last byte was a carriage return: a line feed after it ends no other line.
    after_return: bool,
    /// The first line was read.
    has_begun: bool,
    event: SseEvent,
    /// A field of the event has been read.
    has_fields: bool,
}

impl SseParser {
    /// Drops the data of events with more than `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Returns the events that end in these bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.keep(bytes);
                break;
            };
            self.keep(&bytes[..end]);
            self.after_return = bytes[end] == b'\r';
            events.extend(self.end_line());
            bytes = &bytes[end + 1..];
        }
        events
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.line_has_bytes |= !bytes.is_empty();
        if self.line.len() + self.event.data.len() + bytes.len() > self.bytes_max {
            self.event.is_too_long = true;
            self.has_fields = true;
        }
        if self.event.is_too_long {
            self.line = Vec::new();
            self.event.data = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if !std::mem::take(&mut self.line_has_bytes) {
            let mut event = std::mem::take(&mut self.event);
            if event.data.last() == Some(&b'\n') {
                event.data.pop();
            }
            return std::mem::take(&mut self.has_fields).then_some(event);
        }
        let line = std::mem::take(&mut self.line);
        let mut field = line.as_slice();
        if is_first {
            field = field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field);
        }
        let (name, value) = match memchr::memchr(b':', field) {
            Some(at) => (&field[..at], &field[at + 1..]),
            None => (field, &field[..0]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || std::str::from_utf8(value).unwrap_or_default().to_owned();
        match name {
            b"data" => {
                self.event.data.extend_from_slice(value);
                self.event.data.push(b'\n');
            }
            b"event" => self.event.name = text(),
            b"id" => self.event.id = is_header_value(value).then(text),
            b"retry" => {
                let millis = text().parse().map(Duration::from_millis).ok();
                self.event.retry = millis.map(|wait| wait.min(STREAM_RETRY_MAX));
            }
            // A comment or an unknown field.
            _ => return None,
        }
        self.has_fields = true;
        None
    }
}

/// Whether the bytes can be a header's value unchanged.
pub(crate) fn is_header_value(value: &[u8]) -> bool {
    (1..=HEADER_VALUE_BYTES_MAX).contains(&value.len())
        && value.iter().all(|byte| (0x21..=0x7e).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &str) -> SseEvent {
        SseEvent { data: data.as_bytes().to_vec(), ..SseEvent::default() }
    }

    #[test]
    fn events_are_the_same_in_pieces_of_any_size() {
        let text = "\u{feff}data: a\n\n: nothing\n\nevent: endpoint\r\ndata:/m\r\n\r\n\
                    id: 7\rretry: 10\rdata: b\rdata:  c\r\rid: 8\ndata\n\nid:\u{1}\nretry:x\nfoo\n\nrest";
        let mut expected = vec![
            message("a"),
            SseEvent { name: "endpoint".to_owned(), ..message("/m") },
            SseEvent {
                id: Some("7".to_owned()),
                retry: Some(Duration::from_millis(10)),
                ..message("b\n c")
            },
            SseEvent { id: Some("8".to_owned()), ..message("") },
        ];
        expected.push(message(""));
        for size in 1..text.len() {
            let mut stream = SseParser::new(100);
            let pieces = text.as_bytes().chunks(size);
            let events: Vec<SseEvent> = pieces.flat_map(|piece| stream.push(piece)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }

    #[test]
    fn a_byte_order_mark_counts_only_where_the_stream_begins() {
        for (text, ids) in [("\u{feff}id:9\n\n", 1), ("\n\u{feff}id:9\n\n", 0)] {
            assert_eq!(SseParser::new(100).push(text.as_bytes()).len(), ids, "{text:?}");
        }
    }

    #[test]
    fn data_of_several_lines_is_joined_and_an_open_event_is_held_back() {
        let text = ": hi\r\nevent: message\r\nid: 1\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n\ndata:2\n\ndata: half";
        for size in 1..text.len() {
            let mut stream = SseParser::new(1_000);
            let pieces = text.as_bytes().chunks(size);
            let data: Vec<Vec<u8>> =
                pieces.flat_map(|piece| stream.push(piece)).map(|event| event.data).collect();
            assert_eq!(data, [b"{\"a\":\n1}".to_vec(), b"2".to_vec()], "{size}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept_and_the_next_one_is() {
        let text = format!("data: {}\ndata: x\n\ndata: y\n\n", "x".repeat(1_000));
        for size in [1, 7, text.len()] {
            let mut stream = SseParser::new(100);
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                events.extend(stream.push(piece));
                assert!(stream.line.capacity() + stream.event.data.capacity() < 1_000);
            }
            assert_eq!(events.len(), 2, "{events:?}");
            assert!(events[0].is_too_long && events[0].data.is_empty());
            assert_eq!(events[1], message("y"));
        }
    }
}
