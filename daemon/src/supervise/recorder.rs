//! Owns the record of what happens: the trail, the log on stderr, the events of the control API, the
//! restart marker and the hooks. Driven by [`Supervisor`](super::Supervisor). Never waits for a disk
//! inside of a method that is not async.

use std::pin::Pin;
use std::time::Duration;

use afresh_core::audit::marker::Marker;
use afresh_core::audit::{EventType, Level, Record};
use afresh_core::id::ServiceId;
use afresh_core::limits::TRAIL_SYNC_WAIT;
use afresh_core::service::{Event, SpawnFailure};
use afresh_core::time::Time;
use tokio::sync::watch;
use tokio::time::timeout;

use super::services::Services;
use crate::clock::now;
use crate::error_chain::chain;
use crate::hooks::{HookLog, HookSetup, Hooks};
use crate::output::Output;
use crate::process::Remains;
use crate::recent_events::Events;
use crate::refusals::Refusals;
use crate::run_briefly::BriefRunner;
use crate::store::marker;
use crate::store::trail::Trail;
use crate::write_path::WritePath;

/// Writes down what happens to services, and to afresh itself.
pub(crate) struct Recorder {
    /// The stream of the log.
    pub(crate) stderr: Output,
    trail: Trail,
    /// The file that marks the last restart.
    pub(crate) marker_file: WritePath,
    logger: &'static str,
    /// For the control API.
    pub(crate) events: Events,
    /// For the control API and the gateway's port.
    pub(crate) refusals: Refusals,
    /// Counts the events of services.
    pub(crate) changes: watch::Sender<u64>,
    pub(super) hooks: Hooks,
    /// What has to be on disk before the next effect is performed.
    pub(super) writing: Option<Writing>,
    /// A request that is in the trail, and is acknowledged when it is in the marker too.
    unacknowledged: Option<Event>,
    /// What was last said to be not written; the same is not said twice in a row.
    last_failure: Option<String>,
}

/// A write that is under way.
type Writing = Pin<Box<dyn Future<Output = Written> + Send>>;

/// A write that has ended, well or not.
pub(crate) struct Written {
    service: ServiceId,
    /// What was announced; none where a restart was marked.
    event: Option<Event>,
    /// The mark of a restart that was written.
    marker: Option<Marker>,
    /// The message for the log, or the reason of the restart.
    message: String,
    failures: Vec<String>,
}

impl Recorder {
    pub(super) fn new(
        stderr: Output,
        trail: Trail,
        marker_file: WritePath,
        logger: &'static str,
    ) -> Self {
        let events = Events::new();
        let refusals = Refusals::new(logger, {
            let (trail, events) = (trail.clone(), events.clone());
            move |record| {
                events.push(&record);
                trail.append(record);
            }
        });
        Self {
            stderr,
            trail,
            marker_file,
            logger,
            events,
            refusals,
            changes: watch::Sender::new(0),
            hooks: Hooks::default(),
            writing: None,
            unacknowledged: None,
            last_failure: None,
        }
    }

    /// Puts a record into the trail, and leaves the log alone.
    pub(crate) fn record(&self, record: Record) {
        self.events.push(&record);
        self.trail.append(record);
    }

    /// Records something about afresh itself, and logs it.
    pub(crate) fn note(&self, record: Record) {
        self.stderr.log(&record.message);
        self.record(record);
    }

    /// Closes the trail.
    pub(crate) fn close(self, wait: Duration) {
        self.refusals.finish();
        if let Err(error) = self.trail.close(wait) {
            self.stderr.log(&chain(&error));
        }
    }

    /// From now on these hooks get the events, and no others.
    pub(super) fn start_hooks(&mut self, setup: HookSetup, commands: BriefRunner) {
        let (stderr, trail) = (self.stderr.clone(), self.trail.clone());
        self.hooks.start(setup, commands, HookLog { stderr, trail, logger: self.logger });
    }

    /// Writes a line of the log about one service.
    pub(super) fn log_about(&self, services: &Services, service: ServiceId, message: &str) {
        self.stderr.log(message);
        services.remember_line(service, message);
    }

    /// Logs and records processes that an instance has left behind.
    pub(super) fn tell_remains(&self, services: &Services, service: ServiceId, remains: &Remains) {
        let title = services.title(service);
        if remains.leftovers > 0 {
            let count = match remains.leftovers {
                1 => "a process behind; it is ended".to_owned(),
                count => format!("{count} processes behind; they are ended"),
            };
            self.log_about(services, service, &format!("{title} left {count}"));
        }
        for (pid, name) in &remains.survivors {
            let text = format!(
                "{title} left a process that cannot be ended: {name} (pid {pid}); end it by hand"
            );
            self.log_about(services, service, &text);
            self.record(Record {
                level: Level::Error,
                logger: self.logger.to_owned(),
                message: text,
                event_type: EventType::ProcessSurvived,
                props: vec![
                    ("service", services.name(service).into()),
                    ("pid", (*pid).into()),
                    ("name", name.as_str().into()),
                ],
            });
        }
    }

