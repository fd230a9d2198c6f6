//! Owns the transport and the state of a link, as values. Driven by [`Remote`](super::Remote). Never performs
//! a transition itself.

use super::ExchangeId;
use super::error_responses::LinkError;
use crate::mcp::envelope::Id;
use crate::time::Time;

/// The transport that the server speaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Streamable HTTP: each message is a POST, answered in its response. `is_certain` once the server has
    /// shown that it speaks it.
    Streamable { is_certain: bool },
    /// HTTP+SSE: responses come over one stream, which names the endpoint for messages. `guess` is the error
    /// for the hub's `initialize` if the transport was only guessed, and wrongly.
    Sse { stream: Option<ExchangeId>, endpoint: Option<String>, guess: Option<LinkError> },
}

impl Transport {
    pub(super) fn new(sse: Option<bool>) -> Self {
        match sse {
            Some(true) => Self::Sse { stream: None, endpoint: None, guess: None },
            sse => Self::Streamable { is_certain: sse.is_some() },
        }
    }

    pub(super) fn is_sse(&self) -> bool {
        matches!(self, Self::Sse { .. })
    }

    /// Where messages are posted to, if not to the URL of the server.
    pub(super) fn endpoint(&self) -> Option<&str> {
        match self {
            Self::Sse { endpoint, .. } => endpoint.as_deref(),
            Self::Streamable { .. } => None,
        }
    }

    /// The server has answered an `initialize` in its response.
    pub(super) fn note_certain(&mut self) {
        if let Self::Streamable { is_certain } = self {
            *is_certain = true;
        }
    }
}

/// Whether requests can be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Up,
    /// Something has to be opened first, at once.
    Closed,
    Opening {
        step: OpeningStep,
        until: Time,
    },
    /// One exchange finds out whether the server is back.
    Scouting(ExchangeId),
    /// The server cannot be reached, or is busy.
    Down {
        /// The next try; without it the next request of the hub starts one.
        at: Option<Time>,
        /// No try before this.
        earliest: Time,
        why: LinkError,
    },
}

impl LinkState {
    /// Whether the opening waits for this exchange.
    pub(super) fn is_step(&self, exchange: ExchangeId) -> bool {
        matches!(self, Self::Opening { step, .. } if step.exchange() == exchange)
    }

    /// The error for requests that have been queued for too long.
    pub(super) fn queue_error(&self) -> LinkError {
        match self {
            Self::Down { why, .. } => why.clone(),
            Self::Opening { .. } | Self::Scouting(_) | Self::Closed => LinkError::Silent,
            Self::Up => LinkError::TooMany,
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        match self {
            Self::Opening { until, .. } => Some(*until),
            Self::Down { at, .. } => *at,
            Self::Up | Self::Closed | Self::Scouting(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpeningStep {
    /// The stream of the HTTP+SSE transport.
    Stream(ExchangeId),
    /// The link's own `initialize`.
    Initialize(Id, ExchangeId),
    /// The notification after it: requests that overtake it would be rejected.
    Initialized(ExchangeId),
}

impl OpeningStep {
    pub(super) fn exchange(&self) -> ExchangeId {
        let (Self::Stream(exchange) | Self::Initialize(_, exchange) | Self::Initialized(exchange)) =
            self;
        *exchange
    }
}
