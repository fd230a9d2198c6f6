//! Judges the answers of health checks over HTTP: their status, and a field of their JSON. Driven by the daemon's probes.
//! Never asks anything itself.

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
            429 | 503 => Verdict::Busy(why),
            _ => Verdict::Ill(why),
        });
    }
    let Some((path, wanted)) = wanted else { return Ok(()) };
    let ill = |why: String| Err(Verdict::Ill(why));
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
