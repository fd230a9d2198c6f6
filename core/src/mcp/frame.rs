//! Bytes to lines, with a bound.

use crate::limits::MESSAGE_BYTES_MAX;

/// Collects bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
    /// A line that is too long is being passed over; this many bytes of it so far.
    skipped: usize,
}

/// What came of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line, without its end and never empty.
    Line(Vec<u8>),
    /// A line was longer than allowed, and is gone but for its beginning.
    TooLong {
        /// The beginning: enough to find out who is to be told.
        beginning: Vec<u8>,
        /// How long it was.
        bytes: usize,
    },
}

/// This much of a line that is too long is kept.
const BEGINNING_BYTES: usize = 64 * 1024;

impl Lines {
    /// Takes bytes as they came, and gives the lines that they complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            frames.extend(self.finish());
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
        frames
    }

    /// How much of an unfinished line there is: at the end of a stream it is thrown away.
    pub fn unfinished(&self) -> usize {
        self.pending.len() + self.skipped
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.skipped == 0 && self.pending.len() + bytes.len() <= MESSAGE_BYTES_MAX {
            self.pending.extend_from_slice(bytes);
        } else {
            let room = BEGINNING_BYTES.saturating_sub(self.pending.len()).min(bytes.len());
            self.pending.extend_from_slice(&bytes[..room]);
            self.skipped += bytes.len() - room + self.pending.len().saturating_sub(BEGINNING_BYTES);
            self.pending.truncate(BEGINNING_BYTES);
            self.pending.shrink_to_fit();
        }
    }

    fn finish(&mut self) -> Option<Frame> {
        let mut line = std::mem::take(&mut self.pending);
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            return Some(Frame::TooLong { bytes: line.len() + skipped, beginning: line });
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then_some(Frame::Line(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_put_together_however_they_come() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"{\"a\"").len(), 0);
        assert_eq!(lines.unfinished(), 4);
        assert_eq!(lines.push(b":1}\r\n\n  \n{}\n{"), [line("{\"a\":1}"), line("{}")]);
        assert_eq!(lines.push(b"}\n"), [line("{}")]);
        let mut by_byte = Lines::default();
        let all: Vec<Frame> =
            b"one\ntwo\n".iter().flat_map(|byte| by_byte.push(&[*byte])).collect();
        assert_eq!(all, [line("one"), line("two")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_whole() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1024 * 1024];
        for _ in 0..=MESSAGE_BYTES_MAX / chunk.len() {
            assert_eq!(lines.push(&chunk), []);
        }
        let frames = lines.push(b"\n{}\n");
        let [Frame::TooLong { beginning, bytes }, next] = &frames[..] else {
            panic!("{}", frames.len())
        };
        assert_eq!(beginning.len(), BEGINNING_BYTES);
        assert_eq!(*bytes, MESSAGE_BYTES_MAX + chunk.len());
        assert_eq!(*next, line("{}"));
    }

    #[test]
    fn the_longest_line_that_is_allowed_passes() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MESSAGE_BYTES_MAX]);
        assert!(
            matches!(&lines.push(b"\n")[..], [Frame::Line(line)] if line.len() == MESSAGE_BYTES_MAX)
        );
    }
}
