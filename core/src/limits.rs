//! Every bound in the product: how much, why that much, and what happens at the bound. Here are those of the
//! supervisor, its services, hooks and files; `mcp` has those of conversations and the gateway, `run` those of runs
//! and agents, `control` those of the control API.

mod control;
mod mcp;
mod run;

use std::time::Duration;

pub use self::control::*;
pub use self::mcp::*;
pub use self::run::*;

/// The trail is rotated at this size. A record is about 300 bytes, so one file holds some 50,000.
pub const TRAIL_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Rotated files that are kept; the oldest goes when one more is added.
pub const TRAIL_FILES_KEPT: u32 = 8;

/// A record longer than this has its text fields cut: one `write` must stay one write.
pub const TRAIL_LINE_BYTES_MAX: usize = 64 * 1024;

/// Records that wait for the disk. When a stuck disk has filled the queue, the next ones are
/// counted as lost and said loudly; supervision goes on.
pub const TRAIL_QUEUE_LEN_MAX: usize = 1024;

/// How long a writer waits for another afresh that holds the trail's lock (it may be stopped by
/// SIGSTOP). Then it appends without the lock: one `write` to an `O_APPEND` file does not tear.
pub const TRAIL_LOCK_WAIT: Duration = Duration::from_millis(500);

/// How long an announced effect waits for the trail to be on disk. Then the loss is said, and the
/// effect happens: a hung disk must not hang a restart.
pub const TRAIL_SYNC_WAIT: Duration = Duration::from_secs(2);

/// The least wait between two starts in a crash loop, also where the configured delay is zero:
/// a restart loop must not exhaust the machine.
pub const CRASH_LOOP_DELAY_MIN: Duration = Duration::from_secs(1);

/// The least wait before a start is tried again that failed, also where the configured delay is zero: such a start takes no
/// time, and without a wait the loop would do nothing else. A program that is being written anew is there again by then.
pub const SPAWN_RETRY_MIN: Duration = Duration::from_millis(100);

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

/// A configuration file beyond this is refused: a full one is about 2 KiB, so a file of this size
/// is something else.
pub const CONFIG_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Errors of one configuration file that are shown; one more says that there are others. Each
/// of them quotes a line.
pub const CONFIG_ERRORS_MAX: usize = 100;

/// The longest duration that can be configured. A year is as good as for ever, and a sum of some of
/// them is far from the end of every clock.
pub const CONFIG_DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

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

/// After the first one, notices about records that were lost come this often: a full disk must not
/// flood the log that says so.
pub const TRAIL_NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// This much of a torn line is kept in the record of its repair: enough to see whose it was.
pub const TRAIL_FRAGMENT_BYTES_MAX: usize = 1024;

/// A marker is a few hundred bytes; a longer file is not one.
pub const MARKER_BYTES_MAX: usize = 64 * 1024;

/// A temporary file of the marker is a dead writer's when it is this old: writing one takes
/// milliseconds.
pub const MARKER_LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// How often a followed trail is looked at where the system can't say that it changed.
pub const FOLLOW_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How often a connection that breaks is made again before something came over it; then the process at the other
/// end counts as gone.
pub const FOLLOW_TRIES_MAX: u32 = 5;

/// The self-test of `afresh doctor` takes some ten milliseconds; a machine that needs longer than
/// this is too busy to tell.
pub const SELF_TEST_MAX: Duration = Duration::from_secs(10);

/// How long `CMD --version` may take. Some agents load a whole runtime first.
pub const VERSION_PROBE_MAX: Duration = Duration::from_secs(10);

/// What a version is looked for in.
pub const VERSION_BYTES_MAX: usize = 64 * 1024;

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

/// A log file is rotated at this size; one older file is kept.
pub const LOG_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

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

/// How long watched files must be quiet before a change counts: an editor or a build writes several
/// files within it, and the wait is too short to notice. See `watch_debounce` in the configuration.
pub const WATCH_DEBOUNCE: Duration = Duration::from_millis(200);

/// A tree that is never quiet is looked at this often all the same.
pub const WATCH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Files that were touched since the last look, by name; with more, all files are looked at.
pub const WATCH_TOUCHED_MAX: usize = 1_000;

/// Files that are watched, some ten times those of a large project without what it ignores. A change
/// of one more is not seen, and that is said once.
pub const WATCH_FILES_MAX: usize = 100_000;

/// Folders that the kernel watches for one server; the usual limit of a user is some 100,000, and
/// editors need theirs. With more, all files are looked at every [`WATCH_POLL_INTERVAL`], and that is
/// said once.
pub const WATCH_FOLDERS_MAX: usize = 20_000;

/// How deep watched folders may be nested. Deeper ones are not watched, and that is said once.
pub const WATCH_DEPTH_MAX: usize = 64;

/// Larger files are compared by their length and time, not by what is in them: to read one takes
/// longer than the rest of a look.
pub const WATCH_READ_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file with rules of what to ignore is read up to this size; those in use have a few hundred
/// lines. A larger one is left out.
pub const WATCH_RULES_BYTES_MAX: u64 = 256 * 1024;

