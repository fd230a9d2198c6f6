//! The reference of all settings, as the Markdown page that is kept under `docs/`.

use super::fields::{Field, Form};
use super::settings::{SECTIONS, of_section};
use super::tables::TableKind;
use crate::limits::TOKEN_CHARS_MIN;

/// The page: one table for each section.
pub fn reference() -> String {
    let mut page = "\
# Configuration reference

Generated from the table of settings; [the guide](../guide/configuration.md) says how the files
are found and which one wins. Editors can check a file with [the schema](afresh.schema.json).
"
    .to_owned();
    for section in &SECTIONS {
        let (name, help) = (section.name, section.help);
        page.push_str(&format!("\n## `[{name}]`\n\n{help}\n\n"));
        page.push_str("| Key | Type | Default | Variable | Meaning |\n|---|---|---|---|---|\n");
        for setting in of_section(name) {
            let (key, env, help) = (setting.key, setting.env(), setting.help);
            let (kind, default) = (&setting.kind, setting.default.to_toml());
            page.push_str(&format!("| `{key}` | {kind} | `{default}` | `{env}` | {help} |\n"));
        }
    }
    for kind in TableKind::ALL {
        let (heading, help) = (kind.heading(), kind.help());
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
        for field in kind.own_fields() {
            let (key, form, help) = (field.key, form(field), field.help);
            let default = match field.default.parse::<toml_edit::Value>() {
                Ok(_) => format!("`{}`", field.default),
                Err(_) => field.default.to_owned(),
            };
            page.push_str(&format!("| `{key}` | {form} | {default} | {help} |\n"));
        }
    }
    page
}

fn form(field: &Field) -> String {
    match &field.form {
        Form::One(kind) => kind.to_string(),
        Form::Command | Form::Texts | Form::Patterns => "a list of strings".to_owned(),
        Form::Secret => format!("a string of at least {TOKEN_CHARS_MIN} characters"),
        Form::Names => "a list of names".to_owned(),
        Form::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("a list of {}", words.join(", "))
        }
        Form::Variables | Form::Headers => "a table of strings".to_owned(),
        Form::Dependencies => "a list of names, or a table".to_owned(),
        Form::Port => "a port from 1 to 65535, or `\"host:port\"`".to_owned(),
        Form::JsonField => "a table with one field".to_owned(),
    }
}
