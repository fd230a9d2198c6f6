//! Owns the keys of `[trail]`.

use std::path::PathBuf;

use crate::config::key::*;
use crate::config::value_syntax::Kind;

keys! {
    TRAIL of "trail";

    /// The audit trail; a relative path counts from the workspace.
    AUDIT_FILE: Setting<PathBuf> = key("audit_file", Kind::Path).default(".afresh/audit.jsonl");
    /// The marker of the last restart; a relative path counts from the workspace.
    MARKER_FILE: Setting<PathBuf> = key("marker_file", Kind::Path)
        .default(".afresh/restart_marker.json");
    /// The trail is rotated at this size.
    // Below the least size, nearly every record would begin a new file.
    MAX_SIZE: Setting<u64> = key("max_size", Kind::Size(4 << 10..=1 << 40)).default("16MiB");
    /// Rotated files that are kept; the oldest goes when one more is added.
    KEEP: Setting<u32> = key("keep", Kind::Integer(1..=1000)).default("8");
}
