//! The values of the API as JSON Schema. A test holds them against the values themselves.

mod services;

use serde_json::{Map, Value, json};

use super::{ChangeOutcome, Face, Stream};

/// All schemas, by name.
pub(super) fn schemas() -> Value {
    let all = [services::of_services(), of_changes(), of_logs(), of_events(), of_afresh()];
    let named = all.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema));
    Value::Object(named.collect())
}

fn of_changes() -> Vec<(&'static str, Value)> {
    vec![
        (
            "Asked",
            json!({
                "type": "object",
                "description": "What a change is asked for with. Without a body, nothing is said.",
                "properties": { "reason": {
                    "type": ["string", "null"],
                    "description": "Why, for the record; cut at 1,000 characters.",
                } },
                "additionalProperties": false,
            }),
        ),
        (
            "ChangeAnswer",
            object(
                "What has become of a start, a stop or a restart.",
                &[
                    ("name", text(), "The service."),
                    (
                        "outcome",
                        words(ChangeOutcome::ALL.map(ChangeOutcome::name)),
                        "How far it is.",
                    ),
                    ("old_pid", or_null(count()), "The process that ran before."),
                    ("new_pid", or_null(count()), "The process that runs now."),
                    ("detail", or_null(text()), "What went wrong, as a sentence."),
                ],
            ),
        ),
        (
            "InputAnswer",
            object(
                "That it is in the stdin of a service.",
                &[
                    ("name", text(), "The service."),
                    ("pid", count(), "The process that can read it now."),
                    ("bytes", count(), "How much it is."),
                ],
            ),
        ),
        (
            "ReloadAnswer",
            object(
                "What has changed with the configuration.",
                &[
                    ("added", names(), "Services that are new."),
                    ("removed", names(), "Services that are gone, and stopped."),
                    (
                        "changed",
                        names(),
                        "Services that are restarted, because they are defined otherwise.",
                    ),
                    ("unchanged", names(), "Services that were left alone."),
                    ("notes", names(), "What people should know besides."),
                    (
                        "outcomes",
                        array("ChangeAnswer"),
                        "With `wait=true`: what has become of those that were started, stopped and restarted.",
                    ),
                ],
            ),
        ),
        (
            "ShutdownAnswer",
            object("That afresh ends.", &[("stopping", names(), "The services that are stopped.")]),
        ),
    ]
}

fn of_logs() -> Vec<(&'static str, Value)> {
    vec![
        ("SentLine", sent("A line, as it is sent.", &["LogLine"])),
        (
            "LogPage",
            object(
                "Remembered lines.",
                &[
                    ("lines", array("LogLine"), "Oldest first."),
                    ("newest", count(), "`since` with it goes on from there."),
                ],
            ),
        ),
        (
            "LogLine",
            object(
                "One line of a service's output, or of ours about it.",
                &[
                    (
                        "number",
                        count(),
                        "Counted from 1 over all instances; a gap is lines that were forgotten.",
                    ),
                    ("time", stamp(), "When it was read."),
                    ("generation", count(), "Which instance wrote it."),
                    ("stream", words(Stream::ALL.map(Stream::name)), "Where it was written to."),
                    ("text", text(), "The line, without its end."),
                ],
            ),
        ),
    ]
}

fn of_events() -> Vec<(&'static str, Value)> {
    vec![
        (
            "EventPage",
            object(
                "What is remembered of what has happened.",
                &[
                    ("run", text(), "The afresh process whose numbers these are."),
                    ("events", array("ToldEvent"), "Oldest first."),
                    ("newest", count(), "The number of the newest event there is."),
                    ("missed", count(), "Events after `since` that are forgotten."),
                    (
                        "restarted",
                        flag(),
                        "`since` is of another afresh process: its number says nothing here.",
                    ),
                ],
            ),
        ),
        (
            "ToldEvent",
            object(
                "Something that has happened: a record of the trail, with a number.",
                &[
                    ("number", count(), "Counted from 1 in each afresh process."),
                    ("timestamp", stamp(), "When."),
                    ("level", words(["INFO", "WARNING", "ERROR"]), "How grave it is."),
                    ("logger", text(), "Which part of afresh says so."),
                    ("message", text(), "As a sentence."),
                    (
                        "props",
                        json!({"type": "object", "required": ["event_type"]}),
                        "What happened (`event_type`), to which `service`, and the details.",
                    ),
                ],
            ),
        ),
        ("SentEvent", sent("An event, as it is sent.", &["ToldEvent", "Gap"])),
        (
            "Gap",
            object(
                "What somebody who goes on from a position does not get.",
                &[
                    ("missed", count(), "Events after the position that are forgotten."),
                    ("restarted", flag(), "The position is of another afresh process."),
                ],
            ),
        ),
    ]
}

fn of_afresh() -> Vec<(&'static str, Value)> {
    vec![
        (
            "VersionAnswer",
            object(
                "Who answers here.",
                &[
                    ("version", text(), "The version of afresh."),
                    ("api", count(), "The version of the API."),
                    ("face", words(Face::ALL.map(Face::name)), "Which command it is."),
                    ("pid", count(), "The process."),
                    ("run", text(), "What its events are counted under."),
                    ("started_at", stamp(), "Since when it runs."),
                    ("workspace", or_null(text()), "The project's folder; none outside of one."),
                ],
            ),
        ),
        (
            "OpenApi",
            json!({
                "type": "object",
                "description": "An OpenAPI document.",
                "required": ["openapi", "info", "paths"],
            }),
        ),
        (
            "Refusal",
            object(
                "Every answer that is no success.",
                &[("error", reference("Refused"), "What is wrong.")],
            ),
        ),
        (
            "Refused",
            object(
                "What is wrong with a request.",
                &[
                    ("what", text(), "As a sentence."),
                    ("hint", or_null(text()), "What to do about it."),
                ],
            ),
        ),
    ]
}

