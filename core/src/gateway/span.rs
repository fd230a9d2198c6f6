//! Owns the spans of calls for OpenTelemetry: a request of a client, from the moment that it goes to a server until it
//! is answered. Driven by the hub, which makes them. Never holds arguments or results.
//!
//! `context.rs` reads the client's trace, `otlp.rs` encodes a span, `export.rs` decides when spans are sent, and
//! `destination.rs` resolves the receiver.

mod context;
mod destination;
mod export;
mod otlp;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::context::Parent;
pub use self::destination::{Destination, DestinationError};
pub use self::export::{Export, ExportEffect, ExportInput, ExportOutcome};
use crate::mcp::envelope::Id;
use crate::time::Time;

/// One request of a client's that was for a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What it is a part of, as the client says.
    pub parent: Option<Parent>,
    /// What was asked.
    pub method: String,
    /// What it was about.
    pub target: SpanTarget,
    /// The server's name.
    pub server: String,
    /// The name of the client's token; empty without one.
    pub client: String,
    /// The client's id of the request.
    pub request: Id,
    /// The version of the protocol that the client speaks.
    pub version: Option<String>,
    /// Whether the client comes over stdio, and not over HTTP.
    pub is_stdio: bool,
    /// When it went to the server.
    pub began: Time,
    /// When it was over.
    pub ended: Time,
    /// How.
    pub outcome: SpanOutcome,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanTarget {
    /// A tool, by its name in the list.
    Tool(String),
    /// A prompt, by its name in the list.
    Prompt(String),
    /// A resource, by its URI.
    Resource(String),
    /// Nothing that has a name.
    Nothing,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// With a result.
    Answered,
    /// With a result that says that the tool failed.
    ToolFailed,
    /// With an error of the server's.
    Error {
        /// Its code.
        code: Option<i64>,
        /// Its text.
        message: String,
    },
    /// Without an answer of the server's.
    Failed(&'static str),
    /// The client cancelled it.
    Cancelled,
}

impl Span {
    fn lasted(&self) -> Duration {
        self.ended.since(self.began)
    }

    /// What it is called: few names, however many calls there are.
    fn name(&self) -> String {
        match &self.target {
            SpanTarget::Tool(name) | SpanTarget::Prompt(name) => format!("{} {name}", self.method),
            // There may be as many as there are calls.
            SpanTarget::Resource(_) | SpanTarget::Nothing => self.method.clone(),
        }
    }
}
