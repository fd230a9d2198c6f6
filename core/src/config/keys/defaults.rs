//! Owns the keys of `[defaults]`. Services and servers take them as keys of their own, so that a policy is declared once.

use std::time::Duration;

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::policy::{Restart, RestartMode};

/// How the wait before a restart grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum BackoffKind {
    /// By a factor.
    Exponential,
    /// In fixed steps.
    Stepped,
}

words! {
    Restart { "always" => Always, "on-crash" => OnCrash, "never" => Never, }
    BackoffKind { "exponential" => Exponential, "stepped" => Stepped, }
    RestartMode { "replace" => Replace, "swap" => Swap, }
}

keys! {
    DEFAULTS of "defaults";

    /// Which ends of the process are followed by a restart.
    POLICY: Setting<Restart> = key("policy", word::<Restart>()).default("on-crash");
    /// Also restarts after a clean exit that was not requested, where `policy` is `on-crash`.
    RESTART_ON_NORMAL_EXIT: Setting<bool> = key("restart_on_normal_exit", Kind::Bool)
        .default("false");
    /// The exit code by which a process asks to be started again.
    RESTART_CODE: Setting<i32> = key("restart_code", Kind::Integer(1..=255)).default("42");
    /// How the wait grows with each crash: by `factor`, or in fixed steps of 1s, 5s and 10s.
    BACKOFF: Setting<BackoffKind> = key("backoff", word::<BackoffKind>()).default("exponential");
    /// The wait after the first crash, where `backoff` is `exponential`.
    DELAY: Setting<Duration> = key("delay", Kind::Duration).default("1s");
    /// By how much each wait is longer than the one before.
    FACTOR: Setting<f64> = key("factor", Kind::Float(1.0..=10.0)).default("2.0");
    /// The longest wait, jitter included; at least `delay`.
    MAX_DELAY: Setting<Duration> = key("max_delay", Kind::Duration).default("1m");
    /// Up to this many percent are added to each wait at random.
    JITTER: Setting<u8> = key("jitter", Kind::Percent(50)).default("50");
    /// The least time between two requested restarts.
    THROTTLE: Setting<Duration> = key("throttle", Kind::Duration).default("1s");
    /// This many crashes within `crash_loop_window` are a crash loop; 0 turns that off.
    CRASH_LOOP_COUNT: Setting<u32> = key("crash_loop_count", Kind::Integer(0..=1000)).default("3");
    /// The time within which `crash_loop_count` crashes are a crash loop.
    CRASH_LOOP_WINDOW: Setting<Duration> = key("crash_loop_window", Kind::Duration).default("1m");
    /// A process that ran this long was fine: the count of crashes begins anew.
    STABLE_AFTER: Setting<Duration> = key("stable_after", Kind::Duration).default("1m");
    /// Restarts after crashes in a row, without a stable run, before giving up; 0 never gives up. Restarts that are
    /// asked for do not count: `throttle` holds them back.
    MAX_RESTARTS: Setting<u32> = key("max_restarts", Kind::Integer(0..=1_000_000)).default("5");
    /// A stop closes stdin, waits this long, then sends SIGTERM.
    STDIN_TIMEOUT: Setting<Duration> = key("stdin_timeout", Kind::Duration).default("0s");
    /// The time between SIGTERM and SIGKILL.
    STOP_TIMEOUT: Setting<Duration> = key("stop_timeout", Kind::Duration).default("5s");
    /// How `afresh mcp` carries out a requested restart: `replace` stops the old instance first, `swap` starts the
    /// new one first and stops the old one when the new one is ready. Where nothing is set, `afresh mcp` swaps;
    /// `afresh keep` always replaces.
    RESTART_MODE: Setting<RestartMode> = key("restart_mode", word::<RestartMode>()).mcp()
        .default("replace");
    /// In a swap, how long the old instance may take to finish what it has begun.
    DRAIN_TIMEOUT: Setting<Duration> = key("drain_timeout", Kind::Duration).mcp().default("10s");
    /// Whether `afresh mcp` keeps an idle instance that takes over at once after a crash.
    SPARE: Setting<bool> = key("spare", Kind::Bool).mcp().default("false");
    /// An MCP server that leaves a call unanswered, says nothing and does no work for this long is restarted, if it does not
    /// answer when it is asked whether it lives. 0 never asks.
    WEDGE_TIMEOUT: Setting<Option<Duration>> = key("wedge_timeout", Kind::Duration).mcp()
        .default("5m");
    /// Whether the first result of a tool after a crash of its MCP server says that the server was restarted and that
    /// what it kept in memory is lost.
    TELL_RESTARTS: Setting<bool> = key("tell_restarts", Kind::Bool).mcp().default("true");
    /// A service whose processes hold more memory than this together is restarted; 0B is any amount.
    MAX_RSS: Setting<Option<u64>> = key("max_rss", Kind::Size(0..=1 << 50)).default("0B");
    /// How long watched files must be quiet before a change of theirs restarts the server.
    WATCH_DEBOUNCE: Setting<Duration> = key("watch_debounce", Kind::Duration).mcp()
        .default("200ms");
}
