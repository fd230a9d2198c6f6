//! What the conversation machine alone takes for a call and its answer, with 64 of them in flight:
//! nothing is read, written or started.

#![expect(clippy::disallowed_types, reason = "measured by the real clock")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_core::id::Generation;
use afresh_core::mcp::{AddedTools, Conversation, Effect, Input, Settings, ToolNames, WhichTools};
use afresh_core::time::Time;
use afresh_tests::measure::{Report, Samples, bench};

const ROUNDS: usize = 31;
const BATCHES: usize = 200;
const IN_FLIGHT: usize = 64;

fn main() -> ExitCode {
    bench("mcp_machine: a call and its answer in the machine alone", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "p90"]);
    for (name, bytes) in [("120 B", 20), ("64 KiB", 64 * 1024)] {
        let text = "x".repeat(bytes);
        let mut samples = Samples::default();
        let mut conversation = opened();
        let batches = if bytes > 1024 { BATCHES / 50 } else { BATCHES };
        for _ in 0..ROUNDS {
            let took = round(&mut conversation, &text, batches);
            samples.push(took / u32::try_from(batches * IN_FLIGHT).expect("few"));
        }
        let nanos = |duration: Duration| format!("{} ns", duration.as_nanos());
        report.row(name, &[&nanos(samples.median()), &nanos(samples.quantile(0.9))]);
    }
}

fn opened() -> Conversation {
    let settings = Settings {
        server: "bench".to_owned(),
        patience: Duration::from_secs(10),
        tools: AddedTools { which: WhichTools::All, names: ToolNames::Bare },
        tell_restarts: true.into(),
        wedge_timeout: Some(Duration::from_secs(120)),
    };
    let mut conversation = Conversation::new(&settings);
    let generation = Generation(1);
    conversation.handle(Time::ZERO, Input::Started { generation, pid: 1 });
    conversation.handle(
        Time::ZERO,
        Input::Client(
            br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}"#
                .to_vec(),
        ),
    );
    let line = br#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"e","version":"1"}}}"#;
    conversation.handle(Time::ZERO, Input::Server { generation, line: line.to_vec() });
    conversation.handle(
        Time::ZERO,
        Input::Client(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec()),
    );
    conversation
}

fn round(conversation: &mut Conversation, text: &str, batches: usize) -> Duration {
    let generation = Generation(1);
    let calls: Vec<Vec<u8>> = (1..=batches * IN_FLIGHT)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{text}"}}}}}}"#).into_bytes())
        .collect();
    let answers: Vec<Vec<u8>> = (1..=batches * IN_FLIGHT)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#).into_bytes())
        .collect();
    let mut answers = answers.into_iter();
    let mut calls = calls.into_iter();
    let start = Instant::now();
    for _ in 0..batches {
        for line in calls.by_ref().take(IN_FLIGHT) {
            let effects = black_box(conversation.handle(Time::ZERO, Input::Client(line)));
            assert!(matches!(&effects[..], [Effect::ToServer { .. }]));
        }
        for line in answers.by_ref().take(IN_FLIGHT) {
            let input = Input::Server { generation, line };
            let effects = black_box(conversation.handle(Time::ZERO, input));
            assert!(matches!(&effects[..], [Effect::ToClient(_)]));
        }
    }
    start.elapsed()
}
