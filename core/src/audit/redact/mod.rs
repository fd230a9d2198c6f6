//! Keeps secrets out of records and prompts: finds them in arguments and in text, and puts `[redacted]` there.
//!
//! Here are those that a name says to be one, such as `API_KEY=…`; `secret_names.rs` has the names, and
//! `user_password.rs` the values of `-u user:password`.
//! `token_formats.rs` has those that are known by their own look, such as `ghp_…`: a new format is one more prefix there.
//! `commands_and_sentences.rs` has those that only their surroundings tell, such as `sshpass -p X`.
//! `urls_and_random_texts.rs` has those that are only likely: passwords in URLs and long random texts.
//!
//! There are two levels, see [`Redaction`]. The rule for people is in `docs/guide/trail.md`. Where it is in doubt, a
//! record is redacted, since a word too few in it costs less than a password; a prompt is not, since an agent that is
//! shown `[redacted]` instead of a test's output cannot mend what the test found.

mod commands_and_sentences;
mod secret_names;
#[cfg(test)]
mod tests;
mod token_formats;
mod urls_and_random_texts;
mod user_password;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde_json::Value;

use self::secret_names::{
    COUNT_BYTES_MAX, holds_secret, is_count, is_secret_header, is_secret_name, is_secret_number,
    is_secret_value, is_session_cookie, is_url_signature, may_be_secret, takes_secret,
};
use self::token_formats::{COLOUR_BYTES_MAX, is_colour};
use self::user_password::{USER_BYTES_MAX, attached_user, is_user_flag, password_of_user};
use crate::limits::{HOOK_EXCERPT_CHARS_MAX, SECRET_VALUE_BYTES_MIN};
use crate::text::{cut, harmless};

/// What stands where a secret was.
pub const MARK: &str = "[redacted]";

/// How much of a text is taken for a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// For log and trail: keys of known formats, values whose name says that they are secrets, and what is only likely
    /// to be one.
    Records,
    /// For prompts of agents: keys of known formats only.
    Prompts,
}

/// Takes the secrets out of a command line.
pub fn redact_args(args: &[String]) -> Vec<String> {
    let mut secret_flag: Option<&str> = None;
    let mut redacted = Vec::with_capacity(args.len());
    for arg in args {
        let is_flag = arg.starts_with("--") || (arg.starts_with('-') && arg.len() <= 2);
        let follows = secret_flag.take().filter(|_| !is_flag);
        let password = follows.filter(|name| is_user_flag(name));
        let password = password.and_then(|_| password_of_user(arg, 0..arg.len()));
        redacted.push(match (follows, arg.split_once('=')) {
            _ if password.is_some() => replace_with_marks(arg, Vec::from_iter(password)),
            (Some(name), _) if holds_secret(name, arg) => MARK.to_owned(),
            (None, Some((name, value))) if is_name(name) && holds_secret(name, value) => {
                format!("{name}={MARK}")
            }
            _ => redact_text(arg).into_owned(),
        });
        let is_asking = || takes_secret(arg) || is_user_flag(arg);
        if follows.is_none() && arg.starts_with('-') && is_name(arg) && is_asking() {
            secret_flag = Some(arg.as_str());
        }
    }
    for (at, secret) in commands_and_sentences::find_in_arguments(args) {
        // What was redacted already has other places.
        if redacted[at] == args[at] {
            redacted[at] = replace_with_marks(&args[at], vec![secret]);
        }
    }
    redacted
}

/// The beginning of a reply, as one line without secrets and control characters.
pub fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(8 * HOOK_EXCERPT_CHARS_MAX)]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    harmless(&cut(&redact_text(&words), HOOK_EXCERPT_CHARS_MAX))
}

/// Takes the secrets out of a text for log and trail, such as a reason or a message.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    redact(text, Redaction::Records)
}

