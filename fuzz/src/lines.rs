//! Fuzzes the line codec: however bytes arrive, its frames are the lines of the bytes, without line ends and blank
//! lines.

use afresh_core::limits::LONG_LINE_BYTES;
use afresh_core::mcp::frame::{Frame, LineSplitter};

use crate::input::{first, pieces};
use crate::is_planted;

/// Stands for a long part of a line, so that a short input reaches the path of long lines.
const LONG_PART: u8 = 0xf8;

pub fn check(data: &[u8]) {
    let Some((seed, rest)) = first(data) else { return };
    let bytes = with_long_parts(rest, &mut 0);
    let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
    let mut parts = 0;
    for piece in pieces(seed, rest) {
        let mut piece = with_long_parts(piece, &mut parts);
        if is_planted() && found.len() == 2 && piece.ends_with(b"\r\n") {
            piece.pop();
        }
        push(&mut lines, &piece, |frame| match frame {
            Frame::Line(line) => found.push(line),
            Frame::TooLong { .. } => panic!("no line is that long"),
        });
    }
    let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let unfinished = expected.pop().unwrap_or_default();
    assert_eq!(lines.unfinished(), unfinished.len());
    let expected: Vec<&[u8]> = expected.into_iter().filter_map(line_of).collect();
    assert!(found == expected, "{} lines for {}", found.len(), expected.len());
}

/// As a wire does: straight into a long line where there is one.
fn push(lines: &mut LineSplitter, bytes: &[u8], give: impl FnMut(Frame)) {
    match lines.long() {
        Some(long) => {
            let before = long.len();
            long.extend_from_slice(bytes);
            lines.pushed(before, give);
        }
        None => lines.push(bytes, give),
    }
}

fn line_of(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    (!line.iter().all(u8::is_ascii_whitespace)).then_some(line)
}

/// The bytes with the first long parts filled in, counted across pieces.
fn with_long_parts(bytes: &[u8], parts: &mut u32) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    for byte in bytes {
        *parts += u32::from(*byte == LONG_PART);
        match byte {
            // A few are enough, and more are slow.
            &LONG_PART if *parts <= 2 => all.resize(all.len() + LONG_LINE_BYTES, b'x'),
            byte => all.push(*byte),
        }
    }
    all
}
