//! The bounds of the spans that a gateway sends.

use std::time::Duration;

/// Spans that go in one request; as many as OpenTelemetry's own senders take.
pub const SPAN_BATCH_MAX: usize = 512;

/// A span that has waited for so long is sent with the others that wait.
pub const SPAN_BATCH_WAIT: Duration = Duration::from_secs(5);

/// Spans that wait to be sent. With one more the new one is lost, counted and said: what is traced is the
/// work, and nothing of it waits for the receiver.
pub const SPANS_WAITING_MAX: usize = 2_048;

/// Spans on their way to the task that sends them, which only puts them into its queue. More are lost, and
/// counted.
pub const SPANS_UNHEARD_MAX: usize = 1_024;

/// A longer text in a span is cut.
pub const SPAN_TEXT_CHARS_MAX: usize = 256;

/// A longer `tracestate` is left out, as W3C allows: its parts mean nothing when they are cut.
pub const TRACE_STATE_BYTES_MAX: usize = 512;

/// How long one request with spans may take, from the look-up of the name to the end of the answer:
/// OpenTelemetry's own value.
pub const SPANS_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// What is read of the answer; it is only looked at for what was not taken.
pub const SPANS_ANSWER_BYTES_MAX: usize = 16 * 1024;

/// The wait after the first request that failed; after each further one it is twice as long.
pub const SPANS_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest of these waits, also where the receiver asks for more.
pub const SPANS_RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Tries with one batch. Then its spans are lost, and said.
pub const SPANS_TRIES_MAX: u32 = 5;

/// That spans are lost is said this often at most.
pub const SPANS_LOST_QUIET: Duration = Duration::from_secs(60);

/// What is left is sent within this time when the gateway ends; what is left then is said.
pub const SPANS_CLOSE_WAIT: Duration = Duration::from_millis(500);

const _: () = assert!(SPAN_BATCH_MAX <= SPANS_WAITING_MAX);
const _: () = assert!(SPANS_RETRY_DELAY.as_millis() <= SPANS_RETRY_DELAY_MAX.as_millis());
