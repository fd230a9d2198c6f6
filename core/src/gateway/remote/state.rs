//! What a link knows: how the server is spoken to, what is owed, and what is under way.

use std::time::Duration;

use super::error_responses::Trouble;
use super::{ExchangeId, Header};
use crate::mcp::envelope::Id;
use crate::mcp::inflight::Flight;
use crate::time::Time;

/// How the server is spoken to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Each message a POST, answered in its reply. `is_certain` where it cannot turn out otherwise.
    Streamable { is_certain: bool },
    /// Answers come over one stream, which says where messages go. `instead` is the answer to the hub's
    /// `initialize` where it is only a guess, and wrong.
    Old { stream: Option<ExchangeId>, endpoint: Option<String>, instead: Option<Trouble> },
}

#[derive(Debug, Default)]
pub(super) struct Session {
    /// Which one of ours: what belongs to an older one is void.
    pub(super) number: u64,
    pub(super) id: Option<String>,
    pub(super) version: Option<String>,
    pub(super) is_open: bool,
    pub(super) opened_at: Time,
}

/// Whether requests can go out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Something has to be opened first, at once.
    Closed,
    /// It is being opened.
    Opening {
        step: Step,
        until: Time,
    },
    /// One exchange finds out whether the server is back.
    Scouting(ExchangeId),
    /// The server cannot be reached, or wants to be left alone.
    Down {
        /// When it is tried again; none as long as nobody asks for something.
        at: Option<Time>,
        /// Not before this, whoever asks.
        earliest: Time,
        why: Trouble,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The stream of the old transport.
    Stream(ExchangeId),
    /// Our own `initialize`.
    Initialize(Id, ExchangeId),
    /// The notification after that: what overtakes it would be refused.
    Initialized(ExchangeId),
}

impl Step {
    pub(super) fn exchange(&self) -> ExchangeId {
        let (Self::Stream(exchange) | Self::Initialize(_, exchange) | Self::Initialized(exchange)) =
            self;
        *exchange
    }
}

/// A request of the hub's.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) flight: Flight,
    pub(super) at: At,
    /// How often it was given to the server.
    pub(super) sendings: u32,
    /// How often its stream was taken up in a row, without use.
    pub(super) resumes: u32,
    /// From where on its stream can be taken up.
    pub(super) last_event: Option<String>,
    /// The headers that its own content asks for; the session's come on top.
    pub(super) headers: Vec<Header>,
    pub(super) is_modern: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// With us, until then; none waits as long as it takes.
    Waiting { until: Option<Time> },
    /// With the server; the answer comes in this exchange.
    Asked(ExchangeId),
    /// With the server; the answer comes over the one stream.
    Given,
    /// With the server; its stream broke.
    Broken,
}

/// What goes out as soon as it can.
#[derive(Debug)]
pub(super) enum Waiting {
    Request(Id),
    Notice { line: Vec<u8>, until: Time },
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) purpose: Purpose,
    /// The session that it belongs to.
    pub(super) session: u64,
    pub(super) last_event: Option<String>,
    pub(super) retry: Option<Duration>,
    pub(super) opened_at: Option<Time>,
}

/// What an exchange is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Hands over a request of the hub's.
    Request(Id),
    /// Takes up the stream of one.
    Resume(Id),
    /// Opens the session anew.
    Opening,
    /// Says that it is open.
    Initialized,
    /// Hands over a notification or an answer.
    Notice(Vec<u8>),
    /// Hands over a request of our own, whose answer says nothing.
    Own(Id),
    /// Listens to what belongs to no request.
    Standalone,
    /// Listens to everything, in the old transport.
    Main,
}

/// A request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Opening,
    Restoring,
}

/// A request of the server's.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: u64,
    pub(super) id: Id,
}

/// The stream for what belongs to no request.
#[derive(Debug, Default)]
pub(super) struct Standalone {
    pub(super) exchange: Option<ExchangeId>,
    /// When it is opened, if it is to be.
    pub(super) at: Option<Time>,
    pub(super) last_event: Option<String>,
    /// How often in a row it did not last.
    pub(super) tries: u32,
}
