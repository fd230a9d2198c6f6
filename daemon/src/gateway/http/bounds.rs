//! Owns the bounds of connections, from `core/src/limits/mcp.rs`, as values: tests use smaller ones. Read by the
//! server and its exchanges. Never changes while it runs.

use std::time::Duration;

use afresh_core::limits::{
    FRONT_ASKS_MAX, FRONT_CLOSE_WAIT, FRONT_CONNECTIONS_MAX, FRONT_HEAD_WAIT, FRONT_IDLE_WAIT,
    FRONT_LAST_WAIT, FRONT_REFUSED_BYTES_MAX, FRONT_REFUSED_WAIT,
};

/// Each as the limit of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: usize,
    pub(super) asks_max: usize,
    pub(super) head_wait: Duration,
    pub(super) idle_wait: Duration,
    pub(super) refused_wait: Duration,
    pub(super) refused_bytes_max: usize,
    pub(super) close_wait: Duration,
    pub(super) last_wait: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: FRONT_CONNECTIONS_MAX,
            asks_max: FRONT_ASKS_MAX,
            head_wait: FRONT_HEAD_WAIT,
            idle_wait: FRONT_IDLE_WAIT,
            refused_wait: FRONT_REFUSED_WAIT,
            refused_bytes_max: FRONT_REFUSED_BYTES_MAX,
            close_wait: FRONT_CLOSE_WAIT,
            last_wait: FRONT_LAST_WAIT,
        }
    }
}
