//! Owns the OpenAPI 3.1 document of the control API, made from the table of routes, and the JSON Schemas in it,
//! derived from the types that are serialised. Served as it is. Never describes a value by hand, except for streams
//! and the document itself.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::query_parameters::Kind;
use super::route_table::{Body, Operation, ROUTES, Route};
use super::{
    ChangeAnswer, ChangeRequest, ErrorAnswer, EventPage, Gap, InputAnswer, LogPage, ReloadAnswer,
    RestartAnswer, ServiceList, ShutdownAnswer, VersionAnswer,
};
use crate::limits::{CONTROL_NUMBER_MAX, CONTROL_TEXT_CHARS_MAX};

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "afresh",
            "version": "1",
            "summary": "The control API of a running afresh.",
            "description":
                "Over the control socket of each afresh, which only its user can open, and with \
                 `--listen` over TCP on this machine, with a token. One request a connection. Every \
                 refusal has a `Refusal` as its body; a method that a path does not know is refused \
                 with 405 and `Allow`, and a header that is too long with 431. Fields are only ever \
                 added.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{
            "url": SERVER_URL,
            "description": "As `--listen` says.",
            "variables": {"port": {"default": "8900"}},
        }],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "The content of the file that the log names. Over the control \
                                socket none is needed.",
            }},
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    if route.path.contains("{name}") {
        parameters.push(json!({
            "name": "name",
            "in": "path",
            "required": true,
            "description": "The name of a service, with %-escapes.",
            "schema": text(1),
        }));
    }
    parameters.extend(route.words.iter().map(|word| {
        json!({
            "name": word.name,
            "in": "query",
            "description": word.about,
            "schema": schema_of(word.kind),
        })
    }));
    if route.operation == Operation::Events {
        parameters.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "As `since`, and before it: browsers send it when they connect again.",
            "schema": schema_of(Kind::Position),
        }));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "description": route.about,
        "responses": responses(route),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    match route.body {
        Body::None => {}
        Body::Json(schema) => {
            let content = json!({"application/json": {"schema": reference(schema)}});
            operation["requestBody"] = json!({"required": false, "content": content});
        }
        Body::Bytes(max) => {
            let schema =
                json!({"type": "string", "format": "binary", "minLength": 1, "maxLength": max});
            let content = json!({"application/octet-stream": {"schema": schema}});
            operation["requestBody"] = json!({"required": true, "content": content});
        }
    }
    operation
}

/// The path in one word.
fn operation_id(route: &Route) -> String {
    let words = route.path.trim_start_matches("/v1").split(['/', '.']);
    let words: Vec<&str> = words
        .filter(|word| !word.is_empty() && !word.starts_with('{') && *word != "json")
        .collect();
    match route.path {
        "/v1/services/{name}" => "service".to_owned(),
        "/metrics" => "prometheus".to_owned(),
        _ => words.join("_"),
    }
}

fn schema_of(kind: Kind) -> Value {
    match kind {
        Kind::Flag => json!({"type": "boolean", "default": false}),
        Kind::Number => {
            json!({"type": "integer", "minimum": 0, "maximum": CONTROL_NUMBER_MAX})
        }
        Kind::Text => text(0),
        Kind::One(words) => json!({"type": "string", "enum": words}),
        Kind::Position => json!({"type": "string", "pattern": "^([0-9a-f]{1,32}-)?[0-9]{1,15}$"}),
    }
}

/// Any text but the byte that ends one.
fn text(length_min: usize) -> Value {
    json!({
        "type": "string",
        "minLength": length_min,
        "maxLength": CONTROL_TEXT_CHARS_MAX,
        "pattern": "^[^\\u0000]*$",
    })
}

fn responses(route: &Route) -> Value {
    let mut all = Map::new();
    for answer in route.answers {
        let schema = match answer.schema {
            Some(name) => reference(name),
            None => json!({"type": "string"}),
        };
        let status = all
            .entry(answer.status.to_string())
            .or_insert_with(|| json!({"description": "", "content": {}}));
        let said = status["description"].as_str().unwrap_or_default();
        let said = if said.is_empty() { String::new() } else { format!("{said} ") };
        status["description"] = format!("{said}{}", answer.about).into();
        status["content"][answer.media] = json!({"schema": schema});
    }
    for (status, about) in refusals(route) {
        let mut refusal = json!({"description": about, "content": {"application/json": {"schema": reference("Refusal")}}});
        if status == 401 {
            refusal["headers"] = json!({"WWW-Authenticate": {
                "description": "`Bearer`.",
                "required": true,
                "schema": {"type": "string"},
            }});
        }
        all.insert(status.to_string(), refusal);
    }
    all.into()
}

/// What a route refuses, with what every route does.
fn refusals(route: &Route) -> Vec<(u16, &'static str)> {
    let mut all = vec![
        (400, "The query, the body or the path is not what it should be; the answer says how."),
        (401, "Over TCP: the token is missing, or another one."),
        (403, "Over TCP: `Host` is not this machine, or `Origin` is another one."),
        (503, "afresh is ending, or too many follow already."),
    ];
    if route.body != Body::None {
        all.push((408, "The body takes too long."));
        all.push((413, "The body is too long."));
    }
    all.extend(route.refusals);
    all.sort_unstable();
    all
}

/// All schemas, by name.
fn schemas() -> Value {
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

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The server of the document, with its variable.
const SERVER_URL: &str = "http://127.0.0.1:{port}";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Serialize;

    use super::super::*;
    use super::*;

    #[test]
    fn every_route_is_described_under_its_own_name() {
        let document = document();
        let mut names = BTreeSet::new();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            assert!(operation["responses"]["401"]["headers"]["WWW-Authenticate"].is_object());
        }
        assert!(names.contains("services_restart") && names.contains("openapi"), "{names:?}");
    }

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
                shared: Some(SharedStatus::default()),
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
