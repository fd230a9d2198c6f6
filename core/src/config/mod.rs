//! Owns the configuration: texts and variables in, a checked [`Config`] or every error out. Driven by the app, which
//! hands over what it read. Never reads a file or the environment.
//!
//! `keys` declares every key once, with its type, default and help; files, variables, flags, schema and reference
//! derive from that. A new key is a declaration there and a line in [`Config`]'s making.
//!
//! Layers, weakest first: built-in default, the workspace's `afresh.toml`, the user's own file, the
//! environment, flags. The user's file wins over the project's: a project may propose how its
//! services are kept alive, the person decides.
//!
//! Services, hooks, servers, `[opencode]` and `[gateway]` are tables of their own. They
//! come from files alone: variables and flags set defaults, and a default does not override what a
//! service says. What is about the gateway is checked here, and made by [`Config::gateway`]: values of
//! its servers can need variables that only the gateway has.

mod byte_size;
mod file;
mod key;
mod keys;
mod schema;
mod settings;
mod shell_split;
mod tables;
mod value_syntax;

use std::path::{Component, Path, PathBuf};
use std::ptr;
use std::time::Duration;

pub use self::byte_size::parse_size;
pub use self::schema::{reference, schema};
pub use self::settings::{ConfiguredPath, DaemonSettings, RunSettings, TrailSettings};
pub use self::tables::{ExternalValues, ShownEntry, ShownTable};
pub use self::value_syntax::Value;
pub use crate::report::{ConfigError, ErrorKind, Origin};

use self::key::{Field, FromValue as _};
use self::keys::defaults::{TELL_RESTARTS, WATCH_DEBOUNCE};
use self::keys::run::PERMISSION_MODE;
use self::settings::{SourcedValue, Values};
use self::tables::Table;
use self::value_syntax::value_hint;
use crate::agent::Permission;
use crate::definition::{HealthSettings, ServiceDefinition};
use crate::error_excerpt::Excerpt;
use crate::gateway::backend::StdioServer;
use crate::hook::HookDefinition;
use crate::limits::CONFIG_ERRORS_MAX;
use crate::policy::Policy;
use crate::report::Location;
use crate::suggest::nearest;
use crate::text::printable;
use crate::trust::{Accepts, TrustRequest};

/// A configuration file.
#[derive(Clone, Copy, Debug)]
pub struct ConfigSource<'a> {
    /// Whose file it is.
    pub kind: FileKind,
    /// Its path, as it is named in errors.
    pub path: &'a str,
    /// What is in it. Of a larger file, one byte more than
    /// [`CONFIG_FILE_BYTES_MAX`](crate::limits::CONFIG_FILE_BYTES_MAX) is enough.
    pub bytes: &'a [u8],
}

/// Whose file it is; the later wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// The project's `afresh.toml`.
    Workspace,
    /// The person's `~/.config/afresh/config.toml`.
    User,
}

/// A flag of the command line that gives a setting.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    /// Its name with the dashes, such as `--max-restarts`.
    pub name: &'a str,
    /// The setting, such as `defaults.max_restarts`.
    pub setting: &'a str,
    /// The value, as it was given.
    pub value: &'a str,
}

/// The configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// From `[defaults]`.
    pub policy: Policy,
    /// From `[defaults]`: what a service that runs has to hold to.
    pub health: HealthSettings,
    /// From `[defaults]`: how long watched files must be quiet before a change counts.
    pub watch_debounce: Duration,
    /// Whether results of tools say that their server was restarted.
    pub tell_restarts: bool,
    /// From `[trail]`.
    pub trail: TrailSettings,
    /// From `[daemon]`.
    pub daemon: DaemonSettings,
    /// From `[run]`.
    pub run: RunSettings,
    /// From `[opencode]` and each `[service.NAME]`, in this order; each has its own name, needs only
    /// services that are here, and there is no ring of needs.
    pub services: Vec<ServiceDefinition>,
    /// From each `[hook.NAME]`.
    pub hooks: Vec<HookDefinition>,
    /// What looks like a mistake, but stops nothing.
    pub warnings: Vec<ConfigError>,
    /// What the project's file asks for without the user's trust: it does not count.
    pub untrusted: Vec<TrustRequest>,
    values: Values,
    tables: Vec<Table>,
}

