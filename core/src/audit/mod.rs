//! Owns what the trail says: its records (`record.rs`), their types and actors, the restart marker, and redaction. Never
//! writes a file.

pub mod actor;
mod event_types;
pub mod marker;
mod record;
pub mod recovery;
pub mod redact;
mod refusal;

pub use self::actor::Actor;
pub use self::event_types::EventType;
pub use self::record::{Level, Record};
pub use self::refusal::{Refusal, RefusalBudget};
