//! Decides. Driven by `afresh-daemon`, which performs what is decided here. Never reads a clock, a file, the
//! environment or a pipe.
//!
//! # Theory of operation
//!
//! Every machine of this crate is a value with one entry point: `handle(now, input)` takes the time and what happened
//! as values and returns effects, also values; `next_wakeup()` says when it wants to be called without an input. The
//! daemon's loop waits for exits, pipes, timers and requests, hands them in, and performs the effects. What an effect
//! leads to comes back as an input. So a history of `(Time, Input)` replays to the same state, and tests run whole
//! lives of a service without a process.
//!
//! # Reading order
//!
//! 1. Values: [`id`], [`time`], [`duration`], [`limits`] (every bound, with its reason), [`policy`], [`definition`].
//! 2. One service: [`service`] (start, exit, restart, swap), with [`exponential_wait`], [`stop_ladder`], [`health`] and
//!    [`memory_limit`]; [`fleet`] for several of them.
//! 3. MCP: [`mcp`] (one conversation across instances), [`gateway`] (many servers, many clients), [`share`] (one server
//!    for the sessions of several clients).
//! 4. Runs: [`agent`] (what differs between agents), [`run`] (a plan carried out by an agent).
//! 5. What users see: [`audit`] (the trail), [`control`] (the API), [`hook`] (notifications).
//! 6. What users write: [`config`] (on top of all others: it makes their values), [`adopt`] (client files), with
//!    [`report`], [`error_excerpt`] and [`suggest`] for mistakes in them.
//!
//! No two modules import each other; `tests/tidy.rs` holds that.

mod address;
pub mod adopt;
pub mod agent;
pub mod audit;
mod base64;
pub mod client_file_paths;
pub mod client_import;
pub mod config;
pub mod control;
pub mod definition;
mod dependency_cycles;
pub mod duration;
pub mod env_file;
pub mod error_excerpt;
pub mod exponential_wait;
pub mod fleet;
pub mod gateway;
pub mod health;
pub mod hidden_characters;
pub mod hook;
pub mod http_access;
pub mod id;
pub mod install;
pub mod launchers;
pub mod limits;
pub mod log_line;
pub mod mcp;
pub mod memory_limit;
pub mod policy;
mod random;
pub mod report;
pub mod run;
pub mod service;
pub mod share;
pub mod sse;
pub mod stop_ladder;
pub mod suggest;
pub mod text;
pub mod time;
pub mod trust;
pub mod watch;
