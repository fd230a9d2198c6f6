//! Marks the files that `afresh install` writes, and tells whether one was edited since.

/// Without two hyphens in a row: a comment in XML may not have them.
const WORDS: &str = "Written by `afresh install`, which can also undo it. Checksum ";

/// The state of a file that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Free,
    /// Just what we would write.
    Same,
    /// An earlier one of ours, for the same folder.
    Older,
    /// One of ours, for another folder.
    Elsewhere,
    /// One of ours that was edited.
    Changed,
    /// Not one of ours.
    Foreign,
}

/// Compares a file that exists with the text that would be written.
pub fn standing(there: Option<&[u8]>, ours: &str) -> Standing {
    let Some(there) = there else { return Standing::Free };
    if there == ours.as_bytes() {
        return Standing::Same;
    }
    let Ok(text) = std::str::from_utf8(there) else { return Standing::Foreign };
    let found = text.split_once(WORDS).and_then(|(before, rest)| {
        let (checksum, after) = rest.split_at_checked(CHECKSUM_LEN)?;
        Some(checksum == checksum_of(before, after))
    });
    match found {
        None => Standing::Foreign,
        Some(false) => Standing::Changed,
        Some(true) if folder_in(text) != folder_in(ours) => Standing::Elsewhere,
        Some(true) => Standing::Older,
    }
}

/// A text with its mark, which stands where `before` ends and `after` begins.
pub(super) fn marked(before: &str, after: &str) -> String {
    format!("{before}{WORDS}{}{after}", checksum_of(before, after))
}

const CHECKSUM_LEN: usize = 16;

/// FNV-1a: detects an edit, and is no protection.
fn checksum_of(before: &str, after: &str) -> String {
    let bytes = before.bytes().chain(after.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The line that has the folder.
fn folder_in(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains("WorkingDirectory"))?;
    if line.starts_with("WorkingDirectory=") { Some(line) } else { lines.next() }
}