/// Takes the secrets out of a text.
pub fn redact(text: &str, level: Redaction) -> Cow<'_, str> {
    let mut secrets = Vec::new();
    if level == Redaction::Records {
        find_named(text, &mut secrets);
        find_bearer(text, &mut secrets);
        commands_and_sentences::find(text, &mut secrets);
    }
    urls_and_random_texts::find_in_urls(text, level, &mut secrets);
    token_formats::find(text, &mut secrets);
    if level == Redaction::Records {
        urls_and_random_texts::find_opaque(text, &mut secrets);
    }
    match secrets.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(replace_with_marks(text, secrets)),
    }
}

fn replace_with_marks(text: &str, mut secrets: Vec<Range<usize>>) -> String {
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
    redacted
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
                    Value::Number(number) if is_secret_number(name, &number.to_string()) => {
                        *field = MARK.into();
                    }
                    Value::Array(items) if is_secret_header(name) => {
                        items.iter_mut().for_each(|item| *item = MARK.into());
                    }
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
    const NAMES: Bytes = Bytes::of(b"_-.").and_alphanumeric();
    NAMES.has(byte)
}

/// Some of all bytes. All of what an agent says is looked at byte by byte: a table is fastest.
struct Bytes([bool; 256]);

impl Bytes {
    const fn of(bytes: &[u8]) -> Self {
        let (mut table, mut at) = ([false; 256], 0);
        while at < bytes.len() {
            table[bytes[at] as usize] = true;
            at += 1;
        }
        Self(table)
    }

