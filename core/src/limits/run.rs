//! Bounds of plans and runs.

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

/// Waits in a row in which no tool was used; with one more the run stops, and can be resumed.
pub const LIMIT_WAITS_MAX: u32 = 24;

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
