//! Owns the JSON Schema of `afresh.toml`, for editors, and the reference of all keys, the Markdown page under `docs/`.
//! Both are made from the declarations of keys. Never checks or writes a file.

use serde_json::{Map, Value as Json, json};

use super::key::{Fallback, Field};
use super::keys::{SECTIONS, Section, TableKind};
use super::value_syntax::Kind;
use crate::limits::{
    CONFIG_LINE_CHARS_MAX, CONFIG_LIST_LEN_MAX, NAME_CHARS_MAX, TITLE_CHARS_MAX, TOKEN_CHARS_MIN,
};

/// The schema, in the dialect 2020-12.
pub fn schema() -> Json {
    let section = |section: &Section| {
        (section.heading.to_owned(), table(section.help, section.fields.iter().copied()))
    };
    let mut sections: Map<String, Json> = SECTIONS.iter().map(section).collect();
    for kind in TableKind::ALL {
        let one = table(kind.declared().help, kind.keys());
        let schema = match kind.is_single() {
            true => one,
            false => json!({
                "description": format!("Each is `[{}]`.", kind.declared().heading),
                "type": "object",
                "additionalProperties": false,
                "patternProperties": {(name_pattern(kind)): one},
            }),
        };
        if kind == TableKind::Token {
            sections[TableKind::Gateway.section()]["properties"]["token"] = schema;
            continue;
        }
        sections.insert(kind.section().to_owned(), schema);
    }
    json!({
        "$schema": DIALECT,
        "title": "Configuration of afresh",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

/// A table of keys; those with a dot stand in a table within it.
fn table(help: &str, fields: impl Iterator<Item = &'static Field>) -> Json {
    let object = |help: &str| {
        json!({
            "description": help,
            "type": "object",
            "additionalProperties": false,
            "properties": {},
        })
    };
    let mut schema = object(help);
    for field in fields {
        let mut property = of_kind(&field.kind);
        property["description"] = field.help.into();
        if SECTIONS.iter().any(|section| section.heading == field.section) {
            property["default"] = field.default().map(|default| default.to_json()).into();
        }
        match field.key.split_once('.') {
            Some((outer, inner)) => {
                let table = &mut schema["properties"][outer];
                if table.is_null() {
                    *table = object(&format!("The keys of `{outer}`."));
                }
                table["properties"][inner] = property;
            }
            None => schema["properties"][field.key] = property,
        }
    }
    schema
}

/// Lists, tables and what else only files give.
fn of_files_alone(kind: &Kind) -> Json {
    let name = || json!({"type": "string", "pattern": name_pattern(TableKind::Service)});
    match kind {
        Kind::Command => {
            let mut command = list(json!({"type": "string"}));
            command["minItems"] = 1.into();
            command
        }
        Kind::Names => list(name()),
        Kind::Words(words) => list(json!({"type": "string", "enum": words})),
        Kind::Variables | Kind::Headers => json!({
            "type": "object",
            "maxProperties": CONFIG_LIST_LEN_MAX,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }),
        Kind::Dependencies => {
            let until = json!({"type": "string", "enum": ["ready", "started"]});
            let table = json!({"type": "object", "additionalProperties": until});
            json!({"anyOf": [list(name()), table]})
        }
        Kind::Port => json!({
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": 65_535,
            "pattern": "^.+:[0-9]+$",
        }),
        Kind::Texts => list(json!({"type": "string"})),
        Kind::Secret => json!({"type": "string", "minLength": TOKEN_CHARS_MIN}),
        Kind::JsonField => json!({"type": "object", "minProperties": 1, "maxProperties": 1}),
        _ => json!({}),
    }
}

fn list(item: Json) -> Json {
    json!({"type": "array", "items": item, "maxItems": CONFIG_LIST_LEN_MAX})
}

fn of_kind(kind: &Kind) -> Json {
    match kind {
        Kind::Duration | Kind::Interval => json!({
            "type": "string",
            "pattern": r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$",
        }),
        Kind::Integer(range) => {
            json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
        }
        // The range holds for numbers, the pattern for strings.
        Kind::Percent(max) => json!({
            "type": ["integer", "string"],
            "minimum": 0,
            "maximum": max,
            "pattern": "^[0-9]+%?$",
        }),
        Kind::Float(range) => {
            json!({"type": "number", "minimum": range.start(), "maximum": range.end()})
        }
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Signal => {
            let names: Vec<&str> = kind.words().unwrap_or_default();
            let short = names.iter().map(|name| name.trim_start_matches("SIG"));
            let all: Vec<&str> = names.iter().copied().chain(short).collect();
            json!({"type": "string", "enum": all})
        }
        Kind::UrlTemplate => json!({
            "type": "string",
            "pattern": URL_TEMPLATE_PATTERN,
        }),
        Kind::Socket => {
            json!({"type": "string", "pattern": r"^([0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]+$"})
        }
        Kind::Prefix => {
            json!({"type": "string", "maxLength": NAME_CHARS_MAX, "pattern": "^[A-Za-z0-9_.-]*$"})
        }
        Kind::Variable => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        Kind::Line => {
            json!({"type": "string", "maxLength": CONFIG_LINE_CHARS_MAX, "pattern": "^(?!-)"})
        }
        Kind::Patterns => list(json!({"type": "string", "minLength": 1})),
        Kind::Path | Kind::Host => json!({"type": "string", "minLength": 1}),
        Kind::Size(_) => json!({"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$"}),
        Kind::Title => json!({"type": "string", "minLength": 1, "maxLength": TITLE_CHARS_MAX}),
        Kind::Url => json!({"type": "string", "pattern": URL_PATTERN}),
        Kind::Address => json!({"type": "string", "pattern": "^.+:[0-9]+$"}),
        Kind::Listen => json!({"type": "string", "pattern": r"^((127\.[0-9.]+|\[::1\]):[0-9]+)?$"}),
        only_files => of_files_alone(only_files),
    }
}

fn name_pattern(kind: TableKind) -> String {
    let (dot, but) = match kind {
        TableKind::Server => ("", "(?![aA][fF][rR][eE][sS][hH]$)"),
        _ => (".", ""),
    };
    format!("^{but}[A-Za-z0-9_][A-Za-z0-9_{dot}-]{{0,{}}}$", NAME_CHARS_MAX - 1)
}

const URL_PATTERN: &str = "^[hH][tT][tT][pP][sS]?://[^@]+$";
const URL_TEMPLATE_PATTERN: &str = r"^([hH][tT][tT][pP][sS]?://[^@]+|.*\$.*)$";
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The page: one table for each section.
pub fn reference() -> String {
    let mut page = "\
# Configuration reference

Generated from the table of settings; [the guide](../guide/configuration.md) says how the files
are found and which one wins. Editors can check a file with [the schema](afresh.schema.json).
"
    .to_owned();
    for section in &SECTIONS {
        let Section { heading, help, .. } = section;
        page.push_str(&format!("\n## `[{heading}]`\n\n{help}\n\n"));
        page.push_str("| Key | Type | Default | Variable | Meaning |\n|---|---|---|---|---|\n");
        for field in section.fields {
            let (key, env, help) = (field.key, field.env(), field.help);
            let (kind, default) = (&field.kind, field.example());
            page.push_str(&format!("| `{key}` | {kind} | `{default}` | `{env}` | {help} |\n"));
        }
    }
    for kind in TableKind::ALL {
        let Section { heading, help, fields, .. } = kind.declared();
        page.push_str(&format!("\n## `[{heading}]`\n\n{help}"));
        let settings: Vec<String> = kind.settings().map(|s| format!("`{}`", s.key)).collect();
        if !settings.is_empty() {
            page.push_str(&format!(
                " Beside its own keys it takes these of `[defaults]`, for itself alone: {}.",
                settings.join(", ")
            ));
        }
        if kind == TableKind::Opencode {
            page.push_str(
                " It also takes the keys of `[service.NAME]` but for `command` and `port`.",
            );
        }
        page.push_str("\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n");
        for field in *fields {
            let (key, kind, help) = (field.key, &field.kind, field.help);
            let default = match (field.fallback, field.default()) {
                (_, Some(default)) => format!("`{}`", default.to_toml()),
                (Fallback::Words(toml), _) if toml.parse::<toml_edit::Value>().is_ok() => {
                    format!("`{toml}`")
                }
                (Fallback::Words(text) | Fallback::Default(text), _) => text.to_owned(),
            };
            page.push_str(&format!("| `{key}` | {kind} | {default} | {help} |\n"));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::settings;

    #[test]
    fn every_setting_is_described_with_its_default() {
        let schema = schema();
        for setting in settings() {
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
                Some("array") => default.is_array(),
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
            let table = &schema["properties"][section.heading];
            assert_eq!(table["additionalProperties"], false);
            let count = table["properties"].as_object().unwrap().len();
            assert_eq!(count, section.fields.len());
        }
    }
}
