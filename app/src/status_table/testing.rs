//! A service for the tests of tables and screens.

use afresh_core::control::{Face, Restarts};

use super::*;

/// A service of which little is known.
pub(crate) fn service(name: &str, state: State) -> ServiceStatus {
    ServiceStatus {
        name: name.to_owned(),
        group: None,
        face: Face::Up,
        state,
        says_ready: false,
        pid: None,
        supervisor_pid: 1,
        generation: 1,
        started_at: None,
        uptime_ms: None,
        restarts: Restarts::default(),
        candidate_pid: None,
        spare_pid: None,
        waits_for: Vec::new(),
        depends_on: Vec::new(),
        swap_failed: None,
        last_exit: None,
        health: None,
        usage: None,
        run: None,
        workspace: None,
        command: String::new(),
        shared: None,
        mechanism: String::new(),
        version: String::new(),
    }
}
