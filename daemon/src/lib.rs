//! What afresh does: processes, pipes, files.

pub mod store;
