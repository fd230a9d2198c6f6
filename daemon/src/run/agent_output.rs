//! Reads the output of a session: lines and events, handed to the loop of the run in batches. Driven by tasks of the
//! session. Never interprets a line beyond whether it is a piece.
//!
//! A model streams hundreds of pieces a second. To wake up for each costs more than to read it, so that lines in quick
//! succession are batched; a single one is handed over at once.

use afresh_core::agent::{AgentKind, RequestId};
use afresh_core::limits::{
    AGENT_GATHER_TIME, AGENT_LINE_BYTES_MAX, AGENT_LONE_READS_MAX, AGENT_READ_BYTES,
};
use afresh_core::run::Attempt;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::os::{PipeReader, leave_alone};

/// Output of a session that was read at once, in order.
pub(super) struct OutputBatch {
    pub(super) attempt: Attempt,
    pub(super) outputs: Vec<AgentOutput>,
}

pub(super) enum AgentOutput {
    Line(Vec<u8>),
    /// Pieces of what comes again whole: a sign of life, no more.
    Piece,
    /// A line was longer than allowed.
    TooLong(usize),
    Log(Vec<u8>),
    /// One of its two outputs is at its end.
    Closed,
    Event(Vec<u8>),
    Answer {
        request: RequestId,
        status: u16,
        body: Vec<u8>,
    },
    Failed {
        request: Option<RequestId>,
        why: String,
    },
}

/// Hands on lines, those of an agent where its kind is given, else those of a log.
pub(super) async fn read_lines(
    attempt: Attempt,
    mut pipe: PipeReader,
    sender: mpsc::Sender<OutputBatch>,
    kind: Option<AgentKind>,
) {
    let mut buffer = vec![0; AGENT_READ_BYTES];
    let mut lines = LineSplitter { kind, line: Vec::new(), skipped: 0 };
    let mut pace = ReadPacer::default();
    loop {
        let read = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let said = lines.split(&buffer[..read]);
        if !said.is_empty() && sender.send(OutputBatch { attempt, outputs: said }).await.is_err() {
            return;
        }
        // A full buffer says that there is more.
        if read < buffer.len() && pace.is_fast() {
            pipe = match leave_alone(pipe, AGENT_GATHER_TIME).await {
                Ok(pipe) => pipe,
                Err(_) => break,
            };
        }
    }
    let mut said = Vec::new();
    if !lines.line.is_empty() {
        said.push(lines.said());
    }
    said.push(AgentOutput::Closed);
    sender.send(OutputBatch { attempt, outputs: said }).await.ok();
}

/// Cuts bytes into lines. The rest of one that is too long is passed over, and said once.
struct LineSplitter {
    kind: Option<AgentKind>,
    line: Vec<u8>,
    skipped: usize,
}

impl LineSplitter {
    fn split(&mut self, mut rest: &[u8]) -> Vec<AgentOutput> {
        let mut said = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (whole, more) = (&rest[..end], &rest[end + 1..]);
            rest = more;
            let is_piece = |line| self.kind.is_some_and(|kind| kind.is_delta(line));
            // Most are pieces that stand in one chunk: no copy is made of them.
            if self.line.is_empty() && self.skipped == 0 && is_piece(whole) {
                if !matches!(said.last(), Some(AgentOutput::Piece)) {
                    said.push(AgentOutput::Piece);
                }
                continue;
            }
            self.line.extend_from_slice(whole);
            said.push(self.said());
        }
        self.line.extend_from_slice(rest);
        if self.line.len() > AGENT_LINE_BYTES_MAX {
            self.skipped += self.line.len();
            self.line = Vec::new();
        }
        said
    }

    /// The line that is whole now.
    fn said(&mut self) -> AgentOutput {
        let line = std::mem::take(&mut self.line);
        match (std::mem::take(&mut self.skipped), self.kind) {
            (0, None) => AgentOutput::Log(line),
            (0, Some(kind)) if kind.is_delta(&line) => AgentOutput::Piece,
            (0, Some(_)) => AgentOutput::Line(line),
            (more, _) => AgentOutput::TooLong(more + line.len()),
        }
    }
}

/// Decides when to batch reads: after [`AGENT_LONE_READS_MAX`] reads in quick succession.
#[derive(Default)]
struct ReadPacer {
    last: Option<Instant>,
    in_a_row: u32,
}

impl ReadPacer {
    /// Counts a read. Returns whether the next one should wait for more.
    fn is_fast(&mut self) -> bool {
        let now = Instant::now();
        let follows = self.last.is_some_and(|last| now - last < AGENT_GATHER_TIME * 3 / 2);
        self.in_a_row = if follows { self.in_a_row.saturating_add(1) } else { 0 };
        self.last = Some(now);
        self.in_a_row > AGENT_LONE_READS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(said: &[AgentOutput]) -> Vec<String> {
        let show = |said: &AgentOutput| match said {
            AgentOutput::Line(line) => String::from_utf8_lossy(line).into_owned(),
            AgentOutput::Log(line) => format!("log {}", String::from_utf8_lossy(line)),
            AgentOutput::Piece => "piece".to_owned(),
            AgentOutput::TooLong(bytes) => format!("too long: {bytes}"),
            _ => "?".to_owned(),
        };
        said.iter().map(show).collect()
    }

    #[test]
    fn lines_are_whole_pieces_are_not_kept_and_what_is_too_long_is_said_once() {
        let piece = r#"{"type":"stream_event","event":{"type":"content_block_delta"}}"#;
        let mut lines =
            LineSplitter { kind: Some(AgentKind::Claude), line: Vec::new(), skipped: 0 };
        let text = format!("one\n{piece}\n{piece}\ntw");
        assert_eq!(show(&lines.split(text.as_bytes())), ["one", "piece"]);
        let (begin, end) = piece.split_at(20);
        assert_eq!(show(&lines.split(format!("o\n{begin}").as_bytes())), ["two"]);
        assert_eq!(show(&lines.split(format!("{end}\n").as_bytes())), ["piece"]);
        assert_eq!(show(&lines.split(&vec![b'x'; AGENT_LINE_BYTES_MAX + 1])), [""; 0]);
        let long = format!("too long: {}", AGENT_LINE_BYTES_MAX + 3);
        assert_eq!(show(&lines.split(b"yz\nthree\n")), [long.as_str(), "three"]);
        let mut log = LineSplitter { kind: None, line: Vec::new(), skipped: 0 };
        let said = log.split(format!("{piece}\n").as_bytes());
        assert_eq!(show(&said), [format!("log {piece}")]);
    }

    #[test]
    fn what_comes_by_itself_is_taken_at_once_and_what_comes_thick_together() {
        let mut pace = ReadPacer::default();
        let thick: Vec<bool> = (0..=AGENT_LONE_READS_MAX + 1).map(|_| pace.is_fast()).collect();
        assert_eq!(thick.iter().position(|is_fast| *is_fast), Some(thick.len() - 1));
        pace.last = pace.last.map(|last| last - 3 * AGENT_GATHER_TIME);
        assert!(!pace.is_fast(), "there was a rest");
    }
}
