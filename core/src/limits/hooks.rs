//! The bounds of hooks and their deliveries.

use std::time::Duration;

use super::HTTP_CONNECT_WAIT;

/// Hooks of one configuration: each event is offered to all of them. With one more, it is refused.
pub const HOOKS_MAX: usize = 100;

/// Deliveries that wait for one hook. With one more the oldest goes, and the next one that arrives says
/// how many did: who has not been reached for so long wants the newest.
pub const HOOK_QUEUE_LEN_MAX: usize = 32;

/// The same event of the same service is told this often at most; what comes meanwhile is counted and
/// told together. A crash storm must not become a storm of messages.
pub const HOOK_QUIET: Duration = Duration::from_secs(10);

/// The wait before the second try; each further one is twice as long.
pub const HOOK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest of these waits.
pub const HOOK_RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// Tries for one delivery to a webhook: with the waits between them some three minutes, which is longer
/// than most outages. Then it is lost, and said.
pub const HOOK_TRIES_MAX: u32 = 8;

/// Tries with a command: one that fails three times has another reason than the weather.
pub const HOOK_COMMAND_TRIES_MAX: u32 = 3;

/// What is older than this is not tried again: the news is stale.
pub const HOOK_AGE_MAX: Duration = Duration::from_secs(600);

/// A receiver that asks for more patience than this gets this much.
pub const HOOK_RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A longer text in a message is cut.
pub const HOOK_TEXT_CHARS_MAX: usize = 1_000;

/// A longer name in a message is cut.
pub const HOOK_NAME_CHARS_MAX: usize = 200;

/// What Discord takes as one message; a longer one would be refused, so it is cut.
pub const HOOK_DISCORD_CHARS_MAX: usize = 2_000;

/// What ntfy takes as a message; a longer one would become an attachment, so it is cut.
pub const HOOK_NTFY_BYTES_MAX: usize = 4_000;

/// Events that wait for the task that tells hooks, which only sorts them into queues. More are lost, and
/// said: supervision waits for no hook.
pub const HOOK_EVENTS_MAX: usize = 1_024;

/// How long one request to a webhook may take, from the look-up of the name to the end of the answer.
pub const HOOK_REQUEST_WAIT: Duration = Duration::from_secs(10);

/// What is read of the answer of a webhook; it is only shown when it is an error.
pub const HOOK_ANSWER_BYTES_MAX: usize = 4 * 1024;

/// How long the command of a hook may run; then its whole tree is ended.
pub const HOOK_COMMAND_WAIT: Duration = Duration::from_secs(30);

/// What is kept of a command's stdout and of its stderr, each, to be shown when it fails. One that says
/// more is ended.
pub const HOOK_COMMAND_BYTES_MAX: usize = 64 * 1024;

/// Characters of an answer or an output that are shown in the log.
pub const HOOK_EXCERPT_CHARS_MAX: usize = 300;

/// What deliveries get to finish when afresh ends; what is left then is named in the log.
pub const HOOKS_CLOSE_WAIT: Duration = Duration::from_secs(3);

const _: () = assert!(HOOK_QUEUE_LEN_MAX >= 2);
const _: () = assert!(HOOK_RETRY_AFTER_MAX.as_secs() < HOOK_AGE_MAX.as_secs());
const _: () = assert!(HTTP_CONNECT_WAIT.as_millis() < HOOK_REQUEST_WAIT.as_millis());
