//! Owns the policy of restarts and stops of one service, with its defaults.
//!
//! The configuration fills it in and the restart machine follows it. Decides nothing itself.

use std::time::Duration;

/// Everything about restarts that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which ends of the process are followed by a restart.
    pub restart: Restart,
    /// Also restarts after a clean exit that was not requested, where `restart` is on-crash.
    pub restart_on_normal_exit: bool,
    /// A SIGTERM or SIGINT from outside is a crash: clients wait for the server, and whoever sent the signal did not
    /// mean them. Else it is the user's stop.
    pub restart_on_term: bool,
    /// The exit code by which a process asks to be started again.
    pub restart_code: i32,
    /// The wait before a restart, by consecutive crashes.
    pub backoff: Backoff,
    /// The first crash after a quiet time is restarted at once; `backoff` begins with the second.
    pub first_at_once: bool,
    /// The least time between two requested restarts.
    pub throttle: Duration,
    /// This many crashes within `crash_loop_window` are a crash loop.
    pub crash_loop_count: u32,
    /// See `crash_loop_count`.
    pub crash_loop_window: Duration,
    /// An instance that ran this long was fine: the count of crashes begins anew.
    pub stable_after: Duration,
    /// Consecutive restarts without a stable run before giving up; 0 never gives up.
    pub max_restarts: u32,
    /// A stop closes stdin, waits this long, and then sends SIGTERM.
    pub stdin_timeout: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
    /// How a requested restart is carried out.
    pub restart_mode: RestartMode,
    /// In a swap: how long the old instance may take to finish what it has begun.
    pub drain_timeout: Duration,
    /// Keeps an idle instance that takes over after a crash.
    pub spare: bool,
}

/// How a requested restart is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// The old instance is stopped, then the new one is started.
    Replace,
    /// The new instance is started, and the old one is stopped when the new one is ready.
    Swap,
}

/// Which ends of the process are followed by a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// All but a stop by the user.
    Always,
    /// Crashes, and the restarts that the process asks for.
    OnCrash,
    /// None, but for the restarts that the process or the user asks for.
    Never,
}

/// The wait before a restart, by consecutive crashes.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// `base × factor^(n-1)` after the n-th crash, with jitter on top, all of it at most `cap`.
    Exponential {
        /// The wait after the first crash.
        base: Duration,
        /// By how much each wait is longer than the one before.
        factor: f64,
        /// The longest wait, jitter included.
        cap: Duration,
        /// Up to this many percent are added at random.
        jitter_percent: u8,
    },
    /// 1 s for crashes 1 to 3, 5 s for 4 to 10, 10 s from the 11th.
    Stepped,
}

impl Policy {
    /// Whether a requested restart is a swap.
    pub fn swaps(&self) -> bool {
        self.restart_mode == RestartMode::Swap
    }
}
