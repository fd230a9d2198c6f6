//! Answers the calls of the tools that afresh adds to a server's own, except that of a restart. Driven by
//! [`ServerDriver::perform`](super::server::ServerDriver). Only reads.

use afresh_core::audit::marker::{Marker, verify};
use afresh_core::audit::redact::redact_text;
use afresh_core::audit::{EventType, Level, Record};
use afresh_core::control::{LogLine, LogStream};
use afresh_core::limits::LOGS_LINES_MAX;
use afresh_core::mcp::ToolResult;
use serde_json::{Value, json};

use super::server::ServerDriver;
use crate::clock::now;
use crate::error_chain::chain;
use crate::store::marker;

impl ServerDriver<'_> {
    pub(super) fn verify_restart(&self, since: f64) -> ToolResult {
        let marker = self.own_marker();
        let pid = self.supervise.snapshot(self.server.service).and_then(|snapshot| snapshot.pid);
        let mut verification = verify(marker.as_ref().map_err(Clone::clone), since, now(), pid);
        let name = self.supervise.services.name(self.server.service);
        verification.data["server"] = name.as_str().into();
        self.supervise.recorder.record(Record {
            level: Level::Info,
            logger: "afresh.mcp".to_owned(),
            message: match &verification.error {
                None => "Server restart verified".to_owned(),
                Some(error) => format!("Server restart not verified: {error}"),
            },
            event_type: EventType::ServerRestartVerified,
            props: vec![
                ("service", name.into()),
                ("since_timestamp", since.into()),
                ("result", verification.data.clone()),
            ],
        });
        let is_error = false;
        ToolResult { text: verification.data.to_string(), data: Some(verification.data), is_error }
    }

    /// The marker of this server's last restart. All servers of a workspace write the same file: one
    /// that another has written says nothing of this one, even if both have the same name.
    fn own_marker(&self) -> Result<Marker, String> {
        let (file, services) = (&self.supervise.recorder.marker_file, &self.supervise.services);
        let found = marker::read(file.path()).map_err(|error| chain(&error))?;
        let known = services.known(self.server.service);
        if let Some(own) = known.and_then(|(_, history)| history.marker.clone()) {
            return Ok(own);
        }
        let name = services.name(self.server.service);
        let is_before = found.timestamp < self.server.begun.unix_seconds();
        if is_before && found.service.as_deref().is_none_or(|service| service == name) {
            return Ok(found);
        }
        let whose = found.service.as_deref().unwrap_or("of no name");
        Err(format!(
            "no restart of this server is marked: the one in `{}` ({}) was of another server, \
             `{whose}`, pid {}",
            file.path().display(),
            found.iso_time,
            found.pid
        ))
    }

    pub(super) fn status(&self) -> ToolResult {
        let status = self.server.about.status(self.supervise, self.server.service);
        let report = self.server.lane.conversation.report();
        let mut data = serde_json::to_value(&status).unwrap_or_default();
        data["requests_in_flight"] = report.owed.into();
        data["requests_waiting"] = report.waiting.into();
        data["failed_restart"] = report.failed_restart.into();
        data["tools"] = report.tools.into();
        data["last_restart_tools"] = report.last_changes.as_ref().map_or(Value::Null, |changes| {
            json!({"added": changes.added, "removed": changes.removed, "changed": changes.changed})
        });
        ToolResult { text: format!("{data:#}"), data: Some(data), is_error: false }
    }

    pub(super) fn logs(&self, lines: usize, filter: Option<&str>) -> ToolResult {
        let filter = filter.map(str::to_lowercase);
        let matches = |line: &LogLine| {
            let text = || line.text.to_lowercase();
            line.stream == LogStream::Stderr && filter.as_ref().is_none_or(|f| text().contains(f))
        };
        let logs = self.supervise.services.logs(self.server.service);
        let remembered = logs.map(|logs| logs.tail(LOGS_LINES_MAX)).unwrap_or_default();
        let found: Vec<LogLine> = remembered.into_iter().filter(matches).collect();
        let found = &found[found.len().saturating_sub(lines)..];
        let shown = |line: &LogLine| {
            let text = redact_text(&line.text);
            format!("{} [instance {}] {text}", line.time, line.generation)
        };
        let server = self.supervise.services.name(self.server.service);
        let text = match found.len() {
            0 if filter.is_some() => format!("no line on stderr of `{server}` has that in it"),
            0 => format!("the server `{server}` has written nothing to stderr"),
            _ => {
                let lines: Vec<String> = found.iter().map(shown).collect();
                format!("stderr of `{server}`:\n{}", lines.join("\n"))
            }
        };
        let data = json!({"server": server, "lines": found.len()});
        ToolResult { text, data: Some(data), is_error: false }
    }
}
