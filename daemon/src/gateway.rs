//! `afresh gateway`: many MCP servers behind one connection.
//!
//! `http.rs` is the way in for clients that come over HTTP.

mod http;
