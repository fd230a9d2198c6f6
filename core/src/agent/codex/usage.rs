//! Owns the use of a session of Codex: how full the context is, and the tokens of all threads.
//!
//! Codex tells both after each call of its model, by thread: the one that we opened, and one for each of its
//! subagents. Only the first fills our context; all of them cost.

use std::collections::BTreeMap;

use super::line_fields::Object;
use crate::agent::{AgentEvent, ContextUse, Spent};
use crate::limits::AGENT_THREADS_MAX;

/// What was told of use so far.
#[derive(Debug, Default)]
pub(super) struct CodexUsage {
    threads: BTreeMap<String, Thread>,
    /// Of threads that are not remembered any more.
    folded: Counts,
    context: Option<ContextUse>,
    spent: Option<Spent>,
}

/// The counter of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// What it had counted each time that it began anew.
    earlier: Counts,
    /// Where it stood before we listened: a thread that goes on from another may bring its count along.
    base: Counts,
    now: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    input: u64,
    cached: u64,
    output: u64,
}

impl CodexUsage {
    /// Takes in what Codex tells of a thread, and returns what is new of it.
    pub(super) fn update(
        &mut self,
        thread: &str,
        is_ours: bool,
        told: &Object<'_>,
    ) -> Vec<AgentEvent> {
        let (total, last) = (told.object("total"), told.object("last"));
        let mut heard = Vec::new();
        if is_ours && let Some(context) = context(&total, &last, told.number("modelContextWindow"))
        {
            if self.context != Some(context) {
                heard.push(AgentEvent::Context(context));
            }
            self.context = Some(context);
        }
        self.count(thread, Counts::of(&total), Counts::of(&last));
        let spent = self.sum();
        if self.spent != Some(spent) && spent != Spent::default() {
            heard.push(AgentEvent::Spent(spent));
            self.spent = Some(spent);
        }
        heard
    }

    fn count(&mut self, thread: &str, total: Counts, last: Counts) {
        if let Some(known) = self.threads.get_mut(thread) {
            return known.count(total);
        }
        if self.threads.len() >= AGENT_THREADS_MAX
            // The ids are in the order of time: the first is the oldest.
            && let Some((_, oldest)) = self.threads.pop_first()
        {
            self.folded = self.folded.plus(oldest.spent());
        }
        let new = Thread { earlier: Counts::default(), base: total.minus(last), now: total };
        self.threads.insert(thread.to_owned(), new);
    }

    fn sum(&self) -> Spent {
        let all = self.threads.values().map(Thread::spent).fold(self.folded, Counts::plus);
        let Counts { input, cached, output } = all;
        Spent { input, cached, output, ..Spent::default() }
    }
}

impl Thread {
    fn count(&mut self, total: Counts) {
        // After an overflow it begins anew; what was used is used.
        if total.input < self.now.input || total.output < self.now.output {
            *self = Self { earlier: self.spent(), ..Self::default() };
        }
        self.now = total;
    }

    fn spent(&self) -> Counts {
        self.earlier.plus(self.now.minus(self.base))
    }
}

impl Counts {
    fn of(told: &Object<'_>) -> Self {
        let number = |key| told.number(key).unwrap_or_default();
        Self {
            input: number("inputTokens"),
            cached: number("cachedInputTokens"),
            output: number("outputTokens"),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            cached: self.cached.saturating_sub(other.cached),
            output: self.output.saturating_sub(other.output),
        }
    }
}

/// How full the context is after a call.
fn context(total: &Object<'_>, last: &Object<'_>, window: Option<u64>) -> Option<ContextUse> {
    let mut used = last.number("totalTokens")?;
    let counted = Counts::of(last) != Counts::default();
    // What was asked did not fit. Codex then says that the total is the window, and that the last call was
    // and the rest is zero, mostly.
    if let Some(window) = window
        && !counted
        && Counts::of(total) == Counts::default()
        && total.number("totalTokens").is_some_and(|total| total >= window)
    {
        used = window;
    }
    // With nothing but a sum it is what Codex itself guesses, after it has compacted.
    Some(ContextUse { used, window, compacts_at: window.map(compacts_at), exact: counted })
}

/// Where Codex compacts at the latest, with all settings: at nine tenths of the model's window, of
/// which it calls nineteen twentieths the window.
fn compacts_at(window: u64) -> u64 {
    window / 19 * 18
}