    /// Records and logs an event. An announcement is on disk before [`Recorder::finish`] logs it.
    pub(super) fn tell(
        &mut self,
        at: Time,
        services: &mut Services,
        service: ServiceId,
        event: Event,
    ) {
        let record = self.record_of(services, service, &event);
        let message = match &event {
            Event::SpawnFailed(SpawnFailure { hint: Some(hint), .. }) => {
                format!("{} (hint: {hint})", record.message)
            }
            _ => record.message.clone(),
        };
        if event.is_announcement() {
            let announced = self.trail.announce(record);
            self.writing = Some(Box::pin(async move {
                let failure = announced.await.err().map(|error| chain(&error));
                let failures = Vec::from_iter(failure);
                Written { service, event: Some(event), marker: None, message, failures }
            }));
        } else {
            self.trail.append(record);
            self.publish(at, services, service, &event);
            self.log_about(services, service, &message);
        }
    }

    /// Begins to write the marker of a restart.
    pub(super) fn mark_restart(
        &mut self,
        services: &Services,
        service: ServiceId,
        pid: Option<u32>,
        reason: String,
    ) {
        let path = self.marker_file.clone();
        let (name, logger) = (services.name(service), self.logger);
        let mut marker = Marker::new(now(), pid.unwrap_or_default(), &reason);
        marker.service = Some(name.clone());
        let trail = self.trail.clone();
        self.writing = Some(Box::pin(async move {
            let content = marker.to_json();
            let write = marker::write_apart(path.clone(), marker.clone());
            let mut failures = match timeout(TRAIL_SYNC_WAIT, write).await {
                Ok(Ok(())) => Vec::new(),
                Ok(Err(error)) => vec![chain(&error)],
                Err(_) => vec!["the disk does not answer".to_owned()],
            };
            let marker = failures.is_empty().then_some(marker);
            let path = path.path().display().to_string();
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
            Written { service, event: None, marker, message: reason, failures }
        }));
    }

    /// Waits for the end of the write that is under way. Cancel safe.
    pub(super) async fn written(&mut self) -> Written {
        let Some(writing) = &mut self.writing else { return std::future::pending().await };
        let written = writing.await;
        self.writing = None;
        written
    }

    /// Logs what is on disk now, or that it is not.
    pub(super) fn finish(&mut self, at: Time, services: &mut Services, written: Written) {
        let Written { service, event, marker, message, failures } = written;
        if let Some(history) = services.history_mut(service).filter(|_| marker.is_some()) {
            history.marker = marker;
            self.last_failure = None;
        }
        for failure in failures {
            if self.last_failure.as_ref() != Some(&failure) {
                self.stderr.log(&failure);
            }
            self.last_failure = Some(failure);
        }
        match event {
            Some(event) => {
                self.publish(at, services, service, &event);
                // A request is acknowledged only when it is in the marker too.
                match event {
                    Event::RestartRequested { .. } => self.unacknowledged = Some(event),
                    _ => self.log_about(services, service, &message),
                }
            }
            None => {
                if let Some(event) = self.unacknowledged.take() {
                    let title = services.title(service);
                    let message = format!("{} for {title}: {message}", event.message(&title));
                    self.log_about(services, service, &message);
                }
            }
        }
    }

    /// Hands an event to the history of the service, the hooks and the control API.
    fn publish(&mut self, at: Time, services: &mut Services, service: ServiceId, event: &Event) {
        let says_ready = services.says_ready(service);
        let record = self.record_of(services, service, event);
        let (title, name) = (services.title(service), services.name(service));
        if let Some(history) = services.history_mut(service) {
            history.note(event);
            history.vitals.note(at, event, says_ready);
            self.hooks.push(&name, &title, event);
        }
        self.events.push(&record);
        self.changes.send_modify(|count| *count += 1);
    }

    fn record_of(&self, services: &Services, service: ServiceId, event: &Event) -> Record {
        let (title, name) = (services.title(service), services.name(service));
        let mut record = event.record(&title, &name, self.logger);
        if let Event::Stopped(ending) = event {
            record.props.push(("by", services.stopped_by(service, ending).to_json()));
        }
        record
    }

    /// An instance serves: no event says so, and a client of the control API may wait for just that.
    pub(super) fn note_ready(&mut self, at: Time, services: &mut Services, service: ServiceId) {
        if let Some(history) = services.history_mut(service) {
            history.vitals.ready(at);
        }
        self.changes.send_modify(|count| *count += 1);
    }
}
