//! Owns what is only likely to be a secret: passwords in URLs, and long random texts. Part of redaction. Never looks at
//! names.

use std::ops::Range;

use super::token_formats::{is_token_byte, near, word_start};
use super::{Bytes, Redaction, runs, skip};

/// Webhooks whose path is a permission by itself: the end of the host, and the beginning of the path, which is kept.
const WEBHOOKS: [(&str, &str); 6] = [
    ("hooks.slack.com", "/services/"),
    ("hooks.slack.com", "/workflows/"),
    ("hooks.slack-gov.com", "/services/"),
    (".webhook.office.com", "/webhookb2/"),
    ("hooks.zapier.com", "/hooks/catch/"),
    ("discord.com", "/api/webhooks/"),
];

/// What stands between the scheme and the host of a URL.
const SCHEME_END: &str = "://";

/// The path of a webhook, and, in records, the password in `scheme://user:password@host`.
pub(super) fn find_in_urls(text: &str, level: Redaction, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let in_word = |b: u8| !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`');
    let in_host = |b: u8| in_word(b) && !matches!(b, b'/' | b'?' | b'#');
    let mut webhook_end = 0;
    for scheme_end in memchr::memmem::find_iter(bytes, SCHEME_END) {
        let start = scheme_end + SCHEME_END.len();
        let host_end = skip(bytes, start, in_host);
        for (host, path) in WEBHOOKS {
            if text[start..host_end].ends_with(host) && text[host_end..].starts_with(path) {
                let secret = host_end + path.len();
                // One within another is part of it already.
                if secret >= webhook_end {
                    webhook_end = skip(bytes, secret, |b| in_word(b) && b != b'\\');
                    secrets.push(secret..webhook_end);
                }
            }
        }
        if level == Redaction::Prompts {
            continue;
        }
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

/// What is shorter is no key.
const OPAQUE_BYTES_MIN: usize = 32;

/// What stands between words.
const ENDS_WORD: Bytes = Bytes::of(b" \t\n\r\x0c\"'`=:,;()[]{}<>|");

/// Long strings without sense, which are keys more often than not.
pub(super) fn find_opaque(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for word in long_words(bytes) {
        let is_url = text[word.clone()].starts_with(&SCHEME_END[1..]);
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
            let run = word_start(bytes, word.start + run.start)..word.start + run.end;
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

/// Hashes of packages, and the beginnings of PNG, GIF, WebP, JPEG, SVG and XML in base64.
const PUBLIC_PREFIXES: [&str; 9] = [
    "sha256-",
    "sha384-",
    "sha512-",
    "iVBORw0KGgo",
    "R0lGOD",
    "UklGR",
    "/9j/",
    "PHN2Zy",
    "PD94bWw",
];

/// Tells random characters from names by how often letters, digits and cases alternate: in names
/// they come in groups.
fn is_opaque(run: &str) -> bool {
    if PUBLIC_PREFIXES.iter().any(|prefix| run.starts_with(prefix)) {
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
