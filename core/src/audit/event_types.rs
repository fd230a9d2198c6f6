//! The event types of the trail: what `props.event_type` can be, and what filters select by.

/// Every event type that afresh writes.
pub const EVENT_TYPES: &[&str] = &[
    "supervisor_started",
    "supervisor_stopped",
    "configuration_reloaded",
    "server_started",
    "server_adopted",
    "server_candidate_started",
    "server_spare_started",
    "server_swap_failed",
    "server_replacing",
    "server_exited",
    "server_crashed",
    "server_spawn_failed",
    "server_start_requested",
    "server_stop_requested",
    "server_restart_requested",
    "server_exiting_for_restart",
    "server_restart_throttled",
    "server_restarting",
    "server_crash_loop",
    "server_recovered",
    "server_gave_up",
    "server_stopped",
    "server_stop_escalated",
    "health_ready",
    "health_not_ready",
    "health_check_failed",
    "health_degraded",
    "health_recovered",
    "restart_marker_written",
    "restart_marker_failed",
    "process_survived",
    "hook_failed",
    "hook_event_lost",
    "hook_recovered",
    "trail_repaired",
    "trail_records_lost",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_a_service_is_listed() {
        let own = concat!(
            include_str!("../service/event.rs"),
            include_str!("../service/event/sentences.rs")
        );
        let words = own.split('"');
        let words = words.chain(include_str!("../health/event.rs").split('"'));
        let is_type = |word: &&str| word.starts_with("server_") || word.starts_with("health_");
        let types: Vec<&str> = words.filter(is_type).collect();
        assert!(types.len() >= 10, "{types:?}");
        for event_type in types {
            assert!(EVENT_TYPES.contains(&event_type), "{event_type}");
        }
    }
}
