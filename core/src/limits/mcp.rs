//! The bounds of conversations with MCP servers, of their messages and of traces.

use std::time::Duration;

/// Instances in a row that may die of a client's probe before one serves; the next such death counts
/// as a crash, so that the waits and the giving up apply.
pub const PROBE_DEATHS_MAX: u32 = 3;

/// The longest MCP message. Above every client's own limit (8 to 16 MiB where there is one); the
/// request that a longer one belongs to is answered with an error that names this limit.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Messages that wait while no instance serves. More requests are answered at once, with an error;
/// more notifications are dropped, and said.
pub const QUEUE_LEN_MAX: usize = 1_000;

/// The same, in bytes.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Requests of the client's that have no answer yet, with an instance or waiting for one. Clients have
/// some ten; one more is answered at once, with an error.
pub const FLIGHTS_MAX: usize = 10_000;

/// The same, in bytes: each is kept until it is answered, as it may have to be sent again.
pub const FLIGHTS_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Requests of servers that the client has not answered. More are not passed on, and logged: a server
/// with so many does not wait for the answers.
pub const ASKED_MAX: usize = 1_000;

/// Pings of an instance that we answer before it has the session. It may send some, and need not read
/// the answers.
pub const PONGS_MAX: usize = 100;

/// How long a request waits for an instance: well below the 60 s after which clients give up.
pub const QUEUE_WAIT: Duration = Duration::from_secs(20);

/// How long an instance may take to answer the replayed handshake; then it counts as crashed.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// When our client is gone, everything ends within this: clients kill what takes longer.
pub const CLIENT_GONE_WITHIN: Duration = Duration::from_secs(1);

/// After giving up, a call makes us try once more, at most this often.
pub const RETRY_WHEN_WANTED: Duration = Duration::from_secs(60);

/// What is read from a conversation's pipe at once. One read of each pipe in turn keeps a peer that
/// floods from holding up the others.
pub const TALK_CHUNK_BYTES: usize = 256 * 1024;

/// Lines up to this length that wait for the same peer are joined, and written together; a longer
/// one is not worth a copy.
pub const JOINED_BYTES_MAX: usize = 64 * 1024;

/// Bytes that wait for the client. While there are more, nothing is read from any instance; those
/// then wait, as they would for the client itself. Beyond it are at most the lines that one read
/// completes. Lines are not counted: joined, each costs its bytes and no more.
pub const OUTBOX_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that wait for one instance. While there are more, nothing is read from the client, who then
/// waits; all instances are still read, so that one that does not read holds up no answer of another.
pub const TALK_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that wait for the client before nothing more is read from it either. No answer of an instance
/// comes so far; what does is answers of our own to a client that asks and asks and never reads.
pub const CLIENT_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 16 * OUTBOX_BYTES_MAX;

/// What is taken from the pipe of an instance that is gone: all that it can have left there. Another
/// process that holds the pipe and goes on writing is ignored.
pub const LAST_WORDS_BYTES_MAX: usize = 1024 * 1024;

/// No pipe of ours holds more: a line that is further back than this has been read.
pub const PIPE_BYTES_MAX: usize = 1024 * 1024;

/// With so many requests on their way, lines that come one by one are gathered for a moment before the
/// next read. With fewer, none is ever held up.
pub const GATHER_FROM: usize = 16;

/// So many lines in one read are enough to go on without.
pub const GATHER_BELOW: usize = 4;

/// How long that moment is; the system makes about twice as much of it.
pub const GATHER_FOR: Duration = Duration::from_micros(50);

/// How often in a row the pipes of a conversation are served before everything else is looked at.
pub const TALK_TURNS_MAX: u32 = 32;

/// How long a server may live on after it has closed its stdin; then it counts as crashed. It may have
/// answers to write before it exits, with a code that matters; what is new waits for the next one.
pub const CLOSED_STDIN_MAX: Duration = Duration::from_secs(5);

/// How long a server may live on after it has closed its stdout; then it counts as crashed.
pub const CLOSED_STDOUT_MAX: Duration = Duration::from_millis(250);

/// A list of one page that is not longer than this is remembered, for the time in which the server hangs; a request for a
/// longer one waits for the server.
pub const LIST_REMEMBERED_BYTES_MAX: usize = 1024 * 1024;

