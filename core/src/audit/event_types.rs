//! Owns the event types of the trail: the values of `props.event_type`. Every [`super::Record`] carries one, and
//! filters select by their names. Never changes a name: files on disk hold them.

/// Declares each event type once, with its name in the trail.
macro_rules! event_types {
    ($($variant:ident $name:literal: $about:literal,)+) => {
        /// What happened, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EventType {
            $(#[doc = $about] $variant,)+
        }

        impl EventType {
            /// Every event type that afresh writes.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value of `props.event_type`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The event type of a record; none where a later version wrote it.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|event_type| event_type.name() == name)
            }
        }
    };
}

event_types! {
    SupervisorStarted "supervisor_started": "An afresh process begins.",
    SupervisorStopped "supervisor_stopped": "An afresh process ends in order.",
    ConfigurationReloaded "configuration_reloaded": "The configuration was read again.",
    ServerStarted "server_started": "An instance runs.",
    ServerAdopted "server_adopted": "An instance of an earlier supervisor was taken over.",
    ServerCandidateStarted "server_candidate_started": "The next instance of a swap runs.",
    ServerSpareStarted "server_spare_started": "A spare instance runs.",
    ServerSwapFailed "server_swap_failed": "The next instance of a swap failed.",
    ServerReplacing "server_replacing": "A spoiled instance is replaced.",
    ServerExited "server_exited": "An instance ended as it should.",
    ServerCrashed "server_crashed": "An instance failed.",
    ServerSpawnFailed "server_spawn_failed": "An instance could not be started.",
    ServerStartRequested "server_start_requested": "A user requested a start.",
    ServerStopRequested "server_stop_requested": "A user requested a stop.",
    ServerRestartRequested "server_restart_requested": "A user or an agent requested a restart.",
    ServerRestartVerified "server_restart_verified": "An agent verified a restart.",
    ServerExitingForRestart "server_exiting_for_restart": "An instance is stopped for a restart.",
    ServerRestartThrottled "server_restart_throttled": "A requested restart waits for the rate limit.",
    ServerRestarting "server_restarting": "The next start is planned.",
    ServerCrashLoop "server_crash_loop": "A service crashes again and again.",
    ServerRecovered "server_recovered": "An instance has been up for the stable time.",
    ServerGaveUp "server_gave_up": "All allowed restarts have failed.",
    ServerStopped "server_stopped": "A service is down and stays down.",
    ServerStopEscalated "server_stop_escalated": "An instance did not end in time.",
    ToolsChanged "tools_changed": "A server of the gateway has other tools than those that were pinned.",
    HealthReady "health_ready": "An instance has passed its first check.",
    HealthNotReady "health_not_ready": "An instance has not passed a check in time.",
    HealthCheckFailed "health_check_failed": "A check of a ready instance failed.",
    HealthDegraded "health_degraded": "The first check after good ones failed.",
    HealthRecovered "health_recovered": "A check is good again.",
    RestartMarkerWritten "restart_marker_written": "The restart marker is on disk.",
    RestartMarkerFailed "restart_marker_failed": "The restart marker could not be written.",
    ProcessSurvived "process_survived": "A process outlived the stop of its instance.",
    RequestRefused "request_refused": "A request, or a connection, was refused.",
    HookFailed "hook_failed": "A hook has begun to fail.",
    HookEventLost "hook_event_lost": "A hook will never receive an event.",
    HookRecovered "hook_recovered": "A hook works again.",
    TrustGranted "trust_granted": "The user accepted requests of a project's files.",
    TrustRefused "trust_refused": "The user was asked to accept requests of a project's files, and did not.",
    TrustRevoked "trust_revoked": "The user took accepted requests back.",
    TrailRepaired "trail_repaired": "A torn record at the end of the trail was closed.",
    TrailRecordsLost "trail_records_lost": "Records could not be written.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_the_variant_in_snake_case_and_occurs_once() {
        for (index, event_type) in EventType::ALL.iter().enumerate() {
            let mut snake = String::new();
            for letter in format!("{event_type:?}").chars() {
                if letter.is_ascii_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            assert_eq!(event_type.name(), snake);
            let same = EventType::ALL.iter().position(|other| other.name() == snake);
            assert_eq!(same, Some(index));
        }
    }
}
