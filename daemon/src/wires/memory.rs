//! Owns the memory of the wires: lines that wait for a peer, and buffers that are used again.

use std::collections::VecDeque;

use afresh_core::limits::{JOINED_BYTES_MAX, LONG_LINE_BYTES, SPARE_BYTES_MAX};

/// A line of less is copied to where others are joined to it; a longer one is moved.
const SHORT_LINE_BYTES: usize = 4 * 1024;

/// Memory that all wires share.
#[derive(Default)]
pub(super) struct Buffers {
    /// The bytes of the last read.
    pub(super) chunk: Vec<u8>,
    /// That of the last long line, for the next one.
    pub(super) spare: Vec<u8>,
}

impl Buffers {
    pub(super) fn keep(&mut self, part: Option<Vec<u8>>) {
        let fits = LONG_LINE_BYTES + 1..=SPARE_BYTES_MAX;
        if let Some(part) = part.filter(|part| fits.contains(&part.capacity()))
            && part.capacity() > self.spare.capacity()
        {
            self.spare = part;
        }
    }

    /// Lets a long line grow in memory that is there already.
    pub(super) fn give_spare(&mut self, line: &mut Vec<u8>) {
        if line.capacity() < self.spare.capacity() {
            self.spare.clear();
            self.spare.extend_from_slice(line);
            std::mem::swap(line, &mut self.spare);
            self.spare = Vec::new();
        }
    }
}

/// Lines that a peer has not taken yet.
#[derive(Default)]
pub(super) struct WriteQueue {
    parts: VecDeque<Vec<u8>>,
    /// The bytes of the first part that are written.
    taken: usize,
    /// The bytes of all parts.
    pub(super) bytes: usize,
    /// Where short lines are joined; used again when all of them are taken.
    joined: Vec<u8>,
}

impl WriteQueue {
    pub(super) fn push(&mut self, mut line: Vec<u8>) {
        self.bytes += line.len() + 1;
        match self.parts.back_mut() {
            Some(last) if last.len() + line.len() < JOINED_BYTES_MAX => {
                last.extend_from_slice(&line);
                last.push(b'\n');
            }
            // Others may follow before this one is written.
            None if line.len() < SHORT_LINE_BYTES => {
                let mut joined = std::mem::take(&mut self.joined);
                joined.extend_from_slice(&line);
                joined.push(b'\n');
                self.parts.push_back(joined);
            }
            _ => {
                line.push(b'\n');
                self.parts.push_back(line);
            }
        }
    }

    pub(super) fn next(&self) -> Option<&[u8]> {
        self.parts.front().map(|part| &part[self.taken..])
    }

    /// Returns the long part that is taken whole by that.
    pub(super) fn advance(&mut self, written: usize) -> Option<Vec<u8>> {
        self.bytes -= written;
        self.taken += written;
        let is_taken = self.parts.front().is_some_and(|part| self.taken == part.len());
        if !is_taken {
            return None;
        }
        self.taken = 0;
        let mut part = self.parts.pop_front()?;
        if part.capacity() > JOINED_BYTES_MAX * 2 {
            return Some(part);
        }
        if part.capacity() > self.joined.capacity() {
            part.clear();
            self.joined = part;
        }
        None
    }
}

/// Lines for a client that has no pipe.
#[derive(Default)]
pub(super) struct ClientOutbox {
    pub(super) lines: VecDeque<Vec<u8>>,
    /// How much that is, with the ends that they would have in a pipe.
    pub(super) bytes: usize,
}

impl ClientOutbox {
    pub(super) fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
    }

    pub(super) fn take(&mut self, lines_max: usize) -> VecDeque<Vec<u8>> {
        if self.lines.len() <= lines_max {
            self.bytes = 0;
            return std::mem::take(&mut self.lines);
        }
        let taken: VecDeque<Vec<u8>> = self.lines.drain(..lines_max).collect();
        self.bytes -= taken.iter().map(|line| line.len() + 1).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_are_joined_and_long_ones_are_moved() {
        let mut waiting = WriteQueue::default();
        let mut long = Vec::with_capacity(JOINED_BYTES_MAX + 1);
        long.resize(JOINED_BYTES_MAX, b'x');
        let place = long.as_ptr();
        for line in [b"one".to_vec(), b"two".to_vec(), long, b"three".to_vec()] {
            waiting.push(line);
        }
        assert_eq!(waiting.bytes, 4 + 4 + JOINED_BYTES_MAX + 1 + 6);
        assert_eq!(waiting.next(), Some(&b"one\ntwo\n"[..]));
        assert_eq!(waiting.advance(5), None);
        assert_eq!(waiting.next(), Some(&b"wo\n"[..]));
        assert_eq!(waiting.advance(3), None);
        let part = waiting.next().expect("it follows");
        assert_eq!(part.len(), JOINED_BYTES_MAX + 1);
        // With room for the end of the line, it has not moved.
        assert_eq!(part.as_ptr(), place);
        waiting.advance(JOINED_BYTES_MAX + 1);
        assert_eq!(waiting.next(), Some(&b"three\n"[..]));
        waiting.advance(6);
        assert!(waiting.next().is_none() && waiting.bytes == 0);
    }

    #[test]
    fn the_memory_of_a_long_line_is_used_for_the_next_one() {
        let mut buffers = Buffers::default();
        buffers.keep(Some(vec![0; 10]));
        buffers.keep(Some(Vec::with_capacity(SPARE_BYTES_MAX * 2)));
        assert_eq!(buffers.spare.capacity(), 0);
        buffers.keep(Some(vec![0; LONG_LINE_BYTES * 3]));
        let mut line = vec![b'y'; LONG_LINE_BYTES];
        buffers.give_spare(&mut line);
        assert!(line.capacity() >= LONG_LINE_BYTES * 3 && line == vec![b'y'; LONG_LINE_BYTES]);
        assert_eq!(buffers.spare.capacity(), 0);
    }
}