/// Pages of one list that are read to compare it; a longer one is not compared.
pub const LIST_PAGES_MAX: usize = 100;

/// How long a new instance may take to list what it offers; then nothing is said about changes.
pub const COMPARING_MAX: Duration = Duration::from_secs(5);

/// How long a call of `restart_server` waits for the new instance: below the 60 s after which clients
/// give up.
pub const RESTART_ANSWER_MAX: Duration = Duration::from_secs(50);

/// A trace is rotated at this size; one older file is kept.
pub const TRACE_FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// This much of a message is kept in a trace.
pub const TRACE_MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Messages that wait to be written to a trace; more are left out, and counted.
pub const TRACE_QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The same, in messages.
pub const TRACE_QUEUE_LEN_MAX: usize = 16 * 1024;

/// How long a server may be silent with a call unanswered before it is suspected to be wedged: ten
/// times what most clients wait. See `wedge_timeout` in the configuration.
pub const WEDGE_TIMEOUT: Duration = Duration::from_secs(300);

/// Clients that wait for a server of which two instances in a row have failed alike before they served hear of it after
/// this: a third one has this time to serve.
pub const START_FAILURE_REPORT_AFTER: Duration = Duration::from_secs(2);

/// How long a server may be silent with a call unanswered before it is asked whether it lives: less than the shortest
/// time that common clients wait for a call.
pub const WEDGE_ASK_AFTER: Duration = Duration::from_secs(30);

/// A server whose client has given up all of its calls is wedged where it does not answer a probe, nor do any work, for
/// this long. While a client waits, `wedge_timeout` counts.
pub const WEDGE_GIVEN_UP_WAIT: Duration = Duration::from_secs(60);

/// How long a suspected server has for the answer to a probe. After two thirds of it the server is shown as degraded, and
/// its lists come from memory. Long enough for one that collects its
/// garbage or swaps, and short beside the silence before it.
pub const WEDGE_PROBE_WAIT: Duration = Duration::from_secs(30);

/// A server that uses more than this share of one processor, in percent, works: it is waited for.
pub const WEDGE_BUSY_PERCENT: u32 = 1;

/// So many of the last lines of a server's stderr are told to the client whose request it had.
pub const LAST_WORDS_LINES: usize = 10;

/// A longer one of these lines is cut.
pub const LAST_WORDS_CHARS: usize = 400;

/// While a server owes an answer, it is looked at every tenth of `wedge_timeout`, but not more often
/// than this.
pub const WEDGE_LOOK_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// And not less often.
pub const WEDGE_LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// How often the memory of a server is looked at where it has a limit.
pub const MEMORY_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A line beyond this does not fit into a Linux pipe. It is read straight into its place, and its
/// pipes are widened.
pub const LONG_LINE_BYTES: usize = 64 * 1024;

/// What a pipe is made to hold on which a line came that is longer than that. Only then: the kernel
/// grants each user 64 MiB of pipes, and few servers send such lines.
pub const WIDE_PIPE_BYTES: i32 = 1024 * 1024;

/// How much of what a message needed is kept for the next one; more goes back to the system. Most
/// results are below it.
pub const FREED_BYTES_KEPT: i32 = 1024 * 1024;

/// The memory of a long line is kept for the next one up to this size: to get it from the kernel again
/// takes longer than to fill it.
pub const SPARE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// For so long, while nothing happens.
pub const SPARE_KEPT: Duration = Duration::from_secs(1);

/// Tasks that a conversation remembers, so that it can say that they failed with their instance. With one more, the oldest is
/// forgotten, and the new instance answers for it.
pub const TASKS_REMEMBERED_MAX: usize = 1_000;

/// The longest id of a task that is remembered, in characters. Servers use UUIDs.
pub const TASK_ID_CHARS_MAX: usize = 1_024;

/// The longest message of a task's status that is remembered, in bytes of JSON; a longer one is left out.
pub const TASK_MESSAGE_BYTES_MAX: usize = 1_024;

/// The longest time or number of a task that is remembered, in bytes.
pub const TASK_MEMBER_BYTES_MAX: usize = 64;
