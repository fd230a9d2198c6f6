//! Keeps secrets out of the trail: finds them in arguments and in text, and puts `[redacted]` there.
//!
//! The rule for people is in `docs/guide/trail.md`. Where it is in doubt, a text is redacted: a
//! word too few in a record costs less than a password in it.

mod known;
mod shapes;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

pub use self::known::KnownSecrets;

/// What stands where a secret was.
pub const MARK: &str = "[redacted]";

/// A name with one of these in it, separators aside, names a secret.
const SECRET_PARTS: [&str; 13] = [
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
];

/// A name that ends in one of these says where or how, not what: `--token-file`, `AUTH_TYPE`.
const PLACE_WORDS: [&str; 11] =
    ["file", "path", "dir", "folder", "url", "uri", "endpoint", "sock", "type", "method", "mode"];

/// A flag that begins like this takes no value.
const SWITCH_WORDS: [&str; 6] = ["no", "disable", "skip", "enable", "require", "with"];

/// Values that are no secrets under whatever name.
const PLAIN_VALUES: [&str; 10] =
    ["", "true", "false", "yes", "no", "on", "off", "null", "none", MARK];

/// Takes the secrets out of a command line.
pub fn redact_args(args: &[String]) -> Vec<String> {
    let mut secret_flag = None;
    let mut redacted = Vec::with_capacity(args.len());
    for arg in args {
        let is_flag = arg.starts_with("--") || (arg.starts_with('-') && arg.len() <= 2);
        let follows = secret_flag.take().filter(|_| !is_flag);
        redacted.push(match (follows, arg.split_once('=')) {
            (Some(name), _) if holds_secret(name, arg) => MARK.to_owned(),
            (None, Some((name, value))) if is_name(name) && holds_secret(name, value) => {
                format!("{name}={MARK}")
            }
            _ => redact_text(arg).into_owned(),
        });
        if follows.is_none() && arg.starts_with('-') && is_name(arg) && takes_secret(arg) {
            secret_flag = Some(arg);
        }
    }
    redacted
}

/// Takes the secrets out of a text, such as a reason or a message.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    let mut secrets = Vec::new();
    find_named(text, &mut secrets);
    find_bearer(text, &mut secrets);
    shapes::find(text, &mut secrets);
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    secrets.sort_by_key(|secret| (secret.start, secret.end));
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for secret in secrets {
        if secret.start >= done {
            redacted.push_str(&text[done..secret.start]);
            redacted.push_str(MARK);
        }
        done = done.max(secret.end);
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
}

