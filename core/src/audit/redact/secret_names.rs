//! Owns which names say that their value is a secret, such as `API_KEY`, `--token`, `Cookie` or `?sig=`, and which values
//! are none under any name. A new word is one more of `SECRET_PARTS`. Part of redaction. Never looks for names in a text.

use super::MARK;

/// A name with one of these in it, separators aside, names a secret.
const SECRET_PARTS: [&str; 14] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "apikey",
    "credential",
    "privatekey",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "bearer",
    "cookie",
    "mnemonic",
];

/// A name that ends in one of these says where or how, not what: `--token-file`, `AUTH_TYPE`.
const PLACE_WORDS: [&str; 11] =
    ["file", "path", "dir", "folder", "url", "uri", "endpoint", "sock", "type", "method", "mode"];

/// A flag that begins like this takes no value.
const SWITCH_WORDS: [&str; 6] = ["no", "disable", "skip", "enable", "require", "with"];

/// Values that are no secrets under any name.
const PLAIN_VALUES: [&str; 10] =
    ["", "true", "false", "yes", "no", "on", "off", "null", "none", MARK];

pub(super) fn is_secret_name(name: &str) -> bool {
    // The shell's working directories.
    if matches!(name, "PWD" | "OLDPWD") || !may_be_secret(name) {
        return false;
    }
    let lower = name.to_ascii_lowercase().replace("tokeniz", "");
    let words = || lower.split(|c: char| !c.is_ascii_alphanumeric());
    if words().next_back().is_some_and(|word| PLACE_WORDS.contains(&word)) {
        return false;
    }
    let compact: String = words().collect();
    let is_short_word = |word: &str| matches!(word, "pass" | "pw" | "pwd");
    SECRET_PARTS.iter().any(|part| compact.contains(part))
        || words().any(|word| is_auth_word(word) || is_short_word(word))
        || has_access_token_word(name)
}

/// A look without a copy: whether all letters of one of the words for secrets are there, or one of those that stand
/// in a piece.
pub(super) fn may_be_secret(name: &str) -> bool {
    let letters = letters_of(name);
    let has = |word: &str| {
        let letters_of_word = letters_of(word);
        letters & letters_of_word == letters_of_word
            && name.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word.as_bytes()))
    };
    SECRET_LETTERS.iter().any(|secret| letters & secret == *secret)
        || ["auth", "pass", "pw"].into_iter().any(has)
        || has_access_token_word(name)
}

/// `PAT` for personal access token, as in `GITHUB_PAT`; `pat` is a pattern.
fn has_access_token_word(name: &str) -> bool {
    name.ends_with("PAT")
        && name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "PAT")
}

/// The letters of each word for a secret.
const SECRET_LETTERS: [u32; SECRET_PARTS.len()] = {
    let (mut all, mut at) = ([0; SECRET_PARTS.len()], 0);
    while at < SECRET_PARTS.len() {
        all[at] = letters_of(SECRET_PARTS[at]);
        at += 1;
    }
    all
};

/// Which letters are in a word, a bit each.
const fn letters_of(word: &str) -> u32 {
    let (bytes, mut at, mut letters) = (word.as_bytes(), 0, 0);
    while at < bytes.len() {
        let byte = bytes[at].to_ascii_lowercase();
        if byte.is_ascii_lowercase() {
            letters |= 1 << (byte - b'a');
        }
        at += 1;
    }
    letters
}

/// `auth`, `oauth2`, `authorization`, but not `author` and `authority`.
fn is_auth_word(word: &str) -> bool {
    word.contains("auth")
        && (!word.contains("author") || word.contains("authoriz") || word.contains("authoris"))
}

pub(super) fn takes_secret(flag: &str) -> bool {
    let first = flag.trim_start_matches('-').split(['-', '_']).next();
    is_secret_name(flag) && !first.is_some_and(|word| SWITCH_WORDS.contains(&word))
}

pub(super) fn holds_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) && is_secret_value(name, value)
}

/// Numbers under the name of a token are counts, or name the progress of a request.
pub(super) fn is_secret_number(name: &str, number: &str) -> bool {
    holds_secret(name, number) && !name.to_ascii_lowercase().contains("token")
}

pub(super) fn is_secret_header(name: &str) -> bool {
    ["authorization", "cookie"].iter().any(|header| {
        let begin = name.len().checked_sub(header.len());
        begin.is_some_and(|begin| name.as_bytes()[begin..].eq_ignore_ascii_case(header.as_bytes()))
    })
}

/// The cookies of sessions that web frameworks set: `PHPSESSID=…`.
pub(super) fn is_session_cookie(name: &str) -> bool {
    const ENDS: [&str; 4] = ["sessionid", "sessid", "_session", "connect.sid"];
    const WHOLE: [&str; 3] = ["session", "sid", "_session_id"];
    const BEGINNING: &str = "wordpress_logged_in_";
    let is_frameworks = || {
        let lower = name.to_ascii_lowercase();
        ENDS.iter().any(|end| lower.ends_with(end)) || WHOLE.contains(&lower.as_str())
    };
    name.ends_with(['d', 'D', 'n', 'N']) && is_frameworks() || name.starts_with(BEGINNING)
}

/// The signature of a URL that is a permission by itself: `?sig=…` of Azure, `X-Amz-Signature`.
pub(super) fn is_url_signature(name: &str) -> bool {
    let last = name.rsplit('-').next().unwrap_or_default();
    last.eq_ignore_ascii_case("sig") || last.eq_ignore_ascii_case("signature")
}

pub(super) fn is_secret_value(name: &str, value: &str) -> bool {
    !is_count(name, value) && !PLAIN_VALUES.iter().any(|plain| plain.eq_ignore_ascii_case(value))
}

/// `max_tokens=4096` counts.
pub(super) fn is_count(name: &str, value: &str) -> bool {
    let counts = ["tokens", "max", "limit", "count"];
    // `ACCOUNT_PASSWORD` counts nothing.
    let is_word = |at: usize| {
        let before = name[..at].chars().next_back();
        let first = name[at..].chars().next();
        before.is_none_or(|c| {
            !c.is_ascii_alphabetic() || c.is_lowercase() && first.is_some_and(char::is_uppercase)
        })
    };
    let lower = name.to_ascii_lowercase();
    value.len() <= COUNT_BYTES_MAX
        && value.starts_with(|c: char| c.is_ascii_digit())
        && counts.iter().any(|word| lower.match_indices(word).any(|(at, _)| is_word(at)))
}

pub(super) const COUNT_BYTES_MAX: usize = 12;
