//! Reads the envelope of a JSON-RPC message: its kind, its id and its method. The payload stays raw.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::json::{self, get};

/// An id as raw JSON: `7`, `"a"`. 7 and "7" are two ids; `"\u0061"` and `"a"`, or `7.0` and `7`, are one,
/// because a peer may well give back the other form.
#[derive(Clone, PartialEq, Eq)]
pub struct Id(Raw);

/// Most ids are short numbers: they need no memory of their own. An id has one form alone, so that forms are compared.
#[derive(Clone, PartialEq, Eq)]
enum Raw {
    Short { length: u8, bytes: [u8; SHORT_BYTES] },
    Long(Box<[u8]>),
}

/// What is left beside the length and the tag, in the room that the other form takes anyway.
const SHORT_BYTES: usize = 22;

impl Id {
    /// The id of this raw JSON.
    pub fn new(raw: &[u8]) -> Self {
        match plain(raw) {
            Some(plain) => Self::of(plain.as_bytes()),
            None => Self::of(raw),
        }
    }

    /// The same, for bytes that a peer sent. `None` where they are no JSON: an id stands in answers as it came, and
    /// no answer may be broken by it.
    fn checked(raw: &[u8]) -> Option<Self> {
        json::is_sound(raw, usize::MAX).then(|| Self::new(raw))
    }

    fn of(raw: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match (bytes.get_mut(..raw.len()), u8::try_from(raw.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(raw);
                Self(Raw::Short { length, bytes })
            }
            _ => Self(Raw::Long(raw.into())),
        }
    }

    /// The raw JSON, in its plainest form.
    pub fn raw(&self) -> &[u8] {
        match &self.0 {
            Raw::Short { length, bytes } => &bytes[..usize::from(*length)],
            Raw::Long(bytes) => bytes,
        }
    }

    /// Whether it is a text or a number, as the protocol has it.
    fn is_proper(&self) -> bool {
        matches!(self.raw().first(), Some(b'"' | b'-' | b'0'..=b'9'))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Id {
    fn cmp(&self, other: &Self) -> Ordering {
        self.raw().cmp(other.raw())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", String::from_utf8_lossy(self.raw()))
    }
}

/// A message, looked at from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// What is asked.
        method: String,
        /// What its parameters say that matters to us.
        params: Params,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
    },
    /// Answers a request.
    Response {
        /// Of the request; none in some errors.
        id: Option<Id>,
        /// Whether it is an error.
        is_error: bool,
    },
    /// Several messages in one line.
    Batch,
    /// Wants an answer, but is no request: it has no method, or an id that is neither a text nor a
    /// number.
    Invalid {
        /// Its id.
        id: Id,
    },
}

/// A message with what may keep it from being passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The message.
    pub message: Message,
    /// Whether others may read something else in it: a key that matters stands there twice, in other cases or with
    /// escapes for its letters. Most readers take the last of two and some the first, and some do not tell cases apart.
    /// Not known of a batch.
    pub is_ambiguous: bool,
    /// How many brackets are open at once in it. Not known of a batch.
    pub depth: usize,
}

/// Looks at a line; `None` where it is no JSON-RPC message. One pass finds all that matters. A key with escapes counts
/// where the plain one is missing, so that a request is answered however it is written.
pub fn look(line: &[u8]) -> Option<Message> {
    look_closely(line).map(|inspected| inspected.message)
}

