//! The same as `spans.rs`, in a build without OpenTelemetry: nobody wants spans.

use std::path::PathBuf;

use afresh_core::gateway::span::{Destination, Span};

use crate::output::Output;

/// Takes nothing.
#[derive(Default)]
pub(super) struct Spans;

impl Spans {
    /// Whatever is given does not count; the command line has refused it.
    pub(super) fn start(
        _: Option<Destination>,
        _version: &str,
        _certificates: Option<PathBuf>,
        _stderr: &Output,
    ) -> Self {
        Self
    }

    /// Whether spans are wanted.
    pub(super) fn is_on(&self) -> bool {
        false
    }

    /// None comes.
    pub(super) fn take(&self, _: Box<Span>) {}

    /// There is nothing left.
    pub(super) fn close(&mut self) {}

    /// Nor to wait for.
    pub(super) async fn finish(self) {}
}
