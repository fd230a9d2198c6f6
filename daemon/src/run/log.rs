//! The log of one session: what the agent said, what it was told, and why it ended, a line each.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use afresh_core::agent::Told;
use afresh_core::limits::SESSION_LOG_BYTES_MAX;
use afresh_core::run::Cause;
use afresh_core::time::Stamp;
use serde_json::json;

/// One that cannot be written is no reason to stop.
pub(super) struct SessionLog {
    file: Option<File>,
    written: u64,
}

impl SessionLog {
    pub(super) fn create(path: &Path) -> Self {
        Self { file: crate::os::create_private(path).ok(), written: 0 }
    }

    pub(super) fn append(path: &Path) -> Self {
        let file = File::options().append(true).open(path).ok();
        Self { file, written: 0 }
    }

    pub(super) fn line(&mut self, now: Stamp, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        self.write(&json!({"at": now.to_string(), "said": text}));
    }

    pub(super) fn told(&mut self, now: Stamp, told: &Told) {
        let (what, text) = match told {
            Told::Prompt(text) => ("prompt", text.as_str()),
            Told::Steer(text) => ("steer", text.as_str()),
            Told::Interrupt => ("interrupt", ""),
            Told::Measure => ("measure", ""),
            Told::End => ("end", ""),
        };
        self.write(&json!({"at": now.to_string(), "told": what, "text": text}));
    }

    pub(super) fn note(&mut self, now: Stamp, text: &str) {
        self.write(&json!({"at": now.to_string(), "note": text}));
    }

    pub(super) fn ended(&mut self, now: Stamp, cause: Cause, detail: &str) {
        self.write(&json!({"at": now.to_string(), "ended": cause.name(), "detail": detail}));
    }

    fn write(&mut self, value: &serde_json::Value) {
        let Some(file) = &mut self.file else { return };
        let mut line = value.to_string();
        if self.written + line.len() as u64 > SESSION_LOG_BYTES_MAX {
            line = json!({"note": "the log is full: what follows is not in it"}).to_string();
            self.written = u64::MAX / 2;
        }
        line.push('\n');
        self.written += line.len() as u64;
        if file.write_all(line.as_bytes()).is_err() || self.written > SESSION_LOG_BYTES_MAX {
            self.file = None;
        }
    }
}
