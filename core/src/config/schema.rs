//! The JSON Schema of `afresh.toml`, for editors.

use serde_json::{Map, Value as Json, json};

use super::kind::{Kind, Value};
use super::settings::{SECTIONS, Setting, of_section};

/// The schema, in the dialect 2020-12.
pub fn schema() -> Json {
    let sections: Map<String, Json> = SECTIONS
        .iter()
        .map(|section| {
            let settings: Map<String, Json> = of_section(section.name)
                .map(|setting| (setting.key.to_owned(), property(setting)))
                .collect();
            let table = json!({
                "description": section.help,
                "type": "object",
                "additionalProperties": false,
                "properties": settings,
            });
            (section.name.to_owned(), table)
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of afresh",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn property(setting: &Setting) -> Json {
    let mut property = match &setting.kind {
        Kind::Duration => json!({
            "type": "string",
            "pattern": r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$",
        }),
        Kind::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        // The range holds for numbers, the pattern for strings.
        Kind::Percent { max } => json!({
            "type": ["integer", "string"],
            "minimum": 0,
            "maximum": max,
            "pattern": "^[0-9]+%?$",
        }),
        Kind::Float { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Path => json!({"type": "string", "minLength": 1}),
        Kind::Size { .. } => json!({"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$"}),
    };
    property["description"] = setting.help.into();
    property["default"] = match &setting.default {
        Value::Integer(number) => json!(number),
        Value::Percent(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Bool(value) => json!(value),
        text => json!(text.to_string()),
    };
    property
}

#[cfg(test)]
mod tests {
    use super::super::settings::SETTINGS;
    use super::*;

    #[test]
    fn every_setting_is_described_with_its_default() {
        let schema = schema();
        for setting in &SETTINGS {
            let property = &schema["properties"][setting.section]["properties"][setting.key];
            assert_eq!(property["description"], setting.help);
            let default = &property["default"];
            let types = match &property["type"] {
                Json::Array(types) => types.clone(),
                one => vec![one.clone()],
            };
            let fits = types.iter().any(|name| match name.as_str() {
                Some("string") => default.is_string(),
                Some("integer") => default.is_i64(),
                Some("number") => default.is_f64(),
                Some("boolean") => default.is_boolean(),
                _ => false,
            });
            assert!(fits, "{}: {property}", setting.key);
            if let Some(words) = property["enum"].as_array() {
                assert!(words.contains(default), "{}", setting.key);
            }
            if let Some(number) = default.as_f64() {
                let bound = |name: &str, or| property[name].as_f64().unwrap_or(or);
                let range = bound("minimum", f64::MIN)..=bound("maximum", f64::MAX);
                assert!(range.contains(&number), "{}", setting.key);
            }
        }
        for section in &SECTIONS {
            let table = &schema["properties"][section.name];
            assert_eq!(table["additionalProperties"], false);
            let count = table["properties"].as_object().unwrap().len();
            assert_eq!(count, of_section(section.name).count());
        }
    }
}
