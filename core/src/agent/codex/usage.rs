//! Owns the use of a session of Codex: how full the context is, and the tokens of all threads.
//!
//! Codex tells both after each call of its model, by thread: the one that we opened, and one for each of its
//! subagents. Only the first fills our context; all of them cost.

use std::collections::BTreeMap;

use crate::agent::stream::Object;
use crate::agent::{AgentEvent, ContextUse, Effect, Spent};
use crate::limits::AGENT_THREADS_MAX;

/// What was told of use so far.
#[derive(Debug, Default)]
pub(super) struct CodexUsage {
    threads: BTreeMap<String, Thread>,
    /// Of threads that are not remembered any more.
    folded: Spent,
    context: Option<ContextUse>,
    spent: Option<Spent>,
}

/// The counter of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// What it had counted each time that it began anew.
    earlier: Spent,
    /// Where it stood before we listened: a thread that goes on from another may bring its count along.
    base: Spent,
    now: Spent,
}

impl CodexUsage {
    /// Takes in what Codex tells of a thread, and returns what is new of it.
    pub(super) fn update(&mut self, thread: &str, is_ours: bool, told: &Object<'_>) -> Vec<Effect> {
        let (total, last) = (told.object("total"), told.object("last"));
        let mut heard = Vec::new();
        if is_ours && let Some(context) = context(&total, &last, told.number("modelContextWindow"))
        {
            if self.context != Some(context) {
                heard.push(Effect::Heard(AgentEvent::Context(context)));
            }
            self.context = Some(context);
        }
        self.count(thread, counts(&total), counts(&last));
        let spent = self.threads.values().map(Thread::spent).fold(self.folded, Spent::plus);
        if self.spent != Some(spent) && spent != Spent::default() {
            heard.push(Effect::Heard(AgentEvent::Spent(spent)));
            self.spent = Some(spent);
        }
        heard
    }

    fn count(&mut self, thread: &str, total: Spent, last: Spent) {
        if let Some(known) = self.threads.get_mut(thread) {
            return known.count(total);
        }
        if self.threads.len() >= AGENT_THREADS_MAX
            // The ids are in the order of time: the first is the oldest.
            && let Some((_, oldest)) = self.threads.pop_first()
        {
            self.folded = self.folded.plus(oldest.spent());
        }
        let new = Thread {
            base: total.with_tokens(last, u64::saturating_sub),
            now: total,
            ..Thread::default()
        };
        self.threads.insert(thread.to_owned(), new);
    }
}

impl Thread {
    fn count(&mut self, total: Spent) {
        // After an overflow it begins anew; what was used is used.
        if total.input < self.now.input || total.output < self.now.output {
            *self = Self { earlier: self.spent(), ..Self::default() };
        }
        self.now = total;
    }

    fn spent(&self) -> Spent {
        self.earlier.plus(self.now.with_tokens(self.base, u64::saturating_sub))
    }
}

fn counts(told: &Object<'_>) -> Spent {
    let [input, cached, output] = ["inputTokens", "cachedInputTokens", "outputTokens"]
        .map(|key| told.number(key).unwrap_or_default());
    Spent { input, cached, output, ..Spent::default() }
}

/// How full the context is after a call.
fn context(total: &Object<'_>, last: &Object<'_>, window: Option<u64>) -> Option<ContextUse> {
    let mut used = last.number("totalTokens")?;
    let counted = counts(last) != Spent::default();
    // What was asked did not fit. Codex then says that the total is the window, and that the last call was
    // and the rest is zero, mostly.
    if let Some(window) = window
        && !counted
        && counts(total) == Spent::default()
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
