//! Every bound in the product: how much, why that much, and what happens at the bound. Here are those of the
//! supervisor, its processes and its own files; the files of the folder have the others, by subject.

mod config;
mod control;
mod gateway;
mod health;
mod hooks;
mod install;
mod mcp;
mod run;
mod share;
mod trail_and_logs;
mod watch;

use std::time::Duration;

pub use self::config::*;
pub use self::control::*;
pub use self::gateway::*;
pub use self::health::*;
pub use self::hooks::*;
pub use self::install::*;
pub use self::mcp::*;
pub use self::run::*;
pub use self::share::*;
pub use self::trail_and_logs::*;
pub use self::watch::*;

/// The least wait between two starts in a crash loop, also where the configured delay is zero:
/// a restart loop must not exhaust the machine.
pub const CRASH_LOOP_DELAY_MIN: Duration = Duration::from_secs(1);

/// The least wait before a start is tried again that failed, also where the configured delay is zero: such a start takes no
/// time, and without a wait the loop would do nothing else. A program that is being written anew is there again by then.
pub const SPAWN_RETRY_MIN: Duration = Duration::from_millis(100);

/// The least wait before an MCP server is started again that SIGTERM or SIGINT ended: whoever ends all processes of a
/// client reaches afresh itself a moment later, and then none is started.
pub const TERM_RESTART_WAIT: Duration = Duration::from_millis(100);

/// Processes above this one that are looked at for npx, uvx and launchers. There are three at most, a launcher, a shell and
/// npx; one more in case a shell starts another. What is further up is not watched.
pub const LAUNCHERS_MAX: usize = 4;

/// Open files that are kept back from servers and clients, so that the control API, the trail and logs can still open
/// theirs. A start or a connection to a server that would take one fails as it does where there are no more.
pub const DESCRIPTORS_KEPT: u64 = 16;

/// The same for clients of a gateway: its servers must be able to start again. For one more client, a connection that
/// waits for a request is closed…
pub const FRONT_DESCRIPTORS_KEPT: u64 = 64;

/// …and where none waits, or those that were closed have not ended before so few are left, the new one is.
pub const FRONT_DESCRIPTORS_LEAST: u64 = 40;

const _: () = assert!(DESCRIPTORS_KEPT < FRONT_DESCRIPTORS_LEAST);
const _: () = assert!(FRONT_DESCRIPTORS_LEAST < FRONT_DESCRIPTORS_KEPT);

/// How long everything else waits for a guardian that was told to start the next instance. It takes a
/// quarter of this; one that hangs costs no more, and is dealt with as any that hangs.
pub const START_COURTESY: Duration = Duration::from_millis(1);

/// How long after SIGKILL a tree may take to vanish. Then its guardian is replaced, and what it
/// left is swept by the warden; this repeats until the tree is gone.
pub const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// How long after SIGTERM a command may take that should have ended: a check, a gate, git, which takes its lock away
/// then. SIGKILL follows.
pub const BRIEF_TERM_WAIT: Duration = Duration::from_secs(1);

/// Instances of one service that may be on their way out beside the current one. With one more, the
/// oldest of them is killed at once, and neither a swap nor a spare begins before one of them is gone.
pub const RETIRING_MAX: usize = 4;

/// What a tree gets between SIGTERM and SIGKILL when its supervisor was killed. All of it has to
/// be over within a second.
pub const ORPHANED_GRACE: Duration = Duration::from_millis(200);

/// The pause between two rounds of killing a tree that is still there.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// How long a guardian kills before it names the processes that it cannot kill (another user's, or
/// stuck in the kernel), and goes on.
pub const SWEEP_MAX: Duration = Duration::from_secs(1);

/// How long the supervisor goes on killing what a lost guardian left, after it has said that it
/// could not.
pub const SWEEP_ON_MAX: Duration = Duration::from_secs(30);

/// A warden that ended sooner than this did not work: the next one is made only when it is needed.
pub const WARDEN_LIFE_MIN: Duration = Duration::from_secs(1);