/// The same, with what may keep the message from being passed on.
pub fn look_closely(line: &[u8]) -> Option<Inspected> {
    let [mut plain, mut escaped] = [const { [None; 4] }; 2];
    let (mut params, mut has_params, mut scan) = (Params::default(), false, Scan::default());
    let whole = json::skip_whole_object(line, |key, start| {
        let raw = &line[key];
        let found = if raw.contains(&b'\\') { &mut escaped } else { &mut plain };
        // Where a key stands twice, the last counts.
        let place = match &*json::unescaped(raw) {
            br#""id""# => &mut found[0],
            br#""method""# => &mut found[1],
            br#""result""# => &mut found[2],
            br#""error""# => &mut found[3],
            _ if raw == br#""params""# => {
                scan.is_odd |= std::mem::replace(&mut has_params, true);
                params = Params::default();
                return params.fill(line, start, &mut scan);
            }
            _ => {
                scan.is_odd |= hides(raw, &["id", "method", "params", "result", "error"]);
                return scan.skip(line, start, 1);
            }
        };
        let end = scan.skip(line, start, 1)?;
        scan.is_odd |= place.replace(&line[start..end]).is_some();
        Some(end)
    });
    if whole.is_none() {
        let message = Message::Batch;
        let batch = Inspected { message, is_ambiguous: false, depth: 0 };
        return json::each_element(line, |_| {}).map(|()| batch);
    }
    scan.is_odd |= escaped.iter().any(Option::is_some);
    let [id, method, result, error] = std::array::from_fn(|at| plain[at].or(escaped[at]));
    let id = match id.filter(|raw| *raw != b"null") {
        Some(raw) => Some(Id::checked(raw)?),
        None => None,
    };
    let message = match (method.and_then(json::text), id) {
        (Some(method), Some(id)) if id.is_proper() => Message::Request { id, method, params },
        (Some(_), Some(id)) => Message::Invalid { id },
        (Some(method), None) => Message::Notification { method },
        (None, id) => {
            let is_error = error.is_some();
            match is_error || result.is_some() {
                true => Message::Response { id, is_error },
                false => Message::Invalid { id: id? },
            }
        }
    };
    Some(Inspected { message, is_ambiguous: scan.is_odd, depth: scan.deepest })
}

/// What one pass over a message finds besides its parts.
#[derive(Debug, Default)]
struct Scan {
    is_odd: bool,
    deepest: usize,
}

impl Scan {
    /// The end of the value that begins at `start`, inside of so many brackets.
    fn skip(&mut self, line: &[u8], start: usize, level: usize) -> Option<usize> {
        let (end, depth) = json::skip_measured(line, start)?;
        self.deepest = self.deepest.max(level + depth);
        Some(end)
    }

    /// The same, for a value that matters.
    fn note(
        &mut self,
        place: &mut Option<Range<usize>>,
        line: &[u8],
        start: usize,
        level: usize,
    ) -> Option<usize> {
        let end = self.skip(line, start, level)?;
        self.is_odd |= place.replace(start..end).is_some();
        Some(end)
    }
}

/// The messages of a batch. One that is a batch itself is an error: that is invalid, and would recurse.
pub(crate) fn batched(line: &[u8]) -> impl Iterator<Item = Result<&[u8], &[u8]>> {
    let elements = json::elements(line).unwrap_or_default().into_iter();
    elements.map(|element| match look(&line[element.clone()]) {
        Some(Message::Batch) => Err(&line[element]),
        _ => Ok(&line[element]),
    })
}

/// Whether another parser may take a raw key for one that matters, or letters in it are written with escapes,
/// which no honest peer does.
fn hides(key: &[u8], matter: &[&str]) -> bool {
    let is_one = |text: &str| matter.iter().any(|key| key.eq_ignore_ascii_case(text));
    let is_word =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    json::read_text(key).is_some_and(|text| is_one(&text) || key.contains(&b'\\') && is_word(&text))
}

/// The plainest form of an id that has others; `None` where it stands there already, or has none.
fn plain(raw: &[u8]) -> Option<String> {
    match raw.first()? {
        b'"' if raw.contains(&b'\\') => serde_json::to_string(&json::text(raw)?).ok(),
        b'-' | b'0'..=b'9' if raw == b"-0" || raw.iter().any(|byte| b".eE".contains(byte)) => {
            let number: f64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
            // Beyond this, not every number has a form of its own.
            let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
            is_whole.then(|| format!("{}", number as i64))
        }
        _ => None,
    }
}

/// What the parameters of a request say that matters to us: where it stands in the line, raw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// The `name`.
    pub name: Option<Range<usize>>,
    /// The `task`.
    pub task: Option<Range<usize>>,
    /// The `_meta`.
    pub meta: Option<Range<usize>>,
    /// The `progressToken` in it.
    pub progress_token: Option<Range<usize>>,
    /// The version of the protocol in it, which only the modern era has there.
    pub version: Option<Range<usize>>,
}

