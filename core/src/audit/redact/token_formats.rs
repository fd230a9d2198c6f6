//! Owns the formats of secrets that are known without a name: keys of services by their prefixes or by what stands in
//! them, web tokens, private keys. Part of redaction. Never looks at names.

use std::ops::Range;

use super::{Bytes, skip, skip_back};

/// Adds the ranges of `text` that are keys.
pub(super) fn find(text: &str, secrets: &mut Vec<Range<usize>>) {
    find_private_keys(text, secrets);
    find_formats(text.as_bytes(), secrets);
    find_discord_tokens(text.as_bytes(), secrets);
}

/// Private keys in PEM form; one that is cut off goes to the end of the text, or of the string that it stands in.
fn find_private_keys(text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut done = 0;
    // Behind the last end none is looked for: many beginnings without an end must not be slow.
    let last_end = memchr::memmem::rfind(text.as_bytes(), b"-----END ").unwrap_or(0);
    for start in memchr::memmem::find_iter(text.as_bytes(), "-----BEGIN ") {
        let kind = text[start + "-----BEGIN ".len()..].split("-----").next().unwrap_or_default();
        let is_private = kind.ends_with("PRIVATE KEY") || kind.ends_with("PRIVATE KEY BLOCK");
        if start < done || !is_private || kind.len() > 64 {
            continue;
        }
        let rest = &text[start..];
        let end = match start < last_end {
            true => rest.find("-----END ").map(|at| at + "-----END ".len()),
            false => None,
        };
        let close = end.and_then(|end| rest[end..].find("-----").map(|at| end + at + 5));
        // No key has a quote in it: there the string ends in which it was cut off.
        done = start + close.or_else(|| rest.find('"')).unwrap_or(rest.len());
        secrets.push(start..done);
    }
}

/// The bytes to look at from `from` on: a text made to be slow must not make us look at all of it
/// from every place in it.
pub(super) fn near(bytes: &[u8], from: usize) -> &[u8] {
    &bytes[..bytes.len().min(from + LOOK_AHEAD_BYTES_MAX)]
}

/// Longer than tokens without a signature are.
const LOOK_AHEAD_BYTES_MAX: usize = 2048;

type TokenFormat = (usize, fn(u8) -> bool, &'static [&'static str]);

