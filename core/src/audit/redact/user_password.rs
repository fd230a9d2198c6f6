//! Owns the passwords in `-u user:password` and `--user user:password` of curl and others. Part of redaction. Never takes a
//! user and a group for one.

use std::ops::Range;

use super::secret_names::is_secret_value;

/// More than users and passwords have together.
pub(super) const USER_BYTES_MAX: usize = 512;

/// Flags of curl and others whose value is `user:password`.
pub(super) fn is_user_flag(name: &str) -> bool {
    let is_short = || {
        // `-sSu` is three flags.
        let flags = name.strip_prefix('-').and_then(|flags| flags.strip_suffix(['u', 'U']));
        flags.is_some_and(|flags| {
            flags.len() <= SHORT_FLAGS_MAX && flags.bytes().all(|byte| byte.is_ascii_alphabetic())
        })
    };
    matches!(name, "--user" | "--proxy-user") || is_short()
}

/// Where the user stands in a flag with its value, `-uadmin:password`, whose name goes to the colon.
pub(super) fn attached_user(name: Range<usize>, text: &str) -> Option<usize> {
    let name = (name.start, &text[name]);
    (name.1.starts_with("-u") && name.1.len() > 2).then_some(name.0 + 2)
}

/// Short flags before `u` in one word.
const SHORT_FLAGS_MAX: usize = 6;

/// The password in `user:password`. `1000:1000` and `node:node` are a user and a group, `host:/path` is a place.
pub(super) fn password_of_user(text: &str, value: Range<usize>) -> Option<Range<usize>> {
    let (user, password) = text[value.clone()].split_once(':')?;
    let is_id = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_group = user == password || (is_id(user) && is_id(password));
    let is_place = password.starts_with(['/', '\\', '$']) || user.contains('/');
    let is_secret = !user.is_empty() && !is_group && !is_place && is_secret_value("", password);
    is_secret.then_some(value.start + user.len() + 1..value.end)
}