/// Output of one instance that is written to files while no supervisor is there, in bytes. It is a few
/// hours of a talkative service. At the bound the oldest half goes, and how much that was is said.
pub const SPILL_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How long a new supervisor waits for the warden and for a guardian that another one has left; each
/// answers within a millisecond. A guardian that does not is killed, with what it guards.
pub const ADOPTION_WAIT: Duration = Duration::from_secs(5);

/// How long a client may be connected to a warden without a request. Then it is disconnected: a warden serves one
/// at a time.
pub const VISITOR_WAIT: Duration = Duration::from_secs(2);

/// What services get between SIGTERM and SIGKILL that a supervisor of another version has left, and
/// that cannot be taken over. It is the default of `stop_timeout`.
pub const PREDECESSOR_GRACE: Duration = Duration::from_secs(5);

/// How long a supervisor waits until nothing is left of the one before. That takes less than a second,
/// unless something cannot be killed; then nothing is started, and that is said.
pub const PREDECESSOR_WAIT: Duration = Duration::from_secs(10);

const _: () = assert!(SWEEP_MAX.as_millis() < KILL_PATIENCE.as_millis());
const _: () = assert!(ORPHANED_GRACE.as_millis() * 2 < 1_000);

/// Orders that wait for one guardian. It takes them as they come; a queue that is full belongs to
/// a guardian that hangs, and the stop ladder replaces it.
pub const GUARDIAN_ORDERS_MAX: usize = 16;

/// Guardians of one service that are kept although they guard nothing. One makes a restart fast; more
/// are let go, as many as there were instances side by side.
pub const IDLE_GUARDIANS_MAX: usize = 1;

/// Orders that wait for the warden: all services may start in the same moment, and 10,000 of them are
/// the most that can be asked for; each has one guardian to be made and one to be buried.
pub const WARDEN_ORDERS_MAX: usize = 20_000;

/// Words from guardians that wait for the loop; a guardian that says more waits.
pub const GUARDIAN_MESSAGES_MAX: usize = 256;

/// What is read from a pipe at once; a Linux pipe holds 64 KiB.
pub const PIPE_CHUNK_BYTES: usize = 16 * 1024;

/// Chunks of output that wait for our reader. When it is full, the service waits, as it would
/// without us.
pub const OUTPUT_CHUNKS_MAX: usize = 64;

/// Lines of our own log that wait for our reader. More are dropped and counted: supervision does
/// not wait for a reader who does not read.
pub const LOG_LINES_MAX: usize = 16 * 1024;

/// A longer line of the log is cut: it quotes something that belongs into a file.
pub const LOG_LINE_CHARS_MAX: usize = 4_000;

/// How often it is said that output cannot be written.
pub const LOSS_NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// The pause before a stream that does not block is tried again.
pub const OUTPUT_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The pause before our stdin is tried again after an error: a job in the background may not read
/// its terminal, and nothing tells that it is in the foreground again.
pub const STDIN_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Instances that are gone while our reader has not yet taken their last output; when there are
/// more, that of the oldest is dropped, and said.
pub const LINGERING_MAX: usize = 64;

/// Chunks of our stdin that wait for an instance; then we stop reading.
pub const STDIN_CHUNKS_MAX: usize = 4;

/// A longer line of a service is cut into lines of this length, where lines are marked.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// An escape sequence of a program that is longer is printed as text: no colour and no move of the cursor is, and until it
/// ends it is held back.
pub const TERMINAL_SEQUENCE_BYTES_MAX: usize = 64;

/// How long a line of our log waits for the end of a line that a service has begun; then it goes out in the middle of
/// that line. On a busy machine a service can pause for a tenth of a second between two writes of one line.
pub const LINE_PATIENCE: Duration = Duration::from_millis(500);

/// How long the log of an exit waits for the last output of the instance to be passed on.
pub const DRAIN_MAX: Duration = Duration::from_millis(100);

/// How long we wait at our own end for a reader of our output, once we were told to stop; before
/// that we wait as long as the reader takes, as the command itself would.
pub const OUTPUT_FLUSH_MAX: Duration = Duration::from_millis(500);

/// The self-test of `afresh doctor` takes some ten milliseconds; a machine that needs longer than
/// this is too busy to tell.
pub const SELF_TEST_MAX: Duration = Duration::from_secs(10);