impl Params {
    /// Looks into the parameters that begin at `start`, and returns where they end.
    fn fill(&mut self, line: &[u8], start: usize, scan: &mut Scan) -> Option<usize> {
        let end = match line.get(start) {
            Some(b'{') => json::skip_object(line, start, |key, at| self.note(line, key, at, scan)),
            _ => None,
        };
        end.or_else(|| {
            // They are no object, or a broken one: nothing in them counts.
            *self = Self::default();
            scan.skip(line, start, 1)
        })
    }

    fn note(
        &mut self,
        line: &[u8],
        key: Range<usize>,
        start: usize,
        scan: &mut Scan,
    ) -> Option<usize> {
        match &line[key] {
            br#""name""# => scan.note(&mut self.name, line, start, 2),
            br#""task""# => scan.note(&mut self.task, line, start, 2),
            br#""_meta""# => {
                (self.progress_token, self.version) = (None, None);
                let end = match line.get(start) {
                    Some(b'{') => json::skip_object(line, start, |key, at| match &line[key] {
                        br#""progressToken""# => scan.note(&mut self.progress_token, line, at, 3),
                        META_VERSION_KEY => scan.note(&mut self.version, line, at, 3),
                        key => {
                            scan.is_odd |= hides(key, &["progressToken"]);
                            scan.skip(line, at, 3)
                        }
                    }),
                    _ => scan.skip(line, start, 2),
                }?;
                scan.is_odd |= self.meta.replace(start..end).is_some();
                Some(end)
            }
            key => {
                // What these are about is not for us to see here, but others must not read another one.
                let is_plain = PARAMS.iter().any(|plain| json::is_key(key, plain));
                scan.is_odd |= !is_plain && hides(key, &PARAMS);
                scan.skip(line, start, 2)
            }
        }
    }
}

/// Parameters by which messages find their way.
const PARAMS: [&str; 7] = ["name", "task", "_meta", "uri", "ref", "requestId", "progressToken"];

const META_VERSION_KEY: &[u8] = br#""io.modelcontextprotocol/protocolVersion""#;

/// Whose a request is of which only the two ends are left: its id and its method. `None` where it is
/// something else, or they stood between.
pub fn look_at_ends(beginning: &[u8], ending: &[u8]) -> Option<(Id, String)> {
    let (mut id, mut method) = (None, None);
    let mut note = |bytes: &[u8], member: json::JsonMember| {
        let value = &bytes[member.value];
        match &*json::unescaped(&bytes[member.key]) {
            br#""id""# => id = Some(value.to_vec()),
            br#""method""# => method = json::text(value),
            _ => {}
        }
    };
    // The members that are whole are shown before it turns out that the object is not.
    json::each_member(beginning, |member| note(beginning, member));
    // The rest of an object from some comma on is its last members, with one brace.
    for comma in memchr::memchr_iter(b',', ending) {
        let object = [b"{", &ending[comma + 1..]].concat();
        if json::each_member(&object, |_| {}).is_some() {
            json::each_member(&object, |member| note(&object, member))?;
            break;
        }
    }
    let id = id.filter(|raw| raw != b"null")?;
    Some((Id::checked(&id)?, method?))
}

/// The line with another id; everything else as it was.
pub fn with_id(line: &[u8], id: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut escaped) = (None, None);
    json::each_member(line, |member| match &line[member.key] {
        br#""id""# => plain = Some(member.value),
        raw if *json::unescaped(raw) == *br#""id""# => escaped = Some(member.value),
        _ => {}
    })?;
    Some(splice(line, plain.or(escaped)?, id))
}

/// The bytes with a part replaced.
pub fn splice(bytes: &[u8], part: Range<usize>, by: &[u8]) -> Vec<u8> {
    [&bytes[..part.start], by, &bytes[part.end..]].concat()
}

/// The line with more members at the beginning of the object at this path; as it was, where there is no such object.
pub(crate) fn add_members(line: Vec<u8>, path: &[&str], added: &str) -> Vec<u8> {
    let Some(object) = get(&line, path) else { return line };
    let Some(members) = json::members(object) else { return line };
    let start = json::place(&line, object).start;
    let comma = if members.is_empty() { "" } else { "," };
    splice(&line, start..start + 1, format!("{{{added}{comma}").as_bytes())
}

