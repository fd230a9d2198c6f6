//! Just enough JSON to find members of an object and to leave everything else as it is.
//!
//! Works on bytes and gives ranges into them. Strings are skipped with two needles, numbers and
//! words are not looked into: a payload of ten megabytes costs one pass and no allocation. The pass
//! always goes to the end, also where all that matters stood at the beginning: half an object must
//! not be taken for a whole one, and the last of two members with one key counts.

use std::borrow::Cow;
use std::ops::Range;

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonMember {
    /// The key, with its quotes.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// The members of an object: raw key (quotes included) and the range of the value.
///
/// `None` where the bytes are no object. Nested values are skipped, not checked.
pub fn members(bytes: &[u8]) -> Option<Vec<JsonMember>> {
    let mut found = Vec::new();
    each_member(bytes, |member| found.push(member))?;
    Some(found)
}

/// Shows each member of an object, without collecting them.
///
/// `None` where the bytes are no object; what was shown before that is worth nothing.
pub fn each_member(bytes: &[u8], mut show: impl FnMut(JsonMember)) -> Option<()> {
    skip_whole_object(bytes, |key, start| {
        let end = skip_value(bytes, start)?;
        show(JsonMember { key, value: start..end });
        Some(end)
    })
}

/// As `skip_object`, for bytes that have to be an object from the first to the last.
pub(super) fn skip_whole_object(
    bytes: &[u8],
    skip: impl FnMut(Range<usize>, usize) -> Option<usize>,
) -> Option<()> {
    let end = skip_object(bytes, skip_blank(bytes, 0), skip)?;
    ends(bytes, end).then_some(())
}

/// The elements of an array; `None` where the bytes are none.
pub fn elements(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    each_element(bytes, |element| found.push(element))?;
    Some(found)
}

/// Shows each element of an array, without collecting them: a short text has very many, and the list of their places is
/// longer than the text.
///
/// `None` where the bytes are no array; what was shown before that is worth nothing.
pub fn each_element(bytes: &[u8], mut show: impl FnMut(Range<usize>)) -> Option<()> {
    let mut at = skip_blank(bytes, 0);
    if bytes.get(at) != Some(&b'[') {
        return None;
    }
    at = skip_blank(bytes, at + 1);
    if bytes.get(at) == Some(&b']') {
        return ends(bytes, at + 1).then_some(());
    }
    loop {
        let value = at..skip_value(bytes, at)?;
        at = skip_blank(bytes, value.end);
        show(value);
        match bytes.get(at) {
            Some(b',') => at = skip_blank(bytes, at + 1),
            Some(b']') => return ends(bytes, at + 1).then_some(()),
            _ => return None,
        }
    }
}

/// The value of a member, by a path of keys; keys with escapes in them are not found.
pub fn get<'a>(bytes: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    let (end, found) = find(bytes, skip_blank(bytes, 0), path)?;
    ends(bytes, end).then_some(())?;
    found.map(|value| &bytes[value])
}

/// The end of the object that begins at `at`, and where in it the value at a path stands: in one pass,
/// however long the path is.
fn find(bytes: &[u8], at: usize, path: &[&str]) -> Option<(usize, Option<Range<usize>>)> {
    let (key, further) = path.split_first()?;
    let mut found = None;
    let end = skip_object(bytes, at, |raw, start| {
        if !is_key(&bytes[raw], key) {
            return skip_value(bytes, start);
        }
        // Where a key stands twice, the last counts, as it does for most readers.
        if further.is_empty() {
            let end = skip_value(bytes, start)?;
            found = Some(start..end);
            return Some(end);
        }
        if bytes.get(start) != Some(&b'{') {
            found = None;
            return skip_value(bytes, start);
        }
        let (end, inner) = find(bytes, start, further)?;
        found = inner;
        Some(end)
    })?;
    Some((end, found))
}

/// Where a part of these bytes stands in them.
pub fn place(bytes: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
    start..start + part.len()
}

/// A value in full; null where there is none, or it cannot be read.
pub(crate) fn value(bytes: Option<&[u8]>) -> serde_json::Value {
    bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// The text of a string value; `None` for anything else.
pub fn text(bytes: &[u8]) -> Option<String> {
    read_text(bytes).map(Cow::into_owned)
}

/// The same, without a copy where none is needed.
pub fn read_text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match plain(bytes) {
        Some(text) => Some(Cow::Borrowed(text)),
        None => serde_json::from_slice(bytes).ok().map(Cow::Owned),
    }
}