/// How long `CMD --version` may take. Some agents load a whole runtime first.
pub const VERSION_PROBE_MAX: Duration = Duration::from_secs(10);

/// Findings of one check of `afresh doctor` that are written out; the others are counted, so that the line stays
/// readable.
pub const DOCTOR_FINDINGS_MAX: usize = 5;

/// What a version is looked for in.
pub const VERSION_BYTES_MAX: usize = 64 * 1024;

/// How long a package manager may take to ask its registry for a version; what it has not answered by then counts as
/// unknown.
pub const REGISTRY_QUERY_MAX: Duration = Duration::from_secs(5);

/// How long its request may take, so that it can say what was wrong with it before it is ended.
pub const REGISTRY_REQUEST_MAX: Duration = Duration::from_secs(4);

const _: () = assert!(REGISTRY_REQUEST_MAX.as_millis() < REGISTRY_QUERY_MAX.as_millis());

/// Versions that one `afresh doctor` asks registries for: each is a process, and all run at once. More of them are
/// named as not asked for.
pub const REGISTRY_QUERIES_MAX: usize = 8;

/// Longer versions that a client's file names are not asked for.
pub const PINNED_VERSION_CHARS_MAX: usize = 64;

/// Fewer watches than this are used up by one large project.
pub const WATCHES_MIN: u64 = 8_192;

/// Fewer watchers than this are used up by one editor and a few build tools.
pub const WATCHERS_MIN: u64 = 128;

/// A service needs four descriptors: this is enough for a thousand.
pub const OPEN_FILES_MIN: u64 = 4_096;

/// A service and its guardian are two processes, and agents start many more.
pub const PROCESSES_MIN: u64 = 512;

/// With less free space than this, a disk is nearly full.
pub const FREE_BYTES_MIN: u64 = 100 * 1024 * 1024;

/// A second Ctrl+C kills at once if it comes this long after the first: one key press can arrive as
/// several signals.
pub const HURRY_GAP: Duration = Duration::from_millis(200);

/// A client's configuration beyond this is not edited, and said. Claude Code keeps the history of its
/// prompts in the same file, so it can have megabytes; a larger file is something else.
pub const ADOPT_FILE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Values nested deeper than this are refused: no client's configuration is, and a stack ends.
pub const ADOPT_DEPTH_MAX: usize = 128;

/// Characters of a line that are shown in a diff; of a longer one, the part around its change.
pub const ADOPT_DIFF_CHARS_MAX: usize = 160;

/// Of a longer line, only this much around its change is looked at for what is shown: a file can be
/// one line of megabytes. A name and its secret are closer together than that.
pub const ADOPT_DIFF_LINE_BYTES_MAX: usize = 64 * 1024;

/// What is read of an answer at the terminal; who writes more has not answered yes.
pub const ANSWER_BYTES_MAX: u64 = 256;

const _: () = assert!(WATCH_DEBOUNCE.as_millis() < WATCH_WAIT_MAX.as_millis());
const _: () = assert!(WEDGE_PROBE_WAIT.as_millis() < WEDGE_TIMEOUT.as_millis());

/// The last restarts of a service whose reasons are told; the trail has all of them.
pub const RESTARTS_TOLD_MAX: usize = 10;

/// Events that are remembered for the control API; the oldest goes when one more comes, and a client
/// that resumes from an older one is told how many are missing. A crash loop tells some ten a minute.
pub const EVENTS_MAX: usize = 2_000;

/// The same in bytes: `afresh mcp` has to stay small.
pub const EVENTS_BYTES_MAX: usize = 512 * 1024;

/// A longer reason is cut: it is a sentence in the trail.
pub const RESTART_REASON_CHARS_MAX: usize = 1_000;

/// How long a restart over the control socket is waited for. The longest default stop takes 5 s, and a
/// program that is not up after a minute will not be up soon.
pub const RESTART_WAIT_MAX: Duration = Duration::from_secs(60);

