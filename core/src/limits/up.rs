//! Bounds of `afresh up`, and of commands that wait for it.

use std::time::Duration;

/// How many files of the trail, the newest, tell a new `afresh up` what became of its services under
/// the one before; older ones do not count any more.
pub const PAST_FILES_MAX: usize = 2;

/// How long `afresh down` waits; afresh goes on stopping after that.
pub const DOWN_WAIT_MAX: Duration = Duration::from_secs(300);

/// How often `afresh up` tries to get the lock of its workspace, with that much time between, before
/// it says that another one has it: a command that only reads holds it for a moment too.
pub const LOCK_TRIES_MAX: u32 = 10;

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
