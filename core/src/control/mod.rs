//! Owns the control API: what is asked, answered and counted. Served by the daemon, read by the CLI. Never does IO.
//!
//! `route_table.rs` is the table that routing and the document (`openapi.rs`) are made from, `query_parameters.rs` has the
//! words of queries, `answers.rs` the bodies, `service_status.rs` the status of a service, `event.rs` the events, and
//! `metrics.rs` the counters.

mod answers;
mod event;
pub mod metrics;
mod openapi;
mod query_parameters;
pub mod route_table;
mod service_status;

pub use self::answers::{
    API_VERSION, Change, ChangeAnswer, ChangeOutcome, ChangeRequest, ErrorAnswer, Face,
    InputAnswer, LogLine, LogPage, LogStream, Refused, ReloadAnswer, RestartAnswer, ServiceList,
    ShutdownAnswer, VersionAnswer,
};
pub use self::event::{EventBatch, EventPage, EventRing, Gap, NumberedEvent, Position};
pub use self::openapi::document;
pub use self::query_parameters::{Kind, QueryParameter, Words, escape, unescape};
pub use self::service_status::{
    RestartNote, Restarts, RunStatus, ServiceStatus, SharedStatus, UsageStatus,
};
pub use crate::health::{HealthState, HealthStatus};
pub use crate::service::{LastExit, State};