/// One server-sent event. There is no word for a stream of them in OpenAPI 3.1, so its body is described by
/// one of them, as tools expect it.
fn sent(about: &str, data: &[&str]) -> Value {
    let all: Vec<Value> = data.iter().map(|name| reference(name)).collect();
    let content = match &all[..] {
        [one] => one.clone(),
        several => json!({"anyOf": several}),
    };
    json!({
        "type": "object",
        "description": about,
        "properties": {
            "id": {"type": "string", "description": "Where to go on from."},
            "event": {"type": "string", "description": "`gap` where something is missing."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": content,
            },
        },
    })
}

/// An object whose fields are all there. Later versions may add some.
fn object(about: &str, fields: &[(&str, Value, &str)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, schema, about)| ((*name).to_owned(), described(schema.clone(), about)))
        .collect();
    json!({"type": "object", "description": about, "properties": properties, "required": required})
}

fn described(mut schema: Value, about: &str) -> Value {
    schema["description"] = about.into();
    schema
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn array(name: &str) -> Value {
    json!({"type": "array", "items": reference(name)})
}

fn names() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn words<const N: usize>(words: [&str; N]) -> Value {
    json!({"type": "string", "enum": words.as_slice()})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn stamp() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn or_null(mut schema: Value) -> Value {
    match schema["type"].as_str() {
        Some(kind) => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        None => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::super::*;
    use super::*;

    /// The value has the fields of the schema and no others, and required ones are there.
    fn check(name: &str, value: &impl Serialize) {
        let (schemas, value) = (schemas(), serde_json::to_value(value).unwrap());
        let schema = &schemas[name];
        let fields: Vec<&String> = value.as_object().unwrap().keys().collect();
        for field in &fields {
            assert!(schema["properties"].get(field.as_str()).is_some(), "{name} has {field}");
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for field in required {
            assert!(fields.iter().any(|its| field == **its), "{name} has no {field}");
        }
    }

    #[test]
    fn the_schemas_are_those_of_the_values() {
        let note = RestartNote { time: String::new(), reason: String::new() };
        let exit = LastExit { code: None, signal: None, text: String::new() };
        let health = HealthStatus {
            state: HealthState::Healthy,
            failures: 0,
            last_error: None,
            latency_ms: None,
            checked_at: None,
        };
        check("HealthStatus", &health);
        check("RestartNote", &note);
        check("LastExit", &exit);
        check("UsageStatus", &UsageStatus::default());
        check("RunStatus", &RunStatus::default());
        check("Restarts", &Restarts::default());
        for state in [
            State::Ready,
            State::BackingOff { next_try_ms: 1 },
            State::Failed { why: String::new() },
        ] {
            let status = ServiceStatus {
                name: String::new(),
                group: None,
                face: Face::Keep,
                state,
                says_ready: false,
                pid: None,
                supervisor_pid: 1,
                generation: 1,
                started_at: None,
                uptime_ms: None,
                restarts: Restarts::default(),
                candidate_pid: None,
                spare_pid: None,
                swap_failed: Some(note.clone()),
                waits_for: Vec::new(),
                depends_on: Vec::new(),
                last_exit: Some(exit.clone()),
                health: Some(health.clone()),
                usage: Some(UsageStatus::default()),
                run: Some(RunStatus::default()),
                workspace: None,
                command: String::new(),
                mechanism: String::new(),
                version: String::new(),
            };
            check("ServiceStatus", &status);
            check("ServiceList", &ServiceList { services: vec![status] });
        }
        check("Asked", &ChangeAsked { reason: None });
        check("ChangeAnswer", &ChangeAnswer::accepted("web".to_owned(), None));
        let line = LogLine {
            number: 1,
            time: String::new(),
            generation: 1,
            stream: Stream::Afresh,
            text: String::new(),
        };
        check("LogLine", &line);
        check("LogPage", &LogPage { lines: vec![line], newest: 1 });
        check("Gap", &Gap::default());
        check(
            "EventPage",
            &EventPage { run: String::new(), events: Vec::new(), newest: 0, gap: Gap::default() },
        );
        let event = ToldEvent {
            number: 1,
            timestamp: String::new(),
            level: String::new(),
            logger: String::new(),
            message: String::new(),
            props: Map::new(),
        };
        check("ToldEvent", &event);
        check("InputAnswer", &InputAnswer { name: String::new(), pid: 1, bytes: 1 });
        check("ReloadAnswer", &ReloadAnswer::default());
        check("ShutdownAnswer", &ShutdownAnswer::default());
        check("Refusal", &Refusal::new(""));
        check("Refused", &Refusal::new("").error);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = document().to_string();
        let all = schemas();
        for name in text.split("#/components/schemas/").skip(1) {
            let name = name.split('"').next().unwrap();
            assert!(all.get(name).is_some(), "{name}");
        }
    }
}
