//! Owns the JSON Schemas of the control API's values, derived from the types that are serialised. Driven by
//! [`document`](super::document). Never describes a value by hand, except for streams and the document itself.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::{
    ChangeAnswer, ChangeRequest, ErrorAnswer, EventPage, Gap, InputAnswer, LogPage, ReloadAnswer,
    RestartAnswer, ServiceList, ShutdownAnswer, VersionAnswer,
};

/// All schemas, by name.
pub(super) fn schemas() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.transforms.push(Box::new(RecursiveTransform(words_as_enum)));
        })
    };
    // A request may leave out what has a default; an answer has every field.
    let mut requests = settings().for_deserialize().into_generator();
    let mut answers = settings().for_serialize().into_generator();
    requests.subschema_for::<ChangeRequest>();
    let add: [fn(&mut SchemaGenerator) -> Schema; 11] = [
        of::<ServiceList>,
        of::<ChangeAnswer>,
        of::<RestartAnswer>,
        of::<InputAnswer>,
        of::<ReloadAnswer>,
        of::<ShutdownAnswer>,
        of::<LogPage>,
        of::<EventPage>,
        of::<Gap>,
        of::<VersionAnswer>,
        of::<ErrorAnswer>,
    ];
    add.into_iter().for_each(|add| {
        add(&mut answers);
    });
    let mut all: Map<String, Value> = requests.take_definitions(true);
    all.extend(answers.take_definitions(true));
    all.insert("SentLine".to_owned(), sent("A line, as it is sent.", &["LogLine"]));
    all.insert("SentEvent".to_owned(), sent("An event, as it is sent.", &["NumberedEvent", "Gap"]));
    let openapi = json!({
        "type": "object",
        "description": "An OpenAPI document.",
        "required": ["openapi", "info", "paths"],
    });
    all.insert("OpenApi".to_owned(), openapi);
    all.into()
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// One `enum` of words instead of a choice between constants, which tools cannot make a type of.
fn words_as_enum(schema: &mut Schema) {
    let choices = schema.get("oneOf").and_then(Value::as_array);
    let words = choices.and_then(|all| all.iter().map(|one| one.get("const").cloned()).collect());
    if let Some(words @ Value::Array(_)) = words.map(|words: Vec<Value>| words.into()) {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words);
    }
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

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
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
        let choices = schema["oneOf"].as_array().into_iter().flatten();
        let all: Vec<&Value> = choices.chain([schema]).map(|all| &all["properties"]).collect();
        for field in &fields {
            assert!(all.iter().any(|all| all.get(field).is_some()), "{name} has {field}");
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
        check("ChangeRequest", &ChangeRequest { reason: None });
        check("ChangeAnswer", &ChangeAnswer::accepted("web".to_owned(), None));
        let line = LogLine {
            number: 1,
            time: String::new(),
            generation: 1,
            stream: LogStream::Afresh,
            text: String::new(),
        };
        check("LogLine", &line);
        check("LogPage", &LogPage { lines: vec![line], newest: 1 });
        check("Gap", &Gap::default());
        check(
            "EventPage",
            &EventPage { run: String::new(), events: Vec::new(), newest: 0, gap: Gap::default() },
        );
        let event = NumberedEvent {
            number: 1,
            timestamp: String::new(),
            level: String::new(),
            logger: String::new(),
            message: String::new(),
            props: Map::new(),
        };
        check("NumberedEvent", &event);
        check("InputAnswer", &InputAnswer { name: String::new(), pid: 1, bytes: 1 });
        check("ReloadAnswer", &ReloadAnswer::default());
        check("ShutdownAnswer", &ShutdownAnswer::default());
        check("Refusal", &ErrorAnswer::new(""));
        check("Refused", &ErrorAnswer::new("").error);
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
