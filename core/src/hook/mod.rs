//! Owns hooks: commands, webhooks and desktop notifications about events of services.
//!
//! `event_filter.rs` chooses the events, `payload.rs` writes the body, `delivery.rs` queues, waits, retries and reads
//! the response of a webhook. Driven by the daemon's hooks. Never sends anything.

mod delivery;
mod event_filter;
mod payload;

pub use self::delivery::{Deliveries, DeliveryFailure, Effect, HookId, Input, Undelivered};
pub use self::event_filter::{Happening, Stories};
pub use self::payload::{About, Delivery, Message};

/// A hook as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub struct HookDefinition {
    /// Its key.
    pub name: String,
    /// What it wants to hear.
    pub events: Vec<HookEvent>,
    /// Services that it is about; none is all.
    pub services: Vec<String>,
    /// How it is told.
    pub target: HookTarget,
}

/// What can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookEvent {
    /// A service ended by itself, and not well.
    Crash,
    /// It crashes again and again; the waits grow.
    CrashLoop,
    /// It is not tried any more.
    GaveUp,
    /// It runs well again after that.
    Recovered,
    /// A restart was asked for and is done.
    Restarted,
}

impl HookEvent {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Crash, Self::CrashLoop, Self::GaveUp, Self::Recovered, Self::Restarted];

    /// The words for them.
    pub const NAMES: [&'static str; 5] =
        ["crash", "crash_loop", "gave_up", "recovered", "restarted"];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The receiver of a hook.
#[derive(Clone, Debug, PartialEq)]
pub enum HookTarget {
    /// A command, with the event as JSON on its stdin.
    Command(Vec<String>),
    /// A `POST` to a URL.
    Webhook {
        /// Where to.
        url: String,
        /// In which form.
        shape: Shape,
        /// Headers that are sent besides.
        headers: Vec<(String, String)>,
    },
    /// A notification of the desktop.
    Desktop,
}

/// The form of a webhook's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The event as JSON.
    #[default]
    Json,
    /// What Slack's incoming webhooks take.
    Slack,
    /// What Discord's webhooks take.
    Discord,
    /// What ntfy takes.
    Ntfy,
}

#[cfg(test)]
mod tests;
