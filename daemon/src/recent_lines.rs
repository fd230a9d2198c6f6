//! Owns the last lines of a service: output of its instances, and notes of afresh about it. Filled by the
//! pumps, read by the control API. Bounded, in memory only; a writer never waits for a reader.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afresh_core::audit::redact::redact_text;
use afresh_core::control::{LogLine, LogStream};
use afresh_core::id::Generation;
use afresh_core::limits::{
    LAST_WORDS_CHARS, LAST_WORDS_LINES, LOGS_ALL_BYTES_MAX, LOGS_BYTES_MAX, LOGS_LINE_BYTES_MAX,
    LOGS_LINE_COST, LOGS_LINES_MAX,
};
use afresh_core::time::Stamp;
use tokio::sync::watch;

use crate::clock::now;
use afresh_core::text::cut;

/// The last lines of one service. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Logs(Arc<SharedLogs>);

#[derive(Debug)]
struct SharedLogs {
    ring: Mutex<Ring>,
    /// The number of the newest line.
    newest: watch::Sender<u64>,
    /// The number of services that share the memory.
    sharers: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Ring {
    blocks: VecDeque<LineBlock>,
    /// Their memory.
    bytes: usize,
    newest: u64,
}

/// Lines that came together. They are split when they are read: most never are.
#[derive(Debug)]
struct LineBlock {
    time: Stamp,
    generation: Generation,
    stream: LogStream,
    /// The number of its last line.
    last: u64,
    /// With a newline between two of them.
    lines: Box<[u8]>,
}

impl Logs {
    /// No lines yet. `sharers` counts the services of this process: each gets its share.
    pub(crate) fn new(sharers: &Arc<AtomicUsize>) -> Self {
        sharers.fetch_add(1, Ordering::Relaxed);
        let (newest, _) = watch::channel(0);
        Self(Arc::new(SharedLogs { ring: Mutex::default(), newest, sharers: Arc::clone(sharers) }))
    }

    /// Remembers a line of ours about the service.
    pub(crate) fn say(&self, generation: Generation, text: &str) {
        self.add(generation, LogStream::Afresh, text.as_bytes().into());
    }

    /// The last so many lines, oldest first.
    pub(crate) fn tail(&self, lines_max: usize) -> Vec<LogLine> {
        let ring = self.ring();
        let lines_max = lines_max.min(LOGS_LINES_MAX);
        ring.after(ring.newest.saturating_sub(lines_max as u64), lines_max)
    }

    /// Lines with a higher number than this, at most so many, oldest first.
    pub(crate) fn since(&self, number: u64, lines_max: usize) -> Vec<LogLine> {
        let ring = self.ring();
        let oldest = ring.newest.saturating_sub(LOGS_LINES_MAX as u64);
        ring.after(number.max(oldest), lines_max)
    }

    /// The last lines that such instances wrote to their stderr, for the client of a request that
    /// failed: a few, without secrets, and none of them endless.
    pub(crate) fn last_words(&self, whose: impl Fn(Generation) -> bool) -> Vec<String> {
        let said =
            |line: &LogLine| line.stream == LogStream::Stderr && whose(Generation(line.generation));
        let lines: Vec<LogLine> = self.tail(LOGS_LINES_MAX).into_iter().filter(said).collect();
        let last = &lines[lines.len().saturating_sub(LAST_WORDS_LINES)..];
        last.iter().map(|line| cut(&redact_text(&line.text), LAST_WORDS_CHARS)).collect()
    }

