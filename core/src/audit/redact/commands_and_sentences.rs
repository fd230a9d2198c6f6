//! Owns the secrets that only their surroundings tell: arguments of known commands (`sshpass -p X`), sentences
//! (`password is X`), `user:X@host` without a scheme, SQL, XML and encoded queries. Part of redaction in records. A value of
//! a sentence has to look like a secret; never takes a word for one.

use std::ops::Range;

use super::secret_names::{is_secret_name, is_secret_value};
use super::token_formats::near;
use super::{Bytes, is_name_byte, skip, skip_back};

/// Adds the ranges of `text` that are secrets.
pub(super) fn find(text: &str, secrets: &mut Vec<Range<usize>>) {
    find_in_commands(text, secrets);
    find_in_sentences(text, secrets);
    find_addresses(text, secrets);
    find_in_sql(text, secrets);
    find_in_xml(text, secrets);
    find_encoded(text, secrets);
}

/// Which of its arguments a command takes for a secret.
#[derive(Clone, Copy)]
enum SecretArgument {
    /// What follows this flag, also without a blank.
    Flag(&'static str),
    /// What stands behind this flag without a blank.
    Attached(&'static str),
    /// What follows this flag, in a command with this word.
    FlagOf(&'static str, &'static str),
    /// The value of a cookie behind this flag.
    Cookie(&'static str),
    /// The third argument that is no flag, behind flags with this letter.
    Third(char),
}

const COMMANDS: [(&str, SecretArgument); 12] = [
    ("sshpass", SecretArgument::Flag("-p")),
    ("mysql", SecretArgument::Attached("-p")),
    ("mysqldump", SecretArgument::Attached("-p")),
    ("mysqladmin", SecretArgument::Attached("-p")),
    ("mariadb", SecretArgument::Attached("-p")),
    ("docker", SecretArgument::FlagOf("login", "-p")),
    ("podman", SecretArgument::FlagOf("login", "-p")),
    ("htpasswd", SecretArgument::Third('b')),
    ("ldapsearch", SecretArgument::Flag("-w")),
    ("ldapmodify", SecretArgument::Flag("-w")),
    ("ldapadd", SecretArgument::Flag("-w")),
    ("curl", SecretArgument::Cookie("-b")),
];

/// A command of which more is not looked at.
const COMMAND_WORDS_MAX: usize = 64;

fn find_in_commands(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for (command, argument) in COMMANDS {
        let mut done = 0;
        for at in memchr::memmem::find_iter(bytes, command) {
            let end = at + command.len();
            let is_whole =
                (at == 0 || !is_name_byte(bytes[at - 1])) && bytes.get(end) == Some(&b' ');
            if !is_whole || at < done {
                continue;
            }
            let words = words_from(text, end);
            done = words.last().map_or(end, |word| word.end);
            secrets.extend(secret_of_command(text, &words, argument));
        }
    }
}

/// The same of a command line in words: the number of each word with a secret, and where that stands in it.
pub(super) fn find_in_arguments(args: &[String]) -> Vec<(usize, Range<usize>)> {
    let text = args.join(" ");
    let mut end = 0;
    let word = |arg: &String| {
        let start = end;
        end += arg.len() + 1;
        start..start + arg.len()
    };
    let words: Vec<Range<usize>> = args.iter().map(word).collect();
    let mut found = Vec::new();
    for (at, arg) in args.iter().enumerate() {
        let name = arg.rsplit('/').next();
        let known = COMMANDS.iter().find(|(command, _)| name == Some(*command));
        let Some((_, argument)) = known else { continue };
        let rest = &words[at + 1..words.len().min(at + 1 + COMMAND_WORDS_MAX)];
        let Some(secret) = secret_of_command(&text, rest, *argument) else { continue };
        let place = rest.iter().position(|word| secret.end <= word.end).map(|it| at + 1 + it);
        found.extend(
            place.map(|it| (it, secret.start - words[it].start..secret.end - words[it].start)),
        );
    }
    found
}

/// The words of a command, without their quotes, to its end.
fn words_from(text: &str, from: usize) -> Vec<Range<usize>> {
    let bytes = near(text.as_bytes(), from);
    let (mut words, mut at) = (Vec::new(), from);
    while words.len() < COMMAND_WORDS_MAX {
        at = skip(bytes, at, |b| b == b' ');
        let Some(&first) = bytes.get(at) else { break };
        let (start, end) = match first {
            b'"' | b'\'' => (at + 1, skip(bytes, at + 1, |b| b != first)),
            _ => (at, skip(bytes, at, |b| !ENDS_COMMAND_WORD.has(b))),
        };
        if end == start && matches!(first, b';' | b'|' | b'&' | b'\n' | b'\r' | b'`' | b')') {
            break;
        }
        // A cut within a character can only be at the end of what is looked at.
        words.push(start..text.floor_char_boundary(end));
        at = end.max(at + 1) + usize::from(start > at);
    }
    words
}

const ENDS_COMMAND_WORD: Bytes = Bytes::of(b" \t\n\r;|&`\"')");

fn secret_of_command(
    text: &str,
    words: &[Range<usize>],
    argument: SecretArgument,
) -> Option<Range<usize>> {
    let of = |word: &Range<usize>| &text[word.clone()];
    let follows = |flag: &str| {
        let at = words.iter().position(|word| of(word) == flag)?;
        words.get(at + 1).filter(|word| !of(word).starts_with('-')).cloned()
    };
    let attached = |flag: &str| {
        let word = words.iter().find(|word| of(word).len() > 2 && of(word).starts_with(flag))?;
        Some(word.start + flag.len()..word.end)
    };
    let found = match argument {
        SecretArgument::Flag(flag) => follows(flag).or_else(|| attached(flag)),
        SecretArgument::Attached(flag) => attached(flag),
        SecretArgument::FlagOf(word, flag) => {
            words.iter().any(|it| of(it) == word).then(|| follows(flag)).flatten()
        }
        SecretArgument::Cookie(flag) => follows(flag).and_then(|word| {
            let value = of(&word).find('=')? + 1;
            (word.len() - value >= COOKIE_BYTES_MIN).then(|| word.start + value..word.end)
        }),
        SecretArgument::Third(letter) => {
            let is_flag = |word: &&Range<usize>| of(word).starts_with('-');
            let asks = words.iter().filter(is_flag).any(|word| of(word).contains(letter));
            let mut plain = words.iter().filter(|word| !is_flag(word));
            asks.then(|| plain.nth(2).cloned()).flatten()
        }
    };
    found.filter(|value| !of(value).starts_with(['$', '/']) && is_secret_value("", of(value)))
}

/// A shorter value of a cookie opens nothing.
const COOKIE_BYTES_MIN: usize = 8;

/// The names of secrets that sentences are looked for with, and that a value can follow without a joint.
const NAMES: [&str; 7] =
    ["password", "passwd", "passphrase", "secret", "x-api-key", "api key", "api-key"];

/// `password is X`, `api key: X`, `passwd X` and `secret "X"`.
fn find_in_sentences(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    // Each of the names ends so, and few other words do.
    for at in memchr::memchr_iter(b' ', bytes) {
        let Some(name) = NAMES.iter().find(|name| ends_with_word(&bytes[..at], name)) else {
            // `api key: X` has its blank behind the colon.
            let is_key =
                at > 0 && bytes[at - 1] == b':' && ends_with_word(&bytes[..at - 1], "api key");
            if is_key {
                secrets.extend(value_of_sentence(text, at + 1));
            }
            continue;
        };
        let mut start = at + 1;
        for joint in ["is ", "was ", "of "] {
            if *name != "x-api-key" && text[start..].starts_with(joint) {
                start += joint.len();
            }
        }
        secrets.extend(value_of_sentence(text, start));
    }
}

fn ends_with_word(bytes: &[u8], word: &str) -> bool {
    let Some(begin) = bytes.len().checked_sub(word.len()) else { return false };
    let is_whole = begin == 0 || !is_name_byte(bytes[begin - 1]);
    is_whole && bytes[begin..].eq_ignore_ascii_case(word.as_bytes())
}

/// The word that stands here, where it looks like a secret.
fn value_of_sentence(text: &str, start: usize) -> Option<Range<usize>> {
    let bytes = near(text.as_bytes(), start);
    let quote = bytes.get(start).filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
    let begin = start + usize::from(quote.is_some());
    let end = skip(bytes, begin, |b| {
        !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`' | b'\\' | b'<')
    });
    let end = text.floor_char_boundary(end);
    let value = text[begin..end].trim_end_matches(['.', ',', ';', ':', ')', '!', '?']);
    looks_secret(value).then(|| begin..begin + value.len())
}

/// Whether letters and digits are mixed in a text as in a password: a word, a number or a path is none.
fn looks_secret(value: &str) -> bool {
    let has = |is_it: fn(&u8) -> bool| value.as_bytes().iter().any(is_it);
    value.len() >= SENTENCE_VALUE_BYTES_MIN
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && !value.contains(['/', '=', ':', '('])
        && is_secret_value("", value)
}

/// A shorter word is none of a sentence: `password is md5`.
const SENTENCE_VALUE_BYTES_MIN: usize = 8;

/// `user:X@host`, in which the host has a dot or is `localhost`.
fn find_addresses(text: &str, secrets: &mut Vec<Range<usize>>) {
    const NO_USERS: [&str; 8] = ["mailto", "sip", "sips", "xmpp", "acct", "npm", "jsr", "urn"];
    let bytes = text.as_bytes();
    for at in memchr::memchr_iter(b'@', bytes) {
        let from = at.saturating_sub(ADDRESS_BYTES_MAX);
        let is_part = |b: u8| !b.is_ascii_whitespace() && !b"\"'`<>()[]{},;=|\\".contains(&b);
        let begin = from + skip_back(&bytes[from..at], at - from, is_part);
        let begin = text.ceil_char_boundary(begin).min(at);
        let Some((user, password)) = text[begin..at].split_once(':') else { continue };
        let host = skip(near(bytes, at + 1), at + 1, |b| is_name_byte(b) && b != b'_');
        let host = &text[at + 1..host];
        let ending = host.rsplit('.').next().unwrap_or_default();
        let is_host = host == "localhost"
            || (ending.len() < host.len() && ending.len() >= 2 && is_alphabetic(ending));
        let is_user =
            !user.is_empty() && user.bytes().all(is_name_byte) && !NO_USERS.contains(&user);
        let is_password = password.len() >= 6
            && password.bytes().any(|byte| byte.is_ascii_digit())
            && password.bytes().any(|byte| byte.is_ascii_alphabetic())
            && !password.contains(['/', '@']);
        if is_host && is_user && is_password {
            secrets.push(at - password.len()..at);
        }
    }
}

/// More than a user and a password have together.
const ADDRESS_BYTES_MAX: usize = 256;

fn is_alphabetic(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// `IDENTIFIED BY 'X'`.
fn find_in_sql(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for at in memchr::memmem::find_iter(bytes, "BY '") {
        let before = text[..at].trim_end();
        if ends_with_word(before.as_bytes(), "IDENTIFIED") {
            let start = at + "BY '".len();
            secrets.push(start..skip(bytes, start, |b| b != b'\''));
        }
    }
}

/// `<password>X</password>`.
fn find_in_xml(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for close in memchr::memmem::find_iter(bytes, "</") {
        let end = skip(near(bytes, close + 2), close + 2, is_name_byte);
        let name = &text[close + 2..end];
        if name.is_empty() || !is_secret_name(name) {
            continue;
        }
        let from = close.saturating_sub(XML_BYTES_MAX);
        let Some(open) = memchr::memrchr(b'>', &bytes[from..close]).map(|at| from + at) else {
            continue;
        };
        let is_its_own = ends_with_word(&bytes[..open], name);
        if is_its_own && is_secret_value(name, &text[open + 1..close]) {
            secrets.push(open + 1..close);
        }
    }
}

/// A longer text between two tags is looked at no further.
const XML_BYTES_MAX: usize = 2_048;

/// `client_secret%3DX`.
fn find_encoded(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for at in memchr::memchr_iter(b'%', bytes) {
        if at < done || !bytes[at + 1..].get(..2).is_some_and(|hex| hex.eq_ignore_ascii_case(b"3D"))
        {
            continue;
        }
        let name = &text[skip_back(bytes, at, is_name_byte)..at];
        // `%26` stands in front of it.
        let name = name.strip_prefix("26").unwrap_or(name);
        if !is_secret_name(name) {
            continue;
        }
        let start = at + 3;
        let mut end = start;
        loop {
            end = skip(bytes, end, |b| is_name_byte(b) || b == b'~');
            // An encoded `&` ends it, any other encoded character is part of it.
            match bytes.get(end..end + 3) {
                Some([b'%', hex @ ..]) if hex != b"26" => end += 3,
                _ => break,
            }
        }
        done = end;
        let end = text.floor_char_boundary(end);
        if is_secret_value(name, &text[start..end]) {
            secrets.push(start..end);
        }
    }
}
