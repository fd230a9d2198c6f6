//! Owns what is known of the tasks that servers have created for calls, and the answers about those whose server is gone: they
//! have failed, unless the client was told another end. Driven by `conversation.rs` and by the gateway's hub. Never polls a task.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::envelope::Id;
use super::inflight::{Class, Flight};
use super::json as raw;
use super::replay::Era;
use super::responses;
use crate::id::Generation;
use crate::limits::{
    TASK_ID_CHARS_MAX, TASK_MEMBER_BYTES_MAX, TASK_MESSAGE_BYTES_MAX, TASKS_REMEMBERED_MAX,
};

/// The extension of the newer protocol.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Whether the metadata of a request says that its client knows the extension.
pub(crate) fn knows_extension(meta: &[u8]) -> bool {
    let path = ["io.modelcontextprotocol/clientCapabilities", "extensions", EXTENSION];
    raw::get(meta, &path).is_some()
}

/// Whether the result of a request may be a task: where it asks for one, or its client knows the extension.
pub(super) fn may_be_made_by(call: &Flight, era: Era) -> bool {
    let knows = || {
        let meta = raw::get(&call.line, &["params", "_meta"]);
        era == Era::Modern && meta.is_some_and(knows_extension)
    };
    // A call that asks for a task is of another class.
    call.method == "tools/call" && (call.class == Class::Other || knows())
}

/// A task as its server described it at first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KnownTask {
    created_at: Value,
    ttl: Value,
    poll_interval: Value,
    /// How it ended, once its client was told that.
    ended: Option<TaskEnd>,
}

/// The end of a task: it stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskEnd {
    status: &'static str,
    message: Value,
    updated_at: Value,
}

impl TaskEnd {
    /// The end that a task's description tells, if it has ended.
    fn of(task: &[u8]) -> Option<Self> {
        let part = |key: &str, bytes_max: usize| {
            raw::value(raw::get(task, &[key]).filter(|found| found.len() <= bytes_max))
        };
        let told = raw::get(task, &["status"]).and_then(raw::text)?;
        let status = ENDED.into_iter().find(|status| *status == told)?;
        let message = part("statusMessage", TASK_MESSAGE_BYTES_MAX);
        Some(Self { status, message, updated_at: part("lastUpdatedAt", TASK_MEMBER_BYTES_MAX) })
    }
}

/// The statuses that a task keeps.
const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

/// The ends of tasks that a message of a server tells a client, by their ids: the answer to a request of this method, or a
/// notification of it.
pub(crate) fn told_ends(method: &str, line: &[u8]) -> BTreeMap<String, TaskEnd> {
    let id = |task: &[u8]| raw::get(task, &["taskId"]).and_then(raw::text);
    let end = |task: &[u8]| Some((id(task)?, TaskEnd::of(task)?));
    let result = raw::get(line, &["result"]).unwrap_or_default();
    match method {
        "tasks/get" | "tasks/cancel" => end(result).into_iter().collect(),
        "tasks/list" => {
            let mut ends = BTreeMap::new();
            let list = raw::get(result, &["tasks"]).unwrap_or_default();
            raw::each_element(list, |task| ends.extend(end(&list[task])));
            ends
        }
        "tasks/result" => {
            let related = raw::get(result, &["_meta", "io.modelcontextprotocol/related-task"]);
            let has_failed = raw::get(result, &["isError"]) == Some(b"true");
            let status = if has_failed { "failed" } else { "completed" };
            let of_result = |id| (id, TaskEnd { status, ..TaskEnd::default() });
            related.and_then(id).map(of_result).into_iter().collect()
        }
        _ if method.starts_with("notifications/tasks") => {
            raw::get(line, &["params"]).and_then(end).into_iter().collect()
        }
        _ => BTreeMap::new(),
    }
}

