//! Writes the checkpoint: the text that tells the next session of a phase about those before it. Driven by the machine.
//! Never longer than its bound.

use std::fmt::Write;

use super::{Kind, PhaseChanges};
use crate::limits::{
    CHECKPOINT_CHARS_MAX, CHECKPOINT_LIST_MAX, GATE_TAIL_CHARS_MAX, HANDOFF_CHARS_MAX,
};
use crate::text;

/// All that is known of a phase when a session of it ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The phase.
    pub phase: String,
    /// Which session this is for.
    pub kind: Option<Kind>,
    /// Restarts that are allowed.
    pub restarts_max: u32,
    /// Why the session before ended, in words.
    pub why: String,
    /// What it wrote for the next one.
    pub handoff: Option<String>,
    /// What agents said on the way, oldest first.
    pub progress: Vec<String>,
    /// What git knows.
    pub changes: PhaseChanges,
    /// Entries of the stash of git that sessions have made and not popped.
    pub stashed: Vec<String>,
    /// Gates that failed: their names and ends of output.
    pub failed: Vec<(String, String)>,
}

impl Checkpoint {
    /// The text, to stand in front of the prompt. Where it is too long, lists go first, the handoff last.
    pub fn text(&self) -> String {
        for list_max in [CHECKPOINT_LIST_MAX, 10, 3, 0] {
            let text = self.written(list_max);
            if text.chars().count() <= CHECKPOINT_CHARS_MAX {
                return text;
            }
        }
        cut(&self.written(0), CHECKPOINT_CHARS_MAX)
    }

    fn written(&self, list_max: usize) -> String {
        let mut out =
            "# Checkpoint: this is a fresh session that continues earlier work\n".to_owned();
        let which = match self.kind {
            Some(Kind::Restart(number)) => format!("restart {number} of {}", self.restarts_max),
            Some(Kind::Remediation(number)) => format!("remediation {number}: gates have failed"),
            Some(Kind::Resumed) => "resumed".to_owned(),
            Some(Kind::First) | None => "first session".to_owned(),
        };
        push(&mut out, &format!("Phase: {} ({which})", self.phase));
        if !self.why.is_empty() {
            push(&mut out, &format!("Why the session before ended: {}", self.why));
        }
        if let Some(handoff) = &self.handoff {
            section(&mut out, "What the session before wrote for you");
            push(&mut out, &cut(handoff, HANDOFF_CHARS_MAX));
        }
        if !self.failed.is_empty() {
            section(&mut out, "Gates that failed");
            for (name, output) in &self.failed {
                let output = tail(output, GATE_TAIL_CHARS_MAX.min(1 + list_max * 600));
                push(&mut out, &format!("`{name}`:\n\n{}", fenced(&output)));
            }
        }
        if self.handoff.is_none() && !self.progress.is_empty() {
            section(&mut out, "Progress so far, in the words of the sessions before");
            let skipped = self.progress.len().saturating_sub(list_max.max(1));
            push(&mut out, &bullets(&self.progress[skipped..], usize::MAX));
        }
        let changes = &self.changes;
        let lists = [
            ("Commits since the phase began", &changes.commits),
            ("Files modified", &changes.modified),
            ("New files", &changes.new),
            ("Files that were touched though the plan does not allow it", &changes.outside),
        ];
        for (title, list) in lists {
            if !list.is_empty() {
                section(&mut out, title);
                push(&mut out, &bullets(list, list_max));
            }
        }
        if !changes.stat.is_empty() && list_max >= CHECKPOINT_LIST_MAX {
            section(&mut out, "What changed");
            push(&mut out, &fenced(&tail(&changes.stat, 2_000)));
        }
        section(&mut out, "What to do now");
        for name in &self.stashed {
            push(
                &mut out,
                &format!(
                    "`{name}` holds work of a session before: look at it with `git stash show -p -u {name}`, and take \
                     it back with `git stash pop {name}` if it belongs here."
                ),
            );
        }
        let advice = self.advice();
        match self.stashed.is_empty() {
            true => push(&mut out, advice),
            false => push(&mut out, &advice.replacen("The work", "All other work", 1)),
        }
        out
    }

