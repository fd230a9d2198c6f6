//! A stream of server-sent events, as it comes in pieces of any size.

use std::time::Duration;

use crate::limits::{HEADER_VALUE_BYTES_MAX, STREAM_RETRY_MAX};

/// One event; what it did not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name; `message` where it has none.
    pub name: String,
    /// Its data, without the last line end.
    pub data: Vec<u8>,
    /// From here on the stream can be taken up again.
    pub id: Option<String>,
    /// How long to wait before that.
    pub retry: Option<Duration>,
    /// It was longer than allowed, and its data is not here.
    pub is_too_long: bool,
}

/// Makes events of bytes.
#[derive(Debug)]
pub struct EventStream {
    bytes_max: usize,
    /// Of the line that has not ended yet.
    line: Vec<u8>,
    /// That line has something in it, which need not have been kept.
    line_has_bytes: bool,
    /// The last byte was a carriage return: a line feed after it ends no other line.
    after_return: bool,
    is_at_start: bool,
    event: Event,
    /// Something of the event has come.
    has_some: bool,
}

impl EventStream {
    /// An event with more than so many bytes is not kept.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            line_has_bytes: false,
            after_return: false,
            is_at_start: true,
            event: Event::default(),
            has_some: false,
        }
    }

    /// The events that end in these bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Event> {
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
            self.has_some = true;
        }
        if self.event.is_too_long {
            self.line = Vec::new();
            self.event.data = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        if !std::mem::take(&mut self.line_has_bytes) {
            let mut event = std::mem::take(&mut self.event);
            if event.data.last() == Some(&b'\n') {
                event.data.pop();
            }
            return std::mem::take(&mut self.has_some).then_some(event);
        }
        let line = std::mem::take(&mut self.line);
        let mut field = line.as_slice();
        if std::mem::take(&mut self.is_at_start) {
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
            // A comment, or nothing that anybody knows.
            _ => return None,
        }
        self.has_some = true;
        None
    }
}

/// Whether it can stand in a header as it is.
pub(super) fn is_header_value(value: &[u8]) -> bool {
    (1..=HEADER_VALUE_BYTES_MAX).contains(&value.len())
        && value.iter().all(|byte| (0x21..=0x7e).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &str) -> Event {
        Event { data: data.as_bytes().to_vec(), ..Event::default() }
    }

    #[test]
    fn events_are_the_same_in_pieces_of_any_size() {
        let text = "\u{feff}data: a\n\n: nothing\n\nevent: endpoint\r\ndata:/m\r\n\r\n\
                    id: 7\rretry: 10\rdata: b\rdata:  c\r\rid: 8\ndata\n\nid:\u{1}\nretry:x\nfoo\n\nrest";
        let mut expected = vec![
            message("a"),
            Event { name: "endpoint".to_owned(), ..message("/m") },
            Event {
                id: Some("7".to_owned()),
                retry: Some(Duration::from_millis(10)),
                ..message("b\n c")
            },
            Event { id: Some("8".to_owned()), ..message("") },
        ];
        expected.push(message(""));
        for size in 1..text.len() {
            let mut stream = EventStream::new(100);
            let pieces = text.as_bytes().chunks(size);
            let events: Vec<Event> = pieces.flat_map(|piece| stream.push(piece)).collect();
            assert_eq!(events, expected, "{size}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept_and_the_next_one_is() {
        let text = format!("data: {}\ndata: x\n\ndata: y\n\n", "x".repeat(1_000));
        for size in [1, 7, text.len()] {
            let mut stream = EventStream::new(100);
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
