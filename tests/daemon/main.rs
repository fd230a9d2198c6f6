//! Real, hostile processes under `afresh keep`.

mod actors;
mod adoption;
mod api;
mod api_refusals;
mod attach;
mod control;
mod descriptors;
mod gateway;
mod gateway_bounds;
mod gateway_catalogs;
mod gateway_end;
mod gateway_http;
mod gateway_isolation;
mod gateway_limits;
mod gateway_otel;
mod gateway_pins;
mod gateway_questions;
mod gateway_reload;
mod gateway_storm;
mod gateway_tasks;
mod gateway_token;
mod gateway_unread;
mod health;
mod hooks;
mod keep;
mod launchers;
mod mcp;
mod mcp_guard;
mod mcp_hostile;
mod mcp_rogue;
mod mcp_storm;
mod mcp_tools;
mod mcp_wires;
mod orphans;
mod output;
mod paths;
mod restart;
mod run;
mod run_branch;
mod run_files;
mod run_gates;
mod run_git;
mod run_screen;
mod run_servers;
mod screen;
mod service_logs;
mod share;
mod stop;
mod storm;
mod swap;
mod traps;
mod trust;
mod up;
mod up_soak;
mod up_steering;
mod up_storm;

use afresh_tests::{Running, TestEnv};
use nix::sys::signal::Signal;

/// The program that behaves badly.
const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile");

/// Starts `afresh keep FLAGS -- hostile WORDS`.
fn keep(env: &TestEnv, flags: &[&str], words: &[&str]) -> Running {
    env.start(&[&["keep"], flags, &["--", HOSTILE], words].concat())
}

/// Stops afresh as a user would, and sees that nothing is left.
#[track_caller]
fn stop(env: &TestEnv, afresh: &mut Running) {
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
}

/// Flags for restarts without waits.
const AT_ONCE: [&str; 8] =
    ["--delay", "0s", "--stable-after", "0s", "--max-restarts", "0", "--crash-loop-count", "0"];

/// Whether the long forms of the storms are wanted.
fn is_long() -> bool {
    std::env::var_os("AFRESH_TEST_LONG").is_some()
}
