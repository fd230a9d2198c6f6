//! Splits bytes into lines, with a bound.

use crate::limits::{LONG_LINE_BYTES, MESSAGE_BYTES_MAX};

/// Collects bytes into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    pending: Vec<u8>,
    /// A line that is too long is being passed over; this many bytes of it so far.
    skipped: usize,
    /// The last of them.
    ending: Vec<u8>,
}

/// What came of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line, without its end and never empty.
    Line(Vec<u8>),
    /// A line was longer than allowed, and is gone but for its two ends: enough to find out who is
    /// to be told.
    TooLong {
        /// How it began.
        beginning: Vec<u8>,
        /// How it ended: some write the id last.
        ending: Vec<u8>,
        /// How long it was.
        bytes: usize,
    },
}

/// This much of a line that is too long is kept.
const BEGINNING_BYTES: usize = 64 * 1024;

/// And this much of its end.
const ENDING_BYTES: usize = 256;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl LineSplitter {
    /// Takes bytes as they came, and gives the lines that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut give: impl FnMut(Frame)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            self.finish().map(&mut give);
            bytes = &bytes[end + 1..];
        }
        if !bytes.is_empty() {
            self.add(bytes);
        }
    }

    /// The unfinished line where it is a long one: bytes can be read straight to its end, which
    /// saves a copy of each. After that, [`Self::pushed`] has to be told.
    pub fn long(&mut self) -> Option<&mut Vec<u8>> {
        (self.skipped == 0 && self.pending.len() >= LONG_LINE_BYTES).then_some(&mut self.pending)
    }

    /// What stands behind the first `before` bytes of the unfinished line has just been read.
    pub fn pushed(&mut self, before: usize, mut give: impl FnMut(Frame)) {
        let Some(end) = memchr::memchr(b'\n', &self.pending[before..]) else {
            return self.add(&[]);
        };
        let more = self.pending.split_off(before + end + 1);
        self.pending.pop();
        self.add(&[]);
        self.finish().map(&mut give);
        self.push(&more, give);
    }

    /// How much of an unfinished line there is: at the end of a stream it is thrown away.
    pub fn unfinished(&self) -> usize {
        self.pending.len() + self.skipped
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.skipped == 0 && self.pending.len() + bytes.len() <= MESSAGE_BYTES_MAX {
            // With room for the end of the line, which is put back when it is passed on.
            self.pending.reserve(bytes.len() + 1);
            self.pending.extend_from_slice(bytes);
        } else {
            let room = BEGINNING_BYTES.saturating_sub(self.pending.len()).min(bytes.len());
            self.pending.extend_from_slice(&bytes[..room]);
            let kept = BEGINNING_BYTES.min(self.pending.len());
            for skipped in [&self.pending[kept..], &bytes[room..]] {
                self.skipped += skipped.len();
                self.ending.extend_from_slice(last(skipped));
            }
            self.ending.drain(..self.ending.len().saturating_sub(ENDING_BYTES));
            self.pending.truncate(kept);
            self.pending.shrink_to_fit();
        }
    }

    fn finish(&mut self) -> Option<Frame> {
        let mut line = std::mem::take(&mut self.pending);
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            let ending = std::mem::take(&mut self.ending);
            return Some(Frame::TooLong { bytes: line.len() + skipped, beginning: line, ending });
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        // Some shells begin a stream with it; no JSON does.
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then_some(Frame::Line(line))
    }
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(ENDING_BYTES)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Frame {
        Frame::Line(text.as_bytes().to_vec())
    }

    impl LineSplitter {
        fn take(&mut self, bytes: &[u8]) -> Vec<Frame> {
            let mut frames = Vec::new();
            self.push(bytes, |frame| frames.push(frame));
            frames
        }

        fn take_straight(&mut self, bytes: &[u8]) -> Vec<Frame> {
            let Some(long) = self.long() else { return self.take(bytes) };
            let before = long.len();
            long.extend_from_slice(bytes);
            let mut frames = Vec::new();
            self.pushed(before, |frame| frames.push(frame));
            frames
        }
    }

    #[test]
    fn lines_are_put_together_however_they_come() {
        let mut lines = LineSplitter::default();
        assert_eq!(lines.take(b"{\"a\"").len(), 0);
        assert_eq!(lines.unfinished(), 4);
        assert_eq!(lines.take(b":1}\r\n\n  \n{}\n{"), [line("{\"a\":1}"), line("{}")]);
        assert_eq!(lines.take(b"}\n"), [line("{}")]);
        assert_eq!(lines.take(b"\xef\xbb\xbf{}\n\xef\xbb\xbf\n"), [line("{}")]);
        let mut by_byte = LineSplitter::default();
        let all: Vec<Frame> =
            b"one\ntwo\n".iter().flat_map(|byte| by_byte.take(&[*byte])).collect();
        assert_eq!(all, [line("one"), line("two")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_whole() {
        let mut lines = LineSplitter::default();
        let chunk = vec![b'x'; 1024 * 1024];
        for _ in 0..=MESSAGE_BYTES_MAX / chunk.len() {
            assert_eq!(lines.take(&chunk), []);
        }
        let frames = lines.take(b"the end\n{}\n");
        let [Frame::TooLong { beginning, ending, bytes }, next] = &frames[..] else {
            panic!("{}", frames.len())
        };
        assert_eq!(beginning.len(), BEGINNING_BYTES);
        assert!(ending.len() == ENDING_BYTES && ending.ends_with(b"xthe end"));
        assert_eq!(*bytes, MESSAGE_BYTES_MAX + chunk.len() + 7);
        assert_eq!(*next, line("{}"));
    }

    #[test]
    fn the_longest_line_that_is_allowed_passes() {
        let mut lines = LineSplitter::default();
        lines.take(&vec![b'x'; MESSAGE_BYTES_MAX]);
        assert!(
            matches!(&lines.take(b"\n")[..], [Frame::Line(line)] if line.len() == MESSAGE_BYTES_MAX)
        );
    }

    #[test]
    fn a_long_line_is_read_straight_into_its_place() {
        let mut lines = LineSplitter::default();
        let part = vec![b'x'; LONG_LINE_BYTES];
        assert_eq!(lines.take_straight(&part), []);
        assert_eq!(lines.take_straight(&part), []);
        let [Frame::Line(long), next] = &lines.take_straight(b"yz\r\n{}\n{")[..] else { panic!() };
        assert_eq!(long.len(), 2 * LONG_LINE_BYTES + 2);
        assert!(long.capacity() > long.len() && long.ends_with(b"xyz"));
        assert_eq!(*next, line("{}"));
        assert_eq!(lines.take_straight(b"}\n"), [line("{}")]);
    }

    #[test]
    fn one_that_is_read_straight_and_is_too_long_is_told() {
        for last in [&b"\n"[..], b"xx\n"] {
            let mut lines = LineSplitter::default();
            let part = vec![b'x'; 1024 * 1024];
            for _ in 0..MESSAGE_BYTES_MAX / part.len() {
                assert_eq!(lines.take_straight(&part), []);
            }
            let frames = lines.take_straight(last);
            let bytes = MESSAGE_BYTES_MAX + last.len() - 1;
            match &frames[..] {
                [Frame::Line(line)] => assert!(line.len() == bytes && bytes == MESSAGE_BYTES_MAX),
                [Frame::TooLong { bytes: told, .. }] => assert_eq!(*told, bytes),
                _ => panic!("{}", frames.len()),
            }
            assert_eq!(lines.take_straight(b"{}\n"), [line("{}")]);
        }
    }
}