/// The formats of keys that can be told by their beginning, which is one of the prefixes: how many bytes follow at
/// least, and which. A digit is always among them, or letters of both cases. A format that is to be redacted, too, is one more prefix here.
const FORMATS: [TokenFormat; 21] = [
    (
        16,
        is_token_byte,
        &["sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "ya29."],
    ),
    (16, is_token_byte, &["glpat-", "gldt-", "glrt-", "glptt-", "glsoat-", "glft-", "gloas-"]),
    (
        16,
        is_token_byte,
        &["glcbt-", "glimt-", "glagent-", "glffct-", "GR1348941", "tskey-", "tvly-"],
    ),
    (16, is_token_byte, &["hvs.", "hvb.", "hvr.", "sq0atp-", "sq0csp-", "sb_secret_", "GOCSPX-"]),
    (16, is_token_byte, &["NRAK-", "NRII-", "NRJS-", "dckr_pat_", "dckr_oat_"]),
    (20, is_token_byte, &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"]),
    (
        10,
        is_token_byte,
        &["xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxp-", "xoxr-", "xoxs-", "xapp-"],
    ),
    (12, is_alphanumeric, &["LTAI"]),
    (16, is_upper_or_digit, &["AKIA", "ASIA", "ABIA", "ACCA"]),
    (20, is_alphanumeric, &["fw_", "rnd_", "vcp_", "ak-", "as-"]),
    (27, is_alphanumeric, &["BSA"]),
    (36, |b| is_upper_or_digit(b) || b == b'_', &["pk_"]),
    (20, is_upper_or_digit, &["AGE-SECRET-KEY-1"]),
    (30, |b| is_upper_or_digit(b) || b == b'-', &["A3-"]),
    (
        30,
        is_alphanumeric,
        &[
            "npm_",
            "hf_",
            "gsk_",
            "r8_",
            "pplx-",
            "xai-",
            "csk-",
            "jina_",
            "llx-",
            "nfp_",
            "cio",
            "lin_api_",
            "lin_oauth_",
            "ntn_",
            "secret_",
            "phx_",
            "AKCp",
            "CLOJARS_",
            "pnu_",
            "oy2",
        ],
    ),
    (
        30,
        is_token_byte,
        &[
            "AIza",
            "pypi-",
            "tgp_v1_",
            "nvapi-",
            "pcsk_",
            "lsv2_pt_",
            "lsv2_sk_",
            "figd_",
            "tfp_",
            "CFPAT-",
            "PMAK-",
            "HRKU-",
            "pscale_tkn_",
            "pscale_pw_",
            "pscale_oauth_",
            "sha256~",
            "glsa_",
            "CCIPAT_",
            "sgp_",
            "xkeysib-",
            "xsmtpsib-",
            "1//0",
            "ATATT3",
            "ATCTT3",
        ],
    ),
    (57, is_token_byte, &["EAA", "mfa.", "v1.0-"]),
    (
        32,
        |b| b.is_ascii_hexdigit(),
        &[
            "fc-",
            "key-",
            "dapi",
            "shpat_",
            "shpss_",
            "shpca_",
            "shppa_",
            "rubygems_",
            "dop_v1_",
            "doo_v1_",
            "dor_v1_",
            "sbp_",
            "sbp_oauth_",
            "shippo_live_",
            "shippo_test_",
            "e2b_",
            "bkua_",
            "sqp_",
            "squ_",
            "sqa_",
            "pul-",
        ],
    ),
    (
        36,
        |b| b.is_ascii_hexdigit() || b == b'-',
        &[
            "pat-na1-",
            "pat-eu1-",
            "sdk-",
            "access-production-",
            "access-development-",
            "access-sandbox-",
        ],
    ),
    (40, is_base64, &["ABSK", "fm2_", "fo1_", "sntrys_", "sntryu_", "glc_", "ops_eyJ"]),
    (
        40,
        |b| is_token_byte(b) || b == b'.',
        &[
            "SG.",
            "snyk_uat.",
            "dt0c01.",
            "dp.pt.",
            "dp.st.",
            "dp.ct.",
            "dp.sa.",
            "dp.scim.",
            "dp.audit.",
        ],
    ),
];

/// A format that is told by what stands inside of it.
struct InnerMark {
    mark: &'static str,
    /// Which bytes stand before it, and how many.
    before: (fn(u8) -> bool, std::ops::RangeInclusive<usize>),
    /// Which bytes follow it, and how many at least.
    after: (fn(u8) -> bool, usize),
}

/// Bots of Telegram, applications of Azure, Terraform Cloud, Mailchimp.
const INNER_MARKS: [InnerMark; 5] = [
    InnerMark { mark: ":AA", before: (is_digit, 8..=10), after: (is_token_byte, 30) },
    InnerMark { mark: "7Q~", before: (is_azure, 3..=3), after: (is_azure, 31) },
    InnerMark { mark: "8Q~", before: (is_azure, 3..=3), after: (is_azure, 31) },
    InnerMark { mark: ".atlasv1.", before: (is_alphanumeric, 14..=14), after: (is_token_byte, 50) },
    InnerMark { mark: "-us", before: (is_lower_hex, 32..=32), after: (is_digit, 1) },
];

/// What a key begins with or is told by. Few places of a text are in it, and all of the log of a session comes through
/// here.
struct Beginnings {
    /// The first three bytes, as a set over the last five bits of each.
    triples: [u64; 512],
    /// For each first byte, which of the formats have a prefix with it.
    formats: [u32; 256],
}

static BEGINNINGS: Beginnings = {
    let mut all = Beginnings { triples: [0; 512], formats: [0; 256] }.with(b"eyJ");
    let (mut at, mut of_format) = (0, 0);
    while at < FORMATS.len() {
        let prefixes = FORMATS[at].2;
        if of_format == prefixes.len() {
            (at, of_format) = (at + 1, 0);
            continue;
        }
        let prefix = prefixes[of_format].as_bytes();
        all.formats[prefix[0] as usize] |= 1 << at;
        all = all.with(prefix);
        of_format += 1;
    }
    at = 0;
    while at < INNER_MARKS.len() {
        all = all.with(INNER_MARKS[at].mark.as_bytes());
        at += 1;
    }
    all
};

impl Beginnings {
    const fn with(mut self, prefix: &[u8]) -> Self {
        let place = Self::place([prefix[0], prefix[1], prefix[2], 0]);
        self.triples[place >> 6] |= 1 << (place & 63);
        self
    }

    /// Brings the last five bits of the first three bytes together.
    const fn place(four: [u8; 4]) -> usize {
        let bits = u32::from_le_bytes(four);
        (bits & 0x1f | bits >> 3 & 0x3e0 | bits >> 6 & 0x7c00) as usize
    }

    const fn has(&self, four: [u8; 4]) -> bool {
        let place = Self::place(four);
        self.triples[place >> 6] >> (place & 63) & 1 == 1
    }
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    const TOKENS: Bytes = Bytes::of(b"_-").and_alphanumeric();
    TOKENS.has(byte)
}

fn is_base64(byte: u8) -> bool {
    const BASE64: Bytes = Bytes::of(b"_-+/=").and_alphanumeric();
    BASE64.has(byte)
}

fn is_azure(byte: u8) -> bool {
    is_token_byte(byte) || matches!(byte, b'~' | b'.')
}

const fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'a'..=b'f')
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn find_formats(bytes: &[u8], secrets: &mut Vec<Range<usize>>) {
    let mut done = 0;
    // No key is shorter than that.
    for (start, four) in bytes.windows(4).enumerate() {
        if !BEGINNINGS.has([four[0], four[1], four[2], four[3]]) || start < done {
            continue;
        }
        if let Some(key) = key_from(bytes, start).or_else(|| key_around(bytes, start)) {
            done = key.end;
            secrets.push(key);
        }
    }
}

/// The key that begins here.
fn key_from(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    if !begins_word(bytes, start) {
        return None;
    }
    if is_web_token(near(&bytes[start..], 0)) {
        return Some(start..skip(bytes, start, |b| is_token_byte(b) || b == b'.'));
    }
    let formats = BEGINNINGS.formats[usize::from(bytes[start])];
    let formats = FORMATS.iter().enumerate().filter(|(at, _)| formats >> at & 1 == 1);
    for (_, (rest_len_min, is_rest, prefixes)) in formats {
        // Most differ in the second byte.
        let begins = |prefix: &&&str| {
            let prefix = prefix.as_bytes();
            prefix[1] == bytes[start + 1] && bytes[start..].starts_with(prefix)
        };
        for prefix in prefixes.iter().filter(begins) {
            let rest = start + prefix.len();
            let end = skip(near(bytes, rest), rest, is_rest);
            // `sk-learn-pipeline-runner` is a name.
            let has = |is_it: fn(&u8) -> bool| bytes[rest..end].iter().any(is_it);
            let is_mixed = || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
            if end - rest >= *rest_len_min && (has(u8::is_ascii_digit) || is_mixed()) {
                return Some(start..skip(bytes, rest, is_rest));
            }
        }
    }
    None
}

/// The key that is told by what stands here.
fn key_around(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let is_here = |inner: &&InnerMark| {
        let mark = inner.mark.as_bytes();
        mark[0] == bytes[at] && bytes[at..].starts_with(mark)
    };
    let inner = INNER_MARKS.iter().find(is_here)?;
    let ((is_before, lens), (is_after, after_len_min)) = (&inner.before, &inner.after);
    let is_begin = |begin: &usize| {
        let is_whole = *begin == 0 || !is_before(bytes[begin - 1]) || begins_word(bytes, *begin);
        is_whole && bytes[*begin..at].iter().all(|byte| is_before(*byte))
    };
    let begin = lens.clone().rev().filter_map(|len| at.checked_sub(len)).find(is_begin)?;
    let after = at + inner.mark.len();
    let end = skip(near(bytes, after), after, is_after);
    (end - after >= *after_len_min).then(|| begin..skip(bytes, after, is_after))
}

/// Tokens of bots of Discord: an id in base64 that begins with `M`, `N` or `O`, a time and a signature.
fn find_discord_tokens(bytes: &[u8], secrets: &mut Vec<Range<usize>>) {
    const ID_BYTES_MAX: usize = 28;
    for dot in memchr::memchr_iter(b'.', bytes) {
        if bytes.get(dot + 7) != Some(&b'.') {
            continue;
        }
        let nearest = dot.saturating_sub(ID_BYTES_MAX);
        let begin = nearest + skip_back(&bytes[nearest..dot], dot - nearest, is_token_byte);
        let begin = word_start(bytes, begin);
        let signature = dot + 8;
        let end = skip(near(bytes, signature), signature, is_token_byte);
        let is_id = dot - begin >= 23 && matches!(bytes[begin], b'M' | b'N' | b'O');
        if is_id
            && bytes[dot + 1..dot + 7].iter().all(|b| is_token_byte(*b))
            && end - signature >= 27
        {
            secrets.push(begin..end);
        }
    }
}

/// Whether a word begins here. Keys stand in JSON (`\nghp_…`), in URLs (`%3Dghp_…`) and in colours (`ESC[31mghp_…`), where
/// a letter or a digit that is part of an escape sequence comes before them.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let before = |count: usize| at.checked_sub(count).map(|at| bytes[at]);
    match before(1) {
        None => true,
        Some(byte) if !byte.is_ascii_alphanumeric() => true,
        Some(b'n' | b't' | b'r' | b'b' | b'f') if before(2) == Some(b'\\') => true,
        Some(b'm') => {
            let numbers = &bytes[at.saturating_sub(COLOUR_BYTES_MAX)..at - 1];
            let begin = skip_back(numbers, numbers.len(), is_colour);
            begin > 0 && numbers[begin - 1] == b'['
        }
        Some(_) => before(3) == Some(b'%') || (before(6), before(5)) == (Some(b'\\'), Some(b'u')),
    }
}

/// Where the word begins that seems to begin at `at`: after what is still part of an escape sequence.
pub(super) fn word_start(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..bytes.len().min(at + COLOUR_BYTES_MAX)];
    let is_hex = |hex: Option<&[u8]>| hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    let escape_len = match (at.checked_sub(1).map(|before| bytes[before]), rest.first()) {
        (Some(b'\\'), Some(b'n' | b't' | b'r' | b'b' | b'f')) => 1,
        (Some(b'\\'), Some(b'u')) if is_hex(rest.get(1..5)) => 5,
        (Some(b'%'), Some(_)) if is_hex(rest.get(..2)) => 2,
        (Some(b'[' | b';'), Some(_)) => {
            let end = skip(rest, 0, is_colour);
            if rest.get(end) == Some(&b'm') { end + 1 } else { 0 }
        }
        _ => 0,
    };
    at + escape_len
}

/// Longer than the numbers of a colour are.
pub(super) const COLOUR_BYTES_MAX: usize = 20;

pub(super) const fn is_colour(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b';'
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