/// The bytes with parts replaced, all in one go. They do not overlap.
pub(crate) fn edit(bytes: &[u8], mut edits: Vec<(Range<usize>, Vec<u8>)>) -> Vec<u8> {
    edits.sort_by_key(|(part, _)| part.start);
    let more: usize = edits.iter().map(|(_, by)| by.len()).sum();
    let mut edited = Vec::with_capacity(bytes.len() + more);
    let mut at = 0;
    for (part, by) in edits {
        edited.extend_from_slice(&bytes[at..part.start]);
        edited.extend_from_slice(&by);
        at = part.end;
    }
    edited.extend_from_slice(&bytes[at..]);
    edited
}

/// A parameter of a message, by its path.
pub fn param<'a>(line: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    match path {
        [key] => get(line, &["params", key]),
        [key, inner] => get(line, &["params", key, inner]),
        _ => get(get(line, &["params"])?, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, method: &str) -> Option<Message> {
        let (id, method) = (Id::new(id.as_bytes()), method.to_owned());
        Some(Message::Request { id, method, params: Params::default() })
    }

    #[test]
    fn messages_are_told_apart() {
        assert_eq!(look(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), request("1", "ping"));
        assert_eq!(look(br#"{"method":"a\/b","id":"x"}"#), request("\"x\"", "a/b"));
        assert_eq!(
            look(br#"{"method":"n","id":null}"#),
            Some(Message::Notification { method: "n".to_owned() })
        );
        let response =
            |id: Option<&[u8]>, is_error| Some(Message::Response { id: id.map(Id::new), is_error });
        assert_eq!(look(br#"{"result":{"id":5},"id":1}"#), response(Some(b"1"), false));
        assert_eq!(look(br#"{"error":{}}"#), response(None, true));
        assert_eq!(look(b"[]"), Some(Message::Batch));
        for bad in [&b"hello"[..], b"{}", b"7", b"{\"id\":null}", b"{\"method\":7}"] {
            assert_eq!(look(bad), None);
        }
        for (id, line) in [
            ("1", r#"{"id":1}"#),
            ("1", r#"{"id":1,"method":7}"#),
            ("true", r#"{"id":true,"method":"ping"}"#),
            ("{\"a\":1}", r#"{"id":{"a":1},"method":"ping"}"#),
        ] {
            let id = Id::new(id.as_bytes());
            assert_eq!(look(line.as_bytes()), Some(Message::Invalid { id }), "{line}");
        }
    }

    #[test]
    fn what_others_may_read_otherwise_is_odd() {
        let is_odd = |line: &str| look_closely(line.as_bytes()).expect(line).is_ambiguous;
        for fine in [
            r#"{"id":1,"method":"m","params":{"name":"a","arguments":{"n\u0061me":1,"name":2,"name":3}}}"#,
            r#"{"id":1,"result":{"id":2,"i\u0064":3,"id":4},"error":null}"#,
            r#"{"id":1,"method":"m","params":{"uri":"a","ID":7,"Method":"x"},"Name":1}"#,
            // As Python and PHP write them.
            r#"{"id":1,"method":"m","params":{"caf\u00e9":1,"_meta":{"a\/b":1,"x\"y":2}},"\ud83d\ude00":1}"#,
        ] {
            assert!(!is_odd(fine), "{fine}");
        }
        for odd in [
            r#"{"id":1,"id":2,"method":"m"}"#,
            r#"{"id":1,"method":"m","i\u0064":2}"#,
            r#"{"i\u0064":2,"id":1,"result":{}}"#,
            r#"{"id":1,"method":"m","method":"n"}"#,
            r#"{"id":1,"method":"m","params":{},"params":{}}"#,
            r#"{"id":1,"method":"m","p\u0061rams":{}}"#,
            r#"{"id":1,"result":1,"result":2}"#,
            r#"{"id":1,"error":1,"error":2}"#,
            r#"{"id":1,"method":"m","params":{"name":"a","name":"b"}}"#,
            r#"{"id":1,"method":"m","params":{"name":"a","Name":"b"}}"#,
            r#"{"id":1,"method":"m","ID":2}"#,
            r#"{"id":1,"method":"m","params":{"uri":"a","URI":"b"}}"#,
            r#"{"id":1,"method":"m","params":{"_meta":{"progresstoken":2}}}"#,
            r#"{"id":1,"method":"m","params":{"\u006eame":"b"}}"#,
            r#"{"method":"m","params":{"progress\u0054oken":1}}"#,
            r#"{"id":1,"method":"m","params":{"_meta":{},"_meta":{}}}"#,
            r#"{"id":1,"method":"m","params":{"_meta":{"progressToken":1,"progressToken":2}}}"#,
            r#"{"id":1,"method":"m","params":{"_meta":{"\u0070rogressToken":2}}}"#,
        ] {
            assert!(is_odd(odd), "{odd}");
        }
    }

    #[test]
    fn keys_with_escapes_count_where_the_plain_ones_are_missing() {
        for line in [
            r#"{"\u0069d":1,"\u006dethod":"ping"}"#,
            r#"{"id":1,"\u006dethod":"ping"}"#,
            r#"{"i\u0064":1,"method":"ping"}"#,
            r#"{"id":1,"\u0069\u0064":2,"metho\u0064":"ping"}"#,
            r#"{"\u0069\u0064":2,"id":1,"metho\u0064":"ping"}"#,
        ] {
            let Inspected { message, is_ambiguous: is_odd, .. } =
                look_closely(line.as_bytes()).expect(line);
            assert_eq!(Some(message), request("1", "ping"), "{line}");
            assert!(is_odd, "{line}");
        }
        let response = look(br#"{"\u0069d":1,"r\u0065sult":{}}"#);
        assert_eq!(response, Some(Message::Response { id: Some(Id::new(b"1")), is_error: false }));
        let line = br#"{"\u0069d":1,"result":{}}"#;
        assert_eq!(with_id(line, b"7").unwrap(), br#"{"\u0069d":7,"result":{}}"#);
        let ends = look_at_ends(br#"{"\u0069d":1,"\u006dethod":"ping","params":"x"#, b"x\"}");
        assert_eq!(ends, Some((Id::new(b"1"), "ping".to_owned())));
    }

    #[test]
    fn an_id_that_is_no_json_makes_no_message() {
        for id in ["1iz", "01", "+1", "1.", "tru", "{a:1}", r#""\q""#, "\"a\tb\"", "[1,]"] {
            for line in [
                format!(r#"{{"id":{id},"method":"ping"}}"#),
                format!(r#"{{"id":{id},"result":{{}}}}"#),
                format!(r#"{{"id":{id}}}"#),
            ] {
                assert_eq!(look(line.as_bytes()), None, "{line}");
            }
            let beginning = format!(r#"{{"id":{id},"method":"ping","params":"x"#);
            assert_eq!(look_at_ends(beginning.as_bytes(), b"x\"}"), None, "{id}");
        }
    }

    #[test]
    fn an_id_is_the_same_however_it_is_written() {
        for (one, other) in [
            (r#""\u0061\/b""#, r#""a/b""#),
            (r#""\u00e9""#, "\"é\""),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("-0", "0"),
            ("-2.5E1", "-25"),
        ] {
            assert_eq!(Id::new(one.as_bytes()), Id::new(other.as_bytes()), "{one}");
        }
        for (one, other) in [("7", "\"7\""), ("1.5", "1"), ("1e300", "1e301"), ("\"\\n\"", "\"n\"")]
        {
            assert_ne!(Id::new(one.as_bytes()), Id::new(other.as_bytes()), "{one}");
        }
        for odd in [&b"\"\\\xff\""[..], b"", b"1.0.0", b"12345678901234567890123456789"] {
            assert_eq!(Id::new(odd).raw(), odd);
        }
    }

    #[test]
    fn parameters_are_found_in_the_same_pass() {
        let params_of = |line: &[u8]| match look(line) {
            Some(Message::Request { params, .. }) => params,
            other => panic!("{other:?}"),
        };
        let line = br#"{"id":1,"params":7,"params":{"name":"t","x":{"name":"y"},"_meta":{"progressToken":5,
            "io.modelcontextprotocol/protocolVersion":"2026-07-28"},"task":{}},"method":"tools/call"}"#;
        let params = params_of(line);
        let raw = |part: Option<Range<usize>>| part.map(|part| &line[part]);
        assert_eq!((raw(params.name), raw(params.task)), (Some(&br#""t""#[..]), Some(&b"{}"[..])));
        assert_eq!(raw(params.progress_token), Some(&b"5"[..]));
        assert_eq!(raw(params.version), Some(&br#""2026-07-28""#[..]));
        assert_eq!(raw(params.meta), param(line, &["_meta"]));
        for none in [
            &br#"{"id":1,"method":"m"}"#[..],
            br#"{"id":1,"method":"m","params":[{"name":"t"}]}"#,
            br#"{"id":1,"method":"m","params":{"name":"t",7}}"#,
            br#"{"id":1,"params":{"name":"t"},"method":"m","params":null}"#,
        ] {
            assert_eq!(params_of(none), Params::default());
        }
        assert_eq!(look(br#"{"id":1,"method":"m","params":{"name":"t""#), None);
        let twice = br#"{"id":1,"method":"m","params":{"_meta":{"progressToken":5},"_meta":{}}}"#;
        let params = params_of(twice);
        assert_eq!(
            (params.progress_token, params.meta.map(|meta| &twice[meta])),
            (None, Some(&b"{}"[..]))
        );
    }

    #[test]
    fn ids_are_their_bytes_however_many() {
        for raw in ["7", "\"a\"", "1234567890123456789012", "12345678901234567890123"] {
            assert_eq!(Id::new(raw.as_bytes()).raw(), raw.as_bytes());
        }
        assert!(Id::new(b"10") < Id::new(b"9") && Id::new(b"7") != Id::new(b"\"7\""));
        assert_eq!(size_of::<Id>(), 24);
    }

    #[test]
    fn the_two_ends_of_a_request_tell_whose_it_is() {
        let first = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"xxx"#;
        let call = |id: &str| Some((Id::new(id.as_bytes()), "tools/call".to_owned()));
        assert_eq!(look_at_ends(first, br#"xx, "id":8}}}"#), call("7"));
        let last = br#"{"method":"tools/call","params":{"a":"xxx"#;
        for ending in [
            &br#"x, y","b":[1,{"id":1,"c":2}]},"jsonrpc":"2.0","id":"s,"}"#[..],
            br#"\",\"id\":1}"}},"id" : "s,", "jsonrpc":"2.0"}"#,
        ] {
            assert_eq!(look_at_ends(last, ending), call("\"s,\""));
        }
        assert_eq!(look_at_ends(last, br#"","id":9}}"#), None);
        assert_eq!(look_at_ends(br#"{"id":1,"result":{"a":"x"#, b"x\"}}"), None);
        assert_eq!(look_at_ends(b"", b""), None);
        assert_eq!(look_at_ends(b"xxxx", b"xxx"), None);
    }

    #[test]
    fn the_depth_of_a_message_is_that_of_its_deepest_value() {
        let depth = |line: &str| look_closely(line.as_bytes()).expect(line).depth;
        for (wanted, line) in [
            (1, r#"{"id":1,"method":"m"}"#),
            (2, r#"{"id":1,"result":{}}"#),
            (4, r#"{"id":1,"method":"m","params":{"name":"[[[[[","arguments":{"a":[1]}}}"#),
            (5, r#"{"id":1,"method":"m","params":{"_meta":{"x":{"y":{}}},"name":"a"}}"#),
            (3, r#"{"id":1,"method":"m","params":[[1]]}"#),
            (4, r#"{"other":[[[]]],"id":1,"error":{}}"#),
        ] {
            assert_eq!(depth(line), wanted, "{line}");
        }
        let deep = format!(
            r#"{{"id":1,"method":"m","params":{{"a":{}{}}}}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        assert_eq!(depth(&deep), 5_002);
    }

    #[test]
    fn an_id_is_replaced_and_nothing_else() {
        let line = br#"{ "x":1.50, "id" : 7 ,"result":{"id":7}}"#;
        let changed = with_id(line, b"\"s2:0\"").unwrap();
        assert_eq!(changed, br#"{ "x":1.50, "id" : "s2:0" ,"result":{"id":7}}"#);
        assert_eq!(with_id(b"{}", b"1"), None);
    }
}
