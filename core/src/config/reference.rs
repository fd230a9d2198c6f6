//! Owns the reference of all keys, the Markdown page under `docs/`. Made from their declarations. Never writes a file.

use super::key::Fallback;
use super::keys::SECTIONS;
use super::tables::TableKind;

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
        for field in section.fields {
            let (key, env, help) = (field.key, field.env(), field.help);
            let (kind, default) = (&field.kind, field.example());
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
