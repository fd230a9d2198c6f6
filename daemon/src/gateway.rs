//! Many MCP servers behind one connection: what `afresh gateway` does.

mod remote;
