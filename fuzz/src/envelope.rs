//! Fuzzes the envelope of JSON-RPC messages: where the text is JSON, it says the same about kind, id and method as a
//! full parser, also where keys are written with escapes.

use afresh_core::mcp::envelope::{
    Id, Inspected, Message, look, look_at_ends, look_closely, with_id,
};
use afresh_core::mcp::json;
use serde_json::{Map, Value};

use crate::is_planted;

pub fn check(line: &[u8]) {
    let found = look_closely(line);
    look_at_ends(&line[..line.len() / 2], &line[line.len() / 2..]);
    json::is_sound(line, 100);
    match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => {
            check_object(line, &object, found);
            let respelt = respelt(line);
            check_object(&respelt, &object, look_closely(&respelt));
        }
        Ok(Value::Array(_)) => {
            assert!(matches!(found, Some(Inspected { message: Message::Batch, .. })));
        }
        Ok(_) => assert_eq!(found, None),
        Err(_) => {}
    }
}

fn check_object(line: &[u8], object: &Map<String, Value>, found: Option<Inspected>) {
    // The planted mistake is the one that was there: escaped keys were not found.
    let found = found.filter(|_| !(is_planted() && has_escaped_id_and_method(line)));
    let is_odd = found.as_ref().is_some_and(|found| found.is_ambiguous);
    if is_spelt_twice(line) {
        assert!(found.is_none() || is_odd, "two spellings of one key are ambiguous");
        return;
    }
    let message = found.map(|found| found.message);
    assert_eq!(kind_of(message.as_ref()), expected_kind(object));
    let id = object.get("id").filter(|id| !id.is_null());
    let found_id = match &message {
        Some(Message::Request { id, .. } | Message::Invalid { id }) => Some(id),
        Some(Message::Response { id, .. }) => id.as_ref(),
        _ => None,
    };
    if let (Some(id), Some(found)) = (id.filter(|id| has_one_form(id)), found_id) {
        assert_eq!(*found, Id::new(id.to_string().as_bytes()));
    }
    if let Some(Message::Request { method, params, .. }) = &message {
        assert_eq!(object["method"], method.as_str());
        if !is_odd && let Some(name) = &params.name {
            let name: Value = serde_json::from_slice(&line[name.clone()]).expect("a value");
            assert_eq!(object["params"]["name"], name);
        }
    }
    if object.contains_key("id") {
        let changed = with_id(line, b"\"other\"").expect("it has an id");
        let mut expected = object.clone();
        expected["id"] = "other".into();
        let changed: Map<String, Value> = serde_json::from_slice(&changed).expect("still JSON");
        assert_eq!(changed, expected, "nothing but the id changes");
        assert_eq!(kind_of(look(line).as_ref()), kind_of(message.as_ref()));
    }
}

fn kind_of(message: Option<&Message>) -> &'static str {
    match message {
        None => "none",
        Some(Message::Request { .. }) => "request",
        Some(Message::Notification { .. }) => "notification",
        Some(Message::Response { is_error: true, .. }) => "error",
        Some(Message::Response { .. }) => "response",
        Some(Message::Batch) => "batch",
        Some(Message::Invalid { .. }) => "invalid",
    }
}

fn expected_kind(object: &Map<String, Value>) -> &'static str {
    let has = |key: &str| object.contains_key(key);
    let id = object.get("id").filter(|id| !id.is_null());
    let is_proper = id.is_some_and(|id| id.is_string() || id.is_number());
    match (object.get("method").is_some_and(Value::is_string), id) {
        (true, None) => "notification",
        (true, Some(_)) if is_proper => "request",
        (true, Some(_)) => "invalid",
        (false, _) if has("error") => "error",
        (false, _) if has("result") => "response",
        (false, Some(_)) => "invalid",
        (false, None) => "none",
    }
}

/// Whether a full parser gives an id back in the form in which it came: large numbers and fractions have others.
fn has_one_form(id: &Value) -> bool {
    let is_whole = |number: f64| number.fract() == 0.0 && number.abs() < 9e15;
    match id {
        Value::Number(number) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(is_whole)
        }
        Value::String(_) => true,
        _ => false,
    }
}

/// The keys of the object as they are decoded, each with whether it is written with escapes.
fn keys(line: &[u8]) -> Vec<(String, bool)> {
    let members = json::members(line).expect("a full parser reads it");
    let key = |raw: &[u8]| (json::text(raw).expect("a key"), raw.contains(&b'\\'));
    members.into_iter().map(|member| key(&line[member.key])).collect()
}

/// The same object with an escape for the first letter of each plain key: it says the same.
fn respelt(line: &[u8]) -> Vec<u8> {
    let mut all = line.to_vec();
    for member in json::members(line).expect("a full parser reads it").into_iter().rev() {
        let first = member.key.start + 1;
        if line[first].is_ascii_alphabetic() {
            all.splice(first..=first, format!("\\u{:04x}", line[first]).into_bytes());
        }
    }
    all
}

/// Whether a key that matters is there both with and without escapes: the plain one counts for afresh, and the last
/// one for others.
fn is_spelt_twice(line: &[u8]) -> bool {
    let keys = keys(line);
    ["id", "method", "result", "error"].iter().any(|key| {
        let is = |escaped: bool| keys.iter().any(|(text, its)| text == key && *its == escaped);
        is(true) && is(false)
    })
}

fn has_escaped_id_and_method(line: &[u8]) -> bool {
    let keys = keys(line);
    let has = |key: &str| keys.iter().any(|(text, escaped)| text == key && *escaped);
    has("id") && has("method")
}
