//! The log of one session: what the agent said, what it was told, and why it ended, a line each.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use afresh_core::agent::Instruction;
use afresh_core::audit::redact::{KnownSecrets, Redaction};
use afresh_core::limits::{AGENT_READ_BYTES, SESSION_LOG_BYTES_MAX};
use afresh_core::run::Cause;
use afresh_core::time::Stamp;
use serde::Serialize;
use serde_json::json;

use crate::write_path::WritePath;

/// One that cannot be written is no reason to stop.
pub(super) struct SessionLog {
    file: Option<File>,
    written: u64,
    /// Lines that are written together.
    waiting: Vec<u8>,
    /// What must not stand in it.
    secrets: Arc<KnownSecrets>,
}

/// A line of the agent.
#[derive(Serialize)]
struct AgentLine<'a> {
    at: &'a str,
    said: &'a str,
}

impl SessionLog {
    pub(super) fn create(path: &WritePath, secrets: Arc<KnownSecrets>) -> Self {
        let file = path.create_private().ok();
        Self { file, written: 0, waiting: Vec::new(), secrets }
    }

    pub(super) fn append(path: &WritePath, secrets: Arc<KnownSecrets>) -> Self {
        let file = path.open_to_append().ok();
        Self { file, written: 0, waiting: Vec::new(), secrets }
    }

    /// Takes a line of the agent in; it is written with the next flush.
    pub(super) fn line(&mut self, now: Stamp, line: &[u8]) {
        let said = String::from_utf8_lossy(line);
        let secrets = Arc::clone(&self.secrets);
        self.push(&AgentLine { at: &now.to_string(), said: &secrets.redact_line(&said) });
        if self.waiting.len() > AGENT_READ_BYTES {
            self.flush();
        }
    }

    pub(super) fn told(&mut self, now: Stamp, told: &Instruction) {
        let (what, text) = match told {
            Instruction::Prompt(text) => ("prompt", text.as_str()),
            Instruction::Steer(text) => ("steer", text.as_str()),
            Instruction::Interrupt => ("interrupt", ""),
            Instruction::Measure => ("measure", ""),
            Instruction::End => ("end", ""),
        };
        let text = self.secrets.redact(text, Redaction::Records);
        self.write(&json!({"at": now.to_string(), "told": what, "text": text}));
    }

    pub(super) fn note(&mut self, now: Stamp, text: &str) {
        let text = self.secrets.redact(text, Redaction::Records);
        self.write(&json!({"at": now.to_string(), "note": text}));
    }

    pub(super) fn ended(&mut self, now: Stamp, cause: Cause, detail: &str) {
        let detail = self.secrets.redact(detail, Redaction::Records);
        self.write(&json!({"at": now.to_string(), "ended": cause.to_string(), "detail": detail}));
    }

    fn write(&mut self, value: &serde_json::Value) {
        self.push(value);
        self.flush();
    }

    fn push(&mut self, value: &impl Serialize) {
        if self.file.is_none() || self.written > SESSION_LOG_BYTES_MAX {
            return;
        }
        let begin = self.waiting.len();
        if serde_json::to_writer(&mut self.waiting, value).is_err() {
            self.waiting.truncate(begin);
            return;
        }
        self.written += (self.waiting.len() - begin) as u64 + 1;
        if self.written > SESSION_LOG_BYTES_MAX {
            self.waiting.truncate(begin);
            let full = json!({"note": "the log is full: what follows is not in it"});
            self.waiting.extend_from_slice(full.to_string().as_bytes());
        }
        self.waiting.push(b'\n');
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if file.write_all(&self.waiting).is_err() || self.written > SESSION_LOG_BYTES_MAX {
            self.file = None;
        }
        self.waiting.clear();
    }
}

impl Drop for SessionLog {
    fn drop(&mut self) {
        self.flush();
    }
}
