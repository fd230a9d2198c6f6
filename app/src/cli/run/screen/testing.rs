//! A run in the middle of its work, for tests.

use std::time::Duration;

use afresh_core::agent::{AgentKind, ContextUse, Spent};
use afresh_core::run::{Attempt, GateState, Kind, PhaseEnd, RunEvent, View};
use afresh_core::time::Stamp;

use super::state::{Facts, State};

pub(super) fn now() -> Stamp {
    Stamp::parse("2026-11-15T08:00:05Z").expect("a time")
}

/// A run that is in its second phase.
pub(super) fn state() -> State {
    let names = ["Store", "Page", "Style", "Words", "Last"];
    let gates = ["unit", "style"];
    let phase = |name: &str| (name.to_owned(), gates.map(str::to_owned).to_vec());
    let mut state = State::new(Facts {
        title: "Guest list".to_owned(),
        run: 7,
        agent: AgentKind::Claude,
        phases: names.map(phase).to_vec(),
    });
    let context =
        ContextUse { used: 84_000, window: Some(200_000), compacts_at: None, exact: true };
    let view = View {
        ends: vec![Some(PhaseEnd::Done), None, None, None, None],
        current: 1,
        gates: vec![GateState::Failed(Duration::from_millis(3_240)), GateState::Waiting],
        doing: "working",
        attempt: Attempt(3),
        kind: Some(Kind::Restart(1)),
        model: Some("large".to_owned()),
        context: Some(context),
        percent: Some(42.0),
        soft: Some(65.0),
        hard: Some(80.0),
        tool_calls: 12,
        tool: Some(("Bash".to_owned(), "cargo test".to_owned())),
        spent: Spent {
            input: 1_102_000,
            cached: 0,
            output: 110,
            dollars: Some(3.305),
            guessed: false,
        },
        restarts: 1,
        restarts_max: 3,
        remediations: 0,
        remediations_max: 2,
        worked: Duration::from_secs(3_720),
        counts: true,
        stamp: Stamp::parse("2026-11-15T08:00:00Z").expect("a time"),
        ..View::default()
    };
    state.tell(&RunEvent::Text("I will write the page.".to_owned()), &view);
    let (name, detail) = ("Bash".to_owned(), "cargo test".to_owned());
    state.tell(&RunEvent::Tool { name, detail }, &view);
    state
}
