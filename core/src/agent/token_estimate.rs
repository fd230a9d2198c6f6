//! Owns the estimate of how many tokens a text has, for agents that do not count them themselves. Used by `command.rs`.
//! Never knows a model.

/// A token has about four characters; what the command adds by itself and does not show makes it more.
pub(super) const fn tokens(chars: u64) -> u64 {
    chars.saturating_mul(13) / 40
}

/// In characters.
pub(super) fn length(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}
