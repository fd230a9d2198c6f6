//! Owns the calls of `restart_server` that wait for a new instance.
//!
//! Driven by [`Conversation`](super::Conversation), which sends the results. Never restarts anything.

use serde_json::json;

use crate::id::Generation;
use crate::limits::RESTART_ANSWER_MAX;
use crate::mcp::envelope::Id;
use crate::mcp::lists::{Changes, NamedList};
use crate::mcp::tools::AdminResult;
use crate::time::Time;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct RestartCalls(Vec<RestartCall>);

#[derive(Debug)]
struct RestartCall {
    id: Id,
    called_at: Time,
    until: Time,
    /// The newest instance at that time: only a newer one will do.
    newest: Generation,
    old_pid: Option<u32>,
    before: Option<NamedList>,
}

impl RestartCalls {
    pub(super) fn add(
        &mut self,
        now: Time,
        id: Id,
        newest: Generation,
        old_pid: Option<u32>,
        before: Option<NamedList>,
    ) {
        let until = now + RESTART_ANSWER_MAX;
        self.0.push(RestartCall { id, called_at: now, until, newest, old_pid, before });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When a call has waited long enough.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.0.iter().map(|call| call.until).min()
    }

    /// This instance serves, and its tools are known: the results of the calls that waited for it.
    pub(super) fn succeed(
        &mut self,
        now: Time,
        generation: Generation,
        pid: u32,
        tools: Option<&NamedList>,
    ) -> Vec<(Id, AdminResult)> {
        let done = self.0.extract_if(.., |call| call.newest < generation);
        done.map(|call| {
            let seconds = now.since(call.called_at).as_secs_f64();
            let changes = tools.zip(call.before.as_ref()).map(|(tools, b)| tools.changes_since(b));
            let said = success(&call, pid, seconds, changes.as_ref(), tools.map(NamedList::len));
            (call.id, said)
        })
        .collect()
    }

    /// The new instance did not come up. Where none is named, no other will come either.
    pub(super) fn fail(
        &mut self,
        why: &str,
        generation: Option<Generation>,
    ) -> Vec<(Id, AdminResult)> {
        let waits = |call: &mut RestartCall| generation.is_none_or(|failed| call.newest < failed);
        let failed = self.0.extract_if(.., waits);
        let text = format!("the server was not restarted: {why}");
        failed.map(|call| failure(call, text.clone(), why)).collect()
    }

    /// The results of the calls that have waited long enough.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(Id, AdminResult)> {
        let expired = self.0.extract_if(.., |call| call.until <= now);
        let text = format!(
            "no new instance is ready after {} s; it is still being tried: call server_status \
             for how far it is, and server_logs for what the server says",
            RESTART_ANSWER_MAX.as_secs()
        );
        expired.map(|call| failure(call, text.clone(), &text)).collect()
    }
}

fn failure(call: RestartCall, text: String, error: &str) -> (Id, AdminResult) {
    let data = json!({"restarted": false, "old_pid": call.old_pid, "error": error});
    (call.id, AdminResult { text, data: Some(data), is_error: true })
}

fn success(
    call: &RestartCall,
    pid: u32,
    seconds: f64,
    changes: Option<&Changes>,
    count: Option<usize>,
) -> AdminResult {
    let seconds = (seconds * 1e3).round() / 1e3;
    let old = call.old_pid.map_or_else(|| "none was running".to_owned(), |pid| pid.to_string());
    let mut text = format!("restarted in {seconds} s: old pid {old}, new pid {pid}.");
    let mut tools = json!({"count": count});
    match changes {
        None if call.before.is_some() => text.push_str(" Its tools could not be listed."),
        None => {}
        Some(changes) if changes.is_empty() => text.push_str(" The tools are the same."),
        Some(changes) => {
            let told = [
                ("added", &changes.added),
                ("removed", &changes.removed),
                ("changed", &changes.changed),
            ];
            for (word, names) in told.into_iter().filter(|(_, names)| !names.is_empty()) {
                text.push_str(&format!(" Tools {word}: {}.", names.join(", ")));
            }
        }
    }
    if let Some(Changes { added, removed, changed }) = changes {
        tools = json!({"count": count, "added": added, "removed": removed, "changed": changed});
    }
    let data = json!({
        "restarted": true,
        "old_pid": call.old_pid,
        "new_pid": pid,
        "seconds": seconds,
        "tools": tools,
    });
    AdminResult { text, data: Some(data), is_error: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_newer_instance_ends_the_wait() {
        let mut calls = RestartCalls::default();
        calls.add(Time::ZERO, Id::new(b"1"), Generation(2), Some(10), None);
        assert_eq!(calls.next_expiry(), Some(Time::ZERO + RESTART_ANSWER_MAX));
        assert_eq!(calls.succeed(Time::ZERO, Generation(2), 11, None), []);
        assert_eq!(calls.fail("it broke", Some(Generation(2))), []);
        assert_eq!(calls.expire(Time::ZERO), []);
        let done = calls.succeed(Time::ZERO, Generation(3), 11, None);
        assert!(matches!(&done[..], [(_, said)] if said.text.contains("old pid 10, new pid 11")));
        assert!(calls.is_empty());
    }

    #[test]
    fn a_call_ends_with_the_failure_or_with_its_time() {
        let mut calls = RestartCalls::default();
        calls.add(Time::ZERO, Id::new(b"1"), Generation(2), None, None);
        let failed = calls.fail("it broke", None);
        assert!(
            matches!(&failed[..], [(_, said)] if said.is_error && said.text.ends_with("it broke"))
        );
        calls.add(Time::ZERO, Id::new(b"2"), Generation(2), None, None);
        let expired = calls.expire(Time::ZERO + RESTART_ANSWER_MAX);
        assert!(matches!(&expired[..], [(_, said)] if said.is_error) && calls.is_empty());
    }
}