/// How often all watched files are looked at where the kernel does not tell of changes.
pub const WATCH_POLL_INTERVAL: Duration = Duration::from_secs(2);

const _: () = assert!(WATCH_DEBOUNCE.as_millis() < WATCH_WAIT_MAX.as_millis());
const _: () = assert!(WEDGE_PROBE_WAIT.as_millis() < WEDGE_TIMEOUT.as_millis());

/// Lines of a service's output that are remembered; the oldest goes when one more comes. A screen has
/// 50, and what led to a crash fits into some hundred.
pub const LOGS_LINES_MAX: usize = 2_000;

/// The same in bytes, what holds them included: `afresh mcp` has to stay small.
pub const LOGS_BYTES_MAX: usize = 256 * 1024;

/// The same for all services of one afresh: each of many gets its share of it.
pub const LOGS_ALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What holds lines that came together, counted with their bytes: a million empty lines, one by one,
/// are not free.
pub const LOGS_LINE_COST: usize = 64;

/// A longer line is remembered up to here, and marked as cut; it is passed on whole.
pub const LOGS_LINE_BYTES_MAX: usize = 8 * 1024;

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

/// Services of one configuration. Each has a guardian, a log and a place on the screen; with one more,
/// the configuration is refused.
pub const SERVICES_MAX: usize = 1_000;

/// Services that are not defined any more and whose instances go on being counted where they come back;
/// those of any more begin with 1 again.
pub const SERVICES_REMEMBERED_MAX: usize = 10 * SERVICES_MAX;

/// Hooks of one configuration: each event is offered to all of them. With one more, it is refused.
pub const HOOKS_MAX: usize = 100;

/// Servers of one gateway: each has processes, queues and a place in the list of tools. With one more, the
/// configuration is refused.
pub const SERVERS_MAX: usize = 500;

/// Tokens of one gateway: each request is held against all of them. With one more, the configuration is
/// refused.
pub const TOKENS_MAX: usize = 1_000;

/// The shortest token, in characters: a shorter one can be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The longest token, in characters: it has to fit into a header beside others.
pub const TOKEN_CHARS_MAX: usize = 4 * 1024;

/// The longest value after its variables are filled in, in bytes: the system hands no longer one to a
/// process. A longer one is refused.
pub const EXPANDED_BYTES_MAX: usize = 128 * 1024;

/// Calls that may be on their way to one server at once, where it does not say otherwise: far more than
/// agents make, far fewer than would fill the memory.
pub const SERVER_IN_FLIGHT_MAX: usize = 256;

/// Clients of one gateway at once, where nothing else is said.
pub const GATEWAY_CLIENTS_MAX: usize = 1_000;

/// The largest request that a gateway takes over HTTP, where nothing else is said: one message.
pub const GATEWAY_BODY_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// When a client over HTTP that says nothing is forgotten, where nothing else is said.
pub const GATEWAY_SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// How long an MCP server has to go after its input has ended, where nothing else is set: that is how it is
/// told to, and most need no time for it.
pub const MCP_STDIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest name of a service or hook, in characters: it is part of file names and of every line.
pub const NAME_CHARS_MAX: usize = 64;

/// The longest title of a service, in characters; it stands in every line of the log about it.
pub const TITLE_CHARS_MAX: usize = 64;

/// The longest line of text in the configuration, such as the command of an agent, in characters: longer ones
/// belong into a script.
pub const CONFIG_LINE_CHARS_MAX: usize = 4_096;

/// Items of a list in the configuration, such as the arguments of a command, and names in a table of
/// variables or headers. A longer one is refused: a file can hold more.
pub const CONFIG_LIST_LEN_MAX: usize = 1_000;

/// The longest URL that can be configured: most servers take none that is longer.
pub const CONFIG_URL_BYTES_MAX: usize = 8 * 1024;

/// The shortest time between two checks of a service, and for one of them: a check costs the service
/// and the machine something, and a shorter time is a mistake. Less is refused.
pub const HEALTH_TIME_MIN: Duration = Duration::from_millis(10);

/// A file of variables beyond this is refused: all of them together have to fit into what the system
/// hands to a process, which is some megabytes at most.
pub const ENV_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Names in a file of variables. With more, it is refused: it is something else.
pub const ENV_FILE_NAMES_MAX: usize = 10_000;

/// Output of all services that waits for the disk. When it is this much, a service waits for room, up to
/// [`SERVICE_LOG_PATIENCE`]. A disk that works takes it within a few milliseconds.
pub const SERVICE_LOG_QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// How long output of a service waits for room in front of a slow disk. Then it is dropped, counted, and
/// the count is written into the log; what follows is dropped at once until there is room again. So a
/// disk that hangs costs a service this much, once. Disks that work stall for a second at times.
pub const SERVICE_LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Lines of our own, about services, that wait for the disk; more are dropped and counted.
pub const SERVICE_LOG_OWN_LINES_MAX: usize = 1024;

/// What is written to a file at once, as far as there is that much: fewer writes are faster, and this is
/// held once for all services.
pub const SERVICE_LOG_WRITE_BYTES: usize = 64 * 1024;

