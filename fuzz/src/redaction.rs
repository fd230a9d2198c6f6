//! Fuzzes redaction: a planted secret never comes out, what stands around the marks is the text in its order, and a
//! second time brings nothing back. It may take out more: a mark in a value can make that longer than a count is.

use afresh_core::audit::redact::{KnownSecrets, MARK, Redaction, redact_args, redact_text};

use crate::input::first;
use crate::is_planted;

/// Tokens that are known by their own look. None is real.
const TOKENS: [&str; 6] = [
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123",
    "xoxb-123456789012-abcdefghijkl",
    "AKIAABCDEFGHIJKLMN07",
    "glpat-abcdefghij0123456789",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
];

/// The value of a variable whose name says that it is a secret: no format gives it away.
const VALUE: &str = "open sesame";

pub fn check(data: &[u8]) {
    let Some((choice, rest)) = first(data) else { return };
    let text = String::from_utf8_lossy(rest);
    // The fuzzer learns the tokens, and puts them where they are no words of their own.
    if TOKENS.iter().any(|token| text.contains(token)) {
        return;
    }
    let once = redact_text(&text).into_owned();
    assert!(only_removes(&text, &once), "{once:?} of {text:?}");
    assert!(only_removes(&once, &redact_text(&once)), "of {once:?}");
    let token = TOKENS[usize::from(choice) % TOKENS.len()];
    let at = text.floor_char_boundary(usize::from(choice) * text.len() / 256);
    // A token is a word of its own: letters before it would make it another word.
    let with_token = format!("{} {token} {}", &text[..at], &text[at..]);
    let mut redacted = redact_text(&with_token).into_owned();
    if is_planted() && text.contains("://") && text[..at].ends_with('@') {
        redacted.push_str(token);
    }
    assert!(!redacted.contains(token), "{redacted:?}");
    assert!(redacted.contains(MARK));
    let with_value = format!("{}{VALUE}{}", &text[..at], &text[at..]);
    for level in [Redaction::Records, Redaction::Prompts] {
        let known = KnownSecrets::of([("API_KEY", VALUE)]);
        let redacted = known.redact(&with_value, level).into_owned();
        assert!(!redacted.contains(VALUE), "{redacted:?}");
    }
    let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let redacted = redact_args(&args);
    assert_eq!(redacted.len(), args.len(), "an argument stays an argument");
    for (arg, redacted) in args.iter().zip(&redacted) {
        assert!(only_removes(arg, redacted), "{redacted:?} of {arg:?}");
    }
}

/// Whether all that stands around the marks is there in the text, in the same order.
fn only_removes(text: &str, redacted: &str) -> bool {
    let mut rest = text;
    let mut parts = redacted.split(MARK);
    let first = parts.next().unwrap_or_default();
    let Some(behind) = rest.strip_prefix(first) else { return false };
    rest = behind;
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
