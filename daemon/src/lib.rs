//! What afresh does: processes, pipes, files.