    const fn advice(&self) -> &'static str {
        match self.kind {
            Some(Kind::Remediation(_)) => {
                "The work of this phase is in the files and committed. Find out why the gates fail, mend \
                 that, and change nothing else. The task below is for reference: do not begin it again."
            }
            _ => {
                "The work so far is in the files and committed. Continue from there and do what is left of \
                 the task below. Do not redo what is done; look at the files before you trust a list here."
            }
        }
    }
}

fn section(out: &mut String, title: &str) {
    write!(out, "\n## {title}\n").ok();
}

fn push(out: &mut String, text: &str) {
    out.push('\n');
    out.push_str(text.trim_end());
    out.push('\n');
}

fn bullets(items: &[String], items_max: usize) -> String {
    let mut out = String::new();
    for item in items.iter().take(items_max) {
        writeln!(out, "- {}", item.trim().replace('\n', "\n  ")).ok();
    }
    if items.len() > items_max {
        writeln!(out, "- and {} more", items.len() - items_max).ok();
    }
    out
}

/// A fence that is longer than any in the text.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end())
}

/// The beginning of a text.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    let head = text::head(text, chars_max);
    if head.len() == text.len() { text.to_owned() } else { format!("{head}\n[cut]") }
}

/// The end of a text.
pub(super) fn tail(text: &str, chars_max: usize) -> String {
    let tail = text::tail(text, chars_max);
    if tail.len() == text.len() { text.to_owned() } else { format!("[cut]\n{tail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Checkpoint {
        Checkpoint {
            phase: "API".to_owned(),
            kind: Some(Kind::Restart(2)),
            restarts_max: 3,
            why: "its context was full (83 %)".to_owned(),
            handoff: Some("Half of the routes are there.".to_owned()),
            progress: vec!["read the code".to_owned()],
            changes: PhaseChanges {
                commits: vec!["abc123 afresh: API".to_owned()],
                stat: " a.rs | 2 +-".to_owned(),
                modified: vec!["a.rs".to_owned()],
                new: vec!["b.rs".to_owned()],
                ..PhaseChanges::default()
            },
            stashed: Vec::new(),
            failed: vec![("cargo test".to_owned(), "1 failed ```".to_owned())],
        }
    }

    #[test]
    fn it_says_all_that_the_next_session_needs() {
        // S4
        let text = full().text();
        for wanted in [
            "fresh session",
            "Phase: API (restart 2 of 3)",
            "its context was full (83 %)",
            "Half of the routes",
            "- abc123 afresh: API",
            "- a.rs",
            "- b.rs",
            "`cargo test`",
            "````\n1 failed ```\n````",
            "Do not redo",
        ] {
            assert!(text.contains(wanted), "no `{wanted}`:\n{text}");
        }
        assert!(!text.contains("read the code"), "the handoff says it better");
        let without = Checkpoint { handoff: None, ..full() }.text();
        assert!(without.contains("- read the code"));
    }

    #[test]
    fn what_is_in_the_stash_is_said_and_not_called_committed() {
        let text = Checkpoint { stashed: vec!["stash@{0}".to_owned()], ..full() }.text();
        assert!(text.contains("`stash@{0}` holds work of a session before"), "{text}");
        assert!(text.contains("All other work so far is in the files and committed"), "{text}");
        assert!(full().text().contains("\nThe work so far is in the files and committed"));
    }

    #[test]
    fn it_is_bounded_and_the_handoff_goes_last() {
        let many: Vec<String> = (0..5_000).map(|n| format!("src/some/file_{n}.rs")).collect();
        let big = Checkpoint {
            handoff: Some("handoff ".repeat(50_000)),
            changes: PhaseChanges { modified: many.clone(), new: many, ..PhaseChanges::default() },
            failed: vec![("gate".to_owned(), "é".repeat(100_000)); 8],
            ..full()
        };
        let text = big.text();
        assert!(text.chars().count() <= CHECKPOINT_CHARS_MAX + "\n[cut]".len());
        assert!(text.contains("handoff handoff") && text.contains("Gates that failed"));
        let some = Checkpoint { handoff: None, failed: Vec::new(), ..big }.text();
        assert!(some.contains("- and 4960 more"), "{some}");
    }
}