    const fn and_alphanumeric(mut self) -> Self {
        let mut byte = 0;
        while byte < 128 {
            self.0[byte as usize] |= (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        self
    }

    const fn has(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }
}

/// A shorter one is no signature and no name of a session.
const RANDOM_VALUE_BYTES_MIN: usize = 8;

/// How a name is joined to its value.
#[derive(Clone, Copy, PartialEq)]
enum Joint {
    Equals,
    Colon,
    Space,
}

/// `NAME=value`, `name = "value"`, `Name: value`, `"name": "value"`, `?name=value&` and `--name value`.
fn find_named(text: &str, secrets: &mut Vec<Range<usize>>) {
    for (run, joint, start) in joints(text) {
        let name = &text[run.clone()];
        // A name in a value that is a secret already is part of it.
        if secrets.last().is_some_and(|last| run.start < last.end) {
            continue;
        }
        let is_query = run.start > 0 && matches!(text.as_bytes()[run.start - 1], b'?' | b'&');
        let value = || value_at(text, start, joint, name, is_query);
        let is_long = |value: &Range<usize>| value.len() >= RANDOM_VALUE_BYTES_MIN;
        let is_cookie = || joint == Joint::Equals && is_session_cookie(name);
        if !may_be_secret(name) {
            if is_user_flag(name) {
                // A flag in the value of another: each is looked at for so long only.
                let near = &text[..text.ceil_char_boundary(start + USER_BYTES_MAX)];
                let value = value_at(near, start, joint, name, is_query);
                secrets.extend(password_of_user(text, value));
            } else if let Some(user) = attached_user(run, text).filter(|_| joint == Joint::Colon) {
                let near = &text[..text.ceil_char_boundary(start + USER_BYTES_MAX)];
                let value = value_at(near, start, joint, name, is_query);
                secrets.extend(password_of_user(text, user..value.end));
            } else if (is_query && is_url_signature(name)) || is_cookie() {
                secrets.extend(Some(value()).filter(is_long));
            }
            continue;
        }
        // In what agents say are more counts of tokens than anything else.
        let near = &text[..text.ceil_char_boundary(start + COUNT_BYTES_MAX + 1)];
        let is_number = near.as_bytes().get(start).is_some_and(u8::is_ascii_digit);
        if is_number && is_count(name, &near[value_at(near, start, joint, name, is_query)]) {
            continue;
        }
        if !is_secret_name(name) {
            secrets.extend(Some(value()).filter(|value| is_cookie() && is_long(value)));
            continue;
        }
        let value = value_at(text, start, joint, name, is_query);
        let word = &text[value.clone()];
        // `invalid token: unexpected end` speaks of a token, it does not show one.
        let is_prose = joint == Joint::Colon
            && value.start == start
            && !name.to_ascii_lowercase().contains("passw")
            && word.bytes().all(|b| b.is_ascii_lowercase() || b".,;!)".contains(&b));
        if is_secret_value(name, word) && !is_prose {
            secrets.push(value);
        }
    }
}

/// The names that a value follows, with their joint and where the value begins. Most words have none, so that it is the
/// joints that are looked for.
fn joints(text: &str) -> impl Iterator<Item = (Range<usize>, Joint, usize)> {
    let bytes = text.as_bytes();
    let begins = |dash: usize| dash == 0 || !is_name_byte(bytes[dash - 1]);
    let has_flags = memchr::memchr_iter(b'-', bytes).any(begins);
    let third = if has_flags { b' ' } else { b'=' };
    memchr::memchr3_iter(b'=', b':', third, bytes).filter_map(move |at| {
        let is_space = |b| b == b' ';
        let is_quote = |b| matches!(b, b'"' | b'\'' | b'\\');
        let (joint, end) = match bytes[at] {
            b'=' => {
                let end = skip_back(bytes, skip_back(bytes, at, is_space), is_quote);
                (Joint::Equals, before_colour(bytes, end))
            }
            b':' if !bytes[at..].starts_with(b"://") => {
                (Joint::Colon, skip_back(bytes, at, is_quote))
            }
            b' ' => (Joint::Space, at),
            _ => return None,
        };
        let name = skip_back(bytes, end, is_name_byte)..end;
        if name.is_empty() || (joint == Joint::Space && bytes[name.start] != b'-') {
            return None;
        }
        // `name=` may have nothing behind it, `name = ` has.
        let is_close = joint == Joint::Equals && bytes[at - 1] != b' ';
        // `name => value`.
        let joint_end =
            at + 1 + usize::from(joint == Joint::Equals && bytes.get(at + 1) == Some(&b'>'));
        let start = if is_close { joint_end } else { skip(bytes, joint_end, is_space) };
        let is_flag = || {
            let flag = &text[name.clone()];
            !matches!(bytes.get(start), Some(b'-' | b'='))
                && (is_user_flag(flag) || takes_secret(flag))
        };
        (joint != Joint::Space || is_flag()).then_some((name, joint, start))
    })
}

fn value_at(text: &str, start: usize, joint: Joint, name: &str, is_query: bool) -> Range<usize> {
    let bytes = text.as_bytes();
    let start = after_colour(bytes, start);
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
    let is_header = joint == Joint::Colon && is_secret_header(name);
    let ends = |byte: u8| match byte {
        b'"' | b'\'' | b'`' | b'\n' | b'\r' | b'\x1b' => true,
        b'&' | b'#' => is_query,
        _ => byte.is_ascii_whitespace() && !is_header,
    };
    start..before_escape(bytes, start, skip(bytes, start, |b| !ends(b)))
}

/// The end of the sequence for a colour that begins here.
fn after_colour(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..).and_then(|rest| rest.strip_prefix(b"\x1b[")) {
        Some(rest) => {
            let numbers = skip(&rest[..rest.len().min(COLOUR_BYTES_MAX)], 0, is_colour);
            if rest.get(numbers) == Some(&b'm') { at + 2 + numbers + 1 } else { at }
        }
        None => at,
    }
}

/// The beginning of the sequence for a colour that ends here.
fn before_colour(bytes: &[u8], at: usize) -> usize {
    let Some(end) = at.checked_sub(1).filter(|end| bytes[*end] == b'm') else { return at };
    let nearest = end.saturating_sub(COLOUR_BYTES_MAX);
    let begin = nearest + skip_back(&bytes[nearest..end], end - nearest, is_colour);
    if bytes[..begin].ends_with(b"\x1b[") { begin - 2 } else { at }
}

/// Where a value ends that goes to `end`: the backslash of an escaped quote is not part of it, and without it what is
/// left would not be JSON any more.
fn before_escape(bytes: &[u8], start: usize, end: usize) -> usize {
    match bytes.get(end) {
        Some(b'"' | b'\'') => start.max(skip_back(bytes, end, |b| b == b'\\')),
        _ => end,
    }
}

/// `Bearer X` and `Basic X` wherever they stand, if X does not look like a word.
fn find_bearer(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for space in memchr::memchr_iter(b' ', bytes) {
        let is_scheme = ["bearer", "basic"].iter().any(|scheme| {
            let Some(begin) = space.checked_sub(scheme.len()) else { return false };
            let is_whole = begin == 0 || !bytes[begin - 1].is_ascii_alphabetic();
            is_whole && bytes[begin..space].eq_ignore_ascii_case(scheme.as_bytes())
        });
        if !is_scheme {
            continue;
        }
        let start = space + 1;
        let in_value = |b: u8| !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`');
        let end = before_escape(bytes, start, skip(bytes, start, in_value));
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

/// Where those begin that end at `to` and all are `wanted`.
fn skip_back(bytes: &[u8], to: usize, wanted: impl Fn(u8) -> bool) -> usize {
    bytes[..to].iter().rposition(|b| !wanted(*b)).map_or(0, |at| at + 1)
}

fn skip(bytes: &[u8], from: usize, while_true: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|b| !while_true(*b)).unwrap_or(rest.len())
}

/// Values that are secrets wherever they stand.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    /// Those of the variables whose names say that they hold one.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secret = |(name, value): (&str, &'a str)| {
            let is_secret = value.len() >= SECRET_VALUE_BYTES_MIN && holds_secret(name, value);
            is_secret.then_some(value)
        };
        let mut values: Vec<String> = Vec::new();
        for value in variables.into_iter().filter_map(secret) {
            // As it stands in JSON, and in JSON that is a string in JSON, where that is not the same.
            let escape = |text: &str| {
                let quoted = Value::from(text).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            };
            let escaped = escape(value);
            values.extend([value.to_owned(), escape(&escaped), escaped]);
        }
        // One that is a part of another must not spoil that.
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Self(values)
    }

    /// Takes them, and the secrets of this level, out of a text.
    pub fn redact<'a>(&self, text: &'a str, level: Redaction) -> Cow<'a, str> {
        match self.without_known(text) {
            Cow::Borrowed(text) => redact(text, level),
            Cow::Owned(text) => Cow::Owned(redact(&text, level).into_owned()),
        }
    }

    /// The same for a line of a log. One that was JSON still is.
    pub fn redact_line<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let redacted = self.redact(line, Redaction::Records);
        let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        // Few lines have secrets in them, and of those few are no longer JSON.
        if matches!(redacted, Cow::Borrowed(_)) || is_json(&redacted) {
            return redacted;
        }
        let Ok(mut value) = serde_json::from_str::<Value>(line) else { return redacted };
        self.redact_known(&mut value);
        redact_value(&mut value);
        Cow::Owned(value.to_string())
    }

    fn redact_known(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.without_known(text) {
                    *text = redacted;
                }
            }
            Value::Number(number) => {
                if matches!(self.without_known(&number.to_string()), Cow::Owned(_)) {
                    *value = MARK.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_known(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_known(field));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn without_known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut known = Cow::Borrowed(text);
        for value in &self.0 {
            if memchr::memmem::find(known.as_bytes(), value.as_bytes()).is_some() {
                known = Cow::Owned(known.replace(value, MARK));
            }
        }
        known
    }
}

/// How many there are, and no more.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.0.len())
    }
}
