//! Counts the lines that a peer was sent, and how many of them it has read.

use std::collections::VecDeque;

use afresh_core::limits::PIPE_BYTES_MAX;

/// The lines that were sent, by their ends.
#[derive(Default)]
pub(super) struct SentLines {
    lines: u64,
    bytes: u64,
    /// The end of each line that may be unread, the oldest first.
    ends: VecDeque<u64>,
}

impl SentLines {
    pub(super) fn push(&mut self, bytes: usize, waiting: usize) {
        self.lines += 1;
        self.bytes += bytes as u64;
        self.ends.push_back(self.bytes);
        // What is further back than the pipe is long has been read.
        let surely_read = self.bytes.saturating_sub((waiting + bytes + PIPE_BYTES_MAX) as u64);
        while self.ends.front().is_some_and(|end| *end <= surely_read) {
            self.ends.pop_front();
        }
    }

    /// The number of lines that were read, if so many of the last bytes were not.
    pub(super) fn read(&self, unread: usize) -> u64 {
        let read_to = self.bytes.saturating_sub(unread as u64);
        self.lines - self.ends.iter().filter(|end| **end > read_to).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_when_their_last_byte_is() {
        let mut sent = SentLines::default();
        for _ in 0..3 {
            sent.push(10, 0);
        }
        for (unread, read) in [(0, 3), (1, 2), (10, 2), (11, 1), (29, 0), (30, 0), (99, 0)] {
            assert_eq!(sent.read(unread), read, "{unread}");
        }
        // What cannot be in the pipe any more is not remembered.
        for _ in 0..3 * PIPE_BYTES_MAX / 1_000 {
            sent.push(1_000, 0);
        }
        assert!(sent.ends.len() <= PIPE_BYTES_MAX / 1_000 + 2);
        assert_eq!(sent.read(1_500), sent.lines - 2);
    }
}
