//! The reference of all settings, as the Markdown page that is kept under `docs/`.

use super::settings::{SECTIONS, of_section};

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
    page
}
