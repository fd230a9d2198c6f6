//! Bounds of agent sessions.

use std::time::Duration;

/// A line that an agent prints. A longer one is passed over, and said; a tool that returns a picture makes
/// lines of some megabytes.
pub const AGENT_LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is kept of the text that says on what a tool is used.
pub const AGENT_DETAIL_CHARS_MAX: usize = 200;

/// What is kept of one text that an agent says.
pub const AGENT_TEXT_CHARS_MAX: usize = 16 * 1024;

/// Tools that run at once and whose names are remembered; older ones are forgotten.
pub const AGENT_TOOLS_MAX: usize = 256;

/// Ids of model calls that are remembered so that none is counted twice; the oldest is forgotten.
pub const AGENT_CALLS_MAX: usize = 1024;

/// How long an agent may take until it can be given a prompt.
pub const AGENT_READY_WAIT: Duration = Duration::from_secs(60);

/// How often the server of an agent is asked whether it is there yet.
pub const AGENT_READY_POLL: Duration = Duration::from_millis(50);

/// Words of an agent that wait for our loop; then its pipe fills, and it waits too.
pub const AGENT_WORDS_MAX: usize = 64;

/// How long what an agent says is let come together, where it comes thick: a model speaks in hundreds of pieces a
/// second, and to wake up for each would cost more than the rest. If afresh is killed, that much of the output is lost…
pub const AGENT_GATHER_TIME: Duration = Duration::from_millis(75);

/// …and so many reads that follow each other closely are none of that: they are taken at once.
pub const AGENT_LONE_READS_MAX: u32 = 4;

/// What is read from an agent at once: all that a pipe holds on Linux, so that what has come together is one read.
pub const AGENT_READ_BYTES: usize = 64 * 1024;

/// What waits to be written to an agent. At the bound more is dropped: one that reads nothing is silent
/// too, and its session ends for that.
pub const AGENT_STDIN_MAX: usize = 64;

/// How long the server of an agent may take for an answer.
pub const AGENT_ANSWER_WAIT: Duration = Duration::from_secs(30);

/// The log of one session; the rest is not written, and a line says so.
pub const SESSION_LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Threads of an agent, its own and those of its subagents, whose use is counted one by one; the count of the
/// oldest is kept, and stands still.
pub const AGENT_THREADS_MAX: usize = 256;

/// How far from now the end of a limit may be: the windows of a subscription are hours and weeks. A later one
/// is not believed.
pub const AGENT_LIMITED_MAX: Duration = Duration::from_secs(35 * 24 * 60 * 60);

/// A time since 1970 above this is in milliseconds: in seconds it would be in the year 5138.
pub const AGENT_SECONDS_MAX: u64 = 100_000_000_000;

/// What is kept of an id or a name that an agent gives: of a tool, its use, a call, a model. None is longer in
/// earnest.
pub const AGENT_ID_CHARS_MAX: usize = 256;

/// How long Claude Code may take to say how full its context is when it has started: then it is given its
/// prompt all the same, which waits for it in the pipe.
pub const CLAUDE_ANSWER_WAIT: Duration = Duration::from_secs(20);
const _: () = assert!(CLAUDE_ANSWER_WAIT.as_secs() < AGENT_READY_WAIT.as_secs());

/// Models whose windows are remembered; those of all providers that opencode has a key for are some hundreds.
pub const AGENT_MODELS_MAX: usize = 8192;

/// Subagents of one session that are counted; what more of them use is not.
pub const AGENT_SUBAGENTS_MAX: usize = 1024;

/// Requests to the server of an agent that wait for an answer; the oldest is forgotten, and its answer passed over.
pub const AGENT_REQUESTS_MAX: usize = 256;

/// How long the server of an agent may be idle with something that it has not answered before we look at what it
/// has. It says that it is idle once when it is interrupted, and again when the interrupted step has ended.
pub const AGENT_SETTLE_WAIT: Duration = Duration::from_secs(2);

/// How often we look for a prompt that the server of an agent took but does not show, before the turn is over.
pub const AGENT_LOOKS_MAX: u32 = 15;

/// The messages that are read again after a gap in the events; what was used is known without them.
pub const AGENT_REREAD_MESSAGES_MAX: usize = 16;

/// The longest wait between two tries to listen to the server of an agent again.
pub const AGENT_LISTEN_DELAY_MAX: Duration = Duration::from_secs(5);

/// Overflows in a row, without one step that succeeded, after which a turn is ended: opencode would put its context
/// together and try again without end.
pub const AGENT_OVERFLOWS_MAX: u32 = 3;

/// How much the guess of a context must grow before it is said again, in tokens.
pub const AGENT_GUESS_STEP: u64 = 256;

/// How long the server of an agent may think about whether it is there, before it is asked again: one that begins to
/// listen may lose what came first.
pub const AGENT_HEALTH_WAIT: Duration = Duration::from_secs(2);

/// How long a run waits for another program that writes to its records; then it stops, and can go on later.
pub const RUNS_BUSY_WAIT: Duration = Duration::from_secs(30);