    /// The number of the newest line; changes when there is a newer one.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    fn add(&self, generation: Generation, stream: LogStream, lines: Box<[u8]>) {
        let sharers = self.0.sharers.load(Ordering::Relaxed).max(1);
        let bytes_max = LOGS_BYTES_MAX.min(LOGS_ALL_BYTES_MAX / sharers);
        let newest = {
            let mut ring = self.ring();
            let last = ring.newest + 1 + memchr::memchr_iter(b'\n', &lines).count() as u64;
            let lines = newest_of(lines, bytes_max.saturating_sub(LOGS_LINE_COST));
            ring.push(LineBlock { time: now(), generation, stream, last, lines }, bytes_max);
            last
        };
        self.0.newest.send_replace(newest);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nothing in here can be left half done.
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, block: LineBlock, bytes_max: usize) {
        self.newest = block.last;
        self.bytes += block.cost();
        self.blocks.push_back(block);
        while self.blocks.len() > LOGS_LINES_MAX || self.bytes > bytes_max {
            let Some(oldest) = self.blocks.pop_front() else { return };
            self.bytes -= oldest.cost();
        }
    }

    fn after(&self, number: u64, lines_max: usize) -> Vec<LogLine> {
        let newer = self.blocks.iter().skip_while(|block| block.last <= number);
        let lines = newer.flat_map(LineBlock::shown).skip_while(|line| line.number <= number);
        lines.take(lines_max).collect()
    }
}

impl LineBlock {
    fn cost(&self) -> usize {
        self.lines.len() + LOGS_LINE_COST
    }

    fn shown(&self) -> impl Iterator<Item = LogLine> {
        let count = memchr::memchr_iter(b'\n', &self.lines).count() as u64;
        self.lines.split(|byte| *byte == b'\n').zip(self.last - count..).map(|(line, number)| {
            LogLine {
                number,
                time: self.time.to_string(),
                generation: self.generation.0,
                stream: self.stream,
                text: text_of(line),
            }
        })
    }
}

/// The last whole lines that fit, where not all of them do: many services have little room each.
fn newest_of(lines: Box<[u8]>, bytes_max: usize) -> Box<[u8]> {
    if lines.len() <= bytes_max {
        return lines;
    }
    let newest = &lines[lines.len() - bytes_max..];
    let begin = memchr::memchr(b'\n', newest).map_or(newest.len(), |end| end + 1);
    newest[begin..].into()
}

/// A line as text, with its end cut off where it is too long.
fn text_of(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LOGS_LINE_BYTES_MAX {
        return String::from_utf8_lossy(line).into_owned();
    }
    format!("{}… [cut]", String::from_utf8_lossy(&line[..LOGS_LINE_BYTES_MAX]))
}

/// Puts the lines of one stream of one instance into a log, however their bytes come.
#[derive(Debug)]
pub(crate) struct MemoryTee {
    logs: Logs,
    generation: Generation,
    stream: LogStream,
    /// The beginning of a line whose end has not come; one byte more than is remembered at most.
    begun: Vec<u8>,
}

impl MemoryTee {
    pub(crate) fn new(logs: &Logs, generation: Generation, stream: LogStream) -> Self {
        Self { logs: logs.clone(), generation, stream, begun: Vec::new() }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let Some(last) = memchr::memrchr(b'\n', bytes) else {
            self.begin(bytes);
            return;
        };
        let (whole, rest) = (&bytes[..last], &bytes[last + 1..]);
        let lines = match self.begun.is_empty() {
            true => whole.into(),
            // The line that was begun may have been cut; so it is not longer than a chunk.
            false => {
                let first = memchr::memchr(b'\n', whole).unwrap_or(whole.len());
                self.begin(&whole[..first]);
                let begun = std::mem::take(&mut self.begun);
                [&begun[..], &whole[first..]].concat().into()
            }
        };
        self.logs.add(self.generation, self.stream, lines);
        self.begin(rest);
    }

    /// The stream has ended; so has the line that was begun.
    pub(crate) fn end(&mut self) {
        if !self.begun.is_empty() {
            self.take(b"\n");
        }
    }

