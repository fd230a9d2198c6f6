//! Secrets that can be told by their looks, under whatever name they stand.

use std::ops::Range;

use super::{runs, skip};

/// Adds the ranges of `text` that look like secrets.
pub(super) fn find(text: &str, secrets: &mut Vec<Range<usize>>) {
    find_url_passwords(text, secrets);
    find_private_keys(text, secrets);
    find_shapes(text, secrets);
    find_opaque(text, secrets);
}

/// The password in `scheme://user:password@host`.
fn find_url_passwords(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for (scheme_end, mark) in text.match_indices("://") {
        let start = scheme_end + mark.len();
        let word_end = skip(bytes, start, |b| {
            !b.is_ascii_whitespace() && !matches!(b, b'"' | b'\'' | b'`')
        });
        let host_end = skip(&bytes[..word_end], start, |b| {
            !matches!(b, b'/' | b'?' | b'#')
        });
        let Some(colon) = text[start..host_end].find(':').map(|at| start + at + 1) else {
            continue;
        };
        // A `/` in a password should have been escaped; after a port it can't be one.
        let is_port = bytes[colon..host_end].iter().all(u8::is_ascii_digit);
        let in_authority = text[colon..host_end].rfind('@');
        let in_word = text[colon..word_end].rfind('@').filter(|_| !is_port);
        if let Some(at) = in_authority.or(in_word).filter(|at| *at > 0) {
            secrets.push(colon..colon + at);
        }
    }
}

/// Private keys in PEM form; one that is cut off goes to the end of the text.
fn find_private_keys(text: &str, secrets: &mut Vec<Range<usize>>) {
    for (start, _) in text.match_indices("-----BEGIN ") {
        let header = &text[start..];
        let first_line = &header[..header.find(['\n', '\\']).unwrap_or(header.len())];
        if first_line.contains("PRIVATE KEY") {
            let end = header.find("-----END ").map(|at| at + "-----END ".len());
            let close = end.and_then(|end| header[end..].find("-----").map(|at| end + at + 5));
            secrets.push(start..start + close.unwrap_or(header.len()));
        }
    }
}

/// A kind of token that can be told by its beginning.
struct Shape(&'static str, usize, fn(u8) -> bool);

const SHAPES: [Shape; 28] = [
    Shape("sk-", 16, is_token_byte),
    Shape("sk_live_", 16, is_token_byte),
    Shape("sk_test_", 16, is_token_byte),
    Shape("rk_live_", 16, is_token_byte),
    Shape("whsec_", 16, is_token_byte),
    Shape("ghp_", 20, is_token_byte),
    Shape("gho_", 20, is_token_byte),
    Shape("ghu_", 20, is_token_byte),
    Shape("ghs_", 20, is_token_byte),
    Shape("ghr_", 20, is_token_byte),
    Shape("github_pat_", 20, is_token_byte),
    Shape("glpat-", 16, is_token_byte),
    Shape("xoxa-", 10, is_token_byte),
    Shape("xoxb-", 10, is_token_byte),
    Shape("xoxe-", 10, is_token_byte),
    Shape("xoxp-", 10, is_token_byte),
    Shape("xoxr-", 10, is_token_byte),
    Shape("xoxs-", 10, is_token_byte),
    Shape("xapp-", 10, is_token_byte),
    Shape("AKIA", 16, is_upper_or_digit),
    Shape("ASIA", 16, is_upper_or_digit),
    Shape("AIza", 30, is_token_byte),
    Shape("npm_", 30, |b| b.is_ascii_alphanumeric()),
    Shape("pypi-", 32, is_token_byte),
    Shape("hf_", 30, |b| b.is_ascii_alphanumeric()),
    Shape("gsk_", 30, |b| b.is_ascii_alphanumeric()),
    Shape("ya29.", 16, is_token_byte),
    Shape("AGE-SECRET-KEY-1", 20, is_upper_or_digit),
];

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn find_shapes(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    for start in 0..bytes.len() {
        if start > 0 && bytes[start - 1].is_ascii_alphanumeric() {
            continue;
        }
        for Shape(prefix, rest_len_min, is_rest) in &SHAPES {
            if bytes[start..].starts_with(prefix.as_bytes()) {
                let rest = start + prefix.len();
                let end = skip(bytes, rest, is_rest);
                // `sk-learn-pipeline-runner` is a name.
                if end - rest >= *rest_len_min && bytes[rest..end].iter().any(u8::is_ascii_digit) {
                    secrets.push(start..end);
                }
            }
        }
        // A JSON web token: three parts, the first of which is an object in base64.
        if bytes[start..].starts_with(b"eyJ") {
            let end = skip(bytes, start, |b| is_token_byte(b) || b == b'.');
            if bytes[start..end].iter().filter(|b| **b == b'.').count() >= 2 && end - start >= 24 {
                secrets.push(start..end);
            }
        }
    }
}

/// Long strings without sense, which are keys more often than not.
fn find_opaque(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let ends_word = |b: u8| b.is_ascii_whitespace() || b"\"'`=:,;()[]{}<>|".contains(&b);
    for word in runs(text, |b| !ends_word(b)) {
        let is_url = text[word.clone()].starts_with("//");
        if !is_url && matches!(bytes[word.start], b'/' | b'\\' | b'~' | b'.') {
            continue; // A path.
        }
        // Image digests and package hashes are public.
        let before = &text[..word.start];
        if ["sha1:", "sha256:", "sha512:"]
            .iter()
            .any(|hash| before.ends_with(hash))
        {
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

/// Tells random characters from names by how often letters, digits and cases alternate: in names
/// they come in groups.
fn is_opaque(run: &str) -> bool {
    if ["sha256-", "sha384-", "sha512-"]
        .iter()
        .any(|hash| run.starts_with(hash))
    {
        return false;
    }
    // A git hash, alone or at the end of a name, is none; nor is a UUID, whose parts are short.
    let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = || run.split(['-', '_', '/', '+']);
    if parts().all(|part| is_hex(part) && part.len() <= 12) {
        return false;
    }
    let kept: Vec<&str> = parts()
        .filter(|part| !(is_hex(part) && part.len() == 40))
        .collect();
    let len: usize = kept.iter().map(|part| part.len()).sum();
    let digits = kept
        .iter()
        .flat_map(|part| part.bytes())
        .filter(u8::is_ascii_digit)
        .count();
    if len < 30 || digits < 2 || run.len() < 32 {
        return false;
    }
    let alternations: usize = kept
        .iter()
        .map(|part| {
            part.as_bytes()
                .windows(2)
                .filter(|pair| alternates(pair[0], pair[1]))
                .count()
        })
        .sum();
    alternations * 9 >= len * 2
}

/// An upper case letter before a lower case one begins a word, and does not count.
fn alternates(first: u8, second: u8) -> bool {
    first.is_ascii_digit() != second.is_ascii_digit()
        || (first.is_ascii_lowercase() && second.is_ascii_uppercase())
}