/// Takes the secrets out of every string in a JSON value; a list of strings counts as a command
/// line.
pub fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact_text(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => {
            let args: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            match args {
                Some(args) => *value = redact_args(&args).into(),
                None => items.iter_mut().for_each(redact_value),
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if holds_secret(name, text) => MARK.clone_into(text),
                    _ => redact_value(field),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn is_secret_name(name: &str) -> bool {
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
}

/// A look without a copy: whether all letters of one of the words for secrets are there.
fn may_be_secret(name: &str) -> bool {
    let letters = letters_of(name);
    SECRET_LETTERS.iter().any(|secret| letters & secret == *secret)
}

/// The letters of each word for a secret, and of `auth`, `pass` and `pw`.
const SECRET_LETTERS: [u32; SECRET_PARTS.len() + 3] = {
    let mut all = [letters_of("auth"); SECRET_PARTS.len() + 3];
    let mut at = 0;
    while at < SECRET_PARTS.len() {
        all[at] = letters_of(SECRET_PARTS[at]);
        at += 1;
    }
    (all[at], all[at + 1]) = (letters_of("pass"), letters_of("pw"));
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

fn takes_secret(flag: &str) -> bool {
    let first = flag.trim_start_matches('-').split(['-', '_']).next();
    is_secret_name(flag) && !first.is_some_and(|word| SWITCH_WORDS.contains(&word))
}

fn holds_secret(name: &str, value: &str) -> bool {
    // `max_tokens=4096` counts.
    let counts = ["tokens", "max", "limit", "count"];
    let is_count = value.len() <= 12
        && value.starts_with(|c: char| c.is_ascii_digit())
        && counts.iter().any(|word| name.to_ascii_lowercase().contains(word));
    let is_plain = PLAIN_VALUES.contains(&value.to_ascii_lowercase().as_str());
    is_secret_name(name) && !is_count && !is_plain
}

/// How a name is joined to its value.
#[derive(Clone, Copy, PartialEq)]
enum Joint {
    Equals,
    Colon,
    Space,
}

/// `NAME=value`, `name = "value"`, `Name: value`, `"name": "value"`, `?name=value&` and `--name value`.
fn find_named(text: &str, secrets: &mut Vec<Range<usize>>) {
    for run in runs(text, is_name_byte) {
        let name = &text[run.clone()];
        // Most words are followed by no value, which is seen faster than what they say.
        let Some((joint, start)) = joint_after(text, &run) else {
            continue;
        };
        // A name in a value that is a secret already is part of it.
        if secrets.last().is_some_and(|last| run.start < last.end) || !is_secret_name(name) {
            continue;
        }
        let is_query = run.start > 0 && matches!(text.as_bytes()[run.start - 1], b'?' | b'&');
        let value = value_at(text, start, joint, name, is_query);
        let word = &text[value.clone()];
        // `invalid token: unexpected end` speaks of a token, it does not show one.
        let is_prose = joint == Joint::Colon
            && value.start == start
            && !name.to_ascii_lowercase().contains("passw")
            && word.bytes().all(|b| b.is_ascii_lowercase() || b".,;!)".contains(&b));
        if holds_secret(name, word) && !is_prose {
            secrets.push(value);
        }
    }
}

fn joint_after(text: &str, name: &Range<usize>) -> Option<(Joint, usize)> {
    let bytes = text.as_bytes();
    let after_quotes = skip(bytes, name.end, |b| matches!(b, b'"' | b'\'' | b'\\'));
    let spaced = |at: usize| skip(bytes, at, |b| b == b' ');
    // `name = "value"`, as TOML has it.
    let equals = spaced(after_quotes);
    if equals > after_quotes && bytes.get(equals) == Some(&b'=') {
        return Some((Joint::Equals, spaced(equals + 1)));
    }
    match bytes.get(after_quotes)? {
        b'=' => Some((Joint::Equals, after_quotes + 1)),
        b':' if !text[after_quotes..].starts_with("://") => {
            Some((Joint::Colon, spaced(after_quotes + 1)))
        }
        b' ' if after_quotes == name.end && bytes[name.start] == b'-' => {
            let start = spaced(name.end);
            let is_flag = bytes.get(start) != Some(&b'-') && takes_secret(&text[name.clone()]);
            is_flag.then_some((Joint::Space, start))
        }
        _ => None,
    }
}

fn value_at(text: &str, start: usize, joint: Joint, name: &str, is_query: bool) -> Range<usize> {
    let bytes = text.as_bytes();
    let quote = skip(bytes, start, |b| b == b'\\');
    let is_escaped = quote > start;
    if let Some(&mark @ (b'"' | b'\'')) = bytes.get(quote) {
        let mut end = quote + 1;
        while end < bytes.len() && (bytes[end] != mark || (bytes[end - 1] == b'\\') != is_escaped) {
            end += 1;
        }
        return quote + 1..end - usize::from(is_escaped && end < bytes.len());
    }
    // These headers are secrets to the end of the line.
    let is_header = joint == Joint::Colon
        && ["authorization", "cookie"].iter().any(|h| name.to_ascii_lowercase().ends_with(h));
    let ends = |byte: u8| match byte {
        b'"' | b'\'' | b'`' | b'\n' | b'\r' => true,
        b'&' | b'#' => is_query,
        _ => byte.is_ascii_whitespace() && !is_header,
    };
    start..skip(bytes, start, |b| !ends(b))
}

/// `Bearer X` and `Basic X` wherever they stand, if X does not look like a word.
fn find_bearer(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for run in runs(text, |b| b.is_ascii_alphabetic()) {
        let scheme = &text[run.clone()];
        if !matches!(scheme.len(), 5 | 6) || bytes.get(run.end) != Some(&b' ') {
            continue;
        }
        if !["bearer", "basic"].iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
            continue;
        }
        let start = run.end + 1;
        let end =
            skip(bytes, start, |b| !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`'));
        let word = &bytes[start..end];
        let is_word = !word.iter().any(u8::is_ascii_digit)
            && !word.iter().skip(1).any(u8::is_ascii_uppercase);
        if (!is_word && word.len() >= 8) || word.len() >= 24 {
            secrets.push(start..end);
        }
    }
}

/// The longest ranges of `text` whose bytes all are `wanted`; only ASCII may be told apart.
fn runs(text: &str, wanted: impl Fn(u8) -> bool) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = skip(bytes, at, |b| !wanted(b));
        at = skip(bytes, start, &wanted);
        (start < at).then_some(start..at)
    })
}

fn skip(bytes: &[u8], from: usize, while_true: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|b| !while_true(*b)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests;