impl KnownTask {
    /// The task that the result of a call creates, with its id. In the older protocol it is a member of the result, in the newer
    /// one the result itself.
    pub(crate) fn created(line: &[u8]) -> Option<(String, Self)> {
        let result = raw::get(line, &["result"])?;
        let (task, keys) = match raw::get(result, &["task"]) {
            Some(task) => (task, ["createdAt", "ttl", "pollInterval"]),
            None => {
                raw::get(result, &["resultType"]).filter(|kind| *kind == br#""task""#)?;
                (result, ["createdAt", "ttlMs", "pollIntervalMs"])
            }
        };
        let id = raw::get(task, &["taskId"]).and_then(raw::text)?;
        let [created_at, ttl, poll_interval] = keys.map(|key| {
            let found = raw::get(task, &[key]);
            raw::value(found.filter(|found| found.len() <= TASK_MEMBER_BYTES_MAX))
        });
        let is_short = id.chars().count() <= TASK_ID_CHARS_MAX;
        is_short.then_some((id, Self { created_at, ttl, poll_interval, ended: TaskEnd::of(task) }))
    }

    /// Its client is told how it ended.
    pub(crate) fn note_end(&mut self, end: &TaskEnd) {
        self.ended.get_or_insert_with(|| end.clone());
    }

    /// The answer to a request about it, now that its server is gone: it has failed, unless it had ended before.
    pub(crate) fn answer_for_lost(
        &self,
        id: &Id,
        era: Era,
        method: &str,
        task: &str,
        why: &str,
    ) -> Vec<u8> {
        let is_modern = era == Era::Modern;
        let why = match &self.ended {
            None => why.to_owned(),
            Some(TaskEnd { status: "completed", .. }) => {
                "the task had completed; its result is gone with the server that had it".to_owned()
            }
            Some(TaskEnd { status, message, .. }) => match message.as_str() {
                Some(message) => format!("the task had {status}: {message}"),
                None => format!("the task had {status} before its server ended"),
            },
        };
        let mut result = json!({});
        match method {
            "tasks/get" => result = self.description(is_modern, task, &why),
            "tasks/result" => {
                let related = json!({"io.modelcontextprotocol/related-task": {"taskId": task}});
                result = json!({"content": text_of(&why), "isError": true, "_meta": related});
            }
            // It is taken note of, as for each task that has ended.
            "tasks/cancel" if is_modern => {}
            _ => return responses::error(id, -32602, &why),
        }
        if is_modern {
            result["resultType"] = "complete".into();
        }
        responses::line(id, "result", &result)
    }

    fn description(&self, is_modern: bool, task: &str, why: &str) -> Value {
        let lost = TaskEnd { status: "failed", message: why.into(), updated_at: Value::Null };
        let TaskEnd { status, message, updated_at } = self.ended.as_ref().unwrap_or(&lost);
        let created_at = match &self.created_at {
            Value::String(at) => at.as_str(),
            _ => "1970-01-01T00:00:00Z",
        };
        let mut result = json!({"taskId": task, "status": status, "createdAt": created_at});
        result["lastUpdatedAt"] = updated_at.as_str().unwrap_or(created_at).into();
        if message.is_string() {
            result["statusMessage"] = message.clone();
        }
        let keys = if is_modern { ["ttlMs", "pollIntervalMs"] } else { ["ttl", "pollInterval"] };
        result[keys[0]] = self.ttl.clone();
        if self.poll_interval.is_number() {
            result[keys[1]] = self.poll_interval.clone();
        }
        match *status {
            "failed" if is_modern => result["error"] = json!({"code": -32603, "message": why}),
            // The newer protocol has the result in there.
            "completed" if is_modern => {
                result["result"] = json!({"content": text_of(why), "isError": true});
            }
            _ => {}
        }
        result
    }
}

/// The content of a result.
fn text_of(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

/// Whether an error says that the server does not know a task.
pub(crate) fn is_unknown_task(line: &[u8]) -> bool {
    let code = raw::get(line, &["error", "code"]);
    code.is_some_and(|code| [&b"-32602"[..], b"-32601", b"-32002"].contains(&code))
}

/// Why a task failed whose instance was replaced.
const BY_RESTART: &str = "a restart ended the server that had this task before the task was done; what it had done by then \
     is unknown";

/// The tasks of one conversation, and which of them were lost.
#[derive(Debug, Default)]
pub(crate) struct ConversationTasks {
    all: BTreeMap<String, RememberedTask>,
    last_number: u64,
}

#[derive(Debug)]
struct RememberedTask {
    known: KnownTask,
    generation: Generation,
    /// Why its instance is gone.
    lost: Option<String>,
    number: u64,
}

impl ConversationTasks {
    /// An instance has created a task, if the result of a call says so.
    pub(crate) fn note(&mut self, generation: Generation, line: &[u8]) {
        let Some((id, known)) = KnownTask::created(line) else { return };
        self.last_number += 1;
        let task = RememberedTask { known, generation, lost: None, number: self.last_number };
        self.all.insert(id, task);
        if self.all.len() > TASKS_REMEMBERED_MAX {
            let oldest = self.all.iter().min_by_key(|(_, task)| task.number);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.all.remove(&id);
            }
        }
    }

    /// The client is told this by a server: tasks may have ended.
    pub(crate) fn note_told(&mut self, method: &str, line: &[u8]) {
        if self.all.is_empty() {
            return;
        }
        for (id, end) in told_ends(method, line) {
            if let Some(task) = self.all.get_mut(&id) {
                task.known.note_end(&end);
            }
        }
    }

    /// An instance is gone, and what it worked on with it, unless it has kept that elsewhere. A restart that was asked for
    /// has ended it, or it has ended by itself in this way.
    pub(crate) fn lose(&mut self, generation: Generation, how: &str, by_restart: bool) {
        let mut why = match by_restart {
            true => BY_RESTART,
            false => {
                "the server that had this task has ended, and the task with it; its outcome is unknown"
            }
        }
        .to_owned();
        if !how.is_empty() && !by_restart {
            why.push_str(&format!("\nThe server {how}"));
        }
        for task in self.all.values_mut().filter(|task| task.generation == generation) {
            task.lost.get_or_insert_with(|| why.clone());
        }
    }

    /// The answer in place of an error of an instance that says that a task is unknown, where the one that had it is gone.
    pub(crate) fn answer_for_lost(
        &self,
        generation: Generation,
        era: Era,
        (id, method, request): (&Id, &str, &[u8]),
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let is_about_task = method.starts_with("tasks/") && is_unknown_task(line);
        let task = raw::get(request, &["params", "taskId"]).filter(|_| is_about_task);
        let name = task.and_then(raw::text)?;
        let task = self.all.get(&name)?;
        // The old instance may still be ending.
        let is_replaced = task.generation < generation;
        let why = task.lost.as_deref().or(is_replaced.then_some(BY_RESTART))?;
        Some(task.known.answer_for_lost(id, era, method, &name, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_task_is_found_in_both_shapes() {
        let old = br#"{"id":1,"result":{"task":{"taskId":"t","createdAt":"2026-01-01T00:00:00Z","ttl":null}}}"#;
        let new = br#"{"id":1,"result":{"resultType":"task","taskId":"u","ttlMs":5}}"#;
        let id = |line: &[u8]| KnownTask::created(line).map(|(id, _)| id);
        assert_eq!((id(old).as_deref(), id(new).as_deref()), (Some("t"), Some("u")));
        assert_eq!(id(br#"{"id":1,"result":{"resultType":"complete","taskId":"u"}}"#), None);
        assert_eq!(id(br#"{"id":1,"result":{"content":[]}}"#), None);
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut tasks = ConversationTasks::default();
        for number in 0..=TASKS_REMEMBERED_MAX {
            let line = format!(r#"{{"result":{{"task":{{"taskId":"t{number}"}}}}}}"#);
            tasks.note(Generation(1), line.as_bytes());
        }
        assert_eq!(tasks.all.len(), TASKS_REMEMBERED_MAX);
        assert!(!tasks.all.contains_key("t0"), "the oldest is forgotten");
    }
}
