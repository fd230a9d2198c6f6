//! The bounds of plans, runs and agent sessions.

use std::time::Duration;

/// Progress that is remembered for the checkpoint: the last texts of the agent, each cut…
pub const PROGRESS_TEXTS_MAX: usize = 12;

/// …to so many characters.
pub const PROGRESS_TEXT_CHARS_MAX: usize = 600;

/// A checkpoint in all. At the bound its parts are cut, the handoff last: it stands in front of every
/// prompt, and takes room that the work needs.
pub const CHECKPOINT_CHARS_MAX: usize = 24 * 1024;

/// The handoff that an agent writes; the rest is cut.
pub const HANDOFF_CHARS_MAX: usize = 12 * 1024;

/// Files and commits that a checkpoint lists; then it says how many more there are.
pub const CHECKPOINT_LIST_MAX: usize = 40;

/// What is kept of the output of a gate that failed: its end, where the reasons mostly stand.
pub const GATE_TAIL_CHARS_MAX: usize = 6 * 1024;

/// The last lines of it that people see below a gate that failed…
pub const GATE_SHOWN_LINES_MAX: usize = 10;

/// …each cut to so many cells.
pub const GATE_SHOWN_CELLS_MAX: usize = 200;

/// How long an agent that was interrupted may take to say so; then its process is ended.
pub const INTERRUPT_WAIT: Duration = Duration::from_secs(15);

/// An agent that says it tries again later than this is not waited for: its session ends, and the run
/// waits.
pub const RETRY_PATIENCE: Duration = Duration::from_secs(120);

/// Tries of one model call before the agent's own patience counts as none.
pub const RETRIES_MAX: u32 = 12;

/// The longest wait for a limit that does not say when it ends: each is twice the one before.
pub const LIMIT_WAIT_MAX: Duration = Duration::from_secs(30 * 60);

/// The first wait for a model that cannot be reached, each twice the one before…
pub const UNREACHABLE_WAIT: Duration = Duration::from_secs(15);

/// …up to this one: nothing says when it can be reached again.
pub const UNREACHABLE_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// Failures of the login without a call that succeeded between them; with so many the run stops, and can be resumed.
pub const REFUSALS_MAX: u32 = 2;

/// How long after the first of them another session is tried: a token that is being renewed is refused for a moment.
pub const REFUSED_WAIT: Duration = Duration::from_secs(3);

/// How often it is written down how long was worked: so much of it is forgotten when afresh is killed.
pub const WORKED_NOTE_EVERY: Duration = Duration::from_secs(30);

/// What is added to a time at which a limit ends: clocks differ.
pub const LIMIT_SLACK: Duration = Duration::from_secs(2);

/// What a gate may print; one that prints more has failed.
pub const GATE_OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long git may take for one thing. It is ended after it, and may leave a lock: so it is long even for a large
/// repository with slow filters.
pub const GIT_WAIT: Duration = Duration::from_secs(900);

/// How many moves of a branch are looked through for a commit that was amended; an older one counts as lost.
pub const GIT_REFLOG_MAX: usize = 1_000;

/// Entries of `git stash` that are known when a phase begins, the newest first: one that is new stands above them.
pub const GIT_STASHES_MAX: usize = 100;

/// Files that one line about git names; of more, their number is said.
pub const GIT_NAMED_MAX: usize = 5;

/// How long a lock of git may be there before a run says so: others look at the repository, too, and are soon done.
pub const GIT_LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// How often that lock is looked for meanwhile.
pub const GIT_LOCK_LOOK_EVERY: Duration = Duration::from_millis(100);

/// What git may print; more is an error of git's.
pub const GIT_OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long an agent that was told to end may take by itself, before SIGTERM…
pub const AGENT_END_WAIT: Duration = Duration::from_secs(3);

/// …and how long a server that is spoken with over HTTP may, as it only breaks off its turn and does not end…
pub const AGENT_SERVER_END_WAIT: Duration = Duration::from_millis(500);

/// …and how long after that, before SIGKILL.
pub const AGENT_TERM_WAIT: Duration = Duration::from_secs(3);

/// A variable whose name says that it holds a secret, and whose value is shorter, is looked for nowhere else: it would
/// be found in words.
pub const SECRET_VALUE_BYTES_MIN: usize = 8;

/// What the control API has to say that waits for the loop of a run; more is not said.
pub const RUN_NOTICES_MAX: usize = 16;

