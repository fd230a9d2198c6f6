//! Our own tools: what is done when an agent calls one.

use afresh_core::audit::marker::Marker;
use afresh_core::audit::redact::redact_text;
use afresh_core::audit::verify::verify;
use afresh_core::audit::{EventType, Level, Record};
use afresh_core::control::{LogLine, Stream};
use afresh_core::id::Generation;
use afresh_core::limits::LOGS_LINES_MAX;
use afresh_core::mcp::envelope::Id;
use afresh_core::mcp::{Asked, Changes, Input, Kind, Said, hint_of};
use afresh_core::service::Input as ServiceInput;
use serde_json::{Value, json};

use super::server::Seat;
use crate::clock::now;
use crate::error_chain::chain;
use crate::store::marker;

impl Seat<'_> {
    pub(super) async fn asked(&mut self, id: Id, asked: Asked) {
        let said = match asked {
            // Answered by the conversation, when the new instance serves.
            Asked::Restart { reason } => {
                return self.tell_service(ServiceInput::Restart { reason }).await;
            }
            Asked::Verify { since } => self.verified(since),
            Asked::Status => self.status(),
            Asked::Logs { lines, filter } => self.logs(lines, filter.as_deref()),
        };
        // A call of ours never calls one of ours: this goes no deeper.
        Box::pin(self.converse(Input::Said { id, said })).await;
    }

    /// R6
    fn verified(&self, since: f64) -> Said {
        let marker = self.own_marker();
        let pid = self.supervise.snapshot(self.server.service).and_then(|snapshot| snapshot.pid);
        let verification = verify(marker.as_ref().map_err(Clone::clone), since, now(), pid);
        self.supervise.record(Record {
            level: Level::Info,
            logger: "afresh.mcp".to_owned(),
            message: match &verification.error {
                None => "Server restart verified".to_owned(),
                Some(error) => format!("Server restart not verified: {error}"),
            },
            event_type: EventType::ServerRestartVerified,
            props: vec![
                ("service", self.supervise.name(self.server.service).into()),
                ("since_timestamp", since.into()),
                ("result", verification.data.clone()),
            ],
        });
        let is_error = false;
        Said { text: verification.data.to_string(), data: Some(verification.data), is_error }
    }

    /// The marker of this server's last restart. All servers of a workspace write the same file: one
    /// that another has written says nothing of this one, even if both have the same name.
    fn own_marker(&self) -> Result<Marker, String> {
        let file = self.supervise.marker_file();
        let found = marker::read(file).map_err(|error| chain(&error))?;
        let ours =
            self.supervise.known(self.server.service).and_then(|(_, past)| past.mark.clone());
        if let Some(ours) = ours {
            return Ok(ours);
        }
        let name = self.supervise.name(self.server.service);
        let is_before = found.timestamp < self.server.begun.unix_seconds();
        if is_before && found.service.as_deref().is_none_or(|service| service == name) {
            return Ok(found);
        }
        let whose = found.service.as_deref().unwrap_or("of no name");
        Err(format!(
            "no restart of this server is marked: the one in `{}` ({}) was of another server, \
             `{whose}`, pid {}",
            file.display(),
            found.iso_time,
            found.pid
        ))
    }

    fn status(&self) -> Said {
        let status = self.server.about.status(self.supervise, self.server.service);
        let report = self.server.lane.conversation.report();
        let mut data = serde_json::to_value(&status).unwrap_or_default();
        data["requests_in_flight"] = report.owed.into();
        data["requests_waiting"] = report.waiting.into();
        data["tools"] = report.tools.into();
        data["last_restart_tools"] = report.last_changes.as_ref().map_or(Value::Null, told);
        Said { text: format!("{data:#}"), data: Some(data), is_error: false }
    }

    fn logs(&self, lines: usize, filter: Option<&str>) -> Said {
        let filter = filter.map(str::to_lowercase);
        let matches = |line: &LogLine| {
            let text = || line.text.to_lowercase();
            line.stream == Stream::Stderr && filter.as_ref().is_none_or(|f| text().contains(f))
        };
        let remembered =
            self.supervise.logs(self.server.service).map(|logs| logs.tail(LOGS_LINES_MAX));
        let found: Vec<LogLine> =
            remembered.unwrap_or_default().into_iter().filter(matches).collect();
        let found = &found[found.len().saturating_sub(lines)..];
        let shown = |line: &LogLine| {
            let text = redact_text(&line.text);
            format!("{} [instance {}] {text}", line.time, line.generation)
        };
        let text = match found.len() {
            0 if filter.is_some() => "no line on stderr has that in it".to_owned(),
            0 => "the server has written nothing to stderr".to_owned(),
            _ => found.iter().map(shown).collect::<Vec<_>>().join("\n"),
        };
        Said { text, data: Some(json!({"lines": found.len()})), is_error: false }
    }

    /// How an instance ended, with the last lines that it wrote to its stderr.
    pub(super) fn last_words(&self, generation: Generation, how: &str) -> String {
        let logs = self.supervise.logs(self.server.service);
        let words = logs.map(|logs| logs.last_words(|its| its == generation)).unwrap_or_default();
        if words.is_empty() {
            return format!("{how}; it wrote nothing to stderr");
        }
        let words = words.join("\n");
        let hint = match hint_of(&words) {
            Some(hint) => format!("\n{hint}"),
            None => String::new(),
        };
        format!("{how}; the last lines of its stderr:\n{words}{hint}")
    }

    /// A new instance offers something else: for the log.
    pub(super) fn tell_changes(&self, kind: Kind, changes: &Changes) {
        let what = match kind {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::Templates => "resource templates",
        };
        let told = [
            ("added", &changes.added),
            ("removed", &changes.removed),
            ("changed", &changes.changed),
        ];
        let told: Vec<String> = told
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(word, names)| format!("{word} {}", names.join(", ")))
            .collect();
        self.log(&format!("its {what} have changed: {}", told.join("; ")));
    }
}

fn told(changes: &Changes) -> Value {
    json!({"added": changes.added, "removed": changes.removed, "changed": changes.changed})
}
