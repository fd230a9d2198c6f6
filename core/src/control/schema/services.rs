//! A service, and what is told with it.

use serde_json::Value;

use super::{
    array, count, described, flag, integer, names, number, object, or_null, reference, stamp, text,
    words,
};
use crate::control::{Face, HealthState, State};

/// All that a service is told with.
pub(super) fn of_services() -> Vec<(&'static str, Value)> {
    vec![
        (
            "ServiceList",
            object(
                "All services of one afresh process.",
                &[("services", array("ServiceStatus"), "In the order of their definition.")],
            ),
        ),
        ("ServiceStatus", service_status()),
        (
            "Restarts",
            object(
                "Restarts of every kind.",
                &[
                    ("total", count(), "All of them."),
                    ("last", array("RestartNote"), "The last few, oldest first."),
                ],
            ),
        ),
        (
            "RestartNote",
            object(
                "Why an instance was followed by another.",
                &[("time", stamp(), "When that was known."), ("reason", text(), "Why.")],
            ),
        ),
        (
            "HealthStatus",
            object(
                "What its checks say of a service.",
                &[
                    ("state", words(HealthState::ALL.map(HealthState::name)), "In one word."),
                    (
                        "failures",
                        count(),
                        "Checks in a row that have failed since it was last well.",
                    ),
                    ("last_error", or_null(text()), "Why the last check failed."),
                    ("latency_ms", or_null(count()), "How long the last good answer took."),
                    ("checked_at", or_null(stamp()), "When the last check ended."),
                ],
            ),
        ),
        ("RunStatus", run_status()),
        (
            "UsageStatus",
            object(
                "What a process and all its descendants use.",
                &[
                    (
                        "memory_bytes",
                        count(),
                        "Resident memory; what several of them share is counted for each.",
                    ),
                    ("cpu_ms", count(), "Processor time since their start."),
                ],
            ),
        ),
        (
            "LastExit",
            object(
                "How an instance ended.",
                &[
                    ("code", or_null(integer()), "Its exit code."),
                    ("signal", or_null(integer()), "The signal that ended it."),
                    ("text", text(), "As a sentence."),
                ],
            ),
        ),
    ]
}

fn run_status() -> Value {
    object(
        "How far a run of a plan is.",
        &[
            ("number", count(), "Its number in the workspace, as `afresh runs` has it."),
            ("plan", text(), "The title of the plan."),
            ("phase", text(), "The phase that is worked on."),
            ("phase_number", count(), "Its place, from 1."),
            ("phases", count(), "How many phases there are."),
            ("doing", text(), "What is done now, in a few words."),
            ("context_percent", or_null(number()), "How full the context of the agent is."),
            ("context_tokens", or_null(count()), "Tokens in it."),
            ("context_window", or_null(count()), "How many fit."),
            ("context_exact", flag(), "Whether the agent counts them; otherwise they are guessed."),
            ("tool_calls", count(), "Uses of tools in this session."),
            ("phase_restarts", count(), "Restarts of this phase."),
            ("input_tokens", count(), "Tokens that went in, in all."),
            ("output_tokens", count(), "Tokens that came out, in all."),
            ("dollars", or_null(number()), "What was spent, as far as the agent says."),
            ("waits_until", or_null(stamp()), "Until when a limit is waited for."),
        ],
    )
}

fn service_status() -> Value {
    let mut schema = object(
        "One service.",
        &[
            ("name", text(), "Its name in the log, in the trail and in commands."),
            ("group", or_null(text()), "What it is a copy of, where there are several."),
            ("face", words(Face::ALL.map(Face::name)), "Which command keeps it."),
            ("state", words(State::WORDS), "What is true of it."),
            (
                "says_ready",
                flag(),
                "Whether it is known when it serves; otherwise it counts as up when it runs.",
            ),
            ("pid", or_null(count()), "The process that runs."),
            ("supervisor_pid", count(), "The afresh process that keeps it."),
            ("generation", count(), "The how-manieth instance it is."),
            ("started_at", or_null(stamp()), "When the process was started."),
            ("uptime_ms", or_null(count()), "How long the process has run."),
            ("restarts", reference("Restarts"), "What has become of the instances before."),
            (
                "candidate_pid",
                or_null(count()),
                "The process that is to take the place of this one when it is ready.",
            ),
            ("spare_pid", or_null(count()), "The process that takes over when this one crashes."),
            (
                "swap_failed",
                or_null(reference("RestartNote")),
                "Why the last restart by a swap failed.",
            ),
            ("waits_for", names(), "Other services that have to be there before it is started."),
            ("depends_on", names(), "Other services that it needs, as it is defined."),
            ("last_exit", or_null(reference("LastExit")), "How the last instance ended."),
            (
                "health",
                or_null(reference("HealthStatus")),
                "What its checks say; none without any.",
            ),
            (
                "usage",
                or_null(reference("UsageStatus")),
                "What the process and its descendants use; none where it is not told.",
            ),
            (
                "run",
                or_null(reference("RunStatus")),
                "How far the plan is; none where it is no run of one.",
            ),
            ("workspace", or_null(text()), "The project's folder; none outside of one."),
            ("command", text(), "What is run, without what looks like a secret."),
            ("mechanism", text(), "How processes are kept from outliving it."),
            ("version", text(), "The version of the afresh that keeps it."),
        ],
    );
    schema["properties"]["next_try_ms"] =
        described(count(), "In `backing off` and `crash loop`: the time until the next try.");
    schema["properties"]["why"] = described(text(), "In `failed` and `degraded`: what is wrong.");
    schema
}
