//! Runs the commands of health checks. Driven by `Checks`; the processes belong to the loop.

use std::time::Duration;

use afresh_core::health::Verdict;
use afresh_core::limits::{HEALTH_OUTPUT_BYTES_MAX, HEALTH_SHOWN_CHARS_MAX};
use afresh_core::service::Exit;
use afresh_core::time::show_duration;

use super::{CheckEvent, ProbeId, ProbeResult};
use crate::output::presentable;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner};

/// Runs a command and says what its end means.
pub(super) async fn run(
    briefs: BriefRunner,
    probe: ProbeId,
    command: Command,
    time_max: Duration,
) -> CheckEvent {
    let brief =
        Brief { command, stdin: Vec::new(), time_max, output_bytes_max: HEALTH_OUTPUT_BYTES_MAX };
    let verdict = match briefs.run(brief).await {
        Some(outcome) => judged(&outcome),
        None => Verdict::Silent { why: "afresh is ending".to_owned() },
    };
    CheckEvent::Probed(ProbeResult { probe, verdict, manner: None })
}

/// What the end of a command that checks says.
fn judged(outcome: &BriefOutcome) -> Verdict {
    let quoted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let short: String = last.trim().chars().take(HEALTH_SHOWN_CHARS_MAX).collect();
        presentable(&short)
    };
    let took = show_duration(outcome.took);
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => Verdict::Well { latency: outcome.took },
        // It may have failed because the service is busy: a command does not say.
        BriefEnding::Exited(exit) => Verdict::Silent {
            why: match [quoted(&outcome.stderr), quoted(&outcome.stdout)] {
                [said, _] | [_, said] if !said.is_empty() => format!("the check {exit}: {said}"),
                _ => format!("the check {exit}"),
            },
        },
        BriefEnding::SpawnFailed(failure) => {
            Verdict::Ill { why: format!("the check could not be started: {}", failure.message) }
        }
        BriefEnding::TimedOut => {
            Verdict::Silent { why: format!("the check had not ended after {took}, and was killed") }
        }
        BriefEnding::TooMuchOutput => {
            let why = format!("the check printed more than {HEALTH_OUTPUT_BYTES_MAX} bytes");
            Verdict::Ill { why }
        }
    }
}