/// One setting as it is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownSetting {
    /// The name of its section.
    pub section: &'static str,
    /// The key within the section.
    pub key: &'static str,
    /// The value, without secrets.
    pub value: Value,
    /// Which layer gave it.
    pub origin: Origin,
    /// What it does.
    pub help: &'static str,
}

/// Reads all layers as [`load_trusted`] does; the user trusts all of it.
pub fn load(
    files: &[ConfigSource<'_>],
    env: &[(String, String)],
    flags: &[Flag<'_>],
) -> Result<Config, Vec<ConfigError>> {
    load_trusted(files, env, flags, &|_| true)
}

/// Reads all layers; the files may come in any order. Of the project's file, what needs the user's trust and has not
/// got it is checked, and does not count.
///
/// Variables other than `AFRESH_*` are passed over, and one with an empty value counts as not set.
/// On failure, every error of every layer is returned; of a file that is not TOML, the first.
pub fn load_trusted(
    files: &[ConfigSource<'_>],
    env: &[(String, String)],
    flags: &[Flag<'_>],
    accepts: Accepts<'_>,
) -> Result<Config, Vec<ConfigError>> {
    let mut draft = Draft::default();
    let mut files = files.to_vec();
    files.sort_by_key(|source| source.kind);
    for source in &files {
        let weaker = draft.values.clone();
        let mut read = file::read(source);
        tables::overlay(&mut draft.all_tables, read.tables.clone());
        if source.kind == FileKind::Workspace {
            let withheld = tables::withhold(&mut read, source.path, accepts);
            draft.untrusted.extend(withheld);
        }
        draft.errors.extend(read.errors.0);
        for (field, given) in read.given {
            if source.kind == FileKind::Workspace && leads_outside(&given.value) {
                let instead = format!(" or with {}", field.env());
                draft.errors.push(outside_error(field.key, &given.place, &instead));
                continue;
            }
            if source.kind == FileKind::Workspace
                && let Some(warning) = raised_permission(field, &given)
            {
                draft.warnings.push(warning);
                continue;
            }
            draft.values.put(field, given);
        }
        tables::overlay(&mut draft.tables, read.tables);
        draft.values.forget_other_agent(&weaker);
    }
    let weaker = draft.values.clone();
    for (name, value) in env {
        draft.read_variable(name, value);
    }
    draft.values.forget_other_agent(&weaker);
    let weaker = draft.values.clone();
    for flag in flags {
        draft.read_flag(flag);
    }
    draft.values.forget_other_agent(&weaker);
    draft.finish()
}

impl Config {
    /// Every setting with its value and where that comes from, in the order of the table.
    pub fn shown(&self) -> impl Iterator<Item = ShownSetting> {
        keys::settings().map(|field| {
            let SourcedValue { value, place, .. } = self.values.given(field);
            ShownSetting {
                section: field.section,
                key: field.key,
                value: value.without_secrets(),
                origin: place.origin,
                help: field.help,
            }
        })
    }

    /// From `[defaults]`, as it is for an MCP server, whose client waits at the other end.
    pub fn mcp_policy(&self) -> Policy {
        self.values.mcp_policy()
    }

    /// The files that the project's own configuration names, as far as no stronger layer names another one.
    pub fn project_files(&self) -> Vec<ProjectFile> {
        let settings = self.values.project_values().map(|(field, given)| (field.key, given));
        let tables = self.tables.iter().flat_map(Table::project_values);
        let written = ["audit_file", "marker_file"];
        let file = |(key, value, place): (&str, &Value, &Location)| match value {
            // The folder that a service works in is not read.
            Value::Path(path) if key != "cwd" => Some(ProjectFile {
                path: path.into(),
                is_written: written.contains(&key),
                key: key.to_owned(),
                place: place.clone(),
            }),
            _ => None,
        };
        let settings = settings.map(|(key, given)| (key, &given.value, &given.place));
        settings.chain(tables).filter_map(file).collect()
    }

    /// From `[defaults]`: a server on stdio that has nothing of its own but a command.
    pub fn stdio_server(&self) -> StdioServer {
        self.values.stdio()
    }
}

/// A file that the project's own configuration names.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectFile {
    /// Its path, from the workspace.
    pub path: PathBuf,
    /// Whether afresh writes it; it only reads the others.
    pub is_written: bool,
    key: String,
    place: Location,
}

impl ProjectFile {
    /// The error that it leads out of the project, by a link.
    pub fn leads_out(&self, target: &Path) -> ConfigError {
        let (key, target) = (&self.key, target.display().to_string());
        let message = format!("`{key}` of a project leads out of it, to `{}`", printable(&target));
        let hint =
            "name a file in the project that no link leads to, or set it in your own configuration";
        self.place.error(ErrorKind::BadValue, message, hint.to_owned())
    }

    /// The error that a link is on the way to what is written.
    pub fn leads_through(&self, link: &Path) -> ConfigError {
        let (key, link) = (&self.key, link.display().to_string());
        let message =
            format!("`{key}` of a project leads through the symbolic link `{}`", printable(&link));
        let hint = "name a file that no link leads to, or set it in your own configuration";
        self.place.error(ErrorKind::BadValue, message, hint.to_owned())
    }
}

/// A project that was merely cloned must not make afresh write to files of the user's, nor to those of git, some of which
/// git acts on.
fn leads_outside(value: &Value) -> bool {
    let Value::Path(path) = value else { return false };
    Path::new(path).components().any(|part| match part {
        Component::Normal(name) => name.eq_ignore_ascii_case(".git"),
        part => part != Component::CurDir,
    })
}

fn outside_error(key: &str, place: &Location, instead: &str) -> ConfigError {
    let message = format!("`{key}` of a project leads out of the project");
    let hint =
        format!("name one inside, not in `.git`, or set it in your own configuration{instead}");
    place.error(ErrorKind::BadValue, message, hint)
}

/// A project must not let an agent do more than the user said, or than afresh does by itself.
fn raised_permission(field: &Field, given: &SourcedValue) -> Option<ConfigError> {
    let asked =
        ptr::eq(field, &PERMISSION_MODE.field).then(|| Permission::from_value(&given.value))??;
    let usual = Permission::default();
    (asked > usual).then(|| {
        let message = "`permission_mode` of a project cannot give an agent more rights: it does \
                       not count"
            .to_owned();
        let hint = format!("set it in your own configuration or with {}", field.env());
        given.place.error(ErrorKind::Idle, message, hint)
    })
}

/// What was read so far, and what is wrong.
#[derive(Default)]
struct Draft {
    values: Values,
    tables: Vec<Table>,
    /// With those that are not trusted: each is checked against all.
    all_tables: Vec<Table>,
    untrusted: Vec<TrustRequest>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl Draft {
    fn read_variable(&mut self, name: &str, value: &str) {
        let Some(short) = name.strip_prefix("AFRESH_") else {
            return;
        };
        let origin = Origin::Env(name.to_owned());
        if let Some(field) = keys::settings().find(|field| field.env() == name) {
            if !value.is_empty() {
                self.read_text(field, name, value, origin);
            }
            return;
        }
        if OWN_VARIABLES.contains(&short) || short.starts_with("TEST_") {
            return;
        }
        let names: Vec<String> = keys::settings().map(Field::env).collect();
        let shorts = names.iter().map(|name| &name["AFRESH_".len()..]);
        let message = format!("unknown variable `{}` is ignored", printable(name));
        let hint = nearest(short, shorts).map(|near| format!("did you mean `AFRESH_{near}`?"));
        let place = Location { origin, excerpt: None };
        self.warnings.push(place.error(ErrorKind::UnknownVariable, message, hint));
    }

    fn read_flag(&mut self, flag: &Flag<'_>) {
        let origin = Origin::Flag(flag.name.to_owned());
        let setting = flag.setting.split_once('.');
        match setting.and_then(|(section, key)| keys::setting(section, key)) {
            Some(field) => self.read_text(field, flag.name, flag.value, origin),
            None => {
                let message = format!("unknown setting `{}`", printable(flag.setting));
                let hint = "run `afresh config show` for every key".to_owned();
                let place = Location { origin, excerpt: None };
                self.errors.push(place.error(ErrorKind::UnknownKey, message, hint));
            }
        }
    }

    /// Takes the value of a variable or flag.
    fn read_text(&mut self, field: &'static Field, name: &str, text: &str, origin: Origin) {
        let line = format!("{name}={text}");
        let excerpt = Some(Excerpt::of(&line, name.len() + 1..line.len()));
        let place = Location { origin, excerpt };
        if let Some(value) = field.kind.parse(text) {
            return self.values.put(field, SourcedValue { value, place, from: None });
        }
        let (wanted, found) = (&field.kind, printable(text));
        let message = format!("`{name}` must be {wanted}, not `{found}`");
        let form = |value: &Value| format!("{name}={value}");
        let example = field.default().as_ref().map(form).unwrap_or_default();
        let hint = value_hint(&field.kind, text, form, &example);
        self.errors.push(place.error(ErrorKind::BadValue, message, hint));
    }

    fn finish(mut self) -> Result<Config, Vec<ConfigError>> {
        // A value that could not be read stands at its default: comparing that would mislead.
        if self.errors.is_empty() {
            self.errors.extend(self.values.check_delays().err().map(|error| *error));
        }
        self.errors.extend(self.values.check_agent_command());
        self.errors.extend(self.values.check_excludes());
        self.warnings.extend(self.values.settle_thresholds());
        // Services have the defaults: what is wrong there would be said for each of them.
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        tables::forget_rests(&mut self.tables, &self.all_tables);
        let (services, hooks) = tables::make(&self.tables, &self.all_tables, &self.values)?;
        Ok(Config {
            policy: self.values.policy(),
            health: self.values.health(),
            watch_debounce: WATCH_DEBOUNCE.get(&self.values),
            tell_restarts: TELL_RESTARTS.get(&self.values),
            trail: self.values.trail(),
            daemon: self.values.daemon(),
            run: self.values.run(),
            services,
            hooks,
            warnings: self.warnings,
            untrusted: self.untrusted,
            values: self.values,
            tables: self.tables,
        })
    }
}

/// Errors in the order in which they are found. The one at the bound says that there are more, and the rest is left out.
#[derive(Default)]
struct Errors(Vec<ConfigError>);

impl Errors {
    fn push(&mut self, mut error: ConfigError) {
        match self.0.len() {
            CONFIG_ERRORS_MAX => {
                error.kind = ErrorKind::TooMany;
                error.message = "too many errors: those from here on are not shown".to_owned();
                error.hint = None;
            }
            0..CONFIG_ERRORS_MAX => {}
            _ => return,
        }
        self.0.push(error);
    }

    /// Whether there are more than are shown.
    fn is_full(&self) -> bool {
        self.0.len() > CONFIG_ERRORS_MAX
    }

    /// The first of them, in one sentence.
    fn reason(&self) -> Option<String> {
        let first = self.0.first()?;
        let hint = first.hint.as_deref().unwrap_or("correct it");
        Some(format!("{}; {hint}", first.message))
    }

    /// What was made, where nothing is wrong.
    fn or<T>(self, made: T) -> Result<T, Vec<ConfigError>> {
        if self.0.is_empty() { Ok(made) } else { Err(self.0) }
    }
}

/// Variables that afresh itself hands to its children, without their `AFRESH_`.
const OWN_VARIABLES: [&str; 6] =
    ["COPY", "SERVICE", "GENERATION", "RUN_MARK", "RUNTIME_DIR", "GATEWAY_TOKEN"];

#[cfg(test)]
mod tests;
