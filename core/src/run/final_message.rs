//! Reads the last message of a session that was asked to come to an end: whether something is left.
//!
//! Models write the word that they were asked for in a heading, in bold, in lower case, or after a sentence. Where
//! that can be read in two ways, something is left: one more session costs little, half a phase that is called done
//! much.

use super::prompts::{DONE, HANDOFF};

/// What the last message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalMessage<'a> {
    /// Something is left, and this is for the session that goes on.
    Handoff(&'a str),
    /// The task is complete.
    Done,
    /// Neither.
    None,
}

impl<'a> FinalMessage<'a> {
    /// Reads a message.
    pub(super) fn of(text: &'a str) -> Self {
        let text = text.trim();
        let lines: Vec<&str> = text.lines().map(bare).filter(|line| !line.is_empty()).collect();
        if let Some(rest) = after(bare(text), HANDOFF) {
            return Self::Handoff(rest.trim_start_matches(|c: char| !c.is_alphanumeric()));
        }
        // What stands before it belongs to it.
        if lines.iter().any(|line| after(line, HANDOFF).is_some() || begins_sentence(line)) {
            return Self::Handoff(text);
        }
        let begins = lines.first().is_some_and(|line| begins_done(line));
        let ends = lines.last().is_some_and(|line| is_done_alone(line));
        if (begins || ends) && !tells_of_rest(text) { Self::Done } else { Self::None }
    }
}

/// A line without the Markdown in front of its first word. What belongs to a path stays.
fn bare(line: &str) -> &str {
    line.trim_start_matches(|c: char| !c.is_alphanumeric() && !"/\\.$@".contains(c))
}

/// What follows a word at the beginning of a line, in any case. `HANDOFF.md` and `handoff_timeout` are other words.
fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = line.split_at_checked(word.len())?;
    let rest = rest.trim_start_matches(['*', '_', '`', '~']);
    let mut next = rest.chars();
    let is_longer = match next.next() {
        Some(c) if c.is_alphanumeric() || "/\\".contains(c) => true,
        Some('.' | '-') => next.next().is_some_and(char::is_alphanumeric),
        _ => false,
    };
    (first.eq_ignore_ascii_case(word) && !is_longer).then_some(rest)
}

/// Whether the word, as it was asked for, begins a sentence within a line.
fn begins_sentence(line: &str) -> bool {
    line.match_indices(HANDOFF).any(|(at, _)| {
        let before = line[..at].trim_end_matches([' ', '*', '_', '`', '#', '"']);
        before.ends_with(['.', '!', '?', ':', ';']) && after(&line[at..], HANDOFF).is_some()
    })
}

/// Whether the first line says that the task is complete: by the word as it was asked for, or as a sentence of its own.
/// "Done" is also the title of what is done so far, and the first word of a sentence about a part of it.
fn begins_done(line: &str) -> bool {
    let Some(rest) = after(line, DONE) else { return false };
    let rest = rest.trim_start();
    line.starts_with(DONE)
        || rest.is_empty()
        || rest.starts_with(['.', '!', ',', ';', '-', '–', '—'])
}

fn is_done_alone(line: &str) -> bool {
    line.starts_with(DONE)
        && after(line, DONE).is_some_and(|rest| !rest.contains(char::is_alphanumeric))
}

/// Whether a part of a sentence speaks of something that is left, unless it says that nothing is.
fn tells_of_rest(text: &str) -> bool {
    const REST: [&str; 14] = [
        "left",
        "remaining",
        "remains",
        "next",
        "todo",
        "half",
        "yet",
        "far",
        "still",
        "pending",
        "unfinished",
        "partly",
        "partially",
        "later",
    ];
    let parts = text.split(['.', '!', '?', ';', ':', ',', '\n', '–', '—']);
    parts.into_iter().any(|part| {
        let has = |wanted: &[&str]| {
            let mut words = part.split(|c: char| !c.is_alphanumeric());
            words.any(|word| wanted.iter().any(|it| it.eq_ignore_ascii_case(word)))
        };
        has(&REST) && !has(&["nothing", "no", "none"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_is_one_in_whatever_dress() {
        for text in [
            "HANDOFF",
            "HANDOFF: half",
            "**HANDOFF**\n\nhalf",
            "__Handoff__ half",
            "# Handoff\nhalf",
            "Handoff: half",
            "handoff\nhalf",
            "> HANDOFF - half",
            "```\nHANDOFF\nhalf\n```",
            "I have stopped as asked. HANDOFF: half",
            "I have stopped as asked.\n\n## Handoff\n\nhalf",
            "Done. I have stopped.\n\n**HANDOFF:** half",
            "DONE:\n- one\n\nHANDOFF:\n- two",
        ] {
            assert!(matches!(FinalMessage::of(text), FinalMessage::Handoff(_)), "{text:?}");
        }
        assert_eq!(FinalMessage::of("**HANDOFF:**\n\nhalf"), FinalMessage::Handoff("half"));
        assert_eq!(
            FinalMessage::of("As asked.\nHANDOFF: half"),
            FinalMessage::Handoff("As asked.\nHANDOFF: half")
        );
    }

    #[test]
    fn a_task_that_is_complete_is_said_to_be() {
        for text in [
            "DONE",
            "DONE all files are written",
            "**DONE**\n\nAll files are written.",
            "# DONE\nAll of it.",
            "✅ DONE: all files are written",
            "Done.",
            "done",
            "Done — all files are written.\nNo handoff is needed.",
            "DONE. Nothing is left to do, and no steps remain.",
            "All files are written.\n\nDONE",
            "DONE: `HANDOFF.md` is written",
        ] {
            assert_eq!(FinalMessage::of(text), FinalMessage::Done, "{text:?}");
        }
    }

    #[test]
    fn what_says_neither_is_not_taken_for_one() {
        for text in [
            "",
            "The second half is not done yet.",
            "HANDOFF.md is written, all is well",
            "handoff_timeout is set",
            "Handoffs are written",
            "./handoff/notes is there",
            "Done with the first half.",
            "Done so far: one",
            "I have stopped.\n\n## Done\n- one\n\n## Left\n- two",
            "**Done**\n- one\n\n**Left**\n- two",
            "Stopped.\nDONE: one\nLEFT: two",
            "DONENESS",
            "Nothing is undone",
            "Done: parser and its tests.\nHalf done: printer.rs.\nNext: docs",
            "Done: parser. Left: printer, docs.",
            "DONE: parser\nLEFT: printer",
            "Done, as far as I got: parser. Next: the printer.",
            "What is done:\n- DONE parser\n- ToDo printer",
            "**Status**\n\nDONE - parser\nToDo - printer",
            "DONE with the parser; the printer is left for another session",
            "ToDo printer\n\nDONE",
        ] {
            assert_eq!(FinalMessage::of(text), FinalMessage::None, "{text:?}");
        }
    }
}
