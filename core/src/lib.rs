//! What afresh decides.
//!
//! Nothing here reads a clock, a file, the environment or a pipe: time and everything that happened
//! come in as values, and what has to be done goes out as values.

mod address;
pub mod adopt;
pub mod agent;
pub mod audit;
pub mod backoff;
pub mod client_files;
pub mod config;
pub mod control;
pub mod definition;
pub mod env_file;
pub mod excerpt;
pub mod fleet;
pub mod gateway;
pub mod health;
pub mod hook;
pub mod id;
pub mod install;
pub mod limits;
pub mod log_line;
pub mod mcp;
pub mod memory;
pub mod policy;
mod random;
pub mod report;
mod rings;
pub mod run;
pub mod service;
pub mod sse;
pub mod stop_ladder;
pub mod suggest;
pub mod supervisor;
pub mod text;
pub mod time;
pub mod watch;
