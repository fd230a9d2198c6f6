//! Edits messages as bytes: finds parts of them, and puts other bytes in their places. Used by all parts of the hub.

use std::ops::Range;

use crate::mcp::json as raw;

/// The line with parts replaced, all in one go. They do not overlap.
pub(super) fn edit(line: &[u8], mut edits: Vec<(Range<usize>, Vec<u8>)>) -> Vec<u8> {
    edits.sort_by_key(|(part, _)| part.start);
    let more: usize = edits.iter().map(|(_, by)| by.len()).sum();
    let mut edited = Vec::with_capacity(line.len() + more);
    let mut at = 0;
    for (part, by) in edits {
        edited.extend_from_slice(&line[at..part.start]);
        edited.extend_from_slice(&by);
        at = part.end;
    }
    edited.extend_from_slice(&line[at..]);
    edited
}

/// Where a part of a line stands in it.
pub(super) fn place(line: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr() as usize - line.as_ptr() as usize;
    start..start + part.len()
}

/// Where the value of a member of the message itself stands.
pub(super) fn member(line: &[u8], key: &str) -> Option<Range<usize>> {
    raw::get(line, &[key]).map(|value| place(line, value))
}

/// The number in an id of ours, such as `"g12"`.
pub(super) fn number_in(id: &[u8], letter: u8) -> Option<u64> {
    let inside = id.strip_prefix(b"\"")?.strip_suffix(b"\"")?.strip_prefix(&[letter])?;
    std::str::from_utf8(inside).ok()?.parse().ok()
}

pub(super) fn own_id(letter: char, number: u64) -> Vec<u8> {
    format!("\"{letter}{number}\"").into_bytes()
}
