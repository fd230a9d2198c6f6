//! Decides what an HTTP response says about the health of the server that gave it.

use serde_json::Value;

use super::Verdict;
use crate::limits::HEALTH_SHOWN_CHARS_MAX;
use crate::text::cut;

/// Judges the answer to a health check. `wanted_status` of none takes any from 200 to 299; `wanted` is
/// a field of the JSON in `body`, as a path with dots, and the value that it must have.
pub fn judge_http(
    wanted_status: Option<u16>,
    wanted: Option<&(String, Value)>,
    status: u16,
    body: &[u8],
) -> Result<(), Verdict> {
    let is_wanted = match wanted_status {
        Some(wanted) => status == wanted,
        None => (200..300).contains(&status),
    };
    if !is_wanted {
        let why = format!("it answered with status {status}");
        return Err(match status {
            // Too many requests, service unavailable.
            429 | 503 => Verdict::Busy { why },
            _ => Verdict::Ill { why },
        });
    }
    let Some((path, wanted)) = wanted else { return Ok(()) };
    let ill = |why: String| Err(Verdict::Ill { why });
    // A page in HTML is the usual one: many servers have one for every path that they do not know.
    let Ok(answer) = serde_json::from_slice::<Value>(body) else {
        return ill(format!("it answered with status {status}, but not with JSON"));
    };
    match field(&answer, path) {
        Some(found) if found == wanted => Ok(()),
        Some(found) => ill(format!("`{path}` is {}, not {}", shown(found), shown(wanted))),
        None => ill(format!("the JSON of its answer has no `{path}`")),
    }
}

/// The field at the end of a path: names in objects, numbers in lists.
fn field<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, name| match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

fn shown(value: &Value) -> String {
    cut(&value.to_string(), HEALTH_SHOWN_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ill(why: &str) -> Result<(), Verdict> {
        Err(Verdict::Ill { why: why.to_owned() })
    }

    #[test]
    fn status_and_field_decide() {
        // O8
        let healthy = Some(("healthy".to_owned(), json!(true)));
        let deep = Some(("checks.1.state".to_owned(), json!("up")));
        let html = "<!doctype html><title>opencode</title>";
        let busy = |why: &str| Err(Verdict::Busy { why: why.to_owned() });
        let cases = [
            (None, &None, 200, html, Ok(())),
            (None, &None, 204, "", Ok(())),
            (Some(401), &None, 401, "", Ok(())),
            (Some(200), &None, 204, "", ill("it answered with status 204")),
            (None, &None, 302, "", ill("it answered with status 302")),
            (None, &None, 503, "", busy("it answered with status 503")),
            (Some(503), &None, 503, "", Ok(())),
            (None, &healthy, 200, r#"{"healthy":true,"version":"1.18.33"}"#, Ok(())),
            (None, &healthy, 200, r#"{"healthy":false}"#, ill("`healthy` is false, not true")),
            (None, &healthy, 200, r#"{"healthy":"true"}"#, ill("`healthy` is \"true\", not true")),
            (None, &healthy, 200, "[]", ill("the JSON of its answer has no `healthy`")),
            (None, &healthy, 200, "1", ill("the JSON of its answer has no `healthy`")),
            (None, &healthy, 500, r#"{"healthy":true}"#, ill("it answered with status 500")),
            (None, &healthy, 200, html, ill("it answered with status 200, but not with JSON")),
            (None, &healthy, 200, "", ill("it answered with status 200, but not with JSON")),
            (None, &deep, 200, r#"{"checks":[{},{"state":"up"}]}"#, Ok(())),
            (
                None,
                &deep,
                200,
                r#"{"checks":[]}"#,
                ill("the JSON of its answer has no `checks.1.state`"),
            ),
        ];
        for (wanted_status, wanted, status, body, verdict) in cases {
            let found = judge_http(wanted_status, wanted.as_ref(), status, body.as_bytes());
            assert_eq!(found, verdict, "{status} {body}");
        }
    }

    #[test]
    fn what_is_shown_is_short() {
        let wanted = ("a".to_owned(), json!(1));
        let body = json!({ "a": "ü".repeat(10_000) }).to_string();
        let Err(Verdict::Ill { why }) = judge_http(None, Some(&wanted), 200, body.as_bytes())
        else {
            panic!("it is not 1");
        };
        assert!(why.chars().count() < HEALTH_SHOWN_CHARS_MAX + 50, "{why}");
    }
}