/// How long a client that waits for the end of a run may take to ask once more how it ended.
pub const CONTROL_FAREWELL: Duration = Duration::from_millis(100);

/// Messages of a run that wait for its display. A display that is behind by more holds the run up.
pub const RUN_EVENTS_MAX: usize = 256;

/// Requests of a user that wait for the loop of a run.
pub const RUN_ASKS_MAX: usize = 16;

/// Lines that can be scrolled back to on the screen of a run, each cut like what is remembered of an agent's
/// words; older ones are forgotten, and are in the logs.
pub const SCREEN_LINES_MAX: usize = 1_000;

/// The least time between two drawings of a screen: more often cannot be read.
pub const SCREEN_DRAW_GAP: Duration = Duration::from_millis(100);

/// What is taken from a keyboard at once.
pub const KEY_BYTES_MAX: usize = 4_096;

/// How long the bytes of one key may be apart; after that, the first of them was the key Esc.
pub const KEY_BYTES_GAP_MAX: Duration = Duration::from_millis(50);

/// How long a terminal may take for the last words of a run, after its screen; then they are not said.
pub const SUMMARY_WRITE_MAX: Duration = Duration::from_secs(2);

/// How long the bytes of one paste may be apart; after that, its end was lost.
pub const PASTE_GAP_MAX: Duration = Duration::from_secs(3);

/// What is kept of a paste until its end comes: more than is typed for an agent at once.
pub const PASTE_BYTES_MAX: usize = 32_000;

/// What a person can type to an agent at once; what is more is not taken. It is a page of text.
pub const STEER_CHARS_MAX: usize = 4_000;

/// A file of a plan beyond this is refused: a book has that much, and no agent reads it at once.
pub const PLAN_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Phases of one plan; one with more is refused. Each is a session of an agent, so this many take weeks.
pub const PLAN_PHASES_MAX: usize = 500;

/// The task of one phase, and what stands before all phases, each; more is refused. It is some 60,000 tokens,
/// and has to leave room for the work in the context of every agent.
pub const PLAN_TASK_BYTES_MAX: usize = 256 * 1024;

/// The name of a phase or of a gate; a longer one is refused: it is shown in tables and in commits.
pub const PLAN_NAME_CHARS_MAX: usize = 100;

/// Gates of one phase; one with more is refused. What has more is a script.
pub const PLAN_GATES_MAX: usize = 50;

/// One command; a longer one is refused. What is longer is a script.
pub const PLAN_COMMAND_BYTES_MAX: usize = 8 * 1024;

/// Patterns that the braces of one pattern stand for; one with more is taken as it is written.
pub const BRACED_PATTERNS_MAX: usize = 256;

/// Patterns of files of one phase; one with more is refused.
pub const PLAN_PATTERNS_MAX: usize = 200;

/// Errors and warnings about one plan that are shown; one more says that there are others.
pub const PLAN_ERRORS_MAX: usize = 100;

/// The most dollars that a phase can be given; more is a mistake.
pub const PLAN_DOLLARS_MAX: f64 = 1_000_000.0;

/// The most tokens that a phase can be given; more is a mistake.
pub const PLAN_TOKENS_MAX: u64 = 1_000_000_000_000;

const _: () = assert!(PLAN_TASK_BYTES_MAX < PLAN_FILE_BYTES_MAX);

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

/// How long records of runs are read, and a database of an older afresh is brought to the tables of this one. Half a
/// million records take a second; what takes longer was made to.
pub const RUNS_READ_MAX: Duration = Duration::from_secs(10);

/// After so many steps of SQLite's machine, some microseconds each thousand, the time is looked at.
pub const RUNS_STEPS_UNWATCHED: i32 = 10_000;

/// The largest row of the records of runs; a larger one is an error of SQLite. The longest text is the output of git.
pub const RUNS_CELL_BYTES_MAX: i32 = 32 * 1024 * 1024;

/// What is read of the records at once; more is an error. A run of a week has some 50 MiB.
pub const RUNS_READ_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How often a run tries to put its deleted state folder back, with [`DOWN_LOOK_INTERVAL`](super::DOWN_LOOK_INTERVAL)
/// between, before it ends with the error: `git clean` of a large tree can still be deleting for seconds.
pub const STATE_PUT_BACK_TRIES_MAX: u32 = 1_000;
