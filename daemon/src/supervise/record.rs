//! What the loop records and says of what happens.

use std::pin::Pin;

use afresh_core::audit::marker::Marker;
use afresh_core::audit::{EventType, Level, Record};
use afresh_core::id::ServiceId;
use afresh_core::limits::TRAIL_SYNC_WAIT;
use afresh_core::service::{Effect, Event};
use tokio::time::timeout;

use super::Supervise;
use crate::clock::now;
use crate::error_chain::chain;
use crate::process::Remains;
use crate::store::marker;

impl Supervise {
    /// What to perform next. To tell what happened takes longer than to order a start, so that a start
    /// goes before facts; not before an announcement, which is on disk first.
    pub(super) fn next_effect(&mut self) -> Option<(ServiceId, Effect)> {
        let is_fact =
            |effect: &Effect| matches!(effect, Effect::Tell(event) if !event.is_announcement());
        let first = self.queue.iter().position(|(_, effect)| !is_fact(effect));
        let start = first.filter(|index| matches!(self.queue[*index].1, Effect::Spawn { .. }));
        self.queue.remove(start.unwrap_or(0))
    }

    pub(super) fn tell_remains(&self, service: ServiceId, remains: &Remains) {
        let title = self.title(service);
        if remains.leftovers > 0 {
            let count = match remains.leftovers {
                1 => "a process behind; it is ended".to_owned(),
                count => format!("{count} processes behind; they are ended"),
            };
            self.log_about(service, &format!("{title} left {count}"));
        }
        for (pid, name) in &remains.survivors {
            let text = format!(
                "{title} left a process that cannot be ended: {name} (pid {pid}); end it by hand"
            );
            self.log_about(service, &text);
            self.record(Record {
                level: Level::Error,
                logger: self.around.logger.to_owned(),
                message: text,
                event_type: EventType::ProcessSurvived,
                props: vec![
                    ("service", self.name(service).into()),
                    ("pid", (*pid).into()),
                    ("name", name.as_str().into()),
                ],
            });
        }
    }

    /// Records something, and leaves the log alone.
    pub(crate) fn record(&self, record: Record) {
        self.events.push(&record);
        self.around.trail.append(record);
    }

    /// Writes a line of the log.
    pub(crate) fn log(&self, message: &str) {
        self.around.stderr.log(message);
        self.services.keys().for_each(|service| self.remember_line(*service, message));
    }

    /// Records something about afresh itself, and logs it.
    pub(crate) fn note(&self, record: Record) {
        self.around.stderr.log(&record.message);
        self.record(record);
    }

    pub(super) fn tell(&mut self, service: ServiceId, event: Event) {
        let record = event.record(&self.title(service), &self.name(service), self.around.logger);
        let message = match &event {
            Event::SpawnFailed(failure) => match &failure.hint {
                Some(hint) => format!("{} (hint: {hint})", record.message),
                None => record.message.clone(),
            },
            _ => record.message.clone(),
        };
        if event.is_announcement() {
            let announced = self.around.trail.announce(record);
            self.writing = Some(Box::pin(async move {
                let failure = announced.await.err().map(|error| chain(&error));
                let failures = Vec::from_iter(failure);
                Written { service, event: Some(event), mark: None, message, failures }
            }));
        } else {
            self.around.trail.append(record);
            self.remember(service, &event);
            self.log_about(service, &message);
        }
    }

    pub(super) fn mark_restart(&mut self, service: ServiceId, pid: Option<u32>, reason: String) {
        let path = self.around.marker_file.clone();
        let mut mark = Marker::new(now(), pid.unwrap_or_default(), &reason);
        mark.service = Some(self.name(service));
        let (name, logger) = (self.name(service), self.around.logger);
        let trail = self.around.trail.clone();
        self.writing = Some(Box::pin(async move {
            let content = mark.to_json();
            let write = marker::write_apart(path.clone(), mark.clone());
            let mut failures = match timeout(TRAIL_SYNC_WAIT, write).await {
                Ok(Ok(())) => Vec::new(),
                Ok(Err(error)) => vec![chain(&error)],
                Err(_) => vec!["the disk does not answer".to_owned()],
            };
            let mark = failures.is_empty().then_some(mark);
            let path = path.display().to_string();
            let (level, event_type, message) = match failures.first_mut() {
                None => (
                    Level::Info,
                    EventType::RestartMarkerWritten,
                    "Restart marker written".to_owned(),
                ),
                Some(why) => {
                    *why = format!("the restart marker `{path}` could not be written: {why}");
                    (Level::Error, EventType::RestartMarkerFailed, why.clone())
                }
            };
            let props = vec![("service", name.into()), ("path", path.into()), ("content", content)];
            let record = Record { level, logger: logger.to_owned(), message, event_type, props };
            failures.extend(trail.announce(record).await.err().map(|error| chain(&error)));
            Written { service, event: None, mark, message: reason, failures }
        }));
    }

    /// Says what is on disk now, or that it is not.
    pub(super) fn written(&mut self, written: Written) {
        let Written { service, event, mark, message, failures } = written;
        if let Some(kept) = self.services.get_mut(&service).filter(|_| mark.is_some()) {
            kept.past.mark = mark;
        }
        for failure in failures {
            self.around.stderr.log(&failure);
        }
        match event {
            Some(event) => {
                self.remember(service, &event);
                // A request is said only when it is in the marker too.
                match event {
                    Event::RestartRequested { .. } => self.unsaid = Some(event),
                    _ => self.log_about(service, &message),
                }
            }
            None => {
                if let Some(event) = self.unsaid.take() {
                    let title = self.title(service);
                    let message = format!("{} for {title}: {message}", event.message(&title));
                    self.log_about(service, &message);
                }
            }
        }
    }
}

/// Something that is on its way to the disk.
pub(super) type Writing = Pin<Box<dyn Future<Output = Written> + Send>>;

/// Something that has got there, or could not.
pub(crate) struct Written {
    service: ServiceId,
    /// What was announced; none where a restart was marked.
    event: Option<Event>,
    /// The mark of a restart that was written.
    mark: Option<Marker>,
    /// What is said about it: the message, or the reason of the restart.
    message: String,
    failures: Vec<String>,
}

/// Waits until it is there. Cancel safe.
pub(super) async fn written(writing: &mut Option<Writing>) -> Written {
    let Some(future) = writing else { return std::future::pending().await };
    let written = future.await;
    *writing = None;
    written
}
