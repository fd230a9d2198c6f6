//! A line in the log file of a service, as bytes: `TIME STREAM GENERATION TEXT`.
//!
//! ```text
//! # afresh log 1, file 4
//! 2026-11-15T08:42:00.123Z stdout 2 listening on 8080
//! 2026-11-15T08:42:07.981Z stdout+ 2 the beginning of a line that is too long for one
//! 2026-11-15T08:42:07.981Z stdout 2 and its end
//! 2026-11-15T08:42:09.004Z afresh 2 web (pid 4711) exited with code 1 after 8.9 s: crash
//! ```
//!
//! The text is what the service wrote, byte by byte, without its newline; it need not be UTF-8. A service
//! can write nothing that looks like a line of ours: all that follows a newline gets a head of its own.

use std::fmt::Write;
use std::time::Duration;

use crate::control::LogStream;
use crate::limits::LINE_BYTES_MAX;
use crate::time::Stamp;

/// More than the head of any line has: a time, a stream, a generation, and what stands between them.
pub const LOG_HEAD_BYTES_MAX: usize = 64;

/// The first line of a file begins like this; the number of the file follows. Files of one service are
/// counted, so that a reader sees that one is missing.
const FILE_MARK: &str = "# afresh log 1, file ";

/// The first line of the file with this number, with its newline.
pub fn file_head(number: u64) -> String {
    format!("{FILE_MARK}{number}\n")
}

/// The number of the file that a line is the first of.
pub fn parse_file_head(line: &[u8]) -> Option<u64> {
    let number = line.strip_prefix(FILE_MARK.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The head of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The time at which it was read.
    pub time: Stamp,
    /// The stream that it was written to.
    pub stream: LogStream,
    /// Which instance wrote it.
    pub generation: u64,
    /// Whether the line goes on in the next one of the same stream and instance.
    pub continues: bool,
}

impl LogHead {
    /// Appends lines, each with this in front of it. Between two of them stands a newline; what is too
    /// long for one line becomes several.
    pub fn write_lines(self, lines: &[u8], out: &mut Vec<u8>) {
        let whole = Self { continues: false, ..self }.to_string();
        let begun = Self { continues: true, ..self }.to_string();
        let mut put = |head: &str, text: &[u8]| {
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(text);
            out.push(b'\n');
        };
        let mut line = |mut text: &[u8], end: &str| {
            while text.len() > LINE_BYTES_MAX {
                put(&begun, &text[..LINE_BYTES_MAX]);
                text = &text[LINE_BYTES_MAX..];
            }
            put(end, text);
        };
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            line(&lines[start..end], &whole);
            start = end + 1;
        }
        line(&lines[start..], if self.continues { &begun } else { &whole });
    }

    /// Takes a line apart, which has no newline any more: its head, and its text.
    pub fn parse(line: &[u8]) -> Option<(Self, &[u8])> {
        let (time, rest) = cut(line)?;
        let (stream, rest) = cut(rest)?;
        let (generation, text) = cut(rest)?;
        let text_of = |bytes| std::str::from_utf8(bytes).ok();
        let (stream, continues) = match stream.strip_suffix(b"+") {
            Some(stream) => (stream, true),
            None => (stream, false),
        };
        let streams = [LogStream::Stdout, LogStream::Stderr, LogStream::Afresh];
        let head = Self {
            time: Stamp::parse(text_of(time)?)?,
            stream: streams.into_iter().find(|known| known.name().as_bytes() == stream)?,
            generation: text_of(generation)?.parse().ok()?,
            continues,
        };
        Some((head, text))
    }
}

impl std::fmt::Display for LogHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.time, self.stream.name())?;
        if self.continues {
            f.write_char('+')?;
        }
        write!(f, " {} ", self.generation)
    }
}

/// The next word, and what is behind the space that ends it.
fn cut(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', &line[..line.len().min(LOG_HEAD_BYTES_MAX)])?;
    Some((&line[..end], &line[end + 1..]))
}

/// The note in place of lines that are missing.
pub fn loss_note(lines: u64, why: &str) -> String {
    match lines {
        1 => format!("[1 line is missing here: {why}]"),
        lines => format!("[{lines} lines are missing here: {why}]"),
    }
}

/// How often the age of files is looked at, while lines are written: they may be older by this much
/// when they go.
pub fn age_look_interval(age_max: Duration) -> Duration {
    (age_max / 8).clamp(Duration::from_secs(1), Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(stream: LogStream, continues: bool) -> LogHead {
        let time = Stamp::parse("2026-11-15T08:42:00.123Z").unwrap();
        LogHead { time, stream, generation: 12, continues }
    }

    fn written(head: LogHead, lines: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head.write_lines(lines, &mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        for stream in [LogStream::Stdout, LogStream::Stderr, LogStream::Afresh] {
            for continues in [false, true] {
                for text in [&b""[..], b" ", b"two  words ", b"\xff\x00\r", "ü".as_bytes()] {
                    let head = head(stream, continues);
                    let line = written(head, text);
                    assert!(line.len() - text.len() < LOG_HEAD_BYTES_MAX);
                    assert_eq!(LogHead::parse(&line), Some((head, text)));
                }
            }
        }
        let largest = LogHead { generation: u64::MAX, ..head(LogStream::Stdout, true) };
        assert!(written(largest, b"").len() < LOG_HEAD_BYTES_MAX);
    }

    #[test]
    fn the_form_is_fixed() {
        assert_eq!(
            String::from_utf8(written(head(LogStream::Stdout, false), b"one\n\ntwo")).unwrap(),
            "2026-11-15T08:42:00.123Z stdout 12 one\n\
             2026-11-15T08:42:00.123Z stdout 12 \n\
             2026-11-15T08:42:00.123Z stdout 12 two"
        );
        assert_eq!(file_head(4), "# afresh log 1, file 4\n");
        assert_eq!(parse_file_head(b"# afresh log 1, file 4"), Some(4));
        assert_eq!(loss_note(2, "why"), "[2 lines are missing here: why]");
    }

    #[test]
    fn long_lines_become_several_that_say_so() {
        let text = [vec![b'a'; LINE_BYTES_MAX], vec![b'b'; LINE_BYTES_MAX], b"c\nd".to_vec()];
        let out = written(head(LogStream::Stderr, true), &text.concat());
        let lines: Vec<(LogHead, &[u8])> =
            out.split(|byte| *byte == b'\n').map(|line| LogHead::parse(line).unwrap()).collect();
        let shape: Vec<(bool, usize)> =
            lines.iter().map(|(head, text)| (head.continues, text.len())).collect();
        let max = LINE_BYTES_MAX;
        assert_eq!(shape, [(true, max), (true, max), (false, 1), (true, 1)]);
        let exact = written(head(LogStream::Stderr, false), &vec![b'x'; LINE_BYTES_MAX]);
        assert!(!LogHead::parse(&exact).unwrap().0.continues);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in [
            &b""[..],
            b"hello",
            b"# afresh log 1, file 4",
            b"2026-11-15T08:42:00.123Z stdout 12",
            b"2026-11-15T08:42:00.123Z stdin 12 x",
            b"2026-11-15T08:42:00.123Z stdout -1 x",
            b"2026-11-15T08:42:00.123 stdout 12 x",
            b"\xff\xfe stdout 12 x",
        ] {
            assert_eq!(LogHead::parse(line), None, "{}", String::from_utf8_lossy(line));
        }
        for line in [&b"# afresh log 2, file 4"[..], b"# afresh log 1, file ", b"x"] {
            assert_eq!(parse_file_head(line), None);
        }
    }
}
