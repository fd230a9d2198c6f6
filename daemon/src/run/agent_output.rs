//! What comes of a session: lines and events, handed to the loop of the run in bundles.
//!
//! A model that speaks does so in pieces, hundreds a second. To wake up for each costs more than to read it, so that
//! lines that come thick are taken together; one that comes by itself is taken at once.

use afresh_core::agent::{AgentKind, RequestId};
use afresh_core::limits::{
    AGENT_GATHER_TIME, AGENT_LINE_BYTES_MAX, AGENT_LONE_READS_MAX, AGENT_READ_BYTES,
    AGENT_WORDS_MAX,
};
use afresh_core::run::Attempt;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::os::{PipeReader, leave_alone};

/// What came of a session at once, in its order.
pub(super) struct Word {
    pub(super) attempt: Attempt,
    pub(super) said: Vec<Said>,
}

pub(super) enum Said {
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

/// Where words come in.
pub(super) fn words() -> (mpsc::Sender<Word>, mpsc::Receiver<Word>) {
    mpsc::channel(AGENT_WORDS_MAX)
}

/// Hands on lines, those of an agent where its kind is given, else those of a log.
pub(super) async fn read_lines(
    attempt: Attempt,
    mut pipe: PipeReader,
    words: mpsc::Sender<Word>,
    kind: Option<AgentKind>,
) {
    let mut buffer = vec![0; AGENT_READ_BYTES];
    let mut lines = Lines { kind, line: Vec::new(), skipped: 0 };
    let mut pace = Pace::default();
    loop {
        let read = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let said = lines.split(&buffer[..read]);
        if !said.is_empty() && words.send(Word { attempt, said }).await.is_err() {
            return;
        }
        // A full buffer says that there is more.
        if read < buffer.len() && pace.is_thick() {
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
    said.push(Said::Closed);
    words.send(Word { attempt, said }).await.ok();
}

/// Cuts bytes into lines. The rest of one that is too long is passed over, and said once.
struct Lines {
    kind: Option<AgentKind>,
    line: Vec<u8>,
    skipped: usize,
}

impl Lines {
    fn split(&mut self, mut rest: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (whole, more) = (&rest[..end], &rest[end + 1..]);
            rest = more;
            let is_piece = |line| self.kind.is_some_and(|kind| kind.is_delta(line));
            // Most are pieces that stand in one chunk: no copy is made of them.
            if self.line.is_empty() && self.skipped == 0 && is_piece(whole) {
                if !matches!(said.last(), Some(Said::Piece)) {
                    said.push(Said::Piece);
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
    fn said(&mut self) -> Said {
        let line = std::mem::take(&mut self.line);
        match (std::mem::take(&mut self.skipped), self.kind) {
            (0, None) => Said::Log(line),
            (0, Some(kind)) if kind.is_delta(&line) => Said::Piece,
            (0, Some(_)) => Said::Line(line),
            (more, _) => Said::TooLong(more + line.len()),
        }
    }
}

/// How thick what is read comes.
#[derive(Default)]
struct Pace {
    last: Option<Instant>,
    in_a_row: u32,
}

impl Pace {
    /// Something was read. Whether it is time to let more come together.
    fn is_thick(&mut self) -> bool {
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

    fn show(said: &[Said]) -> Vec<String> {
        let show = |said: &Said| match said {
            Said::Line(line) => String::from_utf8_lossy(line).into_owned(),
            Said::Log(line) => format!("log {}", String::from_utf8_lossy(line)),
            Said::Piece => "piece".to_owned(),
            Said::TooLong(bytes) => format!("too long: {bytes}"),
            _ => "?".to_owned(),
        };
        said.iter().map(show).collect()
    }

    #[test]
    fn lines_are_whole_pieces_are_not_kept_and_what_is_too_long_is_said_once() {
        let piece = r#"{"type":"stream_event","event":{"type":"content_block_delta"}}"#;
        let mut lines = Lines { kind: Some(AgentKind::Claude), line: Vec::new(), skipped: 0 };
        let text = format!("one\n{piece}\n{piece}\ntw");
        assert_eq!(show(&lines.split(text.as_bytes())), ["one", "piece"]);
        let (begin, end) = piece.split_at(20);
        assert_eq!(show(&lines.split(format!("o\n{begin}").as_bytes())), ["two"]);
        assert_eq!(show(&lines.split(format!("{end}\n").as_bytes())), ["piece"]);
        assert_eq!(show(&lines.split(&vec![b'x'; AGENT_LINE_BYTES_MAX + 1])), [""; 0]);
        let long = format!("too long: {}", AGENT_LINE_BYTES_MAX + 3);
        assert_eq!(show(&lines.split(b"yz\nthree\n")), [long.as_str(), "three"]);
        let mut log = Lines { kind: None, line: Vec::new(), skipped: 0 };
        let said = log.split(format!("{piece}\n").as_bytes());
        assert_eq!(show(&said), [format!("log {piece}")]);
    }

    #[test]
    fn what_comes_by_itself_is_taken_at_once_and_what_comes_thick_together() {
        let mut pace = Pace::default();
        let thick: Vec<bool> = (0..=AGENT_LONE_READS_MAX + 1).map(|_| pace.is_thick()).collect();
        assert_eq!(thick.iter().position(|is_thick| *is_thick), Some(thick.len() - 1));
        pace.last = pace.last.map(|last| last - 3 * AGENT_GATHER_TIME);
        assert!(!pace.is_thick(), "there was a rest");
    }
}