/// The text of a string value that stands there as it is, as most do; `None` where it has escapes, or
/// is no string.
fn plain(bytes: &[u8]) -> Option<&str> {
    let inside = bytes.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1f);
    inside.iter().all(is_plain).then(|| std::str::from_utf8(inside).ok())?
}

/// Makes one line of a message that has several: what ends a line can only stand between values, inside of one it
/// is escaped.
pub fn flatten(bytes: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &bytes[from..]) {
        bytes[from + at] = b' ';
        from += at + 1;
    }
}

/// Whether bytes are one value of JSON that all parsers read alike: without anything odd inside, in UTF-8, and with no
/// more brackets in one another than given.
pub fn is_sound(bytes: &[u8], depth_max: usize) -> bool {
    is_valid(bytes) && depth(bytes) <= depth_max
}

/// Whether bytes are one value of JSON, in UTF-8. The other functions here only look for what they need, and take much
/// that is none.
pub fn is_valid(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

/// How many brackets are open at once in a value.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut next) = (0_usize, 0, 0);
    while let Some(at) = bytes[next..].iter().position(|byte| MATTERS[usize::from(*byte)]) {
        next += at;
        match bytes[next] {
            b'"' => {
                next = skip_string(bytes, next).unwrap_or(bytes.len());
                continue;
            }
            b'{' | b'[' => depth += 1,
            _ => depth = depth.saturating_sub(1),
        }
        deepest = deepest.max(depth);
        next += 1;
    }
    deepest
}

/// Whether a parser may take a raw key for this one: it is written with escapes, or in another case.
pub fn reads_as(raw: &[u8], key: &str) -> bool {
    is_key(raw, key) || read_text(raw).is_some_and(|text| text.eq_ignore_ascii_case(key))
}

/// A raw key with its quotes, without escapes; as it stands there where it cannot be decoded.
pub(super) fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    match raw.contains(&b'\\').then(|| text(raw)).flatten() {
        Some(text) => Cow::Owned(format!("\"{text}\"").into_bytes()),
        None => Cow::Borrowed(raw),
    }
}

/// Whether a raw key is this one, as it stands there.
pub(crate) fn is_key(raw: &[u8], key: &str) -> bool {
    raw.len() == key.len() + 2 && &raw[1..raw.len() - 1] == key.as_bytes()
}

fn ends(bytes: &[u8], at: usize) -> bool {
    skip_blank(bytes, at) == bytes.len()
}

pub(super) fn skip_blank(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count()
}

/// The end of the string that begins at `at`.
fn skip_string(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut next = at + 1;
    loop {
        let rest = bytes.get(next..)?;
        // Most strings are keys and other short ones: for these the search by vectors does not pay.
        let near = rest.iter().take(NEAR).position(|byte| matches!(byte, b'"' | b'\\'));
        next += match near {
            Some(near) => near,
            None => NEAR + memchr::memchr2(b'"', b'\\', rest.get(NEAR..)?)?,
        };
        match bytes[next] {
            b'"' => return Some(next + 1),
            _ => next += 2,
        }
    }
}

/// How far a string is looked through byte by byte.
const NEAR: usize = 16;

/// The end of the value that begins at `at`.
pub(super) fn skip_value(bytes: &[u8], at: usize) -> Option<usize> {
    skip_measured(bytes, at).map(|(end, _)| end)
}

/// The end of the value that begins at `at`, and how many brackets are open at once in it.
pub(super) fn skip_measured(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    match bytes.get(at)? {
        b'"' => skip_string(bytes, at).map(|end| (end, 0)),
        b'{' | b'[' => skip_nested(bytes, at),
        _ => {
            let rest = &bytes[at..];
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let length = rest.iter().position(ends).unwrap_or(rest.len());
            let plain = rest[..length]
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
            (length > 0 && plain).then_some((at + length, 0))
        }
    }
}

