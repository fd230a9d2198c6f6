//! Parses the trace that a request is a part of: `traceparent` and `tracestate` in its `_meta`, as W3C has them.

use crate::limits::TRACE_STATE_BYTES_MAX;
use crate::mcp::json as raw;

/// The span that a request was made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) flags: u8,
    /// As the client has it; empty where it has none.
    pub(super) state: String,
}

impl Parent {
    /// Looks into the `_meta` of a request, raw. What is wrong counts as not there.
    pub fn of_meta(meta: &[u8]) -> Option<Self> {
        let text = raw::get(meta, &["traceparent"]).and_then(raw::text)?;
        let mut parent = Self::parse(&text)?;
        let state = raw::get(meta, &["tracestate"]).and_then(raw::text).unwrap_or_default();
        if state.len() <= TRACE_STATE_BYTES_MAX {
            parent.state = state;
        }
        Some(parent)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut next = |digits: usize| {
            let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            parts.next().filter(|part| part.len() == digits && part.chars().all(is_hex))
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Later versions may have more behind it; this one has not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, flags, state: String::new() })
    }

    /// Whether the trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}