const _: () = assert!(RESTART_WAIT_MAX.as_millis() < CONTROL_REQUEST_WAIT.as_millis());
const _: () = assert!(CONTROL_PATH_BYTES_MAX < CONTROL_BUFFER_BYTES);
const _: () = assert!(CONTROL_TEXT_CHARS_MAX * 4 * 3 < CONTROL_PATH_BYTES_MAX);
const _: () = assert!(CONTROL_FOLLOWERS_MAX < CONTROL_CONNECTIONS_MAX);
const _: () = assert!(CONTROL_QUESTIONS_MAX < CONTROL_CONNECTIONS_MAX);

const _: () = assert!(
    BRIEF_TERM_WAIT.as_millis() + KILL_PATIENCE.as_millis() * 3 < HEALTH_OVERTIME.as_millis()
);

/// How long an MCP server has to go after its input has ended, where nothing else is set: that is how it is
/// told to, and most need no time for it.
pub const MCP_STDIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long `afresh down` waits; afresh goes on stopping after that.
pub const DOWN_WAIT_MAX: Duration = Duration::from_secs(300);

/// How often `afresh up` tries to get the lock of its workspace, with that much time between, before
/// it says that another one has it: a command that only reads holds it for a moment too.
pub const LOCK_TRIES_MAX: usize = 10;

/// How often a process tries to lock the user's private folder, with [`DOWN_LOOK_INTERVAL`] between, before it gives
/// up with an error: a change takes milliseconds, so 5 s is a process that hangs.
pub const STATE_LOCK_TRIES_MAX: usize = 500;

/// Bytes of a file in the user's private folder; a larger one is an error and is left alone. 1,000 projects with 20
/// servers each take about 8 MB.
pub const STATE_FILE_BYTES_MAX: u64 = 32 << 20;

/// Accepted versions of one request of a project that are kept, for the branches of a repository: the oldest is
/// forgotten, and asked for again.
pub const TRUSTED_VERSIONS_MAX: usize = 16;

/// How often a gateway looks whether the user has accepted more, while something is not trusted: soon enough for a
/// user who waits for it.
pub const TRUST_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Names of requests that are not trusted in one note, which agents get in their context; the rest is counted.
pub const UNTRUSTED_NAMES_MAX: usize = 20;

/// Characters of each of these names; the rest is cut off.
pub const UNTRUSTED_NAME_CHARS: usize = 100;

/// Blanks in a row that `afresh trust` shows as they are; more are counted, since they push a text out of sight.
pub const TRUST_BLANKS_MAX: usize = 8;

/// Characters in a line of `afresh trust`; what is longer goes on in the next line.
pub const TRUST_LINE_CHARS_MAX: usize = 100;

/// Bytes that are read of the file in which a working tree of git names its repository: a path, and a word before it.
/// One with more names none.
pub const GIT_LINK_BYTES_MAX: u64 = 8 << 10;

/// How often it looks: a lock does not tell that it is free.
pub const DOWN_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// States that `afresh up -d` has not read yet; at the bound, newer ones come later.
pub const STATUSES_QUEUE_MAX: usize = 64;

/// This long after its start afresh gives back the memory that only its beginning needed.
pub const SETTLE_AFTER: Duration = Duration::from_secs(2);

/// How long the output of a service waits for a reader of ours who does not read, before it goes only to
/// its log; when he reads on, a note says how much he has missed.
pub const OFFER_PATIENCE: Duration = Duration::from_secs(1);

/// States are shown at most this often: in a storm, the ones in between are passed over.
pub const VIEW_INTERVAL: Duration = Duration::from_millis(50);

/// Commands that wait to be run beside the services; who wants more of them waits.
pub const BRIEFS_ASKED_MAX: usize = 16;

/// How long one address of a host may take to accept a connection; then the next one is tried.
pub const HTTP_CONNECT_WAIT: Duration = Duration::from_secs(3);

/// The head of an answer has to fit into this; a longer one breaks the connection off.
pub const HTTP_HEADER_BYTES_MAX: usize = 16 * 1024;

/// A file of root certificates that is larger is none; those of the systems have some 250 KB.
pub const CERTIFICATES_BYTES_MAX: u64 = 8 * 1024 * 1024;