/// The end of the object that begins at `at`. `skip` is given each key and the place where its value
/// begins, and says where that ends.
pub(super) fn skip_object(
    bytes: &[u8],
    at: usize,
    mut skip: impl FnMut(Range<usize>, usize) -> Option<usize>,
) -> Option<usize> {
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    let mut at = skip_blank(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        let key = at..skip_string(bytes, at)?;
        at = skip_blank(bytes, key.end);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = skip(key, skip_blank(bytes, at + 1))?;
        at = skip_blank(bytes, at);
        match bytes.get(at) {
            Some(b',') => at = skip_blank(bytes, at + 1),
            Some(b'}') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// The end of the object or array that begins at `at`, and how many brackets are open at once in it.
fn skip_nested(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut next = at;
    loop {
        next += bytes.get(next..)?.iter().position(|byte| MATTERS[usize::from(*byte)])?;
        match bytes[next] {
            b'"' => {
                next = skip_string(bytes, next)?;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            _ => {
                depth -= 1;
                if depth == 0 {
                    return Some((next + 1, deepest));
                }
            }
        }
        next += 1;
    }
}

/// The bytes that begin or end something; all others are passed over.
const MATTERS: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_whatever_is_around_them() {
        let text = br#" { "a" : {"b":[1,{"c":"}\"]"}]}, "id":7,"e\"":null ,"x":-1.5e3} "#;
        assert_eq!(get(text, &["id"]), Some(&b"7"[..]));
        assert_eq!(get(text, &["a", "b"]), Some(&br#"[1,{"c":"}\"]"}]"#[..]));
        assert_eq!(get(text, &["x"]), Some(&b"-1.5e3"[..]));
        assert_eq!(get(text, &["y"]), None);
        assert_eq!(get(text, &["id", "z"]), None);
        assert_eq!(get(br#"{"id":1,"id":2}"#, &["id"]), Some(&b"2"[..]));
        assert_eq!(elements(b" [1, \"a\" ,{}] ").map(|all| all.len()), Some(3));
        assert_eq!(skip_measured(br#"{"a":[[1],"[[[["]} "#, 0), Some((18, 3)));
        assert_eq!(members(b"{}").map(|all| all.len()), Some(0));
    }

    #[test]
    fn what_others_cannot_read_is_not_sound() {
        for fine in [r#"{"a":["[[[",{"b":1.50}],"é\ud800":null}"#, "[[[]]]", "7", "\"\""] {
            assert!(is_sound(fine.as_bytes(), 3), "{fine}");
        }
        for bad in ["", "{a:1}", "[1 2]", "[01]", r#"["\q"]"#, "[\"\n\"]", "[[[[]]]]", "1 2"] {
            assert!(!is_sound(bad.as_bytes(), 3), "{bad}");
        }
        assert!(!is_sound(b"[\"\xff\"]", 3) && !is_sound(b"[\"\xed\xa0\x80\"]", 3));
        assert!(reads_as(br#""name""#, "name") && reads_as(br#""n\u0061m\u0065""#, "name"));
        assert!(reads_as(br#""Name""#, "name") && reads_as(br#""N\u0041me""#, "name"));
        assert!(!reads_as(br#""names""#, "name") && !reads_as(br#""n\u0061mes""#, "name"));
    }

    #[test]
    fn what_is_no_object_is_none() {
        let bad: [&[u8]; 14] = [
            b"",
            b"{",
            b"}",
            b"[]",
            b"7",
            b"{\"a\"}",
            b"{\"a\":}",
            b"{\"a\":1,}",
            b"{\"a\":1}x",
            b"{a:1}",
            b"{\"a\":\"}",
            b"{\"a\":\"\\",
            b"{\"a\":[}",
            b"\xff\xfe",
        ];
        for bytes in bad {
            assert_eq!(members(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_what_serde_reads_is_read() {
        let seeds: [&[u8]; 3] = [
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2,"]}"]}}}"#,
            br#"{"result":{"content":[{"type":"text","text":"\\\"\u00e9"}]},"id":"s","jsonrpc":"2.0"}"#,
            br#"[{"id":1},{"id":2}]"#,
        ];
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..60_000 {
            let mut bytes = seeds[round % seeds.len()].to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = b"{}[]\",:\\ 0a"[random(11)],
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, b"{}[]\",:\\ 0a"[random(11)]),
                }
            }
            let ours = members(&bytes);
            elements(&bytes);
            if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&bytes) {
                let ours = ours.expect("serde reads it");
                for member in ours {
                    let key = text(&bytes[member.key]).expect("a key");
                    assert!(object.contains_key(&key));
                }
            }
        }
    }
}