/// How long a file that could not be written is left alone. What comes meanwhile is counted as lost.
pub const SERVICE_LOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long we wait at our own end for the disk to take the last lines; then it is said.
pub const SERVICE_LOG_FLUSH_MAX: Duration = Duration::from_secs(2);

/// What is read at once of a file that is read from its end.
pub const SERVICE_LOG_READ_BYTES: usize = 64 * 1024;

/// How many files of the trail, the newest, tell a new `afresh up` what became of its services under
/// the one before; older ones do not count any more.
pub const PAST_FILES_MAX: usize = 2;

/// How long `afresh down` waits; afresh goes on stopping after that.
pub const DOWN_WAIT_MAX: Duration = Duration::from_secs(300);

/// How often `afresh up` tries to get the lock of its workspace, with that much time between, before
/// it says that another one has it: a command that only reads holds it for a moment too.
pub const LOCK_TRIES_MAX: usize = 10;

/// How often a follower looks for rotated files again because they were rotated twice meanwhile; then it takes the last
/// result, in which two files can have changed places. A scan takes less than a millisecond, a rotation comes after
/// megabytes.
pub const ROTATED_SCANS_MAX: u32 = 20;

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

/// A supervisor that is silent for this long counts as hung, and systemd starts it again. Its loop says
/// twice as often that it turns.
pub const INSTALL_WATCHDOG: Duration = Duration::from_secs(30);

/// What all services together get to stop, one after the other where they need each other; then all that
/// is left is killed.
pub const INSTALL_STOP_WAIT: Duration = Duration::from_secs(90);

/// Characters of a folder's name that become the name of a unit; its file's may have 255.
pub const INSTALL_NAME_CHARS_MAX: usize = 64;

/// How long one command of systemd or launchd may take. To enable a unit waits for its start.
pub const INSTALL_COMMAND_WAIT: Duration = Duration::from_secs(120);

/// What is read of a unit or an agent; a larger file is none of ours.
pub const INSTALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// What is shown to systemd as our status; a longer one is cut.
pub const NOTIFY_STATUS_CHARS_MAX: usize = 200;

/// The body of an answer to a health check is read up to here, where it is read at all; one that is
/// longer counts as a failure. Those in use have some hundred bytes.
pub const HEALTH_BODY_BYTES_MAX: usize = 1024 * 1024;

/// The header of such an answer; a longer one counts as a failure.
pub const HEALTH_HEADER_BYTES_MAX: usize = 64 * 1024;

/// What a command that checks may print, on stdout and on stderr each; one that prints more counts as
/// failed, and is ended.
pub const HEALTH_OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Of a value or a line that was found and not wanted, this much is quoted.
pub const HEALTH_SHOWN_CHARS_MAX: usize = 200;

/// Addresses of one name that a health check tries, one after the other.
pub const HEALTH_ADDRESSES_MAX: usize = 8;

/// How long after its time a probe may end before it counts as lost, and another may begin: a command
/// that is ended takes up to [`BRIEF_TERM_WAIT`] and three times
/// [`KILL_PATIENCE`] to be gone.
pub const HEALTH_OVERTIME: Duration = Duration::from_secs(10);

/// How long the first request to a service that is not ready is waited for; each further one that gets
/// no answer has twice as long, up to the configured time. A server that can answer does so in
/// milliseconds; one that is slow at first gets the time all the same, a little later.
pub const HEALTH_PATIENCE_MIN: Duration = Duration::from_millis(250);

/// How long the figure of a service's processor time is waited for; then it counts as idle.
pub const HEALTH_SAMPLE_WAIT: Duration = Duration::from_secs(2);

/// A service that is not ready after this time is said to be so, and again after twice the time: most are
/// up in seconds, and one that is checked at the wrong place never is.
pub const HEALTH_NOT_READY_NOTICE: Duration = Duration::from_secs(10);

/// A wakeup later than this means that we were stopped ourselves: that time does not count.
pub const HEALTH_LATE_MAX: Duration = Duration::from_secs(5);

/// How long the name of a port's host is looked up before a start; then the start goes on unchecked.
pub const PORT_LOOKUP_WAIT: Duration = Duration::from_secs(1);

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

/// Commands that wait to be run beside the services; who wants more of them waits.
pub const BRIEFS_ASKED_MAX: usize = 16;

/// How long one address of a host may take to accept a connection; then the next one is tried.
pub const HTTP_CONNECT_WAIT: Duration = Duration::from_secs(3);

/// The head of an answer has to fit into this; a longer one breaks the connection off.
pub const HTTP_HEADER_BYTES_MAX: usize = 16 * 1024;

/// A file of root certificates that is larger is none; those of the systems have some 250 KB.
pub const CERTIFICATES_BYTES_MAX: u64 = 8 * 1024 * 1024;

const _: () = assert!(HOOK_QUEUE_LEN_MAX >= 2);
const _: () = assert!(HOOK_RETRY_AFTER_MAX.as_secs() < HOOK_AGE_MAX.as_secs());
const _: () = assert!(HTTP_CONNECT_WAIT.as_millis() < HOOK_REQUEST_WAIT.as_millis());
