//! Owns the formats of secrets that are known without a name: tokens of services by their prefixes, web tokens,
//! private keys, passwords in URLs, and long random texts. Part of redaction. Never looks at names.

use std::ops::Range;

use super::{Bytes, runs, skip};

/// Adds the ranges of `text` that look like secrets.
pub(super) fn find(text: &str, secrets: &mut Vec<Range<usize>>) {
    find_url_passwords(text, secrets);
    find_private_keys(text, secrets);
    find_formats(text, secrets);
    find_opaque(text, secrets);
}

/// The password in `scheme://user:password@host`.
fn find_url_passwords(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let in_word = |b: u8| !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`');
    let in_host = |b: u8| in_word(b) && !matches!(b, b'/' | b'?' | b'#');
    for scheme_end in memchr::memmem::find_iter(bytes, "://") {
        let start = scheme_end + "://".len();
        let host_end = skip(bytes, start, in_host);
        let Some(colon) = text[start..host_end].find(':').map(|at| start + at + 1) else {
            secrets.extend(lone_token(text, scheme_end, start..host_end));
            continue;
        };
        // A `/` in a password should have been escaped; after a port it can't be one.
        let is_port = bytes[colon..host_end].iter().all(u8::is_ascii_digit);
        let end = match is_port {
            true => host_end,
            false => skip(near(bytes, host_end), host_end, in_word),
        };
        let in_host = bytes[colon..host_end].iter().rposition(|b| *b == b'@');
        let at = in_host.or_else(|| bytes[colon..end].iter().rposition(|b| *b == b'@'));
        if let Some(at) = at.filter(|at| *at > 0) {
            secrets.push(colon..colon + at);
        }
    }
}

/// The token in `https://token@host`: a name of a user is short and has no digits.
fn lone_token(text: &str, scheme_end: usize, authority: Range<usize>) -> Option<Range<usize>> {
    let is_web = text[..scheme_end].ends_with("http") || text[..scheme_end].ends_with("https");
    let user = &text[authority.start..authority.start + text[authority.clone()].find('@')?];
    let is_token = user.len() >= 20 || user.len() >= 8 && user.bytes().any(|b| b.is_ascii_digit());
    (is_web && is_token).then_some(authority.start..authority.start + user.len())
}

/// Private keys in PEM form; one that is cut off goes to the end of the text.
fn find_private_keys(text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut done = 0;
    for start in memchr::memmem::find_iter(text.as_bytes(), "-----BEGIN ") {
        let kind = text[start + "-----BEGIN ".len()..].split("-----").next().unwrap_or_default();
        if start < done || !kind.ends_with("PRIVATE KEY") || kind.len() > 64 {
            continue;
        }
        let rest = &text[start..];
        let end = rest.find("-----END ").map(|at| at + "-----END ".len());
        let close = end.and_then(|end| rest[end..].find("-----").map(|at| end + at + 5));
        done = start + close.unwrap_or(rest.len());
        secrets.push(start..done);
    }
}

/// The bytes to look at from `from` on: a text made to be slow must not make us look at all of it
/// from every place in it.
fn near(bytes: &[u8], from: usize) -> &[u8] {
    &bytes[..bytes.len().min(from + LOOK_AHEAD_BYTES_MAX)]
}

/// Longer than tokens without a signature are.
const LOOK_AHEAD_BYTES_MAX: usize = 2048;

type TokenFormat = (usize, fn(u8) -> bool, &'static [&'static str]);