    fn begin(&mut self, bytes: &[u8]) {
        let room = (LOGS_LINE_BYTES_MAX + 1).saturating_sub(self.begun.len());
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs() -> Logs {
        Logs::new(&Arc::default())
    }

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn lines_are_whole_however_their_bytes_come() {
        let text = b"one\r\n\ntwo and more\n\xff\nlast";
        for size in 1..=text.len() {
            let logs = logs();
            let mut tee = MemoryTee::new(&logs, Generation(3), LogStream::Stdout);
            for chunk in text.chunks(size) {
                tee.take(chunk);
            }
            assert_eq!(texts(&logs.tail(9)), ["one", "", "two and more", "\u{fffd}"], "{size}");
            tee.end();
            tee.end();
            assert_eq!(texts(&logs.tail(1)), ["last"]);
            let all = logs.tail(usize::MAX);
            let numbers: Vec<u64> = all.iter().map(|line| line.number).collect();
            assert_eq!(numbers, [1, 2, 3, 4, 5]);
            assert!(all.iter().all(|l| l.generation == 3 && l.stream == LogStream::Stdout));
        }
    }

    #[test]
    fn a_flood_leaves_no_more_than_the_bounds() {
        let logs = logs();
        let mut tee = MemoryTee::new(&logs, Generation(1), LogStream::Stderr);
        for _ in 0..10 * LOGS_LINES_MAX {
            tee.take(b"\n");
        }
        assert_eq!(logs.tail(usize::MAX).len(), LOGS_LINES_MAX);
        tee.take(&vec![b'\n'; 10 * LOGS_LINES_MAX]);
        assert_eq!(logs.tail(usize::MAX).len(), LOGS_LINES_MAX);
        assert_eq!(logs.since(0, usize::MAX).len(), LOGS_LINES_MAX);
        tee.take(&vec![b'x'; 10 * LOGS_BYTES_MAX]);
        assert!(tee.begun.len() <= LOGS_LINE_BYTES_MAX + 1);
        tee.take(b"\nshort\n");
        let last = logs.tail(2);
        assert!(
            last[0].text.ends_with("x… [cut]") && last[0].text.len() < LOGS_LINE_BYTES_MAX + 20
        );
        assert_eq!(last[1].text, "short");
        for _ in 0..1_000 {
            tee.take(&[&[b'y'; 4_000][..], b"\n"].concat());
        }
        let ring = logs.ring();
        assert!(ring.bytes <= LOGS_BYTES_MAX, "{}", ring.bytes);
        assert_eq!(ring.bytes, ring.blocks.iter().map(LineBlock::cost).sum::<usize>());
    }

    #[test]
    fn many_services_share_the_room() {
        let sharers = Arc::default();
        let all: Vec<Logs> = (0..1_000).map(|_| Logs::new(&sharers)).collect();
        let mut tee = MemoryTee::new(&all[0], Generation(1), LogStream::Stderr);
        for _ in 0..1_000 {
            tee.take(b"a line of some length\n");
        }
        assert!(all[0].ring().bytes <= LOGS_ALL_BYTES_MAX / 1_000);
        let flood: String = (1..=40_000).map(|n| format!("{n}\n")).collect();
        tee.take(flood.as_bytes());
        let last = all[0].tail(3);
        assert_eq!(texts(&last), ["39998", "39999", "40000"]);
        assert_eq!(last[2].number, 41_000);
        assert!(!all[0].tail(1).is_empty());
    }

    #[test]
    fn reading_goes_on_where_it_was() {
        let logs = logs();
        let mut newest = logs.follow();
        assert!(!newest.has_changed().unwrap());
        for n in 1..=5 {
            logs.say(Generation(1), &format!("line {n}"));
        }
        assert_eq!(*newest.borrow_and_update(), 5);
        assert_eq!(texts(&logs.since(3, 10)), ["line 4", "line 5"]);
        assert_eq!(texts(&logs.since(0, 2)), ["line 1", "line 2"]);
        assert!(logs.since(5, 10).is_empty() && logs.since(u64::MAX, 10).is_empty());
        assert_eq!(texts(&logs.tail(2)), ["line 4", "line 5"]);
        assert!(logs.tail(0).is_empty());
        // What was forgotten shows as a gap.
        for n in 0..2 * LOGS_LINES_MAX {
            logs.say(Generation(1), &n.to_string());
        }
        assert!(logs.since(5, 1)[0].number > 6);
    }
}
