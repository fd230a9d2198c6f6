//! Clients and servers of `afresh mcp` that do what they must not.