/// The formats of tokens that can be told by their beginning, which is one of the prefixes: how many bytes follow at
/// least, and which. A format that is to be redacted, too, is one more prefix here.
const FORMATS: [TokenFormat; 8] = [
    (16, is_token_byte, &["sk-", "sk_live_", "sk_test_", "rk_live_", "whsec_", "glpat-", "ya29."]),
    (20, is_token_byte, &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"]),
    (10, is_token_byte, &["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"]),
    (16, is_upper_or_digit, &["AKIA", "ASIA"]),
    (20, is_upper_or_digit, &["AGE-SECRET-KEY-1"]),
    (30, is_token_byte, &["AIza"]),
    (32, is_token_byte, &["pypi-"]),
    (30, |b| b.is_ascii_alphanumeric(), &["npm_", "hf_", "gsk_"]),
];

/// For each byte that a format or a web token begins with, the bytes that come second and third, by their last five bits.
const BEGINNINGS: [(u32, u32); 256] = {
    let mut all = [(0, 0); 256];
    all[b'e' as usize] = (bit(b'y'), bit(b'J'));
    let (mut at, mut of_format) = (0, 0);
    while at < FORMATS.len() {
        let prefixes = FORMATS[at].2;
        if of_format == prefixes.len() {
            (at, of_format) = (at + 1, 0);
            continue;
        }
        let prefix = prefixes[of_format].as_bytes();
        let (second, third) = all[prefix[0] as usize];
        all[prefix[0] as usize] = (second | bit(prefix[1]), third | bit(prefix[2]));
        of_format += 1;
    }
    all
};

const fn bit(byte: u8) -> u32 {
    1 << (byte & 31)
}

fn is_token_byte(byte: u8) -> bool {
    const TOKENS: Bytes = Bytes::of(b"_-").and_alphanumeric();
    TOKENS.has(byte)
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn find_formats(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (start, three) in bytes.windows(3).enumerate() {
        // Few words begin like that, and all of the log of a session comes through here.
        let (second, third) = BEGINNINGS[usize::from(three[0])];
        if second & bit(three[1]) == 0 || third & bit(three[2]) == 0 {
            continue;
        }
        if start < done || (start > 0 && bytes[start - 1].is_ascii_alphanumeric()) {
            continue;
        }
        if is_web_token(near(&bytes[start..], 0)) {
            done = skip(bytes, start, |b| is_token_byte(b) || b == b'.');
            secrets.push(start..done);
            continue;
        }
        for (rest_len_min, is_rest, prefixes) in &FORMATS {
            let begins = |prefix: &&&str| bytes[start..].starts_with(prefix.as_bytes());
            for prefix in prefixes.iter().filter(begins) {
                let rest = start + prefix.len();
                let end = skip(near(bytes, rest), rest, is_rest);
                // `sk-learn-pipeline-runner` is a name.
                if end - rest >= *rest_len_min && bytes[rest..end].iter().any(u8::is_ascii_digit) {
                    done = skip(bytes, rest, is_rest);
                    secrets.push(start..done);
                }
            }
        }
    }
}

/// A JSON web token: three parts, the first of which is an object in base64.
fn is_web_token(bytes: &[u8]) -> bool {
    let is_part = |b: u8| is_token_byte(b) || b == b'.';
    bytes.starts_with(b"eyJ") && {
        let token = &bytes[..skip(bytes, 0, is_part)];
        let dots = token.iter().filter(|b| **b == b'.').count();
        token.len() >= 24 && (dots >= 2 || token.len() == LOOK_AHEAD_BYTES_MAX)
    }
}

/// What is shorter is no key.
const OPAQUE_BYTES_MIN: usize = 32;

/// What stands between words.
const ENDS_WORD: Bytes = Bytes::of(b" \t\n\r\x0c\"'`=:,;()[]{}<>|");

/// Long strings without sense, which are keys more often than not.
fn find_opaque(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for word in long_words(bytes) {
        let is_url = text[word.clone()].starts_with("//");
        if !is_url && matches!(bytes[word.start], b'/' | b'\\' | b'~' | b'.') {
            continue; // A path.
        }
        // Image digests and package hashes are public.
        let before = &text[..word.start];
        if ["sha1:", "sha256:", "sha512:"].iter().any(|hash| before.ends_with(hash)) {
            continue;
        }
        let in_run = |b: u8| is_token_byte(b) || b == b'+' || (b == b'/' && !is_url);
        for run in runs(&text[word.clone()], in_run) {
            let run = word.start + run.start..word.start + run.end;
            if is_opaque(&text[run.clone()]) {
                secrets.push(run);
            }
        }
    }
}

/// The words that are long enough. From where one could begin to where it would be long enough is looked from the end:
/// most words are short, and most of their bytes are never looked at.
fn long_words(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(enough) = bytes.get(at..at + OPAQUE_BYTES_MIN) {
            let Some(gap) = enough.iter().rposition(|b| ENDS_WORD.has(*b)) else {
                let start = at;
                at = skip(bytes, start + OPAQUE_BYTES_MIN, |b| !ENDS_WORD.has(b));
                return Some(start..at);
            };
            at += gap + 1;
        }
        None
    })
}

/// Tells random characters from names by how often letters, digits and cases alternate: in names
/// they come in groups.
fn is_opaque(run: &str) -> bool {
    if ["sha256-", "sha384-", "sha512-"].iter().any(|hash| run.starts_with(hash)) {
        return false;
    }
    // A git hash, alone or at the end of a name, is none; nor is a UUID, whose parts are short.
    let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = || run.split(['-', '_', '/', '+']);
    if parts().all(|part| is_hex(part) && part.len() <= 12) {
        return false;
    }
    let kept: Vec<&str> = parts().filter(|part| !(is_hex(part) && part.len() == 40)).collect();
    let len: usize = kept.iter().map(|part| part.len()).sum();
    let digits = kept.iter().flat_map(|part| part.bytes()).filter(u8::is_ascii_digit).count();
    if len < 30 || digits < 2 || run.len() < OPAQUE_BYTES_MIN {
        return false;
    }
    let alternations: usize = kept
        .iter()
        .map(|part| part.as_bytes().windows(2).filter(|pair| alternates(pair[0], pair[1])).count())
        .sum();
    alternations * 9 >= len * 2
}

/// An upper case letter before a lower case one begins a word, and does not count.
fn alternates(first: u8, second: u8) -> bool {
    first.is_ascii_digit() != second.is_ascii_digit()
        || (first.is_ascii_lowercase() && second.is_ascii_uppercase())
}
