//! The API as an OpenAPI 3.1 document, made from the table of routes.

use serde_json::{Map, Value, json};

use super::route::{Body, Kind, Operation, QueryParameter, ROUTES, Route};
use super::schema::{reference, schemas};
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
                "description": "The content of the file `token` in the state folder. Over the control \
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
    parameters.extend(route.words.iter().map(parameter));
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

fn parameter(word: &QueryParameter) -> Value {
    json!({
        "name": word.name,
        "in": "query",
        "description": word.about,
        "schema": schema_of(word.kind),
    })
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

/// The server of the document, with its variable.
const SERVER_URL: &str = "http://127.0.0.1:{port}";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
}
