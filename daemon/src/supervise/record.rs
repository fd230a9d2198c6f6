//! What the loop records and says of what happens.

use afresh_core::audit::marker::Marker;
use afresh_core::audit::{Level, Record};
use afresh_core::id::ServiceId;
use afresh_core::limits::TRAIL_SYNC_WAIT;
use afresh_core::service::Event;
use tokio::time::timeout;

use super::Supervise;
use crate::output::now;
use crate::process::Remains;
use crate::store::chain;
use crate::store::marker;

impl Supervise {
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
            self.around.trail.append(Record {
                level: Level::Error,
                logger: self.around.logger.to_owned(),
                message: text,
                event_type: "process_survived",
                props: vec![
                    ("service", self.name(service).into()),
                    ("pid", (*pid).into()),
                    ("name", name.as_str().into()),
                ],
            });
        }
    }

    pub(super) async fn tell(&mut self, service: ServiceId, event: Event) {
        let record = event.record(&self.title(service), &self.name(service), self.around.logger);
        let message = match &event {
            Event::SpawnFailed(failure) => match &failure.hint {
                Some(hint) => format!("{} (hint: {hint})", record.message),
                None => record.message.clone(),
            },
            _ => record.message.clone(),
        };
        if event.is_announcement() {
            if let Err(error) = self.around.trail.announce(record).await {
                self.around.stderr.log(&chain(&error));
            }
        } else {
            self.around.trail.append(record);
        }
        self.remember(service, &event);
        // Said only once it is on record, and a request only when it is in the marker too.
        if matches!(event, Event::RestartRequested { .. }) {
            self.unsaid = Some(event);
            return;
        }
        self.say(service, &message, event).await;
    }

    async fn say(&self, service: ServiceId, message: &str, event: Event) {
        self.log_about(service, message);
        if let Some(told) = &self.around.told {
            told.send((service, event)).await.ok();
        }
    }

    pub(super) async fn mark_restart(
        &mut self,
        service: ServiceId,
        pid: Option<u32>,
        reason: &str,
    ) {
        let path = self.around.marker_file.clone();
        let mut mark = Marker::new(now(), pid.unwrap_or_default(), reason);
        mark.service = Some(self.name(service));
        let content = mark.to_json();
        let written = mark.clone();
        let failure = match timeout(TRAIL_SYNC_WAIT, marker::write_apart(path.clone(), mark)).await
        {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("the disk does not answer".to_owned()),
        };
        let (level, event_type, message) = match &failure {
            None => (Level::Info, "restart_marker_written", "Restart marker written".to_owned()),
            Some(why) => (
                Level::Error,
                "restart_marker_failed",
                format!("the restart marker `{}` could not be written: {why}", path.display()),
            ),
        };
        if failure.is_some() {
            self.around.stderr.log(&message);
        } else if let Some(kept) = self.services.get_mut(&service) {
            kept.past.mark = Some(written);
        }
        let record = Record {
            level,
            logger: self.around.logger.to_owned(),
            message,
            event_type,
            props: vec![
                ("service", self.name(service).into()),
                ("path", path.display().to_string().into()),
                ("content", content),
            ],
        };
        if let Err(error) = self.around.trail.announce(record).await {
            self.around.stderr.log(&chain(&error));
        }
        if let Some(event) = self.unsaid.take() {
            let title = self.title(service);
            let message = format!("{} for {title}: {reason}", event.message(&title));
            self.say(service, &message, event).await;
        }
    }
}
