//! Owns the notices about a hook itself: once when it begins to fail, and once when it works again.

use std::time::Duration;

use super::HookEvent;
use crate::audit::{EventType, Level, Record};
use crate::time::show_duration;

/// Something that people are told about a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum HookNotice {
    /// It has begun to fail.
    Failed {
        /// Its name.
        hook: String,
        /// What it was to be told.
        event: HookEvent,
        /// Of which service.
        service: String,
        /// Why that failed.
        why: String,
        /// When it is tried again; none where it is not.
        again_in: Option<Duration>,
    },
    /// It was not told something, for good.
    Lost {
        /// Its name.
        hook: String,
        /// What it was to be told.
        event: HookEvent,
        /// Of which service.
        service: String,
        /// The last failure.
        why: String,
        /// How many of these it stood for.
        count: u64,
    },
    /// It works again.
    Works {
        /// Its name.
        hook: String,
        /// Events that were lost meanwhile.
        lost: u64,
    },
}

impl HookNotice {
    /// Whether it belongs into the log, besides the trail.
    pub const fn is_said(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Works { .. })
    }

    /// The record of the trail; its message is the line of the log.
    pub fn record(&self, logger: &str) -> Record {
        let (level, event_type, message, props) = match self {
            Self::Failed { hook, event, service, why, again_in } => {
                let then = match again_in {
                    Some(wait) => format!("trying again in {}", show_duration(*wait)),
                    None => "not trying again".to_owned(),
                };
                let event = event.name();
                let message =
                    format!("hook `{hook}` was not told of `{event}` of {service}: {why}; {then}");
                let props = vec![("event", event.into()), ("error", why.as_str().into())];
                (Level::Warning, EventType::HookFailed, message, with(hook, Some(service), props))
            }
            Self::Lost { hook, event, service, why, count } => {
                let event = event.name();
                let message =
                    format!("hook `{hook}` is never told of `{event}` of {service}: {why}");
                let props = vec![
                    ("event", event.into()),
                    ("error", why.as_str().into()),
                    ("count", (*count).into()),
                ];
                (Level::Error, EventType::HookEventLost, message, with(hook, Some(service), props))
            }
            Self::Works { hook, lost } => {
                let message = match lost {
                    0 => format!("hook `{hook}` works again"),
                    1 => format!("hook `{hook}` works again; one event was lost"),
                    lost => format!("hook `{hook}` works again; {lost} events were lost"),
                };
                let props = vec![("lost", (*lost).into())];
                (Level::Info, EventType::HookRecovered, message, with(hook, None, props))
            }
        };
        Record { level, logger: logger.to_owned(), message, event_type, props }
    }
}

type Props = Vec<(&'static str, serde_json::Value)>;

fn with(hook: &str, service: Option<&String>, mut props: Props) -> Props {
    if let Some(service) = service {
        props.insert(0, ("service", service.as_str().into()));
    }
    props.insert(0, ("hook", hook.into()));
    props
}
