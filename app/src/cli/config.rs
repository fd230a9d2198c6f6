//! `afresh config`.

use std::path::{Path, PathBuf};

use afresh_core::config::{self, FileKind, ShownEntry, ShownSetting, ShownTable};
use afresh_core::hidden_characters::is_hidden;
use afresh_core::report::Origin;
use afresh_core::text::harmless;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::environment::{ConfigText, Environment, read_config, with_own_files};
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Paint, counted};

/// Checks, shows and describes the configuration.
///
/// The later one wins: built-in defaults, `afresh.toml` of the workspace, the user's own file, variables
/// (`AFRESH_…`), flags.
#[derive(Debug, Args)]
#[command(
    about = "Check, show and describe the configuration",
    after_help = "Examples:\n  \
                  afresh config check                   is everything right?\n  \
                  afresh config show --changed          what is not as built in, and who says so\n  \
                  afresh config check ci/afresh.toml    just this file\n  \
                  afresh config schema > schema.json    completion and checks in an editor"
)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the configuration; exits with 3 where something is wrong
    Check {
        /// Check just this file [default: all that counts here, variables too]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// The verdict, and every error as an object
        #[arg(long)]
        json: bool,
    },
    /// Show every setting and service as it is in force, and where it comes from
    Show {
        /// An array of objects
        #[arg(long)]
        json: bool,
        /// Only those that are not built in
        #[arg(long)]
        changed: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print which files count here, and whether they exist
    Path {
        /// An array of objects
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &ConfigArgs, environment: &Environment) -> CommandResult {
    match &arguments.command {
        ConfigCommand::Check { file, json } => check(file.as_deref(), *json, environment),
        ConfigCommand::Show { json, changed } => show(*json, *changed, environment),
        ConfigCommand::Schema => output::print_json(&config::schema()),
        ConfigCommand::Path { json } => paths(*json, environment),
    }
}

fn check(file: Option<&Path>, json: bool, environment: &Environment) -> CommandResult {
    let workspace = environment.workspace();
    let (texts, variables) = match file {
        Some(file) => (vec![one_file(file, environment)?], Vec::new()),
        None => {
            environment.warn_of_passed_over(&workspace);
            (environment.config_texts(&workspace)?, environment.config_variables())
        }
    };
    let sources: Vec<config::ConfigSource<'_>> = texts.iter().map(ConfigText::source).collect();
    let loaded = config::load(&sources, &variables, &[])
        .and_then(|config| with_own_files(config, &workspace));
    let files: Vec<&str> = texts.iter().map(|text| text.path.as_str()).collect();
    if json {
        let messages = match &loaded {
            Ok(config) => &config.warnings,
            Err(errors) => errors,
        };
        let message = |error: &config::ConfigError| {
            let severity = error.kind.severity();
            message_to_json(severity, &error.message, &error.origin, error.hint.as_deref())
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let verdict = json!({"ok": loaded.is_ok(), "files": files, "messages": messages});
        output::print_json(&verdict)?;
        return Ok(if loaded.is_ok() { Exit::Success } else { Exit::Config });
    }
    let config = loaded?;
    config.warnings.iter().for_each(|warning| output::warn(&warning.to_string()));
    let set = config.shown().filter(|shown| matches!(shown.origin, Origin::Env(_))).count();
    let files = match files.as_slice() {
        [] => "there is no configuration file, the defaults are in force".to_owned(),
        files => {
            let files = files.iter().map(|file| format!("`{}`", harmless(file)));
            files.collect::<Vec<_>>().join(" and ")
        }
    };
    let variables = match set {
        0 => String::new(),
        1 => "; 1 variable sets something".to_owned(),
        many => format!("; {many} variables set something"),
    };
    let count = |count: usize, name: &str| match count {
        0 => String::new(),
        count => format!("; {}", counted(count, name)),
    };
    let services = count(config.services.len(), "service");
    let hooks = count(config.hooks.len(), "hook");
    output::print(&format!("ok: {files}{services}{hooks}{variables}\n"))
}

fn one_file(file: &Path, environment: &Environment) -> CommandResult<ConfigText> {
    let path = environment.cwd.join(file);
    let shown = environment.shown(&path);
    let Some(bytes) = read_config(&path)? else {
        return Err(CommandError::new(Exit::NotFound, format!("there is no file `{shown}`"))
            .hint("run `afresh config path` to see which files count here"));
    };
    Ok(ConfigText { kind: FileKind::Workspace, path: shown, bytes })
}

/// Something wrong in a configuration or a plan.
pub(super) fn message_to_json(
    severity: &str,
    message: &str,
    origin: &Origin,
    hint: Option<&str>,
) -> Value {
    let origin = origin_to_json(origin);
    json!({"severity": severity, "message": message, "origin": origin, "hint": hint})
}

fn show(json: bool, changed: bool, environment: &Environment) -> CommandResult {
    let config = environment.config_for(&environment.workspace(), &[], &[""])?;
    let is_shown = |origin: &Origin| !changed || *origin != Origin::Default;
    let rows: Vec<ShownSetting> = config.shown().filter(|shown| is_shown(&shown.origin)).collect();
    let mut tables = config.shown_tables();
    for table in &mut tables {
        table.entries.retain(|entry| is_shown(&entry.origin));
    }
    if json {
        let setting = |row: &ShownSetting| {
            row_to_json(row.section, row.key, row.value.to_json(), &row.origin, row.help)
        };
        let entries = |table: &ShownTable| -> Vec<Value> {
            let entry = |entry: &ShownEntry| {
                let (section, value) = (&table.heading, json!(entry.value));
                row_to_json(section, &entry.key, value, &entry.origin, entry.help)
            };
            table.entries.iter().map(entry).collect()
        };
        let rows = rows.iter().map(setting).chain(tables.iter().flat_map(entries));
        return output::print_json(&rows.collect());
    }
    if rows.is_empty() && tables.is_empty() {
        output::remark("everything is as built in");
    }
    print_tables(&rows, &tables)
}

fn row_to_json(section: &str, key: &str, value: Value, origin: &Origin, help: &str) -> Value {
    let origin = origin_to_json(origin);
    json!({"section": section, "key": key, "value": value, "origin": origin, "help": help})
}

/// TOML, with the origins as comments: it can be pasted into a file.
pub(crate) fn print_tables(rows: &[ShownSetting], tables: &[ShownTable]) -> CommandResult {
    type Row = (String, String, Origin);
    let mut sections: Vec<(String, Option<&Origin>, Vec<Row>)> = Vec::new();
    for row in rows {
        if sections.last().is_none_or(|(section, ..)| section != row.section) {
            sections.push((row.section.to_owned(), None, Vec::new()));
        }
        if let Some((.., rows)) = sections.last_mut() {
            rows.push((row.key.to_owned(), row.value.to_toml(), row.origin.clone()));
        }
    }
    let row = |entry: &ShownEntry| (entry.key.clone(), entry.toml.clone(), entry.origin.clone());
    sections.extend(tables.iter().map(|table| {
        (table.heading.clone(), Some(&table.origin), table.entries.iter().map(row).collect())
    }));
    let all = || sections.iter().flat_map(|(.., rows)| rows);
    let length = |text: &str| text.chars().count();
    let key_width = all().map(|(key, ..)| length(key)).max().unwrap_or(0);
    let value_width = all().map(|(_, value, _)| length(value)).max().unwrap_or(0);
    let value_width = value_width.min(VALUE_WIDTH_MAX);
    let paint = Paint::stdout();
    let text = |(heading, origin, rows): &(String, Option<&Origin>, Vec<Row>)| {
        let mut text = paint.bold(&format!("[{}]", visible(heading)));
        if let Some(origin) = origin {
            text.push_str(&paint.dim(&format!("  # {}", visible(&origin.to_string()))));
        }
        text.push('\n');
        for (key, value, origin) in rows {
            let origin = paint.dim(&format!("# {}", visible(&origin.to_string())));
            let (key, value) = (visible(key), visible(value));
            text.push_str(&format!("{key:key_width$} = {value:value_width$}  {origin}\n"));
        }
        text
    };
    output::print(&sections.iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// A text with the escapes of TOML for characters that a reader would not see.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match u32::from(letter) {
            _ if !is_hidden(letter) => shown.push(letter),
            code @ ..=0xffff => shown.push_str(&format!("\\u{code:04X}")),
            code => shown.push_str(&format!("\\U{code:08X}")),
        }
    }
    shown
}

/// A longer value, such as a path, stands out of its column.
const VALUE_WIDTH_MAX: usize = 40;

fn origin_to_json(origin: &Origin) -> Value {
    match origin {
        Origin::Default => json!({"kind": "default"}),
        Origin::File { path, line, column } => {
            json!({"kind": "file", "path": path, "line": line, "column": column})
        }
        Origin::Env(name) => json!({"kind": "env", "name": name}),
        Origin::Flag(name) => json!({"kind": "flag", "name": name}),
    }
}

fn paths(json: bool, environment: &Environment) -> CommandResult {
    let workspace = environment.workspace();
    if workspace.root().is_none() {
        output::remark(
            "this folder is in no workspace: none above it has `afresh.toml`, `.git` or `.afresh`",
        );
    }
    let files = environment.config_files(&workspace);
    let whose = |kind: &FileKind| match kind {
        FileKind::Workspace => "workspace",
        FileKind::User => "user",
    };
    if json {
        let row = |(kind, path): &(FileKind, PathBuf)| {
            let path_text = path.display().to_string();
            json!({"whose": whose(kind), "path": path_text, "exists": path.exists()})
        };
        return output::print_json(&files.iter().map(row).collect());
    }
    let shown = |path: &Path| harmless(&path.display().to_string());
    let width = files.iter().map(|(_, path)| shown(path).chars().count()).max().unwrap_or(0);
    let line = |(kind, path): &(FileKind, PathBuf)| {
        let whose = whose(kind);
        let there = if path.exists() { "exists" } else { "does not exist" };
        let path = shown(path);
        format!("{whose:9}  {path:width$}  {there}\n")
    };
    output::print(&files.iter().map(line).collect::<String>())
}
